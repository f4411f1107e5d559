//go:build !linux

package conformance

import "errors"

// Deny cannot be had here: requirements that need it fail, and are counted so.
func Deny(argv, env []string) error { return errors.New("deny: needs Linux") }
