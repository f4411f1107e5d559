//go:build unix

package scan

import (
	"errors"
	"io/fs"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// DirHandle is an open directory.
type DirHandle struct{ fd int }

// OpenRoot opens the directory at an absolute, trusted path.
func OpenRoot(path string) (DirHandle, error) {
	fd, err := retry(func() (int, error) {
		return unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return DirHandle{-1}, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return DirHandle{fd}, nil
}

// openStepwise is OpenDir where there is no openat2, or the path is too long for one call.
func (d DirHandle) openStepwise(rel string, flags int) (int, error) {
	at := d.fd
	for {
		var name string
		name, rel, _ = strings.Cut(rel, "/")
		fd, err := retry(func() (int, error) { return unix.Openat(at, name, flags, 0) })
		if at != d.fd {
			unix.Close(at)
		}
		if err != nil || rel == "" {
			return fd, err
		}
		at = fd
	}
}

// Close releases the handle.
func (d DirHandle) Close() error {
	if d.fd < 0 {
		return nil
	}
	return unix.Close(d.fd)
}

// Fd is the descriptor, owned by the handle.
func (d DirHandle) Fd() int { return d.fd }

// Stat describes the directory itself.
func (d DirHandle) Stat() (Stat, error) {
	var s Stat
	if err := fstat(d.fd, &s); err != nil {
		return Stat{}, &fs.PathError{Op: "fstat", Path: ".", Err: err}
	}
	return s, nil
}

// Lstat describes one name in the directory (or a relative path whose
// directories are trusted not to be links).
func (d DirHandle) Lstat(name string) (Stat, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(d.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return Stat{}, &fs.PathError{Op: "lstat", Path: name, Err: err}
	}
	var s Stat
	s.from(&st)
	return s, nil
}

// LstatPath describes the name at an absolute path whose directories are trusted.
func LstatPath(path string) (Stat, error) { return DirHandle{unix.AT_FDCWD}.Lstat(path) }

// Name is one entry of a listing. It points into the worker's buffer and is
// good until the callback returns.
type Name struct {
	z []byte // with its terminating NUL
	// Kind is Unknown where the file system does not tell.
	Kind Kind
}

// Bytes is the name, valid during the callback.
func (n Name) Bytes() []byte { return n.z[:len(n.z)-1] }

// View is the name as a string that is valid during the callback only.
func (n Name) View() string { return unsafe.String(&n.z[0], len(n.z)-1) }

func (s *Stat) from(st *unix.Stat_t) {
	*s = Stat{
		Kind: kindOf(uint32(st.Mode)), Exec: st.Mode&0o100 != 0, Perm: uint32(st.Mode) & 0o7777,
		Size: st.Size, Dev: uint64(st.Dev), Ino: st.Ino, Nlink: uint64(st.Nlink),
		Mtime: int64(st.Mtim.Sec)*1e9 + int64(st.Mtim.Nsec), Ctime: int64(st.Ctim.Sec)*1e9 + int64(st.Ctim.Nsec),
	}
}

func kindOf(mode uint32) Kind {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return File
	case unix.S_IFDIR:
		return Dir
	case unix.S_IFLNK:
		return Symlink
	case unix.S_IFIFO:
		return FIFO
	case unix.S_IFSOCK:
		return Socket
	}
	return Device
}

// Readlink returns the target of the link name.
func (d DirHandle) Readlink(name string, buf []byte) ([]byte, error) {
	n, err := retry(func() (int, error) { return unix.Readlinkat(d.fd, name, buf) })
	if err != nil {
		return nil, &fs.PathError{Op: "readlink", Path: name, Err: err}
	}
	return buf[:n], nil
}

// openFile opens the regular file name for reading. The non-blocking flag
// keeps a FIFO that took the file's place from stopping us; the caller looks
// at the descriptor before it reads.
func (d DirHandle) openFile(name string) (int, error) {
	return retry(func() (int, error) {
		return unix.Openat(d.fd, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	})
}

// The calls on open files that package scan stands on, each as the kernel has it.

func fstat(fd int, s *Stat) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	s.from(&st)
	return nil
}

func readFile(fd int, p []byte) (int, error)              { return unix.Read(fd, p) }
func readFileAt(fd int, p []byte, off int64) (int, error) { return unix.Pread(fd, p, off) }
func closeFile(fd int) error                              { return unix.Close(fd) }

func retry(f func() (int, error)) (int, error) {
	for {
		n, err := f()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
