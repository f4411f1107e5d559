package provider_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/aspengine/asp/checks"
	"github.com/aspengine/asp/internal/need"
	"github.com/aspengine/asp/sandbox"
	"github.com/aspengine/asp/seam/provider"
	"github.com/aspengine/asp/seam/wire"
)

// logged is a log that is read while it is written.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) { l.mu.Lock(); defer l.mu.Unlock(); return l.b.Write(p) }
func (l *logged) count(s string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), s)
}

// TestDemand: a provider that was launched for less than is demanded now is launched
// anew with its next request, of whatever kind; once, and never for a lesser demand.
func TestDemand(t *testing.T) {
	log := &logged{}
	w := newWorld(t, func(o *provider.Options) { o.Log = slog.New(slog.NewTextHandler(log, nil)) })
	if !caps().CanIsolate() {
		need.Missing(t, "this machine cannot isolate")
	}
	w.add("p")
	launches := func(want int) {
		t.Helper()
		if n := log.count("provider launched"); n != want {
			t.Errorf("%d launches, want %d", n, want)
		}
	}
	check := func(want checks.Isolation) {
		t.Helper()
		if r := w.check("p", provider.Settings{}, nil); r.Status != checks.Failed || r.Isolation != want {
			t.Errorf("%s, %s: %s", r.Status, r.Isolation, r.Detail)
		}
	}
	check(checks.MediatedWrite)
	w.pool.Demand(sandbox.MediatedWrite, true)
	if s := w.pool.Standing(context.Background(), "p"); !s.Outdated || s.Isolation != wire.MediatedWrite {
		t.Errorf("before the next request: %+v", s)
	}
	if p, err := w.propose("p"); err != nil || p.Isolation != wire.Isolated {
		t.Errorf("plan: %s, %v", p.Isolation, err)
	}
	launches(2)
	check(checks.Isolated)
	w.pool.Demand(sandbox.Gated, false)
	check(checks.Isolated)
	launches(2)
	if s := w.pool.Standing(context.Background(), "p"); s.Outdated {
		t.Error("a stronger launch is outdated")
	}
	w.pool.Demand(sandbox.Isolated, false)
	check(checks.Isolated)
	launches(3)
	check(checks.Isolated)
	launches(3)
}
