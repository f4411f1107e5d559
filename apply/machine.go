package apply

import (
	"context"
	"fmt"
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
	proof map[string]told[sandbox.Boundary] // by everything that the launch is told
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

// asked tells whether anybody asked for anything yet. It waits for who asks.
func (m *Machine) asked() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.caps) > 0
}

// capsOf also says until when to believe it; the zero time where it could not be told.
func (m *Machine) capsOf(ctx context.Context, root, scratch string) (sandbox.Caps, time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t, ok := m.caps[root]; ok && time.Now().Before(t.until) {
		return t.what, t.until
	}
	// An answer ages from the moment of the question.
	began := time.Now()
	c := worktree.Probe(ctx, root, scratch)
	if ctx.Err() != nil {
		return c, time.Time{}
	}
	t := told[sandbox.Caps]{c, began.Add(believed(c.CanOverlay() && c.CanIsolate()))}
	m.caps[root] = t
	return t.what, t.until
}

// proofOf also says until when to believe it; the zero time where it could not be told.
func (m *Machine) proofOf(ctx context.Context, caps sandbox.Caps, like sandbox.Spec, scratch string) (sandbox.Boundary, time.Time, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := keyOf(like)
	if t, ok := m.proof[key]; ok && time.Now().Before(t.until) {
		return t.what, t.until, nil
	}
	began := time.Now()
	b, err := worktree.Prove(ctx, caps, like, scratch)
	if err != nil || ctx.Err() != nil {
		return b, time.Time{}, err
	}
	t := told[sandbox.Boundary]{b, began.Add(believed(b.Level == sandbox.Isolated))}
	m.proof[key] = t
	return t.what, t.until, nil
}

// keyOf names everything that a launch that is tried is told.
func keyOf(like sandbox.Spec) string {
	return fmt.Sprintf("%q %q %q %q %+v", like.Protect, like.Hide, like.Read, like.Egress, like.Limits)
}

func believed(yes bool) time.Duration {
	if yes {
		return machineYes
	}
	return machineNo
}
