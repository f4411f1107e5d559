package apply

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/aspengine/asp/apply/commit"
	"github.com/aspengine/asp/apply/exchange"
	"github.com/aspengine/asp/checks/policy"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/receipt"
	"github.com/aspengine/asp/seam/wire"
	"github.com/aspengine/asp/snapshot"
)

// recoverLocked ends what a crash left. A transaction that it completes leaves
// the receipt and the stored result of a success.
func (e *Engine) recoverLocked(ctx context.Context) ([]commit.Recovered, error) {
	// Who held the lock before may have exchanged the tree.
	if err := e.rebind(); err != nil {
		return nil, err
	}
	rec, err := commit.Recover(ctx, e.env(e.extraDirs()), commit.RecoverOptions{
		Completed: func(ctx context.Context, r commit.Recovered) error {
			return e.keep(ctx, r.Evidence, commit.SyncFS)
		},
		Acknowledged: e.acknowledged,
	})
	if len(rec) > 0 {
		if rerr := e.receipts.Recover(ctx); rerr != nil {
			return rec, errors.Join(err, rerr)
		}
	}
	for _, r := range rec {
		if r.Outcome == commit.RolledBack && r.TxID != "" {
			_ = e.packs.Drop(r.TxID) // bounded by the retention anyway
		}
	}
	rec = apart(rec)
	if err != nil {
		return rec, err
	}
	xs, err := e.recoverExchange(ctx)
	if rec = append(rec, xs...); err != nil {
		return rec, err
	}
	gs, err := e.recoverGit(ctx)
	if rec = append(rec, gs...); err != nil {
		return rec, err
	}
	return rec, e.account(ctx, rec)
}

// acknowledged tells whether the receipt of a transaction is stored as that of a success,
// and makes it durable then: what it stands for is about to be tidied up.
func (e *Engine) acknowledged(ctx context.Context, txid string) (bool, error) {
	if err := e.receipts.Recover(ctx); err != nil {
		return false, err
	}
	st, err := e.receipts.LastApplied(ctx)
	if err != nil || st == nil {
		return false, err
	}
	if id, _ := st.Evidence.Get("transaction"); id.Str() != txid {
		return false, nil
	}
	return true, e.receipts.Sync(home.WholeFS)
}

// account leaves a receipt for every attempt that a crash ended and recovery
// did not complete; a completed one has its own. What is reported once is
// written once; a crash in between loses a receipt that claims nothing.
func (e *Engine) account(ctx context.Context, rec []commit.Recovered) error {
	var base wire.Baseline
	said := false
	for _, r := range rec {
		out := receipt.RolledBack
		switch r.Outcome {
		case commit.RolledBack:
		case commit.NeedsAttention:
			out = receipt.Failed
		default:
			continue
		}
		if base.Rev == "" {
			s, err := e.ws.Stamp(ctx, snapshot.StampOptions{Watched: true})
			if err != nil {
				return err
			}
			base = e.issue(s.Baseline, e.now())
		}
		ev, err := canon.From(Evidence{Publish: "recovery", Transaction: r.TxID, Notes: validAll(r.Notes)})
		if err != nil {
			return err
		}
		now := e.now()
		detail := "interrupted; recovery put everything back"
		if out == receipt.Failed {
			detail = "interrupted; some paths need attention, see `asp recover`"
		}
		d := receipt.Draft{
			Kind: wire.ReceiptApplyAttempt, Family: wire.Edit, ProposalID: valid(r.Tag), PolicyDigest: e.pol.Digest, Baseline: base,
			RequestDigest: RequestDigest("host/applyProposal", canon.ObjectOf(canon.Member{Key: "proposalId", Value: canon.StringOf(valid(r.Tag))})),
			Coverage:      wire.Coverage{Required: []string{}, Enrolled: []string{}, Ran: []string{}, Degraded: []wire.Degradation{}},
			Assurance:     wire.ApplyAssurance{Mode: wire.Advisory, TransactionGuarantee: wire.GuaranteeNone, Detail: detail},
			Failures:      []wire.Degradation{{Source: "asp", Reason: wire.DegradeError, Detail: detail}},
			Started:       now, Ended: now,
		}
		if _, err := e.receipts.Append(ctx, receipt.Entry{Receipt: receipt.New(d, e.o.Version), Outcome: out, Evidence: ev}); err != nil {
			return err
		}
		said = true
	}
	if !said {
		return nil
	}
	// What comes next may have no barrier, and a power cut must find one head of
	// the chain whole.
	return e.receipts.Sync(home.WholeFS)
}

// Recovery is what Recover found and did.
type Recovery struct {
	Recovered []commit.Recovered
	Attention []commit.AttentionPath
	Left      []string // see Status
}

// Recover ends what a crash left and lists what it must not decide. Running it
// again changes nothing.
func (e *Engine) Recover(ctx context.Context) (Recovery, error) {
	var r Recovery
	err := e.locked(ctx, func() (err error) {
		if r.Recovered, err = e.recoverLocked(ctx); err != nil {
			return err
		}
		e.tidy()
		if r.Left, err = exchange.Left(e.exchangeEnv()); err != nil {
			return err
		}
		r.Attention, err = commit.Attention(ctx, e.env(e.extraDirs()))
		return err
	})
	return r, err
}

// tidy removes the half-made files that dead writers left in the state. The next
// writer of each directory does the same by itself; what stays harms nobody. The
// caller holds the workspace lock.
func (e *Engine) tidy() {
	policy.Tidy(e.o.Home)
	_ = home.CleanTemp(e.state.Dir())
	for _, n := range []string{home.Receipts, home.Results, home.Proposals, home.Staged} {
		if d, err := e.state.Sub(n); err == nil {
			_ = home.CleanTemp(d)
		}
	}
	_ = e.packs.Tidy()
	if d, _, err := e.judgedDir(); err == nil {
		tidyJudged(d)
	}
}

// PreImage opens the kept pre-image of a path that needs attention.
func (e *Engine) PreImage(ctx context.Context, path string) (io.ReadCloser, error) {
	return commit.ShowPreImage(ctx, e.env(e.extraDirs()), path)
}

// Blob opens a kept blob: what --keep-theirs took from the disk, a pre-image.
func (e *Engine) Blob(id string) (io.ReadCloser, error) {
	d, err := snapshot.ParseBlob(id)
	if err != nil {
		return nil, err
	}
	r, _, err := e.packs.Get(d)
	return r, err
}

// Resolution is what Resolve did.
type Resolution struct {
	Decided []string   // paths
	Kept    []KeptBlob // what gave way at them
}

// KeptBlob is content that gave way at a path, kept as a blob.
type KeptBlob struct {
	Path string
	Blob snapshot.Digest
}

// Resolve ends the need for attention at the paths named, or at all. The bytes
// that give way are kept as a blob first. Every path that can be decided is; the
// error names all others, and why.
func (e *Engine) Resolve(ctx context.Context, k commit.Keep, paths []string) (r Resolution, err error) {
	err = e.locked(ctx, func() error {
		env := e.env(e.extraDirs())
		all, err := commit.Attention(ctx, env)
		if err != nil {
			return err
		}
		todo := paths
		if len(todo) == 0 {
			for _, a := range all {
				if !a.Damaged { // there is nothing to choose between; the directory goes by hand
					todo = append(todo, a.Path)
				}
			}
		}
		// One that gives way may make room for another: a file in a directory that is
		// in the place of a file. So it is tried again as long as that helps.
		for len(todo) > 0 {
			var left []string
			var errs []error
			for _, p := range todo {
				err := e.resolve(ctx, env, all, p, k, &r)
				if ctx.Err() != nil {
					return err
				}
				if err != nil {
					left, errs = append(left, p), append(errs, err)
				}
			}
			if len(left) == len(todo) {
				return errors.Join(errs...)
			}
			todo = left
		}
		return nil
	})
	return r, err
}

func (e *Engine) resolve(ctx context.Context, env commit.Env, all []commit.AttentionPath, p string, k commit.Keep, r *Resolution) error {
	if i := slices.IndexFunc(all, func(a commit.AttentionPath) bool { return a.Damaged && a.Path == p }); i >= 0 {
		return half(all[i : i+1])
	}
	save := func(i commit.PreImage, b io.Reader) error {
		w, err := e.packs.Begin("keep-" + home.Random(12))
		if err != nil {
			return err
		}
		defer w.Close()
		if err := w.Add(i.Digest, i.Size, b); err != nil {
			return err
		}
		if err := w.Finish(); err != nil {
			return err
		}
		if err := w.Sync(); err != nil {
			return err
		}
		if kept := (KeptBlob{p, i.Digest}); !slices.Contains(r.Kept, kept) {
			r.Kept = append(r.Kept, kept)
		}
		return nil
	}
	if err := commit.Resolve(ctx, env, p, k, save); err != nil {
		return err
	}
	r.Decided = append(r.Decided, p)
	return nil
}

// locked runs f under the workspace lock.
func (e *Engine) locked(ctx context.Context, f func() error) error {
	lk, err := e.line.Acquire(ctx, e.ws.LockDir())
	if err != nil {
		return fmt.Errorf("lock workspace: %w", err)
	}
	defer lk.Unlock()
	if err := e.rebind(); err != nil {
		return err
	}
	return f()
}

// settle ends what a crash left open before a look that a decision or a plan hangs on:
// a tree that is half swapped is nobody's change. It waits for a transaction that runs.
func (e *Engine) settle(ctx context.Context) error {
	open, err := e.openTransactions()
	if err != nil || len(open) == 0 {
		return err
	}
	return e.locked(ctx, func() error {
		rec, err := e.recoverLocked(ctx)
		e.o.Recovered(rec)
		if err != nil {
			return fmt.Errorf("recover an earlier transaction: %w", err)
		}
		open, err := commit.Attention(ctx, e.env(e.extraDirs()))
		if err == nil {
			err = half(open)
		}
		return err
	})
}

// half is ErrAttention where nobody knows which paths an interrupted transaction left
// half swapped, so that the tree may be a mixture of which no part can be vouched for.
func half(open []commit.AttentionPath) error {
	for _, a := range open {
		if a.Damaged {
			return &damagedError{a.Path, a.Why}
		}
	}
	return nil
}

// damagedError is ErrAttention that `asp recover` cannot end.
type damagedError struct{ path, why string }

func (d *damagedError) Error() string {
	return fmt.Sprintf("needs attention: %q: %s", cut(d.path), d.why)
}
func (d *damagedError) Is(target error) bool { return target == ErrAttention }
