package host_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aspengine/asp/apply"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/host"
	"github.com/aspengine/asp/seam/wire"
	"github.com/aspengine/asp/snapshot"
)

// fake is an engine whose work is the test's.
type fake struct {
	host.Engine
	step     func(string)
	apply    func(ctx context.Context, f *fake, q apply.ProposalRequest) (*apply.Answer, error)
	evaluate func(ctx context.Context, q apply.EvaluateRequest) (*apply.Evaluation, error)
	edit     func(q apply.EditRequest) *wire.RequestEditPlanResult
	dropped  func(id string)
	closed   func()
}

func (f *fake) Close() error { f.closed(); return nil }
func (f *fake) Misread(_ context.Context, method, _ string, w *wire.Error) error {
	return wire.NewError(w.Code, wire.FailInput, w.Message, "receipt of "+method)
}
func (f *fake) RequestEdit(_ context.Context, q apply.EditRequest) (*wire.RequestEditPlanResult, error) {
	return f.edit(q), nil
}
func (f *fake) DropProposal(id string) error { f.dropped(id); return nil }
func (f *fake) ApplyProposal(ctx context.Context, q apply.ProposalRequest) (*apply.Answer, error) {
	return f.apply(ctx, f, q)
}
func (f *fake) Evaluate(ctx context.Context, q apply.EvaluateRequest) (*apply.Evaluation, error) {
	return f.evaluate(ctx, q)
}

// bench is a host over fakes; what was opened has to be closed at the end.
type bench struct {
	*testing.T
	h    *host.Host
	mu   sync.Mutex
	open int
	tmpl fake
}

func newBench(t *testing.T, o host.Options, tmpl fake) *bench {
	b := &bench{T: t, tmpl: tmpl}
	o.Open = func(_ context.Context, step func(string)) (host.Engine, apply.Request, error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.open++
		f := b.tmpl
		f.step = step
		f.closed = func() { b.mu.Lock(); defer b.mu.Unlock(); b.open-- }
		return &f, apply.Request{}, nil
	}
	b.h = host.New(o)
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.open != 0 {
			t.Errorf("%d engines were not closed", b.open)
		}
	})
	return b
}

// peer is a harness.
type peer struct {
	t    *testing.T
	c    *net.UnixConn
	in   *bufio.Reader
	end  chan error
	stop context.CancelFunc
}

func (b *bench) dial() *peer {
	b.Helper()
	fds := filepath.Join(b.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: fds, Net: "unix"})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: fds, Net: "unix"})
	if err != nil {
		b.Fatal(err)
	}
	s, err := l.AcceptUnix()
	if err != nil {
		b.Fatal(err)
	}
	p := &peer{t: b.T, c: c, in: bufio.NewReader(c), end: make(chan error, 1)}
	var ctx context.Context
	ctx, p.stop = context.WithCancel(context.Background())
	go func() { p.end <- b.h.Serve(ctx, "test", s) }()
	b.Cleanup(func() {
		p.stop()
		c.Close()
		if p.end != nil {
			<-p.end
		}
	})
	return p
}

// ended waits for the end of the session.
func (p *peer) ended() error {
	p.t.Helper()
	select {
	case err := <-p.end:
		p.end = nil
		return err
	case <-time.After(time.Minute):
		p.t.Fatal("the session does not end")
		return nil
	}
}

func (p *peer) send(format string, a ...any) {
	p.t.Helper()
	if _, err := fmt.Fprintf(p.c, format+"\n", a...); err != nil {
		p.t.Fatal(err)
	}
}

type message struct {
	ID     json.RawMessage
	Method string
	Params json.RawMessage
	Result json.RawMessage
	Error  *wire.Error
}

func (p *peer) next() message {
	p.t.Helper()
	line, err := p.in.ReadBytes('\n')
	if err != nil {
		p.t.Fatalf("read: %v", err)
	}
	var m message
	if err := json.Unmarshal(line, &m); err != nil {
		p.t.Fatalf("%v: %s", err, line)
	}
	return m
}

// answered returns the next message, which has to answer id.
func (p *peer) answered(id string) message {
	p.t.Helper()
	m := p.next()
	if string(m.ID) != id {
		p.t.Fatalf("answer to %s (%+v), want one to %s", m.ID, m, id)
	}
	return m
}

func (p *peer) wrong(id string, code int, class wire.FailClass) message {
	p.t.Helper()
	m := p.answered(id)
	if m.Error == nil || m.Error.Code != code || m.Error.Data == nil || m.Error.Data.FailClass != class {
		p.t.Fatalf("answer to %s is %s %+v, want error %d of class %s", id, m.Result, m.Error, code, class)
	}
	return m
}

const applyParams = `{"callSite":"interactive","proposalId":"p","intent":"user"}`

func applied() *apply.Answer {
	return &apply.Answer{Stored: canon.ObjectOf(canon.Member{Key: "applied", Value: canon.BoolOf(true)})}
}

func TestErrorsOfTheEnvelope(t *testing.T) {
	p := newBench(t, host.Options{}, fake{}).dial()
	for _, c := range []struct {
		line  string
		code  int
		class wire.FailClass
	}{
		{`{"jsonrpc":"2.0","id":7,"method":"host/nothing","params":{}}`, wire.CodeMethodNotFound, wire.FailContract},
		{`{"jsonrpc":"2.0","id":7,"method":"initialize","params":{}}`, wire.CodeMethodNotFound, wire.FailContract},
		{`{"jsonrpc":"2.0","id":7,"method":"check/evaluate","params":{}}`, wire.CodeMethodNotFound, wire.FailContract},
		{`{"jsonrpc":"2.0","id":7,"method":"host/status","params":{"x":1}}`, wire.CodeInvalidParams, wire.FailInput},
		{`{"jsonrpc":"2.0","id":7,"method":"host/status","params":[]}`, wire.CodeInvalidParams, wire.FailInput},
		{`{"jsonrpc":"2.0","id":7,"method":"host/status","params":{"callSite":"ci"}}`, wire.CodeInvalidParams, wire.FailInput},
		{`{"jsonrpc":"2.0","id":7,"method":"host/applyProposal","params":{"callSite":"gate","intent":"user"}}`, wire.CodeInvalidParams, wire.FailInput},
		{`{"jsonrpc":"2.0","id":7,"method":"host/evaluateChangeset"}`, wire.CodeInvalidParams, wire.FailInput},
		{`{"jsonrpc":"2.0","id":7,"method":"workspace/putBlob","params":{"blobs":[{"encoding":"base64","bytes":"?"}]}}`, wire.CodeInvalidParams, wire.FailInput},
		{`{"jsonrpc":"2.0","id":7,"method":"shutdown","params":{"now":true}}`, wire.CodeInvalidParams, wire.FailInput},
	} {
		p.send("%s", c.line)
		if m := p.wrong("7", c.code, c.class); m.Error.Message == "" {
			t.Errorf("%s: no message", c.line)
		}
	}
	p.send(`{"jsonrpc":"2.0","id":1,"method":`)
	p.wrong("null", wire.CodeParse, wire.FailContract)
	p.send(`{"jsonrpc":"2.0","id":8,"method":"shutdown","params":{}}`)
	if m := p.answered("8"); string(m.Result) != "null" {
		t.Errorf("shutdown answers %s", m.Result)
	}
	p.send(`{"jsonrpc":"2.0","id":9,"method":"host/status","params":{}}`)
	p.wrong("9", wire.CodeInvalidRequest, wire.FailContract)
	p.send(`{"jsonrpc":"2.0","method":"exit"}`)
	if err := p.ended(); err != nil {
		t.Error(err)
	}
}

func TestRequestsAsTheyCame(t *testing.T) {
	var got apply.EvaluateRequest
	b := newBench(t, host.Options{}, fake{evaluate: func(_ context.Context, q apply.EvaluateRequest) (*apply.Evaluation, error) {
		got = q
		return &apply.Evaluation{Stored: canon.ObjectOf()}, nil
	}})
	p := b.dial()
	p.send(`{"jsonrpc":"2.0","id":"é","method":"workspace/putBlob","params":{"blobs":[{"encoding":"utf-8","bytes":"a"},{"encoding":"base64","bytes":"AAE="},{"encoding":"utf-8","bytes":"a"}]}}`)
	var ids wire.PutBlobResult
	if err := json.Unmarshal(p.answered(`"é"`).Result, &ids); err != nil {
		t.Fatal(err)
	}
	a, bin := snapshot.DigestOf([]byte("a")), snapshot.DigestOf([]byte{0, 1})
	if want := []wire.BlobRef{wire.BlobRef(a.Blob()), wire.BlobRef(bin.Blob()), wire.BlobRef(a.Blob())}; !slices.Equal(ids.IDs, want) {
		t.Errorf("ids %v, want %v", ids.IDs, want)
	}
	// Order of members and spelling of strings are not part of the digest; presence is.
	params := `{"timeoutMs":5,"changeset":{"changes":[],"baseline":{"rev":"tree:\u00fc"}},"callSite":"gate"}`
	p.send(`{"jsonrpc":"2.0","id":2,"method":"host/evaluateChangeset","params":%s}`, params)
	p.answered("2")
	v, err := canon.Parse([]byte(`{"method":"host/evaluateChangeset","params":{"callSite":"gate","changeset":{"baseline":{"rev":"tree:ü"},"changes":[]},"timeoutMs":5}}`), canon.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if got.RequestDigest != canon.DigestText(v) || got.TimeoutMs != 5 || got.CallSite != wire.Gate {
		t.Errorf("got %+v, want digest %s", got, canon.DigestText(v))
	}
	if data, ok := got.Blobs(bin); !ok || string(data) != "\x00\x01" {
		t.Errorf("the engine finds %q, %v", data, ok)
	}
	if _, ok := got.Blobs(snapshot.DigestOf([]byte("b"))); ok {
		t.Error("the engine finds what nobody put")
	}
	// Another session has another set.
	q := b.dial()
	q.send(`{"jsonrpc":"2.0","id":2,"method":"host/evaluateChangeset","params":%s}`, params)
	q.answered("2")
	if _, ok := got.Blobs(bin); ok {
		t.Error("a session finds the content of another one")
	}
}

func TestBlobsAreBounded(t *testing.T) {
	b := newBench(t, host.Options{BlobBytes: 1000}, fake{})
	p, q, r := b.dial(), b.dial(), b.dial()
	put := func(p *peer, c byte, n int) message {
		p.send(`{"jsonrpc":"2.0","id":1,"method":"workspace/putBlob","params":{"blobs":[{"encoding":"utf-8","bytes":"%s"}]}}`, strings.Repeat(string(c), n))
		return p.answered("1")
	}
	for _, s := range []*peer{p, q} {
		if m := put(s, 'a', 800); m.Error != nil {
			t.Fatal(m.Error)
		}
		if m := put(s, 'a', 800); m.Error != nil {
			t.Errorf("the same content again: %v", m.Error)
		}
		if m := put(s, 'b', 200); m.Error == nil || m.Error.Code != wire.CodeScopeDenied {
			t.Errorf("over the limit of the session: %+v", m)
		}
	}
	// Empty content costs something, too.
	p.send(`{"jsonrpc":"2.0","id":2,"method":"workspace/putBlob","params":{"blobs":[%s{"encoding":"utf-8","bytes":""}]}}`, strings.Repeat(`{"encoding":"utf-8","bytes":"x"},`, 10))
	p.wrong("2", wire.CodeScopeDenied, wire.FailPolicy)
	if m := put(r, 'c', 800); m.Error == nil {
		t.Error("all sessions together are not bounded")
	}
	p.c.Close()
	if err := p.ended(); err != nil {
		t.Error(err)
	}
	if m := put(r, 'c', 800); m.Error != nil {
		t.Errorf("the end of a session gives no room back: %v", m.Error)
	}
}

// blocking is an apply that waits for its context, or for the test.
func blocking(began chan<- struct{}, release <-chan struct{}) fake {
	return fake{apply: func(ctx context.Context, f *fake, q apply.ProposalRequest) (*apply.Answer, error) {
		f.step("waiting")
		began <- struct{}{}
		select {
		case <-release:
			return applied(), nil
		case <-ctx.Done():
			return nil, &apply.Failure{Err: ctx.Err(), Receipt: "rcpt-1", Outcome: "cancelled"}
		}
	}}
}

func TestCancel(t *testing.T) {
	began, release := make(chan struct{}), make(chan struct{})
	p := newBench(t, host.Options{}, blocking(began, release)).dial()
	p.send(`{"jsonrpc":"2.0","id":1,"method":"host/applyProposal","params":%s}`, applyParams)
	<-began
	p.send(`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":1}}`)
	if m := p.wrong("1", wire.CodeCancelled, wire.FailHealth); m.Error.Data.Detail != "receipt rcpt-1" {
		t.Errorf("detail %q", m.Error.Data.Detail)
	}
}

// TestCancelWhileItOpens: who cancels before there is an engine gets the answer of one, which
// names a receipt.
func TestCancelWhileItOpens(t *testing.T) {
	opening, open := make(chan struct{}, 1), make(chan struct{})
	first := blocking(make(chan struct{}, 1), nil)
	first.step = func(string) {}
	var once sync.Once
	b := &bench{T: t, h: host.New(host.Options{Open: func(ctx context.Context, _ func(string)) (host.Engine, apply.Request, error) {
		f := first
		f.closed = func() {}
		once.Do(func() {
			opening <- struct{}{}
			<-open
		})
		return &f, apply.Request{}, ctx.Err()
	}})}
	p := b.dial()
	p.send(`{"jsonrpc":"2.0","id":1,"method":"host/applyProposal","params":%s}`, applyParams)
	<-opening
	p.send(`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":1}}`)
	p.send(`{"jsonrpc":"2.0","id":2,"method":"workspace/putBlob","params":{"blobs":[]}}`)
	if m := p.next(); string(m.ID) != "2" { // so the cancel was read
		t.Fatalf("got %s", m.ID)
	}
	close(open)
	if m := p.wrong("1", wire.CodeCancelled, wire.FailHealth); m.Error.Data.Detail != "receipt rcpt-1" {
		t.Errorf("detail %q", m.Error.Data.Detail)
	}
}

func TestProgressOfLongWork(t *testing.T) {
	began, release := make(chan struct{}), make(chan struct{})
	p := newBench(t, host.Options{ProgressAfter: time.Millisecond}, blocking(began, release)).dial()
	p.send(`{"jsonrpc":"2.0","id":"a","method":"host/applyProposal","params":%s}`, applyParams)
	<-began
	m := p.next()
	if m.Method != "$/progress" || string(m.Params) != `{"token":"a","value":{"kind":"report","message":"waiting"}}` {
		t.Errorf("got %s %s", m.Method, m.Params)
	}
	close(release)
	if m = p.next(); string(m.Params) != `{"token":"a","value":{"kind":"end"}}` {
		t.Errorf("got %s %s", m.Method, m.Params)
	}
	if m = p.answered(`"a"`); string(m.Result) != `{"applied":true}` {
		t.Errorf("got %s", m.Result)
	}
}

func TestEndOfTheInput(t *testing.T) {
	t.Run("what runs is answered", func(t *testing.T) {
		began, release := make(chan struct{}), make(chan struct{})
		p := newBench(t, host.Options{}, blocking(began, release)).dial()
		p.send(`{"jsonrpc":"2.0","id":1,"method":"host/applyProposal","params":%s}`, applyParams)
		<-began
		if err := p.c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		close(release)
		if m := p.answered("1"); m.Error != nil {
			t.Error(m.Error)
		}
		if _, err := p.in.ReadByte(); !errors.Is(err, io.EOF) {
			t.Errorf("after the last answer: %v", err)
		}
		if err := p.ended(); err != nil {
			t.Error(err)
		}
	})
	for name, end := range map[string]func(p *peer){
		"what takes too long is cancelled": func(p *peer) { _ = p.c.CloseWrite() },
		"after exit, too":                  func(p *peer) { p.send(`{"jsonrpc":"2.0","method":"exit"}`) },
		"a stop cancels":                   func(p *peer) { p.stop() },
	} {
		t.Run(name, func(t *testing.T) {
			began := make(chan struct{})
			p := newBench(t, host.Options{Drain: 20 * time.Millisecond}, blocking(began, nil)).dial()
			p.send(`{"jsonrpc":"2.0","id":1,"method":"host/applyProposal","params":%s}`, applyParams)
			<-began
			end(p)
			p.wrong("1", wire.CodeCancelled, wire.FailHealth)
			if err := p.ended(); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("shutdown and exit in one breath", func(t *testing.T) {
		began, release := make(chan struct{}, 1), make(chan struct{})
		p := newBench(t, host.Options{}, blocking(began, release)).dial()
		p.send(`{"jsonrpc":"2.0","id":1,"method":"host/applyProposal","params":%s}
{"jsonrpc":"2.0","id":2,"method":"shutdown","params":{}}
{"jsonrpc":"2.0","id":3,"method":"host/applyProposal","params":%s}
{"jsonrpc":"2.0","method":"exit"}`, applyParams, applyParams)
		<-began
		p.wrong("3", wire.CodeInvalidRequest, wire.FailContract)
		close(release)
		answers := map[string]string{}
		for range 2 {
			m := p.next()
			answers[string(m.ID)] = string(m.Result)
		}
		if answers["1"] != `{"applied":true}` || answers["2"] != "null" {
			t.Errorf("answers %q", answers)
		}
		if err := p.ended(); err != nil {
			t.Error(err)
		}
	})
	t.Run("a harness that is gone", func(t *testing.T) {
		began := make(chan struct{})
		p := newBench(t, host.Options{Drain: 20 * time.Millisecond}, blocking(began, nil)).dial()
		p.send(`{"jsonrpc":"2.0","id":1,"method":"host/applyProposal","params":%s}`, applyParams)
		<-began
		p.c.Close()
		_ = p.ended() // whatever the broken connection said, what ran has ended
	})
}

func TestOpenFails(t *testing.T) {
	h := host.New(host.Options{Open: func(context.Context, func(string)) (host.Engine, apply.Request, error) {
		return nil, apply.Request{}, errors.New("config.json: no")
	}})
	b := &bench{T: t, h: h}
	p := b.dial()
	p.send(`{"jsonrpc":"2.0","id":1,"method":"host/status"}`)
	if m := p.wrong("1", wire.CodeNotReady, wire.FailHealth); !strings.Contains(m.Error.Message, "config.json") {
		t.Errorf("message %q", m.Error.Message)
	}
}

func TestStandardLeavesNothing(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r2, w2, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	before := descriptors(t)
	tr, err := host.Standard(r, w2)
	if err != nil {
		t.Fatal(err)
	}
	// A read that waits ends with CloseRead; writing still works, in pieces that a
	// slow reader takes.
	got := make(chan error)
	go func() { _, err := tr.Read(make([]byte, 1)); got <- err }()
	if err := tr.CloseRead(); err != nil {
		t.Fatal(err)
	}
	if err := <-got; !errors.Is(err, io.EOF) {
		t.Errorf("read: %v", err)
	}
	big := strings.Repeat("x", 300<<10)
	go func() { _, err := io.WriteString(tr, big); got <- err }()
	back := make([]byte, len(big))
	if _, err := io.ReadFull(r2, back); err != nil || string(back) != big {
		t.Errorf("read back: %v", err)
	}
	if err := <-got; err != nil {
		t.Errorf("write: %v", err)
	}
	// A write that waits ends with Close.
	go func() { _, err := io.WriteString(tr, big); got <- err }()
	if _, err := io.ReadFull(r2, back[:1]); err != nil {
		t.Fatal(err)
	}
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-got; !errors.Is(err, os.ErrClosed) {
		t.Errorf("write that was interrupted: %v", err)
	}
	if n, err := tr.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("read after the end: %d, %v", n, err)
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors, %d before", after, before)
	}
	// Nobody reads any more: an error, not a signal.
	tr, err = host.Standard(r, w2)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	r2.Close()
	if _, err := io.WriteString(tr, "x"); err == nil {
		t.Error("a write that nobody can read has no error")
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	es, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("no /proc")
	}
	return len(es)
}

// TestEachSessionHasItsPlans: a session that asks for plans without end loses its oldest,
// and nobody else's; an answer without a plan counts for nothing.
func TestEachSessionHasItsPlans(t *testing.T) {
	var dropped []string
	var mu sync.Mutex
	b := newBench(t, host.Options{}, fake{
		edit: func(q apply.EditRequest) *wire.RequestEditPlanResult {
			status := "complete"
			if q.Operation == "never" {
				status = "unsupported"
			}
			return &wire.RequestEditPlanResult{Proposal: canon.ObjectOf(
				canon.Member{Key: "proposalId", Value: canon.StringOf(q.ProposalID)}, canon.Member{Key: "status", Value: canon.StringOf(status)})}
		},
		dropped: func(id string) { mu.Lock(); defer mu.Unlock(); dropped = append(dropped, id) },
	})
	ask := func(p *peer, id, operation string) {
		t.Helper()
		p.send(`{"jsonrpc":"2.0","id":1,"method":"host/requestEditPlan","params":{"callSite":"gate","operation":%q,"baseline":{"rev":"r"},"proposalId":%q}}`, operation, id)
		if m := p.answered("1"); m.Error != nil {
			t.Fatalf("%+v", m.Error)
		}
	}
	one, other := b.dial(), b.dial()
	ask(other, "theirs", "text-edit")
	for i := range 33 {
		ask(one, fmt.Sprint("mine-", i), "text-edit")
		ask(one, fmt.Sprint("no-", i), "never")
	}
	ask(one, "mine-1", "text-edit") // again: it is the newest now
	ask(one, "mine-33", "text-edit")
	if !slices.Equal(dropped, []string{"mine-0", "mine-2"}) {
		t.Errorf("dropped %q", dropped)
	}
}
