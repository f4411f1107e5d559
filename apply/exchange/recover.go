package exchange

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/aspengine/asp/apply/commit"
	"github.com/aspengine/asp/internal/vfs"
)

// Recover ends the exchanges of the workspace that a crash left: before the
// exchange the new tree is removed, after it the receipt is stored (completed)
// and the old tree removed. Each is reported once, by the run that ends it; one
// that never got as far as its intent ends in silence. Areas of other
// workspaces in the same parent, of other users, and those that hold files of a
// stranger are left alone. Running it twice changes nothing. The workspace lock
// must be held.
func Recover(ctx context.Context, env Env, completed func(ctx context.Context, r commit.Recovered) error) ([]commit.Recovered, error) {
	parent, names, err := areas(env)
	if parent == nil || err != nil {
		return nil, err
	}
	defer parent.Close()
	root := filepath.Base(env.RootPath)
	var out []commit.Recovered
	for _, n := range names {
		if ctx.Err() != nil {
			break
		}
		r, mine, err := recoverOne(ctx, parent, n, root, completed)
		if err != nil {
			return out, fmt.Errorf("recover exchange %.200q: %w", n, err)
		}
		if mine {
			out = append(out, r)
		}
	}
	return out, ctx.Err()
}

// areas opens the directory that the workspace lies in and gives the names of what may be
// areas of it there, sorted. parent is nil where there is none that we could have written to.
func areas(env Env) (parent vfs.Dir, names []string, err error) {
	dir, root := filepath.Split(env.RootPath)
	if root == "" {
		return nil, nil, nil
	}
	parent, err = env.FS.OpenRoot(dir)
	if errors.Is(err, fs.ErrPermission) {
		return nil, nil, nil // what cannot be opened was never written by us
	}
	if err != nil {
		return nil, nil, fmt.Errorf("open parent of the workspace: %w", err)
	}
	es, err := parent.List()
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("list parent of the workspace: %w", err), parent.Close())
	}
	for _, e := range es {
		if strings.HasPrefix(e.Name, areaPrefix(root)) {
			names = append(names, e.Name)
		}
	}
	slices.Sort(names)
	return parent, names, nil
}

// openArea opens an area of ours; nil if it is none. The parent may be one that
// everybody can write to.
func openArea(parent vfs.Dir, name string) (vfs.Dir, error) {
	area, err := parent.OpenDir(name)
	if vanished(err) || errors.Is(err, fs.ErrPermission) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	st, err := area.Stat()
	ps, perr := parent.Stat()
	if err = errors.Join(err, perr); err != nil {
		area.Close()
		return nil, err
	}
	_, real := area.(vfs.Descriptor)
	if st.Perm&0o077 != 0 || st.Dev != ps.Dev || real && int(st.UID) != os.Geteuid() {
		area.Close()
		return nil, nil
	}
	return area, nil
}

func recoverOne(ctx context.Context, parent vfs.Dir, areaName, root string, completed func(context.Context, commit.Recovered) error) (r commit.Recovered, mine bool, err error) {
	area, err := openArea(parent, areaName)
	if err != nil || area == nil {
		return r, false, err
	}
	defer area.Close()
	// A process that was killed may have left an exchange, or an exchange back,
	// that the disk does not have yet. Nothing may be decided, and nothing
	// removed, on what a power cut could still take away.
	if err := parent.SyncFS(); err != nil {
		return r, false, err
	}
	i, err := readIntent(area, journalName)
	if errors.Is(err, errNoIntent) {
		return r, false, recoverOld(parent, area, areaName)
	}
	if err != nil {
		return r, false, err
	}
	if i.Root != root {
		return r, false, nil
	}
	now, err := parent.Lstat(root)
	if err != nil {
		return r, false, err
	}
	other, err := area.Lstat(treeName)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return r, false, err
	}
	gone := err != nil // the clean-up had come to its end
	r = commit.Recovered{TxID: i.TxID, Tag: i.Tag, Outcome: commit.RolledBack}
	for p := range i.PreImages {
		r.Paths = append(r.Paths, p)
	}
	for p := range i.PostImages {
		if _, both := i.PreImages[p]; !both {
			r.Paths = append(r.Paths, p)
		}
	}
	slices.Sort(r.Paths)
	switch {
	case now.Ino == i.OldIno && (gone || other.Ino == i.NewIno):
		r.Notes, err = clean(parent, area, areaName, i.PostImages)
		return r, true, err
	case now.Ino == i.NewIno && (gone || other.Ino == i.OldIno):
		r.Outcome, r.Evidence = commit.Committed, i.Evidence
		if completed != nil {
			if err := completed(ctx, r); err != nil {
				return r, false, err
			}
		}
		r.Notes, err = clean(parent, area, areaName, i.PreImages)
		return r, true, err
	}
	r.Outcome = commit.NeedsAttention
	r.Notes = []string{"the workspace directory was replaced by somebody else; the other tree of the exchange stays in " + areaName + " beside it"}
	return r, true, area.Rename(journalName, area, keptName, vfs.NoReplace)
}

// recoverOld ends an area without a journal. Without a kept one either it was
// never exchanged or everything in it was looked at before the journal went; in
// both cases nobody else's bytes are there.
func recoverOld(parent, area vfs.Dir, areaName string) error {
	_, err := area.Lstat(keptName)
	if err == nil {
		return recoverKept(parent, area, areaName)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := removeTree(area); err != nil {
		return err
	}
	return parent.Rmdir(areaName)
}

// recoverKept removes an area that was left to a person, once that person has
// emptied it. Not a file of it is touched.
func recoverKept(parent, area vfs.Dir, areaName string) error {
	for _, name := range []string{treeName, outName, newName} {
		err := area.Rmdir(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil // something is there, or it may not be removed: it stays
		}
	}
	if err := area.Unlink(keptName); err != nil {
		return err
	}
	if err := parent.Rmdir(areaName); err != nil && !notEmpty(err) {
		return err
	}
	return nil
}
