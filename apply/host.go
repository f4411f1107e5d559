package apply

import (
	"context"
	"errors"

	"github.com/aspengine/asp/checks"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/receipt"
	"github.com/aspengine/asp/seam/wire"
	"github.com/aspengine/asp/snapshot"
)

// Blobs gives content by digest; false where it has none. The bytes are
// compared with the digest by whoever asks.
type Blobs func(d snapshot.Digest) ([]byte, bool)

// EvaluateRequest is host/evaluateChangeset.
type EvaluateRequest struct {
	CallSite wire.CallSite
	// Changeset is the value as sent: digests are over it and nothing else.
	Changeset canon.Value
	// Comparison is "", all or introduced; "" leaves it to each provider's
	// configuration, and to introduced after that.
	Comparison string
	// TimeoutMs, if set, shortens the budget of the call-site; it never extends it.
	TimeoutMs        int64
	BasePolicyDigest string
	// Checks are command checks that are required beside the policy's.
	Checks []string
	// RequestDigest is over the request as it came; "" takes that of the request
	// of the outer seam that these members amount to.
	RequestDigest string
	// Blobs is what the session put; nil for none.
	Blobs Blobs
	// Changed, if set, is judged instead of a changeset on the present baseline;
	// Changeset is its own then.
	Changed *Changed
	// PolicyAt, if set, is the revision whose committed policy judges instead of
	// HEAD's.
	PolicyAt string
}

// Evaluation is what came of it.
type Evaluation struct {
	Verdict wire.Verdict
	Stored  canon.Value // the verdict as kept
	Checks  []checks.Result
	Notes   []string
}

// InspectRequest is host/queryInspect.
type InspectRequest struct {
	CallSite      wire.CallSite
	Request       canon.Value // {method, params}
	Baseline      *wire.Baseline
	TimeoutMs     int64
	RequestDigest string
}

// EditRequest is host/requestEditPlan.
type EditRequest struct {
	CallSite      wire.CallSite
	Operation     string
	Args          canon.Value // an object, or no value
	Baseline      wire.Baseline
	Scope         canon.Value // {paths, operationProfile?}, or no value: the whole tree
	ProposalID    string      // "": a fresh one
	Provider      string      // "": the one that policy and advertised operations choose
	RequestDigest string
}

// ProposalRequest is host/applyProposal: Apply with the rules on which plan is
// meant.
type ProposalRequest struct {
	Params        wire.ApplyProposalParams
	RequestDigest string
	Blobs         Blobs
	// Request chooses how to publish; Load, CallSite and Intent are set from Params.
	Request Request
}

// SurfaceRequest is a request about the surface as a whole: host/capabilities,
// host/authority/status.
type SurfaceRequest struct {
	CallSite      wire.CallSite // "" for none
	RequestDigest string
}

// WireError is the form in which an error of this package goes out on the outer
// seam: a *wire.Error as it is, anything else by whose fault it is, with the
// stored receipt named in detail.
func WireError(err error) *wire.Error {
	var w *wire.Error
	if errors.As(err, &w) {
		return w
	}
	var f *Failure
	detail, msg := "", valid(cutTo(err.Error(), 4000))
	if errors.As(err, &f) && f.Receipt != "" {
		detail = "receipt " + f.Receipt
	}
	if errors.Is(err, ErrAttention) {
		w := wire.NewError(wire.CodeNotReady, wire.FailHealth, msg, detail)
		no := false // a person has to decide first
		w.Data.Retryable = &no
		return w
	}
	if errors.Is(err, context.Canceled) || f != nil && f.Outcome == receipt.Cancelled {
		return wire.NewError(wire.CodeCancelled, wire.FailHealth, msg, detail)
	}
	var u *UnknownCheckError
	if errors.As(err, &u) {
		return wire.NewError(wire.CodeInvalidInput, wire.FailInput, msg, detail)
	}
	return wire.NewError(wire.CodeNotReady, wire.FailHealth, msg, detail)
}
