// Package checks runs opinions over a candidate after-state. A check knows
// neither the live tree nor the decision: it reports findings and how complete
// they are. What follows from them is checks/policy.
//
// Every run of a check gets a candidate of its own, so that its writes reach
// neither another check nor the bytes that are published. After every run the
// live tree is looked at again: a verdict over a tree that moved is void.
package checks

import (
	"context"
	"time"

	"github.com/aspengine/asp/snapshot"
	"github.com/aspengine/asp/worktree"
)

// Status is how a check ended.
type Status uint8

// String returns the status in one word.
func (s Status) String() string {
	words := [...]string{"invalid", "passed", "failed", "timed-out", "crashed", "unavailable", "incomplete", "cancelled", "stale",
		"malformed", "incompatible", "skewed", "quarantined", "unsupported", "errored", "missing"}
	if int(s) >= len(words) {
		return words[0]
	}
	return words[s]
}

// The statuses. Only Passed and Failed are complete answers; everything else
// makes a required check indeterminate.
const (
	StatusInvalid Status = iota
	Passed
	Failed      // complete, with at least one complaint of severity error; whether it gates is for the policy
	TimedOut    // its own time limit
	Crashed     // killed by a signal
	Unavailable // could not be started (missing program, sandbox refused)
	Incomplete  // ended, but left processes behind or its output was cut in a way that matters
	Cancelled   // by the caller
	Stale       // the tree moved under it and re-runs are used up; or its answer is about another state

	// Of providers alone.
	Malformed    // it answered something that is no acceptable assessment
	Incompatible // the handshake was refused, or no version of the protocol is common
	Skewed       // it is not the version that its manifest says, or its configuration is not the pinned one
	Quarantined  // it failed too often and is not started for a while
	Unsupported  // it says that it cannot evaluate this
	Errored      // it answered with an error, or with an assessment of status error
	Missing      // it is not enrolled or not enabled here, and was not asked
)

// Isolation is the assurance mode that the run of a check established, by
// probe, never by configuration.
type Isolation uint8

// The modes, weakest first.
const (
	Advisory Isolation = iota
	Gated
	MediatedWrite
	Isolated
)

// String returns the contract's word.
func (i Isolation) String() string {
	switch i {
	case Advisory:
		return "advisory"
	case Gated:
		return "gated"
	case MediatedWrite:
		return "mediated-write"
	case Isolated:
		return "isolated"
	}
	return "invalid"
}

// Finding is one complaint of a check.
type Finding struct {
	Code     string // under the check's source, e.g. command/NAME:exit
	Message  string // bounded, foreign text
	Path     string // "" when the whole tree is meant
	Line     int    // 1-based, 0 when unknown
	NextStep string
}

// Result is what one check said, once.
type Result struct {
	Name      string // source, e.g. "command/vet" or "provider/syntax"
	Status    Status
	Findings  []Finding
	ExitCode  int
	Output    []byte // bounded; the tail is kept
	Truncated bool
	Started   time.Time
	Elapsed   time.Duration
	Isolation Isolation
	Evidence  string           // one sentence: what was enforced and proven
	Probed    []string         // the record of the probe behind Isolation, whose digest stands in Evidence
	Network   []string         // what it asked the proxy of its sandbox for, and what came of it; bounded
	Env       snapshot.Ignored // what is ignored and visible to the check, for the receipt
	Detail    string           // why not Passed, for people
	// Unsupported: it was not started because this machine cannot give the level
	// that was required of its sandbox. Status is Unavailable then.
	Unsupported bool
	// DirectWrite: the check could have written to the live tree.
	DirectWrite bool
	Method      worktree.Method // how the candidate was made
	Runs        int             // how often the check ran, 1 to 3
	Early       *Early          // it ran before its turn; nil: it did not
	Notes       []string        // facts about the candidate: fallbacks, files left out
	Provided                    // of a provider; zero for a command check
}

// Early is what a check looked at that ran while its plan waited: the after-state that
// was foreseen, and that the plan then left.
type Early struct {
	Began      time.Time
	Rev, Dirty string
}

// Check is one opinion.
type Check interface {
	// Name is the coverage source.
	Name() string
	// Run looks at the candidate. An error means that we could not tell and
	// says why; a complaint is a Result.
	Run(ctx context.Context, c *worktree.Candidate) (Result, error)
}
