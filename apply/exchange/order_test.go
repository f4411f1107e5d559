package exchange_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/aspengine/asp/apply/commit"
	"github.com/aspengine/asp/apply/exchange"
	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/internal/vfs/faultfs"
)

// TestOrder: everything is made and synced, the intent gets its name and that
// is synced, the exchange, the names synced, the receipt, and only then a
// removal, the journal last. No file is ever renamed over another.
func TestOrder(t *testing.T) {
	s := scenarios()[0]
	w := newWorld(t, s.before)
	ff := faultfs.New(w.fs, nil)
	receipt := -1
	r, _, err := attempt(t, ff, s, func(_ *exchange.Env, o *exchange.Options) {
		o.AfterCommit = func(context.Context, []byte) error { receipt = len(ff.Trace()); return nil }
	})
	if err != nil || r.Outcome != commit.Committed {
		t.Fatal(r, err)
	}
	trace := ff.Trace()
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(strings.Join(trace, "\n"))
		}
	})
	index := func(from int, prefix, suffix string) int {
		i := slices.IndexFunc(trace[from:], func(l string) bool { return strings.HasPrefix(l, prefix) && strings.HasSuffix(l, suffix) })
		if i < 0 {
			t.Fatalf("no %q … %q after %d", prefix, suffix, from)
		}
		return from + i
	}
	barrier := index(0, "syncfs .", "")
	for i, l := range trace {
		op, _, _ := strings.Cut(l, " ")
		switch {
		case slices.Contains([]string{"create", "write", "mkdir", "link", "symlink", "chmod", "chmoddir"}, op) && i > barrier && i < receipt:
			t.Errorf("%s comes after the barrier", l)
		case (op == "unlink" || op == "rmdir") && i < receipt:
			t.Errorf("%s comes before the receipt", l)
		case op == "replace":
			t.Errorf("%s: a rename that overwrites", l)
		}
	}
	named := index(barrier, "noreplace ", "/journal")
	synced := index(named, "syncdir .asp-exchange-", "-tx1")
	swapped := index(synced, "exchange ws ", "/tree")
	names := index(swapped, "syncfs .", "")
	if receipt <= names {
		t.Error("the receipt comes before the names are durable")
	}
	gone := index(receipt, "unlink ", "/journal")
	if gone != len(trace)-2 {
		t.Error("the journal does not go last")
	}
}

// TestGuaranteeIsEarned: what is taken away takes the word down.
func TestGuaranteeIsEarned(t *testing.T) {
	s := scenarios()[0]
	for name, c := range map[string]struct {
		facts commit.MountFacts
		err   error
		want  commit.Guarantee
	}{
		"all there":    {commit.MountFacts{Type: "x", Ordered: true, Barriers: true}, nil, commit.StagedSnapshot},
		"no journal":   {commit.MountFacts{Type: "x", Barriers: true}, nil, commit.RollbackAttempted},
		"no barriers":  {commit.MountFacts{Type: "x", Ordered: true}, nil, commit.RollbackAttempted},
		"probe failed": {commit.MountFacts{}, unix.EIO, commit.RollbackAttempted},
	} {
		w := newWorld(t, s.before)
		probe := func(vfs.Dir) (commit.MountFacts, error) { return c.facts, c.err }
		var sealed commit.Guarantee
		r, _, err := attempt(t, w.fs, s, func(e *exchange.Env, o *exchange.Options) {
			e.Probe = probe
			o.Seal = func(_ context.Context, f exchange.Facts) ([]byte, error) {
				sealed = f.Guarantee()
				return []byte("evidence"), nil
			}
		})
		if err != nil || r.Facts.Guarantee() != c.want || sealed != c.want {
			t.Errorf("%s: %v, sealed %v, %v", name, r.Facts.Guarantee(), sealed, err)
		}
		e := env(w.fs)
		e.Probe = probe
		if f, it, err := exchange.Forecast(e); err != nil || it != nil || f.Guarantee() != c.want || !strings.Contains(f.Detail(), "expected") {
			t.Errorf("%s: forecast %v %v %v", name, f.Guarantee(), it, err)
		}
	}
	if g := (exchange.Facts{Mount: commit.MountFacts{Ordered: true, Barriers: true}}).Guarantee(); g != commit.RollbackAttempted {
		t.Errorf("not synced: %v", g)
	}
	// Each sync in turn fails: nothing is claimed and nothing changed.
	for n := 1; ; n++ {
		w := newWorld(t, s.before)
		ff := faultfs.New(w.fs, faultfs.When(func(e faultfs.Event) bool { return e.Op.IsSync() }, n, faultfs.Fault{Err: unix.EIO}))
		r, stored, err := attempt(t, ff, s, nil)
		if err == nil {
			if n != 4 {
				t.Errorf("%d syncs, expected were 3", n-1)
			}
			break
		}
		if r.Outcome == commit.Committed || stored > 0 || !errors.Is(err, unix.EIO) {
			t.Fatalf("sync %d failed: %v %v", n, r.Outcome, err)
		}
		same(t, "as before", listing(t, w.fs, root), s.before)
	}
}

// TestExchangeRefused: what a kernel says to an exchange that may not be done.
func TestExchangeRefused(t *testing.T) {
	s := scenarios()[0]
	for cause, want := range map[error]refusal.Code{
		unix.EPERM: refusal.NotWritable, unix.EACCES: refusal.NotWritable, unix.EBUSY: refusal.CrossDevice,
		unix.EXDEV: refusal.CrossDevice, unix.EINVAL: refusal.UnsupportedOperation,
	} {
		w := newWorld(t, s.before)
		ff := faultfs.New(w.fs, faultfs.When(func(e faultfs.Event) bool { return e.Op == faultfs.Exchange }, 1, faultfs.Fault{Err: cause}))
		r, stored, err := attempt(t, ff, s, nil)
		if err != nil || r.Outcome != commit.Refused || r.Items[0].Code != want || stored > 0 {
			t.Errorf("%v: %v %v %v", cause, r.Outcome, r.Items, err)
		}
		same(t, "as before", listing(t, w.fs, root), s.before)
		if l := beside(t, w.fs); len(l) > 0 {
			t.Errorf("left over: %v", l)
		}
	}
	// And to second names.
	for cause, want := range map[error]refusal.Code{unix.EPERM: refusal.Metadata, unix.EMLINK: refusal.Metadata, unix.EXDEV: refusal.CrossDevice} {
		w := newWorld(t, s.before)
		ff := faultfs.New(w.fs, faultfs.When(func(e faultfs.Event) bool { return e.Op == faultfs.Link && e.Path == "dir/x" }, 1, faultfs.Fault{Err: cause}))
		r, _, err := attempt(t, ff, s, nil)
		if err != nil || r.Outcome != commit.Refused || r.Items[0].Code != want || r.Items[0].Path != "dir/x" {
			t.Errorf("%v: %v %v %v", cause, r.Outcome, r.Items, err)
		}
		if l := beside(t, w.fs); len(l) > 0 {
			t.Errorf("left over: %v", l)
		}
	}
}

// TestExchangeIndeterminate: neither the exchange nor its way back can be made
// durable. Nothing is removed, and recovery decides by what the disk has.
func TestExchangeIndeterminate(t *testing.T) {
	s := scenarios()[0]
	w := newWorld(t, s.before)
	ff := faultfs.New(w.fs, func(e faultfs.Event) faultfs.Fault {
		if e.Op == faultfs.SyncFS && e.N > 100 {
			return faultfs.Fault{Err: unix.EIO}
		}
		return faultfs.Fault{}
	})
	r, stored, err := attempt(t, ff, s, nil)
	if r.Outcome != commit.NeedsAttention && r.Outcome != commit.Refused || stored > 0 {
		t.Fatal(r.Outcome, err)
	}
	n := 0
	ff = faultfs.New(w.fs, func(e faultfs.Event) faultfs.Fault {
		if e.Op == faultfs.SyncFS {
			if n++; n > 1 {
				return faultfs.Fault{Err: unix.EIO}
			}
		}
		return faultfs.Fault{}
	})
	r, stored, err = attempt(t, ff, s, nil)
	if r.Outcome != commit.NeedsAttention || !errors.Is(err, commit.ErrIndeterminate) || stored > 0 {
		t.Fatal(r.Outcome, err)
	}
	same(t, "as before", listing(t, w.fs, root), s.before)
	recovered(t, w, s, "old", 0)
}

// TestWaitingTransaction: a journal transaction that waits for a person is in
// the part that an exchange leaves out.
func TestWaitingTransaction(t *testing.T) {
	s := scenarios()[0]
	w := newWorld(t, with(s.before, func(s tree) { s[".git/asp"] = "d:0700" }))
	r, _, err := attempt(t, w.fs, s, nil)
	if err != nil || r.Outcome != commit.Committed {
		t.Fatal(r.Items, err)
	}
	same(t, "an empty one is dropped", listing(t, w.fs, root), s.after)
	held := with(s.before, func(s tree) { s[".git/asp"], s[".git/asp/tx0"] = "d:0700", file(0o600, "pre-image") })
	w = newWorld(t, held)
	r, _, err = attempt(t, w.fs, s, nil)
	if err != nil || r.Outcome != commit.Refused || r.Items[0].Code != refusal.UnsupportedOperation {
		t.Fatal(r.Items, err)
	}
	same(t, "as before", listing(t, w.fs, root), held)
}

// TestForeignAreas: names that look like ours and are not.
func TestForeignAreas(t *testing.T) {
	s := scenarios()[0]
	w := newWorld(t, s.before)
	// What an area of this root is called.
	name := ""
	ff := faultfs.New(w.fs, func(e faultfs.Event) faultfs.Fault {
		if e.Op == faultfs.Mkdir && name == "" {
			name = e.Path
		}
		return faultfs.Fault{}
	})
	if _, _, err := attempt(t, ff, s, nil); err != nil {
		t.Fatal(err)
	}
	d := w.open(top)
	put(t, d, name+"-file", file(0o600, mine))
	put(t, d, name+"-open", "d:0755")
	put(t, d, name+"-open/x", file(0o600, mine))
	put(t, d, name+"-link", "l:neighbour")
	put(t, d, exchange.Prefix+"0000000000000000-tx9", "d:0700")
	put(t, d, exchange.Prefix+"0000000000000000-tx9/x", file(0o600, mine))
	side := beside(t, w.fs)
	if out, err := exchange.Recover(context.Background(), env(w.fs), nil); err != nil || len(out) > 0 {
		t.Fatal(out, err)
	}
	same(t, "untouched", beside(t, w.fs), side)
	// Damaged and newer journals are errors, and nothing is touched.
	for _, c := range []struct{ text, want string }{
		{"{", "journal"}, {`{"format":2}`, "format 2"}, {`{"format":1}`, "journal"},
	} {
		put(t, d, name, "d:0700")
		a, err := d.OpenDir(name)
		w.ok(err)
		w.ok(home.WriteFile(a, "journal", []byte(c.text)))
		put(t, a, "tree", "d:0700")
		put(t, a, "tree/x", file(0o600, mine))
		out, err := exchange.Recover(context.Background(), env(w.fs), nil)
		if err == nil || !strings.Contains(err.Error(), c.want) || len(out) > 0 || !holds(beside(t, w.fs), mine) {
			t.Errorf("%q: %v %v", c.text, out, err)
		}
		w.ok(a.Rename("tree", d, "neighbour", vfs.Exchange))
		w.ok(a.Unlink("journal"))
		w.ok(a.Rmdir("tree"))
		w.ok(d.Rmdir(name))
		n := w.open(top + "/neighbour")
		w.ok(n.Unlink("x"))
		n.Close()
	}
}
