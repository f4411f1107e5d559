//go:build unix

package gitbase

import (
	"os"
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

// giveTo is who gets what root makes beside a directory of somebody else.
func giveTo(fi os.FileInfo) (uid, gid int, give bool) {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok || os.Geteuid() != 0 || st.Uid == 0 {
		return 0, 0, false
	}
	return int(st.Uid), int(st.Gid), true
}

func lstat(path string) (fileID, error) {
	var st unix.Stat_t // its fields have the same names on every system
	if err := unix.Lstat(path, &st); err != nil {
		return fileID{}, err
	}
	return fileID{dev: uint64(st.Dev), ino: st.Ino, size: st.Size, mtime: st.Mtim.Nano(), ctime: st.Ctim.Nano()}, nil
}
