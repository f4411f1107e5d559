package apply

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/aspengine/asp/checks/policy"
	"github.com/aspengine/asp/editplan"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/receipt"
	"github.com/aspengine/asp/snapshot"
	"github.com/aspengine/asp/snapshot/gitbase"
)

// planLimits are the bounds on a plan from the trusted configuration.
func planLimits(c policy.Config) editplan.Limits {
	return editplan.Limits{Bytes: int(c.Limits.PlanBytes), Ops: int(c.Limits.Operations), BlobBytes: int(c.Limits.BlobBytes)}
}

// PlanLimits are the bounds on a plan in this workspace.
func (e *Engine) PlanLimits() editplan.Limits { return planLimits(e.cfg) }

func retention(c policy.Config) receipt.Retention {
	return receipt.Retention{Count: c.Retention.Receipts, Bytes: c.Retention.ReceiptBytes}
}

func storeLimits(c policy.Config) snapshot.StoreLimits {
	return snapshot.StoreLimits{MaxBytes: c.Retention.BlobBytes}
}

func isNotInHead(err error) bool { return errors.Is(err, gitbase.ErrNotInHead) }

// absent returns those digests of want that no file of the workspace has. It
// reads every file below the root except what no plan may touch, and stops as
// soon as all were seen; only a plan that calls untouched content current
// brings us here.
func (e *Engine) absent(ctx context.Context, want map[snapshot.Digest]bool) ([]snapshot.Digest, error) {
	protected := e.protected()
	var walk func(d vfs.Dir) error
	walk = func(d vfs.Dir) error {
		es, err := d.List()
		if err != nil {
			return err
		}
		for _, x := range es {
			if len(want) == 0 {
				return nil
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			st, err := d.Lstat(x.Name)
			if err != nil {
				continue // gone in between
			}
			switch st.Kind {
			case vfs.KindDir:
				if slices.ContainsFunc(protected, st.SameFile) {
					continue
				}
				sub, err := d.OpenDir(x.Name)
				if err != nil {
					continue
				}
				err = errors.Join(walk(sub), sub.Close())
				if err != nil {
					return err
				}
			case vfs.KindFile:
				f, err := d.Open(x.Name)
				if err != nil {
					continue
				}
				sum, _, err := snapshot.HashFile(ctx, f)
				f.Close()
				if err == nil {
					delete(want, sum)
				}
			}
		}
		return nil
	}
	if err := walk(e.root); err != nil && err != io.EOF {
		return nil, fmt.Errorf("look for the content that the plan calls current: %w", err)
	}
	var out []snapshot.Digest
	for d := range want {
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b snapshot.Digest) int { return slices.Compare(a[:], b[:]) })
	return out, nil
}
