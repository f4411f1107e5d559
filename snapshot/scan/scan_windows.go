package scan

import (
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/windows"

	"github.com/aspengine/asp/internal/vfs"
)

// This system opens nothing relative to a directory but by the kernel's own calls,
// which package vfs makes.

// DirHandle is an open directory.
type DirHandle struct{ d vfs.Dir }

// OpenRoot opens the directory at an absolute, trusted path.
func OpenRoot(path string) (DirHandle, error) {
	d, err := vfs.OS{}.OpenRoot(path)
	return DirHandle{d}, err
}

// OpenDir opens the directory rel ("" is d itself) below d without passing
// through a symbolic link.
func (d DirHandle) OpenDir(rel string) (DirHandle, error) {
	if rel == "" {
		rel = "."
	}
	sub, err := d.d.OpenDir(rel)
	return DirHandle{sub}, err
}

// Close releases the handle.
func (d DirHandle) Close() error {
	if d.d == nil {
		return nil
	}
	return d.d.Close()
}

// Fd is no descriptor: nothing here takes one.
func (DirHandle) Fd() int { return -1 }

// Stat describes the directory itself.
func (d DirHandle) Stat() (Stat, error) {
	s, err := d.d.Stat()
	return from(s), err
}

// Lstat describes one name in the directory (or a relative path whose directories are
// trusted not to be links).
func (d DirHandle) Lstat(name string) (Stat, error) {
	s, err := d.d.Lstat(filepath.ToSlash(name))
	return from(s), err
}

// LstatPath describes the name at an absolute path whose directories are trusted.
func LstatPath(path string) (Stat, error) {
	d, err := OpenRoot(filepath.Dir(path))
	if err != nil {
		return Stat{}, err
	}
	defer d.Close()
	return d.Lstat(filepath.Base(path))
}

func from(s vfs.Stat) Stat {
	return Stat{Kind: kindOf(s.Kind), Perm: s.Perm, Size: s.Size, Dev: s.Dev, Ino: s.Ino, Nlink: s.Nlink, Mtime: s.Mtime, Ctime: s.Ctime}
}

func kindOf(k vfs.Kind) Kind {
	switch k {
	case vfs.KindFile:
		return File
	case vfs.KindDir:
		return Dir
	case vfs.KindSymlink:
		return Symlink
	}
	return Device
}

// Name is one entry of a listing.
type Name struct {
	name string
	Kind Kind
}

// Bytes is the name.
func (n Name) Bytes() []byte { return []byte(n.name) }

// View is the name.
func (n Name) View() string { return n.name }

// LstatName is Lstat for a name of a running listing.
func (d DirHandle) LstatName(n Name, s *Stat) (err error) {
	*s, err = d.Lstat(n.name)
	return err
}

// Readlink returns the target of the link name.
func (d DirHandle) Readlink(name string, buf []byte) ([]byte, error) {
	t, err := d.d.Readlink(name)
	return append(buf[:0], t...), err
}

func (d DirHandle) list(_ []byte, fn func(Name) error) error {
	es, err := d.d.List()
	if err != nil {
		return err
	}
	for _, e := range es {
		if err := fn(Name{e.Name, kindOf(e.Kind)}); err != nil {
			return err
		}
	}
	return nil
}

// openFile opens the regular file name for reading; what it returns is a handle of
// the kernel, closed by closeFile.
func (d DirHandle) openFile(name string) (int, error) {
	f, err := d.d.Open(name)
	if err != nil {
		return -1, err
	}
	defer f.Close()
	var own windows.Handle
	self := windows.CurrentProcess()
	err = windows.DuplicateHandle(self, windows.Handle(f.(vfs.Descriptor).Fd()), self, &own, 0, false, windows.DUPLICATE_SAME_ACCESS)
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return int(own), nil
}

func fstat(h int, s *Stat) error {
	st, err := vfs.HandleStat(windows.Handle(h))
	*s = from(st)
	return err
}

func readFile(h int, p []byte) (int, error) {
	var n uint32
	err := windows.ReadFile(windows.Handle(h), p, &n, nil)
	if err == windows.ERROR_HANDLE_EOF {
		err = nil
	}
	return int(n), err
}

func readFileAt(h int, p []byte, off int64) (int, error) {
	return vfs.HandleReadAt(windows.Handle(h), p, off)
}

func closeFile(h int) error                    { return windows.CloseHandle(windows.Handle(h)) }
func retry(f func() (int, error)) (int, error) { return f() }
