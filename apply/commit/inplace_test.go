package commit_test

import (
	"errors"
	"testing"

	"github.com/aspengine/asp/apply/commit"
	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/internal/vfs/faultfs"
)

// held makes a file of so many zeros at p, for somebody who writes to it later
// without giving it another inode.
func (w *world) held(p string, size int64) vfs.File {
	w.t.Helper()
	d := w.root(w.fs, repo)
	defer d.Close()
	w.ok(d.Unlink(p))
	f, err := d.Create(p, 0o600)
	w.ok(err)
	// Zeros, so that the handle stands where the file begins.
	w.ok(errors.Join(f.Truncate(size), f.Chmod(0o644)))
	return f
}

// TestEditInPlace: what is changed right before its rename is the same inode
// afterwards, so that nothing but the one thing that changed tells.
func TestEditInPlace(t *testing.T) {
	const text = "\x00\x00\x00\x00\x00\x00"
	for _, c := range []struct {
		name string
		edit func(w *world, f vfs.File) error
		want string
	}{
		{"bytes of the same size", func(_ *world, f vfs.File) error {
			_, err := f.Write([]byte("a OLD\n"))
			return err
		}, file(0o644, "a OLD\n")},
		{"mode", func(_ *world, f vfs.File) error { return f.Chmod(0o755) }, file(0o755, text)},
		{"owner", func(_ *world, f vfs.File) error { return f.Chown(7, 7) }, file(0o644, text)},
		{"the same bytes in another file", func(w *world, _ vfs.File) error { w.put("a", file(0o644, text)); return nil }, file(0o644, text)},
	} {
		for _, style := range styles {
			t.Run(c.name+"/"+style.String(), func(t *testing.T) {
				before := with(base, func(s tree) { s["a"] = file(0o644, text) })
				w := newWorld(t, before)
				f := w.held("a", int64(len(text)))
				defer f.Close()
				ff := meddle(w, isSwapOf("a"), func() { w.ok(c.edit(w, f)) })
				e, done := w.mustEnv(ff)
				defer done()
				r, err := runIn(e, "tx1", []commit.Change{modify(t, "c", base["c"], file(0o644, "C\n")), modify(t, "a", before["a"], file(0o644, "new\n"))}, commit.Options{Sync: style})
				if err != nil || r.Outcome != commit.RolledBack {
					t.Fatalf("%v %v %v", r.Outcome, r.Items, err)
				}
				code(t, r, refusal.ChangedUnderneath, "a")
				same(t, "everything as the stranger left it", state(t, w.fs), with(before, func(s tree) { s["a"] = c.want }))
			})
		}
	}
}

// TestStrayInDisplacedDirectory: a file takes the place of a directory into which
// somebody puts one of his own right before.
func TestStrayInDisplacedDirectory(t *testing.T) {
	s := scenarioNamed(t, "directory becomes file")
	w := newWorld(t, s.before)
	ff := meddle(w, func(e faultfs.Event) bool { return e.Op == faultfs.Exchange && (e.Path == "dir" || e.To == "dir") }, func() { w.put("dir/mine", file(0o644, "mine\n")) })
	e, done := w.mustEnv(ff)
	defer done()
	r, err := runIn(e, "tx1", s.changes(t), commit.Options{})
	if err != nil || r.Outcome != commit.RolledBack {
		t.Fatalf("%v %v %v", r.Outcome, r.Items, err)
	}
	code(t, r, refusal.NotEmpty, "dir")
	same(t, "everything as the stranger left it", state(t, w.fs), with(s.before, func(x tree) { x["dir/mine"] = file(0o644, "mine\n") }))
}

// TestEditDuringUndo: somebody writes between the look of undo and its rename.
// What he wrote is live afterwards.
func TestEditDuringUndo(t *testing.T) {
	for _, c := range []struct {
		name    string
		changes []commit.Change
		path    string
	}{
		{"exchange", []commit.Change{modify(t, "a", base["a"], file(0o644, "a new\n"))}, "a"},
		{"put", []commit.Change{create(t, "b", "b\n", false)}, "b"},
		{"take", []commit.Change{remove(t, "c", base["c"])}, "c"},
		{"move", rename(t, "d", "moved", base["d"]), "d"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, base)
			swaps, failed := 0, false
			ff := faultfs.New(w.fs, func(e faultfs.Event) faultfs.Fault {
				if e.Op == faultfs.NoReplace && e.Path == "lone/z" && !failed {
					failed = true
					w.put("lone/z", file(0o640, "z mine\n")) // makes the last step fail
				}
				// Whichever way of renaming it is: one that overwrites must be met, too.
				renames := e.Op == faultfs.Exchange || e.Op == faultfs.NoReplace || e.Op == faultfs.Replace
				if renames && (e.Path == c.path || e.To == c.path) {
					if swaps++; swaps == 2 {
						w.put(c.path, file(0o644, "mine\n"))
					}
				}
				return faultfs.Fault{}
			})
			e, done := w.mustEnv(ff)
			defer done()
			r, _ := runIn(e, "tx1", append(c.changes, remove(t, "lone/z", base["lone/z"])), commit.Options{})
			if swaps < 2 {
				t.Fatalf("there was no undo of %s: %v %v", c.path, r.Outcome, r.Items)
			}
			if got := state(t, w.fs)[c.path]; got != file(0o644, "mine\n") {
				t.Errorf("%s holds %q after %v: what somebody wrote is gone", c.path, got, r.Outcome)
			}
		})
	}
}

// TestWrongContent: an after-image that does not give the bytes of its digest is
// never published.
func TestWrongContent(t *testing.T) {
	for _, c := range []commit.Change{modify(t, "a", base["a"], file(0o644, "a new\n")), create(t, "b", "b\n", false), {Path: path(t, "l"), After: image("l:a")}} {
		w := newWorld(t, base)
		c.After.Open = opener("x")
		e, done := w.mustEnv(w.fs)
		r, err := runIn(e, "tx1", []commit.Change{c}, commit.Options{})
		done()
		if !errors.Is(err, commit.ErrContent) || r.Outcome != commit.Refused {
			t.Errorf("%s: %v %v", c.Path, r.Outcome, err)
		}
		same(t, "nothing happened", state(t, w.fs), base)
	}
}
