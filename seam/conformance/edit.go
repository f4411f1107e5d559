package conformance

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/wire"
)

func editRequirements() []requirement {
	return []requirement{
		{"EDIT-HOST-REQUEST-PLAN-NO-WRITE", "host/requestEditPlan returns the plan and writes nothing", editNoWrite},
		{"EDIT-HOST-POSITIVE-APPLY", "a plan that was asked for is applied, with baseline, assurance and receipt", editApply},
		{"EDIT-HOST-STALE-PLAN", "a plan on another state than the current one is refused", editStale},
		{"EDIT-HOST-CAS-CONFLICT", "a wrong expectation of content or absence is a conflict, and nothing is written", editCAS},
		{"EDIT-HOST-PATH-POLICY", "paths outside, protected or in other spellings are refused", editPaths},
		{"EDIT-HOST-UNKNOWN-PROPOSAL", "a proposal that nobody made is refused", editUnknown},
		{"EDIT-HOST-DENIED-VALIDATION", "a denied candidate is not applied", editDenied},
		{"EDIT-HOST-INDETERMINATE-VALIDATION", "a candidate that could not be judged is not applied", editIndeterminate},
		{"EDIT-HOST-COMMAND-LIKE-OUTPUT", "a plan that carries something to execute is refused", commandLike},
		{"EDIT-HOST-DIRECT-WRITE-RISK", "a provider that asks for write access gets no plan through", editDirectWrite},
		{"EDIT-HOST-MALFORMED-OUTPUT", "output that is no acceptable plan is an error with a receipt, and nothing of it is kept", editMalformed},
		{"EDIT-HOST-HOST-FIELD-SMUGGLING", "a plan with a host-owned key is refused", editSmuggling},
		{"EDIT-HOST-MISSING-AUTHORITY", "a provider without edit authority gets nothing applied", editAuthority},
		{"EDIT-HOST-INSUFFICIENT-ASSURANCE", "a plan is not applied with less assurance than the policy asks for", editAssurance},
		{"EDIT-HOST-CONCURRENT-APPLY", "one transaction at a time: the first wins, none is lost, none is done twice", editConcurrent},
		{"EDIT-HOST-NO-OPCORE-FAST-PATH", "no name is special, and another protocol's edits are no plans", editNoFastPath},
	}
}

// oneEditor is a world with a pinned edit provider and a pinned check provider
// that every call-site requires.
func (t *trial) oneEditor(p enrolled) setup {
	c := checker("one")
	return setup{providers: []enrolled{p, c}, policy: everywhere([]demand{t.checkNeed(checked, t.pinOf(c)), t.editNeed("edits", t.pinOf(p))}, []string{checked}, nil)}
}

// planParams asks for a plan whose provider behaves as how says.
func (s *session) planParams(id, how, path, content string, more ...canon.Member) canon.Value {
	args := object(member("how", how))
	if path != "" {
		args = args.With("path", canon.StringOf(path))
	} else {
		path = "src/a.txt"
	}
	scope := []string{path}
	if how == "rename" {
		scope = append(scope, path+".new")
	}
	if content != "" {
		args = args.With("text", canon.StringOf(content))
	}
	return object(append([]canon.Member{member("callSite", "gate"), member("operation", "text-edit"), member("baseline", s.base), member("args", args),
		member("scope", object(member("paths", scope))), member("proposalId", id)}, more...)...)
}

// plan asks for a plan and returns it.
func (s *session) plan(ctx context.Context, id, how, path, content string) (canon.Value, error) {
	if _, err := s.baseline(ctx); err != nil {
		return canon.Value{}, err
	}
	var r wire.RequestEditPlanResult
	params := s.planParams(id, how, path, content)
	v, err := s.result(ctx, "ask for a plan: "+how, "host/requestEditPlan", params, &r, []string{"proposal", "status"}, []string{"proposal", "touchedResources"}, []string{"receipt", "kind"})
	if err != nil {
		return v, err
	}
	s.t.receipt("requestEditPlan", r.Receipt, wire.ReceiptEditRequest, requestDigest("host/requestEditPlan", params))
	s.t.judge(text(r.Proposal, "proposalId") == id, "the plan is called %q, asked for %q", text(r.Proposal, "proposalId"), id)
	s.t.judge(r.Receipt.ProposalID == id, "the receipt names proposal %q", r.Receipt.ProposalID)
	return r.Proposal, nil
}

// applied is the outcome of an apply.
type applied struct {
	wire.ApplyProposalResult
	answer answer
}

// apply asks for the transaction and judges what holds for every outcome.
func (s *session) apply(ctx context.Context, site wire.CallSite, id string, more ...canon.Member) (applied, error) {
	params := object(append([]canon.Member{member("callSite", string(site)), member("proposalId", id), member("intent", "agent")}, more...)...)
	return s.applyParams(ctx, params)
}

func (s *session) applyParams(ctx context.Context, params canon.Value) (applied, error) {
	var r applied
	step := "apply " + text(params, "proposalId")
	a, err := s.do(ctx, "host/applyProposal", params)
	if err != nil {
		return r, err
	}
	r.answer = a
	if a.err != nil {
		s.t.show(step, request(a), errorValue(a.err))
		return r, fmt.Errorf("%s: a result was due, not error %d (%s): %s", step, a.err.Code, failClass(a.err), a.err.Message)
	}
	s.t.show(step, request(a), part(a.result, []string{"applied"}, []string{"baselineBefore"}, []string{"baselineAfter"}, []string{"assurance"}, []string{"refusal"},
		[]string{"decision", "decision"}, []string{"decision", "coverage"}))
	if err := wire.Decode(a.result, &r.ApplyProposalResult); err != nil {
		return r, fmt.Errorf("%s: %w", step, err)
	}
	s.t.outcome(step, r, params)
	return r, nil
}

func (t *trial) outcome(step string, r applied, params canon.Value) {
	say := func(ok bool, format string, a ...any) { t.judge(ok, step+": "+format, a...) }
	say(r.ProposalID == text(params, "proposalId"), "answers for proposal %q", r.ProposalID)
	say(r.Receipt.Kind == wire.ReceiptApplyAttempt, "receipt kind %s", r.Receipt.Kind)
	say(r.Receipt.RequestDigest == requestDigest("host/applyProposal", params), "the receipt's requestDigest is not the request's")
	say(r.Receipt.Assurance.TransactionGuarantee == r.Assurance.TransactionGuarantee && r.Receipt.Assurance.Mode == r.Assurance.Mode, "receipt and result differ in assurance")
	if r.Decision != nil {
		say(r.Decision.CallSite == wire.CallSite(text(params, "callSite")), "decision for %s", r.Decision.CallSite)
		say(!r.Applied || r.Decision.Decision == wire.Allow, "applied on decision %s", r.Decision.Decision)
	}
	if !r.Applied {
		say(r.Assurance.TransactionGuarantee == wire.GuaranteeNone, "refused, and claims guarantee %s", r.Assurance.TransactionGuarantee)
		say(r.BaselineAfter == nil && r.Refusal != nil, "refused without refusal, or with a baseline after")
	}
}

// refused judges the refusal: its reason, and the code that its detail begins
// with; no code: any.
func (t *trial) refused(what string, r applied, reason wire.RefusalReason, codes ...string) {
	if !t.judge(!r.Applied && r.Refusal != nil, "%s: applied", what) {
		return
	}
	t.judge(r.Refusal.Reason == reason, "%s: refused as %s (%s), want %s", what, r.Refusal.Reason, clip(r.Refusal.Detail, 200), reason)
	if len(codes) == 0 {
		return
	}
	code, _, _ := strings.Cut(r.Refusal.Detail, ":")
	t.judge(slices.Contains(codes, code), "%s: refused with %q, want one of %q", what, clip(r.Refusal.Detail, 100), codes)
}

func editNoWrite(ctx context.Context, t *trial) error {
	s, before, err := t.begin(ctx, t.oneEditor(editor("ed")))
	if err != nil {
		return err
	}
	for _, how := range []string{"insert", "create", "replace", "delete", "rename"} {
		path := ""
		if how == "create" {
			path = "src/new.txt"
		}
		p, err := s.plan(ctx, "plan-"+how, how, path, "")
		if err != nil {
			return err
		}
		t.judge(text(p, "status") == "complete" && at(p, "workspaceEdit").Kind() == canon.Object, "%s: status %q", how, text(p, "status"))
	}
	for _, how := range []string{"incomplete", "unsupported", "status-error", "cancelled"} {
		p, err := s.plan(ctx, "plan-"+how, how, "", "")
		if err != nil {
			return err
		}
		t.judge(text(p, "status") == strings.TrimPrefix(how, "status-"), "%s: status %q", how, text(p, "status"))
		r, err := s.apply(ctx, wire.Gate, "plan-"+how)
		if err != nil {
			return err
		}
		t.judge(!r.Applied, "a plan with status %s was applied", how)
	}
	t.untouched(s.w, before, "after plans were asked for")
	return nil
}

func editApply(ctx context.Context, t *trial) error {
	s, err := t.open(ctx, t.oneEditor(editor("ed")))
	if err != nil {
		return err
	}
	for i, c := range []struct {
		how, path, want string
		content         string
	}{
		{"insert", "src/a.txt", "src/a.txt", "new line\n" + baseFiles["src/a.txt"]},
		{"create", "src/new.txt", "src/new.txt", "new line\n"},
		{"replace", "src/b.txt", "src/b.txt", "new line\n"},
		{"rename", "src/new.txt", "src/new.txt.new", "new line\n"},
	} {
		id := fmt.Sprintf("proposal-%d", i)
		if _, err := s.plan(ctx, id, c.how, c.path, "new line\n"); err != nil {
			return err
		}
		r, err := s.apply(ctx, wire.Gate, id)
		if err != nil {
			return err
		}
		if !t.judge(r.Applied, "%s was not applied: %+v", c.how, r.Refusal) {
			return nil
		}
		t.judge(s.w.read(c.want) == c.content, "%s: %s holds %q, want %q", c.how, c.want, s.w.read(c.want), c.content)
		t.judge(r.Decision != nil && r.Decision.Decision == wire.Allow && slices.Contains(r.Decision.Coverage.Ran, checked), "%s: applied without the required check: %+v", c.how, r.Decision)
		b, err := s.baseline(ctx)
		if err != nil {
			return err
		}
		t.judge(text(b, "rev") == r.BaselineAfter.Rev && text(b, "dirty") == r.BaselineAfter.Dirty, "%s: baselineAfter is not the baseline that follows", c.how)
		t.judge(slices.Contains(r.Receipt.ProviderIDs, "ed"), "%s: the receipt does not name the edit provider: %q", c.how, r.Receipt.ProviderIDs)
		again, err := s.apply(ctx, wire.Gate, id)
		if err != nil {
			return err
		}
		t.judge(canon.Equal(again.answer.result, r.answer.result), "%s: the same request gave another result the second time", c.how)
		t.judge(s.w.read(c.want) == c.content, "%s: applied twice", c.how)
	}
	_, err = os.Stat(s.w.path("src/new.txt"))
	t.judge(os.IsNotExist(err), "the old name is still there after a rename")
	_, err = os.Stat(s.w.path(".git/asp"))
	t.judge(os.IsNotExist(err), "<git dir>/asp is left though no transaction is open")
	return nil
}

// inline is a plan that the harness holds itself, on the current baseline.
func (s *session) inline(ctx context.Context, id string, changes ...canon.Value) (canon.Value, error) {
	b, err := s.baseline(ctx)
	if err != nil {
		return canon.Value{}, err
	}
	var blobs []string
	for _, c := range changes {
		if d := text(c, "precondition", "expectedDigest"); d != "" && !slices.Contains(blobs, d) {
			blobs = append(blobs, d)
		}
	}
	return planOf(id, "harness", "1", "complete", b, blobs, changes), nil
}

// applyInline brings a plan and asks for it to be applied.
func (s *session) applyInline(ctx context.Context, plan canon.Value) (applied, error) {
	return s.apply(ctx, wire.Gate, text(plan, "proposalId"), member("proposal", plan))
}

// validated applies a plan whose target's name orders the check provider about.
func validated(ctx context.Context, t *trial, how string) (*session, applied, error) {
	s, err := t.open(ctx, t.oneEditor(editor("ed")))
	if err != nil {
		return nil, applied{}, err
	}
	before, err := s.w.mark()
	if err != nil {
		return nil, applied{}, err
	}
	if _, err := s.plan(ctx, "judged", "create", "do/one="+how+".txt", "x\n"); err != nil {
		return nil, applied{}, err
	}
	r, err := s.apply(ctx, wire.Gate, "judged")
	if err != nil {
		return nil, applied{}, err
	}
	t.judge(r.Decision != nil, "refused by validation, and no decision is shown")
	t.untouched(s.w, before, "after a refused apply")
	return s, r, nil
}

func editDenied(ctx context.Context, t *trial) error {
	_, r, err := validated(ctx, t, "find")
	if err != nil {
		return err
	}
	t.refused("a denied candidate", r, "validation-denied", "check-denied")
	t.judge(r.Decision == nil || r.Decision.Decision == wire.Deny, "decision %+v", r.Decision)
	return nil
}

func editIndeterminate(ctx context.Context, t *trial) error {
	for _, how := range []string{"crash", "incomplete", "missing-member", "forge-top!decision"} {
		s, r, err := validated(ctx, t, how)
		if err != nil {
			return err
		}
		t.refused("a candidate whose check "+how, r, "validation-indeterminate", "check-indeterminate")
		t.judge(r.Decision == nil || r.Decision.Decision == wire.Indeterminate, "%s: decision %+v", how, r.Decision)
		s.finish()
	}
	// An apply never fails open, whatever its call-site.
	s, err := t.open(ctx, t.oneEditor(editor("ed")))
	if err != nil {
		return err
	}
	if _, err := s.plan(ctx, "open", "create", "do/one=crash.txt", "x\n"); err != nil {
		return err
	}
	r, err := s.apply(ctx, wire.Interactive, "open")
	if err != nil {
		return err
	}
	t.refused("a crashed check on interactive", r, "validation-indeterminate", "check-indeterminate")
	return nil
}

func commandLike(ctx context.Context, t *trial) error {
	s, before, err := t.begin(ctx, t.oneEditor(editor("ed")))
	if err != nil {
		return err
	}
	if _, err := s.baseline(ctx); err != nil {
		return err
	}
	for _, key := range []string{"command", "commands", "script"} {
		for _, where := range []string{"command-top!", "command-annotation!"} {
			if where == "command-top!" && key == "script" {
				continue // three failures in a row and a good one between
			}
			if _, err := s.fails(ctx, "a plan with "+key, "host/requestEditPlan", s.planParams("cmd", where+key, "", ""), wire.FailContract); err != nil {
				return err
			}
		}
		if _, err := s.plan(ctx, "good-"+key, "insert", "", ""); err != nil {
			return err
		}
		content := blobID(baseFiles["src/a.txt"])
		plan, err := s.inline(ctx, "inline-"+key, insertion("src/a.txt", content, "x"))
		if err != nil {
			return err
		}
		note := object(member("path", "src/a.txt"), member("message", "x"), member("data", object(member("deep", object(member(key, "sh -c true"))))))
		r, err := s.applyInline(ctx, put(plan, []canon.Value{note}, "annotations"))
		if err != nil {
			return err
		}
		t.refused("an inline plan with "+key, r, "malformed", "command-like")
	}
	t.untouched(s.w, before, "after plans with commands")
	return nil
}

func editDirectWrite(ctx context.Context, t *trial) error {
	p := editor("ed")
	p.Initialize = "asks-write"
	s, before, err := t.begin(ctx, t.oneEditor(p))
	if err != nil {
		return err
	}
	if _, err := s.baseline(ctx); err != nil {
		return err
	}
	params := s.planParams("risky", "insert", "", "")
	a, err := s.do(ctx, "host/requestEditPlan", params)
	if err != nil {
		return err
	}
	if a.err != nil {
		t.show("ask for a plan", request(a), errorValue(a.err))
		t.judge(failClass(a.err) == wire.FailContract || failClass(a.err) == wire.FailPolicy, "failClass %q", failClass(a.err))
		r, err := s.apply(ctx, wire.Gate, "risky")
		if err != nil {
			return err
		}
		t.judge(!r.Applied, "applied a plan of a provider that asks for write access")
	} else {
		r, err := s.apply(ctx, wire.Gate, "risky")
		if err != nil {
			return err
		}
		t.refused("a plan of a provider that asks for write access", r, "direct-write-risk", "direct-write")
	}
	t.untouched(s.w, before, "after a plan of a provider that asks for write access")
	return nil
}

func editMalformed(ctx context.Context, t *trial) error {
	s, before, err := t.begin(ctx, t.oneEditor(editor("ed")))
	if err != nil {
		return err
	}
	if _, err := s.baseline(ctx); err != nil {
		return err
	}
	hows := []string{"unknown-member", "other-proposal", "other-provider", "no-basis", "no-precondition", "absence-on-modify", "not-mirrored", "mirrors-other",
		"other-baseline", "no-edit", "wide-coordinates", "negative-range", "not-object", "null", "missing-blob"}
	t.rng.Shuffle(len(hows), func(i, j int) { hows[i], hows[j] = hows[j], hows[i] })
	for i, how := range hows {
		if i%2 == 0 {
			if _, err := s.plan(ctx, "good-"+how, "insert", "", ""); err != nil {
				return err
			}
		}
		e, err := s.fails(ctx, "a plan: "+how, "host/requestEditPlan", s.planParams("bad-"+how, how, "", ""), wire.FailContract)
		if err != nil {
			return err
		}
		if e == nil {
			continue
		}
		t.failureReceipt(ctx, s.w, how, e)
		r, err := s.apply(ctx, wire.Gate, "bad-"+how)
		if err != nil {
			return err
		}
		t.refused("what was not accepted, "+how, r, "stale-baseline", "unknown-proposal")
	}
	t.untouched(s.w, before, "after malformed plans")
	return nil
}

// failureReceipt judges that an error names a stored receipt of a provider's
// failure.
func (t *trial) failureReceipt(ctx context.Context, w *world, how string, e *wire.Error) {
	detail := ""
	if e.Data != nil {
		detail = e.Data.Detail
	}
	list, _, err := w.json(ctx, "receipts", "--repo", w.root, "list")
	if err != nil {
		t.problem("%s: list receipts: %v", how, err)
		return
	}
	for _, r := range each(list) {
		if id := text(r, "receiptId"); id != "" && strings.Contains(detail, id) {
			t.judge(text(r, "kind") == string(wire.ReceiptProviderFailure), "%s: the receipt that the error names is of kind %q", how, text(r, "kind"))
			return
		}
	}
	t.problem("%s: error.data.detail %q names no stored receipt", how, clip(detail, 120))
}

func editSmuggling(ctx context.Context, t *trial) error {
	s, before, err := t.begin(ctx, t.oneEditor(editor("ed")))
	if err != nil {
		return err
	}
	for i, key := range hostOwned() {
		if i%2 == 0 {
			if _, err := s.plan(ctx, "good-"+key, "insert", "", ""); err != nil {
				return err
			}
		}
		how := []string{"host-top!", "host-annotation!"}[t.rng.IntN(2)] + key
		if _, err := s.fails(ctx, "a plan with "+key, "host/requestEditPlan", s.planParams("smuggle", how, "", ""), wire.FailContract); err != nil {
			return err
		}
		plan, err := s.inline(ctx, "inline-"+key, insertion("src/a.txt", blobID(baseFiles["src/a.txt"]), "x"))
		if err != nil {
			return err
		}
		r, err := s.applyInline(ctx, put(plan, "allow", key))
		if err != nil {
			return err
		}
		t.refused("an inline plan with "+key, r, "malformed", "host-field")
	}
	t.untouched(s.w, before, "after smuggled host fields")
	return nil
}
