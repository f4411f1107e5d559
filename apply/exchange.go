package apply

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/aspengine/asp/apply/commit"
	"github.com/aspengine/asp/apply/exchange"
	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/receipt"
)

func (e *Engine) exchangeEnv() exchange.Env {
	env := exchange.Env{FS: e.fs, RootPath: e.ws.Root()}
	if rel, err := filepath.Rel(e.ws.Root(), e.ws.TxDir()); err == nil {
		env.Skip = []string{rel}
	}
	return env
}

// exchange publishes the whole after-tree by one directory exchange.
func (t *tx) exchange(ctx context.Context) (bool, error) {
	if t.r.Index {
		return t.refuse(ctx, refusal.List{refusal.New(refusal.UnsupportedOperation, "", -1, "--index needs the journal publish mode")})
	}
	if err := t.packAndForesee(ctx); err != nil {
		t.dropPack()
		return t.unlessMoved(ctx, err)
	}
	if len(t.changes) == 0 {
		return false, nil
	}
	res, err := exchange.Run(ctx, t.e.exchangeEnv(), t.txid, t.changes, exchange.Options{
		Tag: t.tag(),
		Recheck: func(ctx context.Context) (refusal.List, error) {
			t.e.o.Before("swap")
			return t.adm.Recheck(ctx)
		},
		Seal: func(ctx context.Context, f exchange.Facts) ([]byte, error) {
			t.xfacts = &f
			e, err := t.entry(receipt.Applied)
			if err != nil {
				return nil, err
			}
			t.sealed = &e
			return encodeEvidence(t.sealed, t.txid)
		},
		AfterCommit: func(ctx context.Context, _ []byte) error { return t.keepSealed(ctx, commit.SyncFS) },
		BeforeSwap: func(newTree string) error {
			// Waiters that arrive after the exchange look at the new tree's own
			// directory; it is locked before they can see it.
			if rel, err := filepath.Rel(t.e.ws.Root(), t.e.ws.LockDir()); err == nil && filepath.IsLocal(rel) {
				return t.lock.Also(filepath.Join(newTree, rel))
			}
			return nil
		},
		Step: func(name string) { t.e.o.Before(name) },
	})
	t.answer.Notes = append(t.answer.Notes, res.Notes...)
	if res.Outcome != commit.Committed {
		t.sealed, t.xfacts = nil, nil
		t.dropPack()
	}
	switch res.Outcome {
	case commit.Committed:
		// What is open leads to the old tree now. If that cannot be helped here, the
		// next transaction begins with it.
		if err = errors.Join(err, t.e.rebind()); err != nil {
			t.left = err
			t.answer.Notes = append(t.answer.Notes, "applied, and left for recovery to tidy: "+err.Error())
		}
		return false, nil
	case commit.NeedsAttention:
		return false, t.undecided(res.Area, err)
	}
	if err != nil {
		if res.Outcome == commit.RolledBack {
			return false, &rolledBack{err}
		}
		return false, err
	}
	out := receipt.Refused
	if res.Outcome == commit.RolledBack {
		out = receipt.RolledBack
	}
	return t.refuseAs(ctx, res.Items, out)
}

// rebind opens the root and the git directory again where their names lead to
// other directories than those that are open: an exchange, of this process or
// of one that held the lock before, has put them there. The workspace lock must
// be held. The old root stays open: what is done early for a turn (early.go) may be at
// work in it until it finds that it is another one.
func (e *Engine) rebind() error {
	again := func(path string, old vfs.Dir) (vfs.Dir, error) {
		now, err := e.fs.OpenRoot(path)
		if err != nil {
			return old, fmt.Errorf("open %.200q again: %w", path, err)
		}
		a, err := old.Stat()
		b, nerr := now.Stat()
		if err = errors.Join(err, nerr); err != nil || a.SameFile(b) {
			return old, errors.Join(err, now.Close())
		}
		return now, nil
	}
	root, err := again(e.ws.Root(), e.root)
	if err != nil {
		return err
	}
	if root != e.root {
		e.former = append(e.former, e.root)
		e.root = root
	}
	for p, d := range e.gitDirs {
		now, err := again(p, d)
		if err != nil {
			return err
		}
		if now != d {
			_ = d.Close() // a directory handle loses nothing by closing
			e.gitDirs[p] = now
		}
	}
	return nil
}

// exchanged is what an exchange established.
func (t *tx) exchanged() (commit.Guarantee, string) {
	if t.xfacts == nil {
		return commit.GuaranteeNone, "nothing was exchanged"
	}
	return t.xfacts.Guarantee(), t.xfacts.Detail()
}

// exchangeForecast is what an exchange would earn here.
func (e *Engine) exchangeForecast() (commit.Guarantee, string) {
	f, it, err := exchange.Forecast(e.exchangeEnv())
	switch {
	case err != nil:
		return commit.GuaranteeNone, err.Error()
	case it != nil:
		return commit.GuaranteeNone, it.Detail
	}
	return f.Guarantee(), f.Detail()
}

func (e *Engine) recoverExchange(ctx context.Context) ([]commit.Recovered, error) {
	return exchange.Recover(ctx, e.exchangeEnv(), func(ctx context.Context, r commit.Recovered) error {
		return e.keep(ctx, r.Evidence, commit.SyncFS)
	})
}
