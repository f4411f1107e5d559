package casetest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
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
	fullSweep(w, m, keep, args, whole, w.inSubtests(t))
}

// full are the places where a disk that is full is a matter of its own, by the
// calls that need room there. A mode in which the whole run has no such call
// any more fails: the sweep would pass it over.
var full = []struct {
	what  string
	call  *regexp.Regexp
	modes []string // each of these makes such a call
}{
	// Its Begin, its intent and its commit record.
	{"journal", regexp.MustCompile(`^write .*/\.git/asp/tx-[^/]+/journal$`), []string{"journal", "index", "publish", "undo"}},
	{"intent of the exchange", regexp.MustCompile(`^write .*/\.asp-exchange-[^/]+/journal\.new$`), []string{"exchange"}},
	{"pre-images", regexp.MustCompile(`^write .*/packs/tx-[^/]+$`), []string{"journal", "exchange", "index", "publish", "undo"}},
	{"staged after-images", regexp.MustCompile(`^write .*/packs/tx-[^/]+$`), []string{"stage", "ref"}},
	{"receipt's name", regexp.MustCompile(`^linkat .*/receipts\.next -> .*/receipts/rcpt-[^/]+\.json$`), []string{"journal", "exchange", "stage", "ref", "index", "publish", "undo"}},
	{"receipt's bytes", stateTemp, []string{"journal", "exchange", "stage", "ref", "index", "publish", "undo"}},
}

// stateTemp is a file of the state of a workspace before it has its name.
var stateTemp = regexp.MustCompile(`^write .*/workspaces/[0-9a-f]+/\.tmp-[0-9a-f]+$`)

// fullSweep lets each of these calls find the disk full, by what it writes and
// not by its number; in the short form where the workspace is published by the
// journal, and the intent of the exchange.
func fullSweep(w *world, m crashMode, keep *kept, args []string, whole *trace, judge judged) {
	for _, f := range full {
		if !slices.Contains(f.modes, m.name) {
			continue
		}
		calls := 0 // that match
		var which []int
		for i, l := range whole.lines {
			if f.call.MatchString(l) {
				calls++
				if f.call != stateTemp || whole.named(i, "/receipts.next") {
					which = append(which, calls)
				}
			}
		}
		if len(which) == 0 {
			w.t.Fatalf("%s: no call of the whole run writes the %s:\n%s", m.name, f.what, strings.Join(whole.lines, "\n"))
		}
		if !longCrash() && m.name != "journal" && f.what != "intent of the exchange" {
			continue
		}
		for _, n := range which {
			keep.restore()
			run := w.failingNth(n, f.call, unix.ENOSPC, args...)
			point := fmt.Sprintf("full %s %d", f.what, n)
			judge(point, fmt.Sprintf("%s: %s", point, run.result), func(w *world) {
				if !run.met(f.call, n) {
					w.t.Fatalf("the run never came to it: %s", strings.Join(run.lines, "\n"))
				}
				// Nothing is applied without a journal and what undo needs. It may be without
				// a receipt, and says so.
				owed := strings.HasPrefix(f.what, "receipt") && strings.Contains(run.str("assurance", "detail"), "not stored yet")
				if run.at("applied") == true && !owed {
					w.t.Errorf("applied as if there were room: %s", run.result)
				}
				w.afterError(m, run, keep, args)
			})
		}
	}
}

// named tells whether the file that line i writes gets a name that ends so.
func (r *trace) named(i int, name string) bool {
	from := "renameat2 " + strings.TrimPrefix(r.lines[i], "write ") + " -> "
	return slices.ContainsFunc(r.lines[i:], func(l string) bool {
		to, ok := strings.CutPrefix(l, from)
		return ok && strings.HasSuffix(strings.TrimSuffix(to, " flags 0"), name)
	})
}

// met tells whether the n-th call of a kind was come to, and failed: where it was
// a file without a name yet, that it got none.
func (r *trace) met(call *regexp.Regexp, n int) bool {
	for i, l := range r.lines {
		if call.MatchString(l) {
			if n--; n == 0 {
				return call != stateTemp || !r.named(i, "")
			}
		}
	}
	return false
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
