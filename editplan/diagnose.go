package editplan

import (
	"fmt"
	"slices"

	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/snapshot"
)

// Diagnose lists every refusal of a plan file: those of Compile and, for the
// operations that it let through, those of Resolve, in the order of the
// operations. It is for plans that Compile refuses, so that whoever made one
// learns everything at once. Paths that Compile refuses are not looked at, so
// that the answer does not tell whether anything is there.
func Diagnose(f File, l Limits, lookup Lookup, r Reader) (refusal.List, error) {
	p, refused, err := compile(f, l, lookup)
	if err != nil || p == nil {
		return refused, err
	}
	bad := map[int]refusal.Code{}
	for _, it := range refused {
		if _, ok := bad[it.Op]; !ok {
			bad[it.Op] = it.Code
		}
	}
	w := newWalk(p.Blobs, r)
	for i := range p.Ops {
		op := &p.Ops[i]
		if code, ok := bad[i]; ok {
			w.mark(op, code)
			continue
		}
		if err := w.op(op); err != nil {
			return nil, fmt.Errorf("diagnose operation %d on %.200q: %w", i, op.Path, err)
		}
	}
	refused = append(refused, w.out...)
	slices.SortStableFunc(refused, func(a, b refusal.Item) int { return a.Op - b.Op })
	return refused, nil
}

// mark notes the paths that op, refused by code, would have left in another
// state.
func (w *walk) mark(op *Op, code refusal.Code) {
	for _, p := range []snapshot.Path{op.Path, op.To} {
		if p.IsZero() {
			continue
		}
		s := w.slots[p]
		if s == nil {
			s = &slot{}
			w.slots[p] = s
		}
		if s.failed == 0 {
			s.failed, s.cause = op.Index+1, code
		}
		for _, d := range p.Parents() {
			if w.doubt[d] == nil {
				w.doubt[d] = s
			}
		}
	}
}
