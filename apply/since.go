package apply

import (
	"context"
	"errors"

	"github.com/aspengine/asp/editplan"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/preconditions"
	"github.com/aspengine/asp/receipt"
	"github.com/aspengine/asp/snapshot"
)

// Overtaken is a path that no longer holds what an applied receipt left there.
type Overtaken struct {
	Path string
	// By is the applied receipt that left what is there now: the newest of those after
	// it that changed the path. It is "" where that one left something else, too, or
	// no receipt of it is kept.
	By string
}

// Since compares what an applied receipt left with what is on disk, path by path. A
// request that was carried out before is answered with its first outcome, also where
// that has been taken back since; this is what keeps the answer from being read as a
// word on the present. It takes no lock and is no ground for a decision: what it says
// can be over when it returns. A path that cannot be looked at is left out.
func (e *Engine) Since(ctx context.Context, receiptID string) ([]Overtaken, error) {
	paths, err := e.left(receiptID)
	if err != nil || len(paths) == 0 {
		return nil, err
	}
	v, err := preconditions.NewView(e.root, e.protected())
	if err != nil {
		return nil, err
	}
	defer v.Close()
	var out []Overtaken
	at := map[string]int{} // of those in out whose newest change is not found yet
	for _, p := range paths {
		if ok, err := holds(v, p); err != nil {
			return nil, err
		} else if !ok {
			at[p.Path] = len(out)
			out = append(out, Overtaken{Path: p.Path})
		}
	}
	if len(out) == 0 {
		return nil, nil
	}
	all, err := e.receipts.List(ctx)
	if err != nil {
		return nil, err
	}
	for i := len(all) - 1; i >= 0 && len(at) > 0 && all[i].ReceiptID != receiptID; i-- {
		if all[i].Outcome != receipt.Applied {
			continue
		}
		later, err := e.left(all[i].ReceiptID)
		if errors.Is(err, receipt.ErrNoReceipt) {
			continue // pruned since it was listed
		}
		if err != nil {
			return nil, err
		}
		for _, p := range later {
			j, ok := at[p.Path]
			if !ok {
				continue
			}
			delete(at, p.Path)
			if ok, err = holds(v, p); err != nil {
				return nil, err
			} else if ok {
				out[j].By = all[i].ReceiptID
			}
		}
	}
	return out, nil
}

// left are the paths that an applied receipt tells of; none for any other receipt.
func (e *Engine) left(receiptID string) ([]PathRecord, error) {
	st, err := e.receipts.Get(receiptID)
	if err != nil || st.Outcome != receipt.Applied {
		return nil, err
	}
	ev, err := readEvidence(st)
	return ev.Paths, err
}

// holds tells whether a path is as a receipt left it. Permissions are compared by
// whether the owner may execute, as a plan does.
func holds(v *View, r PathRecord) (bool, error) {
	p, err := snapshot.ParsePath(r.Path)
	if err != nil {
		return false, err
	}
	f, err := v.Fact(p)
	switch {
	case err != nil:
		return false, err
	case f.Blocked != nil:
		return true, nil
	case r.After == nil:
		return f.Stat.Kind == vfs.KindInvalid, nil
	}
	s, kind := f.State(), editplan.IsFile
	if r.After.Kind == "symlink" {
		kind = editplan.IsSymlink
	}
	if s.Kind != kind || s.Digest.Blob() != r.After.Digest {
		return false, nil
	}
	return r.After.Perm == 0 || kind == editplan.IsSymlink || s.Exec == (r.After.Perm&0o100 != 0), nil
}
