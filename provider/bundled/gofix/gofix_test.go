package gofix_test

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/internal/need"
	"github.com/aspengine/asp/provider/bundled/gofix"
	"github.com/aspengine/asp/provider/providertest"
	"github.com/aspengine/asp/seam/wire"
)

// sample imports nothing of the library: to look at that takes gopls seconds.
var sample = map[string]string{
	"go.mod":       "module example.org/m\n\ngo 1.24\n",
	"a.go":         "package m\n\n// ü😀 Old is old.\nfunc Old() int { return 1 }\n",
	"sub/b.go":     "package sub\n\nimport \"example.org/m\"\n\nfunc Use() int {\n\t/* 😀 */ return m.Old() + m.Old()\n}\n",
	"f.go":         "package m\n\nfunc f() {}\n",
	"other/go.mod": "module example.org/other\n",
	"other/c.go":   "package other\n\nfunc Old() {}\n",
	"README.md":    "Old\n",
}

// TestWithoutTools: what cannot be done is said, and costs no failure.
func TestWithoutTools(t *testing.T) {
	h := providertest.Open(t, gofix.New("1", gofix.Tools{}), sample)
	for _, op := range []string{"rename", "organize-imports", "move"} {
		p := h.Propose(op, []string{"."}, "")
		if p.Status != wire.StatusUnsupported || p.Unsupported.Operation != op || op != "move" && !strings.Contains(p.Unsupported.Detail, "gopls") {
			t.Errorf("%s: %+v", op, p)
		}
	}
	_, e := h.Call("inspect/references", canon.ObjectOf(canon.Member{Key: "symbol", Value: canon.ObjectOf(canon.Member{Key: "id", Value: canon.StringOf("x")})}))
	if e == nil || e.Data.FailClass != wire.FailContract || !strings.Contains(e.Message, "gopls") {
		t.Errorf("references: %+v", e)
	}
}

// tools are those of this machine. gopls is no part of a Go installation: CI builds it,
// and make bin/tools/gopls does.
func tools(t *testing.T) gofix.Tools {
	t.Helper()
	need.Tool(t, "gopls")
	need.Tool(t, "go")
	x := gofix.Tools{}.Find(os.Getenv("PATH"))
	if len(x.Paths()) != 2 {
		t.Fatalf("gopls and go are on PATH, and found is %+v", x)
	}
	return x
}

func TestGopls(t *testing.T) {
	x := tools(t)
	h := providertest.Open(t, gofix.New("1", x), sample)
	t.Run("rename", func(t *testing.T) {
		p := h.Propose("rename", []string{"."}, `{"path":"sub/b.go","position":{"line":5,"char":19},"newName":"New"}`)
		if p.Status != wire.StatusComplete {
			t.Fatalf("%s %+v %+v", p.Status, p.Incomplete, p.Unsupported)
		}
		var got []string
		for _, c := range p.WorkspaceEdit.DocumentChanges {
			for _, e := range c.Edits {
				got = append(got, fmt.Sprintf("%s %d:%d-%d %q", c.Path, e.Range.Start.Line, e.Range.Start.Char, e.Range.End.Char, e.NewText))
			}
		}
		want := []string{`a.go 2:7-10 "New"`, `a.go 3:5-8 "New"`, `sub/b.go 5:19-32 "New() + m.New"`}
		if !slices.Equal(got, want) {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	})
	t.Run("out of scope", func(t *testing.T) {
		p := h.Propose("rename", []string{"a.go"}, `{"path":"a.go","position":{"line":3,"char":5},"newName":"New"}`)
		if p.Status != wire.StatusIncomplete || p.Incomplete.Reason != "partial-coverage" {
			t.Errorf("%s %+v", p.Status, p.Incomplete)
		}
	})
	t.Run("organize-imports", func(t *testing.T) {
		h := providertest.Open(t, gofix.New("1", x), map[string]string{"go.mod": sample["go.mod"], "imports.go": "package m\n\nimport \"os\"\n\nfunc f() { fmt.Println() }\n"})
		p := h.Propose("organize-imports", []string{"imports.go"}, "")
		if p.Status != wire.StatusComplete || p.WorkspaceEdit.DocumentChanges[0].Edits[0].NewText != "fmt" {
			t.Errorf("%s %+v %+v", p.Status, p.WorkspaceEdit, p.Incomplete)
		}
	})
	t.Run("references", func(t *testing.T) {
		v, e := h.Call("inspect/references", wire.ReferencesParams{Symbol: wire.SymbolRef{Path: "a.go", Position: &wire.Position{Line: 3, Char: 5}}})
		if e != nil {
			t.Fatal(e)
		}
		var g wire.GraphResult
		if err := wire.Decode(v, &g); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, n := range g.Nodes {
			got = append(got, n.ID)
		}
		slices.Sort(got)
		if want := []string{"a.go:3:5", "sub/b.go:5:19", "sub/b.go:5:29"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if len(g.ValidAsOf.Blobs) != len(h.Served) {
			t.Errorf("validAsOf %v", g.ValidAsOf)
		}
	})
	t.Run("refused", func(t *testing.T) {
		for _, args := range []string{`{"path":"a.go","position":{"line":99,"char":0},"newName":"New"}`, `{"path":"a.go","position":{"line":3,"char":5},"newName":"a b"}`,
			`{"path":"a.go","position":{"line":3,"char":5},"newName":"f"}`, `{"path":"gone.go","position":{"line":0,"char":0},"newName":"x"}`} {
			v, err := canon.Parse([]byte(args), canon.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			_, e := h.Call(wire.MethodPropose, wire.ProposeParams{Operation: "rename", Baseline: h.Baseline, ProposalID: "proposal:1", Scope: wire.EditScope{Paths: []string{"."}}, Args: v})
			if e == nil || e.Data.FailClass != wire.FailInput || strings.Contains(e.Message, os.TempDir()+"/asp-gofix") {
				t.Errorf("%s: %+v", args, e)
			}
		}
	})
	left, err := os.ReadDir(os.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range left {
		if strings.HasPrefix(e.Name(), "asp-gofix-") {
			t.Errorf("%s was left behind", e.Name())
		}
	}
}

func TestFind(t *testing.T) {
	if x := (gofix.Tools{}).Find("relative:/nowhere"); len(x.Paths()) != 0 {
		t.Errorf("%+v", x)
	}
	for want, x := range map[string]gofix.Tools{"[gopls go]": {}, "[go]": {Gopls: "/x/gopls"}, "[gopls]": {Go: "/x/go"}, "[]": {Gopls: "/x/gopls", Go: "/x/go"}} {
		if got := fmt.Sprint(x.Missing("relative:/nowhere")); got != want {
			t.Errorf("%+v: %s is missing, want %s", x, got, want)
		}
	}
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("go is not on PATH")
	}
	if x := (gofix.Tools{Gopls: "/x/gopls"}).Find(os.Getenv("PATH")); x.Go == "" || x.Gopls != "/x/gopls" || !slices.Equal(x.Args(), []string{"--gopls", "/x/gopls", "--go", x.Go}) {
		t.Errorf("%+v", x)
	}
}
