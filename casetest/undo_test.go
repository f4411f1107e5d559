package casetest

import (
	"os"
	"strings"
	"testing"
)

const nine = "1\n2\n3\n4\n5\n6\n7\n8\n9\n"

// TestUndoKeepsPermissions: FM-01 in the other direction. What the user did to the
// permission bits since stays; only what the change itself did to them is taken back.
func TestUndoKeepsPermissions(t *testing.T) {
	two := strings.Replace(nine, "2", "two", 1)
	for _, c := range []struct {
		name        string
		before      os.FileMode
		plan        func(*plan)
		file        string      // that the change leaves
		later       os.FileMode // 0: nobody touches the bits
		append      string
		back        string
		want        uint32
		wantContent string
	}{
		{"made private since", 0o644, func(p *plan) { p.modify("f", nine, two) }, "f", 0o600, "", "f", 0o600, nine},
		{"made private and edited since", 0o644, func(p *plan) { p.modify("f", nine, two) }, "f", 0o600, "10\n", "f", 0o600, nine + "10\n"},
		{"made executable since", 0o644, func(p *plan) { p.modify("f", nine, two) }, "f", 0o755, "", "f", 0o755, nine},
		{"by the change", 0o640, func(p *plan) { p.modify("f", nine, two).executable() }, "f", 0, "", "f", 0o640, nine},
		{"by the change, and made private since", 0o644, func(p *plan) { p.modify("f", nine, two).executable() }, "f", 0o700, "", "f", 0o700, nine},
		{"only by the change", 0o604, func(p *plan) { p.modify("f", nine, nine).executable() }, "f", 0, "", "f", 0o604, nine},
		{"renamed and edited", 0o640, func(p *plan) { p.modify("f", nine, two).rename("f", "g", two) }, "g", 0, "", "f", 0o640, nine},
		{"renamed and edited, made private since", 0o644, func(p *plan) { p.modify("f", nine, two).rename("f", "g", two) }, "g", 0o600, "", "f", 0o600, nine},
		{"renamed, made private since", 0o644, func(p *plan) { p.rename("f", "g", nine) }, "g", 0o600, "", "f", 0o600, nine},
		{"renamed, its name taken, made private since", 0o644, func(p *plan) { p.rename("f", "g", nine).create("f", "new\n") }, "g", 0o600, "10\n", "f", 0o600, nine + "10\n"},
		{"deleted", 0o600, func(p *plan) { p.remove("f", nine) }, "", 0, "", "f", 0o600, nine},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, nil, noGit)
			w.write("f", nine, c.before)
			p := w.plan()
			c.plan(p)
			id := p.apply().applied().str("receipt", "receiptId")
			if c.append != "" {
				fi, err := os.Stat(w.path(c.file))
				must(t, err)
				w.write(c.file, w.read(c.file)+c.append, fi.Mode().Perm())
			}
			if c.later != 0 {
				must(t, os.Chmod(w.path(c.file), c.later))
			}
			w.run("undo", id, "--json").applied()
			w.is(c.back, c.wantContent)
			w.perm(c.back, c.want)
			if c.file != "" && c.file != c.back {
				w.gone(c.file)
			}
		})
	}
}

// TestUndoFollowsFiles: an undo brings files back to the names that they had, in any
// arrangement, with what was done to them since.
func TestUndoFollowsFiles(t *testing.T) {
	for i, c := range []struct {
		name  string
		files map[string]string
		plan  func(*plan)
		later map[string]string // what is written after the change
		want  map[string]string
	}{
		{"from a directory of its own name", map[string]string{"a": "A\n"}, func(p *plan) { p.rename("a", "t", "A\n").rename("t", "a/a", "A\n") }, nil, map[string]string{"a": "A\n"}},
		{"the same, edited since", map[string]string{"a": "A\n"}, func(p *plan) { p.rename("a", "t", "A\n").rename("t", "a/a", "A\n") },
			map[string]string{"a/a": "A\nmine\n"}, map[string]string{"a": "A\nmine\n"}},
		{"deeper", map[string]string{"b/b": "B\n"}, func(p *plan) { p.rename("b/b", "t", "B\n").rename("t", "b/b/b", "B\n") }, nil, map[string]string{"b/b": "B\n"}},
		{"back into a directory in its place", map[string]string{"a/a": "A\n"}, func(p *plan) { p.rename("a/a", "t", "A\n").rename("t", "a", "A\n") }, nil, map[string]string{"a/a": "A\n"}},
		{"a free name that is none", map[string]string{"a": "A\n", "asp-undo-0.tmp": "mine\n"}, func(p *plan) { p.rename("a", "t", "A\n").rename("t", "a/a", "A\n") }, nil,
			map[string]string{"a": "A\n", "asp-undo-0.tmp": "mine\n"}},
		{"traded places, one edited since", map[string]string{"a": nine, "b": "B\n"},
			func(p *plan) { p.rename("a", "t", nine).rename("b", "a", "B\n").rename("t", "b", nine) },
			map[string]string{"b": nine + "10\n"}, map[string]string{"a": nine + "10\n", "b": "B\n"}},
		{"edited and renamed, edited since", map[string]string{"f": nine},
			func(p *plan) {
				p.modify("f", nine, "one"+nine[1:]).rename("f", "g", "one"+nine[1:])
			}, map[string]string{"g": "one" + nine[1:] + "10\n"}, map[string]string{"f": nine + "10\n"}},
		{"renamed onto a deleted file, edited since", map[string]string{"f": nine, "g": "G\n"},
			func(p *plan) { p.remove("g", "G\n").rename("f", "g", nine) },
			map[string]string{"g": nine + "10\n"}, map[string]string{"f": nine + "10\n", "g": "G\n"}},
		{"a chain, edited since", map[string]string{"a": nine, "b": "B\n"},
			func(p *plan) { p.rename("b", "c", "B\n").rename("a", "b", nine).create("a", "new\n") },
			map[string]string{"b": nine + "10\n", "c": "B\nC\n"}, map[string]string{"a": nine + "10\n", "b": "B\nC\n"}},
	} {
		modes := []string{"journal", "exchange"}
		if i > 2 {
			modes = modes[:1] // only a directory in the place of a file is done otherwise
		}
		for _, mode := range modes {
			t.Run(c.name+"/"+mode, func(t *testing.T) {
				w := newWorld(t, c.files)
				p := w.plan()
				c.plan(p)
				id := p.apply("--publish", mode).applied().str("receipt", "receiptId")
				for n, b := range c.later {
					w.write(n, b, 0o644)
				}
				w.run("undo", id, "--publish", mode, "--json").applied()
				for n, b := range c.want {
					w.is(n, b)
				}
				if got := strings.Fields(w.gitRun("ls-files", "--others", "--deleted")); len(got) > 0 {
					t.Errorf("left behind, or not back: %q", got)
				}
			})
		}
	}
	t.Run("a link onto a freed name", func(t *testing.T) {
		w := newWorld(t, map[string]string{"f": "F\n"})
		w.link("f", "l")
		w.commit()
		id := w.plan().remove("f", "F\n").rename("l", "f", "f").apply().applied().str("receipt", "receiptId")
		w.run("undo", id, "--json").applied()
		w.is("l", "F\n")
		w.is("f", "F\n")
		w.clean()
	})
	t.Run("a deleted link", func(t *testing.T) {
		w := newWorld(t, map[string]string{"f": "F\n"})
		w.link("f", "l")
		w.commit()
		id := w.plan().remove("l", "f").modify("f", "F\n", "G\n").apply().applied().str("receipt", "receiptId")
		m := w.mark()
		r := w.run("undo", id, "--json")
		r.refused("unsupported-operation", "l")
		if !strings.Contains(r.str("refusal", "detail"), `ln -s "f" PATH`) {
			t.Errorf("the answer does not say what the link named: %s", r)
		}
		m.unchanged()
	})
	t.Run("what is merged is told", func(t *testing.T) {
		w := newWorld(t, map[string]string{"a": "A\n", "f": nine})
		two, ten := strings.Replace(nine, "2", "two", 1), strings.Replace(nine, "2", "two", 1)+"10\n"
		id := w.plan().create("n", "n\n").rename("a", "b", "A\n").modify("f", nine, two).apply().applied().str("receipt", "receiptId")
		w.write("f", ten, 0o644)
		r := w.run("undo", id, "--json").applied()
		w.is("f", nine+"10\n")
		if !strings.Contains(r.str("assurance", "detail"), `"f"`) || !strings.Contains(r.errs, `merged: "f"`) {
			t.Errorf("the answer does not tell of the merge: %s", r)
		}
		told := w.mergedNow(r.str("receipt", "receiptId"))
		if len(told) != 1 || told[0]["path"] != "f" || told[0]["op"] != 2.0 || told[0]["expected"] != digest(two) || told[0]["found"] != digest(ten) || told[0]["made"] != digest(nine+"10\n") {
			t.Errorf("the receipt says %v", told)
		}
	})
	t.Run("edited in the same lines since", func(t *testing.T) {
		w := newWorld(t, map[string]string{"f": nine})
		one := "one" + nine[1:]
		id := w.plan().modify("f", nine, one).rename("f", "g", one).apply().applied().str("receipt", "receiptId")
		w.write("g", "ONE"+nine[1:], 0o644)
		m := w.mark()
		w.run("undo", id, "--json").refused("merge-conflict", "g")
		m.unchanged()
	})
}

// TestCreatedOverOldMode: a created file at a name where another was is not executable
// unless the plan says so, and never wider than that one; an undo gives the old bits.
func TestCreatedOverOldMode(t *testing.T) {
	for _, mode := range []string{"journal", "exchange"} {
		t.Run(mode, func(t *testing.T) {
			w := newWorld(t, nil, noGit)
			for n, m := range map[string]os.FileMode{"run": 0o755, "key": 0o600, "mv": 0o750, "x": 0o711} {
				w.write(n, "old\n", m)
			}
			w.link("key", "l")
			p := w.plan().remove("run", "old\n").create("run", "new\n").remove("key", "old\n").create("key", "new\n")
			p.rename("mv", "mv2", "old\n").create("mv", "new\n").remove("x", "old\n").create("x", "new\n").executable()
			id := p.apply("--publish", mode).applied().str("receipt", "receiptId")
			for n, m := range map[string]uint32{"run": 0o644, "key": 0o600, "mv": 0o640, "mv2": 0o750, "x": 0o700} {
				w.perm(n, m)
			}
			w.run("undo", id, "--json").applied()
			for n, m := range map[string]uint32{"run": 0o755, "key": 0o600, "mv": 0o750, "x": 0o711} {
				w.perm(n, m)
				w.is(n, "old\n")
			}
			w.plan().remove("l", "key").create("l", "new\n").apply("--publish", mode).applied()
			w.perm("l", 0o644)
		})
	}
}
