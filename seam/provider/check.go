package provider

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aspengine/asp/checks"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/wire"
	"github.com/aspengine/asp/worktree"
)

// Check is the provider as a check of s. budget bounds each run, launch
// included; 0 is the longest request that is granted. The check is a
// checks.Remote; its Run never errs.
func (p *Pool) Check(id string, s Subject, set Settings, budget time.Duration) checks.Check {
	return &check{p, id, s, set, budget}
}

type check struct {
	p      *Pool
	id     string
	s      Subject
	set    Settings
	budget time.Duration
}

// Name is the coverage source.
func (c *check) Name() string { return checks.ProviderPrefix + c.id }

// Remote makes it a checks.Remote.
func (c *check) Remote() bool { return true }

// Run asks for an assessment.
func (c *check) Run(ctx context.Context, _ *worktree.Candidate) (checks.Result, error) {
	res := checks.Result{Name: c.Name(), Started: time.Now()}
	comparison := wire.Comparison(c.s.Comparison)
	if comparison == "" {
		comparison = wire.Comparison(c.set.Comparison)
	}
	if comparison == "" {
		comparison = wire.CompareIntroduced
	}
	res.Comparison, res.Family = string(comparison), wire.Check
	var found assessed
	var served []wire.BlobRef
	around := ""
	t, f := c.p.use(ctx, c.id, c.budget, c.s.Baseline, func(ctx context.Context, t *turn) *fault {
		a, method, params, f := c.question(t.s, comparison)
		if f != nil {
			return f
		}
		q := newRequest(c.s.Content, c.s.Baseline, t.s.declared.grant, false, c.p.o.Callbacks, c.p.line)
		v, f := t.s.askEither(ctx, method, params, q)
		served, around = q.blobs(), q.triedHostMethod()
		if f != nil {
			return f
		}
		if found, f = a.judge(ctx, v, q); f == nil && found.accepted != nil {
			f = c.contradicts(found.accepted)
		}
		return f
	})
	part := t.participant()
	part.PinnedConfig, part.ConfigDigest, part.FastPath = c.set.ConfigDigest, found.configDigest, around
	if found.capabilityVersion != "" {
		part.CapabilityVersion = found.capabilityVersion
	}
	res.Provider, res.Served, res.Elapsed = &part, served, time.Since(res.Started)
	res.DirectWrite, res.Network = part.DirectWrite, t.network
	if t.s != nil {
		res.Isolation, res.Evidence = isolation(t.s.mode()), t.s.proc.boundary.Evidence
		res.Probed = t.s.proc.boundary.Record()
	}
	if f != nil {
		res.Status, res.Reason, res.State, res.FailClass, res.Detail = f.status(), f.reason, f.state, f.class, f.detail
		res.Unsupported = f.unsupported
		return res, nil
	}
	c.fill(&res, found)
	return res, nil
}

// fill reports an acceptable assessment.
func (c *check) fill(res *checks.Result, a assessed) {
	res.Diagnostics, res.Degraded, res.Coverage, res.Cache = a.diagnostics, a.degraded, a.coverage, a.cache
	res.State, res.Accepted = wire.Active, a.accepted
	why := ""
	if len(a.degraded) > 0 {
		why = fmt.Sprintf(": %s: %q", a.degraded[0].Reason, cut(a.degraded[0].Detail, 500))
	}
	switch a.status {
	case wire.StatusComplete:
		res.Status = checks.Passed
		failing := func(d wire.Diagnostic) bool { return d.Severity == wire.SeverityError }
		if res.Comparison != string(wire.CompareResolved) && slices.ContainsFunc(a.diagnostics, failing) {
			res.Status, res.Detail = checks.Failed, fmt.Sprintf("%d diagnostics", len(a.diagnostics))
		}
		return
	case wire.StatusUnsupported:
		res.Status, res.Reason, res.Detail = checks.Unsupported, wire.DegradeUnsupported, "it cannot evaluate this"+why
	case wire.StatusError:
		res.Status, res.Reason, res.Detail, res.FailClass = checks.Errored, wire.DegradeError, "its assessment has status error"+why, wire.FailContract
	case wire.StatusCancelled:
		res.Status, res.Reason, res.State, res.Detail = checks.Cancelled, wire.DegradeCancelled, wire.Cancelled, "it gave the evaluation up"+why
	default:
		res.Status, res.Reason, res.Detail = checks.Incomplete, wire.DegradeIncomplete, "its assessment is incomplete"+why
	}
}

func isolation(m wire.Mode) checks.Isolation {
	switch m {
	case wire.Gated:
		return checks.Gated
	case wire.MediatedWrite:
		return checks.MediatedWrite
	case wire.Isolated:
		return checks.Isolated
	}
	return checks.Advisory
}

// question puts the request in the provider's dialect.
func (c *check) question(s *session, comparison wire.Comparison) (a *asked, method string, params canon.Value, f *fault) {
	if !slices.Contains(s.declared.families, wire.Check) {
		return nil, "", params, unsupported("it does not advertise checks")
	}
	a = &asked{baseline: c.s.Baseline, digest: c.s.ChangesetDigest, changes: c.s.Changes, comparison: comparison,
		scope: c.scope(), declared: s.declared.sources, id: s.m.ID, version: s.m.Version, pinned: c.set.ConfigDigest,
		sources: c.set.Sources, rules: c.set.Rules}
	var message any
	if s.protocol == wire.ProtocolV01 {
		if comparison == wire.CompareResolved {
			return nil, "", params, unsupported("asp/0.1 has no comparison resolved")
		}
		a.legacy, a.sources, a.rules = true, nil, nil
		if c.set.Checks != nil {
			a.rules = c.set.Checks
		}
		message = wire.LegacyEvaluateParams{CallSite: c.s.CallSite, Changeset: c.s.Changeset, ChangesetDigest: c.s.ChangesetDigest,
			Comparison: comparison, Checks: c.set.Checks}
	} else {
		block := s.declared.capabilities.CheckBlock()
		if block == nil || !slices.Contains(block.Comparisons, comparison) {
			return nil, "", params, unsupported("it does not declare comparison %s", comparison)
		}
		if word := a.scope.Str(); word != "" && !slices.Contains(block.Scopes, word) {
			return nil, "", params, unsupported("it does not declare scope %s", word)
		}
		for _, src := range c.set.Sources {
			if !slices.Contains(block.DiagnosticSources, src) {
				return nil, "", params, unsupported("it does not declare diagnostic source %.100q", src)
			}
		}
		a.capabilityVersion = block.CapabilityVersion
		m := wire.EvaluateParams{Changeset: c.s.Changeset, Scope: a.scope, Comparison: comparison, Configuration: c.set.Configuration,
			DiagnosticSources: c.set.Sources, Rules: c.set.Rules}
		if block.Incremental {
			m.PriorDiagnostics, m.PriorAssessments = c.prior(comparison)
		}
		message = m
	}
	v, err := canon.From(message)
	if err != nil {
		return nil, "", params, launchFault(err)
	}
	return a, wire.MethodEvaluate, v, nil
}

func unsupported(format string, a ...any) *fault {
	f := faultOf(wire.DegradeUnsupported, wire.Active, wire.FailContract, format, a...)
	f.blameless = true
	return f
}

// scope is what the provider is to look at.
func (c *check) scope() canon.Value {
	switch {
	case c.set.Scope == wire.ScopeWorkspace:
		return canon.StringOf(wire.ScopeWorkspace)
	case len(c.s.Scope) > 0:
		paths := slices.Clone(c.s.Scope)
		slices.SortFunc(paths, strings.Compare)
		return wire.PathScope(slices.Compact(paths))
	}
	return canon.StringOf(wire.ScopeChangeset)
}
