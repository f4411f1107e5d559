package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aspengine/asp/checks"
	"github.com/aspengine/asp/checks/policy"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/preconditions"
	"github.com/aspengine/asp/receipt"
	"github.com/aspengine/asp/seam/provider"
	"github.com/aspengine/asp/seam/wire"
	"github.com/aspengine/asp/snapshot"
	"github.com/aspengine/asp/snapshot/gitbase"
)

// Evaluate judges a changeset without applying it. What is wrong with the
// changeset is a *wire.Error; everything else that keeps it from allow is in
// the verdict. The receipt is stored. Nothing in the workspace changes, and a
// transaction that is running is not waited for: what it moves makes the baseline
// stale.
func (e *Engine) Evaluate(ctx context.Context, q EvaluateRequest) (*Evaluation, error) {
	for _, n := range q.Checks {
		if e.cfg.Command(n) == nil {
			return nil, &UnknownCheckError{Name: n, Known: e.checkNames()}
		}
	}
	v := &evaluation{e: e, q: q, began: time.Now(), started: e.now(), pol: e.pol}
	if q.Changed != nil {
		v.q.Changeset = q.Changed.Changeset
	}
	v.requestDigest = q.RequestDigest
	if v.requestDigest == "" {
		v.requestDigest = RequestDigest("host/evaluateChangeset", evaluateParams(v.q))
	}
	out, err := v.run(ctx)
	if err != nil {
		return nil, v.fail(context.WithoutCancel(ctx), ctx.Err(), err)
	}
	return out, nil
}

// evaluateParams are the params of the outer request that a command amounts to.
func evaluateParams(q EvaluateRequest) canon.Value {
	m := []canon.Member{{Key: "callSite", Value: canon.StringOf(string(q.CallSite))}, {Key: "changeset", Value: q.Changeset}}
	if q.Comparison != "" {
		m = append(m, canon.Member{Key: "comparison", Value: canon.StringOf(q.Comparison)})
	}
	if q.TimeoutMs > 0 {
		m = append(m, canon.Member{Key: "timeoutMs", Value: canon.IntOf(q.TimeoutMs)})
	}
	if q.BasePolicyDigest != "" {
		m = append(m, canon.Member{Key: "basePolicyDigest", Value: canon.StringOf(q.BasePolicyDigest)})
	}
	return canon.ObjectOf(m...)
}

// evaluation is one Evaluate.
type evaluation struct {
	e             *Engine
	q             EvaluateRequest
	began         time.Time
	started       time.Time
	pol           policy.Policy
	requestDigest string
	csDigest      string
	cs            wire.ChangeSet
	stamp         *snapshot.Stamp
	baseline      wire.Baseline // the present one
	delta         *delta
	cand          candidate // what providers are shown
	moved         []string  // what moved while checks ran
	shown         bool      // a command is to be shown the tree
	held          match     // what the changes take away, against the state of stamp
	walked        bool      // the last look was a walk
	notes         []string
	j             *judgement
}

// match is how content compares with a state that is named.
type match uint8

const (
	cannotTell match = iota
	same
	other
)

// inputError is something wrong with the request itself.
type inputError struct {
	code   int
	class  wire.FailClass
	reason wire.DegradeReason
	msg    string
}

func (i *inputError) Error() string { return i.msg }

func (v *evaluation) run(ctx context.Context) (*Evaluation, error) {
	if err := wire.Decode(v.q.Changeset, &v.cs); err != nil {
		return nil, &inputError{wire.CodeInvalidInput, wire.FailInput, wire.DegradeMalformed, "changeset: " + err.Error()}
	}
	v.csDigest = canon.DigestText(v.q.Changeset)
	err := v.e.settle(ctx)
	if err != nil {
		return nil, err
	}
	if v.q.PolicyAt != "" {
		if v.pol, err = v.e.policyAt(ctx, v.q.PolicyAt); err != nil {
			return nil, err
		}
	}
	// What a command is shown is held against how it was before, which takes a walk.
	v.shown = len(v.pol.Commands(v.q.CallSite, v.q.Checks)) > 0
	stale, err := v.look(ctx, snapshot.StampOptions{Watched: !v.shown})
	if v.stamp != nil && v.stamp.Watched && (err != nil || len(stale) > 0 || v.held != same) {
		// Nothing is turned away for a look that may be behind.
		stale, err = v.look(ctx, snapshot.StampOptions{})
	}
	if err == nil && len(stale) == 0 && v.held == other {
		// Stat data call files unchanged that are not.
		stale, err = v.look(ctx, snapshot.StampOptions{Content: true})
		if err == nil && len(stale) == 0 && v.held == other {
			stale = append(stale, staleBaseline("what the changes take away moves while it is looked at"))
		}
	}
	if err != nil {
		return nil, err
	}
	v.notes = append(v.notes, v.stamp.Notes...)
	if v.cand, err = v.candidate(); err != nil {
		return nil, err
	}
	j := v.judgement()
	v.j = j
	if len(stale) > 0 {
		j.blocking = append(j.blocking, stale...)
		err = j.pass(ctx, "not asked: "+stale[0].Detail)
	} else {
		j.own = v.ownPolicy(ctx)
		err = j.run(ctx)
	}
	if err == nil && !v.walked && !v.proven() {
		err = v.again(ctx)
	}
	if err == nil {
		err = ctx.Err() // checks that a cancel ended say nothing about the change
	}
	if err != nil {
		return nil, err
	}
	if len(v.moved) > 0 {
		// The verdicts are about a state that is not there any more.
		j.void()
		j.blocking = append(j.blocking, staleBaseline(fmt.Sprintf("%s moved while the checks ran", sampleOf(v.moved))))
		j.decide()
	}
	j.learn(len(v.moved) == 0)
	return v.conclude(ctx, j)
}

// look stamps the workspace and holds the changeset against that.
func (v *evaluation) look(ctx context.Context, o snapshot.StampOptions) (stale []wire.Degradation, err error) {
	if v.stamp, err = v.e.ws.Stamp(ctx, o); err != nil {
		return nil, err
	}
	v.walked, v.held = !v.stamp.Watched, cannotTell
	v.baseline = v.e.issue(v.stamp.Baseline, v.started)
	return v.admit(ctx)
}

// proven tells whether a verdict is about the state that it names whatever the disk is by
// now: nobody was shown but content of that state, held against it by digest. Then a
// watched look may say that the state is the present one. A command is shown the disk.
func (v *evaluation) proven() bool {
	return v.held == same && !v.shown && v.j.faithful()
}

// admit holds the changeset against the present state. stale says why its
// baseline is not the present one.
func (v *evaluation) admit(ctx context.Context) (stale []wire.Degradation, err error) {
	if c := v.q.Changed; c != nil {
		v.delta = &delta{effects: c.Effects}
		if c.Live != v.stamp.Baseline {
			return []wire.Degradation{staleBaseline("the workspace moved since the change was listed; ask again")}, nil
		}
		return nil, nil
	}
	invalid := func(bad faults) error {
		return &inputError{wire.CodeInvalidInput, wire.FailInput, wire.DegradeMalformed, "changeset: " + strings.Join(bad, "; ")}
	}
	if bad, _, _ := spellings(v.cs.Changes); len(bad) > 0 {
		return nil, invalid(bad)
	}
	if sent := (snapshot.Baseline{Rev: v.cs.Baseline.Rev, Dirty: v.cs.Baseline.Dirty}); sent != v.stamp.Baseline {
		known, err := v.e.issued(sent)
		if err != nil {
			return nil, err
		}
		why := "is not one that this host issued"
		if known {
			why = "is not the present one any more"
		}
		return []wire.Degradation{staleBaseline(fmt.Sprintf("baseline %q %s; take the present one from host/status", cut(v.cs.Baseline.Rev), why))}, nil
	}
	view, err := preconditions.NewView(v.e.root, v.e.protected())
	if err != nil {
		return nil, err
	}
	defer view.Close()
	d, bad, missing, err := v.e.hold(ctx, v.stamp, view, v.cs.Changes, v.q.Blobs)
	switch {
	case err != nil:
		return nil, err
	case len(bad) > 0:
		return nil, invalid(bad)
	case len(missing) > 0:
		var names []string
		for _, b := range missing {
			names = append(names, cut(string(b)))
		}
		return nil, &inputError{wire.CodeBlobUnavailable, wire.FailHealth, wire.DegradeMissing,
			"content that the changeset puts was never sent and is not on disk: " + strings.Join(names, ", ") + "; send it by workspace/putBlob first"}
	}
	v.delta = d
	v.held = v.e.match(ctx, v.stamp, view, v.cs.Changes)
	return nil, nil
}

// candidate is the changeset as providers are shown it: as it was sent, except
// that every rename says what it leaves. Providers fail without it, and a pure
// rename may come without.
func (v *evaluation) candidate() (candidate, error) {
	c := candidate{stamp: v.stamp, baseline: v.cs.Baseline, changeset: v.q.Changeset, digest: v.csDigest, changes: v.cs.Changes}
	if !slices.ContainsFunc(c.changes, func(x wire.Change) bool { return x.Kind == wire.KindRename && x.After == "" }) {
		return c, nil
	}
	c.changes = slices.Clone(c.changes)
	for i := range c.changes {
		c.changes[i].After = afterOf(c.changes[i])
	}
	var err error
	if c.changeset, err = canon.From(wire.ChangeSet{Baseline: v.cs.Baseline, Changes: c.changes}); err != nil {
		return c, fmt.Errorf("complete changeset: %w", err)
	}
	c.digest = canon.DigestText(c.changeset)
	return c, nil
}

func staleBaseline(detail string) wire.Degradation {
	return wire.Degradation{Source: "baseline", Reason: wire.DegradeStaleBaseline, Detail: valid(detail)}
}

func (v *evaluation) judgement() *judgement {
	j := &judgement{
		isolate: v.e.wantsIsolated(),
		e:       v.e, pol: v.pol, callSite: v.q.CallSite, named: v.q.Checks, comparison: v.q.Comparison, basePolicy: v.q.BasePolicyDigest,
		limit: time.Duration(v.q.TimeoutMs) * time.Millisecond, drift: v.drift, blobs: v.q.Blobs, started: v.started,
		now: func() candidate { return v.cand },
	}
	if v.delta != nil {
		j.effects, j.perm, j.took = v.delta.effects, v.delta.perm, v.delta.took
	}
	if v.q.Changed != nil {
		j.base, j.listed = v.q.Changed.Base, true
	}
	j.clock(v.began)
	return j
}

// drift notes what moved in the live tree. Nothing is run again: the baseline of
// the request is then not the present one, whatever is found out. While nobody was
// asked there is nothing that a look would have to come after.
func (v *evaluation) drift(ctx context.Context) ([]string, error) {
	if !v.j.asked.Load() {
		return nil, nil
	}
	return nil, v.again(ctx)
}

// again looks once more and notes what moved beside the first look. It is the walk that a
// verdict rests on where that is not proven.
func (v *evaluation) again(ctx context.Context) error {
	s, err := v.e.ws.Stamp(ctx, snapshot.StampOptions{Watched: v.proven()})
	if err != nil {
		return err
	}
	v.walked = !s.Watched
	v.moved = append(v.moved, moved(v.stamp, s)...)
	if s.Baseline != v.stamp.Baseline && len(v.moved) == 0 {
		v.moved = append(v.moved, "(HEAD)")
	}
	stood := true
	if len(v.moved) == 0 {
		stood, err = v.j.stood(ctx)
	}
	if !stood || v.j.onTree.Load() && changedBack(v.stamp, s) {
		v.moved = append(v.moved, wasBack)
	}
	return err
}

// ownPolicy finds a changeset that would authorize or weaken anything in the
// policy that judges it.
func (v *evaluation) ownPolicy(ctx context.Context) *wire.Degradation {
	for _, c := range v.cs.Changes {
		if c.Path != policy.SourceRepository && c.From != policy.SourceRepository {
			continue
		}
		var after []byte
		if ref := afterOf(c); c.Path == policy.SourceRepository && ref != "" {
			var err error
			var base []BaseEntry
			if v.q.Changed != nil {
				base = v.q.Changed.Base
			}
			after, err = v.e.contentOf(v.stamp, base, v.cs.Changes, v.delta.effects, v.q.Blobs).Bytes(ctx, ref)
			if err != nil {
				after = []byte{} // unreadable counts as a policy that would be rejected
			}
		}
		if g, bad := v.pol.Candidate(after); bad {
			return &g
		}
	}
	return nil
}

// pass decides without asking anybody, and says of each that it was not asked.
func (j *judgement) pass(ctx context.Context, why string) error {
	list, err := j.checks(ctx)
	if err != nil {
		return err
	}
	for _, c := range list {
		r := checks.Result{Name: c.Name(), Status: checks.Stale, Detail: why}
		if id, ok := strings.CutPrefix(c.Name(), checks.ProviderPrefix); ok {
			if s := standingOf(j.roster, id); s != nil {
				who := s.Participant
				r.Provider, r.Family = &who, c.(*lazyCheck).family
			}
		}
		j.report.Results = append(j.report.Results, r)
	}
	j.decide()
	return nil
}

// void takes the worth from all answers: they are about another state.
func (j *judgement) void() {
	for i := range j.report.Results {
		r := &j.report.Results[i]
		if r.Status == checks.Passed || r.Status == checks.Failed {
			r.Status, r.Reason, r.State, r.Findings, r.Diagnostics = checks.Stale, "", "", nil, nil
			r.Detail = "the workspace moved while it ran"
		}
	}
}

func sampleOf(paths []string) string {
	q := make([]string, 0, 4)
	for i, p := range paths {
		if i == 3 {
			q = append(q, fmt.Sprintf("and %d more", len(paths)-3))
			break
		}
		q = append(q, fmt.Sprintf("%q", cut(p)))
	}
	return strings.Join(q, ", ")
}

// conclude makes verdict and receipt, and stores the receipt.
func (v *evaluation) conclude(ctx context.Context, j *judgement) (*Evaluation, error) {
	e, d := v.e, j.decision
	as := wire.ApplyAssurance{Mode: d.Mode, TransactionGuarantee: wire.GuaranteeNone, Detail: evidenceOf(j.report.Results)}
	if !v.walked {
		as.Detail = strings.TrimPrefix(as.Detail+"; "+watchedDetail, "; ")
	}
	base := v.baseline
	if v.q.Changed != nil {
		base = v.cs.Baseline
	}
	validAsOf := wire.HostValidAsOf{Rev: base.Rev, Blobs: servedBlobs(j.report.Results)}
	r := receipt.New(receipt.Draft{
		Kind: wire.ReceiptEvaluate, Family: wire.Check, CallSite: v.q.CallSite, RequestDigest: v.requestDigest, ChangesetDigest: v.csDigest,
		Providers: d.Provenance, PolicyDigest: v.pol.Digest, Baseline: base, ValidAsOf: validAsOf, Coverage: d.Coverage, Authority: d.Evidence,
		Assurance: as, Started: v.started, Ended: e.now(),
	}, e.o.Version)
	out := &Evaluation{
		Verdict: d.Verdict(policy.Envelope{
			RequestDigest: v.requestDigest, ChangesetDigest: v.csDigest, PolicyDigest: v.pol.Digest, ValidAsOf: validAsOf, Assurance: as, Receipt: r,
		}),
		Checks: j.report.Results, Notes: slices.Concat(v.notes, j.notes),
	}
	var err error
	if out.Stored, err = canon.From(out.Verdict); err != nil {
		return nil, fmt.Errorf("make verdict: %w", err)
	}
	if err := wire.Decode(out.Stored, new(wire.Verdict)); err != nil {
		return nil, fmt.Errorf("make verdict: %w", err)
	}
	judged, note := e.judged(v.pol, j.question, v.q.Changeset)
	if note != "" {
		out.Notes = append(out.Notes, note)
	}
	var put []snapshot.Effect
	if v.delta != nil {
		put = v.delta.effects
	}
	notes := slices.Concat(out.Notes, keptNote(v.keep(r.ReceiptID, put)))
	ev, err := canon.From(evaluationRecord{Checks: checkRecords(j.report.Results), Probes: probeRecords(j.report.Results), Network: j.network, Notes: validAll(notes), Judged: judged, Decision: d.Decision, Request: v.asked(), Looked: lookedBy(v.walked)})
	if err != nil {
		return nil, err
	}
	if err := j.recordFaults(ctx, v.requestDigest, v.csDigest, base); err != nil {
		return nil, err
	}
	entry := receipt.Entry{Receipt: r, Outcome: receipt.Answered, Evidence: ev}
	if form, ok := out.Stored.Get("receipt"); ok {
		entry.Formed(form) // a part of the verdict, which was made of r and accepted
	}
	if _, err := e.receipts.Append(ctx, entry); err != nil {
		return nil, fmt.Errorf("store receipt: %w", err)
	}
	return out, nil
}

// evaluationRecord is what stands beside the receipt of an evaluation.
type evaluationRecord struct {
	Checks   []CheckRecord   `json:"checks,omitempty"`
	Probes   []ProbeRecord   `json:"probes,omitempty"`
	Network  []NetworkRecord `json:"network,omitempty"`
	Notes    []string        `json:"notes,omitempty"`
	Judged   *JudgedRecord   `json:"judged,omitempty"`
	Decision wire.Decision   `json:"decision"`
	Request  *asked          `json:"request,omitempty"`
	Looked   string          `json:"looked"`
}

// lookedBy is how the last look was made at the tree that a decision is about.
func lookedBy(walked bool) string {
	if walked {
		return "walked"
	}
	return "watched"
}

// asked is what a request says beside its call-site and its changeset, which are kept
// elsewhere.
type asked struct {
	Comparison       string `json:"comparison,omitempty"`
	TimeoutMs        int64  `json:"timeoutMs,omitempty"`
	BasePolicyDigest string `json:"basePolicyDigest,omitempty"`
}

// asked records the request; nil where it says more than that.
func (v *evaluation) asked() *asked {
	if RequestDigest("host/evaluateChangeset", evaluateParams(v.q)) != v.requestDigest {
		return nil
	}
	return &asked{v.q.Comparison, v.q.TimeoutMs, v.q.BasePolicyDigest}
}

// watchedDetail is what assurance says where no walk came after the last answer.
const watchedDetail = "the baseline is the present one as far as a watched look can tell; what was shown to providers is of it, by content"

// evidenceOf says in one sentence each what the runs of checks established;
// sentences that several share are said once.
func evidenceOf(results []checks.Result) string {
	var detail []string
	said := map[string]int{}
	for _, r := range results {
		if r.Evidence == "" {
			continue
		}
		if i, ok := said[r.Evidence]; ok {
			detail[i] = r.Name + ", " + detail[i]
			continue
		}
		said[r.Evidence] = len(detail)
		detail = append(detail, r.Name+": "+r.Evidence)
	}
	return valid(strings.Join(detail, "; "))
}

// fail stores a receipt for a request that ended in an error and names it in
// the error of the outer seam.
func (v *evaluation) fail(ctx context.Context, cancelled, cause error) error {
	base := v.baseline
	if base.Rev == "" {
		base.Rev = unknownRev
	}
	return v.e.failRequest(ctx, receipt.Draft{
		Kind: wire.ReceiptEvaluate, Family: wire.Check, CallSite: v.q.CallSite, RequestDigest: v.requestDigest, ChangesetDigest: v.csDigest,
		PolicyDigest: v.pol.Digest, Baseline: base, Coverage: emptyCoverage(), Started: v.started,
	}, cancelled, cause)
}

// failRequest stores the receipt of a request that ends in an error and returns
// the *wire.Error that names it, or an error around that one. network is what was asked
// for before; the cause has its own.
func (e *Engine) failRequest(ctx context.Context, d receipt.Draft, cancelled, cause error, network ...NetworkRecord) error {
	out := receipt.Failed
	var in *inputError
	w := WireError(cause)
	switch {
	case cancelled != nil:
		out, w = receipt.Cancelled, wire.NewError(wire.CodeCancelled, wire.FailHealth, "cancelled", "")
		d.Failures = []wire.Degradation{{Source: "asp", Reason: wire.DegradeCancelled, Detail: "cancelled by the caller"}}
	case errors.As(cause, &in):
		out, w = receipt.Refused, wire.NewError(in.code, in.class, valid(in.msg), "")
		d.Failures = []wire.Degradation{{Source: "asp", Reason: in.reason, Detail: valid(cutTo(in.msg, 1000))}}
	default:
		d.Failures = []wire.Degradation{{Source: "asp", Reason: wire.DegradeError, Detail: valid(cutTo(cause.Error(), 1000))}}
	}
	d.Ended = e.now()
	if f := provider.AsFailure(cause); f != nil {
		network = append(network, networkRecord(f.Provider, d.Family, f.Network)...)
	}
	ev, err := networkEvidence(network)
	if err != nil {
		return errors.Join(w, err)
	}
	st, err := e.receipts.Append(ctx, receipt.Entry{Receipt: receipt.New(d, e.o.Version), Outcome: out, Evidence: ev})
	if err != nil {
		return errors.Join(w, fmt.Errorf("store receipt: %w", err))
	}
	named := *w // the error itself is somebody else's
	named.Data = &wire.ErrorData{FailClass: wire.FailContract}
	if w.Data != nil {
		*named.Data = *w.Data
	}
	named.Data.Detail = strings.TrimPrefix(named.Data.Detail+"; receipt "+st.Receipt.ReceiptID, "; ")
	if errors.Is(cause, ErrAttention) {
		return &attentionError{&named}
	}
	return &named
}

// attentionError is the error of the outer seam for what a person must resolve first;
// it still is ErrAttention.
type attentionError struct{ seam *wire.Error }

func (a *attentionError) Error() string   { return a.seam.Error() }
func (a *attentionError) Unwrap() []error { return []error{a.seam, ErrAttention} }

// policyAt is the policy that counts at a revision.
func (e *Engine) policyAt(ctx context.Context, name string) (policy.Policy, error) {
	if e.git == nil {
		return policy.Policy{}, &inputError{wire.CodeInvalidInput, wire.FailInput, wire.DegradeMissing, "there is no git repository, so no revision has a policy"}
	}
	rev, err := e.git.Revision(ctx, name)
	if errors.Is(err, gitbase.ErrNoRevision) {
		return policy.Policy{}, &inputError{wire.CodeInvalidInput, wire.FailInput, wire.DegradeMissing, err.Error()}
	}
	if err != nil {
		return policy.Policy{}, err
	}
	p, err := snapshot.ParsePath(policy.SourceRepository)
	if err != nil {
		return policy.Policy{}, err
	}
	at, err := e.git.StoredAt(ctx, rev, p)
	if err != nil {
		return policy.Policy{}, err
	}
	var committed []byte
	if !at.IsZero() {
		if committed, err = e.git.Content(ctx, at, policy.MaxFile); err != nil {
			return policy.Policy{}, fmt.Errorf("read the policy at %.200q: %w", name, err)
		}
	}
	return policy.Active(e.cfg, committed, e.isEnrolled), nil
}
