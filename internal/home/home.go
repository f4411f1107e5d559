// Package home owns the trusted state directory ASP_HOME: where it lies, who
// may own it, the directories in it, and the few ways in which files there are
// written. A candidate, a check or a provider never gets a handle into it.
//
// Layout:
//
//	config.json, repos.json, servers/   written by people and by enrolment
//	workspaces/<id>/                    state of one workspace:
//	  workspace.json                    which workspace that is, for people
//	  queue                             order of waiting transactions (internal/lock)
//	  receipts/, receipts.*             receipts, their chain's head (receipt)
//	  results/                          index of stored results by proposal (receipt)
//	  proposals/, staged/               kept plans, staged snapshots
//	  quarantine.json                   providers that failed too often (seam/provider)
//	  packs/, statcache                 blobs, stat cache (snapshot)
//	scratch/                            throw-away trees
//
// Nothing here is durable before a barrier: WriteFile and CreateFile make a
// file appear whole to every other process, and Batch.Sync makes what was
// written survive a power cut, once for all of it.
package home

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/aspengine/asp/internal/vfs"
)

// Names in ASP_HOME.
const (
	ConfigFile    = "config.json"
	ReposFile     = "repos.json"
	ServersDir    = "servers"
	WorkspacesDir = "workspaces"
	ScratchDir    = "scratch"
)

// ErrUntrusted is the cause when a directory exists but must not be trusted:
// others can write to it, or it belongs to somebody else.
var ErrUntrusted = errors.New("not a trusted state directory")

// ErrInside is the cause when one of state directory and workspace lies in the
// other.
var ErrInside = errors.New("state and workspace are not apart")

// Resolve names the state directory by the environment: ASP_HOME, else
// XDG_STATE_HOME/asp, else HOME/.local/state/asp. It touches nothing. A path
// that is not absolute is refused: it would mean another directory in every
// working directory.
func Resolve(getenv func(string) string) (string, error) {
	if p := getenv("ASP_HOME"); p != "" {
		if !filepath.IsAbs(p) {
			return "", fmt.Errorf("ASP_HOME %.200q: must be an absolute path", p)
		}
		return filepath.Clean(p), nil
	}
	// The XDG convention says that a relative value is to be ignored.
	if p := getenv("XDG_STATE_HOME"); filepath.IsAbs(p) {
		return filepath.Join(p, "asp"), nil
	}
	if p := getenv("HOME"); filepath.IsAbs(p) {
		return filepath.Join(p, ".local", "state", "asp"), nil
	}
	if p := getenv("LOCALAPPDATA"); filepath.IsAbs(p) { // Windows
		return filepath.Join(p, "asp"), nil
	}
	return "", errors.New("no state directory: set ASP_HOME to an absolute path")
}

// Home is the opened state directory. Safe for concurrent use.
type Home struct {
	fs   vfs.FS
	path string
	dir  vfs.Dir
	made []string // directories that Open made, outermost first
}

// Open opens the state directory at the absolute path, making it (0700) and
// missing parents if needed. It fails with ErrUntrusted when the directory is
// writable by group or others or owned by anybody but root and the caller, or
// when others may replace one of its parents. The caller closes it.
func Open(fsys vfs.FS, path string) (*Home, error) {
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("open state directory %.200q: must be an absolute path", path)
	}
	path = filepath.Clean(path)
	var made []string
	dir, err := makeAll(fsys, path, &made)
	if err != nil {
		return nil, fmt.Errorf("open state directory %.200q: %w", path, err)
	}
	// Parents are judged along the real path, not along a link that leads
	// there. On a file system that is not the real one there are no links.
	if real, err := filepath.EvalSymlinks(path); err == nil {
		if a, err := os.Stat(real); err == nil && sameAs(dir, a) {
			path = real
		}
	}
	h := &Home{fs: fsys, path: path, dir: dir, made: made}
	if err := h.trusted(); err != nil {
		return nil, errors.Join(fmt.Errorf("open state directory %.200q: %w", path, err), dir.Close())
	}
	return h, nil
}

// makeAll opens path, making what is missing from the first existing parent on, which it
// adds to made.
func makeAll(fsys vfs.FS, path string, made *[]string) (vfs.Dir, error) {
	d, err := fsys.OpenRoot(path)
	if err == nil || !errors.Is(err, fs.ErrNotExist) || filepath.Dir(path) == path {
		return d, err
	}
	parent, err := makeAll(fsys, filepath.Dir(path), made)
	if err != nil {
		return nil, err
	}
	defer parent.Close()
	if d, err = ensure(parent, filepath.Base(path)); err == nil {
		*made = append(*made, path)
	}
	return d, err
}

// ensure opens the directory name in dir, making it (0700) if it is missing.
func ensure(dir vfs.Dir, name string) (vfs.Dir, error) {
	d, err := dir.OpenDir(name)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return d, err
	}
	if err := dir.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return dir.OpenDir(name)
}

// trusted applies the rules on owners and modes.
func (h *Home) trusted() error {
	st, err := h.dir.Stat()
	if err != nil {
		return err
	}
	if err := ownerTrusted(st); err != nil {
		return err
	}
	if st.Perm&0o022 != 0 {
		return fmt.Errorf("%w: mode %04o lets others write; chmod 700 it", ErrUntrusted, st.Perm)
	}
	for p := h.path; filepath.Dir(p) != p; {
		p = filepath.Dir(p)
		st, err := h.statPath(p)
		if err != nil {
			return err
		}
		// Group-writable parents are common (groups of one user) and left
		// alone; a parent that everybody can write to without the sticky
		// bit lets everybody put another directory here.
		if st.Perm&0o1002 == 0o0002 {
			return fmt.Errorf("%w: everybody may write to its parent %.200q; chmod o-w that, or set ASP_HOME to another directory", ErrUntrusted, p)
		}
	}
	return nil
}

func ownerTrusted(st vfs.Stat) error {
	if st.UID != 0 && int(st.UID) != os.Geteuid() {
		return fmt.Errorf("%w: owned by user %d, not by user %d or root; set ASP_HOME to a directory of your own (sudo may keep the HOME of another user)", ErrUntrusted, st.UID, os.Geteuid())
	}
	return nil
}

func (h *Home) statPath(p string) (vfs.Stat, error) {
	if s, ok := h.fs.(vfs.DirStater); ok {
		st, err := s.StatDir(p)
		if errors.Is(err, fs.ErrPermission) {
			return vfs.Stat{}, nil // as below
		}
		return st, err
	}
	d, err := h.fs.OpenRoot(p)
	if err != nil {
		// An unreadable parent (mode 0711) is nothing that we can judge
		// by handle; the path walk itself proves that it is a directory.
		if errors.Is(err, fs.ErrPermission) {
			return vfs.Stat{}, nil
		}
		return vfs.Stat{}, err
	}
	defer d.Close()
	return d.Stat()
}

// CheckOutside fails when the state directory lies in the workspace at root,
// or the workspace in it: a plan could then write the state that judges it.
// Compared by identity, so links and other spellings do not help. What Open made
// inside the workspace is then taken away again, as far as it is empty.
func (h *Home) CheckOutside(root string) error {
	err := h.checkOutside(root)
	if errors.Is(err, ErrInside) {
		for _, p := range slices.Backward(h.made) {
			parent, err := h.fs.OpenRoot(filepath.Dir(p))
			if err != nil {
				break
			}
			rerr := parent.Rmdir(filepath.Base(p))
			if errors.Join(rerr, parent.Close()) != nil {
				break // somebody is there already; an empty directory that stays harms nobody
			}
		}
	}
	return err
}

func (h *Home) checkOutside(root string) error {
	ws, err := h.statPath(root)
	if err != nil {
		return fmt.Errorf("look at workspace %.200q: %w", root, err)
	}
	own, err := h.dir.Stat()
	if err != nil {
		return fmt.Errorf("look at state directory: %w", err)
	}
	inside := func(p string, want vfs.Stat) (bool, error) {
		for ; ; p = filepath.Dir(p) {
			st, err := h.statPath(p)
			if err != nil {
				return false, err
			}
			if st.SameFile(want) {
				return true, nil
			}
			if filepath.Dir(p) == p {
				return false, nil
			}
		}
	}
	in, err := inside(h.path, ws)
	if err == nil && in {
		return fmt.Errorf("%w: state directory %.200q lies in the workspace %.200q: set ASP_HOME to a directory outside", ErrInside, h.path, root)
	}
	if err == nil {
		if real, err := filepath.EvalSymlinks(root); err == nil {
			root = real
		}
		in, err = inside(root, own)
	}
	if err == nil && in {
		return fmt.Errorf("%w: workspace %.200q lies in the state directory %.200q", ErrInside, root, h.path)
	}
	if err != nil {
		return fmt.Errorf("compare state directory and workspace: %w", err)
	}
	return nil
}

// Path returns the absolute path of the state directory, or of a name in it.
func (h *Home) Path(names ...string) string {
	return filepath.Join(append([]string{h.path}, names...)...)
}

// Dir is the handle of the state directory; it stays owned by h.
func (h *Home) Dir() vfs.Dir { return h.dir }

// Sub opens a directory in the state directory, making it if needed. The
// caller closes it.
func (h *Home) Sub(names ...string) (vfs.Dir, error) {
	d, err := h.dir.OpenDir(".")
	for _, n := range names {
		if err != nil {
			break
		}
		var next vfs.Dir
		next, err = ensure(d, n)
		err = errors.Join(err, d.Close())
		d = next
	}
	if err != nil {
		return nil, fmt.Errorf("open %.200q in the state directory: %w", filepath.Join(names...), err)
	}
	return d, nil
}

// ReadFile reads a file of the state directory itself (config.json …): at most
// limit bytes, and only one that nobody but root and the caller could have
// written. fs.ErrNotExist when it is missing.
func (h *Home) ReadFile(name string, limit int64) ([]byte, error) {
	st, err := h.dir.Lstat(name)
	if err != nil {
		return nil, fmt.Errorf("read %.200q: %w", h.Path(name), err)
	}
	if st.Kind == vfs.KindFile {
		if err := ownerTrusted(st); err != nil {
			return nil, fmt.Errorf("read %.200q: %w", h.Path(name), err)
		}
		if st.Perm&0o022 != 0 {
			return nil, fmt.Errorf("read %.200q: %w: mode %04o lets others write; chmod go-w it", h.Path(name), ErrUntrusted, st.Perm)
		}
	}
	return ReadFile(h.dir, name, limit)
}

// Probe tries how the state is kept: that a file can take a name that no other has, and
// then one that another has, and be synced. Nothing is left.
func (h *Home) Probe() (err error) {
	dir, err := h.Sub(ScratchDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	var b Batch
	name := TempPrefix + "probe-" + Random(8)
	if err := errors.Join(b.CreateFile(dir, name, nil), b.WriteFile(dir, name, nil), b.Sync(EachFile)); err != nil {
		_ = dir.Unlink(name)
		return fmt.Errorf("try the state directory: %w", err)
	}
	return dir.Unlink(name)
}

// Close releases the handle.
func (h *Home) Close() error { return h.dir.Close() }

func sameAs(d vfs.Dir, fi os.FileInfo) bool {
	st, err := d.Stat()
	return err == nil && sameFile(st, fi)
}
