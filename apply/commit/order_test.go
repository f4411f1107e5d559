package commit_test

import (
	"context"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/aspengine/asp/apply/commit"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/internal/vfs/faultfs"
	"github.com/aspengine/asp/internal/vfs/memfs"

	"golang.org/x/sys/unix"
)

// TestCommitRecordHasRoom: what a usual plan seals is written over bytes that the data
// barrier made durable, so that its sync is of content alone: the journal is as long
// when the record is durable as it was before the first swap.
func TestCommitRecordHasRoom(t *testing.T) {
	s := scenarioNamed(t, "CR-01 mixed")
	w := newWorld(t, s.before)
	env, done := w.mustEnv(w.fs)
	defer done()
	size := func() int64 {
		d := w.root(w.fs, env.TxDir)
		defer d.Close()
		st, err := d.Lstat("tx1/journal")
		w.ok(err)
		return st.Size
	}
	var swap, commitBegan, stored int64
	_, err := runIn(env, "tx1", s.changes(t), commit.Options{
		Sync: commit.SyncEach,
		Seal: func(context.Context, commit.Facts) ([]byte, error) { return make([]byte, 8000), nil },
		Step: func(name string) {
			switch name {
			case "swap":
				swap = size()
			case "commit":
				commitBegan = size()
			}
		},
		AfterCommit: func(context.Context, []byte, commit.Facts) error { stored = size(); return nil },
	})
	w.ok(err)
	if swap < 8000 || commitBegan != swap || stored != swap {
		t.Errorf("the journal had %d bytes at the first swap, %d before its commit record and %d after it", swap, commitBegan, stored)
	}
}

func scenarioNamed(t testing.TB, name string) scenario {
	t.Helper()
	for _, s := range scenarios() {
		if s.name == name {
			return s
		}
	}
	t.Fatalf("no scenario %q", name)
	return scenario{}
}

// TestOrderCR01: temp written, temp and journal synced, renames, each directory
// touched synced (both sides of a move, the parent of a new directory), commit
// record synced, and only then the answer.
func TestOrderCR01(t *testing.T) {
	s := scenarioNamed(t, "CR-01 mixed")
	w := newWorld(t, s.before)
	ff := faultfs.New(w.fs, nil)
	ff.Label = func(root string) string { return strings.TrimPrefix(root, "/") }
	r, _, err := attempt(t, w, ff, s, commit.SyncEach)
	if err != nil {
		t.Fatal(err)
	}
	trace := ff.Trace()
	isSwap := func(l string) bool { return strings.HasPrefix(l, "exchange ") || strings.HasPrefix(l, "noreplace ") }
	first := slices.IndexFunc(trace, isSwap)
	last := first
	for i, l := range trace {
		if isSwap(l) {
			last = i
		}
	}
	// Everything staged is written and synced before the first rename.
	staged := regexp.MustCompile(`asp/tx1/([0-9a-f]{16}-[0-9a-f]+)`)
	for _, l := range trace[:first] {
		// The mark that swaps begin is ordered behind the barrier and in none.
		if strings.HasPrefix(l, "create ") && !strings.HasSuffix(l, "/swapping") {
			name := strings.TrimPrefix(l, "create ")
			if i := slices.Index(trace, "sync "+name); i < 0 || i > first {
				t.Errorf("%s is not synced before the first rename", name)
			}
		}
	}
	for _, l := range trace[:first] {
		if name, ok := strings.CutPrefix(l, "mkdir "); ok && staged.MatchString(name) {
			if i := slices.Index(trace, "syncdir "+name); i < 0 || i > first {
				t.Errorf("%s is not synced before the first rename", name)
			}
		}
	}
	if mark := slices.IndexFunc(trace, func(l string) bool { return strings.HasSuffix(l, "/swapping") }); mark < 0 || mark > first {
		t.Error("no mark before the first rename")
	}
	if !slices.ContainsFunc(trace[:first], func(l string) bool { return staged.MatchString(l) }) {
		t.Error("nothing was staged")
	}
	for _, d := range []string{"syncdir repo/.git:asp/tx1", "syncdir repo/.git:asp", "syncdir repo/.git:."} {
		if i := slices.Index(trace, d); i < 0 || i > first {
			t.Errorf("%s comes too late or never", d)
		}
	}
	// After the last rename every directory touched, then the commit record.
	commitSync := slices.Index(trace[last:], "sync repo/.git:asp/tx1/journal") + last
	if commitSync < last {
		t.Fatal("the commit record is not synced")
	}
	for _, d := range []string{"syncdir repo:.", "syncdir repo:n", "syncdir repo:e", "syncdir repo/.git:asp/tx1"} {
		if i := slices.Index(trace[last:], d) + last; i < last || i > commitSync {
			t.Errorf("%s is not between the last rename and the commit record", d)
		}
	}
	for i, l := range trace {
		if strings.HasPrefix(l, "unlink ") && i < commitSync {
			t.Errorf("%s before the commit record is durable", l)
		}
		if strings.HasPrefix(l, "replace ") {
			t.Errorf("%s: a rename that overwrites", l)
		}
	}
	if r.Facts.Guarantee() != commit.WorkspaceTransactional {
		t.Error(r.Facts.Detail())
	}
	if t.Failed() {
		t.Log(strings.Join(trace, "\n"))
	}
}

// TestBarriers: the syncfs style needs no more barriers for many files than for
// one.
func TestBarriers(t *testing.T) {
	for _, n := range []int{1, 300} {
		before, cs := tree{}, []commit.Change(nil)
		for i := range n {
			p := "d" + string(rune('a'+i%20)) + strings.Repeat("x", i/20)
			before[p] = file(0o644, "old")
			cs = append(cs, modify(t, p, before[p], file(0o644, "new")))
		}
		w := newWorld(t, before)
		ff := faultfs.New(w.fs, nil)
		e, done := w.mustEnv(ff)
		if r, err := runIn(e, "tx1", cs, commit.Options{}); err != nil || r.Facts.Syncs() > 6 {
			t.Fatal(r.Facts, err)
		}
		done()
		syncs := 0
		for _, ev := range ff.Events() {
			if ev.Op.IsSync() {
				syncs++
			}
		}
		if syncs != 3 {
			t.Errorf("%d files: %d syncs", n, syncs)
		}
	}
}

// TestNaiveIsCaught: the power-cut sweep would see an engine that leaves out the
// barriers, and such a run claims nothing.
func TestNaiveIsCaught(t *testing.T) {
	s := scenarioNamed(t, "modify")
	caught := false
	for n := 1; ; n++ {
		w := newWorld(t, s.before)
		ff := faultfs.New(w.fs, faultfs.AtMutation(n, faultfs.Fault{Death: faultfs.DiesAfter}))
		r, ack, _ := attempt(t, w, ff, s, commit.SyncNone)
		if ack && r.Facts.Guarantee() > commit.RollbackAttempted {
			t.Fatalf("without a sync: %v", r.Facts.Guarantee())
		}
		if !ff.Dead() {
			break
		}
		for _, m := range memfs.Modes() {
			cut := &world{t, w.fs.Crash(m, rand.New(rand.NewPCG(uint64(n), 1)).IntN)}
			e, done := cut.mustEnv(cut.fs)
			commit.Recover(t.Context(), e, commit.RecoverOptions{})
			done()
			got := state(t, cut.fs)
			caught = caught || !equalTrees(got, s.before) && !equalTrees(got, s.after)
		}
	}
	if !caught {
		t.Fatal("the model lets an engine without barriers pass")
	}
}

// TestGuaranteeIsEarned: each mechanism that is taken away takes the word down.
func TestGuaranteeIsEarned(t *testing.T) {
	cs := []commit.Change{modify(t, "a", base["a"], file(0o644, "a new\n"))}
	run := func(change func(*commit.Env, *commit.Options)) (commit.Result, error) {
		w := newWorld(t, base)
		e, done := w.mustEnv(w.fs)
		defer done()
		o := commit.Options{}
		change(&e, &o)
		return runIn(e, "tx1", cs, o)
	}
	probe := func(m commit.MountFacts) func(*commit.Env, *commit.Options) {
		return func(e *commit.Env, _ *commit.Options) {
			e.Probe = func(vfs.Dir) (commit.MountFacts, error) { return m, nil }
		}
	}
	tests := []struct {
		name string
		with func(*commit.Env, *commit.Options)
		want commit.Guarantee
	}{
		{"all there", func(*commit.Env, *commit.Options) {}, commit.WorkspaceTransactional},
		{"no sync", func(_ *commit.Env, o *commit.Options) { o.Sync = commit.SyncNone }, commit.RollbackAttempted},
		{"no journal", probe(commit.MountFacts{Type: "x", Barriers: true, Renames: true}), commit.RollbackAttempted},
		{"no barriers", probe(commit.MountFacts{Type: "x", Ordered: true, Renames: true}), commit.RollbackAttempted},
		{"unknown file system", func(e *commit.Env, _ *commit.Options) { e.Probe = nil }, commit.RollbackAttempted},
		{"probe fails", func(e *commit.Env, _ *commit.Options) {
			e.Probe = func(vfs.Dir) (commit.MountFacts, error) { return commit.MountFacts{}, unix.EIO }
		}, commit.RollbackAttempted},
	}
	for _, c := range tests {
		r, err := run(c.with)
		if err != nil || r.Outcome != commit.Committed || r.Facts.Guarantee() != c.want {
			t.Errorf("%s: %v %v %v: %s", c.name, r.Outcome, err, r.Facts.Guarantee(), r.Facts.Detail())
		}
	}
	// Primitives that the file system lacks, found by the probe before the
	// first write.
	for _, c := range []struct {
		lacks faultfs.Op
		want  commit.Guarantee
		fails bool
	}{{faultfs.Exchange, commit.GuaranteeNone, true}, {faultfs.NoReplace, commit.TextOnlyTransactional, false}} {
		w := newWorld(t, base)
		ff := faultfs.New(w.fs, faultfs.When(func(e faultfs.Event) bool { return e.Op == c.lacks }, 0, faultfs.Fault{Err: unix.EINVAL}))
		e, done := w.mustEnv(ff)
		e.Probe = func(vfs.Dir) (commit.MountFacts, error) {
			return commit.MountFacts{Type: "x", Ordered: true, Barriers: true}, nil
		}
		r, err := runIn(e, "tx1", cs, commit.Options{})
		done()
		if c.fails != (err != nil) || r.Facts.Guarantee() != c.want {
			t.Errorf("without %v: %v %v %v", c.lacks, r.Outcome, err, r.Facts.Guarantee())
		}
		if c.fails {
			same(t, "before the first write", state(t, w.fs), base)
		}
		if l := leftovers(t, w.fs); len(l) > 0 {
			t.Fatalf("left over: %v", l)
		}
	}
}

// TestSyncChoice: much unwritten data on the host turns the style.
func TestSyncChoice(t *testing.T) {
	for _, c := range []struct {
		dirty int64
		err   error
		want  commit.SyncStyle
	}{{0, nil, commit.SyncFS}, {400 << 20, nil, commit.SyncEach}, {0, unix.EIO, commit.SyncEach}} {
		w := newWorld(t, base)
		e, done := w.mustEnv(w.fs)
		e.Dirty = func() (int64, error) { return c.dirty, c.err }
		r, err := runIn(e, "tx1", []commit.Change{create(t, "new", "n", false)}, commit.Options{})
		done()
		if err != nil || r.Facts.Style != c.want {
			t.Errorf("%d %v: %v %v", c.dirty, c.err, r.Facts.Style, err)
		}
	}
}

// TestFailedSync: a failed sync at any barrier is an error, everything is rolled
// back, and the sync is not tried again.
func TestFailedSync(t *testing.T) {
	s := scenarioNamed(t, "CR-01 mixed")
	for _, style := range styles {
		for n := 1; ; n++ {
			w := newWorld(t, s.before)
			ff := faultfs.New(w.fs, faultfs.When(func(e faultfs.Event) bool { return e.Op.IsSync() }, n, faultfs.Fault{Err: unix.EIO}))
			r, ack, err := attempt(t, w, ff, s, style)
			failed := 0
			for _, e := range ff.Events() {
				if e.Err != nil && e.Op.IsSync() {
					failed++
				}
			}
			if failed == 0 {
				break
			}
			if ack || err == nil || failed > 1 {
				t.Fatalf("sync %d of %v failed: %v %v", n, style, r.Outcome, err)
			}
			if g := r.Facts.Guarantee(); g > commit.RollbackAttempted {
				t.Fatalf("sync %d failed, guarantee %v", n, g)
			}
			same(t, "rolled back", state(t, w.fs), s.before)
		}
	}
}
