package exchange_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/aspengine/asp/apply/commit"
	"github.com/aspengine/asp/apply/exchange"
	"github.com/aspengine/asp/internal/need"
	"github.com/aspengine/asp/internal/vfs/faultfs"
	"github.com/aspengine/asp/internal/vfs/memfs"
)

// recovered runs Recover twice and checks that the workspace is all old or all
// new (as must says, if it does), that the evidence was delivered exactly when
// it is new and no earlier run delivered it, and that nothing is left.
func recovered(t testing.TB, w *world, s scenario, must string, storedBefore int, where ...any) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Log(where...)
		}
	}()
	stored := 0
	done := func(_ context.Context, r commit.Recovered) error {
		if string(r.Evidence) != "evidence" || r.Tag != "proposal-1" {
			t.Errorf("evidence %q, tag %q", r.Evidence, r.Tag)
		}
		stored++
		return nil
	}
	out, err := exchange.Recover(context.Background(), env(w.fs), done)
	if err != nil {
		t.Fatalf("recover: %v", err)
	}
	again, err := exchange.Recover(context.Background(), env(w.fs), done)
	if err != nil || len(again) != 0 {
		t.Fatalf("second recover: %v, %v", again, err)
	}
	got := listing(t, w.fs, root)
	isNew := maps.Equal(got, s.after)
	switch {
	case must == "new" || isNew && must == "":
		same(t, "after recovery", got, s.after)
		if storedBefore+stored == 0 {
			t.Fatal("new, and nobody was told")
		}
	default:
		same(t, "after recovery", got, s.before)
		if storedBefore+stored > 0 {
			t.Fatal("old, and a receipt says new")
		}
	}
	if len(out) > 1 || stored > 1 {
		t.Fatalf("reported %v, stored %d", out, stored)
	}
	if len(out) == 1 && (out[0].Outcome == commit.Committed) != isNew {
		t.Fatalf("reported %v, new %v", out[0].Outcome, isNew)
	}
	if len(out) == 1 && len(out[0].Notes) > 0 {
		t.Fatalf("notes %v", out[0].Notes)
	}
	if l := beside(t, w.fs); len(l) > 0 {
		t.Fatalf("left over: %v", l)
	}
}

func crash(t testing.TB, w *world, m memfs.Mode, seeds ...uint64) *world {
	return &world{t, w.fs.Crash(m, rand.New(rand.NewPCG(seeds[0], seeds[1])).IntN)}
}

func TestScenarios(t *testing.T) {
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			w := newWorld(t, s.before)
			r, stored, err := attempt(t, w.fs, s, nil)
			if err != nil || r.Outcome != commit.Committed || stored != 1 || len(r.Notes) > 0 {
				t.Fatalf("%v %v %v, stored %d, %v", r.Outcome, r.Items, err, stored, r.Notes)
			}
			same(t, "after", listing(t, w.fs, root), s.after)
			if l := beside(t, w.fs); len(l) > 0 {
				t.Fatalf("left over: %v", l)
			}
			if g := r.Facts.Guarantee(); g != commit.StagedSnapshot {
				t.Errorf("guarantee %v: %s", g, r.Facts.Detail())
			}
			for _, m := range memfs.Modes() {
				for seed := range uint64(4) {
					recovered(t, crash(t, w, m, 1, seed), s, "new", 1, m, seed)
				}
			}
		})
	}
}

// chosen are all scenarios, or with -short the one that has everything.
func chosen() []scenario {
	if testing.Short() && !long() {
		return scenarios()[:3]
	}
	return scenarios()
}

// causes are what a system says of a device that fails, a full one, a used-up
// quota, too many open files, a file system that became read-only, and a right that was
// taken away.
var causes = []error{unix.EIO, unix.ENOSPC, unix.EDQUOT, unix.EMFILE, unix.EROFS, unix.EACCES}

// causeStep is how far apart the points of a cause are: the first meets every
// operation, the others a selection, and all of them every one in the long form.
func causeStep(i int) int {
	switch {
	case long():
		return 1
	case need.Race:
		return 7
	case i == 0:
		return 1
	case i == 1:
		return 3
	}
	return 11
}

// long asks for every point of a sweep and more power cuts at each.
func long() bool { return os.Getenv("ASP_CRASH") == "long" }

// raceStep is n where the race detector watches, else 1.
func raceStep(n int) int {
	if need.Race && !long() {
		return n
	}
	return 1
}

// sparse is how far apart the points of the i-th scenario are in the short form:
// those at the front, which have the most in them, are met everywhere.
func sparse(i int) int {
	if long() || i < 3 {
		return 1
	}
	return 3
}

// harmless are operations whose failure changes nothing that anybody was
// promised: closing handles that were only read, and a mode that may not be set,
// where what matters is the mode that the file has then, which is looked at.
func harmless(e faultfs.Event, cause error) bool {
	return e.Op == faultfs.CloseDir || e.Op == faultfs.Close || e.Op == faultfs.Chmod && errors.Is(cause, unix.EACCES)
}

func TestFaultSweep(t *testing.T) {
	for k, s := range chosen() {
		for i, cause := range causes {
			t.Run(fmt.Sprintf("%s/%v", s.name, cause), func(t *testing.T) {
				step := causeStep(i) * sparse(k)
				for n := 1 + (i+k)%step; ; n += step {
					w := newWorld(t, s.before)
					ff := faultfs.New(w.fs, faultfs.At(n, faultfs.Fault{Err: cause}))
					r, stored, err := attempt(t, ff, s, nil)
					if all, _ := ff.Counts(); all < n {
						break
					}
					hit := ff.Events()[n-1]
					at := fmt.Sprintf("fault %d %v: %v %v %v", n, hit, r.Outcome, r.Items, err)
					if !errors.Is(err, cause) && !harmless(hit, cause) && len(r.Notes) == 0 && len(r.Items) == 0 {
						t.Fatalf("%s: not surfaced", at)
					}
					want := "old"
					switch r.Outcome {
					case commit.Committed:
						want = "new"
						same(t, at, listing(t, w.fs, root), s.after)
					case commit.Refused, commit.RolledBack:
						same(t, at, listing(t, w.fs, root), s.before)
					default:
						t.Fatal(at)
					}
					if errors.Is(cause, unix.EACCES) && len(r.Notes) > 0 {
						// What may not be read is not removed: it is there, and said.
						continue
					}
					recovered(t, w, s, want, stored, at)
				}
			})
		}
	}
}

// TestLastingFault: from the n-th mutation on everything fails.
func TestLastingFault(t *testing.T) {
	s := scenarios()[0]
	for n := 1; ; n++ {
		w := newWorld(t, s.before)
		ff := faultfs.New(w.fs, func(e faultfs.Event) faultfs.Fault {
			if e.M >= n {
				return faultfs.Fault{Err: unix.EIO}
			}
			return faultfs.Fault{}
		})
		r, stored, err := attempt(t, ff, s, nil)
		if _, m := ff.Counts(); m < n {
			break
		}
		if err == nil {
			t.Fatalf("mutations from %d fail: %v, no error", n, r.Outcome)
		}
		want := ""
		if r.Outcome == commit.Committed {
			want = "new"
		}
		for _, m := range memfs.Modes() {
			recovered(t, crash(t, w, m, uint64(n), 7), s, want, stored, "cut after fault", n, m)
		}
		if r.Outcome == commit.Refused {
			want = "old"
		}
		recovered(t, w, s, want, stored, "fault", n)
	}
}

func TestDeathSweep(t *testing.T) {
	for k, s := range chosen() {
		for _, when := range []faultfs.Death{faultfs.DiesBefore, faultfs.DiesAfter} {
			t.Run(fmt.Sprintf("%s/%d", s.name, when), func(t *testing.T) {
				for n := 1 + k%sparse(k); ; n += sparse(k) {
					w := newWorld(t, s.before)
					ff := faultfs.New(w.fs, faultfs.AtMutation(n, faultfs.Fault{Death: when, Short: n % 3 * 20}))
					_, stored, _ := attempt(t, ff, s, nil)
					if !ff.Dead() {
						break
					}
					w.fs.Kill()
					live := listing(t, w.fs, root)
					if !maps.Equal(live, s.before) && !maps.Equal(live, s.after) {
						same(t, "neither old nor new", live, s.after)
					}
					must := ""
					if stored > 0 {
						must = "new"
					}
					recovered(t, w, s, must, stored, "died at mutation", n, last(ff))
				}
			})
		}
	}
}

func last(f *faultfs.FS) faultfs.Event {
	all := f.Events()
	return all[len(all)-1]
}

func TestPowerCutSweep(t *testing.T) {
	for k, s := range chosen() {
		t.Run(s.name, func(t *testing.T) {
			for n := 1 + k%sparse(k); ; n += sparse(k) {
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
				for _, m := range memfs.Modes() {
					for seed := range uint64(seeds(m)) {
						recovered(t, crash(t, w, m, uint64(n), seed), s, must, stored, "cut after mutation", n, last(ff), m, seed)
					}
				}
			}
		})
	}
}

func seeds(m memfs.Mode) int {
	switch {
	case m != memfs.Random && m != memfs.Ordered:
		return 1
	case long():
		return 32
	case need.Race:
		return 1
	}
	return 4
}

// TestPowerCutInRecovery: the process is killed at each mutation, recovery
// begins, and the power goes at each of its own. What was done and not synced
// must not decide anything that the disk then forgets.
func TestPowerCutInRecovery(t *testing.T) {
	s := scenarios()[0]
	first := 1
	if testing.Short() { // what comes before the exchange is in the full run
		probe := faultfs.New(newWorld(t, s.before).fs, nil)
		_, _, _ = attempt(t, probe, s, nil)
		for _, e := range probe.Events() {
			if e.Op == faultfs.Exchange {
				first = e.M
			}
		}
	}
	for n := first; ; n++ {
		for m := 1 + n%raceStep(3); ; m += raceStep(3) {
			w := newWorld(t, s.before)
			ff := faultfs.New(w.fs, faultfs.AtMutation(n, faultfs.Fault{Death: faultfs.DiesAfter}))
			_, stored, _ := attempt(t, ff, s, nil)
			if !ff.Dead() {
				return
			}
			w.fs.Kill()
			rf := faultfs.New(w.fs, faultfs.AtMutation(m, faultfs.Fault{Death: faultfs.DiesAfter}))
			_, _ = exchange.Recover(context.Background(), env(rf), func(context.Context, commit.Recovered) error { stored++; return nil })
			if !rf.Dead() {
				break
			}
			must := ""
			if stored > 0 {
				must = "new"
			}
			for _, mode := range memfs.Modes() {
				for seed := range uint64(seeds(mode)) {
					recovered(t, crash(t, w, mode, uint64(n*1000+m), seed), s, must, stored, "killed at", n, "cut in recovery at", m, last(rf), mode)
				}
			}
			if m%3 == 0 {
				w.fs.Kill()
				recovered(t, w, s, must, stored, "killed at", n, "and in recovery at", m)
			}
		}
	}
}

// TestRollBackSurvivesPowerCut: a sync fails after the exchange, everything is
// put back, and the power goes at each operation of that.
func TestRollBackSurvivesPowerCut(t *testing.T) {
	s := scenarios()[0]
	for n := 1; ; n++ {
		w := newWorld(t, s.before)
		syncs, swaps, after, dead := 0, 0, 0, false
		ff := faultfs.New(w.fs, func(e faultfs.Event) faultfs.Fault {
			if e.Op == faultfs.Exchange {
				swaps++
			}
			if e.Op == faultfs.SyncFS && swaps > 0 {
				if syncs++; syncs == 1 {
					return faultfs.Fault{Err: unix.EIO}
				}
			}
			if syncs > 0 && e.Op.Mutating() {
				if after++; after == n {
					dead = true
					return faultfs.Fault{Death: faultfs.DiesAfter}
				}
			}
			return faultfs.Fault{}
		})
		r, stored, err := attempt(t, ff, s, nil)
		if !dead {
			if r.Outcome != commit.RolledBack || !errors.Is(err, unix.EIO) {
				t.Fatal(r.Outcome, err)
			}
			return
		}
		for _, m := range memfs.Modes() {
			for seed := range uint64(seeds(m)) {
				recovered(t, crash(t, w, m, uint64(n), seed), s, "", stored, "cut after", n, last(ff), m, seed)
			}
		}
	}
}
