package hosttest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

type replay struct {
	OK                       bool
	Confirmed, Differs, Gone []string
}

func (w *world) replay(id string) replay {
	w.t.Helper()
	code, out, errs := w.run("", "receipts", "verify", "--replay", id, "--json")
	var r replay
	if err := json.Unmarshal([]byte(out), &r); err != nil || r.OK != (code == 0) {
		w.t.Fatalf("exit status %d: %s%s", code, out, errs)
	}
	return r
}

// packs are the files that hold what was judged.
func (w *world) packs() []string {
	w.t.Helper()
	list, err := filepath.Glob(filepath.Join(w.asp, "workspaces", "*", "judged", "*.pack"))
	must(w.t, err)
	return list
}

// TestReplayOfAnEvaluation: what a session put and had judged can be rebuilt when the
// session and its host are gone; so can what was on disk then and is no more. Where the
// content is gone or damaged the replay says which.
func TestReplayOfAnEvaluation(t *testing.T) {
	w := newWorld(t, "", map[string]string{"a.txt": "x\n", "gone.txt": "g\n", "old.txt": "o\n"})
	w.enrol("p", []string{"check"})
	c := w.stdio()
	changes := c.changes(c.baseline(), [3]string{"a.txt", "x\n", "BAD\n"}, [3]string{"new.txt", "", "new\n"})
	changes["changes"] = append(changes["changes"].([]obj), obj{"path": "gone.txt", "kind": "delete", "before": digest("g\n")},
		obj{"path": "moved.txt", "kind": "rename", "from": "old.txt", "before": digest("o\n"), "after": digest("o\n")})
	a := c.verdict(changes, "")
	c.exit()
	whole := func(id, decision string, paths int) {
		t.Helper()
		r := w.replay(id)
		said := strings.Join(r.Confirmed, "\n")
		for _, want := range []string{"changeset digest sha256:", fmt.Sprintf("after-state of %d of %d paths", paths, paths), "policy digest sha256:", "decision " + decision, "request digest sha256:"} {
			if !strings.Contains(said, want) {
				t.Errorf("%q is not confirmed: %+v", want, r)
			}
		}
		if !r.OK || len(r.Gone) > 0 {
			t.Errorf("%+v", r)
		}
	}
	whole(a.receipt(), "deny", 4)
	kept := w.packs()
	if len(kept) != 1 {
		t.Fatalf("%v", kept)
	}
	if fi, err := os.Stat(kept[0]); err != nil || fi.Mode().Perm() != 0o600 || fi.Size() > 1000 {
		t.Errorf("%v %v", fi, err)
	}
	// From the shell, about what is on disk.
	w.write("a.txt", "BAD again\n")
	code, out, errs := w.run("", "check", "--changed", "--call-site", "gate", "--json")
	var said struct {
		Receipt struct{ ReceiptID string }
	}
	must(t, json.Unmarshal([]byte(out), &said))
	if code != 1 {
		t.Errorf("exit status %d: %s%s", code, out, errs)
	}
	w.write("a.txt", "later\n")
	whole(said.Receipt.ReceiptID, "deny", 1)

	b, err := os.ReadFile(kept[0])
	must(t, err)
	must(t, os.WriteFile(kept[0], []byte(strings.Replace(string(b), "BAD", "bad", 1)), 0o600))
	lost := func(paths ...string) {
		t.Helper()
		r := w.replay(a.receipt())
		if !r.OK || len(r.Gone) != len(paths) {
			t.Errorf("%+v", r)
		}
		for i, p := range paths {
			if i < len(r.Gone) && !strings.Contains(r.Gone[i], fmt.Sprintf("after-state of %q", p)) {
				t.Errorf("%q", r.Gone)
			}
		}
	}
	lost("a.txt")
	must(t, os.Remove(kept[0]))
	lost("a.txt", "new.txt")
}

// TestJudgedContentIsBounded: the oldest of what is kept gives way, and what is over the
// bound alone is not kept, which the record says.
func TestJudgedContentIsBounded(t *testing.T) {
	w := newWorld(t, `{"retention":{"judgedBytes":100000}}`, map[string]string{"a.txt": "x\n"})
	c := w.stdio()
	base := c.baseline()
	first := c.verdict(c.changes(base, [3]string{"a.txt", "x\n", "first\n"}), "")
	for i := range 40 {
		c.verdict(c.changes(base, [3]string{"a.txt", "x\n", strings.Repeat(fmt.Sprintf("%05d\n", i), 1500)}), "")
	}
	last := c.verdict(c.changes(base, [3]string{"a.txt", "x\n", "last\n"}, [3]string{"large", "", strings.Repeat("x", 100001)}), "")
	c.exit()
	var sum int64
	for _, p := range w.packs() {
		fi, err := os.Stat(p)
		must(t, err)
		sum += fi.Size()
	}
	if most := int64(100000 + 16*9100); sum > most || sum < 5000 {
		t.Errorf("%d bytes in %d packs", sum, len(w.packs()))
	}
	if r := w.replay(first.receipt()); !r.OK || len(r.Gone) == 0 {
		t.Errorf("%+v", r)
	}
	r := w.replay(last.receipt())
	if gone := strings.Join(r.Gone, "\n"); !strings.Contains(gone, `"large"`) || strings.Contains(gone, `"a.txt"`) {
		t.Errorf("%+v", r)
	}
	if _, out, _ := w.run("", "receipts", "show", last.receipt(), "--json"); !strings.Contains(out, "the content of 1 paths is not kept for a replay") {
		t.Errorf("%.2000s", out)
	}
}
