package preconditions

import (
	"errors"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/internal/vfs/memfs"
	"github.com/aspengine/asp/snapshot"
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

// foldingDir finds names by any case, as the usual file systems of two systems do.
type foldingDir struct{ vfs.Dir }

func (d foldingDir) own(path string) string {
	dir, name := d.Dir, path
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		name = path[i+1:]
		var err error
		if dir, err = d.Dir.OpenDir(path[:i]); err != nil {
			return path
		}
		defer dir.Close()
	}
	es, _ := dir.List()
	for _, e := range es {
		if strings.EqualFold(e.Name, name) {
			return path[:len(path)-len(name)] + e.Name
		}
	}
	return path
}

func (d foldingDir) Lstat(p string) (vfs.Stat, error)   { return d.Dir.Lstat(d.own(p)) }
func (d foldingDir) Open(name string) (vfs.File, error) { return d.Dir.Open(d.own(name)) }
func (d foldingDir) OpenDir(p string) (vfs.Dir, error) {
	sub, err := d.Dir.OpenDir(d.own(p))
	if err != nil {
		return nil, err
	}
	return foldingDir{sub}, nil
}

// TestNamesOfTheSystem: a name that means something else there, and one that leads to
// what is spelled otherwise, is refused wherever it stands in a path, also below a
// directory that is not there yet.
func TestNamesOfTheSystem(t *testing.T) {
	m := memfs.New(memfs.Options{})
	if err := m.Put("/ws", memfs.Tree{"a.txt": memfs.Text("a\n"), "Dir/b": memfs.Text("b\n")}); err != nil {
		t.Fatal(err)
	}
	root, err := m.OpenRoot("/ws")
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	l, err := newLive(foldingDir{root}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	l.folds = true
	l.usable = func(name string) error {
		if name == "nul" {
			return syscall.EINVAL
		}
		return nil
	}
	for path, want := range map[string]refusal.Code{
		"a.txt": "", "Dir/b": "", "Dir/new": "", "new": "", "new/x": "",
		"nul": refusal.PathInvalid, "nul/x": refusal.PathInvalid, "Dir/nul": refusal.PathInvalid, "new/nul": refusal.PathInvalid, "new/nul/x": refusal.PathInvalid,
		"A.txt": refusal.NameCollision, "dir/b": refusal.NameCollision, "dir/new": refusal.NameCollision, "Dir/B": refusal.NameCollision,
	} {
		p, err := snapshot.ParsePath(path)
		if err != nil {
			t.Fatal(err)
		}
		f, err := l.fact(p)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		got := refusal.Code("")
		if f.Blocked != nil {
			got = f.Blocked.Code
		}
		if got != want || got != "" && f.Stat != (vfs.Stat{}) {
			t.Errorf("%s: %q, want %q; %+v", path, got, want, f.Stat)
		}
	}
	// One that cannot be found in the listing is not known to be spelled so.
	l.dirs["."].names = map[string]uint64{}
	p, _ := snapshot.ParsePath("A.TXT")
	if f, err := l.fact(p); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%+v, %v", f, err)
	}
}
