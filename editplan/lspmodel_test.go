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

// insert puts text at a character of line 0, or at its end.
func (m lspModel) insert(p string, char int, text string) bool {
	c, ok := m[p]
	if !ok {
		return false
	}
	line, _, _ := strings.Cut(c, "\n")
	at := min(char, len(line))
	m[p] = c[:at] + text + c[at:]
	return true
}

// TestImportModel compares the importer with the model on random edits: the
// same files in the end, or both refuse.
func TestImportModel(t *testing.T) {
	names := []string{"a", "b", "d", "d/x", "d/y", "d/s/z", "e/f"}
	rapid.Check(t, func(t *rapid.T) {
		live, m := disk{}, lspModel{}
		for _, n := range names {
			if rapid.Bool().Draw(t, n) && !m.has(n) && !m.blocked(n) {
				live[n] = "line of " + n + "\nsecond\n"
				m[n] = live[n]
			}
		}
		pick := func(l string) string { return rapid.SampledFrom(names).Draw(t, l) }
		var changes []string
		ok := true
		for range rapid.IntRange(1, 6).Draw(t, "changes") {
			o := options{rapid.Bool().Draw(t, "overwrite"), rapid.Bool().Draw(t, "ignore"), rapid.Bool().Draw(t, "recursive"), rapid.Bool().Draw(t, "ignore missing")}
			json := fmt.Sprintf(`"overwrite":%v,"ignoreIfExists":%v`, o.overwrite, o.ignore)
			p := pick("path")
			next := maps.Clone(m)
			var done bool
			switch rapid.IntRange(0, 3).Draw(t, "kind") {
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
			case 3:
				char := rapid.IntRange(0, 20).Draw(t, "char")
				done = next.insert(p, char, "<>")
				changes = append(changes, tde(p, te(0, char, 0, char, "<>")))
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
			t.Fatalf("%s\non %v: refused %q, the model says %v", in, live, got.Refused, ok)
		}
		if !ok {
			return
		}
		p, refused, err := editplan.Compile(got.File, editplan.Limits{}, nil)
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
		if !maps.Equal(end, disk(m)) {
			t.Fatalf("%s\non %v\n got %v\nwant %v\n%q", in, live, end, m, slices.Collect(maps.Keys(end)))
		}
	})
}
