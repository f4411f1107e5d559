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

const hugePage = 2 << 20

// adviseNext asks for huge pages under the next megabytes of the heap, without a
// collection. The runtime maps its heap by pieces of heapPiece. An allocation of a
// little more than one, which is never written to and so costs addresses and no
// memory, makes it map two; what is left of them behind it is what comes next. Should
// a runtime some day map otherwise, only the gain is gone.
func adviseNext() {
	const heapPiece = 4 << 20
	b := make([]byte, heapPiece+1)
	end := unsafe.Pointer(unsafe.SliceData(b[len(b):cap(b)]))
	skip := -int(uintptr(end)) & (hugePage - 1)
	_, _, _ = unix.Syscall(unix.SYS_MADVISE, uintptr(end)+uintptr(skip), 3*hugePage, unix.MADV_HUGEPAGE) // a wish
}

// adviseHuge asks for huge pages under the next size bytes of the heap. A command
// touches its memory once, and each page of four kilobytes is a fault of some
// microseconds: with a thousand files they took a seventh of the processor time.
// The runtime maps its heap in pieces and has no switch for it, so one allocation
// of that size is made, advised and, once the caller collects, given back without
// anything being written to it; what the program allocates then lies in it. Should
// a runtime some day do otherwise, only the gain is gone.
func adviseHuge(size int) {
	b := make([]byte, size)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (hugePage - 1)
	if n := (size - skip) &^ (hugePage - 1); n > 0 {
		_ = unix.Madvise(b[skip:][:n], unix.MADV_HUGEPAGE) // a wish
	}
}
