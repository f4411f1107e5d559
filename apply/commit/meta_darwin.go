package commit

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/aspengine/asp/internal/vfs"
)

// ProbeMount names the file system. Nothing of what one keeps over a power cut was
// ever tried on this system, so nothing is claimed of any. Which renames it has is
// asked of it before the first write (tx.probePrimitives).
func ProbeMount(d vfs.Dir) (MountFacts, error) {
	s, err := statfs(d)
	if err != nil {
		return MountFacts{}, err
	}
	if s == nil {
		return MountFacts{Type: "unknown", Why: "a handle without a descriptor"}, nil
	}
	name := unix.ByteSliceToString(s.Fstypename[:])
	// Of the systems of this maker only apfs is documented to exchange two names.
	return MountFacts{Type: name, Aside: name != "apfs", Why: name + " was never tried over a power cut by the makers of this program"}, nil
}

func hasDefaultACL(d vfs.Dir) bool {
	fd, ok := d.(vfs.Descriptor)
	if !ok {
		return false
	}
	// An entry that is inherited cannot be told from others without reading it.
	acl, err := hasACL(int(fd.Fd()))
	return acl || err != nil
}

func inodeFlags(vfs.Dir) int { return 0 }

// keepFlags gives f the flags of the old file (chflags), and refuses a file with an
// access control list, which is no attribute here and could not be copied.
func keepFlags(f, old vfs.File, _ int) (why string, err error) {
	to, ok := f.(vfs.Descriptor)
	from, ok2 := old.(vfs.Descriptor)
	if !ok || !ok2 {
		return "", nil
	}
	acl, err := hasACL(int(from.Fd()))
	if err != nil {
		return "", fmt.Errorf("look for an access control list: %w", err)
	}
	if acl {
		return "its access control list cannot be kept", nil
	}
	var want, have unix.Stat_t
	if err := errors.Join(unix.Fstat(int(from.Fd()), &want), unix.Fstat(int(to.Fd()), &have)); err != nil {
		return "", fmt.Errorf("read file flags: %w", err)
	}
	const fixed = unix.UF_IMMUTABLE | unix.UF_APPEND | unix.SF_IMMUTABLE | unix.SF_APPEND
	if want.Flags&fixed != 0 {
		return "it is immutable or append-only", nil
	}
	if want.Flags == have.Flags {
		return "", nil
	}
	if want.Flags&^unix.UF_SETTABLE != have.Flags&^unix.UF_SETTABLE || unix.Fchflags(int(to.Fd()), int(want.Flags)) != nil {
		return fmt.Sprintf("file flags %#x cannot be kept", want.Flags), nil
	}
	return "", nil
}

// hasACL tells whether an open file has an access control list. The list itself is
// asked for, because there is no call that only counts; what does not fit into the
// buffer is there, too.
func hasACL(fd int) (bool, error) {
	const (
		bitmapCount      = 5          // ATTR_BIT_MAP_COUNT
		extendedSecurity = 0x00400000 // ATTR_CMN_EXTENDED_SECURITY
	)
	attrs := struct {
		count, _             uint16
		common, vol, dir     uint32
		file, forkOrExtended uint32
	}{count: bitmapCount, common: extendedSecurity}
	// Length of all, then offset and length of the list, then the list.
	buf := make([]byte, 4+8+64)
	for {
		_, _, e := unix.Syscall6(unix.SYS_FGETATTRLIST, uintptr(fd), uintptr(unsafe.Pointer(&attrs)),
			uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)), 0, 0)
		switch e {
		case 0:
			return binary.NativeEndian.Uint32(buf[8:]) > 0, nil
		case unix.EINTR:
			continue
		case unix.ENOTSUP, unix.EOPNOTSUPP, unix.EINVAL:
			return false, nil // a file system without such lists
		}
		return false, e
	}
}
