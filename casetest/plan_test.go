package casetest

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"unicode/utf8"
)

// obj is a JSON object being built.
type obj = map[string]any

// digest is the blob id of bytes.
func digest(b string) string {
	s := sha256.Sum256([]byte(b))
	return "blob:sha256:" + hex.EncodeToString(s[:])
}

// plan is an EditPlan under construction, as a provider would send it.
type plan struct {
	w        *world
	id       string
	provider string
	baseline obj
	ops      []obj
	blobs    []obj
	current  []string           // validAsOf.blobs
	shape    func(proposal obj) // a last change, to make it wrong
}

// baselineNow asks the binary for the present baseline.
func (w *world) baselineNow() obj {
	w.t.Helper()
	r := w.run("status", "--json")
	b, ok := r.at("workspace", "baseline").(obj)
	if !ok {
		w.t.Fatalf("no baseline: %s", r)
	}
	return b
}

// plan starts a plan on the present state, with an id of its own.
func (w *world) plan() *plan {
	w.t.Helper()
	*w.proposal++
	return &plan{w: w, id: fmt.Sprintf("case-%d", *w.proposal), provider: "case", baseline: w.baselineNow()}
}

// edit is one text edit: [l,c]-[l,c] -> text.
func edit(l1, c1, l2, c2 int, text string) obj {
	return obj{"range": obj{"start": obj{"line": l1, "char": c1}, "end": obj{"line": l2, "char": c2}}, "coordinateSystem": "utf16", "newText": text}
}

func (p *plan) op(o obj) *plan { p.ops = append(p.ops, o); return p }

// blob adds content to the bundle.
func (p *plan) blob(b string) string {
	o := obj{"encoding": "base64", "bytes": base64.StdEncoding.EncodeToString([]byte(b))}
	if utf8.ValidString(b) && len(p.blobs)%2 == 0 { // both forms are used
		o = obj{"encoding": "utf-8", "bytes": b}
	}
	p.blobs = append(p.blobs, o)
	return digest(b)
}

func (p *plan) edits(path, basis string, es ...obj) *plan {
	list := []any{}
	for _, e := range es {
		c := obj{"rangeBasis": digest(basis)}
		for k, v := range e {
			c[k] = v
		}
		list = append(list, c)
	}
	return p.op(obj{"path": path, "kind": "modify", "precondition": obj{"expectedDigest": digest(basis)}, "edits": list})
}

func (p *plan) modify(path, basis, after string) *plan {
	return p.op(obj{"path": path, "kind": "modify", "precondition": obj{"expectedDigest": digest(basis)}, "after": p.blob(after)})
}

func (p *plan) create(path, after string) *plan {
	return p.op(obj{"path": path, "kind": "create", "precondition": obj{"expectedAbsence": true}, "after": p.blob(after)})
}

func (p *plan) remove(path, basis string) *plan {
	return p.op(obj{"path": path, "kind": "delete", "precondition": obj{"expectedDigest": digest(basis)}})
}

func (p *plan) rename(path, to, basis string) *plan {
	return p.op(obj{"path": path, "to": to, "kind": "rename", "precondition": obj{"expectedDigest": digest(basis)}})
}

// executable marks the last operation.
func (p *plan) executable() *plan {
	p.ops[len(p.ops)-1]["annotations"] = []any{obj{"message": "mode 100755", "data": obj{"mode": "100755"}}}
	return p
}

// bundle is the plan file.
func (p *plan) bundle() []byte {
	p.w.t.Helper()
	touched, seen := []any{}, map[string]bool{}
	for _, o := range p.ops {
		t := obj{"path": o["path"], "kind": o["kind"], "precondition": o["precondition"]}
		if to, ok := o["to"]; ok {
			t["to"] = to
		}
		b, _ := json.Marshal(t)
		if !seen[string(b)] {
			seen[string(b)] = true
			touched = append(touched, t)
		}
	}
	if p.current == nil {
		p.current = []string{}
	}
	proposal := obj{
		"proposalId": p.id, "status": "complete", "baseline": p.baseline,
		"provider":         obj{"id": p.provider, "version": "1", "capabilityFamily": "edit", "capabilityVersion": "edit/1.0", "configDigest": "none"},
		"validAsOf":        obj{"baseline": p.baseline, "blobs": p.current},
		"touchedResources": touched,
		"workspaceEdit":    obj{"baseline": p.baseline, "documentChanges": p.ops},
	}
	if p.shape != nil {
		p.shape(proposal)
	}
	blobs := p.blobs
	if blobs == nil {
		blobs = []obj{}
	}
	b, err := json.Marshal(obj{"proposal": proposal, "blobs": blobs})
	must(p.w.t, err)
	return b
}

// file writes the plan file outside the workspace.
func (p *plan) file() string {
	p.w.t.Helper()
	name := filepath.Join(p.w.base, fmt.Sprintf("plan-%s.json", digest(p.id)[12:24]))
	must(p.w.t, os.WriteFile(name, p.bundle(), 0o644))
	return name
}

// apply hands the plan to the binary.
func (p *plan) apply(flags ...string) *result {
	p.w.t.Helper()
	return p.w.run(append([]string{"apply", "--plan", p.file(), "--json"}, flags...)...)
}
