package casetest

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestCR01Order reads in a trace what a power cut would test: nothing is moved
// into place before its bytes and the journal are synced, nothing is called
// committed before the directories are, and nothing is answered before the
// commit record and the receipt are.
func TestCR01Order(t *testing.T) {
	w := crashWorld(t, crashOld, on(ext4(t)))
	p := crashPlan(w)
	can := w.run("doctor", "--json").str("guarantee", "can")
	run := w.killedAt(0, "apply", "--plan", p.file(), "--json")
	run.applied()
	if g := run.str("assurance", "transactionGuarantee"); g != "workspace_transactional" || can != g {
		t.Errorf("guarantee %q on ext4 with a journal, doctor says %q: %s", g, can, run.str("assurance", "detail"))
	}
	area := w.path(".git/asp") + "/"
	first, last := -1, -1
	touched := map[string]bool{}
	for i, l := range run.lines {
		from, to, ok := strings.Cut(strings.TrimPrefix(l, "renameat2 "), " -> ")
		if !ok || !strings.HasPrefix(l, "renameat2 ") {
			continue
		}
		to, _, _ = strings.Cut(to, " flags ")
		for _, end := range []string{from, to} {
			if strings.HasPrefix(end, w.root+"/") && !strings.HasPrefix(end, area) {
				touched[filepath.Dir(end)] = true
				if first < 0 {
					first = i
				}
				last = i
			}
		}
	}
	if first < 0 {
		t.Fatalf("no swap in %s", strings.Join(run.lines, "\n"))
	}
	// synced tells whether path is synced between two places of the trace.
	synced := func(path string, from, to int) bool {
		return slices.ContainsFunc(run.lines[from:to], func(l string) bool {
			return l == "fsync "+path || l == "fdatasync "+path || strings.HasPrefix(l, "syncfs ") && !strings.Contains(l, w.asp)
		})
	}
	journal := ""
	for i, l := range run.lines[:first] {
		if f, ok := strings.CutPrefix(l, "write "); ok && strings.HasPrefix(f, area) {
			if strings.HasSuffix(f, "/journal") {
				journal = f
			}
			// The mark that swaps begin may be lost: it says more than the journal only
			// while there was no power cut.
			if filepath.Base(f) != "swapping" && !synced(f, i, first) {
				t.Errorf("%s is not synced between its last write and the first swap", f)
			}
		}
	}
	if journal == "" {
		t.Fatal("no journal")
	}
	commit := last + 1 + slices.Index(run.lines[last+1:], "write "+journal)
	if commit <= last {
		t.Fatalf("no commit record after the swaps: %s", strings.Join(run.lines[last:], "\n"))
	}
	for d := range touched {
		if !synced(d, last, commit) {
			t.Errorf("%s is not synced between the last swap and the commit record", d)
		}
	}
	if !synced(journal, commit, len(run.lines)) {
		t.Error("the commit record is not synced")
	}
	// The receipt is durable before the journal that could make it again goes.
	drop := slices.Index(run.lines, "unlinkat "+journal)
	store := slices.IndexFunc(run.lines, func(l string) bool { return strings.HasPrefix(l, "linkat ") && strings.Contains(l, "/receipts/") })
	if store < commit || drop < store {
		t.Fatalf("commit record at %d, receipt at %d, end of the journal at %d", commit, store, drop)
	}
	if !slices.ContainsFunc(run.lines[store:drop], func(l string) bool {
		return strings.Contains(l, "sync") && strings.Contains(l, w.asp)
	}) {
		t.Error("the receipt is not synced before the journal goes")
	}
}
