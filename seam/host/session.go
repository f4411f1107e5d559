package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/rpc"
	"github.com/aspengine/asp/seam/wire"
)

// Transport is a connection to one harness. CloseRead makes reads end and leaves
// the other direction open, so that what is still running can be answered.
type Transport interface {
	io.Reader
	io.Writer
	CloseRead() error
	Close() error
}

// session is one connection. It implements rpc.Handler.
type session struct {
	h     *Host
	name  string
	blobs *blobSet

	// stop ends every request of the session, with the cause that it is given.
	ctx  context.Context
	stop context.CancelCauseFunc

	exit chan struct{} // closed by exit
	once sync.Once

	mu      sync.Mutex
	ended   map[int64]bool // requests that ended, by number, above low
	low     int64          // all up to this one have ended
	last    int64          // no request after this one is taken; 0 before shutdown
	plans   []string       // kept for the session, the oldest first
	changed chan struct{}  // closed and replaced when one ends
}

// The reasons for which a session ends its own requests.
var (
	errEnded    = errors.New("the harness ended the session")
	errStopping = errors.New("the host is stopping")
)

// Serve serves one harness and returns when its session has ended: after exit,
// after the end of its input, or with ctx. Requests that run then end on one side
// of their commit record and are answered where the harness still reads; none
// is left behind. The error says what broke the connection, nil for an end that the
// harness or ctx asked for. t is closed.
func (h *Host) Serve(ctx context.Context, name string, t Transport) error {
	s := &session{h: h, name: name, blobs: newBlobSet(h.o.BlobBytes, h.store), exit: make(chan struct{}),
		ended: map[int64]bool{}, changed: make(chan struct{})}
	s.ctx, s.stop = context.WithCancelCause(context.Background())
	defer s.stop(nil)
	defer s.blobs.drop()
	in := &input{r: t, ended: make(chan struct{})}
	conn := rpc.New(in, t, t.Close, s, rpc.Options{
		MessageBytes: h.o.MessageBytes, Trace: h.trace, TraceContents: h.o.TraceContents, TraceName: name, Lenient: true,
		Arrived: s.arrived,
	})
	cause := errEnded
	select {
	case <-conn.Done():
	case <-in.ended:
	case <-s.exit:
	case <-ctx.Done():
		cause = errStopping
	}
	// From here on the input has ended, and the connection ends by itself once
	// everything that was read is answered. What takes too long is cancelled, and
	// answered so. A harness that does not read the answers is not waited for; what
	// runs always is, by Close.
	_ = t.CloseRead()
	if cause == errEnded {
		wait(ctx, conn.Done(), h.o.Drain)
		if s.politely() {
			wait(ctx, conn.Done(), h.o.Finish)
		}
	}
	s.stop(cause)
	wait(context.Background(), conn.Done(), h.o.Drain)
	err := conn.Err()
	if cerr := conn.Close(); cerr != nil && err == nil {
		err = cerr
	}
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, rpc.ErrClosed) {
		return nil
	}
	return fmt.Errorf("serve %s: %w", name, err)
}

// wait waits for the end of something, at most d, nor longer than ctx.
func wait(ctx context.Context, end <-chan struct{}, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-end:
	case <-ctx.Done():
	case <-t.C:
	}
}

// input tells when a harness has nothing more to say.
type input struct {
	r     io.Reader
	ended chan struct{}
	once  sync.Once
}

func (i *input) Read(p []byte) (int, error) {
	n, err := i.r.Read(p)
	if err != nil {
		i.once.Do(func() { close(i.ended) })
	}
	return n, err
}

// keeps adds a plan to those of the session, and returns those that are too many.
func (s *session) keeps(id string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plans = append(slices.DeleteFunc(s.plans, func(x string) bool { return x == id }), id)
	n := max(0, len(s.plans)-sessionPlans)
	gone := slices.Clone(s.plans[:n])
	s.plans = slices.Delete(s.plans, 0, n)
	return gone
}

// takes tells whether the request of that number is still taken.
func (s *session) takes(seq int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last == 0 || seq < s.last
}

// politely tells whether the harness sent shutdown, which asks for what is open.
func (s *session) politely() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last != 0
}

// done notes the end of a request.
func (s *session) done(seq int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended[seq] = true
	for s.ended[s.low+1] {
		s.low++
		delete(s.ended, s.low)
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

// settled waits until every request before that number has ended; false when ctx
// ended first.
func (s *session) settled(ctx context.Context, seq int64) bool {
	for {
		s.mu.Lock()
		low, changed := s.low, s.changed
		s.mu.Unlock()
		if low >= seq-1 {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// arrived notes a shutdown when it is read: the requests run beside each other, and
// one that came later could be looked at first.
func (s *session) arrived(r rpc.Request) {
	if r.Method != methodShutdown || (&call{s: s, r: r}).decode(&struct{}{}) != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == 0 {
		s.last = r.Seq
	}
}

// Request serves one request.
func (s *session) Request(ctx context.Context, r rpc.Request) (canon.Value, *wire.Error) {
	c := &call{s: s, r: r}
	defer s.done(r.Seq)
	if r.Method == methodShutdown {
		return c.shutdown(ctx)
	}
	m := method(r.Method)
	if m == nil {
		return canon.Value{}, wire.NewError(wire.CodeMethodNotFound, wire.FailContract, fmt.Sprintf("no method %.100q on this seam", r.Method), "")
	}
	if !s.takes(r.Seq) {
		return canon.Value{}, wire.NewError(wire.CodeInvalidRequest, wire.FailContract, "the session was shut down; only exit is left", "")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.ctx, func() { cancel(context.Cause(s.ctx)) })()
	if r.Raw > largeBytes {
		select {
		case s.h.large <- struct{}{}:
			defer func() { <-s.h.large }()
		case <-ctx.Done():
			return canon.Value{}, c.wrong(ctx, ctx.Err())
		}
	}
	out, err := m(c, ctx)
	if p := (*paramsError)(nil); errors.As(err, &p) && strings.HasPrefix(r.Method, "host/") {
		err = c.misread(ctx, p)
	}
	if err != nil {
		return canon.Value{}, c.wrong(ctx, err)
	}
	return out, nil
}

// Notify serves exit. Others are none of ours, and a notification is never
// answered.
func (s *session) Notify(_ context.Context, method string, _ canon.Value) {
	if method == methodExit {
		s.once.Do(func() { close(s.exit) })
	}
}

// shutdown lets the requests that came before it end, and cancels what takes too
// long. Those that come after it are refused.
func (c *call) shutdown(ctx context.Context) (canon.Value, *wire.Error) {
	if err := c.decode(&struct{}{}); err != nil {
		return canon.Value{}, c.wrong(ctx, err)
	}
	s := c.s
	patient, cancel := context.WithTimeout(ctx, s.h.o.Finish)
	defer cancel()
	if !s.settled(patient, c.r.Seq) {
		s.stop(errEnded)
		_ = s.settled(ctx, c.r.Seq) // a connection that broke is no reason to stay
	}
	return canon.NullOf(), nil
}
