package apply

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/aspengine/asp/editplan"
	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/internal/vfs"
)

// Bounds on kept plans: the newest ones stay.
const (
	maxProposals     = 64
	maxProposalBytes = 64 << 20
)

// LoadProposal gives a plan that was kept under its id. One that is not kept is
// a refusal.
func (e *Engine) LoadProposal(id string) (editplan.File, refusal.List, error) {
	f, _, items, err := e.loadKept(id)
	return f, items, err
}

// KeepProposal keeps a plan, so that it can be applied by its id. Not durable
// across a power cut. The oldest plans give way to the bound.
func (e *Engine) KeepProposal(id string, bundle []byte) error {
	if len(bundle) > maxProposalBytes {
		return nil
	}
	dir, err := e.state.Sub(home.Proposals)
	if err != nil {
		return err
	}
	if err := home.WriteFile(dir, stagedName(id), bundle); err != nil {
		return fmt.Errorf("keep proposal: %w", err)
	}
	return keepNewest(dir, ".json", maxProposals)
}

// keepNewest removes the oldest files with the suffix until n are left.
func keepNewest(dir vfs.Dir, suffix string, n int) error {
	es, err := dir.List()
	if err != nil || len(es) <= n {
		return err
	}
	type aged struct {
		name  string
		mtime int64
	}
	var all []aged
	for _, x := range es {
		if !strings.HasSuffix(x.Name, suffix) {
			continue
		}
		if st, err := dir.Lstat(x.Name); err == nil {
			all = append(all, aged{x.Name, st.Mtime})
		}
	}
	slices.SortFunc(all, func(a, b aged) int { return cmp.Compare(a.mtime, b.mtime) })
	for len(all) > n {
		if err := dir.Unlink(all[0].name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		all = all[1:]
	}
	return nil
}
