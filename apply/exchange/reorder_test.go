package exchange_test

import (
	"testing"

	"github.com/aspengine/asp/internal/vfs/faultfs"
	"github.com/aspengine/asp/internal/vfs/memfs"
)

// TestReorderings is that of the journal mode: at each operation of an exchange
// the states that are a few choices away from "nothing that was not synced is
// there" and from "all of it is".
func TestReorderings(t *testing.T) {
	deviations, limit := 1, 12
	if long() {
		deviations, limit = 3, 1000
	}
	states, points := 0, 0
	for i, s := range scenarios() {
		if !long() && i > 0 {
			break
		}
		for n := 1; ; n++ {
			w := newWorld(t, s.before)
			ff := faultfs.New(w.fs, faultfs.AtMutation(n, faultfs.Fault{Death: faultfs.DiesAfter}))
			_, stored, _ := attempt(t, ff, s, nil)
			if !ff.Dead() {
				break
			}
			must := ""
			if stored > 0 {
				must = "new"
			}
			points++
			for base := range 2 {
				calls, _ := memfs.Enumerate(base, deviations, limit, func(choose func(int) int) {
					recovered(t, &world{t, w.fs.Crash(memfs.Random, choose)}, s, must, stored, "cut after mutation", n, last(ff))
				})
				states += calls
			}
		}
	}
	t.Logf("%d states at %d operations", states, points)
}
