package rpc

import (
	"context"
	"fmt"
	"sync"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/wire"
	"github.com/sourcegraph/jsonrpc2"
)

// calls are the requests of ours that wait for an answer. Their ids are a table
// apart from those of the peer.
type calls struct {
	mu        sync.Mutex
	last      int64
	open      map[int64]*call
	abandoned map[int64]struct{} // given up; an answer may still come, once
	quiet     bool               // the last that was sent is a call that was answered
	late      chan struct{}      // closed and replaced whenever one of them comes
}

func (t *calls) init() {
	t.open, t.abandoned, t.late = map[int64]*call{}, map[int64]struct{}{}, make(chan struct{})
}

type call struct {
	id       int64
	answered bool // guarded by calls.mu, as are the next two
	result   canon.Value
	err      *wire.Error

	mu       sync.Mutex
	progress []canon.Value
	bytes    int64
	wake     chan struct{} // holds one
	settled  bool          // nothing more comes
}

// maxProgress bounds the progress of one call that was not looked at yet. Beyond
// it that goes: progress is advisory.
const maxProgress = 256

func (t *calls) add() *call {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last++
	k := &call{id: t.last, wake: make(chan struct{}, 1)}
	t.open[k.id], t.quiet = k, false
	return k
}

// forget removes a call that was never sent.
func (t *calls) forget(k *call) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.open, k.id)
}

// answer keeps the answer to id. False when none is waited for: unknown, or
// answered already.
func (t *calls) answer(id int64, m message) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if k := t.open[id]; k != nil {
		k.answered, k.result, k.err = true, m.result, m.err
		delete(t.open, id)
		t.quiet = true
		return true
	}
	if _, late := t.abandoned[id]; late {
		delete(t.abandoned, id)
		close(t.late)
		t.late = make(chan struct{})
		return true
	}
	return false
}

// told begins a notification of ours.
func (t *calls) told() {
	t.mu.Lock()
	t.quiet = false
	t.mu.Unlock()
}

// over is the number of the last call, if the peer has answered it, was told nothing
// since, and owes no answer; 0 otherwise.
func (t *calls) over() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.quiet || len(t.open)+len(t.abandoned) > 0 {
		return 0
	}
	return t.last
}

// settle tells whether k was answered. If not it is given up.
func (t *calls) settle(k *call) (answered bool, abandoned int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !k.answered {
		delete(t.open, k.id)
		t.abandoned[k.id] = struct{}{}
	}
	return k.answered, len(t.abandoned)
}

// progress hands a value to the call that it names; late progress has none.
func (t *calls) progress(id int64, v canon.Value, size int64) {
	t.mu.Lock()
	k := t.open[id]
	t.mu.Unlock()
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.progress) == maxProgress || k.bytes > MinMessageBytes {
		k.progress, k.bytes = k.progress[:0], 0
	}
	k.progress, k.bytes = append(k.progress, v), k.bytes+size
	k.signal()
}

func (k *call) signal() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// end lets deliver return, after what is there where keep is set.
func (k *call) end(keep bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.settled = true
	if !keep {
		k.progress = nil
	}
	k.signal()
}

// deliver calls f with the progress of k until k has ended.
func (k *call) deliver(f func(canon.Value)) {
	for range k.wake {
		for {
			k.mu.Lock()
			if len(k.progress) == 0 {
				settled := k.settled
				k.mu.Unlock()
				if settled {
					return
				}
				break
			}
			v := k.progress[0]
			k.progress = k.progress[1:]
			k.mu.Unlock()
			f(v)
		}
	}
}

// Call sends a request and waits for its answer. An error answer is a
// *wire.Error, always with data; where the peer's had none that fits, its class is
// contract. When ctx ends first, $/cancelRequest goes out behind it and the error is
// ctx's; an answer that still comes is dropped. Any other error but ErrTooLarge
// means that the connection is over.
//
// onProgress, which may be nil, gets the values of $/progress for this call in
// order, never two at a time and never after Call returned. It may miss some when it
// is slow. An answer waits for it.
func (c *Conn) Call(ctx context.Context, method string, params canon.Value, onProgress func(canon.Value)) (canon.Value, error) {
	k := c.calls.add()
	var w jsonrpc2.Waiter
	err := c.send(ctx, message{kind: request, id: canon.IntOf(k.id), method: method, params: params}, handed, func() (err error) {
		w, err = c.lib.DispatchCall(c.ctx, method, nil, jsonrpc2.PickID(jsonrpc2.ID{Num: uint64(k.id)}))
		return err
	})
	if err != nil {
		c.calls.forget(k)
		return canon.Value{}, err
	}
	var delivering sync.WaitGroup
	if onProgress != nil {
		delivering.Go(func() { k.deliver(onProgress) })
	}
	wait, stop := context.WithCancel(ctx)
	unhook := context.AfterFunc(c.ctx, stop)
	_ = w.Wait(wait, nil) // what it waited for is in our table
	unhook()
	stop()
	answered, abandoned := c.calls.settle(k)
	k.end(answered)
	delivering.Wait()
	switch {
	case answered && k.err != nil:
		return canon.Value{}, k.err
	case answered:
		return k.result, nil
	case c.Err() != nil:
		return canon.Value{}, c.gone()
	}
	if abandoned > maxAbandoned {
		c.end(&ProtocolError{Reason: fmt.Sprintf("%d requests that were cancelled are not answered", abandoned)})
	}
	c.cancelCall(k.id)
	return canon.Value{}, ctx.Err()
}

// Settled returns nil when no call that was given up is without its answer: the
// peer is done with everything that it was asked. The error is ctx's, or that the
// connection is over.
func (c *Conn) Settled(ctx context.Context) error {
	for {
		c.calls.mu.Lock()
		n, late := len(c.calls.abandoned), c.calls.late
		c.calls.mu.Unlock()
		if n == 0 {
			return nil
		}
		select {
		case <-late:
		case <-c.done:
			return c.gone()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// cancelCall tells the peer, in its turn and without keeping anybody waiting.
func (c *Conn) cancelCall(id int64) {
	m := message{kind: notification, method: cancelMethod, params: canon.ObjectOf(canon.Member{Key: "id", Value: canon.IntOf(id)})}
	c.spawn(func() {
		// The only error that can come is the end of the connection.
		_ = c.send(c.ctx, m, settled, func() error { return c.lib.Notify(c.ctx, cancelMethod, nil) })
	})
}
