//go:build linux && !amd64

package casetest

import (
	"errors"
	"syscall"
)

// refuse is not written for this machine.
func refuse(int, syscall.Errno) error { return errors.ErrUnsupported }
