package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/aspengine/asp/apply"
	"github.com/aspengine/asp/apply/commit"
	"github.com/aspengine/asp/editplan"
	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/receipt"
	"github.com/aspengine/asp/seam/wire"
	"github.com/aspengine/asp/snapshot"
)

// wholeGoal and innerGoal are the goals for n changed files.
func wholeGoal(n int) float64 {
	switch {
	case n >= 100:
		return 1
	case n >= 10:
		return 1.5
	}
	return 2.5
}

func innerGoal(n int, fs string) float64 {
	switch {
	case n >= 100 && fs == "tmpfs":
		return 1.6
	case n >= 100:
		return 1.3
	case n >= 10:
		return 1.9
	}
	return 2.2
}

// applyRows measures a durable apply: the whole process against git apply, which
// syncs nothing, and inside the process against the floor.
func (c *config) applyRows(ctx context.Context) error {
	for _, fs := range []string{"ext4", "xfs", "tmpfs"} {
		dir, done, err := c.place(ctx, fs)
		if err != nil {
			c.out.note("durable apply on %s is not measured: %v", fs, err)
			continue
		}
		err = c.applyOn(ctx, fs, dir)
		done()
		if err != nil {
			return fmt.Errorf("on %s: %w", fs, err)
		}
	}
	return nil
}

func (c *config) applyOn(ctx context.Context, fs, dir string) error {
	for _, n := range c.sizes {
		r, err := newRepo(filepath.Join(dir, fmt.Sprint("apply-", n)), max(c.small, 2*n))
		if err != nil {
			return err
		}
		ch, err := r.change(n)
		if err != nil {
			return err
		}
		if err := c.whole(ctx, fs, r, ch); err != nil {
			return err
		}
		if err := c.inner(ctx, fs, r, ch); err != nil {
			return err
		}
		if err := os.RemoveAll(filepath.Dir(r.dir)); err != nil {
			return err
		}
	}
	return nil
}

// quiet waits until what the restoring wrote is on disk, so that no contender
// pays for it.
func (r *repo) quiet() error {
	d, err := vfs.OS{}.OpenRoot(r.dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.SyncFS()
}

func (r *repo) restore(ch *change) func() error {
	return chain(func() error { return ch.verify(r) }, func() error { return r.git("apply", "-R", ch.patch) }, r.settle, r.quiet)
}

func (c *config) whole(ctx context.Context, fs string, r *repo, ch *change) error {
	var ours, peers meter
	t, err := race(ctx, c.runs,
		contender{run: metered(&ours, r.dir, r.env(), c.asp, "apply", "--patch", ch.patch), after: r.restore(ch)},
		contender{run: metered(&peers, r.dir, nil, "git", "apply", ch.patch), after: r.restore(ch)})
	if err != nil {
		return err
	}
	n := len(ch.paths)
	c.out.add(row{Group: "apply", What: fmt.Sprintf("durable apply of %d changes, whole process", n), Where: fs, Unit: "ms", Ours: t[0], Peer: t[1], PeerIs: "git apply"}, limit{wholeGoal(n), "peer"})
	c.out.add(row{Group: "apply", What: fmt.Sprintf("… %d changes, processor time of the process", n), Where: fs, Unit: "ms", Ours: ours.median(), Peer: peers.median(), PeerIs: "git apply"})
	return nil
}

// inner measures the engine's transaction (stamp, plan, preconditions, pre-images,
// journal, swaps, receipt) and the commit room alone, in this process.
func (c *config) inner(ctx context.Context, fs string, r *repo, ch *change) error {
	h, err := home.Open(vfs.OS{}, r.home)
	if err != nil {
		return err
	}
	defer h.Close()
	eng, err := apply.Open(ctx, apply.Options{Dir: r.dir, Home: h, Version: "bench"})
	if err != nil {
		return err
	}
	defer eng.Close()
	var style commit.SyncStyle
	round := 0
	engine := func() error {
		round++
		a, err := eng.Apply(ctx, apply.Request{CallSite: wire.CallSite("interactive"), Intent: wire.Intent("user"), Load: func(_ context.Context, _ *apply.View, base snapshot.Baseline) (editplan.File, refusal.List, error) {
			f, err := editplan.NewPlan(editplan.Source{Baseline: base, Provider: editplan.Provider{ID: "bench", Version: "1"}, Rationale: fmt.Sprint("round ", round)}, ch.drafts())
			return apply.Named(f, "bench-"+home.Random(8)), nil, err
		}})
		if err != nil {
			return err
		}
		if a.Outcome != receipt.Applied {
			return fmt.Errorf("outcome %s: %v", a.Outcome, a.Refusals)
		}
		if _, err := os.Lstat(filepath.Join(r.dir, ".git", "asp")); err == nil {
			return fmt.Errorf("the transaction was left open: %q", a.Notes)
		}
		style = a.Facts.Style
		return nil
	}
	root, err := vfs.OS{}.OpenRoot(r.dir)
	if err != nil {
		return err
	}
	defer root.Close()
	t, err := race(ctx, c.runs,
		contender{run: engine, after: r.restore(ch)},
		contender{run: func() error { return ch.commit(ctx, root, r, style) }, after: r.restore(ch)},
		contender{run: func() error { return ch.floor(root, r) }, after: chain(r.restore(ch), func() error { return os.RemoveAll(r.aside()) }, r.quiet)})
	if err != nil {
		return err
	}
	n := len(ch.paths)
	base := row{Group: "apply", Where: fs, Unit: "ms", Floor: t[2], FloorIs: "write, syncfs, swap, syncfs"}
	a, b := base, base
	a.What, a.Ours = fmt.Sprintf("… %d changes inside the process (%s)", n, style), t[0]
	b.What, b.Ours = fmt.Sprintf("… %d changes, journal and swaps alone", n), t[1]
	c.out.add(a, limit{innerGoal(n, fs), "floor"})
	c.out.add(b)
	return nil
}

// drafts are the change as operations with the whole new content.
func (ch *change) drafts() []editplan.Draft {
	var ds []editplan.Draft
	for i, p := range ch.paths {
		ds = append(ds, editplan.Draft{Kind: editplan.Modify, Path: p, Expected: snapshot.DigestOf(ch.before[i]), Content: ch.after[i], HasContent: true})
	}
	return ds
}
