package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/aspengine/asp/editplan"
	"github.com/aspengine/asp/editplan/merge"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/internal/vfs"
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
	u := &undo{e: e, id: receiptID, ev: ev}
	r.Load, r.Perms = u.load, u.perms()
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

type undo struct {
	e  *Engine
	id string
	ev Evidence
}

// perms are the exact permission bits of files that come back; a plan itself
// can only say executable or not.
func (u *undo) perms() map[string]uint32 {
	out := map[string]uint32{}
	for _, p := range u.ev.Paths {
		if p.Before != nil && p.Gone == "" {
			out[p.Path] = uint32(p.Before.Perm) & 0o7777
		}
	}
	return out
}

// load builds the inverse plan against the present state: deletions first, so
// that names become free, then renames, changes, and files that come back.
func (u *undo) load(_ context.Context, v *View, base snapshot.Baseline) (editplan.File, refusal.List, error) {
	var out refusal.List
	var gone, moves, changes, back []editplan.Draft
	for _, p := range u.ev.Paths {
		path, err := snapshot.ParsePath(p.Path)
		if err != nil {
			return editplan.File{}, nil, err
		}
		if p.Gone != "" {
			continue // told by the path that it moved to
		}
		f, err := v.Fact(path)
		if err != nil {
			return editplan.File{}, nil, err
		}
		if p.After == nil {
			d, it, err := u.comeBack(p)
			if err != nil {
				return editplan.File{}, nil, err
			}
			if it != nil {
				out = append(out, *it)
				continue
			}
			back = append(back, d)
			continue
		}
		after, err := snapshot.ParseBlob(p.After.Digest)
		if err != nil {
			return editplan.File{}, nil, err
		}
		if f.Stat.Kind == vfs.KindInvalid {
			out = append(out, refusal.New(refusal.Missing, p.Path, -1, "was removed since the change; there is nothing to take back"))
			continue
		}
		same := f.Digest == after
		switch {
		case p.Moved:
			moves = append(moves, editplan.Draft{Kind: editplan.Rename, Path: p.Path, To: p.From, Expected: f.Digest})
		case p.Before == nil && same:
			gone = append(gone, editplan.Draft{Kind: editplan.Delete, Path: p.Path, Expected: after})
		case p.Before == nil:
			out = append(out, refusal.New(refusal.MergeConflict, p.Path, -1, "was made by the change and edited since; delete it by hand if it is not wanted"))
		default:
			d, it, err := u.change(v, p, path, f.Digest, after)
			if err != nil {
				return editplan.File{}, nil, err
			}
			if it != nil {
				out = append(out, *it)
				continue
			}
			changes = append(changes, d)
		}
	}
	if len(out) > 0 {
		return editplan.File{}, out, nil
	}
	file, err := editplan.NewPlan(editplan.Source{
		Baseline: base, Provider: editplan.Provider{ID: undoProvider, Version: u.e.o.Version}, Rationale: "take back receipt " + u.id,
	}, slices.Concat(gone, moves, changes, back))
	if err != nil {
		return file, nil, err
	}
	return Named(file, UndoPrefix+u.id), nil, nil
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

func (u *undo) preImage(i *ImageRecord, path string) ([]byte, *refusal.Item, error) {
	d, err := snapshot.ParseBlob(i.Digest)
	if err != nil {
		return nil, nil, err
	}
	b, err := u.e.packs.Bytes(d)
	if errors.Is(err, snapshot.ErrNoBlob) {
		it := refusal.New(refusal.MissingBlob, path, -1, "its content before the change is no longer kept; the retention in config.json says how much is")
		return nil, &it, nil
	}
	return b, nil, err
}

func (u *undo) comeBack(p PathRecord) (editplan.Draft, *refusal.Item, error) {
	if p.Before == nil {
		return editplan.Draft{}, nil, fmt.Errorf("evidence of receipt %s names %.200q without a state", u.id, p.Path)
	}
	if p.Before.Kind != "file" {
		it := refusal.New(refusal.UnsupportedOperation, p.Path, -1, "was a symbolic link, which a plan cannot make; make it by hand")
		return editplan.Draft{}, &it, nil
	}
	b, it, err := u.preImage(p.Before, p.Path)
	d := editplan.Draft{Kind: editplan.Create, Path: p.Path, Content: b, HasContent: true}
	if p.Before.Perm&0o100 != 0 {
		d.Mode = editplan.ModeExec
	}
	return d, it, err
}

func (u *undo) change(v *View, p PathRecord, path snapshot.Path, now, after snapshot.Digest) (editplan.Draft, *refusal.Item, error) {
	d := editplan.Draft{Kind: editplan.Modify, Path: p.Path, Expected: now, HasContent: true}
	if (p.Before.Perm^p.After.Perm)&0o111 != 0 {
		d.Mode = editplan.ModePlain
		if p.Before.Perm&0o100 != 0 {
			d.Mode = editplan.ModeExec
		}
	}
	pre, it, err := u.preImage(p.Before, p.Path)
	if err != nil || it != nil {
		return d, it, err
	}
	if now == after {
		d.Content = pre
		return d, nil, nil
	}
	overlap := refusal.New(refusal.MergeConflict, p.Path, -1, "was edited after the change, in the same lines; take those edits back first or edit it by hand")
	delta, err := snapshot.ParseBlob(p.Delta)
	if err != nil {
		return d, &overlap, nil
	}
	db, err := u.e.packs.Bytes(delta)
	if err != nil {
		return d, &overlap, nil
	}
	post, err := unsplice(pre, db)
	if err != nil || snapshot.DigestOf(post) != after {
		return d, &overlap, nil
	}
	mine, err := v.Bytes(path)
	if err != nil {
		return d, nil, err
	}
	m := merge.Three(post, mine, pre)
	if !m.Clean() {
		return d, &overlap, nil
	}
	d.Content = m.Bytes
	return d, nil, nil
}
