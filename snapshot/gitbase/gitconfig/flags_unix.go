//go:build unix

package gitconfig

import "syscall"

// noWait keeps an open from waiting where a FIFO or a terminal lies in the
// place of a file.
const noWait = syscall.O_NONBLOCK | syscall.O_NOCTTY
