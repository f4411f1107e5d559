package apply_test

import (
	"context"
	"strings"
	"testing"

	"github.com/aspengine/asp/apply"
	"github.com/aspengine/asp/checks"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/receipt"
	"github.com/aspengine/asp/seam/provider"
	"github.com/aspengine/asp/seam/wire"
)

// TestCancelled ends each request while a provider is asked: an error of the seam,
// a receipt that says so, and nothing changed.
func TestCancelled(t *testing.T) {
	for _, x := range []struct {
		name string
		do   func(ctx context.Context, h *hosted) error
	}{
		{"evaluate", func(ctx context.Context, h *hosted) error {
			_, err := h.engine().Evaluate(ctx, apply.EvaluateRequest{CallSite: wire.Gate, Changeset: value(t, wire.ChangeSet{
				Baseline: h.baseline(), Changes: []wire.Change{{Path: "a", Kind: wire.KindDelete, Before: blobID("1\n")}}})})
			return err
		}},
		{"apply", func(ctx context.Context, h *hosted) error {
			p := proposal(t, h.crew, "me", "p1", h.baseline(), "a", "1\n", "2\n")
			_, err := h.engine().ApplyProposal(ctx, apply.ProposalRequest{Blobs: put("2\n"), Params: wire.ApplyProposalParams{
				CallSite: wire.Gate, Intent: wire.IntentAgent, ProposalID: "p1", Proposal: p.Plan}})
			return err
		}},
		{"request edit", func(ctx context.Context, h *hosted) error {
			_, err := h.engine().RequestEdit(ctx, apply.EditRequest{CallSite: wire.Gate, Operation: "x", Baseline: h.baseline()})
			return err
		}},
		{"inspect", func(ctx context.Context, h *hosted) error {
			_, err := h.engine().Inspect(ctx, apply.InspectRequest{CallSite: wire.Gate, Request: canon.ObjectOf(canon.Member{Key: "method", Value: canon.StringOf("inspect/symbols")},
				canon.Member{Key: "params", Value: canon.ObjectOf(canon.Member{Key: "query", Value: canon.StringOf("x")})})})
			return err
		}},
	} {
		t.Run(x.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			c := &crew{roster: []provider.Standing{standing("p", wire.Gated, wire.Check, wire.Edit, wire.Inspect)}}
			h := newHosted(t, "", pins("p", checkOnly, "gated", wire.Gate), c, map[string]string{"a": "1\n"})
			gone := func(id string) error {
				cancel()
				return &provider.Failure{Provider: id, Reason: wire.DegradeCancelled, State: wire.Cancelled, Class: wire.FailHealth, Detail: "cancelled"}
			}
			c.check = func(_ context.Context, id string, _ provider.Subject, _ provider.Settings) checks.Result {
				_ = gone(id)
				return c.said(id, checks.Cancelled)
			}
			c.propose = func(id string, _ provider.ProposeRequest) (provider.Proposal, error) {
				return provider.Proposal{}, gone(id)
			}
			c.query = func(id string, _ provider.QueryRequest) (provider.Answer, error) { return provider.Answer{}, gone(id) }
			err := x.do(ctx, h)
			if err == nil {
				t.Fatal("it was answered")
			}
			w := apply.WireError(err)
			all := h.stored()
			last := all[len(all)-1]
			if w.Code != wire.CodeCancelled || !strings.Contains(w.Data.Detail, last.Receipt.ReceiptID) || last.Outcome != receipt.Cancelled {
				t.Errorf("%d %q, receipt %s %s", w.Code, w.Data.Detail, last.Receipt.ReceiptID, last.Outcome)
			}
			if h.read("a") != "1\n" {
				t.Errorf("a is %q", h.read("a"))
			}
		})
	}
}
