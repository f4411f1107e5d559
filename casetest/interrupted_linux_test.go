package casetest

import (
	"strings"
	"testing"
)

// TestGateBesideAnInterruptedApply: an apply was killed between two of its swaps. Who
// judges the workspace then judges no mixture: the transaction is ended first.
func TestGateBesideAnInterruptedApply(t *testing.T) {
	w := newWorld(t, map[string]string{"a": "a\n", "b": "b\n", "c": "c\n"})
	w.config(`{"checks":{"ok":{"argv":["true"],"required":true,"callSites":["gate"]}}}`)
	file := w.plan().modify("a", "a\n", "A\n").modify("b", "b\n", "B\n").modify("c", "c\n", "C\n").file()
	args := []string{"apply", "--plan", file, "--json"}
	keep := w.keep()
	lines := w.killedAt(0, args...).lines
	at := 0
	for i := len(lines); i > 0 && at == 0; i-- {
		if !strings.HasPrefix(lines[i-1], "renameat2") {
			continue
		}
		keep.restore()
		w.killedAt(i, args...)
		if got := w.read("a") + w.read("b") + w.read("c"); got != "a\nb\nc\n" && got != "A\nB\nC\n" {
			at = i
		}
	}
	if at == 0 {
		t.Fatal("no kill leaves a mixed tree, so this tries nothing")
	}
	for _, look := range [][]string{{"check", "--changed", "--call-site", "gate", "--json"}, {"ci", "verify", "--changed-from", "HEAD", "--json"}} {
		keep.restore()
		w.killedAt(at, args...)
		r := w.run(look...)
		w.is("a", "a\n")
		w.is("b", "b\n")
		if changes, _ := r.at("changeset").(obj)["changes"].([]any); len(changes) != 0 {
			t.Errorf("%v: %s", look, r)
		}
	}
}
