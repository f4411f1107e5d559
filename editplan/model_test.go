package editplan_test

import (
	"maps"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/aspengine/asp/editplan"
	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/snapshot"
)

// modelFile is a file of the plain simulation.
type modelFile struct {
	content string
	exec    bool
	made    bool // by the plan, not moved
	asked   bool // a mode was asked for
}

type model map[string]modelFile

func (m model) dir(p string) bool {
	for k := range m {
		if strings.HasPrefix(k, p+"/") {
			return true
		}
	}
	return false
}

// free says why a file cannot come to p, "" if it can.
func (m model) free(p string) refusal.Code {
	for i, c := range p {
		if c == '/' {
			if _, file := m[p[:i]]; file {
				return refusal.PathInvalid
			}
		}
	}
	switch _, file := m[p]; {
	case file:
		return refusal.Exists
	case m.dir(p):
		return "dir"
	}
	return ""
}

// do performs one operation as its words say, or says why not.
func (m model) do(d editplan.Draft) refusal.Code {
	set := func(p string, f modelFile) {
		if d.Mode != editplan.ModeKeep {
			f.exec, f.asked = d.Mode == editplan.ModeExec, true
		}
		m[p] = f
	}
	if d.Kind == editplan.Create {
		if c := m.free(d.Path); c != "" {
			return c
		}
		set(d.Path, modelFile{content: string(d.Content), made: true})
		return ""
	}
	f, ok := m[d.Path]
	switch {
	case !ok && m.dir(d.Path) && d.Kind == editplan.Delete:
		return refusal.NotEmpty
	case !ok && m.dir(d.Path):
		return refusal.NotRegular
	case !ok:
		return refusal.Missing
	case digest(f.content) != d.Expected:
		return refusal.StaleBasis
	}
	switch d.Kind {
	case editplan.Delete:
		delete(m, d.Path)
	case editplan.Rename:
		if c := m.free(d.To); c != "" {
			return c
		}
		delete(m, d.Path)
		set(d.To, f)
	case editplan.Modify:
		switch {
		case d.HasContent:
			f.content = string(d.Content)
		case d.Edits != nil:
			f.content = d.Edits[0].NewText + f.content
		}
		set(d.Path, f)
	}
	return ""
}

// TestResolveModel compares Resolve with the simulation on random plans over
// random workspaces: the same end, or the same first refusal.
func TestResolveModel(t *testing.T) {
	names := []string{"a", "b", "b/x", "b/y", "b/x/z", "c.sh", "d/e.sh"}
	contents := []string{"", "1", "2\n", "3\r\n"}
	rapid.Check(t, func(t *rapid.T) {
		live, m := disk{}, model{}
		for _, n := range names {
			if !rapid.Bool().Draw(t, "has "+n) || m.free(n) != "" {
				continue
			}
			c := rapid.SampledFrom(contents).Draw(t, n)
			live[n], m[n] = c, modelFile{content: c, exec: strings.HasSuffix(n, ".sh")}
		}
		var ops drafts
		first, code := -1, refusal.Code("")
		for range rapid.IntRange(1, 8).Draw(t, "ops") {
			d := editplan.Draft{
				Kind: rapid.SampledFrom([]editplan.OpKind{editplan.Create, editplan.Modify, editplan.Delete, editplan.Rename}).Draw(t, "kind"),
				Path: rapid.SampledFrom(names).Draw(t, "path"),
				Mode: rapid.SampledFrom([]editplan.ModeChange{0, 0, 0, editplan.ModePlain, editplan.ModeExec}).Draw(t, "mode"),
			}
			if d.Kind != editplan.Create {
				d.Expected = digest(m[d.Path].content)
				if rapid.IntRange(0, 15).Draw(t, "stale") == 0 {
					d.Expected = digest("other")
				}
			}
			switch d.Kind {
			case editplan.Delete:
				d.Mode = editplan.ModeKeep
			case editplan.Rename:
				d.To = rapid.SampledFrom(names).Draw(t, "to")
				if d.To == d.Path || strings.HasPrefix(d.To, d.Path+"/") {
					continue // Compile refuses these
				}
			case editplan.Modify:
				if rapid.Bool().Draw(t, "text") {
					d.Edits = edits{ed(0, 0, 0, 0, rapid.SampledFrom(contents[1:]).Draw(t, "insert"))}
					break
				}
				fallthrough
			case editplan.Create:
				d.Content, d.HasContent = []byte(rapid.SampledFrom(contents).Draw(t, "content")), true
			}
			// The simulation goes on with a copy, so that a refused operation has
			// changed nothing.
			next := maps.Clone(m)
			if c := next.do(d); c != "" {
				if first < 0 {
					first, code = len(ops), c
				}
			} else if first < 0 {
				m = next
			}
			ops = append(ops, d)
		}
		if len(ops) == 0 {
			return
		}
		f, err := editplan.NewPlan(editplan.Source{Baseline: snapshot.Baseline{Rev: "tree:x"}}, ops)
		if err != nil {
			t.Fatal(err)
		}
		p, refused, err := editplan.Compile(f, editplan.Limits{}, nil)
		if err != nil || len(refused) > 0 {
			t.Fatalf("compile: %v %v", refused, err)
		}
		nets, refused, err := editplan.Resolve(p, live)
		if err != nil {
			t.Fatal(err)
		}
		if first >= 0 {
			if len(refused) == 0 || refused[0].Op != first {
				t.Fatalf("%v\nrefused %q, want operation %d by %s", ops, refused, first, code)
			}
			got := refused[0].Code
			if code == "dir" && (got == refusal.Exists || got == refusal.NotEmpty) {
				return
			}
			// Both ends of a rename may be at fault; any order will do.
			if got != code && ops[first].Kind != editplan.Rename {
				t.Fatalf("%v\nrefused %q, want %s", ops, refused, code)
			}
			return
		}
		if len(refused) > 0 {
			t.Fatalf("%v\nrefused %q", ops, refused)
		}
		check(t, live, m, nets, p)
	})
}

// check performs net changes on the workspace and compares with the model.
func check(t *rapid.T, live disk, m model, nets []editplan.Net, p *editplan.Plan) {
	got := model{}
	for n, c := range live {
		got[n] = modelFile{content: c, exec: live.exec(n)}
	}
	for _, n := range nets {
		name := n.Path.String()
		if n.Before == n.After && n.From.IsZero() {
			t.Fatalf("a change that changes nothing: %+v", n)
		}
		if n.After.Kind == editplan.Absent {
			delete(got, name)
			continue
		}
		var c string
		switch n.Content {
		case editplan.ContentSame:
			c = live[name]
		case editplan.ContentLive:
			c = live[n.From.String()]
		case editplan.ContentBlob:
			c = string(p.Blobs[n.After.Digest])
		case editplan.ContentEdits:
			c = string(n.Bytes)
		}
		if digest(c) != n.After.Digest || int64(len(c)) != n.After.Size {
			t.Fatalf("content %q is not what %+v says", c, n)
		}
		if n.Moved && (n.Before.Kind != editplan.Absent || live[n.From.String()] != c) {
			t.Fatalf("no pure move: %+v", n)
		}
		got[name] = modelFile{content: c, exec: n.After.Exec}
	}
	for n, f := range m {
		if g, ok := got[n]; !ok || g.content != f.content || g.exec != f.exec {
			t.Fatalf("%s is %+v, want %+v\nnets %q", n, g, f, show(nets, live, p))
		}
	}
	if len(got) != len(m) {
		t.Fatalf("got %v, want %v", got, m)
	}
}
