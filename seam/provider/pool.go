package provider

import (
	"context"
	"time"

	"github.com/aspengine/asp/checks"
	"github.com/aspengine/asp/seam/wire"
	"github.com/aspengine/asp/worktree"
)

// Pool holds the providers of one workspace: started on demand, kept warm, stopped
// when idle. It is safe for concurrent use. Whoever makes one must Close it.
type Pool struct {
	o Options
}

// New makes a pool. Nothing is launched.
func New(o Options) *Pool { return &Pool{o: o} }

// Close ends every provider and waits until each process and goroutine of the
// pool is gone. ctx bounds the polite part.
func (p *Pool) Close(ctx context.Context) error { return nil }

// Check is the provider as a check of s. budget bounds each run, launch included; 0 is
// the longest request allowed.
func (p *Pool) Check(id string, s Subject, set Settings, budget time.Duration) checks.Check {
	return &check{p, id, s, set, budget}
}

type check struct {
	p      *Pool
	id     string
	s      Subject
	set    Settings
	budget time.Duration
}

func (c *check) Name() string { return checks.ProviderPrefix + c.id }
func (c *check) Remote() bool { return true }

func (c *check) Run(ctx context.Context, _ *worktree.Candidate) (checks.Result, error) {
	return checks.Result{Name: c.Name(), Status: checks.Unavailable, Detail: "not available yet"}, nil
}

// Propose asks for a plan. The error is a *Failure, or ctx's.
func (p *Pool) Propose(ctx context.Context, id string, q ProposeRequest) (Proposal, error) {
	return Proposal{}, unavailable(id)
}

// Query asks an inspect verb. The error is a *Failure, or ctx's.
func (p *Pool) Query(ctx context.Context, id string, q QueryRequest) (Answer, error) {
	return Answer{}, unavailable(id)
}

func unavailable(id string) error {
	return &Failure{Provider: id, Reason: wire.DegradeUnavailable, State: wire.Unavailable, Class: wire.FailHealth, Detail: "not available yet"}
}

// BaselineChanged tells the providers that run that the tree moved; each before its
// next request, never during one.
func (p *Pool) BaselineChanged(b wire.Baseline) {}

// Standing is how a provider stands. It launches nothing.
func (p *Pool) Standing(ctx context.Context, id string) Standing { return Standing{ID: id} }

// Roster is the standing of every provider that is registered, by id.
func (p *Pool) Roster(ctx context.Context) ([]Standing, error) { return nil, nil }

// Warm launches and initializes a provider that does not run.
func (p *Pool) Warm(ctx context.Context, id string) Standing { return Standing{ID: id} }

// Reset ends the quarantine of a provider and forgets its failures.
func (p *Pool) Reset(id string) error { return nil }
