//go:build !linux

package worktree

import (
	"context"

	"github.com/aspengine/asp/sandbox"
)

// Build makes nothing on this system: no sandbox could use the candidate.
func Build(context.Context, Spec) (*Candidate, error) { return nil, ErrUnsupported }

// Probe answers No for everything on this system.
func Probe(ctx context.Context, _, _ string) sandbox.Caps {
	return sandbox.Probe(ctx, sandbox.ProbeDirs{})
}

// Prove is sandbox.Prove.
func Prove(ctx context.Context, caps sandbox.Caps, like sandbox.Spec, _ string) (sandbox.Boundary, error) {
	return sandbox.Prove(ctx, caps, like)
}

// Sweep finds nothing on this system, where Build makes nothing.
func Sweep(context.Context, string) ([]string, error) { return nil, nil }

// Close does nothing on this system.
func (c *Candidate) Close() error { return nil }
