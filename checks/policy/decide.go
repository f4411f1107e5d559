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
	Named    []string // command checks asked for by name
	// Results holds the last answer of every check that was run, and, for
	// requirements on inspect and edit, how the providers stand in these families.
	Results []checks.Result
	// Apply: the decision lets a transaction through. It never fails open, and
	// a rejected policy blocks it at every call-site.
	Apply bool
	// BasePolicyDigest is what the caller believes the policy to be; "" when
	// it does not say.
	BasePolicyDigest string
	// Blocking are further causes that the caller found, each of which takes
	// the authority from any answer, such as a stale baseline.
	Blocking []wire.Degradation
	// Candidate is what Policy.Candidate found of a change that touches the
	// policy: it blocks a gate and is shown elsewhere. nil: nothing.
	Candidate *wire.Degradation
}

// Decision is the host's answer, with what it rests on.
type Decision struct {
	Decision wire.Decision
	CallSite wire.CallSite
	Coverage wire.Coverage
	Findings []wire.Finding
	Failures []wire.Degradation // every cause in Coverage.Degraded
	Evidence []wire.AuthorityEvidence
	// Provenance names the providers whose answers contributed, for receipts.
	Provenance []wire.ProviderProvenance
	// Mode is advisory unless something required ran; then it is the weakest
	// isolation of all checks that ran and all providers that were started: one
	// that could write is enough to lose the claim.
	Mode wire.Mode
}

// Decide applies the contract's rule (sections 6 and 11).
//
//  1. Causes that make every answer void (no policy for a gate, a rejected or
//     another policy, the caller's own) make the decision indeterminate.
//  2. A required requirement that ran complete, by somebody with authority, in
//     a sandbox as strong as demanded, and found something: deny, whatever else
//     is missing. No completion of the rest could turn that into an allow.
//  3. Anything required that did not run so: indeterminate. On interactive
//     alone, and never for an apply, a health cause (crash, time-out,
//     quarantine, unavailable, an error answer of class health) opens instead,
//     visibly.
//  4. Otherwise allow.
func Decide(p Policy, q Question) Decision {
	n := len(q.Results)
	d := &decider{p: p, q: q, demands: p.Demands(q.CallSite, q.Named), gates: make([]bool, n), notes: make([]string, n), by: make([]wire.AuthorityEvidence, n)}
	d.void()
	blocked := map[string]bool{} // ids with an unmet part
	for _, m := range d.demands {
		if m.Required {
			d.required = addOnce(d.required, m.ID)
			if !d.demand(m) {
				blocked[m.ID] = true
			}
		}
	}
	for _, m := range d.demands {
		if m.Required && !blocked[m.ID] {
			d.ran = addOnce(d.ran, m.ID)
		}
	}
	for _, m := range d.demands {
		if !m.Required && !slices.Contains(d.required, m.ID) {
			d.optional(m)
		}
	}
	d.volunteers()
	d.providerFindings()
	out := Decision{
		Decision: wire.Allow, CallSite: q.CallSite, Findings: d.findings, Evidence: d.evidence, Failures: d.degraded,
		Provenance: d.provenance, Mode: d.mode(),
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
	return out
}

type decider struct {
	p                            Policy
	q                            Question
	demands                      []Demand
	required, ran                []string
	degraded                     []wire.Degradation
	findings                     []wire.Finding
	evidence                     []wire.AuthorityEvidence
	provenance                   []wire.ProviderProvenance
	isVoid, denied, unmet, solid bool // solid: something required ran
	// By result: whether the findings of a provider gate, why they do not, and
	// by whose word they count.
	gates []bool
	notes []string
	by    []wire.AuthorityEvidence
}

func addOnce(to []string, id string) []string {
	if slices.Contains(to, id) {
		return to
	}
	return append(to, id)
}

// open tells whether health causes open.
func (d *decider) open() bool { return d.q.CallSite == wire.Interactive && !d.q.Apply }

// mode is the weakest isolation of all that took part.
func (d *decider) mode() wire.Mode {
	if !d.solid {
		return wire.Advisory
	}
	m := wire.Isolated
	for _, r := range d.q.Results {
		switch r.Status {
		case checks.StatusInvalid, checks.Missing, checks.Quarantined, checks.Unavailable:
			continue // no process was started
		}
		if got := modeOf(r.Isolation); got.Rank() < m.Rank() {
			m = got
		}
	}
	return m
}

// void finds the causes that concern the decision as a whole.
func (d *decider) void() {
	block := func(g wire.Degradation) {
		d.degraded = append(d.degraded, g)
		d.isVoid = true
	}
	show := func(g wire.Degradation, blocks bool) {
		if blocks {
			block(g)
		} else {
			d.degraded = append(d.degraded, g)
		}
	}
	if d.p.Source == SourceBuiltin && d.q.CallSite == wire.Gate {
		block(wire.Degradation{Source: "policy", Reason: wire.DegradeMissing,
			Detail: "a gate needs an active policy: enrol the repository and commit .asp/asp.json, or set a floor in config.json"})
	}
	if d.p.Activation == Rejected {
		show(wire.Degradation{Source: "policy", Reason: wire.DegradeMalformed, Detail: clip("the committed policy is rejected: "+d.p.Problem, maxDetail)},
			d.q.CallSite == wire.Gate || d.q.Apply)
	}
	if b := d.q.BasePolicyDigest; b != "" && b != d.p.Digest {
		block(wire.Degradation{Source: "policy", Reason: wire.DegradeIncompatible,
			Detail: clip(fmt.Sprintf("the request names policy %q, the active one is %q", b, d.p.Digest), maxDetail)})
	}
	if d.q.Candidate != nil {
		show(*d.q.Candidate, d.q.CallSite == wire.Gate)
	}
	for _, g := range d.q.Blocking {
		block(g)
	}
}

// demand judges a required demand; it tells whether it ran to completion.
func (d *decider) demand(m Demand) bool {
	if m.Requirement != nil {
		return d.requirement(m)
	}
	degrade := func(reason wire.DegradeReason, family wire.Family, state wire.Lifecycle, detail string) bool {
		d.degraded = append(d.degraded, wire.Degradation{
			Source: m.ID, Reason: reason, Requirement: m.ID, Detail: clip(detail, maxDetail), Capability: family, ProviderState: state,
		})
		return false
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
	c := causeOf(*r)
	switch {
	case c.reason != "":
		d.addFindings(*m.Command, *r, ev, "the check did not complete")
		if c.health && d.open() {
			return degrade(wire.DegradeFailOpen, wire.Check, c.state, string(c.reason)+": "+c.detail)
		}
		d.unmet = true
		return degrade(c.reason, wire.Check, c.state, c.detail)
	case modeOf(r.Isolation).Rank() < d.p.Config.Sandbox.Require.Rank():
		d.unmet = true
		d.addFindings(*m.Command, *r, ev, "the check ran with less isolation than is demanded")
		return degrade(wire.DegradeInsufficientAssurance, wire.Check, "",
			fmt.Sprintf("config.json demands %s, the run established %s. %s", d.p.Config.Sandbox.Require, modeOf(r.Isolation), r.Evidence))
	}
	d.solid = true
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
	if m.Requirement != nil {
		d.optionalRequirement(m)
		return
	}
	degrade := func(detail string) {
		g := wire.Degradation{Source: m.ID, Reason: wire.DegradeOptionalDegraded, Requirement: m.ID, Detail: clip(detail, maxDetail)}
		if m.Command != nil {
			g.Capability = wire.Check
		}
		d.degraded = append(d.degraded, g)
	}
	r := d.result(m.ID)
	switch {
	case m.Command == nil:
		degrade("missing: nothing defines this requirement")
	case r == nil:
		degrade("missing: the check was not run")
	default:
		ev := d.addEvidence(*m.Command, *r, false)
		d.addFindings(*m.Command, *r, ev, "the check is not required here")
		if c := causeOf(*r); c.reason != "" {
			degrade(string(c.reason) + ": " + c.detail)
		} else {
			d.ran = addOnce(d.ran, m.ID)
		}
	}
}

// result finds the answer of a command check.
func (d *decider) result(id string) *checks.Result {
	for i := range d.q.Results {
		if r := &d.q.Results[i]; r.Name == id && r.Provider == nil {
			return r
		}
	}
	return nil
}

// cause is why an answer does not count; reason is "" when it does.
type cause struct {
	reason wire.DegradeReason
	state  wire.Lifecycle
	health bool // in the sense of the fail policy
	detail string
}

// causeOf maps a result that is no complete answer to its cause. The fail policy
// goes by the reason that is shown, so that no word on the wire can mean two
// things.
func causeOf(r checks.Result) cause {
	var c cause
	switch r.Status {
	case checks.Passed, checks.Failed:
		return c
	case checks.TimedOut:
		c = cause{reason: wire.DegradeTimedOut, state: wire.TimedOut}
	case checks.Crashed:
		c = cause{reason: wire.DegradeCrashed, state: wire.Crashed}
	case checks.Unavailable:
		c = cause{reason: wire.DegradeUnavailable, state: wire.Unavailable}
	case checks.Quarantined:
		c = cause{reason: wire.DegradeQuarantined, state: wire.Quarantined}
	case checks.Cancelled:
		c = cause{reason: wire.DegradeCancelled, state: wire.Cancelled}
	case checks.Incomplete:
		c = cause{reason: wire.DegradeIncomplete}
	case checks.Stale:
		c = cause{reason: wire.DegradeStale}
	case checks.Unsupported:
		c = cause{reason: wire.DegradeUnsupported}
	case checks.Malformed:
		c = cause{reason: wire.DegradeMalformed, state: wire.Malformed}
	case checks.Incompatible:
		c = cause{reason: wire.DegradeIncompatible, state: wire.Incompatible}
	case checks.Skewed:
		c = cause{reason: wire.DegradeSkewed, state: wire.Incompatible}
	case checks.Missing:
		c = cause{reason: wire.DegradeMissingRequiredProvider}
	default:
		c = cause{reason: wire.DegradeError}
	}
	if r.Provider != nil {
		if r.Reason != "" {
			c.reason = r.Reason
		}
		if r.State != "" {
			c.state = r.State
		}
	}
	switch c.reason {
	case wire.DegradeTimedOut, wire.DegradeCrashed, wire.DegradeUnavailable, wire.DegradeQuarantined:
		c.health = true
	case wire.DegradeError:
		c.health = r.Status == checks.Errored && r.FailClass == wire.FailHealth
	}
	if c.detail = r.Detail; c.detail == "" {
		c.detail = r.Status.String()
	}
	return c
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
