package casetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/aspengine/asp/internal/need"
)

// TestFuzz: a patch whose context differs is refused, unless lines of context may be
// left out; then the answer and the receipt say where that was done.
func TestFuzz(t *testing.T) {
	const before, after = "l1\nl2\nl3\nl4\nl5\n", "l1\nl2\nL3\nl4\nl5\n"
	patch := []byte("--- a/f\n+++ b/f\n@@ -2,3 +2,3 @@\n other\n-l3\n+L3\n l4\n")
	w := newWorld(t, map[string]string{"f": before})
	m := w.mark()
	w.runIn(w.root, patch, "apply", "--patch", "-", "--json").refused("stale-basis", "f")
	m.unchanged()
	const note = "with up to 1 lines of context left out"
	r := w.runIn(w.root, patch, "apply", "--patch", "-", "--json", "--fuzz", "1").applied()
	if !strings.Contains(r.errs, note) {
		t.Errorf("nobody is told: %s", r)
	}
	w.run("receipts", "show", r.str("receipt", "receiptId")).says(0, note)
	w.is("f", after)
	// A hunk that fits is placed without, however much is allowed.
	patch = []byte("--- a/f\n+++ b/f\n@@ -2,3 +2,3 @@\n l2\n-L3\n+l3\n l4\n")
	if r := w.runIn(w.root, patch, "apply", "--patch", "-", "--json", "--fuzz", "3").applied(); strings.Contains(r.errs, "left out") {
		t.Errorf("%s", r)
	}
	w.is("f", before)
	w.clean()
}

// TestEnvironmentIsNamed: what a check could see beside the files of the state, at
// any depth, is its environment, and stands in the receipt.
func TestEnvironmentIsNamed(t *testing.T) {
	need.UserNS(t)
	w := newWorld(t, map[string]string{"x": "x\n", "pkg/a": "a\n", ".gitignore": "deps/\n*.cache\n", "pkg/.gitignore": "gen\n"})
	w.write("deps/lib/a", "a\n", 0o644)
	w.write("one.cache", "c\n", 0o644)
	w.write("pkg/gen/deep", "g\n", 0o644)
	w.write("pkg/in/deps/b", "b\n", 0o644)
	see := "cat deps/lib/a one.cache pkg/gen/deep pkg/in/deps/b x"
	w.configure(obj{"checks": obj{"see": obj{"argv": []string{"sh", "-c", see}}}})
	environment := func(p *plan) (names []string, count int) {
		t.Helper()
		r := p.apply("--check", "see").applied()
		var stored struct {
			Evidence struct {
				Checks []struct {
					Name             string
					Environment      []string
					EnvironmentCount int
				}
			}
		}
		must(t, jsonInto(w.run("receipts", "show", r.str("receipt", "receiptId"), "--json").out, &stored))
		if len(stored.Evidence.Checks) != 1 {
			t.Fatalf("evidence: %+v", stored)
		}
		c := stored.Evidence.Checks[0]
		return c.Environment, c.EnvironmentCount
	}
	names, count := environment(w.plan().modify("x", "x\n", "y\n"))
	if want := []string{"deps/", "one.cache", "pkg/gen/", "pkg/in/deps/"}; !slices.Equal(names, want) || count != 0 {
		t.Errorf("%q, %d, want %q", names, count, want)
	}
	// Many are counted, and the directories among them still named.
	for i := range 200 {
		w.write(fmt.Sprintf("pkg/%03d.cache", i), "", 0o644)
	}
	if names, count = environment(w.plan().modify("x", "y\n", "z\n")); count != 204 || len(names) != 100 || !slices.Contains(names, "pkg/in/deps/") {
		t.Errorf("%d names of %d: %q", len(names), count, names)
	}
	w.clean()
}
