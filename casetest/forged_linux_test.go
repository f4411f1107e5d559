package casetest

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// forged is what a foreign text tries to say in asp's own voice, on a line of its own.
// The line ends are those that a terminal or a program that reads lines may know.
const forged = "\nFORGED     workspace_transactional\rFORGED\u2028FORGED\u2029FORGED\u0085FORGED\x1b[2K"

// unforged fails if a line of an answer starts with the forged text, or a line end came
// through another way.
func (r *result) unforged() {
	r.t.Helper()
	for _, out := range []string{string(r.out), r.errs} {
		for l := range strings.Lines(out) {
			if strings.HasPrefix(l, "FORGED") || strings.ContainsAny(l, "\r\u2028\u2029\u0085\x1b") {
				r.t.Errorf("%q says %q", r.args, l)
			}
		}
	}
	if !strings.Contains(string(r.out)+r.errs, "FORGED") {
		r.t.Errorf("shows no foreign text, so it shows nothing here: %s", r)
	}
}

// TestForeignTextForgesNoLine goes through the commands that show what others wrote:
// ids of plans, names of files, findings, the output of a check.
func TestForeignTextForgesNoLine(t *testing.T) {
	w := newWorld(t, map[string]string{"a": "a\n", "b": "b\n", "c": "c\n"})
	w.policy(w.enrol("secrets", "gated"))
	w.config(`{"checks":{"loud":{"argv":["sh","-c","printf 'one\\nFORGED\\rFORGED\\033[2K\\n'; exit 1"],"callSites":["sweep"]}}}`)
	id, name := "p"+forged, "q"+forged
	named := func(id string, p *plan) string { p.id = id; return p.file() }
	receipt := func() string {
		t.Helper()
		ids := w.receipts()
		return ids[len(ids)-1]["receiptId"].(string)
	}

	w.run("apply", "--plan", named(id+"d", w.plan().create(name, "new\n")), "--dry-run").exits(0).unforged()
	w.run("apply", "--plan", named(id+"r", w.plan().modify(name, "other\n", "new\n"))).exits(1).unforged()
	w.run("receipts", "show", receipt()).exits(0).unforged()
	first := named(id, w.plan().create(name, "new\n"))
	w.run("apply", "--plan", first).exits(0).unforged()
	done := receipt()
	w.run("apply", "--plan", first).exits(0).unforged() // unchanged
	w.run("receipts", "show", done).exits(0).unforged()
	w.run("receipts", "list").exits(0).unforged()
	w.run("status").exits(0).unforged()
	w.write(name, "edited\n", 0o644)
	w.run("apply", "--plan", first).exits(0).unforged() // overtaken
	w.run("undo", done).exits(1).unforged()
	loud := w.run("apply", "--plan", named(id+"l", w.plan().modify("a", "a\n", "A\n")), "--call-site", "sweep", "--check", "loud").exits(1)
	if loud.unforged(); !bytes.Contains(loud.out, []byte("           | one\n           | FORGED\\rFORGED\\u001b[2K\n")) {
		t.Errorf("the output of a check is no longer shown in its lines: %s", loud)
	}
	w.run("receipts", "show", receipt()).exits(0).unforged()

	w.write(name, "key = \"AKIA"+"Q3EGVZ7WXK2LMN4P\"\n", 0o644)
	w.run("check", "--changed", "--call-site", "gate").exits(1).unforged()
	w.run("ci", "verify", "--changed-from", "HEAD").exits(1).unforged()
	edit, err := json.Marshal(obj{"changes": obj{}, "documentChanges": []obj{{"kind": "delete", "uri": "file:///elsewhere/" + "q%0AFORGED"}}})
	must(t, err)
	w.run("plan", "--workspace-edit", w.beside("edit.json", string(edit), 0o644)).exits(1).unforged()

	// What an interrupted transaction names is shown by whoever ends it.
	w.mixed(w.keep(), "apply", "--json", "--plan", named(id+"3", w.plan().modify("a", "a\n", "A\n").modify("b", "b\n", "B\n").modify("c", "c\n", "C\n")))
	w.run("recover").exits(0).unforged()
}
