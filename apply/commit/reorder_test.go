package commit_test

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/aspengine/asp/internal/vfs/faultfs"
	"github.com/aspengine/asp/internal/vfs/memfs"
)

// TestReorderings: only syncs order what reaches the disk. At each operation of
// a transaction the power goes, and every state is tried that is legal then and
// differs in a few choices from "all that was not synced is lost" or from "all of
// it is there": names kept or lost one by one, as far as one does not rest on
// another, and bytes whole, old, cut short or with holes. TestPowerCutSweep tries
// others at random.
func TestReorderings(t *testing.T) {
	deviations, limit := 2, 60
	if long() {
		deviations, limit = 3, 2000
	}
	states, points, whole := 0, 0, 0
	for i, s := range scenarios() {
		if !long() && i%5 != 1 {
			continue
		}
		for _, style := range styles {
			for n := 1; ; n++ {
				w := newWorld(t, s.before)
				ff := faultfs.New(w.fs, faultfs.AtMutation(n, faultfs.Fault{Death: faultfs.DiesAfter}))
				_, ack, _ := attempt(t, w, ff, s, style)
				if !ff.Dead() {
					break
				}
				must := ""
				if ack {
					must = "new"
				}
				points++
				for base := range 2 {
					calls, all := memfs.Enumerate(base, deviations, limit, func(choose func(int) int) {
						cut := &world{t, w.fs.Crash(memfs.Random, choose)}
						recovered(t, cut, s, must, s.name, style, "cut after mutation", n, last(ff).String())
					})
					states += calls
					if all {
						whole++
					}
				}
			}
		}
	}
	t.Logf("%d states at %d operations; at %d of %d all within %d choices", states, points, whole, 2*points, deviations)
}

// TestFailedSyncThenPowerCut: the sync of the commit record fails, and the power
// goes at some operation after that. The record may be on the disk all the same;
// nothing may have been taken back then that it says was done.
func TestFailedSyncThenPowerCut(t *testing.T) {
	s := scenarioNamed(t, "CR-01 mixed")
	for _, style := range styles {
		for n := 1; ; n++ {
			w := newWorld(t, s.before)
			swapped, failed, since := false, false, 0
			ff := faultfs.New(w.fs, func(e faultfs.Event) faultfs.Fault {
				swapped = swapped || e.Op == faultfs.Exchange
				if swapped && !failed && e.Op == faultfs.Sync && strings.HasSuffix(e.Path, "/journal") {
					failed = true
					return faultfs.Fault{Err: unix.EIO}
				}
				if failed && e.M > 0 {
					if since++; since == n {
						return faultfs.Fault{Death: faultfs.DiesAfter}
					}
				}
				return faultfs.Fault{}
			})
			if _, ack, _ := attempt(t, w, ff, s, style); ack || !failed {
				t.Fatalf("acknowledged %v, the sync failed %v", ack, failed)
			}
			if !ff.Dead() {
				break
			}
			for _, m := range memfs.Modes() {
				for seed := range 3 * seedsOf(m) {
					cut := &world{t, w.fs.Crash(m, memfs.Seeded(uint64(n*100+seed)))}
					recovered(t, cut, s, "", style, "cut after", n, last(ff).String(), m, seed)
				}
			}
		}
	}
}
