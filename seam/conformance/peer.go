package conformance

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"sync"
	"time"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/wire"
)

// lineLimit is the longest line that the suite reads: a little over what any
// host may send by default.
const lineLimit = 20 << 20

// patience is how long an answer may take before it counts as missing. It is far
// more than any budget that the suite sets.
const patience = 60 * time.Second

// answer is what came for one request: a result or an error.
type answer struct {
	method string
	params canon.Value
	result canon.Value
	err    *wire.Error
	at     time.Duration // from request to answer
}

// callback answers a request of the other side.
type callback func(method string, params canon.Value) (canon.Value, *wire.Error)

// peer is one end of a connection: a child process that speaks a JSON object a
// line. Its reader is its own; nothing of the host's is shared, so a mistake in
// one cannot hide the same mistake in the other.
type peer struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	answer callback // nil: a request of the other side is a violation

	write sync.Mutex
	mu    sync.Mutex
	next  int
	open  map[string]chan answer
	notes []canon.Value // notifications, the last few hundred
	wrong []string      // violations of the protocol by the other side

	stderr tail
	done   chan struct{} // closed when the process is gone and reaped
	status error
}

// start runs argv and talks to it. The caller ends it with close.
func start(argv, env []string, dir string, cb callback) (*peer, error) {
	p := &peer{cmd: exec.Command(argv[0], argv[1:]...), answer: cb, open: map[string]chan answer{}, done: make(chan struct{})}
	p.cmd.Env, p.cmd.Dir = env, dir
	ownGroup(p.cmd)
	p.cmd.Stderr = &p.stderr
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	p.in = in
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.read(out)
		p.status = p.cmd.Wait()
		p.mu.Lock()
		for id, c := range p.open {
			close(c)
			delete(p.open, id)
		}
		p.mu.Unlock()
		close(p.done)
	}()
	return p, nil
}

func (p *peer) read(out io.Reader) {
	r := bufio.NewReaderSize(out, 64<<10)
	var calls sync.WaitGroup
	defer calls.Wait()
	for {
		line, err := readLine(r, lineLimit)
		if len(line) > 0 {
			p.line(line, &calls)
		}
		if err != nil {
			if err != io.EOF {
				p.violation("%v", err)
				io.Copy(io.Discard, out) // the other side must not hang on a full pipe
			}
			return
		}
	}
}

// readLine returns one line without its end; at the end of input, what is left
// with io.EOF.
func readLine(r *bufio.Reader, limit int) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > limit {
			return nil, fmt.Errorf("a line of more than %d bytes", limit)
		}
		if err == bufio.ErrBufferFull {
			continue
		}
		if errors.Is(err, io.ErrClosedPipe) || err != nil && err != io.EOF {
			err = io.EOF
		}
		return bytes.TrimRight(line, "\r\n"), err
	}
}

func (p *peer) violation(format string, a ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.wrong) < 20 {
		p.wrong = append(p.wrong, clip(fmt.Sprintf(format, a...), 300))
	}
}

func (p *peer) line(line []byte, calls *sync.WaitGroup) {
	v, err := canon.Parse(line, canon.Limits{Bytes: lineLimit})
	if err != nil {
		p.violation("stdout holds what is no message: %v: %.80q", err, line)
		return
	}
	if text(v, "jsonrpc") != "2.0" {
		p.violation("a message without jsonrpc 2.0: %.120q", line)
		return
	}
	id, hasID := v.Get("id")
	method := text(v, "method")
	switch {
	case method != "" && hasID:
		calls.Go(func() { p.serve(id, method, at(v, "params")) })
	case method != "":
		p.mu.Lock()
		if p.notes = append(p.notes, v); len(p.notes) > 300 {
			p.notes = p.notes[1:]
		}
		p.mu.Unlock()
	case hasID:
		p.take(id, v)
	default:
		p.violation("a message that is neither request nor answer: %.120q", line)
	}
}

// serve answers one request of the other side.
func (p *peer) serve(id canon.Value, method string, params canon.Value) {
	if p.answer == nil {
		p.violation("a request %q from a side that has none", method)
		p.send(object(member("jsonrpc", "2.0"), member("id", id), member("error", object(member("code", wire.CodeMethodNotFound), member("message", "no such method")))))
		return
	}
	result, e := p.answer(method, params)
	m := object(member("jsonrpc", "2.0"), member("id", id))
	if e != nil {
		ev, err := canon.From(*e)
		if err != nil {
			return
		}
		p.send(m.With("error", ev))
		return
	}
	p.send(m.With("result", result))
}

func (p *peer) take(id, v canon.Value) {
	key := string(id.Bytes())
	p.mu.Lock()
	c, ok := p.open[key]
	delete(p.open, key)
	p.mu.Unlock()
	result, isResult := v.Get("result")
	e, isError := v.Get("error")
	if !ok {
		// The answer to a line that could not be read has no id; see rawAnswer.
		if id.Kind() == canon.Null && isError {
			p.mu.Lock()
			p.notes = append(p.notes, v)
			p.mu.Unlock()
			return
		}
		p.violation("an answer to no request of ours: id %s", clip(key, 60))
		return
	}
	a := answer{result: result}
	switch {
	case isResult == isError || v.Len() != 3:
		p.violation("an answer that is not exactly one of result and error: %.200q", v.Bytes())
		close(c)
		return
	case isError:
		a.err = new(wire.Error)
		if err := wire.Decode(e, a.err); err != nil {
			p.violation("an error outside its shape: %v: %.200q", err, e.Bytes())
		}
	}
	c <- a
	close(c)
}

func (p *peer) send(v canon.Value) error { return p.sendLine(append(v.Bytes(), '\n')) }

// sendLine sends bytes as they are.
func (p *peer) sendLine(line []byte) error {
	p.write.Lock()
	defer p.write.Unlock()
	_, err := p.in.Write(line)
	return err
}

func (p *peer) notify(method string, params canon.Value) error {
	return p.send(object(member("jsonrpc", "2.0"), member("method", method), member("params", params)))
}

// pending is a request without an answer yet.
type pending struct {
	id     int
	method string
	params canon.Value
	c      chan answer
	from   time.Time
}

// ask sends a request and does not wait.
func (p *peer) ask(method string, params canon.Value) (*pending, error) {
	p.mu.Lock()
	p.next++
	q := &pending{id: p.next, method: method, params: params, c: make(chan answer, 1), from: time.Now()}
	p.open[strconv.Itoa(q.id)] = q.c
	p.mu.Unlock()
	m := object(member("jsonrpc", "2.0"), member("id", q.id), member("method", method))
	if params.Kind() != canon.Invalid {
		m = m.With("params", params)
	}
	if err := p.send(m); err != nil {
		return nil, fmt.Errorf("send %s: %w (%s)", method, err, clip(p.stderr.String(), 300))
	}
	return q, nil
}

// wait takes the answer to a request; an error means that none came.
func (p *peer) wait(ctx context.Context, q *pending) (answer, error) {
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case a, ok := <-q.c:
		if !ok {
			return answer{}, fmt.Errorf("%s: no answer, the connection ended: %s", q.method, clip(p.stderr.String(), 400))
		}
		a.method, a.params, a.at = q.method, q.params, time.Since(q.from)
		return a, nil
	case <-p.done:
		select { // both may be ready
		case a, ok := <-q.c:
			if ok {
				a.method, a.params, a.at = q.method, q.params, time.Since(q.from)
				return a, nil
			}
		default:
		}
		return answer{}, fmt.Errorf("%s: no answer, the process ended: %v: %s", q.method, p.status, clip(p.stderr.String(), 400))
	case <-t.C:
		return answer{}, fmt.Errorf("%s: no answer within %v", q.method, patience)
	case <-ctx.Done():
		return answer{}, ctx.Err()
	}
}

// call asks and waits.
func (p *peer) call(ctx context.Context, method string, params canon.Value) (answer, error) {
	q, err := p.ask(method, params)
	if err != nil {
		return answer{}, err
	}
	return p.wait(ctx, q)
}

// violations lists what the other side did against the protocol so far.
func (p *peer) violations() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.wrong...)
}

// close ends input and waits for the process; after the time given it kills the
// group. It tells whether the process ended by itself with status 0.
func (p *peer) close(after time.Duration) error {
	p.in.Close()
	t := time.NewTimer(after)
	defer t.Stop()
	select {
	case <-p.done:
		return p.status
	case <-t.C:
		p.kill()
		return fmt.Errorf("did not end within %v of the end of its input", after)
	}
}

// kill ends the process and its group, and reaps it.
func (p *peer) kill() {
	killGroup(p.cmd)
	p.in.Close()
	<-p.done
}

// tail keeps the last part of a stream.
type tail struct {
	mu sync.Mutex
	b  []byte
}

const tailBytes = 8 << 10

// Write implements io.Writer.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.b = append(t.b, b...); len(t.b) > tailBytes {
		t.b = append([]byte(nil), t.b[len(t.b)-tailBytes:]...)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.b)
}
