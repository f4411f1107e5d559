//go:build portablefs

package vfs

import "golang.org/x/sys/unix"

// What the real form of this build can do beyond the rest. A file system can lack
// the exchange all the same, and then says so.
const (
	CanExchange = false // Rename with Exchange
	CanSyncFS   = false // Dir.SyncFS; errors.ErrUnsupported without
)

// renameAt has no exchange, like a system that has none.
func renameAt(from int, name string, to int, toName string, mode RenameMode) error {
	switch mode {
	case NoReplace:
		return unix.Renameat2(from, name, to, toName, unix.RENAME_NOREPLACE)
	case Exchange:
		return unix.ENOTSUP
	}
	return unix.Renameat(from, name, to, toName)
}

func syncDir(fd int) error { return unix.Fsync(fd) }

func syncFile(fd int) error { return unix.Fsync(fd) }

// noXattr is the answer for an attribute that a file has not.
const noXattr = unix.ENODATA

func immutable(*unix.Stat_t) bool { return false }
