//go:build !linux

package need

import "testing"

// Loop needs Linux.
func Loop(t testing.TB) { t.Helper(); t.Skip("loop devices need Linux") }

// UserNS needs Linux.
func UserNS(t testing.TB) { t.Helper(); t.Skip("user namespaces need Linux") }
