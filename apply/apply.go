// Package apply is the engine: it takes the workspace lock, recovers what a
// crash left, and leads one plan through the stages of the contract's
// transaction in an order that one can read in one function (transaction.go).
// It decides nothing that another room decides: shape is editplan's, facts are
// preconditions', opinions are checks', what follows from them is
// checks/policy's, live bytes are apply/commit's.
//
// Lock order: workspace lock, then the receipt store's own short lock.
package apply

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/aspengine/asp/apply/commit"
	"github.com/aspengine/asp/checks/policy"
	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/internal/lock"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/receipt"
	"github.com/aspengine/asp/snapshot"
	"github.com/aspengine/asp/snapshot/gitbase"
)

// Options are what an engine is opened with. The zero value of every optional
// member is the safe default.
type Options struct {
	Dir     string // a directory in the workspace
	Home    *home.Home
	FS      vfs.FS // nil: the real one
	Version string
	Now     func() time.Time // nil: the system's clock
	// Step is told what the engine is doing, for progress.
	Step func(what string)
	// Recovered is told of the transactions of an earlier crash that were ended before a
	// plan was made or a change judged, by the request that does that. An apply and
	// Recover answer with theirs instead.
	Recovered func([]commit.Recovered)
	// Lenient opens with a configuration that cannot be read as if there were none,
	// for commands that repair and look; ConfigProblem says what is wrong.
	Lenient bool
	// Providers are the enrolled providers of the workspace; nil: none takes part.
	// Whoever made them ends them, after the engine.
	Providers Providers
	// Verdicts remembers what they answered; nil: nothing is remembered.
	Verdicts *Verdicts
	// Machine is what other engines were told of the machine; nil: one of its own.
	Machine *Machine
	// Shares is an engine of a process that lives on, with Reside called on it. If
	// this one opens the same git work tree, it looks at it through that engine's
	// memory, and if it opens the same workspace, it waits for it in that engine's
	// line, and its checks may run meanwhile. It outlives this one. nil: each engine looks and waits for itself.
	Shares *Engine
	// UserHome is the user's home directory, hidden from checks.
	UserHome string
	// Before, if set, runs before each numbered stage; tests use it to change
	// the workspace at a known moment.
	Before func(stage string)
}

// Engine works on one workspace. One goroutine at a time.
type Engine struct {
	o      Options
	fs     vfs.FS
	ws     snapshot.Workspace
	git    *gitbase.Repo // nil outside git
	root   vfs.Dir
	former []vfs.Dir // roots that another took the place of (rebind)
	state  *home.State
	line   *lock.Line // of those in this process who wait for the workspace
	// waiting are the applies among them, judged before their turn.
	waiting *waiting
	cfg     policy.Config
	pol     policy.Policy
	// isEnrolled: a person trusted the repository to bring a policy.
	isEnrolled  bool
	enrolment   policy.Enrolment
	receipts    *receipt.Store
	packs       *snapshot.Store
	gitDirs     map[string]vfs.Dir // by absolute path: where the index lies
	now         func() time.Time
	problem     error
	dirty       func() (int64, error) // nil: what the host says; see commit.Env
	applied     atomic.Int64          // transactions of those who share this one; see turnToLook
	judgedPacks atomic.Int64          // the same of packs of what was judged; see trimJudged
}

// Open opens the workspace that holds o.Dir and its trusted state. Nothing in
// the workspace is changed. The caller closes the engine.
func Open(ctx context.Context, o Options) (_ *Engine, err error) {
	e := &Engine{o: o, fs: o.FS, now: o.Now}
	if e.fs == nil {
		e.fs = vfs.OS{}
	}
	if e.now == nil {
		e.now = time.Now
	}
	if e.o.Machine == nil {
		e.o.Machine = NewMachine()
	}
	if e.o.Step == nil {
		e.o.Step = func(string) {}
	}
	if e.o.Recovered == nil {
		e.o.Recovered = func([]commit.Recovered) {}
	}
	if e.o.Before == nil {
		e.o.Before = func(string) {}
	}
	defer func() {
		if err != nil {
			e.Close()
		}
	}()
	var enrolled policy.Enrolment
	if e.cfg, enrolled, err = policy.Load(o.Home); err != nil {
		if !o.Lenient {
			return nil, err
		}
		e.problem = err
	}
	places, err := gitbase.Discover(ctx, o.Dir)
	plain := errors.Is(err, gitbase.ErrNoRepository)
	if err != nil && !plain {
		return nil, err
	}
	id := home.Identity{Root: places.Root, GitDir: places.GitDir}
	if plain {
		if id.Root, err = realDir(o.Dir); err != nil {
			return nil, err
		}
	}
	if err := o.Home.CheckOutside(id.Root); err != nil {
		return nil, err
	}
	if e.state, err = o.Home.Workspace(id); err != nil {
		return nil, err
	}
	if s := o.Shares; s != nil && s.state.ID == e.state.ID {
		e.line, e.waiting = s.line, s.waiting
	} else {
		e.line, e.waiting = lock.NewLine(e.state.Path(home.QueueFile)), newWaiting()
	}
	if err := e.openTree(ctx, id.Root, places, plain); err != nil {
		return nil, err
	}
	if e.root, err = e.fs.OpenRoot(e.ws.Root()); err != nil {
		return nil, fmt.Errorf("open workspace: %w", err)
	}
	if e.git != nil {
		d, err := e.fs.OpenRoot(e.git.GitDir)
		if err != nil {
			return nil, fmt.Errorf("open git directory: %w", err)
		}
		e.gitDirs = map[string]vfs.Dir{e.git.GitDir: d}
	}
	boot := ""
	if o.Shares != nil {
		boot = o.Shares.receipts.Boot() // the machine boots under no process
	}
	if e.receipts, err = receipt.Open(e.state, receipt.Options{Retention: retention(e.cfg), Now: e.now, Boot: boot}); err != nil {
		return nil, err
	}
	packs, err := e.state.Sub(home.Packs)
	if err != nil {
		return nil, err
	}
	e.packs = snapshot.OpenStore(packs, storeLimits(e.cfg))
	if e.pol, err = e.activePolicy(ctx, enrolled); err != nil {
		return nil, err
	}
	if o.Providers != nil {
		o.Providers.Demand(e.least(), e.wantsIsolated())
	}
	return e, nil
}

// openTree opens the work tree at root, or shares the one of an engine that keeps it.
func (e *Engine) openTree(ctx context.Context, root string, places gitbase.Places, plain bool) (err error) {
	if s := e.o.Shares; s != nil && s.git != nil && !plain && s.git.Places == places {
		e.ws, e.git = resident{s.git}, s.git
		return nil
	}
	so := snapshot.Options{State: e.state.Dir()}
	if plain {
		e.ws, err = snapshot.OpenPlain(ctx, root, so)
		return err
	}
	ws, err := gitbase.OpenPlaces(ctx, places, so)
	if err != nil {
		return err
	}
	e.ws = ws
	e.git, _ = ws.(*gitbase.Repo)
	return nil
}

// resident is a work tree that another engine owns.
type resident struct{ *gitbase.Repo }

// Close leaves it open.
func (resident) Close() error { return nil }

// Reside makes the engine keep what it sees of its workspace in memory, and watch
// it, for the engines that name it in Options.Shares. Outside of git it does
// nothing. To be called once, before anybody shares it.
func (e *Engine) Reside() {
	if e.git != nil {
		e.git.Reside(gitbase.ResidentOptions{})
	}
}

// Close releases everything. Safe on a half-opened engine.
func (e *Engine) Close() error {
	var errs []error
	if e.receipts != nil {
		// What no barrier covered yet is in the page cache, and that is all that was
		// promised of it; the handles would pile up in a process that lives on.
		e.receipts.Batch().Drop()
	}
	if e.root != nil {
		errs = append(errs, e.root.Close())
	}
	for _, d := range e.former {
		errs = append(errs, d.Close())
	}
	for _, d := range e.gitDirs {
		errs = append(errs, d.Close())
	}
	if e.ws != nil {
		errs = append(errs, e.ws.Close())
	}
	if e.state != nil {
		errs = append(errs, e.state.Close())
	}
	return errors.Join(errs...)
}

// Root is the absolute path of the work tree.
func (e *Engine) Root() string { return e.ws.Root() }

// Roots are the absolute paths by which the workspace is known: the resolved one,
// and the one that was asked for.
func (e *Engine) Roots() []string {
	roots := []string{e.ws.Root()}
	if abs, err := filepath.Abs(e.o.Dir); err == nil && abs != roots[0] {
		if real, err := filepath.EvalSymlinks(abs); err == nil && real == roots[0] {
			roots = append(roots, abs)
		}
	}
	return roots
}

// PathInfo is what the repository says of paths now, in their order.
func (e *Engine) PathInfo(ctx context.Context, paths []snapshot.Path) ([]snapshot.PathInfo, error) {
	return e.ws.PathInfo(ctx, paths)
}

// ConfigProblem says why the configuration could not be read; nil if it could.
func (e *Engine) ConfigProblem() error { return e.problem }

// Receipts is the store of this workspace's receipts.
func (e *Engine) Receipts() *receipt.Store { return e.receipts }

// Config is the trusted configuration.
func (e *Engine) Config() policy.Config { return e.cfg }

func realDir(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if abs, err = filepath.EvalSymlinks(abs); err != nil {
		return "", err
	}
	fi, err := os.Stat(abs)
	if err != nil {
		return "", err
	}
	if !fi.IsDir() {
		return "", fmt.Errorf("open workspace %.200q: not a directory", dir)
	}
	return abs, nil
}

// env is the place that commit works in.
func (e *Engine) env(extra map[string]vfs.Dir) commit.Env {
	return commit.Env{FS: e.fs, Root: e.root, TxDir: e.ws.TxDir(), Protected: e.protected(), Extra: extra, Dirty: e.dirty, Boot: e.receipts.Boot()}
}

// protected are the directories that no plan may enter, by identity.
func (e *Engine) protected() []vfs.Stat {
	p := append([]vfs.Stat(nil), e.ws.Protected()...)
	if st, err := e.o.Home.Dir().Stat(); err == nil {
		p = append(p, st)
	}
	return p
}

// opener makes an Open function of bytes.
func opener(b []byte) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) { return readBytes(b), nil }
}
