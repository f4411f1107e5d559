package apply

import (
	"context"
	"errors"

	"github.com/aspengine/asp/apply/commit"
	"github.com/aspengine/asp/checks"
	"github.com/aspengine/asp/editplan"
	"github.com/aspengine/asp/editplan/patch"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/preconditions"
	"github.com/aspengine/asp/receipt"
	"github.com/aspengine/asp/seam/wire"
	"github.com/aspengine/asp/snapshot"
)

// Publish is how an after-state reaches its readers (contract section 7). The
// modes have different proofs and are never merged into one word.
type Publish uint8

// The publish modes.
const (
	Journal  Publish = iota // swapped path by path under a write-ahead journal
	Exchange                // whole tree built beside the root and exchanged
	Stage                   // kept under ASP_HOME for publish; the workspace is not touched
)

func (p Publish) String() string { return [...]string{"journal", "exchange", "staged"}[p] }

// View is what a loader may look at: the present state, through descriptors.
type View = preconditions.View

// Loader gives the plan. It runs under the workspace lock, so an importer that
// takes preconditions from the present state and the transaction that checks
// them see the same one. Refusals end the attempt like any other. Where an apply waits
// behind others of its process, it may also be called before that, by another goroutine,
// to foresee what it will do: it has to be safe for that, and may not use anything up.
type Loader func(ctx context.Context, v *View, base snapshot.Baseline) (editplan.File, refusal.List, error)

// Request is one wish to apply.
type Request struct {
	Load     Loader
	CallSite wire.CallSite
	Intent   wire.Intent
	Publish  Publish
	DryRun   bool
	// Checks are command checks that the caller requires beside the policy's.
	Checks           []string
	RequireGuarantee commit.Guarantee
	RequireAssurance checks.Isolation
	// Merge allows a clean three-way merge where touched bytes moved.
	Merge bool
	// VerifyContent stamps by reading every file.
	VerifyContent bool
	// Index also writes the index entries of the touched paths.
	Index bool
	// Ref, with Stage, makes the after-state a commit on that ref.
	Ref          string
	Message      string
	IncludeDirty bool
	// Show, if set, is given the changes before anything is written.
	Show func([]patch.Change)
	// AsProposal is the proposal id under which the outcome is reported, where it
	// is not the plan's own (undo).
	AsProposal string
	// doneBy is the provider of a plan that was carried out under AsProposal and is not
	// kept; "" for none.
	doneBy string
	// staged: the plan is one that was staged, and is published now.
	staged bool
	// Undoes is the receipt that is taken back; Perms the exact permission bits
	// of paths that this brings back; Load may fill it.
	Undoes string
	Perms  map[string]uint32
	// undo makes the plan of Undoes, and knows what it merged.
	undo *undo
	// Blobs is content that a session put for its proposals; nil for none.
	Blobs Blobs
	// Origin says whose plan it is; the zero value is the caller's own.
	Origin PlanOrigin
	// BasePolicyDigest is what the caller believes the active policy to be; "" for
	// nothing.
	BasePolicyDigest string
	// RequestDigest is over the request of the outer seam as it came; "" takes that
	// of the request that a command amounts to.
	RequestDigest string
}

// Answer is what came of a request. Exactly one of Result and DryRun is set.
type Answer struct {
	Result   *wire.ApplyProposalResult
	DryRun   *wire.DryRunResult
	Stored   canon.Value // the result as kept, for a repeated request
	Outcome  receipt.Outcome
	Receipt  string // id
	Refusals refusal.List
	Facts    *commit.Facts
	Checks   []checks.Result
	Nets     []editplan.Net
	Repeated bool // the proposal was applied before; nothing was written now
	Notes    []string
	// Recovered are transactions of an earlier crash that this run ended.
	Recovered []commit.Recovered
	Attention []commit.AttentionPath
}

// Failure is an error with a stored receipt that claims nothing.
type Failure struct {
	Err     error
	Receipt string
	// Outcome is failed, cancelled or rolled-back.
	Outcome receipt.Outcome
}

func (f *Failure) Error() string { return f.Err.Error() }

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.Err }

// ErrAttention says that the workspace was left in a state that a person must
// resolve with `asp recover`.
var ErrAttention = errors.New("needs attention: run `asp recover`")
