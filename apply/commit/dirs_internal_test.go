package commit

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/aspengine/asp/internal/vfs/memfs"
)

// TestUnplacedIsKnownByItsInode: a directory that is not at its place yet is known by
// name and inode, not by a handle. Another one under that name is none of ours, and
// what lies in it is nobody's to undo.
func TestUnplacedIsKnownByItsInode(t *testing.T) {
	m := memfs.New(memfs.Options{})
	if err := m.Put("/area", memfs.Tree{"made/below": memfs.Folder(), "other/below": memfs.Folder()}); err != nil {
		t.Fatal(err)
	}
	area, err := m.OpenRoot("/area")
	if err != nil {
		t.Fatal(err)
	}
	defer area.Close()
	st, err := area.Lstat("made")
	if err != nil {
		t.Fatal(err)
	}
	for _, rest := range []string{".", "below"} {
		d, err := unplaced{area, "made", st.Ino}.open(rest)
		if err != nil {
			t.Fatal(err)
		}
		closeDir(d)
		if _, err := (unplaced{area, "other", st.Ino}).open(rest); !errors.Is(err, fs.ErrNotExist) || !unreachable(err) {
			t.Errorf("another directory, %s: %v", rest, err)
		}
	}
}
