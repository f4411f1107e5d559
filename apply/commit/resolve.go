package commit

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/aspengine/asp/apply/journal"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/snapshot"
)

type saver func(PreImage, io.Reader) error

func resolve(ctx context.Context, env Env, path string, k Keep, save func(PreImage, io.Reader) error) error {
	if k != KeepMine && k != KeepTheirs || save == nil {
		return errors.New("resolve: choose what to keep, and where to save what goes")
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if strings.HasPrefix(path, env.TxDir+string(filepath.Separator)) {
		return fmt.Errorf("%s: only its directory is left of that transaction; compare what lies there with the workspace and remove it by hand", path)
	}
	err := atPath(env, path, func(t *tx, open []journal.Open, at int) error {
		t.facts.Style = SyncEach
		i := open[at].Step
		if k == KeepMine {
			if err := t.giveWay(&t.log.Steps[i], save); err != nil {
				return err
			}
		} else {
			if err := t.putBack(&t.log.Steps[i], save); err != nil {
				return err
			}
			if err := t.syncNames(context.WithoutCancel(ctx), barrierUndo); err != nil {
				return err
			}
		}
		rest := slices.Delete(slices.Clone(open), at, at+1)
		if len(rest) == 0 {
			// The empty list says that everything is decided, should a crash come
			// before the journal is gone.
			if err := t.writeOpen(nil); err != nil {
				return err
			}
			return t.decided()
		}
		return t.keepOpen(rest)
	})
	if err == nil {
		err = removeHolder(env.FS, env.TxDir)
	}
	if err != nil {
		return fmt.Errorf("resolve %.200q: %w", path, err)
	}
	return nil
}

// decided removes what is left of a transaction of which a person has decided every
// path. It can be done again from wherever it was stopped.
func (t *tx) decided() error {
	if err := t.dropNewDirs(); err != nil {
		return err
	}
	return t.clean()
}

// giveWay hands what the transaction holds of a step to save, before it is removed with
// the transaction: the bytes from before, or a stranger's that were displaced, may be the
// only copy. What is the plan's own is kept by whoever made the plan.
func (t *tx) giveWay(s *journal.Step, save saver) error {
	x, err := t.sides(s)
	if err != nil {
		return err
	}
	defer t.release(x)
	if x.area != nil && !x.kept.Absent() && !x.kept.is(s.After) {
		if _, err := saveNow(x.area, s.Name, save); err != nil {
			return fmt.Errorf("what is kept as %s: %w", filepath.Join(t.where(), s.Name), err)
		}
	}
	// A file that was moved into a directory which a power cut left in our area is at
	// no name of the user's: it would go with the area, or stay where nobody looks.
	if !t.unplaced(s.Live.Path) || x.live.Absent() || x.live.Kind == vfs.KindDir {
		return nil
	}
	was, err := saveNow(x.d, x.name, save)
	if err != nil {
		return err
	}
	return t.dropSaved(x.d, x.name, was, func() error { return nil })
}

// unplaced tells whether a path leads through a directory that is in an area and not at
// its place.
func (t *tx) unplaced(p string) bool {
	for dir, _ := split(p); dir != "."; dir, _ = split(dir) {
		if _, is := t.dirs.moved[dir]; is {
			return true
		}
	}
	return false
}

// dropNewDirs removes the directories that the transaction made and that hold
// nothing now; they had to stay for what somebody put into them.
func (t *tx) dropNewDirs() error {
	if t.log.Committed {
		return nil
	}
	for i := range slices.Backward(t.log.Steps) {
		s := &t.log.Steps[i]
		if s.Op != journal.Put || s.After.Kind != vfs.KindDir {
			continue
		}
		x, err := t.sides(s)
		if err != nil {
			return err
		}
		if x.kept.Absent() && !x.live.Absent() {
			err = t.undoMkdir(s, x)
		}
		t.release(x)
		if err != nil {
			return err
		}
	}
	return nil
}

// putBack makes the live path what it was before the transaction. What is there
// now is saved first and leaves the live name only by a rename, so that it is
// looked at again before it is removed.
func (t *tx) putBack(s *journal.Step, save saver) error {
	if s.Op == journal.Move {
		return t.moveBack(s, save)
	}
	x, err := t.sides(s)
	if err != nil {
		return err
	}
	defer func() { t.release(x) }()
	if !s.Before.Absent() && x.live.is(s.Before) && !x.kept.is(s.Before) {
		// Put back by one who was killed then. What gave way was saved before that, and
		// goes with the area; once more costs little.
		t.touch(s.Live.Base, s.Live.Path)
		if x.area == nil || x.kept.Absent() {
			return nil
		}
		_, err := saveNow(x.area, s.Name, save)
		return err
	}
	if x.area == nil || !s.Before.Absent() && x.kept.Absent() {
		return errors.New("the bytes from before the transaction are not kept")
	}
	if x.d == nil {
		if s.Before.Absent() {
			return nil
		}
		if err := t.makeParents(s.Live); err != nil {
			return err
		}
		dir, _ := split(s.Live.Path)
		if x.d, err = t.dirs.get(s.Live.Base, dir); err != nil {
			return err
		}
	}
	t.touch(s.Live.Base, s.Live.Path)
	if x.live.Absent() {
		if s.Before.Absent() {
			return nil
		}
		return x.area.Rename(s.Name, x.d.Dir, x.name, vfs.NoReplace)
	}
	saved, err := saveNow(x.d, x.name, save)
	if err != nil {
		return err
	}
	t.dirs.forget(s.Live.Path)
	mode := vfs.Exchange
	if s.Before.Absent() {
		mode = vfs.NoReplace
		err = x.d.Rename(x.name, x.area, s.Name, mode)
	} else {
		err = t.exchange(x.area, s.Name, x.d.Dir, x.name)
	}
	if err != nil {
		return err
	}
	return t.dropSaved(x.area, s.Name, saved, func() error {
		if mode == vfs.Exchange {
			return t.exchange(x.area, s.Name, x.d.Dir, x.name)
		}
		return x.area.Rename(s.Name, x.d.Dir, x.name, mode)
	})
}

// exchange swaps a name in an area with a live one, by three renames that overwrite
// nothing where the system has no exchange. What is live has been saved by then, so
// a crash between them loses nothing, and who resolves again finds the path absent.
func (t *tx) exchange(area vfs.Dir, name string, live vfs.Dir, at string) error {
	err := area.Rename(name, live, at, vfs.Exchange)
	if !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	aside := t.nonce + "-ffffffff" // a name of ours in an area, and of no step
	if err := live.Rename(at, area, aside, vfs.NoReplace); err != nil {
		return err
	}
	if err := area.Rename(name, live, at, vfs.NoReplace); err != nil {
		return errors.Join(err, area.Rename(aside, live, at, vfs.NoReplace))
	}
	return area.Rename(aside, area, name, vfs.NoReplace)
}

// moveBack returns a moved file to its old name.
func (t *tx) moveBack(s *journal.Step, save saver) error {
	x, err := t.sides(s)
	if err != nil {
		return err
	}
	defer t.release(x)
	if x.live.Absent() {
		// Somebody took it away since, or moved it back, which a look at its old name
		// tells.
		old, err := t.lookAt(s.From, s.Before)
		switch {
		case err != nil:
			return err
		case old.is(s.Before), old.Kind == s.Before.Kind && old.Ino == s.Before.Ino:
			return nil
		}
		if old.Kind == vfs.KindFile {
			// Brought back by one who was killed then, after its bytes and its inode had
			// changed; or somebody's. Who decides can see which.
			return fmt.Errorf("the file was moved, and is not at its new name any more; if what is at %.200q is what you want there, --keep-mine leaves it", s.From)
		}
		return errors.New("the bytes from before the transaction are not kept: the file was moved, and is not at its new name any more")
	}
	if err := t.makeParents(live(s.From)); err != nil {
		return err
	}
	dir, name := split(s.From)
	from, err := t.dirs.get("", dir)
	if err != nil {
		return err
	}
	defer t.dirs.put(from)
	t.touch("", s.From)
	t.touch("", s.Live.Path)
	// A copy of whatever leaves a name, changed or not.
	if !x.live.is(s.Before) {
		if _, err := saveNow(x.d, x.name, save); err != nil {
			return err
		}
	}
	err = x.d.Rename(x.name, from.Dir, name, vfs.NoReplace)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	saved, err := saveNow(from, name, save)
	if err != nil {
		return err
	}
	err = x.d.Rename(x.name, from.Dir, name, vfs.Exchange)
	if errors.Is(err, errors.ErrUnsupported) {
		if err := t.dropSaved(from.Dir, name, saved, func() error { return nil }); err != nil {
			return err
		}
		return x.d.Rename(x.name, from.Dir, name, vfs.NoReplace)
	}
	if err != nil {
		return err
	}
	return t.dropSaved(x.d, x.name, saved, func() error { return x.d.Rename(x.name, from.Dir, name, vfs.Exchange) })
}

// lookAt is what is at a live path now, absent where nothing can be reached.
func (t *tx) lookAt(path string, like journal.Image) (seen, error) {
	dir, name := split(path)
	d, err := t.dirs.get("", dir)
	if err != nil {
		if unreachable(err) {
			err = nil
		}
		return seen{}, err
	}
	defer t.dirs.put(d)
	return look(d, name, like)
}

// saved is what saveNow handed out.
type savedImage struct {
	kind   vfs.Kind
	digest snapshot.Digest
	ino    uint64
}

// saveNow hands the bytes of a live name to save. An empty directory has none.
func saveNow(d vfs.Dir, name string, save saver) (savedImage, error) {
	st, err := d.Lstat(name)
	if err != nil {
		return savedImage{}, err
	}
	out := savedImage{kind: st.Kind, ino: st.Ino}
	p := PreImage{Kind: st.Kind, Size: st.Size, Perm: st.Perm}
	switch st.Kind {
	case vfs.KindDir:
		if empty, err := isEmpty(d, name); err != nil || empty {
			return out, err
		}
		return out, errors.New("a directory with files of somebody else is there; move it away first")
	case vfs.KindSymlink:
		target, err := d.Readlink(name)
		if err != nil {
			return out, err
		}
		out.digest = snapshot.DigestOf([]byte(target))
		p.Digest = out.digest
		return out, save(p, strings.NewReader(target))
	case vfs.KindFile:
		f, err := d.Open(name)
		if err != nil {
			return out, err
		}
		defer f.Close()
		// Read twice: a store wants the digest of what it is given beforehand.
		if p.Digest, p.Size, err = sum(f); err != nil {
			return out, err
		}
		h := sha256.New()
		whole := io.NewSectionReader(f, 0, p.Size+1)
		if err := save(p, io.TeeReader(whole, h)); err != nil {
			return out, err
		}
		// Whatever save did not read is not saved, so it must read all of it.
		if n, err := whole.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			return out, errors.Join(errors.New("the bytes on disk were not saved whole"), err)
		}
		if h.Sum(out.digest[:0]); out.digest != p.Digest {
			return out, errors.New("the file changed while it was saved")
		}
		return out, nil
	}
	return out, errors.New("a special file is there; move it away first")
}

// dropSaved removes a name that holds exactly what was saved; anything else
// goes back by restore.
func (t *tx) dropSaved(d vfs.Dir, name string, was savedImage, restore func() error) error {
	now, err := look(d, name, journal.Image{Kind: was.kind, Size: -1})
	if err != nil {
		return err
	}
	same := now.Kind == was.kind && now.Ino == was.ino
	if same && was.kind == vfs.KindFile {
		f, err := d.Open(name)
		if err != nil {
			return err
		}
		digest, _, err := sum(f)
		_ = f.Close() // read only
		if err != nil {
			return err
		}
		same = digest == was.digest
	}
	if same && was.kind == vfs.KindSymlink {
		same = now.Digest == was.digest
	}
	if same && was.kind == vfs.KindDir {
		if same, err = isEmpty(d, name); err != nil {
			return err
		}
	}
	if !same {
		return errors.Join(errors.New("it changed while it was being saved; try again"), restore())
	}
	if was.kind == vfs.KindDir {
		return d.Rmdir(name)
	}
	return d.Unlink(name)
}

// makeParents makes the directories that a pre-image goes back into, when
// somebody has removed them.
func (t *tx) makeParents(p journal.Place) error {
	if p.Base != "" {
		return nil
	}
	for i := range len(p.Path) {
		if p.Path[i] != '/' {
			continue
		}
		up, name := split(p.Path[:i])
		d, err := t.dirs.get("", up)
		if err != nil {
			return err
		}
		err = d.Mkdir(name, 0o777)
		t.dirs.put(d)
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		t.touch("", p.Path[:i])
	}
	return nil
}
