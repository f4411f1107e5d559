package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/snapshot/scan"
)

// Options are the choices of whoever opens a workspace. The zero value is
// safe: nothing is kept between stamps of different processes.
type Options struct {
	// State is the trusted directory of this workspace; the stat cache lives
	// in it. nil: no stat cache on disk. It stays the caller's, and must be
	// open until the workspace is closed.
	State vfs.Dir
	// Workers bounds the parallel readers; 0 chooses.
	Workers int
}

// TxName is the directory, below the root of a plain directory, that holds an
// open transaction. It is no part of any baseline.
const TxName = ".asp/tx"

// dotGit is never looked into: in a plain directory it belongs to a nested
// repository, whose own bookkeeping (a refreshed index) is no change of files.
const dotGit = ".git"

// ErrStamp says that a stamp handed to After is not of this workspace.
var ErrStamp = errors.New("stamp was taken by another workspace")

type plain struct {
	root    string
	opts    Options
	workers int

	mu    sync.Mutex
	cache *StatCache
	moved bool // cache differs from the file
}

// plainState is what After needs of a stamp: sizes of the overlay's entries.
type plainState struct {
	of    *plain
	sizes []int64
}

// OpenPlain opens the directory root, which must exist, as a workspace without
// a repository. Its baseline covers every file below it: bytes, names and
// sizes in Rev; execute bits, symbolic links, special files and names that are
// not UTF-8 in Dirty. Directories count only by what is in them. Names .git
// are not looked into.
func OpenPlain(ctx context.Context, root string, o Options) (Workspace, error) {
	root, err := filepath.Abs(root)
	if err == nil {
		root, err = filepath.EvalSymlinks(root)
	}
	if err != nil {
		return nil, fmt.Errorf("open workspace: %w", err)
	}
	d, err := scan.OpenRoot(root)
	if err != nil {
		return nil, fmt.Errorf("open workspace: %w", err)
	}
	d.Close()
	p := &plain{root: root, opts: o, workers: o.Workers}
	if p.workers <= 0 {
		p.workers = scan.Workers()
	}
	if p.cache, err = LoadStatCache(o.State, "plain "+root); err != nil {
		p.cache = &StatCache{key: "plain " + root}
	}
	return p, nil
}

func (p *plain) Root() string    { return p.root }
func (p *plain) Git() bool       { return false }
func (p *plain) LockDir() string { return p.root }
func (p *plain) TxDir() string   { return filepath.Join(p.root, filepath.FromSlash(TxName)) }

func (p *plain) Protected() []vfs.Stat {
	d, err := scan.OpenRoot(p.root)
	if err != nil {
		return nil
	}
	defer d.Close()
	var out []vfs.Stat
	for _, name := range []string{TxName, dotGit} {
		if s, err := d.Lstat(name); err == nil {
			out = append(out, VFSStat(s))
		}
	}
	return out
}

// VFSStat is the identity of a scanned name in the words of package vfs. Owner
// and mount are not known to a scan.
func VFSStat(s scan.Stat) vfs.Stat {
	k := vfs.KindOther
	switch s.Kind {
	case scan.File:
		k = vfs.KindFile
	case scan.Dir:
		k = vfs.KindDir
	case scan.Symlink:
		k = vfs.KindSymlink
	}
	return vfs.Stat{Kind: k, Perm: s.Perm, Size: s.Size, Ino: s.Ino, Dev: s.Dev, Nlink: s.Nlink, Mtime: s.Mtime, Ctime: s.Ctime}
}

// found is an overlay entry with the size that Rev needs.
type found struct {
	OverlayEntry
	size int64
}

// plainWorker is what one worker of a stamp collects.
type plainWorker struct {
	cache         *CacheBuilder
	found         []found
	notes         []string
	files, hashed int
	traces        uint64
}

func (p *plain) Stamp(ctx context.Context, o StampOptions) (*Stamp, error) {
	root, err := scan.OpenRoot(p.root)
	if err != nil {
		return nil, fmt.Errorf("stamp workspace: %w", err)
	}
	defer root.Close()
	p.mu.Lock()
	old := p.cache
	p.mu.Unlock()
	now := time.Now().UnixNano()
	ws := make([]plainWorker, p.workers)
	for i := range ws {
		ws[i].cache = old.Builder(now)
	}
	err = scan.Walk(ctx, root, p.workers, scan.Task[struct{}]{},
		func(w *scan.Worker[struct{}], d scan.DirHandle, t scan.Task[struct{}], err error) error {
			return ws[w.ID].dir(w, d, t, err, o)
		})
	if err != nil {
		return nil, fmt.Errorf("stamp %.200q: %w", p.root, err)
	}
	s := &Stamp{}
	var all []found
	parts := make([]*CacheBuilder, len(ws))
	for i := range ws {
		all = append(all, ws[i].found...)
		s.Notes = append(s.Notes, ws[i].notes...)
		s.Files += ws[i].files
		s.Hashed += ws[i].hashed
		s.Traces += ws[i].traces
		parts[i] = ws[i].cache
	}
	slices.SortFunc(all, func(a, b found) int { return strings.Compare(a.Path, b.Path) })
	slices.Sort(s.Notes)
	p.finish(s, all)
	if next, changed := MergeCaches(old, "", parts); changed {
		p.mu.Lock()
		p.cache, p.moved = next, true
		p.mu.Unlock()
	}
	return s, nil
}

// finish computes the baseline of all and hands all over to s.
func (p *plain) finish(s *Stamp, all []found) {
	st := &plainState{of: p, sizes: make([]int64, len(all))}
	s.Overlay = make([]OverlayEntry, len(all))
	for i := range all {
		s.Overlay[i], st.sizes[i] = all[i].OverlayEntry, all[i].size
	}
	s.State = st
	s.Baseline = plainBaseline(s.Overlay, st.sizes)
}

// plainBaseline splits the entries into what the contract's tree form can say
// and the rest.
func plainBaseline(all []OverlayEntry, sizes []int64) Baseline {
	t := newTreeHash()
	var rest []OverlayEntry
	for i := range all {
		e := &all[i]
		inTree := e.Note == "" && e.Mode != ModeSymlink && utf8.ValidString(e.Path)
		if inTree {
			t.add(e.Path, &e.Digest, sizes[i])
		}
		if !inTree || e.Mode != ModeRegular {
			rest = append(rest, *e)
		}
	}
	return Baseline{Rev: t.rev(), Dirty: DirtyDigest(rest)}
}

func (w *plainWorker) dir(sw *scan.Worker[struct{}], d scan.DirHandle, t scan.Task[struct{}], err error, o StampOptions) error {
	if err != nil {
		switch {
		case errors.Is(err, fs.ErrPermission):
			w.note(t.Path, OverlayEntry{Path: t.Path, Note: "unreadable"}, "directory is not readable")
			return nil
		case t.Path != "" && (errors.Is(err, fs.ErrNotExist) || notDir(err)):
			return nil // gone since its parent was listed
		}
		return err
	}
	pre := t.Path
	if pre != "" {
		pre += "/"
	}
	err = sw.List(d, func(n scan.Name) error {
		name := n.View()
		if name == dotGit {
			return nil
		}
		path := pre + name
		if pre == "" {
			path = strings.Clone(name) // the sum is the view itself
		}
		if path == TxName {
			return nil
		}
		if n.Kind == scan.Dir {
			sw.Push(scan.Task[struct{}]{Path: path})
			return nil
		}
		var st scan.Stat
		if err := d.LstatName(n, &st); err != nil {
			return ignoreGone(err)
		}
		if st.Kind == scan.Dir {
			sw.Push(scan.Task[struct{}]{Path: path})
			return nil
		}
		w.files++
		if !o.Except[path] {
			w.traces += st.Trace()
		}
		return w.leaf(&sw.Reader, d, path, path[len(pre):], &st, o)
	})
	if t.Path != "" {
		err = ignoreGone(err) // removed since it was opened: it is empty
	}
	return err
}

// leaf records one name that is no directory.
func (w *plainWorker) leaf(r *scan.Reader, d scan.DirHandle, path, name string, st *scan.Stat, o StampOptions) error {
	e := OverlayEntry{Path: path, Mode: modeOf(st)}
	switch st.Kind {
	case scan.File:
	case scan.Symlink:
		b, err := r.Link(d, name)
		if err != nil {
			return ignoreGone(err)
		}
		e.Digest = DigestOf(b)
		w.found = append(w.found, found{e, st.Size})
		return nil
	default:
		e.Mode = 0
		w.note(path, OverlayEntry{Path: path, Note: st.Kind.Note()}, st.Kind.Note()+", not opened")
		return nil
	}
	if !o.Content {
		if k, ok := w.cache.Lookup(path, st); ok {
			e.Digest = k.SHA256
			w.found = append(w.found, found{e, st.Size})
			return nil
		}
	}
	c, err := r.Read(d, name, scan.WantSHA256)
	switch {
	case errors.Is(err, scan.ErrUnreadable):
		if st, err := d.Lstat(name); err == nil {
			e.Mode = modeOf(&st) // the latest look at it
		}
		w.note(path, OverlayEntry{Path: path, Mode: e.Mode, Note: "unreadable"}, "not readable")
		return nil
	case errors.Is(err, scan.ErrChanging) || errors.Is(err, scan.ErrNotRegular):
		// A log that grows, say: it has no digest, the rest can still be told.
		w.note(path, OverlayEntry{Path: path, Mode: e.Mode, Note: "changing"}, "changes while it is read")
		return nil
	case err != nil:
		return ignoreGone(err)
	}
	w.hashed++
	e.Digest, e.Mode = c.Digests(scan.WantSHA256).SHA256, modeOf(&c.Stat)
	w.cache.Add(path, &c.Stat, &Known{SHA256: e.Digest})
	w.found = append(w.found, found{e, c.Stat.Size})
	return nil
}

func (w *plainWorker) note(path string, e OverlayEntry, what string) {
	w.found = append(w.found, found{OverlayEntry: e})
	w.notes = append(w.notes, fmt.Sprintf("%.200q: %s", path, what))
}

// ignoreGone lets a name vanish between listing and reading: that is one of
// the states the workspace was in.
func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func modeOf(st *scan.Stat) FileMode {
	switch {
	case st.Kind == scan.Symlink:
		return ModeSymlink
	case st.Exec:
		return ModeExecutable
	}
	return ModeRegular
}

func (p *plain) After(ctx context.Context, s *Stamp, effects []Effect) (Baseline, error) {
	st, ok := s.State.(*plainState)
	if !ok || st.of != p {
		return Baseline{}, fmt.Errorf("compute baseline after effects: %w", ErrStamp)
	}
	by := make(map[string]*Effect, len(effects))
	for i := range effects {
		by[effects[i].Path.String()] = &effects[i]
	}
	all := make([]found, 0, len(s.Overlay)+len(effects))
	for i := range s.Overlay {
		if by[s.Overlay[i].Path] == nil {
			all = append(all, found{s.Overlay[i], st.sizes[i]})
		}
	}
	for path, e := range by {
		if !e.Gone {
			all = append(all, found{OverlayEntry{Path: path, Mode: e.Mode, Digest: e.Digest}, e.Size})
		}
	}
	slices.SortFunc(all, func(a, b found) int { return strings.Compare(a.Path, b.Path) })
	var out Stamp
	p.finish(&out, all)
	return out.Baseline, ctx.Err()
}

func (p *plain) PathInfo(ctx context.Context, paths []Path) ([]PathInfo, error) {
	root, err := scan.OpenRoot(p.root)
	if err != nil {
		return nil, fmt.Errorf("look up paths: %w", err)
	}
	defer root.Close()
	out := make([]PathInfo, len(paths))
	for i, path := range paths {
		for _, up := range path.Parents() {
			if _, err := root.Lstat(up.String() + "/" + dotGit); err == nil {
				out[i].InSubmodule = true
			}
		}
	}
	return out, ctx.Err()
}

func (p *plain) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.moved {
		return nil
	}
	p.moved = false
	return p.cache.Store(p.opts.State)
}
