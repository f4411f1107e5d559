package commit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/aspengine/asp/apply/journal"
	"github.com/aspengine/asp/internal/vfs"
)

// undo takes back the first n steps, in reverse, and makes that durable. It is
// the same for a running transaction and for recovery: each step is judged by
// what is found at both of its places, never by memory of what was done. The
// steps that must not be decided by a program are returned; all others are
// undone. With such steps the attention list is written, and the pre-images
// stay where they are.
//
// An error means that something could not be told or done. What was undone
// stays so, nothing is removed, and the next Recover goes on from there.
func (t *tx) undo(n int) ([]journal.Open, error) {
	if err := t.findUnplaced(n); err != nil {
		return nil, err
	}
	var open []journal.Open
	var errs []error
	for i := n - 1; i >= 0; i-- {
		why, err := t.undoOne(i)
		if err != nil {
			errs = append(errs, fmt.Errorf("%.200q: %w", t.log.Steps[i].Live.String(), err))
		}
		if why != "" {
			open = append(open, journal.Open{Step: i, Why: why})
		}
	}
	if err := join(errs); err != nil {
		return nil, err
	}
	open = t.once(open)
	if err := t.syncNames(context.Background(), barrierUndo); err != nil {
		return nil, err
	}
	if len(open) > 0 {
		return open, t.keepOpen(open)
	}
	return nil, nil
}

// once leaves of two open steps at one path, the halves of an exchange in two, the one
// that keeps what was there before: a person decides on paths.
func (t *tx) once(open []journal.Open) []journal.Open {
	return slices.DeleteFunc(open, func(o journal.Open) bool {
		return t.takenFor(o.Step) != nil && slices.ContainsFunc(open, func(p journal.Open) bool { return p.Step == o.Step-1 })
	})
}

// takenFor is the step that made room for step i, the other half of an exchange in
// two; nil if there is none.
func (t *tx) takenFor(i int) *journal.Step {
	if i == 0 || t.log.Steps[i].Op != journal.Put {
		return nil
	}
	if s := &t.log.Steps[i-1]; s.Op == journal.Take && s.Live == t.log.Steps[i].Live {
		return s
	}
	return nil
}

// neverTaken tells whether what was to make room is not where it is kept. Then the
// new file was not put, and whatever is live is not ours; or it was, and the disk
// lost the old one.
func (t *tx) neverTaken(take, put *journal.Step, x sides) (done bool, why string, err error) {
	a := t.areas[take.Area].dir
	if a == nil {
		return false, "", nil
	}
	kept, err := look(a, take.Name, take.Before)
	if err != nil || !kept.Absent() {
		return false, "", err
	}
	if x.kept.Absent() && x.live.is(put.After) && x.live.Ino == put.After.Ino && put.After.Kind != vfs.KindDir {
		return true, whyLost, nil
	}
	return true, "", nil
}

// findUnplaced looks for directories of the first n steps that are in their
// area and not at their path. Renames reach the disk in order on the file
// systems that get a guarantee, but not on every one: a file may be found moved
// into a directory whose own way to its place was lost. Paths below are then
// looked for where the directory is.
func (t *tx) findUnplaced(n int) error {
	for i := range t.log.Steps[:n] {
		s := &t.log.Steps[i]
		a := t.areas[s.Area].dir
		if _, known := t.dirs.moved[s.Live.Path]; s.After.Kind != vfs.KindDir || a == nil || known {
			continue
		}
		st, err := a.Lstat(s.Name)
		if errors.Is(err, fs.ErrNotExist) || err == nil && (st.Kind != vfs.KindDir || st.Ino != s.After.Ino) {
			continue
		}
		if err != nil {
			return err
		}
		t.dirs.forget(s.Live.Path)
		t.dirs.moved[s.Live.Path] = unplaced{a, s.Name, st.Ino}
	}
	return nil
}

// sides is what undo finds at the two places of a step.
type sides struct {
	d          *dirHandle // parent of the live path; nil if it cannot be reached
	area       vfs.Dir    // nil if the area is gone
	name       string
	live, kept seen
}

func (t *tx) sides(s *journal.Step) (x sides, err error) {
	dir, name := split(s.Live.Path)
	x.name = name
	x.d, err = t.dirs.get(s.Live.Base, dir)
	if err != nil && !unreachable(err) {
		return x, err
	}
	if err == nil {
		if x.live, err = look(x.d, name, s.Before, s.After); err == nil && x.live.Kind != vfs.KindInvalid && t.dirs.protected(x.live.st) {
			err = errProtected
		}
		if err != nil {
			t.dirs.put(x.d)
			return x, err
		}
	}
	if s.Op != journal.Move {
		x.area = t.areas[s.Area].dir
	}
	if x.area != nil {
		if x.kept, err = look(x.area, s.Name, s.Before, s.After); err != nil {
			t.release(x)
			return x, err
		}
	}
	return x, nil
}

func (t *tx) release(x sides) {
	if x.d != nil {
		t.dirs.put(x.d)
	}
}

func (t *tx) undoOne(i int) (why string, err error) {
	s := &t.log.Steps[i]
	t.touch(s.Live.Base, s.Live.Path)
	x, err := t.sides(s)
	if err != nil {
		return "", err
	}
	defer t.release(x)
	switch s.Op {
	case journal.Put:
		if take := t.takenFor(i); take != nil {
			done, why, err := t.neverTaken(take, s, x)
			if done || err != nil {
				return why, err
			}
		}
		return t.undoPut(s, x)
	case journal.Take:
		return t.undoTake(s, x)
	case journal.Exchange:
		return t.undoExchange(s, x)
	case journal.Move:
		return t.undoMove(s, x)
	}
	return "", fmt.Errorf("step %d of the journal is unknown", s.Op)
}

const (
	whyForeign = "it holds neither the bytes from before the transaction nor those of the plan"
	whyLost    = "the bytes from before the transaction are not where they were kept"
	whyGone    = "its directory is gone; the bytes from before the transaction are kept"
)

func (t *tx) undoPut(s *journal.Step, x sides) (string, error) {
	switch {
	case !x.kept.Absent(), x.live.Absent():
		// Never put, taken back already, or removed by somebody since: the path
		// is as before in all three.
		return "", nil
	case s.After.Kind == vfs.KindDir:
		return "", t.undoMkdir(s, x)
	case !x.live.is(s.After) || x.live.Ino != s.After.Ino:
		return whyForeign, nil
	case x.area == nil:
		return "", errors.New("the staging area is gone")
	}
	if err := x.d.Rename(x.name, x.area, s.Name, vfs.NoReplace); err != nil {
		return "", err
	}
	// Look again: between the look and the rename somebody may have written.
	now, err := look(x.area, s.Name, s.After)
	if err != nil {
		return "", err
	}
	if now.is(s.After) && now.Ino == s.After.Ino {
		return "", nil
	}
	return whyForeign, x.area.Rename(s.Name, x.d.Dir, x.name, vfs.NoReplace)
}

// undoMkdir removes a directory that the transaction made, if nobody else has
// put anything into it: rmdir is the judge of that.
func (t *tx) undoMkdir(s *journal.Step, x sides) error {
	if !x.live.is(s.After) {
		return nil
	}
	t.dirs.forget(s.Live.Path)
	err := x.d.Rmdir(x.name)
	if notEmpty(err) {
		t.notes = append(t.notes, fmt.Sprintf("the new directory %.200q stays: somebody else has put something into it", s.Live.Path))
		return nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (t *tx) undoTake(s *journal.Step, x sides) (string, error) {
	switch {
	case x.kept.Absent():
		return "", nil // never taken, or put back already
	case x.d == nil:
		return whyGone, nil
	case !x.live.Absent():
		return whyForeign, nil
	}
	err := x.area.Rename(s.Name, x.d.Dir, x.name, vfs.NoReplace)
	if errors.Is(err, fs.ErrExist) {
		return whyForeign, nil
	}
	return "", err
}

func (t *tx) undoExchange(s *journal.Step, x sides) (string, error) {
	switch {
	case x.live.is(s.Before), x.kept.is(s.After):
		return "", nil // not exchanged, or exchanged back; whatever is live is not ours
	case x.kept.Absent():
		return whyLost, nil
	case x.d == nil:
		return whyGone, nil
	case !x.live.is(s.After):
		return whyForeign, nil
	}
	// The live name holds exactly what we put there, so nothing of anybody's is
	// displaced; what comes back is whatever was there, a stranger's edit
	// included.
	if s.After.Kind == vfs.KindDir {
		if empty, err := isEmpty(x.d, x.name); err != nil || !empty {
			return "somebody else has put something into the directory that took its place", err
		}
	}
	if s.After.Kind == vfs.KindDir || s.Before.Kind == vfs.KindDir {
		t.dirs.forget(s.Live.Path)
	}
	if err := x.area.Rename(s.Name, x.d.Dir, x.name, vfs.Exchange); err != nil {
		return "", err
	}
	now, err := look(x.area, s.Name, s.After)
	if err != nil {
		return "", err
	}
	clean := now.is(s.After)
	if clean && s.After.Kind == vfs.KindDir {
		if clean, err = isEmpty(x.area, s.Name); err != nil {
			return "", err
		}
	}
	if clean {
		return "", nil
	}
	return whyForeign, x.area.Rename(s.Name, x.d.Dir, x.name, vfs.Exchange)
}

func (t *tx) undoMove(s *journal.Step, x sides) (string, error) {
	t.touch("", s.From)
	dir, name := split(s.From)
	from, err := t.dirs.get("", dir)
	if err != nil && !unreachable(err) {
		return "", err
	}
	var old seen
	if err == nil {
		defer t.dirs.put(from)
		if old, err = look(from, name, s.Before); err != nil {
			return "", err
		}
	}
	switch {
	case x.live.Absent():
		return "", nil // never moved, moved back, or removed by somebody since
	case !old.Absent() && x.live.Ino != s.Before.Ino:
		return "", nil // never moved; what is live is somebody's own
	case !old.Absent():
		return whyForeign, nil // moved, and somebody has made a new file at the old name
	case !x.live.is(s.Before):
		return "the file moved here was changed after that; its old bytes are not kept", nil
	case from == nil:
		return whyGone, nil
	}
	if err := x.d.Rename(x.name, from.Dir, name, vfs.NoReplace); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return whyForeign, nil
		}
		return "", err
	}
	return "", nil
}

func isEmpty(d vfs.Dir, name string) (bool, error) {
	sub, err := d.OpenDir(name)
	if err != nil {
		return false, err
	}
	defer closeDir(sub)
	names, err := sub.List()
	return len(names) == 0, err
}
