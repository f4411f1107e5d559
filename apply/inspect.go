package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aspengine/asp/checks"
	"github.com/aspengine/asp/checks/policy"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/receipt"
	"github.com/aspengine/asp/seam/provider"
	"github.com/aspengine/asp/seam/wire"
	"github.com/aspengine/asp/snapshot"
)

// Inspect asks the enrolled inspect providers. Coverage that is missing or stale
// is degraded in the result, never an empty answer; what is wrong with the
// request itself is a *wire.Error.
func (e *Engine) Inspect(ctx context.Context, q InspectRequest) (*wire.QueryInspectResult, error) {
	r := &inspection{e: e, q: q, started: e.now(), began: time.Now()}
	if q.RequestDigest == "" {
		r.q.RequestDigest = RequestDigest("host/queryInspect", canon.ObjectOf(
			canon.Member{Key: "callSite", Value: canon.StringOf(string(q.CallSite))}, canon.Member{Key: "request", Value: q.Request}))
	}
	out, err := r.run(ctx)
	if err != nil {
		base := r.baseline
		if base.Rev == "" {
			base.Rev = unknownRev
		}
		return nil, e.failRequest(context.WithoutCancel(ctx), receipt.Draft{
			Kind: wire.ReceiptInspect, Family: wire.Inspect, CallSite: q.CallSite, RequestDigest: r.q.RequestDigest, PolicyDigest: e.pol.Digest,
			Baseline: base, Coverage: emptyCoverage(), Started: r.started,
		}, ctx.Err(), err)
	}
	return out, nil
}

type inspection struct {
	e              *Engine
	q              InspectRequest
	started, began time.Time
	baseline       wire.Baseline
	call           wire.InspectCall
	cov            wire.HostCoverage
	served         []string
	providers      []wire.ProviderProvenance
	authority      []wire.AuthorityEvidence
	mode           wire.Mode // weakest of those who answered
	results        []wire.InspectResult
	network        []NetworkRecord
	faults         []fault // stored once the coverage is known
}

// inspectVerb tells a verb of the inner seam that only reads.
func inspectVerb(m string) bool {
	verb, ok := strings.CutPrefix(m, "inspect/")
	if !ok {
		verb, ok = strings.CutPrefix(m, "sense/")
	}
	return ok && verb != "" && !strings.ContainsAny(verb, "/ \t\r\n")
}

func (r *inspection) run(ctx context.Context) (*wire.QueryInspectResult, error) {
	e := r.e
	if err := wire.Decode(r.q.Request, &r.call); err != nil {
		return nil, &inputError{wire.CodeInvalidInput, wire.FailInput, wire.DegradeMalformed, "request: " + err.Error()}
	}
	if !inspectVerb(r.call.Method) {
		return nil, &inputError{wire.CodeInvalidInput, wire.FailInput, wire.DegradeUnsupported, fmt.Sprintf("method %q is no inspect verb; there are inspect/references, callers, callees, symbols, impact and query", cut(r.call.Method))}
	}
	if err := e.settle(ctx); err != nil {
		return nil, err
	}
	stamp, err := e.ws.Stamp(ctx, snapshot.StampOptions{})
	if err != nil {
		return nil, err
	}
	r.baseline = e.issue(stamp.Baseline, r.started)
	r.cov = wire.HostCoverage{Required: []string{}, Ran: []string{}, Degraded: []wire.Degradation{}}
	roster, err := e.roster(ctx)
	if err != nil {
		return nil, err
	}
	asked := e.pol.Assign(r.q.CallSite, wire.Inspect, enabled(roster))
	demands := r.demands()
	for _, d := range demands {
		if d.Required && !slices.Contains(r.cov.Required, d.ID) {
			r.cov.Required = append(r.cov.Required, d.ID)
		}
	}
	if b := r.q.Baseline; b != nil && (b.Rev != r.baseline.Rev || b.Dirty != r.baseline.Dirty) {
		detail := fmt.Sprintf("the question is about baseline %q, which is not the present one; nothing was asked", cut(b.Rev))
		r.degrade(wire.Degradation{Source: "baseline", Reason: wire.DegradeStaleBaseline, Detail: detail, Capability: wire.Inspect})
		for _, id := range r.cov.Required {
			r.degrade(wire.Degradation{Source: "baseline", Reason: wire.DegradeStaleBaseline, Requirement: id, Detail: detail, Capability: wire.Inspect})
		}
		return r.conclude(ctx)
	}
	if len(asked) > 0 {
		// Held against its shape before anybody is started: it is no provider's fault.
		if err := provider.CheckQuery(r.call.Method, r.call.Params); err != nil {
			return nil, &inputError{wire.CodeInvalidInput, wire.FailInput, wire.DegradeMalformed, "request: " + err.Error()}
		}
	}
	answers := r.ask(ctx, stamp, asked)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	after, err := e.ws.Stamp(ctx, snapshot.StampOptions{})
	if err != nil {
		return nil, err
	}
	if after.Baseline != stamp.Baseline {
		r.degrade(wire.Degradation{Source: "baseline", Reason: wire.DegradeStale, Detail: "the workspace moved while the question was answered", Capability: wire.Inspect})
		for i := range answers {
			answers[i].stale = true
		}
	}
	if err := r.weigh(ctx, asked, answers, demands); err != nil {
		return nil, err
	}
	if len(r.results) == 0 && len(r.cov.Degraded) == 0 {
		r.degrade(wire.Degradation{Source: "inspect", Reason: wire.DegradeMissing, Detail: "no inspect provider is enabled for this repository; see `asp repo enable`", Capability: wire.Inspect})
	}
	return r.conclude(ctx)
}

// demands are the requirements of the call-site on inspect.
func (r *inspection) demands() []policy.Demand {
	var out []policy.Demand
	for _, d := range r.e.pol.Demands(r.q.CallSite, nil) {
		if d.Requirement != nil && slices.Contains(d.Requirement.Capabilities, wire.Inspect) {
			out = append(out, d)
		}
	}
	return out
}

func (r *inspection) degrade(g wire.Degradation) { r.cov.Degraded = append(r.cov.Degraded, g) }

type inspectAnswer struct {
	ans   provider.Answer
	err   error
	graph wire.InspectGraph
	stale bool
}

// ask asks all at once: one slow provider must not take the others' time.
func (r *inspection) ask(ctx context.Context, s *snapshot.Stamp, asked []policy.Assigned) []inspectAnswer {
	e := r.e
	budget := e.pol.Budget(r.q.CallSite)
	if d := time.Duration(r.q.TimeoutMs) * time.Millisecond; d > 0 && (budget == 0 || d < budget) {
		budget = d
	}
	if budget > 0 {
		budget = max(budget-time.Since(r.began), time.Millisecond)
	}
	c := e.contentOf(s, nil, nil, nil, nil)
	out := make([]inspectAnswer, len(asked))
	var wg sync.WaitGroup
	for i, a := range asked {
		wg.Go(func() {
			out[i].ans, out[i].err = e.o.Providers.Query(ctx, a.Provider, provider.QueryRequest{
				Method: r.call.Method, Params: r.call.Params, Baseline: r.baseline, Content: c, Budget: budget,
			})
			if out[i].err == nil {
				out[i].graph, out[i].err = graphOf(a.Provider, out[i].ans)
			}
		})
	}
	wg.Wait()
	return out
}

// graphOf puts an answer into the shape of the outer seam: nodes, edges and data
// as they are, whatever else the verb answers below data.
func graphOf(id string, a provider.Answer) (wire.InspectGraph, error) {
	var g wire.InspectGraph
	var rest []canon.Member
	var data canon.Value
	for k, v := range a.Value.Members() {
		switch k {
		case "nodes":
			g.Nodes = objects(v)
		case "edges":
			g.Edges = objects(v)
		case "data":
			data = v
		case "validAsOf":
			if err := wire.Decode(v, &g.ValidAsOf); err != nil {
				return g, &provider.Failure{Provider: id, Reason: wire.DegradeMalformed, State: wire.Malformed, Class: wire.FailContract, Detail: err.Error(), Participant: a.Participant}
			}
		default:
			rest = append(rest, canon.Member{Key: k, Value: v})
		}
	}
	switch {
	case len(rest) == 0:
		g.Data = data
	case data.Kind() != canon.Invalid:
		g.Data = canon.ObjectOf(append(rest, canon.Member{Key: "data", Value: data})...)
	default:
		g.Data = canon.ObjectOf(rest...)
	}
	return g, nil
}

func objects(v canon.Value) []wire.Data {
	out := make([]wire.Data, 0, v.Len())
	for _, x := range v.Elements() {
		out = append(out, x)
	}
	return out
}

// weigh turns answers into results and coverage. An answer that is stale, cut or
// missing is degraded; it is required coverage only where policy says so.
func (r *inspection) weigh(ctx context.Context, asked []policy.Assigned, answers []inspectAnswer, demands []policy.Demand) error {
	met := map[string]bool{}
	why := map[string][]wire.Degradation{}
	for i, a := range asked {
		x := answers[i]
		g := wire.Degradation{Source: a.Provider, Capability: wire.Inspect}
		var f *provider.Failure
		switch {
		case errors.As(x.err, &f):
			g.Reason, g.ProviderState, g.Detail = f.Reason, f.State, valid(cutTo(f.Detail, 1000))
			r.faults = append(r.faults, fault{
				who: r.e.failed(ctx, f, wire.Inspect), family: wire.Inspect, callSite: r.q.CallSite, requestDigest: r.q.RequestDigest, base: r.baseline,
				pol: r.e.pol, cause: g, started: r.started,
			})
		case x.err != nil:
			return x.err
		default:
			r.credit(x.ans)
			switch {
			case x.stale || x.graph.ValidAsOf.Rev != r.baseline.Rev:
				g.Reason, g.Detail = wire.DegradeStale, "the answer is about another state than the present one"
			case !x.ans.Complete:
				g.Reason, g.Detail = wire.DegradeIncomplete, "the provider did not look at everything"
			}
			if g.Reason != wire.DegradeStale {
				r.results = append(r.results, wire.InspectResult{Provider: a.Provider, Result: x.graph})
			}
		}
		for _, id := range a.Requirements {
			if g.Reason == "" {
				if c := r.entitled(id, x.ans, demands); c != nil {
					c.Requirement = id
					why[id] = append(why[id], *c)
					continue
				}
				met[id] = true
				continue
			}
			h := g
			h.Requirement = id
			why[id] = append(why[id], h)
		}
		if g.Reason != "" && len(a.Requirements) == 0 {
			g.Detail = string(g.Reason) + ": " + g.Detail
			g.Reason = wire.DegradeOptionalDegraded
			r.degrade(g)
		}
	}
	for _, d := range demands {
		switch {
		case met[d.ID]:
			if !slices.Contains(r.cov.Ran, d.ID) {
				r.cov.Ran = append(r.cov.Ran, d.ID)
			}
			continue
		case len(why[d.ID]) == 0:
			why[d.ID] = []wire.Degradation{{Source: d.ID, Reason: wire.DegradeMissingRequiredProvider, Requirement: d.ID, Capability: wire.Inspect,
				Detail: "no provider that this requirement pins is enabled for this repository"}}
		}
		for _, g := range why[d.ID] {
			if !d.Required {
				g.Detail = string(g.Reason) + ": " + g.Detail
				g.Reason = wire.DegradeOptionalDegraded
			}
			r.degrade(g)
		}
	}
	return nil
}

// entitled says why the answer of a provider does not count for a requirement;
// nil when it does. It is asked of the same rule that decides elsewhere.
func (r *inspection) entitled(id string, a provider.Answer, demands []policy.Demand) *wire.Degradation {
	who := a.Participant
	res := checks.Result{Name: checks.ProviderPrefix + who.ID, Status: checks.Passed, Isolation: isolationOf(a.Isolation), Evidence: a.Evidence}
	res.Provider, res.Family, res.State = &who, wire.Inspect, who.State
	d := policy.Decide(r.e.pol, policy.Question{CallSite: r.q.CallSite, Results: []checks.Result{res}})
	for _, ev := range d.Evidence {
		if ev.Authority.Requirement == id && !slices.Contains(r.authority, ev) {
			r.authority = append(r.authority, ev)
		}
	}
	for _, g := range d.Failures {
		if g.Requirement == id && g.Capability == wire.Inspect && g.Source == who.ID {
			return &g
		}
	}
	return nil
}

// credit notes who answered and what was given out.
func (r *inspection) credit(a provider.Answer) {
	r.providers = append(r.providers, provenanceOf(a.Participant, wire.Inspect))
	r.network = append(r.network, networkRecord(a.Participant.ID, wire.Inspect, a.Network)...)
	for _, b := range a.Served {
		r.served = append(r.served, string(b))
	}
	if m := modeOr(a.Isolation); r.mode == "" || m.Rank() < r.mode.Rank() {
		r.mode = m
	}
}

func (r *inspection) conclude(ctx context.Context) (*wire.QueryInspectResult, error) {
	e := r.e
	slices.Sort(r.served)
	exhaustive := len(r.cov.Degraded) == 0
	r.cov.Exhaustive, r.cov.Enrolled = &exhaustive, r.cov.Required
	cov := wire.Coverage{Exhaustive: exhaustive, Required: r.cov.Required, Enrolled: r.cov.Required, Ran: r.cov.Ran, Degraded: r.cov.Degraded}
	for _, f := range r.faults {
		f.cov = cov
		if _, err := e.storeFault(ctx, f); err != nil {
			return nil, err
		}
	}
	validAsOf := wire.HostValidAsOf{Rev: r.baseline.Rev, Blobs: slices.Compact(r.served)}
	rec := receipt.New(receipt.Draft{
		Kind: wire.ReceiptInspect, Family: wire.Inspect, CallSite: r.q.CallSite, RequestDigest: r.q.RequestDigest, PolicyDigest: e.pol.Digest,
		Providers: r.providers, Baseline: r.baseline, ValidAsOf: validAsOf, Authority: r.authority,
		Coverage:  cov,
		Assurance: wire.ApplyAssurance{Mode: modeOr(r.mode), TransactionGuarantee: wire.GuaranteeNone}, Started: r.started, Ended: e.now(),
	}, e.o.Version)
	evidence, err := networkEvidence(r.network)
	if err != nil {
		return nil, err
	}
	if _, err := e.receipts.Append(ctx, receipt.Entry{Receipt: rec, Outcome: receipt.Answered, Evidence: evidence}); err != nil {
		return nil, fmt.Errorf("store receipt: %w", err)
	}
	if r.results == nil {
		r.results = []wire.InspectResult{}
	}
	return &wire.QueryInspectResult{Data: wire.InspectData{Results: r.results}, ValidAsOf: validAsOf, Coverage: r.cov, Receipt: rec}, nil
}
