package gitbase

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/aspengine/asp/snapshot"
	"github.com/aspengine/asp/snapshot/gitbase/convert"
	"github.com/aspengine/asp/snapshot/scan"
)

// walk is one look at a work tree. Workers share it read-only.
type walk struct {
	ctx   context.Context
	r     *Repo
	e     *env
	t     *table
	root  scan.DirHandle
	src   source
	opts  snapshot.StampOptions
	trust bool // the index's stat data may answer
	// virtDirs names, for each directory, what the effects in src.virt put or
	// remove directly in it: files and directories on the way to files.
	virtDirs map[string]map[string]bool
	ws       []walker
	// Of a resident work tree: what is found is noted by directory, and what
	// looks since the last walk learned of files.
	rec    *recorder
	recent map[string]recent
}

// todo is one directory on the stack of the walk.
type todo struct {
	dir  int32  // node of the table, -1 for a directory without entries
	up   *rules // of the parent directory, nil for the top
	name string
}

// walker is what one worker collects, and its scratch space.
type walker struct {
	cache    *snapshot.CacheBuilder
	overlay  []snapshot.OverlayEntry
	notes    []string
	files    int
	hashed   int
	filtered int
	traces   uint64
	ignored  snapshot.IgnoredNames
	attrs    bool // a .gitattributes that governs entries differs from HEAD
	rules    []dirRules

	hasher *convert.Hasher
	hits   []bool
	kids   []bool
	slow   []slowFile
	dirs   []string
	others []other

	cur     *seen // what is noted of the directory at hand, if anything is
	shared  bool  // a file of rules has several names: what is written by another is not heard of
	learned []recent
}

type slowFile struct {
	entry int32
	st    scan.Stat
}

type other struct {
	name string
	kind scan.Kind
}

// run walks the tree and returns what differs from HEAD, sorted. A second walk
// that trusts nothing follows when attributes changed in the work tree: the
// index's stat data then speak of a conversion that is no longer asked for.
func (w *walk) run() (*snapshot.Stamp, *snapshot.StatCache, bool, error) {
	for {
		s, parts, again, err := w.once()
		if err != nil {
			return nil, nil, false, err
		}
		if again && w.trust {
			w.trust = false
			continue
		}
		cache, changed := snapshot.MergeCaches(w.r.cacheNow(), w.e.memo, parts)
		return s, cache, changed, nil
	}
}

func (w *walk) once() (*snapshot.Stamp, []*snapshot.CacheBuilder, bool, error) {
	w.begin()
	err := scan.Walk(w.ctx, w.root, w.r.workers, scan.Task[todo]{},
		func(sw *scan.Worker[todo], d scan.DirHandle, t scan.Task[todo], err error) error {
			k := &w.ws[sw.ID]
			if w.rec != nil {
				return k.record(w, sw, d, t, err)
			}
			return k.dir(w, sw, d, t, err)
		})
	if err != nil {
		return nil, nil, false, err
	}
	s := &snapshot.Stamp{}
	parts := make([]*snapshot.CacheBuilder, len(w.ws))
	filtered, again := 0, false
	var ignored snapshot.IgnoredNames
	for i := range w.ws {
		k := &w.ws[i]
		s.Overlay = append(s.Overlay, k.overlay...)
		s.Notes = append(s.Notes, k.notes...)
		s.Files += k.files
		s.Hashed += k.hashed
		s.Traces += k.traces
		filtered += k.filtered
		ignored.Merge("", &k.ignored)
		again = again || k.attrs
		parts[i] = k.cache
	}
	s.Ignored = ignored.Ignored()
	conclude(s, w.e, filtered)
	return s, parts, again, nil
}

// begin makes the workers.
func (w *walk) begin() {
	old, now := w.r.cacheNow(), time.Now().UnixNano()
	w.ws = make([]walker, w.r.workers)
	for i := range w.ws {
		w.ws[i].cache = old.Builder(now)
	}
	if w.rec != nil {
		w.rec.parts = make([]recorderPart, w.r.workers)
	}
}

// conclude puts what was found in order and computes the baseline.
func conclude(s *snapshot.Stamp, e *env, filtered int) {
	snapshot.SortOverlay(s.Overlay)
	slices.Sort(s.Notes)
	if filtered > 0 {
		s.Notes = append(s.Notes, fmt.Sprintf("%d files have a content filter, which is never run: they count as changed, by their bytes on disk", filtered))
	}
	s.Baseline = snapshot.Baseline{Rev: "git:tree:" + e.headTree.String(), Dirty: snapshot.DirtyDigest(s.Overlay)}
}

func (r *Repo) cacheNow() *snapshot.StatCache {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cache
}

func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

// dir looks at one directory: lists it once, settles what the index's stat data
// settle on the way, then reads the files of rules and settles the rest.
func (k *walker) dir(w *walk, sw *scan.Worker[todo], d scan.DirHandle, t scan.Task[todo], err error) error {
	var node *dirNode
	if t.Data.dir >= 0 {
		node = &w.t.dirs[t.Data.dir]
	}
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrPermission):
		k.add(snapshot.OverlayEntry{Path: t.Path, Note: "unreadable"})
		k.note(t.Path, "directory is not readable")
		return nil
	case t.Path == "":
		return err
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP):
		if w.virtDirs[t.Path] == nil { // else the effects make it
			k.missing(w, node)
			return nil
		}
	default:
		return err
	}
	nf, nk := 0, 0
	if node != nil {
		nf, nk = int(node.f1-node.f0), int(node.k1-node.k0)
	}
	k.hits, k.kids = clear2(k.hits, nf), clear2(k.kids, nk)
	k.slow, k.dirs, k.others = k.slow[:0], k.dirs[:0], k.others[:0]
	early := t.Data.up != nil && t.Data.up.special
	var hasGit, hasIgn, hasAtt bool

	list := func(n scan.Name) error {
		name := n.View()
		if name == gitDirName {
			hasGit = true
			return nil
		}
		if w.src.virt != nil && w.virtDirs[t.Path][name] && w.src.virt[join(t.Path, name)] != nil {
			return nil // what the effects leave there is looked at below
		}
		kind := n.Kind
		var st scan.Stat
		f := int32(-1)
		if node != nil {
			f = w.t.fileAt(node, name)
		}
		if f >= 0 || kind == scan.Unknown {
			if err := d.LstatName(n, &st); err != nil {
				return ignoreGone(err)
			}
			kind = st.Kind
		}
		if kind == scan.Dir {
			k.dirs = append(k.dirs, string(n.Bytes()))
			return nil
		}
		if kind == scan.File {
			hasIgn = hasIgn || name == ignoreName
			hasAtt = hasAtt || name == attrName
		}
		if f < 0 {
			k.others = append(k.others, other{string(n.Bytes()), kind})
			return nil
		}
		k.files++
		k.hits[f-node.f0] = true
		i := w.t.files[f]
		e := &w.t.entries[i]
		k.saw(w, e.path, &st)
		if !early && w.trust && e.head < 0 && e.flags&(inIndex|notInHead|unmerged|intentOnly) == inIndex &&
			w.t.idx.unchanged(e, &st) && w.execSame(w.t.idx.mode(e), &st) {
			return nil
		}
		k.slow = append(k.slow, slowFile{i, st})
		return nil
	}
	if err == nil {
		if err := sw.List(d, list); err != nil && (t.Path == "" || !errors.Is(err, fs.ErrNotExist)) {
			return err
		} // else removed since it was opened: what was in it is gone
	}
	if hasGit && node == nil {
		k.unsure() // its own index and HEAD have no part in the events
		if done, err := k.nested(w, t.Path); done || err != nil {
			return err
		}
	}
	if k.cur != nil {
		k.shared = k.shared || hasIgn && several(d, ignoreName) || hasAtt && several(d, attrName)
	}
	rl, err := w.rulesAt(d, t, node, hasIgn, hasAtt)
	if err != nil {
		return err
	}
	k.rules = append(k.rules, dirRules{t.Path, rl})
	if rl.special && !early {
		// Filters came in with this directory's own attributes: nothing in it
		// can be settled by stat data.
		if err := k.reslow(w, d, node); err != nil {
			return err
		}
	}
	if w.src.virt != nil {
		if err := k.virtual(w, t.Path, node, rl); err != nil {
			return err
		}
	}
	for i := range k.slow {
		if err := k.tracked(w, &sw.Reader, d, rl, &w.t.entries[k.slow[i].entry], &k.slow[i].st); err != nil {
			return err
		}
	}
	for _, o := range k.others {
		if rl.ignored(o.name, false) {
			k.ignore(join(t.Path, o.name))
		} else if err := k.untracked(w, &sw.Reader, d, join(t.Path, o.name), o.name); err != nil {
			return err
		}
	}
	for _, name := range k.dirs {
		if err := k.subdir(w, sw, t.Path, node, rl, name); err != nil {
			return err
		}
	}
	if node == nil {
		return nil
	}
	for i, hit := range k.hits {
		if !hit {
			k.gone(w, &w.t.entries[w.t.files[node.f0+int32(i)]])
		}
	}
	for i, seen := range k.kids {
		if !seen {
			k.missing(w, &w.t.dirs[w.t.kids[node.k0+int32(i)]])
		}
	}
	return nil
}

// several tells whether a file has names beside this one.
func several(d scan.DirHandle, name string) bool {
	st, err := d.Lstat(name)
	return err == nil && st.Nlink > 1
}

func clear2(b []bool, n int) []bool {
	if cap(b) < n {
		return make([]bool, n, 2*n)
	}
	b = b[:n]
	clear(b)
	return b
}

// rulesAt reads the directory's files of rules and returns its rules.
func (w *walk) rulesAt(d scan.DirHandle, t scan.Task[todo], node *dirNode, hasIgn, hasAtt bool) (*rules, error) {
	gi, err := w.ruleFile(d, t.Path, node, ignoreName, hasIgn)
	if err != nil {
		return nil, err
	}
	ga, err := w.ruleFile(d, t.Path, node, attrName, hasAtt)
	if err != nil {
		return nil, err
	}
	if t.Data.up == nil {
		return newRules(w.e, gi, ga), nil
	}
	return t.Data.up.enter(t.Data.name, gi, ga), nil
}

func (w *walk) ruleFile(d scan.DirHandle, dir string, node *dirNode, name string, onDisk bool) ([]byte, error) {
	// Most directories have neither file, on disk, in the index or in effects.
	if !onDisk && w.src.virt == nil && (node == nil || w.t.file(node, name) < 0) {
		return nil, nil
	}
	return w.src.read(d, dir, name, onDisk)
}

// reslow puts every file of the directory that was seen on the slow list.
func (k *walker) reslow(w *walk, d scan.DirHandle, node *dirNode) error {
	if node == nil {
		return nil
	}
	k.slow = k.slow[:0]
	for i, hit := range k.hits {
		if !hit {
			continue
		}
		n := w.t.files[node.f0+int32(i)]
		st, err := d.Lstat(w.t.entries[n].path[node.base:])
		if errors.Is(err, fs.ErrNotExist) {
			k.hits[i] = false
			continue
		}
		if err != nil {
			return err
		}
		k.slow = append(k.slow, slowFile{n, st})
	}
	return nil
}

// subdir decides what to do with the directory name found below dir.
func (k *walker) subdir(w *walk, sw *scan.Worker[todo], dir string, node *dirNode, rl *rules, name string) error {
	path := join(dir, name)
	if node != nil {
		if f := w.t.fileAt(node, name); f >= 0 {
			e := &w.t.entries[w.t.files[f]]
			if te, in := w.t.inHead(e); in && te.mode == 0o160000 || e.flags&inIndex != 0 && w.t.idx.mode(e) == 0o160000 {
				k.hits[f-node.f0] = true
				k.unsure()
				return k.submodule(w, e, path)
			}
		}
		if i := w.t.kidAt(node, name); i >= 0 {
			k.kids[i-node.k0] = true
			if k.enter(w, path, name) {
				sw.Push(scan.Task[todo]{Path: w.t.dirs[w.t.kids[i]].path, Data: todo{w.t.kids[i], rl, name}})
			}
			return nil
		}
	}
	if rl.ignored(name, true) {
		k.ignore(path + "/")
	} else if k.enter(w, path, name) {
		sw.Push(scan.Task[todo]{Path: path, Data: todo{-1, rl, name}})
	}
	return nil
}

// missing records everything below a directory that is not there.
func (k *walker) missing(w *walk, node *dirNode) {
	if node == nil {
		return
	}
	for i := node.lo; i < node.hi; i++ {
		k.gone(w, &w.t.entries[i])
	}
}

// gone records an entry that is not on disk. What was never checked out (sparse
// checkout) is not missed, and what HEAD does not hold cannot be.
func (k *walker) gone(w *walk, e *entry) {
	if _, in := w.t.inHead(e); in && e.flags&skipWT == 0 {
		k.changed(snapshot.OverlayEntry{Path: e.path, Gone: true})
	}
}

func (k *walker) add(e snapshot.OverlayEntry) { k.overlay = append(k.overlay, e) }

// changed records an entry of the table.
func (k *walker) changed(e snapshot.OverlayEntry) {
	k.add(e)
	k.attrs = k.attrs || e.Path == attrName || strings.HasSuffix(e.Path, "/"+attrName)
}

// ignore notes a name that belongs to no state.
func (k *walker) ignore(name string) {
	if k.ignored.Add(name); k.cur != nil {
		k.cur.ignored.Add(name)
	}
}

func (k *walker) note(path, what string) {
	k.notes = append(k.notes, fmt.Sprintf("%.200q: %s", path, what))
}

func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// execSame tells whether the execute bit on disk is that of the mode, or means
// nothing here.
func (w *walk) execSame(mode uint32, st *scan.Stat) bool {
	return !w.e.fileMode || mode&0o170000 != 0o100000 || mode&0o100 != 0 == st.Exec
}

// tooDeep is told of a repository that lies deeper than a path can name: the walk gets
// there by descriptors, what is read of a repository is not.
const tooDeep = "its path is too long to look for a repository there"

// nested looks whether the directory at path, which holds a name .git but no
// entries, is a repository of its own, and records it by its baseline.
func (k *walker) nested(w *walk, path string) (bool, error) {
	p, err := at(filepath.Join(w.r.Places.Root, filepath.FromSlash(path)))
	if errors.Is(err, ErrNoRepository) || errors.Is(err, ErrGitFile) || errors.Is(err, ErrNoWorkTree) {
		return false, nil // a directory like any other, as git sees it
	}
	if errors.Is(err, syscall.ENAMETOOLONG) {
		k.note(path, tooDeep)
		k.add(snapshot.OverlayEntry{Path: path, Mode: snapshot.ModeGitlink, Note: "repository", Ref: "too-deep"})
		return true, nil
	}
	if err != nil {
		return false, err
	}
	ref, _, err := k.inner(w, p, path)
	k.add(snapshot.OverlayEntry{Path: path, Mode: snapshot.ModeGitlink, Note: "repository", Ref: ref})
	return true, err
}

// submodule compares the repository at a gitlink with the commit that HEAD
// names. One that is not checked out is as it should be.
func (k *walker) submodule(w *walk, e *entry, path string) error {
	te, in := w.t.inHead(e)
	p, err := at(filepath.Join(w.r.Places.Root, filepath.FromSlash(path)))
	switch {
	case errors.Is(err, ErrNoRepository) || errors.Is(err, ErrNoWorkTree):
		if in && te.mode != 0o160000 {
			k.changed(snapshot.OverlayEntry{Path: path, Gone: true})
		}
		return nil
	case errors.Is(err, ErrGitFile):
		k.add(snapshot.OverlayEntry{Path: path, Mode: snapshot.ModeGitlink, Note: "submodule", Ref: "invalid"})
		k.note(path, "submodule has no valid .git file")
		return nil
	case errors.Is(err, syscall.ENAMETOOLONG):
		k.add(snapshot.OverlayEntry{Path: path, Mode: snapshot.ModeGitlink, Note: "submodule", Ref: "too-deep"})
		k.note(path, tooDeep)
		return nil
	case err != nil:
		return err
	}
	ref, s, err := k.inner(w, p, path)
	if err != nil {
		return err
	}
	if s != nil && in && te.mode == 0o160000 && s.commit == te.id.String() && s.dirty == "" {
		return nil
	}
	if s != nil {
		ref = "git:commit:" + s.commit + " " + s.dirty
	}
	k.add(snapshot.OverlayEntry{Path: path, Mode: snapshot.ModeGitlink, Note: "submodule", Ref: ref})
	return nil
}

type innerState struct{ commit, dirty string }

// inner stamps a repository inside this one. When it cannot be read that is
// its state, with a note: the outer workspace stays usable.
func (k *walker) inner(w *walk, p Places, path string) (string, *innerState, error) {
	if w.r.depth+1 >= maxDepth {
		k.note(path, "repositories nested too deep, not looked into")
		return "too-deep", nil, nil
	}
	r, err := openRepo(p, snapshot.Options{Workers: 2}, w.r.depth+1)
	if err != nil {
		return "", nil, err
	}
	defer r.Close()
	s, err := r.Stamp(w.ctx, w.opts)
	if err != nil {
		if cerr := w.ctx.Err(); cerr != nil {
			return "", nil, cerr
		}
		k.note(path, fmt.Sprintf("nested repository cannot be read: %.200s", err))
		return "unreadable", nil, nil
	}
	for _, n := range s.Notes {
		k.notes = append(k.notes, fmt.Sprintf("in %.200q: %s", path, n))
	}
	k.files += s.Files
	k.traces += s.Traces
	k.hashed += s.Hashed
	k.ignored.MergeIgnored(path+"/", s.Ignored)
	if k.cur != nil {
		k.cur.ignored.MergeIgnored(path+"/", s.Ignored)
	}
	st := s.State.(*state)
	return s.Baseline.Rev + " " + s.Baseline.Dirty, &innerState{st.e.head.Commit, s.Baseline.Dirty}, nil
}
