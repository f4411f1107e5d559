package home

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"unicode/utf8"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/internal/vfs"
)

// Names in the state directory of a workspace.
const (
	WorkspaceFile = "workspace.json"
	QueueFile     = "queue"
	Receipts      = "receipts"
	Packs         = "packs"
	Results       = "results"
	Proposals     = "proposals"
	Staged        = "staged"
	StatCache     = "statcache"
)

// Identity says which workspace is meant.
type Identity struct {
	Root   string // canonical absolute path of the work tree
	GitDir string // canonical absolute path of its git directory, "" without git
}

// ID is the name of the workspace's state: 64 hexadecimal digits. Paths and
// not inode numbers make it, because restoring a backup or swapping the root
// directory leaves the workspace the same one to its user.
func (i Identity) ID() string {
	sum := sha256.Sum256([]byte(i.Root + "\x00" + i.GitDir))
	return hex.EncodeToString(sum[:])
}

// State is the opened state directory of one workspace. Safe for concurrent
// use.
type State struct {
	ID   string
	path string
	dir  vfs.Dir
	mu   sync.Mutex
	subs map[string]vfs.Dir
}

// Workspace opens the state of a workspace, making it if needed. The caller
// closes it.
func (h *Home) Workspace(id Identity) (*State, error) {
	if id.Root == "" {
		return nil, errors.New("open workspace state: no root given")
	}
	name := id.ID()
	d, err := h.Sub(WorkspacesDir, name)
	if err != nil {
		return nil, err
	}
	s := &State{ID: name, path: h.Path(WorkspacesDir, name), dir: d, subs: map[string]vfs.Dir{}}
	if err := s.label(id); err != nil {
		return nil, errors.Join(fmt.Errorf("open workspace state %.200q: %w", s.path, err), d.Close())
	}
	return s, nil
}

// label makes workspace.json, or compares it: a state directory under another
// workspace's name was put there by hand.
func (s *State) label(id Identity) error {
	root, git := text(id.Root), text(id.GitDir)
	want := canon.ObjectOf(
		canon.Member{Key: "format", Value: canon.IntOf(1)},
		canon.Member{Key: "gitDir", Value: canon.StringOf(git)},
		canon.Member{Key: "root", Value: canon.StringOf(root)},
	)
	b, err := ReadFile(s.dir, WorkspaceFile, 64<<10)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(bytes.Trim(b, "\x00")) == 0 {
		// Empty or zeros: a power cut came before the first barrier. It is a label
		// for people and says nothing that the name does not.
		return WriteFile(s.dir, WorkspaceFile, append(want.Bytes(), '\n'))
	}
	if err != nil {
		return err
	}
	v, err := canon.Parse(b, canon.Limits{})
	if err != nil {
		return fmt.Errorf("read %s: %w", WorkspaceFile, err)
	}
	if f, ok := v.Get("format"); ok {
		if n, ok := f.Int(); ok && n > 1 {
			return fmt.Errorf("read %s: format %d is newer than this program", WorkspaceFile, n)
		}
	}
	if !canon.Equal(v, want) {
		return fmt.Errorf("%s names another workspace than %.200q", WorkspaceFile, id.Root)
	}
	return nil
}

// text makes a path fit for JSON, which cannot carry other bytes than UTF-8.
func text(p string) string {
	if utf8.ValidString(p) {
		return p
	}
	return fmt.Sprintf("%+q", p)
}

// Dir is the handle of the state directory; it stays owned by s.
func (s *State) Dir() vfs.Dir { return s.dir }

// Path is the absolute path of a name in the state directory.
func (s *State) Path(name string) string { return s.path + "/" + name }

// Sub returns a handle on a directory of the state, which is made if needed.
// The handle stays owned by s and is shared by all callers.
func (s *State) Sub(name string) (vfs.Dir, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d, ok := s.subs[name]; ok {
		return d, nil
	}
	d, err := ensure(s.dir, name)
	if err != nil {
		return nil, fmt.Errorf("open workspace state %.200q: %w", s.Path(name), err)
	}
	s.subs[name] = d
	return d, nil
}

// Close releases all handles.
func (s *State) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, d := range s.subs {
		errs = append(errs, d.Close())
	}
	s.subs = map[string]vfs.Dir{}
	return errors.Join(append(errs, s.dir.Close())...)
}
