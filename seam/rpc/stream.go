package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/wire"
	"github.com/sourcegraph/jsonrpc2"
)

// stream is what the library reads, writes and hands requests to.
type stream struct {
	c     *Conn
	in    *lines
	w     io.Writer
	trace *tracer
	ready chan struct{} // closed once the connection is put together

	current message // the request or notification just read; only the read loop touches it

	// slot is held from before a line is put together until it was taken, so
	// that there is one such line, and so that waiting for one's turn heeds a context.
	slot chan struct{}
	hold outgoing      // belongs to who has the slot
	out  chan outgoing // holds one; only who has the slot puts one in

	over sync.Once
}

type outgoing struct {
	line    []byte
	written chan struct{} // closed when the line was taken
}

func newStream(c *Conn, r io.Reader, w io.Writer) *stream {
	in := newLines(r, c.o.MessageBytes, readAhead)
	in.large, in.done = c.o.Large, c.done
	in.late = func() {
		c.end(&ProtocolError{Reason: fmt.Sprintf("a message of more than %d bytes that did not end within %v", largeLine, largeTime)})
	}
	return &stream{c: c, in: in, w: w, trace: newTracer(c.o), ready: make(chan struct{}),
		slot: make(chan struct{}, 1), out: make(chan outgoing, 1)}
}

func (s *stream) start() { close(s.ready) }

// Close is called by the library when it ends, which is after its read loop met
// an error of ours, or with the context of the connection.
func (s *stream) Close() error {
	s.c.end(ErrClosed)
	return nil
}

// ReadObject reads up to the next message that the library has to know of, and
// fills into, its own message type, from a card.
func (s *stream) ReadObject(into any) error {
	<-s.ready
	for {
		line, err := s.in.next()
		if err != nil {
			if err = s.broken(line, err); err != nil {
				return s.ended(err)
			}
			continue
		}
		m, v, bad := parse(line, s.c.o.MessageBytes)
		if bad == nil {
			s.trace.message("in", len(line), v)
			bad = s.take(m)
		} else {
			s.trace.text("in", line, bad.reason)
		}
		if bad != nil {
			if err := s.refuse(line, bad); err != nil {
				if p := (*ProtocolError)(nil); errors.As(err, &p) {
					p.Complaint = m.kind == response && m.id.Kind() == canon.Null && m.err != nil
				}
				return s.ended(err)
			}
			continue
		}
		if card := s.card(m); card != nil {
			if err := json.Unmarshal(card, into); err != nil {
				return s.ended(err)
			}
			return nil
		}
	}
}

// card is the message for the library: nothing of it but what it pairs and
// routes by. None where the connection itself has dealt with it.
func (s *stream) card(m message) []byte {
	switch {
	case m.kind == response && m.id.Kind() == canon.Number:
		return []byte(`{"id":` + m.id.Str() + `,"result":0}`)
	case m.kind == request:
		s.current = m
		return append(canon.AppendString([]byte(`{"id":0,"method":`), m.method), '}')
	case m.kind == notification && m.method != cancelMethod && m.method != progressMethod:
		s.current = m
		return append(canon.AppendString([]byte(`{"method":`), m.method), '}')
	}
	return nil
}

// take does what has to be done in the order of arrival: it finds the call that
// an answer belongs to, registers a request, cancels one, and tells progress.
func (s *stream) take(m message) *violation {
	c := s.c
	switch {
	case m.kind == response:
		n, ok := m.id.Int()
		if !ok || !c.calls.answer(n, m) {
			return unasked(m)
		}
	case m.kind == request:
		after := c.calls.over()
		seq, ok := c.inbound.admit(c.ctx, m, after)
		if !ok {
			return &violation{wire.CodeInvalidRequest, fmt.Sprintf("id %.100s is that of a request which is still open", m.id.Bytes()), canon.NullOf()}
		}
		if c.o.Arrived != nil {
			c.o.Arrived(Request{ID: m.id, Method: m.method, Params: m.params, Raw: m.raw, Seq: seq, After: after})
		}
	case m.method == cancelMethod:
		id, ok := m.params.Get("id")
		if !ok || m.params.Len() != 1 || !goodID(id) {
			return &violation{wire.CodeInvalidRequest, cancelMethod + " takes {id}", canon.NullOf()}
		}
		c.inbound.cancel(id)
	case m.method == progressMethod:
		token, _ := m.params.Get("token")
		value, ok := m.params.Get("value")
		if !ok || m.params.Len() != 2 || !goodID(token) {
			return &violation{wire.CodeInvalidRequest, progressMethod + " takes {token, value}", canon.NullOf()}
		}
		if n, ok := token.Int(); ok {
			c.calls.progress(n, value, m.raw)
		}
	}
	return nil
}

// unasked is the violation that an answer to nothing is.
func unasked(m message) *violation {
	bad := &violation{0, fmt.Sprintf("an answer to id %.100s, which waits for none", m.id.Bytes()), canon.NullOf()}
	if m.id.Kind() == canon.Null && m.err != nil {
		bad.reason = fmt.Sprintf("the peer could not read a message of ours: %d %.200q", m.err.Code, m.err.Message)
	}
	return bad
}

// broken deals with what is no line. A nil error means that reading goes on.
func (s *stream) broken(line []byte, err error) error {
	switch {
	case errors.Is(err, errTooLong):
		bad := &violation{wire.CodeParse, fmt.Sprintf("a line of more than %d bytes, which is the limit of a message", s.c.o.MessageBytes), canon.NullOf()}
		s.trace.text("in", line, bad.reason)
		return s.refuse(line, bad)
	case errors.Is(err, errUnterminated):
		bad := &violation{wire.CodeParse, "the input ends inside a line", canon.NullOf()}
		s.trace.text("in", line, bad.reason)
		if err := s.refuse(line, bad); err != nil {
			return err
		}
		err = io.EOF
	}
	if errors.Is(err, io.EOF) && s.c.o.Lenient {
		s.c.inbound.drain(s.c.done)
	}
	return err
}

// refuse answers a violation, or ends the connection for it.
func (s *stream) refuse(line []byte, bad *violation) error {
	if !s.c.o.Lenient {
		return &ProtocolError{Reason: bad.reason, Excerpt: string(line[:min(len(line), 200)])}
	}
	if bad.code == 0 {
		return nil // answering an answer could go on for ever
	}
	m := message{kind: response, id: bad.id, err: wire.NewError(bad.code, wire.FailContract, bad.reason, "")}
	return s.c.send(s.c.ctx, m, always, func() error { return s.c.lib.SendResponse(s.c.ctx, &jsonrpc2.Response{}) })
}

// ended tells the connection that its read loop is over.
func (s *stream) ended(err error) error {
	s.over.Do(func() {
		s.in.release()
		s.c.end(err)
		s.c.wg.Done()
	})
	return err
}

// Handle is called on the read loop, right after ReadObject.
func (s *stream) Handle(context.Context, *jsonrpc2.Conn, *jsonrpc2.Request) {
	m := s.current
	s.current = message{}
	if m.kind == notification {
		s.c.inbound.note(m)
	} else {
		s.c.begin(m)
	}
	s.c.inbound.room(2*s.c.o.MessageBytes, s.c.done)
}

// WriteObject hands on the line of who has the slot. What the library would write
// is a card again. It never blocks: out is empty while the slot is free.
func (s *stream) WriteObject(any) error {
	s.out <- s.hold
	return nil
}

// writeLines is the only writer.
func (s *stream) writeLines() {
	for {
		select {
		case o := <-s.out:
			stuck := time.AfterFunc(s.c.o.SendTimeout, func() {
				s.c.end(fmt.Errorf("send: %w for %v", ErrStuck, s.c.o.SendTimeout))
			})
			_, err := s.w.Write(o.line)
			stuck.Stop()
			if err != nil {
				s.c.end(fmt.Errorf("send: %w", err))
				return
			}
			close(o.written)
			<-s.slot
		case <-s.c.done:
			return
		}
	}
}

// when says what a line waits for beside its turn.
type when uint8

const (
	always  when = iota // sent in its turn, and returned from when it was taken
	settled             // not while a request of a strict peer is open; returned from when taken
	handed              // as settled, and returned from as soon as it is the writer's
)

// send puts m on the line in its turn. enter has to lead through the library to
// WriteObject. ctx counts until the line begins: half a line cannot be taken back.
func (c *Conn) send(ctx context.Context, m message, w when, enter func() error) error {
	s := c.stream
	if err := s.acquire(ctx, w != always && !c.o.Lenient); err != nil {
		return err
	}
	v := m.value()
	line := v.Append(nil)
	if n := int64(len(line)); n > c.o.MessageBytes {
		<-s.slot
		return fmt.Errorf("send %.100q: %w: %d bytes, at most %d", m.method, ErrTooLarge, n, c.o.MessageBytes)
	}
	o := outgoing{append(line, '\n'), make(chan struct{})}
	s.hold = o
	s.trace.message("out", len(line), v)
	if err := enter(); err != nil {
		<-s.slot
		if c.Err() != nil {
			return c.gone()
		}
		return err
	}
	if w == handed {
		return nil
	}
	select {
	case <-o.written:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.done:
		return c.gone()
	}
}

// acquire takes the slot for sending. Quietly means: not while a request of the
// peer is open.
func (s *stream) acquire(ctx context.Context, quietly bool) error {
	for {
		if err := ctx.Err(); err != nil && s.c.ctx.Err() == nil {
			return err
		}
		if quietly {
			if err := s.c.inbound.untilQuiet(ctx, s.c.done); s.c.Err() != nil {
				return s.c.gone()
			} else if err != nil {
				return err
			}
		}
		select {
		case <-s.c.done:
			return s.c.gone()
		case <-ctx.Done():
			if s.c.Err() != nil {
				return s.c.gone()
			}
			return ctx.Err()
		case s.slot <- struct{}{}:
		}
		if !quietly || s.c.inbound.quiet() {
			return nil
		}
		<-s.slot
	}
}

// gone is the error of who meets the end of the connection.
func (c *Conn) gone() error {
	if err := c.Err(); errors.Is(err, ErrClosed) {
		return err
	} else if errors.Is(err, io.EOF) {
		return errors.Join(ErrClosed, fmt.Errorf("by the peer: %w", err))
	} else {
		return fmt.Errorf("connection ended: %w", err)
	}
}

// idText spells an id as a key: text and number never collide.
func idText(id canon.Value) string {
	if id.Kind() == canon.String {
		return strconv.Quote(id.Str())
	}
	return id.Str()
}
