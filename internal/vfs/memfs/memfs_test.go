package memfs_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/internal/vfs/memfs"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func root(t testing.TB, f *memfs.FS, path string) vfs.Dir {
	t.Helper()
	d, err := f.OpenRoot(path)
	must(t, err)
	return d
}

func build(t testing.TB, tree memfs.Tree) *memfs.FS {
	t.Helper()
	f := memfs.New(memfs.Options{})
	must(t, f.Put("/", tree))
	return f
}

func write(t testing.TB, d vfs.Dir, name, data string) vfs.File {
	t.Helper()
	h, err := d.Create(name, 0o666)
	must(t, err)
	_, err = io.WriteString(h, data)
	must(t, err)
	return h
}

func TestPutAndDump(t *testing.T) {
	want := memfs.Tree{
		"a":        memfs.Text("one"),
		"bin/x":    memfs.Exec("#!"),
		"bin":      memfs.Folder(),
		"bin/l":    memfs.Symlink("../a"),
		"fifo":     memfs.FIFO(),
		"secret":   {Kind: vfs.KindFile, Perm: 0o600, Data: "s", Xattrs: map[string]string{"user.k": "v"}},
		"odd":      {Kind: vfs.KindDir, Perm: 0o2711},
		"odd/deep": memfs.Folder(),
	}
	f := build(t, want)
	if d := cmp.Diff(want, f.Dump("/")); d != "" {
		t.Errorf("dump (-want +got):\n%s", d)
	}
	for _, mode := range memfs.Modes() {
		if d := cmp.Diff(want, f.Crash(mode, memfs.Seeded(1)).Dump("/")); d != "" {
			t.Errorf("%v after Put (-want +got):\n%s", mode, d)
		}
	}
	must(t, f.Put("/bin", memfs.Tree{"x": memfs.Text("again"), "new/y": memfs.Text("y")}))
	got := f.Dump("/bin")
	if d := cmp.Diff(memfs.Tree{"x": memfs.Text("again"), "l": memfs.Symlink("../a"), "new": memfs.Folder(), "new/y": memfs.Text("y")}, got); d != "" {
		t.Errorf("second Put (-want +got):\n%s", d)
	}
	if f.Dump("/none") != nil || f.Dump("/a") != nil {
		t.Error("dump of what is no directory")
	}
	for p, want := range map[string]error{"bin": syscall.EISDIR, "a/b": syscall.ENOTDIR, "../x": syscall.EINVAL} {
		if err := f.Put("/", memfs.Tree{p: memfs.Text("")}); !errors.Is(err, want) {
			t.Errorf("Put %s: got %v, want %v", p, err, want)
		}
	}
}

func TestOpenRootFollowsLinks(t *testing.T) {
	f := build(t, memfs.Tree{"a/b/c": memfs.Text("c"), "l": memfs.Symlink("a/x"), "a/x": memfs.Symlink("/a/b"), "loop": memfs.Symlink("loop"), "up": memfs.Symlink("a/../a/b")})
	for path, want := range map[string]error{
		"/": nil, "/a": nil, "/l": nil, "/up": nil, "/a/./b/../x": nil,
		"/loop": syscall.ELOOP, "/none": syscall.ENOENT, "/a/b/c": syscall.ENOTDIR, "a": syscall.EINVAL,
	} {
		if _, err := f.OpenRoot(path); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", path, err, want)
		}
	}
	d := root(t, f, "/l")
	if _, err := d.Lstat("c"); err != nil {
		t.Error(err)
	}
}

func TestKill(t *testing.T) {
	f := build(t, memfs.Tree{"old": memfs.Text("old")})
	d := root(t, f, "/")
	h := write(t, d, "new", "unsynced")
	f.Kill()
	if _, err := h.Write([]byte("x")); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("write after death: %v", err)
	}
	if _, err := d.Lstat("old"); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("lstat after death: %v", err)
	}
	want := memfs.Tree{"old": memfs.Text("old"), "new": memfs.Text("unsynced")}
	if d := cmp.Diff(want, f.Dump("/")); d != "" {
		t.Errorf("death of the process lost something:\n%s", d)
	}
	// It has synced nothing either.
	delete(want, "new")
	if d := cmp.Diff(want, f.Crash(memfs.Nothing, nil).Dump("/")); d != "" {
		t.Errorf("power cut after the death (-want +got):\n%s", d)
	}
	if _, err := root(t, f, "/").Lstat("new"); err != nil {
		t.Error(err)
	}
}

func TestDiskFull(t *testing.T) {
	f := memfs.New(memfs.Options{Limit: 10})
	d := root(t, f, "/")
	h := write(t, d, "a", "123456")
	n, err := h.Write([]byte("7890XX"))
	if n != 4 || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got %d, %v; want 4, ENOSPC", n, err)
	}
	if n, err := h.Write([]byte("X")); n != 0 || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got %d, %v; want 0, ENOSPC", n, err)
	}
	must(t, d.Unlink("a"))
	if f.Used() != 10 {
		t.Errorf("an open file without a name uses %d", f.Used())
	}
	must(t, h.Close())
	if f.Used() != 0 {
		t.Errorf("%d bytes used after the last close", f.Used())
	}
	must(t, write(t, d, "b", strings.Repeat("x", 10)).Close())
	f.SetLimit(0)
	h = write(t, d, "c", strings.Repeat("x", 100))
	must(t, h.Truncate(1))
	if f.Used() != 11 || f.Crash(memfs.Everything, nil).Used() != 11 {
		t.Errorf("used %d, after a cut %d, want 11", f.Used(), f.Crash(memfs.Everything, nil).Used())
	}
	f.SetLimit(20)
	must(t, write(t, d, "e", strings.Repeat("x", 9)).Close())
	must(t, d.Rename("e", d, "b", vfs.Replace))
	if f.Used() != 10 {
		t.Errorf("a replaced file still counts: %d", f.Used())
	}
}

func TestClock(t *testing.T) {
	f := memfs.New(memfs.Options{Step: -1})
	d := root(t, f, "/")
	h := write(t, d, "a", "1")
	s1, err := h.Stat()
	must(t, err)
	_, err = h.Write([]byte("2"))
	must(t, err)
	s2, err := h.Stat()
	must(t, err)
	if s1.Mtime != s2.Mtime || s1.Ctime != s2.Ctime {
		t.Error("a stopped clock moved")
	}
	f.Advance(5)
	must(t, h.SetMtime(s1.Mtime))
	s3, err := h.Stat()
	must(t, err)
	if s3.Mtime != s1.Mtime || s3.Ctime != s1.Ctime+5 {
		t.Errorf("only the change time tells of a restored time: %+v, was %+v", s3, s1)
	}
	g := memfs.New(memfs.Options{})
	d = root(t, g, "/")
	var last int64
	for i := range 5 {
		must(t, write(t, d, fmt.Sprint(i), "x").Close())
		s, err := d.Lstat(fmt.Sprint(i))
		must(t, err)
		if s.Mtime <= last {
			t.Error("time does not move")
		}
		last = s.Mtime
	}
}
