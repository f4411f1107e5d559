package apply_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/aspengine/asp/apply"
	"github.com/aspengine/asp/checks"
	"github.com/aspengine/asp/receipt"
	"github.com/aspengine/asp/seam/provider"
	"github.com/aspengine/asp/seam/wire"
)

// TestApplyOfItsOwnPolicy holds that a plan which weakens the policy that judges
// it is refused on a gate and seen everywhere else, also where nothing else is
// asked, and that the policy stays pending.
func TestApplyOfItsOwnPolicy(t *testing.T) {
	old := pins("p", checkOnly, "gated", wire.Gate)
	weaker := pins("p", checkOnly, "gated")
	stronger := pins("p", checkOnly, "gated", wire.Gate, wire.Interactive)
	for _, x := range []struct {
		name   string
		site   wire.CallSite
		after  string
		code   string
		causes string // in the decision
	}{
		{"weaker on a gate", wire.Gate, weaker, "check-indeterminate", "policy:policy-self-authorization"},
		{"weaker on interactive", wire.Interactive, weaker, "", "policy:policy-self-authorization"},
		{"weaker on sweep", wire.Sweep, weaker, "", "policy:policy-self-authorization"},
		{"stronger on a gate", wire.Gate, stronger, "", ""},
		{"stronger on interactive", wire.Interactive, stronger, "", ""},
	} {
		t.Run(x.name, func(t *testing.T) {
			c := &crew{roster: []provider.Standing{standing("p", wire.Gated, wire.Check)}}
			c.check = func(_ context.Context, id string, _ provider.Subject, _ provider.Settings) checks.Result {
				return c.said(id, checks.Passed)
			}
			h := newHosted(t, "", old, c, map[string]string{"a": "1\n"})
			p := proposal(t, c, "me", "own", h.baseline(), ".asp/asp.json", old, x.after)
			a := h.applyProposal(wire.ApplyProposalParams{ProposalID: "own", CallSite: x.site, Proposal: p.Plan}, put(x.after))
			if code(a) != x.code {
				t.Fatalf("code %q, want %q: %+v", code(a), x.code, a.Result.Refusal)
			}
			d := a.Result.Decision
			if d == nil {
				t.Fatal("no decision")
			}
			want := wire.Allow
			if x.code != "" {
				want = wire.Indeterminate
			}
			if d.Decision != want || reasons(d.Coverage.Degraded) != x.causes || d.Coverage.Exhaustive != (x.causes == "") {
				t.Errorf("%s, %s, exhaustive %v", d.Decision, reasons(d.Coverage.Degraded), d.Coverage.Exhaustive)
			}
			r := a.Result.Receipt
			shown := slices.ContainsFunc(r.Failures, func(g wire.Degradation) bool { return g.Reason == wire.DegradePolicySelfAuthorization })
			if shown != strings.Contains(x.causes, "self-authorization") {
				t.Errorf("the receipt's failures: %+v", r.Failures)
			}
			if x.code != "" {
				if h.read(".asp/asp.json") != old {
					t.Error("a refused policy was written")
				}
				return
			}
			if a.Outcome != receipt.Applied || h.read(".asp/asp.json") != x.after {
				t.Errorf("%s", a.Outcome)
			}
			s, err := h.engine().Status(context.Background(), apply.SurfaceRequest{})
			if err != nil {
				t.Fatal(err)
			}
			as, err := h.engine().AuthorityStatus(context.Background(), apply.SurfaceRequest{})
			if err != nil {
				t.Fatal(err)
			}
			if s.Result.Policy.Activation != "pending" || as.PolicyActivation != "candidate-pending" || as.PolicyDigest != r.PolicyDigest {
				t.Errorf("activation %s, %s; policy %s, was %s", s.Result.Policy.Activation, as.PolicyActivation, as.PolicyDigest, r.PolicyDigest)
			}
			if rep, err := h.engine().Replay(context.Background(), a.Receipt); err != nil || !rep.OK {
				t.Errorf("replay: %+v, %v", rep, err)
			}
		})
	}
}
