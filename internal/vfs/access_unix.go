//go:build unix

package vfs

import "golang.org/x/sys/unix"

// MayWrite asks whether this process may make and remove names in an open
// directory, by its effective rights. nil is the kernel's answer of the moment
// and no promise.
func MayWrite(dir Descriptor) error {
	return unix.Faccessat(int(dir.Fd()), ".", unix.W_OK|unix.X_OK, unix.AT_EACCESS)
}
