package provider

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/aspengine/asp/checks"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/sandbox"
	"github.com/aspengine/asp/seam/manifest"
	"github.com/aspengine/asp/seam/rpc"
	"github.com/aspengine/asp/seam/wire"
)

const (
	defaultIdle = 5 * time.Minute
	// A provider that failed is started again after a wait that doubles.
	firstBackOff = 100 * time.Millisecond
	maxBackOff   = 5 * time.Second
	// unknownRev is the baseline of a provider that is warmed before the pool was
	// told one.
	unknownRev = "tree:unknown"
	// largePlaces is how many providers may be inside a large message at once: with
	// what parsing one of 16 MiB takes there is no room for a second in 200 MiB.
	largePlaces = 1
)

// Pool holds the providers of one workspace: started on demand, kept warm, stopped
// when idle. It is safe for concurrent use. Whoever makes one must Close it.
type Pool struct {
	o       Options
	limits  Limits
	line    int64
	large   *rpc.Large
	ledger  *ledger
	board   *board
	gallery *gallery

	life   context.Context // of every process; ends with Close
	end    context.CancelFunc
	asking context.Context // of every request; ends when Close waits no longer
	hurry  context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	entries  map[string]*entry
	baseline wire.Baseline
	demand   demand
}

// demand is how well a launch has to be confined.
type demand struct {
	require sandbox.Level
	isolate bool
}

// more tells that d asks for something that o did not.
func (d demand) more(o demand) bool { return d.require > o.require || d.isolate && !o.isolate }

// New makes a pool. Nothing is launched.
func New(o Options) *Pool {
	if o.Callbacks <= 0 {
		o.Callbacks = defaultCallbacks
	}
	if o.Idle <= 0 {
		o.Idle = defaultIdle
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Version == "" {
		o.Version = "0"
	}
	if o.MessageBytes <= 0 {
		o.MessageBytes = rpc.DefaultMessageBytes
	}
	p := &Pool{o: o, limits: o.Sandbox.Limits.filled(), line: max(o.MessageBytes, rpc.MinMessageBytes), large: rpc.NewLarge(largePlaces),
		board: &board{dir: o.State}, gallery: &gallery{dir: o.State}, ledger: &ledger{dir: o.State, now: o.Now, mem: quarantineState{Format: 1}}, entries: map[string]*entry{}}
	p.Demand(o.Sandbox.Require, o.Sandbox.Isolate)
	p.life, p.end = context.WithCancel(context.Background())
	p.asking, p.hurry = context.WithCancel(p.life)
	return p
}

func (p *Pool) logger() *slog.Logger {
	if p.o.Log != nil {
		return p.o.Log
	}
	return slog.New(slog.DiscardHandler)
}

var errClosed = errors.New("the pool of providers is closed")

// Demand says how well providers have to be confined from now on. One that runs and
// was launched for less is ended and launched anew with its next request, whatever that
// launch then proves; one that was launched for more stays. What was answered before
// says itself what its launch proved.
func (p *Pool) Demand(require sandbox.Level, isolate bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.demand = demand{max(require, sandbox.Advisory), isolate}
}

func (p *Pool) demanded() demand {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.demand
}

// entry is the one of id. It errs after Close.
func (p *Pool) entry(id string) (*entry, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errClosed
	}
	e := p.entries[id]
	if e == nil {
		e = newEntry(id)
		p.entries[id] = e
	}
	return e, nil
}

func (p *Pool) isClosed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

// spawn runs f in a goroutine that Close waits for; false after Close.
func (p *Pool) spawn(f func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.wg.Go(f)
	return true
}

// Close ends every provider and waits until each process and goroutine of the
// pool is gone. Requests that run fail. ctx bounds the polite part, which is
// some seconds at most.
func (p *Pool) Close(ctx context.Context) error {
	p.mu.Lock()
	first := !p.closed
	p.closed = true
	var all []*entry
	for _, e := range p.entries {
		all = append(all, e)
	}
	p.mu.Unlock()
	if first {
		polite, cancel := context.WithTimeout(ctx, graceShutdown+graceExit)
		unhook := context.AfterFunc(polite, p.hurry)
		var stops sync.WaitGroup
		for _, e := range all {
			stops.Go(func() { p.retire(polite, e) })
		}
		stops.Wait()
		unhook()
		cancel()
		p.end()
	}
	p.wg.Wait()
	return nil
}

// retire stops the provider of e when its turn comes. A request that ctx does not
// wait for is cancelled.
func (p *Pool) retire(ctx context.Context, e *entry) {
	e.mu.Lock()
	if e.timer != nil {
		e.timer.Stop()
	}
	e.mu.Unlock()
	e.turn <- struct{}{}
	p.bury(ctx, e)
	p.post(e)
	<-e.turn
}

// turn is one use of a provider by one caller.
type turn struct {
	p    *Pool
	e    *entry
	mode wire.Mode
	m    manifest.Manifest
	s    *session // nil where it could not be started
	// state is where its provider was when the request was over.
	state wire.Lifecycle
	// network is what its provider asked the proxy of its sandbox for.
	network []string
}

func (t *turn) participant() checks.Participant {
	out := participant(t.m, t.mode, t.s)
	if out.State = t.state; out.State == "" {
		out.State = t.e.lifecycle()
	}
	return out
}

// use gives f the provider id, launched and initialized, while nobody else has
// it, and counts what comes of it. ctx bounds all of it.
func (p *Pool) use(ctx context.Context, id string, budget time.Duration, b wire.Baseline, f func(ctx context.Context, t *turn) *fault) (t *turn, out *fault) {
	t = &turn{p: p, m: manifest.Manifest{ID: id}}
	e, err := p.entry(id)
	if err != nil {
		t.e = newEntry(id)
		return t, launchFault(err)
	}
	t.e = e
	if budget <= 0 {
		budget = p.limits.Wall
	}
	ctx, cancel := context.WithTimeoutCause(ctx, min(budget, maxWall), errBudget)
	defer cancel()
	defer context.AfterFunc(p.asking, cancel)()
	var ok bool
	if t.mode, ok = p.enabled(id); !ok {
		return t, missing("it is not enabled for this repository; asp repo enable %s", id)
	}
	if t.m, err = p.o.Registry.Get(ctx, id); err != nil {
		t.m.ID = id
		return t, ended(ctx, missing("its manifest cannot be used: %s", err))
	}
	select {
	case e.turn <- struct{}{}:
	case <-ctx.Done():
		f := late(ctx)
		f.blameless = true // it was another request that took the time
		return t, f
	}
	e.asked = nil
	defer func() {
		t.network = e.asked
		p.release(e)
	}()
	if p.isClosed() {
		return t, launchFault(errClosed) // Close had its turn already
	}
	warm := e.session
	if out = p.ready(ctx, t, b); out == nil {
		out = f(ctx, t)
	}
	if out != nil && out.untouched && warm != nil && t.s == warm {
		// It ended by itself after its last answer, and that was not seen yet. What
		// it does with this request is for a new launch to show.
		e.session = nil
		if out = p.ready(ctx, t, b); out == nil {
			out = f(ctx, t)
		}
	}
	if out != nil && out.movedOn(t.s, b) {
		// Providers exist that ignore workspace/baselineChanged and then find every
		// question stale. One that is asked anew from the start has no such excuse.
		p.drop(e)
		again := p.ready(ctx, t, b)
		if again == nil {
			again = f(ctx, t)
		}
		e.deaf = e.deaf || again == nil
		out = again
	}
	p.settle(t, out)
	return t, out
}

// movedOn tells that f may come of a session that was begun at another baseline
// than b.
func (f *fault) movedOn(s *session, b wire.Baseline) bool {
	return s != nil && s.first != b && s.alive() && (f.reason == wire.DegradeError || f.reason == wire.DegradeStale)
}

func (p *Pool) enabled(id string) (wire.Mode, bool) {
	if p.o.Enabled == nil || p.o.Registry == nil {
		return "", false
	}
	return p.o.Enabled(id)
}

// ready makes sure that the session of t is there and can be asked.
func (p *Pool) ready(ctx context.Context, t *turn, b wire.Baseline) *fault {
	if s := t.e.session; s != nil && (!s.alive() || !canon.Equal(s.m.Value, t.m.Value) || t.e.deaf && s.first != b || p.demanded().more(s.proc.demand) || !slices.Equal(s.proc.reach, p.reach(t.m))) {
		p.drop(t.e)
	}
	q, failures, last, err := p.ledger.standing(t.e.id)
	if err != nil {
		return launchFault(err)
	}
	if q != nil {
		p.drop(t.e)
		f := faultOf(wire.DegradeQuarantined, wire.Quarantined, wire.FailHealth,
			"in quarantine until %s after %d failures in a row, the last: %s; `asp server reset %s` ends it",
			q.Until.UTC().Format(time.RFC3339), q.Failures, q.Reason, t.e.id)
		f.blameless = true
		return f
	}
	if t.e.session == nil {
		if f := p.backOff(ctx, failures, last); f != nil {
			return f
		}
		s, f := p.open(ctx, t.e, t.m, b)
		if f != nil {
			return f
		}
		t.e.session = s
		p.spawn(func() { p.mourn(t.e, s) })
	}
	t.s = t.e.session
	return nil
}

// backOff waits before a provider that failed is started again.
func (p *Pool) backOff(ctx context.Context, failures int, last time.Time) *fault {
	if failures == 0 {
		return nil
	}
	wait := maxBackOff
	if failures < 6 {
		wait = firstBackOff << (failures - 1)
	}
	wait -= p.o.Now().Sub(last)
	if wait <= 0 || wait > maxBackOff {
		return nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		f := late(ctx)
		f.blameless = true // it is us who wait
		return f
	}
}

// drop ends the session of e, politely where that works.
func (p *Pool) drop(e *entry) { p.bury(p.life, e) }

// bury ends the session of e, if there is one, and counts what the provider did against
// the protocol after its last answer: that one stands, and was no success.
func (p *Pool) bury(ctx context.Context, e *entry) {
	if e.session == nil {
		return
	}
	f := e.session.shutdown(ctx)
	if said := e.session.proc.sandbox.Withhold(); len(said) > 0 {
		p.logger().Info("provider asked for the network when nothing was asked of it, in vain", "id", e.id, "asked", said)
	}
	e.session = nil
	if f == nil {
		return
	}
	e.came(f)
	p.logger().Warn("provider failed", "id", e.id, "reason", string(f.reason), "detail", f.detail)
	if err := p.ledger.failed(e.id, string(f.reason)+": "+f.detail, e.forgiven); err != nil {
		p.logger().Warn("quarantine not kept", "id", e.id, "error", err.Error())
	}
}

// mourn waits for the end of a connection and then for the turn, so that a provider
// that ends, or is ended for what it did, between two requests is seen at once.
func (p *Pool) mourn(e *entry, s *session) {
	<-s.conn.Done()
	select {
	case e.turn <- struct{}{}:
	case <-p.life.Done():
		return
	}
	defer func() { <-e.turn }()
	if e.session == s {
		p.drop(e)
		p.post(e)
	}
}

// settle counts the outcome of a turn.
func (p *Pool) settle(t *turn, f *fault) {
	e := t.e
	counts := f != nil && !f.blameless && (f.class == wire.FailHealth || f.class == wire.FailContract)
	if s := e.session; s != nil {
		if s.counted = counts; f == nil {
			e.moved(s, wire.Initialized)
		} else if f.reason == wire.DegradeMalformed || !s.alive() {
			p.drop(e) // what broke the contract once is begun anew
		}
	}
	e.came(f)
	t.state = e.lifecycle()
	var err error
	switch {
	case f == nil:
		e.forgiven, err = p.ledger.forget(e.id)
	case counts:
		p.logger().Warn("provider failed", "id", e.id, "reason", string(f.reason), "detail", f.detail)
		err = p.ledger.failed(e.id, string(f.reason)+": "+f.detail, quarantine{})
	}
	if s := e.session; s != nil && !s.alive() {
		p.drop(e)
	}
	p.post(e)
	if err != nil {
		p.logger().Warn("quarantine not kept", "id", e.id, "error", err.Error())
	}
}

// release gives the turn back and lets the idle time begin.
func (p *Pool) release(e *entry) {
	if e.session != nil {
		e.mu.Lock()
		if e.timer == nil {
			e.timer = time.AfterFunc(p.o.Idle, func() { p.spawn(func() { p.idle(e) }) })
		} else {
			e.timer.Reset(p.o.Idle)
		}
		e.mu.Unlock()
	}
	<-e.turn
}

// idle stops a provider that nobody wants.
func (p *Pool) idle(e *entry) {
	select {
	case e.turn <- struct{}{}:
		p.drop(e)
		<-e.turn
	default: // it is in use; its release starts the clock again
	}
}

// BaselineChanged tells the providers that run that the tree moved; each when
// no request of its is open.
func (p *Pool) BaselineChanged(b wire.Baseline) {
	p.mu.Lock()
	p.baseline = b
	all := make([]*entry, 0, len(p.entries))
	for _, e := range p.entries {
		all = append(all, e)
	}
	p.mu.Unlock()
	for _, e := range all {
		p.spawn(func() {
			select {
			case e.turn <- struct{}{}:
			case <-p.life.Done():
				return
			}
			defer func() { <-e.turn }()
			p.mu.Lock()
			now := p.baseline
			p.mu.Unlock()
			if s := e.session; s != nil && s.alive() && s.baseline != now {
				ctx, cancel := context.WithTimeoutCause(p.life, sendTimeout, errBudget)
				defer cancel()
				_ = s.tell(ctx, now) // its end is seen by the next request
			}
		})
	}
}

// Warm launches and initializes a provider that does not run. Its end is in
// the Standing.
func (p *Pool) Warm(ctx context.Context, id string) Standing {
	p.mu.Lock()
	b := p.baseline
	p.mu.Unlock()
	if b.Rev == "" {
		b.Rev = unknownRev
	}
	_, f := p.use(ctx, id, 0, b, func(context.Context, *turn) *fault { return nil })
	s := p.Standing(ctx, id)
	if f != nil {
		if s.Artifact = f.artifact; s.Failure == "" {
			s.Failure = f.detail
		}
	}
	return s
}

// Reset ends the quarantine of a provider and forgets its failures, and what it
// published before.
func (p *Pool) Reset(id string) error {
	_, err := p.ledger.forget(id)
	return errors.Join(err, p.board.keep(id, Ambient{}))
}
