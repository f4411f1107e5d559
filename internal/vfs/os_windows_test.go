package vfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestWindows is for a machine with Windows, or for Wine: nothing of it runs elsewhere.
func TestWindows(t *testing.T) {
	root, err := os.MkdirTemp("", "") // left behind where Wine cannot remove it
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(root)
	d, err := OS{}.OpenRoot(root)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	ok := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	is := func(what string, err, want error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	f, err := d.Create("a", 0o666)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Write([]byte("hello"))
	ok("write", err)
	ok("sync", f.Sync())
	got := make([]byte, 3)
	_, err = f.ReadAt(got, 1)
	if ok("read at", err); string(got) != "ell" {
		t.Errorf("read %q", got)
	}
	mine, err := Claim(f)
	if ok("claim", err); !mine {
		t.Error("not claimed")
	}
	other, err := d.Open("a")
	if err != nil {
		t.Fatal(err)
	}
	mine, err = Claim(other)
	if ok("claim again", err); mine {
		t.Error("claimed twice")
	}
	b, err := io.ReadAll(other)
	if ok("read", err); string(b) != "hello" {
		t.Errorf("read %q", b)
	}
	ok("sync what is open for reading", other.Sync())
	x, err := f.Stat()
	ok("stat", err)
	y, err := d.Lstat("A") // one file, however it is spelled
	if ok("lstat", err); !x.SameFile(y) || y.Kind != KindFile || y.Size != 5 || y.Nlink != 1 || y.Ino == 0 {
		t.Errorf("%+v, %+v", x, y)
	}
	_, err = d.Create("a", 0o666)
	is("create over", err, fs.ErrExist)
	ok("mkdir", d.Mkdir("d", 0o777))
	is("mkdir over", d.Mkdir("d", 0o777), fs.ErrExist)
	sub, err := d.OpenDir("d")
	if err != nil {
		t.Fatal(err)
	}
	_, err = d.OpenDir("a")
	is("open file as directory", err, syscall.ENOTDIR)
	_, err = d.Open("d")
	is("open directory as file", err, syscall.EINVAL)
	_, err = d.Open("none")
	is("open none", err, fs.ErrNotExist)
	ok("rename an open file", d.Rename("a", sub, "b", NoReplace))
	c, err := d.Create("c", 0o666)
	ok("create", err)
	ok("close", c.Close())
	is("rename over", d.Rename("c", sub, "b", NoReplace), fs.ErrExist)
	is("exchange", d.Rename("c", sub, "b", Exchange), errors.ErrUnsupported)
	is("sync file system", d.SyncFS(), errors.ErrUnsupported)
	ok("sync directory", d.Sync())
	ok("close", errors.Join(f.Close(), other.Close()))
	is("rmdir non-empty", d.Rmdir("d"), syscall.ENOTEMPTY)
	is("unlink directory", d.Unlink("d"), syscall.EISDIR)
	ok("replace", d.Rename("c", sub, "b", Replace))
	ok("link", sub.Link("b", d, "l"))
	is("link over", sub.Link("b", d, "l"), fs.ErrExist)
	if l, err := d.Lstat("l"); err != nil || l.Nlink != 2 {
		t.Errorf("linked: %+v, %v", l, err)
	}
	ok("unlink", d.Unlink("l"))
	s, err := d.Lstat("d/b")
	if ok("lstat below", err); s.Size != 0 {
		t.Errorf("%+v", s)
	}
	names, err := sub.List()
	if ok("list", err); len(names) != 1 || names[0].Name != "b" || names[0].Kind != KindFile || names[0].Ino != s.Ino {
		t.Errorf("%+v", names)
	}
	names, err = sub.List()
	if ok("list again", err); len(names) != 1 {
		t.Errorf("%+v", names)
	}
	ok("unlink", sub.Unlink("b"))
	ok("may write", MayWrite(sub.(Descriptor)))
	names, err = sub.List()
	if ok("list nothing", err); len(names) != 0 {
		t.Errorf("%+v", names)
	}
	ok("close", sub.Close())
	ok("rmdir", d.Rmdir("d"))
	for _, n := range []string{"nul", "a:b", "GIT~1", "x.", `a\b`} {
		_, err := d.Create(n, 0o666)
		is(n, err, syscall.EINVAL)
	}
	for _, n := range []string{"", "/", "/x", "a/", "a//b", "..", "d/../x"} {
		_, err := d.Lstat(n)
		is("lstat "+n, err, syscall.EINVAL)
		is("rmdir "+n, d.Rmdir(n), syscall.EINVAL)
		_, err = d.OpenDir(n)
		is("open directory "+n, err, syscall.EINVAL)
	}
	// What is called so itself is found; what only has such a short form is not.
	ok("made by its path", os.WriteFile(filepath.Join(root, "x~1.txt"), []byte("x"), 0o666))
	if s, err := d.Lstat("x~1.txt"); err != nil || s.Size != 1 {
		t.Errorf("a name of the short form: %+v, %v", s, err)
	}
	ok("unlink", d.Unlink("x~1.txt"))
	if es, err := os.ReadDir(root); err != nil || len(es) != 0 {
		t.Errorf("left: %v, %v", es, err)
	}
	if _, err := d.Lstat(filepath.Join("none", "x")); err == nil {
		t.Error("a backslash is a name")
	}
}
