//go:build unix

package snapshot

import (
	"errors"

	"golang.org/x/sys/unix"
)

// notDir tells whether a directory turned out to be something else.
func notDir(err error) bool { return errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) }
