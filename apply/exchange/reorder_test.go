package exchange_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/aspengine/asp/apply/commit"
	"github.com/aspengine/asp/apply/exchange"
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

// TestWrongContent: an after-image that does not give the bytes of its digest is
// never published.
func TestWrongContent(t *testing.T) {
	s := scenarios()[0]
	for i, c := range s.changes(t) {
		if c.After == nil || c.After.Open == nil {
			continue
		}
		w := newWorld(t, s.before)
		changes := s.changes(t)
		changes[i].After.Open = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("x")), nil }
		r, err := exchange.Run(context.Background(), env(w.fs), "tx1", changes, exchange.Options{})
		if !errors.Is(err, commit.ErrContent) || r.Outcome != commit.Refused {
			t.Errorf("%s: %v %v", c.Path, r.Outcome, err)
		}
		same(t, "nothing happened", listing(t, w.fs, root), s.before)
	}
}
