//go:build !portablefs

package exchange

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/aspengine/asp/internal/vfs"
)

// likeDir gives the new directory to owner, attributes (default ACL included),
// flags and mode of from, except that we may write to it. why says what cannot
// be kept. Forms without descriptors have a mode only.
func likeDir(from, to vfs.Dir, st vfs.Stat) (why string, err error) {
	a, okA := from.(vfs.Descriptor)
	b, okB := to.(vfs.Descriptor)
	if okA && okB {
		now, err := to.Stat()
		if err != nil {
			return "", err
		}
		if now.UID != st.UID || now.GID != st.GID {
			if err := again(func() error { return unix.Fchown(int(b.Fd()), int(st.UID), int(st.GID)) }); refuses(err) {
				return fmt.Sprintf("owner %d:%d cannot be kept", st.UID, st.GID), nil
			} else if err != nil {
				return "", fmt.Errorf("set owner: %w", err)
			}
		}
		if why, err := sameAttrs(int(a.Fd()), int(b.Fd())); err != nil || why != "" {
			return why, err
		}
		if why, err := copyFlags(a, b); err != nil || why != "" {
			return why, err
		}
	}
	return "", to.Chmod(st.Perm | 0o700)
}

// finishDir sets the mode and, unless its names changed, the time.
func finishDir(to vfs.Dir, st vfs.Stat, changed bool) (why string, err error) {
	if err := to.Chmod(st.Perm); err != nil {
		return "", err
	}
	now, err := to.Stat()
	if err != nil {
		return "", err
	}
	// The kernel drops setgid without a word for a group that is not the caller's.
	if now.Perm != st.Perm {
		return fmt.Sprintf("mode %04o cannot be kept", st.Perm), nil
	}
	fd, ok := to.(vfs.Descriptor)
	if changed || !ok {
		return "", nil
	}
	ts := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(st.Mtime)}
	if err := again(func() error { return unix.UtimesNanoAt(int(fd.Fd()), "", ts, unix.AT_EMPTY_PATH) }); err != nil {
		return "", fmt.Errorf("set time: %w", err)
	}
	return "", nil
}

// again repeats a call that was interrupted.
func again(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// bare takes all ACLs from a new directory of ours.
func bare(d vfs.Dir) error {
	fd, ok := d.(vfs.Descriptor)
	if !ok {
		return nil
	}
	for _, name := range []string{"system.posix_acl_default", "system.posix_acl_access"} {
		err := again(func() error { return unix.Fremovexattr(int(fd.Fd()), name) })
		if err != nil && !errors.Is(err, unix.ENODATA) && !errors.Is(err, unix.ENOTSUP) {
			return fmt.Errorf("remove %s: %w", name, err)
		}
	}
	return nil
}

// sameAttrs makes the extended attributes of directory to those of from, ACLs
// included.
func sameAttrs(from, to int) (why string, err error) {
	want, err := attrs(from)
	if err != nil {
		return "", err
	}
	have, err := attrs(to)
	if err != nil {
		return "", err
	}
	for k := range have {
		if _, ok := want[k]; ok {
			continue
		}
		if err := again(func() error { return unix.Fremovexattr(to, k) }); err != nil {
			return fmt.Sprintf("a new directory gets the attribute %.200q, which the old one has not", k), nil
		}
	}
	for k, v := range want {
		if b, ok := have[k]; ok && b == v {
			continue
		}
		if err := again(func() error { return unix.Fsetxattr(to, k, []byte(v), 0) }); refuses(err) {
			return fmt.Sprintf("the attribute %.200q cannot be kept", k), nil
		} else if err != nil {
			return "", fmt.Errorf("set attribute %.200q: %w", k, err)
		}
	}
	return "", nil
}

func attrs(fd int) (map[string]string, error) {
	n, err := unix.Flistxattr(fd, nil)
	if errors.Is(err, unix.ENOTSUP) || err == nil && n == 0 {
		return nil, nil
	}
	buf := make([]byte, 64<<10) // the most that the kernel gives
	if err == nil {
		n, err = unix.Flistxattr(fd, buf)
	}
	if err != nil {
		return nil, fmt.Errorf("list attributes: %w", err)
	}
	out := map[string]string{}
	val := make([]byte, 64<<10)
	for name := range strings.SplitSeq(strings.TrimRight(string(buf[:n]), "\x00"), "\x00") {
		m, err := unix.Fgetxattr(fd, name, val)
		if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
			continue // gone, or not for us to read
		}
		if err != nil {
			return nil, fmt.Errorf("read attribute %.200q: %w", name, err)
		}
		out[name] = string(val[:m])
	}
	return out, nil
}

// Inode flags (chattr) that matter here; x/sys has no names for most.
const (
	flagImmutable = 0x10
	flagAppend    = 0x20
	// flagsKept are those that a program may set and that change how a file or
	// directory is stored or treated, case folding included.
	flagsKept = 0x1 | 0x2 | 0x4 | 0x8 | 0x40 | 0x80 | 0x4000 | 0x8000 | 0x10000 | 0x20000 | 0x800000 | 0x40000000
)

func keepFlags(f, old vfs.File) (why string, err error) {
	to, ok := f.(vfs.Descriptor)
	from, ok2 := old.(vfs.Descriptor)
	if !ok || !ok2 {
		return "", nil
	}
	return copyFlags(from, to)
}

// copyFlags gives to the inode flags of from.
func copyFlags(from, to vfs.Descriptor) (why string, err error) {
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
