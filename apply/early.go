package apply

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/aspengine/asp/checks"
	"github.com/aspengine/asp/editplan"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/preconditions"
	"github.com/aspengine/asp/receipt"
	"github.com/aspengine/asp/snapshot"
)

// wait takes a place among the applies of this process that wait for the workspace.
// What is done early for r ends with ctx, and at the latest when the place is left.
func (e *Engine) wait(ctx context.Context, r Request) *waiter {
	root := e.root // the turn may come meanwhile, and with it another one
	w := &waiter{do: work{
		ctx:  ctx,
		tell: func(ctx context.Context) ([]soon, bool, error) { return e.foretell(ctx, root, r) },
		judge: func(ctx context.Context, changes []soon, found func(state)) (map[string]checks.Result, error) {
			return e.judgeEarly(ctx, root, r, changes, found)
		},
	}}
	switch {
	case r.DryRun, r.Publish == Stage && r.Ref == "":
		w.known = true // that it changes nothing here
	case r.Publish != Journal, r.Index, r.undo != nil, r.staged:
		// Another tree, the repository, or a plan that is made under the lock.
		w.hidden = true
	default:
		w.wants = len(e.pol.Commands(r.CallSite, r.Checks)) > 0
	}
	e.waiting.enter(w, int(min(e.cfg.Limits.ChecksAtOnce, math.MaxInt32)))
	return w
}

// foretell finds out what r would change in the tree as it is, without the lock:
// somebody may be at work in it. It stores and issues nothing.
func (e *Engine) foretell(ctx context.Context, root vfs.Dir, r Request) (changes []soon, refused bool, err error) {
	t := &tx{e: e, r: r}
	if t.stamp, err = e.ws.Stamp(ctx, snapshot.StampOptions{Watched: true}); err != nil {
		return nil, false, err
	}
	if t.view, err = preconditions.NewView(root, e.protected()); err != nil {
		return nil, false, err
	}
	defer t.closeView()
	f, items, err := r.Load(ctx, t.view, t.stamp.Baseline)
	if err != nil || len(items) > 0 {
		return nil, true, err
	}
	if t.plan, items, err = editplan.Compile(f, planLimits(e.cfg), t.lookup()); err != nil || len(items) > 0 {
		return nil, true, err
	}
	if t.plan.Baseline != t.stamp.Baseline {
		if known, err := e.issued(t.plan.Baseline); err != nil || !known {
			return nil, true, err
		}
	}
	t.adm, items, err = preconditions.Check(ctx, t.view, preconditions.Input{Plan: t.plan, Workspace: e.ws, Stamp: t.stamp})
	if err != nil || len(items) > 0 {
		return nil, true, err
	}
	if err := t.net(); err != nil {
		return nil, false, err
	}
	return t.soon(), false, nil
}

// errMovedEarly ends an attempt to judge early. Nobody is told.
var errMovedEarly = errors.New("the tree is not the foreseen one any more")

// judgeEarly runs the command checks of r over the live tree with the changes in it:
// those of everybody ahead, and r's own. All of them are in the scratch tree's own
// layer, so that it does not show when those ahead make theirs. What the live tree is
// apart from them must be the same before and after the checks. There are no answers
// unless all are complete ones. An error means that it may be tried again.
func (e *Engine) judgeEarly(ctx context.Context, root vfs.Dir, r Request, changes []soon, found func(state)) (map[string]checks.Result, error) {
	live := snapshot.NewLive(root)
	perms := map[snapshot.Path]uint32{}
	var effects []snapshot.Effect
	for _, c := range changes {
		if rules(c.Path.String()) {
			// What is ignored afterwards is another question than what was looked at.
			return map[string]checks.Result{}, nil
		}
		if c.exact {
			perms[c.Path] = c.perm
		}
		ef := c.Effect
		if ef.Open == nil && !ef.Gone {
			ef.Open = func() (snapshot.ReadCloser, error) { return live.Open(c.from) }
		}
		effects = append(effects, ef)
	}
	slices.SortFunc(effects, func(a, b snapshot.Effect) int { return strings.Compare(a.Path.String(), b.Path.String()) })
	hidden := map[string]bool{}
	for _, ef := range effects {
		hidden[ef.Path.String()] = true
	}
	look := func(ctx context.Context) (*snapshot.Stamp, state, error) {
		// A walk, because what moves there and back while a command runs is told by stat
		// data alone. What lies in the scratch tree's own layer may move as it likes.
		s, err := e.ws.Stamp(ctx, snapshot.StampOptions{Content: r.VerifyContent, Except: hidden})
		if err != nil {
			return nil, state{}, err
		}
		after, err := e.ws.After(ctx, s, effects)
		if err == nil {
			// An exchanged root is another tree, whatever is in it: the scratch tree would
			// lie over the old one.
			err = e.sameRoot(root)
		}
		return s, state{after, s.Ignored}, err
	}
	stamp, over, err := look(ctx)
	if err != nil {
		return nil, err
	}
	found(over)
	j := e.applyJudgement(r)
	j.effects = effects
	j.perm = func(p snapshot.Path) (uint32, bool) { v, ok := perms[p]; return v, ok }
	j.clock(time.Now())
	list, err := j.commands()
	if err != nil {
		return nil, err
	}
	spec, err := j.scratchSpec(stamp)
	if err != nil {
		return nil, err
	}
	began := e.now()
	j.drift = func(ctx context.Context) ([]string, error) {
		if s, now, err := look(ctx); err != nil || !now.is(over) || s.Traces != stamp.Traces {
			return nil, errors.Join(errMovedEarly, err)
		}
		return nil, nil
	}
	rep, err := j.overScratch(ctx, list, spec, func(string) {}, checks.Options{Touched: effects})
	if err != nil {
		return nil, err
	}
	out := map[string]checks.Result{}
	for _, res := range rep.Results {
		if res.Status != checks.Passed && res.Status != checks.Failed {
			return map[string]checks.Result{}, nil // why not is found out under the lock, where it can be told
		}
		res.Early = &checks.Early{Began: began, Rev: over.base.Rev, Dirty: over.base.Dirty}
		out[res.Name] = res
	}
	return out, nil
}

// sameRoot tells, by its error, whether the path of the workspace leads to another
// directory than root.
func (e *Engine) sameRoot(root vfs.Dir) error {
	held, err := root.Stat()
	if err != nil {
		return err
	}
	d, err := e.fs.OpenRoot(e.ws.Root())
	if err != nil {
		return err
	}
	named, err := d.Stat()
	if err = errors.Join(err, d.Close()); err != nil {
		return err
	}
	if held.Dev != named.Dev || held.Ino != named.Ino {
		return fmt.Errorf("%.200q is another directory now: %w", e.ws.Root(), os.ErrNotExist)
	}
	return nil
}

// verdictAhead is what the check said before this transaction had its turn, if it was
// about the very state that the transaction would leave now. The look that this rests on
// is confirmed by a walk afterwards, as after any check (tx.drift).
func (t *tx) verdictAhead(ctx context.Context, name string) (checks.Result, bool) {
	if !t.place.asked() {
		return checks.Result{}, false
	}
	after, err := t.e.ws.After(ctx, t.stamp, t.effects)
	if err != nil {
		return checks.Result{}, false // it is asked now, and says what is wrong
	}
	res, ok := t.place.claim(state{after, t.stamp.Ignored})[name]
	return res, ok
}

// committed tells whether what the transaction announced is in the workspace.
func (t *tx) committed() bool {
	return t.answer.Outcome == receipt.Applied && !t.answer.Repeated
}
