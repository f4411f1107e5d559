package hosttest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
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

// TestVerdictsRestOnAWalk: what the watch does not hear, a write by a second name that
// lies outside of the tree, is found before a verdict is given, whether or not anybody
// was asked for one, and where the answer was known.
func TestVerdictsRestOnAWalk(t *testing.T) {
	for _, x := range []struct {
		site string
		then int // the changeset after the write; 0 is the one before
	}{{"interactive", 1}, {"gate", 1}, {"gate", 0}} {
		site := x.site
		w := newWorld(t, "", map[string]string{"a.txt": "x\n", "b.txt": "one\n"})
		if site == "gate" {
			w.enrol("p", []string{"check"})
		}
		c := w.stdio()
		base := c.baseline()
		evaluate := func(n int) answer {
			return c.good("host/evaluateChangeset", obj{"callSite": site, "changeset": c.changes(base, [3]string{"a.txt", "x\n", fmt.Sprintf("y%d\n", n)})})
		}
		if a := evaluate(0); a.text("decision") != "allow" {
			t.Fatalf("%s: %s", site, a.raw)
		}
		outside := filepath.Join(w.base, "outside")
		must(t, os.Link(filepath.Join(w.root, "b.txt"), outside))
		must(t, os.WriteFile(outside, []byte("two\n"), 0o644))
		if now := c.baseline(); now["dirty"] != base["dirty"] {
			t.Skip("this kernel tells of it") // then there is nothing to find
		}
		if a := evaluate(x.then); a.text("decision") != "indeterminate" || !strings.Contains(string(a.raw), `"reason":"stale-baseline"`) {
			t.Errorf("%s, changeset %d: %s", site, x.then, a.raw)
		}
		if now := c.baseline(); now["dirty"] == base["dirty"] {
			t.Errorf("%s: the walk is not remembered", site)
		}
		c.exit()
	}
}
