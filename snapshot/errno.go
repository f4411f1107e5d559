package snapshot

import (
	"errors"
	"syscall"
)

// notDir tells whether a directory turned out to be something else.
func notDir(err error) bool { return errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP) }
