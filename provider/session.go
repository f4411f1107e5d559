package provider

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"time"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/wire"
)

// grace is how long a function may still run after its context has ended, before
// the host is answered without it.
const grace = 2 * time.Second

// defaultWallclock bounds a request where the grant names no limit.
const defaultWallclock = 5 * time.Minute

// Why the context of a request ended.
var (
	errCancelled = errors.New("the host cancelled the request")
	errWallclock = errors.New("the granted time is over")
	errEnded     = errors.New("the session ended")
)

// session is the state of one Serve. Only loop touches it; functions of the
// author reach it through asks.
type session struct {
	p     *Provider
	out   io.Writer
	build string

	initialized bool // initialize was answered
	granted     bool // initialized has come
	badGrant    *Error
	stopping    bool // shutdown was answered
	baseline    Baseline
	grant       Grant
	wallclock   time.Duration

	asks      chan *ask
	work      *work           // the one request that runs
	callbacks int64           // ids given out
	forgotten map[string]bool // callbacks whose request ended before their answer came
}

// ask is a message that an author's function sends.
type ask struct {
	method string
	params canon.Value
	notify bool
	answer chan answer // one place
}

type answer struct {
	value canon.Value
	err   error
}

// work is a request while its function runs.
type work struct {
	id      canon.Value
	host    *Host
	cancel  context.CancelCauseFunc
	done    chan answer // one place
	ctx     context.Context
	end     func(cause error) answer // what to say when ctx ended
	late    *time.Timer              // nil before ctx ended
	replied bool                     // answered by end; the function still runs
	open    *ask                     // its callback
	openID  string
}

// Serve speaks with one host until it sends exit or closes r, which both give
// nil, or until the protocol is violated in a way that leaves no sense in going
// on. When ctx ends, Serve returns its cause, and closes r if that is an
// io.Closer. No goroutine is left then, but for a function of the author's that
// does not heed its context for two seconds, and for a read that a reader without
// Close does not give up.
func (p *Provider) Serve(ctx context.Context, r io.Reader, w io.Writer) error {
	if err := p.Validate(); err != nil {
		return err
	}
	s := &session{p: p, out: w, build: p.fingerprint(), asks: make(chan *ask), forgotten: map[string]bool{}}
	want := make(chan struct{}, 1)
	lines := make(chan line)
	stop := make(chan struct{})
	gone := make(chan struct{})
	go read(&frames{bufio.NewReaderSize(r, 64<<10), p.limit()}, want, lines, stop, gone)
	err := s.loop(ctx, want, lines)
	close(stop)
	if err != nil {
		if c, ok := r.(io.Closer); ok {
			c.Close() // the reader may wait for a line that nobody wants
			t := time.NewTimer(grace)
			defer t.Stop()
			select {
			case <-gone:
			case <-t.C: // a terminal, or a pipe that the runtime does not poll
			}
		}
	} else {
		<-gone // nothing was asked of it after exit, or it met the end itself
	}
	s.finish()
	return err
}

type line struct {
	text []byte
	err  error
}

// read gives one line for each want. It reads nothing that nobody asked for, so
// that after exit it is not left in a read.
func read(f *frames, want <-chan struct{}, lines chan<- line, stop <-chan struct{}, gone chan<- struct{}) {
	defer close(gone)
	for {
		select {
		case <-stop:
			return
		case <-want:
		}
		var l line
		l.text, l.err = f.next()
		select {
		case <-stop:
			return
		case lines <- l:
		}
	}
}

func (s *session) loop(ctx context.Context, want chan<- struct{}, lines <-chan line) error {
	want <- struct{}{}
	for {
		var done <-chan answer
		var ended <-chan struct{}
		var late <-chan time.Time
		var asks <-chan *ask
		if w := s.work; w != nil {
			done, asks = w.done, s.asks
			if w.late == nil {
				ended = w.ctx.Done()
			} else if !w.replied {
				late = w.late.C
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case l := <-lines:
			switch {
			case errors.Is(l.err, errTooLong):
				if err := s.unreadable("line longer than %d bytes", s.p.limit()); err != nil {
					return err
				}
			case errors.Is(l.err, io.EOF):
				return nil
			case l.err != nil:
				return fmt.Errorf("read message: %w", l.err)
			default:
				over, err := s.message(ctx, l.text)
				if err != nil || over {
					return err
				}
			}
			want <- struct{}{}
		case a := <-asks:
			if err := s.send(a); err != nil {
				return err
			}
		case <-ended:
			s.work.late = time.NewTimer(grace)
		case <-late:
			s.p.logf("the request goes on after its context ended")
			if err := s.reply(s.work.end(context.Cause(s.work.ctx))); err != nil {
				return err
			}
		case a := <-done:
			w := s.work
			if cause := context.Cause(w.ctx); cause != nil {
				a = w.end(cause)
			}
			err := error(nil)
			if !w.replied {
				err = s.reply(a)
			}
			w.stop()
			s.work = nil
			if err != nil {
				return err
			}
		}
	}
}

// finish ends what still runs.
func (s *session) finish() {
	w := s.work
	if w == nil {
		return
	}
	w.cancel(errEnded)
	t := time.NewTimer(grace)
	defer t.Stop()
	for {
		select {
		case <-w.done:
			return
		case <-s.asks: // a callback that came just now: its context has ended
		case <-t.C:
			return
		}
	}
}

// stop frees what belongs to a request, once its function has returned.
func (w *work) stop() {
	if w.late != nil {
		w.late.Stop()
	}
	w.cancel(errEnded)
}

// reply answers the request that runs and forgets its open callback.
func (s *session) reply(a answer) error {
	w := s.work
	w.replied = true
	if w.open != nil {
		s.forgotten[w.openID] = true
		w.open = nil
	}
	if a.err == nil {
		err := writeLine(s.out, resultMessage(w.id, a.value), s.p.limit())
		if !errors.Is(err, errTooLong) {
			return err
		}
		a.err = HealthError("the answer is longer than the %d bytes that a message may have; ask for less", s.p.limit())
	}
	return s.refuse(w.id, asError(a.err))
}

func (s *session) refuse(id canon.Value, e *Error) error {
	return writeLine(s.out, errorMessage(id, e), s.p.limit())
}

// asError makes an error of the protocol of any error.
func asError(err error) *Error {
	var e *Error
	var u *Unsupported
	switch {
	case errors.As(err, &e):
		return e
	case errors.As(err, &u):
		return contractError(wire.CodeMethodNotFound, "%s", u.Detail)
	}
	return wire.NewError(wire.CodeInternal, wire.FailHealth, err.Error(), "")
}

// unreadable answers a line that is no message. If a callback is open it may
// have been the answer, which will not come again.
func (s *session) unreadable(reason string, a ...any) error {
	e := contractError(wire.CodeParse, reason, a...)
	if w := s.work; w != nil && w.open != nil {
		w.open.answer <- answer{err: contractError(wire.CodeParse, "the host's answer cannot be read: "+reason, a...)}
		w.open = nil
	}
	return s.refuse(canon.NullOf(), e)
}

// message takes one line. over ends the session as agreed.
func (s *session) message(ctx context.Context, text []byte) (over bool, err error) {
	v, err := canon.Parse(text, canon.Limits{Bytes: s.p.limit() + 1})
	if err != nil {
		return false, s.unreadable("%v", err)
	}
	e, err := open(v)
	switch {
	case err != nil:
		return false, s.refuse(canon.NullOf(), contractError(wire.CodeInvalidRequest, "%v", err))
	case e.method == "":
		return false, s.answered(e)
	case e.id.Kind() == canon.Invalid:
		return s.notified(e), nil
	}
	return false, s.requested(ctx, e)
}

// answered takes the answer to our callback. An answer that was never asked for
// leaves no sense in the session.
func (s *session) answered(e envelope) error {
	k := key(e.id)
	w := s.work
	if w == nil || w.open == nil || k != w.openID {
		if s.forgotten[k] {
			delete(s.forgotten, k)
			return nil
		}
		if e.id.Kind() == canon.Null { // the host could not read something of ours
			return fmt.Errorf("the host refused a message: %s", cut(string(e.failed.Bytes()), 500))
		}
		return fmt.Errorf("an answer to %.60s, which was not asked", k)
	}
	a := answer{value: e.result}
	if e.failed.Kind() != canon.Invalid {
		var we wire.Error
		if err := wire.Decode(e.failed, &we); err != nil {
			a.err = contractError(wire.CodeInvalidRequest, "the host's error is malformed: %v", err)
		} else {
			a.err = &we
		}
	}
	w.open.answer <- a
	w.open = nil
	return nil
}

func (s *session) notified(e envelope) (over bool) {
	switch e.method {
	case wire.MethodExit:
		return true
	case wire.MethodCancel:
		var p wire.CancelParams
		if w := s.work; w != nil && wire.Decode(e.params, &p) == nil && key(p.ID) == key(w.id) {
			w.cancel(errCancelled)
		}
	case wire.MethodInitialized:
		s.takeGrant(e.params)
	case wire.MethodBaselineChanged:
		var p wire.BaselineChangedParams
		if err := wire.Decode(e.params, &p); err != nil {
			s.p.logf("workspace/baselineChanged: %v", err)
		} else {
			s.baseline = p.Baseline
		}
	default:
		s.p.logf("notification %.60q is not known", e.method)
	}
	return false
}

// requested starts a request, or answers it at once.
func (s *session) requested(ctx context.Context, e envelope) error {
	switch e.method {
	case wire.MethodInitialize:
		result, err := s.initialize(e.params)
		if err != nil {
			return s.refuse(e.id, err)
		}
		return writeLine(s.out, resultMessage(e.id, result), s.p.limit())
	case wire.MethodShutdown:
		s.stopping = true
		if s.work != nil {
			s.work.cancel(errCancelled)
		}
		return writeLine(s.out, resultMessage(e.id, canon.NullOf()), s.p.limit())
	}
	serve, family := s.route(e.method)
	switch {
	case s.stopping:
		return s.refuse(e.id, HealthError("the session is shutting down"))
	case !s.initialized:
		return s.refuse(e.id, HealthError("not initialized: initialize comes first"))
	case !s.granted:
		return s.refuse(e.id, HealthError("not initialized: the grant has not come"))
	case s.badGrant != nil:
		return s.refuse(e.id, s.badGrant)
	case serve == nil:
		return s.refuse(e.id, contractError(wire.CodeMethodNotFound, "%s does not serve %.80q", s.p.ID, e.method))
	case s.work != nil:
		return s.refuse(e.id, HealthError("one request at a time: another one runs"))
	}
	s.start(ctx, e, family, serve)
	return nil
}

// handler serves one request; a second result says what to answer when the
// context ended meanwhile.
type handler func(h *Host, params canon.Value) (run func(ctx context.Context) (canon.Value, error), end func(status wire.Status, detail string) (canon.Value, bool), err error)

func (s *session) start(ctx context.Context, e envelope, family wire.Family, serve handler) {
	limited, stop := context.WithTimeoutCause(ctx, s.wallclock, errWallclock)
	own, cancel := context.WithCancelCause(limited)
	h := &Host{s: s, ctx: own, family: family, baseline: s.baseline, grant: s.grant, request: e.id, read: map[BlobRef]bool{}}
	w := &work{id: e.id, host: h, ctx: own, done: make(chan answer, 1)}
	w.cancel = func(cause error) {
		cancel(cause)
		if errors.Is(cause, errEnded) {
			stop()
		}
	}
	s.work = w
	run, end, err := serve(h, e.params)
	w.end = func(cause error) answer {
		if errors.Is(cause, errCancelled) && end != nil {
			if v, ok := end(wire.StatusCancelled, cause.Error()); ok {
				return answer{value: v}
			}
		}
		if errors.Is(cause, errWallclock) || errors.Is(cause, context.DeadlineExceeded) {
			return answer{err: HealthError("the request took longer than the granted %d ms", s.wallclock.Milliseconds())}
		}
		return answer{err: wire.NewError(wire.CodeCancelled, wire.FailHealth, "cancelled", "")}
	}
	if err != nil {
		w.done <- answer{err: err}
		return
	}
	go func() {
		var a answer
		defer func() {
			if r := recover(); r != nil {
				s.p.logf("panic: %v\n%s", r, debug.Stack())
				a = answer{err: wire.NewError(wire.CodeInternal, wire.FailHealth, "the provider failed; its log has the place", "")}
			}
			w.done <- a
		}()
		a.value, a.err = run(own)
	}()
}

// send puts a callback or a notification of the request that runs on the wire.
func (s *session) send(a *ask) error {
	w := s.work
	if w.replied || w.ctx.Err() != nil {
		a.answer <- answer{err: context.Cause(w.ctx)}
		return nil
	}
	if a.notify {
		err := writeLine(s.out, requestMessage(canon.Value{}, a.method, a.params), s.p.limit())
		if errors.Is(err, errTooLong) {
			err = nil // advice; nobody waits for it
		}
		a.answer <- answer{}
		return err
	}
	if w.open != nil {
		a.answer <- answer{err: errors.New("a callback is open: one at a time")}
		return nil
	}
	s.callbacks++
	id := canon.StringOf(fmt.Sprintf("%s:%d", s.p.ID, s.callbacks))
	err := writeLine(s.out, requestMessage(id, a.method, a.params), s.p.limit())
	if errors.Is(err, errTooLong) {
		a.answer <- answer{err: HealthError("%s: more than the %d bytes that a message may have", a.method, s.p.limit())}
		return nil
	}
	w.open, w.openID = a, key(id)
	return err
}
