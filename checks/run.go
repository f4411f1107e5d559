package checks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/aspengine/asp/snapshot"
	"github.com/aspengine/asp/worktree"
)

// maxRuns is how often one check may run: once, and twice again after drift.
const maxRuns = 3

// Build makes a fresh candidate of the same after-state. Run closes it.
type Build func(ctx context.Context) (*worktree.Candidate, error)

// Drift looks at the live tree and returns the paths that changed since its
// last call (the first call: since the stamp the plan was admitted on). So one
// change is reported once, and a re-run is judged against the tree it ran on.
type Drift func(ctx context.Context) (changed []string, err error)

// Options choose how Run works. The zero value is the safe default.
type Options struct {
	// Done, if set, is called after every single run of a check, void ones too.
	Done func(Result)
	// Touched are the effects of the plan, for the runs of checks that need no
	// candidate; those of others come with theirs.
	Touched []snapshot.Effect
}

// Report is what Run found out.
type Report struct {
	// Results holds the last answer of every check, in the order given. Checks
	// that were not reached because of ChangedUnderneath are missing.
	Results []Result
	// ChangedUnderneath lists touched paths of the plan that moved in the live
	// tree while checks ran. Nothing was concluded then; the refusal is
	// changed-underneath, whatever Results says.
	ChangedUnderneath []string
	// Moved lists the untouched paths that moved, over all runs.
	Moved []string
}

// Passed tells whether nothing moved underneath and every result is Passed.
func (r Report) Passed() bool {
	return len(r.ChangedUnderneath) == 0 && !slices.ContainsFunc(r.Results, func(x Result) bool { return x.Status != Passed })
}

// Run runs the checks, first all remote ones at once, then the others one after
// another, each over its own candidate. When an untouched path of the live tree
// moved during a run, every verdict so far is about a tree that is not there any
// more: all those checks run again, each at most twice more; a check whose runs
// are used up is Stale. When a touched path moved, Run stops and says so. An
// error means that we could not tell. No goroutine is left when it returns.
func Run(ctx context.Context, list []Check, build Build, drift Drift, opts Options) (Report, error) {
	var rep Report
	slots := make([]slot, len(list))
	for i := range slots {
		slots[i].at = -1
	}
	version := 0
	for {
		next := pick(list, slots, version)
		if len(next) == 0 {
			break
		}
		touched, err := runAll(ctx, list, next, slots, build, opts)
		if err != nil {
			return rep, err
		}
		cancelled := false
		for _, i := range next {
			slots[i].at = version
			cancelled = cancelled || slots[i].res.Status == Cancelled && !isRemote(list[i])
			if opts.Done != nil {
				opts.Done(slots[i].res)
			}
		}
		if cancelled || ctx.Err() != nil {
			break
		}
		changed, err := drift(ctx)
		if err != nil {
			return rep, fmt.Errorf("stamp after check %.200q: %w", list[next[0]].Name(), err)
		}
		if len(changed) == 0 {
			continue
		}
		version++
		for _, p := range changed {
			if touches(touched, p) {
				rep.ChangedUnderneath = append(rep.ChangedUnderneath, p)
			} else {
				rep.Moved = append(rep.Moved, p)
			}
		}
		if len(rep.ChangedUnderneath) > 0 {
			break
		}
	}
	for i, s := range slots {
		switch {
		case s.res.Runs == 0 && len(rep.ChangedUnderneath) > 0:
			continue
		case s.res.Runs == 0:
			s.res = Result{Name: list[i].Name(), Status: Cancelled, Detail: "not started: cancelled"}
		case s.at != version && s.res.Status != Cancelled:
			s.res.Status, s.res.Reason, s.res.State = Stale, "", ""
			s.res.Findings, s.res.Diagnostics = nil, nil
			runs := "its run"
			if s.res.Runs > 1 {
				runs = fmt.Sprintf("each of its %d runs", s.res.Runs)
			}
			s.res.Detail = fmt.Sprintf("the workspace moved during %s (%s)", runs, sample(slices.Concat(rep.ChangedUnderneath, rep.Moved)))
		}
		rep.Results = append(rep.Results, s.res)
	}
	return rep, nil
}

// slot is the state of one check of the list.
type slot struct {
	res Result
	at  int // version of the live tree that the verdict is about
}

// pick returns the checks to run next: all remote ones whose verdict is about
// another tree, or else the first of the others.
func pick(list []Check, slots []slot, version int) []int {
	var remote []int
	local := -1
	for i, s := range slots {
		switch {
		case s.at == version || s.res.Runs >= maxRuns:
		case isRemote(list[i]):
			remote = append(remote, i)
		case local < 0:
			local = i
		}
	}
	if remote == nil && local >= 0 {
		return []int{local}
	}
	return remote
}

// alsoAsked joins what two runs of a check asked for of the network: one whose verdict is void
// reached it all the same.
func alsoAsked(before, now []string) []string {
	for _, s := range now {
		if !slices.Contains(before, s) {
			before = append(slices.Clip(before), s)
		}
	}
	return before
}

// runAll runs the checks named by next, at once if there are several, and waits
// for all of them. One slow provider must not take the others' time.
func runAll(ctx context.Context, list []Check, next []int, slots []slot, build Build, opts Options) ([]snapshot.Effect, error) {
	if !isRemote(list[next[0]]) {
		i := next[0]
		touched := opts.Touched
		res, ok := known(ctx, list[i])
		if ok {
			res.Name = list[i].Name()
		} else {
			var err error
			if res, touched, err = runOne(ctx, list[i], build); err != nil {
				return nil, err
			}
		}
		res.Runs = slots[i].res.Runs + 1
		res.Network = alsoAsked(slots[i].res.Network, res.Network)
		slots[i].res = res
		return touched, nil
	}
	errs := make([]error, len(next))
	var wg sync.WaitGroup
	for n, i := range next {
		wg.Go(func() {
			res, err := list[i].Run(ctx, nil)
			if err != nil {
				errs[n] = fmt.Errorf("run check %.200q: %w", list[i].Name(), err)
			}
			res.Name, res.Runs = list[i].Name(), slots[i].res.Runs+1
			res.Network = alsoAsked(slots[i].res.Network, res.Network)
			slots[i].res = res
		})
	}
	wg.Wait()
	return opts.Touched, errors.Join(errs...)
}

// runOne builds, runs and closes; the scratch directory is gone when it returns.
func runOne(ctx context.Context, c Check, build Build) (res Result, touched []snapshot.Effect, err error) {
	cand, err := build(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return Result{Name: c.Name(), Status: Cancelled, Detail: "cancelled while the candidate was built"}, nil, nil
		}
		if errors.Is(err, worktree.ErrUnsupported) { // and will not be when it is asked again
			return Result{Name: c.Name(), Status: Unavailable, Detail: err.Error()}, nil, nil
		}
		return res, nil, fmt.Errorf("build candidate for check %.200q: %w", c.Name(), err)
	}
	defer func() {
		if e := cand.Close(); e != nil {
			err = errors.Join(err, fmt.Errorf("remove candidate of check %.200q: %w", c.Name(), e))
		}
	}()
	res, err = c.Run(ctx, cand)
	if err != nil {
		return res, nil, fmt.Errorf("run check %.200q: %w", c.Name(), err)
	}
	res.Name = c.Name() // the host's word, not the check's
	res.Method = cand.Method
	res.Env = cand.Env
	res.Notes = append(res.Notes, cand.Notes...)
	return res, cand.Effects, nil
}

// touches tells whether a moved path is one of the plan's, lies above one or
// below one.
func touches(effects []snapshot.Effect, p string) bool {
	for _, e := range effects {
		s := e.Path.String()
		if s == p || strings.HasPrefix(s, p+"/") || strings.HasPrefix(p, s+"/") {
			return true
		}
	}
	return false
}

func sample(paths []string) string {
	slices.Sort(paths)
	paths = slices.Compact(paths)
	const show = 3
	q := make([]string, 0, show+1)
	for i, p := range paths {
		if i == show {
			q = append(q, fmt.Sprintf("and %d more", len(paths)-show))
			break
		}
		q = append(q, fmt.Sprintf("%.200q", p))
	}
	return strings.Join(q, ", ")
}
