//go:build linux && !amd64 && !arm64

package sandbox

import (
	"runtime"
	"syscall"
)

// sharesMemory is left out where rawFork returns over a stack that the child would have changed: it
// gets a copy, which is slower.
const sharesMemory = 0

// rawFork makes a system call from which two processes return.
//
//go:norace
//go:nosplit
func rawFork(trap, a1, a2, a3 uintptr) (pid, errno uintptr) {
	if runtime.GOARCH == "s390x" && trap == syscall.SYS_CLONE {
		a1, a2 = a2, a1
	}
	r, _, e := syscall.RawSyscall(trap, a1, a2, a3)
	return r, uintptr(e)
}
