package editplan

import (
	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/snapshot"
)

// StateKind says what is at a path.
type StateKind uint8

// The kinds of state. Other covers FIFOs, sockets and devices.
const (
	Absent StateKind = iota
	IsFile
	IsDir
	IsSymlink
	IsOther
)

// String names the kind the way messages do.
func (k StateKind) String() string {
	return [...]string{"nothing", "a file", "a directory", "a symbolic link", "a special file"}[k]
}

// State is what is at a path. Digest and Size belong to files only (a reader
// may give the digest of a link's target for a link), Exec is the executable
// bit of the owner.
type State struct {
	Kind   StateKind
	Digest snapshot.Digest
	Size   int64
	Exec   bool
}

// Reader is the live state that a plan is resolved against. Its answers must
// belong to one look: a path asked twice gives the same. Links are not
// followed. Errors mean that it could not tell and end the resolving.
type Reader interface {
	// State describes a path. It is asked for parents before what lies in them,
	// and never for anything below a parent that is no directory.
	State(p snapshot.Path) (State, error)
	// Bytes gives the content of a file whose State was asked for. It is called
	// only for files that take text edits.
	Bytes(p snapshot.Path) ([]byte, error)
	// Names lists what is directly in a directory, in any order, including names
	// that are no valid Path. Resolve calls it only for a directory that the plan
	// empties and then wants to use as a file's name; importers, for a directory
	// that an edit removes or moves as a whole.
	//
	// barred says why the directory must not be looked into (another repository, a
	// protected directory, no permission). It has no names then, but is not empty.
	Names(p snapshot.Path) (names []string, barred *refusal.Item, err error)
}

// Hashed is a Reader that keeps bytes which it hashed itself: what it gives need not
// be hashed again to be known as the content of its State.
type Hashed interface {
	// Hashed returns the very bytes that Digest was computed over; false if they
	// are not kept.
	Hashed(p snapshot.Path) (content []byte, digest snapshot.Digest, ok bool)
}

// Content says where the bytes of an after-state come from.
type Content uint8

// The contents.
const (
	ContentNone  Content = iota // the path will be absent
	ContentSame                 // the bytes that are at Net.Path now: only the mode changes
	ContentBlob                 // Plan.Blobs[After.Digest]
	ContentEdits                // Net.Bytes
	ContentLive                 // the bytes that are at Net.From now
)

// Net is what a plan amounts to at one path: its state now and afterwards,
// which differ. What happened in between leaves no trace.
type Net struct {
	Path snapshot.Path
	// Before is a directory where a file takes the place of one that the plan
	// empties; After never is.
	Before, After State
	Content       Content
	Bytes         []byte // ContentEdits only
	// From is the path at which the file that ends up here is now, when that is
	// another one: its owner, mode and attributes are the ones to keep, whether
	// its bytes were edited or not. Zero for new files and for files that stay.
	From snapshot.Path
	// Moved marks a pure move: nothing is at Path now, nothing will be at From,
	// and bytes and mode stay, so the file itself can be renamed. The Net of From
	// then has MovedTo set.
	Moved   bool
	MovedTo snapshot.Path
	// Mode is the last mode asked for; ModeKeep if none was. A kept mode is that
	// of the file From or, without one, of the file at Path; a file that is
	// neither gets the mode of a new one.
	Mode ModeChange
	// Made marks a file that the plan created, whatever was at Path before. It is
	// executable only if the plan asks for it.
	Made bool
	// Ops are the operations that shaped this path, ascending.
	Ops []int
}
