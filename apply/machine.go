package apply

import (
	"context"
	"sync"
	"time"

	"github.com/aspengine/asp/sandbox"
	"github.com/aspengine/asp/worktree"
)

// How long an answer of the machine is believed: that it can do something, and that it
// cannot, which may have been a moment's trouble.
const (
	machineYes = 5 * time.Minute
	machineNo  = 10 * time.Second
)

// Machine remembers for some minutes what this machine gives a sandbox. Asking takes
// a launch or two, as long as everything else that host/status does. It is for
// saying what could be established and for choosing how to launch: what a run claims,
// its own launch proves. Engines of one process may share one. Safe for concurrent
// use; who asks while another asks waits for that answer.
type Machine struct {
	mu    sync.Mutex
	caps  map[string]told[sandbox.Caps]     // by workspace
	proof map[string]told[sandbox.Boundary] // by everything that the launch protects and hides
}

type told[T any] struct {
	what  T
	until time.Time
}

// NewMachine makes one that was asked nothing yet.
func NewMachine() *Machine {
	return &Machine{caps: map[string]told[sandbox.Caps]{}, proof: map[string]told[sandbox.Boundary]{}}
}

// The clock of both is the process's own and runs on where the machine's is set.

func (m *Machine) capsOf(ctx context.Context, root, scratch string) sandbox.Caps {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t, ok := m.caps[root]; ok && time.Now().Before(t.until) {
		return t.what
	}
	c := worktree.Probe(ctx, root, scratch)
	if ctx.Err() == nil {
		m.caps[root] = told[sandbox.Caps]{c, time.Now().Add(believed(c.CanOverlay() && c.CanIsolate()))}
	}
	return c
}

func (m *Machine) proofOf(ctx context.Context, caps sandbox.Caps, protect, hide []string) (sandbox.Boundary, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := string(texts([]string{string(texts(protect).Bytes()), string(texts(hide).Bytes())}).Bytes())
	if t, ok := m.proof[key]; ok && time.Now().Before(t.until) {
		return t.what, nil
	}
	b, err := sandbox.Prove(ctx, caps, protect, hide)
	if err == nil && ctx.Err() == nil {
		m.proof[key] = told[sandbox.Boundary]{b, time.Now().Add(believed(b.Level == sandbox.Isolated))}
	}
	return b, err
}

func believed(yes bool) time.Duration {
	if yes {
		return machineYes
	}
	return machineNo
}
