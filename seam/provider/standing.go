package provider

import (
	"context"
	"slices"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/manifest"
	"github.com/aspengine/asp/seam/wire"
)

// Standing is how a provider stands. It launches nothing.
func (p *Pool) Standing(ctx context.Context, id string) Standing {
	m, problem := manifest.Manifest{ID: id}, ""
	if p.o.Registry != nil {
		var err error
		if m, err = p.o.Registry.Get(ctx, id); err != nil {
			m.ID, problem = id, err.Error()
		}
	}
	return p.standing(id, m, problem)
}

// standing is Standing by a manifest that was read, or what is wrong with it.
func (p *Pool) standing(id string, m manifest.Manifest, problem string) Standing {
	out := Standing{ID: id, State: wire.Unavailable, Health: map[wire.Family]wire.CapabilityHealth{}, Problem: cut(problem, maxDetail)}
	mode, enabled := p.enabled(id)
	p.mu.Lock()
	e := p.entries[id]
	p.mu.Unlock()
	out.Participant = participant(m, mode, nil)
	out.Ambient = p.board.of(id)
	if e != nil {
		e.describe(&out, m, mode)
		out.Outdated = e.outdated(p.demanded())
	}
	q, _, _, err := p.ledger.standing(id)
	if out.Quarantine = q; q != nil {
		out.State = wire.Quarantined
	}
	out.Participant.State = out.State
	cause := wire.Degradation{Source: id, ProviderState: out.State}
	switch {
	case !enabled:
		cause.Reason, cause.Detail = wire.DegradeMissing, "not enabled for this repository"
	case out.Problem != "":
		cause.Reason, cause.Detail = wire.DegradeUnavailable, out.Problem
	case err != nil:
		cause.Reason, cause.Detail = wire.DegradeUnavailable, cut(err.Error(), maxDetail)
	case q != nil:
		cause.Reason, cause.Detail = wire.DegradeQuarantined, cut("in quarantine: "+q.Reason, maxDetail)
	case e != nil:
		cause.Reason, cause.Detail = e.trouble()
	}
	for _, f := range []wire.Family{wire.Inspect, wire.Check, wire.Edit} {
		h := wire.CapabilityHealth{Capability: f, Advertised: slices.Contains(out.Participant.Families, f), LifecycleState: out.State}
		h.Available = h.Advertised && cause.Reason == ""
		if h.Advertised && cause.Reason != "" {
			c := cause
			c.Capability = f
			h.Degraded = append(h.Degraded, c)
		}
		out.Health[f] = h
	}
	return out
}

// describe fills in what the last launch established. A manifest that changed
// since stands by itself.
func (e *entry) describe(out *Standing, m manifest.Manifest, mode wire.Mode) {
	e.mu.Lock()
	defer e.mu.Unlock()
	out.Used, out.State, out.Failure, out.Unstarted = e.used, e.state, e.failure, e.unstarted
	out.Isolation, out.Evidence, out.Protocol = e.mode, e.evidence, e.protocol
	out.Capabilities, out.Probed = e.declared.capabilities, e.probed
	if e.used {
		out.Ambient = e.places.ambient()
	}
	s := e.last
	if s == nil || !canon.Equal(s.m.Value, m.Value) {
		return
	}
	out.Participant = participantOf(m, mode, s.verified, s.proc.boundary.DirectWrite, e.declared)
	select {
	case <-s.proc.exited:
		out.Stderr = tail(string(s.proc.result.Stderr), 4096)
		if e.state == wire.Initialized || e.state == wire.Active {
			out.State = wire.Exited
		}
	default:
		out.Runs = true
	}
}

// outdated tells that the last launch was made for less than d.
func (e *entry) outdated(d demand) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.last != nil && d.more(e.last.proc.demand)
}

// trouble is why the provider may not serve now; "" when it may.
func (e *entry) trouble() (wire.DegradeReason, string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch e.reason {
	case wire.DegradeUnsupported, wire.DegradeCancelled, wire.DegradeError, wire.DegradeStale, wire.DegradeDirectWriteRisk:
		return "", "" // of that request, not of the provider
	}
	return e.reason, e.failure
}

// Roster is the standing of every provider that is registered, by id.
func (p *Pool) Roster(ctx context.Context) ([]Standing, error) {
	if p.o.Registry == nil {
		return nil, nil
	}
	list, err := p.o.Registry.List(ctx)
	if err != nil {
		return nil, err
	}
	var out []Standing
	for _, x := range list {
		m := manifest.Manifest{ID: x.ID}
		if x.Manifest != nil {
			m = *x.Manifest
		}
		out = append(out, p.standing(x.ID, m, x.Problem))
	}
	return out, nil
}
