package casetest

import (
	"fmt"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// errors that a system call that changes something can end with, apart from
// those that are answers.
var callErrors = []syscall.Errno{unix.ENOSPC, unix.EIO, unix.EACCES, unix.EROFS, unix.EMFILE, unix.EDQUOT}

// TestErrorSweep: each call by which the built binary changes a disk, the
// workspace's or the state directory's, fails in turn, in every publish mode. The
// workspace is all old or all new and the answer says which, at once; after
// recovery nothing is left, and the receipts agree.
//
// An interrupted call is made again: then everything is as if nothing had
// happened.
func TestErrorSweep(t *testing.T) {
	for i, m := range crashModes() {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			errorSweep(t, m, i)
		})
	}
}

func errorSweep(t *testing.T, m crashMode, shift int) {
	w, keep, args := m.world(t)
	whole := w.killedAt(0, args...)
	whole.applied()
	failSweep(w, m, keep, args, whole, shift, w.inSubtests(t))
}

// failSweep lets calls of the command fail, those of the whole run being given.
func failSweep(w *world, m crashMode, keep *kept, args []string, whole *trace, shift int, judge judged) {
	// In the short form one error at a call, and few calls, others in each mode.
	step := stride(len(whole.lines), 3)
	for n := 1 + shift%step; n <= len(whole.lines); n += step {
		for i, errno := range callErrors {
			if !longCrash() && i != (n+shift)%len(callErrors) {
				continue
			}
			keep.restore()
			w.failing(judge, m, keep, args, n, errno)
		}
		if longCrash() || n/step%2 == 0 {
			keep.restore()
			w.failing(judge, m, keep, args, n, unix.EINTR)
		}
	}
}

func (w *world) failing(judge judged, m crashMode, keep *kept, args []string, n int, errno syscall.Errno) {
	w.t.Helper()
	run := w.failedAt(n, errno, args...)
	at := "(there was no such call)"
	if n <= len(run.lines) {
		at = run.lines[n-1]
	}
	how := fmt.Sprintf("%v at call %d, %s: %s", errno, n, at, run.result)
	judge(fmt.Sprintf("%03d %s", n, unix.ErrnoName(errno)), how, func(w *world) {
		if errno == unix.EINTR {
			run.result.t = w.t
			run.applied()
		}
		w.afterError(m, run, keep, args)
	})
}

// afterError checks what a run left in which a call failed, at once and after recovery.
func (w *world) afterError(m crashMode, run *trace, keep *kept, args []string) {
	t := w.t
	applied, now := run.at("applied") == true, w.things()
	switch {
	case applied && !now.equal(m.new):
		t.Errorf("the answer says applied, and the workspace is %v", now)
	case !applied && !now.equal(m.old):
		t.Errorf("the answer says not applied, and the workspace is %v", now)
	case applied != (run.code == 0):
		t.Errorf("applied %v with exit %d", applied, run.code)
	}
	w.afterCrash(m, run, keep, args)
}
