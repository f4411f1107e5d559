// Package preconditions tells whether a plan may be done to the workspace as it
// is on disk: what its operations amount to (editplan.Resolve) and what every
// touched path must be like (no link on the way, no protected directory, no
// second hard link, …). Every failing operation is listed, never only the first.
// The same facts are looked at again right before the write (Recheck).
//
// It reads through descriptors, each component opened relative to its parent,
// and writes nothing. A path that is refused for its spelling or for what it
// leads through is never read, so the answer does not tell whether anything
// is there.
package preconditions

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/aspengine/asp/editplan"
	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/snapshot"
)

// View is one consistent look at the paths of a workspace: a path asked twice
// gives the same answer. It implements editplan.Reader. One goroutine at a time.
type View struct {
	l         *live // through live() alone
	ahead     *ahead
	root      vfs.Dir
	protected []vfs.Stat
}

// NewView starts a look below root, which stays the caller's. protected are
// directories that no path may name or lead through, by identity.
func NewView(root vfs.Dir, protected []vfs.Stat) (*View, error) {
	l, err := newLive(root, protected)
	if err != nil {
		return nil, err
	}
	return &View{l: l, root: root, protected: protected}, nil
}

// Close releases the descriptors of the look.
func (v *View) Close() {
	if v.l != nil {
		if v.ahead != nil {
			v.ahead.end(true)
			v.ahead = nil
		}
		v.l.close()
		v.l = nil
	}
}

// Fact describes what is at p.
func (v *View) Fact(p snapshot.Path) (*Fact, error) {
	if v.ahead != nil {
		if f, ok := v.ahead.fact(p); ok {
			return f, nil
		}
	}
	return v.live().fact(p)
}

// State implements editplan.Reader. A path that may not be looked at is Absent
// here; Check refuses it by its own code.
func (v *View) State(p snapshot.Path) (editplan.State, error) {
	f, err := v.Fact(p)
	if err != nil {
		return editplan.State{}, err
	}
	return f.State(), nil
}

// State is the fact in the words of a plan.
func (f *Fact) State() editplan.State {
	if f.Blocked != nil {
		return editplan.State{}
	}
	s := editplan.State{Digest: f.Digest, Size: f.Stat.Size, Exec: f.Stat.Perm&0o100 != 0}
	switch f.Stat.Kind {
	case vfs.KindFile:
		s.Kind = editplan.IsFile
	case vfs.KindDir:
		return editplan.State{Kind: editplan.IsDir}
	case vfs.KindSymlink:
		s.Kind, s.Exec = editplan.IsSymlink, false
	case vfs.KindOther:
		return editplan.State{Kind: editplan.IsOther}
	default:
		return editplan.State{}
	}
	return s
}

// Bytes implements editplan.Reader.
func (v *View) Bytes(p snapshot.Path) ([]byte, error) {
	if v.ahead != nil {
		if f, ok := v.ahead.fact(p); ok && f.content != nil {
			return f.content, nil
		}
	}
	l := v.live()
	if f := l.facts[p]; f != nil && f.content != nil {
		return f.content, nil // hashed already
	}
	b, err := l.bytes(p, editplan.MaxTextFile)
	if err != nil {
		return nil, err
	}
	if f := l.facts[p]; f != nil && snapshot.DigestOf(b) != f.Digest {
		return nil, fmt.Errorf("read %.200q: it changes while it is read; try again when nothing writes to it", p)
	}
	return b, nil
}

// Hashed implements editplan.Hashed.
func (v *View) Hashed(p snapshot.Path) ([]byte, snapshot.Digest, bool) {
	f := v.live().facts[p]
	if f == nil || f.content == nil {
		return nil, snapshot.Digest{}, false
	}
	return f.content, f.Digest, true
}

// Open gives the bytes of the file at p for streaming. The caller closes it.
func (v *View) Open(p snapshot.Path) (vfs.File, error) {
	d, err := v.live().dirAt(p.Dir())
	if err != nil {
		return nil, err
	}
	if d.dir == nil {
		return nil, &os.PathError{Op: "open", Path: p.String(), Err: syscall.ENOENT}
	}
	return d.dir.Open(p.Base())
}

// Names implements editplan.Reader.
func (v *View) Names(p snapshot.Path) ([]string, *refusal.Item, error) {
	d, err := v.live().dirAt(p.String())
	if err != nil {
		return nil, nil, err
	}
	if d.dir == nil {
		return nil, d.blocked, nil
	}
	es, err := d.dir.List()
	if err != nil {
		return nil, nil, fmt.Errorf("list %.200q: %w", p, err)
	}
	out := make([]string, len(es))
	for i, e := range es {
		out[i] = e.Name
	}
	return out, nil, nil
}

// Input is what a plan is checked against beside the view.
type Input struct {
	Plan      *editplan.Plan
	Workspace snapshot.Workspace
	// Stamp, if set, is the look at the workspace that the plan is held against;
	// what the repository says of a path is then taken from it where that is to
	// be had.
	Stamp *snapshot.Stamp
	// Attention are paths that an earlier crash left undecided.
	Attention []string
	// Index says that index entries will be written; Staging that git objects
	// will be made from the result, which content filters forbid.
	Index   bool
	Staging bool
	// Base, if set, allows a clean three-way merge where a touched file moved: it
	// gives the bytes that the plan was made from.
	Base func(ctx context.Context, d snapshot.Digest, p snapshot.Path) ([]byte, bool, error)
	// MergeOnly, if not nil, allows it for these paths alone, and only while they hold
	// these bytes.
	MergeOnly map[snapshot.Path]snapshot.Digest
}

// Admission is a plan that may be done, bound to the facts that say so. Only
// Check makes one.
type Admission struct {
	Plan *editplan.Plan
	Nets []editplan.Net
	// Merges are the operations that were brought onto files that had moved, in the
	// order of the plan.
	Merges []Merge
	view   *View
	info   map[snapshot.Path]snapshot.PathInfo
}

// Fact is what admission saw at p.
func (a *Admission) Fact(p snapshot.Path) *Fact { return a.view.live().facts[p] }

// Info is what the repository says of p.
func (a *Admission) Info(p snapshot.Path) snapshot.PathInfo { return a.info[p] }

// Check looks at everything and lists every reason against the plan, in the
// order of its operations. The error means that something could not be told.
func Check(ctx context.Context, v *View, in Input) (*Admission, refusal.List, error) {
	var out refusal.List
	bad := map[int]bool{}
	add := func(it refusal.Item) {
		out = append(out, it)
		bad[it.Op] = true
	}
	paths := make([]snapshot.Path, 0, len(in.Plan.Ops))
	for _, op := range in.Plan.Ops {
		if paths = append(paths, op.Path); !op.To.IsZero() {
			paths = append(paths, op.To)
		}
	}
	v.Ahead(paths)
	// 1. Places that no operation may name or lead through.
	for i, op := range in.Plan.Ops {
		for _, p := range []snapshot.Path{op.Path, op.To} {
			if p.IsZero() {
				continue
			}
			if c, yes := editplan.ProtectedPath(p); yes {
				add(refusal.New(refusal.PathProtected, p.String(), i, "component %q is reserved for the repository or the engine", cut(c)))
				continue
			}
			if slices.Contains(in.Attention, p.String()) {
				add(refusal.New(refusal.NeedsAttention, p.String(), i, "an interrupted transaction left this path undecided; end that with `asp recover --keep-mine` or `--keep-theirs`"))
				continue
			}
			f, err := v.Fact(p)
			if err != nil {
				return nil, nil, err
			}
			if f.Blocked != nil {
				it := *f.Blocked
				it.Op, it.Path = i, p.String()
				add(it)
			}
		}
	}
	info, err := in.look(ctx)
	if err != nil {
		return nil, nil, err
	}
	for i, op := range in.Plan.Ops {
		if bad[i] {
			continue
		}
		for _, p := range []snapshot.Path{op.Path, op.To} {
			if p.IsZero() {
				continue
			}
			if it, no := in.repository(info[p], v.live().facts[p], p, i); no {
				add(it)
				break
			}
		}
	}
	// 2. What the operations amount to.
	plan, merges := in.Plan, []Merge(nil)
	if in.Base != nil {
		var items refusal.List
		if plan, merges, items, err = rebase(ctx, v, in); err != nil {
			return nil, nil, err
		}
		for _, it := range items {
			if !bad[it.Op] {
				add(it)
			}
		}
	}
	nets, items, err := editplan.Resolve(plan, v)
	if err != nil {
		return nil, nil, err
	}
	for _, it := range items {
		if !bad[it.Op] {
			out = append(out, it)
		}
	}
	if len(items) == 0 {
		for _, n := range nets {
			its, err := v.disk(n)
			if err != nil {
				return nil, nil, err
			}
			out = append(out, its...)
		}
		its, err := v.collisions(nets)
		if err != nil {
			return nil, nil, err
		}
		out = append(out, its...)
	}
	if len(out) > 0 {
		slices.SortStableFunc(out, func(a, b refusal.Item) int { return a.Op - b.Op })
		return nil, out, nil
	}
	a := &Admission{Plan: plan, Nets: nets, Merges: merges, view: v, info: info}
	return a, nil, nil
}

// look asks the repository about every path of the plan at once.
func (in Input) look(ctx context.Context) (map[snapshot.Path]snapshot.PathInfo, error) {
	var paths []snapshot.Path
	seen := map[snapshot.Path]bool{}
	for _, op := range in.Plan.Ops {
		for _, p := range []snapshot.Path{op.Path, op.To} {
			if _, no := editplan.ProtectedPath(p); !p.IsZero() && !seen[p] && !no {
				seen[p] = true
				paths = append(paths, p)
			}
		}
	}
	infos, err := in.infos(ctx, paths)
	if err != nil {
		return nil, fmt.Errorf("look up paths in the repository: %w", err)
	}
	out := make(map[snapshot.Path]snapshot.PathInfo, len(paths))
	for i, p := range paths {
		out[p] = infos[i]
	}
	return out, nil
}

func (in Input) infos(ctx context.Context, paths []snapshot.Path) ([]snapshot.PathInfo, error) {
	if w, ok := in.Workspace.(snapshot.StampInfo); ok && in.Stamp != nil {
		infos, err := w.PathInfoAt(ctx, in.Stamp, paths)
		if !errors.Is(err, snapshot.ErrStamp) {
			return infos, err
		}
	}
	return in.Workspace.PathInfo(ctx, paths)
}

// repository refuses paths that the repository gives to somebody else.
func (in Input) repository(i snapshot.PathInfo, f *Fact, p snapshot.Path, op int) (refusal.Item, bool) {
	switch {
	case i.InSubmodule:
		return refusal.New(refusal.OtherRepository, p.String(), op, "lies in a submodule or a nested repository; apply the plan there"), true
	case i.SkipWorktree && f != nil && f.Stat.Kind == vfs.KindInvalid:
		return refusal.New(refusal.NotCheckedOut, p.String(), op, "is left out by the sparse checkout; add it with `git sparse-checkout add` first"), true
	case i.LeftOut != "" && f != nil && f.Stat.Kind == vfs.KindInvalid:
		return refusal.New(refusal.NotCheckedOut, p.String(), op, "stands where %q is, which the sparse checkout leaves out; add that with `git sparse-checkout add` first", cut(i.LeftOut)), true
	case in.Staging && i.Filter != "":
		return refusal.New(refusal.FilteredPath, p.String(), op, "goes through the content filter %q, which is never run here; apply without staging and use `git add`", cut(i.Filter)), true
	}
	return refusal.Item{}, false
}

// disk looks at what one path's files are like.
func (v *View) disk(n editplan.Net) (refusal.List, error) {
	f, err := v.Fact(n.Path)
	if err != nil {
		return nil, err
	}
	op := -1
	if len(n.Ops) > 0 {
		op = n.Ops[0]
	}
	var out refusal.List
	no := func(c refusal.Code, format string, a ...any) {
		out = append(out, refusal.New(c, n.Path.String(), op, format, a...))
	}
	if f.Stat.Kind == vfs.KindFile && n.After.Kind != editplan.Absent {
		switch {
		case f.Stat.Nlink > 1:
			no(refusal.HardLinked, "has %d hard links; replacing one name would split it from the others. Make it a file of its own first (cp, mv)", f.Stat.Nlink)
		case f.Stat.Perm&0o222 == 0:
			no(refusal.NotWritable, "is read-only (mode %04o); make it writable first (chmod u+w)", f.Stat.Perm)
		case os.Geteuid() > 0 && int(f.Stat.UID) != os.Geteuid():
			no(refusal.Metadata, "belongs to user %d; replacing it would change its owner", f.Stat.UID)
		}
	}
	if f.Stat.Kind == vfs.KindFile && n.After.Kind == editplan.Absent && n.MovedTo.IsZero() && f.Stat.Perm&0o222 == 0 {
		no(refusal.NotWritable, "is read-only (mode %04o); make it writable first (chmod u+w)", f.Stat.Perm)
	}
	if f.Stat.Immutable {
		no(refusal.NotWritable, "carries the immutable or append-only flag; clear it first (chattr -i -a)")
	}
	if !n.From.IsZero() {
		from, err := v.Fact(n.From)
		if err != nil {
			return nil, err
		}
		if !n.Moved && from.Stat.Kind == vfs.KindFile && from.Stat.Nlink > 1 {
			no(refusal.HardLinked, "comes changed from %q, which has %d hard links; that would split it from the others. Make it a file of its own first (cp, mv)", cut(n.From.String()), from.Stat.Nlink)
		}
		if from.Stat.MntID != f.Mount {
			no(refusal.CrossDevice, "lies on another mount than %q; a rename cannot cross mounts. Use a delete and a create", cut(n.From.String()))
		}
	}
	if err := v.live().writable(n.Path); err != nil {
		if errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EROFS) || errors.Is(err, syscall.EPERM) {
			no(refusal.NotWritable, "names in its directory cannot be changed: %s", errno(err))
		} else {
			return nil, err
		}
	}
	return out, nil
}

// collisions finds names of the plan that differ only in case where the file
// system does not tell them apart. A new name that collides with one on disk is
// found by looking it up; a directory that cannot tell us what it does is left
// to the write, which never replaces.
func (v *View) collisions(nets []editplan.Net) (refusal.List, error) {
	var out refusal.List
	first := map[string]snapshot.Path{}
	for _, n := range nets {
		if n.After.Kind == editplan.Absent {
			continue
		}
		k := strings.ToLower(n.Path.String())
		other, ok := first[k]
		if !ok {
			first[k] = n.Path
			continue
		}
		folds, err := v.folds(n.Path)
		if err != nil {
			return nil, err
		}
		if folds {
			op := -1
			if len(n.Ops) > 0 {
				op = n.Ops[0]
			}
			out = append(out, refusal.New(refusal.NameCollision, n.Path.String(), op, "is the same name as %q on this file system, which ignores case", cut(other.String())))
		}
	}
	return out, nil
}

// folds tells whether the nearest directory above p ignores case, by asking for
// one of its names in the other case.
func (v *View) folds(p snapshot.Path) (bool, error) {
	path := p.Dir()
	for {
		d, err := v.live().dirAt(path)
		if err != nil {
			return false, err
		}
		if d.dir == nil {
			path = parentOf(path)
			continue
		}
		es, err := d.dir.List()
		if err != nil {
			return false, fmt.Errorf("list %.200q: %w", path, err)
		}
		for _, e := range es {
			swapped := strings.ToUpper(e.Name)
			if swapped == e.Name {
				swapped = strings.ToLower(e.Name)
			}
			if swapped == e.Name {
				continue
			}
			a, err := d.dir.Lstat(e.Name)
			if err != nil {
				continue
			}
			b, err := d.dir.Lstat(swapped)
			return err == nil && a.SameFile(b), nil
		}
		if path == "." {
			return false, nil
		}
		path = parentOf(path)
	}
}

func errno(err error) string {
	var e syscall.Errno
	if errors.As(err, &e) {
		return e.Error()
	}
	return err.Error()
}

// Recheck looks again at every touched path, by a fresh look, right before the
// write. What moved is listed as changed-underneath or exists.
func (a *Admission) Recheck(ctx context.Context) (refusal.List, error) {
	fresh, err := NewView(a.view.root, a.view.protected)
	if err != nil {
		return nil, err
	}
	defer fresh.Close()
	var out refusal.List
	for _, n := range a.Nets {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		op := -1
		if len(n.Ops) > 0 {
			op = n.Ops[0]
		}
		old := a.view.live().facts[n.Path]
		now, err := fresh.l.look(n.Path, false)
		if err != nil {
			return nil, err
		}
		switch {
		case now.Blocked != nil:
			it := *now.Blocked
			it.Op, it.Path = op, n.Path.String()
			out = append(out, it)
		case old.Stat.Kind == vfs.KindInvalid && now.Stat.Kind != vfs.KindInvalid:
			out = append(out, refusal.New(refusal.Exists, n.Path.String(), op, "was made by somebody else in the meantime; move it away or plan again"))
		case old.Stat.Kind == now.Stat.Kind && same(old.Stat, now.Stat):
		case old.Stat.Kind != now.Stat.Kind || old.Stat.Perm != now.Stat.Perm || now.Stat.Kind == vfs.KindDir:
			if old.Stat.Kind == vfs.KindDir && now.Stat.Kind == vfs.KindDir {
				continue
			}
			out = append(out, moved(n.Path, op, old))
		case now.Stat.Kind == vfs.KindFile && now.Stat.Nlink > 1 && now.Stat.Nlink > old.Stat.Nlink && n.After.Kind != editplan.Absent:
			out = append(out, refusal.New(refusal.HardLinked, n.Path.String(), op, "was given another hard link in the meantime; replacing one name would split it from the others"))
		default:
			if now, err = fresh.l.look(n.Path, true); err != nil {
				return nil, err
			}
			if now.Digest != old.Digest || now.Stat.Kind != old.Stat.Kind {
				out = append(out, moved(n.Path, op, old))
			}
		}
	}
	return out, nil
}

func moved(p snapshot.Path, op int, old *Fact) refusal.Item {
	return refusal.New(refusal.ChangedUnderneath, p.String(), op, "is no longer %s, which the plan was checked against; look at it and plan again", old.Digest.Blob())
}

// same tells whether nothing that a write leaves behind differs. It may be
// fooled by a write in the same clock tick; the displaced bytes are compared
// after the swap, so nothing rests on it alone.
func same(a, b vfs.Stat) bool {
	return a.Ino == b.Ino && a.Dev == b.Dev && a.Size == b.Size && a.Mtime == b.Mtime && a.Ctime == b.Ctime && a.Perm == b.Perm && a.Nlink == b.Nlink
}
