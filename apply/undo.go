package apply

import (
	"context"
	"errors"
	"fmt"

	"github.com/aspengine/asp/editplan"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/receipt"
	"github.com/aspengine/asp/seam/wire"
	"github.com/aspengine/asp/snapshot"
)

// UndoPrefix starts the proposal id of an undo; the receipt id follows.
const UndoPrefix = "undo:"

// undoProvider is the provider of the plans that undo makes.
const undoProvider = "asp-undo"

// Undo takes an applied change back: the inverse plan, over the same stages as
// any other plan. Later edits of the same files stay where they do not overlap
// the change; where they do, it is refused.
func (e *Engine) Undo(ctx context.Context, receiptID string, r Request) (*Answer, error) {
	r.AsProposal, r.Undoes = UndoPrefix+receiptID, receiptID
	st, err := e.receipts.Get(receiptID)
	if err != nil && !errors.Is(err, receipt.ErrNoReceipt) {
		return nil, err
	}
	refuse := func(it refusal.Item) (*Answer, error) {
		r.Load = func(context.Context, *View, snapshot.Baseline) (editplan.File, refusal.List, error) {
			return editplan.File{}, refusal.List{it}, nil
		}
		return e.Apply(ctx, r)
	}
	if err != nil {
		return refuse(refusal.New(refusal.UnknownProposal, "", -1, "no receipt %q is kept for this workspace; `asp receipts list` shows them", cut(receiptID)))
	}
	var ev Evidence
	if st.Outcome == receipt.Applied { // what stands beside other receipts has other forms
		if ev, err = readEvidence(st); err != nil {
			return nil, err
		}
	}
	if len(ev.Paths) == 0 {
		return refuse(refusal.New(refusal.UnsupportedOperation, "", -1, "receipt %s (%s) changed no file, so there is nothing to take back", receiptID, st.Outcome))
	}
	u := newUndo(e, receiptID, ev)
	r.Load, r.Perms, r.undo = u.load, u.perms, u
	return e.Apply(ctx, r)
}

// undone finds an earlier undo of the same receipt. It is looked for before the
// inverse plan is made: that plan depends on the present state, so made again
// it would be another one, or find nothing to take back.
func (t *tx) undone(ctx context.Context) (*receipt.Stored, error) {
	if t.r.Undoes == "" || t.r.DryRun {
		return nil, nil
	}
	prev, err := t.e.receipts.Lookup(ctx, undoProvider, t.r.AsProposal)
	return prev.Applied, err
}

func readEvidence(st *receipt.Stored) (Evidence, error) {
	var ev Evidence
	if st.Evidence.Kind() != canon.Object {
		return ev, nil
	}
	if err := wire.Decode(st.Evidence, &ev); err != nil {
		return ev, fmt.Errorf("read evidence of receipt %s: %w", st.Receipt.ReceiptID, err)
	}
	return ev, nil
}

// Named gives a plan file another proposal id.
func Named(f editplan.File, id string) editplan.File {
	members := []canon.Member{{Key: "proposalId", Value: canon.StringOf(id)}}
	for k, m := range f.Proposal.Without("proposalId").Members() {
		members = append(members, canon.Member{Key: k, Value: m})
	}
	f.Proposal = canon.ObjectOf(members...)
	return f
}
