package apply

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/aspengine/asp/checks"
	"github.com/aspengine/asp/checks/policy"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/receipt"
	"github.com/aspengine/asp/seam/provider"
	"github.com/aspengine/asp/seam/wire"
	"github.com/aspengine/asp/snapshot"
)

var (
	allFamilies  = [...]wire.Family{wire.Inspect, wire.Check, wire.Edit}
	allCallSites = [...]wire.CallSite{wire.Interactive, wire.Gate, wire.Sweep}
)

// surface is how the providers of a workspace stand under its policy, at one
// moment. It tells what could be decided, by the very rule that decides.
type surface struct {
	e      *Engine
	roster []provider.Standing
	known  []checks.Participant // enabled, with a usable manifest
}

func (e *Engine) surfaceOf(roster []provider.Standing) *surface {
	return &surface{e: e, roster: roster, known: enabled(roster)}
}

// could is what a provider would answer as it stands. One that was not launched
// yet is taken to be what its manifest says, and to prove what is demanded: the
// launch will tell, and nothing is launched to find out.
func could(s provider.Standing, f wire.Family) checks.Result {
	r := standingResult(s, f)
	if f == wire.Check {
		r.Family = ""
	}
	if !s.Used && s.Problem == "" && s.Quarantine == nil && s.Artifact.Problem == "" && !s.Unstarted {
		who := s.Participant
		who.Verified = true
		r.Provider, r.Status, r.State, r.Isolation = &who, checks.Passed, "", checks.Isolated
		if !slices.Contains(who.Families, f) {
			r.Status = checks.Unsupported
		}
	}
	if s.Outdated && r.Status == checks.Passed {
		r.Isolation = checks.Isolated // likewise: the next request launches it anew
	}
	return r
}

// results are what the enabled providers would answer; of one provider where id
// is not "".
func (u *surface) results(id string) []checks.Result {
	var out []checks.Result
	for _, s := range u.roster {
		if s.Participant.Mode == "" || id != "" && s.ID != id {
			continue
		}
		for _, f := range allFamilies {
			if slices.Contains(s.Participant.Families, f) || u.e.pinnedFor(s.ID, f) {
				out = append(out, could(s, f))
			}
		}
	}
	return out
}

// gate says whether a call-site can be decided with what is configured.
func (u *surface) gate(cs wire.CallSite) wire.GateStatus {
	g := wire.GateStatus{Available: true, RequiredProviders: []string{}, RequiredCapabilities: []wire.Family{}, Degraded: []wire.Degradation{}}
	add := func(to []string, id string) []string {
		if slices.Contains(to, id) {
			return to
		}
		return append(to, id)
	}
	required := map[string]bool{}
	for _, m := range u.e.pol.Demands(cs, nil) {
		if !m.Required {
			continue
		}
		required[m.ID] = true
		families := []wire.Family{wire.Check}
		if m.Requirement == nil {
			g.RequiredProviders = add(g.RequiredProviders, m.ID)
		} else {
			families = m.Requirement.Capabilities
			for _, p := range m.Requirement.Pins {
				g.RequiredProviders = add(g.RequiredProviders, p.ID)
			}
		}
		for _, f := range families {
			if !slices.Contains(g.RequiredCapabilities, f) {
				g.RequiredCapabilities = append(g.RequiredCapabilities, f)
			}
		}
	}
	for _, x := range policy.Decide(u.e.pol, policy.Question{CallSite: cs, Results: u.results("")}).Failures {
		// A command check that is configured can run; that it did not yet is no
		// degradation of the gate.
		if x.Requirement != "" && u.e.commandDemand(cs, x.Requirement) {
			continue
		}
		if x.Reason != wire.DegradeOptionalDegraded {
			g.Available = false
		}
		g.Degraded = append(g.Degraded, x)
	}
	return g
}

// look adds what is to be said of the providers' files without a launch.
func (e *Engine) look(ctx context.Context, roster []provider.Standing) []provider.Standing {
	if len(roster) == 0 {
		return roster
	}
	return e.o.Providers.Look(ctx, roster)
}

// role is what a provider is to the call-sites, and those that require it.
func (u *surface) role(s provider.Standing) (role string, requiredFor []wire.CallSite) {
	requiredFor = []wire.CallSite{}
	if s.Participant.Mode == "" {
		return "disabled", requiredFor
	}
	role = "advisory"
	for _, cs := range allCallSites {
		for _, f := range allFamilies {
			for _, a := range u.e.pol.Assign(cs, f, u.known) {
				if a.Provider != s.ID || len(a.Requirements) == 0 {
					continue
				}
				if a.Required && !slices.Contains(requiredFor, cs) {
					requiredFor = append(requiredFor, cs)
				}
				if role == "advisory" {
					role = "optional"
				}
			}
		}
	}
	for _, f := range allFamilies {
		if role == "advisory" && u.e.pinnedFor(s.ID, f) {
			role = "optional" // by a requirement that stands in no gate, as one on edit may
		}
	}
	if len(requiredFor) > 0 {
		role = "required"
	}
	return role, requiredFor
}

// authority is what is known of a provider, on five axes, and whether it has
// authority in a family.
func (u *surface) authority(s provider.Standing, f wire.Family) wire.AuthorityEvidence {
	base := policy.Evidence(s.Participant, isolationOf(s.Isolation))
	base.Authority.PolicyDigest = u.e.pol.Digest
	if s.Problem != "" {
		return base // nobody knows who that is
	}
	take := func(ev wire.AuthorityEvidence) wire.AuthorityEvidence {
		// What was not established by a launch is not shown as if it were.
		ev.Integrity, ev.Isolation = base.Integrity, base.Isolation
		return ev
	}
	if f == wire.Edit {
		r := could(s, wire.Edit)
		if ev, cause := u.e.pol.EditAuthority(*r.Provider, r.Isolation); cause == nil && r.Status == checks.Passed {
			return take(ev)
		}
	}
	for _, cs := range []wire.CallSite{wire.Gate, wire.Interactive, wire.Sweep} {
		d := policy.Decide(u.e.pol, policy.Question{CallSite: cs, Results: u.results(s.ID)})
		for _, ev := range d.Evidence {
			if req := u.requirement(ev.Authority.Requirement); ev.Authority.Granted && req != nil && slices.Contains(req.Capabilities, f) {
				return take(ev)
			}
		}
	}
	return base
}

func (u *surface) requirement(id string) *policy.Requirement {
	for _, r := range u.e.requirements() {
		if r.ID == id {
			return &r
		}
	}
	return nil
}

// anyAuthority is the authority that a provider has in some family.
func (u *surface) anyAuthority(s provider.Standing) wire.AuthorityEvidence {
	var ev wire.AuthorityEvidence
	for _, f := range []wire.Family{wire.Check, wire.Edit, wire.Inspect} {
		if ev = u.authority(s, f); ev.Authority.Granted {
			break
		}
	}
	return ev
}

// health is how a provider stands in one family.
func (u *surface) health(s provider.Standing, f wire.Family) wire.CapabilityHealth {
	h, ok := s.Health[f]
	if !ok {
		h = wire.CapabilityHealth{Capability: f, Advertised: slices.Contains(s.Participant.Families, f)}
		h.Available = h.Advertised
	}
	h.Capability = f
	if h.LifecycleState == "" {
		h.LifecycleState = lifecycleOf(s)
	}
	if h.Degraded == nil {
		h.Degraded = []wire.Degradation{}
	}
	r := could(s, f)
	if s.Participant.Mode == "" {
		h.Available = false
	} else if h.Advertised && r.Status != checks.Passed {
		h.Available = false
		if len(h.Degraded) == 0 {
			reason := standingReason(r.Status)
			if r.Reason != "" {
				reason = r.Reason
			}
			h.Degraded = append(h.Degraded, wire.Degradation{
				Source: s.ID, Reason: reason, Detail: valid(cutTo(detailOr(r.Detail, r.Status.String()), 1000)), Capability: f, ProviderState: lifecycleOf(s),
			})
		}
	}
	return h
}

func detailOr(s, or string) string {
	if s == "" {
		return or
	}
	return s
}

func standingReason(s checks.Status) wire.DegradeReason {
	switch s {
	case checks.Crashed:
		return wire.DegradeCrashed
	case checks.TimedOut:
		return wire.DegradeTimedOut
	case checks.Incompatible:
		return wire.DegradeIncompatible
	case checks.Malformed:
		return wire.DegradeMalformed
	case checks.Quarantined:
		return wire.DegradeQuarantined
	case checks.Unsupported:
		return wire.DegradeUnsupported
	case checks.Cancelled:
		return wire.DegradeCancelled
	}
	return wire.DegradeUnavailable
}

func lifecycleOf(s provider.Standing) wire.Lifecycle {
	switch {
	case s.Quarantine != nil:
		return wire.Quarantined
	case s.State == "":
		return wire.Unavailable
	}
	return s.State
}

// server is one provider as status shows it.
func (u *surface) server(s provider.Standing) wire.ServerStatus {
	role, requiredFor := u.role(s)
	declared := s.Problem == ""
	w := wire.ServerStatus{
		ID: valid(s.ID), Role: role, Capabilities: s.Participant.Families, AuthorityEvidence: u.anyAuthority(s), LifecycleState: lifecycleOf(s),
		CapabilityStates: wire.CapabilityHealths{Inspect: u.health(s, wire.Inspect), Check: u.health(s, wire.Check), Edit: u.health(s, wire.Edit)},
		RequiredFor:      requiredFor, ManifestState: "valid", AccessExpectationsDeclared: &declared, Detail: valid(cutTo(s.Failure, 1000)),
	}
	w.Manifest = valid(u.e.o.Home.Path(home.ServersDir, "manifests", s.ID, "asp-server.json"))
	w.ManifestDetail = &wire.ManifestDetail{Path: w.Manifest, TrustEffect: "metadata-only", Detail: "a manifest is metadata: authority comes from pins of the active policy alone"}
	if len(w.Capabilities) == 0 {
		w.Capabilities = []wire.Family{wire.Check} // the schema has no word for none
	}
	if s.Problem != "" {
		w.ManifestState, w.Detail = "malformed", valid(cutTo(s.Problem, 1000))
	}
	status := could(s, w.Capabilities[0]).Status
	w.State, w.EnrollmentState = "ready", "enrolled"
	switch {
	case s.Problem != "":
		w.State, w.EnrollmentState = "unavailable", "error"
	case s.Quarantine != nil:
		w.State, w.EnrollmentState = "quarantined", "quarantined"
		w.Detail = valid(cutTo(could(s, wire.Check).Detail, 1000))
	case s.Artifact.Problem != "":
		// What the manifest describes and what lies there are two things: the manifest
		// is sound, its publisher and its authority are what they were.
		w.State, w.EnrollmentState, w.Detail = "unavailable", "error", valid(cutTo(s.Artifact.Words(), 1000))
		if s.Artifact.Foreign {
			w.ManifestState = "untrusted"
		}
	case !s.Used && s.Unstarted:
		w.State = "unavailable"
	case !s.Used:
		w.State = "installed"
	case status == checks.Incompatible || status == checks.Malformed || status == checks.Skewed:
		w.State, w.EnrollmentState = "incompatible", "incompatible"
	case status == checks.Unavailable:
		w.State = "unavailable"
	case status != checks.Passed && status != checks.Unsupported || s.State == wire.Degraded:
		w.State = "degraded"
	}
	if s.Participant.Mode == "" && s.Problem == "" {
		w.EnrollmentState = "installed-not-enrolled"
	}
	if a := s.Ambient; a.Findings > 0 {
		if w.Detail != "" {
			w.Detail += "; "
		}
		w.Detail += valid(cutTo(a.String(), 1200))
	}
	return w
}

// servers lists all registered providers, then those that the policy pins or the
// repository enables and nobody registered.
func (u *surface) servers() []wire.ServerStatus {
	out := []wire.ServerStatus{}
	seen := map[string]bool{}
	for _, s := range u.roster {
		seen[s.ID] = true
		out = append(out, u.server(s))
	}
	absent := func(id string, families []wire.Family, ev wire.AuthorityEvidence) {
		if seen[id] {
			return
		}
		seen[id] = true
		s := provider.Standing{ID: id, Problem: "no provider of this id is registered; see `asp server add`"}
		role, requiredFor := "required", []wire.CallSite{}
		for _, cs := range allCallSites {
			for _, m := range u.e.pol.Demands(cs, nil) {
				if m.Required && m.Requirement != nil && slices.ContainsFunc(m.Requirement.Pins, func(p policy.Pin) bool { return p.ID == id }) && !slices.Contains(requiredFor, cs) {
					requiredFor = append(requiredFor, cs)
				}
			}
		}
		if len(requiredFor) == 0 {
			role = "optional"
		}
		out = append(out, wire.ServerStatus{
			ID: valid(id), Role: role, Capabilities: families, AuthorityEvidence: ev, State: "unavailable", LifecycleState: wire.Unavailable,
			EnrollmentState: "missing", ManifestState: "missing", Detail: s.Problem, RequiredFor: requiredFor,
			CapabilityStates: wire.CapabilityHealths{Inspect: u.health(s, wire.Inspect), Check: u.health(s, wire.Check), Edit: u.health(s, wire.Edit)},
		})
	}
	for _, req := range u.e.requirements() {
		for _, p := range req.Pins {
			absent(p.ID, req.Capabilities, wire.AuthorityEvidence{
				Identity: p.Identity, Integrity: "unverified:" + p.Integrity, Conformance: p.Conformance, Isolation: wire.Advisory,
				Authority: wire.Authority{Requirement: req.ID, PolicyDigest: u.e.pol.Digest},
			})
		}
	}
	var ids []string
	for id := range u.e.enrolment[u.e.ws.Root()].Servers {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		absent(id, []wire.Family{wire.Check}, wire.AuthorityEvidence{
			Identity: "unknown", Integrity: "unverified:", Conformance: notClaimed, Isolation: wire.Advisory,
			Authority: wire.Authority{Requirement: "none", PolicyDigest: u.e.pol.Digest},
		})
	}
	return out
}

// coverage is the composed surface. A provider counts in check and edit only with
// authority; whoever else offers them is shown beside, as advisory. Inspect is
// read-only, so being enabled is enough for it.
func (u *surface) coverage() wire.CapabilityCoverage {
	one := func(f wire.Family, alias string) wire.CapabilityStatus {
		c := wire.CapabilityStatus{Providers: []string{}, RequiredFor: []wire.CallSite{}, Degraded: []wire.Degradation{},
			CapabilityStates: []wire.CapabilityProviderState{}, LegacyAliases: []string{alias}}
		for _, cs := range allCallSites {
			if slices.ContainsFunc(u.e.pol.Demands(cs, nil), func(m policy.Demand) bool {
				return m.Required && (m.Requirement == nil && f == wire.Check || m.Requirement != nil && slices.Contains(m.Requirement.Capabilities, f))
			}) {
				c.RequiredFor = append(c.RequiredFor, cs)
			}
		}
		for _, s := range u.roster {
			h := u.health(s, f)
			if !h.Advertised {
				continue
			}
			role, _ := u.role(s)
			c.CapabilityStates = append(c.CapabilityStates, wire.CapabilityProviderState{
				Provider: valid(s.ID), Role: role, Capability: f, Advertised: h.Advertised, Available: h.Available, LifecycleState: h.LifecycleState, Degraded: h.Degraded,
			})
			if s.Participant.Mode == "" {
				continue
			}
			for _, g := range h.Degraded {
				if role != "required" {
					g.Detail, g.Reason = string(g.Reason)+": "+g.Detail, wire.DegradeOptionalDegraded
				}
				c.Degraded = append(c.Degraded, g)
			}
			if h.Available && (f == wire.Inspect || u.authority(s, f).Authority.Granted) {
				c.Providers = append(c.Providers, valid(s.ID))
			}
		}
		return c
	}
	c := wire.CapabilityCoverage{Inspect: one(wire.Inspect, "sense"), Check: one(wire.Check, "judge"), Edit: one(wire.Edit, "act")}
	for _, x := range u.e.cfg.Checks {
		c.Check.Providers = append(c.Check.Providers, x.ID())
	}
	for _, s := range []*wire.CapabilityStatus{&c.Inspect, &c.Check, &c.Edit} {
		s.Available = len(s.Providers) > 0
	}
	return c
}

// degraded tells whether some enabled provider is not as it should be.
func degradedServers(all []wire.ServerStatus) bool {
	return slices.ContainsFunc(all, func(s wire.ServerStatus) bool {
		return s.EnrollmentState != "installed-not-enrolled" && s.State != "ready" && s.State != "installed"
	})
}

// pending tells whether the workspace holds another policy than the committed
// one: a candidate, which authorizes nothing before it is committed.
func (e *Engine) pending(s *snapshot.Stamp) bool {
	return e.git != nil && e.isEnrolled && slices.ContainsFunc(s.Overlay, func(o snapshot.OverlayEntry) bool { return o.Path == policy.SourceRepository })
}

// activation is the activation that status shows.
func (e *Engine) activation(s *snapshot.Stamp) string {
	if e.pol.Activation == policy.Activated && e.pending(s) {
		return "pending"
	}
	return e.pol.Activation
}

// Capabilities is the composed surface after policy, health and authority. It
// may launch providers, within the interactive budget: what is advertised is
// known only then.
func (e *Engine) Capabilities(ctx context.Context, q SurfaceRequest) (*wire.CapabilitiesResult, error) {
	started := e.now()
	_, base, roster, err := e.survey(ctx, "host/capabilities", &q, started)
	if err != nil {
		return nil, err
	}
	roster = e.warm(ctx, roster)
	if err := ctx.Err(); err != nil {
		return nil, e.failRequest(context.WithoutCancel(ctx), receipt.Draft{
			Kind: wire.ReceiptCapabilities, Family: wire.Check, CallSite: q.CallSite, RequestDigest: q.RequestDigest, PolicyDigest: e.pol.Digest,
			Baseline: base, Coverage: emptyCoverage(), Started: started,
		}, err, err)
	}
	u := e.surfaceOf(roster)
	cs := q.CallSite
	if cs == "" {
		cs = wire.Gate
	}
	g := u.gate(cs)
	r := &wire.CapabilitiesResult{Capabilities: u.coverage(), Sources: u.servers()}
	cov := wire.Coverage{Exhaustive: len(g.Degraded) == 0, Required: []string{}, Ran: []string{}, Degraded: g.Degraded}
	for _, m := range e.pol.Demands(cs, nil) {
		if !m.Required || slices.Contains(cov.Required, m.ID) {
			continue
		}
		cov.Required = append(cov.Required, m.ID)
		if !slices.ContainsFunc(g.Degraded, func(x wire.Degradation) bool {
			return x.Requirement == m.ID && x.Reason != wire.DegradeOptionalDegraded
		}) {
			cov.Ran = append(cov.Ran, m.ID)
		}
	}
	cov.Enrolled = cov.Required
	r.Coverage = wire.HostCoverage{Exhaustive: &cov.Exhaustive, Required: cov.Required, Enrolled: cov.Required, Ran: cov.Ran, Degraded: cov.Degraded}
	r.LegacyRoles = &wire.LegacyRoles{Sense: &r.Capabilities.Inspect.Available, Judge: &r.Capabilities.Check.Available, Act: &r.Capabilities.Edit.Available}
	r.Receipt, err = e.surfaceReceipt(ctx, wire.ReceiptCapabilities, q, base, cov, u, started)
	return r, err
}

// survey is what a question about the surface begins with: the workspace as it is, and who
// is there.
func (e *Engine) survey(ctx context.Context, method string, q *SurfaceRequest, at time.Time) (*snapshot.Stamp, wire.Baseline, []provider.Standing, error) {
	if q.RequestDigest == "" {
		q.RequestDigest = RequestDigest(method, canon.ObjectOf())
	}
	stamp, err := e.ws.Stamp(ctx, snapshot.StampOptions{Watched: true})
	if err != nil {
		return nil, wire.Baseline{}, nil, err
	}
	base := e.issue(stamp.Baseline, at)
	roster, err := e.roster(ctx)
	return stamp, base, roster, err
}

// warm launches the enabled providers that do not run, all at once.
func (e *Engine) warm(ctx context.Context, roster []provider.Standing) []provider.Standing {
	if b := e.pol.Budget(wire.Interactive); b > 0 {
		var done context.CancelFunc
		ctx, done = context.WithTimeout(ctx, b)
		defer done()
	}
	out := slices.Clone(roster)
	var wg sync.WaitGroup
	for i, s := range out {
		if s.Participant.Mode == "" || s.Problem != "" || s.Quarantine != nil {
			continue
		}
		wg.Go(func() { out[i] = e.o.Providers.Warm(ctx, s.ID) })
	}
	wg.Wait()
	return out
}

// AuthorityStatus is host/authority/status. It launches nothing.
func (e *Engine) AuthorityStatus(ctx context.Context, q SurfaceRequest) (*wire.AuthorityStatusResult, error) {
	started := e.now()
	stamp, base, roster, err := e.survey(ctx, "host/authority/status", &q, started)
	if err != nil {
		return nil, err
	}
	u := e.surfaceOf(e.look(ctx, roster))
	r := &wire.AuthorityStatusResult{PolicyActivation: "base-active", PolicyDigest: e.pol.Digest, Providers: u.servers()}
	if e.pending(stamp) {
		r.PolicyActivation = "candidate-pending"
	}
	r.Receipt, err = e.surfaceReceipt(ctx, wire.ReceiptAuthorityStatus, q, base, emptyCoverage(), u, started)
	return r, err
}

// surfaceReceipt stores the receipt of a request about the surface.
func (e *Engine) surfaceReceipt(ctx context.Context, kind wire.ReceiptKind, q SurfaceRequest, base wire.Baseline, cov wire.Coverage, u *surface, started time.Time) (wire.AuditReceipt, error) {
	d := receipt.Draft{
		Kind: kind, Family: wire.Check, CallSite: q.CallSite, RequestDigest: q.RequestDigest, PolicyDigest: e.pol.Digest, Baseline: base,
		Coverage: cov, Started: started, Ended: e.now(),
	}
	for _, s := range u.roster {
		if s.Participant.Mode == "" || s.Problem != "" {
			continue
		}
		for _, f := range s.Participant.Families {
			d.Providers = append(d.Providers, provenanceOf(s.Participant, f))
		}
		d.Authority = append(d.Authority, u.anyAuthority(s))
	}
	r := receipt.New(d, e.o.Version)
	_, err := e.receipts.Append(ctx, receipt.Entry{Receipt: r, Outcome: receipt.Answered})
	if err != nil {
		err = fmt.Errorf("store receipt: %w", err)
	}
	return r, err
}
