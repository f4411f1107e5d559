package exchange_test

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/aspengine/asp/apply/commit"
	"github.com/aspengine/asp/apply/exchange"
	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/internal/vfs/faultfs"
)

// mine marks the bytes of a stranger.
const mine = "a stranger's own bytes\n"

// stranger is a program that had the workspace open before the transaction
// began: the directory at its root, and some files for writing.
type stranger struct {
	t     testing.TB
	d     vfs.Dir
	files map[string]vfs.File
	told  bool // that it could not write
}

// put saves a file as an editor does. In a directory that is removed by now the
// editor is told so.
func (s *stranger) put(path string, perm uint32) {
	s.t.Helper()
	dir, name := split(path)
	sub, err := s.d.OpenDir(dir)
	if err == nil {
		defer sub.Close()
		_ = sub.Unlink(name)
		var f vfs.File
		if f, err = sub.Create(name, 0o600); err == nil {
			_, werr := f.Write([]byte(mine))
			err = errors.Join(werr, f.Chmod(perm), f.Close())
		}
	}
	s.refused(err)
}

func (s *stranger) mkdir(name string) { s.refused(s.d.Mkdir(name, 0o755)) }

func (s *stranger) refused(err error) {
	s.t.Helper()
	if errors.Is(err, fs.ErrNotExist) {
		s.told = true
	} else if err != nil {
		s.t.Fatal(err)
	}
}

// inPlace writes through the inode that path had, as an editor that does not
// rename does.
func (s *stranger) inPlace(path string) {
	s.t.Helper()
	st, err := s.files[path].Stat()
	s.told = st.Nlink == 0 // a file without a name is nobody's to find
	if err == nil {
		err = s.files[path].Truncate(0)
	}
	if err == nil {
		_, err = s.files[path].Write([]byte(mine))
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// strangers are the things that one does.
var strangers = map[string]func(s *stranger){
	"replaces a file of the plan":  func(s *stranger) { s.put("f", 0o755) },
	"replaces another file":        func(s *stranger) { s.put("a", 0o644) },
	"writes in place":              func(s *stranger) { s.inPlace("f") },
	"writes in place elsewhere":    func(s *stranger) { s.inPlace("dir/x") },
	"writes to a deleted file":     func(s *stranger) { s.inPlace("c") },
	"writes to a moved file":       func(s *stranger) { s.inPlace("d") },
	"makes a file":                 func(s *stranger) { s.put("dir/new", 0o644) },
	"makes a file of the plan":     func(s *stranger) { s.mkdir("n"); s.put("n/b", 0o644) },
	"makes a directory with files": func(s *stranger) { s.mkdir("mine"); s.put("mine/x", 0o600) },
}

// occupied is a world with a stranger in it.
func occupied(t testing.TB, s scenario) (*world, *stranger) {
	t.Helper()
	w := newWorld(t, s.before)
	g := &stranger{t, w.open(root), map[string]vfs.File{}, false}
	for _, p := range []string{"f", "dir/x", "c", "d"} {
		dir, name := split(p)
		sub, err := g.d.OpenDir(dir)
		w.ok(err)
		w.ok(sub.Unlink(name))
		_, text, _ := strings.Cut(strings.TrimPrefix(s.before[p], "f:"), ":")
		f, err := sub.Create(name, 0o600)
		w.ok(err)
		_, err = f.Write([]byte(text))
		w.ok(err)
		w.ok(f.Chmod(image(s.before[p]).Perm))
		g.files[p] = f
		sub.Close()
	}
	w.ok(g.d.SyncFS())
	return w, g
}

func holds(s tree, want string) bool {
	for _, v := range s {
		if strings.HasSuffix(v, want) {
			return true
		}
	}
	return false
}

// TestStrangers: at the beginning of each step and at each single operation a
// stranger does each of these through a directory that it had open. Its bytes
// are in the workspace or beside it afterwards, whatever became of the plan, and
// after a crash and recovery too.
func TestStrangers(t *testing.T) {
	s := scenarios()[0]
	for name, act := range strangers {
		t.Run(name, func(t *testing.T) {
			kept, refused := 0, 0
			for n := 1; ; n += raceStep(5) {
				w, g := occupied(t, s)
				acted := false
				ff := faultfs.New(w.fs, func(e faultfs.Event) faultfs.Fault {
					if e.N == n {
						acted = true
						act(g)
					}
					return faultfs.Fault{}
				})
				r, stored, err := attempt(t, ff, s, nil)
				if !acted {
					break
				}
				if err != nil {
					t.Fatalf("at %d: %v", n, err)
				}
				now, side := listing(t, w.fs, root), beside(t, w.fs)
				at := ff.Events()[n-1]
				// The window that remains: between the last look at a replaced file and
				// its removal, through a descriptor.
				window := strings.HasPrefix(name, "writes to a deleted") || name == "writes in place"
				window = window && strings.Contains(at.Path, "/out/")
				if !holds(now, mine) && !holds(side, mine) && !g.told && !window {
					t.Fatalf("at %d, %v, %v: the stranger's bytes are gone", n, at, r.Outcome)
				}
				switch r.Outcome {
				case commit.Committed:
					if stored != 1 {
						t.Fatalf("at %d: stored %d", n, stored)
					}
					if len(side) > 0 && len(r.Notes) == 0 {
						t.Fatalf("at %d: %v and no note", n, side)
					}
					if len(side) > 0 {
						kept++
					}
				default:
					refused++
					if len(r.Items) == 0 || stored > 0 {
						t.Fatalf("at %d: %v %v", n, r.Outcome, r.Items)
					}
					if len(side) > 0 {
						t.Fatalf("at %d: %v is left %v", n, side, r.Notes)
					}
				}
				out, err := exchange.Recover(context.Background(), env(w.fs), nil)
				if err != nil || len(out) > 0 {
					t.Fatalf("at %d: recovery after the end: %v %v", n, out, err)
				}
				if now2, side2 := listing(t, w.fs, root), beside(t, w.fs); !holds(now2, mine) && !holds(side2, mine) && (holds(now, mine) || holds(side, mine)) {
					t.Fatalf("at %d: recovery removed the stranger's bytes", n)
				}
			}
			t.Logf("kept beside: %d, refused or rolled back: %d", kept, refused)
		})
	}
}

// TestWrittenInPlaceBeforeTheExchange: a program that has a file open writes to it in
// the last moment before the exchange. Inode, size and names tell nothing: the bytes are
// compared, and the tree is exchanged back.
func TestWrittenInPlaceBeforeTheExchange(t *testing.T) {
	s := scenarios()[0]
	for _, name := range []string{"writes in place", "writes to a deleted file", "writes to a moved file"} {
		w, g := occupied(t, s)
		acted := false
		ff := faultfs.New(w.fs, func(e faultfs.Event) faultfs.Fault {
			if e.Op == faultfs.Exchange && !acted {
				acted = true
				strangers[name](g)
			}
			return faultfs.Fault{}
		})
		r, stored, err := attempt(t, ff, s, nil)
		if err != nil || !acted || r.Outcome != commit.RolledBack || len(r.Items) == 0 || stored > 0 {
			t.Errorf("%s: %v %v, stored %d, %v", name, r.Outcome, r.Items, stored, err)
		}
		if !holds(listing(t, w.fs, root), mine) {
			t.Errorf("%s: the stranger's bytes are not in the workspace", name)
		}
	}
}

// TestStrangerThenDeath: a stranger works in the displaced tree and the process
// dies before it has looked. Recovery keeps the bytes beside, says so once, and
// leaves them alone from then on, until a person has taken them.
func TestStrangerThenDeath(t *testing.T) {
	s := scenarios()[0]
	w, g := occupied(t, s)
	ff := faultfs.New(w.fs, faultfs.When(func(e faultfs.Event) bool { return e.Op == faultfs.Exchange }, 1, faultfs.Fault{Death: faultfs.DiesAfter}))
	_, _, _ = attempt(t, ff, s, nil)
	g.put("dir/new", 0o644)
	g.inPlace("c") // deleted by the plan
	w.fs.Kill()
	stored := 0
	done := func(context.Context, commit.Recovered) error { stored++; return nil }
	out, err := exchange.Recover(context.Background(), env(w.fs), done)
	if err != nil || len(out) != 1 || out[0].Outcome != commit.Committed || len(out[0].Notes) != 1 || stored != 1 {
		t.Fatalf("%+v %v, stored %d", out, err, stored)
	}
	side := beside(t, w.fs)
	if side["tree/dir/new"] != file(0o644, mine) || !strings.HasSuffix(side["tree/c"], mine) || side["kept"] == "" || !strings.Contains(out[0].Notes[0], "dir/new") {
		t.Fatalf("%v %v", side, out[0].Notes)
	}
	if _, ok := side["tree/f"]; ok {
		t.Error("a pre-image that nobody wrote to is left")
	}
	for range 2 {
		if out, err := exchange.Recover(context.Background(), env(w.fs), done); err != nil || len(out) != 0 {
			t.Fatalf("%v %v", out, err)
		}
		same(t, "untouched", beside(t, w.fs), side)
	}
	// The next transaction is not held up by it.
	same(t, "new", listing(t, w.fs, root), s.after)
	r, err := exchange.Run(context.Background(), env(w.fs), "tx2", []commit.Change{create(t, "more", "m\n", false)}, exchange.Options{})
	if err != nil || r.Outcome != commit.Committed {
		t.Fatal(r, err)
	}
	same(t, "untouched", beside(t, w.fs), side)
	// A person takes the files; the rest goes by itself.
	area := ""
	for p, v := range side {
		if v == "d" {
			area = p
		}
	}
	a := w.open(top + "/" + area)
	tr, err := a.OpenDir("tree/dir")
	w.ok(err)
	w.ok(tr.Unlink("new"))
	tr, err = a.OpenDir("tree")
	w.ok(err)
	w.ok(tr.Rmdir("dir"))
	w.ok(tr.Unlink("c"))
	if _, err := exchange.Recover(context.Background(), env(w.fs), done); err != nil || len(beside(t, w.fs)) > 0 {
		t.Fatal(err, beside(t, w.fs))
	}
}

// TestStrangerInTheNewTree: between an exchange and its way back somebody has
// looked up a path and written to the new tree.
func TestStrangerInTheNewTree(t *testing.T) {
	s := scenarios()[0]
	w := newWorld(t, s.before)
	syncs := 0
	ff := faultfs.New(w.fs, func(e faultfs.Event) faultfs.Fault {
		if e.Op == faultfs.SyncFS {
			if syncs++; syncs == 2 {
				d := w.open(root)
				defer d.Close()
				put(t, d, "dir/new", file(0o644, mine))
				put(t, d, "f", file(0o755, mine))
				return faultfs.Fault{Err: unix.EIO}
			}
		}
		return faultfs.Fault{}
	})
	r, _, err := attempt(t, ff, s, nil)
	if r.Outcome != commit.RolledBack || !errors.Is(err, unix.EIO) || len(r.Notes) != 1 {
		t.Fatalf("%+v %v", r, err)
	}
	same(t, "old", listing(t, w.fs, root), s.before)
	side := beside(t, w.fs)
	if side["tree/dir/new"] != file(0o644, mine) || side["tree/f"] != file(0o755, mine) {
		t.Fatal(side)
	}
	if _, ok := side["tree/n/b"]; ok {
		t.Error("a file of ours that nobody wrote to is left")
	}
}

// TestModesMovedMeanwhile: what was copied of a directory or a file, and then
// changed in the live tree, is not lost.
func TestModesMovedMeanwhile(t *testing.T) {
	s := scenarios()[0]
	for _, at := range []string{"compare the tree", "exchange", "compare what was displaced"} {
		for _, p := range []string{"dir", "dir/sub", "f"} {
			w := newWorld(t, s.before)
			d := w.open(root)
			r, _, err := attempt(t, w.fs, s, func(_ *exchange.Env, o *exchange.Options) {
				o.Step = func(name string) {
					if name != at {
						return
					}
					if p == "f" {
						put(t, d, p, file(0o711, "f old\n"))
						return
					}
					sub, err := d.OpenDir(p)
					w.ok(err)
					w.ok(sub.Chmod(0o711))
					sub.Close()
				}
			})
			d.Close()
			if err != nil || r.Outcome != commit.Refused && r.Outcome != commit.RolledBack || r.Items[0].Code != refusal.ChangedUnderneath || r.Items[0].Path != p {
				t.Fatalf("%s at %q: %v %v %v", p, at, r.Outcome, r.Items, err)
			}
			if got := listing(t, w.fs, root)[p]; !strings.Contains(got, "0711") {
				t.Errorf("%s at %q: %s", p, at, got)
			}
		}
	}
}

// TestRootReplaced: another directory in the place of the root is neither
// published over nor taken away.
func TestRootReplaced(t *testing.T) {
	s := scenarios()[0]
	swap := func(w *world) {
		d := w.open(top)
		defer d.Close()
		w.ok(d.Rename("ws", d, "neighbour", vfs.Exchange))
	}
	w := newWorld(t, s.before)
	r, stored, err := attempt(t, w.fs, s, func(_ *exchange.Env, o *exchange.Options) {
		o.Step = func(name string) {
			if name == "exchange" {
				swap(w)
			}
		}
	})
	if r.Outcome != commit.RolledBack || stored > 0 {
		t.Fatal(r.Outcome, err)
	}
	same(t, "where it was moved", listing(t, w.fs, top+"/neighbour"), s.before)
	same(t, "the other one", listing(t, w.fs, root), tree{})
	// Replaced after a crash: nothing is decided, both trees stay.
	w = newWorld(t, s.before)
	ff := faultfs.New(w.fs, faultfs.When(func(e faultfs.Event) bool { return e.Op == faultfs.Exchange }, 1, faultfs.Fault{Death: faultfs.DiesAfter}))
	_, _, _ = attempt(t, ff, s, nil)
	w.fs.Kill()
	swap(w)
	out, err := exchange.Recover(context.Background(), env(w.fs), func(context.Context, commit.Recovered) error {
		t.Error("a receipt for a tree that is not there")
		return nil
	})
	if err != nil || len(out) != 1 || out[0].Outcome != commit.NeedsAttention || len(out[0].Notes) != 1 {
		t.Fatal(out, err)
	}
	same(t, "new tree", listing(t, w.fs, top+"/neighbour"), s.after)
	if out, err := exchange.Recover(context.Background(), env(w.fs), nil); err != nil || len(out) > 0 {
		t.Fatal(out, err)
	}
}
