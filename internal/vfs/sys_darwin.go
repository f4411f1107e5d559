package vfs

import (
	"io/fs"

	"golang.org/x/sys/unix"
)

// What the real form of this build can do beyond the rest. A file system can lack
// the exchange all the same, and then says so.
const (
	CanExchange = true  // Rename with Exchange
	CanSyncFS   = false // Dir.SyncFS; errors.ErrUnsupported without
)

// renameAt has all three modes; a file system without one answers ENOTSUP.
func renameAt(from int, name string, to int, toName string, mode RenameMode) error {
	switch mode {
	case NoReplace:
		return unix.RenameatxNp(from, name, to, toName, unix.RENAME_EXCL)
	case Exchange:
		return unix.RenameatxNp(from, name, to, toName, unix.RENAME_SWAP)
	}
	return unix.Renameat(from, name, to, toName)
}

// fullSync asks the device to empty its cache, which fsync does not do on this
// system. Where the file system has no such call fsync is all there is; what
// rests on it is not claimed (commit.ProbeMount).
func fullSync(fd int) error {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_FULLFSYNC, 0)
	switch err {
	case unix.ENOTSUP, unix.EOPNOTSUPP, unix.EINVAL, unix.ENOTTY:
		return unix.Fsync(fd)
	}
	return err
}

func syncDir(fd int) error { return fullSync(fd) }

func syncFile(fd int) error { return fullSync(fd) }

// noXattr is the answer for an attribute that a file has not.
const noXattr = unix.ENOATTR

func immutable(t *unix.Stat_t) bool {
	return t.Flags&(unix.UF_IMMUTABLE|unix.UF_APPEND|unix.SF_IMMUTABLE|unix.SF_APPEND) != 0
}

// SetMtime is exact to the microsecond only: the call that takes nanoseconds goes by
// name.
func (f *osFile) SetMtime(ns int64) error {
	return f.do("set time of", func(fd int) error {
		var t unix.Stat_t
		if err := unix.Fstat(fd, &t); err != nil {
			return err
		}
		access := unix.NsecToTimeval(unix.TimespecToNsec(t.Atim))
		return unix.Futimes(fd, []unix.Timeval{access, unix.NsecToTimeval(ns)})
	})
}

// ReadProc fails: there is no such file on this system.
func ReadProc(name string, _ int) ([]byte, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: unix.ENOENT}
}
