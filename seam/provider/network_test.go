package provider_test

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aspengine/asp/checks"
	"github.com/aspengine/asp/seam/provider"
	"github.com/aspengine/asp/seam/wire"
)

// reaching is a world whose configuration lists destinations, with what its providers say
// of them and the transcript.
type reaching struct {
	*world
	listed []string
	log    *logged
	said   chan string

	mu    sync.Mutex
	trace bytes.Buffer
}

func (r *reaching) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.trace.Write(p)
}

// Handle and the rest make it the handler of the log of the pool: what providers say.
func (r *reaching) Enabled(context.Context, slog.Level) bool { return true }
func (r *reaching) WithAttrs([]slog.Attr) slog.Handler       { return r }
func (r *reaching) WithGroup(string) slog.Handler            { return r }
func (r *reaching) Handle(_ context.Context, x slog.Record) error {
	_, _ = r.log.Write([]byte(x.Message + "\n"))
	x.Attrs(func(a slog.Attr) bool {
		if a.Key == "message" {
			r.said <- a.Value.String()
		}
		return true
	})
	return nil
}

func newReaching(t *testing.T, expected string, listed ...string) *reaching {
	t.Helper()
	r := &reaching{listed: listed, log: &logged{}, said: make(chan string, 1000)}
	r.world = newWorld(t, func(o *provider.Options) {
		o.Network = func(id string) []string {
			if id != "p" {
				return nil
			}
			return r.listed
		}
		o.Log, o.Trace, o.TraceContents = slog.New(r), r, true
	})
	r.network = expected
	return r
}

// wire is whether the transcript holds a text.
func (r *reaching) wire(text string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Contains(strings.ReplaceAll(r.trace.String(), `\"`, `"`), text)
}

// answers are what the providers were told by their proxy since it was asked last.
func (r *reaching) answers(want ...string) {
	r.t.Helper()
	for _, w := range want {
		select {
		case got := <-r.said:
			if got != "reach "+w {
				r.t.Errorf("%q, want %q", got, w)
			}
		case <-time.After(time.Minute):
			r.t.Fatalf("nothing is said of %q", w)
		}
	}
}

const (
	gone = "HTTP/1.1 502 Bad Gateway" // let through, and there is no such name
	shut = "HTTP/1.1 403 Forbidden"
)

// A provider that lives on is let through what is configured, expected and asked, while a
// request is open; what it asked for stands in the record of that request alone.
func TestNetworkOfAProvider(t *testing.T) {
	r := newReaching(t, `{"outbound":true,"allowlist":["a.invalid","c.invalid"]}`, "a.invalid:443", "b.invalid:443")
	r.add("p", `wants={"network":true,"networkAllowlist":[{"host":"a.invalid"},{"host":"b.invalid"}]}`, "initialized=reach a.invalid:443", "reach=a.invalid:443,b.invalid:443,c.invalid:443")
	r.pool.Warm(context.Background(), "p")
	r.answers("a.invalid:443: " + shut) // nothing is open
	const reached = `failed "https://a.invalid:443: the name could not be resolved"`
	check := func(want ...string) {
		t.Helper()
		res := r.check("p", provider.Settings{}, nil)
		r.answers("a.invalid:443: "+gone, "b.invalid:443: "+shut, "c.invalid:443: "+shut)
		if res.Status != checks.Failed || !slices.Equal(res.Network, want) || !slices.Equal(res.Provider.Network, []string{"https://a.invalid:443"}) {
			t.Errorf("%s, %v: record %q", res.Status, res.Provider.Network, res.Network)
		}
		if !strings.Contains(res.Evidence, "of the network only https://a.invalid:443 is let through") {
			t.Errorf("evidence %s", res.Evidence)
		}
	}
	check(`refused "a.invalid:443"`, reached, `refused "b.invalid:443"`, `refused "c.invalid:443"`)
	check(reached, `refused "b.invalid:443"`, `refused "c.invalid:443"`)
	if !r.wire(`"network":true,"networkAllowlist":[{"host":"a.invalid","port":443,"proto":"https"}]`) {
		t.Errorf("granted: %s", r.trace.String())
	}
	p, err := r.propose("p")
	if r.answers("a.invalid:443: "+gone, "b.invalid:443: "+shut, "c.invalid:443: "+shut); err != nil || len(p.Network) != 3 {
		t.Errorf("plan: %q, %v", p.Network, err)
	}
	q, err := r.pool.Query(context.Background(), "p", provider.QueryRequest{Method: "inspect/references", Params: parse(`{"symbol":{"id":"n"}}`), Baseline: base, Content: r.files})
	if r.answers("a.invalid:443: "+gone, "b.invalid:443: "+shut, "c.invalid:443: "+shut); err != nil || len(q.Network) != 3 {
		t.Errorf("query: %q, %v", q.Network, err)
	}
	if n := r.log.count("provider launched"); n != 1 {
		t.Errorf("%d launches", n)
	}
	// What was granted is taken back: it is another launch, and there is no proxy.
	r.listed = nil
	res := r.check("p", provider.Settings{}, nil)
	r.answers("a.invalid:443: no proxy", "a.invalid:443: no proxy", "b.invalid:443: no proxy", "c.invalid:443: no proxy")
	if n := r.log.count("provider launched"); n != 2 || res.Network != nil || res.Provider.Network != nil || strings.Contains(res.Evidence, "let through") || !r.wire(`"network":false,"read"`) {
		t.Errorf("%d launches, record %q, %s", n, res.Network, res.Evidence)
	}
}

// Nobody of those who have to agree gives anything alone.
func TestNetworkTakesAll(t *testing.T) {
	const expected = `{"outbound":true,"allowlist":["a.invalid"]}`
	for name, c := range map[string]struct {
		id, expected, wants, told string
		listed                    []string
		want                      string
	}{
		"all of them":             {"p", expected, `{"network":true,"networkAllowlist":[{"host":"A.invalid","port":443}]}`, "true", []string{"a.invalid:443"}, gone},
		"the handshake is silent": {"p", expected, `{"read":["**/*"]}`, "true", []string{"a.invalid:443"}, gone},
		"it names nothing":        {"p", expected, `{"network":true}`, "true", []string{"a.invalid:443"}, gone},
		"it wants none":           {"p", expected, `{"network":false}`, "false", []string{"a.invalid:443"}, shut},
		"it wants another":        {"p", expected, `{"network":true,"networkAllowlist":[{"host":"a.invalid","port":22}]}`, "false", []string{"a.invalid:443"}, shut},
		"it wants an empty list":  {"p", expected, `{"network":true,"networkAllowlist":[]}`, "false", []string{"a.invalid:443"}, shut},
		"it does not expect any":  {"p", "", `{"network":true}`, "false", []string{"a.invalid:443"}, "no proxy"},
		"it expects another":      {"p", `{"outbound":true,"allowlist":["b.invalid"]}`, `{"network":true}`, "false", []string{"a.invalid:443"}, "no proxy"},
		"it expects no place":     {"p", `{"outbound":true,"allowlist":[]}`, `{"network":true}`, "false", []string{"a.invalid:443"}, "no proxy"},
		"nothing is configured":   {"p", expected, `{"network":true}`, "false", nil, "no proxy"},
		"another is configured":   {"other", expected, `{"network":true}`, "false", []string{"a.invalid:443"}, "no proxy"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReaching(t, c.expected, c.listed...)
			args := []string{"reach=a.invalid:443", "wants=" + c.wants}
			if name == "all of them" {
				args = append(args, "proto=asp/0.1")
			}
			r.add(c.id, args...)
			res := r.check(c.id, provider.Settings{Comparison: "all"}, nil)
			r.answers("a.invalid:443: " + c.want)
			if res.Status != checks.Failed || (len(res.Provider.Network) > 0) != (c.want == gone) || !r.wire(`"network":`+c.told+`,`) {
				t.Errorf("%s %s, network %v: %s", res.Status, res.Detail, res.Provider.Network, r.trace.String())
			}
		})
	}
	r := newReaching(t, expected, "a.invalid:443")
	r.add("p", `wants={"network":true,"networkAllowlist":[{"host":"*"}]}`)
	if res := r.check("p", provider.Settings{}, nil); res.Status != checks.Malformed {
		t.Errorf("%s: %s", res.Status, res.Detail)
	}
}

// What a provider asked for before it failed is told as well.
func TestNetworkOfAFailure(t *testing.T) {
	for _, how := range []string{"exit", "noise", "null", "hang-deaf"} {
		r := newReaching(t, `{"outbound":true,"allowlist":["a.invalid"]}`, "a.invalid:443")
		r.add("p", `wants={"read":["**/*"]}`, "reach=a.invalid:443", "work="+how)
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			<-r.said
			if how == "hang-deaf" {
				cancel()
			}
		}()
		res := r.run(ctx, "p", r.subject(), provider.Settings{}, 0)
		cancel()
		if res.Status == checks.Failed || len(res.Network) != 1 || !strings.Contains(res.Network[0], "https://a.invalid:443") {
			t.Errorf("%s: %s, record %q", how, res.Status, res.Network)
		}
	}
	r := newReaching(t, `{"outbound":true,"allowlist":["a.invalid"]}`, "a.invalid:443")
	r.add("p", `wants={"read":["**/*"]}`, "reach=a.invalid:443", "set=proposal.pass=true")
	_, err := r.propose("p")
	if f := provider.AsFailure(err); f == nil || f.Reason != wire.DegradeMalformed || len(f.Network) != 1 {
		t.Errorf("%v", err)
	}
}
