package apply_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/aspengine/asp/apply"
	"github.com/aspengine/asp/checks"
	"github.com/aspengine/asp/editplan"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/receipt"
	"github.com/aspengine/asp/seam/provider"
	"github.com/aspengine/asp/seam/wire"
	"github.com/aspengine/asp/snapshot"
)

var editOnly = []wire.Family{wire.Edit}

// proposal is a complete plan of provider id that replaces a file that holds
// before, as a pool would hand it over.
func proposal(t *testing.T, c *crew, id, proposalID string, base wire.Baseline, path, before, after string) provider.Proposal {
	t.Helper()
	f, err := editplan.NewPlan(editplan.Source{Baseline: snapshot.Baseline{Rev: base.Rev, Dirty: base.Dirty},
		Provider: editplan.Provider{ID: id, Version: "1.0"}}, []editplan.Draft{replace(path, before, after)})
	if err != nil {
		t.Fatal(err)
	}
	f = apply.Named(f, proposalID)
	p := provider.Proposal{Plan: f.Proposal, Blobs: map[wire.BlobRef][]byte{blobID(after): []byte(after)}, Isolation: wire.Isolated,
		Evidence: "kept apart, as the probe showed", Participant: running(c.Standing(context.Background(), id)).Participant}
	if err := wire.Decode(f.Proposal, &p.Decoded); err != nil {
		t.Fatal(err)
	}
	return p
}

// editing is a workspace with an edit provider that replaces what "a" holds now
// by what is asked for.
func editing(t *testing.T, policy string, mode wire.Mode) *hosted {
	c := &crew{roster: []provider.Standing{standing("ed", mode, wire.Edit)}}
	h := newHosted(t, "", policy, c, map[string]string{"a": "1\n", "b": "2\n"})
	c.propose = func(id string, q provider.ProposeRequest) (provider.Proposal, error) {
		to, _ := q.Args.Get("to")
		return proposal(t, c, id, q.ProposalID, q.Baseline, "a", h.read("a"), to.Str()), nil
	}
	return h
}

func (h *hosted) requestEdit(id, to string) (*wire.RequestEditPlanResult, error) {
	return h.engine().RequestEdit(context.Background(), apply.EditRequest{CallSite: wire.Interactive, Operation: "replace-resource", Baseline: h.baseline(),
		ProposalID: id, Args: canon.ObjectOf(canon.Member{Key: "to", Value: canon.StringOf(to)})})
}

func (h *hosted) applyProposal(p wire.ApplyProposalParams, blobs apply.Blobs) *apply.Answer {
	h.t.Helper()
	if p.CallSite == "" {
		p.CallSite = wire.Interactive
	}
	p.Intent = wire.IntentAgent
	a, err := h.engine().ApplyProposal(context.Background(), apply.ProposalRequest{Params: p, Blobs: blobs})
	if err != nil {
		h.t.Fatal(err)
	}
	if a.Result == nil || a.Result.ProposalID != p.ProposalID {
		h.t.Errorf("result %+v is not of %q", a.Result, p.ProposalID)
	}
	return a
}

// code is the code of a refusal, "" for none.
func code(a *apply.Answer) string {
	if a.Result == nil || a.Result.Refusal == nil {
		return ""
	}
	c, _, _ := strings.Cut(a.Result.Refusal.Detail, ":")
	return c
}

// TestAskedForAndApplied goes the whole way of a provider's plan, and again: a
// repeated request gets the first answer and writes nothing.
func TestAskedForAndApplied(t *testing.T) {
	h := editing(t, pins("ed", editOnly, "gated"), wire.Gated)
	before := h.kinds()
	res, err := h.requestEdit("p1", "2\n")
	if err != nil {
		t.Fatal(err)
	}
	if h.read("a") != "1\n" || res.Receipt.Kind != wire.ReceiptEditRequest || !slices.Contains(res.Receipt.ProviderIDs, "ed") {
		t.Errorf("a is %q, receipt %s of %v", h.read("a"), res.Receipt.Kind, res.Receipt.ProviderIDs)
	}
	if got := h.kinds()[len(before):]; !slices.Contains(got, "edit-request/answered") {
		t.Errorf("receipts %v", got)
	}
	a := h.applyProposal(wire.ApplyProposalParams{ProposalID: "p1"}, nil)
	if a.Outcome != receipt.Applied || h.read("a") != "2\n" {
		t.Fatalf("%s %s, a is %q", a.Outcome, codes(a), h.read("a"))
	}
	if a.Result.Assurance.Mode != wire.Isolated || !strings.Contains(a.Result.Assurance.Detail, "the probe showed") {
		t.Errorf("assurance %+v does not come from the provider's launch", a.Result.Assurance)
	}
	r := a.Result.Receipt
	if len(r.AuthorityEvidence) == 0 || !r.AuthorityEvidence[0].Authority.Granted || r.AuthorityEvidence[0].Authority.Requirement != "req" ||
		!slices.ContainsFunc(r.ProviderProvenance, func(p wire.ProviderProvenance) bool { return p.Provider == "ed" && p.Capability == wire.Edit }) {
		t.Errorf("authority %+v, provenance %+v", r.AuthorityEvidence, r.ProviderProvenance)
	}
	if len(h.crew.changed) != 1 || h.crew.changed[0] != *a.Result.BaselineAfter {
		t.Errorf("told of %v", h.crew.changed)
	}
	asked := len(h.crew.asked)
	again := h.applyProposal(wire.ApplyProposalParams{ProposalID: "p1"}, nil)
	if !again.Repeated || again.Receipt != a.Receipt || !canon.Equal(again.Stored, a.Stored) || len(h.crew.asked) != asked || len(h.crew.changed) != 1 {
		t.Errorf("repeated %v, receipt %s and not %s, asked %d times more", again.Repeated, again.Receipt, a.Receipt, len(h.crew.asked)-asked)
	}
}

// TestWhoseAuthority has a row for every origin of a plan and every standing of
// its provider.
func TestWhoseAuthority(t *testing.T) {
	kept := func(h *hosted) wire.ApplyProposalParams {
		if _, err := h.requestEdit("p1", "2\n"); err != nil {
			h.t.Fatal(err)
		}
		return wire.ApplyProposalParams{ProposalID: "p1"}
	}
	inline := func(by string) func(h *hosted) wire.ApplyProposalParams {
		return func(h *hosted) wire.ApplyProposalParams {
			p := proposal(h.t, h.crew, by, "p1", h.baseline(), "a", "1\n", "2\n")
			return wire.ApplyProposalParams{ProposalID: "p1", Proposal: p.Plan}
		}
	}
	for _, x := range []struct {
		name   string
		policy string
		mode   wire.Mode
		with   func(s *provider.Standing)
		plan   func(h *hosted) wire.ApplyProposalParams
		want   string
	}{
		{"pinned", pins("ed", editOnly, "gated"), wire.Gated, nil, kept, ""},
		{"not pinned", pins("other", editOnly, "gated"), wire.Gated, nil, kept, "no-authority"},
		{"pinned for check", pins("ed", checkOnly, "gated"), wire.Gated, nil, kept, "no-authority"},
		{"no policy", "", wire.Gated, nil, kept, "no-authority"},
		{"advisory", pins("ed", editOnly, "gated"), wire.Advisory, nil, kept, "no-authority"},
		{"another version", pins("ed", editOnly, "gated"), wire.Gated, func(s *provider.Standing) { s.Participant.Version = "2.0" }, kept, "no-authority"},
		{"as isolated as asked", pins("ed", editOnly, "isolated"), wire.Gated, nil, kept, ""},
		{"a plan of the caller's own", pins("ed", editOnly, "gated"), wire.Gated, nil, inline("me"), ""},
		{"under the name of an enrolled provider", pins("other", editOnly, "gated"), wire.Gated, nil, inline("ed"), "no-authority"},
		{"under the name of one that may edit", pins("ed", editOnly, "gated"), wire.Gated, nil, inline("ed"), ""},
		{"under the name of one that could write", pins("ed", editOnly, "gated"), wire.Gated, func(s *provider.Standing) { s.Participant.DirectWrite = true }, inline("ed"), "direct-write"},
	} {
		t.Run(x.name, func(t *testing.T) {
			h := editing(t, x.policy, x.mode)
			if x.with != nil {
				x.with(&h.crew.roster[0])
			}
			a := h.applyProposal(x.plan(h), put("2\n"))
			if code(a) != x.want || (x.want == "") != (h.read("a") == "2\n") {
				t.Errorf("%q, a is %q", code(a), h.read("a"))
			}
			if x.want == "" && a.Result.Decision == nil {
				t.Error("applied by no decision")
			}
			// Only the plan that the provider was asked for is its work.
			if asked := len(h.crew.asked) > 0; x.want == "" && (len(a.Result.Receipt.ProviderProvenance) > 0) != asked {
				t.Errorf("asked %v, provenance %+v", asked, a.Result.Receipt.ProviderProvenance)
			}
			if x.want != "" && (a.Result.BaselineAfter != nil || a.Result.Assurance.TransactionGuarantee != wire.GuaranteeNone || len(h.crew.changed) > 0) {
				t.Errorf("a refusal says %+v", a.Result)
			}
		})
	}
}

// TestWeakAssurance refuses a plan whose provider was kept less apart than its
// requirement demands, and an apply whose checks were.
func TestWeakAssurance(t *testing.T) {
	h := editing(t, pins("ed", editOnly, "isolated"), wire.Gated)
	ask := h.crew.propose
	h.crew.propose = func(id string, q provider.ProposeRequest) (provider.Proposal, error) {
		p, err := ask(id, q)
		p.Isolation = wire.MediatedWrite
		return p, err
	}
	if _, err := h.requestEdit("p1", "2\n"); err != nil {
		t.Fatal(err)
	}
	if a := h.applyProposal(wire.ApplyProposalParams{ProposalID: "p1"}, nil); code(a) != "weak-assurance" || a.Result.Refusal.Reason != "insufficient-assurance" || h.read("a") != "1\n" {
		t.Errorf("edit: %q", code(a))
	}
	c := &crew{roster: []provider.Standing{standing("p", wire.Gated, wire.Check)}}
	h = newHosted(t, "", pins("p", checkOnly, "isolated", wire.Interactive), c, map[string]string{"a": "1\n"})
	for status, want := range map[checks.Status]string{checks.Passed: "weak-assurance", checks.Crashed: "check-indeterminate"} {
		c.check = func(_ context.Context, id string, _ provider.Subject, _ provider.Settings) checks.Result {
			r := c.said(id, status)
			r.Isolation = checks.Gated
			return r
		}
		p := proposal(t, c, "me", fmt.Sprint(status), h.baseline(), "a", "1\n", "2\n")
		a := h.applyProposal(wire.ApplyProposalParams{ProposalID: fmt.Sprint(status), Proposal: p.Plan}, put("2\n"))
		if code(a) != want || h.read("a") != "1\n" {
			t.Errorf("%s: %q", status, code(a))
		}
	}
}

// TestApplyAsksProviders holds that required providers judge an apply, over the
// after-state, and that their word counts.
func TestApplyAsksProviders(t *testing.T) {
	c := &crew{roster: []provider.Standing{standing("p", wire.Gated, wire.Check), standing("q", wire.Advisory, wire.Check)}}
	h := newHosted(t, "", pins("p", checkOnly, "gated", wire.Interactive), c, map[string]string{"a": "1\n", "b": "2\n"})
	status, moves := checks.Failed, 0
	var digests []string
	c.check = func(ctx context.Context, id string, s provider.Subject, _ provider.Settings) checks.Result {
		if digests = append(digests, s.ChangesetDigest); canon.DigestText(s.Changeset) != s.ChangesetDigest {
			t.Errorf("digest %s is not that of the changeset", s.ChangesetDigest)
		}
		if b, err := s.Content.Bytes(ctx, blobID("2!\n")); err != nil || string(b) != "2!\n" {
			t.Errorf("after: %q %v", b, err)
		}
		if moves > 0 {
			moves--
			h.write("b", fmt.Sprint("moved ", moves))
		}
		if status == checks.Failed {
			return c.failed(id, "a")
		}
		return c.said(id, status)
	}
	try := func(id string) *apply.Answer {
		p := proposal(t, c, "me", id, h.baseline(), "a", "1\n", "2!\n")
		return h.applyProposal(wire.ApplyProposalParams{ProposalID: id, Proposal: p.Plan}, put("2!\n"))
	}
	a := try("denied")
	if code(a) != "check-denied" || a.Result.Decision == nil || a.Result.Decision.CallSite != wire.Interactive || len(a.Result.Decision.Findings) != 1 ||
		a.Result.Decision.Findings[0].NextStep == "" || h.read("a") != "1\n" {
		t.Errorf("%q %+v", code(a), a.Result.Decision)
	}
	status = checks.Crashed
	if a = try("crashed"); code(a) != "check-indeterminate" || h.read("a") != "1\n" {
		t.Errorf("an apply failed open: %q", code(a))
	}
	if !slices.Contains(h.kinds(), "provider-failure/failed") {
		t.Errorf("no receipt of the crash: %v", h.kinds())
	}
	status, digests = checks.Passed, nil
	moves = 1
	if a = try("passed"); a.Outcome != receipt.Applied || h.read("a") != "2!\n" {
		t.Fatalf("%q", code(a))
	}
	if len(digests) != 2 || digests[0] == digests[1] {
		t.Errorf("after the tree moved it was asked about %v", digests)
	}
	if a.Result.Receipt.ChangesetDigest != digests[1] {
		t.Errorf("receipt %s, judged %s", a.Result.Receipt.ChangesetDigest, digests[1])
	}
	if slices.Contains(c.asked, "check q") {
		t.Error("a provider without a requirement was asked about an apply")
	}
}

// TestAskedAgain makes the touched file move after the plan was made: its
// provider is asked again, at most twice, and nothing is forced.
func TestAskedAgain(t *testing.T) {
	for _, x := range []struct {
		name  string
		stale int // how many further answers are about the old bytes
		asked int // times in all
		want  string
	}{{"once", 0, 2, ""}, {"twice", 1, 3, ""}, {"in vain", 9, 3, "stale-basis"}} {
		t.Run(x.name, func(t *testing.T) {
			h := editing(t, pins("ed", editOnly, "gated"), wire.Gated)
			n := 0
			h.crew.propose = func(id string, q provider.ProposeRequest) (provider.Proposal, error) {
				n++
				if n > 1 && n <= 1+x.stale {
					return proposal(t, h.crew, id, q.ProposalID, q.Baseline, "a", "1\n", "2\n"), nil
				}
				now := h.read("a")
				return proposal(t, h.crew, id, q.ProposalID, q.Baseline, "a", now, now+"2\n"), nil
			}
			first, err := h.requestEdit("p1", "")
			if err != nil {
				t.Fatal(err)
			}
			h.write("a", "mine\n")
			a := h.applyProposal(wire.ApplyProposalParams{ProposalID: "p1"}, nil)
			if code(a) != x.want || n != x.asked {
				t.Errorf("%q after %d requests", code(a), n)
			}
			if want := map[bool]string{true: "mine\n2\n", false: "mine\n"}[x.want == ""]; h.read("a") != want {
				t.Errorf("a is %q", h.read("a"))
			}
			if x.want == "" {
				if again := h.applyProposal(wire.ApplyProposalParams{ProposalID: "p1"}, nil); !again.Repeated || again.Receipt != a.Receipt {
					t.Errorf("the retry is %+v", again)
				}
				// Also by who sends the plan along that he was given.
				if again := h.applyProposal(wire.ApplyProposalParams{ProposalID: "p1", Proposal: first.Proposal}, put("1\n2\n")); !again.Repeated || again.Receipt != a.Receipt {
					t.Errorf("the retry with the first plan is %q %+v", code(again), again.Result)
				}
				if err := h.engine().DropProposal("p1"); err != nil {
					t.Fatal(err)
				}
				if again := h.applyProposal(wire.ApplyProposalParams{ProposalID: "p1"}, nil); !again.Repeated || again.Receipt != a.Receipt {
					t.Errorf("the retry of a plan that gave way is %+v", again)
				}
			}
		})
	}
	// A plan of the caller's own is nobody's to make again.
	h := editing(t, pins("ed", editOnly, "gated"), wire.Gated)
	p := proposal(t, h.crew, "me", "p1", h.baseline(), "a", "1\n", "2\n")
	h.write("a", "mine\n")
	if a := h.applyProposal(wire.ApplyProposalParams{ProposalID: "p1", Proposal: p.Plan}, put("2\n")); code(a) != "stale-basis" || len(h.crew.asked) != 0 {
		t.Errorf("%q, asked %v", code(a), h.crew.asked)
	}
}

// TestMergedBeforeAskedAgain: where a merge is allowed and clean, the provider's plan is
// carried out on what is there; where it is not clean, the provider is asked again.
func TestMergedBeforeAskedAgain(t *testing.T) {
	const lines = "1\n2\n3\n4\n5\n"
	for _, x := range []struct {
		moved, want string
		asked       int
	}{
		{"1\n2\n3\n4\nmine\n", "plan\n2\n3\n4\nmine\n", 1},
		{"mine\n2\n3\n4\n5\n", "again\n", 2},
	} {
		h := editing(t, pins("ed", editOnly, "gated"), wire.Gated)
		h.write("a", lines)
		h.git("-c", "user.name=t", "-c", "user.email=t@t", "commit", "-q", "-a", "-m", "lines")
		n := 0
		h.crew.propose = func(id string, q provider.ProposeRequest) (provider.Proposal, error) {
			if n++; n > 1 {
				return proposal(t, h.crew, id, q.ProposalID, q.Baseline, "a", h.read("a"), "again\n"), nil
			}
			return proposal(t, h.crew, id, q.ProposalID, q.Baseline, "a", lines, strings.Replace(lines, "1", "plan", 1)), nil
		}
		if _, err := h.requestEdit("p1", ""); err != nil {
			t.Fatal(err)
		}
		h.write("a", x.moved)
		a, err := h.engine().ApplyProposal(context.Background(), apply.ProposalRequest{Request: apply.Request{Merge: true},
			Params: wire.ApplyProposalParams{ProposalID: "p1", CallSite: wire.Interactive, Intent: wire.IntentAgent}})
		if err != nil || code(a) != "" || n != x.asked || h.read("a") != x.want {
			t.Errorf("on %q: %q, asked %d times, %q, %v", x.moved, code(a), n, h.read("a"), err)
		}
	}
}

// TestAskedAgainAndFailed: a provider that fails when it is asked again leaves a receipt
// of its own, and the first reasons stand.
func TestAskedAgainAndFailed(t *testing.T) {
	h := editing(t, pins("ed", editOnly, "gated"), wire.Gated)
	if _, err := h.requestEdit("p1", "2\n"); err != nil {
		t.Fatal(err)
	}
	h.crew.propose = func(id string, _ provider.ProposeRequest) (provider.Proposal, error) {
		return provider.Proposal{}, &provider.Failure{Provider: id, Reason: wire.DegradeCrashed, State: wire.Crashed, Class: wire.FailHealth, Detail: "gone"}
	}
	h.write("a", "mine\n")
	if a := h.applyProposal(wire.ApplyProposalParams{ProposalID: "p1"}, nil); code(a) != "stale-basis" {
		t.Errorf("%q", code(a))
	}
	n := 0
	for _, s := range h.stored() {
		if r := s.Receipt; r.Kind == wire.ReceiptProviderFailure {
			n++
			if r.ProposalID != "p1" || reasons(r.Failures) != "ed:crashed" || r.CapabilityFamily != wire.Edit {
				t.Errorf("%s of %q: %s", r.CapabilityFamily, r.ProposalID, reasons(r.Failures))
			}
		}
	}
	if n != 1 {
		t.Errorf("%d receipts of a failure", n)
	}
	h.soundFaults(nil)
}

// TestKeptPlansAreBounded: what is too large to be kept is said to be, the newest stay
// within the bound on all, and one can be dropped.
func TestKeptPlansAreBounded(t *testing.T) {
	h := editing(t, pins("ed", editOnly, "gated"), wire.Gated)
	e := h.engine()
	var large *apply.TooLargeError
	if err := e.KeepProposal("huge", make([]byte, 64<<20+1)); !errors.As(err, &large) || large.Bytes != 64<<20+1 {
		t.Errorf("%v", err)
	}
	kept := func(id string) bool {
		_, items, err := e.LoadProposal(id)
		if err != nil && strings.Contains(err.Error(), "is damaged") {
			return true // what is kept here is no plan
		}
		if err != nil {
			t.Fatal(err)
		}
		return len(items) == 0 || items[0].Code != "unknown-proposal"
	}
	some := make([]byte, 60<<20)
	for i := range 6 {
		if err := e.KeepProposal(fmt.Sprint("p", i), some); err != nil {
			t.Fatal(err)
		}
	}
	if kept("p0") || kept("p1") || !kept("p2") || !kept("p5") {
		t.Errorf("kept: %v %v %v %v", kept("p0"), kept("p1"), kept("p2"), kept("p5"))
	}
	for range 2 {
		if err := e.DropProposal("p5"); err != nil || kept("p5") {
			t.Errorf("dropped: %v", err)
		}
	}
}

// TestWhichPlanIsMeant has a row for everything that the request can say wrong
// about its plan: each is an answer with a receipt.
func TestWhichPlanIsMeant(t *testing.T) {
	h := editing(t, pins("ed", editOnly, "gated"), wire.Gated)
	plan := proposal(t, h.crew, "me", "p1", h.baseline(), "a", "1\n", "2\n").Plan
	edit, _ := plan.Get("workspaceEdit")
	for _, x := range []struct {
		name   string
		p      wire.ApplyProposalParams
		blobs  apply.Blobs
		want   string
		reason wire.RefusalReason
	}{
		{"unknown", wire.ApplyProposalParams{ProposalID: "nobody's"}, nil, "unknown-proposal", "stale-baseline"},
		{"no object", wire.ApplyProposalParams{ProposalID: "p1", Proposal: canon.StringOf("x")}, nil, "bad-message", "malformed"},
		{"null", wire.ApplyProposalParams{ProposalID: "p1", Proposal: canon.NullOf()}, nil, "bad-message", "malformed"},
		{"empty object", wire.ApplyProposalParams{ProposalID: "p1", Proposal: canon.ObjectOf()}, nil, "bad-message", "malformed"},
		{"another id", wire.ApplyProposalParams{ProposalID: "p2", Proposal: plan}, put("2\n"), "bad-message", "malformed"},
		{"another edit", wire.ApplyProposalParams{ProposalID: "p1", Proposal: plan, Edit: canon.ObjectOf()}, put("2\n"), "bad-message", "malformed"},
		{"host field", wire.ApplyProposalParams{ProposalID: "p1", Proposal: plan.With("decision", canon.StringOf("allow"))}, put("2\n"), "host-field", "malformed"},
		{"command", wire.ApplyProposalParams{ProposalID: "p1", Proposal: plan.With("command", canon.StringOf("rm"))}, put("2\n"), "command-like", "malformed"},
		{"content never came", wire.ApplyProposalParams{ProposalID: "p1", Proposal: plan}, nil, "missing-blob", "missing-blob"},
		{"another policy", wire.ApplyProposalParams{ProposalID: "p1", Proposal: plan, BasePolicyDigest: "sha256:x"}, put("2\n"), "check-indeterminate", "validation-indeterminate"},
		{"the edit as it is", wire.ApplyProposalParams{ProposalID: "p1", Proposal: plan, Edit: edit}, put("2\n"), "", ""},
	} {
		t.Run(x.name, func(t *testing.T) {
			a := h.applyProposal(x.p, x.blobs)
			if code(a) != x.want || x.want != "" && a.Result.Refusal.Reason != x.reason {
				t.Fatalf("%q: %+v", code(a), a.Result.Refusal)
			}
			st, err := h.engine().Receipts().Get(a.Receipt)
			if err != nil || st.Receipt.Kind != wire.ReceiptApplyAttempt {
				t.Errorf("receipt %q: %v", a.Receipt, err)
			}
			if x.want != "" && h.read("a") != "1\n" {
				t.Errorf("a is %q", h.read("a"))
			}
		})
	}
	_, err := h.engine().ApplyProposal(context.Background(), apply.ProposalRequest{Params: wire.ApplyProposalParams{CallSite: wire.Gate, Intent: wire.IntentUser}})
	if wireErr(t, err).Code != wire.CodeInvalidInput {
		t.Errorf("an empty id: %v", err)
	}
}

// TestRequestEditAnswers has a row for everything that can come of asking.
func TestRequestEditAnswers(t *testing.T) {
	other := func(status, member string) func(p provider.Proposal) (provider.Proposal, error) {
		return func(p provider.Proposal) (provider.Proposal, error) {
			v := p.Plan.With("status", canon.StringOf(status)).Without("workspaceEdit")
			d, err := canon.Parse([]byte(member), canon.Limits{})
			if err != nil {
				return p, err
			}
			for k, m := range d.Members() {
				v = v.With(k, m)
			}
			p.Plan, p.Decoded = v, wire.EditPlan{}
			return p, wire.Decode(v, &p.Decoded)
		}
	}
	fails := func(reason wire.DegradeReason, class wire.FailClass) func(p provider.Proposal) (provider.Proposal, error) {
		return func(p provider.Proposal) (provider.Proposal, error) {
			return provider.Proposal{}, &provider.Failure{Provider: "ed", Reason: reason, State: wire.Malformed, Class: class, Detail: "so it is", Participant: p.Participant}
		}
	}
	for _, x := range []struct {
		name   string
		answer func(p provider.Proposal) (provider.Proposal, error)
		status string // of the plan, "" for an error
		code   int
		class  wire.FailClass
		reason wire.DegradeReason // in the receipt
		kept   bool
	}{
		{"complete", nil, "complete", 0, "", "", true},
		{"incomplete", other("incomplete", `{"incomplete":{"reason":"partial-coverage","detail":"x"}}`), "incomplete", 0, "", wire.DegradeIncomplete, false},
		{"unsupported", other("unsupported", `{"unsupported":{"operation":"x","reason":"operation","detail":"x"}}`), "unsupported", 0, "", wire.DegradeUnsupported, false},
		{"error", other("error", `{"refusal":{"reason":"provider-error","detail":"x"}}`), "error", 0, "", wire.DegradeError, false},
		{"cancelled", other("cancelled", `{"refusal":{"reason":"cancelled","detail":"x"}}`), "cancelled", 0, "", wire.DegradeCancelled, false},
		{"malformed", fails(wire.DegradeMalformed, wire.FailContract), "", wire.CodeNotReady, wire.FailContract, wire.DegradeMalformed, false},
		{"no class", fails(wire.DegradeError, ""), "", wire.CodeNotReady, wire.FailContract, wire.DegradeError, false},
		{"crashed", fails(wire.DegradeCrashed, wire.FailHealth), "", wire.CodeNotReady, wire.FailHealth, wire.DegradeCrashed, false},
		{"skewed", fails(wire.DegradeSkewed, wire.FailContract), "", wire.CodeUnsupportedVersion, wire.FailContract, wire.DegradeSkewed, false},
		{"could write", func(p provider.Proposal) (provider.Proposal, error) { p.Participant.DirectWrite = true; return p, nil }, "", wire.CodeNotReady, wire.FailContract, wire.DegradeDirectWriteRisk, false},
		{"content missing", func(p provider.Proposal) (provider.Proposal, error) { p.Blobs = nil; return p, nil }, "", wire.CodeNotReady, wire.FailContract, wire.DegradeMalformed, false},
	} {
		t.Run(x.name, func(t *testing.T) {
			h := editing(t, pins("ed", editOnly, "gated"), wire.Gated)
			ask := h.crew.propose
			h.crew.propose = func(id string, q provider.ProposeRequest) (provider.Proposal, error) {
				p, err := ask(id, q)
				if err != nil || x.answer == nil {
					return p, err
				}
				return x.answer(p)
			}
			res, err := h.requestEdit("p1", "2\n")
			if x.status != "" {
				if err != nil {
					t.Fatal(err)
				}
				s, _ := res.Proposal.Get("status")
				if s.Str() != x.status || x.reason != "" && !strings.Contains(reasons(res.Receipt.Failures), string(x.reason)) {
					t.Errorf("status %q, failures %s", s.Str(), reasons(res.Receipt.Failures))
				}
			} else {
				w := wireErr(t, err)
				last := h.stored()[len(h.stored())-1].Receipt
				if w.Code != x.code || w.Data.FailClass != x.class || !strings.Contains(w.Data.Detail, last.ReceiptID) ||
					last.Kind != wire.ReceiptProviderFailure || reasons(last.Failures) != "ed:"+string(x.reason) || last.ProposalID != "p1" {
					t.Errorf("%d %s %q, receipt %s %s", w.Code, w.Data.FailClass, w.Data.Detail, last.Kind, reasons(last.Failures))
				}
				h.soundFaults(nil)
				if last.AuthorityEvidence[0].Authority.Requirement != "req" && x.reason != wire.DegradeDirectWriteRisk {
					t.Errorf("authority %+v", last.AuthorityEvidence)
				}
			}
			if a := h.applyProposal(wire.ApplyProposalParams{ProposalID: "p1"}, nil); (code(a) != "unknown-proposal") != x.kept {
				t.Errorf("applied afterwards: %q", code(a))
			}
		})
	}
}

// TestRequestEditRefuses has a row for what is wrong with the request.
func TestRequestEditRefuses(t *testing.T) {
	h := editing(t, "", wire.Gated)
	none := newHosted(t, "", "", &crew{roster: []provider.Standing{standing("p", wire.Gated, wire.Check), standing("ed", "", wire.Edit)}}, map[string]string{"a": "1\n"})
	for _, x := range []struct {
		name  string
		h     *hosted
		q     apply.EditRequest
		code  int
		class wire.FailClass
	}{
		{"another baseline", h, apply.EditRequest{Operation: "x", Baseline: wire.Baseline{Rev: "git:tree:0"}}, wire.CodeStaleBaseline, wire.FailInput},
		{"no operation", h, apply.EditRequest{Baseline: h.baseline()}, wire.CodeInvalidInput, wire.FailInput},
		{"no scope", h, apply.EditRequest{Operation: "x", Baseline: h.baseline(), Scope: canon.ObjectOf()}, wire.CodeInvalidInput, wire.FailInput},
		{"nobody to ask", none, apply.EditRequest{Operation: "x", Baseline: none.baseline()}, wire.CodeNotReady, wire.FailPolicy},
		{"somebody else", h, apply.EditRequest{Operation: "x", Baseline: h.baseline(), Provider: "other"}, wire.CodeNotReady, wire.FailPolicy},
	} {
		t.Run(x.name, func(t *testing.T) {
			x.q.CallSite = wire.Interactive
			_, err := x.h.engine().RequestEdit(context.Background(), x.q)
			w := wireErr(t, err)
			all := x.h.stored()
			if last := all[len(all)-1]; w.Code != x.code || w.Data.FailClass != x.class || !strings.Contains(w.Data.Detail, last.Receipt.ReceiptID) || last.Receipt.Kind != wire.ReceiptEditRequest {
				t.Errorf("%d %s %q; receipt %s", w.Code, w.Data.FailClass, w.Data.Detail, last.Receipt.Kind)
			}
		})
	}
	if len(h.crew.asked)+len(none.crew.asked) != 0 {
		t.Errorf("asked %v %v", h.crew.asked, none.crew.asked)
	}
}

// TestEditProvidersInTurn asks the one with authority first, and another where
// it does not know the operation.
func TestEditProvidersInTurn(t *testing.T) {
	c := &crew{roster: []provider.Standing{standing("a1", wire.Gated, wire.Edit), standing("ed", wire.Gated, wire.Edit)}}
	h := newHosted(t, "", pins("ed", editOnly, "gated"), c, map[string]string{"a": "1\n"})
	c.propose = func(id string, q provider.ProposeRequest) (provider.Proposal, error) {
		p := proposal(t, c, id, q.ProposalID, q.Baseline, "a", "1\n", "2\n")
		if id == "ed" {
			v, err := canon.Parse([]byte(`{"operation":"x","reason":"operation","detail":"x"}`), canon.Limits{})
			if err != nil {
				return p, err
			}
			p.Plan = p.Plan.With("status", canon.StringOf("unsupported")).With("unsupported", v).Without("workspaceEdit")
			p.Decoded = wire.EditPlan{}
			return p, wire.Decode(p.Plan, &p.Decoded)
		}
		return p, nil
	}
	res, err := h.requestEdit("p1", "")
	if err != nil {
		t.Fatal(err)
	}
	s, _ := res.Proposal.Get("status")
	if s.Str() != "complete" || !slices.Equal(c.asked, []string{"propose ed", "propose a1"}) {
		t.Errorf("%q from %v", s.Str(), c.asked)
	}
}

// TestOperationOfAProvider: an operation may name who is to plan it, as the fix of a finding
// does, if that is one who may be asked; nobody else is.
func TestOperationOfAProvider(t *testing.T) {
	h := editing(t, pins("ed", editOnly, "gated"), wire.Gated)
	h.crew.roster = append(h.crew.roster, standing("ed2", wire.Gated, wire.Edit))
	var asked []string
	h.crew.propose = func(id string, q provider.ProposeRequest) (provider.Proposal, error) {
		asked = append(asked, id+" "+q.Operation)
		p := proposal(t, h.crew, id, q.ProposalID, q.Baseline, "a", h.read("a"), "z\n")
		p.Decoded.Status = wire.StatusUnsupported
		return p, nil
	}
	for operation, want := range map[string]string{
		"ed2/redact":    "ed2 redact",
		"ed2/a/b":       "ed2 a/b",
		"redact":        "ed redact, ed2 redact",
		"ed2/":          "ed ed2/, ed2 ed2/",
		"nobody/redact": "ed nobody/redact, ed2 nobody/redact",
	} {
		asked = nil
		if _, err := h.engine().RequestEdit(context.Background(), apply.EditRequest{CallSite: wire.Interactive, Operation: operation, Baseline: h.baseline()}); err != nil {
			t.Errorf("%s: %v", operation, err)
		}
		if got := strings.Join(asked, ", "); got != want {
			t.Errorf("%s: asked %q, want %q", operation, got, want)
		}
	}
}
