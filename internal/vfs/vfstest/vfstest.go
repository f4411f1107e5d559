// Package vfstest holds the tests that every form of the file system layer must
// pass alike: a table of operations with the errors that the kernel gives, the
// behaviour of handles, and a comparison of two forms under random operations.
// The crash model is worth as much as it agrees with the kernel here.
package vfstest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"syscall"
	"testing"

	"github.com/aspengine/asp/internal/vfs"
)

// Place is an empty directory to test in. The umask must be 022.
type Place struct {
	Dir vfs.Dir
	// Mkfifo makes something in Dir that is no file, directory or link; the
	// layer itself cannot.
	Mkfifo func(name string) error
	// Portable: the form has no exchange and no sync of a whole file system, and
	// says so.
	Portable bool
}

// Run runs the suite; open gives a new place for each test.
func Run(t *testing.T, open func(t *testing.T) Place) {
	t.Run("errors", func(t *testing.T) { testErrors(t, open) })
	t.Run("success", func(t *testing.T) { testSuccess(t, open) })
	t.Run("files", func(t *testing.T) { testFiles(t, open) })
	t.Run("handles", func(t *testing.T) { testHandles(t, open) })
}

// Errno returns the system's error number in err, 0 for nil. Anything else
// fails the comparison with every number.
func Errno(err error) syscall.Errno {
	if err == nil {
		return 0
	}
	var e syscall.Errno
	if errors.As(err, &e) {
		return e
	}
	return ^syscall.Errno(0)
}

// Node is what Dump tells of one path. Times, inode numbers and the link
// counts of directories are not in it: they differ between forms that agree.
type Node struct {
	Kind   vfs.Kind
	Perm   uint32
	Data   string
	Target string
	Nlink  uint64
	Same   string // first path, in order, of the same inode; of files and links
	Xattrs map[string]string
}

// Dump describes everything below d by relative path.
func Dump(d vfs.Dir) (map[string]Node, error) {
	out := make(map[string]Node)
	first := make(map[[2]uint64]string)
	return out, dump(d, "", out, first)
}

func dump(d vfs.Dir, prefix string, out map[string]Node, first map[[2]uint64]string) error {
	list, err := d.List()
	if err != nil {
		return err
	}
	byName := make(map[string]vfs.DirEntry)
	for _, e := range list {
		if _, twice := byName[e.Name]; twice {
			return fmt.Errorf("list %s: %q twice", prefix, e.Name)
		}
		byName[e.Name] = e
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		s, err := d.Lstat(name)
		if err != nil {
			return err
		}
		if e := byName[name]; e.Ino != s.Ino || e.Kind != s.Kind && e.Kind != vfs.KindInvalid {
			return fmt.Errorf("list says %+v, stat %+v", e, s)
		}
		n := Node{Kind: s.Kind, Perm: s.Perm}
		switch s.Kind {
		case vfs.KindDir:
			sub, err := d.OpenDir(name)
			if err != nil {
				return err
			}
			err = errors.Join(dump(sub, prefix+name+"/", out, first), sub.Close())
			if err != nil {
				return err
			}
		case vfs.KindSymlink:
			if n.Target, err = d.Readlink(name); err != nil {
				return err
			}
		case vfs.KindFile:
			if n.Data, n.Xattrs, err = readFile(d, name); err != nil {
				return err
			}
			if int64(len(n.Data)) != s.Size {
				return fmt.Errorf("%s%s: size %d, read %d bytes", prefix, name, s.Size, len(n.Data))
			}
		}
		if s.Kind != vfs.KindDir {
			n.Nlink = s.Nlink
			id := [2]uint64{s.Dev, s.Ino}
			if first[id] == "" {
				first[id] = prefix + name
			}
			n.Same = first[id]
		}
		out[prefix+name] = n
	}
	return nil
}

func readFile(d vfs.Dir, name string) (string, map[string]string, error) {
	f, err := d.Open(name)
	if errors.Is(err, fs.ErrPermission) {
		return "unreadable", nil, nil
	}
	if err != nil {
		return "", nil, err
	}
	b, err := io.ReadAll(f)
	x, xerr := f.Xattrs()
	var xs map[string]string
	for k, v := range x {
		if k == "security.selinux" {
			continue // the system's, not the test's
		}
		if xs == nil {
			xs = make(map[string]string)
		}
		xs[k] = string(v)
	}
	return string(b), xs, errors.Join(err, xerr, f.Close())
}

// write makes a file with content.
func write(d vfs.Dir, name, data string) error {
	f, err := d.Create(name, 0o666)
	if err != nil {
		return err
	}
	_, err = io.WriteString(f, data)
	return errors.Join(err, f.Close())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
