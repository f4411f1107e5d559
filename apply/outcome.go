package apply

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/aspengine/asp/apply/commit"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/receipt"
	"github.com/aspengine/asp/seam/wire"
)

// unknownRev stands in receipts of attempts that ended before the workspace was
// looked at.
const unknownRev = "unknown"

// refuse ends an attempt before its first write.
func (t *tx) refuse(ctx context.Context, items refusal.List) (bool, error) {
	return t.refuseAs(ctx, items, receipt.Refused)
}

func (t *tx) refuseAs(ctx context.Context, items refusal.List, out receipt.Outcome) (bool, error) {
	if t.trial {
		return false, errAlone
	}
	t.answer.Refusals = items
	if t.r.DryRun {
		return t.dryRun(ctx, items)
	}
	e, err := t.entry(out)
	if err != nil {
		return false, err
	}
	if err := t.store(ctx, e); err != nil {
		return false, err
	}
	return true, nil
}

// store keeps an entry that nothing durable depends on: a power cut may lose
// the receipt of a refusal, never that of a success.
func (t *tx) store(ctx context.Context, e receipt.Entry) error {
	st, err := t.e.receipts.Append(ctx, e)
	if err != nil {
		return err
	}
	t.adopt(e, st)
	return nil
}

// adopt makes a stored entry the answer.
func (t *tx) adopt(e receipt.Entry, st *receipt.Stored) {
	t.answer.Outcome, t.answer.Receipt, t.answer.Stored = e.Outcome, e.Receipt.ReceiptID, st.Result
	if st.Result.Kind() == canon.Object {
		var r wire.ApplyProposalResult
		if err := wire.Decode(st.Result, &r); err == nil {
			t.answer.Result = &r
		}
	}
	t.answer.Facts, t.answer.Checks = t.facts, t.report.Results
}

// repeatOr is repeat, unless looking for the first outcome failed.
func (t *tx) repeatOr(first *receipt.Stored, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	return t.repeat(first)
}

// repeat answers a request that was carried out before.
func (t *tx) repeat(first *receipt.Stored) (bool, error) {
	if t.trial {
		return false, errAlone
	}
	var r wire.ApplyProposalResult
	if err := wire.Decode(first.Result, &r); err != nil {
		return false, fmt.Errorf("read the stored result of proposal %q: %w", t.proposalID(), err)
	}
	t.answer.Result, t.answer.Stored, t.answer.Outcome = &r, first.Result, first.Outcome
	t.answer.Receipt, t.answer.Repeated = first.Receipt.ReceiptID, true
	return true, nil
}

// fail stores a receipt that claims nothing and returns the error that names
// it. Whatever went wrong while doing that joins the error.
func (t *tx) fail(ctx context.Context, cause error, out receipt.Outcome) error {
	var rb *rolledBack
	if errors.As(cause, &rb) && out != receipt.Cancelled {
		out = receipt.RolledBack
	}
	t.facts, t.answer.Result, t.answer.DryRun = nil, nil, nil
	if t.r.DryRun {
		return cause
	}
	f := &Failure{Err: cause, Outcome: out}
	e, err := t.entry(out)
	if err == nil {
		e.Result = canon.Value{}
		t.closeView() // what failed for want of descriptors must not want them here, too
		var st *receipt.Stored
		if st, err = t.e.receipts.Append(ctx, e); err == nil {
			f.Receipt = st.Receipt.ReceiptID
			t.answer.Receipt, t.answer.Outcome = f.Receipt, out
		}
	}
	if err != nil {
		f.Err = errors.Join(cause, fmt.Errorf("store receipt: %w", err))
	}
	return f
}

// assurance is what this run established, for the outcome given.
func (t *tx) assurance(out receipt.Outcome) wire.ApplyAssurance {
	a := wire.ApplyAssurance{Mode: wire.Mode(t.mode().String()), TransactionGuarantee: wire.GuaranteeNone}
	var detail []string
	if said := evidenceOf(t.report.Results); said != "" {
		detail = append(detail, said)
	}
	if t.editor != nil && t.editor.evidence != "" {
		detail = append(detail, "plan of "+t.editor.who.ID+": "+t.editor.evidence)
	}
	if t.adm != nil {
		if said := mergedDetail(t.adm.Merges); said != "" {
			detail = append(detail, said)
		}
	}
	g := commit.GuaranteeNone
	var why string
	switch out {
	case receipt.Applied:
		if t.facts != nil {
			g, why = t.facts.Guarantee(), t.facts.Detail()+t.others()
		} else {
			why = "the plan changes nothing, nothing was written"
		}
		if t.r.Publish == Exchange {
			g, why = t.exchanged()
		}
	case receipt.Staged:
		g, why = t.staged()
	default:
		why = "nothing was written"
		if out == receipt.RolledBack {
			why = "everything was put back"
		}
	}
	a.TransactionGuarantee = wire.Guarantee(t.e.ceiling(g).String())
	if why != "" {
		detail = append([]string{"publish " + t.r.Publish.String() + ": " + why}, detail...)
	}
	a.Detail = valid(strings.Join(detail, "; "))
	return a
}

// coverage is the decision's, or says why nothing required ran.
func (t *tx) coverage() wire.Coverage {
	if t.verdict != nil {
		return t.verdict.Coverage
	}
	return unmet(t.e.pol.Demands(t.r.CallSite, t.r.Checks), "not run: the attempt ended before")
}

// entry makes receipt, evidence and result of the attempt as it stands.
func (t *tx) entry(out receipt.Outcome) (receipt.Entry, error) {
	base := t.baseline
	if base.Rev == "" {
		base.Rev = unknownRev
	}
	d := receipt.Draft{
		Kind: wire.ReceiptApplyAttempt, Family: wire.Edit, CallSite: t.r.CallSite,
		RequestDigest: t.requestDigest(), ChangesetDigest: t.csDigest, ProposalID: t.proposalID(),
		PolicyDigest: t.e.pol.Digest, Baseline: base, Coverage: t.coverage(), Assurance: t.assurance(out),
		Started: t.started, Ended: t.e.now(),
	}
	if t.plan != nil {
		d.ProviderIDs = []string{t.plan.Provider}
		for _, x := range t.plan.ValidAsOf {
			d.ValidAsOf.Blobs = append(d.ValidAsOf.Blobs, x.Blob())
		}
		d.ValidAsOf.Rev = base.Rev
	}
	if t.verdict != nil {
		d.Authority = t.verdict.AuthorityEvidence
		d.Providers = t.decision.Provenance
	}
	t.creditEditor(&d)
	for _, it := range t.answer.Refusals {
		d.Failures = append(d.Failures, wire.Degradation{Source: "asp", Reason: degradation(it.Code.Reason()), Detail: pathed(it)})
	}
	r := receipt.New(d, t.e.o.Version)
	e := receipt.Entry{Receipt: r, Outcome: out}
	form, err := e.Form()
	if err != nil {
		return e, fmt.Errorf("make receipt: %w", err)
	}
	if t.plan != nil {
		e.Provider, e.PlanDigest = t.plan.Provider, t.plan.Digest.String()
	}
	if t.verdict != nil {
		t.answer.Notes = append(t.answer.Notes, keptNote(t.e.keepJudged(r.ReceiptID, t.onlyHere(out), t.effects))...)
	}
	if e.Evidence, err = t.evidence(out); err != nil {
		return e, fmt.Errorf("make evidence: %w", err)
	}
	if t.verdict != nil {
		// The receipt of the decision is the transaction's: what a result names, is stored.
		t.verdict.Receipt = r
	}
	res := wire.ApplyProposalResult{
		Applied: out == receipt.Applied || out == receipt.Staged, ProposalID: t.proposalID(), BaselineBefore: base,
		Assurance: r.Assurance, Decision: t.verdict,
	}
	if res.Applied {
		res.BaselineAfter = t.after
	} else {
		res.Refusal = refusalOf(t.answer.Refusals)
	}
	if res.Applied || res.Refusal != nil {
		if e.Result, err = canon.From(res); err != nil {
			return e, fmt.Errorf("make result: %w", err)
		}
		e.Result = e.Result.With("receipt", form)
	}
	return e, nil
}

// refusalOf puts a list into wire form: the first item names it, every item
// with a path is a conflict.
func refusalOf(l refusal.List) *wire.Refusal {
	if len(l) == 0 {
		return nil
	}
	first := l.First()
	w := &wire.Refusal{Reason: wire.RefusalReason(first.Code.Reason()), Detail: pathed(first)}
	if len(l) > 1 {
		w.Detail += fmt.Sprintf(" (%d reasons in all)", len(l))
	}
	for _, it := range l {
		if it.Path != "" {
			w.Conflicts = append(w.Conflicts, wire.Conflict{Path: strings.ToValidUTF8(it.Path, "\uFFFD"), Detail: valid(it.String())})
		}
	}
	return w
}

func pathed(it refusal.Item) string {
	if it.Path == "" {
		return valid(it.String())
	}
	return valid(fmt.Sprintf("%s: %q %s", it.Code, cut(it.Path), it.Detail))
}

// valid makes foreign text fit for JSON.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// degradation picks the word of the receipt's failure list for a refusal.
func degradation(r refusal.Reason) wire.DegradeReason {
	switch r {
	case refusal.MissingAuthority:
		return wire.DegradeMissingAuthority
	case refusal.InsufficientAssurance:
		return wire.DegradeInsufficientAssurance
	case refusal.DirectWriteRisk:
		return wire.DegradeDirectWriteRisk
	case refusal.Unsupported:
		return wire.DegradeUnsupported
	case refusal.StaleBaseline:
		return wire.DegradeStaleBaseline
	case refusal.Conflict:
		return wire.DegradeStale
	case refusal.ValidationDenied:
		return wire.DegradeBlockingDiagnostic
	case refusal.ValidationIndeterminate:
		return wire.DegradeIncomplete
	case refusal.Malformed:
		return wire.DegradeMalformed
	case refusal.MissingBlobReason:
		return wire.DegradeMissing
	}
	return wire.DegradeError
}

// requestDigest is over the outer request that a command amounts to.
func (t *tx) requestDigest() string {
	if t.r.RequestDigest != "" {
		return t.r.RequestDigest
	}
	params := []canon.Member{
		{Key: "callSite", Value: canon.StringOf(string(t.r.CallSite))},
		{Key: "proposalId", Value: canon.StringOf(t.proposalID())},
		{Key: "intent", Value: canon.StringOf(string(t.r.Intent))},
	}
	if t.file.Proposal.Kind() == canon.Object {
		params = append(params, canon.Member{Key: "proposal", Value: t.file.Proposal})
	}
	return RequestDigest("host/applyProposal", canon.ObjectOf(params...))
}

// RequestDigest is the digest of a request of the outer seam.
func RequestDigest(method string, params canon.Value) string {
	return canon.DigestText(canon.ObjectOf(canon.Member{Key: "method", Value: canon.StringOf(method)}, canon.Member{Key: "params", Value: params}))
}

// keep makes the receipt of a committed transaction durable: receipt, head,
// index and the pack of pre-images by one barrier. Called again with the same
// evidence it changes nothing.
func (e *Engine) keep(ctx context.Context, evidence []byte, style commit.SyncStyle) error {
	entries, txid, err := decodeEvidence(evidence)
	if err != nil {
		return fmt.Errorf("read commit record: %w", err)
	}
	for _, ent := range entries {
		if _, err := e.appendEntry(ctx, ent); err != nil {
			return err
		}
	}
	return e.syncEntries(txid, style)
}

// keepEntry is keep for who has the entry still in memory.
func (e *Engine) keepEntry(ctx context.Context, ent receipt.Entry, txid string, style commit.SyncStyle) (*receipt.Stored, error) {
	st, err := e.appendEntry(ctx, ent)
	if err != nil {
		return nil, err
	}
	return st, e.syncEntries(txid, style)
}

// appendEntry puts the entry into the store, without a barrier; one that is there already
// is as good.
func (e *Engine) appendEntry(ctx context.Context, ent receipt.Entry) (*receipt.Stored, error) {
	st, err := e.receipts.Get(ent.Receipt.ReceiptID)
	if err != nil && !errors.Is(err, receipt.ErrNoReceipt) {
		// A power cut may have kept its name and not its bytes. Then it comes back
		// from its copy, or gives way to the one that is appended now.
		if rerr := e.receipts.Recover(ctx); rerr != nil {
			return nil, errors.Join(err, rerr)
		}
		st, err = e.receipts.Get(ent.Receipt.ReceiptID)
	}
	if errors.Is(err, receipt.ErrNoReceipt) {
		st, err = e.receipts.Append(ctx, ent)
		if errors.Is(err, fs.ErrExist) {
			// The append that a kill cut short; every append finishes it first.
			st, err = e.receipts.Get(ent.Receipt.ReceiptID)
		}
	}
	return st, err
}

// syncEntries makes what was appended durable, and the pack of the transaction with it.
func (e *Engine) syncEntries(txid string, style commit.SyncStyle) error {
	packs, err := e.state.Sub(home.Packs)
	if err != nil {
		return err
	}
	mode := home.WholeFS
	if style == commit.SyncEach {
		mode = home.EachFile
		if f, err := packs.Open(txid + ".pack"); err == nil {
			err = errors.Join(f.Sync(), f.Close())
			if err != nil {
				return fmt.Errorf("sync pre-images: %w", err)
			}
		}
	}
	e.receipts.Batch().Touch(packs)
	return e.receipts.Sync(mode)
}

// encodeEvidence is the form in which a receipt waits in the commit record.
func encodeEvidence(e *receipt.Entry, txid string) ([]byte, error) {
	v, err := evidenceValue(e, txid)
	if err != nil {
		return nil, err
	}
	return v.Bytes(), nil
}

func evidenceValue(e *receipt.Entry, txid string) (canon.Value, error) {
	// What is in a commit record must be what can be stored, now that nothing
	// is decided yet: afterwards no clean-up could end the transaction.
	r, err := e.Form()
	if err != nil {
		return canon.Value{}, err
	}
	m := []canon.Member{
		{Key: "receipt", Value: r},
		{Key: "outcome", Value: canon.StringOf(string(e.Outcome))},
		{Key: "provider", Value: canon.StringOf(e.Provider)},
		{Key: "planDigest", Value: canon.StringOf(e.PlanDigest)},
		{Key: "transaction", Value: canon.StringOf(txid)},
		{Key: "evidence", Value: e.Evidence},
		{Key: "result", Value: e.Result},
	}
	return canon.ObjectOf(m...), nil
}

// decodeEvidence reads the entries of a commit record, in their order, and the
// transaction that they have in common.
func decodeEvidence(b []byte) ([]receipt.Entry, string, error) {
	v, err := canon.Parse(b, canon.Limits{Bytes: 64 << 20, Depth: 100})
	if err != nil {
		return nil, "", err
	}
	group, ok := v.Get("group")
	if !ok {
		group = canon.ArrayOf(v)
	}
	var out []receipt.Entry
	txid := ""
	for _, x := range group.Elements() {
		e, id, err := decodeEntry(x)
		if err != nil || txid != "" && id != txid {
			return nil, "", errors.Join(err, errors.New("the commit record is of no transaction of ours"))
		}
		txid = id
		out = append(out, e)
	}
	if len(out) == 0 {
		return nil, "", errors.New("the commit record names no proposal")
	}
	return out, txid, nil
}

func decodeEntry(v canon.Value) (receipt.Entry, string, error) {
	var e receipt.Entry
	str := func(k string) string { m, _ := v.Get(k); return m.Str() }
	r, _ := v.Get("receipt")
	if err := wire.Decode(r, &e.Receipt); err != nil {
		return e, "", err
	}
	e.Outcome, e.Provider, e.PlanDigest = receipt.Outcome(str("outcome")), str("provider"), str("planDigest")
	e.Evidence, _ = v.Get("evidence")
	e.Result, _ = v.Get("result")
	return e, str("transaction"), nil
}

// conclude ends a success: the receipt is durable already where something was
// written, and is stored here where nothing was.
func (t *tx) conclude(ctx context.Context) (bool, error) {
	if t.sealed != nil {
		t.adoptSealed()
		t.collect()
		return true, nil
	}
	e, err := t.entry(receipt.Applied)
	if err != nil {
		return false, err
	}
	return true, t.store(ctx, e)
}

// adoptSealed makes what was committed the answer.
func (t *tx) adoptSealed() {
	st := t.stored
	if st == nil {
		// The journal stays and recovery stores it; the answer is known.
		st = &receipt.Stored{Result: t.unstored()}
	}
	t.adopt(*t.sealed, st)
}

// keepSealed stores the receipt that lies in the commit record. It is stored once its
// barrier was made.
func (t *tx) keepSealed(ctx context.Context, style commit.SyncStyle) error {
	st, err := t.e.keepEntry(ctx, *t.sealed, t.txid, style)
	if err == nil {
		t.stored = st
	}
	return err
}

// unstored is the result of a change that is live and durable while its receipt is
// only in the commit record, because the state directory is full or fails. The change
// cannot be an error any more, and the answer has to say what is missing: in the words
// of the assurance beside the receipt, which stays as it will be stored. A retry, which
// recovers first, gets the stored result without these words.
func (t *tx) unstored() canon.Value {
	why := "it waits for recovery"
	if t.left != nil {
		why = cutTo(t.left.Error(), 1000)
	}
	said := valid("the change is made and its receipt is not stored yet: " + why + "; `asp recover` or the next transaction stores it")
	a, _ := t.sealed.Result.Get("assurance")
	detail, _ := a.Get("detail")
	if detail.Str() != "" {
		said = detail.Str() + "; " + said
	}
	return t.sealed.Result.With("assurance", a.With("detail", canon.StringOf(said)))
}

// lookAtOnce is the pack size, in bytes, from which the store is looked at after
// every transaction.
const lookAtOnce = 1 << 20

// collect keeps the blob store bounded. What it cannot remove now it removes
// next time.
func (t *tx) collect() {
	e := t.e
	// Looking at every pack costs more than a small change does. A few packs over
	// the bound, and none of them large, go with the next look. A half-made one is of
	// a writer that died: ours is whole or gone, and others wait for the lock.
	dir, err := e.state.Sub(home.Packs)
	if err != nil {
		return
	}
	last := vfs.Stat{Size: lookAtOnce}
	if st, err := dir.Lstat(t.txid + ".pack"); err == nil || errors.Is(err, fs.ErrNotExist) {
		last = st
	}
	if last.Size < lookAtOnce && !e.turnToLook(dir) {
		return
	}
	var pins map[string]bool // read only if something has to go
	_, _ = e.packs.GC(func(txid string) bool {
		if pins == nil {
			pins = e.expireStaged()
		}
		return pins[txid]
	})
}

// lookEvery is after how many small packs the store is looked at.
const lookEvery = 8

// turnToLook tells whether the store is looked at now. The engines of a host count their
// transactions, and the first one looks, since a host may never come to another turn;
// others list the store and tell by the number of its names.
func (e *Engine) turnToLook(dir vfs.Dir) bool {
	if s := e.o.Shares; s != nil && s.state.ID == e.state.ID {
		return s.applied.Add(1)%lookEvery == 1
	}
	es, err := dir.List()
	if err != nil {
		return false
	}
	return len(es)%lookEvery == 0 || slices.ContainsFunc(es, func(x vfs.DirEntry) bool { return strings.HasSuffix(x.Name, ".part") })
}

// extraDirs are the directories outside the tree that a transaction may write:
// the git directory, for the index.
func (e *Engine) extraDirs() map[string]vfs.Dir { return e.gitDirs }
