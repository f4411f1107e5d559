package provider

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/wire"
)

// maxDiagnostics bounds an assessment; what is over it shows as truncated.
const maxDiagnostics = 10_000

// maxGaps bounds the causes of missing coverage that are listed one by one.
const maxGaps = 100

// CheckRequest is what a check is asked. The changeset was held to its shape: its
// paths are paths, none is the destination of two changes, and it is on the
// session's baseline.
type CheckRequest struct {
	Changes    []Change
	Scope      Scope
	Comparison Comparison
	// Sources and Rules are what is asked for: all there are, where the host
	// named none.
	Sources, Rules []string
	Config         any // what Configure returned

	ChangesetDigest string
}

// Wants tells whether a rule is asked for.
func (r *CheckRequest) Wants(rule string) bool { return slices.Contains(r.Rules, rule) }

// Scope is where a check looks: Word is changeset or workspace, or empty where
// Paths are given.
type Scope struct {
	Word  string
	Paths []string
}

// Holds tells whether a path is inside: any where a word says so, otherwise one
// of Paths or below one.
func (s Scope) Holds(p string) bool {
	if s.Word != "" {
		return true
	}
	for _, q := range s.Paths {
		if q = strings.TrimSuffix(q, "/"); p == q || strings.HasPrefix(p, q+"/") {
			return true
		}
	}
	return false
}

// Report is what a check found.
type Report struct {
	Diagnostics []Diagnostic
	// Gaps say what was not looked at and why. With one the assessment is
	// incomplete. Source may be empty.
	Gaps []Degradation
	// Truncated: findings were left out.
	Truncated bool
	// CoveredPaths names what was looked at, where there are gaps and it is known.
	CoveredPaths []string
	// Notes are sentences for the evidence.
	Notes []string
}

// Diagnostic is one finding. All text is data to the host.
type Diagnostic struct {
	Rule     string // one of Check.Rules; the code of the finding
	Severity Severity
	Message  string // one sentence; never a secret
	Path     string
	Range    *Range
	// Key is what makes this finding the same one in another state of the
	// workspace, wherever it has moved: the offending text, the name of a symbol,
	// never a line number. Findings with the same rule and key are told apart by
	// their number only. Where empty, Path and Message stand in.
	Key  string
	Help string // what to do next
	Link string // a page on the rule
	Fix  *Fix
}

// Fix names an edit that would mend a finding; the host asks for it or does not.
type Fix struct {
	EditRef string // an edit capability, such as "acme-secrets/redact"
	Args    any    // a struct with json tags, a map or nil
}

// Fingerprint is the identity of a finding within its source.
func (d Diagnostic) Fingerprint() string {
	parts := []canon.Value{canon.StringOf(d.Rule), canon.StringOf(d.Key)}
	if d.Key == "" {
		parts = append(parts, canon.StringOf(d.Path), canon.StringOf(d.Message))
	}
	return canon.DigestText(canon.ArrayOf(parts...))
}

// assessing is one check/evaluate between request and answer.
type assessing struct {
	p         *Provider
	h         *Host
	started   time.Time
	requested wire.CoveragePart
	baseline  Baseline
	digest    string
	config    string
}

// check serves check/evaluate.
func (s *session) check(h *Host, params canon.Value) (func(context.Context) (canon.Value, error), func(wire.Status, string) (canon.Value, bool), error) {
	var p wire.EvaluateParams
	if err := wire.Decode(params, &p); err != nil {
		return nil, nil, InputError("%v", err)
	}
	var cs wire.ChangeSet
	if err := wire.Decode(p.Changeset, &cs); err != nil {
		return nil, nil, InputError("%v", err)
	}
	if cs.Baseline != s.baseline {
		return nil, nil, wire.NewError(wire.CodeStaleBaseline, wire.FailHealth, "the changeset is on another baseline than the session", "")
	}
	if err := checkChanges(cs.Changes); err != nil {
		return nil, nil, err
	}
	c := s.p.Check
	config, digest, err := s.p.configure(Data{p.Configuration})
	if err != nil {
		return nil, nil, err
	}
	r := &CheckRequest{Changes: cs.Changes, Scope: scopeOf(p.Scope), Comparison: p.Comparison, Config: config,
		Sources: p.DiagnosticSources, Rules: p.Rules, ChangesetDigest: canon.DigestText(p.Changeset)}
	for _, q := range r.Scope.Paths {
		if !ValidPath(strings.TrimSuffix(q, "/")) {
			return nil, nil, InputError("scope path %.200q is no path", q)
		}
	}
	if len(r.Sources) == 0 {
		r.Sources = c.sources(s.p.ID)
	}
	if len(r.Rules) == 0 {
		r.Rules = rulesOf(c.Rules, r.Sources)
	}
	a := &assessing{p: s.p, h: h, started: time.Now(), baseline: cs.Baseline, digest: r.ChangesetDigest, config: digest,
		requested: wire.CoveragePart{Scope: p.Scope, DiagnosticSources: r.Sources, Rules: r.Rules, Comparison: p.Comparison}}
	// A list that the host sent empty is repeated as it is.
	if p.DiagnosticSources != nil {
		a.requested.DiagnosticSources = p.DiagnosticSources
	}
	if p.Rules != nil {
		a.requested.Rules = p.Rules
	}
	run := func(ctx context.Context) (canon.Value, error) {
		if missing := c.lacks(s.p.ID, r); len(missing) > 0 {
			return a.answer(wire.StatusUnsupported, &Report{}, missing)
		}
		report, err := c.Run(ctx, h, r)
		if u := new(Unsupported); asUnsupported(err, &u) {
			return a.answer(wire.StatusUnsupported, &Report{}, []Degradation{a.unsupported(u.Detail)})
		}
		if err != nil {
			return canon.Value{}, err
		}
		status := wire.StatusComplete
		if len(report.Gaps) > 0 || report.Truncated {
			status = wire.StatusIncomplete
		}
		return a.answer(status, report, nil)
	}
	end := func(status wire.Status, detail string) (canon.Value, bool) {
		v, err := a.answer(status, &Report{Gaps: []Degradation{{Reason: wire.DegradeCancelled, Detail: detail}}}, nil)
		return v, err == nil
	}
	return run, end, nil
}

func scopeOf(v canon.Value) Scope {
	if v.Kind() == canon.String {
		return Scope{Word: v.Str()}
	}
	return Scope{Paths: wire.ScopePaths(v)}
}

// rulesOf are the rules under some sources.
func rulesOf(rules, sources []string) []string {
	out := []string{}
	for _, r := range rules {
		if slices.ContainsFunc(sources, func(s string) bool { return strings.HasPrefix(r, s+"/") }) {
			out = append(out, r)
		}
	}
	return out
}

// lacks lists what of a request this check does not serve.
func (c *Check) lacks(id string, r *CheckRequest) []Degradation {
	var out []Degradation
	add := func(format string, a ...any) {
		out = append(out, Degradation{Source: id, Reason: wire.DegradeUnsupported, Capability: wire.Check, Detail: fmt.Sprintf(format, a...)})
	}
	if word := r.Scope.Word; word != "" && !slices.Contains(c.scopes(), word) {
		add("scope %s is not supported; %q are", word, c.scopes())
	}
	if !slices.Contains(c.comparisons(), r.Comparison) {
		add("comparison %s is not supported; %q are", r.Comparison, c.comparisons())
	}
	for _, s := range r.Sources {
		if !slices.Contains(c.sources(id), s) {
			add("source %.100q is not declared", s)
		}
	}
	known := rulesOf(c.Rules, r.Sources)
	for _, rule := range r.Rules {
		if !slices.Contains(known, rule) {
			add("rule %.100q is unknown under the requested sources", rule)
		}
	}
	return out[:min(len(out), maxGaps)]
}

// configure gives the effective settings and the digest of them: over
// {"capabilityVersion","configuration","provider"} in canonical form.
func (p *Provider) configure(d Data) (any, string, error) {
	var effective any
	if p.Check.Configure != nil {
		var err error
		if effective, err = p.Check.Configure(d); err != nil {
			return nil, "", asInput(err)
		}
	} else if !d.Absent() && d.v.Len() > 0 {
		return nil, "", InputError("%s has no settings", p.ID)
	}
	digest, err := p.configDigest(CheckVersion, effective)
	return effective, digest, err
}

func (p *Provider) configDigest(version string, effective any) (string, error) {
	v, err := canon.From(effective)
	if err != nil {
		return "", err
	}
	if v.Kind() == canon.Null {
		v = canon.ObjectOf()
	}
	return canon.DigestText(canon.ObjectOf(member("capabilityVersion", canon.StringOf(version)),
		member("configuration", v), member("provider", canon.StringOf(p.ID)))), nil
}

// checkChanges holds a changeset to what its shape alone does not say.
func checkChanges(changes []Change) error {
	dest, gone := make(map[string]bool, len(changes)), map[string]bool{}
	for i, c := range changes {
		for _, p := range []string{c.Path, c.From} {
			if p != "" && !ValidPath(p) || c.Path == "" {
				return InputError("change %d: %.200q is no path", i, p)
			}
		}
		if dest[c.Path] || c.Kind == Rename && (gone[c.From] || c.From == c.Path) {
			return InputError("change %d: %.200q is changed twice", i, c.Path)
		}
		dest[c.Path] = true
		if c.Kind == Rename {
			gone[c.From] = true
		}
	}
	return nil
}

func (a *assessing) unsupported(detail string) Degradation {
	return Degradation{Source: a.p.ID, Reason: wire.DegradeUnsupported, Capability: wire.Check, Detail: cut(detail, 1000)}
}

// answer builds the assessment.
func (a *assessing) answer(status wire.Status, r *Report, unsupported []Degradation) (canon.Value, error) {
	diagnostics, err := a.diagnostics(r)
	if err != nil {
		return canon.Value{}, err
	}
	covered := a.requested
	degraded := []Degradation{}
	for i, g := range r.Gaps {
		if i == maxGaps {
			degraded = append(degraded, Degradation{Source: a.p.ID, Reason: wire.DegradeIncomplete, Detail: fmt.Sprintf("%d more gaps are not listed", len(r.Gaps)-i)})
			break
		}
		if g.Source == "" {
			g.Source = a.p.ID
		}
		g.Detail = cut(g.Detail, 1000)
		degraded = append(degraded, g)
	}
	switch {
	case status == wire.StatusIncomplete && len(r.CoveredPaths) > 0:
		covered.Scope = wire.PathScope(r.CoveredPaths)
	case status != wire.StatusComplete:
		covered.DiagnosticSources, covered.Rules = []string{}, []string{}
	}
	if status == wire.StatusUnsupported {
		degraded = append(degraded, unsupported...)
	}
	if status == wire.StatusIncomplete && len(degraded) == 0 {
		degraded = append(degraded, Degradation{Source: a.p.ID, Reason: wire.DegradeIncomplete, Detail: "findings were left out"})
	}
	if unsupported == nil {
		unsupported = []Degradation{}
	}
	elapsed := time.Since(a.started).Milliseconds()
	out := wire.Assessment{
		Status: status, Diagnostics: diagnostics,
		Coverage: wire.AssessmentCoverage{Requested: a.requested, Covered: covered, Degraded: degraded, Unsupported: unsupported,
			Exhaustive: status == wire.StatusComplete, Truncated: r.Truncated},
		ValidAsOf: wire.AssessmentValidAsOf{Baseline: a.baseline, ChangesetDigest: a.digest, Blobs: a.h.served()},
		Provider: wire.AssessmentProvider{ID: a.p.ID, Version: a.p.Version, ConfigDigest: a.config, CapabilityVersion: CheckVersion,
			BuildDigest: a.h.s.build, CapabilityFamily: string(wire.Check)},
		Timing: wire.AssessmentTiming{ElapsedMs: &elapsed},
		Cache:  wire.CacheInfo{Status: "disabled"},
	}
	for _, n := range r.Notes[:min(len(r.Notes), maxGaps)] {
		out.Evidence = append(out.Evidence, wire.Evidence{Kind: "message", Message: cut(n, 1000)})
	}
	return own(out, wire.ScanHostOwned)
}

// diagnostics holds the author's findings to what a host accepts, and puts them in
// order.
func (a *assessing) diagnostics(r *Report) ([]wire.Diagnostic, error) {
	if len(r.Diagnostics) > maxDiagnostics {
		r.Truncated = true
		r.Diagnostics = r.Diagnostics[:maxDiagnostics]
	}
	out := make([]wire.Diagnostic, 0, len(r.Diagnostics))
	for _, d := range r.Diagnostics {
		switch {
		case !slices.Contains(a.p.Check.Rules, d.Rule):
			return nil, fmt.Errorf("finding with the undeclared rule %.100q", d.Rule)
		case !ValidPath(d.Path):
			return nil, fmt.Errorf("finding of %s at %.200q, which is no path", d.Rule, d.Path)
		case d.Severity.Check() != nil:
			return nil, fmt.Errorf("finding of %s with the severity %.40q", d.Rule, d.Severity)
		}
		w := wire.Diagnostic{Code: d.Rule, Severity: d.Severity, Source: a.p.ID, Message: clean(d.Message, 2000),
			Location: Location{Path: d.Path, Range: d.Range}, Fingerprint: d.Fingerprint(), Help: clean(d.Help, 2000)}
		if a.requested.Comparison == Introduced {
			yes := true
			w.Introduced = &yes
		}
		if d.Link != "" {
			w.CodeDescription = &wire.CodeDescription{Href: d.Link}
		}
		if d.Fix != nil {
			args, err := canon.From(d.Fix.Args)
			if err != nil {
				return nil, err
			}
			w.Fix = &wire.Fix{EditRef: d.Fix.EditRef}
			if args.Kind() == canon.Object {
				w.Fix.Args = args
			}
		}
		out = append(out, w)
	}
	slices.SortStableFunc(out, func(x, y wire.Diagnostic) int {
		if c := strings.Compare(x.Location.Path, y.Location.Path); c != 0 {
			return c
		}
		return comparePlaces(x.Location.Range, y.Location.Range)
	})
	return out, nil
}

func comparePlaces(a, b *Range) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return -1
	case b == nil:
		return 1
	case a.Start.Line != b.Start.Line:
		return a.Start.Line - b.Start.Line
	}
	return a.Start.Char - b.Start.Char
}

// clean makes any bytes text of bounded length.
func clean(s string, n int) string { return cut(strings.ToValidUTF8(s, "\uFFFD"), n) }
