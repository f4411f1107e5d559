package apply

import (
	"context"

	"github.com/aspengine/asp/editplan"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/receipt"
	"github.com/aspengine/asp/snapshot"
)

// before finds the first outcome of this very plan where the plan cannot be compiled
// any more: a retry after a lost reply need not bring the content again, which may
// be nowhere by now.
func (t *tx) before(ctx context.Context, f editplan.File) (*receipt.Stored, error) {
	p, _ := f.Proposal.Get("provider")
	provider, _ := p.Get("id")
	id, _ := f.Proposal.Get("proposalId")
	if t.r.DryRun || provider.Kind() != canon.String || id.Kind() != canon.String {
		return nil, nil
	}
	prev, err := t.e.receipts.Lookup(ctx, provider.Str(), id.Str())
	if err != nil {
		return nil, err
	}
	first := prev.Applied
	if first == nil && t.r.Publish == Stage {
		first = prev.Staged
	}
	if first == nil || first.PlanDigest() != snapshot.DigestOf(f.Proposal.Bytes()).String() {
		return nil, nil
	}
	return first, nil
}
