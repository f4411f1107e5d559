package exchange

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/internal/vfs"
)

// build makes the after-tree: second names for what stays, new files for what
// changes. It returns a refusal where the tree cannot be rebuilt as it is.
func (w *work) build(ctx context.Context) (*refusal.Item, error) {
	if it, err := w.copyDir(ctx, walkFrom(w.root), walkFrom(w.tree), "."); err != nil || it != nil {
		return it, err
	}
	// Directories that the plan empties go before files take their names; what is
	// new comes last, when the directories that it is made in pass on what those of
	// the live tree would.
	if err := w.prune(); err != nil {
		return nil, err
	}
	for p, c := range w.changes {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if c.After == nil {
			continue
		}
		it, err := w.place(p, c)
		if vanished(err) {
			it, err = &underneath(p)[0], nil
		}
		if errors.Is(err, fs.ErrExist) {
			r := refusal.New(refusal.Exists, text(p), -1, "something is there that the plan does not know")
			it, err = &r, nil
		}
		if err != nil {
			err = fmt.Errorf("make %.200q: %w", p, err)
		}
		if err != nil || it != nil {
			return it, err
		}
	}
	return w.finishDirs(ctx, walkFrom(w.root), walkFrom(w.tree), ".")
}

// copyDir fills the directory to like from. The directory gets owner, mode and
// attributes first, so that what is made in it later inherits as it would in
// the live one.
func (w *work) copyDir(ctx context.Context, from, to *level, path string) (*refusal.Item, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	st, err := from.Stat()
	if err != nil {
		return nil, err
	}
	switch {
	case w.elsewhere(st):
		return no(refusal.CrossDevice, path, "is another mount or file system, which cannot be carried over in an exchange"), nil
	case st.Immutable:
		return no(refusal.Metadata, path, "is immutable or append-only"), nil
	}
	if why, err := likeDir(from.Dir, to.Dir, st); err != nil || why != "" {
		return metadata(path, why), err
	}
	es, err := from.List()
	if err != nil {
		return nil, fmt.Errorf("list %.200q: %w", path, err)
	}
	w.facts.Dirs++
	seen := &listing{st: st, names: make(map[string]uint64, len(es))}
	w.seen[path] = seen
	for _, e := range es {
		p := join(path, e.Name)
		if w.skip(p) {
			empty, err := w.skippable(from.Dir, e.Name)
			if err == nil && !empty {
				return no(refusal.UnsupportedOperation, p, "an earlier transaction waits for a person there; run `asp recover`"), nil
			}
			if err != nil {
				return nil, err
			}
			continue
		}
		it, err := w.copyName(ctx, from, to, e, p, seen)
		if vanished(err) {
			return &underneath(p)[0], nil
		}
		if err != nil || it != nil {
			return it, err
		}
	}
	return nil, nil
}

// skippable tells whether a path that is left out holds nothing.
func (w *work) skippable(d vfs.Dir, name string) (bool, error) {
	sub, err := d.OpenDir(name)
	if vanished(err) {
		return errors.Is(err, fs.ErrNotExist), nil
	}
	if err != nil {
		return false, err
	}
	defer sub.Close()
	es, err := sub.List()
	return len(es) == 0, err
}

func (w *work) copyName(ctx context.Context, from, to *level, e vfs.DirEntry, path string, seen *listing) (*refusal.Item, error) {
	_, touched := w.changes[path]
	if touched || e.Kind == vfs.KindInvalid || e.Kind == vfs.KindDir {
		st, err := from.Lstat(e.Name)
		if err != nil {
			return nil, err
		}
		seen.names[e.Name] = st.Ino
		switch {
		case w.elsewhere(st):
			return no(refusal.CrossDevice, path, "is another mount or file system, which cannot be carried over in an exchange"), nil
		case st.Kind == vfs.KindDir:
			return w.copySub(ctx, from, to, e.Name, path)
		case touched:
			return nil, nil
		}
	}
	if err := from.Link(e.Name, to.Dir, e.Name); err != nil {
		return linkRefusal(path, err)
	}
	// What was linked is what counts: the name may mean another file by now.
	st, err := to.Lstat(e.Name)
	if err != nil {
		return nil, err
	}
	seen.names[e.Name] = st.Ino
	w.facts.Linked++
	return nil, nil
}

func linkRefusal(path string, err error) (*refusal.Item, error) {
	switch {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EMLINK):
		return no(refusal.Metadata, path, "cannot be given a second name (%v), which an exchange needs", cause(err)), nil
	case errors.Is(err, syscall.EXDEV):
		return no(refusal.CrossDevice, path, "is on another mount or file system, which cannot be carried over in an exchange"), nil
	}
	return nil, fmt.Errorf("link %.200q: %w", path, err)
}

func (w *work) copySub(ctx context.Context, from, to *level, name, path string) (*refusal.Item, error) {
	a, err := from.down(name)
	if errors.Is(err, fs.ErrPermission) {
		return no(refusal.Metadata, path, "cannot be read, so it cannot be copied"), nil
	}
	if err != nil {
		return nil, err
	}
	if err := to.Mkdir(name, 0o700); err != nil {
		return nil, errors.Join(fmt.Errorf("make directory %.200q: %w", path, err), from.up(a))
	}
	b, err := to.down(name)
	if err != nil {
		return nil, errors.Join(err, from.up(a))
	}
	it, err := w.copyDir(ctx, a, b, path)
	return it, errors.Join(err, to.up(b), from.up(a))
}

// parentOf opens the directory of path in the new tree, making what is missing
// with the umask.
func (w *work) parentOf(path string) (vfs.Dir, string, error) {
	d, err := w.tree.OpenDir(".")
	if err != nil {
		return nil, "", err
	}
	parts := strings.Split(path, "/")
	at := "."
	for _, p := range parts[:len(parts)-1] {
		next, err := d.OpenDir(p)
		if errors.Is(err, fs.ErrNotExist) {
			w.touched[at] = true
			if err = d.Mkdir(p, 0o777); err == nil {
				next, err = d.OpenDir(p)
			}
		}
		d.Close()
		if err != nil {
			return nil, "", err
		}
		d, at = next, join(at, p)
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
// does: those above a path that goes, if nothing at all is in them and nothing
// will be.
func (w *work) prune() error {
	for p, c := range w.changes {
		if c.After != nil {
			continue
		}
		for dir := parent(p); dir != "." && !w.needed[dir]; dir = parent(dir) {
			at, name, err := split(w.tree, dir)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return err
			}
			err = at.Rmdir(name)
			at.Close()
			if notEmpty(err) {
				break
			}
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			w.touched[parent(dir)] = true
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

// finishDirs gives the directories of the new tree the mode and the times of
// the live ones, bottom-up, when nothing is made in them any more. A directory
// whose names changed keeps the time of that.
func (w *work) finishDirs(ctx context.Context, from, to *level, path string) (*refusal.Item, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for name := range w.seen[path].names {
		p := join(path, name)
		if w.seen[p] == nil {
			continue // no directory
		}
		a, err := from.down(name)
		if vanished(err) {
			return &underneath(p)[0], nil
		}
		if err != nil {
			return nil, err
		}
		b, err := to.down(name)
		gone := vanished(err) // emptied and removed, or a file now
		if gone {
			err = nil
		}
		var it *refusal.Item
		if err == nil && !gone {
			it, err = w.finishDirs(ctx, a, b, p)
			err = errors.Join(err, to.up(b))
		}
		if uerr := from.up(a); err == nil && vanished(uerr) {
			return &underneath(path)[0], nil
		} else if uerr != nil {
			err = errors.Join(err, uerr)
		}
		if err != nil || it != nil {
			return it, err
		}
	}
	st := w.seen[path].st
	why, err := finishDir(to.Dir, st, w.touched[path])
	return metadata(path, why), err
}

// metadata is the refusal for what cannot be kept, nil if why is empty.
func metadata(path, why string) *refusal.Item {
	if why == "" {
		return nil
	}
	return no(refusal.Metadata, path, "%s", why)
}

func cause(err error) error {
	var e syscall.Errno
	if errors.As(err, &e) {
		return e
	}
	return err
}

func text(p string) string { return strings.ToValidUTF8(p, "\uFFFD") }
