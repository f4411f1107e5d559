package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/aspengine/asp/provider/providertest"
	"github.com/aspengine/asp/seam/wire"
)

func TestHeader(t *testing.T) {
	h := providertest.Open(t, header(), map[string]string{"a.go": "package a\n", "b.go": "// mine\npackage b\n", "raw": "\xff", "doc/c": "x"})
	p := h.Propose("text-edit", []string{"*.go", "raw"}, `{"header":"// mine"}`)
	if p.Status != wire.StatusComplete || len(p.WorkspaceEdit.DocumentChanges) != 1 || p.WorkspaceEdit.DocumentChanges[0].Path != "a.go" ||
		p.WorkspaceEdit.DocumentChanges[0].Edits[0].NewText != "// mine\n" {
		t.Errorf("%+v", p.WorkspaceEdit)
	}
}

// TestItIsWhatTheDocumentSays keeps docs/provider.md and the program the same, and
// the program as short as it is said to be.
func TestItIsWhatTheDocumentSays(t *testing.T) {
	code, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("../../docs/provider.md")
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(code, []byte("\n")); n > 60 {
		t.Errorf("%d lines, want at most 60", n)
	}
	_, body, _ := strings.Cut(string(code), "package main\n")
	if !strings.Contains(string(doc), "```go\npackage main\n"+body+"```") {
		t.Error("docs/provider.md holds another program")
	}
}
