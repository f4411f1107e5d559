package vfstest

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/aspengine/asp/internal/vfs"
)

func testFiles(t *testing.T, place func(t *testing.T) Place) {
	d := place(t).Dir
	f, err := d.Create("f", 0o666)
	must(t, err)
	content := func() string {
		t.Helper()
		h, err := d.Open("f")
		must(t, err)
		b, err := io.ReadAll(h)
		must(t, errors.Join(err, h.Close()))
		return string(b)
	}
	stat := func() vfs.Stat {
		t.Helper()
		s, err := f.Stat()
		must(t, err)
		l, err := d.Lstat("f")
		must(t, err)
		if s != l {
			t.Fatalf("stat of the handle %+v, of the name %+v", s, l)
		}
		return s
	}
	if s := stat(); s.Kind != vfs.KindFile || s.Size != 0 || s.Nlink != 1 || s.Ino == 0 || s.Perm != 0o644 {
		t.Errorf("new file: %+v", s)
	}
	if n, err := io.WriteString(f, "hello "); n != 6 || err != nil {
		t.Fatal(n, err)
	}
	must(t, f.StartWriteback())
	must(t, f.Sync())
	if n, err := io.Copy(f, strings.NewReader("world")); n != 5 || err != nil {
		t.Fatal(n, err)
	}
	if got := content(); got != "hello world" {
		t.Errorf("content %q", got)
	}
	b := make([]byte, 8)
	if n, err := f.ReadAt(b, 6); n != 5 || err != io.EOF || string(b[:n]) != "world" {
		t.Errorf("ReadAt over the end: %d, %v, %q", n, err, b[:n])
	}
	if n, err := f.ReadAt(b, 0); n != 8 || err != nil || string(b) != "hello wo" {
		t.Errorf("ReadAt: %d, %v, %q", n, err, b)
	}
	if n, err := f.Read(b); n != 0 || err != io.EOF {
		t.Errorf("Read at the end of what was written: %d, %v", n, err)
	}
	must(t, f.Truncate(4))
	if n, err := f.Write([]byte("!")); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if got, want := content(), "hell"+strings.Repeat("\x00", 7)+"!"; got != want {
		t.Errorf("write behind the end: got %q, want %q", got, want)
	}
	if n, err := f.WriteAt([]byte("HE"), 0); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	if n, err := f.WriteAt([]byte("end"), 13); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	if n, err := f.Write([]byte("?")); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if got, want := content(), "HEll"+strings.Repeat("\x00", 7)+"!?end"; got != want {
		t.Errorf("write over the start, behind the end and at the place before: got %q, want %q", got, want)
	}
	must(t, f.Truncate(2))
	must(t, f.Truncate(4))
	if got, want := content(), "HE\x00\x00"; got != want {
		t.Errorf("cut and grown: got %q, want %q", got, want)
	}

	must(t, f.Chmod(0o751))
	must(t, f.SetMtime(1_234_567_890_123_456_789))
	if s := stat(); s.Perm != 0o751 || s.Mtime != 1_234_567_890_123_456_789 || s.Ctime == s.Mtime {
		t.Errorf("after chmod and set time: %+v", s)
	}
	must(t, f.SetMtime(-1))
	if s := stat(); s.Mtime != -1 {
		t.Errorf("time before the epoch: %d", s.Mtime)
	}
	// The owner's own ids, so that this works for everybody; it still costs
	// the bits. Those who set both must set the mode last.
	must(t, f.Chmod(0o6755))
	s := stat()
	must(t, f.Chown(s.UID, s.GID))
	if got := stat().Perm; got != 0o755 {
		t.Errorf("permissions after chown: %o, want 755", got)
	}

	if x, err := f.Xattrs(); err != nil || x["user.a"] != nil {
		t.Fatal(x, err)
	}
	long := bytes.Repeat([]byte("v"), 1000)
	switch err := f.SetXattr("user.a", []byte("1")); {
	case errors.Is(err, syscall.EOPNOTSUPP):
		t.Log("no user attributes on this file system")
	case err != nil:
		t.Fatal(err)
	default:
		must(t, f.SetXattr("user.empty", nil))
		must(t, f.SetXattr("user.a", long))
		x, err := f.Xattrs()
		must(t, err)
		if v, ok := x["user.empty"]; !ok || len(v) != 0 || !bytes.Equal(x["user.a"], long) {
			t.Errorf("attributes: %q", x)
		}
	}
	must(t, f.Close())
	if err := f.Close(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("second close: %v", err)
	}
	if _, err := f.Read(b); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("read after close: %v", err)
	}
}

func testHandles(t *testing.T, place func(t *testing.T) Place) {
	t.Run("directory moves under its handle", func(t *testing.T) {
		p := place(t)
		standard(t, p)
		n, err := p.Dir.OpenDir("n")
		must(t, err)
		defer n.Close()
		must(t, rename(p.Dir, "n", "d/m", vfs.NoReplace))
		must(t, create(n, "late"))
		if _, err := p.Dir.Lstat("d/m/late"); err != nil {
			t.Error(err)
		}
		s, err := n.Stat()
		must(t, err)
		if l, err := p.Dir.Lstat("d/m"); err != nil || !l.SameFile(s) {
			t.Errorf("%v: %+v is not %+v", err, l, s)
		}
	})
	t.Run("directory is exchanged under its handle", func(t *testing.T) {
		p := place(t)
		standard(t, p)
		n, err := p.Dir.OpenDir("n")
		must(t, err)
		defer n.Close()
		if p.Portable {
			must(t, errors.Join(rename(p.Dir, "n", "o", vfs.NoReplace), rename(p.Dir, "d", "n", vfs.NoReplace), rename(p.Dir, "o", "d", vfs.NoReplace)))
		} else {
			must(t, rename(p.Dir, "n", "d", vfs.Exchange))
		}
		if _, err := n.Lstat("x"); err != nil {
			t.Error(err)
		}
		if _, err := p.Dir.Lstat("n/x"); !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	})
	t.Run("directory is removed under its handle", func(t *testing.T) {
		p := place(t)
		must(t, p.Dir.Mkdir("gone", 0o777))
		must(t, write(p.Dir, "f", "f"))
		g, err := p.Dir.OpenDir("gone")
		must(t, err)
		defer g.Close()
		must(t, p.Dir.Rmdir("gone"))
		_, listErr := g.List()
		errs := map[string]error{
			"create": create(g, "x"), "mkdir": g.Mkdir("x", 0o777), "symlink": g.Symlink("t", "x"), "list": listErr,
			"lstat": lstat(g, "x"), "link": p.Dir.Link("f", g, "x"), "move in": p.Dir.Rename("f", g, "x", vfs.NoReplace),
			"exchange": p.Dir.Rename("f", g, "x", vfs.Exchange), "replace": p.Dir.Rename("f", g, "x", vfs.Replace),
		}
		if p.Portable {
			delete(errs, "exchange")
		}
		for what, err := range errs {
			if !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s in a removed directory: %v", what, err)
			}
		}
		if s, err := g.Stat(); err != nil || s.Nlink != 0 {
			t.Errorf("stat of a removed directory: %+v, %v", s, err)
		}
	})
	t.Run("file without a name", func(t *testing.T) {
		d := place(t).Dir
		f, err := d.Create("f", 0o666)
		must(t, err)
		must(t, d.Unlink("f"))
		_, err = io.WriteString(f, "still")
		must(t, err)
		if s, err := f.Stat(); err != nil || s.Nlink != 0 || s.Size != 5 {
			t.Errorf("%+v, %v", s, err)
		}
		must(t, f.Close())
	})
	t.Run("list again sees changes", func(t *testing.T) {
		d := place(t).Dir
		for i, name := range []string{"a", "b", "c"} {
			l, err := d.List()
			if err != nil || len(l) != i {
				t.Fatalf("%d names: %v, %v", i, l, err)
			}
			must(t, create(d, name))
		}
	})
	t.Run("many names", func(t *testing.T) {
		d := place(t).Dir
		want := make(map[string]bool)
		for i := range 700 {
			name := strings.Repeat("long", 50) + string(rune('a'+i%26)) + strings.Repeat("x", i/26)
			must(t, create(d, name))
			want[name] = true
		}
		l, err := d.List()
		must(t, err)
		for _, e := range l {
			if !want[e.Name] {
				t.Fatalf("%q is wrong or there twice", e.Name)
			}
			delete(want, e.Name)
		}
		if len(want) != 0 {
			t.Fatalf("%d names are missing", len(want))
		}
	})
	t.Run("used from many goroutines", func(t *testing.T) {
		p := place(t)
		standard(t, p)
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				name := string(rune('A' + i))
				for range 50 {
					l, err := p.Dir.List()
					if err != nil || len(l) < 8 {
						t.Errorf("list: %d names, %v", len(l), err)
					}
					again := vfs.Exchange
					if p.Portable {
						again = vfs.Replace
					}
					if err := errors.Join(create(p.Dir, name), p.Dir.Rename(name, p.Dir, name+name, vfs.NoReplace),
						p.Dir.Rename(name+name, p.Dir, name+name, again), p.Dir.Unlink(name+name)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
	})
	t.Run("closed", func(t *testing.T) {
		p := place(t)
		standard(t, p)
		d, err := p.Dir.OpenDir(".")
		must(t, err)
		must(t, d.Close())
		_, listErr := d.List()
		for what, err := range map[string]error{
			"close": d.Close(), "lstat": lstat(d, "f"), "open": open(d, "f"), "create": create(d, "new"), "list": listErr,
			"from": d.Rename("f", p.Dir, "new", vfs.NoReplace), "to": p.Dir.Rename("f", d, "new", vfs.NoReplace), "sync": d.Sync(),
		} {
			if !errors.Is(err, fs.ErrClosed) {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}
