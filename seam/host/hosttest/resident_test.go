package hosttest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// TestHostSeesWhatOthersDo: a host keeps its workspace in memory. Whatever happens to
// it from outside, the host gives out the baseline that a program which looks at
// everything finds.
func TestHostSeesWhatOthersDo(t *testing.T) {
	w := newWorld(t, "", map[string]string{"a": "a\n", "d/b": "b\n", "d/e/c": "c\n"})
	s := w.serve()
	c := s.dial()
	defer c.close()
	seen := map[string]bool{}
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"nothing", func() {}},
		{"write", func() { w.write("a", "other\n") }},
		{"directory moved away", func() { must(t, os.Rename(w.root+"/d/e", w.root+"/f")) }},
		{"write in it", func() { w.write("f/c", "moved\n") }},
		{"new directories", func() { must(t, os.MkdirAll(w.root+"/x/y", 0o755)); w.write("x/y/z", "z\n") }},
		{"tree removed", func() { must(t, os.RemoveAll(w.root+"/d")) }},
		{"ignore rules", func() { w.write(".gitignore", "x\n") }},
		{"commit", func() { w.git("add", "-A"); w.git("commit", "-q", "-m", "all") }},
		{"write after a commit", func() { w.write("f/c", "later\n") }},
	} {
		step.do()
		base := c.baseline()
		code, out, errs := w.run("", "status", "--json")
		var status struct {
			Workspace struct {
				Baseline struct{ Rev, Dirty string }
			}
		}
		if err := json.Unmarshal([]byte(out), &status); err != nil || code != 0 {
			t.Fatalf("%s: asp status: %d, %v: %s", step.name, code, err, errs)
		}
		b := status.Workspace.Baseline
		dirty, _ := base["dirty"].(string)
		if base["rev"] != b.Rev || dirty != b.Dirty {
			t.Errorf("%s: the host says %v, a look at everything %v", step.name, base, b)
		}
		if key := b.Rev + b.Dirty; step.name != "commit" && seen[key] {
			t.Errorf("%s changed nothing", step.name)
		} else {
			seen[key] = true
		}
	}
	// What is applied is in the next look, and so is what is written beside.
	base := c.baseline()
	c.put("applied\n")
	a := c.good("host/applyProposal", applyParams(proposal("p", base, modify("f/c", "later\n", "applied\n"))))
	if a.result["applied"] != true {
		t.Fatalf("%.500s", a.raw)
	}
	after, _ := a.result["baselineAfter"].(obj)
	if now := c.baseline(); now["dirty"] != after["dirty"] {
		t.Errorf("after the apply the host says %v, and foretold %v", now, after)
	}
	must(t, os.WriteFile(filepath.Join(w.root, "beside"), []byte("x"), 0o644))
	if now := c.baseline(); now["dirty"] == after["dirty"] {
		t.Error("a file beside was not noticed")
	}
}

// unheard writes over a file in a way that no watch of its directory hears: by another
// name of it, made now outside of the tree.
func (w *world) unheard(name, content string) {
	w.t.Helper()
	outside := filepath.Join(w.base, "outside-"+name)
	must(w.t, os.Link(filepath.Join(w.root, name), outside))
	must(w.t, os.WriteFile(outside, []byte(content), 0o644))
}

const anyCommand = `{"checks":{"ok":{"argv":["true"],"required":true,"callSites":["interactive","gate"]}}}`

// TestVerdictsRestOnAWalk: what the watch does not hear is found before a verdict is given
// to which anybody was shown the disk: a command, alone or beside a provider, and a
// provider that had the tree listed which is not the one of the baseline any more.
func TestVerdictsRestOnAWalk(t *testing.T) {
	for _, x := range []struct {
		name, site, config string
		families           []string
		then               int // the changeset after the write; 0 is the one before
	}{
		{"command", "interactive", anyCommand, nil, 1},
		{"the same again", "interactive", anyCommand, nil, 0},
		{"command beside a provider", "gate", anyCommand, []string{"check"}, 1},
		{"remembered provider, command", "gate", anyCommand, []string{"check"}, 0},
		{"listed", "gate", `{"providers":{"p":{"scope":"impact"}}}`, []string{"check", "inspect"}, 1},
	} {
		w := newWorld(t, x.config, map[string]string{"a.txt": "x\n", "b.txt": "one\n"})
		if x.families != nil {
			w.enrol("p", x.families)
		}
		c := w.stdio()
		base := c.baseline()
		evaluate := func(n int) answer {
			return c.good("host/evaluateChangeset", obj{"callSite": x.site, "changeset": c.changes(base, [3]string{"a.txt", "x\n", fmt.Sprintf("y%d\n", n)})})
		}
		if a := evaluate(0); a.text("decision") != "allow" {
			t.Fatalf("%s: %s", x.name, a.raw)
		}
		if x.config != anyCommand {
			w.untilWatched(func() answer { return evaluate(0) })
		}
		w.unheard("b.txt", "two\n")
		if now := c.baseline(); now["dirty"] != base["dirty"] {
			t.Skip("this kernel tells of it") // then there is nothing to find
		}
		if a := evaluate(x.then); a.text("decision") != "indeterminate" || !strings.Contains(string(a.raw), `"reason":"stale-baseline"`) {
			t.Errorf("%s: %s", x.name, a.raw)
		}
		if now := c.baseline(); now["dirty"] == base["dirty"] {
			t.Errorf("%s: the walk is not remembered", x.name)
		}
		c.exit()
	}
}

// TestAppliesRestOnTheirWalk: a verdict that was given over a watched look, and is known,
// is used by no apply over a tree that is not the one it names.
func TestAppliesRestOnTheirWalk(t *testing.T) {
	w := newWorld(t, "", map[string]string{"a.txt": "x\n", "b.txt": "one\n"})
	w.enrol("p", []string{"check"})
	c := w.stdio()
	base := c.baseline()
	w.untilWatched(func() answer { return c.verdict(c.changes(base, [3]string{"a.txt", "x\n", "y\n"}), "") })
	w.unheard("b.txt", "two\n")
	if now := c.baseline(); now["dirty"] != base["dirty"] {
		t.Skip("this kernel tells of it")
	}
	p := applyParams(proposal("q", base, modify("a.txt", "x\n", "y\n")))
	p["callSite"] = "gate"
	a := c.good("host/applyProposal", p)
	if a.result["applied"] != true || w.looked(a) != "walked" {
		t.Errorf("%s: %s", w.looked(a), a.raw)
	}
	if judged, _ := a.result["decision"].(obj); judged == nil || reflect.DeepEqual(judged["validAsOf"], obj{}) || a.text("baselineBefore", "dirty") == base["dirty"] {
		t.Errorf("before it was %v: %s", base, a.raw)
	}
	if n := strings.Count(w.evidence(a), `"cache":"verdict"`); n != 0 {
		t.Errorf("what was said of another state is used: %s", w.evidence(a))
	}
	c.exit()
}

// untilWatched asks until the host goes on with a walk that it made: the first ones are too
// soon after the index was written.
func (w *world) untilWatched(ask func() answer) {
	w.t.Helper()
	for range 1000 {
		a := ask()
		if a.text("decision") != "allow" {
			w.t.Fatalf("%s", a.raw)
		}
		if w.looked(a) == "watched" {
			return
		}
	}
	w.t.Fatal("every look is a walk")
}

// evidence is what stands beside the receipt of an answer.
func (w *world) evidence(a answer) string {
	w.t.Helper()
	found, err := filepath.Glob(filepath.Join(w.asp, "workspaces", "*", "receipts", a.receipt()+".json"))
	if err != nil || len(found) != 1 {
		w.t.Fatalf("receipt %q: %q %v", a.receipt(), found, err)
	}
	b, err := os.ReadFile(found[0])
	must(w.t, err)
	return string(b)
}

// looked is how the last look was made at the tree that an answer is about.
func (w *world) looked(a answer) string {
	w.t.Helper()
	_, rest, _ := strings.Cut(w.evidence(a), `"looked":"`)
	how, _, _ := strings.Cut(rest, `"`)
	return how
}
