package casetest

import (
	"bytes"
	"os"
	"path/filepath"
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
	for _, look := range [][]string{{"check", "--changed", "--call-site", "gate", "--json"}, {"ci", "verify", "--changed-from", "HEAD", "--json"}, {"plan", "--patch", "-", "--json"}} {
		w.mixed(keep, args...)
		r := w.run(look...)
		if !strings.Contains(r.errs, "recovered: an interrupted transaction was rolled back: ") {
			t.Errorf("ended a transaction in silence: %s", r)
		}
		w.is("a", "a\n")
		w.is("b", "b\n")
		if changes, _ := r.at("changeset", "changes").([]any); len(changes) != 0 {
			t.Errorf("%v: %s", look, r)
		}
	}
}

// TestGateBesideADamagedJournal: nobody knows any more which paths are half swapped, so
// nothing is judged and nothing is applied until a person has looked.
func TestGateBesideADamagedJournal(t *testing.T) {
	w := newWorld(t, map[string]string{"a": "a\n", "b": "b\n", "c": "c\n", "d": "d\n"})
	w.config(`{"checks":{"ok":{"argv":["true"],"required":true,"callSites":["gate"]}}}`)
	file := w.plan().modify("a", "a\n", "A\n").modify("b", "b\n", "B\n").modify("c", "c\n", "C\n").file()
	w.mixed(w.keep(), "apply", "--plan", file, "--json")
	journals, err := filepath.Glob(w.path(".git/asp/*/journal"))
	if err != nil || len(journals) != 1 {
		t.Fatalf("journals %q, %v", journals, err)
	}
	b, err := os.ReadFile(journals[0])
	must(t, err)
	b[len(bytes.TrimRight(b, "\x00"))/2] ^= 0x40 // behind the intent is room for the record
	must(t, os.WriteFile(journals[0], b, 0o600))
	for _, look := range [][]string{{"check", "--changed", "--call-site", "gate", "--json"}, {"ci", "verify", "--changed-from", "HEAD", "--json"}} {
		if r := w.run(look...); r.code != 4 {
			t.Errorf("%v: %s", look, r)
		}
	}
	held := w.list()
	for _, how := range [][]string{{}, {"--publish", "exchange"}, {"--stage"}, {"--dry-run"}} {
		p := w.plan().modify("d", "d\n", "D\n")
		r := w.run(append([]string{"apply", "--plan", p.file(), "--json"}, how...)...)
		if r.code != 1 || !strings.Contains(string(r.out), "needs-attention") {
			t.Errorf("%v: %s", how, r)
		}
		for _, d := range held.diff(w.list(), nil) {
			t.Errorf("%v changed: %s", how, d)
		}
	}
	// There is nothing to choose between, and no advice to choose; what is said ends it.
	area := filepath.Dir(journals[0])
	for _, how := range [][]string{{}, {"--keep-mine"}, {"--keep-theirs"}, {"--keep-theirs", area}} {
		r := w.run(append([]string{"recover"}, how...)...)
		if said := string(r.out) + r.errs; r.code != 4 || strings.Contains(said, "--keep-") || !strings.Contains(said, area) || !strings.Contains(said, "remove the directory by hand") {
			t.Errorf("recover %v: %s", how, r)
		}
	}
	for _, d := range held.diff(w.list(), nil) {
		t.Errorf("recover changed: %s", d)
	}
	must(t, os.RemoveAll(area)) // nobody but a person may
	w.run("recover").says(0, "nothing to recover")
	w.run("status").exits(0)
	w.plan().modify("d", "d\n", "D\n").apply().applied()
}

// TestOpenTransactionIsTold: status and doctor tell one that runs from one that was
// killed, which needs no person, and agree.
func TestOpenTransactionIsTold(t *testing.T) {
	w := newWorld(t, map[string]string{"a": "a\n", "b": "b\n", "c": "c\n"})
	file := w.plan().modify("a", "a\n", "A\n").modify("b", "b\n", "B\n").modify("c", "c\n", "C\n").file()
	told := func(words string) {
		t.Helper()
		w.run("status").says(0, "open       "+words)
		if got := w.run("status", "--json").exits(0).str("workspace", "staleReason"); !strings.HasPrefix(got, words) {
			t.Errorf("staleReason %q, want %q", got, words)
		}
		if r := w.run("doctor", "--json").exits(0); !strings.HasPrefix(r.str("open"), words) {
			t.Errorf("doctor: %s", r)
		}
	}
	keep := w.keep()
	w.heldAt("-> "+w.path("b"), func() { told("a transaction runs now") }, "apply", "--plan", file, "--json").applied()
	keep.restore()
	w.mixed(keep, "apply", "--plan", file, "--json")
	told("a transaction was interrupted")
	w.run("doctor").says(0, "open       a transaction was interrupted")
	w.run("recover", "--json").exits(0)
	if r := w.run("status").exits(0); strings.Contains(string(r.out), "open  ") {
		t.Errorf("nothing is open any more: %s", r)
	}
}

// mixed kills the command, over and over from what was kept, until the tree is half
// swapped. A kill counts changes of the disk, and two runs need not make the same ones
// in the same order: so the tree is looked at, and no count is used again.
func (w *world) mixed(keep *kept, args ...string) {
	w.t.Helper()
	lines := w.killedAt(0, args...).lines
	for i := len(lines); i > 0; i-- {
		if !strings.HasPrefix(lines[i-1], "renameat2") {
			continue
		}
		keep.restore()
		w.killedAt(i, args...)
		if got := w.read("a") + w.read("b") + w.read("c"); got != "a\nb\nc\n" && got != "A\nB\nC\n" {
			return
		}
	}
	w.t.Fatal("no kill leaves a mixed tree, so this tries nothing")
}
