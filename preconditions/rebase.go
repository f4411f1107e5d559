package preconditions

import (
	"context"
	"fmt"

	"github.com/aspengine/asp/editplan"
	"github.com/aspengine/asp/editplan/merge"
	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/snapshot"
)

// world is one file as the plan believes it to be and as it is.
type world struct {
	believed snapshot.Digest
	base     []byte // bytes of believed
	real     []byte
	moved    bool // real differs from base
}

// rebase gives the plan that does to the files as they are what the given plan
// does to the files as it knew them: each content change of a file that moved
// becomes the three-way merge, if that is clean. It never leaves conflict
// markers; what does not merge is a refusal. Operations on files that did not
// move are left alone.
func rebase(ctx context.Context, v *View, in Input) (*editplan.Plan, []string, refusal.List, error) {
	plan := *in.Plan
	plan.Ops = append([]editplan.Op(nil), in.Plan.Ops...)
	plan.Blobs = make(map[snapshot.Digest][]byte, len(in.Plan.Blobs))
	for d, b := range in.Plan.Blobs {
		plan.Blobs[d] = b
	}
	at := map[snapshot.Path]*world{}
	touched := map[snapshot.Path]bool{}
	var notes []string
	var out refusal.List
	for i := range plan.Ops {
		op := &plan.Ops[i]
		w := at[op.Path]
		if w == nil && !touched[op.Path] && op.Kind != editplan.Create {
			f, err := v.Fact(op.Path)
			if err != nil {
				return nil, nil, nil, err
			}
			if f.Blocked == nil && f.Stat.Kind == vfs.KindFile && f.Digest != op.Expected {
				base, ok, err := in.Base(ctx, op.Expected, op.Path)
				if err != nil {
					return nil, nil, nil, fmt.Errorf("find the bytes that the plan was made from: %w", err)
				}
				if ok {
					real, err := v.Bytes(op.Path)
					if err != nil {
						return nil, nil, nil, err
					}
					w = &world{believed: op.Expected, base: base, real: real, moved: true}
				}
			}
		}
		touched[op.Path] = true
		if !op.To.IsZero() {
			touched[op.To] = true
		}
		if w == nil || !w.moved || w.believed != op.Expected {
			continue // Resolve says what is wrong, if anything
		}
		delete(at, op.Path)
		switch op.Kind {
		case editplan.Rename:
			op.Expected = snapshot.DigestOf(w.real)
			at[op.To] = w
		case editplan.Modify:
			theirs, bad := result(in.Plan, op, w.base)
			if bad != nil {
				continue
			}
			m := merge.Three(w.base, w.real, theirs)
			if !m.Clean() {
				out = append(out, refusal.New(refusal.MergeConflict, op.Path.String(), i, "%s", conflict(m)))
				continue
			}
			op.Expected = snapshot.DigestOf(w.real)
			op.Edits, op.HasAfter, op.After = nil, true, snapshot.DigestOf(m.Bytes)
			plan.Blobs[op.After] = m.Bytes
			at[op.Path] = &world{believed: snapshot.DigestOf(theirs), base: theirs, real: m.Bytes, moved: true}
			notes = append(notes, fmt.Sprintf("merged: %q had moved since the plan's baseline", cut(op.Path.String())))
		case editplan.Delete:
			out = append(out, refusal.New(refusal.MergeConflict, op.Path.String(), i, "the plan deletes it, and it was changed since; delete it by hand or plan again"))
		}
	}
	return &plan, notes, out, nil
}

// result is what a modify makes of base.
func result(p *editplan.Plan, op *editplan.Op, base []byte) ([]byte, *editplan.EditError) {
	if op.HasAfter {
		if op.After == op.Expected {
			return base, nil
		}
		return p.Blobs[op.After], nil
	}
	return editplan.Apply(base, op.Edits)
}

func conflict(m merge.Result) string {
	if m.NotText {
		return "it changed since the plan was made and is no text that could be merged; plan again"
	}
	c := m.Conflicts[0]
	return fmt.Sprintf("lines %d-%d changed both in the workspace and in the plan (%d conflicting places); plan again", c.Mine.Start+1, max(c.Mine.End, c.Mine.Start+1), len(m.Conflicts))
}
