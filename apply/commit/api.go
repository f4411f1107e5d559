package commit

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/snapshot"
)

// Env is the place a transaction works in. The caller holds the workspace lock
// for as long as any function of this package runs.
type Env struct {
	// FS is what Root comes from; TxDir is opened through it.
	FS vfs.FS
	// Root is the workspace root. It stays the caller's.
	Root vfs.Dir
	// TxDir is the absolute path of the transaction area, <git dir>/asp or
	// <root>/.asp/tx. Its parent must exist, or be named .asp and have a parent
	// that exists. It is made 0700 and is gone when no transaction is open.
	TxDir string
	// Protected are directories that no step may touch or enter, by identity,
	// whatever a journal says.
	Protected []vfs.Stat
	// Extra are the directories outside the tree that may hold an ExtraFile, by
	// the absolute path that the journal uses for them (the git directory). A
	// journal that names any other is not followed.
	Extra map[string]vfs.Dir
	// Probe says what a mount can promise. nil asks the kernel (ProbeMount).
	Probe func(vfs.Dir) (MountFacts, error)
	// Dirty returns the bytes of unwritten data on the host, which decides
	// between the two ways to sync. nil reads /proc/meminfo.
	Dirty func() (int64, error)
	// Boot names the present boot of the machine. "" is not known: a journal that is
	// gone is then always taken for one that clean-up removed.
	Boot string
	// Handles is for how many steps files are kept open between the stages; the
	// others are opened again. 0 takes a small part of the process's limit.
	Handles int
}

// SyncStyle is how a barrier is made.
type SyncStyle uint8

// The styles. Auto takes SyncFS while little unwritten data of other programs
// would have to be waited for, Fsync otherwise.
const (
	SyncAuto SyncStyle = iota
	SyncFS             // one syncfs per mount
	SyncEach           // fdatasync of every file and directory touched, some at a time
	SyncNone           // no barrier at all; the guarantee says so. For measurements and tests
)

func (s SyncStyle) String() string {
	switch s {
	case SyncFS:
		return "syncfs"
	case SyncEach:
		return "fsync"
	case SyncNone:
		return "none"
	}
	return "auto"
}

// ExtraFile is a file outside the tree that changes in the same transaction:
// the index of the repository. DirPath is a key of Env.Extra. Before nil: the
// file must be absent. Whatever lock guards the file is the caller's.
type ExtraFile struct {
	DirPath string
	Name    string
	Before  *Image
	After   *Image
}

// Options are the optional parts of a transaction. The zero value is safe.
type Options struct {
	// Tag is kept in the journal and comes back in Recovered: the proposal id.
	// At most 4096 bytes.
	Tag string
	// Several is how many proposals are carried out together, where it is more than
	// one. It decides the journal's format and how much room its commit record has.
	Several int
	Extra   []ExtraFile
	Sync    SyncStyle
	// Recheck runs when everything is staged and durable and nothing is
	// swapped. Items end the transaction as Refused, an error ends it too; the
	// workspace is untouched in both cases.
	Recheck func(ctx context.Context) (refusal.List, error)
	// Seal runs when every swap is durable, right before the commit record, and
	// returns the bytes that are stored in that record (the receipt and the
	// result), at most journal.MaxEvidence. The facts hold all but the sync of
	// that record, which is the last thing that can fail: if it does, there is
	// no commit and the bytes are never seen. An error rolls back.
	Seal func(ctx context.Context, f Facts) ([]byte, error)
	// AfterCommit runs when the commit record is durable and before the journal
	// is removed; it makes the receipt durable. If it fails the journal stays
	// and Recover hands the bytes over again, so it must tolerate being called
	// twice with the same evidence.
	AfterCommit func(ctx context.Context, evidence []byte, f Facts) error
	// Step is told the name of each numbered step of the protocol as it begins;
	// for progress and tests.
	Step func(name string)
}

// Outcome is how a transaction ended.
type Outcome uint8

// The outcomes.
const (
	OutcomeInvalid Outcome = iota
	Refused                // Items say why; nothing in the workspace was ever changed
	RolledBack             // swaps began and all were undone; Items or the error say why
	Committed              // all of it is there; the commit record is durable
	NeedsAttention         // a path could not be undone without losing bytes, or the undo failed; the journal stays
)

func (o Outcome) String() string {
	switch o {
	case Refused:
		return "refused"
	case RolledBack:
		return "rolled-back"
	case Committed:
		return "committed"
	case NeedsAttention:
		return "needs-attention"
	}
	return "invalid"
}

// Result is what became of a transaction.
type Result struct {
	Outcome Outcome
	// Items are the expected reasons for Refused and RolledBack: exists,
	// missing, changed-underneath, metadata, cross-device, …
	Items refusal.List
	Facts Facts
	// Paths need attention (Outcome NeedsAttention; with Committed in the rare
	// case that a program wrote to an old file after it was replaced).
	Paths []AttentionPath
	// Notes are harmless facts a person should know: a directory or a file of
	// somebody else found in our area and left there.
	Notes []string
}

// Errors to branch on.
var (
	// ErrPrimitive: the file system lacks a rename that cannot overwrite, so
	// the plan cannot be done safely there. Nothing was changed.
	ErrPrimitive = errors.New("file system lacks a needed rename primitive")
	// ErrUnrecovered: an earlier transaction is still open; run Recover first.
	ErrUnrecovered = errors.New("an earlier transaction is not recovered")
	// ErrIndeterminate: the commit record could neither be made durable nor
	// taken back. The journal stays and Recover decides.
	ErrIndeterminate = errors.New("outcome not established")
	// ErrContent: an after-image's bytes are not those of its digest.
	ErrContent = errors.New("after-image does not hash to its digest")
	// ErrNoAttention: no such path needs attention.
	ErrNoAttention = errors.New("path does not need attention")
)

// Run makes all changes true or none. txid is one path component, unguessable
// and never used before; the caller makes it.
//
// The pair returned means: nil error with Committed, Refused or RolledBack is
// the full answer. An error with Refused or RolledBack: it could not be done,
// nothing is changed. An error with Committed: it is done and durable, but
// AfterCommit or the clean-up failed; the journal stays for Recover. With
// NeedsAttention (with or without an error) the journal stays, and pre-images
// with it.
//
// ctx is honoured until the commit record is written; after the first swap a
// cancel means undo. The workspace lock must be held. Paths of changes must be
// distinct; a path and one below it may both be there only as file → directory
// or directory → file.
func Run(ctx context.Context, env Env, txid string, changes []Change, o Options) (Result, error) {
	t, err := begin(env, txid, o)
	if err != nil {
		return Result{Outcome: Refused}, fmt.Errorf("begin transaction: %w", err)
	}
	return t.run(ctx, changes)
}

// Recovered tells what became of one transaction that a crash left open.
type Recovered struct {
	TxID    string
	Tag     string // Options.Tag; empty if the crash came before it was written
	Outcome Outcome
	// Paths are those of the plan when it was rolled back or completed, and
	// those that need attention otherwise, as spelled in the plan.
	Paths []string
	// Evidence are the bytes of the commit record (Outcome Committed).
	Evidence []byte
	Notes    []string
}

// RecoverOptions are the optional parts of Recover.
type RecoverOptions struct {
	// Completed is called for each committed transaction before its journal is
	// removed, with the evidence in r; it stores the receipt. An error keeps
	// the journal and ends Recover.
	Completed func(ctx context.Context, r Recovered) error
	// Acknowledged, if set, tells whether a stored receipt says that the transaction was
	// applied. It is asked where the intent is whole and the commit record is not: a
	// receipt is stored after the record was durable, so the record was damaged then, and
	// to take the change back would belie an answer that was given.
	Acknowledged func(ctx context.Context, txid string) (bool, error)
}

// Recover finishes or undoes whatever a crash left under env.TxDir. A
// transaction with a commit record is completed; any other is undone, path by
// path, only over bytes that are exactly its pre- or post-image. It may be
// interrupted anywhere and run again; each transaction is reported once, by
// the run that ended it. Nothing to do is an empty list. On an error the
// transactions reported are dealt with and the rest are as they were.
func Recover(ctx context.Context, env Env, o RecoverOptions) ([]Recovered, error) {
	return recoverAll(ctx, env, o)
}

// AttentionPath is one path that recovery must not decide.
type AttentionPath struct {
	TxID string
	Tag  string // Options.Tag of the transaction
	Path string // path in the workspace, or the absolute one of an extra file
	Why  string
	// Before is the pre-image as recorded; nil: the path was absent. Kept tells
	// whether its bytes are kept (they are not for a moved file that somebody
	// then edited in place).
	Before *PreImage
	Kept   bool
	// Damaged: the journal cannot be read. Path is the directory of the transaction, and
	// which paths of the workspace are half swapped is not known.
	Damaged bool
	// Now describes what is at the path: absent, file, directory, symlink, other.
	Now string
}

// PreImage describes a kept pre-image.
type PreImage struct {
	Kind   vfs.Kind
	Digest snapshot.Digest
	Size   int64
	Perm   uint32
}

// Keep chooses what remains at a path that needs attention.
type Keep uint8

// The choices.
const (
	KeepInvalid Keep = iota
	KeepMine         // what is on disk now stays
	KeepTheirs       // the pre-image is put back; of a moved file that was edited since: it goes back to its name
)

// Attention lists the paths that need attention, of all transactions kept.
func Attention(ctx context.Context, env Env) ([]AttentionPath, error) {
	return attention(ctx, env)
}

// ShowPreImage returns a reader of the pre-image kept for path (a
// link's target text for a symlink). The caller closes it.
// errors.Is(err, ErrNoAttention) if there is none.
func ShowPreImage(ctx context.Context, env Env, path string) (io.ReadCloser, error) {
	return showPreImage(ctx, env, path)
}

// Resolve ends the need for attention at path. KeepMine leaves what is on disk
// and drops the pre-image, after save was given that and returned nil; KeepTheirs
// puts the pre-image back (removes the path where the pre-image is its absence),
// after save was given the bytes on disk: no byte is lost either way. save is not
// called where nothing goes.
// When the last path of a transaction is resolved its journal is removed.
// errors.Is(err, ErrNoAttention) if path needs none. The lock must be held.
func Resolve(ctx context.Context, env Env, path string, k Keep, save func(PreImage, io.Reader) error) error {
	return resolve(ctx, env, path, k, save)
}

// Forecast tells the facts that Run would earn for the changes now, without
// writing anything. Primitives are taken from the type of the file system.
func Forecast(ctx context.Context, env Env, changes []Change, o Options) (Facts, error) {
	return forecast(ctx, env, changes, o)
}
