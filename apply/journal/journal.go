// Package journal is the write-ahead record of one transaction: its format, a
// writer and a reader. It owns the bytes of the journal file and nothing else;
// what a record means for the workspace is apply/commit's.
//
// A journal is an append-only file of framed records behind a versioned
// header. The reader takes any bytes: it never panics, never allocates more
// than the input is long (times a small constant), stops at the first record
// that is not whole, and hands out only paths and names that were checked
// again. A journal with a valid Ready record has an intent; one with a valid
// Commit record behind it is decided. Nothing else decides.
package journal

import (
	"errors"

	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/snapshot"
)

// Version is the newest format that this package writes and reads. A journal of one
// proposal is written in format 1, which earlier releases read; one of several
// differs in nothing but what its tag and its evidence mean, and is in format 2.
const Version = 2

// Limits of the format. Beyond them a journal is not written and not read.
const (
	MaxEvidence = 32 << 20 // bytes in a commit record
	MaxSteps    = 1 << 20
	MaxAreas    = 1 << 10
	MaxTag      = 4096
	MaxTxID     = 128
	MaxFile     = 1 << 30 // bytes of a journal
	maxRecord   = MaxEvidence + 64
	stepsChunk  = 1 << 20 // a Steps record is closed when it is longer
)

// Errors to branch on.
var (
	// ErrVersion: the header is ours and from a later release. Nothing in the
	// file may be touched by this one.
	ErrVersion = errors.New("journal of a newer format version")
	// ErrTooLarge: a limit of the format is exceeded.
	ErrTooLarge = errors.New("journal exceeds a limit of its format")
)

// Op is what a step does to its live path.
type Op uint8

// The steps. "Area" is a private directory on the same mount that holds staged
// and displaced names.
const (
	OpInvalid Op = iota
	Put          // the area's name is moved to the path, which is absent before
	Take         // the path is moved to the area's name, and is absent after
	Exchange     // the two are exchanged; both exist at every moment
	Move         // From is moved to the path, the same inode; no area
)

// Image is what is at a path. Kind KindInvalid means absent.
type Image struct {
	Kind   vfs.Kind // absent, file, directory, symlink
	Digest snapshot.Digest
	Size   int64
	Perm   uint32
	Ino    uint64
}

// Absent tells whether the image is that of no file.
func (i Image) Absent() bool { return i.Kind == vfs.KindInvalid }

// Place is a live path: below the workspace root (Base ""), or a name in one of
// the directories outside the tree that the caller allows (Base is absolute).
type Place struct {
	Base string
	Path string
}

// String is the path as people know it.
func (p Place) String() string {
	if p.Base == "" {
		return p.Path
	}
	return p.Base + "/" + p.Path
}

// Step is one rename, with what is expected on both sides.
type Step struct {
	Op     Op
	Live   Place
	From   string // Move only: the old path, same base as Live
	Area   int    // index into Areas
	Name   string // in the area
	Before Image  // at Live (at From for Move)
	After  Image  // at Live
}

// Area is a staging directory. Beside "" is the directory of the journal
// itself; any other is a name in the workspace directory Dir ("." is the root).
type Area struct {
	Dir    string
	Beside string
}

// Log is a journal that was read.
type Log struct {
	TxID  string
	Tag   string
	Areas []Area
	Steps []Step
	// Emptied are the directories, deepest first, that the plan leaves empty if
	// nothing else is in them; removed after the commit record only.
	Emptied []string
	// Begun: the first record was whole. Ready: the intent is whole. Committed:
	// the commit record is whole.
	Begun, Ready, Committed bool
	Evidence                []byte
	// Valid is the length of the part made of whole records; the file may be
	// longer (torn tail).
	Valid int64
}

// Open is one path that needs attention, in an attention file.
type Open struct {
	Step int // index into Log.Steps
	Why  string
}
