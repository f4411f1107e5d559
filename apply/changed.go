package apply

import (
	"context"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/snapshot"
)

// Changed is a change that is there already, in the workspace or in git's index,
// seen from the tree of a revision: what `asp check` and `asp ci verify` judge.
// Evaluate takes it where a changeset on the present baseline has no words for
// it: its baseline is that tree, and its after-state is (nearly) the live tree.
type Changed struct {
	// Changeset is on the baseline {rev: git:tree of the revision}.
	Changeset canon.Value
	// Live is the workspace's baseline when this was made. If the workspace has
	// another one when it is judged, the change is another one too.
	Live snapshot.Baseline
	// Base is what the revision has at the paths that differ, as working bytes:
	// over the live tree it makes the tree of the revision, which is the baseline
	// that providers may ask for.
	Base []BaseEntry
	// Effects make the after-state out of the live tree; none where it is the live
	// tree as it is.
	Effects []snapshot.Effect
}

// BaseEntry is one path of a revision that the live tree does not have, or has
// otherwise.
type BaseEntry struct {
	Path  snapshot.Path
	Gone  bool // the revision has nothing there
	Mode  snapshot.FileMode
	Bytes []byte // of a link: its target
}

// Changed compares the workspace, or with staged git's index, with the tree of a
// revision ("HEAD", a branch, a commit). Nothing is written. Paths that no
// changeset can name (submodules, unreadable files, names that are not UTF-8) are
// refused by a *wire.Error that lists them.
func (e *Engine) Changed(ctx context.Context, from string, staged bool) (*Changed, error) {
	return nil, errNotYet
}
