package exchange

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"

	"github.com/aspengine/asp/apply/commit"
	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/snapshot"
)

// work is one exchange in progress.
type work struct {
	env     Env
	o       Options
	parent  vfs.Dir
	root    vfs.Dir
	area    vfs.Dir
	tree    vfs.Dir
	fresh   vfs.Dir // area/new, made when it is needed
	name    string  // of the root in its parent
	areaNm  string
	rootSt  vfs.Stat
	treeIno uint64
	changes map[string]commit.Change
	needed  map[string]bool // directories above a path that is there afterwards
	touched map[string]bool // directories whose names change
	seen    map[string]*listing
	staged  int
	facts   Facts
	notes   []string
}

// listing is what a directory of the live tree was when it was copied.
type listing struct {
	st    vfs.Stat
	names map[string]uint64 // inode by name
}

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

func no(c refusal.Code, path, format string, a ...any) *refusal.Item {
	it := refusal.New(c, text(path), -1, format+"; use --publish journal", a...)
	return &it
}

// open opens root and parent and says why the root cannot be exchanged.
func (w *work) open() (*refusal.Item, error) {
	dir, name := filepath.Split(w.env.RootPath)
	if name == "" {
		return no(refusal.UnsupportedOperation, "", "the workspace root is the root of the file system"), nil
	}
	w.name = name
	var err error
	if w.parent, err = w.env.FS.OpenRoot(dir); err != nil {
		if errors.Is(err, fs.ErrPermission) {
			return no(refusal.NotWritable, "", "the directory above the workspace cannot be opened (%v)", cause(err)), nil
		}
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
		w.facts.Mount = commit.MountFacts{Type: "unknown", Why: "the kernel did not tell the file system: " + err.Error()}
	}
	if ps.MntID != w.rootSt.MntID || ps.Dev != w.rootSt.Dev {
		return no(refusal.CrossDevice, "", "the workspace root is a mount point and cannot be exchanged"), nil
	}
	at, err := w.parent.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !at.SameFile(w.rootSt) {
		return nil, fmt.Errorf("workspace %.200q was replaced while it was opened", w.env.RootPath)
	}
	if w.rootSt.Immutable || ps.Immutable {
		return no(refusal.NotWritable, "", "the workspace root or the directory above it is immutable or append-only"), nil
	}
	if fd, ok := w.parent.(vfs.Descriptor); ok {
		if !vfs.CanExchange || !vfs.CanSyncFS {
			// Said before anything is made: a tree that is half built would have to be
			// removed by a recovery that needs that sync as well.
			return no(refusal.UnsupportedOperation, "", "this system cannot exchange two directories and sync a whole file system"), nil
		}
		if err := vfs.MayWrite(fd); err != nil {
			return no(refusal.NotWritable, "", "the directory above the workspace cannot be written (%v)", err), nil
		}
	}
	return nil, nil
}

func (w *work) close() {
	for _, d := range []vfs.Dir{w.fresh, w.tree, w.area, w.root, w.parent} {
		if d != nil {
			d.Close()
		}
	}
}

// Run makes all changes true by one exchange, or none. txid is unguessable and
// never used before. A nil error with Committed, Refused or RolledBack is the
// full answer; an error with Refused or RolledBack: it could not be done and
// nothing is changed; an error with Committed means that the receipt or the
// clean-up is left for Recover. With NeedsAttention the area stays as it is, and
// errors.Is(err, commit.ErrIndeterminate) tells that the disk may hold either
// tree under the root's name.
func Run(ctx context.Context, env Env, txid string, changes []commit.Change, o Options) (Result, error) {
	w := &work{
		env: env, o: o, areaNm: areaPrefix(filepath.Base(env.RootPath)) + txid, changes: map[string]commit.Change{},
		needed: map[string]bool{}, touched: map[string]bool{}, seen: map[string]*listing{},
	}
	defer w.close()
	if vfs.CheckName(txid) != nil {
		return Result{Outcome: commit.Refused}, fmt.Errorf("transaction id %.200q cannot be used", txid)
	}
	for _, c := range changes {
		p := c.Path.String()
		w.changes[p] = c
		w.touched[parent(p)] = true
		if c.After == nil {
			continue
		}
		for d := parent(p); d != "."; d = parent(d) {
			w.needed[d] = true
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
	r, err := w.run(ctx, txid)
	r.Facts, r.Notes = w.facts, w.notes
	return r, err
}

// run is the protocol; the numbers are those of docs/formats.md.
func (w *work) run(ctx context.Context, txid string) (Result, error) {
	// 1. to 3. Nothing of this is seen in the workspace; a failure only removes
	// what is ours.
	evidence, items, err := w.prepare(ctx, txid)
	if err != nil || len(items) > 0 {
		return Result{Outcome: commit.Refused, Items: items}, errors.Join(err, w.discard())
	}
	// 4. The exchange: from here on a cancel waits.
	w.step("exchange")
	ctx = context.WithoutCancel(ctx)
	if err := w.swap(); err != nil {
		if at, lerr := w.parent.Lstat(w.name); lerr == nil && at.Ino == w.rootSt.Ino {
			it := swapRefusal(err)
			if it == nil {
				err = fmt.Errorf("exchange the trees: %w", err)
				return Result{Outcome: commit.Refused}, errors.Join(err, w.discard())
			}
			return Result{Outcome: commit.Refused, Items: refusal.List{*it}}, w.discard()
		}
		return w.rollBack(nil, fmt.Errorf("exchange the trees: %w", err))
	}
	// 5. What was displaced must be what was copied; a stranger's edit is found
	// here and the trees are exchanged back.
	w.step("compare what was displaced")
	if p, err := w.displaced(ctx); err != nil || p != "" {
		if err != nil {
			err = fmt.Errorf("compare the displaced tree: %w", err)
		}
		return w.rollBack(underneath(p), err)
	}
	// 6. The names.
	w.step("sync names")
	if err := w.parent.SyncFS(); err != nil {
		return w.rollBack(nil, fmt.Errorf("sync the exchange: %w", err))
	}
	// 7. Receipt, then the old tree goes.
	w.step("clean up")
	if w.o.AfterCommit != nil {
		if err := w.o.AfterCommit(ctx, evidence); err != nil {
			return Result{Outcome: commit.Committed}, fmt.Errorf("store the receipt: %w", err)
		}
	}
	w.notes, err = clean(w.parent, w.area, w.areaNm, w.preImages())
	return Result{Outcome: commit.Committed}, err
}

// prepare builds the new tree, looks at everything again, and makes tree and
// intent durable.
func (w *work) prepare(ctx context.Context, txid string) (evidence []byte, items refusal.List, err error) {
	w.step("build the tree")
	if err := w.makeArea(); err != nil {
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
			return nil, refusal.List{*no(refusal.NotWritable, "", "nothing can be made beside the workspace (%v)", cause(err))}, nil
		}
		return nil, nil, fmt.Errorf("make the area beside the workspace: %w", err)
	}
	if it, err := w.build(ctx); err != nil || it != nil {
		if it != nil {
			items = refusal.List{*it}
		}
		return nil, items, err
	}
	w.step("compare the tree")
	if w.o.Recheck != nil {
		if items, err := w.o.Recheck(ctx); err != nil || len(items) > 0 {
			return nil, items, err
		}
	}
	if p, err := w.moved(ctx, w.root); err != nil || p != "" {
		return nil, underneath(p), err
	}
	w.step("sync")
	w.facts.Synced = true
	if w.o.Seal != nil {
		if evidence, err = w.o.Seal(ctx, w.facts); err != nil {
			return nil, nil, fmt.Errorf("seal: %w", err)
		}
	}
	ts, err := w.tree.Stat()
	if err != nil {
		return nil, nil, err
	}
	w.treeIno = ts.Ino
	i := intent{
		TxID: txid, Tag: w.o.Tag, Root: w.name, OldIno: w.rootSt.Ino, NewIno: ts.Ino,
		PreImages: w.preImages(), PostImages: w.postImages(), Evidence: evidence,
	}
	if err := writeIntent(w.area, i); err != nil {
		return nil, nil, fmt.Errorf("write intent: %w", err)
	}
	// One barrier for the tree, the intent and the name of the area, and a small
	// one for the name that makes the intent count.
	if err := w.parent.SyncFS(); err != nil {
		w.facts.Synced = false
		return nil, nil, fmt.Errorf("sync the new tree: %w", err)
	}
	if err := publishIntent(w.area); err != nil {
		w.facts.Synced = false
		return nil, nil, fmt.Errorf("sync intent: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	if w.o.BeforeSwap != nil {
		return evidence, nil, w.o.BeforeSwap(filepath.Join(filepath.Dir(w.env.RootPath), w.areaNm, treeName))
	}
	return evidence, nil, nil
}

func underneath(p string) refusal.List {
	if p == "" {
		return nil
	}
	return refusal.List{refusal.New(refusal.ChangedUnderneath, text(p), -1, "changed while the new tree was built; look at it and plan again")}
}

// swap exchanges the root and the tree in the area.
func (w *work) swap() error { return w.parent.Rename(w.name, w.area, treeName, vfs.Exchange) }

// swapRefusal sorts the errors of the exchange into answers and failures (nil).
func swapRefusal(err error) *refusal.Item {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return no(refusal.NotWritable, "", "the workspace root may not be renamed (%v)", cause(err))
	case errors.Is(err, syscall.EBUSY), errors.Is(err, syscall.EXDEV):
		return no(refusal.CrossDevice, "", "the workspace root cannot be exchanged (%v)", cause(err))
	case errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.ENOSYS), errors.Is(err, syscall.ENOTSUP):
		return no(refusal.UnsupportedOperation, "", "the file system does not exchange two directories (%v)", cause(err))
	}
	return nil
}

// rollBack exchanges the trees back. Both exchanges are made durable before
// anything is removed: a disk that keeps the first of them and the removals
// would hold an empty tree under the root's name.
func (w *work) rollBack(items refusal.List, cause error) (Result, error) {
	open := Result{Outcome: commit.NeedsAttention, Items: items, Area: filepath.Join(filepath.Dir(w.env.RootPath), w.areaNm)}
	at, err := w.parent.Lstat(w.name)
	if err == nil && at.Ino != w.treeIno {
		err = errors.New("somebody else has put another directory in the place of the workspace")
	}
	if err == nil {
		err = w.swap()
	}
	if err != nil {
		w.notes = append(w.notes, "both trees are kept: the other one is in "+w.areaNm+" beside the workspace")
		return open, errors.Join(cause, fmt.Errorf("exchange the trees back: %w", err))
	}
	if err := w.parent.SyncFS(); err != nil {
		return open, errors.Join(cause, fmt.Errorf("%w: sync the exchange back: %w", commit.ErrIndeterminate, err))
	}
	// Whoever looked up a path in between was in the new tree.
	if w.notes, err = clean(w.parent, w.area, w.areaNm, w.postImages()); err != nil {
		err = fmt.Errorf("clean up: %w", err)
	}
	return Result{Outcome: commit.RolledBack, Items: items}, errors.Join(cause, err)
}

func (w *work) makeArea() error {
	if err := w.parent.Mkdir(w.areaNm, 0o700); err != nil {
		return err
	}
	var err error
	if w.area, err = w.parent.OpenDir(w.areaNm); err != nil {
		return err
	}
	// Nothing that the directory above passes on to new names may reach ours: a
	// default ACL, the setgid bit.
	if err := bare(w.area); err != nil {
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

// discard removes an area whose tree was never exchanged: all of it is ours.
func (w *work) discard() error {
	var err error
	if w.area != nil {
		err = removeTree(w.area)
	}
	if err == nil {
		// Also when the directory was made and could not be opened.
		if err = w.parent.Rmdir(w.areaNm); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	if err != nil {
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
	if c.From.IsZero() || c.After == nil || c.After.Open != nil {
		return false
	}
	from, ok := w.changes[c.From.String()]
	return ok && from.Before != nil && (c.After.Kind == vfs.KindSymlink || from.Before.Perm == c.After.Perm)
}

// preImages are the files that may be removed with the old tree although they
// have no second name, by path.
func (w *work) preImages() map[string]snapshot.Digest {
	out := map[string]snapshot.Digest{}
	for p, c := range w.changes {
		if c.Before != nil && !w.movedAway(c) {
			out[p] = c.Before.Digest
		}
	}
	return out
}

// postImages are those that may be removed with the new tree.
func (w *work) postImages() map[string]snapshot.Digest {
	out := map[string]snapshot.Digest{}
	for p, c := range w.changes {
		if c.After != nil && !w.pure(c) {
			out[p] = c.After.Digest
		}
	}
	return out
}

func (w *work) skip(path string) bool {
	for _, s := range w.env.Skip {
		if s == path {
			return true
		}
	}
	return false
}
