//go:build !portablefs

package vfs

import (
	"golang.org/x/sys/unix"
)

const statxMask = unix.STATX_BASIC_STATS | unix.STATX_MNT_ID

// statAt describes name below fd without following a link in it; an empty name
// describes fd itself.
func statAt(fd int, name string) (Stat, error) {
	flags := unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT
	if name == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	var x unix.Statx_t
	err := retry(func() error { return unix.Statx(fd, name, flags, statxMask, &x) })
	if err == unix.ENOSYS {
		return oldStatAt(fd, name, flags)
	}
	if err != nil {
		return Stat{}, err
	}
	s := Stat{
		Kind:  kindOfMode(uint32(x.Mode)),
		Perm:  uint32(x.Mode) & 0o7777,
		Size:  int64(x.Size),
		Ino:   x.Ino,
		Dev:   unix.Mkdev(x.Dev_major, x.Dev_minor),
		Nlink: uint64(x.Nlink),
		UID:   x.Uid,
		GID:   x.Gid,
		Mtime: x.Mtime.Sec*1e9 + int64(x.Mtime.Nsec),
		Ctime: x.Ctime.Sec*1e9 + int64(x.Ctime.Nsec),
	}
	s.Immutable = x.Attributes&(unix.STATX_ATTR_IMMUTABLE|unix.STATX_ATTR_APPEND) != 0
	if x.Mask&unix.STATX_MNT_ID != 0 {
		s.MntID = x.Mnt_id
	}
	return s, nil
}

// oldStatAt serves kernels and system call filters without statx; the mount is
// then not told.
func oldStatAt(fd int, name string, flags int) (Stat, error) {
	var t unix.Stat_t
	if err := retry(func() error { return unix.Fstatat(fd, name, &t, flags) }); err != nil {
		return Stat{}, err
	}
	return Stat{
		Kind:  kindOfMode(t.Mode),
		Perm:  t.Mode & 0o7777,
		Size:  t.Size,
		Ino:   t.Ino,
		Dev:   uint64(t.Dev),
		Nlink: uint64(t.Nlink),
		UID:   t.Uid,
		GID:   t.Gid,
		Mtime: unix.TimespecToNsec(t.Mtim),
		Ctime: unix.TimespecToNsec(t.Ctim),
	}, nil
}

func kindOfDirent(t byte) Kind {
	switch t {
	case unix.DT_REG:
		return KindFile
	case unix.DT_DIR:
		return KindDir
	case unix.DT_LNK:
		return KindSymlink
	case unix.DT_UNKNOWN:
		return KindInvalid
	}
	return KindOther
}
