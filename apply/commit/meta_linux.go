package commit

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/aspengine/asp/internal/vfs"
)

// hasDefaultACL tells whether new names in d get an ACL from it. Forms without
// a descriptor have none.
func hasDefaultACL(d vfs.Dir) bool {
	fd, ok := d.(vfs.Descriptor)
	if !ok {
		return false
	}
	n, err := unix.Fgetxattr(int(fd.Fd()), "system.posix_acl_default", nil)
	return err == nil && n > 0
}

// Inode flags (chattr) that matter here; x/sys has no names for most.
const (
	flagImmutable = 0x10
	flagAppend    = 0x20
	// flagsKept are those that a program may set and that change how the file
	// is stored or treated: secure deletion, undelete, compression, sync, no
	// dump, no atime, data journal, no tail merge, top of tree, no copy on write.
	flagsKept = 0x1 | 0x2 | 0x4 | 0x8 | 0x40 | 0x80 | 0x4000 | 0x8000 | 0x10000 | 0x20000 | 0x800000
)

// inodeFlags returns the flags of an open directory, 0 where there are none.
func inodeFlags(d vfs.Dir) int {
	if fd, ok := d.(vfs.Descriptor); ok {
		if v, err := unix.IoctlGetInt(int(fd.Fd()), unix.FS_IOC_GETFLAGS); err == nil {
			return v
		}
	}
	return 0
}

// keepFlags gives f the inode flags of the old file. area are those of the
// directory that f was made in, the only ones that it can have got.
func keepFlags(f, old vfs.File, area int) (why string, err error) {
	to, ok := f.(vfs.Descriptor)
	from, ok2 := old.(vfs.Descriptor)
	if !ok || !ok2 {
		return "", nil
	}
	want, err := unix.IoctlGetInt(int(from.Fd()), unix.FS_IOC_GETFLAGS)
	if noFlags(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read inode flags: %w", err)
	}
	if want&(flagImmutable|flagAppend) != 0 {
		return "it is immutable or append-only", nil
	}
	if (want|area)&flagsKept == 0 {
		return "", nil
	}
	have, err := unix.IoctlGetInt(int(to.Fd()), unix.FS_IOC_GETFLAGS)
	if err != nil {
		return "", fmt.Errorf("read inode flags: %w", err)
	}
	if (want^have)&flagsKept == 0 {
		return "", nil
	}
	if err := unix.IoctlSetPointerInt(int(to.Fd()), unix.FS_IOC_SETFLAGS, have&^flagsKept|want&flagsKept); err != nil {
		return fmt.Sprintf("inode flags %#x cannot be kept", want&flagsKept), nil
	}
	return "", nil
}

// noFlags tells the errors of file systems without inode flags.
func noFlags(err error) bool {
	return errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS)
}
