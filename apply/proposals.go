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
	maxProposals      = 64
	maxProposalBytes  = 64 << 20
	maxProposalsBytes = 256 << 20 // together
	keptFrame         = 1 << 10   // what a kept plan has around it
)

// TooLargeError says that a plan is not kept under its id, which is no reason against
// the plan itself.
type TooLargeError struct{ Bytes, Limit int }

func (t *TooLargeError) Error() string {
	return fmt.Sprintf("the plan is %d bytes with its content, and %d are kept under an id; apply it from its file", t.Bytes, t.Limit)
}

// LoadProposal gives a plan that was kept under its id. One that is not kept is
// a refusal.
func (e *Engine) LoadProposal(id string) (editplan.File, refusal.List, error) {
	f, _, items, err := e.loadKept(id)
	return f, items, err
}

// KeepProposal keeps a plan, so that it can be applied by its id. Not durable
// across a power cut. The oldest plans give way to the bound; one that is over it alone
// is a *TooLargeError.
func (e *Engine) KeepProposal(id string, bundle []byte) error {
	if len(bundle) > maxProposalBytes {
		return &TooLargeError{len(bundle), maxProposalBytes}
	}
	// As it is: who reads it parses it, and it may be large.
	return e.keepBundle(id, slices.Concat([]byte(`{"bundle":`), bundle, fmt.Appendf(nil, `,"format":%d}`, keptFormat)))
}

func (e *Engine) keepBundle(id string, bundle []byte) error {
	dir, err := e.state.Sub(home.Proposals)
	if err != nil {
		return err
	}
	_ = home.CleanTemp(dir)
	if err := home.WriteFile(dir, stagedName(id), bundle); err != nil {
		return fmt.Errorf("keep proposal: %w", err)
	}
	return keepNewest(dir, ".json", maxProposals, maxProposalsBytes)
}

// DropProposal forgets a plan that is kept under its id; one that is not is no error.
func (e *Engine) DropProposal(id string) error {
	dir, err := e.state.Sub(home.Proposals)
	if err != nil {
		return err
	}
	if err := dir.Unlink(stagedName(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("drop proposal: %w", err)
	}
	return nil
}

// keepNewest removes the oldest files with the suffix until n are left, of no more than
// so many bytes. One that got another name is as new as that.
func keepNewest(dir vfs.Dir, suffix string, n int, bytes int64) error {
	es, err := dir.List()
	if err != nil {
		return err
	}
	type aged struct {
		name      string
		age, size int64
	}
	var all []aged
	var sum int64
	for _, x := range es {
		if !strings.HasSuffix(x.Name, suffix) {
			continue
		}
		if st, err := dir.Lstat(x.Name); err == nil {
			all = append(all, aged{x.Name, max(st.Mtime, st.Ctime), st.Size})
			sum += st.Size
		}
	}
	slices.SortFunc(all, func(a, b aged) int { return cmp.Compare(a.age, b.age) })
	for len(all) > n || sum > bytes && len(all) > 1 {
		if err := dir.Unlink(all[0].name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		sum -= all[0].size
		all = all[1:]
	}
	return nil
}
