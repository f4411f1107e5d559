// Package gofix is the bundled edit and inspect provider for Go: rename and
// organize-imports as plans, references as an answer, all three by gopls. It
// works in a scratch directory of its own, made of the module's files as the host
// serves them; gopls never sees the workspace. Without gopls and go it says
// unsupported to everything.
//
// Both programs are named by absolute path when the provider is started. They run
// without network and with an environment of their own. Modules that the go
// command would have to fetch are not there: what depends on them is not resolved,
// and a rename that touches it may fail.
package gofix

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/aspengine/asp/provider"
)

// Tools are the programs that gofix runs: absolute paths, or nothing. ModCache is a
// module cache that the go command may read; where empty it has none.
type Tools struct{ Gopls, Go, ModCache string }

// Find completes what is not named by looking along a PATH. What is not there, or
// is there without its other half, stays empty.
func (t Tools) Find(path string) Tools {
	if t = t.complete(path); t.Gopls == "" || t.Go == "" {
		return Tools{ModCache: t.ModCache}
	}
	return t
}

// Missing names the programs that Find does not find.
func (t Tools) Missing(path string) []string {
	var out []string
	t = t.complete(path)
	if t.Gopls == "" {
		out = append(out, "gopls")
	}
	if t.Go == "" {
		out = append(out, "go")
	}
	return out
}

func (t Tools) complete(path string) Tools {
	look := func(name string) string {
		for _, dir := range filepath.SplitList(path) {
			if !filepath.IsAbs(dir) {
				continue
			}
			if p, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
				if p, err = filepath.EvalSymlinks(p); err == nil {
					return p
				}
			}
		}
		return ""
	}
	if t.Gopls == "" {
		t.Gopls = look("gopls")
	}
	if t.Go == "" {
		t.Go = look("go")
	}
	return t
}

// Paths lists the programs that are there.
func (t Tools) Paths() []string {
	return slices.DeleteFunc([]string{t.Gopls, t.Go}, func(s string) bool { return s == "" })
}

// Args are the arguments that name the programs.
func (t Tools) Args() []string {
	var out []string
	if t.Gopls != "" {
		out = append(out, "--gopls", t.Gopls)
	}
	if t.Go != "" {
		out = append(out, "--go", t.Go)
	}
	return out
}

// The bounds of a module copy.
const (
	maxFiles = 20_000
	maxBytes = 256 << 20
)

// New describes the provider.
func New(version string, tools Tools) *provider.Provider {
	g := &gofix{tools}
	return &provider.Provider{
		ID: "gofix", Name: "Go fix", Version: version, Environment: []string{"GOMODCACHE"},
		Edit: &provider.Edit{
			Operations: []string{"rename", "organize-imports"},
			Kinds:      []provider.ChangeKind{provider.Modify},
			Run:        g.edit,
		},
		Inspect: &provider.Inspect{Verbs: []string{"references"}, Run: g.inspect},
	}
}

type gofix struct{ tools Tools }

// ready says why nothing can be done, where that is so.
func (g *gofix) ready() error {
	if g.tools.Gopls == "" || g.tools.Go == "" {
		return &provider.Unsupported{Reason: "operation", Detail: "gopls and go are not there: install both, then enrol a new manifest (asp provider gofix --print-manifest)"}
	}
	return nil
}

// renameArgs name a symbol by a place in a file.
type renameArgs struct {
	Path     string            `json:"path"`
	Position provider.Position `json:"position"`
	NewName  string            `json:"newName"`
}

func (g *gofix) edit(ctx context.Context, h *provider.Host, r *provider.EditRequest) (*provider.Plan, error) {
	if err := g.ready(); err != nil {
		return nil, err
	}
	switch r.Operation {
	case "rename":
		var a renameArgs
		if err := r.Args.Decode(&a); err != nil {
			return nil, err
		}
		if !identifier(a.NewName) {
			return nil, provider.InputError("newName %.100q is no identifier", a.NewName)
		}
		m, err := g.open(ctx, h, a.Path)
		if err != nil {
			return nil, err
		}
		defer m.close()
		at, err := m.place(a.Path, a.Position)
		if err != nil {
			return nil, err
		}
		if _, err := m.gopls(ctx, "rename", "-w", at, a.NewName); err != nil {
			return nil, err
		}
		return m.plan(r)
	case "organize-imports":
		files, err := g.goFiles(ctx, h, r)
		if err != nil {
			return nil, err
		}
		m, err := g.open(ctx, h, files[0])
		if err != nil {
			return nil, err
		}
		defer m.close()
		for _, f := range files {
			if m.files[f] == nil {
				return nil, provider.InputError("%.200q is in another module than %.200q: one request for each", f, files[0])
			}
			if _, err := m.gopls(ctx, "imports", "-w", filepath.Join(m.dir, filepath.FromSlash(f))); err != nil {
				return nil, err
			}
		}
		return m.plan(r)
	}
	return nil, &provider.Unsupported{Detail: r.Operation}
}

// goFiles lists the Go files that a request may touch.
func (g *gofix) goFiles(ctx context.Context, h *provider.Host, r *provider.EditRequest) ([]string, error) {
	var none struct{}
	if err := r.Args.Decode(&none); err != nil {
		return nil, err
	}
	t, err := h.ListTree(ctx, []string{"**/*.go"}, nil)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range t.Entries {
		if e.Kind == "file" && strings.HasSuffix(e.Path, ".go") && r.Touches(e.Path) {
			out = append(out, e.Path)
		}
	}
	switch {
	case len(out) == 0:
		return nil, &provider.Unsupported{Reason: "language", Detail: "no Go file is in the requested scope"}
	case len(out) > 100:
		return nil, provider.InputError("%d files; at most 100 in one request", len(out))
	}
	slices.Sort(out)
	return out, nil
}

func identifier(s string) bool {
	for i, c := range s {
		if !(c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c > 0x7f || i > 0 && c >= '0' && c <= '9') {
			return false
		}
	}
	return s != "" && s != "_" && len(s) <= 200
}

func (g *gofix) inspect(ctx context.Context, h *provider.Host, r *provider.InspectRequest) (*provider.Answer, error) {
	if err := g.ready(); err != nil {
		return nil, err
	}
	if r.Path == "" || r.Position == nil {
		return nil, &provider.Unsupported{Detail: "references are asked by path and position here"}
	}
	m, err := g.open(ctx, h, r.Path)
	if err != nil {
		return nil, err
	}
	defer m.close()
	at, err := m.place(r.Path, *r.Position)
	if err != nil {
		return nil, err
	}
	out, err := m.gopls(ctx, "references", "-d", at)
	if err != nil {
		return nil, err
	}
	a := &provider.Answer{}
	for _, line := range strings.Split(strings.TrimSpace(out), "\n") {
		if loc, ok := m.location(line); ok && (r.Scope.Paths == nil || r.Scope.Holds(loc.Path)) {
			a.Nodes = append(a.Nodes, provider.Node{ID: fmt.Sprintf("%s:%d:%d", loc.Path, loc.Range.Start.Line, loc.Range.Start.Char), Kind: "file", Name: loc.Path, Location: loc})
		}
	}
	return a, nil
}
