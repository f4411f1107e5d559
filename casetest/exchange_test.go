package casetest

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCC01Exchange: the whole tree changes places, so whatever anybody does to
// any file of the old one meanwhile must be in the new one, or stop it.
func TestCC01Exchange(t *testing.T) {
	for _, at := range []struct{ name, call string }{
		{"while the tree is built", ".asp-exchange-"}, {"at the first barrier", "sync"}, {"at the exchange", " flags 2"},
	} {
		for _, how := range []struct {
			name string
			do   func(w *world)
			want map[string]string // "" is absence
		}{
			{"a touched file in place", func(w *world) { w.write("n.md", "mine\n", 0o644) }, map[string]string{"n.md": "mine\n"}},
			{"a touched file by rename", func(w *world) {
				w.write(filepath.Join(w.ws, "ed"), "mine\n", 0o644)
				must(w.t, os.Rename(filepath.Join(w.ws, "ed"), w.path("n.md")))
			}, map[string]string{"n.md": "mine\n"}},
			{"another file in place", func(w *world) { w.write("d/u.md", "mine\n", 0o644) }, map[string]string{"d/u.md": "mine\n"}},
			{"another file by rename", func(w *world) {
				w.write(filepath.Join(w.ws, "ed"), "mine\n", 0o644)
				must(w.t, os.Rename(filepath.Join(w.ws, "ed"), w.path("d/u.md")))
			}, map[string]string{"d/u.md": "mine\n"}},
			{"a new file", func(w *world) { w.write("d/fresh", "mine\n", 0o644) }, map[string]string{"d/fresh": "mine\n"}},
			{"a new ignored file", func(w *world) { w.write("d/fresh.o", "mine\n", 0o644) }, map[string]string{"d/fresh.o": "mine\n"}},
			{"a removed file", func(w *world) { must(w.t, os.Remove(w.path("d/u.md"))) }, map[string]string{"d/u.md": ""}},
			{"a mode", func(w *world) { must(w.t, os.Chmod(w.path("d/u.md"), 0o755)) }, map[string]string{"d/u.md": "u\n"}},
		} {
			t.Run(at.name+" "+how.name, func(t *testing.T) {
				w := newWorld(t, map[string]string{"n.md": "alpha\n", "d/u.md": "u\n", ".gitignore": "*.o\n"})
				p := w.plan().edits("n.md", "alpha\n", edit(0, 0, 0, 5, "ALPHA")).create("made", "m\n")
				run := w.heldAt(at.call, func() { how.do(w) }, "apply", "--plan", p.file(), "--json", "--publish", "exchange")
				for f, want := range how.want {
					if want == "" {
						w.gone(f)
					} else {
						w.is(f, want)
					}
				}
				if how.name == "a mode" {
					w.perm("d/u.md", 0o755)
				}
				if run.code == 0 {
					run.applied()
					w.is("made", "m\n")
					if how.want["n.md"] != "" {
						t.Errorf("applied over a change: %s", run.result)
					}
				} else {
					run.refusedAny([]string{"changed-underneath", "stale-basis", "busy"})
					w.gone("made")
				}
				w.cleanBeside(run)
			})
		}
	}
}

// TestExchangeLeftIsTold: an editor saves by rename while the old tree is cleaned up, and
// its last bytes there stay. They are named for as long as they are there.
func TestExchangeLeftIsTold(t *testing.T) {
	w := newWorld(t, map[string]string{"n.md": "alpha\n", "d/u.md": "u\n"})
	p := w.plan().edits("n.md", "alpha\n", edit(0, 0, 0, 5, "ALPHA"))
	run := w.heldAt("/out", func() {
		w.write("d/u.md.new", "mine\n", 0o644)
		must(t, os.Rename(w.path("d/u.md.new"), w.path("d/u.md")))
	}, "apply", "--plan", p.file(), "--json", "--publish", "exchange")
	run.applied()
	w.is("d/u.md", "mine\n")
	areas, err := filepath.Glob(filepath.Join(w.ws, ".asp-exchange-*"))
	must(t, err)
	if len(areas) != 1 || !strings.Contains(run.errs, filepath.Base(areas[0])) || !strings.Contains(run.errs, "gave their names") {
		t.Fatalf("%q is left and told of by %q", areas, run.errs)
	}
	told := func(want bool) {
		t.Helper()
		for _, args := range [][]string{{"status"}, {"status", "--json"}, {"recover"}, {"recover", "--json"}} {
			if r := w.run(args...); r.code != 0 || strings.Contains(r.errs, areas[0]) != want {
				t.Errorf("told is not %v: %s", want, r)
			}
		}
	}
	told(true)
	w.is(filepath.Join(areas[0], "tree", "d", "u.md"), "u\n")
	must(t, os.Chmod(areas[0], 0o750)) // as one of somebody else
	told(false)
	must(t, os.Chmod(areas[0], 0o700))
	must(t, os.RemoveAll(filepath.Join(areas[0], "tree", "d")))
	w.run("recover")
	told(false)
	w.clean()
}

// cleanBeside is clean, but for a file that somebody took out of the workspace
// while the new tree held its last other name: the bytes are kept beside the
// workspace and a note says where, because nobody can tell whose they are.
func (w *world) cleanBeside(run *trace) {
	w.t.Helper()
	areas, err := filepath.Glob(filepath.Join(w.ws, ".asp-exchange-*"))
	must(w.t, err)
	for _, a := range areas {
		if !strings.Contains(run.errs, filepath.Base(a)) {
			w.t.Errorf("%s is left and nobody is told: %q", a, run.errs)
		}
		must(w.t, filepath.WalkDir(a, func(p string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || d.Name() == "journal" || d.Name() == "kept" {
				return err
			}
			b, err := os.ReadFile(p)
			if string(b) != "u\n" {
				w.t.Errorf("%s is left with %q", p, b)
			}
			return err
		}))
		must(w.t, os.RemoveAll(a))
	}
	w.clean()
}
