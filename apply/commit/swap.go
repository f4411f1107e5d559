package commit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync/atomic"
	"syscall"

	"github.com/aspengine/asp/apply/journal"
	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/internal/vfs"
)

// swapAll does the steps in order and looks at what each has displaced: right
// then, or where there are many beside the next swaps. It stops at the first
// refusal or error; t.begun then counts the steps that may have happened, the
// last one included, and undo judges each by what is there.
func (t *tx) swapAll(ctx context.Context) (refusal.List, error) {
	t.step("swap")
	began := now()
	defer func() { t.facts.Swap = since(began) }()
	var c *comparing
	if t.workers(len(t.log.Steps)) > 1 {
		c = t.beginComparing()
	}
	item, err := t.swapEach(ctx, c)
	if c != nil {
		// It is behind, so what it says is of an earlier step.
		first, cerr := c.end()
		if err = errors.Join(cerr, err); first.Code != "" {
			item = first
		}
	}
	if err != nil || item.Code == "" {
		return nil, err
	}
	return refusal.List{item}, nil
}

func (t *tx) swapEach(ctx context.Context, c *comparing) (refusal.Item, error) {
	for i := range t.log.Steps {
		if err := ctx.Err(); err != nil {
			return refusal.Item{}, err
		}
		if c != nil && c.failed.Load() {
			break
		}
		item, err := t.swapOne(i, c)
		if err != nil || item.Code != "" {
			return item, t.at(i, err)
		}
	}
	return refusal.Item{}, nil
}

// at names step i in an error.
func (t *tx) at(i int, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%.200q: %w", t.log.Steps[i].Live.String(), err)
}

// comparing is a goroutine that looks at displaced files while others are
// displaced. All of them are looked at before the names are synced.
type comparing struct {
	steps  chan int
	done   chan struct{}
	failed atomic.Bool // no further swap is to be begun

	item refusal.Item // of the first step that failed; read after done
	err  error
}

func (t *tx) beginComparing() *comparing {
	c := &comparing{steps: make(chan int, 64), done: make(chan struct{})}
	go func() {
		defer close(c.done)
		for i := range c.steps {
			if c.failed.Load() {
				continue // undo looks at it
			}
			s := &t.log.Steps[i]
			item, err := t.compare(i, t.areas[s.Area].dir, s.Name)
			if err != nil || item.Code != "" {
				c.item, c.err = item, t.at(i, err)
				c.failed.Store(true)
			}
		}
	}()
	return c
}

// end waits for the looks at all steps that were handed over.
func (c *comparing) end() (refusal.Item, error) {
	close(c.steps)
	<-c.done
	return c.item, c.err
}

func (t *tx) swapOne(i int, c *comparing) (refusal.Item, error) {
	s := &t.log.Steps[i]
	dir, name := split(s.Live.Path)
	d, err := t.dirs.get(s.Live.Base, dir)
	if err != nil {
		if unreachable(err) && !errors.Is(err, errProtected) {
			return refused(refusal.ChangedUnderneath, s.Live.String(), "the directory %.200q is not there any more", dir)
		}
		return refusal.Item{}, err
	}
	defer t.dirs.put(d)
	// From here undo looks at this step; it judges by what is there, so it does
	// not matter whether the rename happened.
	t.begun = i + 1
	t.touch(s.Live.Base, s.Live.Path)
	switch s.Op {
	case journal.Put:
		err = t.areas[s.Area].dir.Rename(s.Name, d.Dir, name, vfs.NoReplace)
		if errors.Is(err, fs.ErrExist) {
			return refused(refusal.Exists, s.Live.String(), "something was put there in the meantime")
		}
	case journal.Take:
		err = d.Rename(name, t.areas[s.Area].dir, s.Name, vfs.NoReplace)
	case journal.Exchange:
		err = t.areas[s.Area].dir.Rename(s.Name, d.Dir, name, vfs.Exchange)
	case journal.Move:
		return t.move(i, d, name)
	}
	if err != nil {
		return t.renameFault(s.Live.String(), err)
	}
	if s.After.Kind == vfs.KindDir || s.Before.Kind == vfs.KindDir {
		t.dirs.forget(s.Live.Path) // the name means another directory now
	}
	switch {
	case s.Op == journal.Put:
		return refusal.Item{}, nil
	case c != nil && s.Before.Kind != vfs.KindDir:
		c.steps <- i
		return refusal.Item{}, nil
	}
	return t.compare(i, t.areas[s.Area].dir, s.Name)
}

// move renames the inode and looks at it under its new name: one read is
// enough, because nothing is displaced and the way back is a rename too.
func (t *tx) move(i int, to *dirHandle, name string) (refusal.Item, error) {
	s := &t.log.Steps[i]
	fromDir, fromName := split(s.From)
	from, err := t.dirs.get("", fromDir)
	if err != nil {
		if unreachable(err) && !errors.Is(err, errProtected) {
			return refused(refusal.ChangedUnderneath, s.From, "the directory %.200q is not there any more", fromDir)
		}
		return refusal.Item{}, err
	}
	defer t.dirs.put(from)
	t.touch("", s.From)
	err = from.Rename(fromName, to.Dir, name, vfs.NoReplace)
	if errors.Is(err, fs.ErrExist) {
		return refused(refusal.Exists, s.Live.Path, "something was put there in the meantime")
	}
	if err != nil {
		return t.renameFault(s.From, err)
	}
	item, err := t.compare(i, to, name)
	if err == nil && item.Code != "" {
		// A stranger's bytes were moved. Undo would not know them as ours, so
		// they go back here and now; if their old name is taken by now, undo
		// finds the step as it is and asks for attention.
		item.Path = s.From
		if err := to.Rename(name, from.Dir, fromName, vfs.NoReplace); err != nil && !errors.Is(err, fs.ErrExist) {
			return item, err
		}
	}
	return item, err
}

// renameFault sorts the errors of a rename into answers and failures.
func (t *tx) renameFault(path string, err error) (refusal.Item, error) {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return refused(refusal.ChangedUnderneath, path, "it is not there any more")
	case errors.Is(err, syscall.EXDEV):
		// The same mount, and yet not one file system for renames: btrfs
		// subvolumes, project quotas, encrypted directories.
		return refused(refusal.CrossDevice, path, "the file system does not rename between this directory and the staging area")
	case errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.ENOSYS), errors.Is(err, syscall.ENOTSUP):
		return refusal.Item{}, fmt.Errorf("%w: %w", ErrPrimitive, err)
	}
	return refusal.Item{}, err
}

// compare looks at what a rename displaced: it must be the very file that
// admission saw and hold the very bytes.
func (t *tx) compare(i int, d vfs.Dir, name string) (refusal.Item, error) {
	s, j := &t.log.Steps[i], &t.jobs[i]
	path := s.Live.String()
	if s.Before.Kind == vfs.KindDir {
		return t.compareDir(d, name, s)
	}
	var got seen
	var err error
	if j.open != nil {
		got, err = lookThrough(d, name, j.open, j.st.Ino, s.Before)
		j.letGo()
	} else {
		got, err = look(d, name, s.Before)
	}
	if err != nil {
		return refusal.Item{}, err
	}
	j.late = got.st
	switch {
	case !got.is(s.Before):
		return refused(refusal.ChangedUnderneath, path, "somebody changed it in the meantime; look at it and propose again")
	case got.Ino != j.st.Ino || got.st.Dev != j.st.Dev:
		return refused(refusal.ChangedUnderneath, path, "another file with the same bytes took its place in the meantime")
	case got.Kind == vfs.KindFile && (got.st.Nlink != j.st.Nlink || got.st.UID != j.st.UID || got.st.GID != j.st.GID):
		return refused(refusal.ChangedUnderneath, path, "its owner or its hard links changed in the meantime")
	}
	return refusal.Item{}, nil
}

// compareDir makes sure that a directory that a file has displaced holds
// nothing but directories that the plan empties.
func (t *tx) compareDir(d vfs.Dir, name string, s *journal.Step) (refusal.Item, error) {
	st, err := d.Lstat(name)
	if err != nil {
		return refusal.Item{}, err
	}
	if st.Kind != vfs.KindDir || st.Ino != s.Before.Ino {
		return refused(refusal.ChangedUnderneath, s.Live.Path, "another %s took its place in the meantime", word(st.Kind))
	}
	ours := map[string]bool{}
	for _, e := range t.log.Emptied {
		ours[e] = true
	}
	stray, err := strayIn(d, name, s.Live.Path, ours)
	if err != nil {
		return refusal.Item{}, err
	}
	if stray != "" {
		return refused(refusal.NotEmpty, s.Live.Path, "it holds %.200q, which is not of the plan", stray)
	}
	return refusal.Item{}, nil
}

// strayIn returns the path of a name below the directory that is not one of
// the directories in ours, "" if there is none.
func strayIn(d vfs.Dir, name, path string, ours map[string]bool) (string, error) {
	sub, err := d.OpenDir(name)
	if err != nil {
		return "", err
	}
	defer closeDir(sub)
	names, err := sub.List()
	if err != nil {
		return "", err
	}
	for _, e := range names {
		p := path + "/" + e.Name
		if !ours[p] {
			return p, nil
		}
		st, err := sub.Lstat(e.Name)
		if err != nil {
			return "", err
		}
		if st.Kind != vfs.KindDir {
			return p, nil
		}
		if stray, err := strayIn(sub, e.Name, p, ours); stray != "" || err != nil {
			return stray, err
		}
	}
	return "", nil
}

// probePrimitives tries both renames in the area of each mount whose file
// system is not known to have them, before anything is written outside.
func (t *tx) probePrimitives() error {
	exchange, noReplace := Proven, Proven
	for i, f := range t.facts.Mounts {
		if f.Renames {
			continue
		}
		for j, a := range t.areas {
			if a.mount == i && a.dir != nil {
				x, n, err := t.probeIn(a.dir, j)
				if err != nil {
					return fmt.Errorf("probe renames: %w", err)
				}
				exchange, noReplace = max(exchange, x), max(noReplace, n)
				break
			}
		}
	}
	t.facts.Exchange, t.facts.NoReplace = exchange, noReplace
	needX, needN := false, false
	for _, s := range t.log.Steps {
		needX = needX || s.Op == journal.Exchange
		needN = needN || s.Op != journal.Exchange
	}
	if needX && exchange == Absent || needN && noReplace == Absent {
		return fmt.Errorf("%w: exchange or no-replace", ErrPrimitive)
	}
	return nil
}

func (t *tx) probeIn(d vfs.Dir, area int) (exchange, noReplace Primitive, err error) {
	a, b := fmt.Sprintf("%s-%x", t.nonce, uint32(0xffffff00)+uint32(area%64)), fmt.Sprintf("%s-%x", t.nonce, uint32(0xffffff80)+uint32(area%64))
	for _, n := range []string{a, b} {
		if err := d.Mkdir(n, 0o700); err != nil {
			return 0, 0, err
		}
		defer func() { err = errors.Join(err, d.Rmdir(n)) }()
	}
	exchange, noReplace = Proven, Proven
	if err := d.Rename(a, d, b, vfs.Exchange); err != nil {
		if !lacks(err) {
			return 0, 0, err
		}
		exchange = Absent
	}
	switch err := d.Rename(a, d, b, vfs.NoReplace); {
	case errors.Is(err, fs.ErrExist):
	case err == nil:
		// It replaced: the flag is not understood and nothing said so.
		return 0, 0, errors.Join(errors.New("a rename without replace replaced"), d.Mkdir(a, 0o700))
	case lacks(err):
		noReplace = Absent
	default:
		return 0, 0, err
	}
	return exchange, noReplace, nil
}

func lacks(err error) bool {
	return errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOSYS) || errors.Is(err, syscall.ENOTSUP)
}
