package memfs

import (
	"path"
	"strings"
	"syscall"

	"github.com/aspengine/asp/internal/vfs"
)

// Entry is one thing in a Tree. Of a Dir only Perm counts.
type Entry struct {
	Kind   vfs.Kind
	Perm   uint32
	Data   string // of a file
	Target string // of a link
	Xattrs map[string]string
}

// Tree is a directory's whole content by slash-separated relative path. It may
// be compared with ==-like deep equality.
type Tree map[string]Entry

// Text is a file with permissions 0644.
func Text(data string) Entry { return Entry{Kind: vfs.KindFile, Perm: 0o644, Data: data} }

// Exec is a file with permissions 0755.
func Exec(data string) Entry { return Entry{Kind: vfs.KindFile, Perm: 0o755, Data: data} }

// Folder is a directory with permissions 0755.
func Folder() Entry { return Entry{Kind: vfs.KindDir, Perm: 0o755} }

// Symlink is a link to target.
func Symlink(target string) Entry {
	return Entry{Kind: vfs.KindSymlink, Perm: 0o777, Target: target}
}

// FIFO is a thing that is no file, directory or link.
func FIFO() Entry { return Entry{Kind: vfs.KindOther, Perm: 0o644} }

// Put makes everything in t below the directory at the absolute path at, with
// the exact permissions given; missing directories get 0755. A file or link
// that is already there is replaced by a new inode, a directory keeps its
// content. All of the file system is durable afterwards. Put is for setting up
// a test: it fails only for a tree that contradicts itself or what is there.
func (f *FS) Put(at string, t Tree) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.rebase()
	for _, p := range sortedKeys(t) {
		if err := vfs.CheckPath(p); err != nil {
			return err
		}
		if err := f.put(strings.Split(strings.Trim(path.Join(at, p), "/"), "/"), t[p]); err != nil {
			return err
		}
	}
	return nil
}

func (f *FS) put(names []string, e Entry) error {
	d := &dir{fs: f, gen: f.gen, node: f.root}
	for _, name := range names[:len(names)-1] {
		n := d.node.entries[name]
		if n == nil {
			var err error
			if n, err = d.make(name, vfs.KindDir, 0o755, nil); err != nil {
				return err
			}
		}
		if n.kind != vfs.KindDir {
			return syscall.ENOTDIR
		}
		d = &dir{fs: f, gen: f.gen, node: n}
	}
	name := names[len(names)-1]
	old := d.node.entries[name]
	if old != nil && old.kind == vfs.KindDir {
		if e.Kind != vfs.KindDir {
			return syscall.EISDIR
		}
		old.perm = e.Perm
		f.logs[old.dev].add(plain, nil, old)
		return nil
	}
	if old != nil {
		f.tick()
		f.unlink(d.node, name, old)
		f.logs[d.node.dev].add(plain, []entryChange{{slot{d.node.ino, name}, 0}}, old)
	}
	_, err := d.make(name, e.Kind, e.Perm, func(n *inode) {
		n.target = e.Target
		for k, v := range e.Xattrs {
			if n.xattrs == nil {
				n.xattrs = make(map[string]string)
			}
			n.xattrs[k] = v
		}
		if e.Kind == vfs.KindFile {
			n.write(0, []byte(e.Data))
			f.used += int64(len(e.Data))
		}
	})
	return err
}

// Dump returns everything below the directory at the absolute path at, nil if
// there is no such directory.
func (f *FS) Dump(at string) Tree {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.resolve(at)
	if err != nil {
		return nil
	}
	t := make(Tree)
	n.dump("", t)
	return t
}

func (n *inode) dump(prefix string, t Tree) {
	for name, c := range n.entries {
		e := Entry{Kind: c.kind, Perm: c.perm, Target: c.target, Data: string(c.data), Xattrs: c.attrs.clone().xattrs}
		t[prefix+name] = e
		c.dump(prefix+name+"/", t)
	}
}

// Mount turns the empty directory at the absolute path into the root of another
// file system of its own device and mount number: no rename or link crosses
// into it, and a SyncFS on one side leaves the other alone. Everything is
// durable afterwards, the mount included.
func (f *FS) Mount(at string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.resolve(at)
	switch {
	case err != nil:
		return err
	case n == f.root || n.parent.dev != n.dev:
		return syscall.EBUSY
	case len(n.entries) > 0:
		return syscall.ENOTEMPTY
	}
	for dev := range f.logs {
		n.dev = max(n.dev, dev+1)
	}
	f.rebase()
	return nil
}
