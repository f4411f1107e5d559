// Package refusal holds the one table of refusal codes and the value that
// carries them. A refusal is an expected answer, not an error: it has a code, a
// path, what was found and what to do next, and it ends in a receipt.
package refusal

import "fmt"

// Code is the word that starts the detail of every refusal. The table is
// append-only: codes are on the wire and in kept receipts.
type Code string

// The codes of the contract, section 7.
const (
	BadMessage           Code = "bad-message"
	BadRange             Code = "bad-range"
	Overlap              Code = "overlap"
	NotText              Code = "not-text"
	PathInvalid          Code = "path-invalid"
	HostField            Code = "host-field"
	CommandLike          Code = "command-like"
	MissingBlob          Code = "missing-blob"
	UnknownProposal      Code = "unknown-proposal"
	ForeignBaseline      Code = "foreign-baseline"
	StaleValidAsOf       Code = "stale-valid-as-of"
	StaleBasis           Code = "stale-basis"
	MergeConflict        Code = "merge-conflict"
	ChangedUnderneath    Code = "changed-underneath"
	IndexDiverges        Code = "index-diverges"
	IDReuse              Code = "id-reuse"
	NeedsAttention       Code = "needs-attention"
	Exists               Code = "exists"
	Missing              Code = "missing"
	NotEmpty             Code = "not-empty"
	OutOfScope           Code = "out-of-scope"
	PathProtected        Code = "path-protected"
	PathEscape           Code = "path-escape"
	NotRegular           Code = "not-regular"
	HardLinked           Code = "hard-linked"
	Metadata             Code = "metadata"
	NotWritable          Code = "not-writable"
	CrossDevice          Code = "cross-device"
	FilteredPath         Code = "filtered-path"
	NotCheckedOut        Code = "not-checked-out"
	OtherRepository      Code = "other-repository"
	NameCollision        Code = "name-collision"
	Busy                 Code = "busy"
	Dirty                Code = "dirty"
	UnsupportedOperation Code = "unsupported-operation"
	CheckDenied          Code = "check-denied"
	CheckIndeterminate   Code = "check-indeterminate"
	NoAuthority          Code = "no-authority"
	WeakAssurance        Code = "weak-assurance"
	WeakGuarantee        Code = "weak-guarantee"
	DirectWrite          Code = "direct-write"
)

// Reason is one of the eleven words of the wire schema.
type Reason string

// The reasons.
const (
	MissingAuthority        Reason = "missing-authority"
	InsufficientAssurance   Reason = "insufficient-assurance"
	DirectWriteRisk         Reason = "direct-write-risk"
	Unsupported             Reason = "unsupported"
	StaleBaseline           Reason = "stale-baseline"
	Conflict                Reason = "conflict"
	ValidationDenied        Reason = "validation-denied"
	ValidationIndeterminate Reason = "validation-indeterminate"
	Malformed               Reason = "malformed"
	MissingBlobReason       Reason = "missing-blob"
	PreconditionFailed      Reason = "precondition-failed"
)

// Reason maps a code to its reason.
func (c Code) Reason() Reason {
	switch c {
	case BadMessage, BadRange, Overlap, NotText, PathInvalid, HostField, CommandLike:
		return Malformed
	case MissingBlob:
		return MissingBlobReason
	case UnknownProposal, ForeignBaseline, StaleValidAsOf:
		return StaleBaseline
	case StaleBasis, MergeConflict, ChangedUnderneath, IndexDiverges, IDReuse, NeedsAttention:
		return Conflict
	case Exists, Missing, NotEmpty, OutOfScope:
		return PreconditionFailed
	case CheckDenied:
		return ValidationDenied
	case CheckIndeterminate:
		return ValidationIndeterminate
	case NoAuthority:
		return MissingAuthority
	case WeakAssurance, WeakGuarantee:
		return InsufficientAssurance
	case DirectWrite:
		return DirectWriteRisk
	default:
		return Unsupported
	}
}

// Item is one refused operation or fact.
type Item struct {
	Code   Code
	Path   string // "" when no path is concerned; foreign text, already checked or quoted by whoever prints it
	Op     int    // index into documentChanges, -1 when no operation is concerned
	Detail string // what was found and what to do next, without the code
}

// New makes an item; the detail is formatted.
func New(c Code, path string, op int, format string, a ...any) Item {
	return Item{Code: c, Path: path, Op: op, Detail: fmt.Sprintf(format, a...)}
}

// String is the wire form of a detail: the code, a colon, the sentence.
func (i Item) String() string { return string(i.Code) + ": " + i.Detail }

// List is every reason why a plan is refused, in the order of its operations.
// An empty list is no refusal.
type List []Item

// First returns the item that names the refusal as a whole.
func (l List) First() Item { return l[0] }
