package provider

import (
	"slices"
	"sync"
	"time"

	"github.com/aspengine/asp/checks"
	"github.com/aspengine/asp/seam/manifest"
	"github.com/aspengine/asp/seam/wire"
)

// entry is one provider of the pool. Its session belongs to whoever has the
// turn; everything else is facts for those who only look.
type entry struct {
	id      string
	turn    chan struct{} // holds one
	session *session      // of whoever has the turn
	// deaf: it does not follow workspace/baselineChanged, as was seen. Of whoever
	// has the turn.
	deaf bool
	// asked is what it asked the proxy of its sandbox for in this turn, and what came of it. Of
	// whoever has the turn.
	asked []string
	// forgiven is the record of failures that its last success ended. Of whoever has the
	// turn.
	forgiven quarantine

	mu       sync.Mutex
	timer    *time.Timer
	used     bool
	state    wire.Lifecycle
	last     *session // of the last launch, over or not
	mode     wire.Mode
	evidence string
	probed   []string
	declared declared
	protocol string
	failure  string
	// unstarted: the last failure was that of a launch, and not because of the files.
	unstarted bool
	reason    wire.DegradeReason
	places    places // of what it published by itself
	// published: they changed and were not kept yet.
	published bool
}

func newEntry(id string) *entry {
	return &entry{id: id, turn: make(chan struct{}, 1), state: wire.Unavailable}
}

// launched begins the facts of a new launch.
func (e *entry) launched(s *session) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.used, e.last, e.state, e.protocol = true, s, wire.Launched, s.protocol
	e.mode, e.evidence, e.declared = s.mode(), s.proc.boundary.Evidence, declared{}
	e.places, e.published = places{}, true
	e.probed = s.proc.boundary.Record()
}

// lifecycle is where it is now.
func (e *entry) lifecycle() wire.Lifecycle {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.state
}

// moved is a step of the life of s.
func (e *entry) moved(s *session, to wire.Lifecycle) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.last == s {
		e.state, e.declared = to, s.declared
	}
}

// came is the outcome of a request: nil for a good answer.
func (e *entry) came(f *fault) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if f == nil {
		e.failure, e.reason, e.unstarted = "", "", false
		return
	}
	files := f.artifact.Problem != ""
	if e.unstarted = !e.used && !files && (f.reason == wire.DegradeUnavailable || f.reason == wire.DegradeIncompatible); files && !e.used {
		return // a look says how they are now
	}
	if f.reason != wire.DegradeCancelled {
		e.failure, e.reason = f.detail, f.reason
	}
	e.state = f.state
}

// publish takes a batch of findings that nobody asked for.
func (e *entry) publish(d wire.PublishDiagnosticsParams) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.places.put(d)
	e.published = true
}

// participant is who answered, as far as it is established.
func participant(m manifest.Manifest, mode wire.Mode, s *session) checks.Participant {
	if s == nil {
		return participantOf(m, mode, false, false, declared{})
	}
	return participantOf(m, mode, s.verified, s.proc.boundary.DirectWrite, s.declared)
}

func participantOf(m manifest.Manifest, mode wire.Mode, verified, directWrite bool, d declared) checks.Participant {
	p := checks.Participant{ID: m.ID, Version: m.Version, Publisher: m.Publisher, Package: m.Source, Fingerprint: m.Fingerprint,
		Profiles: slices.Clone(m.Profiles), Families: slices.Clone(m.Families), Mode: mode, State: wire.Unavailable,
		Verified: verified, NoChecksums: len(m.Checksums) == 0, ServerVersion: cut(d.serverVersion, maxName), DirectWrite: directWrite || d.directWrite,
		Network: slices.Clone(d.reach)}
	if d.families != nil {
		p.Families = slices.Clone(d.families)
	}
	if b := d.capabilities.CheckBlock(); b != nil {
		p.CapabilityVersion = cut(b.CapabilityVersion, maxName)
	}
	return p
}
