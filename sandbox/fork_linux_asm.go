//go:build linux && (amd64 || arm64)

package sandbox

import "golang.org/x/sys/unix"

// sharesMemory lets the child use the parent's memory until it executes.
const sharesMemory = unix.CLONE_VM

// rawFork makes a system call from which two processes return.
func rawFork(trap, a1, a2, a3 uintptr) (pid, errno uintptr)
