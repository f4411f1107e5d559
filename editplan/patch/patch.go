// Package patch reads unified and git diffs, applies them to bytes, turns them
// into edit plans, and writes them for people and for git apply.
//
// Reading follows git apply: the same patches are taken, the same are refused,
// and a hunk lands on the same lines. Where that is not so the difference is on
// the strict side, or marked "laxer" here:
//
//   - a "diff --git" line and the lines of binary data may end in CRLF (laxer:
//     git loses the name, or calls the data corrupt);
//   - a hunk without any context that removes or replaces lines lands on exactly
//     the lines that it states if they are the same (laxer: git refuses it unless
//     it ends the file, or, told --unidiff-zero, looks for the lines elsewhere).
//     One that only inserts needs ZeroContext, since it has nothing to compare;
//     git puts it at the end of the file, whatever line it states;
//   - a last line without a newline never matches one with a newline. git
//     compares a prefix under --unidiff-zero;
//   - numbers that overflow are corrupt and not clamped;
//   - a "diff --git" line with no header line below it, a damaged binary patch
//     behind good ones, modes that no file has, and a file that is made twice
//     are refused; git overlooks them or takes what comes last;
//   - a file that an earlier part of the patch wrote and a later one deletes is
//     gone; git deletes first and writes last, so that it stays. One that is
//     changed, or taken away, and renamed later, or renamed to its own name, is
//     refused;
//   - symbolic links may be deleted and renamed, not made, edited or copied, and
//     submodules not touched at all: an edit plan has no operation that says so,
//     its modes are those of files.
//
// The package is pure: no file system, no clock. Bytes are bytes; nothing is
// decoded, no line end is converted and no white space ignored. Memory is in
// proportion to the input and bounded by Limits; foreign input causes errors
// and never a panic.
package patch

import (
	"fmt"

	"github.com/aspengine/asp/snapshot"
)

// Kind is what a file patch does to a file.
type Kind uint8

// The kinds. A copy leaves its source alone.
const (
	KindInvalid Kind = iota
	Modify
	Create
	Delete
	Rename
	Copy
)

func (k Kind) String() string {
	switch k {
	case Modify:
		return "modify"
	case Create:
		return "create"
	case Delete:
		return "delete"
	case Rename:
		return "rename"
	case Copy:
		return "copy"
	}
	return "invalid"
}

// FilePatch is the part of a patch that concerns one file. Its slices share
// memory with the input of Parse, which must not change while it is in use.
type FilePatch struct {
	Line int // of the first header line, from 1
	Git  bool
	Kind Kind
	// Guess is set on a plain unified diff with two names, whose Kind Modify
	// may still turn out to be a creation: if no file is there and the patch
	// takes nothing away.
	Guess bool
	// Old and New are the names with the prefix stripped, as raw bytes, not
	// checked in any way; "" on the side where there is no file.
	Old, New string
	// OldMode and NewMode are 0 where the patch does not say.
	OldMode, NewMode snapshot.FileMode
	// OldID and NewID are the object ids of the index line, maybe cut short.
	OldID, NewID string
	Hunks        []Hunk
	// Binary is set instead of Hunks on binary changes.
	Binary *Binary
}

// Name is the name that the patch goes by: the old one if there is one.
func (p *FilePatch) Name() string {
	if p.Old != "" {
		return p.Old
	}
	return p.New
}

// Hunk is one place of a text change. Line numbers count from 1; a range of no
// lines names the line before it.
type Hunk struct {
	Line               int // of the @@ line in the patch, from 1
	OldStart, OldLines int
	NewStart, NewLines int
	Leading, Trailing  int    // lines of context at either end
	Body               []byte // the lines after the @@ line, "\ No newline" included
}

// bare tells whether the hunk has no context at either end.
func (h *Hunk) bare() bool { return h.Leading == 0 && h.Trailing == 0 }

// BinaryMethod is how a binary change is written down.
type BinaryMethod uint8

// The methods. NoData is the line "Binary files a and b differ".
const (
	NoData BinaryMethod = iota
	Literal
	Delta
)

// Binary is a binary change. Data is still compressed.
type Binary struct {
	Method BinaryMethod
	Size   int64 // of Data once inflated, as stated
	Data   []byte
}

// Limits bound what Parse takes and Apply makes. A zero member means its
// default.
type Limits struct {
	Bytes    int   // of a patch; default 64 MiB
	Files    int   // file patches; default 100,000
	Hunks    int   // of all files; default 1,000,000
	Result   int64 // bytes of one binary change once inflated, and of its result; default 256 MiB
	Inflated int64 // bytes of all binary changes once inflated; default 1 GiB
}

func (l Limits) withDefaults() Limits {
	if l.Bytes == 0 {
		l.Bytes = 64 << 20
	}
	if l.Files == 0 {
		l.Files = 100_000
	}
	if l.Hunks == 0 {
		l.Hunks = 1_000_000
	}
	if l.Result == 0 {
		l.Result = 256 << 20
	}
	if l.Inflated == 0 {
		l.Inflated = 1 << 30
	}
	return l
}

// StripNone says that names have no prefix.
const StripNone = -1

// ParseOptions choose how a patch is read. The zero value is what git apply
// does.
type ParseOptions struct {
	// Strip is how many leading components are no part of a name: StripNone,
	// or a count. 0 means one, unless the first plain diff of the patch has
	// names without any slash, which means none from there on.
	Strip  int
	Limits Limits
}

// ParseError says where a patch is no patch.
type ParseError struct {
	Line   int // from 1
	Reason string
}

func (e *ParseError) Error() string { return fmt.Sprintf("parse patch line %d: %s", e.Line, e.Reason) }

// cut bounds foreign text in messages.
func cut(s string) string {
	if len(s) > 200 {
		return fmt.Sprintf("%q…", s[:200])
	}
	return fmt.Sprintf("%q", s)
}
