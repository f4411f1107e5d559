package commit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/aspengine/asp/apply/commit"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/internal/vfs/faultfs"
)

// everywhere is every content below the workspace, our areas included, with a place
// where it is.
func everywhere(t *testing.T, f vfs.FS) map[string]string {
	t.Helper()
	out := map[string]string{}
	var rec func(d vfs.Dir, at string)
	rec = func(d vfs.Dir, at string) {
		names, err := d.List()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range names {
			st, err := d.Lstat(e.Name)
			if err != nil {
				t.Fatal(err)
			}
			switch st.Kind {
			case vfs.KindDir:
				sub, err := d.OpenDir(e.Name)
				if err != nil {
					t.Fatal(err)
				}
				rec(sub, at+e.Name+"/")
				sub.Close()
			case vfs.KindFile:
				if at == ".git/asp/tx1/" && !strings.Contains(e.Name, "-") {
					continue // the journal and the mark, which are nobody's content
				}
				f, err := d.Open(e.Name)
				if err != nil {
					t.Fatal(err)
				}
				b, err := io.ReadAll(f)
				f.Close()
				if err != nil {
					t.Fatal(err)
				}
				out[string(b)] = at + e.Name
			}
		}
	}
	d, err := f.OpenRoot(repo)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	rec(d, "")
	return out
}

// TestResolveLosesNothing: whatever somebody did to a half-done tree, and whichever side
// is kept, each content that was there before a person decided is at a name of theirs
// afterwards, or was saved. Only what the plan brought may go.
func TestResolveLosesNothing(t *testing.T) {
	b := with(base, func(s tree) { s["m"] = "d:0755"; s["m/1"], s["m/2"] = file(0o644, "m1\n"), file(0o644, "m2\n") })
	plan := func() []commit.Change {
		cs := []commit.Change{modify(t, "a", b["a"], file(0o644, "a new\n")), create(t, "n/b", "b\n", false), remove(t, "c", b["c"])}
		cs = append(cs, rename(t, "m/1", "k/1", b["m/1"])...)
		return append(cs, rename(t, "m/2", "k/2", b["m/2"])...)
	}
	ofPlan := map[string]bool{"a new\n": true, "b\n": true}
	edits := []struct{ path, text string }{{"a", "a mine\n"}, {"n/b", "b mine\n"}, {"c", "c again\n"}, {"k/1", "m1 mine\n"}, {"m/2", "m2 again\n"}}
	for _, keep := range []commit.Keep{commit.KeepMine, commit.KeepTheirs} {
		for _, lost := range []bool{false, true} { // the rename of the new directory k never reached the disk
			for mask := range 1 << len(edits) {
				w := newWorld(t, b)
				place := "" // of k in the area
				swapped := false
				ff := faultfs.New(w.fs, func(e faultfs.Event) faultfs.Fault {
					swapped = swapped || e.Op == faultfs.Exchange || e.Op == faultfs.NoReplace
					if e.Op == faultfs.NoReplace && e.To == "k" {
						place = e.Path
					}
					if swapped && e.Op == faultfs.SyncFS {
						return faultfs.Fault{Death: faultfs.DiesAfter}
					}
					return faultfs.Fault{}
				})
				e, done := w.mustEnv(ff)
				runIn(e, "tx1", plan(), commit.Options{Sync: commit.SyncFS})
				done()
				w.fs.Kill()
				if !ff.Dead() || place == "" {
					t.Fatal("it was not killed in the swap", place)
				}
				if lost {
					top, area := w.root(w.fs, repo), w.root(w.fs, txDir+"/tx1")
					w.ok(top.Rename("k", area, place[strings.LastIndexByte(place, '/')+1:], vfs.NoReplace))
					w.put("k", "d:0755") // and somebody makes one
					top.Close()
					area.Close()
				}
				for i, x := range edits {
					if mask&(1<<i) != 0 {
						w.put(x.path, file(0o644, x.text))
					}
				}
				e, done = w.mustEnv(w.fs)
				had := everywhere(t, w.fs)
				if _, err := commit.Recover(context.Background(), e, commit.RecoverOptions{}); err != nil {
					t.Fatal(err)
				}
				saved := map[string]bool{}
				list, err := commit.Attention(context.Background(), e)
				w.ok(err)
				var said []string
				for _, p := range list {
					said = append(said, p.Path)
					w.ok(commit.Resolve(context.Background(), e, p.Path, keep, func(_ commit.PreImage, r io.Reader) error {
						text, err := io.ReadAll(r)
						saved[string(text)] = true
						return err
					}))
				}
				now := everywhere(t, w.fs)
				for text, at := range had {
					if place, is := now[text]; !saved[text] && !ofPlan[text] && (!is || strings.HasPrefix(place, ".git/asp")) {
						t.Errorf("keep %d, lost %v, edits %05b, decided %v: %q of %s is now at %q", keep, lost, mask, said, text, at, place)
					}
				}
				if l := leftovers(t, w.fs); len(l) > 0 {
					t.Errorf("keep %d, lost %v, edits %05b: left over %v", keep, lost, mask, l)
				}
				if lost && mask == 1<<4 && len(list) == 0 {
					t.Error(fmt.Sprint("nothing waits for a person, so nothing was tried: ", state(t, w.fs)))
				}
				done()
				if t.Failed() {
					return
				}
			}
		}
	}
}

// TestResolveDies: whoever decides and is killed at any operation finds, after the next
// recovery, either the paths that still wait, or nothing left; never an area that no
// command ends.
func TestResolveDies(t *testing.T) {
	b := with(base, func(s tree) { s["m"] = "d:0755"; s["m/1"] = file(0o644, "m1\n") })
	plan := func() []commit.Change {
		cs := []commit.Change{modify(t, "a", b["a"], file(0o644, "a new\n")), create(t, "n/b", "b\n", false)}
		return append(cs, rename(t, "m/1", "k/1", b["m/1"])...)
	}
	for _, keep := range []commit.Keep{commit.KeepMine, commit.KeepTheirs} {
		for at := 0; ; at++ {
			w := newWorld(t, b)
			swapped := false
			ff := faultfs.New(w.fs, func(e faultfs.Event) faultfs.Fault {
				swapped = swapped || e.Op == faultfs.Exchange
				if swapped && e.Op == faultfs.SyncFS {
					return faultfs.Fault{Death: faultfs.DiesAfter}
				}
				return faultfs.Fault{}
			})
			e, done := w.mustEnv(ff)
			runIn(e, "tx1", plan(), commit.Options{Sync: commit.SyncFS})
			done()
			w.fs.Kill()
			w.put("a", file(0o644, "a mine\n"))
			w.put("k/1", file(0o644, "m1 mine\n"))
			e, done = w.mustEnv(w.fs)
			_, err := commit.Recover(context.Background(), e, commit.RecoverOptions{})
			w.ok(err)
			done()
			decided := map[string]bool{}
			decide := func(e commit.Env) error {
				list, err := commit.Attention(context.Background(), e)
				for _, p := range list {
					if decided[p.Path] {
						t.Errorf("keep %d, killed at operation %d: %s was decided, and waits again", keep, at, p.Path)
					}
					r := commit.Resolve(context.Background(), e, p.Path, keep, func(_ commit.PreImage, r io.Reader) error {
						_, err := io.Copy(io.Discard, r)
						return err
					})
					decided[p.Path] = r == nil
					err = errors.Join(err, r)
				}
				return err
			}
			n := -1 // mutations of the decision
			dying := faultfs.New(w.fs, func(e faultfs.Event) faultfs.Fault {
				if n < 0 || !e.Op.Mutating() {
					return faultfs.Fault{}
				}
				if n++; n-1 == at {
					return faultfs.Fault{Death: faultfs.DiesBefore}
				}
				return faultfs.Fault{}
			})
			e, done = w.mustEnv(dying)
			n = 0
			err = decide(e)
			done()
			w.fs.Kill()
			if !dying.Dead() {
				w.ok(err)
				if at < 8 {
					t.Fatalf("keep %d: it was killed at %d operations only", keep, at)
				}
				break
			}
			e, done = w.mustEnv(w.fs)
			_, err = commit.Recover(context.Background(), e, commit.RecoverOptions{})
			w.ok(err)
			if err := decide(e); err != nil && strings.Contains(err.Error(), `at "m/1" is what you want`) {
				// It is another file than was moved, and its name says nothing.
				w.ok(commit.Resolve(context.Background(), e, "k/1", commit.KeepMine, func(commit.PreImage, io.Reader) error { return nil }))
			} else {
				w.ok(err)
			}
			done()
			if l := leftovers(t, w.fs); len(l) > 0 {
				t.Fatalf("keep %d, killed at operation %d: left over %v", keep, at, l)
			}
			want := map[string]string{"a": "a mine\n", "k/1": "m1 mine\n"}
			if keep == commit.KeepTheirs {
				want = map[string]string{"a": "a old\n", "m/1": "m1 mine\n"}
			}
			for path, text := range want {
				if got := state(t, w.fs)[path]; got != file(0o644, text) {
					t.Fatalf("keep %d, killed at operation %d: %s is %q", keep, at, path, got)
				}
			}
		}
	}
}
