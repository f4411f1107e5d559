package gitbase

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/snapshot"
	"github.com/aspengine/asp/snapshot/gitbase/convert"
	"github.com/aspengine/asp/snapshot/scan"
)

// IndexName is the index's name in a git directory.
const IndexName = "index"

// IndexChange is what a transaction leaves at one path.
type IndexChange struct {
	After snapshot.Effect
	// Before is the regular file or link that is there now; nil for none.
	Before *snapshot.Effect
	// SetsMode tells that the transaction chose the execute bit, so that it
	// counts where core.fileMode lets git ignore that of the file.
	SetsMode bool
}

// IndexPlan is the index of a work tree as it was read, with what shall change.
type IndexPlan struct {
	r    *Repo
	x    *index
	t    *table
	todo []indexTodo
}

type indexTodo struct {
	change *IndexChange
	edit   indexEdit
	rule   convert.Rule
	old    *entry // of the index or HEAD, nil for none
}

// PlanIndex reads the index and finds out whether the entries of the changes can
// be written into it without losing what somebody staged. It writes nothing.
//
// Refused are: index-diverges for a path whose staged content or mode is neither
// HEAD's nor that of the file, for unmerged paths, and where the index has a
// file in the place of a directory or the other way round; filtered-path where
// the attributes, as the changes leave them, name a content filter;
// unsupported-operation for a file that is ignored and not tracked, as `git add`
// refuses it, and for split, sparse or unknown forms of an index.
func (r *Repo) PlanIndex(ctx context.Context, changes []IndexChange) (*IndexPlan, refusal.List, error) {
	p, items, err := r.planIndex(ctx, changes)
	if err != nil {
		return nil, nil, fmt.Errorf("plan index of %.200q: %w", r.Places.Root, err)
	}
	return p, items, nil
}

func (r *Repo) planIndex(ctx context.Context, changes []IndexChange) (*IndexPlan, refusal.List, error) {
	p := &IndexPlan{r: r}
	path := filepath.Join(r.GitDir, IndexName)
	fi, err := os.Lstat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	if err == nil && !fi.Mode().IsRegular() {
		return nil, refusal.List{refusal.New(refusal.UnsupportedOperation, "", -1, "the index %q is not a regular file", path)}, nil
	}
	e, err := r.load(ctx)
	if err != nil {
		return nil, nil, err
	}
	if p.x, err = readIndex(path); err != nil {
		return nil, nil, err
	}
	if p.x.partial != "" {
		return nil, refusal.List{refusal.New(refusal.UnsupportedOperation, "", -1, "the index has a form that is only read (%s); apply without --index and use `git add`", p.x.partial)}, nil
	}
	if p.t, err = newTable(p.x, e.headTree, r.objs, true); err != nil {
		return nil, nil, err
	}
	root, err := scan.OpenRoot(r.Places.Root)
	if err != nil {
		return nil, nil, err
	}
	defer root.Close()
	virt := map[string]*snapshot.Effect{}
	for i := range changes {
		virt[changes[i].After.Path.String()] = &changes[i].After
	}
	w := &walk{ctx: ctx, r: r, e: e, t: p.t, root: root, src: source{t: p.t, objs: r.objs}}
	now := &lookup{e: e, src: w.src, root: root, seen: map[string]*rules{}}
	then := &lookup{e: e, src: source{t: p.t, objs: r.objs, virt: virt, staged: true}, root: root, seen: map[string]*rules{}}
	if len(e.outside) > 0 {
		if then.e, err = e.with(r, virt); err != nil {
			return nil, nil, err
		}
	}
	var items refusal.List
	for i := range changes {
		it, err := p.consider(w, &changes[i], now, then)
		if err != nil {
			return nil, nil, err
		}
		if it.Code != "" {
			items = append(items, it)
		}
	}
	if len(items) > 0 {
		return nil, items, nil
	}
	items = p.places()
	return p, items, ctx.Err()
}

// consider adds what has to be done for one change, or says why it must not be.
func (p *IndexPlan) consider(w *walk, c *IndexChange, now, then *lookup) (refusal.Item, error) {
	path := c.After.Path.String()
	refuse := func(code refusal.Code, format string, a ...any) (refusal.Item, error) {
		return refusal.New(code, path, -1, format, a...), nil
	}
	e := p.t.find(path)
	if e != nil && e.flags&unmerged != 0 {
		return refuse(refusal.IndexDiverges, "is unmerged in the index; finish the merge of this path first")
	}
	staged, err := p.losesStaged(w, c, e, now)
	if err != nil || staged != "" {
		if err != nil {
			return refusal.Item{}, err
		}
		return refuse(refusal.IndexDiverges, "%s; commit it, or take it back with `git restore --staged`, first", staged)
	}
	inIdx := e != nil && e.flags&inIndex != 0
	do := indexTodo{change: c, old: e, edit: indexEdit{path: path, gone: c.After.Gone}}
	if c.After.Gone {
		if inIdx {
			p.todo = append(p.todo, do)
		}
		return refusal.Item{}, nil
	}
	rl, err := then.of(c.After.Path.Dir())
	if err != nil {
		return refusal.Item{}, err
	}
	if !inIdx && rl.ignored(c.After.Path.Base(), false) {
		return refuse(refusal.UnsupportedOperation, "is ignored by git and not tracked; apply without --index, or use `git add -f` afterwards")
	}
	if c.After.Mode != snapshot.ModeSymlink {
		if do.rule = w.e.conv.Decide(rl.attrs().Lookup(c.After.Path.Base())); do.rule.Filtered {
			return refuse(refusal.FilteredPath, "goes through the content filter %q, which is never run here; apply without --index and use `git add`", do.rule.Filter)
		}
	}
	do.edit.mode = p.mode(w, c, e)
	p.todo = append(p.todo, do)
	return refusal.Item{}, nil
}

// mode is what the index gets: that of the file, or, where core.fileMode says
// that execute bits mean nothing, the one it has.
func (p *IndexPlan) mode(w *walk, c *IndexChange, e *entry) uint32 {
	mode := uint32(c.After.Mode)
	if w.e.fileMode || c.SetsMode || mode == 0o120000 {
		return mode
	}
	if e != nil && e.flags&inIndex != 0 && p.x.mode(e)&0o170000 == 0o100000 {
		return canonicalMode(p.x.mode(e))
	}
	return 0o100644
}

// losesStaged says in words what staged work a new entry would overwrite, "" for
// none: the index has what HEAD has, or what the file is.
func (p *IndexPlan) losesStaged(w *walk, c *IndexChange, e *entry, now *lookup) (string, error) {
	if e == nil || e.flags&intentOnly != 0 {
		return "", nil
	}
	head, inHead := p.t.inHead(e)
	if e.flags&inIndex == 0 {
		if inHead && c.Before != nil {
			return "is staged for removal while the file is there", nil
		}
		return "", nil
	}
	mode, id := canonicalMode(p.x.mode(e)), p.x.id(e)
	if inHead && head.mode == mode && head.id == id {
		return "", nil
	}
	const both = "is staged with content that is neither HEAD's nor the file's"
	if c.Before == nil {
		return "is staged while the file is not there", nil
	}
	b := c.Before
	if (b.Mode == snapshot.ModeSymlink) != (mode == 0o120000) || w.e.fileMode && uint32(b.Mode) != mode {
		return both, nil
	}
	var rule convert.Rule
	if b.Mode != snapshot.ModeSymlink {
		rl, err := now.of(b.Path.Dir())
		if err != nil {
			return "", err
		}
		if rule = w.e.conv.Decide(rl.attrs().Lookup(b.Path.Base())); rule.Filtered {
			return both + " as far as can be told without running its filter", nil
		}
	}
	s := &seekable{open: b.Open}
	got, err := convert.NewHasher().Blob(w.ctx, s, b.Size, rule, w.indexCRLF(e))
	if err = errors.Join(err, s.close()); err != nil && !errors.Is(err, convert.ErrChanged) {
		return "", fmt.Errorf("read %.200q: %w", b.Path.String(), err)
	}
	if err != nil || oid(got) != id {
		return both, nil
	}
	return "", nil
}

// places refuses new entries that would make an untouched one impossible: a file
// and something below it cannot both be in an index.
func (p *IndexPlan) places() (items refusal.List) {
	gone := map[string]bool{}
	for i := range p.todo {
		gone[p.todo[i].edit.path] = p.todo[i].edit.gone
	}
	stays := func(e *entry) bool { return e.flags&(inIndex|unmerged) != 0 && !gone[e.path] }
	for i := range p.todo {
		c := p.todo[i].change
		if c.After.Gone {
			continue
		}
		for _, up := range c.After.Path.Parents() {
			if e := p.t.find(up.String()); e != nil && stays(e) {
				items = append(items, refusal.New(refusal.IndexDiverges, c.After.Path.String(), -1, "the index has a file at %q, which is a directory now; `git rm --cached` it first", up.String()))
			}
		}
		if e := p.t.first(c.After.Path.String(), stays); e != nil {
			items = append(items, refusal.New(refusal.IndexDiverges, c.After.Path.String(), -1, "the index has %q below it; `git rm --cached` it first", e.path))
		}
	}
	return items
}

// first returns the first entry below the directory path for which ok holds.
func (t *table) first(path string, ok func(*entry) bool) *entry {
	for i := t.below(path); i < len(t.entries) && under(t.entries[i].path, path); i++ {
		if ok(&t.entries[i]) {
			return &t.entries[i]
		}
	}
	return nil
}

// Empty tells that no entry has to change.
func (p *IndexPlan) Empty() bool { return len(p.todo) == 0 }

// Before returns the bytes of the index that was read; there is false when there
// was none.
func (p *IndexPlan) Before() (b []byte, there bool) { return p.x.raw, p.x.raw != nil }

// Write stores the blobs of the changes and returns the bytes of the new index.
// The index may be put in place after w.Sync. refusal items: a file moved
// between the checks and here.
func (p *IndexPlan) Write(ctx context.Context, w *ObjectWriter) ([]byte, refusal.List, error) {
	edits := make([]indexEdit, len(p.todo))
	for i := range p.todo {
		do := &p.todo[i]
		edits[i] = do.edit
		if do.edit.gone {
			continue
		}
		var err error
		look := &walk{ctx: ctx, r: p.r, t: p.t}
		edits[i].id, err = w.blobOf(ctx, &do.change.After, do.rule, look.indexCRLF(do.old))
		if errors.Is(err, errMoved) || errors.Is(err, fs.ErrNotExist) {
			return nil, refusal.List{refusal.New(refusal.ChangedUnderneath, do.edit.path, -1, "changed while it was staged; look at it and plan again")}, nil
		}
		if err != nil {
			return nil, nil, err
		}
	}
	b, err := p.x.rewrite(edits)
	return b, nil, err
}
