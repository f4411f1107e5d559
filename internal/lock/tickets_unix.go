//go:build darwin || portablefs

package lock

import (
	"os"

	"golang.org/x/sys/unix"
)

// openTicket opens a ticket's file that is there.
func openTicket(name string) (*os.File, error) {
	return openFile(name, unix.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
}
