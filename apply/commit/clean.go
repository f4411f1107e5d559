package commit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/aspengine/asp/apply/journal"
	"github.com/aspengine/asp/internal/vfs"
)

// notEmpty tells rmdir's answer that something is in the directory.
func notEmpty(err error) bool {
	return errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EEXIST)
}

// tidy removes, after the commit record, the directories that the plan has
// emptied. It waits until then because a directory that was never removed needs
// no undo: its mode, owner and attributes cannot be lost.
func (t *tx) tidy(ctx context.Context) error {
	full := map[string]bool{} // directories that hold something, so do those above
	removed := map[dirKey]bool{}
	for _, dir := range t.log.Emptied {
		up, name := split(dir)
		if full[dir] {
			full[up] = true
			continue
		}
		d, err := t.dirs.get("", up)
		if err != nil {
			if unreachable(err) {
				continue
			}
			return err
		}
		st, err := d.Lstat(name)
		if err == nil && (st.Kind != vfs.KindDir || t.dirs.protected(st)) {
			err = syscall.ENOTEMPTY
		}
		if err == nil {
			err = d.Rmdir(name)
		}
		t.dirs.put(d)
		switch {
		case err == nil:
			t.dirs.forget(dir)
			removed[dirKey{"", up}] = true
		case notEmpty(err):
			full[up] = true
		case errors.Is(err, fs.ErrNotExist):
		case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EBUSY):
			full[up] = true
			t.notes = append(t.notes, fmt.Sprintf("the empty directory %.200q stays: %v", dir, err))
		default:
			return err
		}
	}
	if len(removed) == 0 {
		return nil
	}
	// The journal, which would do this again after a crash, is about to go.
	t.touched = removed
	return t.syncNames(ctx, barrierTidy)
}

// clean removes what is ours: names in the areas, the areas, the journal and
// the directories above it that are empty then. The journal goes after all it
// leads to, so that a crash in between leaves a way to finish.
func (t *tx) clean() error {
	// NFS and FUSE give a file that is open and unlinked another name, and the directory
	// would not be empty. Others do so with a directory, and some are in the areas.
	t.letGo()
	t.dirs.close()
	if t.txroot == nil {
		return t.cleanAbove()
	}
	if err := t.cleanAreas(nil); err != nil {
		return err
	}
	for i, a := range t.areas {
		if i > 0 {
			if err := t.removeBeside(i, a); err != nil {
				return err
			}
		}
	}
	if own := t.areas[0].dir; own != nil {
		// Before the journal: without a journal the mark must say nothing.
		if err := own.Unlink(swappingName); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := own.Unlink(journalName); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		// After the journal: without the list that says that everything is decided, the
		// journal would have it decided again.
		if err := t.dropAttention(own); err != nil {
			return err
		}
		// Not every system takes a name away while somebody has open what it names, and
		// then the directory above would not be empty.
		closeDir(own)
		t.areas[0].dir = nil
		if err := t.txroot.Rmdir(t.id); err != nil && !errors.Is(err, fs.ErrNotExist) {
			if !notEmpty(err) {
				return err
			}
			t.notes = append(t.notes, fmt.Sprintf("the transaction area %.200q holds something that is not ours and stays", t.id))
		}
	}
	closeDir(t.txroot)
	t.txroot = nil
	return t.cleanAbove()
}

// dropAttention removes attention lists; only a transaction found on disk can
// have one.
func (t *tx) dropAttention(own vfs.Dir) error {
	if !t.loaded {
		return nil
	}
	names, err := own.List()
	if err != nil {
		return err
	}
	for _, e := range names {
		if strings.HasPrefix(e.Name, attentionPrefix) {
			if err := own.Unlink(e.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// cleanAbove removes TxDir and the .asp above it, if nothing is in them.
func (t *tx) cleanAbove() error {
	if !t.waits {
		if err := removeTxDir(t.holder, t.env.TxDir); err != nil {
			return err
		}
	}
	return removeHolder(t.env.FS, t.env.TxDir)
}

// removeTxDir removes TxDir if it is empty.
func removeTxDir(holder vfs.Dir, path string) error {
	err := holder.Rmdir(filepath.Base(path))
	if notEmpty(err) || errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return err
}

// removeHolder removes the .asp of a plain directory if nothing is in it.
func removeHolder(fsys vfs.FS, txDir string) error {
	parent := filepath.Dir(txDir)
	if filepath.Base(parent) != ".asp" {
		return nil
	}
	up, err := fsys.OpenRoot(filepath.Dir(parent))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	defer closeDir(up)
	st, err := up.Lstat(".asp")
	if errors.Is(err, fs.ErrNotExist) || err == nil && st.Kind != vfs.KindDir {
		return nil
	}
	if err == nil {
		err = up.Rmdir(".asp")
	}
	if notEmpty(err) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// cleanAreas removes the names of all steps from the areas, except of those in
// keep.
func (t *tx) cleanAreas(keep map[int]bool) error {
	// A large file goes when its last name does, and that takes the time.
	return each(context.Background(), len(t.log.Steps), t.workers(len(t.log.Steps)), func(i int) error {
		s := &t.log.Steps[i]
		a := t.areas[s.Area].dir
		if s.Name == "" || a == nil || keep[i] {
			return nil
		}
		if i < len(t.jobs) && !t.jobs[i].staged && i >= t.begun {
			return nil // this process never made it
		}
		if t.log.Committed && s.Op == journal.Put {
			return nil // it left the area
		}
		return removeName(a, s)
	})
}

func removeName(a vfs.Dir, s *journal.Step) error {
	if s.Before.Kind == vfs.KindDir || s.After.Kind == vfs.KindDir {
		st, err := a.Lstat(s.Name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if st.Kind == vfs.KindDir {
			return removeDirs(a, s.Name)
		}
	}
	err := a.Unlink(s.Name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// removeDirs removes a tree that holds directories only; anything else in it
// is a stranger's, and then it stays.
func removeDirs(d vfs.Dir, name string) error {
	err := d.Rmdir(name)
	if !notEmpty(err) {
		return err
	}
	sub, err := d.OpenDir(name)
	if err != nil {
		return err
	}
	names, err := sub.List()
	for _, e := range names {
		var st vfs.Stat
		if st, err = sub.Lstat(e.Name); err != nil || st.Kind != vfs.KindDir {
			break
		}
		if err = removeDirs(sub, e.Name); err != nil {
			break
		}
	}
	closeDir(sub)
	if err != nil {
		return err
	}
	if err = d.Rmdir(name); notEmpty(err) {
		return nil
	}
	return err
}

// removeBeside removes the area beside a target.
func (t *tx) removeBeside(i int, a *area) error {
	parent, err := t.dirs.get(a.parent.base, a.parent.dir)
	if err != nil {
		if unreachable(err) {
			return nil
		}
		return err
	}
	defer t.dirs.put(parent)
	err = parent.Rmdir(t.log.Areas[i].Beside)
	if notEmpty(err) {
		t.notes = append(t.notes, fmt.Sprintf("the staging directory %.200q holds something that is not ours and stays", t.log.Areas[i].Beside))
		return nil
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	return err
}

// cleanUnknown removes staged names when there is no intent that lists them:
// nothing was swapped then, so that all of them are after-images of ours. Only
// our spelling counts.
func (t *tx) cleanUnknown() error {
	for _, a := range t.areas {
		if a.dir == nil {
			continue
		}
		names, err := a.dir.List()
		if err != nil {
			return err
		}
		for _, e := range names {
			if !stagedName(e.Name) {
				continue
			}
			st, err := a.dir.Lstat(e.Name)
			if err != nil {
				return err
			}
			if st.Kind == vfs.KindDir {
				err = removeDirs(a.dir, e.Name)
			} else {
				err = a.dir.Unlink(e.Name)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}
