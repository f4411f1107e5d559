package gitbase_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/snapshot"
)

// files lists the files of the present state with what they hold, by path.
func files(t *testing.T, r tree, ws snapshot.Workspace, state vfs.Dir) map[string]snapshot.File {
	t.Helper()
	all, err := ws.Files(context.Background(), stamp(t, ws, false))
	if err != nil {
		t.Fatal(err)
	}
	all, err = snapshot.HashFiles(context.Background(), r.dir, all, state)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]snapshot.File{}
	last := ""
	for _, f := range all {
		if f.Path <= last {
			t.Errorf("%q after %q: not in order", f.Path, last)
		}
		last = f.Path
		out[f.Path] = f
	}
	return out
}

// TestFilesAreTheStateOnDisk holds the list of files against what is on disk:
// tracked or untracked, never ignored, by their working bytes.
func TestFilesAreTheStateOnDisk(t *testing.T) {
	r := newRepo(t)
	state, err := vfs.OS{}.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { state.Close() })
	r.write(t, ".gitattributes", "*.txt text eol=crlf\n")
	r.write(t, ".gitignore", "ignored\n")
	r.write(t, "crlf.txt", "a\r\nb\r\n")
	r.write(t, "clean/deep/x", "x\n")
	r.write(t, "changed", "1\n")
	r.write(t, "gone", "g\n")
	if err := os.Symlink("clean", r.path("link")); err != nil {
		t.Fatal(err)
	}
	r.commit(t)
	r.write(t, "changed", "2\n")
	r.write(t, "untracked", "u\n")
	r.write(t, "ignored", "i\n")
	if err := os.Remove(r.path("gone")); err != nil {
		t.Fatal(err)
	}
	ws := r.open(t, state)
	want := map[string]string{
		".gitattributes": "*.txt text eol=crlf\n", ".gitignore": "ignored\n", "crlf.txt": "a\r\nb\r\n",
		"clean/deep/x": "x\n", "changed": "2\n", "untracked": "u\n", "link": "clean",
	}
	for _, pass := range []string{"first", "cached"} {
		got := files(t, r, ws, state)
		for p, content := range want {
			if got[p].Digest != snapshot.DigestOf([]byte(content)) {
				t.Errorf("%s: %q has %s, not the digest of its bytes", pass, p, got[p].Digest)
			}
		}
		for p := range got {
			if _, ok := want[p]; !ok {
				t.Errorf("%s: %q is listed", pass, p)
			}
		}
		if got["link"].Mode != snapshot.ModeSymlink || got["clean/deep/x"].Mode != snapshot.ModeRegular {
			t.Errorf("%s: modes %o %o", pass, got["link"].Mode, got["clean/deep/x"].Mode)
		}
	}
	// Same size, same name: the digest follows the bytes.
	r.write(t, "clean/deep/x", "y\n")
	if got := files(t, r, ws, state)["clean/deep/x"].Digest; got != snapshot.DigestOf([]byte("y\n")) {
		t.Errorf("a changed file has the digest %s", got)
	}
	// A list of an earlier look is completed with what is there now.
	s := stamp(t, ws, false)
	all, err := ws.Files(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(r.path("clean")); err != nil {
		t.Fatal(err)
	}
	all, err = snapshot.HashFiles(context.Background(), r.dir, all, state)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if strings.HasPrefix(f.Path, "clean/") && f.Digest != snapshot.DigestOf([]byte("y\n")) {
			t.Errorf("%q is listed without being there", f.Path)
		}
	}
	if _, err := ws.Files(context.Background(), &snapshot.Stamp{}); err == nil {
		t.Error("a stamp of nowhere is accepted")
	}
}
