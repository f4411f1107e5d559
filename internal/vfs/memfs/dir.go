package memfs

import (
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/aspengine/asp/internal/vfs"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// dir is a handle on a directory; all its fields but path are guarded by fs.mu.
type dir struct {
	fs     *FS
	gen    int
	node   *inode
	path   string // for messages only
	closed bool
}

func (d *dir) error(op, name string, err error) error {
	if err == nil {
		return nil
	}
	p := d.path
	if name != "" {
		p += "/" + name
	}
	return &fs.PathError{Op: op, Path: p, Err: err}
}

func (d *dir) alive() error {
	if d.closed || d.gen != d.fs.gen {
		return fs.ErrClosed
	}
	return nil
}

// do runs f under the lock on an open handle.
func (d *dir) do(op, name string, f func() error) error {
	d.fs.mu.Lock()
	defer d.fs.mu.Unlock()
	err := d.alive()
	if err == nil {
		err = f()
	}
	return d.error(op, name, err)
}

// absent checks that name can be made in the directory.
func (d *dir) absent(name string) error {
	if err := vfs.CheckName(name); err != nil {
		return err
	}
	_, err := d.node.lookup(name)
	switch {
	case err == nil:
		return syscall.EEXIST
	case err != syscall.ENOENT:
		return err
	case d.node.parent == nil:
		return syscall.ENOENT // removed directory
	}
	return nil
}

// present finds an existing name.
func (d *dir) present(name string) (*inode, error) {
	if err := vfs.CheckName(name); err != nil {
		return nil, err
	}
	return d.node.lookup(name)
}

// touch notes that the names in n changed.
func (f *FS) touch(n *inode) { n.mtime, n.ctime = f.clock, f.clock }

// make puts a new inode under an absent name.
func (d *dir) make(name string, kind vfs.Kind, perm uint32, more func(*inode)) (*inode, error) {
	if err := d.absent(name); err != nil {
		return nil, err
	}
	f := d.fs
	f.tick()
	n := f.newInode(kind, perm, d.node.dev)
	n.nlink = 1
	how := plain
	if kind == vfs.KindDir {
		n.nlink, n.parent, how = 2, d.node, makesDir
		d.node.nlink++
	}
	if more != nil {
		more(n)
	}
	d.node.entries[name] = n
	f.touch(d.node)
	f.logs[d.node.dev].add(how, []entryChange{{slot{d.node.ino, name}, n.ino}}, n)
	return n, nil
}

func (d *dir) Lstat(path string) (s vfs.Stat, err error) {
	err = d.do("lstat", path, func() error {
		if err := vfs.CheckPath(path); err != nil {
			return err
		}
		n, err := d.node.walk(path)
		if err == nil {
			s = n.stat()
		}
		return err
	})
	return s, err
}

func (d *dir) Stat() (s vfs.Stat, err error) {
	err = d.do("stat", "", func() error { s = d.node.stat(); return nil })
	return s, err
}

func (d *dir) OpenDir(path string) (out vfs.Dir, err error) {
	err = d.do("open directory", path, func() error {
		if err := vfs.CheckPath(path); err != nil {
			return err
		}
		n, err := d.node.walk(path)
		switch {
		case err != nil:
			return err
		case n.kind == vfs.KindSymlink:
			return syscall.ELOOP
		case n.kind != vfs.KindDir:
			return syscall.ENOTDIR
		}
		full := d.path
		if path != "." {
			full += "/" + path
		}
		n.opens++
		out = &dir{fs: d.fs, gen: d.gen, node: n, path: full}
		return nil
	})
	return out, err
}

func (d *dir) Open(name string) (out vfs.File, err error) {
	err = d.do("open", name, func() error {
		n, err := d.present(name)
		switch {
		case err != nil:
			return err
		case n.kind == vfs.KindSymlink:
			return syscall.ELOOP
		case n.kind != vfs.KindFile:
			return syscall.EINVAL
		}
		n.opens++
		out = &file{fs: d.fs, gen: d.gen, node: n, path: d.path + "/" + name}
		return nil
	})
	return out, err
}

func (d *dir) Create(name string, perm uint32) (out vfs.File, err error) {
	err = d.do("create", name, func() error {
		n, err := d.make(name, vfs.KindFile, perm&0o7777&^d.fs.opt.Umask, nil)
		if err != nil {
			return err
		}
		n.opens++
		out = &file{fs: d.fs, gen: d.gen, node: n, path: d.path + "/" + name, writable: true}
		return nil
	})
	return out, err
}

func (d *dir) Mkdir(name string, perm uint32) error {
	return d.do("mkdir", name, func() error {
		_, err := d.make(name, vfs.KindDir, perm&0o1777&^d.fs.opt.Umask, nil)
		return err
	})
}

func (d *dir) Symlink(target, name string) error {
	return d.do("symlink", name, func() error {
		switch {
		case strings.Contains(target, "\x00"):
			return syscall.EINVAL
		case target == "":
			return syscall.ENOENT
		case len(target) >= pathMax:
			return syscall.ENAMETOOLONG
		}
		_, err := d.make(name, vfs.KindSymlink, 0o777, func(n *inode) { n.target = target })
		return err
	})
}

func (d *dir) Readlink(name string) (target string, err error) {
	err = d.do("readlink", name, func() error {
		n, err := d.present(name)
		if err != nil {
			return err
		}
		if n.kind != vfs.KindSymlink {
			return syscall.EINVAL
		}
		target = n.target
		return nil
	})
	return target, err
}

func (d *dir) Unlink(name string) error {
	return d.do("unlink", name, func() error {
		n, err := d.present(name)
		if err != nil {
			return err
		}
		if n.kind == vfs.KindDir {
			return syscall.EISDIR
		}
		d.fs.tick()
		d.fs.unlink(d.node, name, n)
		d.fs.logs[d.node.dev].add(plain, []entryChange{{slot{d.node.ino, name}, 0}}, n)
		return nil
	})
}

// unlink takes the name of a non-directory away.
func (f *FS) unlink(in *inode, name string, n *inode) {
	delete(in.entries, name)
	f.touch(in)
	n.nlink--
	n.ctime = f.clock
	f.drop(n)
}

func (d *dir) Rmdir(name string) error {
	return d.do("rmdir", name, func() error {
		n, err := d.present(name)
		switch {
		case err != nil:
			return err
		case n.kind != vfs.KindDir:
			return syscall.ENOTDIR
		case len(n.entries) > 0:
			return syscall.ENOTEMPTY
		case n.dev != d.node.dev:
			return syscall.EBUSY
		}
		d.fs.tick()
		d.fs.rmdir(d.node, name, n)
		d.fs.logs[d.node.dev].add(plain, []entryChange{{slot{d.node.ino, name}, 0}}, n)
		return nil
	})
}

func (f *FS) rmdir(in *inode, name string, n *inode) {
	delete(in.entries, name)
	f.touch(in)
	in.nlink--
	n.parent, n.nlink, n.ctime = nil, 0, f.clock
}

func (d *dir) List() (out []vfs.DirEntry, err error) {
	err = d.do("list", "", func() error {
		if d.node.parent == nil {
			return syscall.ENOENT
		}
		for name, n := range d.node.entries { // in the random order of maps: nobody may rely on one
			out = append(out, vfs.DirEntry{Name: name, Kind: n.kind, Ino: n.ino})
		}
		return nil
	})
	return out, err
}

func (d *dir) Chmod(perm uint32) error {
	return d.do("chmod", "", func() error {
		d.node.perm = perm & 0o7777
		d.node.ctime = d.fs.tick()
		d.fs.logs[d.node.dev].add(plain, nil, d.node)
		return nil
	})
}

func (d *dir) Chown(uid, gid uint32) error {
	return d.do("chown", "", func() error {
		const keep = ^uint32(0)
		if uid != keep {
			d.node.uid = uid
		}
		if gid != keep {
			d.node.gid = gid
		}
		d.node.ctime = d.fs.tick()
		d.fs.logs[d.node.dev].add(plain, nil, d.node)
		return nil
	})
}

func (d *dir) Sync() error {
	return d.do("sync directory", "", func() error { d.fs.logs[d.node.dev].syncDir(d.node.ino); return nil })
}

func (d *dir) SyncFS() error {
	return d.do("sync file system", "", func() error { d.fs.syncDevice(d.node.dev); return nil })
}

func (f *FS) syncDevice(dev uint64) {
	f.logs[dev].syncAll()
	for _, n := range f.nodes {
		if n.dev == dev {
			n.sync()
		}
	}
}

func (d *dir) Close() error {
	return d.do("close", "", func() error { d.closed = true; d.node.opens--; return nil })
}

func (d *dir) between(op, name string, to vfs.Dir, toName string, f func(t *dir) error) error {
	t, ok := to.(*dir)
	if !ok || t.fs != d.fs {
		return &os.LinkError{Op: op, Old: d.path + "/" + name, New: toName, Err: syscall.EXDEV}
	}
	d.fs.mu.Lock()
	defer d.fs.mu.Unlock()
	err := d.alive()
	if err == nil {
		err = t.alive()
	}
	if err == nil {
		err = f(t)
	}
	if err != nil {
		return &os.LinkError{Op: op, Old: d.path + "/" + name, New: t.path + "/" + toName, Err: err}
	}
	return nil
}

func (d *dir) Link(name string, to vfs.Dir, toName string) error {
	return d.between("link", name, to, toName, func(t *dir) error {
		n, err := d.present(name)
		if err != nil {
			return err
		}
		if err := t.absent(toName); err != nil {
			return err
		}
		if d.node.dev != t.node.dev {
			return syscall.EXDEV
		}
		if n.kind == vfs.KindDir {
			return syscall.EPERM
		}
		d.fs.tick()
		t.node.entries[toName] = n
		n.nlink++
		n.ctime = d.fs.clock
		d.fs.touch(t.node)
		d.fs.logs[t.node.dev].add(plain, []entryChange{{slot{t.node.ino, toName}, n.ino}}, n)
		return nil
	})
}
