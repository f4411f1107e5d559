//go:build linux || darwin

package vfs

import (
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// OS is the file system of the operating system. The zero value is ready for
// use. All its handles implement Descriptor, and its files io.ReaderFrom.
type OS struct {
	// componentWalk forbids openat2, for the tests of the fallback.
	componentWalk bool
}

// OpenRoot opens the directory at the absolute path, following links. It fails
// with unix.EINVAL for a relative path: what that means would depend on the
// working directory of the moment.
func (o OS) OpenRoot(path string) (Dir, error) {
	if !filepath.IsAbs(path) {
		return nil, &fs.PathError{Op: "open root", Path: path, Err: unix.EINVAL}
	}
	fd, err := openAt(unix.AT_FDCWD, path, dirFlags, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open root", Path: path, Err: err}
	}
	return newDir(newShared(o), fd, path), nil
}

// StatDir implements DirStater.
func (OS) StatDir(path string) (Stat, error) {
	if !filepath.IsAbs(path) {
		return Stat{}, &fs.PathError{Op: "stat root", Path: path, Err: unix.EINVAL}
	}
	// The dot follows a link in the last place, and is found in a directory only.
	s, err := statAt(unix.AT_FDCWD, path+"/.")
	if err != nil {
		return Stat{}, &fs.PathError{Op: "stat root", Path: path, Err: err}
	}
	return s, nil
}

const dirFlags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC

// osDir is a directory descriptor. path is for messages only.
type osDir struct {
	handle
	sh   *shared
	path string

	list   sync.Mutex // the read position belongs to one List at a time
	listed bool       // the position has moved
}

func newDir(sh *shared, fd int, path string) *osDir {
	d := &osDir{sh: sh, path: path}
	d.fd = fd
	return d
}

func (d *osDir) error(op, name string, err error) error {
	if name == "" {
		return &fs.PathError{Op: op, Path: d.path, Err: err}
	}
	return &fs.PathError{Op: op, Path: d.path + "/" + name, Err: err}
}

// at runs f with the descriptor on a checked name.
func (d *osDir) at(op, name string, f func(fd int) error) error {
	if err := CheckName(name); err != nil {
		return d.error(op, name, err)
	}
	return d.self(op, name, f)
}

// self runs f with the descriptor; name is for the message only.
func (d *osDir) self(op, name string, f func(fd int) error) error {
	fd, err := d.use()
	if err == nil {
		err = retry(func() error { return f(fd) })
		_ = d.release() // an error of a close that had to wait for us is nobody's
	}
	if err != nil {
		return d.error(op, name, err)
	}
	return nil
}

func (d *osDir) Lstat(path string) (Stat, error) {
	if err := CheckPath(path); err != nil {
		return Stat{}, d.error("lstat", path, err)
	}
	fd, err := d.use()
	if err != nil {
		return Stat{}, d.error("lstat", path, err)
	}
	defer d.release()
	dir, name := splitPath(path)
	if dir != "" {
		// statx has no way to forbid links before the last component.
		if fd, err = d.sh.openBeneath(fd, dir); err != nil {
			return Stat{}, d.error("lstat", path, err)
		}
		defer unix.Close(fd)
	}
	s, err := statAt(fd, name)
	if err != nil {
		return Stat{}, d.error("lstat", path, err)
	}
	return s, nil
}

func (d *osDir) Stat() (s Stat, err error) {
	err = d.self("stat", "", func(fd int) (err error) { s, err = statAt(fd, ""); return })
	return s, err
}

func (d *osDir) OpenDir(path string) (Dir, error) {
	if err := CheckPath(path); err != nil {
		return nil, d.error("open directory", path, err)
	}
	fd, err := d.use()
	if err != nil {
		return nil, d.error("open directory", path, err)
	}
	defer d.release()
	sub, err := d.sh.openBeneath(fd, path)
	if err != nil {
		return nil, d.error("open directory", path, err)
	}
	full := d.path
	if path != "." {
		full += "/" + path
	}
	return newDir(d.sh, sub, full), nil
}

// Open looks before and after opening. The look before is what keeps the
// promise never to open a FIFO or device; O_NOFOLLOW covers links, and
// O_NONBLOCK and the look after cover a name that changes kind in between: such
// an open neither blocks nor hands out the handle. What remains is that
// somebody who swaps a FIFO in at that very moment can see it opened once.
//
// Rejected: open with O_PATH, look, reopen through /proc/self/fd. It closes
// that window, but costs a fourth system call with a walk through /proc for
// each file hashed, and fails where /proc is not mounted.
func (d *osDir) Open(name string) (File, error) {
	if err := CheckName(name); err != nil {
		return nil, d.error("open", name, err)
	}
	fd, err := d.use()
	if err != nil {
		return nil, d.error("open", name, err)
	}
	defer d.release()
	s, err := statAt(fd, name)
	if err == nil {
		err = readable(s.Kind)
	}
	if err != nil {
		return nil, d.error("open", name, err)
	}
	ffd, err := openAt(fd, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, d.error("open", name, err)
	}
	s, err = statAt(ffd, "")
	if err == nil {
		err = readable(s.Kind)
	}
	if err != nil {
		_ = unix.Close(ffd)
		return nil, d.error("open", name, err)
	}
	f := newFile(ffd, d.path, name)
	f.seen.Store(&s)
	return f, nil
}

// readable gives the error for opening something of kind k as a file.
func readable(k Kind) error {
	switch k {
	case KindFile:
		return nil
	case KindSymlink:
		return unix.ELOOP
	}
	return unix.EINVAL
}

func (d *osDir) Create(name string, perm uint32) (File, error) {
	var ffd int
	err := d.at("create", name, func(fd int) (err error) {
		ffd, err = unix.Openat(fd, name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, perm&0o7777)
		return
	})
	if err != nil {
		return nil, err
	}
	return newFile(ffd, d.path, name), nil
}

func (d *osDir) Mkdir(name string, perm uint32) error {
	return d.at("mkdir", name, func(fd int) error { return unix.Mkdirat(fd, name, perm&0o7777) })
}

func (d *osDir) Symlink(target, name string) error {
	return d.at("symlink", name, func(fd int) error { return unix.Symlinkat(target, fd, name) })
}

func (d *osDir) Readlink(name string) (target string, err error) {
	err = d.at("readlink", name, func(fd int) error {
		for size := 256; ; size *= 2 {
			b := make([]byte, size)
			n, err := unix.Readlinkat(fd, name, b)
			if err != nil {
				return err
			}
			if n < size {
				target = string(b[:n])
				return nil
			}
		}
	})
	return target, err
}

func (d *osDir) Unlink(name string) error {
	return d.at("unlink", name, func(fd int) error { return unix.Unlinkat(fd, name, 0) })
}

func (d *osDir) Rmdir(name string) error {
	return d.at("rmdir", name, func(fd int) error { return unix.Unlinkat(fd, name, unix.AT_REMOVEDIR) })
}

func (d *osDir) Link(name string, to Dir, toName string) error {
	return d.between("link", name, to, toName, func(from, to int) error {
		return unix.Linkat(from, name, to, toName, 0)
	})
}

func (d *osDir) Rename(name string, to Dir, toName string, mode RenameMode) error {
	if mode != NoReplace && mode != Exchange && mode != Replace {
		return &os.LinkError{Op: "rename", Old: d.path + "/" + name, New: toName, Err: unix.EINVAL}
	}
	return d.between("rename", name, to, toName, func(from, to int) error {
		return renameAt(from, name, to, toName, mode)
	})
}

// between runs f with the descriptors of two directories.
func (d *osDir) between(op, name string, to Dir, toName string, f func(from, to int) error) error {
	t, ok := to.(*osDir)
	if !ok {
		return &os.LinkError{Op: op, Old: d.path + "/" + name, New: toName, Err: unix.EXDEV}
	}
	err := func() error {
		if err := CheckName(name); err != nil {
			return err
		}
		if err := CheckName(toName); err != nil {
			return err
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
		return retry(func() error { return f(from, dest) })
	}()
	if err != nil {
		return &os.LinkError{Op: op, Old: d.path + "/" + name, New: t.path + "/" + toName, Err: err}
	}
	return nil
}

func (d *osDir) Chmod(perm uint32) error {
	return d.self("chmod", "", func(fd int) error { return unix.Fchmod(fd, perm&0o7777) })
}

func (d *osDir) Chown(uid, gid uint32) error {
	return d.self("chown", "", func(fd int) error { return unix.Fchown(fd, int(uid), int(gid)) })
}

func (d *osDir) Sync() error {
	return d.self("sync directory", "", syncDir)
}

func (d *osDir) SyncFS() error {
	return d.self("sync file system", "", syncFS)
}

// Close overrides handle's only to name the directory in the error.
func (d *osDir) Close() error {
	if err := d.handle.Close(); err != nil {
		return d.error("close", "", err)
	}
	return nil
}
