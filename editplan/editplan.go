// Package editplan turns a foreign edit (an EditPlan of the protocol, a diff,
// an LSP WorkspaceEdit) into a Plan: a checked, bounded, ordered list of
// operations bound to content digests. It is pure: no file system, no clock,
// no goroutine; the same input gives the same plan anywhere. It never executes
// and never writes anything.
package editplan

import (
	"github.com/aspengine/asp/snapshot"
)

// OpKind is what one operation does.
type OpKind uint8

// The operations. The wire's "move" is Rename.
const (
	OpInvalid OpKind = iota
	Create
	Modify
	Delete
	Rename
)

func (k OpKind) String() string {
	switch k {
	case Create:
		return "create"
	case Modify:
		return "modify"
	case Delete:
		return "delete"
	case Rename:
		return "rename"
	}
	return "invalid"
}

// ModeChange is what an operation asks of the executable bit.
type ModeChange uint8

// The mode changes. ModeKeep keeps the mode of an existing file and gives a
// new one 0666 less the umask.
const (
	ModeKeep ModeChange = iota
	ModePlain
	ModeExec
)

// Pos is a zero-based line and UTF-16 code unit (contract section 5).
type Pos struct{ Line, Char int }

// TextEdit replaces the text between two positions of the basis.
type TextEdit struct {
	Start, End Pos
	NewText    string
}

// Op is one operation, meaning what its place in the list says: it sees the
// state that the earlier ones leave.
type Op struct {
	Index    int // place in the plan's documentChanges
	Kind     OpKind
	Path     snapshot.Path
	To       snapshot.Path   // Rename only
	Expected snapshot.Digest // bytes that Path must have; zero for Create
	After    snapshot.Digest // whole-blob result; zero when Edits is used
	HasAfter bool            // After is set; equal to Expected it keeps the bytes (a change of mode only)
	Edits    []TextEdit      // Modify only, in plan order
	Mode     ModeChange
}

// Blob is content that travels with a plan.
type Blob struct {
	Digest snapshot.Digest
	Bytes  []byte
}

// Plan is an admitted-by-shape edit plan. Only Compile makes one.
type Plan struct {
	ID        string // proposalId
	Provider  string // provider id as the plan says; grants nothing
	Baseline  snapshot.Baseline
	StampedAt string // of the baseline, as sent; "" if absent
	ValidAsOf []snapshot.Digest
	Ops       []Op
	Blobs     map[snapshot.Digest][]byte
	Digest    snapshot.Digest // of the canonical EditPlan as received
	Canonical []byte          // the canonical EditPlan as received
}
