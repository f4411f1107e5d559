package home_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/internal/vfs"
)

func TestResolve(t *testing.T) {
	for _, c := range []struct {
		env  map[string]string
		want string // "" for an error
	}{
		{map[string]string{"ASP_HOME": "/a/b/../c"}, "/a/c"},
		{map[string]string{"ASP_HOME": "rel"}, ""},
		{map[string]string{"ASP_HOME": "./x", "HOME": "/h"}, ""},
		{map[string]string{"XDG_STATE_HOME": "/x", "HOME": "/h"}, "/x/asp"},
		{map[string]string{"XDG_STATE_HOME": "x", "HOME": "/h"}, "/h/.local/state/asp"},
		{map[string]string{"HOME": "/h"}, "/h/.local/state/asp"},
		{map[string]string{}, ""},
	} {
		got, err := home.Resolve(func(k string) string { return c.env[k] })
		if got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("Resolve(%v) = %q, %v, want %q", c.env, got, err, c.want)
		}
	}
}

func open(t *testing.T, path string) *home.Home {
	t.Helper()
	h, err := home.Open(vfs.OS{}, path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

func TestOpenMakesItPrivate(t *testing.T) {
	p := filepath.Join(t.TempDir(), "a", "b", "asp")
	h := open(t, p)
	st, err := h.Dir().Stat()
	if err != nil || st.Perm != 0o700 {
		t.Errorf("mode %o, %v, want 700", st.Perm, err)
	}
	open(t, p) // a second time
}

func TestOpenRefuses(t *testing.T) {
	if _, err := home.Open(vfs.OS{}, "relative"); err == nil {
		t.Error("a relative path was opened")
	}
	for _, perm := range []os.FileMode{0o770, 0o720, 0o702, 0o777, os.ModeSticky | 0o777} {
		p := filepath.Join(t.TempDir(), "asp")
		if err := errors.Join(os.Mkdir(p, 0o700), os.Chmod(p, perm)); err != nil {
			t.Fatal(err)
		}
		if _, err := home.Open(vfs.OS{}, p); !errors.Is(err, home.ErrUntrusted) {
			t.Errorf("mode %v: %v, want ErrUntrusted", perm, err)
		}
	}
	open2 := filepath.Join(t.TempDir(), "open")
	if err := errors.Join(os.Mkdir(open2, 0o700), os.Chmod(open2, 0o777)); err != nil {
		t.Fatal(err)
	}
	if _, err := home.Open(vfs.OS{}, filepath.Join(open2, "asp")); !errors.Is(err, home.ErrUntrusted) {
		t.Errorf("below a directory that everybody may write: %v, want ErrUntrusted", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := home.Open(vfs.OS{}, file); err == nil {
		t.Error("a file was opened as state directory")
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can give a directory to another user")
	}
	p := filepath.Join(t.TempDir(), "asp")
	if err := errors.Join(os.Mkdir(p, 0o700), os.Chown(p, 4242, 4242)); err != nil {
		t.Fatal(err)
	}
	if _, err := home.Open(vfs.OS{}, p); !errors.Is(err, home.ErrUntrusted) {
		t.Errorf("owned by another user: %v, want ErrUntrusted", err)
	}
}

func TestCheckOutside(t *testing.T) {
	root := t.TempDir()
	ws, other := filepath.Join(root, "ws"), filepath.Join(root, "other")
	inner := filepath.Join(ws, "sub", ".asp")
	for _, d := range []string{inner, other, filepath.Join(other, "repo")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(root, "link")
	if err := os.Symlink(inner, link); err != nil {
		t.Fatal(err)
	}
	wsLink := filepath.Join(root, "wslink")
	if err := os.Symlink(filepath.Join(other, "repo"), wsLink); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		home, ws string
		ok       bool
	}{
		{other, ws, true},
		{inner, ws, false},
		{link, ws, false},
		{ws, ws, false},
		{other, filepath.Join(other, "repo"), false},
		{other, wsLink, false},
	} {
		err := open(t, c.home).CheckOutside(c.ws)
		if (err == nil) != c.ok {
			t.Errorf("home %s, workspace %s: %v, want ok %v", c.home, c.ws, err, c.ok)
		}
	}
}

func TestReadFileOfHome(t *testing.T) {
	p := t.TempDir()
	if err := os.Chmod(p, 0o700); err != nil {
		t.Fatal(err)
	}
	h := open(t, p)
	if _, err := h.ReadFile(home.ConfigFile, 100); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	name := filepath.Join(p, home.ConfigFile)
	if err := os.WriteFile(name, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err := h.ReadFile(home.ConfigFile, 2); err != nil || string(b) != "{}" {
		t.Errorf("= %q, %v", b, err)
	}
	if _, err := h.ReadFile(home.ConfigFile, 1); !errors.Is(err, home.ErrTooLarge) {
		t.Errorf("over the limit: %v", err)
	}
	if err := os.Chmod(name, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := h.ReadFile(home.ConfigFile, 100); !errors.Is(err, home.ErrUntrusted) {
		t.Errorf("writable by others: %v, want ErrUntrusted", err)
	}
	if err := errors.Join(os.Remove(name), os.Symlink("/etc/passwd", name)); err != nil {
		t.Fatal(err)
	}
	if _, err := h.ReadFile(home.ConfigFile, 1<<20); err == nil {
		t.Error("a link was followed")
	}
}

func TestWorkspaceState(t *testing.T) {
	h := open(t, filepath.Join(t.TempDir(), "asp"))
	id := home.Identity{Root: "/src/<p>\u2028", GitDir: "/src/p/.git"}
	s, err := h.Workspace(id)
	if err != nil {
		t.Fatal(err)
	}
	d, err := s.Sub(home.Receipts)
	if err != nil {
		t.Fatal(err)
	}
	if err := home.CreateFile(d, "x", []byte("1")); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(s.Path(home.Receipts), "x")); err != nil || string(b) != "1" {
		t.Errorf("= %q, %v", b, err)
	}
	// The label says that the directories are durable: not before a barrier.
	var batch home.Batch
	if err := s.Owe(&batch); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(s.Path(home.WorkspaceFile)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("label before the barrier: %v", err)
	}
	if err := errors.Join(batch.Sync(home.EachFile), s.Close()); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(s.Path(home.WorkspaceFile)); err != nil || !strings.Contains(string(b), `"root":"/src/<p>`) {
		t.Errorf("label after the barrier: %s, %v", b, err)
	}
	s, err = h.Workspace(id)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	if a, b := id.ID(), (home.Identity{Root: id.Root}).ID(); a == b || len(a) != 64 {
		t.Errorf("ids %s and %s", a, b)
	}
	// Someone else's directory under this name.
	lab := filepath.Join(s.Path(home.WorkspaceFile))
	if err := os.WriteFile(lab, []byte(`{"format":1,"gitDir":"","root":"/other"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Workspace(id); err == nil || !strings.Contains(err.Error(), "another workspace") {
		t.Errorf("foreign label: %v", err)
	}
	if err := os.WriteFile(lab, []byte(`{"format":2}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Workspace(id); err == nil || !strings.Contains(err.Error(), "newer") {
		t.Errorf("newer format: %v", err)
	}
	if err := os.WriteFile(lab, nil, 0o600); err != nil { // what a power cut leaves
		t.Fatal(err)
	}
	s, err = h.Workspace(id)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
}

func TestFiles(t *testing.T) {
	dir, err := vfs.OS{}.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := home.CreateFile(dir, "a", []byte("one")); err != nil {
		t.Fatal(err)
	}
	if err := home.CreateFile(dir, "a", []byte("two")); !errors.Is(err, fs.ErrExist) {
		t.Errorf("second create: %v, want fs.ErrExist", err)
	}
	if b, err := home.ReadFile(dir, "a", 10); err != nil || string(b) != "one" {
		t.Errorf("= %q, %v", b, err)
	}
	if err := home.WriteFile(dir, "a", []byte("three")); err != nil {
		t.Fatal(err)
	}
	if b, err := home.ReadFile(dir, "a", 5); err != nil || string(b) != "three" {
		t.Errorf("= %q, %v", b, err)
	}
	if err := home.WriteFile(dir, "missing/x", nil); err == nil {
		t.Error("a path was taken for a name")
	}
	for _, mode := range []home.SyncMode{home.EachFile, home.WholeFS} {
		var b home.Batch
		ran := 0
		b.After(func() error { ran++; return nil })
		if err := errors.Join(b.WriteFile(dir, "b", []byte("1")), b.WriteFile(dir, "c", nil)); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(b.Sync(mode), b.Sync(mode)); err != nil || ran != 1 {
			t.Errorf("Sync: %v, clean-up ran %d times", err, ran)
		}
	}
	names, err := dir.List()
	if err != nil || len(names) != 3 {
		t.Errorf("names %v, %v: want a, b, c and no temporary file", names, err)
	}
	if err := home.WriteFile(dir, home.TempPrefix+"left", nil); err != nil {
		t.Fatal(err)
	}
	if err := home.CleanTemp(dir); err != nil {
		t.Fatal(err)
	}
	if names, _ := dir.List(); len(names) != 3 {
		t.Errorf("after CleanTemp: %v", names)
	}
}

// A reader never sees a part of a file, and exactly one of many creators wins.
func TestWritersAndReaders(t *testing.T) {
	dir, err := vfs.OS{}.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	var wg sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for i := range 8 {
		wg.Go(func() {
			data := []byte(strings.Repeat(string(rune('a'+i)), 20000))
			if err := home.CreateFile(dir, "once", data); err == nil {
				mu.Lock()
				won++
				mu.Unlock()
			} else if !errors.Is(err, fs.ErrExist) {
				t.Error(err)
			}
			for range 20 {
				if err := home.WriteFile(dir, "often", data); err != nil {
					t.Error(err)
				}
				b, err := home.ReadFile(dir, "often", 20000)
				if err != nil || strings.Trim(string(b), string(b[:1])) != "" || len(b) != 20000 {
					t.Errorf("read a torn file (%d bytes), %v", len(b), err)
				}
			}
		})
	}
	wg.Wait()
	if won != 1 {
		t.Errorf("%d creators won", won)
	}
}
