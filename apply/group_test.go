package apply_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/aspengine/asp/apply"
	"github.com/aspengine/asp/editplan"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/internal/vfs/faultfs"
	"github.com/aspengine/asp/receipt"
	"github.com/aspengine/asp/seam/wire"
	"github.com/aspengine/asp/snapshot"
)

// crowd are applies of one host on one workspace: the first has it, and goes on when all
// others stand behind it in their order.
type crowd struct {
	*bed
	host  *apply.Engine // which keeps what it sees
	fs    vfs.FS        // of all but the first
	state string        // name of the state directory
	dirty int64         // how much unwritten data the host is said to have
}

func newCrowd(b *bed) *crowd {
	b.t.Helper()
	return (&crowd{bed: b, fs: vfs.OS{}, state: "home"}).reside()
}

func (c *crowd) reside() *crowd {
	c.t.Helper()
	c.host = c.engine(c.fs, nil)
	c.host.Reside()
	return c
}

// engine opens one of its own for a request, on the file system given.
func (c *crowd) engine(fsys vfs.FS, before func(string)) *apply.Engine {
	c.t.Helper()
	h, err := home.Open(fsys, filepath.Join(filepath.Dir(c.root), c.state))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { h.Close() })
	e, err := apply.Open(context.Background(), apply.Options{Dir: c.root, Home: h, FS: fsys, Version: "test", Shares: c.host, Before: before})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { e.Close() })
	e.SetDirty(c.dirty)
	return e
}

type said struct {
	*apply.Answer
	err error
}

func (s said) applied() bool { return s.err == nil && s.Result != nil && s.Result.Applied }

// transaction is the one that carried it out.
func (c *crowd) transaction(s said) string {
	c.t.Helper()
	st, err := c.host.Receipts().Get(s.Receipt)
	if err != nil {
		c.t.Fatal(err)
	}
	id, _ := st.Evidence.Get("transaction")
	return id.Str()
}

// all has the loaders carried out: the first, whose engine works through fsys, stops at
// the given stage until the others wait.
func (c *crowd) all(fsys vfs.FS, stage string, loads ...apply.Loader) []said {
	c.t.Helper()
	out := make([]said, len(loads))
	done := make(chan int)
	has, behind := make(chan struct{}), make(chan struct{})
	once := false
	lead := c.engine(fsys, func(s string) {
		if s == stage && !once {
			once = true
			close(has)
			<-behind
		}
	})
	run := func(i int, e *apply.Engine) {
		a, err := e.Apply(context.Background(), apply.Request{Load: loads[i], CallSite: wire.Interactive, Intent: wire.IntentUser})
		out[i] = said{a, err}
		done <- i
	}
	go run(0, lead)
	left := len(loads)
	select {
	case <-has:
	case <-done:
		c.t.Fatalf("the first did not come to %q: %v", stage, out[0].err)
	}
	for i := range loads[1:] {
		e := c.engine(c.fs, nil)
		go run(i+1, e)
		for e.InLine() < i+2 {
			runtime.Gosched()
		}
	}
	close(behind)
	for ; left > 0; left-- {
		<-done
	}
	return out
}

// asks is a plan that is made once, and stays as it is when it is asked for again.
func asks(id string, drafts ...editplan.Draft) apply.Loader {
	var is editplan.File
	return func(ctx context.Context, v *apply.View, b snapshot.Baseline) (_ editplan.File, items refusal.List, err error) {
		if is.Blobs == nil {
			is, items, err = plan(id, func(*apply.View) []editplan.Draft { return drafts })(ctx, v, b)
		}
		return is, items, err
	}
}

func made(p, content string) editplan.Draft {
	return editplan.Draft{Kind: editplan.Create, Path: p, Content: []byte(content), HasContent: true}
}

func removed(p, content string) editplan.Draft {
	return editplan.Draft{Kind: editplan.Delete, Path: p, Expected: snapshot.DigestOf([]byte(content))}
}

// TestGroup: plans that keep apart are carried out by one transaction, each with its own
// receipt and the baselines of its turn, in the order of arrival; each can be undone by itself.
func TestGroup(t *testing.T) {
	b := gitBed(t, map[string]string{"a.txt": "a\n", "b.txt": "b\n", "d/c.txt": "c\n", "d/d.txt": "d\n"})
	c := newCrowd(b)
	third := asks("p2", made("new/x", "x\n"), made("d/y", "y\n"))
	got := c.all(vfs.OS{}, "publishing",
		asks("p0", replace("a.txt", "a\n", "A\n")),
		asks("p1", replace("b.txt", "b\n", "B\n")),
		third,
		asks("p3", removed("d/c.txt", "c\n")),
		asks("p4", made("new/z", "z\n"), removed("d/d.txt", "d\n")),
	)
	tx := map[string]int{}
	var before string
	for i, s := range got {
		if !s.applied() {
			t.Fatalf("%d: %v %s", i, s.err, codes(s.Answer))
		}
		tx[c.transaction(s)]++
		if now := s.Result.BaselineBefore.Dirty; now != before {
			t.Errorf("%d: on %q, and the one before left %q", i, now, before)
		}
		before = s.Result.BaselineAfter.Dirty
		if !strings.Contains(s.Result.Assurance.Detail, "with 4 other proposals") {
			t.Errorf("%d: %s", i, s.Result.Assurance.Detail)
		}
	}
	if len(tx) != 1 {
		t.Errorf("transactions %v", tx)
	}
	is := b.read("a.txt") + b.read("b.txt") + b.read("new/x") + b.read("d/y") + b.read("d/c.txt") + b.read("new/z") + b.read("d/d.txt")
	if is != "A\nB\nx\ny\n(absent)z\n(absent)" {
		t.Errorf("%q", is)
	}
	e := c.engine(vfs.OS{}, nil)
	st, err := e.Status(context.Background(), apply.SurfaceRequest{})
	if err != nil || st.Result.Workspace.Baseline.Dirty != before {
		t.Errorf("%v: the workspace is %q, and the last one left %q", err, st.Result.Workspace.Baseline.Dirty, before)
	}
	if r, err := e.Receipts().Verify(context.Background()); err != nil || !r.OK {
		t.Errorf("%v %v", r.Problems, err)
	}
	all, err := e.Receipts().List(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, r := range all {
		if r.Outcome == receipt.Applied {
			order = append(order, r.ProposalID)
		}
	}
	if x := strings.Join(order, " "); x != "p0 p1 p2 p3 p4" && x != "p4 p3 p2 p1 p0" {
		t.Errorf("receipts %v", order)
	}
	// A baseline of the middle was given out: a plan on it is none of somebody else's.
	mid := got[1].Result.BaselineAfter
	f, err := editplan.NewPlan(editplan.Source{Baseline: snapshot.Baseline{Rev: mid.Rev, Dirty: mid.Dirty}, Provider: editplan.Provider{ID: "test", Version: "1"}}, []editplan.Draft{made("late", "l\n")})
	if err != nil {
		t.Fatal(err)
	}
	late, err := e.Apply(context.Background(), apply.Request{CallSite: wire.Interactive, Intent: wire.IntentUser, Load: func(context.Context, *apply.View, snapshot.Baseline) (editplan.File, refusal.List, error) {
		return apply.Named(f, "late"), nil, nil
	}})
	if err != nil || !late.Result.Applied {
		t.Errorf("on a baseline of the middle: %v %s", err, codes(late))
	}
	u, err := e.Undo(context.Background(), got[3].Receipt, apply.Request{CallSite: wire.Interactive, Intent: wire.IntentUser})
	if err != nil || !u.Result.Applied || b.read("d/c.txt") != "c\n" || b.read("a.txt") != "A\n" {
		t.Errorf("%v %v", err, u)
	}
	a, err := e.Apply(context.Background(), apply.Request{Load: third, CallSite: wire.Interactive, Intent: wire.IntentUser})
	if again := (said{a, err}); !again.applied() || !again.Repeated || again.Receipt != got[2].Receipt {
		t.Errorf("again: %v", again.err)
	}
}

// TestGroupKeepsOut: who comes near to one before, rests on what that one changes, or is
// no plain plan, is carried out in its own turn, and is told what is so then. Nobody overtakes it.
func TestGroupKeepsOut(t *testing.T) {
	blob := snapshot.DigestOf([]byte("only here\n"))
	for _, c := range []struct {
		name string
		next apply.Loader
		want string // "", or codes of the refusal
	}{
		{"the same path, as it was", asks("p1", replace("a.txt", "only here\n", "B\n")), "stale-basis a.txt"},
		{"the same path, as it will be", asks("p1", replace("a.txt", "A\n", "B\n")), ""},
		{"the same plan", nil, ""},
		{"a file in the place of a directory above", asks("p1", made("n", "n\n")), "exists n"},
		{"a name that differs in case", asks("p1", made("N/n", "n\n")), ""},
		{"what one before changes is said to be current", func(ctx context.Context, v *apply.View, b snapshot.Baseline) (f editplan.File, _ refusal.List, err error) {
			f, items, err := asks("p1", replace("b.txt", "b\n", "B\n"))(ctx, v, b)
			at, _ := f.Proposal.Get("validAsOf")
			f.Proposal = f.Proposal.With("validAsOf", at.With("blobs", canon.ArrayOf(canon.StringOf(blob.Blob()))))
			return f, items, err
		}, "stale-valid-as-of "},
		{"a rename", asks("p1", editplan.Draft{Kind: editplan.Rename, Path: "b.txt", To: "b2.txt", Expected: snapshot.DigestOf([]byte("b\n"))}), ""},
		{"rules of git", asks("p1", made(".gitignore", "zz\n")), ""},
		{"a name that takes more room than the journal has", asks(strings.Repeat("\x01", 600), replace("b.txt", "b\n", "B\n")), ""},
		{"a plan that is wrong", asks("p1", replace("b.txt", "not this\n", "B\n")), "stale-basis b.txt"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := gitBed(t, map[string]string{"a.txt": "only here\n", "b.txt": "b\n", "c.txt": "c\n"})
			w := newCrowd(b)
			first := asks("p0", replace("a.txt", "only here\n", "A\n"), made("n/N", "n\n"))
			if c.next == nil {
				c.next = first
			}
			got := w.all(vfs.OS{}, "publishing", first, c.next, asks("p2", replace("c.txt", "c\n", "C\n")))
			if !got[0].applied() || !got[2].applied() {
				t.Fatalf("%v %v", got[0].err, got[2].err)
			}
			if got[1].err != nil || codes(got[1].Answer) != c.want || got[1].applied() != (c.want == "") {
				t.Errorf("%v: %q, want %q", got[1].err, codes(got[1].Answer), c.want)
			}
			if w.transaction(got[0]) == w.transaction(got[2]) || w.transaction(got[1]) == w.transaction(got[0]) != got[1].Repeated {
				t.Error("carried out together")
			}
		})
	}
}

// TestGroupIsForgotten: where a stranger moves a file of one of them in the middle, all is
// put back and done again one by one, and only that one is refused.
func TestGroupIsForgotten(t *testing.T) {
	b := gitBed(t, map[string]string{"a.txt": "a\n", "b.txt": "b\n", "c.txt": "c\n"})
	c := newCrowd(b)
	swaps := 0
	ff := faultfs.New(vfs.OS{}, func(e faultfs.Event) faultfs.Fault {
		if e.Op == faultfs.Exchange {
			if swaps++; swaps == 2 { // of whichever it is: this one comes after it
				b.write("c.txt", "stranger\n")
			}
		}
		return faultfs.Fault{}
	})
	got := c.all(ff, "publishing", asks("p0", replace("a.txt", "a\n", "A\n")), asks("p1", replace("b.txt", "b\n", "B\n")), asks("p2", replace("c.txt", "c\n", "C\n")))
	if !got[0].applied() || !got[1].applied() || got[2].err != nil || got[2].applied() {
		t.Fatalf("%v %v %v", got[0].err, got[1].err, got[2].err)
	}
	if is := b.read("a.txt") + b.read("b.txt") + b.read("c.txt"); is != "A\nB\nstranger\n" {
		t.Errorf("%q", is)
	}
	if c.transaction(got[0]) == c.transaction(got[1]) {
		t.Error("the group was carried out")
	}
}

// TestGroupFails: each operation of the one who leads fails in turn, or its process dies
// there. What is answered is true, the group is there whole or not at all at any time, and
// whoever was not led to the end gets there by itself.
func TestGroupFails(t *testing.T) {
	for name, fault := range map[string]faultfs.Fault{
		"EIO": {Err: unix.EIO}, "ENOSPC": {Err: unix.ENOSPC}, "death before": {Death: faultfs.DiesBefore}, "death after": {Death: faultfs.DiesAfter},
	} {
		t.Run(name, func(t *testing.T) {
			step := stride(17)
			for n := 1 + len(name)%step; ; n += step {
				if !groupFails(t, n, fault) {
					return
				}
			}
		})
	}
}

func groupFails(t *testing.T, n int, fault faultfs.Fault) (more bool) {
	var at string
	t.Run(fmt.Sprint(n), func(t *testing.T) {
		b := gitBed(t, map[string]string{"a.txt": "a\n", "b.txt": "b\n", "c.txt": "c\n"})
		c := newCrowd(b)
		// The faults are numbered from where the group begins to be.
		begun := false
		k := 0
		ff := faultfs.New(vfs.OS{}, func(e faultfs.Event) faultfs.Fault {
			if !begun {
				return faultfs.Fault{}
			}
			if k++; k == n {
				at = e.String()
				return fault
			}
			return faultfs.Fault{}
		})
		wait := func(ctx context.Context, v *apply.View, base snapshot.Baseline) (editplan.File, refusal.List, error) {
			begun = true // in the turn of the leader, on its goroutine
			return asks("p1", replace("b.txt", "b\n", "B\n"))(ctx, v, base)
		}
		got := c.all(ff, "publishing", asks("p0", replace("a.txt", "a\n", "A\n"), made("n/x", "x\n")), wait, asks("p2", replace("c.txt", "c\n", "C\n")))
		e := c.engine(vfs.OS{}, nil)
		rec, err := e.Recover(context.Background())
		if err != nil || len(rec.Attention) > 0 {
			t.Fatalf("%s: recover: %v %v", at, rec.Attention, err)
		}
		if r, err := e.Receipts().Verify(context.Background()); err != nil || !r.OK {
			t.Fatalf("%s: receipts: %v %v", at, r.Problems, err)
		}
		is := []string{b.read("a.txt") + b.read("n/x"), b.read("b.txt"), b.read("c.txt")}
		for i, want := range []struct{ was, now string }{{"a\n(absent)", "A\nx\n"}, {"b\n", "B\n"}, {"c\n", "C\n"}} {
			out, err := e.Receipts().Lookup(context.Background(), "test", fmt.Sprint("p", i))
			if err != nil {
				t.Fatal(err)
			}
			there := out.Applied != nil
			if there && is[i] != want.now || !there && is[i] != want.was {
				t.Errorf("%s: p%d: %q, and the receipt is there: %v", at, i, is[i], there)
			}
			if got[i].applied() && !there || i > 0 && !got[i].applied() {
				t.Errorf("%s: p%d: %v, and the receipt is there: %v", at, i, got[i].err, there)
			}
		}
		if _, err := os.Lstat(filepath.Join(b.root, ".git/asp")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the area is left", at)
		}
	})
	return at != "" && !t.Failed()
}
