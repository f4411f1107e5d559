//go:build !portablefs

package scan

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"unsafe"

	"golang.org/x/sys/unix"
)

// OpenDir opens the directory rel ("" is d itself) below d without passing
// through a symbolic link.
func (d DirHandle) OpenDir(rel string) (DirHandle, error) {
	if rel == "" {
		rel = "."
	}
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC | unix.O_NOFOLLOW
	how := unix.OpenHow{Flags: flags, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS}
	fd, err := retry(func() (int, error) { return unix.Openat2(d.fd, rel, &how) })
	// A tree can be deeper than a path can name.
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENAMETOOLONG) {
		fd, err = d.openStepwise(rel, flags)
	}
	if errors.Is(err, unix.EXDEV) {
		// It was found, and moved out of d before the kernel was done, which looks again
		// where it is then. There is no other way out in a path without links.
		err = unix.ENOENT
	}
	if err != nil {
		return DirHandle{-1}, &fs.PathError{Op: "open", Path: rel, Err: err}
	}
	return DirHandle{fd}, nil
}

// LstatName is Lstat for a name of a running listing, without an allocation.
func (d DirHandle) LstatName(n Name, s *Stat) error {
	var st unix.Stat_t
	for {
		_, _, e := unix.Syscall6(unix.SYS_NEWFSTATAT, uintptr(d.fd), uintptr(unsafe.Pointer(&n.z[0])),
			uintptr(unsafe.Pointer(&st)), unix.AT_SYMLINK_NOFOLLOW, 0, 0)
		switch e {
		case 0:
			s.from(&st)
			return nil
		case unix.EINTR:
			continue
		default:
			return &fs.PathError{Op: "lstat", Path: string(n.Bytes()), Err: e}
		}
	}
}

func kindOfDirent(t byte) Kind {
	switch t {
	case unix.DT_REG:
		return File
	case unix.DT_DIR:
		return Dir
	case unix.DT_LNK:
		return Symlink
	case unix.DT_FIFO:
		return FIFO
	case unix.DT_SOCK:
		return Socket
	case unix.DT_CHR, unix.DT_BLK:
		return Device
	}
	return Unknown
}

// list calls fn for every name, using buf for the raw listing.
func (d DirHandle) list(buf []byte, fn func(Name) error) error {
	for {
		n, err := retry(func() (int, error) { return unix.Getdents(d.fd, buf) })
		if err != nil {
			return &fs.PathError{Op: "getdents", Path: ".", Err: err}
		}
		if n == 0 {
			return nil
		}
		for o := 0; o < n; {
			// struct linux_dirent64: ino 8, off 8, reclen 2, type 1, name.
			l := int(binary.NativeEndian.Uint16(buf[o+16:]))
			typ, z := buf[o+18], buf[o+19:o+l]
			o += l
			z = z[:bytes.IndexByte(z, 0)+1]
			if z[0] == '.' && (len(z) == 2 || len(z) == 3 && z[1] == '.') {
				continue
			}
			if err := fn(Name{z, kindOfDirent(typ)}); err != nil {
				return err
			}
		}
	}
}
