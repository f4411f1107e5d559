// Package worktree makes the after-state concrete when a check needs a file
// system: an overlay over the live tree, mounted only inside the check's own
// namespaces at the workspace's own path, or a copy. It writes under its
// scratch directory alone and sees the live tree read-only; it runs nothing and
// never asks git for a linked worktree, because that shares refs, stash, config
// and hooks with the user's repository.
//
// A scratch directory is named after its owner's process (pid, start time, boot,
// pid namespace) and a random part, is 0700, and exists only as long as the
// Candidate. Sweep removes those whose owner is proven dead, never by age.
package worktree

import (
	"errors"
	"slices"

	"github.com/aspengine/asp/sandbox"
	"github.com/aspengine/asp/snapshot"
)

// Method is how a candidate is made.
type Method uint8

// The methods.
const (
	MethodInvalid Method = iota
	// Overlay needs sandbox.Caps.CanOverlay and no mount inside the workspace.
	Overlay
	// Copy works everywhere. With namespaces it is mounted at the workspace's
	// own path too; without, the check runs in the scratch directory.
	Copy
)

// String returns overlay or copy.
func (m Method) String() string {
	switch m {
	case Overlay:
		return "overlay"
	case Copy:
		return "copy"
	}
	return "invalid"
}

// ErrUnsupported answers Build where the system lacks what a scratch tree needs. Nothing
// was made.
var ErrUnsupported = errors.New("scratch trees are not supported here")

// ErrTooLarge answers a copy that would exceed Spec.CopyLimit.
var ErrTooLarge = errors.New("workspace is larger than the copy limit")

// Spec says what to build. All paths are absolute.
type Spec struct {
	Root      string // the work tree
	GitDir    string // this work tree's git directory, "" outside git; may lie inside or outside Root
	CommonDir string // the repository's common directory; "" or equal to GitDir when there is one
	// Hide lists directories of ours that a check must not see although they lie
	// in the tree: the transaction directory (<git dir>/asp or .asp/tx).
	// <git dir>/asp and <common dir>/asp are hidden in any case.
	Hide    []string
	Base    snapshot.Baseline // recorded in the candidate
	Effects []snapshot.Effect
	// Perm gives the exact permission bits that a path of Effects will have; ok
	// false (or a nil Perm) means: the live file's bits, its execute bits set or
	// cleared after Effect.Mode; for a new file 0666 or 0777 less the umask.
	Perm        func(p snapshot.Path) (perm uint32, ok bool)
	ScratchBase string // existing private directory, normally $ASP_HOME/scratch
	// StateDir is hidden from the check whole (ASP_HOME); "" hides ScratchBase.
	StateDir string
	// Home is the user's home directory, hidden except for the workspace and what
	// is declared; "" hides none. A check of a workspace in it that reads a
	// sibling (../lib) needs that in Read; /tmp, /var/tmp and /run likewise.
	Home string
	// Read lists directories or files that the check may read although they are
	// hidden: module and build caches, tool chains. The check sees them as
	// throw-away overlays: it may write, and the bytes are gone afterwards. Without
	// namespaces it may only read.
	Read []string
	Caps sandbox.Caps // what Probe said
	// Method forces a method; MethodInvalid takes Overlay where it works, else Copy.
	Method Method
	// Ignored are the names in the workspace that belong to no state. They are visible
	// to the check and recorded as its environment.
	Ignored snapshot.Ignored
	// OmitIgnored leaves the names in Ignored out of a copy (an overlay shows them always).
	OmitIgnored bool
	// CopyLimit bounds the bytes of a copy; 0 is no bound.
	CopyLimit int64
	// Workers is the number of copying goroutines; 0 takes one per CPU, at least two.
	Workers int
}

// Candidate is one after-state on disk, bound to the baseline it was made from.
// It is made for one run of one check: a second run would see the first one's
// writes. Not safe for concurrent use.
type Candidate struct {
	Root    string // the workspace's own path
	Dir     string // where the tree is for a check: Root, or a scratch directory when nothing can be mounted
	Method  Method
	Scratch string // private directory, removed by Close
	Effects []snapshot.Effect
	Base    snapshot.Baseline
	Env     snapshot.Ignored // environment of the check: ignored names it can see
	Notes   []string         // what a person should know: method fallback, special files left out
	Caps    sandbox.Caps

	mounts  []sandbox.Mount
	hide    []string
	protect []sandbox.Protect
	lent    []string // read-only in an isolated launch and in one without namespaces
	tmp     string   // visible path of the private temporary directory
	spare   *sandbox.Spare
	ends    *sandbox.Ends // of the launches over it
	closed  bool
}

// Tmp is the visible path of the check's private temporary directory, HomeDir
// that of its empty home directory.
func (c *Candidate) Tmp() string { return c.tmp }

// HomeDir is the visible path of the check's empty home directory.
func (c *Candidate) HomeDir() string { return c.tmp + "/home" }

// Sandbox returns the part of a launch that the candidate decides: working
// directory, mounts, hidden and protected directories, and HOME and TMPDIR. The
// caller adds argv, further environment, limits and the level. expose lists
// files or directories that stay visible read-only if they are hidden otherwise, as
// everything is in an isolated launch (directories of PATH).
func (c *Candidate) Sandbox(expose []string) sandbox.Spec {
	s := sandbox.Spec{
		Dir:     c.Dir,
		Env:     map[string]string{"HOME": c.HomeDir(), "TMPDIR": c.tmp},
		Mounts:  append([]sandbox.Mount(nil), c.mounts...),
		Hide:    append([]string(nil), c.hide...),
		Protect: append([]sandbox.Protect(nil), c.protect...),
		Read:    append(slices.Clone(c.lent), expose...),
		Spare:   c.spare,
		Ends:    c.ends,
	}
	if len(c.mounts) == 0 {
		s.Write = []string{c.Dir, c.tmp}
		// It is not granted, and git gives up where it is there and cannot be read.
		s.Env["GIT_CONFIG_NOSYSTEM"] = "1"
	}
	for _, e := range expose {
		if len(c.mounts) > 0 && c.hidden(e) && exists(e) {
			s.Mounts = append(s.Mounts, sandbox.Mount{Kind: sandbox.MountBindRO, Target: e, Source: e})
		}
	}
	return s
}
