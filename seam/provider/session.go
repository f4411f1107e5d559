package provider

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/sandbox"
	"github.com/aspengine/asp/seam/manifest"
	"github.com/aspengine/asp/seam/rpc"
	"github.com/aspengine/asp/seam/wire"
)

const (
	graceCancel   = 500 * time.Millisecond // to answer a request that was cancelled
	graceShutdown = time.Second
	// graceViolation is for one that breaks the protocol, or closes its output, because it
	// is ending.
	graceViolation = 100 * time.Millisecond
	sendTimeout    = 10 * time.Second
	// maxNotes bounds what a provider may say unasked between two requests.
	maxNotes = 20_000
	maxLogs  = 200 // of those, lines for our log
)

// session is one launch of a provider. Only whoever has the turn of its entry
// uses it; the connection calls Request and Notify by itself.
type session struct {
	p        *Pool
	entry    *entry
	m        manifest.Manifest
	verified bool
	protocol string
	proc     *process
	conn     *rpc.Conn
	declared declared
	first    wire.Baseline // of the handshake
	baseline wire.Baseline // as it was told last

	// counted: the outcome of the last request counts as a failure already, so that what
	// comes after it does not. Of whoever has the turn.
	counted bool

	mu    sync.Mutex
	cur   *request // in flight
	notes int      // since the last request
	stray string   // a callback that came after its answer
}

// open launches and initializes. On a fault nothing is left of it.
func (p *Pool) open(ctx context.Context, e *entry, m manifest.Manifest, b wire.Baseline) (*session, *fault) {
	protocol, f := dialect(m)
	if f != nil {
		return nil, f
	}
	v, err := m.Verify(ctx)
	if err != nil {
		return nil, ended(ctx, launchFault(err))
	}
	defer v.Close()
	if a := artifactOf(v); a.Problem != "" {
		return nil, a.fault()
	}
	proc, f := p.start(ctx, p.life, m, v)
	if f != nil {
		return nil, ended(ctx, f)
	}
	s := &session{p: p, entry: e, m: m, verified: v.All, protocol: protocol, proc: proc}
	e.launched(s)
	p.logger().Info("provider launched", "id", m.ID, "level", proc.boundary.Level.String())
	s.conn = rpc.New(proc.out, proc.in, func() error { return errors.Join(proc.in.Close(), proc.out.Close()) }, s, rpc.Options{
		MessageBytes: p.line, Large: p.large, SendTimeout: sendTimeout, Trace: p.o.Trace, TraceContents: p.o.TraceContents, TraceName: m.ID, MaxInFlight: 4,
		Arrived: s.arrived})
	if f := s.handshake(ctx, b); f != nil {
		s.abort()
		return nil, f
	}
	return s, nil
}

// ended makes a fault of a context that ended what it is. What was not the provider's
// doing is not for being late: a caller with little time would put it in quarantine for all
// others before it was ever asked.
func ended(ctx context.Context, f *fault) *fault {
	if ctx.Err() == nil {
		return f
	}
	l := late(ctx)
	l.blameless = l.blameless || f.blameless
	return l
}

// errBudget is the cause of a context whose budget is used up.
var errBudget = errors.New("budget used up")

// late is the fault of a request whose context ended.
func late(ctx context.Context) *fault {
	if errors.Is(context.Cause(ctx), errBudget) {
		return faultOf(wire.DegradeTimedOut, wire.TimedOut, wire.FailHealth, "its time was over")
	}
	f := faultOf(wire.DegradeCancelled, wire.Cancelled, wire.FailHealth, "cancelled by the caller")
	f.blameless = true
	return f
}

// ask sends one request and waits for its answer. After a fault the session may
// be over; alive tells.
func (s *session) ask(ctx context.Context, method string, params canon.Value, q *request) (canon.Value, *fault) {
	if q.baseline != s.baseline {
		if f := s.tell(ctx, q.baseline); f != nil {
			f.untouched = f.reason == wire.DegradeCrashed
			return canon.Value{}, f
		}
	}
	if err := s.proc.sandbox.Reach(s.declared.reach); err != nil {
		return canon.Value{}, launchFault(err)
	}
	defer s.withhold()
	s.mu.Lock()
	s.cur, s.notes = q, 0
	s.mu.Unlock()
	s.entry.moved(s, wire.Active)
	v, err := s.conn.Call(ctx, method, params, nil)
	s.mu.Lock()
	s.cur = nil
	s.mu.Unlock()
	if err == nil {
		if f := q.broken(); f != nil {
			return canon.Value{}, f
		}
		return v, nil
	}
	var e *wire.Error
	if errors.As(err, &e) {
		if f := q.broken(); f != nil {
			return canon.Value{}, f
		}
		return canon.Value{}, answered(e)
	}
	f := s.failed(ctx, err)
	f.untouched = f.reason == wire.DegradeCrashed && q.untouched()
	return canon.Value{}, f
}

// tell says that the tree moved.
func (s *session) tell(ctx context.Context, b wire.Baseline) *fault {
	params, err := canon.From(wire.BaselineChangedParams{Baseline: b})
	if err != nil {
		return launchFault(err)
	}
	if err := s.conn.Notify(ctx, wire.MethodBaselineChanged, params); err != nil {
		return s.failed(ctx, err)
	}
	s.baseline = b
	return nil
}

// failed finds out what an error of the connection means. Where it was the
// context that ended, the provider is given a moment to be done with what it was asked:
// only then it may be asked again.
func (s *session) failed(ctx context.Context, err error) *fault {
	if errors.Is(err, rpc.ErrTooLarge) {
		f := faultOf(wire.DegradeError, wire.Active, wire.FailInput, "what it would be asked is larger than a message may be (%d bytes)", s.p.line)
		f.blameless = true
		return f
	}
	if s.conn.Err() == nil && ctx.Err() != nil {
		grace, cancel := context.WithTimeout(s.p.life, graceCancel)
		defer cancel()
		if s.conn.Settled(grace) != nil {
			s.abort()
		}
		return late(ctx)
	}
	return s.obituary()
}

// obituary ends a session whose connection is over and says why it is.
func (s *session) obituary() *fault {
	err := s.conn.Err()
	var violation *rpc.ProtocolError
	grace := graceExit // it is on its way out, and its exit status says something
	if errors.As(err, &violation) {
		grace = graceViolation
	}
	s.proc.reap(grace)
	s.abort()
	end := s.proc.epitaph()
	switch offence := s.offence(); {
	case offence != "":
		return malformed("%s; %s", offence, end)
	case errors.Is(err, rpc.ErrStuck):
		return faultOf(wire.DegradeTimedOut, wire.TimedOut, wire.FailHealth, "it does not read what it is sent; %s", end)
	case errors.Is(err, io.EOF) || s.p.life.Err() == nil:
		return faultOf(wire.DegradeCrashed, wire.Crashed, wire.FailHealth, "it ended while it was asked: %s", end)
	}
	f := faultOf(wire.DegradeUnavailable, wire.Exited, wire.FailHealth, "the host is closing")
	f.blameless = true
	return f
}

// offence is what it did against the protocol so far, "" for nothing.
func (s *session) offence() string {
	s.mu.Lock()
	flooded, stray := s.notes > maxNotes, s.stray
	s.mu.Unlock()
	var violation *rpc.ProtocolError
	switch {
	case flooded:
		return fmt.Sprintf("it said more than %d things unasked", maxNotes)
	case stray != "":
		return fmt.Sprintf("it called %q after its answer, when nothing was asked of it", stray)
	case errors.As(s.conn.Err(), &violation):
		return violation.Error()
	}
	return ""
}

// afterwards is the fault of what it did against the protocol when it had answered
// already: a second answer, a callback, noise. The answer stands. An error answer to
// nobody is none: that is how a provider tells of a notification that it cannot read.
func (s *session) afterwards() *fault {
	var violation *rpc.ProtocolError
	offence := s.offence()
	if offence == "" || s.counted || errors.As(s.conn.Err(), &violation) && violation.Complaint {
		return nil
	}
	return malformed("after its answer: %s", offence)
}

// alive tells whether the session can take a request.
func (s *session) alive() bool {
	select {
	case <-s.conn.Done():
		return false
	case <-s.proc.exited:
		return false
	default:
		return true
	}
}

// abort ends it at once and waits for everything of it.
func (s *session) abort() {
	s.proc.sandbox.Kill()
	_ = s.conn.Close()
	<-s.proc.exited
}

// shutdown ends it politely: shutdown, exit, the end of its input, some time, and
// then by force. A provider that knows no shutdown, or is gone before it was
// told to exit, has done nothing wrong. The fault is what it did since its last answer.
func (s *session) shutdown(ctx context.Context) (f *fault) {
	s.entry.moved(s, wire.ShuttingDown)
	grace := graceExit
	if s.alive() {
		polite, cancel := context.WithTimeout(ctx, graceShutdown)
		_, _ = s.conn.Call(polite, wire.MethodShutdown, canon.ObjectOf(), nil)
		f = s.afterwards() // what it says when it was told to go is of no matter
		_ = s.conn.Notify(polite, wire.MethodExit, canon.ObjectOf())
		cancel()
	} else {
		f, grace = s.afterwards(), graceViolation
	}
	_ = s.conn.Close()
	if ctx.Err() != nil {
		grace = 0
	}
	s.proc.reap(grace)
	s.entry.moved(s, wire.Exited)
	return f
}

// Request implements rpc.Handler: a callback.
func (s *session) Request(ctx context.Context, r rpc.Request) (canon.Value, *wire.Error) {
	s.mu.Lock()
	q := s.cur
	s.mu.Unlock()
	if q == nil {
		s.note()
		return canon.Value{}, wire.NewError(wire.CodeNotReady, wire.FailPolicy, "no request is open that this could be for", "")
	}
	return q.serve(ctx, r)
}

// arrived ends the session for a callback that came after the answer to a request. One
// that comes while it was told something, after it was cancelled or before it has the
// grant is refused and no more: it was sent by who did not know yet.
func (s *session) arrived(r rpc.Request) {
	const handshake = 1 // the number of the call
	if r.After <= handshake {
		return
	}
	s.mu.Lock()
	if s.stray == "" {
		s.stray = cut(r.Method, 100)
	}
	s.mu.Unlock()
	s.proc.sandbox.Kill()
}

// Notify implements rpc.Handler. Everything here is advice.
func (s *session) Notify(ctx context.Context, method string, params canon.Value) {
	n := s.note()
	switch method {
	case wire.MethodLogMessage:
		var l wire.LogMessageParams
		if n <= maxLogs && wire.Decode(params, &l) == nil {
			s.p.logger().Log(ctx, slog.LevelDebug, "provider says", "id", s.m.ID, "level", l.Level, "message", cut(l.Message, 1000))
		}
	case wire.MethodPublishDiagnostics:
		var d wire.PublishDiagnosticsParams
		if len(wire.ScanHostOwned(params)) == 0 && wire.Decode(params, &d) == nil {
			s.entry.publish(d)
		}
	}
}

// note counts what was said unasked; too much of it ends the session.
func (s *session) note() int {
	s.mu.Lock()
	s.notes++
	n := s.notes
	s.mu.Unlock()
	if n == maxNotes+1 {
		s.proc.sandbox.Kill()
	}
	return n
}

// mode is the boundary of the launch in the words of the protocol.
func (s *session) mode() wire.Mode {
	switch s.proc.boundary.Level {
	case sandbox.Gated:
		return wire.Gated
	case sandbox.MediatedWrite:
		return wire.MediatedWrite
	case sandbox.Isolated:
		return wire.Isolated
	}
	return wire.Advisory
}
