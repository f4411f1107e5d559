package main

import (
	"bytes"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// hugeOnWish tells whether the kernel gives huge pages to who asks for them, and to
// nobody else.
func hugeOnWish() bool {
	b, err := os.ReadFile("/sys/kernel/mm/transparent_hugepage/enabled")
	return err == nil && bytes.Contains(b, []byte("[madvise]"))
}

// adviseHuge asks for huge pages under the next size bytes of the heap. A command
// touches its memory once, and each page of four kilobytes is a fault of some
// microseconds: with a thousand files they took a seventh of the processor time.
// The runtime maps its heap in pieces and has no switch for it, so one allocation
// of that size is made, advised and, once the caller collects, given back without
// anything being written to it; what the program allocates then lies in it. Should
// a runtime some day do otherwise, only the gain is gone.
func adviseHuge(size int) {
	const huge = 2 << 20
	b := make([]byte, size)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (huge - 1)
	if n := (size - skip) &^ (huge - 1); n > 0 {
		_ = unix.Madvise(b[skip:][:n], unix.MADV_HUGEPAGE) // a wish
	}
}
