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
// tree/ (the new tree, after the exchange the old one) and journal. Nothing is
// removed from there that has no second name in the workspace, is not a
// pre-image of the plan, or is not our own.
package exchange

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/aspengine/asp/apply/commit"
	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/snapshot"
)

// Prefix starts the name of the area beside the root.
const Prefix = ".asp-exchange-"

const (
	treeName    = "tree"
	journalName = "journal"
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
	// transaction directory of the journal mode, which is empty by then.
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
	// AfterCommit makes the receipt durable; it may be called twice.
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
}

// work is one exchange in progress.
type work struct {
	env     Env
	o       Options
	parent  vfs.Dir
	root    vfs.Dir
	area    vfs.Dir
	tree    vfs.Dir
	name    string // of the root in its parent
	areaNm  string
	rootSt  vfs.Stat
	changes map[string]commit.Change
	below   map[string]bool // directories that hold a change somewhere below
	seen    map[string]listing
	facts   Facts
}

// listing is what a directory of the live tree held when it was copied.
type listing map[string]uint64 // inode by name

func (w *work) step(name string) {
	if w.o.Step != nil {
		w.o.Step(name)
	}
}

// Forecast tells what an exchange would earn, or why it may not be done.
func Forecast(env Env) (Facts, *refusal.Item, error) {
	w := &work{env: env}
	defer w.close()
	it, err := w.open()
	w.facts.Forecast, w.facts.Synced = true, true
	return w.facts, it, err
}

// open opens root and parent and says why the root cannot be exchanged.
func (w *work) open() (*refusal.Item, error) {
	no := func(c refusal.Code, format string, a ...any) *refusal.Item {
		it := refusal.New(c, "", -1, format+"; use --publish journal", a...)
		return &it
	}
	dir, name := filepath.Split(w.env.RootPath)
	if name == "" {
		return no(refusal.UnsupportedOperation, "the workspace root is the root of the file system"), nil
	}
	w.name = name
	var err error
	if w.parent, err = w.env.FS.OpenRoot(dir); err != nil {
		return nil, fmt.Errorf("open parent of the workspace: %w", err)
	}
	if w.root, err = w.env.FS.OpenRoot(w.env.RootPath); err != nil {
		return nil, fmt.Errorf("open workspace: %w", err)
	}
	if w.rootSt, err = w.root.Stat(); err != nil {
		return nil, err
	}
	ps, err := w.parent.Stat()
	if err != nil {
		return nil, err
	}
	probe := w.env.Probe
	if probe == nil {
		probe = commit.ProbeMount
	}
	if w.facts.Mount, err = probe(w.root); err != nil {
		return nil, fmt.Errorf("look at the file system: %w", err)
	}
	if ps.MntID != w.rootSt.MntID || ps.Dev != w.rootSt.Dev {
		return no(refusal.CrossDevice, "the workspace root is a mount point and cannot be exchanged"), nil
	}
	at, err := w.parent.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !at.SameFile(w.rootSt) {
		return nil, fmt.Errorf("workspace %.200q was replaced while it was opened", w.env.RootPath)
	}
	if fd, ok := w.parent.(vfs.Descriptor); ok {
		if err := unix.Faccessat(int(fd.Fd()), ".", unix.W_OK|unix.X_OK, unix.AT_EACCESS); err != nil {
			return no(refusal.NotWritable, "the directory above the workspace cannot be written (%v)", err), nil
		}
	}
	return nil, nil
}

func (w *work) close() {
	for _, d := range []vfs.Dir{w.tree, w.area, w.root, w.parent} {
		if d != nil {
			d.Close()
		}
	}
}

// Run makes all changes true by one exchange, or none. txid is unguessable and
// never used before. A nil error with Committed, Refused or RolledBack is the
// full answer; an error with Committed means that the receipt or the clean-up
// is left for Recover.
func Run(ctx context.Context, env Env, txid string, changes []commit.Change, o Options) (Result, error) {
	w := &work{env: env, o: o, areaNm: areaPrefix(filepath.Base(env.RootPath)) + txid, changes: map[string]commit.Change{}, below: map[string]bool{}, seen: map[string]listing{}}
	defer w.close()
	for _, c := range changes {
		w.changes[c.Path.String()] = c
		for _, p := range c.Path.Parents() {
			w.below[p.String()] = true
		}
	}
	it, err := w.open()
	if err != nil || it != nil {
		r := Result{Outcome: commit.Refused, Facts: w.facts}
		if it != nil {
			r.Items = refusal.List{*it}
		}
		return r, err
	}
	return w.run(ctx, txid)
}

// run is the protocol.
func (w *work) run(ctx context.Context, txid string) (Result, error) {
	undo := func(items refusal.List, err error) (Result, error) {
		// Nothing was exchanged: what lies in the area is ours alone.
		cerr := w.discard()
		return Result{Outcome: commit.Refused, Items: items, Facts: w.facts}, errors.Join(err, cerr)
	}
	// 1. The area beside the root, and the new tree in it.
	w.step("build the tree")
	if err := w.makeArea(); err != nil {
		return undo(nil, fmt.Errorf("make the area beside the workspace: %w", err))
	}
	if it, err := w.build(ctx); err != nil || it != nil {
		var items refusal.List
		if it != nil {
			items = refusal.List{*it}
		}
		return undo(items, err)
	}
	// 2. Everything that the plan rests on is looked at again, after the build.
	w.step("compare the tree")
	if w.o.Recheck != nil {
		items, err := w.o.Recheck(ctx)
		if err != nil || len(items) > 0 {
			return undo(items, err)
		}
	}
	if p, err := w.moved(ctx, w.root); err != nil || p != "" {
		return undo(underneath(p), err)
	}
	// 3. The intent, with the receipt in it; one barrier for it and the tree.
	w.step("sync")
	w.facts.Synced = true
	evidence, err := w.o.Seal(ctx, w.facts)
	if err != nil {
		return undo(nil, err)
	}
	ts, err := w.tree.Stat()
	if err != nil {
		return undo(nil, err)
	}
	if err := writeIntent(w.area, intent{TxID: txid, Tag: w.o.Tag, Root: w.name, OldIno: w.rootSt.Ino, NewIno: ts.Ino, PreImages: w.preImages(), Evidence: evidence}); err != nil {
		return undo(nil, fmt.Errorf("write intent: %w", err))
	}
	if err := w.parent.SyncFS(); err != nil {
		return undo(nil, fmt.Errorf("sync the new tree: %w", err))
	}
	if err := ctx.Err(); err != nil {
		return undo(nil, err)
	}
	if w.o.BeforeSwap != nil {
		if err := w.o.BeforeSwap(filepath.Join(filepath.Dir(w.env.RootPath), w.areaNm, treeName)); err != nil {
			return undo(nil, err)
		}
	}
	// 4. The exchange: from here on a cancel waits.
	w.step("exchange")
	ctx = context.WithoutCancel(ctx)
	if err := w.swap(); err != nil {
		return undo(nil, fmt.Errorf("exchange the trees: %w", err))
	}
	// 5. What was displaced must be what was copied; a stranger's edit is found
	// here and the trees are exchanged back.
	w.step("compare what was displaced")
	p, err := w.displaced(ctx)
	if err != nil || p != "" {
		if serr := w.swap(); serr != nil {
			return Result{Outcome: commit.NeedsAttention, Items: underneath(p), Facts: w.facts}, errors.Join(err, fmt.Errorf("exchange the trees back: %w", serr))
		}
		r, err := undo(underneath(p), err)
		r.Outcome = commit.RolledBack
		return r, err
	}
	// 6. The names.
	w.step("sync names")
	if err := w.parent.SyncFS(); err != nil {
		if serr := w.swap(); serr != nil {
			return Result{Outcome: commit.NeedsAttention, Facts: w.facts}, errors.Join(err, serr)
		}
		r, uerr := undo(nil, fmt.Errorf("sync the exchange: %w", err))
		r.Outcome = commit.RolledBack
		return r, uerr
	}
	// 7. Receipt, then the old tree goes.
	w.step("clean up")
	if w.o.AfterCommit != nil {
		if err := w.o.AfterCommit(ctx, evidence); err != nil {
			return Result{Outcome: commit.Committed, Facts: w.facts}, fmt.Errorf("store the receipt: %w", err)
		}
	}
	notes, err := clean(w.parent, w.area, w.areaNm, w.name, w.preImages())
	return Result{Outcome: commit.Committed, Facts: w.facts, Notes: notes}, err
}

func underneath(p string) refusal.List {
	if p == "" {
		return nil
	}
	return refusal.List{refusal.New(refusal.ChangedUnderneath, p, -1, "changed while the new tree was built; look at it and plan again")}
}

// swap exchanges the root and the tree in the area.
func (w *work) swap() error { return w.parent.Rename(w.name, w.area, treeName, vfs.Exchange) }

func (w *work) makeArea() error {
	if err := w.parent.Mkdir(w.areaNm, 0o700); err != nil {
		return err
	}
	var err error
	if w.area, err = w.parent.OpenDir(w.areaNm); err != nil {
		return err
	}
	if err := w.area.Chmod(0o700); err != nil {
		return err
	}
	if err := w.area.Mkdir(treeName, 0o700); err != nil {
		return err
	}
	w.tree, err = w.area.OpenDir(treeName)
	return err
}

// discard removes an area whose tree was never exchanged, or was exchanged
// back: all of it is ours.
func (w *work) discard() error {
	if w.area == nil {
		return nil
	}
	if w.tree != nil {
		w.tree.Close()
		w.tree = nil
	}
	if err := removeTree(w.area); err != nil {
		return fmt.Errorf("remove %s beside the workspace: %w", w.areaNm, err)
	}
	if err := w.parent.Rmdir(w.areaNm); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s beside the workspace: %w", w.areaNm, err)
	}
	return nil
}

// movedAway tells whether the file of c lives on under another name.
func (w *work) movedAway(c commit.Change) bool {
	to, ok := w.changes[c.MovedTo.String()]
	return ok && !c.MovedTo.IsZero() && w.pure(to)
}

// pure tells whether c only gives the file at From another name.
func (w *work) pure(c commit.Change) bool {
	from, ok := w.changes[c.From.String()]
	return ok && !c.From.IsZero() && c.After != nil && c.After.Open == nil && from.Before != nil && from.Before.Perm == c.After.Perm
}

// preImages are the files that may be removed although the workspace has no
// second name for them, by path.
func (w *work) preImages() map[string]snapshot.Digest {
	out := map[string]snapshot.Digest{}
	for p, c := range w.changes {
		if c.Before != nil && !w.movedAway(c) {
			out[p] = c.Before.Digest
		}
	}
	return out
}

// moved compares the tree at d with what was copied: names and inodes of every
// directory. It returns the first path that differs.
func (w *work) moved(ctx context.Context, d vfs.Dir) (string, error) {
	var walk func(d vfs.Dir, path string) (string, error)
	walk = func(d vfs.Dir, path string) (string, error) {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		es, err := d.List()
		if err != nil {
			return "", err
		}
		want := w.seen[path]
		n := 0
		for _, e := range es {
			p := join(path, e.Name)
			if w.skip(p) {
				continue
			}
			n++
			st, err := d.Lstat(e.Name)
			if errors.Is(err, fs.ErrNotExist) {
				return p, nil
			}
			if err != nil {
				return "", err
			}
			if ino, ok := want[e.Name]; !ok || ino != st.Ino {
				return p, nil
			}
			if st.Kind == vfs.KindDir {
				sub, err := d.OpenDir(e.Name)
				if err != nil {
					return "", err
				}
				q, err := walk(sub, p)
				sub.Close()
				if err != nil || q != "" {
					return q, err
				}
			}
		}
		if n != len(want) {
			for name := range want {
				if _, err := d.Lstat(name); errors.Is(err, fs.ErrNotExist) {
					return join(path, name), nil
				}
			}
			return path, nil
		}
		return "", nil
	}
	return walk(d, ".")
}

// displaced looks at the old tree after the exchange: nothing came or went, and
// the files that the plan replaced have the bytes that it was checked against.
// Files that only got a second name need no look: both trees have them.
func (w *work) displaced(ctx context.Context) (string, error) {
	old, err := w.area.OpenDir(treeName)
	if err != nil {
		return "", err
	}
	defer old.Close()
	if p, err := w.moved(ctx, old); err != nil || p != "" {
		return p, err
	}
	for p, c := range w.changes {
		if c.Before == nil || c.Before.Kind != vfs.KindFile || w.movedAway(c) {
			continue
		}
		sum, err := hashAt(old, p)
		if err != nil {
			return "", err
		}
		if sum != c.Before.Digest {
			return p, nil
		}
	}
	return "", nil
}

func hashAt(d vfs.Dir, path string) (snapshot.Digest, error) {
	var sum snapshot.Digest
	parent, name := d, path
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		var err error
		if parent, err = d.OpenDir(path[:i]); err != nil {
			return sum, err
		}
		defer parent.Close()
		name = path[i+1:]
	}
	f, err := parent.Open(name)
	if err != nil {
		return sum, err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return sum, err
	}
	h.Sum(sum[:0])
	return sum, nil
}

func join(dir, name string) string {
	if dir == "." {
		return name
	}
	return dir + "/" + name
}

func (w *work) skip(path string) bool {
	for _, s := range w.env.Skip {
		if s == path {
			return true
		}
	}
	return false
}
