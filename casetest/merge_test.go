package casetest

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

const nineLines = "1\n2\n3\n4\n5\n6\n7\n8\n9\n"

// mergedNow is what the stored receipt says of merges.
func (w *world) mergedNow(receipt string) []obj {
	w.t.Helper()
	var stored struct{ Evidence struct{ Merged []obj } }
	must(w.t, jsonInto(w.run("receipts", "show", receipt, "--json").out, &stored))
	return stored.Evidence.Merged
}

// seam asks a host for one apply and gives its result.
func (w *world) seam(p *plan) *result {
	w.t.Helper()
	var b struct{ Proposal, Blobs any }
	must(w.t, json.Unmarshal(p.bundle(), &b))
	var in bytes.Buffer
	for i, c := range []struct {
		method string
		params obj
	}{
		{"workspace/putBlob", obj{"blobs": b.Blobs}},
		{"host/applyProposal", obj{"callSite": "interactive", "proposalId": p.id, "intent": "harness", "proposal": b.Proposal}},
	} {
		must(w.t, json.NewEncoder(&in).Encode(obj{"jsonrpc": "2.0", "id": i, "method": c.method, "params": c.params}))
	}
	r := w.runIn(w.root, in.Bytes(), "host", "serve")
	for _, line := range bytes.Split(r.out, []byte("\n")) {
		var m struct {
			ID     any
			Result obj
		}
		if json.Unmarshal(line, &m) == nil && m.ID == 1.0 {
			r.answer = m.Result
		}
	}
	if r.answer["applied"] == false {
		r.code = 1 // as the command says it
	}
	return r
}

// TestMergeIsTold: a merge that the command or the trusted configuration allows is
// named in the answer and in the receipt, with what was expected and what was found.
// A repository cannot allow one, and a command can forbid what is configured.
func TestMergeIsTold(t *testing.T) {
	moved := strings.Replace(nineLines, "8", "eight", 1)
	both := strings.Replace(moved, "2", "two", 1)
	setup := func(t *testing.T, config string) (*world, *plan) {
		w := newWorld(t, map[string]string{"f": nineLines, ".asp/config.json": `{"merge":true}`})
		if config != "" {
			w.config(config)
		}
		p := w.plan().edits("f", nineLines, edit(1, 0, 1, 1, "two"))
		w.write("f", moved, 0o644)
		return w, p
	}
	told := func(w *world, r *result) {
		w.t.Helper()
		w.is("f", both)
		for _, d := range []string{digest(nineLines), digest(moved)} {
			if !strings.Contains(r.str("assurance", "detail"), d) || !strings.Contains(r.str("receipt", "assurance", "detail"), d) {
				w.t.Errorf("the answer does not name %s: %s", d, r)
			}
		}
		m := w.mergedNow(r.str("receipt", "receiptId"))
		if len(m) != 1 || m[0]["path"] != "f" || m[0]["expected"] != digest(nineLines) || m[0]["found"] != digest(moved) || m[0]["made"] != digest(both) {
			w.t.Errorf("evidence: %v", m)
		}
		w.clean()
	}
	for _, c := range []struct {
		name, config string
		flags        []string
		merges       bool
	}{
		{"nobody allows it", "", nil, false},
		{"the command", "", []string{"--merge"}, true},
		{"the configuration", `{"merge":true}`, nil, true},
		{"the command forbids it", `{"merge":true}`, []string{"--merge=false"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, p := setup(t, c.config)
			if dry := p.apply(append(c.flags, "--dry-run")...); (dry.at("wouldApply") == true) != c.merges || strings.Contains(dry.str("assurance", "detail"), digest(moved)) != c.merges {
				t.Errorf("dry run: %s", dry)
			}
			r := p.apply(c.flags...)
			if c.merges {
				told(w, r.applied())
				return
			}
			r.refused("stale-basis", "f")
			if d := r.str("refusal", "detail"); !strings.Contains(d, "expected "+digest(nineLines)) || !strings.Contains(d, "found "+digest(moved)) || !strings.Contains(d, "make the plan again") {
				t.Errorf("%s", d)
			}
			w.is("f", moved)
		})
	}
	t.Run("over the seam", func(t *testing.T) {
		w, p := setup(t, "")
		w.seam(p).refused("stale-basis", "f")
		w.is("f", moved)
		w.config(`{"merge":true}`)
		told(w, w.seam(p).applied())
	})
}

// TestMergeOfEdits: text edits go where they were made, and conflict with what moved in
// their lines or beside them; a whole content is merged by its lines; there are never
// markers, and no operation is done when one conflicts.
func TestMergeOfEdits(t *testing.T) {
	moved := strings.Replace(nineLines, "5", "five", 1)
	for _, c := range []struct {
		name string
		op   func(p *plan) *plan
		want string // "" is a conflict
	}{
		{"edits at both sides", func(p *plan) *plan {
			return p.edits("f", nineLines, edit(0, 0, 0, 0, "zero\n"), edit(8, 0, 8, 1, "nine"))
		}, "zero\n1\n2\n3\n4\nfive\n6\n7\n8\nnine\n"},
		{"a line between", func(p *plan) *plan { return p.edits("f", nineLines, edit(2, 0, 2, 1, "three")) }, "1\n2\nthree\n4\nfive\n6\n7\n8\n9\n"},
		{"the next line", func(p *plan) *plan { return p.edits("f", nineLines, edit(3, 0, 3, 1, "four")) }, ""},
		{"an insert beside", func(p *plan) *plan { return p.edits("f", nineLines, edit(5, 0, 5, 0, "new\n")) }, ""},
		{"a range that spans it", func(p *plan) *plan { return p.edits("f", nineLines, edit(0, 0, 7, 0, "one\n2\n3\n4\n5\n6\n7\n")) }, ""},
		{"the same whole content", func(p *plan) *plan { return p.modify("f", nineLines, strings.Replace(nineLines, "1", "one", 1)) }, "one\n2\n3\n4\nfive\n6\n7\n8\n9\n"},
		{"a whole content that meets it", func(p *plan) *plan { return p.modify("f", nineLines, strings.Replace(nineLines, "5", "V", 1)) }, ""},
		{"a whole content that is no text", func(p *plan) *plan { return p.modify("f", nineLines, "\x00\xff") }, ""},
		{"a delete", func(p *plan) *plan { return p.remove("f", nineLines) }, ""},
		{"a rename and edits of it, twice", func(p *plan) *plan {
			once := strings.Replace(nineLines, "2", "two", 1)
			return p.rename("f", "d/g", nineLines).edits("d/g", nineLines, edit(1, 0, 1, 1, "two")).edits("d/g", once, edit(8, 0, 8, 1, "nine")).rename("d/g", "f2", strings.Replace(once, "9", "nine", 1))
		}, "f2:1\ntwo\n3\n4\nfive\n6\n7\n8\nnine\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, map[string]string{"f": nineLines, "a": "a\n"})
			p := c.op(w.plan().modify("a", "a\n", "A\n"))
			w.write("f", moved, 0o644)
			m := w.mark()
			r := p.apply("--merge")
			if c.want == "" {
				r.refused("merge-conflict", "f")
				if d := r.str("refusal", "detail"); !strings.Contains(d, digest(nineLines)) || !strings.Contains(d, digest(moved)) {
					t.Errorf("%s", d)
				}
				m.unchanged()
				return
			}
			r.applied()
			at, want := "f", c.want
			if name, rest, ok := strings.Cut(c.want, ":"); ok {
				at, want = name, rest
			}
			w.is(at, want)
			w.is("a", "A\n")
			w.clean()
			// An undo takes back what the merge wrote, and leaves what it found.
			if at == "f" {
				w.run("undo", r.str("receipt", "receiptId"), "--json").applied()
				w.is("f", moved)
			}
		})
	}
	t.Run("staged", func(t *testing.T) {
		w := newWorld(t, map[string]string{"f": nineLines})
		p := w.plan().edits("f", nineLines, edit(0, 0, 0, 1, "one"))
		w.write("f", moved, 0o644)
		p.apply("--merge", "--stage").applied()
		w.is("f", moved)
		// Nobody allowed a merge with what is there now.
		w.write("f", moved+"more\n", 0o644)
		w.run("publish", p.id, "--json").refused("stale-basis", "f")
		w.is("f", moved+"more\n")
		// What was staged is what is published.
		w.write("f", moved, 0o644)
		r := w.run("publish", p.id, "--json").applied()
		w.is("f", strings.Replace(moved, "1", "one", 1))
		if m := w.mergedNow(r.str("receipt", "receiptId")); len(m) != 1 || m[0]["found"] != digest(moved) {
			t.Errorf("evidence: %v", m)
		}
		w.clean()
	})
	t.Run("bytes that are kept nowhere", func(t *testing.T) {
		w := newWorld(t, map[string]string{"f": nineLines})
		odd := strings.Replace(nineLines, "1", "odd", 1)
		w.write("f", odd, 0o644)
		p := w.plan().edits("f", odd, edit(1, 0, 1, 1, "two"))
		w.write("f", moved, 0o644)
		r := p.apply("--merge").refused("stale-basis", "f")
		if d := r.str("refusal", "detail"); !strings.Contains(d, "kept nowhere") || !strings.Contains(d, digest(odd)) {
			t.Errorf("%s", d)
		}
	})
}
