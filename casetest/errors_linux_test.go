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
	w := crashWorld(t, m.before())
	p := m.make(w)
	p.id = crashID
	file := p.file()
	if m.prepare != nil {
		m.prepare(w, file)
	}
	keep := w.keep()
	args := m.args(w, file)
	whole := w.killedAt(0, args...)
	whole.applied()
	// In the short form one error at a call, and few calls, others in each mode.
	step := stride(len(whole.lines), 3)
	for n := 1 + shift%step; n <= len(whole.lines); n += step {
		for i, errno := range callErrors {
			if !longCrash() && i != (n+shift)%len(callErrors) {
				continue
			}
			keep.restore()
			w.failing(t, m, keep, args, n, errno)
		}
		if longCrash() || n/step%2 == 0 {
			keep.restore()
			w.failing(t, m, keep, args, n, unix.EINTR)
		}
	}
}

func (w *world) failing(t *testing.T, m crashMode, keep *kept, args []string, n int, errno syscall.Errno) {
	t.Helper()
	run := w.failedAt(n, errno, args...)
	at := "(there was no such call)"
	if n <= len(run.lines) {
		at = run.lines[n-1]
	}
	ok := t.Run(fmt.Sprintf("%03d %s", n, unix.ErrnoName(errno)), func(t *testing.T) {
		w := w.as(t)
		if errno == unix.EINTR {
			run.result.t = t
			run.applied()
		}
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
	})
	if !ok {
		t.Fatalf("%v at call %d, %s: %s", errno, n, at, run.result)
	}
}
