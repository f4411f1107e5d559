//go:build unix

package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// terminal tells whether f is one, and how many columns it has; 0 where it does
// not say.
func terminal(f *os.File) (columns int, ok bool) {
	ws, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, false
	}
	return int(ws.Col), true
}

// umask is the process's; there is no call that only asks.
func umask() int {
	mask := unix.Umask(0)
	unix.Umask(mask)
	return mask
}
