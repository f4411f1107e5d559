package editplan_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/aspengine/asp/editplan"
)

// lspModel performs LSP operations on a plain map, by the words of the
// specification. Directories are what is before a slash.
type lspModel map[string]string

func (m lspModel) dir(p string) bool {
	for k := range m {
		if strings.HasPrefix(k, p+"/") {
			return true
		}
	}
	return false
}

func (m lspModel) has(p string) bool { _, ok := m[p]; return ok || m.dir(p) }

// blocked: a parent is a file, so nothing can be made at p.
func (m lspModel) blocked(p string) bool {
	for i := range p {
		if p[i] == '/' {
			if _, file := m[p[:i]]; file {
				return true
			}
		}
	}
	return false
}

type options struct{ overwrite, ignore, recursive, ignoreMissing bool }

func (m lspModel) create(p string, o options) bool {
	_, file := m[p]
	switch {
	case m.blocked(p):
		return false
	case !m.has(p), file && o.overwrite:
		m[p] = ""
		return true
	case o.overwrite:
		return false // a directory
	}
	return o.ignore
}

func (m lspModel) delete(p string, o options) bool {
	if _, file := m[p]; file {
		delete(m, p)
		return true
	}
	if !m.dir(p) {
		return o.ignoreMissing
	}
	if o.recursive {
		maps.DeleteFunc(m, func(k, _ string) bool { return strings.HasPrefix(k, p+"/") })
	}
	return o.recursive
}

func (m lspModel) rename(from, to string, o options) bool {
	if from == to {
		return true
	}
	content, file := m[from]
	if !m.has(from) {
		return false
	}
	_, overFile := m[to]
	switch {
	case m.has(to) && o.overwrite && !(file && overFile):
		return false
	case m.has(to) && !o.overwrite:
		return o.ignore
	}
	if strings.HasPrefix(to, from+"/") || m.blocked(to) {
		return false
	}
	if file {
		delete(m, from)
		m[to] = content
		return true
	}
	for k, c := range maps.Clone(m) {
		if rest, ok := strings.CutPrefix(k, from+"/"); ok {
			delete(m, k)
			m[to+"/"+rest] = c
		}
	}
	return true
}

// edit makes text edits of a file.
func (m lspModel) edit(p string, edits []lspEdit) bool {
	c, ok := m[p]
	if ok {
		c, ok = lspApply(c, edits)
	}
	if ok {
		m[p] = c
	}
	return ok
}

// TestImportModel compares the importer with the model on random edits: the
// same files in the end, or both refuse.
func TestImportModel(t *testing.T) {
	done, edited := 0, 0
	rapid.Check(t, importModel(&done, &edited))
	t.Logf("%d outcomes, %d with text edits", done, edited)
	if done < 5 || edited < 2 {
		t.Errorf("only %d outcomes, %d with text edits: the model is hardly tried", done, edited)
	}
}

// FuzzImportModel is TestImportModel for as long as one likes.
func FuzzImportModel(f *testing.F) { f.Fuzz(rapid.MakeFuzz(importModel(new(int), new(int)))) }

// importModel counts the trials that had an outcome, and those that edited text.
func importModel(outcomes, edited *int) func(*rapid.T) {
	names := []string{"a", "b", "d", "d/x", "d/y", "d/s/z", "e/f"}
	return func(t *rapid.T) {
		live, m := disk{}, lspModel{}
		for _, n := range names {
			if rapid.Bool().Draw(t, n) && !m.has(n) && !m.blocked(n) {
				live[n] = drawDoc(t, n)
				m[n] = live[n]
			}
		}
		pick := func(l string) string { return rapid.SampledFrom(names).Draw(t, l) }
		var changes []string
		ok, texts := true, 0
		for range rapid.IntRange(1, 6).Draw(t, "changes") {
			o := options{rapid.Bool().Draw(t, "overwrite"), rapid.Bool().Draw(t, "ignore"), rapid.Bool().Draw(t, "recursive"), rapid.Bool().Draw(t, "ignore missing")}
			json := fmt.Sprintf(`"overwrite":%v,"ignoreIfExists":%v`, o.overwrite, o.ignore)
			p := pick("path")
			next := maps.Clone(m)
			var done bool
			switch rapid.IntRange(0, 5).Draw(t, "kind") {
			case 0:
				done = next.create(p, o)
				changes = append(changes, fileOp("create", p, json))
			case 1:
				done = next.delete(p, o)
				changes = append(changes, fileOp("delete", p, fmt.Sprintf(`"recursive":%v,"ignoreIfNotExists":%v`, o.recursive, o.ignoreMissing)))
			case 2:
				to := pick("to")
				done = next.rename(p, to, o)
				changes = append(changes, move(p, to, json))
			default:
				if _, file := m[p]; !file && len(m) > 0 && rapid.IntRange(0, 9).Draw(t, "there") > 0 {
					p = rapid.SampledFrom(slices.Sorted(maps.Keys(m))).Draw(t, "file")
				}
				edits := drawEdits(t, m[p])
				done = next.edit(p, edits)
				changes = append(changes, tde(p, lspJSON(edits)...))
				texts++
			}
			if ok = ok && done; ok {
				m = next
			}
		}
		in := dc(changes...)
		got, err := editplan.ImportWorkspaceEdit([]byte(in), view(live), editplan.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if ok != (len(got.Refused) == 0) {
			t.Fatalf("%s\non %q: refused %q, the model says %v", in, live, got.Refused, ok)
		}
		if !ok {
			return
		}
		if *outcomes++; texts > 0 {
			*edited++
		}
		end := performed(t, got.File, live)
		if !maps.Equal(end, disk(m)) {
			t.Fatalf("%s\non %q\n got %q\nwant %q\n%q", in, live, end, m, slices.Collect(maps.Keys(end)))
		}
	}
}

// performed is what a plan leaves of live.
func performed(t *rapid.T, f editplan.File, live disk) disk {
	p, refused, err := editplan.Compile(f, editplan.Limits{}, nil)
	if err != nil || len(refused) > 0 {
		t.Fatalf("compile: %v %v", refused, err)
	}
	nets, refused, err := editplan.Resolve(p, live)
	if err != nil || len(refused) > 0 {
		t.Fatalf("resolve: %v %v", refused, err)
	}
	end := maps.Clone(live)
	for _, n := range nets {
		switch n.Content {
		case editplan.ContentNone:
			delete(end, n.Path.String())
		case editplan.ContentBlob:
			end[n.Path.String()] = string(p.Blobs[n.After.Digest])
		case editplan.ContentEdits:
			end[n.Path.String()] = string(n.Bytes)
		case editplan.ContentLive:
			end[n.Path.String()] = live[n.From.String()]
		}
	}
	return end
}

func lspJSON(edits []lspEdit) []string {
	var out []string
	for _, e := range edits {
		out = append(out, te(e.from.line, e.from.char, e.to.line, e.to.char, e.text))
	}
	return out
}

// TestChangesModel is the older form, a list of edits for each file without order
// among the files, by the same model.
func TestChangesModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		live, want := disk{}, disk{}
		var members []string
		ok := true
		for _, n := range []string{"a", "d/x", "d/y"} {
			live[n] = drawDoc(t, n)
			want[n] = live[n]
			if !rapid.Bool().Draw(t, "edit "+n) {
				continue
			}
			edits := drawEdits(t, live[n])
			after, fine := lspApply(live[n], edits)
			if ok = ok && fine; fine {
				want[n] = after
			}
			members = append(members, `"file:///w/`+n+`":[`+strings.Join(lspJSON(edits), ",")+`]`)
		}
		in := `{"changes":{` + strings.Join(members, ",") + `}}`
		got, err := editplan.ImportWorkspaceEdit([]byte(in), view(live), editplan.Limits{})
		if err != nil || ok != (len(got.Refused) == 0) {
			t.Fatalf("%s\non %q: refused %q, the model says %v (%v)", in, live, got.Refused, ok, err)
		}
		if !ok || len(members) == 0 {
			return
		}
		if end := performed(t, got.File, live); !maps.Equal(end, want) {
			t.Fatalf("%s\non %q\n got %q\nwant %q", in, live, end, want)
		}
	})
}
