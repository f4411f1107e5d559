package sandbox

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// disposition is what the kernel does with a signal. The handler comes first, on every machine
// that there is a filter for; what follows is put back as it was found, or nothing.
type disposition [8]uintptr

const sigIgn = 1 // SIG_IGN

func sigaction(sig uintptr, to, old *disposition) unix.Errno {
	_, _, e := unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(to)), uintptr(unsafe.Pointer(old)), 8, 0, 0)
	return e
}

// deaf makes the child half ignore what the command may send its first process. Nothing
// happens then, as it would where nobody catches a signal; one that gets through ends the run, and
// is seen outside. The kernel is told directly: os/signal hands each of sixty signals to a thread of
// its own and waits for it, which was a tenth of a launch.
//
// Only what the run-time system catches is changed: it remembers that, and puts these back to
// their defaults in whatever it starts, so that the command ignores nothing but what asp was told
// to. Left alone are those that do no harm and have a use: with SIGCHLD ignored nobody could wait for
// the dead, by SIGURG the run-time system stops its own threads, and 32 and 33 are a libc's own.
func deaf() error {
	for sig := uintptr(1); sig < 65; sig++ {
		switch unix.Signal(sig) {
		case unix.SIGKILL, unix.SIGSTOP, unix.SIGCHLD, unix.SIGURG, 32, 33:
			continue
		}
		var old disposition
		if e := sigaction(sig, nil, &old); e != 0 {
			return fail(e, "look at signal %d", sig)
		}
		if old[0] <= sigIgn {
			continue // the default, or ignored before
		}
		if e := sigaction(sig, &disposition{sigIgn}, nil); e != 0 {
			return fail(e, "ignore signal %d", sig)
		}
	}
	return nil
}
