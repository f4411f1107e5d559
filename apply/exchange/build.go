package exchange

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/aspengine/asp/apply/commit"
	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/snapshot"
)

// build makes the after-tree: second names for what stays, new files for what
// changes. It returns a refusal where the tree cannot be rebuilt as it is.
func (w *work) build(ctx context.Context) (*refusal.Item, error) {
	if it, err := w.copyDir(ctx, w.root, w.tree, "."); err != nil || it != nil {
		return it, err
	}
	// What is new comes after the copy, so that its directories exist where the
	// live tree has them.
	for p, c := range w.changes {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if c.After == nil {
			continue
		}
		if it, err := w.place(p, c); err != nil || it != nil {
			if err != nil {
				err = fmt.Errorf("make %.200q: %w", p, err)
			}
			return it, err
		}
	}
	if err := w.prune(); err != nil {
		return nil, err
	}
	return nil, w.finishDirs(ctx, w.root, w.tree, ".")
}

func (w *work) copyDir(ctx context.Context, from, to vfs.Dir, path string) (*refusal.Item, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	es, err := from.List()
	if err != nil {
		return nil, fmt.Errorf("list %.200q: %w", path, err)
	}
	w.facts.Dirs++
	seen := make(listing, len(es))
	w.seen[path] = seen
	for _, e := range es {
		p := join(path, e.Name)
		if w.skip(p) {
			continue
		}
		st, err := from.Lstat(e.Name)
		if err != nil {
			return nil, fmt.Errorf("stat %.200q: %w", p, err)
		}
		seen[e.Name] = st.Ino
		if st.MntID != w.rootSt.MntID {
			it := refusal.New(refusal.CrossDevice, text(p), -1, "is another mount, which cannot be carried over in an exchange; use --publish journal")
			return &it, nil
		}
		if st.Kind != vfs.KindDir {
			if _, touched := w.changes[p]; touched {
				continue
			}
			if err := from.Link(e.Name, to, e.Name); err != nil {
				if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EMLINK) {
					it := refusal.New(refusal.Metadata, text(p), -1, "cannot be given a second name (%v), which an exchange needs; use --publish journal", cause(err))
					return &it, nil
				}
				return nil, fmt.Errorf("link %.200q: %w", p, err)
			}
			w.facts.Linked++
			continue
		}
		if err := to.Mkdir(e.Name, 0o700); err != nil {
			return nil, fmt.Errorf("make directory %.200q: %w", p, err)
		}
		it, err := w.both(from, to, e.Name, func(a, b vfs.Dir) (*refusal.Item, error) { return w.copyDir(ctx, a, b, p) })
		if err != nil || it != nil {
			return it, err
		}
	}
	return nil, nil
}

func (w *work) both(from, to vfs.Dir, name string, f func(a, b vfs.Dir) (*refusal.Item, error)) (*refusal.Item, error) {
	a, err := from.OpenDir(name)
	if err != nil {
		return nil, err
	}
	defer a.Close()
	b, err := to.OpenDir(name)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	return f(a, b)
}

// place makes one changed path in the new tree.
func (w *work) place(path string, c commit.Change) (*refusal.Item, error) {
	dir, name, err := w.parentOf(path)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	w.facts.Written++
	source := path
	if !c.From.IsZero() {
		source = c.From.String()
	}
	if w.pure(c) {
		// A pure move: the file itself gets its new name.
		sd, sn, err := split(w.root, source)
		if err != nil {
			return nil, err
		}
		defer sd.Close()
		return nil, sd.Link(sn, dir, name)
	}
	if c.After.Kind == vfs.KindSymlink {
		sd, sn, err := split(w.root, source)
		if err != nil {
			return nil, err
		}
		defer sd.Close()
		target, err := sd.Readlink(sn)
		if err != nil {
			return nil, err
		}
		return nil, dir.Symlink(target, name)
	}
	var old vfs.File
	if c.Before != nil && c.Before.Kind == vfs.KindFile || !c.From.IsZero() {
		sd, sn, err := split(w.root, source)
		if err != nil {
			return nil, err
		}
		defer sd.Close()
		if old, err = sd.Open(sn); err != nil {
			return nil, err
		}
		defer old.Close()
	}
	perm := uint32(0o600)
	if c.After.UmaskApplies {
		perm = c.After.Perm
	}
	f, err := dir.Create(name, perm)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var src io.ReadCloser
	if c.After.Open != nil {
		if src, err = c.After.Open(); err != nil {
			return nil, err
		}
	} else {
		src = io.NopCloser(old)
	}
	defer src.Close()
	h := sha256.New()
	if _, err := io.Copy(f, io.TeeReader(src, h)); err != nil {
		return nil, err
	}
	if snapshot.Digest(h.Sum(nil)) != c.After.Digest {
		return nil, commit.ErrContent
	}
	if old == nil {
		return nil, nil
	}
	return keep(f, old, c.After.Perm, path)
}

// keep gives f owner, attributes and mode of the file that it stands for.
func keep(f, old vfs.File, perm uint32, path string) (*refusal.Item, error) {
	no := func(err error) (*refusal.Item, error) {
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOTSUP) {
			it := refusal.New(refusal.Metadata, text(path), -1, "its owner or attributes cannot be kept (%v)", cause(err))
			return &it, nil
		}
		return nil, err
	}
	st, err := old.Stat()
	if err != nil {
		return nil, err
	}
	now, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.UID != now.UID || st.GID != now.GID {
		if err := f.Chown(st.UID, st.GID); err != nil {
			return no(err)
		}
	}
	attrs, err := old.Xattrs()
	if err != nil {
		return nil, err
	}
	for k, v := range attrs {
		if err := f.SetXattr(k, v); err != nil {
			return no(err)
		}
	}
	if err := f.Chmod(perm); err != nil {
		return no(err)
	}
	return nil, nil
}

// parentOf opens the directory of path in the new tree, making what is missing
// with the umask.
func (w *work) parentOf(path string) (vfs.Dir, string, error) {
	d, err := w.tree.OpenDir(".")
	if err != nil {
		return nil, "", err
	}
	parts := strings.Split(path, "/")
	for _, p := range parts[:len(parts)-1] {
		next, err := d.OpenDir(p)
		if errors.Is(err, fs.ErrNotExist) {
			if err = d.Mkdir(p, 0o777); err == nil {
				next, err = d.OpenDir(p)
			}
		}
		d.Close()
		if err != nil {
			return nil, "", err
		}
		d = next
	}
	return d, parts[len(parts)-1], nil
}

// split opens the directory of path below d.
func split(d vfs.Dir, path string) (vfs.Dir, string, error) {
	i := strings.LastIndexByte(path, '/')
	if i < 0 {
		at, err := d.OpenDir(".")
		return at, path, err
	}
	at, err := d.OpenDir(path[:i])
	return at, path[i+1:], err
}

// prune removes the directories of the new tree that the plan emptied, as git
// does: those above a path that goes, if nothing at all is in them.
func (w *work) prune() error {
	for p, c := range w.changes {
		if c.After != nil {
			continue
		}
		for dir := parent(p); dir != "."; dir = parent(dir) {
			at, name, err := split(w.tree, dir)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return err
			}
			err = at.Rmdir(name)
			at.Close()
			if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, fs.ErrExist) {
				break
			}
			if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
				return err
			}
		}
	}
	return nil
}

func parent(p string) string {
	if i := strings.LastIndexByte(p, '/'); i >= 0 {
		return p[:i]
	}
	return "."
}

// finishDirs gives the directories of the new tree mode, owner, attributes and
// times of the live ones, bottom-up, when nothing is made in them any more.
func (w *work) finishDirs(ctx context.Context, from, to vfs.Dir, path string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for name := range w.seen[path] {
		p := join(path, name)
		if _, isDir := w.seen[p]; !isDir {
			continue
		}
		a, err := from.OpenDir(name)
		if err != nil {
			return err
		}
		b, err := to.OpenDir(name)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			a.Close() // emptied and removed, or a file now
			continue
		}
		if err == nil {
			err = w.finishDirs(ctx, a, b, p)
			b.Close()
		}
		a.Close()
		if err != nil {
			return err
		}
	}
	return likeDir(from, to, w.below[path] || path == ".")
}

// likeDir makes to look like from. A directory in which something changed keeps
// the time of the change.
func likeDir(from, to vfs.Dir, changed bool) error {
	st, err := from.Stat()
	if err != nil {
		return err
	}
	a, okA := from.(vfs.Descriptor)
	b, okB := to.(vfs.Descriptor)
	if okA && okB {
		fa, fb := int(a.Fd()), int(b.Fd())
		now, err := to.Stat()
		if err != nil {
			return err
		}
		if now.UID != st.UID || now.GID != st.GID {
			if err := unix.Fchown(fb, int(st.UID), int(st.GID)); err != nil {
				return err
			}
		}
		if err := dirAttrs(fa, fb); err != nil {
			return err
		}
		if err := to.Chmod(st.Perm); err != nil {
			return err
		}
		if changed {
			return nil
		}
		ts := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(st.Mtime)}
		return unix.UtimesNanoAt(fb, "", ts, unix.AT_EMPTY_PATH)
	}
	return to.Chmod(st.Perm)
}

// dirAttrs copies the extended attributes of a directory, default ACLs included.
func dirAttrs(from, to int) error {
	buf := make([]byte, 64<<10)
	n, err := unix.Flistxattr(from, buf)
	if errors.Is(err, unix.ENOTSUP) || n == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	val := make([]byte, 64<<10)
	for _, name := range strings.Split(strings.TrimRight(string(buf[:n]), "\x00"), "\x00") {
		m, err := unix.Fgetxattr(from, name, val)
		if err != nil {
			return err
		}
		if err := unix.Fsetxattr(to, name, val[:m], 0); err != nil {
			return err
		}
	}
	return nil
}

func cause(err error) error {
	var e unix.Errno
	if errors.As(err, &e) {
		return e
	}
	return err
}

func text(p string) string { return strings.ToValidUTF8(p, "\uFFFD") }
