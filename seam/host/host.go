// Package host is the outer seam: what a harness speaks to. It reads requests
// from connections, hands each to an engine, and writes what the engine says. It
// holds no rule of its own, so that another front could replace it without moving
// a decision: what is refused, denied or degraded is said by the rooms below.
//
// A Host serves one workspace. A session is one connection to it, with a set of
// content of its own; sessions know nothing of each other and meet only at the
// workspace's lock. Every request opens an engine: trusted configuration,
// enrolment and the policy at HEAD are what they are at that moment, never what
// they were when the host was started.
//
// Everything that a Host starts ends with the call that started it.
package host

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/aspengine/asp/apply"
	"github.com/aspengine/asp/seam/wire"
)

// Engine does the work of one request; *apply.Engine is one. It is used by one
// goroutine and closed after the request.
type Engine interface {
	Status(ctx context.Context, q apply.SurfaceRequest) (apply.Status, error)
	Capabilities(ctx context.Context, q apply.SurfaceRequest) (*wire.CapabilitiesResult, error)
	AuthorityStatus(ctx context.Context, q apply.SurfaceRequest) (*wire.AuthorityStatusResult, error)
	Evaluate(ctx context.Context, q apply.EvaluateRequest) (*apply.Evaluation, error)
	Inspect(ctx context.Context, q apply.InspectRequest) (*wire.QueryInspectResult, error)
	RequestEdit(ctx context.Context, q apply.EditRequest) (*wire.RequestEditPlanResult, error)
	ApplyProposal(ctx context.Context, q apply.ProposalRequest) (*apply.Answer, error)
	// DropProposal forgets a plan that RequestEdit kept.
	DropProposal(id string) error
	// Misread stores the receipt of a request that could not be read, and returns the
	// error that names it.
	Misread(ctx context.Context, method, requestDigest string, w *wire.Error) error
	io.Closer
}

// Options are what a host is made with. Open is required; the zero value of
// everything else is the safe default.
type Options struct {
	// Open gives an engine for one request, and how an apply publishes by
	// configuration. It is called from several goroutines. step is told what is
	// going on, from the goroutine that uses the engine.
	Open func(ctx context.Context, step func(what string)) (Engine, apply.Request, error)
	// Wrong puts an error into the words of the outer seam; nil: apply.WireError.
	Wrong func(error) *wire.Error
	// MessageBytes bounds a line, in bytes (0: 16 MiB).
	MessageBytes int64
	// BlobBytes bounds the content that one session may put, in bytes (0: 64 MiB);
	// all sessions together may put twice as much.
	BlobBytes int64
	// Drain is how long requests may go on after exit or the end of the input (0:
	// 5 s), Finish how long after shutdown, which asks for their answers (0: 1 min).
	// Then they are cancelled, and answered so.
	Drain, Finish time.Duration
	// ProgressAfter is how long a request runs before its harness is told what it
	// is doing, and the least time between two such notices (0: 1 s).
	ProgressAfter time.Duration
	// Sessions bounds the connections of Listen (0: 256); more wait to be accepted.
	Sessions int
	// Trace, if set, gets a transcript of all sessions, one JSON line a message;
	// the contents of files stay out unless TraceContents.
	Trace         io.Writer
	TraceContents bool
	// Log, if set, is told what no harness is: a refused peer, a broken connection.
	Log *slog.Logger
}

// Bounds where nothing is configured.
const (
	DefaultBlobBytes = 64 << 20
	defaultDrain     = 5 * time.Second
	defaultFinish    = time.Minute
	defaultProgress  = time.Second
	defaultSessions  = 256
	// sessionPlans is how many plans are kept for one session; its oldest give way.
	sessionPlans = 32
	// largeBytes is the size of a line from which requests take turns: a message
	// of the limit costs several times its size while it is worked on.
	largeBytes = 1 << 20
	largeLanes = 2
)

// Host serves one workspace. Its methods may be called from any goroutine.
type Host struct {
	o     Options
	large chan struct{} // holds a token for each large request at work
	store *budget       // content of all sessions
	trace io.Writer
	log   *slog.Logger
}

// New makes a host. It opens nothing.
func New(o Options) *Host {
	if o.Wrong == nil {
		o.Wrong = apply.WireError
	}
	if o.BlobBytes <= 0 {
		o.BlobBytes = DefaultBlobBytes
	}
	if o.Drain <= 0 {
		o.Drain = defaultDrain
	}
	if o.Finish <= 0 {
		o.Finish = defaultFinish
	}
	if o.ProgressAfter <= 0 {
		o.ProgressAfter = defaultProgress
	}
	if o.Sessions <= 0 {
		o.Sessions = defaultSessions
	}
	h := &Host{o: o, large: make(chan struct{}, largeLanes), store: &budget{left: 2 * o.BlobBytes}, log: o.Log}
	if o.Trace != nil {
		h.trace = &sharedWriter{w: o.Trace}
	}
	if h.log == nil {
		h.log = slog.New(slog.DiscardHandler)
	}
	return h
}

// sharedWriter lets several sessions write whole lines to one file.
type sharedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (s *sharedWriter) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(p)
}

// ErrLive answers Listen where another host serves the socket.
var ErrLive = errors.New("another host serves this socket")
