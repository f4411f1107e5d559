package apply

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/aspengine/asp/checks"
	"github.com/aspengine/asp/checks/policy"
	"github.com/aspengine/asp/receipt"
	"github.com/aspengine/asp/sandbox"
	"github.com/aspengine/asp/seam/provider"
	"github.com/aspengine/asp/seam/wire"
	"github.com/aspengine/asp/worktree"
)

// Providers is what the engine needs of the providers of a workspace; a
// *provider.Pool is one. It outlives engines and is shared by them, so it is safe
// for concurrent use.
type Providers interface {
	Check(id string, s provider.Subject, set provider.Settings, budget time.Duration) checks.Check
	Propose(ctx context.Context, id string, q provider.ProposeRequest) (provider.Proposal, error)
	Query(ctx context.Context, id string, q provider.QueryRequest) (provider.Answer, error)
	BaselineChanged(b wire.Baseline)
	Standing(ctx context.Context, id string) provider.Standing
	Roster(ctx context.Context) ([]provider.Standing, error)
	Look(ctx context.Context, all []provider.Standing) []provider.Standing
	Warm(ctx context.Context, id string) provider.Standing
	Demand(require sandbox.Level, isolate bool)
}

var _ Providers = (*provider.Pool)(nil)

// UseProviders gives the engine its providers after it was opened. Whoever made
// them ends them, before the engine if it holds their state.
func (e *Engine) UseProviders(p Providers, v *Verdicts) { e.o.Providers, e.o.Verdicts = p, v }

// HasProviders tells whether any provider is enabled for this repository.
func (e *Engine) HasProviders() bool { return len(e.enrolment[e.ws.Root()].Servers) > 0 }

// AsksProviders tells whether the policy asks an enabled provider at a call-site.
func (e *Engine) AsksProviders(cs wire.CallSite) bool {
	return e.HasProviders() && slices.ContainsFunc(e.pol.Demands(cs, nil), func(d policy.Demand) bool { return d.Requirement != nil })
}

// roster is how all registered providers stand; none without a pool.
func (e *Engine) roster(ctx context.Context) ([]provider.Standing, error) {
	if e.o.Providers == nil {
		return nil, nil
	}
	all, err := e.o.Providers.Roster(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the providers: %w", err)
	}
	return all, nil
}

// enabled are the participants of the roster that take part in this repository
// and whose manifest can be used.
func enabled(roster []provider.Standing) []checks.Participant {
	var out []checks.Participant
	for _, s := range roster {
		if s.Participant.Mode != "" && s.Problem == "" {
			out = append(out, s.Participant)
		}
	}
	return out
}

func standingOf(roster []provider.Standing, id string) *provider.Standing {
	for i := range roster {
		if roster[i].ID == id {
			return &roster[i]
		}
	}
	return nil
}

// settings are what the trusted configuration says of a provider.
func (e *Engine) settings(id string) provider.Settings {
	c := e.cfg.Providers[id]
	return provider.Settings{
		Checks: c.Checks, Rules: c.Rules, Sources: c.DiagnosticSources, Configuration: c.Configuration,
		ConfigDigest: c.ConfigDigest, Comparison: c.Comparison, Scope: c.Scope,
	}
}

// lazyCheck is a check that is made when it runs: what it looks at and how long it
// may take depend on what came before.
type lazyCheck struct {
	name   string
	remote bool
	family wire.Family // of a provider: what it is asked in
	run    func(ctx context.Context, c *worktree.Candidate) (checks.Result, error)
	// known, if set, is asked before a tree is built; see checks.Known.
	known func(ctx context.Context) (checks.Result, bool)
}

func (l *lazyCheck) Name() string { return l.name }
func (l *lazyCheck) Remote() bool { return l.remote }
func (l *lazyCheck) Known(ctx context.Context) (checks.Result, bool) {
	if l.known == nil {
		return checks.Result{}, false
	}
	return l.known(ctx)
}
func (l *lazyCheck) Run(ctx context.Context, c *worktree.Candidate) (checks.Result, error) {
	return l.run(ctx, c)
}

// askProviders lists the providers as checks: those that the call-site's
// requirements pin, and with all the other enabled ones, which inform. A
// requirement on another family than check is answered by how its provider
// stands, for which it is launched.
func (j *judgement) askProviders(ctx context.Context, all bool) ([]checks.Check, error) {
	var err error
	if j.roster, err = j.e.roster(ctx); err != nil || len(j.roster) == 0 {
		return nil, err
	}
	known := enabled(j.roster)
	var out []checks.Check
	for _, f := range []wire.Family{wire.Check, wire.Inspect, wire.Edit} {
		for _, a := range j.pol.Assign(j.callSite, f, known) {
			if len(a.Requirements) == 0 && (f != wire.Check || !all) {
				continue
			}
			c := &lazyCheck{name: checks.ProviderPrefix + a.Provider, remote: true, family: f}
			c.run = func(ctx context.Context, _ *worktree.Candidate) (checks.Result, error) {
				if f == wire.Check {
					return j.askCheck(ctx, a.Provider)
				}
				return j.askStanding(ctx, a.Provider, f), nil
			}
			out = append(out, c)
		}
	}
	return out, nil
}

// askCheck asks one provider for its assessment of the candidate as it is now.
func (j *judgement) askCheck(ctx context.Context, id string) (checks.Result, error) {
	budget, ok := j.left(j.pol.Budget(j.callSite))
	if !ok {
		return j.late(id), nil
	}
	began := time.Now()
	r := j.thisRound()
	set := j.e.settings(id)
	s := provider.Subject{
		Baseline: r.cand.baseline, Changeset: r.cand.changeset, ChangesetDigest: r.cand.digest, Changes: r.cand.changes,
		Content: r.content, CallSite: j.callSite, Comparison: j.comparison,
	}
	if set.Scope == "impact" {
		scope, why := r.impact(ctx)
		if why != "" {
			// The whole workspace is more than the impact, never less.
			set.Scope = wire.ScopeWorkspace
			j.note(fmt.Sprintf("provider %.100q looks at the whole workspace: %s", id, why))
		} else {
			s.Scope = scope
		}
	}
	known := j.e.o.Verdicts
	asker, subject := j.asker(ctx, id, set), subjectKey(s, set)
	if res, ok := known.get(verdictKey(asker, subject, j.callSite, s.Comparison, set.Comparison)); ok {
		res.Cache, res.Started, res.Elapsed = "verdict", began, time.Since(began)
		known.expect(r.cand.digest)
		return res, nil
	}
	if budget > 0 && set.Scope != "" && set.Scope != wire.ScopeChangeset {
		// What the impact took is not the provider's fault, and is gone all the same.
		if budget -= time.Since(began); budget <= 0 {
			return j.late(id), nil
		}
	}
	s.Views = known.recall(asker, subject, s, set)
	j.asked.Store(true)
	res, err := j.e.o.Providers.Check(id, s, set, budget).Run(ctx, nil)
	switch {
	case err != nil:
	case res.Status == checks.Passed || res.Status == checks.Failed:
		asker = j.asker(ctx, id, set) // as it was launched for this
		j.mu.Lock()
		j.learned = append(j.learned, func() {
			known.put(verdictKey(asker, subject, j.callSite, s.Comparison, set.Comparison), asker, res)
			known.expect(r.cand.digest)
			j.remember(ctx, asker, subject, r, s, set, res.Accepted)
		})
		j.mu.Unlock()
	case res.Status == checks.Malformed:
		known.forget(asker)
	}
	return res, err
}

// late is the answer of a provider for which no time is left.
func (j *judgement) late(id string) checks.Result {
	r := checks.Result{Name: checks.ProviderPrefix + id, Status: checks.TimedOut, Detail: j.usedUp()}
	if s := standingOf(j.roster, id); s != nil {
		who := s.Participant
		r.Provider, r.State = &who, wire.TimedOut
	}
	return r
}

// askStanding launches a provider that a requirement on another family pins, and
// says how it stands.
func (j *judgement) askStanding(ctx context.Context, id string, f wire.Family) checks.Result {
	budget, ok := j.left(j.pol.Budget(j.callSite))
	if !ok {
		r := j.late(id)
		r.Family = f
		return r
	}
	if budget > 0 {
		var done context.CancelFunc
		ctx, done = context.WithTimeout(ctx, budget)
		defer done()
	}
	j.asked.Store(true)
	return standingResult(j.e.o.Providers.Warm(ctx, id), f)
}

// standingResult is the standing of a provider in the words of a check.
func standingResult(s provider.Standing, f wire.Family) checks.Result {
	who := s.Participant
	r := checks.Result{Name: checks.ProviderPrefix + s.ID, Isolation: isolationOf(s.Isolation), Evidence: s.Evidence, DirectWrite: who.DirectWrite}
	r.Probed = s.Probed
	r.Provider, r.Family, r.State, r.Detail = &who, f, s.State, s.Failure
	switch {
	case s.Problem != "":
		r.Status, r.Detail = checks.Unavailable, s.Problem
	case s.Quarantine != nil:
		r.Status, r.State = checks.Quarantined, wire.Quarantined
		r.Detail = fmt.Sprintf("in quarantine after %d failures in a row (%s); `asp server reset %s` ends it", s.Quarantine.Failures, s.Quarantine.Reason, s.ID)
	case s.Artifact.Problem != "":
		r.Status, r.State, r.Detail = checks.Unavailable, wire.Unavailable, s.Artifact.Words()
		if s.Artifact.Foreign {
			r.Reason = wire.DegradeMissingAuthority // no matter of health, which opens
		}
	default:
		r.Status = statusOf(s.State)
	}
	if r.Status == checks.Passed && !s.Health[f].Available && len(s.Health) > 0 {
		r.Status, r.Detail = checks.Unsupported, fmt.Sprintf("it does not offer %s", f)
	}
	return r
}

// statusOf maps where a lifecycle stands to a status; a provider that runs, or
// ran and ended in order, is as it should be.
func statusOf(l wire.Lifecycle) checks.Status {
	switch l {
	case wire.Crashed:
		return checks.Crashed
	case wire.TimedOut:
		return checks.TimedOut
	case wire.Incompatible:
		return checks.Incompatible
	case wire.Malformed:
		return checks.Malformed
	case wire.Unavailable:
		return checks.Unavailable
	case wire.Quarantined:
		return checks.Quarantined
	case wire.Cancelled:
		return checks.Cancelled
	}
	return checks.Passed
}

func isolationOf(m wire.Mode) checks.Isolation {
	i, _ := checks.ParseIsolation(string(m))
	return i
}

// tookPart tells whether a result comes from somebody who was started: whoever
// was not cannot have done anything.
func tookPart(r checks.Result) bool {
	switch r.Status {
	case checks.Missing, checks.Quarantined:
		return false
	case checks.Unavailable, checks.TimedOut, checks.Cancelled:
		return r.Provider == nil || r.Provider.ServerVersion != ""
	}
	return true
}

func provenanceOf(who checks.Participant, f wire.Family) wire.ProviderProvenance {
	p := wire.ProviderProvenance{Provider: who.ID, Capability: f, Identity: who.Publisher, Integrity: who.Fingerprint, Conformance: notClaimed}
	if who.NoChecksums {
		p.Integrity = "unverified:" + p.Integrity
	}
	if len(who.Profiles) > 0 {
		p.Conformance = who.Profiles[0]
	}
	return p
}

// notClaimed stands where a provider names no profile that it conforms to.
const notClaimed = "not_claimed"

// servedBlobs is what all providers together were given, sorted.
func servedBlobs(results []checks.Result) []string {
	var out []string
	for _, r := range results {
		for _, b := range r.Served {
			out = append(out, string(b))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// providerFault tells whether a result is a failure of its provider, and says so
// in the words of a receipt.
func providerFault(r checks.Result) (wire.Degradation, bool) {
	if r.Provider == nil {
		return wire.Degradation{}, false
	}
	g := wire.Degradation{Source: r.Provider.ID, Reason: r.Reason, Detail: valid(cutTo(r.Detail, 1000)), Capability: r.Family, ProviderState: r.State}
	if g.Capability == "" {
		g.Capability = wire.Check
	}
	reason := wire.DegradeReason("")
	switch r.Status {
	case checks.Malformed:
		reason = wire.DegradeMalformed
	case checks.Crashed:
		reason = wire.DegradeCrashed
	case checks.TimedOut:
		reason = wire.DegradeTimedOut
	case checks.Incompatible:
		reason = wire.DegradeIncompatible
	case checks.Skewed:
		reason = wire.DegradeSkewed
	case checks.Errored:
		reason = wire.DegradeError
	case checks.Stale:
		if r.State == "" {
			return g, false // the tree moved; nobody's fault
		}
		reason = wire.DegradeStale
	default:
		return g, false
	}
	if g.Reason == "" {
		g.Reason = reason
	}
	if g.Detail == "" {
		g.Detail = r.Status.String()
	}
	return g, true
}

// recordFaults stores a receipt for every provider that failed.
func (j *judgement) recordFaults(ctx context.Context, requestDigest, csDigest string, base wire.Baseline) error {
	var cov wire.Coverage
	if j.decision != nil {
		cov = j.decision.Coverage
	} else {
		cov = unmet(j.pol.Demands(j.callSite, j.named), "not judged: the attempt ended before")
	}
	for _, r := range j.report.Results {
		g, bad := providerFault(r)
		if !bad {
			continue
		}
		_, err := j.e.storeFault(ctx, fault{
			who: r, family: g.Capability, callSite: j.callSite, requestDigest: requestDigest, csDigest: csDigest,
			base: base, pol: j.pol, cov: cov, cause: g, started: j.started,
		})
		if err != nil {
			return err
		}
	}
	for _, f := range j.faults {
		_, err := j.e.storeFault(ctx, fault{
			who: j.e.failed(ctx, f, wire.Inspect), family: wire.Inspect, callSite: j.callSite, requestDigest: requestDigest, csDigest: csDigest,
			base: base, pol: j.pol, cov: cov, cause: causeOf(f, wire.Inspect), started: j.started,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// fault is one failure of a provider, for a receipt of its own.
type fault struct {
	who                     checks.Result // of the provider, as far as it was established
	family                  wire.Family
	callSite                wire.CallSite
	requestDigest, csDigest string
	proposalID              string
	base                    wire.Baseline
	pol                     policy.Policy
	cov                     wire.Coverage // of the request that it failed
	cause                   wire.Degradation
	started                 time.Time
	network                 []NetworkRecord // of others that were asked before it
}

// failed is the result of a provider that gave no answer, for a fault. Who that is
// comes from the failure, or where that does not say, from how the provider stands.
func (e *Engine) failed(ctx context.Context, f *provider.Failure, family wire.Family) checks.Result {
	who := f.Participant
	if who.ID == "" && e.o.Providers != nil {
		who = e.o.Providers.Standing(ctx, f.Provider).Participant
	}
	who.ID = f.Provider
	r := checks.Result{Name: checks.ProviderPrefix + who.ID, Status: checks.Errored, Detail: f.Detail}
	r.Provider, r.Family, r.State, r.Reason, r.FailClass = &who, family, f.State, f.Reason, f.Class
	r.Network = f.Network
	return r
}

// storeFault stores a receipt of kind provider-failure and returns its id. Its
// coverage is that of the request, with the failure itself among what degraded it,
// in the words of the failure where the decision has others (an optional provider's,
// one that fails open).
func (e *Engine) storeFault(ctx context.Context, f fault) (string, error) {
	cov := f.cov
	cov.Exhaustive = false
	if !slices.ContainsFunc(cov.Degraded, func(g wire.Degradation) bool {
		return g.Source == f.cause.Source && g.Reason == f.cause.Reason && g.Capability == f.cause.Capability
	}) {
		cov.Degraded = append([]wire.Degradation{f.cause}, cov.Degraded...)
	}
	d := receipt.Draft{
		Kind: wire.ReceiptProviderFailure, Family: f.family, CallSite: f.callSite, RequestDigest: f.requestDigest, ChangesetDigest: f.csDigest,
		ProposalID: f.proposalID, PolicyDigest: f.pol.Digest, Baseline: f.base, Coverage: cov, Authority: authorityOf(f.pol, f.callSite, f.who, f.family),
		ValidAsOf: wire.HostValidAsOf{Rev: f.base.Rev, Blobs: servedBlobs([]checks.Result{f.who})},
		Providers: []wire.ProviderProvenance{provenanceOf(*f.who.Provider, f.family)}, Started: f.started, Ended: e.now(),
	}
	ev, err := networkEvidence(slices.Concat(f.network, networkRecord(f.who.Provider.ID, f.family, f.who.Network)))
	if err != nil {
		return "", err
	}
	st, err := e.receipts.Append(ctx, receipt.Entry{Receipt: receipt.New(d, e.o.Version), Outcome: receipt.Failed, Evidence: ev})
	if err != nil {
		return "", fmt.Errorf("store receipt: %w", err)
	}
	return st.Receipt.ReceiptID, nil
}

// authorityOf is the evidence on the provider of a result, for a receipt: by the
// requirements of the call-site, or, where none is about it, what is known of it and
// that it was granted nothing.
func authorityOf(p policy.Policy, cs wire.CallSite, r checks.Result, f wire.Family) []wire.AuthorityEvidence {
	if f == wire.Edit {
		ev, _ := p.EditAuthority(*r.Provider, r.Isolation)
		ev.Authority.CallSite = cs
		return []wire.AuthorityEvidence{ev}
	}
	if d := policy.Decide(p, policy.Question{CallSite: cs, Results: []checks.Result{r}}); len(d.Evidence) > 0 {
		return d.Evidence
	}
	ev := policy.Evidence(*r.Provider, r.Isolation)
	ev.Authority.CallSite, ev.Authority.PolicyDigest = cs, p.Digest
	return []wire.AuthorityEvidence{ev}
}

// unmet is the coverage of requirements before any was judged.
func unmet(demands []policy.Demand, why string) wire.Coverage {
	c := emptyCoverage()
	for _, d := range demands {
		if d.Required && !slices.Contains(c.Required, d.ID) {
			c.Required = append(c.Required, d.ID)
			c.Degraded = append(c.Degraded, wire.Degradation{Source: d.ID, Reason: wire.DegradeIncomplete, Requirement: d.ID, Detail: why})
		}
	}
	c.Enrolled, c.Exhaustive = c.Required, len(c.Required) == 0
	return c
}

func emptyCoverage() wire.Coverage {
	return wire.Coverage{Required: []string{}, Enrolled: []string{}, Ran: []string{}, Degraded: []wire.Degradation{}}
}

// cutTo bounds foreign text.
func cutTo(s string, n int) string {
	if len(s) > n {
		return s[:n] + "…"
	}
	return s
}

// requirements are all of the active policy: the repository's and the floor's.
func (e *Engine) requirements() []policy.Requirement {
	var out []policy.Requirement
	for _, r := range []*policy.Repository{e.pol.Repository, e.pol.Config.Floor} {
		if r != nil {
			out = append(out, r.Requirements...)
		}
	}
	return out
}
