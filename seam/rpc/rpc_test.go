package rpc_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/rpc"
	"github.com/aspengine/asp/seam/wire"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// handler is made of functions; a nil one answers method not found.
type handler struct {
	request func(ctx context.Context, r rpc.Request) (canon.Value, *wire.Error)
	notify  func(ctx context.Context, method string, params canon.Value)
}

func (h handler) Request(ctx context.Context, r rpc.Request) (canon.Value, *wire.Error) {
	if h.request == nil {
		return canon.Value{}, wire.NewError(wire.CodeMethodNotFound, wire.FailContract, "no such method", "")
	}
	return h.request(ctx, r)
}

func (h handler) Notify(ctx context.Context, method string, params canon.Value) {
	if h.notify != nil {
		h.notify(ctx, method, params)
	}
}

// peer is the other end, spoken to in lines.
type peer struct {
	t    *testing.T
	c    *rpc.Conn
	in   *os.File // what we write is read by the connection
	out  *bufio.Reader
	read *os.File
}

// dial starts a connection over two pipes. Everything is closed with the test.
func dial(t *testing.T, h rpc.Handler, o rpc.Options) *peer {
	t.Helper()
	r, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c := rpc.New(r, w, func() error { return errors.Join(r.Close(), w.Close()) }, h, o)
	p := &peer{t: t, c: c, in: in, out: bufio.NewReader(out), read: out}
	t.Cleanup(func() {
		_ = c.Close()
		_ = in.Close()
		_ = out.Close()
	})
	return p
}

func (p *peer) write(s string) {
	p.t.Helper()
	if _, err := io.WriteString(p.in, s); err != nil {
		p.t.Fatalf("write %.60q: %v", s, err)
	}
}

func (p *peer) line() canon.Value {
	p.t.Helper()
	s, err := p.out.ReadBytes('\n')
	if err != nil {
		p.t.Fatalf("read: %v after %q", err, s)
	}
	v, err := canon.Parse(s, canon.Limits{Bytes: 64 << 20})
	if err != nil {
		p.t.Fatalf("read %.200q: %v", s, err)
	}
	return v
}

// expect reads a line and compares it in canonical form.
func (p *peer) expect(want string) {
	p.t.Helper()
	if got := p.line(); !canon.Equal(got, value(p.t, want)) {
		p.t.Fatalf("got  %.400s\nwant %.400s", got.Bytes(), want)
	}
}

func (p *peer) ended() error {
	p.t.Helper()
	select {
	case <-p.c.Done():
		return p.c.Err()
	case <-time.After(time.Minute):
		p.t.Fatal("the connection does not end")
		return nil
	}
}

func value(t testing.TB, s string) canon.Value {
	t.Helper()
	v, err := canon.Parse([]byte(s), canon.Limits{})
	if err != nil {
		t.Fatalf("%.100q: %v", s, err)
	}
	return v
}

// echo answers with the params.
func echo(_ context.Context, r rpc.Request) (canon.Value, *wire.Error) { return r.Params, nil }

func TestCall(t *testing.T) {
	p := dial(t, handler{}, rpc.Options{})
	type answer struct {
		v   canon.Value
		err error
	}
	got := make(chan answer, 1)
	var progress []string
	call := func() {
		v, err := p.c.Call(t.Context(), "check/evaluate", value(t, `{"a":1}`), func(v canon.Value) { progress = append(progress, string(v.Bytes())) })
		got <- answer{v, err}
	}
	go call()
	p.expect(`{"jsonrpc":"2.0","id":1,"method":"check/evaluate","params":{"a":1}}`)
	for i := range 3 {
		p.write(fmt.Sprintf(`{"jsonrpc":"2.0","method":"$/progress","params":{"token":1,"value":{"kind":"report","percentage":%d}}}`+"\n", i))
	}
	p.write(`{"jsonrpc":"2.0","method":"$/progress","params":{"token":"1","value":{"kind":"other"}}}` + "\n")
	p.write("\r\n \n" + `{"id":1,"jsonrpc":"2.0","result":{"b":null}}` + "\r\n")
	if a := <-got; a.err != nil || string(a.v.Bytes()) != `{"b":null}` {
		t.Fatalf("answer %s, %v", a.v.Bytes(), a.err)
	}
	if s := strings.Join(progress, " "); s != `{"kind":"report","percentage":0} {"kind":"report","percentage":1} {"kind":"report","percentage":2}` {
		t.Errorf("progress %s", s)
	}
	for _, c := range []struct {
		data  string
		class wire.FailClass
	}{
		{`,"data":{"failClass":"input","detail":"d"}`, wire.FailInput}, {``, wire.FailContract}, {`,"data":null`, wire.FailContract},
		{`,"data":{"failClass":"no idea"}`, wire.FailContract}, {`,"data":{"failClass":"health","extra":1}`, wire.FailContract}, {`,"more":1`, wire.FailContract},
	} {
		go call()
		id, _ := p.line().Get("id")
		p.write(`{"jsonrpc":"2.0","id":` + id.Str() + `,"error":{"code":-32013,"message":"m"` + c.data + "}}\n")
		a := <-got
		var e *wire.Error
		if !errors.As(a.err, &e) || e.Code != -32013 || e.Message != "m" || e.Data == nil || e.Data.FailClass != c.class {
			t.Errorf("error with %q: %#v", c.data, a.err)
		}
	}
}

// Ids of the two directions are counted apart, and a request of the peer may
// come while a call waits.
func TestCallbackUnderACall(t *testing.T) {
	p := dial(t, handler{request: echo}, rpc.Options{})
	done := make(chan error, 1)
	go func() {
		v, err := p.c.Call(t.Context(), "m", value(t, `{}`), nil)
		if err == nil && string(v.Bytes()) != `"ours"` {
			err = fmt.Errorf("got %s", v.Bytes())
		}
		done <- err
	}()
	p.expect(`{"jsonrpc":"2.0","id":1,"method":"m","params":{}}`)
	p.write(`{"jsonrpc":"2.0","id":1,"method":"workspace/listTree","params":{"x":1}}` + "\n")
	p.expect(`{"jsonrpc":"2.0","id":1,"result":{"x":1}}`)
	p.write(`{"jsonrpc":"2.0","id":"1","method":"workspace/listTree"}` + "\n")
	p.expect(`{"jsonrpc":"2.0","id":"1","result":null}`)
	p.write(`{"jsonrpc":"2.0","id":1,"result":"ours"}` + "\n")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// A request of the peer comes after a call when that was answered and nothing was sent
// since: by the order of the lines, however late its handler is.
func TestAfter(t *testing.T) {
	var hold sync.Mutex // handlers begin when the test lets them
	hold.Lock()
	p := dial(t, handler{request: func(_ context.Context, r rpc.Request) (canon.Value, *wire.Error) {
		hold.Lock()
		defer hold.Unlock()
		return canon.IntOf(r.After), nil
	}}, rpc.Options{})
	got := map[string]int64{}
	send := func(id string) {
		p.write(`{"jsonrpc":"2.0","id":"` + id + `","method":"m"}` + "\n")
	}
	call := func(ctx context.Context) chan error {
		done := make(chan error, 1)
		go func() {
			_, err := p.c.Call(ctx, "m", canon.Value{}, nil)
			done <- err
		}()
		return done
	}
	answers := func(n int) {
		t.Helper()
		hold.Unlock()
		for range n {
			v := p.line()
			id, _ := v.Get("id")
			r, _ := v.Get("result")
			got[id.Str()], _ = r.Int()
		}
		hold.Lock()
	}
	done := call(t.Context())
	p.line()
	send("under the call")
	p.write(`{"jsonrpc":"2.0","id":1,"result":1}` + "\n")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	send("after it")
	answers(2)
	if err := p.c.Notify(t.Context(), "n", canon.Value{}); err != nil {
		t.Fatal(err)
	}
	p.line()
	send("told something")
	answers(1)
	ctx, cancel := context.WithCancel(t.Context())
	done = call(ctx)
	p.line()
	cancel()
	<-done
	p.line() // $/cancelRequest
	send("given up")
	p.write(`{"jsonrpc":"2.0","id":2,"result":1}` + "\n")
	send("and answered late")
	answers(2)
	done = call(t.Context())
	p.line()
	p.write(`{"jsonrpc":"2.0","id":3,"result":1}` + "\n")
	send("after the third")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	answers(1)
	want := map[string]int64{"under the call": 0, "after it": 1, "told something": 0, "given up": 0, "and answered late": 0, "after the third": 3}
	if !maps.Equal(got, want) {
		t.Errorf("%v", got)
	}
	hold.Unlock()
}

func TestCallGivenUp(t *testing.T) {
	p := dial(t, handler{}, rpc.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := p.c.Call(ctx, "m", canon.Value{}, nil)
		done <- err
	}()
	p.expect(`{"jsonrpc":"2.0","id":1,"method":"m"}`)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v", err)
	}
	p.expect(`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":1}}`)
	// The late answer is dropped, once.
	p.write(`{"jsonrpc":"2.0","id":1,"error":{"code":-32016,"message":"cancelled","data":{"failClass":"health"}}}` + "\n")
	go func() {
		_, err := p.c.Call(t.Context(), "m", canon.Value{}, nil)
		done <- err
	}()
	p.expect(`{"jsonrpc":"2.0","id":2,"method":"m"}`)
	p.write(`{"jsonrpc":"2.0","id":2,"result":{}}` + "\n")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	p.write(`{"jsonrpc":"2.0","id":1,"result":{}}` + "\n")
	var e *rpc.ProtocolError
	if err := p.ended(); !errors.As(err, &e) || !strings.Contains(e.Reason, "waits for none") {
		t.Fatalf("ended with %v", err)
	}
}

// What a peer does wrong ends a strict connection, and every call that waits
// gets to know (RP-01).
func TestRP01StrictViolations(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	for name, c := range map[string]struct{ in, want string }{
		"banner":            {"Ready on port 0\n", "no JSON value"},
		"banner in memory":  {long + "\n", "no JSON value"},
		"half a message":    {`{"jsonrpc":"2.0","id":1,"result":{"propo`, "ends inside a line"},
		"no final newline":  {`{"jsonrpc":"2.0","id":1,"result":{}}`, "ends inside a line"},
		"null":              {"null\n", "a message is an object"},
		"array":             {"[]\n", "batches"},
		"empty object":      {"{}\n", "jsonrpc"},
		"nothing":           {`{"jsonrpc":"2.0"}` + "\n", "neither"},
		"unknown id":        {`{"jsonrpc":"2.0","id":7,"result":{}}` + "\n", "id 7"},
		"id as text":        {`{"jsonrpc":"2.0","id":"1","result":{}}` + "\n", `id "1"`},
		"id as float":       {`{"jsonrpc":"2.0","id":1.0,"result":{}}` + "\n", "id"},
		"both":              {`{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":""}}` + "\n", "one of"},
		"two answers":       {`{"jsonrpc":"2.0","id":2,"result":1}` + "\n" + `{"jsonrpc":"2.0","id":2,"result":2}` + "\n", "id 2"},
		"error to nobody":   {`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what?"}}` + "\n", "-32700 \"what?\""},
		"unknown member":    {`{"jsonrpc":"2.0","id":1,"result":{},"extra":0}` + "\n", "extra"},
		"doubled member":    {`{"jsonrpc":"2.0","id":1,"id":1,"result":{}}` + "\n", "duplicate key"},
		"other case":        {`{"jsonrpc":"2.0","Id":1,"id":1,"result":{}}` + "\n", "differ only in case"},
		"nesting":           {`{"jsonrpc":"2.0","id":1,"result":` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + "}\n", "nesting"},
		"lone surrogate":    {`{"jsonrpc":"2.0","id":1,"result":"\ud800"}` + "\n", "lone surrogate"},
		"bad UTF-8":         {"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"\xff\"}\n", "UTF-8"},
		"header":            {"Content-Length: 10\r\n\r\n{}", "no JSON value"},
		"null params":       {`{"jsonrpc":"2.0","id":1,"method":"m","params":null}` + "\n", "params"},
		"wrong version":     {`{"jsonrpc":"1.0","id":1,"result":{}}` + "\n", "jsonrpc"},
		"odd progress":      {`{"jsonrpc":"2.0","method":"$/progress","params":{"token":1}}` + "\n", "$/progress"},
		"odd cancel":        {`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":null}}` + "\n", "$/cancelRequest"},
		"error not as such": {`{"jsonrpc":"2.0","id":1,"error":"no"}` + "\n", "integer code"},
		"gone":              {"", "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := dial(t, handler{}, rpc.Options{})
			var wg sync.WaitGroup
			errs := make([]error, 2)
			for i := range errs {
				wg.Go(func() { _, errs[i] = p.c.Call(t.Context(), "m", canon.Value{}, nil) })
				p.line()
			}
			go func() { _, _ = io.WriteString(p.in, c.in); _ = p.in.Close() }()
			err := p.ended()
			var e *rpc.ProtocolError
			if !errors.As(err, &e) && (c.in != "" || !errors.Is(err, io.EOF)) || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 1500 {
				t.Errorf("ended with %v, want %q", err, c.want)
			}
			wg.Wait()
			failed := 0
			for _, err := range errs {
				if err != nil {
					failed++
				}
			}
			if want := 2; failed != want && !(name == "two answers" && failed == 1) {
				t.Errorf("calls ended with %v", errs)
			}
		})
	}
}

// RP-02: lines up to the limit pass, one byte more is refused by naming it.
func TestRP02Limit(t *testing.T) {
	const limit = rpc.MinMessageBytes
	frame := func(n int) string {
		head, tail := `{"jsonrpc":"2.0","id":1,"method":"m","params":["`, `"]}`
		return head + strings.Repeat("e", n-len(head)-len(tail)) + tail
	}
	for _, c := range []struct {
		n  int
		ok bool
	}{{65535, true}, {65536, true}, {65537, true}, {1 << 20, true}, {limit, true}, {limit + 1, false}, {limit + 200_000, false}} {
		for _, end := range []string{"\n", "\r\n"} {
			for _, lenient := range []bool{true, false} {
				if c.ok && lenient != (end == "\n") {
					continue // the one shows what the other does
				}
				t.Run(fmt.Sprintf("%d %q %v", c.n, end, lenient), func(t *testing.T) {
					p := dial(t, handler{request: func(_ context.Context, r rpc.Request) (canon.Value, *wire.Error) {
						return canon.IntOf(r.Raw), nil
					}}, rpc.Options{MessageBytes: 1, Lenient: lenient}) // never under the least
					go func() { _, _ = io.WriteString(p.in, frame(c.n)+end) }()
					if c.ok {
						p.expect(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"result":%d}`, c.n))
						return
					}
					if !lenient {
						if err := p.ended(); !strings.Contains(err.Error(), "8388608 bytes") {
							t.Errorf("ended with %v", err)
						}
						return
					}
					if v := p.line(); !strings.Contains(string(v.Bytes()), `"code":-32700`) || !strings.Contains(string(v.Bytes()), "8388608") || !strings.Contains(string(v.Bytes()), `"id":null`) {
						t.Fatalf("answer %.300s", v.Bytes())
					}
					p.write(`{"jsonrpc":"2.0","id":2,"method":"m"}` + "\n")
					p.expect(`{"jsonrpc":"2.0","id":2,"result":37}`)
				})
			}
		}
	}
}
