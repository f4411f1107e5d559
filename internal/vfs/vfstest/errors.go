package vfstest

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aspengine/asp/internal/vfs"
)

// standard fills a place: files f and g, empty directory d, directory n with
// x and sub, links l to f, dl to n and broken to nothing, FIFO p.
func standard(t *testing.T, p Place) {
	t.Helper()
	must(t, write(p.Dir, "f", "ff"))
	must(t, write(p.Dir, "g", "g"))
	must(t, p.Dir.Mkdir("d", 0o777))
	must(t, p.Dir.Mkdir("n", 0o777))
	n, err := p.Dir.OpenDir("n")
	must(t, err)
	must(t, write(n, "x", "x"))
	must(t, n.Mkdir("sub", 0o777))
	must(t, n.Symlink("../f", "up"))
	must(t, n.Close())
	must(t, p.Dir.Symlink("f", "l"))
	must(t, p.Dir.Symlink("n", "dl"))
	must(t, p.Dir.Symlink("nowhere", "broken"))
	must(t, p.Mkfifo("p"))
}

// in runs f in a subdirectory.
func in(d vfs.Dir, path string, f func(sub vfs.Dir) error) error {
	sub, err := d.OpenDir(path)
	if err != nil {
		return err
	}
	defer sub.Close()
	return f(sub)
}

func opened(h interface{ Close() error }, err error) error {
	if err != nil {
		return err
	}
	return h.Close()
}

func lstat(d vfs.Dir, p string) error   { _, err := d.Lstat(p); return err }
func openDir(d vfs.Dir, p string) error { h, err := d.OpenDir(p); return opened(h, err) }
func open(d vfs.Dir, n string) error    { h, err := d.Open(n); return opened(h, err) }
func create(d vfs.Dir, n string) error  { h, err := d.Create(n, 0o666); return opened(h, err) }

// rename moves between paths of at most two components.
func rename(d vfs.Dir, from, to string, mode vfs.RenameMode) error {
	return between(d, from, to, func(fd vfs.Dir, fn string, td vfs.Dir, tn string) error {
		return fd.Rename(fn, td, tn, mode)
	})
}

func link(d vfs.Dir, from, to string) error {
	return between(d, from, to, func(fd vfs.Dir, fn string, td vfs.Dir, tn string) error { return fd.Link(fn, td, tn) })
}

func between(d vfs.Dir, from, to string, f func(vfs.Dir, string, vfs.Dir, string) error) error {
	cut := func(p string) (string, string) {
		if i := strings.LastIndexByte(p, '/'); i > 0 {
			return p[:i], p[i+1:]
		}
		return ".", p
	}
	fp, fn := cut(from)
	tp, tn := cut(to)
	return in(d, fp, func(fd vfs.Dir) error {
		return in(d, tp, func(td vfs.Dir) error { return f(fd, fn, td, tn) })
	})
}

// testErrors checks the error of each operation and that a failed one has
// changed nothing.
func testErrors(t *testing.T, place func(t *testing.T) Place) {
	long := strings.Repeat("n", 256)
	type op = func(d vfs.Dir) error
	re := func(from, to string, m vfs.RenameMode) op {
		return func(d vfs.Dir) error { return rename(d, from, to, m) }
	}
	with := func(f func(vfs.Dir, string) error, name string) op {
		return func(d vfs.Dir) error { return f(d, name) }
	}
	readonly := func(f func(vfs.File) error) op {
		return func(d vfs.Dir) error {
			h, err := d.Open("f")
			if err != nil {
				return err
			}
			defer h.Close()
			return f(h)
		}
	}
	cases := []struct {
		name string
		op   op
		want error
	}{
		{"lstat missing", with(lstat, "none"), fs.ErrNotExist},
		{"lstat below missing", with(lstat, "none/x"), fs.ErrNotExist},
		{"lstat below file", with(lstat, "f/x"), syscall.ENOTDIR},
		{"lstat through link", with(lstat, "dl/x"), syscall.ELOOP},
		{"lstat through broken link", with(lstat, "broken/x"), syscall.ELOOP},
		{"lstat parent", with(lstat, ".."), syscall.EINVAL},
		{"lstat inner parent", with(lstat, "n/../f"), syscall.EINVAL},
		{"lstat absolute", with(lstat, "/f"), syscall.EINVAL},
		{"lstat empty", with(lstat, ""), syscall.EINVAL},
		{"lstat slash at end", with(lstat, "n/"), syscall.EINVAL},
		{"lstat NUL", with(lstat, "f\x00"), syscall.EINVAL},
		{"lstat long", with(lstat, long), syscall.ENAMETOOLONG},

		{"opendir missing", with(openDir, "none"), fs.ErrNotExist},
		{"opendir file", with(openDir, "f"), syscall.ENOTDIR},
		{"opendir FIFO", with(openDir, "p"), syscall.ENOTDIR},
		{"opendir link to directory", with(openDir, "dl"), syscall.ELOOP},
		{"opendir link to file", with(openDir, "l"), syscall.ELOOP},
		{"opendir through link", with(openDir, "dl/sub"), syscall.ELOOP},
		{"opendir parent", with(openDir, ".."), syscall.EINVAL},
		{"opendir escape", with(openDir, "n/../.."), syscall.EINVAL},

		{"open missing", with(open, "none"), fs.ErrNotExist},
		{"open directory", with(open, "d"), syscall.EINVAL},
		{"open link", with(open, "l"), syscall.ELOOP},
		{"open broken link", with(open, "broken"), syscall.ELOOP},
		{"open FIFO does not block", with(open, "p"), syscall.EINVAL},
		{"open path", with(open, "n/x"), syscall.EINVAL},
		{"open dot", with(open, "."), syscall.EINVAL},
		{"open long", with(open, long), syscall.ENAMETOOLONG},

		{"create over file", with(create, "f"), fs.ErrExist},
		{"create over directory", with(create, "d"), fs.ErrExist},
		{"create over link", with(create, "l"), fs.ErrExist},
		{"create over broken link", with(create, "broken"), fs.ErrExist},
		{"create over FIFO", with(create, "p"), fs.ErrExist},
		{"create path", with(create, "n/new"), syscall.EINVAL},
		{"create parent", with(create, ".."), syscall.EINVAL},
		{"create long", with(create, long), syscall.ENAMETOOLONG},

		{"mkdir over file", func(d vfs.Dir) error { return d.Mkdir("f", 0o777) }, fs.ErrExist},
		{"mkdir over directory", func(d vfs.Dir) error { return d.Mkdir("d", 0o777) }, fs.ErrExist},
		{"mkdir over broken link", func(d vfs.Dir) error { return d.Mkdir("broken", 0o777) }, fs.ErrExist},
		{"symlink over file", func(d vfs.Dir) error { return d.Symlink("x", "f") }, fs.ErrExist},
		{"symlink to nothing", func(d vfs.Dir) error { return d.Symlink("", "new") }, fs.ErrNotExist},
		{"symlink NUL", func(d vfs.Dir) error { return d.Symlink("a\x00b", "new") }, syscall.EINVAL},
		{"symlink long", func(d vfs.Dir) error { return d.Symlink(strings.Repeat("a", 4096), "new") }, syscall.ENAMETOOLONG},
		{"readlink file", func(d vfs.Dir) error { _, err := d.Readlink("f"); return err }, syscall.EINVAL},
		{"readlink directory", func(d vfs.Dir) error { _, err := d.Readlink("d"); return err }, syscall.EINVAL},
		{"readlink missing", func(d vfs.Dir) error { _, err := d.Readlink("none"); return err }, fs.ErrNotExist},

		{"link over file", func(d vfs.Dir) error { return link(d, "f", "g") }, fs.ErrExist},
		{"link missing", func(d vfs.Dir) error { return link(d, "none", "new") }, fs.ErrNotExist},
		{"link missing over file", func(d vfs.Dir) error { return link(d, "none", "g") }, fs.ErrNotExist},
		{"link directory", func(d vfs.Dir) error { return link(d, "d", "new") }, syscall.EPERM},
		{"link directory over file", func(d vfs.Dir) error { return link(d, "d", "g") }, fs.ErrExist},

		{"unlink missing", func(d vfs.Dir) error { return d.Unlink("none") }, fs.ErrNotExist},
		{"unlink directory", func(d vfs.Dir) error { return d.Unlink("d") }, syscall.EISDIR},
		{"unlink path", func(d vfs.Dir) error { return d.Unlink("n/x") }, syscall.EINVAL},
		{"rmdir missing", func(d vfs.Dir) error { return d.Rmdir("none") }, fs.ErrNotExist},
		{"rmdir file", func(d vfs.Dir) error { return d.Rmdir("f") }, syscall.ENOTDIR},
		{"rmdir link", func(d vfs.Dir) error { return d.Rmdir("dl") }, syscall.ENOTDIR},
		{"rmdir non-empty", func(d vfs.Dir) error { return d.Rmdir("n") }, syscall.ENOTEMPTY},
		{"rmdir dot", func(d vfs.Dir) error { return d.Rmdir(".") }, syscall.EINVAL},

		{"no-replace onto file", re("f", "g", vfs.NoReplace), fs.ErrExist},
		{"no-replace onto itself", re("f", "f", vfs.NoReplace), fs.ErrExist},
		{"no-replace onto broken link", re("f", "broken", vfs.NoReplace), fs.ErrExist},
		{"no-replace onto empty directory", re("n", "d", vfs.NoReplace), fs.ErrExist},
		{"no-replace missing", re("none", "new", vfs.NoReplace), fs.ErrNotExist},
		{"no-replace missing onto file", re("none", "f", vfs.NoReplace), fs.ErrNotExist},
		{"no-replace into itself", re("n", "n/new", vfs.NoReplace), syscall.EINVAL},
		{"no-replace deep into itself", re("n", "n/sub/new", vfs.NoReplace), syscall.EINVAL},
		{"no-replace path", func(d vfs.Dir) error { return d.Rename("f", d, "d/f", vfs.NoReplace) }, syscall.EINVAL},
		{"no-replace long", re("f", long, vfs.NoReplace), syscall.ENAMETOOLONG},
		{"exchange with missing", re("f", "none", vfs.Exchange), fs.ErrNotExist},
		{"exchange of missing", re("none", "f", vfs.Exchange), fs.ErrNotExist},
		{"exchange with own child", re("n", "n/sub", vfs.Exchange), syscall.EINVAL},
		{"exchange with own parent", re("n/sub", "n", vfs.Exchange), syscall.EINVAL},
		{"exchange with own file", re("n", "n/x", vfs.Exchange), syscall.EINVAL},
		{"replace of missing", re("none", "f", vfs.Replace), fs.ErrNotExist},
		{"replace directory by file", re("f", "d", vfs.Replace), syscall.EISDIR},
		{"replace file by directory", re("d", "f", vfs.Replace), syscall.ENOTDIR},
		{"replace link by directory", re("d", "dl", vfs.Replace), syscall.ENOTDIR},
		{"replace non-empty directory", re("d", "n", vfs.Replace), syscall.ENOTEMPTY},
		{"replace own parent", re("n/sub", "n", vfs.Replace), syscall.ENOTEMPTY},
		{"replace own child", re("n", "n/sub", vfs.Replace), syscall.EINVAL},
		{"rename without a mode", re("f", "new", vfs.RenameInvalid), syscall.EINVAL},

		{"write without right", readonly(func(h vfs.File) error { _, err := h.Write([]byte("x")); return err }), syscall.EBADF},
		{"write at a place without right", readonly(func(h vfs.File) error { _, err := h.WriteAt([]byte("x"), 0); return err }), syscall.EBADF},
		{"truncate without right", readonly(func(h vfs.File) error { return h.Truncate(0) }), syscall.EINVAL},
		{"read before start", readonly(func(h vfs.File) error { _, err := h.ReadAt(make([]byte, 1), -1); return err }), syscall.EINVAL},
		{"attribute without a class", readonly(func(h vfs.File) error { return h.SetXattr("name", nil) }), syscall.EOPNOTSUPP},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p := place(t)
			standard(t, p)
			before, err := Dump(p.Dir)
			must(t, err)
			err = c.op(p.Dir)
			want := c.want
			if p.Portable && strings.HasPrefix(c.name, "exchange") {
				want = errors.ErrUnsupported
			}
			if !errors.Is(err, want) {
				t.Errorf("got %v, want %v", err, want)
			}
			var pe *fs.PathError
			var le *os.LinkError
			if err != nil && !errors.As(err, &pe) && !errors.As(err, &le) {
				t.Errorf("error %v (%T) is neither a path nor a link error", err, err)
			}
			after, err := Dump(p.Dir)
			must(t, err)
			if d := cmp.Diff(before, after); d != "" {
				t.Errorf("a failed operation changed the tree:\n%s", d)
			}
		})
	}
}

// testSuccess checks what each operation does to the tree.
func testSuccess(t *testing.T, place func(t *testing.T) Place) {
	type tree = map[string]Node
	swap := func(a, b string) func(tree) {
		return func(t tree) { t[a], t[b] = t[b], t[a] }
	}
	move := func(a, b string) func(tree) {
		return func(t tree) { t[b] = t[a]; delete(t, a) }
	}
	cases := []struct {
		name string
		op   func(d vfs.Dir) error
		want func(tree)
	}{
		{"create", func(d vfs.Dir) error { return create(d, "new") }, func(t tree) {
			t["new"] = Node{Kind: vfs.KindFile, Perm: 0o644, Nlink: 1}
		}},
		{"create private", func(d vfs.Dir) error { h, err := d.Create("new", 0o600); return opened(h, err) }, func(t tree) {
			t["new"] = Node{Kind: vfs.KindFile, Perm: 0o600, Nlink: 1}
		}},
		{"mkdir", func(d vfs.Dir) error { return d.Mkdir("new", 0o777) }, func(t tree) {
			t["new"] = Node{Kind: vfs.KindDir, Perm: 0o755}
		}},
		{"symlink out", func(d vfs.Dir) error { return d.Symlink("../../etc", "new") }, func(t tree) {
			t["new"] = Node{Kind: vfs.KindSymlink, Perm: 0o777, Target: "../../etc", Nlink: 1}
		}},
		{"symlink long", func(d vfs.Dir) error { return d.Symlink(strings.Repeat("a/", 1500), "new") }, func(t tree) {
			t["new"] = Node{Kind: vfs.KindSymlink, Perm: 0o777, Target: strings.Repeat("a/", 1500), Nlink: 1}
		}},
		{"link", func(d vfs.Dir) error { return link(d, "f", "d/new") }, func(t tree) {
			t["d/new"] = Node{Kind: vfs.KindFile, Perm: 0o644, Data: "ff", Nlink: 2}
			t["f"] = t["d/new"]
		}},
		{"link a link", func(d vfs.Dir) error { return link(d, "l", "new") }, func(t tree) {
			t["new"] = Node{Kind: vfs.KindSymlink, Perm: 0o777, Target: "f", Nlink: 2}
			t["l"] = t["new"]
		}},
		{"unlink", func(d vfs.Dir) error { return d.Unlink("f") }, func(t tree) { delete(t, "f") }},
		{"unlink link", func(d vfs.Dir) error { return d.Unlink("dl") }, func(t tree) { delete(t, "dl") }},
		{"unlink FIFO", func(d vfs.Dir) error { return d.Unlink("p") }, func(t tree) { delete(t, "p") }},
		{"rmdir", func(d vfs.Dir) error { return d.Rmdir("d") }, func(t tree) { delete(t, "d") }},
		{"no-replace", func(d vfs.Dir) error { return rename(d, "f", "d/new", vfs.NoReplace) }, move("f", "d/new")},
		{"no-replace link", func(d vfs.Dir) error { return rename(d, "dl", "new", vfs.NoReplace) }, move("dl", "new")},
		{"no-replace directory", func(d vfs.Dir) error { return rename(d, "n/sub", "d/sub", vfs.NoReplace) }, move("n/sub", "d/sub")},
		{"exchange files", func(d vfs.Dir) error { return rename(d, "f", "n/x", vfs.Exchange) }, swap("f", "n/x")},
		{"exchange file and link", func(d vfs.Dir) error { return rename(d, "f", "broken", vfs.Exchange) }, swap("f", "broken")},
		{"exchange file and directory", func(d vfs.Dir) error { return rename(d, "f", "d", vfs.Exchange) }, swap("f", "d")},
		{"exchange link and directory", func(d vfs.Dir) error { return rename(d, "dl", "n/sub", vfs.Exchange) }, swap("dl", "n/sub")},
		{"exchange file and FIFO", func(d vfs.Dir) error { return rename(d, "f", "p", vfs.Exchange) }, swap("f", "p")},
		{"exchange directories", func(d vfs.Dir) error { return rename(d, "n", "d", vfs.Exchange) }, func(t tree) {
			for _, p := range []string{"x", "sub", "up"} {
				move("n/"+p, "d/"+p)(t)
			}
		}},
		{"exchange with itself", func(d vfs.Dir) error { return rename(d, "f", "f", vfs.Exchange) }, func(tree) {}},
		{"replace", func(d vfs.Dir) error { return rename(d, "f", "g", vfs.Replace) }, move("f", "g")},
		{"replace link", func(d vfs.Dir) error { return rename(d, "f", "l", vfs.Replace) }, move("f", "l")},
		{"replace by link", func(d vfs.Dir) error { return rename(d, "l", "f", vfs.Replace) }, move("l", "f")},
		{"replace empty directory", func(d vfs.Dir) error { return rename(d, "n/sub", "d", vfs.Replace) }, move("n/sub", "d")},
		{"replace by second name of the same file", func(d vfs.Dir) error {
			if err := link(d, "f", "new"); err != nil {
				return err
			}
			return rename(d, "f", "new", vfs.Replace)
		}, func(t tree) {
			t["f"] = Node{Kind: vfs.KindFile, Perm: 0o644, Data: "ff", Nlink: 2}
			t["new"] = t["f"]
		}},
		{"chmod", func(d vfs.Dir) error { return in(d, "d", func(d vfs.Dir) error { return d.Chmod(0o1711) }) }, func(t tree) {
			t["d"] = Node{Kind: vfs.KindDir, Perm: 0o1711}
		}},
		{"syncs", func(d vfs.Dir) error { return errors.Join(d.Sync(), d.SyncFS()) }, func(tree) {}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p := place(t)
			standard(t, p)
			want, err := Dump(p.Dir)
			must(t, err)
			err = c.op(p.Dir)
			if p.Portable && (strings.HasPrefix(c.name, "exchange") || c.name == "syncs") {
				if !errors.Is(err, errors.ErrUnsupported) {
					t.Errorf("got %v, want that it is not supported", err)
				}
			} else {
				must(t, err)
				c.want(want)
			}
			got, err := Dump(p.Dir)
			must(t, err)
			for _, m := range []tree{want, got} {
				for k, n := range m {
					n.Same = "" // follows from the link counts here
					m[k] = n
				}
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("tree (-want +got):\n%s", d)
			}
		})
	}
}
