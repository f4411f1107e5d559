//go:build unix

package gitbase

import "syscall"

const (
	// noWait keeps an open from waiting where a FIFO or a terminal lies in the
	// place of a file.
	noWait = syscall.O_NONBLOCK | syscall.O_NOCTTY
	// noFollow makes an open fail where a link lies.
	noFollow = syscall.O_NOFOLLOW
)
