// Package worktree makes the after-state concrete when a check needs a file
// system: an overlay over the live tree, mounted only inside the check's own
// namespaces, or a copy. It writes under its scratch directory alone and sees
// the live tree read-only.
package worktree

import (
	"github.com/aspengine/asp/snapshot"
)

// Method is how a candidate is made.
type Method uint8

// The methods.
const (
	MethodInvalid Method = iota
	Overlay
	Copy
)

// Candidate is one after-state on disk, bound to the baseline it was made from.
type Candidate struct {
	Root    string // the workspace's own path; where an overlay is mounted inside the check's namespaces
	Method  Method
	Scratch string // private directory, removed by Close
	Effects []snapshot.Effect
	Base    snapshot.Baseline
}
