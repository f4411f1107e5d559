package gitbase

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/aspengine/asp/snapshot"
	"github.com/aspengine/asp/snapshot/scan"
)

// state is what After needs of a stamp.
type state struct {
	of   *Repo
	e    *env
	t    *table
	opts snapshot.StampOptions
	// read are the rules that the walk read, in pieces; by finds them by path. The
	// map is made when somebody asks: most stamps are only compared.
	read [][]dirRules
	once sync.Once
	by   map[string]*rules
}

// walked gives the rules of the directories that the walk came through.
func (st *state) walked() map[string]*rules {
	st.once.Do(func() {
		st.by = map[string]*rules{}
		for _, ds := range st.read {
			for _, d := range ds {
				st.by[d.path] = d.rl
			}
		}
	})
	return st.by
}

// Stamp implements snapshot.Workspace. What is on disk is compared with HEAD's
// tree; the index serves as a cache of stat data and says what is tracked, and
// what is staged in it changes nothing. A file is clean when its bytes, or the
// bytes that git would store for them, are the blob in HEAD's tree, with the
// same mode.
func (r *Repo) Stamp(ctx context.Context, o snapshot.StampOptions) (*snapshot.Stamp, error) {
	if r.keep == nil {
		return r.walkStamp(ctx, o)
	}
	s, err := r.keep.stamp(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("stamp %.200q: %w", r.Places.Root, err)
	}
	return s, nil
}

func (r *Repo) walkStamp(ctx context.Context, o snapshot.StampOptions) (*snapshot.Stamp, error) {
	e, err := r.load(ctx)
	if err != nil {
		return nil, fmt.Errorf("stamp %.200q: %w", r.Places.Root, err)
	}
	x, note, err := r.index(ctx)
	if err != nil {
		return nil, fmt.Errorf("stamp %.200q: %w", r.Places.Root, err)
	}
	t, err := newTable(x, e.headTree, r.objs, !o.Content)
	if err != nil {
		return nil, fmt.Errorf("stamp %.200q: %w", r.Places.Root, err)
	}
	s, err := r.stamp(ctx, &state{of: r, e: e, t: t, opts: o}, nil)
	if err != nil {
		return nil, fmt.Errorf("stamp %.200q: %w", r.Places.Root, err)
	}
	if note != "" {
		s.Notes = append(s.Notes, note)
	}
	return s, nil
}

// stamp walks the tree as it is, or as it would be with the effects in virt.
func (r *Repo) stamp(ctx context.Context, st *state, virt map[string]*snapshot.Effect) (*snapshot.Stamp, error) {
	root, err := scan.OpenRoot(r.Places.Root)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	w := &walk{
		ctx: ctx, r: r, e: st.e, t: st.t, root: root, opts: st.opts, trust: !st.opts.Content,
		src: source{t: st.t, objs: r.objs, virt: virt}, virtDirs: virtualDirs(virt),
	}
	s, cache, changed, err := w.run()
	if err != nil {
		return nil, err
	}
	if virt == nil {
		for i := range w.ws {
			st.read = append(st.read, w.ws[i].rules)
		}
	}
	s.State = st
	if changed && virt == nil {
		r.learn(cache)
	}
	return s, nil
}

func (r *Repo) learn(cache *snapshot.StatCache) {
	r.mu.Lock()
	r.cache, r.moved = cache, true
	r.mu.Unlock()
}

// index reads the index in whatever form it has. note tells of a detour.
func (r *Repo) index(ctx context.Context) (x *index, note string, err error) {
	x, err = readIndex(filepath.Join(r.GitDir, "index"))
	if err != nil || x.partial == "" {
		return x, "", err
	}
	if x.partial == sparseIndex {
		return x, "", x.expand(r.objs)
	}
	why := x.partial
	if x, err = indexFromGit(ctx, r.Places); err != nil {
		return nil, "", fmt.Errorf("read %s by the git program: %w", why, err)
	}
	return x, why + ": its entries were listed by the git program, every file was read or known to the stat cache", nil
}

// After implements snapshot.Workspace. It reads no file but those of rules on
// the way to an effect, as long as the effects leave ignore rules and
// attributes alone; else it walks the tree once more, with the effects thought
// applied, which is exact for the tree as it is then.
func (r *Repo) After(ctx context.Context, s *snapshot.Stamp, effects []snapshot.Effect) (snapshot.Baseline, error) {
	b, err := r.after(ctx, s, effects)
	if err != nil {
		return b, fmt.Errorf("compute baseline of %.200q after effects: %w", r.Places.Root, err)
	}
	return b, nil
}

func (r *Repo) after(ctx context.Context, s *snapshot.Stamp, effects []snapshot.Effect) (snapshot.Baseline, error) {
	out, _, err := r.overlayAfter(ctx, s, effects)
	if err != nil {
		return snapshot.Baseline{}, err
	}
	return snapshot.Baseline{Rev: s.Baseline.Rev, Dirty: snapshot.DirtyDigest(out)}, ctx.Err()
}

// overlayAfter is the overlay that the effects would leave, with the env that
// they would leave.
func (r *Repo) overlayAfter(ctx context.Context, s *snapshot.Stamp, effects []snapshot.Effect) ([]snapshot.OverlayEntry, *env, error) {
	st, ok := s.State.(*state)
	if !ok || st.of != r {
		return nil, nil, snapshot.ErrStamp
	}
	virt := make(map[string]*snapshot.Effect, len(effects))
	again := false
	for i := range effects {
		p := effects[i].Path.String()
		virt[p] = &effects[i]
		base := effects[i].Path.Base()
		again = again || base == ignoreName || base == attrName || slices.Contains(st.e.outside, p)
	}
	if again {
		if len(st.e.outside) > 0 {
			// Rules that lie in the tree under another name are part of env:
			// put the after-bytes there.
			e, err := st.e.with(r, virt)
			if err != nil {
				return nil, nil, err
			}
			st = &state{of: st.of, e: e, t: st.t, opts: st.opts}
		}
		s, err := r.stamp(ctx, st, virt)
		if err != nil {
			return nil, nil, err
		}
		return s.Overlay, st.e, nil
	}
	root, err := scan.OpenRoot(r.Places.Root)
	if err != nil {
		return nil, nil, err
	}
	defer root.Close()
	w := &walk{ctx: ctx, r: r, e: st.e, t: st.t, opts: st.opts, src: source{t: st.t, objs: r.objs}}
	l := &lookup{e: st.e, src: w.src, root: root, seen: map[string]*rules{}, walked: st.walked()}
	out := make([]snapshot.OverlayEntry, 0, len(s.Overlay)+len(effects))
	inner := map[string]bool{}
	for _, o := range s.Overlay {
		if o.Note == "repository" || o.Note == "submodule" {
			inner[o.Path] = true
		}
		if virt[o.Path] == nil {
			out = append(out, o)
		}
	}
	for p, v := range virt {
		for _, up := range v.Path.Parents() {
			if e := st.t.find(up.String()); inner[up.String()] || e != nil && st.t.gitlink(e) {
				return nil, nil, fmt.Errorf("%.200q lies in another repository", p)
			}
		}
		rl, err := l.of(v.Path.Dir())
		if err != nil {
			return nil, nil, err
		}
		o, dirty, err := w.effect(v, rl)
		if err != nil {
			return nil, nil, err
		}
		if dirty {
			out = append(out, o)
		}
	}
	snapshot.SortOverlay(out)
	return out, st.e, nil
}

// Holds implements snapshot.Holder. What the overlay has is named by its own bytes; of the
// rest each must be HEAD's, or leave nothing in the overlay for another reason.
func (r *Repo) Holds(ctx context.Context, s *snapshot.Stamp, effects []snapshot.Effect) (bool, error) {
	st, ok := s.State.(*state)
	if !ok || st.of != r {
		return false, snapshot.ErrStamp
	}
	w := &walk{ctx: ctx, r: r, e: st.e, t: st.t, opts: st.opts, src: source{t: st.t, objs: r.objs}}
	var odd []*snapshot.Effect
	for i := range effects {
		v := &effects[i]
		is, sure, err := w.holds(s.Overlay, v)
		if err != nil || sure && !is {
			return false, err
		}
		if !sure {
			odd = append(odd, v)
		}
	}
	if len(odd) == 0 {
		return true, ctx.Err()
	}
	root, err := scan.OpenRoot(r.Places.Root)
	if err != nil {
		return false, err
	}
	defer root.Close()
	l := &lookup{e: st.e, src: w.src, root: root, seen: map[string]*rules{}, walked: st.walked()}
	for _, v := range odd {
		rl, err := l.of(v.Path.Dir())
		if err != nil {
			return false, err
		}
		if _, dirty, err := w.effect(v, rl); err != nil || dirty {
			return false, err
		}
	}
	return true, ctx.Err()
}

// holds is Holds of one path, as far as it takes no rules: sure is false where the file is
// in no overlay and not HEAD's byte for byte, as one that is converted or ignored.
func (w *walk) holds(overlay []snapshot.OverlayEntry, v *snapshot.Effect) (is, sure bool, err error) {
	p := v.Path.String()
	e := w.t.find(p)
	var te treeEntry
	in := false
	if e != nil {
		te, in = w.t.inHead(e)
	}
	o := snapshot.OverlayEntry{Path: p, Gone: v.Gone}
	if !v.Gone {
		o.Mode, o.Digest = v.Mode, v.Digest
		if v.Mode != snapshot.ModeSymlink {
			o.Mode = snapshot.FileMode(w.fileMode(e, te, in, &scan.Stat{Exec: v.Mode == snapshot.ModeExecutable}))
		}
	}
	if at, there := slices.BinarySearchFunc(overlay, p, func(x snapshot.OverlayEntry, p string) int { return strings.Compare(x.Path, p) }); there {
		return overlay[at] == o, true, nil
	}
	switch {
	case v.Gone:
		return !in || e.flags&skipWT != 0, true, nil
	case !in || o.Mode != snapshot.FileMode(te.mode):
		return false, false, nil
	}
	b, err := effectBytes(v, maxRules)
	same := err == nil && oid(scan.Of(b, scan.WantGit).Git) == te.id
	return same, same, err
}

// gitlink tells whether the index or HEAD has a submodule at e.
func (t *table) gitlink(e *entry) bool {
	te, in := t.inHead(e)
	return in && te.mode == 0o160000 || e.flags&inIndex != 0 && t.idx.mode(e) == 0o160000
}

// with returns the env whose files of rules inside the tree are as the effects
// leave them.
func (e *env) with(r *Repo, virt map[string]*snapshot.Effect) (*env, error) {
	n := *e
	for i, at := range e.outside {
		v := virt[at]
		if v == nil {
			continue
		}
		var b []byte
		if !v.Gone {
			var err error
			if b, err = effectBytes(v, maxRules); err != nil {
				return nil, err
			}
		}
		*n.ruleFiles()[e.outsideOf[i]] = b
	}
	return &n, nil
}

// virtualDirs names what the effects touch directly in each directory.
func virtualDirs(virt map[string]*snapshot.Effect) map[string]map[string]bool {
	if virt == nil {
		return nil
	}
	out := map[string]map[string]bool{}
	for p, v := range virt {
		for {
			dir, name := "", p
			if i := strings.LastIndexByte(p, '/'); i >= 0 {
				dir, name = p[:i], p[i+1:]
			}
			if out[dir][name] {
				break
			}
			if out[dir] == nil {
				out[dir] = map[string]bool{}
			}
			out[dir][name] = true
			if dir == "" || v.Gone {
				break
			}
			p = dir
		}
	}
	return out
}

// virtual looks at what the effects leave in the directory at path.
func (k *walker) virtual(w *walk, path string, node *dirNode, rl *rules) error {
	for name := range w.virtDirs[path] {
		v := w.src.virt[join(path, name)]
		if v == nil || v.Gone && w.virtDirs[join(path, name)] != nil {
			// A directory on the way to an effect. It may not exist yet, or
			// take the place of a file that another effect removes.
			if !slices.Contains(k.dirs, name) {
				k.dirs = append(k.dirs, name)
			}
			continue
		}
		if v.Gone {
			continue // not seen: whatever HEAD has there counts as gone
		}
		k.files++
		if node != nil {
			if f := w.t.fileAt(node, name); f >= 0 {
				k.hits[f-node.f0] = true
			}
		}
		o, dirty, err := w.effect(v, rl)
		if err != nil {
			return err
		}
		if dirty {
			k.changed(o)
		}
	}
	return nil
}

// effect is the overlay entry that an effect leaves, if it leaves one.
func (w *walk) effect(v *snapshot.Effect, rl *rules) (snapshot.OverlayEntry, bool, error) {
	p := v.Path.String()
	o := snapshot.OverlayEntry{Path: p}
	e := w.t.find(p)
	var te treeEntry
	in := false
	if e != nil {
		te, in = w.t.inHead(e)
	}
	switch {
	case v.Gone:
		o.Gone = true
		return o, in && e.flags&skipWT == 0, nil
	case e == nil && rl.ignored(v.Path.Base(), false):
		return o, false, nil
	}
	o.Digest = v.Digest
	if v.Mode == snapshot.ModeSymlink {
		o.Mode = snapshot.ModeSymlink
		if !in || te.mode != 0o120000 {
			return o, true, nil
		}
		b, err := effectBytes(v, snapshot.MaxPath)
		return o, err == nil && oid(scan.Of(b, scan.WantGit).Git) != te.id, err
	}
	mode := w.fileMode(e, te, in, &scan.Stat{Exec: v.Mode == snapshot.ModeExecutable})
	o.Mode = snapshot.FileMode(mode)
	if !in || mode != te.mode {
		return o, true, nil
	}
	same, err := w.effectSame(v, e, te, rl)
	return o, !same, err
}
