package apply

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aspengine/asp/checks"
	"github.com/aspengine/asp/checks/command"
	"github.com/aspengine/asp/checks/policy"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/sandbox"
	"github.com/aspengine/asp/seam/provider"
	"github.com/aspengine/asp/seam/wire"
	"github.com/aspengine/asp/snapshot"
	"github.com/aspengine/asp/worktree"
)

// candidate is an after-state as it stands against the live tree now. When
// something else in the tree moves, the same after-state has another baseline.
type candidate struct {
	stamp     *snapshot.Stamp
	baseline  wire.Baseline
	changeset canon.Value
	digest    string // of changeset
	changes   []wire.Change
}

// judgement runs the checks of one call-site over one after-state and decides.
// Apply and evaluate share it, so that there is one path to a decision.
type judgement struct {
	e        *Engine
	pol      policy.Policy
	callSite wire.CallSite
	named    []string // command checks asked for by name
	applying bool
	isolate  bool          // what runs has to be isolated, if this machine can
	least    sandbox.Level // below it no command is started, because its caller would take no answer of it
	// comparison, if set, wins over what is configured for a provider.
	comparison string
	// basePolicy is what the caller believes the policy to be; "" for nothing.
	basePolicy string
	blocking   []wire.Degradation
	// own is the cause that a change to the policy which judges it is; nil: none.
	own *wire.Degradation
	// limit bounds the whole judgement beside the budget of the call-site; 0: not.
	limit time.Duration

	now     func() candidate
	base    []BaseEntry // over the live tree, where the baseline is not the live one
	listed  bool        // the change was listed from disk: the live tree is its after-state
	effects []snapshot.Effect
	took    map[snapshot.Digest][]byte // of the state before, in memory
	perm    func(snapshot.Path) (uint32, bool)
	drift   checks.Drift
	// ahead, if set, knows what a command check said of this after-state before.
	ahead   func(ctx context.Context, check string) (checks.Result, bool)
	blobs   Blobs
	started time.Time

	deadline time.Time // zero: none
	budget   time.Duration
	roster   []provider.Standing
	mu       sync.Mutex
	round    *round
	asked    atomic.Bool // somebody was started or asked: not all was known
	onTree   atomic.Bool // a command was started over a scratch tree, which shows the live one below it
	learned  []func()    // remember what was answered, once it is known that the tree stood still
	notes    []string
	faults   []*provider.Failure // of those that were asked for the impact
	network  []NetworkRecord

	report   checks.Report
	question policy.Question // what decision rests on
	decision *policy.Decision
	idle     bool // nothing was asked: there is nothing to decide again later
}

// round is what the providers are shown between two movements of the tree.
type round struct {
	cand    candidate
	content *content
	impact  func(ctx context.Context) (paths []string, why string)
	after   func(ctx context.Context) wire.Baseline // see afterState
}

// thisRound is the round of the candidate as it is now.
func (j *judgement) thisRound() *round {
	j.mu.Lock()
	defer j.mu.Unlock()
	c := j.now()
	if j.round == nil || j.round.cand.baseline != c.baseline {
		r := &round{cand: c, content: j.e.contentOf(c.stamp, j.base, c.changes, j.effects, j.blobs)}
		for d, b := range j.took {
			r.content.stored[d] = func(context.Context) ([]byte, error) { return b, nil }
		}
		var once sync.Once
		var paths []string
		var why string
		r.impact = func(ctx context.Context) ([]string, string) {
			once.Do(func() { paths, why = j.askImpact(ctx, r) })
			return paths, why
		}
		var foreseen sync.Once
		var state wire.Baseline
		r.after = func(ctx context.Context) wire.Baseline {
			foreseen.Do(func() { state = j.afterState(ctx, c) })
			return state
		}
		j.round = r
	}
	return j.round
}

// fault notes a provider that failed beside the checks. One that was only cancelled, or
// does not offer what it was asked, did not fail.
func (j *judgement) fault(f *provider.Failure) {
	if f.Reason == wire.DegradeCancelled || f.Reason == wire.DegradeUnsupported {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.faults = append(j.faults, f)
}

// learn remembers what was answered since the last call, if a look after the answers found
// the state that they are about. Else they are about another one, whatever they call it.
func (j *judgement) learn(held bool) {
	j.mu.Lock()
	learned := j.learned
	j.learned = nil
	j.mu.Unlock()
	for _, f := range learned {
		if held {
			f()
		}
	}
}

// faithful tells whether the providers were shown the state that the round names and
// nothing else.
func (j *judgement) faithful() bool {
	j.mu.Lock()
	r := j.round
	j.mu.Unlock()
	return r == nil || r.content.faithful()
}

// stood is content.stood of the round. Where it did not, the next round lists anew.
func (j *judgement) stood(ctx context.Context) (bool, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.round == nil {
		return true, nil
	}
	ok, err := j.round.content.stood(ctx)
	if !ok {
		j.round = nil
	}
	return ok, err
}

func (j *judgement) note(s string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !slices.Contains(j.notes, s) {
		j.notes = append(j.notes, s)
	}
}

// clock starts the budget. It is that of the whole host on interactive, where
// somebody waits; elsewhere each check has it.
func (j *judgement) clock(began time.Time) {
	if j.callSite == wire.Interactive {
		j.budget = j.pol.Budget(j.callSite)
	}
	if j.limit > 0 && (j.budget == 0 || j.limit < j.budget) {
		j.budget = j.limit
	}
	if j.budget > 0 {
		j.deadline = began.Add(j.budget)
	}
}

// left is how long something may take that has its own limit, 0 for none; false
// when the time is up.
func (j *judgement) left(own time.Duration) (time.Duration, bool) {
	if j.deadline.IsZero() {
		return own, true
	}
	left := time.Until(j.deadline)
	if left <= 0 {
		return 0, false
	}
	if own > 0 && own < left {
		return own, true
	}
	return left, true
}

func (j *judgement) usedUp() string {
	return fmt.Sprintf("not started: the %d ms of the request were used up before", j.budget.Milliseconds())
}

// checks lists what has to run.
func (j *judgement) checks(ctx context.Context) ([]checks.Check, error) {
	list, err := j.askProviders(ctx, !j.applying)
	if err != nil {
		return nil, err
	}
	commands, err := j.commands()
	if len(commands) > 0 {
		j.sandboxNotes()
	}
	return append(list, commands...), err
}

// commands lists the command checks that have to run.
func (j *judgement) commands() ([]checks.Check, error) {
	var list []checks.Check
	for _, c := range j.pol.Commands(j.callSite, j.named) {
		spec := j.e.commandSpec(c, j.callSite, j.isolate)
		spec.Require = max(spec.Require, j.least)
		if _, err := command.New(c.Name, spec); err != nil {
			return nil, err
		}
		l := &lazyCheck{name: c.ID()}
		l.run = func(ctx context.Context, cand *worktree.Candidate) (checks.Result, error) {
			s := spec
			var ok bool
			if s.Timeout, ok = j.left(spec.Timeout); !ok {
				return checks.Result{Status: checks.TimedOut, Detail: j.usedUp()}, nil
			}
			ck, err := command.New(c.Name, s)
			if err != nil {
				return checks.Result{}, err
			}
			j.asked.Store(true)
			j.onTree.Store(true)
			return ck.Run(ctx, cand)
		}
		if j.ahead != nil {
			l.known = func(ctx context.Context) (checks.Result, bool) { return j.ahead(ctx, l.name) }
		}
		list = append(list, l)
	}
	return list, nil
}

func (j *judgement) sandboxNotes() {
	for _, p := range j.e.cfg.Sandbox.Read {
		if _, err := os.Lstat(p); err != nil {
			j.note(fmt.Sprintf("sandbox.read names %q, which is not there", cut(p)))
		}
	}
	for _, k := range []string{"cpuPct", "memoryMb", "fileMb"} {
		switch {
		case j.e.cfg.Sandbox.Limits[k] == 0:
		case k == "cpuPct", k == "memoryMb" && !j.isolate:
			j.note("sandbox.limits." + k + " is enforced where the system gives a control group for it; the evidence of the run says whether")
		case !j.isolate:
			j.note("sandbox.limits." + k + " is not enforced here without isolation")
		}
	}
}

// run runs the checks and decides. Without a decision nothing was concluded:
// touched paths moved. Where nothing is asked of an apply the decision is to allow
// it, and says that it rests on nothing.
func (j *judgement) run(ctx context.Context) error {
	if j.started.IsZero() {
		j.started = j.e.now()
	}
	if j.deadline.IsZero() {
		j.clock(time.Now())
	}
	list, err := j.checks(ctx)
	if err != nil {
		return err
	}
	if len(list) > 0 {
		if err := j.overCandidate(ctx, list); err != nil {
			return err
		}
		if len(j.report.ChangedUnderneath) > 0 {
			return nil
		}
	}
	j.idle = j.applying && len(list) == 0 && len(j.pol.Demands(j.callSite, j.named)) == 0 && j.callSite != wire.Gate && len(j.blocking) == 0 &&
		j.own == nil && j.pol.Activation != policy.Rejected && (j.basePolicy == "" || j.basePolicy == j.pol.Digest)
	j.decide()
	return nil
}

func (j *judgement) decide() {
	j.question = policy.Question{
		CallSite: j.callSite, Named: j.named, Results: j.report.Results, Apply: j.applying, Blocking: j.blocking, Candidate: j.own,
		BasePolicyDigest: j.basePolicy,
	}
	d := policy.Decide(j.pol, j.question)
	d.Fit(j.e.cfg.Limits.Findings())
	j.decision = &d
}

// overCandidate gives every command check a scratch tree of its own, and every
// provider its callbacks, and watches the live tree for drift while they run.
func (j *judgement) overCandidate(ctx context.Context, list []checks.Check) error {
	e := j.e
	opts := checks.Options{Done: func(r checks.Result) { e.o.Before("checked " + r.Name) }, Touched: j.effects}
	if !slices.ContainsFunc(list, func(c checks.Check) bool { l, ok := c.(*lazyCheck); return ok && !l.remote }) {
		e.o.Step("asking providers")
		var err error
		j.report, err = checks.Run(ctx, list, nil, j.drift, opts)
		return err
	}
	spec, err := j.scratchSpec(j.now().stamp)
	if err != nil {
		return err
	}
	if _, err := worktree.Sweep(ctx, spec.ScratchBase); err != nil {
		j.note("left-over scratch trees: " + err.Error())
	}
	j.report, err = j.overScratch(ctx, list, spec, e.o.Step, opts)
	return err
}

// overScratch runs checks over scratch trees of the spec.
func (j *judgement) overScratch(ctx context.Context, list []checks.Check, spec worktree.Spec, step func(string), opts checks.Options) (checks.Report, error) {
	build := func(ctx context.Context) (*worktree.Candidate, error) {
		step("building the scratch tree")
		c, err := worktree.Build(ctx, spec)
		if err == nil {
			step("running checks")
		}
		return c, err
	}
	rep, err := checks.Run(ctx, list, build, j.drift, opts)
	if err != nil || !refused(rep, worktree.Overlay) && !refused(rep, worktree.Copy) {
		return rep, err
	}
	// Nothing was started. What the machine does give decides how to go on.
	if spec.Caps = worktree.Probe(ctx, spec.Root, spec.ScratchBase); spec.Caps.CanOverlay() {
		if !refused(rep, worktree.Overlay) {
			return rep, nil
		}
		// The kernel took the probe's overlay and not this one; a copy costs more
		// and shows the same tree.
		spec.Method = worktree.Copy
	}
	return checks.Run(ctx, list, build, j.drift, opts)
}

// scratchSpec is what a scratch tree over the live one, as the stamp saw it, is built by.
func (j *judgement) scratchSpec(live *snapshot.Stamp) (worktree.Spec, error) {
	e := j.e
	scratch, err := e.o.Home.Sub(home.ScratchDir)
	if err != nil {
		return worktree.Spec{}, err
	}
	scratch.Close()
	spec := worktree.Spec{
		Root: e.ws.Root(), Hide: []string{e.ws.TxDir()}, Base: live.Baseline, Effects: j.effects, ScratchBase: e.o.Home.Path(home.ScratchDir),
		StateDir: e.o.Home.Path(), Home: e.o.UserHome, Read: e.cfg.Sandbox.Read, Perm: j.perm,
		// Every launch proves its own boundary, so nothing is asked beforehand: a
		// machine that gives less refuses the launch, and is asked then.
		Caps: sandbox.Expected(),
	}
	if e.git != nil {
		spec.GitDir, spec.CommonDir, spec.Ignored = e.git.GitDir, e.git.Common, live.Ignored
	}
	return spec, nil
}

// mode is the weakest isolation of those who took part; advisory when nobody
// did.
func weakestMode(results []checks.Result, more ...checks.Isolation) checks.Isolation {
	m, some := checks.Isolated, false
	for _, r := range results {
		if tookPart(r) {
			m, some = min(m, r.Isolation), true
		}
	}
	for _, i := range more {
		m, some = min(m, i), true
	}
	if !some {
		return checks.Advisory
	}
	return m
}

// askImpact asks the inspect providers which files the change reaches. why says
// that nobody could tell.
func (j *judgement) askImpact(ctx context.Context, r *round) (paths []string, why string) {
	asked := j.pol.Assign(j.callSite, wire.Inspect, enabled(j.roster))
	if len(asked) == 0 {
		return nil, "no enabled provider tells the impact"
	}
	params := canon.ObjectOf(
		canon.Member{Key: "changeset", Value: r.cand.changeset},
		canon.Member{Key: "scope", Value: canon.StringOf(wire.ScopeWorkspace)},
	)
	for _, a := range asked {
		budget, ok := j.left(j.pol.Budget(j.callSite))
		if !ok {
			return nil, "no time was left to ask for the impact"
		}
		j.asked.Store(true)
		ans, err := j.e.o.Providers.Query(ctx, a.Provider, provider.QueryRequest{
			Method: wire.MethodImpact, Params: params, Baseline: r.cand.baseline, Content: r.content, Budget: budget,
		})
		if err != nil {
			var f *provider.Failure
			if why = "the impact could not be told"; errors.As(err, &f) {
				j.fault(f)
				why = fmt.Sprintf("the impact could not be told: %s (%s): %s", f.Provider, f.Reason, cut(f.Detail))
			}
			continue
		}
		j.mu.Lock()
		j.network = append(j.network, networkRecord(a.Provider, wire.Inspect, ans.Network)...)
		j.mu.Unlock()
		var res wire.ImpactResult
		if err := wire.Decode(ans.Value, &res); err != nil || !ans.Complete || res.Truncated != nil && *res.Truncated {
			why = fmt.Sprintf("the impact that %q tells is not complete", cut(a.Provider))
			continue
		}
		return j.impactScope(ctx, r, res.ImpactedFiles), ""
	}
	return nil, why
}

// impactScope is what the change touches and what it reaches, as far as that is
// in the after-state.
func (j *judgement) impactScope(ctx context.Context, r *round, files []string) []string {
	there := map[string]bool{}
	if tree, err := r.content.Tree(ctx); err == nil {
		for _, x := range tree {
			there[x.Path] = true
		}
	}
	var out []string
	for _, c := range r.cand.changes {
		if c.Kind == wire.KindDelete {
			there[c.Path] = false
		}
		if c.From != "" {
			there[c.From] = false
		}
	}
	for _, c := range r.cand.changes {
		if c.Kind != wire.KindDelete {
			there[c.Path] = true
		}
		out = append(out, c.Path)
	}
	for _, f := range files {
		if there[f] {
			out = append(out, f)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
