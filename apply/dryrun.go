package apply

import (
	"context"

	"github.com/aspengine/asp/editplan"
	"github.com/aspengine/asp/editplan/patch"
	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/seam/wire"
	"github.com/aspengine/asp/snapshot"
)

// unstoredWords are said by the receipt inside the decision of a dry run. The shape of a
// decision demands one; storing it would write, and let dry runs push receipts of what
// was done out of the chain.
const unstoredWords = "not stored, since this was a dry run"

// dryRun answers what an apply now would do and earn. Nothing is written and no
// receipt is stored, and the one in the decision says so.
func (t *tx) dryRun(_ context.Context, items refusal.List) (bool, error) {
	g, why := t.expected()
	if len(items) > 0 {
		g, why = 0, "refused"
	}
	d := &wire.DryRunResult{
		DryRun: true, WouldApply: len(items) == 0, ProposalID: t.proposalID(), BaselineBefore: t.baseline,
		Assurance: wire.ApplyAssurance{Mode: wire.Mode(t.mode().String()), TransactionGuarantee: wire.Guarantee(g.String()), Detail: "publish " + t.r.Publish.String() + ": " + why},
		Decision:  t.verdict, Refusal: refusalOf(items), Changes: []wire.DryRunChange{},
	}
	if t.adm != nil && len(items) == 0 {
		cs, err := t.show()
		if err != nil {
			return false, err
		}
		if said := mergedDetail(t.adm.Merges); said != "" {
			d.Assurance.Detail += "; " + valid(said)
		}
		d.Diff = string(patch.Render(cs, patch.RenderOptions{UTF8: true}))
		if t.r.Show != nil {
			t.r.Show(cs)
		}
		for _, c := range changesetOf(t.adm.Nets) {
			d.Changes = append(d.Changes, wire.DryRunChange{Path: c.Path, Kind: c.Kind, Before: c.Before, After: c.After})
		}
	}
	if t.verdict != nil {
		a := &t.verdict.Receipt.Assurance
		if a.Detail != "" {
			a.Detail = "; " + a.Detail
		}
		a.Detail = unstoredWords + a.Detail
	}
	t.answer.DryRun, t.answer.Checks = d, t.report.Results
	return true, nil
}

// maxRender is the largest side that is loaded for a diff; a larger one is shown
// as changed without its bytes.
const maxRender = 64 << 20

// show loads the changes for rendering, in the order of paths. The view must
// still be the state before the change.
func (t *tx) show() ([]patch.Change, error) {
	var out []patch.Change
	moved := map[snapshot.Path]bool{}
	for _, n := range t.adm.Nets {
		if isRename(n) {
			moved[n.From] = true
		}
	}
	for i, n := range t.adm.Nets {
		if n.After.Kind == editplan.Absent && moved[n.Path] {
			continue
		}
		c := patch.Change{Kind: patch.Modify, Old: n.Path.String(), New: n.Path.String()}
		old := n.Path
		if isRename(n) {
			c.Kind, c.Old, old = patch.Rename, n.From.String(), n.From
		}
		f := t.adm.Fact(old)
		before := f.Stat.Kind == vfs.KindFile || f.Stat.Kind == vfs.KindSymlink
		if before {
			c.OldMode = modeOf(f.Stat)
			b, err := t.oldBytes(old)
			if err != nil {
				return nil, err
			}
			c.Before = b
		}
		after := t.changes[i].After != nil
		if after {
			c.NewMode = t.effects[i].Mode
			switch n.Content {
			case editplan.ContentBlob:
				c.After = t.adm.Plan.Blobs[n.After.Digest]
			case editplan.ContentEdits:
				c.After = n.Bytes
			default:
				c.After = c.Before
			}
		}
		switch {
		case before && !after:
			c.Kind = patch.Delete
		case !before && after:
			c.Kind = patch.Create
		case !before:
			continue
		}
		out = append(out, c)
	}
	return out, nil
}

func (t *tx) oldBytes(p snapshot.Path) ([]byte, error) {
	f := t.adm.Fact(p)
	if f.Stat.Kind == vfs.KindSymlink {
		return []byte(f.Target), nil
	}
	if f.Stat.Size > maxRender {
		return []byte{0}, nil // shown as binary
	}
	return t.view.Bytes(p)
}

func modeOf(s vfs.Stat) snapshot.FileMode {
	switch {
	case s.Kind == vfs.KindSymlink:
		return snapshot.ModeSymlink
	case s.Perm&0o100 != 0:
		return snapshot.ModeExecutable
	}
	return snapshot.ModeRegular
}
