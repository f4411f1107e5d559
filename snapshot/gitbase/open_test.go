package gitbase

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A FIFO in the place of a file of the git directory is an error at once; nobody
// is waited for.
func TestOpenRegular(t *testing.T) {
	p := filepath.Join(t.TempDir(), "index")
	if err := unix.Mkfifo(p, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{p, "/dev/null", t.TempDir()} {
		if f, err := openRegular(path); err == nil {
			f.Close()
			t.Errorf("%s was opened", path)
		}
	}
	if _, err := openRegular(filepath.Join(t.TempDir(), "none")); !os.IsNotExist(err) {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := readIndex(p); err == nil {
		t.Error("an index was read from a FIFO")
	}
}
