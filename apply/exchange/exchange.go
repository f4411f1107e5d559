// Package exchange publishes a whole after-tree by one step: the tree is built
// beside the workspace root, on the same file system, out of second names (hard
// links) for everything that stays and new files for what changes, made durable,
// and swapped with the root by one exchange of two directory names. A reader
// who opens the root sees all old or all new; the exchange itself is the commit.
//
// What it costs: open directories, working directories and watchers stay in the
// old tree; every file gets a second name for a moment, which moves its ctime;
// directories get new inodes. Where that cannot be done (the root is a mount
// point, its parent may not be written, something in it is another mount) the
// plan is refused and nothing is changed.
//
// Names: .asp-exchange-<root>-<transaction> in the parent of the root, 0700, holding
// tree/ (the new tree, after the exchange the old one), journal, and while
// files are made or removed new/ and out/. Once a tree has been seen under the
// name of the root, no file of it is removed unless it has another name or its
// bytes are exactly those that the plan replaced or made: a program that had
// the old directories open may have written there.
package exchange

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/aspengine/asp/apply/commit"
	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/internal/vfs"
)

// Prefix starts the name of the area beside the root.
const Prefix = ".asp-exchange-"

// Names in the area. A journal is renamed to keptName when files of somebody
// else are in the tree: it is there for a person then, and ends nothing any more.
const (
	treeName    = "tree"
	journalName = "journal"
	writingName = "journal.new"
	keptName    = "kept"
	newName     = "new" // files with the metadata of the one they replace
	outName     = "out" // names that are looked at out of everybody's reach
)

// areaPrefix starts the names of the areas of one root, so that those of two
// workspaces in the same parent are told apart before anything is in them.
func areaPrefix(root string) string {
	sum := sha256.Sum256([]byte(root))
	return Prefix + hex.EncodeToString(sum[:8]) + "-"
}

// Env is the place an exchange works in. The workspace lock is held throughout.
type Env struct {
	FS       vfs.FS
	RootPath string // absolute and resolved
	// Skip are paths below the root that are left out of the new tree: the
	// transaction directory of the journal mode. Something in it means a
	// transaction that waits for a person, and refuses the exchange.
	Skip []string
	// Probe says what a mount can promise; nil asks the kernel.
	Probe func(vfs.Dir) (commit.MountFacts, error)
}

// Options are the parts of an exchange that the engine fills in.
type Options struct {
	Tag string
	// Recheck runs when the new tree is built and durable and nothing is swapped.
	Recheck func(ctx context.Context) (refusal.List, error)
	// Seal returns the receipt and result, which are made durable before the
	// exchange: it is the exchange that makes them true.
	Seal func(ctx context.Context, f Facts) ([]byte, error)
	// AfterCommit makes the receipt durable; it may be called twice. When it
	// fails the area stays, and Recover hands the evidence over again.
	AfterCommit func(ctx context.Context, evidence []byte) error
	// BeforeSwap is given the absolute path of the new tree right before the
	// exchange: who locks a directory of the workspace locks its successor too.
	BeforeSwap func(newTree string) error
	// Step is told the name of each step as it begins.
	Step func(name string)
}

// Facts is what one exchange established.
type Facts struct {
	Mount    commit.MountFacts
	Linked   int // files that got a second name
	Written  int // files that were made
	Dirs     int
	Synced   bool // the new tree and the intent were synced before the exchange
	Forecast bool
}

// Guarantee computes the word that the facts carry.
func (f Facts) Guarantee() commit.Guarantee {
	switch {
	case !f.Synced:
		return commit.RollbackAttempted
	case !f.Mount.Ordered || !f.Mount.Barriers:
		return commit.RollbackAttempted
	}
	return commit.StagedSnapshot
}

// Detail is one sentence on what was established and what remains open.
func (f Facts) Detail() string {
	var b strings.Builder
	if f.Forecast {
		b.WriteString("expected, not earned yet: ")
	}
	fmt.Fprintf(&b, "the whole tree was built beside the root on %s and exchanged with it in one step", f.Mount.Type)
	if f.Synced {
		b.WriteString(", synced before and after")
	} else {
		b.WriteString("; it was not synced before")
	}
	b.WriteString("; a reader who opens the root sees all old or all new, open directories and watchers stay in the old tree")
	if !f.Mount.Ordered || !f.Mount.Barriers {
		b.WriteString("; durability or atomicity cannot be established: " + f.Mount.Why)
	}
	return b.String()
}

// Result is what became of an exchange.
type Result struct {
	Outcome commit.Outcome
	Items   refusal.List
	Facts   Facts
	Notes   []string
	// Area is the absolute path of what stays beside the workspace with Outcome
	// NeedsAttention: the other tree.
	Area string
}
