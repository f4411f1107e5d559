package apply

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aspengine/asp/apply/commit"
	"github.com/aspengine/asp/apply/exchange"
	"github.com/aspengine/asp/checks/command"
	"github.com/aspengine/asp/checks/policy"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/internal/lock"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/sandbox"
	"github.com/aspengine/asp/seam/wire"
	"github.com/aspengine/asp/snapshot"
)

// OuterProtocol is the version of the outer seam that status reports.
const OuterProtocol = "asp-outer/1.0"

// Status is what `asp status` shows beside the protocol's result.
type Status struct {
	Result    wire.StatusResult
	Stamp     *snapshot.Stamp
	Attention []commit.AttentionPath
	Staged    []Waiting // proposals that wait for `asp publish`, by id
	Left      []string  // directories of an exchange beside the workspace that hold what only a person can judge
	Open      []string  // transactions that run now, or that were interrupted
	// Running tells that those of Open are being carried out at this moment. Otherwise a
	// crash left them, and whoever writes next ends them first. Meaningless without Open.
	Running bool
}

// OpenWords say of the open transactions which of the two they are; "" without one, and
// where a person has to decide, which is told apart.
func (s Status) OpenWords() string {
	switch {
	case len(s.Open) == 0 || len(s.Attention) > 0:
		return ""
	case s.Running:
		return "a transaction runs now"
	}
	return "a transaction was interrupted: the next command that writes ends it first, all old or all new; `asp recover` does so now"
}

// Status looks at the workspace and its trusted state. It writes a receipt, and notes
// in the state which baseline it gave out and what the machine answered; a transaction
// that is running is not waited for. Without a request digest it is that of host/status
// with empty params.
func (e *Engine) Status(ctx context.Context, q SurfaceRequest) (Status, error) {
	started := e.now()
	var s Status
	// The machine takes its time to answer, and so does the look at the workspace.
	asked := make(chan []wire.Mode, 1)
	go func() { asked <- e.assuranceModes(ctx) }()
	modes := sync.OnceValue(func() []wire.Mode { return <-asked })
	defer modes()
	var err error
	if s.Stamp, err = e.ws.Stamp(ctx, snapshot.StampOptions{Watched: true}); err != nil {
		return s, err
	}
	base := e.issue(s.Stamp.Baseline, started)
	if s.Open, s.Running, err = e.openNow(); err != nil {
		return s, err
	}
	if s.Attention, err = commit.Attention(ctx, e.env(e.extraDirs())); err != nil {
		return s, err
	}
	if s.Left, err = exchange.Left(e.exchangeEnv()); err != nil {
		return s, err
	}
	if s.Staged, err = e.stagedNow(ctx); err != nil {
		return s, err
	}
	r := &s.Result
	r.Host = wire.StatusHost{Name: "asp", Version: e.o.Version, OuterProtocol: OuterProtocol, State: "ready", BindingCandidate: "json-rpc-stdio"}
	r.Workspace = wire.StatusWorkspace{Root: valid(e.ws.Root()), Baseline: base, ValidAsOf: base}
	if len(s.Attention) > 0 {
		r.Host.State = "degraded"
		r.Workspace.StaleReason = "an interrupted transaction needs attention: run `asp recover`"
	} else {
		r.Workspace.StaleReason = s.OpenWords()
	}
	r.Policy = wire.StatusPolicy{Source: e.pol.Source, Activation: e.activation(s.Stamp), PolicyDigest: e.pol.Digest, LocalOverride: e.localOverride()}
	roster, err := e.roster(ctx)
	if err != nil {
		return s, err
	}
	u := e.surfaceOf(e.look(ctx, roster))
	r.Servers = u.servers()
	if r.Host.State == "ready" && degradedServers(r.Servers) {
		r.Host.State = "degraded"
	}
	r.Gates = wire.Gates{Interactive: u.gate(wire.Interactive), Gate: u.gate(wire.Gate), Sweep: u.gate(wire.Sweep)}
	r.Capabilities = u.coverage()
	r.AssuranceCapabilities = modes()
	if q.RequestDigest == "" {
		q.RequestDigest = RequestDigest("host/status", canon.ObjectOf())
	}
	cov := wire.Coverage{Exhaustive: true, Required: []string{}, Enrolled: []string{}, Ran: []string{}, Degraded: []wire.Degradation{}}
	r.Receipt, err = e.surfaceReceipt(ctx, wire.ReceiptStatus, q, base, cov, u, started)
	return s, err
}

// openNow lists the open transactions and tells whether somebody carries them out: who
// does holds the workspace lock. Without one they are listed again while nobody can begin
// or end one, so that none that ended meanwhile is taken for an interrupted one.
func (e *Engine) openNow() (open []string, running bool, err error) {
	if open, err = e.openTransactions(); err != nil || len(open) == 0 {
		return nil, false, err
	}
	free, err := lock.WhileFree(e.ws.LockDir(), func() (err error) {
		open, err = e.openTransactions()
		return err
	})
	return open, !free, err
}

// openTransactions lists what lies in the transaction directory.
func (e *Engine) openTransactions() ([]string, error) {
	d, err := e.fs.OpenRoot(e.ws.TxDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("a transaction of another user runs or was interrupted here, and what it left cannot be read; run asp as that user: %w", err)
	}
	if err != nil {
		return nil, err
	}
	defer d.Close()
	es, err := d.List()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // it ended while we looked
	}
	if err != nil {
		return nil, err
	}
	var out []string
	for _, x := range es {
		out = append(out, x.Name)
	}
	return out, nil
}

// localOverride reports .asp/local.json, which never has authority.
func (e *Engine) localOverride() *wire.LocalOverride {
	lo := &wire.LocalOverride{AuthorityEffect: "none"}
	st, err := e.root.Lstat(".asp/local.json")
	if err == nil && st.Kind == vfs.KindFile {
		p := ".asp/local.json"
		lo.Present, lo.Path = true, &p
		lo.Detail = "advisory only"
		if d, err := e.root.OpenDir(".asp"); err == nil {
			b, err := home.ReadFile(d, "local.json", policy.MaxFile)
			if err == nil {
				forbidden, problem := policy.ReadLocal(b)
				if len(forbidden) > 0 {
					lo.Detail += "; it must not hold " + strings.Join(forbidden, ", ") + ", which has no effect"
				}
				if problem != "" {
					lo.Detail += "; it cannot be read: " + problem
				}
			}
			d.Close()
		}
	}
	return lo
}

func (e *Engine) commandDemand(cs wire.CallSite, id string) bool {
	for _, m := range e.pol.Demands(cs, nil) {
		if m.ID == id && m.Command != nil {
			return true
		}
	}
	return false
}

// Caps says what the sandbox can do here, see Machine.
func (e *Engine) Caps(ctx context.Context) (sandbox.Caps, error) {
	c, _, err := e.caps(ctx)
	return c, err
}

func (e *Engine) caps(ctx context.Context) (sandbox.Caps, time.Time, error) {
	d, err := e.o.Home.Sub(home.ScratchDir)
	if err != nil {
		return sandbox.Caps{}, time.Time{}, err
	}
	defer d.Close()
	c, until := e.o.Machine.capsOf(ctx, e.ws.Root(), e.o.Home.Path(home.ScratchDir))
	return c, until, nil
}

// Isolation is what a launch of a check proves here with what is configured: isolated, or
// what is had of it. It is tried with nothing in it, see Machine; every other launch
// proves its own.
func (e *Engine) Isolation(ctx context.Context) (sandbox.Boundary, error) {
	caps, err := e.Caps(ctx)
	if err != nil {
		return sandbox.Boundary{}, err
	}
	b, _, err := e.isolation(ctx, caps)
	return b, err
}

func (e *Engine) isolation(ctx context.Context, caps sandbox.Caps) (sandbox.Boundary, time.Time, error) {
	return e.o.Machine.proofOf(ctx, caps, e.like(), e.o.Home.Path(home.ScratchDir))
}

// like is what the launch that tries isolation is told: what is configured for checks.
func (e *Engine) like() sandbox.Spec {
	like := sandbox.Spec{Egress: e.cfg.Sandbox.Network, Gateway: command.Gateway, Limits: e.limits(), Hide: []string{e.o.Home.Path()}, Protect: []sandbox.Protect{{Path: e.ws.Root()}}}
	if e.git != nil {
		like.Protect = append(like.Protect, sandbox.Protect{Path: e.git.GitDir})
	}
	if e.o.UserHome != "" {
		like.Hide = append(like.Hide, e.o.UserHome)
	}
	like.Read = slices.Clone(e.cfg.Sandbox.Read)
	for _, d := range filepath.SplitList(os.Getenv("PATH")) {
		if filepath.IsAbs(d) {
			like.Read = append(like.Read, filepath.Clean(d))
		}
	}
	return like
}

// Mounts says what the file systems of the workspace and of the trusted state
// can promise.
func (e *Engine) Mounts() (workspace, state commit.MountFacts, err error) {
	if workspace, err = commit.ProbeMount(e.root); err != nil {
		return
	}
	state, err = commit.ProbeMount(e.state.Dir())
	return
}

// Policy is the active policy.
func (e *Engine) Policy() policy.Policy { return e.pol }

// Git tells whether the workspace is a git work tree.
func (e *Engine) Git() bool { return e.ws.Git() }
