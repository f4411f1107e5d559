package apply

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/aspengine/asp/apply/commit"
	"github.com/aspengine/asp/apply/exchange"
	"github.com/aspengine/asp/checks"
	"github.com/aspengine/asp/checks/policy"
	"github.com/aspengine/asp/editplan"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/internal/lock"
	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/preconditions"
	"github.com/aspengine/asp/receipt"
	"github.com/aspengine/asp/seam/wire"
	"github.com/aspengine/asp/snapshot"
)

// tx is one attempt. Its members are filled stage by stage; a later stage only
// reads what earlier ones set.
type tx struct {
	e       *Engine
	r       Request
	started time.Time
	txid    string
	lock    *lock.Lock
	place   *waiter // among those who wait for the workspace; nil: nobody can

	stamp     *snapshot.Stamp
	file      editplan.File
	plan      *editplan.Plan
	view      *preconditions.View
	adm       *preconditions.Admission
	changes   []commit.Change
	effects   []snapshot.Effect
	changeset wire.ChangeSet
	csDigest  string
	forecast  commit.Facts
	report    checks.Report
	decision  *policy.Decision
	judged    *JudgedRecord
	verdict   *wire.Verdict
	facts     *commit.Facts
	packed    bool
	kept      map[snapshot.Path]kept
	after     *wire.Baseline
	answer    Answer
	baseline  wire.Baseline
	refMade   string
	refs      refWork // of --ref
	sealed    *receipt.Entry
	stored    *receipt.Stored // sealed, once its barrier was made
	left      error           // what recovery has to do after a commit
	stagedOK  bool
	stale     refusal.List // of a proposed plan: what it was made from and moved
	editor    *editor      // nil: the plan is the caller's own
	asked     int          // how often its provider was asked for it again
	network   []NetworkRecord
	xfacts    *exchange.Facts
	trial     bool           // it is tried whether it can be part of a group; nothing is stored
	together  int            // how many proposals the transaction carries out, if more than one
	last      *wire.Baseline // after all of them
}

// Apply runs one transaction: the contract's section 7, stage by stage. A
// refusal is an answer. An error is a *Failure wherever a receipt could be
// stored. After an answer that says applied, the change and its receipt are
// durable as far as the receipt's guarantee says.
func (e *Engine) Apply(ctx context.Context, r Request) (*Answer, error) {
	for _, n := range r.Checks {
		if e.cfg.Command(n) == nil {
			return nil, &UnknownCheckError{Name: n, Known: e.checkNames()}
		}
	}
	t := &tx{e: e, r: r, started: e.now(), txid: "tx-" + home.Random(12)}
	e.o.Step("waiting for the workspace")
	t.place = e.wait(ctx, r)
	defer t.place.end()
	lk, m, err := e.queue(ctx, r, t.started)
	if m != nil {
		t.place.leave(m.err == nil)
		return m.answer, m.err
	}
	if err != nil {
		t.place.leave(false)
		return nil, t.fail(context.WithoutCancel(ctx), fmt.Errorf("lock workspace: %w", err), ended(ctx))
	}
	t.lock = lk
	defer lk.Unlock()
	t.place.turn()
	defer func() { t.place.leave(t.committed()) }()
	defer t.closeView()
	if err := t.run(ctx); err != nil {
		out := ended(ctx)
		if errors.Is(err, ErrAttention) {
			out = receipt.Failed // the other one says that nothing is changed
		}
		return &t.answer, t.fail(context.WithoutCancel(ctx), err, out)
	}
	if a := t.answer; e.o.Providers != nil && a.Outcome == receipt.Applied && !a.Repeated && a.Result != nil && a.Result.BaselineAfter != nil {
		now := a.Result.BaselineAfter
		if t.last != nil {
			now = t.last
		}
		e.o.Providers.BaselineChanged(*now)
	}
	return &t.answer, nil
}

// ended is what an attempt came to that ended with an error and changed nothing.
func ended(ctx context.Context) receipt.Outcome {
	if ctx.Err() != nil {
		return receipt.Cancelled
	}
	return receipt.Failed
}

// closeView ends the look at the workspace; nothing may be read through it any more.
func (t *tx) closeView() {
	if t.view != nil {
		t.view.Close()
		t.view = nil
	}
}

// run is the order of the stages. Each returns whether the answer is complete.
func (t *tx) run(ctx context.Context) error {
	for _, s := range []struct {
		name string
		run  func(context.Context) (done bool, err error)
	}{
		{"recovering", t.recover},         // whatever a crash left
		{"reading the workspace", t.look}, // baseline
		{"reading the plan", t.load},      // 1. find, 2. decode strictly
		{"checking freshness", t.fresh},   // idempotency, 3. freshness
		{"checking authority", t.authorize},
		{"checking the plan", t.admit}, // 4. scope and paths, 5. preconditions
		{"compiling", t.compile},       // 6. changeset, what it would earn
		{"running checks", t.check},    // 6. scratch worktree, 7. checks, 8. decide
		{"publishing", t.publish},      // 9. journal … commit record; or stage
		{"writing the receipt", t.conclude},
	} {
		if t.sealed != nil {
			ctx = context.WithoutCancel(ctx) // it is done; a cancel comes too late
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		t.e.o.Before(s.name)
		t.e.o.Step(s.name)
		done, err := s.run(ctx)
		if err != nil || done {
			return err
		}
	}
	return nil
}

func (t *tx) recover(ctx context.Context) (bool, error) {
	rec, err := t.e.recoverLocked(ctx)
	t.answer.Recovered = rec
	if err != nil {
		return false, fmt.Errorf("recover an earlier transaction: %w", err)
	}
	t.answer.Attention, err = commit.Attention(ctx, t.e.env(t.e.extraDirs()))
	t.answer.Notes = append(t.answer.Notes, t.attentionNotes()...)
	return false, err
}

func (t *tx) attentionNotes() (out []string) {
	for _, a := range t.answer.Attention {
		out = append(out, fmt.Sprintf("%q needs attention since an interrupted transaction: run `asp recover`", cut(a.Path)))
	}
	return out
}

func (t *tx) look(ctx context.Context) (bool, error) {
	// Swaps under a journal depend on no path but those touched, which are read anew
	// whatever the stamp says. A tree that is exchanged or committed as a whole does, and
	// one that a command is shown is held against how it was before.
	shown := len(t.e.pol.Commands(t.r.CallSite, t.r.Checks)) > 0
	o := snapshot.StampOptions{Content: t.r.VerifyContent, Watched: t.r.Publish == Journal && !shown}
	var err error
	if t.stamp, err = t.e.ws.Stamp(ctx, o); err != nil {
		return false, err
	}
	t.baseline = t.e.issue(t.stamp.Baseline, t.started)
	t.answer.Notes = append(t.answer.Notes, t.stamp.Notes...)
	t.view, err = preconditions.NewView(t.e.root, t.e.protected())
	return false, err
}

func (t *tx) load(ctx context.Context) (bool, error) {
	if first, err := t.undone(ctx); err != nil || first != nil {
		return t.repeatOr(first, err)
	}
	f, items, err := t.r.Load(ctx, t.view, t.stamp.Baseline)
	if err != nil {
		return false, err
	}
	t.file = f
	if len(items) > 0 {
		if first, err := t.outOfMind(ctx, items); err != nil || first != nil {
			return t.repeatOr(first, err)
		}
		return t.refuse(ctx, items)
	}
	plan, items, err := editplan.Compile(f, planLimits(t.e.cfg), t.lookup())
	if err != nil {
		return false, fmt.Errorf("look up content of the plan: %w", err)
	}
	if len(items) > 0 {
		if first, err := t.before(ctx, f); err != nil || first != nil {
			return t.repeatOr(first, err)
		}
		// What is wrong in shape must not hide what is wrong on disk.
		if all, derr := editplan.Diagnose(f, planLimits(t.e.cfg), t.lookup(), t.view); derr == nil && len(all) > 0 {
			items = all
		}
		return t.refuse(ctx, items)
	}
	t.plan = plan
	if ws, ok := f.Proposal.Get("warnings"); ok {
		for _, w := range ws.Elements() {
			t.answer.Notes = append(t.answer.Notes, "plan: "+cut(w.Str()))
		}
	}
	return false, nil
}

// fresh answers a repeated request with its first outcome, and refuses a plan
// whose baseline or content this host never issued.
func (t *tx) fresh(ctx context.Context) (bool, error) {
	if t.plan.Provider == undoProvider && t.r.Undoes == "" {
		// Its outcome would be taken for that of an undo.
		return t.refuse(ctx, refusal.List{refusal.New(refusal.IDReuse, "", -1, "provider %q is the host's own; give the plan another one", undoProvider)})
	}
	if !t.r.DryRun {
		prev, err := t.e.receipts.Lookup(ctx, t.plan.Provider, t.plan.ID)
		if err != nil {
			return false, err
		}
		if r := t.stagedByAnother(); r != nil {
			return t.refuse(ctx, r)
		}
		first := prev.Applied
		if first == nil && t.r.Publish == Stage {
			first = prev.Staged
		}
		if first == nil && prev.Staged != nil && prev.Staged.PlanDigest() != t.plan.Digest.String() {
			return t.refuse(ctx, refusal.List{refusal.New(refusal.IDReuse, "", -1, "proposal %q was staged with other content (receipt %s); give the new plan an id of its own", cut(t.plan.ID), prev.Staged.Receipt.ReceiptID)})
		}
		if first != nil {
			same, err := t.samePlan(first)
			if err != nil {
				return false, err
			}
			if !same {
				return t.refuse(ctx, refusal.List{refusal.New(refusal.IDReuse, "", -1, "proposal %q was applied with other content (receipt %s); give the new plan an id of its own", cut(t.plan.ID), first.Receipt.ReceiptID)})
			}
			return t.repeat(first)
		}
	}
	current := t.plan.Baseline == t.stamp.Baseline
	if !current {
		known, err := t.e.issued(t.plan.Baseline)
		if err != nil {
			return false, err
		}
		if !known {
			return t.refuse(ctx, refusal.List{refusal.New(refusal.ForeignBaseline, "", -1, "baseline %q was not issued by this host for this workspace; take one from `asp status --json` and plan again", cut(t.plan.Baseline.Rev))})
		}
	}
	missing, err := t.staleBlobs(ctx)
	if err != nil {
		return false, err
	}
	for _, d := range missing {
		t.stale = append(t.stale, refusal.New(refusal.StaleValidAsOf, "", -1, "%s is not the content of any file now; plan again", d.Blob()))
	}
	if len(t.stale) > 0 && t.r.Origin == Brought {
		return t.refuse(ctx, t.stale)
	}
	return false, nil
}

func (t *tx) admit(ctx context.Context) (bool, error) {
	if err := half(t.answer.Attention); err != nil {
		return t.refuse(ctx, refusal.List{refusal.New(refusal.NeedsAttention, "", -1, "%v", err)})
	}
	in := preconditions.Input{Plan: t.plan, Workspace: t.e.ws, Stamp: t.stamp, Index: t.r.Index, Staging: t.r.Index || t.r.Ref != ""}
	for _, a := range t.answer.Attention {
		in.Attention = append(in.Attention, a.Path)
	}
	if err := t.mayMerge(ctx, &in); err != nil {
		return false, err
	}
	adm, items, err := preconditions.Check(ctx, t.view, in)
	if err != nil {
		return false, err
	}
	if items = append(t.stale, items...); len(items) > 0 {
		again, err := t.repropose(ctx, items)
		if err != nil {
			return false, err
		}
		if again {
			t.stale = nil
			if done, err := t.authorize(ctx); done || err != nil {
				return done, err
			}
			return t.admit(ctx)
		}
		return t.refuse(ctx, t.mergeable(in, items))
	}
	t.adm = adm
	if adm != nil {
		if t.r.undo != nil {
			adm.Merges = append(adm.Merges, t.r.undo.merged...)
		}
		t.answer.Nets = adm.Nets
		t.answer.Notes = append(t.answer.Notes, mergeNotes(adm.Merges)...)
	}
	return false, nil
}

// mergeable tells of the other way out where content has moved: nobody looks for a flag
// that no answer names.
func (t *tx) mergeable(in preconditions.Input, items refusal.List) refusal.List {
	if in.Base != nil || t.r.undo != nil {
		return items
	}
	for i, it := range items {
		if it.Code == refusal.StaleBasis && it.Op >= 0 && it.Op < len(t.plan.Ops) && t.plan.Ops[it.Op].Kind != editplan.Delete {
			items[i].Detail += ", or allow a clean three-way merge (--merge, or merge in config.json)"
		}
	}
	return items
}

// check runs what the policy and the caller require, and decides.
func (t *tx) check(ctx context.Context) (bool, error) {
	t.place.checks(true)
	err := t.e.runChecks(ctx, t)
	t.place.checks(false)
	if err != nil {
		return false, err
	}
	if err := ctx.Err(); err != nil {
		return false, err // checks that a cancel ended say nothing about the plan
	}
	if len(t.report.ChangedUnderneath) > 0 {
		var items refusal.List
		for _, p := range t.report.ChangedUnderneath {
			items = append(items, refusal.New(refusal.ChangedUnderneath, p, -1, "changed while the checks ran; look at it and plan again"))
		}
		return t.refuse(ctx, items)
	}
	if i := slices.IndexFunc(t.report.Results, func(r checks.Result) bool { return r.Unsupported }); i >= 0 && t.r.RequireAssurance > checks.Advisory {
		r := t.report.Results[i]
		return t.refuse(ctx, refusal.List{refusal.New(refusal.WeakAssurance, "", -1, "%s was asked for and %s was not started: %s; `asp doctor` says what this machine can prove", t.r.RequireAssurance, cut(r.Name), cut(r.Detail))})
	}
	if d := t.decision; d != nil && d.Decision != wire.Allow {
		return t.refuse(ctx, refusal.List{refusal.New(blocked(d), "", -1, "%s", summary(d))})
	}
	if mode := t.mode(); mode < t.r.RequireAssurance {
		return t.refuse(ctx, refusal.List{refusal.New(refusal.WeakAssurance, "", -1, "%s was asked for and %s is what this run established; %s", t.r.RequireAssurance, mode, t.stronger())})
	}
	return false, nil
}

// mode is the weakest isolation that those who took part established, the
// provider of the plan among them; advisory when nobody took part.
func (t *tx) mode() checks.Isolation {
	if t.editor != nil {
		return weakestMode(t.report.Results, t.editor.established)
	}
	return weakestMode(t.report.Results)
}

// publish writes, or for a dry run does not.
func (t *tx) publish(ctx context.Context) (bool, error) {
	if t.r.DryRun {
		return t.dryRun(ctx, nil)
	}
	if t.r.Show != nil {
		cs, err := t.show()
		if err != nil {
			return false, err
		}
		t.r.Show(cs)
	}
	switch t.r.Publish {
	case Stage:
		return t.stageSnapshot(ctx)
	case Exchange:
		return t.exchange(ctx)
	}
	return t.journal(ctx)
}

// journal publishes path by path under the write-ahead journal, together with those
// who can be taken along.
func (t *tx) journal(ctx context.Context) (bool, error) {
	g, err := t.gather(ctx)
	if err != nil {
		return t.unlessMoved(ctx, err)
	}
	if g != nil {
		if alone, err := g.publish(ctx); !alone {
			return false, err
		}
		t.txid = "tx-" + home.Random(12) // the other one is used up
	}
	return t.journalAlone(ctx)
}

func (t *tx) journalAlone(ctx context.Context) (bool, error) {
	o := commit.Options{
		Tag: t.tag(),
		Recheck: func(ctx context.Context) (refusal.List, error) {
			t.e.o.Before("swap")
			return t.adm.Recheck(ctx)
		},
		Seal: func(ctx context.Context, f commit.Facts) ([]byte, error) {
			t.facts = &f
			e, err := t.entry(receipt.Applied)
			if err != nil {
				return nil, err
			}
			t.sealed = &e
			return encodeEvidence(t.sealed, t.txid)
		},
		AfterCommit: func(ctx context.Context, _ []byte, f commit.Facts) error { return t.keepSealed(ctx, f.Style) },
		Step:        func(name string) { t.e.o.Before(name) },
	}
	if t.r.Index {
		extra, release, items, err := t.e.stageIndex(ctx, t)
		if err != nil || len(items) > 0 {
			if err != nil {
				return t.unlessMoved(ctx, err)
			}
			return t.refuse(ctx, items)
		}
		defer release()
		o.Extra = extra
	}
	if err := t.packAndForesee(ctx); err != nil {
		t.dropPack()
		return t.unlessMoved(ctx, err)
	}
	if len(t.changes) == 0 && len(o.Extra) == 0 {
		return false, nil
	}
	env := t.e.env(t.e.extraDirs())
	res, err := commit.Run(ctx, env, t.txid, t.changes, o)
	if res.Outcome != commit.Committed {
		t.sealed = nil
		t.dropPack()
	}
	t.answer.Notes = append(t.answer.Notes, res.Notes...)
	switch res.Outcome {
	case commit.Committed:
		t.facts = &res.Facts
		if err != nil {
			// It is done and durable; only the receipt or the clean-up is left,
			// which the next start finishes.
			t.left = err
			t.answer.Notes = append(t.answer.Notes, "applied, and left for recovery to tidy: "+err.Error())
		}
		return false, nil
	case commit.NeedsAttention:
		t.answer.Attention = res.Paths
		return false, t.undecided("", err)
	}
	if err != nil {
		if res.Outcome == commit.RolledBack {
			return false, &rolledBack{err}
		}
		return false, err
	}
	t.facts = nil
	out := receipt.Refused
	if res.Outcome == commit.RolledBack {
		out = receipt.RolledBack
	}
	return t.refuseAs(ctx, res.Items, out)
}

// rolledBack marks an error after which everything was put back.
type rolledBack struct{ err error }

func (r *rolledBack) Error() string { return "rolled back, nothing is changed: " + r.err.Error() }
func (r *rolledBack) Unwrap() error { return r.err }

// tag names the proposal in the journal.
func (t *tx) tag() string {
	id := strings.TrimLeft(t.proposalID(), groupMark)
	if len(id) > 1024 {
		id = id[:1024]
	}
	return id
}

func (t *tx) proposalID() string {
	switch {
	case t.r.AsProposal != "":
		return t.r.AsProposal
	case t.plan != nil:
		return t.plan.ID
	}
	if v, ok := t.file.Proposal.Get("proposalId"); ok && v.Kind() == canon.String {
		return cut(v.Str())
	}
	return ""
}

func cut(s string) string {
	if len(s) > 200 {
		return s[:200] + "…"
	}
	return s
}

// staleBlobs returns the digests that the plan calls current and that are not.
// Digests that an operation expects are left to the preconditions, which name
// the path.
func (t *tx) staleBlobs(ctx context.Context) ([]snapshot.Digest, error) {
	want := map[snapshot.Digest]bool{}
	for _, d := range t.plan.ValidAsOf {
		want[d] = true
	}
	for _, op := range t.plan.Ops {
		delete(want, op.Expected)
	}
	if len(want) == 0 {
		return nil, nil
	}
	return t.e.absent(ctx, want)
}

var _ io.Closer = (*Engine)(nil)

// Plan makes a plan from what load gives, without applying it. It compiles the
// result, so what it returns is at least well formed; refusals say why there is
// none.
func (e *Engine) Plan(ctx context.Context, load Loader) (editplan.File, refusal.List, error) {
	var f editplan.File
	var items refusal.List
	err := e.locked(ctx, func() error {
		// A plan made against a half-swapped tree would be stale as soon as that
		// tree is put in order, so that comes first.
		rec, err := e.recoverLocked(ctx)
		e.o.Recovered(rec)
		if err != nil {
			return fmt.Errorf("recover an earlier transaction: %w", err)
		}
		s, err := e.ws.Stamp(ctx, snapshot.StampOptions{Watched: true})
		if err != nil {
			return err
		}
		e.issue(s.Baseline, e.now())
		v, err := preconditions.NewView(e.root, e.protected())
		if err != nil {
			return err
		}
		defer v.Close()
		if f, items, err = load(ctx, v, s.Baseline); err != nil || len(items) > 0 {
			return err
		}
		_, items, err = editplan.Compile(f, planLimits(e.cfg), e.blobLookup())
		return err
	})
	return f, items, err
}

// stronger says what would establish more than this run did.
func (t *tx) stronger() string {
	if len(t.report.Results) == 0 {
		return "nothing ran in a sandbox: name a check (--check), or have the policy require one or a provider"
	}
	return "`asp doctor` says what this machine can prove"
}
