package main

import (
	"testing"

	"github.com/aspengine/asp/editplan"
	"github.com/aspengine/asp/seam/wire"
	"github.com/aspengine/asp/snapshot"
)

// TestInlineFixIsAPlan: the edit of a finding, made on another state, becomes a plan of
// the present one that compiles.
func TestInlineFixIsAPlan(t *testing.T) {
	before := snapshot.DigestOf([]byte("one\ntwo\n"))
	d := wire.Diagnostic{Code: "x/y", Fingerprint: "sha256:0123456789abcdef", Fix: &wire.Fix{WorkspaceEdit: &wire.WorkspaceEdit{
		Baseline: wire.Baseline{Rev: "tree:old"},
		DocumentChanges: []wire.DocumentChange{
			{Path: "a", Kind: wire.KindModify, Precondition: wire.Precondition{ExpectedDigest: wire.BlobRef(before.Blob())}, Edits: []wire.TextEdit{{
				Range:      wire.Range{Start: wire.Position{Line: 1}, End: wire.Position{Line: 1, Char: 3}},
				RangeBasis: wire.BlobRef(before.Blob()), CoordinateSystem: "utf16", NewText: "2"}}},
			{Path: "b", Kind: wire.KindRename, To: "c", Precondition: wire.Precondition{ExpectedDigest: wire.BlobRef(before.Blob())}},
		}}}}
	v, err := inlinePlan(d, "fix-1", wire.Baseline{Rev: "git:tree:00", Dirty: "sha256:11"})
	if err != nil {
		t.Fatal(err)
	}
	p, items, err := editplan.Compile(editplan.File{Proposal: v}, editplan.Limits{}, nil)
	if err != nil || len(items) > 0 || p == nil {
		t.Fatalf("%v, %v\n%s", items, err, v.Bytes())
	}
	if p.ID != "fix-1" || p.Baseline != (snapshot.Baseline{Rev: "git:tree:00", Dirty: "sha256:11"}) || len(p.Ops) != 2 {
		t.Errorf("%+v", p)
	}
	if got := short(d.Fingerprint); got != "0123456789ab" {
		t.Errorf("short form %q", got)
	}
}
