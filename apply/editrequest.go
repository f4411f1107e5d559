package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aspengine/asp/checks"
	"github.com/aspengine/asp/editplan"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/receipt"
	"github.com/aspengine/asp/seam/provider"
	"github.com/aspengine/asp/seam/wire"
	"github.com/aspengine/asp/snapshot"
)

// proposeSpec is what a provider is asked a plan for.
type proposeSpec struct {
	provider, operation string
	args                canon.Value
	scope               []string
	profile             string
	callSite            wire.CallSite
	proposalID          string
	baseline            wire.Baseline
	budget              time.Duration
	replaces            []string // digests of earlier plans of the same id
}

// proposed is what came of it. plan is nil unless the status is complete; then
// it is kept.
type proposed struct {
	status      wire.Status
	value       canon.Value
	file        editplan.File
	plan        *editplan.Plan
	origin      *origin
	participant checks.Participant
	isolation   wire.Mode
	evidence    string
	network     []string
	served      []wire.BlobRef
}

// propose asks one provider for a plan, holds the answer against what a plan has
// to be, and keeps it. The error is a *provider.Failure where it is the
// provider's. A plan that is too large to keep comes with the error.
func (e *Engine) propose(ctx context.Context, s *snapshot.Stamp, q proposeSpec) (*proposed, error) {
	p, err := e.o.Providers.Propose(ctx, q.provider, provider.ProposeRequest{
		Operation: q.operation, Args: q.args, Baseline: q.baseline, Scope: q.scope, Profile: q.profile, ProposalID: q.proposalID,
		Content: e.contentOf(s, nil, nil, nil, nil), Budget: q.budget,
	})
	if err != nil {
		return nil, err
	}
	out := &proposed{
		status: p.Decoded.Status, value: p.Plan, participant: p.Participant, isolation: p.Isolation, evidence: p.Evidence, network: p.Network, served: p.Served,
	}
	bad := func(reason wire.DegradeReason, format string, a ...any) (*proposed, error) {
		return nil, &provider.Failure{Provider: q.provider, Reason: reason, State: wire.Malformed, Class: wire.FailContract,
			Detail: cutTo(fmt.Sprintf(format, a...), 1000), Participant: p.Participant, Network: p.Network}
	}
	if p.Participant.DirectWrite {
		return bad(wire.DegradeDirectWriteRisk, "it asked for, or has, a way to write the workspace without the host, so nothing that it proposes is taken")
	}
	if p.Decoded.Status != wire.StatusComplete {
		return out, nil
	}
	out.file = editplan.File{Proposal: p.Plan}
	for _, b := range p.Blobs {
		out.file.Blobs = append(out.file.Blobs, editplan.Blob{Digest: snapshot.DigestOf(b), Bytes: b})
	}
	slices.SortFunc(out.file.Blobs, func(a, b editplan.Blob) int { return slices.Compare(a.Digest[:], b.Digest[:]) })
	plan, items, err := editplan.Compile(out.file, planLimits(e.cfg), e.blobLookup())
	if err != nil {
		return nil, fmt.Errorf("look up content of the plan: %w", err)
	}
	if len(items) > 0 {
		return bad(wire.DegradeMalformed, "its plan cannot be applied: %s", items.First())
	}
	out.plan, out.origin = plan, &origin{
		Provider: originProviderOf(p.Participant), Isolation: modeOr(p.Isolation), Evidence: valid(p.Evidence), Probed: p.Probed, Network: validAll(p.Network), Operation: q.operation, Args: q.args,
		Scope: q.scope, Profile: q.profile, CallSite: q.callSite, PlanDigest: canon.DigestText(p.Plan),
		Replaces: q.replaces,
	}
	err = e.keepPlan(q.proposalID, out.file, *out.origin)
	if large := (*TooLargeError)(nil); errors.As(err, &large) {
		// Its origin could not be kept beside it, so nobody could apply it for what it is.
		err = &inputError{wire.CodeScopeDenied, wire.FailPolicy, wire.DegradeUnsupported,
			fmt.Sprintf("the plan of %q is %d bytes with its content, and a host keeps plans of %d; ask for a smaller scope", cut(q.provider), large.Bytes, large.Limit)}
	}
	return out, err
}

func modeOr(m wire.Mode) wire.Mode {
	if m == "" {
		return wire.Advisory
	}
	return m
}

// RequestEdit asks an edit provider for a plan and keeps it, with the content
// that it put, under its proposal id. Nothing in the workspace changes. A plan of
// another status than complete is an answer and is not kept; an answer that is no
// acceptable plan is a *wire.Error of class contract, whose detail names the
// stored receipt of the failure.
func (e *Engine) RequestEdit(ctx context.Context, q EditRequest) (*wire.RequestEditPlanResult, error) {
	r := &editRequest{e: e, q: q, started: e.now(), baseline: q.Baseline}
	if r.q.ProposalID == "" {
		r.q.ProposalID = "proposal-" + home.Random(12)
	}
	if r.q.RequestDigest == "" {
		r.q.RequestDigest = RequestDigest("host/requestEditPlan", editParams(q))
	}
	out, err := r.run(ctx)
	if err != nil {
		return nil, r.fail(context.WithoutCancel(ctx), ctx.Err(), err)
	}
	return out, nil
}

func editParams(q EditRequest) canon.Value {
	base, err := canon.From(q.Baseline)
	if err != nil {
		base = canon.NullOf()
	}
	m := []canon.Member{
		{Key: "callSite", Value: canon.StringOf(string(q.CallSite))}, {Key: "operation", Value: canon.StringOf(q.Operation)}, {Key: "baseline", Value: base},
	}
	if q.Args.Kind() != canon.Invalid {
		m = append(m, canon.Member{Key: "args", Value: q.Args})
	}
	if q.Scope.Kind() != canon.Invalid {
		m = append(m, canon.Member{Key: "scope", Value: q.Scope})
	}
	if q.ProposalID != "" {
		m = append(m, canon.Member{Key: "proposalId", Value: canon.StringOf(q.ProposalID)})
	}
	return canon.ObjectOf(m...)
}

type editRequest struct {
	e        *Engine
	q        EditRequest
	started  time.Time
	baseline wire.Baseline
	asked    string // the provider
	network  []NetworkRecord
}

func (r *editRequest) run(ctx context.Context) (*wire.RequestEditPlanResult, error) {
	e, q := r.e, r.q
	if q.Operation == "" {
		return nil, &inputError{wire.CodeInvalidInput, wire.FailInput, wire.DegradeMalformed, "operation is empty"}
	}
	var scope wire.EditScope
	if q.Scope.Kind() != canon.Invalid {
		if err := wire.Decode(q.Scope, &scope); err != nil {
			return nil, &inputError{wire.CodeInvalidInput, wire.FailInput, wire.DegradeMalformed, "scope: " + err.Error()}
		}
	}
	if err := e.settle(ctx); err != nil {
		return nil, err
	}
	stamp, err := e.ws.Stamp(ctx, snapshot.StampOptions{Watched: true})
	if err != nil {
		return nil, err
	}
	now := e.issue(stamp.Baseline, r.started)
	if q.Baseline.Rev != now.Rev || q.Baseline.Dirty != now.Dirty {
		r.baseline = now
		return nil, &inputError{wire.CodeStaleBaseline, wire.FailInput, wire.DegradeStaleBaseline,
			fmt.Sprintf("baseline %q is not the present one; take it from host/status and ask again", cut(q.Baseline.Rev))}
	}
	ids, err := r.candidates(ctx)
	if err != nil {
		return nil, err
	}
	q = r.q // a provider that the operation names is asked alone
	deadline := time.Time{}
	budget := e.pol.Budget(q.CallSite)
	if budget > 0 {
		deadline = time.Now().Add(budget)
	}
	var last *proposed
	var without []string // what those say that do not offer the operation
	for _, id := range ids {
		if !deadline.IsZero() {
			if budget = time.Until(deadline); budget <= 0 {
				break
			}
		}
		r.asked = id
		got, err := e.propose(ctx, stamp, proposeSpec{
			provider: id, operation: q.Operation, args: q.Args, scope: scope.Paths, profile: scope.OperationProfile, callSite: q.CallSite,
			proposalID: q.ProposalID, baseline: q.Baseline, budget: budget,
		})
		if f := provider.AsFailure(err); f != nil && f.Reason == wire.DegradeUnsupported {
			without = append(without, fmt.Sprintf("%s: %s", cut(f.Provider), cutTo(f.Detail, 300)))
			// It was not asked, or said that it does not know the method.
			r.network = append(r.network, networkRecord(id, wire.Edit, f.Network)...)
			continue
		}
		if got != nil {
			r.network = append(r.network, networkRecord(id, wire.Edit, got.network)...)
		}
		if err != nil {
			return nil, err
		}
		if last = got; got.status != wire.StatusUnsupported {
			break
		}
	}
	if last == nil && len(without) > 0 {
		return nil, &inputError{wire.CodeInvalidInput, wire.FailInput, wire.DegradeUnsupported,
			cutTo(fmt.Sprintf("no enabled edit provider offers operation %q (%s)", cut(q.Operation), strings.Join(without, "; ")), 1000)}
	}
	return r.conclude(ctx, last)
}

// candidates are the providers to ask, in order: those that may edit here before
// the others, and of each those first that say they know the operation.
func (r *editRequest) candidates(ctx context.Context) ([]string, error) {
	roster, err := r.e.roster(ctx)
	if err != nil {
		return nil, err
	}
	if id, operation, ok := strings.Cut(r.q.Operation, "/"); ok && operation != "" && r.q.Provider == "" && slices.ContainsFunc(roster, func(s provider.Standing) bool {
		return s.Participant.ID == id && s.Participant.Mode != "" && slices.Contains(s.Participant.Families, wire.Edit)
	}) {
		r.q.Provider, r.q.Operation = id, operation // as the fix of a finding has it
	}
	type option struct {
		id   string
		rank int
	}
	var all []option
	for _, s := range roster {
		who := s.Participant
		if r.q.Provider != "" && who.ID != r.q.Provider || who.Mode == "" || s.Problem != "" || !slices.Contains(who.Families, wire.Edit) {
			continue
		}
		o := option{id: s.ID}
		if s.Quarantine != nil {
			o.rank += 8 // asked only when nobody else is there, to say so
		}
		if b := s.Capabilities.EditBlock(); b != nil && !slices.Contains(b.Operations, r.q.Operation) {
			o.rank += 4
		}
		if !r.e.pinnedFor(who.ID, wire.Edit) || who.Mode != wire.Gated {
			o.rank += 2
		}
		all = append(all, o)
	}
	if len(all) == 0 {
		msg := "no edit provider is enabled for this repository; see `asp repo enable`"
		if r.q.Provider != "" {
			msg = fmt.Sprintf("no edit provider %q is enabled for this repository; see `asp repo enable`", cut(r.q.Provider))
		}
		return nil, &inputError{wire.CodeNotReady, wire.FailPolicy, wire.DegradeMissingRequiredProvider, msg}
	}
	slices.SortStableFunc(all, func(a, b option) int { return a.rank - b.rank })
	out := make([]string, len(all))
	for i, o := range all {
		out[i] = o.id
	}
	return out, nil
}

// pinnedFor tells whether some requirement of the active policy names a provider
// for a family.
func (e *Engine) pinnedFor(id string, f wire.Family) bool {
	for _, req := range e.requirements() {
		if !slices.Contains(req.Capabilities, f) {
			continue
		}
		for _, pin := range req.Pins {
			if pin.ID == id {
				return true
			}
		}
	}
	return false
}

func (r *editRequest) conclude(ctx context.Context, p *proposed) (*wire.RequestEditPlanResult, error) {
	if p == nil {
		return nil, &inputError{wire.CodeNotReady, wire.FailHealth, wire.DegradeTimedOut, "the budget of the call-site was used up before a provider could be asked"}
	}
	e := r.e
	ev, cause := e.pol.EditAuthority(p.participant, isolationOf(p.isolation))
	ev.Authority.CallSite = r.q.CallSite
	d := r.draft()
	d.Kind, d.Providers = wire.ReceiptEditRequest, []wire.ProviderProvenance{provenanceOf(p.participant, wire.Edit)}
	d.Authority = []wire.AuthorityEvidence{ev}
	d.Assurance = wire.ApplyAssurance{Mode: modeOr(p.isolation), TransactionGuarantee: wire.GuaranteeNone, Detail: valid(p.evidence)}
	d.ValidAsOf = wire.HostValidAsOf{Rev: r.baseline.Rev}
	for _, b := range p.served {
		d.ValidAsOf.Blobs = append(d.ValidAsOf.Blobs, string(b))
	}
	slices.Sort(d.ValidAsOf.Blobs)
	d.ValidAsOf.Blobs = slices.Compact(d.ValidAsOf.Blobs)
	if cause != nil {
		// It may be looked at and not applied; that is said now and not only then.
		d.Failures = append(d.Failures, *cause)
	}
	if p.status != wire.StatusComplete {
		d.Failures = append(d.Failures, wire.Degradation{Source: p.participant.ID, Reason: planReason(p.status), Capability: wire.Edit, Detail: "the plan has the status " + string(p.status)})
	}
	d.Ended = e.now()
	rec := receipt.New(d, e.o.Version)
	evidence, err := networkEvidence(r.network)
	if err != nil {
		return nil, err
	}
	if _, err := e.receipts.Append(ctx, receipt.Entry{Receipt: rec, Outcome: receipt.Answered, Evidence: evidence}); err != nil {
		return nil, fmt.Errorf("store receipt: %w", err)
	}
	return &wire.RequestEditPlanResult{Proposal: p.value, Receipt: rec}, nil
}

func planReason(s wire.Status) wire.DegradeReason {
	switch s {
	case wire.StatusIncomplete:
		return wire.DegradeIncomplete
	case wire.StatusUnsupported:
		return wire.DegradeUnsupported
	case wire.StatusCancelled:
		return wire.DegradeCancelled
	}
	return wire.DegradeError
}

func (r *editRequest) draft() receipt.Draft {
	base := r.baseline
	if base.Rev == "" {
		base.Rev = unknownRev
	}
	return receipt.Draft{
		Kind: wire.ReceiptEditRequest, Family: wire.Edit, CallSite: r.q.CallSite, RequestDigest: r.q.RequestDigest, ProposalID: r.q.ProposalID,
		PolicyDigest: r.e.pol.Digest, Baseline: base, Coverage: emptyCoverage(), Started: r.started,
	}
}

// fail stores the receipt of a request without a plan.
func (r *editRequest) fail(ctx context.Context, cancelled, cause error) error {
	var f *provider.Failure
	if cancelled != nil || !errors.As(cause, &f) {
		return r.e.failRequest(ctx, r.draft(), cancelled, cause, r.network...)
	}
	g := causeOf(f, wire.Edit)
	who, cov := r.e.failed(ctx, f, wire.Edit), emptyCoverage()
	for _, d := range r.e.pol.Demands(r.q.CallSite, nil) {
		if d.Required && d.Requirement != nil && slices.Contains(d.Requirement.Capabilities, wire.Edit) {
			cov.Required = append(cov.Required, d.ID)
		}
	}
	cov.Enrolled = cov.Required
	id, err := r.e.storeFault(ctx, fault{
		who: who, family: wire.Edit, callSite: r.q.CallSite, requestDigest: r.q.RequestDigest, proposalID: r.q.ProposalID, base: r.baseline,
		pol: r.e.pol, cov: cov, cause: g, started: r.started, network: r.network,
	})
	w := failureError(f)
	if err != nil {
		return errors.Join(w, err)
	}
	w.Data.Detail += "; receipt " + id
	return w
}

// causeOf is a provider's failure in the words of a receipt.
func causeOf(f *provider.Failure, family wire.Family) wire.Degradation {
	return wire.Degradation{Source: f.Provider, Reason: f.Reason, Detail: valid(cutTo(f.Detail, 1000)), Capability: family, ProviderState: f.State}
}

// failureError is a provider's failure in the words of the outer seam. A class
// that is missing or unknown counts as contract.
func failureError(f *provider.Failure) *wire.Error {
	class := f.Class
	if class.Check() != nil {
		class = wire.FailContract
	}
	code := wire.CodeNotReady
	switch f.Reason {
	case wire.DegradeSkewed, wire.DegradeIncompatible:
		code = wire.CodeUnsupportedVersion
	case wire.DegradeCancelled:
		code = wire.CodeCancelled
	}
	if class == wire.FailInput {
		code = wire.CodeInvalidInput
	} else if class == wire.FailPolicy {
		code = wire.CodeScopeDenied
	}
	return wire.NewError(code, class, valid(fmt.Sprintf("provider %q gave no acceptable answer: %s", cut(f.Provider), f.Reason)), valid(cutTo(f.Detail, 1000)))
}
