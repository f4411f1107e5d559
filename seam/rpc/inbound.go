package rpc

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/wire"
	"github.com/sourcegraph/jsonrpc2"
)

// inbound is what the peer sent and what was not dealt with yet.
type inbound struct {
	mu       sync.Mutex
	byID     map[string]*inRequest // arrived and not answered
	seq      int64                 // of the last one
	running  int
	waiting  []*inRequest
	notes    []message
	noteBusy bool
	bytes    int64         // of running, waiting and notes
	wakeNote chan struct{} // holds one
	changed  chan struct{} // closed and replaced whenever there is less of something
}

type inRequest struct {
	m      message
	seq    int64
	after  int64 // Request.After
	ctx    context.Context
	cancel context.CancelCauseFunc
	done   bool // its answer is on the line; guarded by inbound.mu
}

func (in *inbound) init() {
	in.byID, in.wakeNote, in.changed = map[string]*inRequest{}, make(chan struct{}, 1), make(chan struct{})
}

// less wakes everybody who waits for less. Called with mu held.
func (in *inbound) less() {
	close(in.changed)
	in.changed = make(chan struct{})
}

// admit registers a request and numbers it; false where its id is that of an open
// one.
func (in *inbound) admit(ctx context.Context, m message, after int64) (int64, bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	key := idText(m.id)
	if in.byID[key] != nil {
		return 0, false
	}
	in.seq++
	r := &inRequest{m: m, seq: in.seq, after: after}
	r.ctx, r.cancel = context.WithCancelCause(ctx)
	in.byID[key] = r
	return r.seq, true
}

// cancel ends the context of an open request. Of one that is not open any
// more nothing has to be cancelled.
func (in *inbound) cancel(id canon.Value) {
	in.mu.Lock()
	r := in.byID[idText(id)]
	in.mu.Unlock()
	if r != nil {
		r.cancel(ErrCancelled)
	}
}

// note queues a notification.
func (in *inbound) note(m message) {
	in.mu.Lock()
	in.notes, in.bytes = append(in.notes, m), in.bytes+m.raw
	in.mu.Unlock()
	select {
	case in.wakeNote <- struct{}{}:
	default:
	}
}

// until waits for ok, which is called with mu held.
func (in *inbound) until(ok func() bool, ctx context.Context, done <-chan struct{}) error {
	for {
		in.mu.Lock()
		good, changed := ok(), in.changed
		in.mu.Unlock()
		if good {
			return nil
		}
		select {
		case <-changed:
		case <-done:
			return ErrClosed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// room returns when what waits is no more than the bounds allow.
func (in *inbound) room(bytes int64, done <-chan struct{}) {
	_ = in.until(func() bool { return in.bytes <= bytes && len(in.waiting)+len(in.notes) <= maxWaiting }, context.Background(), done)
}

// drain returns when everything that was read is dealt with.
func (in *inbound) drain(done <-chan struct{}) {
	_ = in.until(func() bool { return len(in.byID) == 0 && in.running == 0 && len(in.notes) == 0 && !in.noteBusy }, context.Background(), done)
}

func (in *inbound) untilQuiet(ctx context.Context, done <-chan struct{}) error {
	return in.until(func() bool { return len(in.byID) == 0 }, ctx, done)
}

// quiet tells that no request of the peer is open.
func (in *inbound) quiet() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.byID) == 0
}

// begin runs the request that was just admitted, or lets it wait.
func (c *Conn) begin(m message) {
	in := &c.inbound
	in.mu.Lock()
	defer in.mu.Unlock()
	r := in.byID[idText(m.id)]
	in.bytes += m.raw
	if in.running == c.o.MaxInFlight {
		in.waiting = append(in.waiting, r)
		return
	}
	in.running++
	c.spawn(func() { c.serve(r) })
}

// serve runs a request, and after it those that wait.
func (c *Conn) serve(r *inRequest) {
	for ; r != nil; r = c.inbound.finish(r) {
		c.serveOne(r)
	}
}

func (c *Conn) serveOne(r *inRequest) {
	defer r.cancel(context.Canceled)
	result, e := c.handler.Request(r.ctx, Request{ID: r.m.id, Method: r.m.method, Params: r.m.params, Raw: r.m.raw, Seq: r.seq, After: r.after,
		Progress: func(ctx context.Context, value canon.Value) error { return c.tell(ctx, r, value) }})
	c.answer(r, result, e)
}

// finish ends a request that ran and returns the one to run next, if any.
func (in *inbound) finish(ended *inRequest) *inRequest {
	in.mu.Lock()
	defer in.mu.Unlock()
	defer in.less()
	in.bytes -= ended.m.raw
	if len(in.waiting) == 0 {
		in.running--
		return nil
	}
	r := in.waiting[0]
	in.waiting[0] = nil
	in.waiting = in.waiting[1:]
	return r
}

// answer sends the answer to r. Its id is free, and r closed, from the moment
// at which the answer is the next line: a peer that has read it may use the id again.
func (c *Conn) answer(r *inRequest, result canon.Value, e *wire.Error) {
	send := func(m message) error {
		return c.send(c.ctx, m, always, func() error {
			c.inbound.close(r)
			return c.lib.SendResponse(c.ctx, &jsonrpc2.Response{})
		})
	}
	err := send(message{kind: response, id: r.m.id, result: result, err: e})
	if errors.Is(err, ErrTooLarge) {
		_ = send(message{kind: response, id: r.m.id, err: wire.NewError(wire.CodeInternal, wire.FailContract,
			fmt.Sprintf("the answer is larger than %d bytes, the limit of a message; ask for less", c.o.MessageBytes), "")})
	}
	c.inbound.close(r) // whatever came of it
}

func (in *inbound) close(r *inRequest) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if !r.done {
		r.done = true
		delete(in.byID, idText(r.m.id))
		in.less()
	}
}

var errAnswered = errors.New("answered already")

// tell sends progress for r.
func (c *Conn) tell(ctx context.Context, r *inRequest, value canon.Value) error {
	m := message{kind: notification, method: progressMethod, params: canon.ObjectOf(
		canon.Member{Key: "token", Value: r.m.id}, canon.Member{Key: "value", Value: value})}
	err := c.send(ctx, m, always, func() error {
		c.inbound.mu.Lock()
		done := r.done
		c.inbound.mu.Unlock()
		if done {
			return errAnswered
		}
		return c.lib.Notify(c.ctx, progressMethod, nil)
	})
	if errors.Is(err, errAnswered) {
		return nil
	}
	return err
}

// deliverNotes hands notifications to the handler, one after the other.
func (c *Conn) deliverNotes() {
	in := &c.inbound
	for {
		in.mu.Lock()
		var m message
		if in.noteBusy = len(in.notes) > 0; in.noteBusy {
			m = in.notes[0]
			in.notes[0] = message{}
			in.notes, in.bytes = in.notes[1:], in.bytes-m.raw
		}
		busy := in.noteBusy
		in.less()
		in.mu.Unlock()
		if busy {
			c.handler.Notify(c.ctx, m.method, m.params)
		}
		select {
		case <-c.done:
			return
		default:
		}
		if !busy {
			select {
			case <-in.wakeNote:
			case <-c.done:
				return
			}
		}
	}
}
