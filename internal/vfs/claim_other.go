//go:build !linux && !darwin && !windows

package vfs

import "errors"

// Claim fails: what is locked elsewhere is not known here.
func Claim(File) (bool, error) { return false, errors.ErrUnsupported }
