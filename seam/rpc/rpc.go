// Package rpc is a connection of both seams: JSON-RPC 2.0, one object a line,
// requests and notifications in both directions. It knows messages and no
// methods, except the two utilities that belong to the connection itself,
// $/cancelRequest and $/progress.
//
// The library github.com/sourcegraph/jsonrpc2 owns the read loop, pairs answers
// with calls, and ends the waiting calls with the connection. It never sees a
// message: its codecs put no bound on one, and reading through encoding/json
// would forgive what the protocol refuses (unknown and doubled members, keys
// in another case, nesting, 1.0 for an id). So it gets an ObjectStream of ours,
// which reads bounded lines into canon values, judges the envelope, keeps the
// values in tables of its own, and hands the library a card with the method or
// the number alone. The other three things that it lets happen are settled
// around it: handlers run off the read loop, because one that blocks there stops
// the answers; calls that were given up are counted, because it keeps an entry for each;
// and nobody enters its send, which takes no context, without the one slot for sending, which
// does. A line that the peer does not take within Options.SendTimeout ends the
// connection.
//
// Memory of a connection is bounded by a few times Options.MessageBytes: one line
// coming in and its tree, one line going out, and requests that run or wait, which
// together may be twice the limit. Beyond that reading pauses.
package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/wire"
	"github.com/sourcegraph/jsonrpc2"
)

// The limits of the contract, section 2, and our own.
const (
	DefaultMessageBytes = 16 << 20
	MinMessageBytes     = 8 << 20

	defaultSendTimeout = 30 * time.Second
	defaultInFlight    = 64
	maxWaiting         = 1024 // requests and notifications read and not begun
	maxAbandoned       = 1024 // calls given up and never answered
	maxIDBytes         = 1024
	maxMethodBytes     = 256
)

// ErrClosed is the cause when a connection was ended from this side.
var ErrClosed = errors.New("connection closed")

// ErrStuck is the cause when the peer did not take a line in time.
var ErrStuck = errors.New("the peer does not read")

// ErrTooLarge is the cause when a message of ours is over the limit. Nothing of
// it was sent, and the connection goes on.
var ErrTooLarge = errors.New("message over the limit")

// ProtocolError says how a peer broke the protocol. It ends a connection that
// is not lenient. Its text is bounded and quoted.
type ProtocolError struct {
	Reason  string
	Excerpt string // the start of the line, at most 200 bytes, as it came
	// Complaint: what came is an error answer to nobody, by which a peer says that it
	// could not read what it was sent.
	Complaint bool
}

func (e *ProtocolError) Error() string {
	if e.Excerpt == "" {
		return "protocol error: " + e.Reason
	}
	return fmt.Sprintf("protocol error: %s: %q", e.Reason, e.Excerpt)
}

// Request is a request of the peer.
type Request struct {
	ID     canon.Value // a string or a plain integer
	Method string
	Params canon.Value // an object or an array; no value when absent
	Raw    int64       // bytes of its line
	Seq    int64       // its number among the peer's requests, from 1, in their order of arrival
	// After is the number, from 1, of the call of ours after whose answer this came,
	// where that is the last thing that the peer was sent and it owes no answer; 0
	// otherwise. It is about the order on the line, which who serves requests beside
	// each other cannot tell.
	After int64
	// Progress sends $/progress with the request's id as token. Once the request is
	// answered it does nothing. Progress is advisory: the result alone counts.
	Progress func(ctx context.Context, value canon.Value) error
}

// Handler serves what the peer sends.
type Handler interface {
	// Request runs in a goroutine of its own. ctx ends when the peer sends
	// $/cancelRequest, and with the connection; the cause is then
	// ErrCancelled or the end of the connection. Exactly one of the results
	// is sent: the error where it is not nil.
	Request(ctx context.Context, r Request) (canon.Value, *wire.Error)
	// Notify gets notifications in the order of their arrival, never two at
	// a time. ctx ends with the connection.
	Notify(ctx context.Context, method string, params canon.Value)
}

// ErrCancelled is the cause in the context of a request that the peer cancelled.
var ErrCancelled = errors.New("cancelled by the peer")

// Options of a connection. The zero value is strict.
type Options struct {
	// MessageBytes bounds a line in either direction, its end not counted.
	// Default 16 MiB, never under 8 MiB.
	MessageBytes int64
	// Large bounds large lines over several connections; nil for no such bound.
	Large *Large
	// SendTimeout ends the connection when one line takes longer to be
	// taken. Default 30 seconds.
	SendTimeout time.Duration
	// Trace gets one JSON line for every message in either direction:
	// {t, conn, dir, bytes, message}. Content of blobs is left out unless
	// TraceContents. It must not block; after its first error it is left alone.
	Trace         io.Writer
	TraceContents bool
	TraceName     string
	// Lenient is for the peer that we serve. What is wrong with one line is
	// answered (-32700 or -32600) and the session goes on; at the end of its
	// input the requests that were read are still answered. Not lenient, the
	// first violation ends the connection with a *ProtocolError, as does
	// anything else that was not asked for; and as such a peer may be
	// one that expects nothing but the answer while a request of its own is open,
	// calls, notifications and cancellations wait until it is answered.
	Lenient bool
	// MaxInFlight bounds the requests of the peer that run at once. More
	// wait in their order. Default 64.
	MaxInFlight int
	// Arrived, if set, is told of each request of the peer in the order in which
	// they come, before it or any later one is handled. It must not block: it is
	// called where lines are read. Request.Progress is not set.
	Arrived func(Request)
}

func (o *Options) defaults() {
	if o.MessageBytes <= 0 {
		o.MessageBytes = DefaultMessageBytes
	}
	o.MessageBytes = max(o.MessageBytes, MinMessageBytes)
	if o.SendTimeout <= 0 {
		o.SendTimeout = defaultSendTimeout
	}
	if o.MaxInFlight <= 0 {
		o.MaxInFlight = defaultInFlight
	}
}

// Conn is a connection. Its methods are safe for concurrent use.
type Conn struct {
	o       Options
	handler Handler
	closing func() error
	lib     *jsonrpc2.Conn
	stream  *stream

	ctx    context.Context // ends with the connection
	cancel context.CancelCauseFunc
	done   chan struct{}
	wg     sync.WaitGroup

	spawnMu sync.Mutex
	ended   bool // no goroutine starts any more

	endOnce  sync.Once
	err      error // set before done is closed
	closeErr error

	calls   calls
	inbound inbound
}

// New starts a connection that reads r and writes w. close is called once when
// the connection ends, for whatever reason; it has to make reads of r and writes to
// w return, else Close waits for them. A write to a pipe that nobody reads must
// be an error and no signal, so w must not be the process's own standard output,
// on which the runtime makes a signal of it.
func New(r io.Reader, w io.Writer, close func() error, h Handler, o Options) *Conn {
	o.defaults()
	c := &Conn{o: o, handler: h, closing: close, done: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	c.calls.init()
	c.inbound.init()
	c.stream = newStream(c, r, w)
	c.wg.Add(1) // the read loop; ReadObject says when it is over
	c.wg.Go(c.stream.writeLines)
	c.wg.Go(c.deliverNotes)
	c.lib = jsonrpc2.NewConn(c.ctx, c.stream, c.stream, jsonrpc2.SetLogger(silent{}))
	c.stream.start()
	return c
}

// silent drops what the library would print on standard error.
type silent struct{}

func (silent) Printf(string, ...any) {}

// Done is closed when the connection has ended. Handlers may still be running
// then; Close waits for them.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err is nil before Done is closed. After it: io.EOF when the peer ended its
// output between two lines, a *ProtocolError, ErrClosed, ErrStuck or what reading and
// writing met.
func (c *Conn) Err() error {
	select {
	case <-c.done:
		return c.err
	default:
		return nil
	}
}

// Close ends the connection and waits for every goroutine of it, handlers
// included. The error is the one of the close function given to New. It must not
// be called by a handler.
func (c *Conn) Close() error {
	c.end(ErrClosed)
	c.wg.Wait()
	return c.closeErr
}

// end is called by whoever first sees that the connection is over.
func (c *Conn) end(err error) {
	c.endOnce.Do(func() {
		c.spawnMu.Lock()
		c.ended = true
		c.spawnMu.Unlock()
		c.err = err
		close(c.done)
		c.cancel(err)
		if c.closing != nil {
			c.closeErr = c.closing()
		}
	})
}

// spawn runs f in a goroutine that Close waits for, unless the connection is
// over.
func (c *Conn) spawn(f func()) {
	c.spawnMu.Lock()
	defer c.spawnMu.Unlock()
	if !c.ended {
		c.wg.Go(f)
	}
}

// Notify sends a notification and returns when its line was taken; to a strict peer
// none is sent while a request of its is open. Any error but ctx's and ErrTooLarge means
// that the connection is over.
func (c *Conn) Notify(ctx context.Context, method string, params canon.Value) error {
	c.calls.told()
	return c.send(ctx, message{kind: notification, method: method, params: params}, settled, func() error {
		return c.lib.Notify(c.ctx, method, nil)
	})
}
