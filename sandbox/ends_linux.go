package sandbox

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Ends takes down what is left of launches that are over, beside whoever got their answer:
// the mounts, for which the kernel has to wait until no processor can be in one of them,
// and the control group. All processes of such a launch were dead before its answer was given. To give
// that when the command has ended, and let the rest die beside, was rejected: what it left running might
// still write where the answer is about to be compared.
//
// Whoever makes one calls Wait when the launches are over, and before what they had mounted is
// removed. The zero value is ready; safe for concurrent use; a nil Ends lets every launch
// take down its own before its answer.
type Ends struct{ open sync.WaitGroup }

// Wait returns when nothing is left of the launches that got their answers.
func (e *Ends) Wait() {
	if e != nil {
		e.open.Wait()
	}
}

// lease keeps what h has mounted beyond the death of its processes: the last of them would take
// it down otherwise, and be dead after that. What lies behind the file goes with it, also where
// this process is killed. Where it cannot be had, the mounts go with the processes, as
// they do without Ends.
func (e *Ends) lease(h *half) {
	if e == nil || !h.namespaces {
		return
	}
	h.ends = e
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/ns/mnt", h.proc.Pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		h.mounts = os.NewFile(uintptr(fd), "mounts")
	}
}

// takeDown gives back what outlives the processes.
func (h *half) takeDown() {
	if h.mounts != nil {
		h.mounts.Close()
	}
	if h.group != nil {
		// Without namespaces this also gets who escaped the child half.
		h.swept = h.group.Close() == nil // what stays is swept by a later launch
	}
}
