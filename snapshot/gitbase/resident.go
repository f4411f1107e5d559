package gitbase

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/aspengine/asp/snapshot"
	"github.com/aspengine/asp/snapshot/scan"
	"github.com/aspengine/asp/snapshot/watch"
)

// ResidentOptions are the choices of whoever keeps a work tree in memory.
type ResidentOptions struct {
	// MaxAge is how long a walk may be built upon; 0 takes DefaultMaxAge. It
	// bounds how long what no watcher hears of stays unseen.
	MaxAge time.Duration
	// Limit bounds the watched directories; 0 leaves it to package watch.
	Limit int
}

// DefaultMaxAge is the MaxAge of a host.
const DefaultMaxAge = time.Minute

// maxWatchFailures is after how many walks in a row that could not be watched
// nobody tries again: each one pays for its watches.
const maxWatchFailures = 3

// maxLearned bounds the files remembered beside the stat cache.
const maxLearned = 1 << 16

// Reside makes r keep what a walk found, and watch the directories that it
// passed. Later stamps that allow it (StampOptions.Watched) look again only at
// directories in which something happened, with the same rules, and take the
// rest from memory. Whatever speaks against that makes a stamp a walk. To be
// called before r is shared; Close ends it.
func (r *Repo) Reside(o ResidentOptions) {
	if o.MaxAge == 0 {
		o.MaxAge = DefaultMaxAge
	}
	r.keep = &keeper{r: r, o: o, turn: make(chan struct{}, 1)}
}

// keeper has the memory of a resident work tree. One look at a time: turn is
// held by whoever looks.
type keeper struct {
	r    *Repo
	o    ResidentOptions
	turn chan struct{}

	m        *memory // nil: the next look is a walk
	failures int
	why      string // of the last walk
	closing  sync.WaitGroup
}

// memory is what the last walk found, kept true by the looks since.
type memory struct {
	tree   *watch.Tree // nil: a look that came to nothing left watches that dirs knows nothing of
	walked time.Time
	root   place
	index  fileID
	e      *env
	t      *table
	dirs   map[string]*seen
	// shown are the directories whose overlay or notes are not empty.
	shown map[string]*seen
	// restless are directories that are looked at again each time, because
	// events do not tell all about them.
	restless map[string]*seen
	files    int
	filtered int
	// recent is what looks since the walk learned of files, beside the stat
	// cache: that is made anew by walks only.
	recent map[string]recent
}

// place is the identity of a directory.
type place struct{ dev, ino uint64 }

// recent is one file whose digests are known.
type recent struct {
	path string
	st   scan.Stat
	snapshot.Known
}

// seen is what one look at one directory found. Immutable.
type seen struct {
	task     scan.Task[todo]
	kids     []string
	overlay  []snapshot.OverlayEntry
	notes    []string
	ignored  snapshot.IgnoredNames
	files    int
	filtered int
	restless bool
	// linked are the inodes of files with further names, by which they may be
	// written unheard.
	linked []uint64
}

// fileID tells one state of a file that is replaced by renames.
type fileID struct {
	missing      bool
	dev, ino     uint64
	size         int64
	mtime, ctime int64
}

// identify looks at the file. settled says that a later state would have another
// id: its time stamps are older than what two writes may share. Time stamps of
// the future, as after a clock was put back, never are.
func identify(path string) (id fileID, settled bool, err error) {
	now := time.Now().UnixNano()
	id, err = lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fileID{missing: true}, true, nil
	} else if err != nil {
		return id, false, &fs.PathError{Op: "lstat", Path: path, Err: err}
	}
	return id, snapshot.Settled(id.mtime, id.ctime, now), nil
}

func (k *keeper) indexPath() string { return filepath.Join(k.r.GitDir, "index") }

// stamp is Repo.Stamp for a resident work tree.
func (k *keeper) stamp(ctx context.Context, o snapshot.StampOptions) (*snapshot.Stamp, error) {
	select {
	case k.turn <- struct{}{}:
		defer func() { <-k.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if o.Content {
		// It may find what events did not tell; then memory is wrong.
		k.forget()
		return k.r.walkStamp(ctx, o)
	}
	if o.Watched && k.m != nil {
		if s, err := k.again(ctx); err != nil || s != nil {
			if err != nil {
				k.forget() // what was dirty is no longer known
			}
			return s, err
		}
	}
	return k.walk(ctx, o)
}

// forget makes the next look a walk.
func (k *keeper) forget() {
	if k.m != nil {
		k.end(k.m.tree)
		k.m = nil
	}
}

// end closes a tree beside whoever looks: the kernel takes its time to give the
// watches back (10 to 18 ms for 182 of them). close waits for it.
func (k *keeper) end(t *watch.Tree) {
	if t != nil {
		k.closing.Go(func() { _ = t.Close() }) // a queue of events: nothing is lost with it
	}
}

func (k *keeper) close() {
	k.turn <- struct{}{}
	k.forget()
	k.failures = maxWatchFailures
	<-k.turn
	k.closing.Wait()
}

// walk is a whole look, remembered if it can be watched.
func (k *keeper) walk(ctx context.Context, o snapshot.StampOptions) (*snapshot.Stamp, error) {
	old := k.m
	k.m = nil
	tree := k.watches(old)
	if k.failures >= maxWatchFailures {
		k.end(tree)
		return k.r.walkStamp(ctx, o)
	}
	if tree == nil {
		var err error
		if tree, err = watch.New(k.r.Places.Root, watch.Options{Limit: k.o.Limit, Rules: isRules}); err != nil {
			k.why = err.Error()
			if errors.Is(err, watch.ErrUnsupported) {
				k.failures = maxWatchFailures
			} // else the user has no queue left, now
			return k.r.walkStamp(ctx, o)
		}
	}
	m := &memory{tree: tree, walked: time.Now()}
	s, err := k.remember(ctx, o, m, old)
	if err != nil || k.m != m {
		k.end(tree)
	} else if old != nil && old.tree == tree {
		for path := range old.dirs {
			if m.dirs[path] == nil {
				tree.Drop(path)
			}
		}
	}
	return s, err
}

// watches are those of an earlier walk, for another one to go on with; nil where
// something speaks against that. A walk lists every directory and looks at every file,
// whatever is watched; that the same directories are watched already saves two thirds of
// what it costs. What the queue holds until now it will see by itself.
func (k *keeper) watches(old *memory) *watch.Tree {
	if old == nil || old.tree == nil {
		return nil
	}
	t := old.tree
	ch := t.Changes()
	if at, err := scan.LstatPath(k.r.Places.Root); err != nil || ch.Lost != "" || (place{at.Dev, at.Ino}) != old.root {
		k.end(t)
		return nil
	}
	for path := range ch.Trees {
		old.drop(path) // else a directory that came to a known name would pass for watched
	}
	return t
}

func isRules(name string) bool { return name == ignoreName || name == attrName }

// remember walks, and makes m the memory if nothing speaks against it.
func (k *keeper) remember(ctx context.Context, o snapshot.StampOptions, m, old *memory) (*snapshot.Stamp, error) {
	var err error
	if m.e, err = k.r.load(ctx); err != nil {
		return nil, err
	}
	before, settled, err := identify(k.indexPath())
	if err != nil {
		return nil, err
	}
	note := ""
	if old != nil && settled && old.index == before && old.e.headTree == m.e.headTree {
		m.t = old.t
	} else {
		var x *index
		if x, note, err = k.r.index(ctx); err != nil {
			return nil, err
		}
		if m.t, err = newTable(x, m.e.headTree, k.r.objs, true); err != nil {
			return nil, err
		}
	}
	after, _, err := identify(k.indexPath())
	if err != nil {
		return nil, err
	}
	m.index = after
	w := &walk{ctx: ctx, r: k.r, e: m.e, t: m.t, opts: o, trust: true, src: source{t: m.t, objs: k.r.objs}, rec: &recorder{tree: m.tree}}
	if old != nil {
		w.recent = old.recent
	}
	if w.root, err = scan.OpenRoot(k.r.Places.Root); err != nil {
		return nil, err
	}
	defer w.root.Close()
	if m.root, err = identity(w.root); err != nil {
		return nil, err
	}
	s, cache, changed, err := w.run()
	if err != nil {
		return nil, err
	}
	s.State = &state{of: k.r, e: m.e, t: m.t, opts: o}
	if changed {
		k.r.learn(cache)
	}
	if note != "" {
		s.Notes = append(s.Notes, note)
	}
	switch {
	case w.rec.failed():
		k.failures++
		k.why = m.tree.Changes().Lost
	case slices.ContainsFunc(w.ws, func(k walker) bool { return k.shared }):
		k.why = "a file of rules has several names"
	case !w.trust || note != "" || !settled || before != after:
		// Attributes that are not committed change what the index means; an index
		// that is too young could change without another id; one that the git
		// program lists has no id. The next look may do better.
	default:
		m.take(w.rec)
		k.m, k.failures = m, 0
		k.r.mu.Lock()
		k.r.lastIndex, k.r.lastID = m.t.idx, m.index
		k.r.mu.Unlock()
	}
	return s, nil
}

func identity(d scan.DirHandle) (place, error) {
	st, err := d.Stat()
	return place{st.Dev, st.Ino}, err
}

// again looks at what changed. No stamp and no error: it takes a walk.
func (k *keeper) again(ctx context.Context) (*snapshot.Stamp, error) {
	m := k.m
	if time.Since(m.walked) > k.o.MaxAge || len(m.recent) > maxLearned {
		k.why = "the last walk is too long ago"
		return nil, nil
	}
	ch := m.tree.Changes()
	if ch.Lost != "" {
		k.why = ch.Lost
		return nil, nil
	}
	e, err := k.r.load(ctx)
	if err != nil {
		return nil, err
	}
	id, _, err := identify(k.indexPath())
	if err != nil {
		return nil, err
	}
	root, err := scan.OpenRoot(k.r.Places.Root)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	at, err := identity(root)
	if err != nil || at != m.root || id != m.index || !e.same(m.e) {
		k.why = "root, index, HEAD's tree or configuration changed"
		return nil, err
	}
	s := &snapshot.Stamp{}
	looks := m.due(ch)
	if len(looks) > 0 {
		w := &walk{
			ctx: ctx, r: k.r, e: m.e, t: m.t, root: root, trust: true, src: source{t: m.t, objs: k.r.objs},
			rec: &recorder{tree: m.tree, known: m.dirs}, recent: m.recent,
		}
		ok, err := w.lookAt(looks)
		if !ok || err != nil {
			k.why = "a look at what changed asks for more"
			k.spoil()
			return nil, err
		}
		for i := range w.ws {
			s.Hashed += w.ws[i].hashed
		}
		if m.newNames(w.rec) {
			k.why = "a file got a second name"
			k.spoil()
			return nil, nil
		}
		m.take(w.rec)
	}
	m.finish(s)
	s.State = &state{of: k.r, e: e, t: m.t}
	return s, ctx.Err()
}

// spoil gives up the watches: the look that is thrown away made some, too.
func (k *keeper) spoil() {
	k.end(k.m.tree)
	k.m.tree = nil
}

// same tells whether everything outside of the work tree that a walk depends on
// is as it was. Which commit HEAD is does not matter, its tree does.
func (e *env) same(o *env) bool {
	a, b := *e, *o
	a.head, b.head, a.memo, b.memo = Head{}, Head{}, "", ""
	return reflect.DeepEqual(&a, &b)
}

// due forgets the directories that came or went, and lists those that have to be
// looked at.
func (m *memory) due(ch watch.Changes) []*seen {
	for path := range ch.Trees {
		m.drop(path)
	}
	var looks []*seen
	for path := range ch.Dirs {
		if d := m.dirs[path]; d != nil && !d.restless {
			looks = append(looks, d)
		}
	}
	for _, d := range m.restless {
		looks = append(looks, d)
	}
	return looks
}

// newNames tells whether a look found a file with several names that had one when
// the directories with such files were last looked at: the directory of its old
// name heard nothing of the new one, and hears of no write by it.
func (m *memory) newNames(rec *recorder) bool {
	known := map[uint64]bool{}
	for _, d := range m.restless {
		for _, ino := range d.linked {
			known[ino] = true
		}
	}
	for _, p := range rec.parts {
		for _, d := range p.dirs {
			if slices.ContainsFunc(d.linked, func(ino uint64) bool { return !known[ino] }) {
				return true
			}
		}
	}
	return false
}

// drop forgets the directory at path and everything below it.
func (m *memory) drop(path string) {
	d := m.dirs[path]
	if d == nil {
		return
	}
	m.remove(d)
	m.tree.Drop(path)
	for _, name := range d.kids {
		m.drop(join(path, name))
	}
}

func (m *memory) remove(d *seen) {
	delete(m.dirs, d.task.Path)
	delete(m.shown, d.task.Path)
	delete(m.restless, d.task.Path)
	m.files -= d.files
	m.filtered -= d.filtered
}

// take puts in what a walk, or a look at some directories, found.
func (m *memory) take(rec *recorder) {
	if m.dirs == nil {
		m.dirs, m.shown, m.restless, m.recent = map[string]*seen{}, map[string]*seen{}, map[string]*seen{}, map[string]recent{}
	}
	var gone []string
	for _, part := range rec.parts {
		for _, d := range part.dirs {
			path := d.task.Path
			if old := m.dirs[path]; old != nil {
				m.remove(old)
				gone = append(gone, lost(path, old.kids, d.kids)...)
			}
			m.dirs[path] = d
			m.files += d.files
			m.filtered += d.filtered
			if len(d.overlay) > 0 || len(d.notes) > 0 || !d.ignored.Empty() {
				m.shown[path] = d
			}
			if d.restless {
				m.restless[path] = d
			}
		}
		for _, f := range part.recent {
			m.recent[f.path] = f
		}
	}
	// Last: one that vanished meanwhile may have been looked at, too, and its
	// parent has told already what is missing.
	for _, path := range gone {
		m.drop(path)
	}
}

// lost lists the paths of the old names that are not among the new ones.
func lost(dir string, old, now []string) (out []string) {
	is := make(map[string]bool, len(now))
	for _, name := range now {
		is[name] = true
	}
	for _, name := range old {
		if !is[name] {
			out = append(out, join(dir, name))
		}
	}
	return out
}

// finish makes the stamp of what is remembered.
func (m *memory) finish(s *snapshot.Stamp) {
	var ignored snapshot.IgnoredNames
	for _, d := range m.shown {
		ignored.Merge("", &d.ignored)
		s.Overlay = append(s.Overlay, d.overlay...)
		s.Notes = append(s.Notes, d.notes...)
	}
	s.Files, s.Watched, s.Ignored = m.files, true, ignored.Ignored()
	conclude(s, m.e, m.filtered)
}

// keptIndex is the decoded index of the last walk if it is still the one on
// disk, else nil.
func (r *Repo) keptIndex() *index {
	r.mu.Lock()
	x, was := r.lastIndex, r.lastID
	r.mu.Unlock()
	if x == nil {
		return nil
	}
	if id, _, err := identify(filepath.Join(r.GitDir, "index")); err != nil || id != was {
		return nil
	}
	return x
}
