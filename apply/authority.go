package apply

import (
	"context"
	"fmt"
	"slices"

	"github.com/aspengine/asp/checks"
	"github.com/aspengine/asp/checks/policy"
	"github.com/aspengine/asp/editplan"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/preconditions"
	"github.com/aspengine/asp/receipt"
	"github.com/aspengine/asp/seam/provider"
	"github.com/aspengine/asp/seam/wire"
	"github.com/aspengine/asp/snapshot"
)

// PlanOrigin says where a plan comes from, which decides whose authority it needs.
type PlanOrigin uint8

// The origins.
const (
	// Brought is a plan of the caller's own. Its provider id is whatever the plan
	// says: it grants nothing and needs nothing.
	Brought PlanOrigin = iota
	// Kept is a plan that this host kept. If a provider gave it, that one needs
	// authority to edit.
	Kept
	// Proposed is a plan that was asked for, or that is submitted under a
	// provider's name. A provider that is enabled here needs authority to edit.
	Proposed
)

// editor is the enrolled provider whose plan is applied.
type editor struct {
	who         checks.Participant
	established checks.Isolation
	evidence    string
	probed      []string
	authority   wire.AuthorityEvidence
	from        *origin // nil: submitted under its name, not asked for
}

// creditEditor names the provider of the plan in a receipt: the one that this host
// asked for it. A plan that the caller brings under a provider's name was perhaps
// never seen by that provider.
func (t *tx) creditEditor(d *receipt.Draft) {
	if t.editor == nil || t.editor.from == nil {
		return
	}
	d.Providers = append(slices.Clip(d.Providers), provenanceOf(t.editor.who, wire.Edit))
	if t.editor.authority.Identity != "" {
		d.Authority = append(slices.Clip(d.Authority), t.editor.authority)
	}
}

// maxReproposals is how often a plan is asked for again because touched paths
// moved.
const maxReproposals = 2

// authorize refuses the plan of an enrolled provider that may not edit here, or
// whose launch did not establish enough.
func (t *tx) authorize(ctx context.Context) (bool, error) {
	if t.r.Origin == Brought {
		return false, nil
	}
	ed, err := t.findEditor(ctx)
	if err != nil || ed == nil {
		return false, err
	}
	t.editor = ed
	if ed.from != nil && t.asked == 0 { // what came of asking again is there already
		t.network = networkRecord(ed.who.ID, wire.Edit, ed.from.Network)
	}
	ev, cause := t.e.pol.EditAuthority(ed.who, ed.established)
	ev.Authority.CallSite = t.r.CallSite
	if ed.authority = ev; cause == nil {
		return false, nil
	}
	code := refusal.NoAuthority
	switch cause.Reason {
	case wire.DegradeInsufficientAssurance:
		code = refusal.WeakAssurance
	case wire.DegradeDirectWriteRisk:
		code = refusal.DirectWrite
	}
	return t.refuse(ctx, refusal.List{refusal.New(code, "", -1, "plan of provider %q: %s", cut(ed.who.ID), cause.Detail)})
}

// findEditor finds the enrolled provider behind a plan; nil for a plan that is
// the caller's own.
func (t *tx) findEditor(ctx context.Context) (*editor, error) {
	o, err := t.e.originOf(t.file)
	if err != nil {
		return nil, err
	}
	if o != nil {
		return &editor{who: o.participant(t.e.modeNow(ctx, o.Provider.ID)), established: isolationOf(o.Isolation), evidence: o.Evidence, probed: o.Probed, from: o}, nil
	}
	id := t.plan.Provider
	if t.r.Origin != Proposed || t.e.modeNow(ctx, id) == "" {
		return nil, nil
	}
	if t.e.o.Providers == nil {
		return &editor{who: checks.Participant{ID: id, Mode: t.e.modeNow(ctx, id)}}, nil
	}
	// It goes by the name of an enabled provider: what can be established of that
	// one is what counts.
	s := t.e.o.Providers.Standing(ctx, id)
	if !s.Used && s.Problem == "" && s.Quarantine == nil {
		s = t.e.o.Providers.Warm(ctx, id)
	}
	return &editor{who: s.Participant, established: isolationOf(s.Isolation), evidence: s.Evidence, probed: s.Probed}, nil
}

// movedCode tells the reasons that a plan made again would not have.
func movedCode(c refusal.Code) bool {
	return slices.Contains([]refusal.Code{refusal.StaleBasis, refusal.ChangedUnderneath, refusal.StaleValidAsOf, refusal.Exists, refusal.Missing, refusal.MergeConflict}, c)
}

// repropose asks the provider of the plan again when all that is wrong with it is
// that the workspace moved. It tells whether there is another plan now; without
// one the first reasons stand.
func (t *tx) repropose(ctx context.Context, items refusal.List) (bool, error) {
	if t.trial || t.editor == nil || t.editor.from == nil || t.e.o.Providers == nil || t.asked >= maxReproposals {
		return false, nil
	}
	if slices.ContainsFunc(items, func(it refusal.Item) bool { return !movedCode(it.Code) }) {
		return false, nil
	}
	t.asked++
	t.e.o.Step("asking for the plan again")
	stamp, err := t.e.ws.Stamp(ctx, snapshot.StampOptions{Content: t.r.VerifyContent})
	if err != nil {
		return false, err
	}
	base := t.e.issue(stamp.Baseline, t.started)
	o := t.editor.from
	got, err := t.e.propose(ctx, stamp, proposeSpec{
		provider: o.Provider.ID, operation: o.Operation, args: o.Args, scope: o.Scope, profile: o.Profile, callSite: o.CallSite,
		proposalID: t.plan.ID, baseline: base, budget: t.e.pol.Budget(t.r.CallSite), replaces: replaced(o),
	})
	if got != nil {
		t.network = append(t.network, networkRecord(o.Provider.ID, wire.Edit, got.network)...)
	}
	if err != nil {
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		t.answer.Notes = append(t.answer.Notes, fmt.Sprintf("asked %q for the plan again, in vain: %s", cut(o.Provider.ID), cutTo(err.Error(), 300)))
		return false, t.failedAgain(ctx, base, err)
	}
	if got.plan == nil {
		t.answer.Notes = append(t.answer.Notes, fmt.Sprintf("asked %q for the plan again: it answered %s", cut(o.Provider.ID), got.status))
		return false, nil
	}
	view, err := preconditions.NewView(t.e.root, t.e.protected())
	if err != nil {
		return false, err
	}
	t.view.Close()
	t.view, t.stamp, t.baseline = view, stamp, base
	t.file, t.plan, t.editor.from = got.file, got.plan, got.origin
	t.answer.Notes = append(t.answer.Notes, fmt.Sprintf("touched paths moved: %q was asked for the plan again", cut(o.Provider.ID)))
	return true, nil
}

// failedAgain stores the receipt of a provider that failed when it was asked again.
func (t *tx) failedAgain(ctx context.Context, base wire.Baseline, err error) error {
	f := provider.AsFailure(err)
	if f == nil || t.r.DryRun {
		return nil
	}
	cov := unmet(t.e.pol.Demands(t.r.CallSite, t.r.Checks), "not run: the plan is stale")
	_, err = t.e.storeFault(ctx, fault{
		who: t.e.failed(ctx, f, wire.Edit), family: wire.Edit, callSite: t.r.CallSite, requestDigest: t.requestDigest(), proposalID: t.proposalID(),
		base: base, pol: t.e.pol, cov: cov, cause: causeOf(f, wire.Edit), started: t.started,
	})
	return err
}

// maxReplaced bounds how many earlier plans one stands in for.
const maxReplaced = 8

// replaced are the plans that the next one stands in for.
func replaced(o *origin) []string {
	all := append(slices.Clone(o.Replaces), o.PlanDigest)
	return all[max(0, len(all)-maxReplaced):]
}

// blocked picks the refusal for a decision that is not allow: by its one cause
// where all causes are the same and have a word of their own.
func blocked(d *policy.Decision) refusal.Code {
	if d.Decision == wire.Deny {
		return refusal.CheckDenied
	}
	code := refusal.Code("")
	for _, g := range d.Failures {
		var c refusal.Code
		switch g.Reason {
		case wire.DegradeOptionalDegraded, wire.DegradeFailOpen:
			continue
		case wire.DegradeInsufficientAssurance:
			c = refusal.WeakAssurance
		case wire.DegradeDirectWriteRisk:
			c = refusal.DirectWrite
		default:
			return refusal.CheckIndeterminate
		}
		if code != "" && code != c {
			return refusal.CheckIndeterminate
		}
		code = c
	}
	if code == "" {
		return refusal.CheckIndeterminate
	}
	return code
}

// ApplyProposal is host/applyProposal: Apply, with the rules on which plan is
// meant. What is wrong inside the proposal is an answer with a refusal.
func (e *Engine) ApplyProposal(ctx context.Context, q ProposalRequest) (*Answer, error) {
	p := q.Params
	if p.ProposalID == "" {
		return nil, wire.NewError(wire.CodeInvalidInput, wire.FailInput, "proposalId is empty; name the proposal that is meant", "")
	}
	r := q.Request
	r.CallSite, r.Intent, r.BasePolicyDigest = p.CallSite, p.Intent, p.BasePolicyDigest
	r.RequestDigest, r.Blobs, r.Origin, r.AsProposal = q.RequestDigest, q.Blobs, Proposed, p.ProposalID
	if r.RequestDigest == "" {
		v, err := canon.From(p)
		if err != nil {
			return nil, err
		}
		r.RequestDigest = RequestDigest("host/applyProposal", v)
	}
	r.Load = func(context.Context, *View, snapshot.Baseline) (editplan.File, refusal.List, error) {
		return e.selected(p)
	}
	if p.Proposal.Kind() == canon.Invalid {
		if _, _, items, err := e.loadKept(p.ProposalID); err == nil && len(items) > 0 {
			if r.doneBy, err = e.doneBy(ctx, p.ProposalID); err != nil {
				return nil, fmt.Errorf("look for proposal %q among what was applied: %w", cut(p.ProposalID), err)
			}
		}
	}
	return e.Apply(ctx, r)
}

// selected is the plan that a request means: the one it brings, or the one that
// is kept under the id.
func (e *Engine) selected(p wire.ApplyProposalParams) (editplan.File, refusal.List, error) {
	bad := func(f editplan.File, format string, a ...any) (editplan.File, refusal.List, error) {
		return f, refusal.List{refusal.New(refusal.BadMessage, "", -1, format, a...)}, nil
	}
	var f editplan.File
	if p.Proposal.Kind() == canon.Invalid {
		var items refusal.List
		var err error
		if f, _, items, err = e.loadKept(p.ProposalID); err != nil || len(items) > 0 {
			return f, items, err
		}
	} else {
		f.Proposal = p.Proposal
		if f.Proposal.Kind() != canon.Object {
			return bad(editplan.File{}, "proposal is %s and no edit plan", f.Proposal.Kind())
		}
		// A plan that is given back as it was kept has its content here.
		if kept, _, items, err := e.loadKept(p.ProposalID); err == nil && len(items) == 0 && canon.Equal(kept.Proposal, f.Proposal) {
			f.Blobs = kept.Blobs
		}
	}
	if id, ok := f.Proposal.Get("proposalId"); ok && id.Kind() == canon.String && id.Str() != p.ProposalID {
		return bad(f, "the plan is %q, the request means %q", cut(id.Str()), cut(p.ProposalID))
	}
	if p.Edit.Kind() != canon.Invalid {
		edit, ok := f.Proposal.Get("workspaceEdit")
		if !ok || !canon.Equal(edit, p.Edit) {
			return bad(f, "edit is not the workspaceEdit of the proposal; leave it out or send it as the plan has it")
		}
	}
	return f, nil, nil
}

// doneBy is the provider of a plan that was carried out under an id; "" where there is
// none, or plans of several went by it. The store finds a plan by its provider too, so all
// receipts of applies are looked through: nobody waits for it but the caller.
func (e *Engine) doneBy(ctx context.Context, id string) (string, error) {
	all, err := e.receipts.List(ctx)
	if err != nil {
		return "", err
	}
	who := ""
	for _, s := range all {
		if s.ProposalID != id || s.Outcome != receipt.Applied && s.Outcome != receipt.Staged {
			continue
		}
		st, err := e.receipts.Get(s.ReceiptID)
		if err != nil {
			return "", err
		}
		if who != "" && who != st.Provider() {
			return "", nil
		}
		who = st.Provider()
	}
	return who, nil
}

// outOfMind is what was carried out under the id of a request that names a plan which is
// not kept, because its harness held it or because it gave way to newer ones: the answer
// is still the first one.
func (t *tx) outOfMind(ctx context.Context, items refusal.List) (*receipt.Stored, error) {
	if t.r.doneBy == "" || t.r.DryRun || len(items) != 1 || items[0].Code != refusal.UnknownProposal {
		return nil, nil
	}
	prev, err := t.e.receipts.Lookup(ctx, t.r.doneBy, t.r.AsProposal)
	if err != nil {
		return nil, err
	}
	if prev.Applied == nil && t.r.Publish == Stage {
		return prev.Staged, nil
	}
	return prev.Applied, nil
}
