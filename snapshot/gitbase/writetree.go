package gitbase

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/snapshot"
	"github.com/aspengine/asp/snapshot/gitbase/convert"
	"github.com/aspengine/asp/snapshot/scan"
)

// TreePlan is an after-state in the words of git: HEAD's tree as a stamp saw it,
// with what the effects, and if asked for what is uncommitted, change in it.
type TreePlan struct {
	r    *Repo
	st   *state
	base oid
	todo []treeTodo
}

type treeTodo struct {
	path   string
	gone   bool
	mode   uint32
	rule   convert.Rule
	old    *entry
	effect *snapshot.Effect
}

// PlanTree finds out which tree the after-state of the effects on the stamped
// state is. Nothing is written. Without includeDirty the tree is HEAD's with the
// effects, and a workspace that differs from HEAD elsewhere is refused (dirty,
// each path named); with it, everything that the baseline of the after-state
// calls changed is in it.
//
// Refused are further: filtered-path where the blob would have to be made by a
// content filter, and unsupported-operation for what no tree of this repository
// can hold: files that are ignored and not tracked, FIFOs in place of tracked
// files, inner repositories with changes of their own.
func (r *Repo) PlanTree(ctx context.Context, s *snapshot.Stamp, effects []snapshot.Effect, includeDirty bool) (*TreePlan, refusal.List, error) {
	st, ok := s.State.(*state)
	if !ok || st.of != r {
		return nil, nil, snapshot.ErrStamp
	}
	p := &TreePlan{r: r, st: st, base: st.e.headTree}
	items, err := p.plan(ctx, s, effects, includeDirty)
	if err != nil {
		return nil, nil, fmt.Errorf("plan tree of %.200q: %w", r.Places.Root, err)
	}
	return p, items, nil
}

// HeadCommit is the commit that the tree was made from, "" on a branch without
// one.
func (p *TreePlan) HeadCommit() string { return p.st.e.head.Commit }

func (p *TreePlan) plan(ctx context.Context, s *snapshot.Stamp, effects []snapshot.Effect, includeDirty bool) (refusal.List, error) {
	var items refusal.List
	virt := make(map[string]*snapshot.Effect, len(effects))
	for i := range effects {
		virt[effects[i].Path.String()] = &effects[i]
	}
	if !includeDirty {
		for _, o := range s.Overlay {
			if virt[o.Path] == nil && !unstorable(&o) {
				items = append(items, refusal.New(refusal.Dirty, o.Path, -1, "differs from HEAD and is not part of the plan; commit it first, or take it in with --include-dirty"))
			}
		}
		if len(items) > 0 {
			return items, nil
		}
	}
	after, e, err := p.r.overlayAfter(ctx, s, effects)
	if err != nil {
		return nil, err
	}
	root, err := scan.OpenRoot(p.r.Places.Root)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	rules := &lookup{e: e, src: source{t: p.st.t, objs: p.r.objs, virt: virt}, root: root, seen: map[string]*rules{}}
	seen := map[string]bool{}
	for i := range after {
		o := &after[i]
		seen[o.Path] = true
		v := virt[o.Path]
		if v == nil && (!includeDirty || unstorable(o)) {
			continue // the plan changed what git makes of it, not the file
		}
		it, err := p.consider(o, v, e, rules)
		if err != nil {
			return nil, err
		}
		if it.Code != "" {
			items = append(items, it)
		}
	}
	for i := range effects {
		v := &effects[i]
		if seen[v.Path.String()] || v.Gone || p.st.t.find(v.Path.String()) != nil {
			continue
		}
		// Neither in HEAD nor in the overlay: ignored.
		items = append(items, refusal.New(refusal.UnsupportedOperation, v.Path.String(), -1, "is ignored by git and not tracked, so that no commit of the after-state holds it; stage it without --ref"))
	}
	return items, nil
}

// unstorable tells what git passes over: untracked FIFOs, sockets, devices.
func unstorable(o *snapshot.OverlayEntry) bool {
	switch o.Note {
	case "fifo", "socket", "device":
		return true
	}
	return false
}

// consider adds one entry of the overlay. v is the effect at its path, nil for
// what was dirty before.
func (p *TreePlan) consider(o *snapshot.OverlayEntry, v *snapshot.Effect, e *env, rules *lookup) (refusal.Item, error) {
	refuse := func(code refusal.Code, format string, a ...any) (refusal.Item, error) {
		return refusal.New(code, o.Path, -1, format, a...), nil
	}
	do := treeTodo{path: o.Path, gone: o.Gone, mode: uint32(o.Mode), old: p.st.t.find(o.Path), effect: v}
	switch {
	case o.Gone:
		p.todo = append(p.todo, do)
		return refusal.Item{}, nil
	case o.Note == "submodule" || o.Note == "repository":
		return refuse(refusal.UnsupportedOperation, "is a repository of its own with another state than HEAD has; commit it there and here first")
	case o.Note != "":
		return refuse(refusal.UnsupportedOperation, "cannot be put into a commit: %s", o.Note)
	}
	if o.Mode != snapshot.ModeSymlink {
		dir, name := "", o.Path
		if i := strings.LastIndexByte(o.Path, '/'); i >= 0 {
			dir, name = o.Path[:i], o.Path[i+1:]
		}
		rl, err := rules.of(dir)
		if err != nil {
			return refusal.Item{}, err
		}
		if do.rule = e.conv.Decide(rl.attrs().Lookup(name)); do.rule.Filtered {
			return refuse(refusal.FilteredPath, "goes through the content filter %q, which is never run here; publish into the workspace and commit with git", do.rule.Filter)
		}
	}
	if v == nil {
		do.effect = p.onDisk(o)
	}
	p.todo = append(p.todo, do)
	return refusal.Item{}, nil
}

// onDisk makes an effect of a dirty path, whose bytes are read when they are
// stored and then compared with the digest of the stamp. Its name may be no
// valid snapshot.Path.
func (p *TreePlan) onDisk(o *snapshot.OverlayEntry) *snapshot.Effect {
	v := &snapshot.Effect{Digest: o.Digest, Mode: o.Mode, Size: -1}
	path := o.Path
	v.Open = func() (snapshot.ReadCloser, error) {
		root, err := scan.OpenRoot(p.r.Places.Root)
		if err != nil {
			return nil, err
		}
		defer root.Close()
		dir, name := "", path
		if i := strings.LastIndexByte(path, '/'); i >= 0 {
			dir, name = path[:i], path[i+1:]
		}
		d, err := root.OpenDir(dir)
		if err != nil {
			return nil, err
		}
		defer d.Close()
		if v.Mode == snapshot.ModeSymlink {
			t, err := d.Readlink(name, make([]byte, snapshot.MaxPath+1))
			v.Size = int64(len(t))
			return linkText{bytes.NewReader(t)}, err
		}
		f, err := d.Open(name)
		if err != nil {
			return nil, err
		}
		v.Size = f.Stat.Size
		return f, nil
	}
	return v
}

type linkText struct{ *bytes.Reader }

func (linkText) Close() error { return nil }

// Write stores blobs and trees and returns the id of the tree. Refusal items: a
// file moved between the stamp and here.
func (p *TreePlan) Write(ctx context.Context, w *ObjectWriter) (tree string, items refusal.List, err error) {
	edits := make([]treeEdit, 0, len(p.todo))
	look := &walk{ctx: ctx, r: p.r, t: p.st.t}
	for i := range p.todo {
		do := &p.todo[i]
		ed := treeEdit{path: do.path, gone: do.gone}
		if !do.gone {
			ed.te.mode = do.mode
			ed.te.id, err = p.blob(ctx, w, do, look)
			switch {
			case errors.Is(err, errMoved), errors.Is(err, fs.ErrNotExist), errors.Is(err, scan.ErrNotRegular):
				items = append(items, refusal.New(refusal.ChangedUnderneath, do.path, -1, "changed since it was looked at; plan again"))
				continue
			case err != nil:
				return "", nil, err
			}
		}
		edits = append(edits, ed)
	}
	if len(items) > 0 {
		return "", items, nil
	}
	slices.SortFunc(edits, func(a, b treeEdit) int { return cmp.Compare(a.path, b.path) })
	id, _, err := w.tree(ctx, p.base, edits)
	return id.String(), nil, err
}

func (p *TreePlan) blob(ctx context.Context, w *ObjectWriter, do *treeTodo, look *walk) (oid, error) {
	v := do.effect
	if v.Size < 0 { // a dirty path: the size is that of the file when opened
		r, err := v.Open()
		if err != nil {
			return oid{}, err
		}
		if err := r.Close(); err != nil {
			return oid{}, err
		}
	}
	rule := do.rule
	if do.mode == 0o120000 {
		rule = convert.Rule{}
	}
	return w.blobOf(ctx, v, rule, look.indexCRLF(do.old))
}

// treeEdit is what shall be at a path below some tree.
type treeEdit struct {
	path string
	gone bool
	te   treeEntry
}

// tree stores the tree that is base with the edits, sorted by path, and the
// trees below it. entries is 0 for the empty tree, which is not stored unless it
// is the root.
func (w *ObjectWriter) tree(ctx context.Context, base oid, edits []treeEdit) (id oid, entries int, err error) {
	have := map[string]treeEntry{}
	if err := w.r.objs.tree(base, func(name string, te treeEntry) error { have[name] = te; return nil }); err != nil {
		return id, 0, err
	}
	below := map[string][]treeEdit{}
	for _, e := range edits {
		name, rest, nested := strings.Cut(e.path, "/")
		switch {
		case nested:
			below[name] = append(below[name], treeEdit{rest, e.gone, e.te})
		case !e.gone:
			have[name] = e.te
		case have[name].mode != modeTree:
			delete(have, name)
		}
	}
	for name, sub := range below {
		old, ok := have[name]
		from := old.id
		if !ok || old.mode != modeTree {
			if !slices.ContainsFunc(sub, func(e treeEdit) bool { return !e.gone }) {
				continue // a file took the directory's place, or there never was one
			}
			if from, err = parseOID(emptyTree); err != nil {
				return id, 0, err
			}
		}
		sid, n, err := w.tree(ctx, from, sub)
		if err != nil {
			return id, 0, err
		}
		if delete(have, name); n > 0 {
			have[name] = treeEntry{modeTree, sid}
		}
	}
	names := make([]string, 0, len(have))
	for name, te := range have {
		if te.mode == modeTree {
			name += "/" // git's order
		}
		names = append(names, name)
	}
	slices.Sort(names)
	var body []byte
	for _, name := range names {
		name = strings.TrimSuffix(name, "/")
		te := have[name]
		body = strconv.AppendUint(body, uint64(te.mode), 8)
		body = append(append(append(body, ' '), name...), 0)
		body = append(body, te.id[:]...)
	}
	if id, err = w.bytes(ctx, "tree", body); err != nil {
		return id, 0, err
	}
	return id, len(names), nil
}
