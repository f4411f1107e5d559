//go:build linux || darwin

package vfs

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Claim locks the open file f for its holder, without waiting, and tells whether
// it did: false when another handle holds it. The kernel gives the lock up when
// the last copy of the handle is closed, by the end of its process too, so that a
// file that can be claimed is one that no living writer has claimed. A handle
// without a descriptor (the memory model, which no second process can see) is
// claimed by everybody. An error means that this file system has no such locks.
func Claim(f File) (bool, error) {
	d, ok := f.(Descriptor)
	if !ok {
		return true, nil
	}
	err := retry(func() error { return unix.Flock(int(d.Fd()), unix.LOCK_EX|unix.LOCK_NB) })
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}
