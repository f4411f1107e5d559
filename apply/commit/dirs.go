package commit

import (
	"container/list"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"syscall"

	"github.com/aspengine/asp/internal/vfs"
)

// errProtected: a path leads into a directory that no step may enter.
var errProtected = errors.New("protected directory")

// maxHandles bounds the directory handles kept open, together with a share of what
// the process may have open. Plans are sorted by path within each kind of step, so
// even a small cache serves nearly every step.
const (
	maxHandles  = 256
	handleShare = 8
)

// dirKey names a directory: Base as in journal.Place, dir slash-separated, "."
// for the base itself.
type dirKey struct{ base, dir string }

// dirHandle is an open parent directory.
type dirHandle struct {
	vfs.Dir
	st    vfs.Stat
	key   dirKey
	refs  int
	lent  bool // the caller's handle, never closed here
	stale bool // the name means another directory now
	el    *list.Element
}

// dirs opens parent directories by path and keeps the handles used last. It is
// safe for concurrent use. Every handle got must be put back.
type dirs struct {
	env *Env

	mu   sync.Mutex
	open map[dirKey]*dirHandle
	lru  *list.List // of *dirHandle, front is newest
	most int        // of them, unless more are in use
	safe map[string]bool
	// moved says where directories of the plan are that did not get to their
	// place, or are there no more; see tx.findUnplaced.
	moved map[string]unplaced
}

// unplaced is a directory of the plan in its area. It is no open handle: a plan can
// make any number of directories.
type unplaced struct {
	area vfs.Dir
	name string
	ino  uint64
}

// open opens the directory, or one below it.
func (u unplaced) open(rest string) (vfs.Dir, error) {
	d, err := u.area.OpenDir(u.name)
	if err != nil {
		return nil, err
	}
	st, err := d.Stat()
	if err == nil && st.Ino != u.ino {
		err = &fs.PathError{Op: "open staged directory", Path: u.name, Err: fs.ErrNotExist}
	}
	if err != nil || rest == "." {
		if err != nil {
			closeDir(d)
			return nil, err
		}
		return d, nil
	}
	defer closeDir(d)
	return d.OpenDir(rest)
}

func newDirs(env *Env) *dirs {
	return &dirs{env: env, open: map[dirKey]*dirHandle{}, lru: list.New(), most: vfs.MayKeep(maxHandles, handleShare), safe: map[string]bool{}, moved: map[string]unplaced{}}
}

// get opens the directory. Errors are those of the file system (fs.ErrNotExist,
// ENOTDIR, ELOOP) and errProtected.
func (d *dirs) get(base, dir string) (*dirHandle, error) {
	key := dirKey{base, dir}
	d.mu.Lock()
	defer d.mu.Unlock()
	if h := d.open[key]; h != nil {
		h.refs++
		d.lru.MoveToFront(h.el)
		return h, nil
	}
	h, err := d.openKey(key)
	if err != nil {
		return nil, err
	}
	// A directory that the caller allows by name may well be a protected one.
	if h.st, err = h.Stat(); err == nil && base == "" && d.protected(h.st) {
		err = fmt.Errorf("enter %.200q: %w", dir, errProtected)
	}
	if err != nil {
		h.close()
		return nil, err
	}
	h.refs = 1
	h.el = d.lru.PushFront(h)
	d.open[key] = h
	d.evict()
	return h, nil
}

func (d *dirs) openKey(key dirKey) (*dirHandle, error) {
	h := &dirHandle{key: key}
	root := d.env.Root
	if key.base != "" {
		root = d.env.Extra[key.base]
		if root == nil || key.dir != "." {
			return nil, fmt.Errorf("enter %.200q: %w", key.base, errProtected)
		}
	}
	if key.dir == "." {
		h.Dir, h.lent = root, true
		return h, nil
	}
	if at, rest, ok := d.elsewhere(key); ok {
		var err error
		h.Dir, err = at.open(rest)
		return h, err
	}
	if err := d.passable(key.dir); err != nil {
		return nil, err
	}
	var err error
	h.Dir, err = root.OpenDir(key.dir)
	return h, err
}

// elsewhere finds the deepest moved directory at or above key.
func (d *dirs) elsewhere(key dirKey) (at unplaced, rest string, ok bool) {
	if len(d.moved) == 0 || key.base != "" {
		return at, "", false
	}
	if at, ok = d.moved[key.dir]; ok {
		return at, ".", true
	}
	for i := len(key.dir) - 1; i > 0; i-- {
		if key.dir[i] != '/' {
			continue
		}
		if at, ok = d.moved[key.dir[:i]]; ok {
			return at, key.dir[i+1:], true
		}
	}
	return at, "", false
}

// passable checks that no directory above dir is a protected one. The last
// component is checked on the open handle.
func (d *dirs) passable(dir string) error {
	if len(d.env.Protected) == 0 {
		return nil
	}
	for i := range len(dir) {
		if dir[i] != '/' || d.safe[dir[:i]] {
			continue
		}
		st, err := d.env.Root.Lstat(dir[:i])
		if err != nil {
			return err
		}
		if d.protected(st) {
			return fmt.Errorf("enter %.200q: %w", dir[:i], errProtected)
		}
		d.safe[dir[:i]] = true
	}
	return nil
}

func (d *dirs) protected(st vfs.Stat) bool {
	for _, p := range d.env.Protected {
		if p.SameFile(st) {
			return true
		}
	}
	return false
}

// put gives a handle back.
func (d *dirs) put(h *dirHandle) {
	d.mu.Lock()
	defer d.mu.Unlock()
	h.refs--
	if h.stale && h.refs == 0 {
		h.close()
		return
	}
	d.evict()
}

func (h *dirHandle) close() {
	if !h.lent && h.Dir != nil {
		_ = h.Close() // nothing was written through it
	}
}

func (d *dirs) evict() {
	for e := d.lru.Back(); e != nil && d.lru.Len() > d.most; {
		h, prev := e.Value.(*dirHandle), e.Prev()
		if h.refs == 0 {
			d.drop(h)
		}
		e = prev
	}
}

// drop takes a handle out of the cache; it is closed now or by the last put.
func (d *dirs) drop(h *dirHandle) {
	d.lru.Remove(h.el)
	delete(d.open, h.key)
	h.stale = true
	if h.refs == 0 {
		h.close()
	}
}

// forget drops what is known of the directory at path and below, because the
// name was given to something else.
func (d *dirs) forget(path string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	below := path + "/"
	for k, h := range d.open {
		if k.base == "" && (k.dir == path || strings.HasPrefix(k.dir, below)) {
			d.drop(h)
		}
	}
	for k := range d.safe {
		if k == path || strings.HasPrefix(k, below) {
			delete(d.safe, k)
		}
	}
}

// close closes all handles; none may be in use.
func (d *dirs) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, h := range d.open {
		d.drop(h)
	}
}

// unreachable tells whether an error of get means that the path's parent is
// not there as a directory, rather than that we could not tell.
func unreachable(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP) || errors.Is(err, errProtected)
}

// split cuts a checked path into parent and name.
func split(path string) (dir, name string) {
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		return path[:i], path[i+1:]
	}
	return ".", path
}
