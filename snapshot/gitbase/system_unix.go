//go:build unix

package gitbase

import (
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// noWait keeps an open from waiting where a FIFO or a terminal lies in the
	// place of a file.
	noWait = syscall.O_NONBLOCK | syscall.O_NOCTTY
	// noFollow makes an open fail where a link lies.
	noFollow = syscall.O_NOFOLLOW
)

func lstat(path string) (fileID, error) {
	var st unix.Stat_t // its fields have the same names on every system
	if err := unix.Lstat(path, &st); err != nil {
		return fileID{}, err
	}
	return fileID{dev: uint64(st.Dev), ino: st.Ino, size: st.Size, mtime: st.Mtim.Nano(), ctime: st.Ctim.Nano()}, nil
}
