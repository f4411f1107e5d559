package casetest

import (
	"os"
	"strings"
	"testing"

	"github.com/aspengine/asp/internal/need"
)

// TestStagedIsListed: what was staged and waits for asp publish is seen until it is
// published, and doctor says what staging can earn.
func TestStagedIsListed(t *testing.T) {
	w := newWorld(t, map[string]string{"a": "a\n", "b": "b\n"})
	w.run("doctor").says(0, "--stage up to staged_snapshot", "the state directory is on", "nothing to repair")
	p, q := w.plan().modify("a", "a\n", "A\n"), w.plan().modify("b", "b\n", "B\n")
	id := p.apply("--stage").applied().str("receipt", "receiptId")
	q.apply("--stage").applied()
	w.run("status").says(0, "staged", p.id+" (receipt "+id+"), for asp publish", q.id)
	w.run("doctor").says(0, "staged 2: `asp status` names them")
	w.run("publish", p.id, "--json").applied()
	if r := w.run("status").says(0, q.id); strings.Contains(string(r.out), p.id) {
		t.Errorf("it is published, and waits: %s", r)
	}
}

// TestJournalOfAnother: who cannot read what a transaction of another user left is told
// so, and not that there is nothing to repair.
func TestJournalOfAnother(t *testing.T) {
	need.Root(t)
	w := newWorld(t, map[string]string{"a": "a\n"})
	must(t, os.Mkdir(w.path(".git/asp"), 0o700)) // root's
	defer os.Remove(w.path(".git/asp"))
	for _, c := range []string{"doctor", "status"} {
		if r := w.run(c).exits(3); !strings.Contains(r.errs, "a transaction of another user") {
			t.Errorf("%s", r)
		}
	}
}
