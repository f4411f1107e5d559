//go:build !unix && !windows

package vfs

import "errors"

// MayWrite cannot tell on this system, which has no open directories either.
func MayWrite(Descriptor) error { return errors.ErrUnsupported }
