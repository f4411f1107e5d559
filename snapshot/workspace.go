package snapshot

import (
	"context"

	"github.com/aspengine/asp/internal/vfs"
)

// FileMode is the part of a mode that a baseline records: git's view of it.
type FileMode uint32

// The modes, with git's numbers.
const (
	ModeRegular    FileMode = 0o100644
	ModeExecutable FileMode = 0o100755
	ModeSymlink    FileMode = 0o120000
	ModeGitlink    FileMode = 0o160000
)

// Effect is what a transaction leaves at one path: gone (Gone), or bytes with a
// mode. Open gives the after-bytes; it may be called more than once.
type Effect struct {
	Path   Path
	Gone   bool
	Digest Digest
	Size   int64
	Mode   FileMode
	Open   func() (ReadCloser, error)
}

// ReadCloser is io.ReadCloser, named here to keep the import list short.
type ReadCloser interface {
	Read(p []byte) (int, error)
	Close() error
}

// StampOptions choose how a stamp is taken. The zero value trusts stat data
// that cannot be racy; Content reads and hashes every file.
type StampOptions struct {
	Content bool
	// Watched allows a workspace that is resident to look only at what events
	// say has changed. There are writes that raise no event: whoever is shown the
	// disk is not judged by such a look, only who is shown the state that it names.
	Watched bool
	// Except are paths whose files do not count in Stamp.Traces.
	Except map[string]bool
}

// OverlayEntry is one path that differs from the revision.
type OverlayEntry struct {
	Path   string // raw bytes of the name; may be no valid Path
	Gone   bool
	Mode   FileMode
	Digest Digest // zero when Gone or when Note is set
	// Note says why there is no digest: "fifo", "socket", "device" (never
	// opened), "unreadable", "changing", "submodule", "repository".
	Note string
	// Ref is the state of an inner repository: commit and dirty digest of a
	// submodule, baseline of an untracked repository.
	Ref string
}

// Stamp is one look at the whole workspace.
type Stamp struct {
	Baseline Baseline
	Overlay  []OverlayEntry // sorted by Path; outside git: all files
	Files    int            // names looked at
	Hashed   int            // files whose content was read
	Watched  bool           // only what events named was looked at
	Ignored  Ignored        // what is there and belongs to no state
	// Traces is of the stat data of all files that were looked at. Where it differs
	// between two stamps some file was written or replaced in between, though each may
	// hold now what it held before. Not of a watched look: events do not tell all that
	// stat data tell.
	Traces uint64
	// Notes are facts a person should know (unreadable file, fallback taken).
	Notes []string
	// State is what the workspace that took the stamp keeps for After.
	State any
}

// File is one file of a state of a workspace.
type File struct {
	Path   string // raw bytes of the name; may be no valid Path
	Mode   FileMode
	Digest Digest // of its bytes, or of a link's target; zero: not known
	// Stored is the blob that the revision has for it; zero where the overlay puts the
	// file, and outside git.
	Stored [20]byte
	// Apart: what HashFiles found is not what Stored names, byte for byte. A conversion
	// lies between, or the disk is not the state any more.
	Apart bool
}

// Holder is implemented by workspaces that can hold content against a state.
type Holder interface {
	// Holds tells whether the state that s saw has, at the paths of the effects, what
	// they say: by content and not by stat data. Of what belongs to no state it says
	// nothing. ErrStamp when the stamp is not one of theirs.
	Holds(ctx context.Context, s *Stamp, effects []Effect) (bool, error)
}

// PathInfo is what the repository says of one path.
type PathInfo struct {
	Tracked      bool // in the index
	Ignored      bool // untracked and ignored
	SkipWorktree bool // sparse: in the index, not checked out
	InSubmodule  bool // inside a submodule or nested repository
	// LeftOut is a tracked path above or below this one that a sparse checkout leaves
	// out: not on disk, and yet there. "" for none.
	LeftOut string
	Filter  string // name of a configured content filter ("lfs"), "" for none
}

// StampInfo is implemented by workspaces that can tell PathInfo as of a stamp,
// without reading again what the stamp read. ErrStamp when the stamp is not one of
// theirs.
type StampInfo interface {
	PathInfoAt(ctx context.Context, s *Stamp, paths []Path) ([]PathInfo, error)
}

// Workspace is an opened workspace: a git work tree (snapshot/gitbase) or a
// plain directory (OpenPlain). Safe for concurrent use. It reads only.
type Workspace interface {
	// Root is the absolute path of the work tree.
	Root() string
	// Git tells whether it is a git work tree.
	Git() bool
	// LockDir is the directory whose descriptor carries the workspace lock:
	// the git directory of this work tree, or the root.
	LockDir() string
	// TxDir is where journal and staged files live: <git dir>/asp, or
	// <root>/.asp/tx. It exists only while a transaction is open.
	TxDir() string
	// Protected lists the directories that no plan may touch or enter, by
	// identity: git directory, common directory, …
	Protected() []vfs.Stat
	// Stamp looks at the whole workspace.
	Stamp(ctx context.Context, o StampOptions) (*Stamp, error)
	// After returns the baseline that the workspace would have if the effects
	// were applied to the state that s saw.
	After(ctx context.Context, s *Stamp, effects []Effect) (Baseline, error)
	// PathInfo looks up paths in index, ignore rules and attributes as they
	// are now; the result is in the order of paths.
	PathInfo(ctx context.Context, paths []Path) ([]PathInfo, error)
	// Files lists the files that belong to the state that s saw: what the
	// revision holds and the overlay leaves alone, and what the overlay puts.
	// Sorted by path. Digest is set where the look learned it; HashFiles learns
	// the rest.
	Files(ctx context.Context, s *Stamp) ([]File, error)
	// Close writes back the stat cache and releases handles.
	Close() error
}
