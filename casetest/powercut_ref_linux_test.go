package casetest

import (
	"fmt"
	"maps"
	"strings"
)

// refTip is the reference that the client with --ref moves.
const refTip = "refs/heads/made"

// newRefWorld is a repository whose work tree stays tree 0, while a reference goes
// from one numbered tree to the next.
func newRefWorld(w *world) {
	w.gitRun("config", "user.name", "Ann")
	w.gitRun("config", "user.email", "ann@example.org")
}

// refStep is the plan that makes tree n of the work tree.
func (w *world) refStep(baseline obj, n int) *plan {
	was, next := refTree(0), refTree(n)
	p := &plan{w: w, id: fmt.Sprintf("tree-%d", n), provider: "case", baseline: baseline}
	for f, data := range was {
		p.modify(f, data, next[f])
	}
	made := fmt.Sprintf("made/%d/new", n)
	return p.create(made, next[made])
}

// refTree is what the commit of plan n holds.
func refTree(n int) map[string]string {
	out := map[string]string{}
	for i, size := range []int{1, 400} {
		out[fmt.Sprintf("d%d/file", i)] = strings.Repeat(fmt.Sprintf("tree %d\n", n), size)
	}
	if n > 0 {
		out[fmt.Sprintf("made/%d/new", n)] = fmt.Sprintf("made for %d\n", n)
	}
	return out
}

// refAfterPowerCut recovers, and returns the number of the tree that the reference
// names. That is one of those attempted and not older than the last acknowledged, all
// its objects and those of the commits before it are there and whole, and so is every
// other object that git finds by a name.
func (w *world) refAfterPowerCut(acknowledged, attempted int) (n int) {
	t := w.t
	first := w.run("recover", "--json")
	second := w.run("recover", "--json")
	if first.code != 0 || second.code != 0 {
		t.Fatalf("recover: %s\n%s", first, second)
	}
	if rec, _ := second.at("recovered").([]any); rec == nil || len(rec) != 0 {
		t.Errorf("the second recovery had something to do: %s", second)
	}
	w.gitRun("fsck", "--full", "--strict", "--no-dangling", "--no-progress")
	held := map[string]string{}
	if w.gitRun("for-each-ref", refTip) == "" {
		held = refTree(0)
	} else {
		w.gitRun("rev-list", "--objects", refTip)
		for name := range strings.Lines(w.gitRun("ls-tree", "-r", "--name-only", refTip)) {
			name = strings.TrimSpace(name)
			held[name] = w.gitRun("cat-file", "blob", refTip+":"+name)
		}
		// Every commit has the one before as its parent: none was lost on the way.
		if _, err := fmt.Sscan(w.gitRun("rev-list", "--count", "main.."+refTip), &n); err != nil {
			t.Fatal(err)
		}
	}
	if !maps.Equal(held, refTree(n)) {
		t.Fatalf("the reference has %d commits and holds %.2000q", n, held)
	}
	if n < acknowledged || n > attempted {
		t.Fatalf("acknowledged %d, attempted %d, and the reference names tree %d", acknowledged, attempted, n)
	}
	now, err := readTree(w.root)
	must(t, err)
	if !maps.Equal(now, refTree(0)) {
		t.Fatalf("the work tree changed: %.2000q", now)
	}
	w.clean()
	if r := w.run("receipts", "verify", "--json"); r.code != 0 {
		t.Fatalf("receipts verify: %s", r)
	}
	if newest := w.newestTree("staged"); newest != n {
		t.Errorf("the newest receipt says tree %d, the reference names tree %d", newest, n)
	}
	return n
}
