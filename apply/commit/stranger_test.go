package commit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/aspengine/asp/apply/commit"
	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/internal/vfs/faultfs"
	"github.com/aspengine/asp/snapshot"
)

// meddle runs f on the world below right before the n-th exchange or rename of
// the plan's last step.
func meddle(w *world, match func(faultfs.Event) bool, f func()) *faultfs.FS {
	done := false
	return faultfs.New(w.fs, func(e faultfs.Event) faultfs.Fault {
		if !done && match(e) {
			done = true
			f()
		}
		return faultfs.Fault{}
	})
}

// isSwapOf matches the rename between a staging area and the live path.
func isSwapOf(p string) func(faultfs.Event) bool {
	return func(e faultfs.Event) bool {
		return (e.Op == faultfs.Exchange || e.Op == faultfs.NoReplace) && (e.Path == p || e.To == p)
	}
}

func code(t testing.TB, r commit.Result, want refusal.Code, at string) {
	t.Helper()
	if len(r.Items) == 0 || r.Items[0].Code != want || r.Items[0].Path != at {
		t.Fatalf("items %v, want %s at %s", r.Items, want, at)
	}
}

// TestForeignEdit: CC-01 (2) and (3), PV-01 at the write. Somebody changes a path
// between the last check and its rename.
func TestForeignEdit(t *testing.T) {
	type test struct {
		name    string
		changes []commit.Change
		at      string
		edit    func(w *world)
		code    refusal.Code
		after   func(s tree)
	}
	b := base
	first := modify(t, "a", b["a"], file(0o644, "a new\n"))
	tests := []test{
		{"modified in place", []commit.Change{first, modify(t, "c", b["c"], file(0o644, "C\n"))}, "c",
			func(w *world) { w.put("c", file(0o644, "c mine\n")) }, refusal.ChangedUnderneath, func(s tree) { s["c"] = file(0o644, "c mine\n") }},
		{"same size", []commit.Change{first, modify(t, "c", b["c"], file(0o644, "C\n"))}, "c",
			func(w *world) { w.put("c", file(0o644, "c OLD\n")) }, refusal.ChangedUnderneath, func(s tree) { s["c"] = file(0o644, "c OLD\n") }},
		{"mode", []commit.Change{first, modify(t, "c", b["c"], file(0o644, "C\n"))}, "c",
			func(w *world) { w.put("c", file(0o755, "c old\n")) }, refusal.ChangedUnderneath, func(s tree) { s["c"] = file(0o755, "c old\n") }},
		{"deleted file changed", []commit.Change{first, remove(t, "c", b["c"])}, "c",
			func(w *world) { w.put("c", file(0o644, "c mine\n")) }, refusal.ChangedUnderneath, func(s tree) { s["c"] = file(0o644, "c mine\n") }},
		{"moved file changed", append(rename(t, "d", "moved", b["d"]), first), "d",
			func(w *world) { w.put("d", file(0o644, "d mine\n")) }, refusal.ChangedUnderneath, func(s tree) { s["d"] = file(0o644, "d mine\n") }},
		{"created file exists", []commit.Change{first, create(t, "n/b", "b\n", false)}, "n/b",
			func(w *world) { w.put("n/b", file(0o644, "b mine\n")) }, refusal.Exists,
			func(s tree) { s["n"], s["n/b"] = "d:0755", file(0o644, "b mine\n") }},
		{"move finds its place taken", append(rename(t, "d", "moved", b["d"]), first), "d",
			func(w *world) { w.put("moved", file(0o644, "mine\n")) }, refusal.Exists, func(s tree) { s["moved"] = file(0o644, "mine\n") }},
	}
	for _, c := range tests {
		for _, style := range styles {
			t.Run(c.name+"/"+style.String(), func(t *testing.T) {
				w := newWorld(t, b)
				ff := meddle(w, isSwapOf(c.at), func() { c.edit(w) })
				e, done := w.mustEnv(ff)
				defer done()
				r, err := runIn(e, "tx1", c.changes, commit.Options{Sync: style})
				if err != nil || r.Outcome != commit.RolledBack {
					t.Fatalf("%v %v %v", r.Outcome, r.Items, err)
				}
				if r.Items[0].Code != c.code {
					t.Fatalf("items %v", r.Items)
				}
				same(t, "the stranger's bytes and everything else", state(t, w.fs), with(b, c.after))
				if l := leftovers(t, w.fs); len(l) > 0 {
					t.Fatalf("left over: %v", l)
				}
			})
		}
	}
}

// TestForeignEditThenDeath: the process dies after the exchange that displaced a
// stranger's edit and before it has looked at it. Recovery puts the edit back.
func TestForeignEditThenDeath(t *testing.T) {
	w := newWorld(t, base)
	edited := false
	ff := faultfs.New(w.fs, func(e faultfs.Event) faultfs.Fault {
		if e.Op == faultfs.Exchange {
			edited = true
			w.put("a", file(0o644, "a mine\n"))
			return faultfs.Fault{Death: faultfs.DiesAfter}
		}
		return faultfs.Fault{}
	})
	e, done := w.mustEnv(ff)
	runIn(e, "tx1", []commit.Change{modify(t, "a", base["a"], file(0o644, "a new\n"))}, commit.Options{})
	done()
	w.fs.Kill()
	e, done = w.mustEnv(w.fs)
	defer done()
	out, err := commit.Recover(context.Background(), e, commit.RecoverOptions{})
	if err != nil || len(out) != 1 || out[0].Outcome != commit.RolledBack || !edited {
		t.Fatalf("%+v %v", out, err)
	}
	same(t, "after recovery", state(t, w.fs), with(base, func(s tree) { s["a"] = file(0o644, "a mine\n") }))
}

// dieAfterSwaps runs the mixed plan until all swaps are done and the commit
// record is not.
func dieAfterSwaps(t testing.TB, w *world, cs []commit.Change) {
	t.Helper()
	swapped := false
	ff := faultfs.New(w.fs, func(e faultfs.Event) faultfs.Fault {
		if e.Op == faultfs.Exchange || e.Op == faultfs.NoReplace {
			swapped = true
		}
		if swapped && e.Op == faultfs.SyncFS {
			return faultfs.Fault{Death: faultfs.DiesAfter}
		}
		return faultfs.Fault{}
	})
	e, done := w.mustEnv(ff)
	runIn(e, "tx1", cs, commit.Options{Tag: "p", Sync: commit.SyncFS})
	done()
	if !ff.Dead() {
		t.Fatal("it lives")
	}
	w.fs.Kill()
}

// TestAttention: after a crash somebody works on in the half-done tree. Their
// paths wait for a person; the others are rolled back.
func TestAttention(t *testing.T) {
	b := base
	plan := func() []commit.Change {
		cs := []commit.Change{modify(t, "a", b["a"], file(0o644, "a new\n")), modify(t, "f", b["f"], file(0o755, "f new\n")),
			create(t, "n/b", "b\n", false), remove(t, "c", b["c"])}
		return append(cs, rename(t, "d", "e/d", b["d"])...)
	}
	edits := map[string]string{"a": file(0o644, "a mine\n"), "n/b": file(0o644, "b mine\n"), "c": file(0o644, "c again\n"), "e/d": file(0o644, "d mine\n")}
	for _, keep := range []commit.Keep{commit.KeepMine, commit.KeepTheirs} {
		w := newWorld(t, b)
		dieAfterSwaps(t, w, plan())
		for p, v := range edits {
			w.put(p, v)
		}
		e, done := w.mustEnv(w.fs)
		out, err := commit.Recover(context.Background(), e, commit.RecoverOptions{})
		if err != nil || len(out) != 1 || out[0].Outcome != commit.NeedsAttention || strings.Join(out[0].Paths, " ") != "a c e/d n/b" || out[0].Tag != "p" {
			t.Fatalf("%+v %v", out, err)
		}
		half := with(b, func(s tree) {
			for p, v := range edits {
				s[p] = v
			}
			s["n"], s["e"] = "d:0755", "d:0755"
			delete(s, "d")
		})
		same(t, "others are rolled back", state(t, w.fs), half)
		if again, err := commit.Recover(context.Background(), e, commit.RecoverOptions{}); err != nil || len(again) != 0 {
			t.Fatalf("second recover: %+v %v", again, err)
		}
		same(t, "second recover", state(t, w.fs), half)
		list, err := commit.Attention(context.Background(), e)
		if err != nil || len(list) != 4 || list[0].Path != "a" || !list[0].Kept || list[0].Now != "file" || list[3].Before != nil {
			t.Fatalf("%+v %v", list, err)
		}
		r, err := commit.ShowPreImage(context.Background(), e, "a")
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := io.ReadAll(r); string(got) != "a old\n" {
			t.Fatalf("pre-image %q", got)
		}
		r.Close()
		// A transaction may run while paths wait for a person.
		if r, err := runIn(e, "tx2", []commit.Change{create(t, "other", "o\n", false)}, commit.Options{}); err != nil || r.Outcome != commit.Committed {
			t.Fatal(r, err)
		}
		if _, err := commit.ShowPreImage(context.Background(), e, "f"); !errors.Is(err, commit.ErrNoAttention) {
			t.Fatal(err)
		}
		saved := map[string]string{}
		for i, p := range []string{"a", "n/b", "c", "e/d"} {
			err := commit.Resolve(context.Background(), e, p, keep, func(i commit.PreImage, r io.Reader) error {
				text, err := io.ReadAll(r)
				saved[p] = string(text)
				if i.Digest != snapshot.DigestOf(text) || i.Size != int64(len(text)) {
					t.Errorf("%s: handed out as %s, %d bytes", p, i.Digest, i.Size)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			if list, err := commit.Attention(context.Background(), e); err != nil || len(list) != 3-i {
				t.Fatal(list, err)
			}
		}
		want := with(half, func(s tree) { s["other"] = file(0o644, "o\n") })
		if keep == commit.KeepTheirs {
			if saved["a"] != "a mine\n" || saved["n/b"] != "b mine\n" || saved["c"] != "c again\n" || saved["e/d"] != "d mine\n" {
				t.Fatalf("saved %v", saved)
			}
			want = with(b, func(s tree) {
				s["other"] = file(0o644, "o\n")
				s["d"] = file(0o644, "d mine\n") // the old bytes of a file moved and then edited are not kept
			})
		}
		same(t, "resolved", state(t, w.fs), want)
		if l := leftovers(t, w.fs); len(l) > 0 {
			t.Fatalf("left over: %v", l)
		}
		done()
	}
}

// TestSaveFails: nothing moves when the bytes on disk could not be saved.
func TestSaveFails(t *testing.T) {
	w := newWorld(t, base)
	dieAfterSwaps(t, w, []commit.Change{modify(t, "a", base["a"], file(0o644, "a new\n"))})
	w.put("a", file(0o644, "a mine\n"))
	e, done := w.mustEnv(w.fs)
	defer done()
	if _, err := commit.Recover(context.Background(), e, commit.RecoverOptions{}); err != nil {
		t.Fatal(err)
	}
	err := commit.Resolve(context.Background(), e, "a", commit.KeepTheirs, func(commit.PreImage, io.Reader) error { return unix.ENOSPC })
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	err = commit.Resolve(context.Background(), e, "a", commit.KeepTheirs, func(commit.PreImage, io.Reader) error { return nil })
	if err == nil {
		t.Fatal("bytes that nobody read count as saved")
	}
	same(t, "untouched", state(t, w.fs), with(base, func(s tree) { s["a"] = file(0o644, "a mine\n") }))
}

// TestUnrecovered: no transaction runs over an open one.
func TestUnrecovered(t *testing.T) {
	w := newWorld(t, base)
	cs := []commit.Change{modify(t, "a", base["a"], file(0o644, "a new\n"))}
	dieAfterSwaps(t, w, cs)
	e, done := w.mustEnv(w.fs)
	defer done()
	if _, err := runIn(e, "tx2", cs, commit.Options{}); !errors.Is(err, commit.ErrUnrecovered) {
		t.Fatal(err)
	}
	if out, err := commit.Recover(context.Background(), e, commit.RecoverOptions{}); err != nil || len(out) != 1 {
		t.Fatal(out, err)
	}
	same(t, "recovered", state(t, w.fs), base)
}

// TestCancel: honoured before the commit record, ignored after it.
func TestCancel(t *testing.T) {
	cs := func() []commit.Change { return []commit.Change{modify(t, "a", base["a"], file(0o644, "a new\n"))} }
	for _, at := range []string{"plan", "stage", "sync data", "check again", "swap", "sync names", "seal", "commit", "tidy", "store outcome"} {
		w := newWorld(t, base)
		e, done := w.mustEnv(w.fs)
		ctx, cancel := context.WithCancel(context.Background())
		r, err := commit.Run(ctx, e, "tx1", cs(), commit.Options{Step: func(s string) {
			if s == at {
				cancel()
			}
		}})
		cancel()
		done()
		late := at == "commit" || at == "tidy" || at == "store outcome"
		if late != (r.Outcome == commit.Committed) || late != (err == nil) {
			t.Fatalf("cancelled at %q: %v %v", at, r.Outcome, err)
		}
		if !late {
			same(t, at, state(t, w.fs), base)
		}
		if l := leftovers(t, w.fs); len(l) > 0 {
			t.Fatalf("cancelled at %q, left over: %v", at, l)
		}
	}
}

// TestStoreFails: a failing AfterCommit keeps the journal, and recovery hands
// the evidence over again.
func TestStoreFails(t *testing.T) {
	w := newWorld(t, base)
	e, done := w.mustEnv(w.fs)
	defer done()
	o := commit.Options{
		Seal:        func(context.Context, commit.Facts) ([]byte, error) { return []byte("receipt"), nil },
		AfterCommit: func(context.Context, []byte, commit.Facts) error { return unix.ENOSPC },
	}
	r, err := runIn(e, "tx1", []commit.Change{modify(t, "a", base["a"], file(0o644, "a new\n"))}, o)
	if r.Outcome != commit.Committed || !errors.Is(err, unix.ENOSPC) {
		t.Fatal(r.Outcome, err)
	}
	for _, fail := range []bool{true, false} {
		got := ""
		out, err := commit.Recover(context.Background(), e, commit.RecoverOptions{Completed: func(_ context.Context, r commit.Recovered) error {
			got = string(r.Evidence)
			if fail {
				return unix.EIO
			}
			return nil
		}})
		if got != "receipt" || fail != (err != nil) || fail == (len(out) == 1) {
			t.Fatal(got, out, err)
		}
	}
	same(t, "committed", state(t, w.fs), with(base, func(s tree) { s["a"] = file(0o644, "a new\n") }))
	if l := leftovers(t, w.fs); len(l) > 0 {
		t.Fatalf("left over: %v", l)
	}
}

// TestProtected: no plan and no journal leads into a protected directory.
func TestProtected(t *testing.T) {
	w := newWorld(t, base)
	e, done := w.mustEnv(w.fs)
	defer done()
	for _, p := range []string{".git/hooks", ".git/x/y"} {
		r, err := runIn(e, "tx1", []commit.Change{create(t, p, "#!\n", true)}, commit.Options{})
		if err == nil || r.Outcome != commit.Refused {
			t.Fatalf("%s: %v %v", p, r.Outcome, err)
		}
	}
	same(t, "untouched", state(t, w.fs), base)
}

// TestStaleAtStaging: what stat tells already is refused before the first write.
func TestStaleAtStaging(t *testing.T) {
	w := newWorld(t, base)
	e, done := w.mustEnv(w.fs)
	defer done()
	cs := []commit.Change{modify(t, "a", file(0o644, "longer than it is\n"), file(0o644, "x\n")), modify(t, "c", file(0o600, "c old\n"), file(0o600, "x\n")),
		create(t, "dir/x", "x\n", false)}
	before, _ := e.Root.Lstat("a")
	r, err := runIn(e, "tx1", cs, commit.Options{})
	if err != nil || r.Outcome != commit.Refused || len(r.Items) == 0 {
		t.Fatal(r.Outcome, r.Items, err)
	}
	code(t, r, refusal.Exists, "dir/x")
	r, err = runIn(e, "tx1", cs[:2], commit.Options{})
	if err != nil || r.Outcome != commit.Refused || len(r.Items) != 2 {
		t.Fatal(r.Outcome, r.Items, err)
	}
	code(t, r, refusal.ChangedUnderneath, "a")
	if after, _ := e.Root.Lstat("a"); after != before {
		t.Fatal("inode or times moved")
	}
	same(t, "untouched", state(t, w.fs), base)
	if l := leftovers(t, w.fs); len(l) > 0 {
		t.Fatalf("left over: %v", l)
	}
}

// TestLateWrite: an editor that has the old file open writes after the file was
// compared. The transaction stands, and the late bytes are kept.
func TestLateWrite(t *testing.T) {
	w := newWorld(t, base)
	top := w.root(w.fs, repo)
	w.ok(top.Unlink("a"))
	editor, err := top.Create("a", 0o644)
	w.ok(err)
	_, err = editor.Write([]byte("a old\n"))
	w.ok(errors.Join(err, top.Close()))
	e, done := w.mustEnv(w.fs)
	defer done()
	r, err := runIn(e, "tx1", []commit.Change{modify(t, "a", base["a"], file(0o644, "a new\n")), remove(t, "c", base["c"])},
		commit.Options{Step: func(s string) {
			if s == "seal" {
				_, err := editor.Write([]byte("late\n"))
				w.ok(errors.Join(err, editor.Close()))
			}
		}})
	if err != nil || r.Outcome != commit.Committed || len(r.Paths) != 1 || r.Paths[0].Path != "a" || !r.Paths[0].Kept {
		t.Fatal(r, err)
	}
	after := with(base, func(s tree) { s["a"] = file(0o644, "a new\n"); delete(s, "c") })
	same(t, "committed", state(t, w.fs), after)
	if out, err := commit.Recover(context.Background(), e, commit.RecoverOptions{}); err != nil || len(out) != 0 {
		t.Fatal(out, err)
	}
	p, err := commit.ShowPreImage(context.Background(), e, "a")
	w.ok(err)
	if b, _ := io.ReadAll(p); string(b) != "a old\nlate\n" {
		t.Fatalf("kept %q", b)
	}
	p.Close()
	late := ""
	w.ok(commit.Resolve(context.Background(), e, "a", commit.KeepMine, func(_ commit.PreImage, r io.Reader) error {
		b, err := io.ReadAll(r)
		late = string(b)
		return err
	}))
	if late != "a old\nlate\n" {
		t.Fatalf("gave way unsaved: %q", late)
	}
	same(t, "kept mine", state(t, w.fs), after)
	if l := leftovers(t, w.fs); len(l) > 0 {
		t.Fatalf("left over: %v", l)
	}
}

// TestForeignEditAmongMany: where displaced files are looked at beside the next
// swaps, a stranger's edit is found all the same, whichever file it is in, and
// everything is put back.
func TestForeignEditAmongMany(t *testing.T) {
	const n = 40
	before := tree{}
	var changes []commit.Change
	for i := range n {
		p := fmt.Sprintf("f%02d", i)
		before[p] = file(0o644, p+" old\n")
		if i%9 == 8 {
			changes = append(changes, remove(t, p, before[p]))
			continue
		}
		changes = append(changes, modify(t, p, before[p], file(0o644, p+" new\n")))
	}
	for _, edits := range [][]int{{0}, {8}, {20}, {37}, {n - 1}, {3, 4, 30}} {
		for _, style := range styles {
			t.Run(fmt.Sprintf("%v/%v", edits, style), func(t *testing.T) {
				w := newWorld(t, before)
				mine := func(s tree) {
					for _, i := range edits {
						p := fmt.Sprintf("f%02d", i)
						s[p] = file(0o644, p+" mine\n")
					}
				}
				var once sync.Once
				ff := faultfs.New(w.fs, func(e faultfs.Event) faultfs.Fault {
					if e.Op == faultfs.Exchange || e.Op == faultfs.NoReplace {
						once.Do(func() {
							for p, f := range with(tree{}, mine) {
								w.put(p, f)
							}
						})
					}
					return faultfs.Fault{}
				})
				e, done := w.mustEnv(ff)
				defer done()
				r, err := runIn(e, "tx1", changes, commit.Options{Sync: style})
				if err != nil || r.Outcome != commit.RolledBack {
					t.Fatalf("%v %v %v", r.Outcome, r.Items, err)
				}
				code(t, r, refusal.ChangedUnderneath, fmt.Sprintf("f%02d", first(edits)))
				same(t, "the stranger's bytes and everything else", state(t, w.fs), with(before, mine))
				if l := leftovers(t, w.fs); len(l) > 0 {
					t.Fatalf("left over: %v", l)
				}
			})
		}
	}
}

// first is the edit in the step that comes first: exchanges come before removals.
func first(edits []int) int {
	for _, i := range edits {
		if i%9 != 8 {
			return i
		}
	}
	return edits[0]
}

// TestComparingFailsAmongMany: a displaced file that cannot be read ends the
// transaction, and everything is put back.
func TestComparingFailsAmongMany(t *testing.T) {
	const n = 200 // nearly none of which is kept open from staging
	before := tree{}
	var changes []commit.Change
	for i := range n {
		p := fmt.Sprintf("f%03d", i)
		before[p] = file(0o644, p+" old\n")
		changes = append(changes, modify(t, p, before[p], file(0o644, p+" new\n")))
	}
	w := newWorld(t, before)
	var swaps atomic.Int64
	var failed atomic.Bool
	ff := faultfs.New(w.fs, func(e faultfs.Event) faultfs.Fault {
		if e.Op == faultfs.Exchange {
			swaps.Add(1)
		}
		if e.Op == faultfs.Open && swaps.Load() > 150 && !failed.Swap(true) {
			return faultfs.Fault{Err: unix.EIO}
		}
		return faultfs.Fault{}
	})
	e, done := w.mustEnv(ff)
	defer done()
	r, err := runIn(e, "tx1", changes, commit.Options{})
	if !errors.Is(err, unix.EIO) || r.Outcome != commit.RolledBack {
		t.Fatalf("%v %v %v", r.Outcome, r.Items, err)
	}
	same(t, "everything", state(t, w.fs), before)
	if l := leftovers(t, w.fs); len(l) > 0 {
		t.Fatalf("left over: %v", l)
	}
}
