package provider

import (
	"context"
	"slices"
	"strings"

	"github.com/aspengine/asp/checks"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/wire"
	"github.com/aspengine/asp/snapshot"
)

// Bounds of an assessment. Text that is longer is cut; the rest is malformed.
const (
	maxDiagnostics = 10_000
	maxMessage     = 4096
	maxName        = 512 // codes and fingerprints
)

// cacheStale is what a provider says of an answer that it remembers and knows to be
// out of date.
const cacheStale = "stale"

// asked is what an assessment has to answer.
type asked struct {
	legacy     bool
	baseline   wire.Baseline
	digest     string
	changes    []wire.Change
	scope      canon.Value // word or {paths}
	sources    []string    // nil when left to the provider
	rules      []string    // nil when left to the provider
	comparison wire.Comparison
	// declared are the sources of the handshake.
	declared          []string
	capabilityVersion string // of the handshake, "" when it said none
	id, version       string // of the manifest
	pinned            string // configDigest
}

// assessed is an assessment that is acceptable.
type assessed struct {
	status            wire.Status
	diagnostics       []wire.Diagnostic
	degraded          []wire.Degradation
	coverage          canon.Value
	configDigest      string
	capabilityVersion string
	cache             string
	accepted          *checks.Accepted // nil unless complete and of asp/1.0
}

// judge holds an assessment against what was asked and served, as section 4
// of the contract says it.
func (a *asked) judge(ctx context.Context, v canon.Value, q *request) (assessed, *fault) {
	if found := wire.ScanHostOwned(v); len(found) > 0 {
		return assessed{}, malformed("its assessment has member %s, which belongs to the host (%.300s)", found[0].Key, found[0].Path)
	}
	w, f := a.decode(v)
	if f != nil {
		return assessed{}, f
	}
	out := assessed{status: w.Status, configDigest: cut(w.Provider.ConfigDigest, maxName), capabilityVersion: cut(w.Provider.CapabilityVersion, maxName),
		cache: w.Cache.Status}
	out.coverage, _ = v.Get("coverage")
	for _, check := range []func(wire.Assessment) *fault{a.identity, func(w wire.Assessment) *fault { return a.freshness(w, q.blobs()) }, a.coverage} {
		if f := check(w); f != nil {
			return out, f
		}
	}
	for _, d := range slices.Concat(w.Coverage.Degraded, w.Coverage.Unsupported) {
		d.Source, d.Detail, d.Requirement = cut(d.Source, maxName), cut(d.Detail, maxMessage), cut(d.Requirement, maxName)
		out.degraded = append(out.degraded, d)
	}
	var own []wire.Diagnostic
	out.diagnostics, own, f = a.diagnostics(ctx, w.Diagnostics, q)
	if f == nil && !a.legacy && w.Status == wire.StatusComplete {
		out.accepted = &checks.Accepted{Digest: canon.DigestText(v), Comparison: a.comparison, ValidAsOf: w.ValidAsOf, Provider: w.Provider, Diagnostics: own}
	}
	return out, f
}

func (a *asked) decode(v canon.Value) (wire.Assessment, *fault) {
	var w wire.Assessment
	if !a.legacy {
		if err := wire.Decode(v, &w); err != nil {
			return w, malformed("its assessment is not one of asp/1.0: %s", err)
		}
		return w, nil
	}
	var l wire.LegacyAssessment
	if err := wire.DecodeOpen(v, &l); err != nil {
		return w, malformed("its assessment is not one of asp/0.1: %s", err)
	}
	if ms, ok := l.Timing.DurationMs.Float(); ok && ms < 0 {
		return w, malformed("its assessment took %v milliseconds: its timing runs backwards", ms)
	}
	return modern(l), nil
}

func (a *asked) identity(w wire.Assessment) *fault {
	switch p := w.Provider; {
	case p.ID != a.id:
		return malformed("its assessment is signed %q, and it is enrolled as %q", cut(p.ID, 100), a.id)
	case p.Version != a.version:
		return malformed("its assessment is of version %q, and its manifest says %q", cut(p.Version, 100), a.version)
	case a.capabilityVersion != "" && p.CapabilityVersion != a.capabilityVersion:
		return malformed("its assessment is of capability %q, and it declared %q", cut(p.CapabilityVersion, 100), a.capabilityVersion)
	case a.pinned != "" && p.ConfigDigest != a.pinned:
		return faultOf(wire.DegradeSkewed, wire.Incompatible, wire.FailContract, "its configDigest is %q; config.json pins %q", cut(p.ConfigDigest, 100), a.pinned)
	}
	return nil
}

func (a *asked) freshness(w wire.Assessment, served []wire.BlobRef) *fault {
	switch v := w.ValidAsOf; {
	case v.Baseline != a.baseline:
		return stale("its assessment is valid for another baseline than the one that was issued (rev %q)", cut(v.Baseline.Rev, 100))
	case v.ChangesetDigest != a.digest:
		return stale("its assessment is valid for changeset %q, and %q was asked about", cut(v.ChangesetDigest, 100), a.digest)
	case w.Cache.Status == cacheStale:
		// Its own word that this is the answer to an older question. Nothing else in
		// the assessment can make a required answer of it.
		return stale("its assessment comes from a cache that it calls stale")
	default:
		if extra, ok := lacks(served, v.Blobs); ok {
			return stale("validAsOf names %q, which was not served in this request", cut(string(extra), 100))
		}
		if missing, ok := lacks(v.Blobs, served); ok {
			return stale("validAsOf leaves out %q, which was served in this request", string(missing))
		}
	}
	return nil
}

// lacks names an element of want that list does not have.
func lacks(list, want []wire.BlobRef) (wire.BlobRef, bool) {
	there := make(map[wire.BlobRef]bool, len(list))
	for _, b := range list {
		there[b] = true
	}
	for _, b := range want {
		if !there[b] {
			return b, true
		}
	}
	return "", false
}

func (a *asked) coverage(w wire.Assessment) *fault {
	c := w.Coverage
	switch r := c.Requested; {
	case !a.legacy && !sameScope(r.Scope, a.scope):
		return malformed("coverage.requested repeats another scope than was asked for")
	case r.Comparison != a.comparison:
		return malformed("coverage.requested says comparison %s, and %s was asked for", r.Comparison, a.comparison)
	case a.sources != nil && !sameSet(r.DiagnosticSources, a.sources):
		return malformed("coverage.requested repeats other diagnostic sources than were asked for")
	case a.rules != nil && !sameSet(r.Rules, a.rules):
		return malformed("coverage.requested repeats other rules than were asked for")
	}
	if w.Status != wire.StatusComplete {
		if c.Exhaustive {
			return malformed("status %s with exhaustive coverage", w.Status)
		}
		return nil
	}
	switch {
	case !c.Exhaustive:
		return malformed("status complete without exhaustive coverage")
	case c.Truncated:
		return malformed("status complete with truncated coverage")
	case len(c.Degraded) > 0 || len(c.Unsupported) > 0:
		return malformed("status complete with coverage that is degraded or unsupported")
	case !sameScope(c.Requested.Scope, c.Covered.Scope) || c.Requested.Comparison != c.Covered.Comparison ||
		!sameSet(c.Requested.DiagnosticSources, c.Covered.DiagnosticSources) || !sameSet(c.Requested.Rules, c.Covered.Rules):
		return malformed("status complete, and what is covered is not what was requested")
	}
	return nil
}

func sameScope(a, b canon.Value) bool {
	if a.Kind() == canon.String || b.Kind() == canon.String {
		return canon.Equal(a, b)
	}
	return sameSet(wire.ScopePaths(a), wire.ScopePaths(b))
}

func sameSet(a, b []string) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(slices.Compact(a), slices.Compact(b))
}

// diagnostics holds each finding against sources, scope and comparison, and makes
// it contained. own are the same ones in the provider's words.
func (a *asked) diagnostics(ctx context.Context, list []wire.Diagnostic, q *request) (out, own []wire.Diagnostic, f *fault) {
	if len(list) > maxDiagnostics {
		return nil, nil, malformed("%d diagnostics are over the limit of %d", len(list), maxDiagnostics)
	}
	if len(list) == 0 {
		return nil, nil, nil
	}
	inside, err := a.reach(ctx, q)
	if err != nil {
		return nil, nil, &fault{reason: wire.DegradeUnavailable, state: wire.Active, class: wire.FailHealth, blameless: true,
			detail: cut("the tree that its findings are about cannot be listed: "+err.Error(), maxDetail)}
	}
	seen := map[string]bool{}
	for _, d := range list {
		said := d
		if f := a.diagnostic(&d, inside); f != nil {
			return nil, nil, f
		}
		// The same finding at the same place twice is one. Equal fingerprints at
		// two places are two: they are compared as a multiset.
		key := d.Fingerprint + "\x00" + d.Code + "\x00" + d.Location.Path + "\x00"
		if r := d.Location.Range; r != nil {
			v, _ := canon.From(*r)
			key += string(v.Bytes())
		}
		if !seen[key] {
			seen[key] = true
			said.Fix = nil // as large as it likes, and no part of what was found
			out, own = append(out, d), append(own, said)
		}
	}
	return out, own, nil
}

func (a *asked) diagnostic(d *wire.Diagnostic, inside func(string) bool) *fault {
	sources := a.declared
	if a.sources != nil {
		sources = a.sources
	}
	under := slices.ContainsFunc(sources, func(s string) bool { return strings.HasPrefix(d.Code, s+"/") && len(d.Code) > len(s)+1 })
	switch {
	case len(d.Code) > maxName || len(d.Fingerprint) > maxName:
		return malformed("a diagnostic has a code or fingerprint of more than %d bytes", maxName)
	case !under:
		return malformed("code %q is under no declared source (%.200q)", cut(d.Code, 100), sources)
	case a.legacy && d.Location.Path == ".":
		// Of the whole tree.
	case !inside(d.Location.Path):
		return malformed("a diagnostic is about %q, outside of what it was asked to look at", cut(d.Location.Path, 200))
	}
	if r := d.Location.Range; r != nil && (r.End.Line < r.Start.Line || r.End.Line == r.Start.Line && r.End.Char < r.Start.Char) {
		return malformed("a diagnostic on %q has a range that ends before it starts", cut(d.Location.Path, 200))
	}
	switch introduced := a.comparison == wire.CompareIntroduced; {
	case d.Introduced == nil && introduced:
		d.Introduced = &introduced
	case d.Introduced != nil && *d.Introduced != introduced:
		return malformed("a diagnostic says introduced %v, and the comparison is %s", *d.Introduced, a.comparison)
	}
	d.Source = a.id
	d.Message, d.Help = cut(d.Message, maxMessage), cut(d.Help, maxMessage)
	if d.CodeDescription != nil {
		d.CodeDescription.Href = cut(d.CodeDescription.Href, maxMessage)
	}
	return nil
}

// reach tells which paths findings may be about: the after-state of the scope,
// and for resolved findings the state before.
func (a *asked) reach(ctx context.Context, q *request) (func(string) bool, error) {
	gone, changed := map[string]bool{}, map[string]bool{}
	for _, c := range a.changes {
		if c.Kind == wire.KindDelete {
			gone[c.Path] = true
		} else {
			changed[c.Path] = true
		}
		if c.From != "" {
			gone[c.From] = true
		}
	}
	for p := range changed {
		delete(gone, p)
	}
	resolved := a.comparison == wire.CompareResolved
	if a.scope.Str() == wire.ScopeChangeset && !a.legacy {
		return func(p string) bool { return changed[p] || resolved && gone[p] }, nil
	}
	tree, err := q.baselineTree(ctx)
	if err != nil {
		return nil, err
	}
	base := make(map[string]bool, len(tree))
	for _, e := range tree {
		base[e.Path] = true
	}
	paths := wire.ScopePaths(a.scope)
	return func(p string) bool {
		if _, err := snapshot.ParsePath(p); err != nil || !q.grant.allows(p) {
			return false
		}
		there := changed[p] || base[p] && (!gone[p] || resolved)
		return there && (paths == nil || slices.ContainsFunc(paths, func(s string) bool { return p == s || strings.HasPrefix(p, s+"/") }))
	}, nil
}

// modern gives an assessment of asp/0.1 the shape of asp/1.0.
func modern(l wire.LegacyAssessment) wire.Assessment {
	causes := func(list []wire.LegacyDegradation) (out []wire.Degradation) {
		for _, d := range list {
			r := wire.DegradeReason(d.Reason)
			if r.Check() != nil {
				r = wire.DegradeIncomplete
			}
			out = append(out, wire.Degradation{Source: d.Source, Reason: r, Requirement: d.Requirement, Detail: d.Detail, Capability: wire.Check})
		}
		return out
	}
	w := wire.Assessment{Status: l.Status, ValidAsOf: l.ValidAsOf,
		Coverage: wire.AssessmentCoverage{Requested: wire.CoveragePart(l.Coverage.Requested), Covered: wire.CoveragePart(l.Coverage.Covered),
			Degraded: causes(l.Coverage.Degraded), Unsupported: causes(l.Coverage.Unsupported), Exhaustive: l.Coverage.Exhaustive, Truncated: l.Coverage.Truncated},
		Provider: wire.AssessmentProvider{ID: l.Provider.ID, Version: l.Provider.Version, ConfigDigest: l.Provider.ConfigDigest, CapabilityVersion: l.Provider.CapabilityVersion}}
	if l.Cache != nil {
		w.Cache.Status = cut(l.Cache.Status, 40)
	}
	if ms, ok := l.Timing.DurationMs.Float(); ok && ms < 1e9 {
		whole := int64(ms)
		w.Timing.ElapsedMs = &whole
	}
	for _, d := range l.Diagnostics {
		n := wire.Diagnostic{Code: d.Code, Severity: d.Severity, Message: d.Message, Fingerprint: d.Fingerprint, Introduced: d.Introduced, Help: d.Help,
			Location: wire.Location{Path: "."}}
		if d.Location != nil && d.Location.Path != "" {
			n.Location = wire.Location{Path: d.Location.Path, Range: modernRange(d.Location.Range)}
		}
		w.Diagnostics = append(w.Diagnostics, n)
	}
	return w
}

func modernRange(r *wire.LegacyRange) *wire.Range {
	if r == nil {
		return nil
	}
	at := func(p wire.LegacyPosition) wire.Position {
		out := wire.Position{Line: p.Line}
		if p.Char != nil {
			out.Char = *p.Char
		} else if p.Column != nil {
			out.Char = *p.Column
		}
		return out
	}
	out := wire.Range{Start: at(r.Start)}
	out.End = out.Start
	if r.End != nil {
		out.End = at(*r.End)
	}
	return &out
}
