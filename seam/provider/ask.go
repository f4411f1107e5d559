package provider

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/wire"
)

// wholeTree is the scope of a plan for which none was asked.
const wholeTree = "**/*"

// failure is a fault as callers see it.
func (t *turn) failure(f *fault) error {
	if f == nil {
		return nil
	}
	p := t.participant()
	return &Failure{Provider: t.e.id, Reason: f.reason, State: f.state, Class: f.class, Detail: f.detail, Participant: p, Network: t.network}
}

// Propose asks for a plan. What comes back is acceptable, of any status, and
// only for a complete one there is anything to apply. The error is a *Failure.
func (p *Pool) Propose(ctx context.Context, id string, q ProposeRequest) (Proposal, error) {
	var out Proposal
	t, f := p.use(ctx, id, q.Budget, q.Baseline, func(ctx context.Context, t *turn) *fault {
		d := t.s.declared
		block := d.capabilities.EditBlock()
		switch {
		case !slices.Contains(d.families, wire.Edit) || block == nil:
			return unsupported("it does not advertise edits")
		case !slices.Contains(block.Operations, q.Operation) && !isReference(q.Operation):
			return unsupported("it does not advertise operation %.100q but %.300q", q.Operation, block.Operations)
		case d.directWrite || t.s.proc.boundary.DirectWrite:
			f := faultOf(wire.DegradeDirectWriteRisk, wire.Active, wire.FailPolicy, "it asks for, or has, write access to the workspace; plans come from providers that cannot write")
			f.blameless = true
			return f
		}
		scope := q.Scope
		if len(scope) == 0 {
			scope = []string{wholeTree}
		}
		area, err := parseGlobs(scope)
		if err != nil {
			return inputFault("scope: %s", err)
		}
		params := wire.ProposeParams{Operation: q.Operation, Baseline: q.Baseline, ProposalID: q.ProposalID, Args: q.Args,
			Scope: wire.EditScope{Paths: scope, OperationProfile: q.Profile}}
		v, err := canon.From(params)
		if err != nil {
			return inputFault("%s", err)
		}
		r := newRequest(q.Content, q.Baseline, d.grant, true, p.o.Callbacks, p.line)
		answer, f := t.s.askEither(ctx, wire.MethodPropose, v, r)
		out.Served = r.blobs()
		if f != nil {
			return f
		}
		judge := proposal{id: t.m.ID, version: t.m.Version, capabilityVersion: block.CapabilityVersion, proposalID: q.ProposalID, baseline: q.Baseline, scope: area}
		if out.Plan, out.Decoded, f = judge.judge(ctx, answer, r); f != nil {
			return f
		}
		r.mu.Lock()
		out.Blobs = named(out.Decoded, maps.Clone(r.put))
		r.mu.Unlock()
		return nil
	})
	if f != nil {
		return Proposal{}, t.failure(f)
	}
	out.Participant, out.Isolation, out.Evidence = t.participant(), t.s.mode(), t.s.proc.boundary.Evidence
	out.Probed, out.Network = t.s.proc.boundary.Record(), t.network
	out.Participant.ConfigDigest = cut(out.Decoded.Provider.ConfigDigest, maxName)
	out.Participant.CapabilityVersion = cut(out.Decoded.Provider.CapabilityVersion, maxName)
	return out, nil
}

// isReference tells an operation that a finding of its provider's names, id/name, from
// those of the protocol, of which a provider advertises what it offers.
func isReference(operation string) bool { return strings.Contains(operation, "/") }

func inputFault(format string, a ...any) *fault {
	f := faultOf(wire.DegradeError, wire.Active, wire.FailInput, format, a...)
	f.blameless = true
	return f
}

// Query asks an inspect verb, under whichever of its two names the provider
// knows. The error is a *Failure.
func (p *Pool) Query(ctx context.Context, id string, q QueryRequest) (Answer, error) {
	var out Answer
	params := q.Params
	if params.Kind() == canon.Invalid {
		params = canon.ObjectOf()
	}
	t, f := p.use(ctx, id, q.Budget, q.Baseline, func(ctx context.Context, t *turn) *fault {
		d := t.s.declared
		if !slices.Contains(d.families, wire.Inspect) {
			return unsupported("it does not advertise queries")
		}
		if f := checkQuery(q, params, d.capabilities.InspectBlock()); f != nil {
			return f
		}
		r := newRequest(q.Content, q.Baseline, d.grant, false, p.o.Callbacks, p.line)
		v, f := t.s.askEither(ctx, q.Method, params, r)
		out.Served = r.blobs()
		if f != nil {
			return f
		}
		out.Value = v
		out.Complete, f = judgeAnswer(ctx, q, v, r)
		return f
	})
	if f != nil {
		return Answer{}, t.failure(f)
	}
	out.Participant, out.Isolation, out.Evidence = t.participant(), t.s.mode(), t.s.proc.boundary.Evidence
	out.Network = t.network
	return out, nil
}

// askEither asks under the name that was given, and under the other one where that
// is not known.
func (s *session) askEither(ctx context.Context, method string, params canon.Value, r *request) (canon.Value, *fault) {
	v, f := s.ask(ctx, method, params, r)
	if f != nil && f.code == wire.CodeMethodNotFound {
		return s.ask(ctx, otherSpelling(method), params, r)
	}
	return v, f
}

// otherSpelling is the legacy name of a request, or the name of a legacy one.
func otherSpelling(method string) string {
	switch method {
	case wire.MethodEvaluate:
		return "judge/evaluate"
	case wire.MethodPropose:
		return "act/propose"
	}
	v, _ := verb(method)
	if strings.HasPrefix(method, "sense/") {
		return "inspect/" + v
	}
	return "sense/" + v
}

// AsFailure is the *Failure in an error chain, or nil.
func AsFailure(err error) *Failure {
	var f *Failure
	errors.As(err, &f)
	return f
}
