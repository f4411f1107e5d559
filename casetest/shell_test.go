package casetest

import (
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

// TestEnvironmentIsNamed: what a check could see beside the tracked files is its
// environment, and stands in the receipt.
func TestEnvironmentIsNamed(t *testing.T) {
	need.UserNS(t)
	w := newWorld(t, map[string]string{"x": "x\n", ".gitignore": "deps/\n*.cache\n"})
	w.write("deps/lib/a", "a\n", 0o644)
	w.write("one.cache", "c\n", 0o644)
	w.config(`{"checks":{"see":{"argv":["sh","-c","cat deps/lib/a one.cache x"]}}}`)
	r := w.plan().modify("x", "x\n", "y\n").apply("--check", "see").applied()
	var stored struct {
		Evidence struct {
			Checks []struct {
				Name        string
				Environment []string
			}
		}
	}
	must(t, jsonInto(w.run("receipts", "show", r.str("receipt", "receiptId"), "--json").out, &stored))
	if c := stored.Evidence.Checks; len(c) != 1 || !slices.Equal(c[0].Environment, []string{"deps", "one.cache"}) && !slices.Equal(c[0].Environment, []string{"deps/", "one.cache"}) {
		t.Errorf("evidence: %+v", c)
	}
	w.clean()
}
