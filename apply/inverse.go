package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/aspengine/asp/editplan"
	"github.com/aspengine/asp/editplan/merge"
	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/preconditions"
	"github.com/aspengine/asp/snapshot"
)

// undo makes the plan that takes a receipt back. It follows files, not names: the
// file that was renamed and edited goes back to its name with what was done to it
// since, as does each of two files that traded places.
type undo struct {
	e  *Engine
	id string
	ev Evidence
	// at has every record by its path, to the one whose file was at a path before.
	at, to map[string]PathRecord
	// perms are exact permission bits by path, filled by load; a plan itself can
	// only say executable or not.
	perms map[string]uint32
	// merged are the changes that were merged with later edits; Op counts changes.
	merged []preconditions.Merge

	gone, moves, changes, back []editplan.Draft
	out                        refusal.List
}

func newUndo(e *Engine, id string, ev Evidence) *undo {
	u := &undo{e: e, id: id, ev: ev, at: map[string]PathRecord{}, to: map[string]PathRecord{}, perms: map[string]uint32{}}
	for _, p := range ev.Paths {
		u.at[p.Path] = p
		if p.From != "" && p.After != nil {
			u.to[p.From] = p
		}
	}
	return u
}

// load builds the inverse plan against the present state: deletions first, so
// that names become free, then renames, changes, and files that come back.
func (u *undo) load(_ context.Context, v *View, base snapshot.Baseline) (editplan.File, refusal.List, error) {
	clear(u.perms)
	u.gone, u.moves, u.changes, u.back, u.out, u.merged = nil, nil, nil, nil, nil, nil
	for _, p := range u.ev.Paths {
		if p.After != nil {
			if err := u.leave(v, p); err != nil {
				return editplan.File{}, nil, err
			}
		}
		_, elsewhere := u.to[p.Path]
		if p.Gone != "" || elsewhere || p.After != nil && (p.Before == nil || p.stays()) {
			continue
		}
		if err := u.comeBack(p); err != nil {
			return editplan.File{}, nil, err
		}
	}
	if len(u.out) > 0 {
		return editplan.File{}, u.out, nil
	}
	moves, err := u.ordered(v)
	if err != nil {
		return editplan.File{}, nil, err
	}
	file, err := editplan.NewPlan(editplan.Source{
		Baseline: base, Provider: editplan.Provider{ID: undoProvider, Version: u.e.o.Version}, Rationale: "take back receipt " + u.id,
	}, slices.Concat(u.gone, moves, u.changes, u.back))
	if err != nil {
		return file, nil, err
	}
	for i := range u.merged {
		u.merged[i].Op += len(u.gone) + len(moves)
	}
	return Named(file, UndoPrefix+u.id), nil, nil
}

// stays tells whether the file at a path before and after may be one: neither came
// from elsewhere, and both are files.
func (p PathRecord) stays() bool {
	return p.From == "" && p.Before != nil && p.After != nil && p.Before.Kind == "file" && p.After.Kind == "file"
}

func (u *undo) refuse(c refusal.Code, path, format string, a ...any) {
	u.out = append(u.out, refusal.New(c, path, -1, format, a...))
}

// leave says what becomes of the file that the change left at p: it goes back where
// it came from, or becomes what it was, or goes.
func (u *undo) leave(v *View, p PathRecord) error {
	path, err := snapshot.ParsePath(p.Path)
	if err != nil {
		return err
	}
	f, err := v.Fact(path)
	if err != nil {
		return err
	}
	after, err := snapshot.ParseBlob(p.After.Digest)
	if err != nil {
		return err
	}
	switch was := vfs.KindFile; {
	case f.Stat.Kind == vfs.KindInvalid:
		u.refuse(refusal.Missing, p.Path, "was removed since the change; there is nothing to take back")
		return nil
	case p.After.Kind == "symlink":
		was = vfs.KindSymlink
		fallthrough
	default:
		if f.Stat.Kind != was {
			u.refuse(refusal.NotRegular, p.Path, "something of another kind was put there since the change; move it away first")
			return nil
		}
	}
	_, left := u.to[p.Path] // what was here before was renamed, so this is another file
	switch {
	case p.From != "":
		u.moves = append(u.moves, editplan.Draft{Kind: editplan.Rename, Path: p.Path, To: p.From, Expected: f.Digest})
		from := u.at[p.From].Before
		if p.Moved || from == nil || from.Kind != "file" || p.After.Kind != "file" {
			return nil
		}
		return u.change(v, p, from, path, f, after)
	case p.stays() && !left:
		return u.change(v, p, p.Before, path, f, after)
	case f.Digest == after:
		u.gone = append(u.gone, editplan.Draft{Kind: editplan.Delete, Path: p.Path, Expected: after})
	default:
		u.refuse(refusal.MergeConflict, p.Path, "was made by the change and edited since; delete it by hand if it is not wanted")
	}
	return nil
}

// ordered puts the renames in an order that works. One whose destination is, or is
// above or below, a name that another is still to leave goes by a free name: so do
// two files that trade places, and one that returns from a directory of its name.
func (u *undo) ordered(v *View) ([]editplan.Draft, error) {
	leaving := map[string]bool{} // the names that are left, and every directory above
	names := map[string]bool{}
	for _, m := range u.moves {
		p, err := snapshot.ParsePath(m.Path)
		if err != nil {
			return nil, err
		}
		names[m.Path], leaving[m.Path] = true, true
		for _, d := range p.Parents() {
			leaving[d.String()] = true
		}
	}
	var away, straight, home []editplan.Draft
	n := 0
	for _, m := range u.moves {
		to, err := snapshot.ParsePath(m.To)
		if err != nil {
			return nil, err
		}
		if !leaving[m.To] && !slices.ContainsFunc(to.Parents(), func(d snapshot.Path) bool { return names[d.String()] }) {
			straight = append(straight, m)
			continue
		}
		free := ""
		if free, n, err = u.freeName(v, n); err != nil {
			return nil, err
		}
		away = append(away, editplan.Draft{Kind: editplan.Rename, Path: m.Path, To: free, Expected: m.Expected})
		home = append(home, editplan.Draft{Kind: editplan.Rename, Path: free, To: m.To, Expected: m.Expected})
	}
	return slices.Concat(away, straight, home), nil
}

// freeName finds a name at which nothing is and to which nothing comes. Nothing is
// ever put there on the disk: what a plan does and takes back leaves no trace.
func (u *undo) freeName(v *View, from int) (string, int, error) {
	for n := from; ; n++ {
		name := fmt.Sprintf("asp-undo-%d.tmp", n)
		p, err := snapshot.ParsePath(name)
		if err != nil {
			return "", n, err
		}
		f, err := v.Fact(p)
		if err != nil {
			return "", n, err
		}
		taken := f.Stat.Kind != vfs.KindInvalid || f.Blocked != nil || slices.ContainsFunc(u.ev.Paths, func(r PathRecord) bool {
			return r.Path == name || len(r.Path) > len(name) && r.Path[:len(name)+1] == name+"/"
		})
		if !taken {
			return name, n + 1, nil
		}
	}
}

func (u *undo) preImage(i *ImageRecord, path string) ([]byte, *refusal.Item, error) {
	d, err := snapshot.ParseBlob(i.Digest)
	if err != nil {
		return nil, nil, err
	}
	b, err := u.e.packs.Bytes(d)
	if errors.Is(err, snapshot.ErrNoBlob) {
		it := refusal.New(refusal.MissingBlob, path, -1, "its content before the change is no longer kept whole: the retention in config.json says how much is, and what is damaged counts as gone")
		return nil, &it, nil
	}
	return b, nil, err
}

// comeBack makes the file that was at p before and is nowhere now.
func (u *undo) comeBack(p PathRecord) error {
	if p.Before == nil {
		return fmt.Errorf("evidence of receipt %s names %.200q without a state", u.id, p.Path)
	}
	if p.Before.Kind != "file" {
		b, it, err := u.preImage(p.Before, p.Path)
		if err != nil {
			return err
		}
		target := "TARGET; what it named is no longer kept"
		if it == nil {
			target = fmt.Sprintf("%q PATH", cut(string(b)))
		}
		u.refuse(refusal.UnsupportedOperation, p.Path, "was a symbolic link, which a plan cannot make; make it by hand (ln -s %s), and bring back the rest by a plan of your own", target)
		return nil
	}
	b, it, err := u.preImage(p.Before, p.Path)
	if err != nil {
		return err
	}
	if it != nil {
		u.out = append(u.out, *it)
		return nil
	}
	d := editplan.Draft{Kind: editplan.Create, Path: p.Path, Content: b, HasContent: true}
	if p.Before.Perm&0o100 != 0 {
		d.Mode = editplan.ModeExec
	}
	u.back = append(u.back, d)
	u.perms[p.Path] = uint32(p.Before.Perm) & 0o7777
	return nil
}

// change makes of the file at p what it was, at the name where it was. What was done
// to it since stays: other lines, and permission bits that are not those which the
// change itself set.
func (u *undo) change(v *View, p PathRecord, was *ImageRecord, path snapshot.Path, f *preconditions.Fact, after snapshot.Digest) error {
	d := editplan.Draft{Kind: editplan.Modify, Path: p.Path, Expected: f.Digest, HasContent: true}
	if p.From != "" {
		d.Path = p.From
	}
	if now := int64(f.Stat.Perm & 0o7777); was.Perm != p.After.Perm && now == p.After.Perm {
		u.perms[d.Path] = uint32(was.Perm) & 0o7777
		if (was.Perm^now)&0o111 != 0 {
			d.Mode = editplan.ModePlain
			if was.Perm&0o100 != 0 {
				d.Mode = editplan.ModeExec
			}
		}
	}
	if p.From != "" && p.After.Digest == was.Digest {
		if d.Mode != editplan.ModeKeep { // otherwise the rename alone is all of it
			d.HasContent = false
			u.changes = append(u.changes, d)
		}
		return nil
	}
	pre, it, err := u.preImage(was, p.Path)
	if err != nil {
		return err
	}
	switch {
	case it != nil:
		u.out = append(u.out, *it)
		return nil
	case f.Digest == after:
		d.Content = pre
	default:
		post, ok := u.postImage(p, was)
		if !ok {
			u.refuse(refusal.MergeConflict, p.Path, "was edited after the change, and what the change left there is not kept; take those edits back first or edit it by hand")
			return nil
		}
		mine, err := v.Bytes(path)
		if err != nil {
			return err
		}
		m := merge.Three(post, mine, pre)
		if !m.Clean() {
			u.refuse(refusal.MergeConflict, p.Path, "was edited after the change, in the same lines; take those edits back first or edit it by hand")
			return nil
		}
		d.Content = m.Bytes
		u.merged = append(u.merged, preconditions.Merge{Path: path, Op: len(u.changes), Expected: after, Found: f.Digest, Made: snapshot.DigestOf(m.Bytes)})
	}
	u.changes = append(u.changes, d)
	return nil
}

// postImage gives what the change left at p; false if it is not kept, or no longer.
func (u *undo) postImage(p PathRecord, was *ImageRecord) ([]byte, bool) {
	base := was
	if p.Before != nil {
		base = p.Before // also where another file came in its place
	}
	pre, errA := snapshot.ParseBlob(base.Digest)
	delta, errB := snapshot.ParseBlob(p.Delta)
	if errA != nil || errB != nil {
		return nil, false
	}
	before, errA := u.e.packs.Bytes(pre)
	d, errB := u.e.packs.Bytes(delta)
	if errA != nil || errB != nil {
		return nil, false
	}
	post, err := unsplice(before, d)
	return post, err == nil && snapshot.DigestOf(post).Blob() == p.After.Digest
}
