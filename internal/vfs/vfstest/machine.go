package vfstest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/aspengine/asp/internal/vfs"
)

// Compare does the same random operations in two empty directories, of two
// forms, and fails at the first difference in an answer or a tree.
func Compare(t *rapid.T, a, b vfs.Dir) {
	m := &machine{dirs: [][2]vfs.Dir{{a, b}}}
	defer m.close()
	t.Repeat(map[string]func(*rapid.T){
		"create":   m.create,
		"mkdir":    m.mkdir,
		"symlink":  m.symlink,
		"link":     m.link,
		"unlink":   m.unlink,
		"rmdir":    m.rmdir,
		"rename":   m.rename,
		"rename 2": m.rename, // the most interesting one
		"opendir":  m.opendir,
		"lstat":    m.lstat,
		"open":     m.open,
		"write":    m.write,
		"truncate": m.truncate,
		"chmod":    m.chmod,
		"":         m.check,
	})
}

// machine holds pairs of handles on the same thing in both forms. Directories
// stay open after their removal: those are the cases nobody thinks of.
type machine struct {
	dirs  [][2]vfs.Dir
	files [][2]vfs.File
}

func (m *machine) close() {
	for _, d := range m.dirs[1:] {
		_, _ = d[0].Close(), d[1].Close()
	}
	for _, f := range m.files {
		_, _ = f[0].Close(), f[1].Close()
	}
}

func (m *machine) dir(t *rapid.T) [2]vfs.Dir {
	return m.dirs[rapid.IntRange(0, len(m.dirs)-1).Draw(t, "dir")]
}

func name(t *rapid.T) string { return rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name") }

func path(t *rapid.T) string {
	return rapid.SampledFrom([]string{
		".", "a", "b", "c", "a/a", "a/b", "b/a", "b/c", "c/a", "a/b/c", "b/a/c", "c/c/c", "..", "a/..", "/a", "",
	}).Draw(t, "path")
}

// same compares two errors; it returns whether both are nil.
func same(t *rapid.T, what string, a, b error) bool {
	if Errno(a) != Errno(b) || errors.Is(a, fs.ErrClosed) != errors.Is(b, fs.ErrClosed) {
		t.Fatalf("%s: %v against %v", what, a, b)
	}
	return a == nil
}

func (m *machine) create(t *rapid.T) {
	d, n := m.dir(t), name(t)
	perm := rapid.SampledFrom([]uint32{0o666, 0o777, 0o600}).Draw(t, "perm")
	fa, ea := d[0].Create(n, perm)
	fb, eb := d[1].Create(n, perm)
	if same(t, "create", ea, eb) {
		m.files = append(m.files, [2]vfs.File{fa, fb})
	}
}

func (m *machine) mkdir(t *rapid.T) {
	d, n := m.dir(t), name(t)
	if same(t, "mkdir", d[0].Mkdir(n, 0o777), d[1].Mkdir(n, 0o777)) {
		m.openAt(t, d, n)
	}
}

func (m *machine) symlink(t *rapid.T) {
	d, n := m.dir(t), name(t)
	target := rapid.SampledFrom([]string{"a", "b", ".", "../c", "/", ""}).Draw(t, "target")
	same(t, "symlink", d[0].Symlink(target, n), d[1].Symlink(target, n))
}

func (m *machine) link(t *rapid.T) {
	from, n, to, toName := m.dir(t), name(t), m.dir(t), name(t)
	same(t, "link", from[0].Link(n, to[0], toName), from[1].Link(n, to[1], toName))
}

func (m *machine) unlink(t *rapid.T) {
	d, n := m.dir(t), name(t)
	same(t, "unlink", d[0].Unlink(n), d[1].Unlink(n))
}

func (m *machine) rmdir(t *rapid.T) {
	d, n := m.dir(t), name(t)
	same(t, "rmdir", d[0].Rmdir(n), d[1].Rmdir(n))
}

func (m *machine) rename(t *rapid.T) {
	from, n, to, toName := m.dir(t), name(t), m.dir(t), name(t)
	mode := rapid.SampledFrom([]vfs.RenameMode{vfs.NoReplace, vfs.Exchange, vfs.Replace}).Draw(t, "mode")
	err := from[0].Rename(n, to[0], toName, mode)
	if mode == vfs.Exchange && errors.Is(err, errors.ErrUnsupported) {
		return // the suite asks whether the form may say so
	}
	same(t, fmt.Sprintf("rename in mode %d", mode), err, from[1].Rename(n, to[1], toName, mode))
}

func (m *machine) opendir(t *rapid.T) { m.openAt(t, m.dir(t), path(t)) }

func (m *machine) openAt(t *rapid.T, d [2]vfs.Dir, p string) {
	a, ea := d[0].OpenDir(p)
	b, eb := d[1].OpenDir(p)
	if same(t, "opendir "+p, ea, eb) {
		m.dirs = append(m.dirs, [2]vfs.Dir{a, b})
	}
}

func (m *machine) lstat(t *rapid.T) {
	d, p := m.dir(t), path(t)
	a, ea := d[0].Lstat(p)
	b, eb := d[1].Lstat(p)
	if same(t, "lstat "+p, ea, eb) && (a.Kind != b.Kind || a.Perm != b.Perm) {
		t.Fatalf("lstat %s: %+v against %+v", p, a, b)
	}
}

func (m *machine) open(t *rapid.T) {
	d, n := m.dir(t), name(t)
	a, ea := d[0].Open(n)
	b, eb := d[1].Open(n)
	if same(t, "open", ea, eb) {
		m.files = append(m.files, [2]vfs.File{a, b})
	}
}

func (m *machine) file(t *rapid.T) [2]vfs.File {
	if len(m.files) == 0 {
		t.Skip("no file is open")
	}
	return m.files[rapid.IntRange(0, len(m.files)-1).Draw(t, "file")]
}

func (m *machine) write(t *rapid.T) {
	f := m.file(t)
	data := rapid.StringN(0, 20, 40).Draw(t, "data")
	_, ea := io.WriteString(f[0], data)
	_, eb := io.WriteString(f[1], data)
	same(t, "write", ea, eb)
}

func (m *machine) truncate(t *rapid.T) {
	f, size := m.file(t), rapid.Int64Range(-1, 50).Draw(t, "size")
	same(t, "truncate", f[0].Truncate(size), f[1].Truncate(size))
}

func (m *machine) chmod(t *rapid.T) {
	f := m.file(t)
	// No setuid: a write by root keeps it and one by anybody else does not.
	perm := rapid.SampledFrom([]uint32{0o644, 0o755, 0o600, 0o1751}).Draw(t, "perm")
	same(t, "chmod", f[0].Chmod(perm), f[1].Chmod(perm))
}

func (m *machine) check(t *rapid.T) {
	a, err := Dump(m.dirs[0][0])
	if err != nil {
		t.Fatal(err)
	}
	b, err := Dump(m.dirs[0][1])
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(a, b); d != "" {
		t.Fatalf("trees differ:\n%s", d)
	}
	for _, f := range m.files {
		a, ea := f[0].Stat()
		b, eb := f[1].Stat()
		if same(t, "stat", ea, eb) && (a.Size != b.Size || a.Nlink != b.Nlink || a.Perm != b.Perm) {
			t.Fatalf("stat of an open file: %+v against %+v", a, b)
		}
	}
}
