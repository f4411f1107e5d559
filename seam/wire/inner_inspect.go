package wire

import (
	"errors"

	"github.com/aspengine/asp/internal/canon"
)

// The inspect verbs. Each also has an older spelling that begins with sense/.
const (
	MethodReferences = "inspect/references"
	MethodCallers    = "inspect/callers"
	MethodCallees    = "inspect/callees"
	MethodSymbols    = "inspect/symbols"
	MethodImpact     = "inspect/impact"
	MethodQuery      = "inspect/query"
)

// SymbolRef names a symbol by id, or by a place.
type SymbolRef struct {
	ID       string    `json:"id,omitempty"`
	Path     string    `json:"path,omitempty"`
	Position *Position `json:"position,omitempty"`
}

// CheckValue demands one of the two forms.
func (r SymbolRef) CheckValue(v canon.Value) error {
	_, id := v.Get("id")
	_, path := v.Get("path")
	_, position := v.Get("position")
	if id && !path && !position || !id && path && position {
		return nil
	}
	return errors.New("a symbol is {id}, or {path, position}")
}

// ReferencesParams asks where a symbol is used.
type ReferencesParams struct {
	Symbol   SymbolRef   `json:"symbol"`
	Scope    canon.Value `json:"scope,omitempty" wire:"anyscope"`
	Baseline *Baseline   `json:"baseline,omitempty" wire:"open"`
}

// CallsParams asks for callers or callees.
type CallsParams struct {
	Symbol   SymbolRef `json:"symbol"`
	Depth    int       `json:"depth,omitempty" wire:"min1"`
	Baseline *Baseline `json:"baseline,omitempty" wire:"open"`
}

// SymbolsParams searches symbols by name.
type SymbolsParams struct {
	Query    string    `json:"query"`
	Kinds    []string  `json:"kinds,omitzero" wire:"in=file|module|class|function|type|test"`
	Baseline *Baseline `json:"baseline,omitempty" wire:"open"`
}

// ImpactParams asks what a change reaches.
type ImpactParams struct {
	Changeset Data        `json:"changeset" wire:"object"`
	Depth     int         `json:"depth,omitempty" wire:"min1"`
	Scope     canon.Value `json:"scope" wire:"anyscope"`
	Baseline  *Baseline   `json:"baseline,omitempty" wire:"open"`
}

// Check holds the changeset to its shape.
func (p ImpactParams) Check() error {
	var c ChangeSet
	return Decode(p.Changeset, &c)
}

// QueryParams asks a question of the provider's own.
type QueryParams struct {
	Verb     string    `json:"verb"`
	Args     Data      `json:"args" wire:"object"`
	Baseline *Baseline `json:"baseline,omitempty" wire:"open"`
}

// Node is a symbol or file of a graph.
type Node struct {
	ID       string   `json:"id"`
	Kind     string   `json:"kind" wire:"in=file|module|class|function|type|test"`
	Name     string   `json:"name"`
	Location Location `json:"location"`
	Exported *bool    `json:"exported,omitempty"`
	Test     *bool    `json:"test,omitempty"`
}

// Edge joins two nodes.
type Edge struct {
	Kind     string    `json:"kind" wire:"in=calls|imports|inherits|implements|contains|tested-by|depends-on"`
	From     string    `json:"from"`
	To       string    `json:"to"`
	Location *Location `json:"location,omitempty"`
}

// GraphResult answers every inspect verb but impact.
type GraphResult struct {
	Nodes     []Node        `json:"nodes,omitzero"`
	Edges     []Edge        `json:"edges,omitzero"`
	Data      Data          `json:"data,omitempty" wire:"object"`
	ValidAsOf HostValidAsOf `json:"validAsOf"`
}

// CheckValue demands the blobs, which may be none.
func (r GraphResult) CheckValue(v canon.Value) error { return needBlobs(v) }

// ImpactResult answers impact.
type ImpactResult struct {
	ChangedNodes  []Node        `json:"changedNodes"`
	ImpactedNodes []Node        `json:"impactedNodes"`
	ImpactedFiles []string      `json:"impactedFiles"`
	Edges         []Edge        `json:"edges,omitzero"`
	Truncated     *bool         `json:"truncated,omitempty"`
	ValidAsOf     HostValidAsOf `json:"validAsOf"`
}

// CheckValue demands the blobs, which may be none.
func (r ImpactResult) CheckValue(v canon.Value) error { return needBlobs(v) }

func needBlobs(v canon.Value) error {
	asOf, _ := v.Get("validAsOf")
	if _, ok := asOf.Get("blobs"); ok {
		return nil
	}
	return errors.New("validAsOf needs blobs")
}
