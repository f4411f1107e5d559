package checks

import (
	"context"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/wire"
)

// ProviderPrefix starts the result name of a provider, as command/ starts that
// of a command check.
const ProviderPrefix = "provider/"

// Participant is who stands behind a result: what the manifest says, and what
// launch and handshake of this run established. Nothing in it is the
// provider's own word, except where noted.
type Participant struct {
	ID        string // server.id of the manifest
	Version   string // server.version of the manifest
	Publisher string // provenance.publisher
	Package   string // "" where none is known; for people only
	// Fingerprint is artifact.fingerprint. It counts as integrity only with
	// Verified.
	Fingerprint string
	Profiles    []string // capabilityProfiles
	Families    []wire.Family
	// ServerVersion is serverInfo.version of the handshake, the provider's
	// word; "" before one. Another than Version is a skew.
	ServerVersion string
	// Mode is what the provider was enabled for in this repository: advisory
	// or gated; "" when it is not enabled. It is no isolation.
	Mode wire.Mode
	// Verified: every checksum that the manifest lists was found on disk at the
	// launch of this run.
	Verified bool
	// NoChecksums: the manifest lists none, so that nothing of its artifact was
	// measured and Verified holds of nothing.
	NoChecksums bool
	// ConfigDigest and CapabilityVersion are the provider's word.
	ConfigDigest, CapabilityVersion string
	// PinnedConfig is the configDigest that config.json demands, "" when none.
	PinnedConfig string
	// State is where its lifecycle stood at the end of the request.
	State wire.Lifecycle
	// DirectWrite: it asked for permission to write, or could have written the
	// live tree without the host.
	DirectWrite bool
	// Network is what its launch may reach; nil for nothing. What it says may then rest on
	// more than it was asked about.
	Network []string
	// Roles that the provider claims beyond its families (host methods, gate
	// answers of its own): a path around the host. "" without one.
	FastPath string
}

// Provided is the part of a Result that only a provider gives.
type Provided struct {
	// Provider is nil for a command check.
	Provider *Participant
	// Family of the request that was answered; "" is check. A result of the
	// families inspect and edit says how the provider stands: Passed when it is
	// launched and can serve, or why not. It carries no diagnostics.
	Family wire.Family
	// Diagnostics as validated: under a declared source, inside the scope.
	Diagnostics []wire.Diagnostic
	// More are further ones that were left out of a kept record, MoreBlocking
	// those of them that would block.
	More, MoreBlocking int
	// Degraded is what the provider says of its own coverage.
	Degraded []wire.Degradation
	// Reason, if set, is the cause in the words of the protocol, where Status is
	// coarser; State likewise. Both are ignored for a complete answer.
	Reason wire.DegradeReason
	State  wire.Lifecycle
	// FailClass of an error answer; read for Errored alone, and missing counts
	// as contract.
	FailClass wire.FailClass
	// Comparison that was asked for: introduced, all, resolved; "" when the
	// dialect has none. Findings of resolved never gate.
	Comparison string
	// Served are the blobs that the host gave out in this request.
	Served []wire.BlobRef
	// Coverage is the assessment's own, as it came; no value without one.
	Coverage canon.Value
	// Cache is the assessment's cache.status; "verdict" when the host answered
	// from its own cache.
	Cache string
	// Accepted is the answer as its provider may be reminded of it and held to it
	// later; nil unless it is complete and in asp/1.0.
	Accepted *Accepted
}

// Accepted is a complete assessment that was accepted.
type Accepted struct {
	Digest     string // sha256 of the canonical assessment, as it came
	Comparison wire.Comparison
	ValidAsOf  wire.AssessmentValidAsOf
	Provider   wire.AssessmentProvider
	// Diagnostics in the words of the provider, without their fixes. The same finding
	// at the same place is in it once.
	Diagnostics []wire.Diagnostic
}

// Remote is a check that needs no files: it is given what it reads by
// callbacks. Run passes it a nil candidate and builds no scratch tree for it.
type Remote interface {
	Check
	Remote() bool
}

// Known is a check whose answer over the after-state as it is now may be there already.
// Run asks it first, and builds no scratch tree for an answer that is. That answer
// counts as a run: the live tree is looked at afterwards, and what moved voids it.
type Known interface {
	Check
	Known(ctx context.Context) (Result, bool)
}

func known(ctx context.Context, c Check) (Result, bool) {
	if k, ok := c.(Known); ok {
		return k.Known(ctx)
	}
	return Result{}, false
}

func isRemote(c Check) bool {
	r, ok := c.(Remote)
	return ok && r.Remote()
}
