package provider

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/wire"
)

// InspectRequest is a question. Which members are set depends on the verb.
type InspectRequest struct {
	Verb string // references, callers, callees, symbols, impact, or one of Queries

	// Symbol is named by ID, or by Path and Position.
	ID       string
	Path     string
	Position *Position

	Scope   Scope    // of references and impact; empty where the host gave none
	Depth   int      // of callers, callees and impact; 0 where the host gave none
	Query   string   // of symbols
	Kinds   []string // of symbols
	Changes []Change // of impact
	Args    Data     // of a query
}

// Answer is what a question found. Changed, Impacted and Files belong to impact.
type Answer struct {
	Nodes             []Node
	Edges             []Edge
	Data              any // a struct with json tags, a map or nil; not for impact
	Changed, Impacted []Node
	Files             []string
	Truncated         bool // of impact
}

// verb finds what a method asks, where the provider serves it.
func (p *Provider) verb(method string) (string, bool) {
	if p.Inspect == nil {
		return "", false
	}
	_, verb, _ := strings.Cut(method, "/")
	if method != "inspect/"+verb && method != "sense/"+verb {
		return "", false
	}
	if verb == "query" {
		return verb, len(p.Inspect.Queries) > 0
	}
	return verb, slices.Contains(p.Inspect.Verbs, verb)
}

// inspect serves the read-only verbs.
func (s *session) inspect(h *Host, verb string, params canon.Value) (func(context.Context) (canon.Value, error), func(wire.Status, string) (canon.Value, bool), error) {
	r := &InspectRequest{Verb: verb}
	baseline, err := s.question(r, params)
	if err != nil {
		return nil, nil, asInput(err)
	}
	if baseline != nil {
		h.baseline = *baseline
	}
	return func(ctx context.Context) (canon.Value, error) {
		a, err := s.p.Inspect.Run(ctx, h, r)
		if err != nil {
			return canon.Value{}, err
		}
		if a == nil {
			return canon.Value{}, errors.New("no answer and no error")
		}
		return h.found(verb, a)
	}, nil, nil
}

// question reads the parameters of each verb.
func (s *session) question(r *InspectRequest, params canon.Value) (*Baseline, error) {
	symbol := func(ref wire.SymbolRef) { r.ID, r.Path, r.Position = ref.ID, ref.Path, ref.Position }
	scope := func(v canon.Value) {
		if v.Kind() != canon.Invalid {
			r.Scope = scopeOf(v)
		}
	}
	switch r.Verb {
	case "references":
		var p wire.ReferencesParams
		if err := wire.Decode(params, &p); err != nil {
			return nil, err
		}
		symbol(p.Symbol)
		scope(p.Scope)
		return p.Baseline, nil
	case "callers", "callees":
		var p wire.CallsParams
		if err := wire.Decode(params, &p); err != nil {
			return nil, err
		}
		symbol(p.Symbol)
		r.Depth = p.Depth
		return p.Baseline, nil
	case "symbols":
		var p wire.SymbolsParams
		if err := wire.Decode(params, &p); err != nil {
			return nil, err
		}
		r.Query, r.Kinds = p.Query, p.Kinds
		return p.Baseline, nil
	case "impact":
		var p wire.ImpactParams
		if err := wire.Decode(params, &p); err != nil {
			return nil, err
		}
		var cs wire.ChangeSet
		if err := wire.Decode(p.Changeset, &cs); err != nil {
			return nil, err
		}
		scope(p.Scope)
		r.Depth, r.Changes = p.Depth, cs.Changes
		return p.Baseline, checkChanges(cs.Changes)
	}
	var p wire.QueryParams
	if err := wire.Decode(params, &p); err != nil {
		return nil, err
	}
	if !slices.Contains(s.p.Inspect.Queries, p.Verb) {
		return nil, contractError(wire.CodeMethodNotFound, "query %.100q is not served", p.Verb)
	}
	r.Verb, r.Args = p.Verb, Data{p.Args}
	return p.Baseline, nil
}

// found builds the result with its freshness.
func (h *Host) found(verb string, a *Answer) (canon.Value, error) {
	asOf := wire.HostValidAsOf{Rev: h.baseline.Rev, Blobs: []string{}}
	for _, b := range h.served() {
		asOf.Blobs = append(asOf.Blobs, string(b))
	}
	if verb == "impact" {
		r := wire.ImpactResult{ChangedNodes: a.Changed, ImpactedNodes: a.Impacted, ImpactedFiles: a.Files, Edges: a.Edges, ValidAsOf: asOf}
		if a.Truncated {
			r.Truncated = &a.Truncated
		}
		return withBlobs(own(r, wire.ScanHostOwned))
	}
	r := wire.GraphResult{Nodes: a.Nodes, Edges: a.Edges, ValidAsOf: asOf}
	d, err := canon.From(a.Data)
	if err != nil {
		return canon.Value{}, err
	}
	if d.Kind() == canon.Object {
		r.Data = d
	}
	return withBlobs(own(r, wire.ScanHostOwned))
}

// withBlobs writes the list of blobs even where it is empty: without it nobody
// could tell whether the answer is stale.
func withBlobs(v canon.Value, err error) (canon.Value, error) {
	if err != nil {
		return v, err
	}
	asOf, _ := v.Get("validAsOf")
	if _, ok := asOf.Get("blobs"); !ok {
		v = v.With("validAsOf", asOf.With("blobs", canon.ArrayOf()))
	}
	return v, nil
}
