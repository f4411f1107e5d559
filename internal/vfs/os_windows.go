package vfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/windows"
)

// What the real form of this build can do beyond the rest.
const (
	CanExchange = false // Rename with Exchange
	CanSyncFS   = false // Dir.SyncFS; errors.ErrUnsupported without
)

// OS is the file system of the operating system. The zero value is ready for use.
// Permission bits are those that Windows has: whether a file may be written. Links
// are described and removed, and not made.
type OS struct{}

// OpenRoot opens the directory at the absolute path, following links.
func (OS) OpenRoot(path string) (Dir, error) {
	h, err := openPath(path)
	if err != nil {
		return nil, &fs.PathError{Op: "open root", Path: path, Err: err}
	}
	return newDir(h, path), nil
}

func openPath(path string) (windows.Handle, error) {
	if !filepath.IsAbs(path) {
		return 0, syscall.EINVAL
	}
	p, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return 0, syscall.EINVAL
	}
	h, err := windows.CreateFile(p, listing, shareAll, nil, windows.OPEN_EXISTING, windows.FILE_FLAG_BACKUP_SEMANTICS, 0)
	if err != nil {
		return 0, err
	}
	if s, err := HandleStat(h); err != nil || s.Kind != KindDir {
		_ = windows.CloseHandle(h)
		return 0, errors.Join(err, syscall.ENOTDIR)
	}
	return h, nil
}

// StatDir implements DirStater.
func (OS) StatDir(path string) (Stat, error) {
	h, err := openPath(path)
	if err != nil {
		return Stat{}, &fs.PathError{Op: "stat root", Path: path, Err: err}
	}
	defer windows.CloseHandle(h)
	return HandleStat(h)
}

// osDir is an open directory. path is for messages only.
type osDir struct {
	handle
	path string
}

func newDir(h windows.Handle, path string) *osDir {
	d := &osDir{path: path}
	d.h = h
	return d
}

// at runs f with the handle of the directory. f checks the name, by find or makes.
func (d *osDir) at(op, name string, f func(h windows.Handle) error) error {
	err := func() error {
		h, err := d.use()
		if err != nil {
			return err
		}
		defer d.release()
		return f(h)
	}()
	if err != nil {
		p := d.path
		if name != "" {
			p += "/" + name
		}
		return &fs.PathError{Op: op, Path: p, Err: err}
	}
	return nil
}

// openDir opens the directory at the checked path below h, off every link.
func openDir(h windows.Handle, path string) (windows.Handle, error) {
	if path == "." {
		return ntOpen(h, "", listing, windows.FILE_OPEN, windows.FILE_DIRECTORY_FILE)
	}
	at := h
	for {
		name, rest, more := strings.Cut(path, "/")
		next, err := find(at, name, listing, 0)
		if at != h {
			_ = windows.CloseHandle(at)
		}
		if err != nil {
			return 0, err
		}
		s, err := HandleStat(next)
		if err == nil && s.Kind != KindDir {
			if err = syscall.ENOTDIR; s.Kind == KindSymlink {
				err = syscall.ELOOP
			}
		}
		if err != nil {
			_ = windows.CloseHandle(next)
			return 0, err
		}
		if !more {
			return next, nil
		}
		at, path = next, rest
	}
}

func (d *osDir) Lstat(path string) (s Stat, err error) {
	err = d.at("lstat", path, func(h windows.Handle) error {
		if err := checkFoundPath(path); err != nil {
			return err
		}
		if path == "." {
			s, err = HandleStat(h)
			return err
		}
		dir, name := splitPath(path)
		if dir != "" {
			sub, err := openDir(h, dir)
			if err != nil {
				return err
			}
			defer windows.CloseHandle(sub)
			h = sub
		}
		f, err := find(h, name, look, 0)
		if err != nil {
			return err
		}
		defer windows.CloseHandle(f)
		s, err = HandleStat(f)
		return err
	})
	return s, err
}

func (d *osDir) Stat() (s Stat, err error) {
	err = d.at("stat", "", func(h windows.Handle) (err error) { s, err = HandleStat(h); return err })
	return s, err
}

func (d *osDir) OpenDir(path string) (Dir, error) {
	var sub windows.Handle
	err := d.at("open directory", path, func(h windows.Handle) (err error) {
		if err = checkFoundPath(path); err == nil {
			sub, err = openDir(h, path)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	full := d.path
	if path != "." {
		full += "/" + path
	}
	return newDir(sub, full), nil
}

func (d *osDir) Open(name string) (File, error) {
	f := &osFile{dir: d.path, name: name}
	err := d.at("open", name, func(h windows.Handle) error {
		// The look before is by the right to look alone; a link, a device and what
		// else is no file is never opened for more.
		first, err := find(h, name, look, 0)
		if err != nil {
			return err
		}
		s, err := HandleStat(first)
		_ = windows.CloseHandle(first)
		if err == nil {
			err = readable(s.Kind)
		}
		if err != nil {
			return err
		}
		if f.h, err = find(h, name, reading, windows.FILE_NON_DIRECTORY_FILE); err != nil {
			return err
		}
		if s, err = HandleStat(f.h); err == nil {
			err = readable(s.Kind)
		}
		if err != nil {
			_ = windows.CloseHandle(f.h)
		}
		f.seen.Store(&s)
		return err
	})
	if err != nil {
		return nil, err
	}
	return f, nil
}

// readable gives the error for opening something of kind k as a file.
func readable(k Kind) error {
	switch k {
	case KindFile:
		return nil
	case KindSymlink:
		return syscall.ELOOP
	}
	return syscall.EINVAL
}

func (d *osDir) Create(name string, perm uint32) (File, error) {
	f := &osFile{dir: d.path, name: name, written: true}
	err := d.at("create", name, func(h windows.Handle) (err error) {
		if err = CheckName(name); err == nil {
			f.h, err = ntOpen(h, name, writing|windows.WRITE_DAC, windows.FILE_CREATE, windows.FILE_NON_DIRECTORY_FILE)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (d *osDir) Mkdir(name string, _ uint32) error {
	return d.at("mkdir", name, func(h windows.Handle) error {
		if err := CheckName(name); err != nil {
			return err
		}
		n, err := ntOpen(h, name, look, windows.FILE_CREATE, windows.FILE_DIRECTORY_FILE)
		if err != nil {
			return err
		}
		return windows.CloseHandle(n)
	})
}

// Symlink is not supported: whether a link is one to a file or to a directory would
// have to be known, and a right is needed that few have.
func (d *osDir) Symlink(_, name string) error {
	return d.at("symlink", name, func(windows.Handle) error { return syscall.ENOTSUP })
}

func (d *osDir) Readlink(name string) (target string, err error) {
	err = d.at("readlink", name, func(h windows.Handle) error {
		l, err := find(h, name, look, 0)
		if err != nil {
			return err
		}
		defer windows.CloseHandle(l)
		target, err = readlink(l)
		return err
	})
	return target, err
}

// Link gives the file name another name; syscall.EOPNOTSUPP where the file system has
// no second names.
func (d *osDir) Link(name string, to Dir, toName string) error {
	return d.two("link", name, to, toName, look|windows.FILE_WRITE_ATTRIBUTES, func(n, dest windows.Handle) error { return ntLink(n, dest, toName) })
}

func (d *osDir) Unlink(name string) error { return d.remove("unlink", name, false) }

func (d *osDir) Rmdir(name string) error { return d.remove("rmdir", name, true) }

func (d *osDir) remove(op, name string, dir bool) error {
	return d.at(op, name, func(h windows.Handle) error {
		n, err := find(h, name, removing, 0)
		if err != nil {
			return err
		}
		s, err := HandleStat(n)
		switch {
		case err != nil:
		case dir && s.Kind != KindDir:
			err = syscall.ENOTDIR
		case !dir && s.Kind == KindDir:
			err = syscall.EISDIR
		default:
			err = ntRemove(n)
		}
		return errors.Join(err, windows.CloseHandle(n))
	})
}

func (d *osDir) Rename(name string, to Dir, toName string, mode RenameMode) error {
	return d.two("rename", name, to, toName, removing, func(n, dest windows.Handle) error {
		switch mode {
		case NoReplace, Replace:
			return ntRename(n, dest, toName, mode == Replace)
		case Exchange:
			return syscall.ENOTSUP
		}
		return syscall.EINVAL
	})
}

// two runs f with what name is, opened for access, and the directory to.
func (d *osDir) two(op, name string, to Dir, toName string, access uint32, f func(n, dest windows.Handle) error) error {
	t, ok := to.(*osDir)
	err := func() error {
		if !ok {
			return syscall.EXDEV
		}
		if err := errors.Join(checkFound(name), CheckName(toName)); err != nil {
			return syscall.EINVAL
		}
		from, err := d.use()
		if err != nil {
			return err
		}
		defer d.release()
		dest, err := t.use()
		if err != nil {
			return err
		}
		defer t.release()
		n, err := find(from, name, access, 0)
		if err != nil {
			return err
		}
		return errors.Join(f(n, dest), windows.CloseHandle(n))
	}()
	if err != nil {
		toPath := toName
		if ok {
			toPath = t.path + "/" + toName
		}
		return &os.LinkError{Op: op, Old: d.path + "/" + name, New: toPath, Err: err}
	}
	return nil
}

func (d *osDir) List() ([]DirEntry, error) {
	var out []DirEntry
	err := d.at("list", "", func(h windows.Handle) error {
		own, err := openDir(h, ".") // with a read position of its own
		if err != nil {
			return err
		}
		f := os.NewFile(uintptr(own), d.path)
		names, err := f.Readdirnames(-1)
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
		for _, n := range names {
			e, err := ntOpen(h, n, look, windows.FILE_OPEN, 0)
			if err == syscall.ENOENT {
				continue
			}
			if err != nil {
				return err
			}
			s, err := HandleStat(e)
			if err = errors.Join(err, windows.CloseHandle(e)); err != nil {
				return err
			}
			out = append(out, DirEntry{Name: n, Kind: s.Kind, Ino: s.Ino})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Chmod does nothing: a directory's one bit does not keep anybody from writing in it.
func (d *osDir) Chmod(uint32) error {
	return d.at("chmod", "", func(windows.Handle) error { return nil })
}

// Chown fails unless nothing changes, as that of a file.
func (d *osDir) Chown(uid, gid uint32) error {
	return d.at("chown", "", func(windows.Handle) error {
		if uid == 0 && gid == 0 {
			return nil
		}
		return syscall.EACCES
	})
}

// Sync asks for the names to be written. The system documents no such call for a
// directory, and some file systems refuse it; nothing is claimed here that rests on
// it, so a refusal is no error.
func (d *osDir) Sync() error {
	return d.at("sync directory", "", func(h windows.Handle) error {
		w, err := ntOpen(h, "", windows.FILE_WRITE_DATA|windows.SYNCHRONIZE, windows.FILE_OPEN, windows.FILE_DIRECTORY_FILE)
		if err != nil {
			return nil
		}
		_ = windows.FlushFileBuffers(w)
		return windows.CloseHandle(w)
	})
}

// SyncFS is not supported.
func (d *osDir) SyncFS() error {
	return d.at("sync file system", "", func(windows.Handle) error { return syscall.ENOTSUP })
}

func (d *osDir) Close() error {
	if err := d.handle.Close(); err != nil {
		return &fs.PathError{Op: "close", Path: d.path, Err: err}
	}
	return nil
}
