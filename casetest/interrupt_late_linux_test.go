package casetest

import (
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestInterruptTooLate: Ctrl-C after the commit record finds the change decided. The
// run ends its work and says applied; a second Ctrl-C ends it at once, and recovery
// completes what was decided, with the receipt, and a retry is told the same.
func TestInterruptTooLate(t *testing.T) {
	const decided = "receipts.next" // the first thing that is written of a decided change
	for _, mode := range []string{"journal", "exchange"} {
		setup := func(t *testing.T) (w *world, said *screen, args []string) {
			w = newWorld(t, map[string]string{"x": "x\n", "y": "y\n"})
			said = &screen{}
			w.stderr = said
			file := w.plan().modify("x", "x\n", "X\n").modify("y", "y\n", "Y\n").file()
			return w, said, []string{"apply", "--plan", file, "--json", "--publish", mode}
		}
		done := func(w *world) {
			w.is("x", "X\n")
			w.is("y", "Y\n")
			rs := slices.DeleteFunc(w.receipts(), func(r obj) bool { return r["kind"] != "apply-attempt" })
			if len(rs) != 1 || rs[0]["outcome"] != "applied" {
				w.t.Errorf("receipts: %v", rs)
			}
			w.clean()
		}
		t.Run(mode+"/once", func(t *testing.T) {
			w, said, args := setup(t)
			w.heldAt(decided, func() {
				w.signal(args[2], syscall.SIGINT)
				w.until("the run has heard it", said.has("interrupt again"))
			}, args...).applied()
			done(w)
		})
		t.Run(mode+"/twice", func(t *testing.T) {
			w, said, args := setup(t)
			run := w.heldAt(decided, func() {
				w.signal(args[2], syscall.SIGINT)
				w.until("the run has heard it", said.has("interrupt again"))
				w.signal(args[2], syscall.SIGINT)
				w.until("the run ends", said.has("ended at once; `asp recover`"))
			}, args...)
			if run.code != 3 {
				t.Errorf("want exit status 3: %s", run.result)
			}
			if r := w.run("recover", "--json"); r.code != 0 || !strings.Contains(string(r.out), `"completed"`) {
				t.Errorf("%s", r)
			}
			done(w)
			w.run(args...).applied()
			done(w)
		})
	}
}
