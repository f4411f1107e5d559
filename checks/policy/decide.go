package policy

import (
	"fmt"
	"slices"

	"github.com/aspengine/asp/checks"
	"github.com/aspengine/asp/seam/wire"
)

// Question is everything that a decision depends on, beside the policy.
type Question struct {
	CallSite wire.CallSite
	Named    []string        // command checks asked for by name
	Results  []checks.Result // the last answer of every check that was run
	// Apply: the decision lets a transaction through. It never fails open, and
	// a rejected policy blocks it at every call-site.
	Apply bool
	// BasePolicyDigest is what the caller believes the policy to be; "" when
	// it does not say.
	BasePolicyDigest string
	// Blocking are further causes that the caller found, each of which takes
	// the authority from any answer: a stale baseline, a candidate that
	// changes its own policy.
	Blocking []wire.Degradation
}

// Decision is the host's answer, with what it rests on.
type Decision struct {
	Decision wire.Decision
	CallSite wire.CallSite
	Coverage wire.Coverage
	Findings []wire.Finding
	Failures []wire.Degradation // every cause in Coverage.Degraded
	Evidence []wire.AuthorityEvidence
	// Mode is the weakest isolation among the required checks that ran;
	// advisory when there were none.
	Mode wire.Mode
}

// Decide applies the contract's rule (sections 6 and 11).
//
//  1. Causes that make every answer void (no policy for a gate, a rejected or
//     another policy, the caller's own) make the decision indeterminate.
//  2. A required check that ran complete, in a sandbox as strong as demanded,
//     and found something: deny, whatever else is missing. No completion of
//     the rest could turn that into an allow.
//  3. Anything required that did not run so: indeterminate. On interactive
//     alone, and never for an apply, a health cause (crash, time-out,
//     unavailable) opens instead, visibly.
//  4. Otherwise allow.
func Decide(p Policy, q Question) Decision {
	d := &decider{p: p, q: q}
	d.void()
	demands := p.Demands(q.CallSite, q.Named)
	blocked := map[string]bool{} // ids with an unmet part
	for _, m := range demands {
		if m.Required {
			d.required = addOnce(d.required, m.ID)
			if !d.demand(m) {
				blocked[m.ID] = true
			}
		}
	}
	for _, m := range demands {
		if m.Required && !blocked[m.ID] {
			d.ran = addOnce(d.ran, m.ID)
		}
	}
	for _, m := range demands {
		if !m.Required && !slices.Contains(d.required, m.ID) {
			d.optional(m)
		}
	}
	out := Decision{
		Decision: wire.Allow, CallSite: q.CallSite, Findings: d.findings, Evidence: d.evidence, Failures: d.degraded, Mode: d.mode,
		Coverage: wire.Coverage{
			Exhaustive: len(d.degraded) == 0, Required: d.required, Enrolled: d.required, Ran: d.ran, Degraded: d.degraded,
		},
	}
	switch {
	case d.isVoid:
		out.Decision = wire.Indeterminate
	case d.denied:
		out.Decision = wire.Deny
	case d.unmet:
		out.Decision = wire.Indeterminate
	}
	if out.Mode == "" {
		out.Mode = wire.Advisory
	}
	return out
}

type decider struct {
	p                     Policy
	q                     Question
	required, ran         []string
	degraded              []wire.Degradation
	findings              []wire.Finding
	evidence              []wire.AuthorityEvidence
	mode                  wire.Mode
	isVoid, denied, unmet bool
}

func addOnce(to []string, id string) []string {
	if slices.Contains(to, id) {
		return to
	}
	return append(to, id)
}

// void finds the causes that concern the decision as a whole.
func (d *decider) void() {
	block := func(g wire.Degradation) {
		d.degraded = append(d.degraded, g)
		d.isVoid = true
	}
	if d.p.Source == SourceBuiltin && d.q.CallSite == wire.Gate {
		block(wire.Degradation{Source: "policy", Reason: wire.DegradeMissing,
			Detail: "a gate needs an active policy: enrol the repository and commit .asp/asp.json, or set a floor in config.json"})
	}
	if d.p.Activation == Rejected {
		g := wire.Degradation{Source: "policy", Reason: wire.DegradeMalformed, Detail: clip("the committed policy is rejected: "+d.p.Problem, maxDetail)}
		if d.q.CallSite == wire.Gate || d.q.Apply {
			block(g)
		} else {
			d.degraded = append(d.degraded, g)
		}
	}
	if b := d.q.BasePolicyDigest; b != "" && b != d.p.Digest {
		block(wire.Degradation{Source: "policy", Reason: wire.DegradeIncompatible,
			Detail: clip(fmt.Sprintf("the request names policy %q, the active one is %q", b, d.p.Digest), maxDetail)})
	}
	for _, g := range d.q.Blocking {
		block(g)
	}
}

// demand judges a required demand; it tells whether it ran to completion.
func (d *decider) demand(m Demand) bool {
	degrade := func(reason wire.DegradeReason, family wire.Family, state wire.Lifecycle, detail string) bool {
		d.degraded = append(d.degraded, wire.Degradation{
			Source: m.ID, Reason: reason, Requirement: m.ID, Detail: clip(detail, maxDetail), Capability: family, ProviderState: state,
		})
		return false
	}
	if m.Requirement != nil {
		d.unmet = true
		return degrade(wire.DegradeMissingRequiredProvider, m.Requirement.Capabilities[0], "", "no provider with authority for this requirement takes part")
	}
	r := d.result(m.ID)
	if m.Command == nil || r == nil {
		d.unmet = true
		if m.Command == nil {
			return degrade(wire.DegradeMissing, "", "", "nothing defines this requirement: neither the policy nor a check in config.json")
		}
		return degrade(wire.DegradeMissing, wire.Check, "", "the check was not run")
	}
	ev := d.addEvidence(*m.Command, *r, true)
	reason, state, health := cause(r.Status)
	switch {
	case reason != "":
		open := health && d.q.CallSite == wire.Interactive && !d.q.Apply
		detail := r.Detail
		if detail == "" {
			detail = r.Status.String()
		}
		d.addFindings(*m.Command, *r, ev, "the check did not complete")
		if open {
			return degrade(wire.DegradeFailOpen, wire.Check, state, string(reason)+": "+detail)
		}
		d.unmet = true
		return degrade(reason, wire.Check, state, detail)
	case modeOf(r.Isolation).Rank() < d.p.Config.Sandbox.Require.Rank():
		d.unmet = true
		d.addFindings(*m.Command, *r, ev, "the check ran with less isolation than is demanded")
		return degrade(wire.DegradeInsufficientAssurance, wire.Check, "",
			fmt.Sprintf("config.json demands %s, the run established %s. %s", d.p.Config.Sandbox.Require, modeOf(r.Isolation), r.Evidence))
	}
	if mode := modeOf(r.Isolation); d.mode == "" || mode.Rank() < d.mode.Rank() {
		d.mode = mode
	}
	if r.Status == checks.Failed {
		d.denied = true
		d.addFindings(*m.Command, *r, ev, "")
		degrade(wire.DegradeBlockingDiagnostic, wire.Check, "", blockingDetail(*r))
	} else {
		d.addFindings(*m.Command, *r, ev, "the check passed in spite of it")
	}
	return true
}

// optional judges what is asked for without being required: it is shown and
// blocks nothing.
func (d *decider) optional(m Demand) {
	degrade := func(detail string) {
		g := wire.Degradation{Source: m.ID, Reason: wire.DegradeOptionalDegraded, Requirement: m.ID, Detail: clip(detail, maxDetail)}
		if m.Command != nil {
			g.Capability = wire.Check
		} else if m.Requirement != nil {
			g.Capability = m.Requirement.Capabilities[0]
		}
		d.degraded = append(d.degraded, g)
	}
	r := d.result(m.ID)
	switch {
	case m.Requirement != nil:
		degrade("missing-required-provider: no provider with authority for this requirement takes part")
	case m.Command == nil:
		degrade("missing: nothing defines this requirement")
	case r == nil:
		degrade("missing: the check was not run")
	default:
		ev := d.addEvidence(*m.Command, *r, false)
		d.addFindings(*m.Command, *r, ev, "the check is not required here")
		if reason, _, _ := cause(r.Status); reason != "" {
			degrade(string(reason) + ": " + r.Detail)
		} else {
			d.ran = addOnce(d.ran, m.ID)
		}
	}
}

func (d *decider) result(id string) *checks.Result {
	for i := range d.q.Results {
		if d.q.Results[i].Name == id {
			return &d.q.Results[i]
		}
	}
	return nil
}

// cause maps a status that is no complete answer to its reason; health tells
// whether the cause is one of health in the sense of the fail policy. The
// reason is "" for a complete answer.
func cause(s checks.Status) (reason wire.DegradeReason, state wire.Lifecycle, health bool) {
	switch s {
	case checks.Passed, checks.Failed:
		return "", "", false
	case checks.TimedOut:
		return wire.DegradeTimedOut, wire.TimedOut, true
	case checks.Crashed:
		return wire.DegradeCrashed, wire.Crashed, true
	case checks.Unavailable:
		return wire.DegradeUnavailable, wire.Unavailable, true
	case checks.Incomplete:
		return wire.DegradeIncomplete, "", false
	case checks.Cancelled:
		return wire.DegradeCancelled, wire.Cancelled, false
	case checks.Stale:
		return wire.DegradeStale, "", false
	}
	return wire.DegradeError, "", false
}

func modeOf(i checks.Isolation) wire.Mode {
	switch i {
	case checks.Gated:
		return wire.Gated
	case checks.MediatedWrite:
		return wire.MediatedWrite
	case checks.Isolated:
		return wire.Isolated
	}
	return wire.Advisory
}
