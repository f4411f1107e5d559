package rpc_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/rpc"
	"github.com/aspengine/asp/seam/wire"
)

// Towards a harness the session outlives its mistakes.
func TestLenient(t *testing.T) {
	p := dial(t, handler{request: echo}, rpc.Options{Lenient: true})
	for _, c := range []struct {
		in, id string
		code   int
		says   string
	}{
		{"garbage", "null", wire.CodeParse, "no JSON value"},
		{`{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}`, "null", wire.CodeParse, "duplicate key"},
		{`[{"jsonrpc":"2.0","id":1,"method":"m"}]`, "null", wire.CodeInvalidRequest, "batches"},
		{`{"id":"a","method":"m"}`, `"a"`, wire.CodeInvalidRequest, "jsonrpc"},
		{`{"jsonrpc":"2.0","id":3,"method":"m","extra":1}`, "3", wire.CodeInvalidRequest, "extra"},
		{`{"jsonrpc":"2.0","id":3,"method":"m","params":null}`, "3", wire.CodeInvalidRequest, "params"},
		{`{"jsonrpc":"2.0","id":null,"method":"m"}`, "null", wire.CodeInvalidRequest, "id must"},
		{`{"jsonrpc":"2.0","id":1e3,"method":"m"}`, "null", wire.CodeInvalidRequest, "id must"},
		{`{"jsonrpc":"2.0","id":1.0,"method":"m"}`, "null", wire.CodeInvalidRequest, "id must"},
		{`{"jsonrpc":"2.0","id":1,"method":""}`, "1", wire.CodeInvalidRequest, "method"},
		{`{"jsonrpc":"2.0","id":1,"method":7}`, "1", wire.CodeInvalidRequest, "method"},
		{`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{}}`, "null", wire.CodeInvalidRequest, "$/cancelRequest"},
	} {
		p.write(c.in + "\n")
		v := p.line()
		e, _ := v.Get("error")
		code, _ := e.Get("code")
		data, _ := e.Get("data")
		class, _ := data.Get("failClass")
		id, _ := v.Get("id")
		text, _ := e.Get("message")
		if string(id.Bytes()) != c.id || code.Str() != fmt.Sprint(c.code) || class.Str() != "contract" || !strings.Contains(text.Str(), c.says) {
			t.Errorf("%s\n got %s", c.in, v.Bytes())
		}
	}
	// What is no request is not answered: an answer to nothing, a cancellation of
	// nothing, a notification that nobody knows.
	p.write(`{"jsonrpc":"2.0","id":9,"result":1}` + "\n" + `{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":77}}` + "\n" + `{"jsonrpc":"2.0","method":"what"}` + "\n")
	p.write(`{"jsonrpc":"2.0","id":-5,"method":"m","params":[1]}` + "\n")
	p.expect(`{"jsonrpc":"2.0","id":-5,"result":[1]}`)
	// At the end of the input what was read is answered; a line without an end is none.
	p.write(`{"jsonrpc":"2.0","id":"last","method":"m"}` + "\n" + `{"jsonrpc":"2.0","id":"cut","method":"m"}`)
	_ = p.in.Close()
	got := map[string]bool{}
	for range 2 {
		v := p.line()
		id, _ := v.Get("id")
		_, ok := v.Get("result")
		got[string(id.Bytes())] = ok
	}
	if ok, there := got["null"]; !got[`"last"`] || ok || !there {
		t.Errorf("answers %v", got)
	}
	if err := p.ended(); !errors.Is(err, io.EOF) {
		t.Errorf("ended with %v", err)
	}
}

func TestErrorsAndProgressOut(t *testing.T) {
	kept := make(chan rpc.Request, 1)
	p := dial(t, handler{request: func(ctx context.Context, r rpc.Request) (canon.Value, *wire.Error) {
		if err := r.Progress(ctx, value(t, `{"kind":"report","percentage":5}`)); err != nil {
			t.Error(err)
		}
		kept <- r
		return canon.Value{}, wire.NewError(wire.CodeScopeDenied, wire.FailPolicy, "no", "")
	}}, rpc.Options{})
	p.write(`{"jsonrpc":"2.0","id":"x","method":"workspace/readBlob","params":{}}` + "\n")
	p.expect(`{"jsonrpc":"2.0","method":"$/progress","params":{"token":"x","value":{"kind":"report","percentage":5}}}`)
	p.expect(`{"jsonrpc":"2.0","id":"x","error":{"code":-32012,"message":"no","data":{"failClass":"policy"}}}`)
	// After the answer there is no progress.
	if err := (<-kept).Progress(t.Context(), value(t, `{"kind":"end"}`)); err != nil {
		t.Fatal(err)
	}
	if err := p.c.Notify(t.Context(), "n", canon.Value{}); err != nil {
		t.Fatal(err)
	}
	p.expect(`{"jsonrpc":"2.0","method":"n"}`)
}

func TestCancelFromThePeer(t *testing.T) {
	running := make(chan struct{}, 2)
	p := dial(t, handler{request: func(ctx context.Context, r rpc.Request) (canon.Value, *wire.Error) {
		running <- struct{}{}
		<-ctx.Done()
		return canon.Value{}, wire.NewError(wire.CodeCancelled, wire.FailHealth, context.Cause(ctx).Error(), "")
	}}, rpc.Options{Lenient: true, MaxInFlight: 1})
	p.write(`{"jsonrpc":"2.0","id":1,"method":"m"}` + "\n" + `{"jsonrpc":"2.0","id":"1","method":"m"}` + "\n")
	<-running
	// The second waits; cancelled, it still gets its turn and its answer.
	p.write(`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":"1"}}` + "\n" + `{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":1}}` + "\n")
	for _, id := range []string{"1", `"1"`} {
		p.expect(`{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-32016,"message":"cancelled by the peer","data":{"failClass":"health","retryable":true}}}`)
	}
	// An id is free again once its answer was read; while open it is not.
	p.write(`{"jsonrpc":"2.0","id":1,"method":"m"}` + "\n" + `{"jsonrpc":"2.0","id":1,"method":"m"}` + "\n")
	if v := p.line(); !strings.Contains(string(v.Bytes()), "still open") || !strings.Contains(string(v.Bytes()), `"id":null`) {
		t.Errorf("doubled id: %s", v.Bytes())
	}
	p.write(`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":1}}` + "\n")
	p.line()
}

// Notifications come in order and one by one; requests no more at once than
// was said, and begin in order.
func TestOrderAndBounds(t *testing.T) {
	for _, atOnce := range []int{1, 3} {
		t.Run(fmt.Sprint(atOnce), func(t *testing.T) { orderAndBounds(t, atOnce) })
	}
}

func orderAndBounds(t *testing.T, atOnce int) {
	var noting, most, now atomic.Int32
	var mu sync.Mutex
	var notes, begun []string
	gate := make(chan struct{})
	p := dial(t, handler{
		request: func(ctx context.Context, r rpc.Request) (canon.Value, *wire.Error) {
			mu.Lock()
			begun = append(begun, r.ID.Str())
			mu.Unlock()
			most.Store(max(most.Load(), now.Add(1)))
			<-gate
			now.Add(-1)
			return canon.NullOf(), nil
		},
		notify: func(ctx context.Context, method string, params canon.Value) {
			if noting.Add(1) > 1 {
				t.Error("two notifications at once")
			}
			notes = append(notes, params.At(0).Str())
			noting.Add(-1)
		},
	}, rpc.Options{Lenient: true, MaxInFlight: atOnce})
	const n = 1200 // more than may wait
	var want []string
	go func() {
		for i := range n {
			_, _ = fmt.Fprintf(p.in, `{"jsonrpc":"2.0","id":%d,"method":"m"}`+"\n"+`{"jsonrpc":"2.0","method":"n","params":[%d]}`+"\n", i, i)
		}
		_ = p.in.Close()
	}()
	go func() {
		for range n {
			gate <- struct{}{}
		}
	}()
	for i := range n {
		want = append(want, fmt.Sprint(i))
		p.line()
	}
	if err := p.ended(); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if strings.Join(notes, " ") != strings.Join(want, " ") {
		t.Error("notifications out of order, or missing")
	}
	// Those that begin at once may change places in our list.
	if atOnce == 1 && strings.Join(begun, " ") != strings.Join(want, " ") {
		t.Error("requests out of order")
	}
	if int(most.Load()) > atOnce {
		t.Errorf("%d at once", most.Load())
	}
}

// Nothing is sent to a strict peer while a request of its own is open.
func TestQuietWhileACallbackIsOpen(t *testing.T) {
	inside, release := make(chan struct{}), make(chan struct{})
	p := dial(t, handler{request: func(ctx context.Context, r rpc.Request) (canon.Value, *wire.Error) {
		close(inside)
		<-release
		return canon.NullOf(), nil
	}}, rpc.Options{})
	open := sync.OnceFunc(func() { close(release) })
	t.Cleanup(open) // a test that fails before waits for its handler
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 2)
	go func() {
		_, err := p.c.Call(ctx, "check/evaluate", canon.Value{}, nil)
		done <- err
	}()
	p.expect(`{"jsonrpc":"2.0","id":1,"method":"check/evaluate"}`)
	p.write(`{"jsonrpc":"2.0","id":1,"method":"workspace/listTree"}` + "\n")
	<-inside
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	// A notification of ours waits, and gives up with its context, unsent.
	short, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	if err := p.c.Notify(short, "workspace/baselineChanged", canon.Value{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	open()
	p.expect(`{"jsonrpc":"2.0","id":1,"result":null}`)
	p.expect(`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":1}}`)
}

// A peer that does not read loses the connection; who waits to send, waits no
// longer than its context.
func TestStuckPeer(t *testing.T) {
	p := dial(t, handler{}, rpc.Options{SendTimeout: 200 * time.Millisecond})
	big := canon.StringOf(strings.Repeat("x", 1<<20)) // more than a pipe holds
	errs := make(chan error, 2)
	go func() { errs <- p.c.Notify(t.Context(), "n", canon.ArrayOf(big)) }()
	go func() {
		_, err := p.c.Call(t.Context(), "n", canon.ArrayOf(big), nil)
		errs <- err
	}()
	for range 2 {
		if err := <-errs; !errors.Is(err, rpc.ErrStuck) {
			t.Errorf("error %v", err)
		}
	}
	if err := p.ended(); !errors.Is(err, rpc.ErrStuck) {
		t.Errorf("ended with %v", err)
	}
}

func TestSendHeedsItsContext(t *testing.T) {
	p := dial(t, handler{}, rpc.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	errs := make(chan error, 3)
	big := canon.ArrayOf(canon.StringOf(strings.Repeat("x", 1<<20)))
	for range 2 {
		go func() { errs <- p.c.Notify(ctx, "n", big) }()
	}
	go func() {
		_, err := p.c.Call(ctx, "n", big, nil)
		errs <- err
	}()
	cancel()
	for range 3 {
		if err := <-errs; !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
	}
}

// A broken pipe is an error and no signal.
func TestPeerGoneWhileWriting(t *testing.T) {
	p := dial(t, handler{}, rpc.Options{})
	_ = p.read.Close()
	if err := p.c.Notify(t.Context(), "n", canon.Value{}); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("error %v", err)
	}
	if err := p.ended(); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("ended with %v", err)
	}
}

func TestOurOwnMessagesAreBounded(t *testing.T) {
	big := canon.ArrayOf(canon.StringOf(strings.Repeat("x", rpc.MinMessageBytes)))
	p := dial(t, handler{request: func(context.Context, rpc.Request) (canon.Value, *wire.Error) { return big, nil }}, rpc.Options{MessageBytes: 1})
	if err := p.c.Notify(t.Context(), "n", big); !errors.Is(err, rpc.ErrTooLarge) {
		t.Errorf("notify: %v", err)
	}
	if _, err := p.c.Call(t.Context(), "n", big, nil); !errors.Is(err, rpc.ErrTooLarge) {
		t.Errorf("call: %v", err)
	}
	p.write(`{"jsonrpc":"2.0","id":1,"method":"m"}` + "\n")
	if v := p.line(); !strings.Contains(string(v.Bytes()), "8388608") || !strings.Contains(string(v.Bytes()), `"id":1`) {
		t.Errorf("answer %.300s", v.Bytes())
	}
}

func TestTrace(t *testing.T) {
	for _, contents := range []bool{false, true} {
		var trace bytes.Buffer
		p := dial(t, handler{request: echo}, rpc.Options{Lenient: true, Trace: &trace, TraceName: "h", TraceContents: contents})
		p.write(`{"jsonrpc":"2.0","id":1,"method":"workspace/putBlob","params":{"blobs":[{"encoding":"utf-8","bytes":"secret"}]}}` + "\n")
		p.line()
		p.write("noise, secret\n")
		p.line()
		p.write(`{"jsonrpc":"2.0","id":2,"method":"host/applyProposal","params":{"proposalId":"p7","proposal":{"workspaceEdit":{"documentChanges":[{"path":"a.txt","edits":[{"newText":"secret"}]}]},"rationale":"secret"},"args":{"path":"secret"},"data":{"message":"secret"}}}` + "\n")
		p.line()
		_ = p.c.Close()
		lines := strings.Split(strings.TrimSpace(trace.String()), "\n")
		var dirs []string
		for _, l := range lines {
			v := value(t, l)
			d, _ := v.Get("dir")
			n, _ := v.Get("conn")
			dirs = append(dirs, d.Str()+" "+n.Str())
		}
		if strings.Join(dirs, ",") != "in h,out h,in h,out h,in h,out h" || strings.Contains(trace.String(), "secret") != contents || !contents && !strings.Contains(trace.String(), "(6 bytes left out)") ||
			strings.Contains(trace.String(), "noise") != contents || !strings.Contains(trace.String(), "a.txt") && contents || !strings.Contains(trace.String(), "p7") {
			t.Errorf("contents %v:\n%s", contents, trace.String())
		}
	}
}

// An endless line is answered before it ends, and its memory does not grow.
func TestEndlessLine(t *testing.T) {
	p := dial(t, handler{request: echo}, rpc.Options{Lenient: true, MessageBytes: 1})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		b := bytes.Repeat([]byte("x"), 1<<20)
		for range 64 {
			if _, err := p.in.Write(b); err != nil {
				return
			}
		}
		close(stop)
	})
	if v := p.line(); !strings.Contains(string(v.Bytes()), "8388608") {
		t.Errorf("answer %.300s", v.Bytes())
	}
	<-stop
	wg.Wait()
	p.write("\n" + `{"jsonrpc":"2.0","id":1,"method":"m"}` + "\n")
	p.expect(`{"jsonrpc":"2.0","id":1,"result":null}`)
}
