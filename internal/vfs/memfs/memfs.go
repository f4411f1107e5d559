// Package memfs is a file system in memory that answers as the kernel does and
// knows what a power cut may take away. Tests run an engine over it, cut the
// power at any moment with Crash, and look at what a legal file system could
// have kept.
//
// # What is durable
//
// Every file has its current bytes and its durable ones; File.Sync makes them
// equal. Every change of names or attributes is one atomic operation in a log.
// An operation is durable, and leaves the log, once
//
//   - SyncFS was called after it; or
//   - every directory whose names it changed was synced after it (for a rename
//     both), and those directories are durable themselves: syncing a new
//     directory promises nothing while its own name in its parent is not
//     synced; or
//   - a later operation that depends on it became durable.
//
// Two operations depend on each other, in the order in which they happened,
// when they touch the same name or the same inode; an operation in a directory
// depends on the creation of that directory, the removal of a directory on all
// that was done in it, and moves of directories depend on each other.
//
// File.Sync promises nothing about names and attributes. Real file systems keep
// more than that; an engine that is right here is right on them.
//
// # What is left out
//
// Permissions are kept but not enforced, as for root. There is one user. Times
// after a power cut are those of the last surviving change, no finer.
package memfs

import (
	"io/fs"
	"path"
	"strings"
	"sync"
	"syscall"

	"github.com/aspengine/asp/internal/vfs"
)

// Options shape a new file system. The zero value is useful.
type Options struct {
	// Umask is taken from the permissions of new files and directories. Zero
	// means 0o022; NoUmask means none.
	Umask   uint32
	NoUmask bool
	// Limit is how many bytes all files together may hold before writes fail
	// with ENOSPC; 0 means no limit.
	Limit int64
	// Step is how far the clock moves with each change, in nanoseconds. Zero
	// means 1000. A negative step stops the clock: all changes share one tick,
	// as two quick writes do on a real file system.
	Step int64
	// UID and GID own whatever is made.
	UID, GID uint32
	// NoExchange makes Rename answer ENOTSUP to Exchange, as systems do that have none.
	NoExchange bool
}

// Options returns what f was made with.
func (f *FS) Options() Options { return f.opt }

// FS is one file system. It may be used by several goroutines at once.
type FS struct {
	mu    sync.Mutex
	opt   Options
	clock int64
	next  uint64 // inode number
	used  int64  // bytes of all files that have a name or a handle
	gen   int    // handles of an earlier generation belong to a dead process
	root  *inode
	nodes map[uint64]*inode
	logs  map[uint64]*journal // by device
}

const (
	rootIno    = 2
	rootDev    = 1
	clockStart = 1_000_000_000_000_000_000 // 2001-09-09
	nameMax    = 255
	pathMax    = 4096
)

// New returns an empty file system, durable as it is.
func New(opt Options) *FS {
	if opt.Umask == 0 && !opt.NoUmask {
		opt.Umask = 0o022
	}
	switch {
	case opt.Step == 0:
		opt.Step = 1000
	case opt.Step < 0:
		opt.Step = 0
	}
	f := &FS{opt: opt, clock: clockStart, next: rootIno, nodes: make(map[uint64]*inode)}
	f.root = f.newInode(vfs.KindDir, 0o755, rootDev)
	f.root.parent = f.root
	f.root.nlink = 2
	f.rebase()
	return f
}

// inode is the current state of one file, directory, link or other thing, and
// of a file's data also the durable state.
type inode struct {
	attrs
	nlink   uint64
	opens   int
	entries map[string]*inode // directory
	parent  *inode            // directory; nil once removed
	content                   // file
}

// attrs is what a metadata operation records of an inode, whole.
type attrs struct {
	ino, dev     uint64
	kind         vfs.Kind
	perm         uint32
	uid, gid     uint32
	mtime, ctime int64
	target       string
	xattrs       map[string]string
}

func (a attrs) clone() attrs {
	x := a.xattrs
	a.xattrs = nil
	for k, v := range x {
		if a.xattrs == nil {
			a.xattrs = make(map[string]string, len(x))
		}
		a.xattrs[k] = v
	}
	return a
}

func (f *FS) newInode(kind vfs.Kind, perm uint32, dev uint64) *inode {
	n := &inode{attrs: attrs{
		ino: f.next, dev: dev, kind: kind, perm: perm, uid: f.opt.UID, gid: f.opt.GID, mtime: f.clock, ctime: f.clock,
	}}
	f.next++
	if kind == vfs.KindDir {
		n.entries = make(map[string]*inode)
	}
	f.nodes[n.ino] = n
	return n
}

// tick moves the clock before a change.
func (f *FS) tick() int64 {
	f.clock += f.opt.Step
	return f.clock
}

// Advance moves the clock by ns nanoseconds.
func (f *FS) Advance(ns int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.clock += ns
}

// SetLimit changes Options.Limit from now on.
func (f *FS) SetLimit(bytes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.opt.Limit = bytes
}

// Used returns how many bytes count against the limit.
func (f *FS) Used() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.used
}

func (n *inode) stat() vfs.Stat {
	s := vfs.Stat{
		Kind: n.kind, Perm: n.perm, Ino: n.ino, Dev: n.dev, MntID: n.dev, Nlink: n.nlink,
		UID: n.uid, GID: n.gid, Mtime: n.mtime, Ctime: n.ctime,
	}
	switch n.kind {
	case vfs.KindFile:
		s.Size = int64(len(n.data))
	case vfs.KindSymlink:
		s.Size = int64(len(n.target))
	}
	return s
}

// lookup finds one name in directory n.
func (n *inode) lookup(name string) (*inode, error) {
	switch {
	case n.kind == vfs.KindSymlink:
		return nil, syscall.ELOOP
	case n.kind != vfs.KindDir:
		return nil, syscall.ENOTDIR
	case len(name) > nameMax:
		return nil, syscall.ENAMETOOLONG
	}
	c := n.entries[name]
	if c == nil {
		return nil, syscall.ENOENT
	}
	return c, nil
}

// walk goes down a checked path without following links.
func (n *inode) walk(p string) (*inode, error) {
	if len(p) >= pathMax {
		return nil, syscall.ENAMETOOLONG
	}
	if p == "." {
		return n, nil
	}
	for {
		name, rest, more := strings.Cut(p, "/")
		c, err := n.lookup(name)
		if err != nil || !more {
			return c, err
		}
		n, p = c, rest
	}
}

// OpenRoot opens the directory at an absolute path, following links.
func (f *FS) OpenRoot(p string) (vfs.Dir, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.resolve(p)
	if err != nil {
		return nil, &fs.PathError{Op: "open root", Path: p, Err: err}
	}
	n.opens++
	return &dir{fs: f, gen: f.gen, node: n, path: p}, nil
}

// resolve finds the directory at a trusted path.
func (f *FS) resolve(p string) (*inode, error) {
	if !path.IsAbs(p) {
		return nil, syscall.EINVAL
	}
	n, links := f.root, 0
	for rest := strings.Split(p, "/"); len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			n = n.parent
			continue
		}
		c, err := n.lookup(name)
		if err != nil {
			return nil, err
		}
		if c.kind == vfs.KindSymlink {
			if links++; links > 40 {
				return nil, syscall.ELOOP
			}
			if path.IsAbs(c.target) {
				n = f.root
			}
			rest = append(strings.Split(c.target, "/"), rest...)
			continue
		}
		if c.kind != vfs.KindDir {
			return nil, syscall.ENOTDIR
		}
		n = c
	}
	return n, nil
}

// drop lets go of a name or a handle. The inode itself stays in f.nodes: a
// power cut may bring its name back.
func (f *FS) drop(n *inode) {
	if n.kind == vfs.KindFile && n.nlink == 0 && n.opens == 0 {
		f.used -= int64(len(n.data))
	}
}

// Kill is the death of the process without a power cut: every handle becomes
// useless, everything written stays, durable or not.
func (f *FS) Kill() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gen++
	for _, n := range f.nodes {
		if n.opens > 0 {
			n.opens = 0
			f.drop(n)
		}
	}
}
