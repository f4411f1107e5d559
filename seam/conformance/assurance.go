package conformance

import (
	"context"
	"slices"
	"strings"

	"github.com/aspengine/asp/seam/wire"
)

func assuranceRequirements() []requirement {
	return []requirement{
		{"ASSURANCE-ADVISORY-REPORTING", "where nothing was held, no more than advisory is claimed", assuranceAdvisory},
		{"ASSURANCE-GATED-BOUNDARY", "gated is claimed where the checks ran and the host held the boundary, and not before", assuranceGated},
		{"ASSURANCE-MEDIATED-WRITE-DOWNGRADE", "mediated-write is claimed only when a write was prevented in this launch", func(ctx context.Context, t *trial) error { return downgrade(ctx, t, wire.MediatedWrite) }},
		{"ASSURANCE-ISOLATED-DOWNGRADE", "isolated is claimed only when it was established in this launch", func(ctx context.Context, t *trial) error { return downgrade(ctx, t, wire.Isolated) }},
		{"ASSURANCE-DIRECT-WRITE-REFUSAL", "a provider with direct writes is refused, and what it tries is held against the claim", assuranceDirectWrite},
		{"ASSURANCE-TRANSACTION-GUARANTEE-BOUND", "the guarantee is never stronger than what the run established", assuranceBound},
		{"ASSURANCE-FAILED-APPLY-NO-SUCCESSFUL-RECEIPT", "a failed apply leaves no receipt of a success", assuranceReceipts},
	}
}

func assuranceAdvisory(ctx context.Context, t *trial) error {
	// No policy and nobody who takes part: nothing was held.
	s, err := t.open(ctx, setup{stranger: true})
	if err != nil {
		return err
	}
	e, err := s.evaluate(ctx, wire.Interactive)
	if err != nil {
		return err
	}
	e.step += ", no policy"
	t.judge(e.Assurance.Mode == wire.Advisory, "%s: claims %s", e.step, e.Assurance.Mode)
	s.finish()
	p := checker("one")
	p.mode = "advisory"
	if s, err = t.open(ctx, t.oneCheck(p)); err != nil {
		return err
	}
	for _, site := range []wire.CallSite{wire.Interactive, wire.Gate} {
		if e, err = s.evaluate(ctx, site, "one=ok"); err != nil {
			return err
		}
		e.step += ", the provider enrolled as advisory"
		t.judge(e.Assurance.Mode == wire.Advisory, "%s: claims %s", e.step, e.Assurance.Mode)
		t.judge(site == wire.Interactive || e.Decision != wire.Allow, "%s: allow", e.step)
	}
	return nil
}

func assuranceGated(ctx context.Context, t *trial) error {
	for _, bare := range []bool{true, false} {
		su := t.oneCheck(checker("one"))
		su.noSandbox = bare
		s, err := t.open(ctx, su)
		if err != nil {
			return err
		}
		e, err := s.evaluate(ctx, wire.Gate, "one=ok")
		if err != nil {
			return err
		}
		if bare {
			e.step += ", no sandbox to be had"
			t.bare(e)
		} else {
			t.allowed(e)
			t.judge(e.Assurance.Mode.Rank() >= wire.Gated.Rank(), "%s: allowed, and claims %s", e.step, e.Assurance.Mode)
		}
		for _, a := range e.AuthorityEvidence {
			t.judge(a.Isolation.Rank() >= e.Assurance.Mode.Rank(), "%s: claims %s over a provider with %s", e.step, e.Assurance.Mode, a.Isolation)
		}
		var st wire.StatusResult
		if _, err := s.result(ctx, "status", "host/status", object(), &st, []string{"assuranceCapabilities"}); err != nil {
			return err
		}
		t.judge(bare || slices.Contains(st.AssuranceCapabilities, wire.Gated), "assuranceCapabilities %q lacks gated", st.AssuranceCapabilities)
		t.judge(!bare || !slices.Contains(st.AssuranceCapabilities, wire.MediatedWrite) && !slices.Contains(st.AssuranceCapabilities, wire.Isolated),
			"assuranceCapabilities %q where no sandbox is to be had", st.AssuranceCapabilities)
		s.finish()
	}
	return nil
}

// bare judges a gate that asks for gated, of a host that has no sandbox: it may
// allow and claim exactly that; or hold that a provider which it could not keep
// from the workspace is a direct-write risk, and say so. It may not claim more.
func (t *trial) bare(e evaluation) {
	if e.Decision == wire.Allow {
		t.judge(e.Assurance.Mode == wire.Gated, "%s: allowed, and claims %s", e.step, e.Assurance.Mode)
		return
	}
	t.withheld(e, checked, wire.DegradeDirectWriteRisk, wire.DegradeInsufficientAssurance)
	t.judge(e.Assurance.Mode.Rank() <= wire.Gated.Rank(), "%s: claims %s", e.step, e.Assurance.Mode)
}

// downgrade judges one of the two modes that need a sandbox: without one it is
// not claimed and a policy that needs it is not satisfied; with one it is claimed
// only over a provider whose attacks failed.
func downgrade(ctx context.Context, t *trial, mode wire.Mode) error {
	su := t.oneCheck(checker("one"))
	su.noSandbox = true
	su.policy.needs[0].assurance = []string{string(mode)}
	s, err := t.open(ctx, su)
	if err != nil {
		return err
	}
	e, err := s.evaluate(ctx, wire.Gate, "one=ok")
	if err != nil {
		return err
	}
	e.step += ", no sandbox to be had"
	t.withheld(e, checked, wire.DegradeInsufficientAssurance, wire.DegradeUnsupportedAssurance)
	t.judge(e.Assurance.Mode.Rank() < mode.Rank(), "%s: claims %s", e.step, e.Assurance.Mode)
	for _, a := range e.AuthorityEvidence {
		t.judge(a.Isolation.Rank() < mode.Rank(), "%s: authority evidence claims %s", e.step, a.Isolation)
	}
	s.finish()
	p := checker("one")
	p.Target = "set by the world"
	su = t.oneCheck(p)
	su.policy.needs[0].assurance = []string{string(mode)}
	if s, err = t.open(ctx, su); err != nil {
		return err
	}
	before, err := s.w.mark()
	if err != nil {
		return err
	}
	if e, err = s.evaluate(ctx, wire.Gate, "one=attack"); err != nil {
		return err
	}
	if e.Decision != wire.Allow {
		t.withheld(e, checked, wire.DegradeInsufficientAssurance, wire.DegradeUnsupportedAssurance)
		return nil
	}
	t.judge(e.Assurance.Mode.Rank() >= mode.Rank(), "%s: allowed under a policy that asks for %s, with %s", e.step, mode, e.Assurance.Mode)
	t.untouched(s.w, before, "after an attack by a provider that is claimed to be held")
	if t.judge(len(e.Findings) == 1, "%s: the provider could not report", e.step) {
		m := e.Findings[0].Diagnostic.Message
		t.judge(!strings.Contains(m, "write-new done") && !strings.Contains(m, "write-existing done") && !strings.Contains(m, "write-git done"), "claims %s, and: %s", e.Assurance.Mode, m)
		t.judge(mode != wire.Isolated || strings.Contains(m, "read-secret denied"), "claims %s, and: %s", e.Assurance.Mode, m)
	}
	return nil
}

func assuranceDirectWrite(ctx context.Context, t *trial) error {
	if err := editDirectWrite(ctx, t); err != nil {
		return err
	}
	return t.attacked(ctx)
}

func assuranceBound(ctx context.Context, t *trial) error {
	for _, ceiling := range []string{"", "none"} {
		su := t.oneEditor(editor("ed"))
		if ceiling != "" {
			su.config = object(member("guaranteeCeiling", ceiling))
		}
		s, err := t.open(ctx, su)
		if err != nil {
			return err
		}
		for _, how := range []string{"insert", "create"} {
			path := map[string]string{"insert": "src/a.txt", "create": "src/new.txt"}[how]
			if _, err := s.plan(ctx, "bound-"+how, how, path, ""); err != nil {
				return err
			}
			r, err := s.apply(ctx, wire.Gate, "bound-"+how)
			if err != nil {
				return err
			}
			if !t.judge(r.Applied, "%s: not applied: %+v", how, r.Refusal) {
				return nil
			}
			g := r.Assurance.TransactionGuarantee
			if ceiling == "none" {
				t.judge(g == wire.GuaranteeNone, "ceiling none, and claims %s", g)
				continue
			}
			// A journal swaps files one by one: that is no snapshot published by one step.
			t.judge(g.Rank() < wire.StagedSnapshot.Rank(), "%s: claims %s of an apply that was not staged", how, g)
			t.judge(g == wire.GuaranteeNone || r.Assurance.Detail != "", "%s: claims %s and does not say what was established", how, g)
			t.judge(r.Receipt.Assurance.Detail == r.Assurance.Detail, "%s: the evidence is not in the receipt", how)
			if how == "create" {
				t.judge(g != wire.TextOnlyTransactional, "claims text_only_transactional of a plan that creates a file")
			}
		}
		s.finish()
	}
	return nil
}

func assuranceReceipts(ctx context.Context, t *trial) error {
	s, r, err := validated(ctx, t, "find")
	if err != nil {
		return err
	}
	t.judge(!r.Applied && r.Receipt.Assurance.TransactionGuarantee == wire.GuaranteeNone, "the receipt of a refusal claims %s", r.Receipt.Assurance.TransactionGuarantee)
	list, _, err := s.w.json(ctx, "receipts", "--repo", s.w.root, "list")
	if err != nil {
		return err
	}
	seen := false
	for _, e := range each(list) {
		if text(e, "proposalId") == "judged" && text(e, "kind") == string(wire.ReceiptApplyAttempt) {
			seen = seen || text(e, "receiptId") == r.Receipt.ReceiptID
			t.judge(text(e, "outcome") == "refused", "a receipt of the failed apply has outcome %q", text(e, "outcome"))
		}
	}
	t.judge(seen, "the receipt of the refusal is not stored")
	v, status, err := s.w.json(ctx, "receipts", "--repo", s.w.root, "verify")
	if err != nil {
		return err
	}
	t.judge(status == 0 && at(v, "ok").Truth(), "receipts verify: %s", clip(string(v.Bytes()), 300))
	return nil
}
