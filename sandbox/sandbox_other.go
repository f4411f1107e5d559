//go:build !linux

package sandbox

import (
	"context"
	"os"
)

// Probe answers No for everything on this system.
func Probe(context.Context, ProbeDirs) Caps {
	no := Cap{Answer: No, Detail: "needs Linux"}
	return Caps{no, no, no, no, no, no, no, no, no, no, no, no}
}

// Stdio says what the command's streams are, and what it is.
type Stdio struct{ In, Out, Err, Exec *os.File }

// Process is a started command; none is on this system.
type Process struct{}

// Wait cannot be reached on this system.
func (*Process) Wait() (Result, error) { return Result{}, ErrUnsupported }

// Kill does nothing on this system.
func (*Process) Kill() {}

// Reach does nothing on this system.
func (*Process) Reach([]string) error { return nil }

// Withhold does nothing on this system.
func (*Process) Withhold() []string { return nil }

// Boundary is empty on this system.
func (*Process) Boundary() Boundary { return Boundary{} }

// Start starts nothing on this system: descendants could not be killed reliably.
func Start(_ context.Context, _ Caps, s Spec, _ Stdio) (*Process, error) {
	return nil, &UnsupportedError{s.Require, "needs Linux", nil, false}
}

// Run starts nothing on this system.
func Run(_ context.Context, _ Caps, s Spec) (Result, error) {
	return Result{}, &UnsupportedError{s.Require, "needs Linux", nil, false}
}

// Spare is none on this system.
type Spare struct{}

// NewSpare makes none on this system.
func NewSpare(Caps) *Spare { return nil }

// Close does nothing on this system.
func (*Spare) Close() {}

// Ends has nothing to take down on this system.
type Ends struct{}

// Wait returns at once on this system.
func (*Ends) Wait() {}

// SystemPath is false on this system: it has no isolated launches.
func SystemPath(string) bool { return false }
