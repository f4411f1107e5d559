package preconditions

import (
	"errors"
	"strings"
	"testing"

	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/internal/vfs/memfs"
)

// TestReopenedDirectoryIsTheSame: where more directories are looked at than may be open
// one is closed and opened again by its path. Another one that is there by then would be
// looked at as if it had passed what the first one passed.
func TestReopenedDirectoryIsTheSame(t *testing.T) {
	m := memfs.New(memfs.Options{})
	if err := m.Put("/ws", memfs.Tree{"a/x": memfs.Text("x\n"), "b/y": memfs.Text("y\n"), "c/.git/HEAD": memfs.Text("")}); err != nil {
		t.Fatal(err)
	}
	root, err := m.OpenRoot("/ws")
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	l, err := newLive(root, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	l.mayOpen = 1
	for _, d := range []string{"a", "b", "a", "b"} { // each closes the other
		if f, err := l.dirAt(d); err != nil || f.dir == nil || l.open != 1 {
			t.Fatalf("%s: %+v %v, %d open", d, f, err, l.open)
		}
	}
	if err := errors.Join(root.Rename("a", root, "was", vfs.NoReplace), root.Rename("c", root, "a", vfs.NoReplace)); err != nil {
		t.Fatal(err)
	}
	if _, err := l.dirAt("a"); err == nil || !strings.Contains(err.Error(), "replaced") {
		t.Errorf("another directory: %v", err)
	}
}
