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

// Merge is one operation that was brought onto a file that had moved.
type Merge struct {
	Path     snapshot.Path
	Op       int             // place in the plan's documentChanges
	Expected snapshot.Digest // what the plan was made for
	Found    snapshot.Digest // what was there; after an earlier merged operation, what that one made
	Made     snapshot.Digest // what the operation leaves now
}

// rebase gives the plan that does to the files as they are what the given plan
// does to the files as it knew them: each content change of a file that moved
// becomes the three-way merge, if that is clean: text edits at the places where
// they were made, a whole new content by its lines. It never leaves conflict
// markers; what does not merge is a refusal. Operations on files that did not
// move are left alone.
func rebase(ctx context.Context, v *View, in Input) (*editplan.Plan, []Merge, refusal.List, error) {
	plan := *in.Plan
	plan.Ops = append([]editplan.Op(nil), in.Plan.Ops...)
	plan.Blobs = make(map[snapshot.Digest][]byte, len(in.Plan.Blobs))
	for d, b := range in.Plan.Blobs {
		plan.Blobs[d] = b
	}
	at := map[snapshot.Path]*world{}
	touched := map[snapshot.Path]bool{}
	var done []Merge
	var out refusal.List
	for i := range plan.Ops {
		op := &plan.Ops[i]
		w := at[op.Path]
		if w == nil && !touched[op.Path] && op.Kind != editplan.Create {
			f, err := v.Fact(op.Path)
			if err != nil {
				return nil, nil, nil, err
			}
			may := in.MergeOnly == nil || in.MergeOnly[op.Path] == f.Digest
			if may && f.Blocked == nil && f.Stat.Kind == vfs.KindFile && f.Digest != op.Expected {
				base, ok, err := in.Base(ctx, op.Expected, op.Path)
				if err != nil {
					return nil, nil, nil, fmt.Errorf("find the bytes that the plan was made from: %w", err)
				}
				if !ok {
					out = append(out, refusal.New(refusal.StaleBasis, op.Path.String(), i, "expected %s, found %s, and the bytes that the plan was made from are kept nowhere, so nothing can be merged; make the plan again from the present content", op.Expected.Blob(), f.Digest.Blob()))
				} else {
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
			found := snapshot.DigestOf(w.real)
			done = append(done, Merge{op.Path, i, op.Expected, found, found})
			op.Expected = found
			at[op.To] = w
		case editplan.Modify:
			theirs, m, bad := three(in.Plan, op, w)
			if bad != nil {
				continue
			}
			if !m.Clean() {
				out = append(out, refusal.New(refusal.MergeConflict, op.Path.String(), i, "expected %s, found %s: %s", op.Expected.Blob(), snapshot.DigestOf(w.real).Blob(), conflict(m)))
				continue
			}
			made := Merge{op.Path, i, op.Expected, snapshot.DigestOf(w.real), snapshot.DigestOf(m.Bytes)}
			done = append(done, made)
			op.Expected, op.Edits, op.HasAfter, op.After = made.Found, nil, true, made.Made
			plan.Blobs[op.After] = m.Bytes
			at[op.Path] = &world{believed: snapshot.DigestOf(theirs), base: theirs, real: m.Bytes, moved: true}
		case editplan.Delete:
			out = append(out, refusal.New(refusal.MergeConflict, op.Path.String(), i, "expected %s, found %s: the plan deletes it, and it was changed since; delete it by hand or make the plan again", op.Expected.Blob(), snapshot.DigestOf(w.real).Blob()))
		}
	}
	return &plan, done, out, nil
}

// three merges what a modify makes of the believed bytes, which is theirs, with
// what is there.
func three(p *editplan.Plan, op *editplan.Op, w *world) (theirs []byte, m merge.Result, bad *editplan.EditError) {
	if op.HasAfter {
		if theirs = w.base; op.After != op.Expected {
			theirs = p.Blobs[op.After]
		}
		return theirs, merge.Three(w.base, w.real, theirs), nil
	}
	splices, bad := editplan.Splices(w.base, op.Edits)
	if bad != nil {
		return nil, m, bad
	}
	edits := make([]merge.Edit, len(splices))
	for i, s := range splices {
		edits[i] = merge.Edit(s)
	}
	if theirs, bad = editplan.Apply(w.base, op.Edits); bad != nil {
		return nil, m, bad
	}
	return theirs, merge.Edits(w.base, w.real, edits), nil
}

func conflict(m merge.Result) string {
	if m.NotText {
		return "that is no text that could be merged; make the plan again from the present content"
	}
	c := m.Conflicts[0]
	more := ""
	if n := len(m.Conflicts) - 1; n > 0 {
		more = fmt.Sprintf(" (and at %d more places)", n)
	}
	return fmt.Sprintf("around lines %d-%d both the workspace and the plan changed something%s; make the plan again from the present content", c.Mine.Start+1, max(c.Mine.End, c.Mine.Start+1), more)
}
