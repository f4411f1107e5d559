package vfs

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

func (f *osFile) SetMtime(ns int64) error {
	times := [2]unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(ns)}
	return f.do("set time of", func(fd int) error {
		// The form with a null path, which works on the descriptor itself, has
		// no wrapper in x/sys; the other forms need /proc or a newer kernel.
		_, _, errno := unix.Syscall6(unix.SYS_UTIMENSAT, uintptr(fd), 0, uintptr(unsafe.Pointer(&times)), 0, 0, 0)
		if errno != 0 {
			return errno
		}
		return nil
	})
}
