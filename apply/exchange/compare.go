package exchange

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"maps"
	"syscall"

	"github.com/aspengine/asp/apply/commit"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/snapshot"
)

// moved compares the tree at d with what was copied: names and inodes of every
// directory, and the directories themselves, because a copy of them is in the
// new tree. It returns the first path that differs.
func (w *work) moved(ctx context.Context, d vfs.Dir) (string, error) {
	return w.movedIn(ctx, walkFrom(d), ".")
}

func (w *work) movedIn(ctx context.Context, d *level, path string) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	was := w.seen[path]
	if was == nil {
		return path, nil
	}
	now, err := d.Stat()
	if err != nil {
		return "", err
	}
	if !sameDir(was.st, now, path == ".") {
		return path, nil
	}
	es, err := d.List()
	if err != nil {
		return "", err
	}
	n := 0
	for _, e := range es {
		p := join(path, e.Name)
		if w.skip(p) {
			if empty, err := w.skippable(d.Dir, e.Name); err != nil || !empty {
				return p, err
			}
			continue
		}
		n++
		st, err := d.Lstat(e.Name)
		if errors.Is(err, fs.ErrNotExist) {
			return p, nil
		}
		if err != nil {
			return "", err
		}
		if ino, ok := was.names[e.Name]; !ok || ino != st.Ino || w.elsewhere(st) {
			return p, nil
		}
		if st.Kind != vfs.KindDir {
			continue
		}
		sub, err := d.down(e.Name)
		if vanished(err) {
			return p, nil
		}
		if err != nil {
			return "", err
		}
		q, err := w.movedIn(ctx, sub, p)
		uerr := d.up(sub)
		if err != nil || q != "" {
			return q, err
		}
		if vanished(uerr) {
			return path, nil
		}
		if uerr != nil {
			return "", uerr
		}
	}
	if n == len(was.names) {
		return "", nil
	}
	for name := range was.names {
		if _, err := d.Lstat(name); errors.Is(err, fs.ErrNotExist) {
			return join(path, name), nil
		}
	}
	return path, nil
}

// sameDir tells whether a directory is as it was, its names aside. A change of
// the inode that came with no change of names is one of mode or attributes. The
// exchange itself moves the ctime of the root.
func sameDir(was, now vfs.Stat, root bool) bool {
	switch {
	case was.Ino != now.Ino, was.Perm != now.Perm, was.UID != now.UID, was.GID != now.GID, was.Immutable != now.Immutable:
		return false
	}
	return root || was.Ctime == now.Ctime || was.Mtime != now.Mtime
}

// vanished tells the errors of a name that is not there, or not a directory, any
// more.
func vanished(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP)
}

// elsewhere tells whether st is on another mount or file system than the root.
func (w *work) elsewhere(st vfs.Stat) bool {
	return st.MntID != w.rootSt.MntID || st.Dev != w.rootSt.Dev
}

// displaced looks at the old tree after the exchange: nothing came or went, and
// the files of the plan are those that it was checked against. Others need no
// look: both trees have them.
func (w *work) displaced(ctx context.Context) (string, error) {
	old, err := w.area.OpenDir(treeName)
	if err != nil {
		return "", err
	}
	defer old.Close()
	if p, err := w.moved(ctx, old); err != nil || p != "" {
		return p, err
	}
	for p, c := range w.changes {
		if c.Before == nil {
			continue
		}
		if err := ctx.Err(); err != nil {
			return "", err
		}
		same, err := w.sameFile(old, p, c)
		if vanished(err) {
			same, err = false, nil
		}
		if err != nil || !same {
			return p, err
		}
	}
	return "", nil
}

// sameFile compares one path of the old tree with its before-image, and what it
// passes on to its successor with that one.
func (w *work) sameFile(old vfs.Dir, path string, c commit.Change) (bool, error) {
	d, name, err := split(old, path)
	if err != nil {
		return false, err
	}
	defer d.Close()
	if c.Before.Kind == vfs.KindSymlink {
		target, err := d.Readlink(name)
		if errors.Is(err, syscall.EINVAL) {
			return false, nil
		}
		return snapshot.DigestOf([]byte(target)) == c.Before.Digest, err
	}
	f, err := d.Open(name)
	if errors.Is(err, syscall.EINVAL) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return false, err
	}
	b := c.Before
	if b := c.Before; b.Stat.Ino != 0 && c.After != nil && st.Nlink > b.Stat.Nlink {
		return false, nil // a new name of it would be split from this one
	}
	if st.Perm != b.Perm&0o7777 || b.Stat.Ino != 0 && (st.Ino != b.Stat.Ino || st.UID != b.Stat.UID || st.GID != b.Stat.GID) {
		return false, nil
	}
	sum, err := hash(f)
	if err != nil || sum != b.Digest {
		return false, err
	}
	to := path
	switch {
	case c.After == nil && !c.MovedTo.IsZero():
		to = c.MovedTo.String()
	case c.After == nil, c.After.Kind == vfs.KindSymlink:
		return true, nil // no attributes are passed on
	}
	return w.sameAttrs(f, to)
}

// sameAttrs tells whether old still has the attributes that its successor in
// the new tree was given.
func (w *work) sameAttrs(old vfs.File, to string) (bool, error) {
	d, name, err := split(w.tree, to)
	if err != nil {
		return false, err
	}
	defer d.Close()
	f, err := d.Open(name)
	if err != nil {
		return false, err
	}
	defer f.Close()
	a, err := old.Xattrs()
	if err != nil {
		return false, err
	}
	b, err := f.Xattrs()
	if err != nil {
		return false, err
	}
	return maps.EqualFunc(a, b, bytes.Equal), nil
}

func hash(r io.Reader) (sum snapshot.Digest, err error) {
	h := sha256.New()
	if _, err := io.Copy(h, r); err != nil {
		return sum, err
	}
	h.Sum(sum[:0])
	return sum, nil
}

func join(dir, name string) string {
	if dir == "." {
		return name
	}
	return dir + "/" + name
}
