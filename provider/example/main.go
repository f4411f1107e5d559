// Command example is a whole edit provider: on text-edit it puts a line at the top
// of every file in the scope that does not begin with it. docs/provider.md walks
// through it.
package main

import (
	"bytes"
	"context"
	"os"

	"github.com/aspengine/asp/provider"
)

type args struct {
	Header string `json:"header"`
}

func propose(ctx context.Context, h *provider.Host, r *provider.EditRequest) (*provider.Plan, error) {
	var a args
	if err := r.Args.Decode(&a); err != nil {
		return nil, err
	}
	tree, err := h.ListTree(ctx, nil, nil)
	if err != nil {
		return nil, err
	}
	plan := &provider.Plan{Rationale: "every file begins with the header"}
	for _, e := range tree.Entries {
		if e.Kind != "file" || !r.Touches(e.Path) {
			continue
		}
		content, err := h.ReadBlob(ctx, e.BlobID)
		if err != nil {
			return nil, err
		}
		f := &provider.File{Path: e.Path, ID: e.BlobID, Content: content}
		if !f.Text().Valid() || bytes.HasPrefix(content, []byte(a.Header+"\n")) {
			continue
		}
		if err := plan.Edit(f, 0, 0, a.Header+"\n"); err != nil {
			return nil, err
		}
	}
	return plan, nil
}

func header() *provider.Provider {
	return &provider.Provider{
		ID: "header", Version: "1.0.0", Publisher: "me", License: "MIT", Profiles: []string{"header-1"},
		Edit: &provider.Edit{Operations: []string{"text-edit"}, Kinds: []provider.ChangeKind{provider.Modify}, Run: propose},
	}
}

func main() { os.Exit(provider.Main(header())) }
