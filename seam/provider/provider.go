// Package provider is the inner seam: it launches the providers that are enrolled,
// speaks their dialect, gives them the content that they were granted and no
// other, and holds what they send against the contract before anybody else sees
// it. It decides nothing: it reports assessments, plans and answers that are
// well formed and fresh, or why there is none.
//
// A provider is hostile until checked. It runs in a sandbox without a workspace,
// reads by callbacks alone, has one request in flight, and whatever it says is
// contained text: bounded, valid UTF-8, never a path to open, never a command. How well
// it was kept from the workspace is what the probe of its own launch proved.
package provider

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/aspengine/asp/checks"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/sandbox"
	"github.com/aspengine/asp/seam/manifest"
	"github.com/aspengine/asp/seam/wire"
)

// Options say what a Pool may launch, and how.
type Options struct {
	// Registry holds the manifests; nothing else is ever launched. Nil: there is no
	// provider.
	Registry *manifest.Registry
	// Enabled tells what a provider was enabled for in this repository; ok is
	// false where it was not, and then it is never launched.
	Enabled func(id string) (mode wire.Mode, ok bool)
	// Network tells what the trusted configuration lets a provider reach, now: it is
	// granted as far as its manifest expects it. Nil, and for any provider that the
	// configuration does not name: nothing. One that runs and was launched for another list
	// is launched anew with its next request.
	Network func(id string) []string
	// State is the directory of quarantine.json. The pool does not close it. Nil:
	// quarantine lasts as long as the pool.
	State   vfs.Dir
	Sandbox Launch
	// MessageBytes bounds a line on the seam; 0 is 16 MiB.
	MessageBytes int64
	// Callbacks bounds the callbacks of one request; 0 is 100,000.
	Callbacks int64
	// Idle ends a provider that was not asked anything for so long; 0 is five
	// minutes.
	Idle time.Duration
	// Version is the host's, for initialize.
	Version string
	// Now is the clock of quarantine and back-off; nil is time.Now.
	Now func() time.Time
	// Trace gets a transcript of every connection, see rpc.Options.
	Trace         io.Writer
	TraceContents bool
	// Log gets launches, ends and what providers print; nil for none.
	Log *slog.Logger
}

// Launch says how a provider is confined.
type Launch struct {
	Caps sandbox.Caps
	// Probe, if set, tells at each launch what Caps would.
	Probe   func(ctx context.Context) (sandbox.Caps, error)
	Require sandbox.Level // LevelInvalid means Advisory; see Pool.Demand
	Isolate bool          // isolate where the machine can, though Require says less
	// Hide are directories that no provider sees: workspace root, git directory,
	// ASP_HOME, the user's home. What a provider needs of its own inside them is
	// shown read-only.
	Hide []string
	// Protect are the directories that the probe tries to write to.
	Protect []string
	// Read are further directories that are shown though they lie in hidden ones.
	Read []string
	// Env are variables beside those that the manifest declares, with their
	// values; Lookup gives the value of a declared one.
	Env    map[string]string
	Lookup func(name string) (string, bool)
	// Scratch is the directory in which private working directories are made.
	Scratch string
	// Limits bound a launch; Wall is the longest request, not the life of a
	// provider.
	Limits Limits
}

// Limits are the resource limits that are granted. Zero is the default.
type Limits struct {
	Wall     time.Duration // one request; default 30 s, at most 5 min
	Files    uint64        // descriptors; default 256
	CPUPct   int64         // of one CPU, told to the provider and enforced where control groups can; default 100
	MemoryMb int64         // told to the provider, and in an isolated launch what one process of it may have; default 1024
	// Processes and FileMb are as sandbox.Limits has them; default none.
	Processes, FileMb int64
}

// Settings are what a provider is asked, from providers{} of config.json.
type Settings struct {
	Checks, Rules, Sources []string
	Configuration          canon.Value // an object, or no value
	// ConfigDigest pins the provider's own digest of its settings; "" takes any.
	ConfigDigest string
	// Comparison is introduced, all or resolved; "" is introduced.
	Comparison string
	// Scope is changeset, impact or workspace; "" is changeset. With impact, Subject.Scope
	// says which paths.
	Scope string
}

// Content is what a provider may ask for, before the grant. Implementations are
// safe for concurrent use.
type Content interface {
	// Tree is the baseline tree.
	Tree(ctx context.Context) ([]wire.TreeEntry, error)
	// Where are the paths of baseline and after-state that hold a blob; none when
	// it is unknown.
	Where(ctx context.Context, b wire.BlobRef) ([]string, error)
	// Bytes is the content of a blob that Where knows.
	Bytes(ctx context.Context, b wire.BlobRef) ([]byte, error)
}

// Near is a Content that can name some paths of a blob, as Where would, without looking
// for all of them.
type Near interface {
	Near(b wire.BlobRef) []string
}

// Subject is a candidate to be assessed.
type Subject struct {
	Baseline        wire.Baseline
	Changeset       canon.Value // as its digest is over it
	ChangesetDigest string
	Changes         []wire.Change
	Content         Content
	CallSite        wire.CallSite
	// Comparison, if set, wins over the settings.
	Comparison string
	// Scope, if not nil, limits the assessment to these paths.
	Scope []string
	// Views is what this provider said before, under the same settings. It is told to
	// one that says it is incremental, and every other is held to it too.
	Views Views
}

// ProposeRequest asks for an edit plan.
type ProposeRequest struct {
	Operation  string
	Args       canon.Value // an object, or no value
	Baseline   wire.Baseline
	Scope      []string // globs or paths that the plan may touch; empty: all that is granted
	Profile    string   // operationProfile, "" for none
	ProposalID string
	Content    Content
	Budget     time.Duration
}

// Proposal is a plan that is acceptable in form, of any status.
type Proposal struct {
	Plan        canon.Value // as it came
	Decoded     wire.EditPlan
	Blobs       map[wire.BlobRef][]byte // what was put for it, and is named by it
	Served      []wire.BlobRef
	Participant checks.Participant
	Isolation   wire.Mode
	Evidence    string
	Probed      []string // see checks.Result
	Network     []string // see checks.Result
}

// QueryRequest asks an inspect verb.
type QueryRequest struct {
	Method   string      // inspect/… or sense/…
	Params   canon.Value // an object, or no value
	Baseline wire.Baseline
	Content  Content
	Budget   time.Duration
}

// Answer is a graph or an impact result.
type Answer struct {
	Value       canon.Value // as it came, in its own shape
	Complete    bool        // false when the provider says it was cut, or read less than there is
	Served      []wire.BlobRef
	Participant checks.Participant
	Isolation   wire.Mode
	Evidence    string
	Network     []string // see checks.Result
}

// Failure is why there is no assessment, plan or answer. Its text is bounded.
type Failure struct {
	Provider string
	Reason   wire.DegradeReason
	State    wire.Lifecycle
	Class    wire.FailClass
	Detail   string
	// Participant as far as it was established.
	Participant checks.Participant
	Network     []string // see checks.Result
}

func (f *Failure) Error() string {
	return fmt.Sprintf("ask provider %.100q: %s: %s", f.Provider, f.Reason, f.Detail)
}

// Standing is how a provider stands, without asking it.
type Standing struct {
	ID          string
	Participant checks.Participant
	// Problem is why its manifest cannot be used; "" for none.
	Problem string
	// Used is false until the first launch by this pool. State is then Unavailable.
	Used  bool
	State wire.Lifecycle
	// Health holds inspect, check and edit.
	Health map[wire.Family]wire.CapabilityHealth
	// Quarantine is nil while there is none.
	Quarantine *Quarantine
	// Isolation and Evidence of the last launch. Outdated: it was made for less than is
	// demanded now, and the next request makes another.
	Isolation wire.Mode
	Evidence  string
	Outdated  bool
	Probed    []string // see checks.Result
	// What the handshake declared; zero before one.
	Capabilities wire.Capabilities
	Protocol     string
	// Ambient is what it published by itself.
	Ambient Ambient
	// Artifact is what Look found of its files; zero without a look.
	Artifact Artifact
	// Runs: its last launch still does.
	Runs bool
	// Failure is the last one, "" since a success. Unstarted tells that it was one of
	// launching, by the machine or by what the manifest says, and not by the files.
	Failure   string
	Unstarted bool
	// Stderr is the end of what the last launch printed, foreign text.
	Stderr string
}

// Quarantine keeps a provider from being asked.
type Quarantine struct {
	Until    time.Time
	Failures int    // in a row
	Reason   string // of the last one
}
