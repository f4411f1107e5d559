package exchange

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/snapshot"
)

// removeTree removes everything in d, links as links. For trees that nobody
// but us has ever seen.
func removeTree(d vfs.Dir) error { return removeBelow(walkFrom(d)) }

func removeBelow(d *level) error {
	es, err := d.List()
	if err != nil {
		return err
	}
	for _, e := range es {
		st, err := d.Lstat(e.Name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if st.Kind != vfs.KindDir {
			if err := d.Unlink(e.Name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			continue
		}
		sub, err := d.down(e.Name)
		if err != nil {
			return err
		}
		if st.Perm&0o700 != 0o700 {
			err = sub.Chmod(0o700) // a copy of a directory that its owner made read-only
		}
		if err == nil {
			err = removeBelow(sub)
		}
		if err = errors.Join(err, d.up(sub)); err != nil {
			return err
		}
		if err := d.Rmdir(e.Name); err != nil {
			return err
		}
	}
	return nil
}

// cleaner removes a tree that other programs may have open.
type cleaner struct {
	out  vfs.Dir // where a name is out of everybody's reach while it is looked at
	st   vfs.Stat
	ours map[string]snapshot.Digest // may go by their bytes
	kept []string
	n    int // names in out that stay there
}

// clean removes the area with the tree that the workspace does not have: the
// old one after an exchange, the new one after an exchange back. A file goes
// only if it has another name, or if it is at a path in ours with exactly those
// bytes; anything else was put there by somebody who had the directory open,
// and stays, with a note and the journal. What stays must be durable knowledge
// of nobody: the journal goes last, when nothing else is there.
func clean(parent, area vfs.Dir, areaName string, ours map[string]snapshot.Digest) (notes []string, err error) {
	c := &cleaner{ours: ours}
	if c.st, err = area.Stat(); err != nil {
		return nil, err
	}
	if err := c.openOut(area); err != nil {
		return nil, fmt.Errorf("clean up beside the workspace: %w", err)
	}
	defer c.out.Close()
	if err := c.all(area); err != nil {
		return nil, fmt.Errorf("remove the displaced tree: %w", err)
	}
	if len(c.kept) > 0 {
		return c.keep(area, areaName)
	}
	if err := area.Rmdir(outName); err != nil {
		return nil, err
	}
	for _, name := range []string{writingName, keptName, journalName} {
		if err := area.Unlink(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	if err := parent.Rmdir(areaName); err != nil && !errors.Is(err, fs.ErrNotExist) {
		if !notEmpty(err) {
			return nil, err
		}
		return []string{"something that is not ours is in " + areaName + " beside the workspace, and stays"}, nil
	}
	return nil, nil
}

func notEmpty(err error) bool {
	return errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, fs.ErrExist)
}

func (c *cleaner) openOut(area vfs.Dir) error {
	err := area.Mkdir(outName, 0o700)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	c.out, err = area.OpenDir(outName)
	return err
}

// all cleans the directories of the area.
func (c *cleaner) all(area vfs.Dir) error {
	// An earlier run may have been stopped with a name in its hands, whose path
	// nobody knows any more.
	es, err := c.out.List()
	if err != nil {
		return err
	}
	for _, e := range es {
		c.n++
		ok, err := c.known(e.Name)
		if err == nil && ok {
			err = c.out.Unlink(e.Name)
		}
		if err != nil {
			return err
		}
		if !ok {
			c.kept = append(c.kept, outName+"/"+e.Name)
		}
	}
	for _, name := range []string{treeName, newName} {
		d, err := area.OpenDir(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		kept := len(c.kept)
		err = c.dir(walkFrom(d), ".")
		d.Close()
		if err != nil {
			return err
		}
		if len(c.kept) > kept {
			continue
		}
		if err := area.Rmdir(name); notEmpty(err) {
			c.kept = append(c.kept, name)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// known tells whether a name in out whose path is forgotten may go.
func (c *cleaner) known(name string) (bool, error) {
	st, err := c.out.Lstat(name)
	if err != nil || st.Nlink > 1 {
		return err == nil, err
	}
	sum, err := digest(c.out, name, st)
	if err != nil || sum.IsZero() {
		return false, err
	}
	for _, d := range c.ours {
		if d == sum {
			return true, nil
		}
	}
	return false, nil
}

func (c *cleaner) dir(d *level, path string) error {
	es, err := d.List()
	if err != nil {
		return err
	}
	slices.SortFunc(es, func(a, b vfs.DirEntry) int { return strings.Compare(a.Name, b.Name) })
	if len(es) > 0 {
		st, err := d.Stat()
		if err != nil {
			return err
		}
		if st.Perm&0o700 != 0o700 {
			if err := d.Chmod(st.Perm | 0o700); err != nil {
				return err
			}
		}
	}
	for _, e := range es {
		if err := c.name(d, e.Name, join(path, e.Name)); err != nil {
			return fmt.Errorf("%.200q: %w", join(path, e.Name), err)
		}
	}
	return nil
}

func (c *cleaner) name(d *level, name, path string) error {
	st, err := d.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if st.Dev != c.st.Dev || st.MntID != c.st.MntID {
		c.kept = append(c.kept, path) // mounted since
		return nil
	}
	if st.Kind != vfs.KindDir {
		return c.file(d.Dir, name, path)
	}
	sub, err := d.down(name)
	if err != nil {
		return err
	}
	kept := len(c.kept)
	err = c.dir(sub, path)
	if err = errors.Join(err, d.up(sub)); err != nil || len(c.kept) > kept {
		return err
	}
	if err := d.Rmdir(name); notEmpty(err) {
		c.kept = append(c.kept, path)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// file removes one name or keeps it. The name is first taken where nobody else
// can reach it: between a look at a name and its removal somebody with the
// directory open could put another file there.
func (c *cleaner) file(d vfs.Dir, name, path string) error {
	at := fmt.Sprintf("%d", c.n)
	err := d.Rename(name, c.out, at, vfs.NoReplace)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	st, err := c.out.Lstat(at)
	if err != nil {
		return err
	}
	ok := st.Nlink > 1 && st.Kind != vfs.KindDir
	if want, is := c.ours[path]; !ok && is {
		sum, err := digest(c.out, at, st)
		if err != nil {
			return err
		}
		ok = !sum.IsZero() && sum == want
	}
	if ok {
		return c.out.Unlink(at)
	}
	if err := c.out.Rename(at, d, name, vfs.NoReplace); err != nil {
		// Another name took its place in the meantime, or the directory is gone.
		c.n++
		c.kept = append(c.kept, outName+"/"+at)
		return nil
	}
	c.kept = append(c.kept, path)
	return nil
}

// digest is the digest of a file or of the target of a link, zero for others
// and for files that cannot be read.
func digest(d vfs.Dir, name string, st vfs.Stat) (snapshot.Digest, error) {
	switch st.Kind {
	case vfs.KindSymlink:
		target, err := d.Readlink(name)
		return snapshot.DigestOf([]byte(target)), err
	case vfs.KindFile:
		f, err := d.Open(name)
		if errors.Is(err, fs.ErrPermission) {
			return snapshot.Digest{}, nil
		}
		if err != nil {
			return snapshot.Digest{}, err
		}
		defer f.Close()
		return hash(f)
	}
	return snapshot.Digest{}, nil
}

// keep leaves the area to a person. The journal gets another name, so that the
// transaction, whose outcome stands, is not reported again.
func (c *cleaner) keep(area vfs.Dir, areaName string) ([]string, error) {
	if err := area.Rename(journalName, area, keptName, vfs.NoReplace); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	slices.Sort(c.kept)
	const most = 10
	var b strings.Builder
	for i, p := range c.kept {
		if i == most {
			fmt.Fprintf(&b, " and %d more", len(c.kept)-most)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%.200q", p)
	}
	return []string{fmt.Sprintf("%s in %s/%s beside the workspace have no other name and stay: a program that had the displaced directories open wrote there, or one gave their names in the workspace to other files meanwhile", b.String(), areaName, treeName)}, nil
}

// Left names, by their paths, the areas of the workspace that Recover leaves to a
// person, for as long as they are there. Those of other users, which openArea does not
// take for ours, are none. It changes nothing and needs no lock.
func Left(env Env) ([]string, error) {
	parent, names, err := areas(env)
	if parent == nil || err != nil {
		return nil, err
	}
	defer parent.Close()
	var out []string
	for _, n := range names {
		area, err := openArea(parent, n)
		if err != nil {
			return nil, fmt.Errorf("look at %.200q: %w", n, err)
		}
		if area == nil {
			continue
		}
		_, err = area.Lstat(keptName)
		area.Close()
		if err == nil {
			out = append(out, filepath.Join(filepath.Dir(env.RootPath), n))
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("look at %.200q: %w", n, err)
		}
	}
	return out, nil
}
