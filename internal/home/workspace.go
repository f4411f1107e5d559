package home

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
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
	Judged        = "judged"
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
	home *Home
	path string
	dir  vfs.Dir
	mark []byte // content of workspace.json
	mu   sync.Mutex
	subs map[string]vfs.Dir
	owed bool // names of directories above may not be durable
	made bool // a directory was made in dir since Owe
}

// Workspace opens the state of a workspace, making its directories if needed.
// The caller closes it. Who writes what must survive a power cut calls Owe with
// the batch that covers it.
func (h *Home) Workspace(id Identity) (*State, error) {
	if id.Root == "" {
		return nil, errors.New("open workspace state: no root given")
	}
	name := id.ID()
	d, err := h.Sub(WorkspacesDir, name)
	if err != nil {
		return nil, err
	}
	s := &State{ID: name, home: h, path: h.Path(WorkspacesDir, name), dir: d, subs: map[string]vfs.Dir{}}
	if err := s.label(id); err != nil {
		return nil, errors.Join(fmt.Errorf("open workspace state %.200q: %w", s.path, err), d.Close())
	}
	return s, nil
}

// label compares workspace.json: a state directory under another workspace's
// name was put there by hand. Without the file the state is new.
func (s *State) label(id Identity) error {
	root, git := text(id.Root), text(id.GitDir)
	want := canon.ObjectOf(
		canon.Member{Key: "format", Value: canon.IntOf(1)},
		canon.Member{Key: "gitDir", Value: canon.StringOf(git)},
		canon.Member{Key: "root", Value: canon.StringOf(root)},
	)
	s.mark = append(want.Bytes(), '\n')
	b, err := ReadFile(s.dir, WorkspaceFile, 64<<10)
	if errors.Is(err, fs.ErrNotExist) {
		s.owed = true
		return nil
	}
	if err != nil {
		return err
	}
	v, err := canon.Parse(b, canon.Limits{})
	if err != nil {
		// Torn by a power cut: it is written after its barrier and says
		// nothing that the directory's name does not. It is written anew.
		s.owed = true
		return nil
	}
	if f, ok := v.Get("format"); ok {
		if n, ok := f.Int(); ok && n > 1 {
			return fmt.Errorf("read %s: format %d is newer than this program", WorkspaceFile, n)
		}
	}
	if !canon.Equal(v, want) {
		return fmt.Errorf("%s names another workspace than %.200q: the directory was put there by hand, or the file is damaged; move the one or the other away", WorkspaceFile, id.Root)
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

// Owe is Cover for who appends a receipt to the batch. workspace.json is written
// after the first such barrier and thereby says that the directories are durable,
// whoever made them, and that there has been a receipt; a process that died before
// its barrier leaves the debt to the next.
func (s *State) Owe(b *Batch) error {
	if err := s.Cover(b); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.owed {
		return nil
	}
	b.After(func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.owed {
			return nil
		}
		s.owed = false
		return WriteFile(s.dir, WorkspaceFile, s.mark)
	})
	return nil
}

// Cover adds to the batch what a durable file of this state needs above it: while
// the state is new, the directories that lead to it.
func (s *State) Cover(b *Batch) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.made {
		b.Touch(s.dir)
		s.made = false
	}
	if !s.owed {
		return nil
	}
	own, err := s.dir.Stat()
	if err != nil {
		return fmt.Errorf("look at workspace state %.200q: %w", s.path, err)
	}
	b.Touch(s.dir)
	for p := filepath.Dir(s.path); ; p = filepath.Dir(p) {
		d, err := s.home.fs.OpenRoot(p)
		if err != nil {
			break // not ours to read, so not of our making
		}
		if st, err := d.Stat(); err != nil || st.Dev != own.Dev {
			d.Close()
			break // another file system begins
		}
		b.own(d)
		if filepath.Dir(p) == p { // the root, or that of a drive
			break
		}
	}
	return nil
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
	d, err := s.dir.OpenDir(name)
	if errors.Is(err, fs.ErrNotExist) {
		s.made = true
		d, err = ensure(s.dir, name)
	}
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
