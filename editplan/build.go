package editplan

import (
	"encoding/base64"
	"fmt"
	"unicode/utf8"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/wire"
	"github.com/aspengine/asp/snapshot"
)

// Draft is one operation of a plan to be built. Expected is the digest of the
// bytes at Path once the earlier drafts are done; zero for Create.
type Draft struct {
	Kind     OpKind
	Path, To string
	Expected snapshot.Digest
	// Content is the whole content after a Create, or after a Modify without
	// Edits. A Modify with neither, and with a Mode, changes the mode only.
	Content    []byte
	HasContent bool
	Edits      []TextEdit
	Mode       ModeChange
	Message    string // annotation for people; "" for none
}

// Provider names who made a plan. It grants nothing.
type Provider struct{ ID, Version string }

// Source is what goes into a built plan beside its operations.
type Source struct {
	Baseline  snapshot.Baseline
	Provider  Provider
	Rationale string
	Warnings  []string // what the importer wants a person to know
}

// NewPlan builds a plan file from drafts in the order of their meaning. The
// proposal id is "import:" and the digest of everything else in the plan: the
// same edit imported twice over the same baseline is the same proposal, and
// over another baseline another one. For that reason no time goes into it.
//
// The drafts are not checked; Compile does that, for built plans as for
// received ones. An error means that a draft has no form on the wire.
func NewPlan(s Source, drafts []Draft) (File, error) {
	base := wire.Baseline{Rev: s.Baseline.Rev, Dirty: s.Baseline.Dirty}
	p := wire.EditPlan{
		Provider: wire.PlanProvider{ID: s.Provider.ID, Version: s.Provider.Version, CapabilityFamily: wire.Edit,
			CapabilityVersion: "edit/1.0", ConfigDigest: "none"},
		Status:        wire.StatusComplete,
		Baseline:      base,
		ValidAsOf:     wire.PlanValidAsOf{Baseline: base},
		WorkspaceEdit: &wire.WorkspaceEdit{Baseline: base},
		Rationale:     s.Rationale,
		Warnings:      s.Warnings,
	}
	b := builder{blobs: map[snapshot.Digest]bool{}, fresh: map[snapshot.Digest]bool{}, written: map[string]bool{}, touched: map[wire.TouchedResource]bool{}}
	for i, d := range drafts {
		c, err := b.change(d)
		if err != nil {
			return File{}, fmt.Errorf("build operation %d on %.200q: %w", i, d.Path, err)
		}
		p.WorkspaceEdit.DocumentChanges = append(p.WorkspaceEdit.DocumentChanges, c)
		t := wire.TouchedResource{Path: c.Path, Kind: c.Kind, To: c.To, Precondition: c.Precondition}
		if !b.touched[t] {
			b.touched[t] = true
			p.TouchedResources = append(p.TouchedResources, t)
		}
	}
	p.ValidAsOf.Blobs = b.validAsOf
	v, err := canon.From(p)
	if err != nil {
		return File{}, fmt.Errorf("build plan: %w", err)
	}
	id := canon.Digest(v.Without("proposalId"))
	return File{Proposal: v.With("proposalId", canon.StringOf("import:"+snapshot.Digest(id).Hex())), Blobs: b.out}, nil
}

type builder struct {
	out       []Blob
	blobs     map[snapshot.Digest]bool // in out
	validAsOf []wire.BlobRef
	fresh     map[snapshot.Digest]bool // in validAsOf
	written   map[string]bool          // paths that an earlier draft left in another state
	touched   map[wire.TouchedResource]bool
}

func (b *builder) change(d Draft) (wire.DocumentChange, error) {
	c := wire.DocumentChange{Path: d.Path, To: d.To}
	if d.Kind == Create {
		c.Precondition.ExpectedAbsence = true
	} else {
		c.Precondition.ExpectedDigest = wire.BlobRef(d.Expected.Blob())
		// What an earlier operation left is no fact about the workspace.
		if !b.written[d.Path] && !b.fresh[d.Expected] {
			b.fresh[d.Expected] = true
			b.validAsOf = append(b.validAsOf, c.Precondition.ExpectedDigest)
		}
	}
	switch d.Kind {
	case Create:
		c.Kind = wire.KindCreate
		c.After = b.blob(d.Content)
	case Modify:
		c.Kind = wire.KindModify
		switch {
		case d.HasContent:
			c.After = b.blob(d.Content)
		case d.Edits != nil:
			for _, e := range d.Edits {
				c.Edits = append(c.Edits, wire.TextEdit{Range: wireRange(e), RangeBasis: c.Precondition.ExpectedDigest, CoordinateSystem: wire.UTF16, NewText: e.NewText})
			}
		default:
			c.After = c.Precondition.ExpectedDigest
		}
	case Delete:
		c.Kind = wire.KindDelete
	case Rename:
		c.Kind = wire.KindRename
		b.written[d.To] = true
	default:
		return c, fmt.Errorf("kind %s has no wire form", d.Kind)
	}
	b.written[d.Path] = true
	if d.Message != "" {
		c.Annotations = append(c.Annotations, wire.Annotation{Message: d.Message})
	}
	if d.Mode != ModeKeep {
		c.Annotations = append(c.Annotations, modeAnnotation(d.Mode))
	}
	return c, nil
}

func wireRange(e TextEdit) wire.Range {
	return wire.Range{Start: wire.Position{Line: e.Start.Line, Char: e.Start.Char}, End: wire.Position{Line: e.End.Line, Char: e.End.Char}}
}

func (b *builder) blob(content []byte) wire.BlobRef {
	d := snapshot.DigestOf(content)
	if !b.blobs[d] {
		b.blobs[d] = true
		b.out = append(b.out, Blob{Digest: d, Bytes: content})
	}
	return wire.BlobRef(d.Blob())
}

// Encode writes the plan file as a bundle, canonical but for the blobs: they
// keep their order, as text where they are valid UTF-8.
func (f File) Encode() ([]byte, error) {
	bundle := wire.Bundle{Proposal: f.Proposal, Blobs: []wire.Blob{}}
	for _, b := range f.Blobs {
		w := wire.Blob{Encoding: wire.Base64}
		if utf8.Valid(b.Bytes) {
			w.Encoding, w.Bytes = wire.UTF8, string(b.Bytes)
		} else {
			w.Bytes = base64.StdEncoding.EncodeToString(b.Bytes)
		}
		bundle.Blobs = append(bundle.Blobs, w)
	}
	out, err := canon.Marshal(bundle)
	if err != nil {
		return nil, fmt.Errorf("encode plan file: %w", err)
	}
	return out, nil
}
