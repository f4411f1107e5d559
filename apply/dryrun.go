package apply

import (
	"context"

	"github.com/aspengine/asp/editplan"
	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/seam/wire"
	"github.com/aspengine/asp/snapshot"
)

// dryRun answers what an apply now would do and earn. Nothing is written and no
// receipt is made.
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
	if t.adm != nil {
		for _, c := range changesetOf(t.adm.Nets) {
			d.Changes = append(d.Changes, wire.DryRunChange{Path: c.Path, Kind: c.Kind, Before: c.Before, After: c.After})
		}
	}
	t.answer.DryRun, t.answer.Checks = d, t.report.Results
	return true, nil
}

// Side is one side of a change, for rendering.
type Side struct {
	Exists  bool
	Mode    snapshot.FileMode
	Content []byte
}

// FileChange is one change with its bytes.
type FileChange struct {
	Path, From    string
	Before, After Side
}

// maxRender is the largest side that is loaded for a diff.
const maxRender = 64 << 20

// Files loads the changes for rendering, in the order of paths. It may only be
// called by the loader of the answer's view, before the engine goes on to
// write; see Request.Render.
func (t *tx) files() ([]FileChange, error) {
	var out []FileChange
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
		fc := FileChange{Path: n.Path.String()}
		old := n.Path
		if isRename(n) {
			fc.From, old = n.From.String(), n.From
		}
		f := t.adm.Fact(old)
		if f.Stat.Kind == vfs.KindFile || f.Stat.Kind == vfs.KindSymlink {
			fc.Before = Side{Exists: true, Mode: modeOf(f.Stat)}
			b, err := t.oldBytes(old)
			if err != nil {
				return nil, err
			}
			fc.Before.Content = b
		}
		if c := t.changes[i]; c.After != nil {
			fc.After = Side{Exists: true, Mode: t.effects[i].Mode}
			switch n.Content {
			case editplan.ContentBlob:
				fc.After.Content = t.adm.Plan.Blobs[n.After.Digest]
			case editplan.ContentEdits:
				fc.After.Content = n.Bytes
			default:
				fc.After.Content = fc.Before.Content
			}
		}
		out = append(out, fc)
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
