package casetest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestPV01(t *testing.T) {
	w := newWorld(t, map[string]string{".gitignore": ".env\n", "t.txt": "t\n", "d/x": "x\n"})
	w.write(".env", "K=1\n", 0o600)
	for _, c := range []struct {
		path  string
		codes []string
	}{
		{".env", []string{"exists"}}, {"t.txt", []string{"exists"}}, {"d", []string{"exists"}}, {"t.txt/x", []string{"exists", "path-invalid", "not-regular"}},
	} {
		t.Run(strings.ReplaceAll(c.path, "/", " "), func(t *testing.T) {
			w := w.as(t)
			p := w.plan().create(c.path, "new\n")
			m := w.mark()
			p.apply().refusedAny(c.codes)
			m.unchanged()
			p.apply("--stage").refusedAny(c.codes)
			p.apply("--publish", "exchange").refusedAny(c.codes)
			m.unchanged()
		})
	}
	t.Run("made between check and write", func(t *testing.T) {
		w := newWorld(t, map[string]string{"a": "a\n"})
		p := w.plan().modify("a", "a\n", "A\n").create("z", "plan\n")
		m := w.mark()
		run := w.heldAt("-> "+w.path("a"), func() { w.write("z", "stranger\n", 0o644) }, "apply", "--plan", p.file(), "--json")
		run.refusedAny([]string{"exists", "changed-underneath"})
		w.is("z", "stranger\n")
		must(t, os.Remove(w.path("z")))
		m.rolledBack("a", "z")
	})
}

func TestPV03(t *testing.T) {
	files := map[string]string{"foo.rs": "mod a;\n", "p": "plain\n", "dir/x": "x\n"}
	change := edit(0, 4, 0, 5, "b")
	t.Run("edit, then rename", func(t *testing.T) {
		w := newWorld(t, files)
		w.plan().edits("foo.rs", "mod a;\n", change).rename("foo.rs", "foo2.rs", "mod b;\n").apply().applied()
		w.gone("foo.rs")
		w.is("foo2.rs", "mod b;\n")
	})
	t.Run("edit, then rename with the digest from before", func(t *testing.T) {
		w := newWorld(t, files)
		p := w.plan().edits("foo.rs", "mod a;\n", change).rename("foo.rs", "foo2.rs", "mod a;\n")
		m := w.mark()
		p.apply().refused("stale-basis", "foo.rs")
		m.unchanged()
	})
	t.Run("rename, then edit", func(t *testing.T) {
		w := newWorld(t, files)
		w.plan().rename("foo.rs", "foo2.rs", "mod a;\n").edits("foo2.rs", "mod a;\n", change).apply().applied()
		w.gone("foo.rs")
		w.is("foo2.rs", "mod b;\n")
	})
	t.Run("rename, then edit of the old name", func(t *testing.T) {
		w := newWorld(t, files)
		p := w.plan().rename("foo.rs", "foo2.rs", "mod a;\n").edits("foo.rs", "mod a;\n", change)
		m := w.mark()
		p.apply().refused("missing", "foo.rs")
		m.unchanged()
	})
	t.Run("a file becomes a directory", func(t *testing.T) {
		w := newWorld(t, files)
		w.plan().remove("p", "plain\n").create("p/c.txt", "c\n").apply().applied()
		w.is("p/c.txt", "c\n")
		w.clean()
	})
	t.Run("a file becomes a directory, undone at the last step", func(t *testing.T) {
		w := newWorld(t, files)
		p := w.plan().remove("p", "plain\n").create("p/c.txt", "c\n").create("zz/last", "l\n")
		m := w.mark()
		run := w.heldAt("-> "+w.path("p/c.txt"), func() { w.mkdir("zz"); w.write("zz/last", "stranger\n", 0o644) }, "apply", "--plan", p.file(), "--json")
		if run.code != 1 || run.at("applied") != false {
			t.Fatalf("want a refusal: %s", run.result)
		}
		w.is("zz/last", "stranger\n")
		must(t, os.RemoveAll(w.path("zz")))
		m.rolledBack("p", "zz")
	})
	t.Run("a directory that its file still holds", func(t *testing.T) {
		w := newWorld(t, files)
		p := w.plan().create("p/c.txt", "c\n").remove("p", "plain\n")
		m := w.mark()
		if r := p.apply(); r.code != 1 || r.at("applied") != false {
			t.Errorf("want refused: %s", r)
		}
		m.unchanged()
	})
	t.Run("rename of a directory", func(t *testing.T) {
		w := newWorld(t, files)
		p := w.plan().rename("dir", "dir2", "x\n")
		m := w.mark()
		if r := p.apply(); r.at("applied") == true {
			w.is("dir2/x", "x\n")
			w.gone("dir")
		} else {
			r.refusedAny([]string{"not-regular", "unsupported-operation", "not-empty"}, "dir")
			m.unchanged()
		}
	})
}

func TestPV04(t *testing.T) {
	files := map[string]string{"keep.txt": "precious\n", "a.txt": "1\n", "dir/z": "z\n"}
	t.Run("missing", func(t *testing.T) {
		w := newWorld(t, files)
		p := w.plan().remove("keep.txt", "precious\n").modify("a.txt", "1\n", "2\n").modify("gone.txt", "?\n", "!\n")
		m := w.mark()
		p.apply().refused("missing", "gone.txt")
		m.unchanged()
	})
	t.Run("stale", func(t *testing.T) {
		w := newWorld(t, files)
		p := w.plan().remove("keep.txt", "precious\n").modify("a.txt", "1\n", "2\n").modify("dir/z", "older\n", "!\n")
		m := w.mark()
		p.apply().refused("stale-basis", "dir/z")
		m.unchanged()
	})
	t.Run("every failing operation is named", func(t *testing.T) {
		w := newWorld(t, files)
		p := w.plan().modify("gone.txt", "?\n", "!\n").modify("dir/z", "older\n", "!\n").create("a.txt", "x\n").create(".git/x", "x\n").edits("keep.txt", "precious\n", edit(9, 0, 9, 0, "x"))
		m := w.mark()
		r := p.apply()
		if r.code != 1 {
			t.Fatal(r)
		}
		r.valid("outer-host.schema.json#/$defs/applyProposalResult")
		for path, code := range map[string]string{"gone.txt": "missing", "dir/z": "stale-basis", "a.txt": "exists", ".git/x": "path-protected", "keep.txt": "bad-range"} {
			if !r.conflict(code, path) {
				t.Errorf("%s for %s is not listed: %s", code, path, r)
			}
		}
		m.unchanged()
	})
	t.Run("a directory made read-only after validation", func(t *testing.T) {
		if os.Geteuid() != 0 {
			t.Log("the tests are the user itself")
		}
		w := newWorld(t, files)
		p := w.plan().remove("keep.txt", "precious\n").modify("a.txt", "1\n", "2\n").modify("dir/z", "z\n", "Z\n")
		m := w.mark()
		run := w.heldAt("-> "+w.path("a.txt"), func() { must(t, os.Chmod(w.path("dir"), 0o555)) }, "apply", "--plan", p.file(), "--json")
		must(t, os.Chmod(w.path("dir"), 0o755))
		switch {
		case run.code == 3:
			run.failed()
		case run.code == 1 && run.at("applied") == false:
		default:
			t.Fatalf("want rolled back: %s", run.result)
		}
		if strings.Contains(string(run.out), `"applied":true`) {
			t.Errorf("something is reported as applied: %s", run.result)
		}
		m.rolledBack("keep.txt", "a.txt", "dir/z")
		if rs := w.receipts(); !slices.ContainsFunc(rs, func(r obj) bool { return r["outcome"] == "rolled-back" }) {
			t.Errorf("no receipt of a roll-back: %v", rs)
		}
	})
}

func TestCC01(t *testing.T) {
	const text, other = "alpha\nbeta\n", "other\n"
	files := map[string]string{"n.md": text, "o.md": other}
	planOf := func(w *world) *plan {
		return w.plan().edits("n.md", text, edit(0, 0, 0, 5, "ALPHA")).modify("o.md", other, "OTHER\n")
	}
	t.Run("before validation", func(t *testing.T) {
		w := newWorld(t, files)
		p := planOf(w)
		w.write("n.md", "mine\nbeta\n", 0o644)
		m := w.mark()
		p.apply().refused("stale-basis", "n.md")
		m.unchanged()
	})
	t.Run("same size and time", func(t *testing.T) {
		w := newWorld(t, files)
		p := planOf(w)
		fi, err := os.Stat(w.path("n.md"))
		must(t, err)
		w.write("n.md", "alphx\nbeta\n", 0o644)
		must(t, os.Chtimes(w.path("n.md"), fi.ModTime(), fi.ModTime()))
		m := w.mark()
		p.apply().refused("stale-basis", "n.md")
		m.unchanged()
	})
	t.Run("touched only", func(t *testing.T) {
		w := newWorld(t, files)
		p := planOf(w)
		w.write("n.md", text, 0o644)
		p.apply().applied()
		w.is("n.md", "ALPHA\nbeta\n")
	})
	// An editor that knows nothing of locks writes between validation and swap, at
	// several points, in place or by a new file.
	for _, at := range []struct{ name, call string }{
		{"when the journal begins", "/.git/asp/"}, {"before the barrier", "sync"}, {"at its own swap", "/n.md flags"}, {"at the swap after it", "/o.md flags"},
	} {
		for _, how := range []string{"in place", "in place, same size and time", "by rename"} {
			t.Run(at.name+" "+how, func(t *testing.T) {
				w := newWorld(t, files)
				p := planOf(w)
				stranger := "mine\nbeta\n"
				if how == "in place, same size and time" {
					stranger = "alphx\nbeta\n"
				}
				run := w.heldAt(at.call, func() {
					fi, err := os.Stat(w.path("n.md"))
					must(t, err)
					if how == "by rename" {
						w.write(filepath.Join(w.base, "ed"), stranger, 0o644)
						must(t, os.Rename(filepath.Join(w.base, "ed"), w.path("n.md")))
						return
					}
					w.write("n.md", stranger, 0o644)
					if how != "in place" {
						must(t, os.Chtimes(w.path("n.md"), fi.ModTime(), fi.ModTime()))
					}
				}, "apply", "--plan", p.file(), "--json")
				w.is("n.md", stranger)
				switch run.code {
				case 1:
					run.refusedAny([]string{"changed-underneath", "stale-basis"}, "n.md")
					w.is("o.md", other)
					w.clean()
				case 4: // after its swap: nothing is lost, and a person is asked
					t.Logf("needs attention: %s", run.errs)
					w.is("o.md", other)
				default:
					// Whoever writes after the swap of his file edits the new one: applied,
					// and then edited.
					if at.name != "at the swap after it" {
						t.Errorf("want refused: %s", run.result)
					}
					run.applied()
					w.is("o.md", "OTHER\n")
				}
			})
		}
	}
}
