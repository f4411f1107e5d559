package provider

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/wire"
	"github.com/aspengine/asp/snapshot"
)

// verb splits an inspect method into its family word and verb. ok is false for
// anything that is no inspect method.
func verb(method string) (name string, ok bool) {
	for _, prefix := range []string{"inspect/", "sense/"} {
		if v, found := strings.CutPrefix(method, prefix); found && v != "" {
			return v, true
		}
	}
	return "", false
}

// CheckQuery holds a question against the shape of its verb. The error is the fault of
// who asks; nobody need be asked to know it.
func CheckQuery(method string, params canon.Value) error {
	_, err := readQuery(method, params)
	return err
}

// readQuery reads the params of an inspect verb; none are the empty object.
func readQuery(method string, params canon.Value) (any, error) {
	if params.Kind() == canon.Invalid {
		params = canon.ObjectOf()
	}
	name, ok := verb(method)
	if !ok {
		return nil, fmt.Errorf("%.100q is no inspect method", method)
	}
	var into any
	switch name {
	case "references":
		into = new(wire.ReferencesParams)
	case "callers", "callees":
		into = new(wire.CallsParams)
	case "symbols":
		into = new(wire.SymbolsParams)
	case "impact":
		into = new(wire.ImpactParams)
	case "query":
		into = new(wire.QueryParams)
	default:
		return nil, fmt.Errorf("%.100q is no inspect verb; there are inspect/references, callers, callees, symbols, impact and query", method)
	}
	if err := wire.Decode(params, into); err != nil {
		return nil, fmt.Errorf("params of %s: %w", method, err)
	}
	return into, nil
}

// checkQuery holds a query against the shape of its verb and what the provider
// declared, before it is asked.
func checkQuery(q QueryRequest, params canon.Value, c *wire.InspectCapability) *fault {
	into, err := readQuery(q.Method, params)
	if err != nil {
		return inputFault("%s", err)
	}
	name, _ := verb(q.Method)
	declared := c != nil && slices.Contains(c.Verbs, name)
	if p, ok := into.(*wire.QueryParams); ok {
		declared = c != nil && slices.Contains(c.Query, p.Verb)
	}
	if !declared {
		f := faultOf(wire.DegradeUnsupported, wire.Active, wire.FailContract, "it does not declare %s", q.Method)
		f.blameless = true
		return f
	}
	return nil
}

// judgeAnswer holds an answer against the shape of its verb, the baseline and
// the record of what was served.
func judgeAnswer(ctx context.Context, q QueryRequest, v canon.Value, r *request) (complete bool, f *fault) {
	if found := wire.ScanHostOwned(v); len(found) > 0 {
		return false, malformed("its answer has member %s, which belongs to the host (%.300s)", found[0].Key, found[0].Path)
	}
	var asOf wire.HostValidAsOf
	var nodes []wire.Node
	var files []string
	complete = true
	if name, _ := verb(q.Method); name == "impact" {
		var w wire.ImpactResult
		if err := wire.Decode(v, &w); err != nil {
			return false, malformed("its answer is no impact result: %s", err)
		}
		asOf, nodes, files = w.ValidAsOf, slices.Concat(w.ChangedNodes, w.ImpactedNodes), w.ImpactedFiles
		complete = w.Truncated == nil || !*w.Truncated
	} else {
		var w wire.GraphResult
		if err := wire.Decode(v, &w); err != nil {
			return false, malformed("its answer is no graph: %s", err)
		}
		asOf, nodes = w.ValidAsOf, w.Nodes
	}
	for _, n := range nodes {
		files = append(files, n.Location.Path)
	}
	for _, p := range files {
		if _, err := snapshot.ParsePath(p); err != nil {
			return false, malformed("its answer names a file that cannot be: %s", err)
		}
	}
	if asOf.Rev != q.Baseline.Rev {
		return false, stale("its answer is about rev %q, and %q was asked about", cut(asOf.Rev, 100), q.Baseline.Rev)
	}
	// A provider that keeps an index may rest on more than it was served for
	// this question, but on nothing else than content of this state.
	var refs []wire.BlobRef
	for _, s := range asOf.Blobs {
		b := wire.BlobRef(s)
		refs = append(refs, b)
		ok, err := r.visible(ctx, b)
		if err != nil {
			return false, lookupFault(err)
		}
		if !ok {
			return false, stale("its answer rests on %q, which is no content of this state that it may read", cut(s, 100))
		}
	}
	if missing, ok := lacks(refs, r.blobs()); ok {
		return false, stale("validAsOf leaves out %q, which was served for this answer", string(missing))
	}
	return complete, nil
}
