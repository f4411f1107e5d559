//go:build linux || darwin

package vfs

import (
	"io/fs"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// handle owns one descriptor and counts who is using it. Closing while another
// goroutine is inside a system call must not let the number be reused under
// it, so the last user closes.
//
// Rejected: a RWMutex. Rename holds two handles at a time, and two renames in
// opposite directions with two closes waiting between them would deadlock.
// Rejected: os.File, which asks the kernel twice more for each open.
type handle struct {
	fd int
	// users counts running calls; closedBit is added by Close.
	users atomic.Int64
}

const closedBit = 1 << 40

// use marks a call as running and returns the descriptor; release must follow.
func (h *handle) use() (int, error) {
	if h.users.Add(1)&closedBit != 0 {
		h.release()
		return -1, fs.ErrClosed
	}
	return h.fd, nil
}

// release ends what use began. The transition to "closed and unused" happens
// exactly once because users never rises from there except through use, which
// backs out: the compare-and-swap below lets only one of them close.
func (h *handle) release() error {
	if h.users.Add(-1) != closedBit {
		return nil
	}
	if !h.users.CompareAndSwap(closedBit, 2*closedBit|closedBit) {
		return nil
	}
	err := unix.Close(h.fd)
	if err == unix.EINTR {
		// The kernel has let go of the descriptor already; closing again could
		// hit somebody else's.
		err = nil
	}
	return err
}

// Close marks the handle closed. When no other call is running the descriptor
// is closed now and its error returned, else by the last running call.
func (h *handle) Close() error {
	for {
		n := h.users.Load()
		if n&closedBit != 0 {
			return fs.ErrClosed
		}
		// One more user, so that release sees the end of this call too.
		if h.users.CompareAndSwap(n, n+closedBit+1) {
			return h.release()
		}
	}
}

// Fd returns the descriptor, which stays owned by the handle; it is meaningless
// after Close.
func (h *handle) Fd() uintptr { return uintptr(h.fd) }

// retry repeats f while it is interrupted by a signal.
func retry(f func() error) error {
	for {
		if err := f(); err != unix.EINTR {
			return err
		}
	}
}
