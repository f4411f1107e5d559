package memfs

import (
	"errors"
	"syscall"

	"github.com/aspengine/asp/internal/vfs"
)

// Rename checks in the order in which the kernel does, so that a name with two
// things wrong gives the same error.
func (d *dir) Rename(name string, to vfs.Dir, toName string, mode vfs.RenameMode) error {
	return d.between("rename", name, to, toName, func(t *dir) error {
		if mode != vfs.NoReplace && mode != vfs.Exchange && mode != vfs.Replace {
			return syscall.EINVAL
		}
		if err := errors.Join(vfs.CheckName(name), vfs.CheckName(toName)); err != nil {
			return syscall.EINVAL
		}
		if mode == vfs.Exchange && d.fs.opt.NoExchange {
			return syscall.ENOTSUP
		}
		if d.node.dev != t.node.dev {
			return syscall.EXDEV
		}
		n, err := d.present(name)
		if err != nil {
			return err
		}
		dest, err := t.node.lookup(toName)
		switch {
		case err == syscall.ENOENT && mode == vfs.Exchange, err != nil && err != syscall.ENOENT:
			return err
		case err == nil && mode == vfs.NoReplace:
			return syscall.EEXIST
		case t.node.parent == nil:
			return syscall.ENOENT
		case n.holds(t.node):
			return syscall.EINVAL
		case dest != nil && dest.holds(d.node):
			if mode == vfs.Exchange {
				return syscall.EINVAL
			}
			return syscall.ENOTEMPTY
		case n == dest:
			return nil // two names of one inode: nothing happens
		case n.dev != d.node.dev, dest != nil && dest.dev != d.node.dev:
			return syscall.EBUSY // the root of a mount
		}
		if mode == vfs.Exchange {
			d.fs.exchange(slot{d.node.ino, name}, d.node, n, slot{t.node.ino, toName}, t.node, dest)
			return nil
		}
		if dest != nil {
			switch {
			case n.kind == vfs.KindDir && dest.kind != vfs.KindDir:
				return syscall.ENOTDIR
			case n.kind != vfs.KindDir && dest.kind == vfs.KindDir:
				return syscall.EISDIR
			case dest.kind == vfs.KindDir && len(dest.entries) > 0:
				return syscall.ENOTEMPTY
			}
		}
		d.fs.move(d.node, name, n, t.node, toName, dest)
		return nil
	})
}

// holds tells whether directory n is at or above m.
func (n *inode) holds(m *inode) bool {
	for n.kind == vfs.KindDir && m != nil {
		if m == n {
			return true
		}
		if m.parent == m {
			return false
		}
		m = m.parent
	}
	return false
}

func (f *FS) move(from *inode, name string, n *inode, to *inode, toName string, dest *inode) {
	f.tick()
	nodes := []*inode{n}
	how := plain
	if dest != nil {
		nodes = append(nodes, dest)
		if dest.kind == vfs.KindDir {
			f.rmdir(to, toName, dest)
		} else {
			f.unlink(to, toName, dest)
		}
	}
	delete(from.entries, name)
	to.entries[toName] = n
	n.ctime = f.clock
	if n.kind == vfs.KindDir {
		from.nlink--
		to.nlink++
		n.parent = to
		how = movesDir
	}
	f.touch(from)
	f.touch(to)
	f.logs[from.dev].add(how, []entryChange{{slot{from.ino, name}, 0}, {slot{to.ino, toName}, n.ino}}, nodes...)
}

func (f *FS) exchange(as slot, ad, a *inode, bs slot, bd, b *inode) {
	f.tick()
	ad.entries[as.name], bd.entries[bs.name] = b, a
	how := plain
	for _, m := range []struct{ n, from, to *inode }{{a, ad, bd}, {b, bd, ad}} {
		m.n.ctime = f.clock
		if m.n.kind == vfs.KindDir {
			m.from.nlink--
			m.to.nlink++
			m.n.parent = m.to
			how = movesDir
		}
	}
	f.touch(ad)
	f.touch(bd)
	f.logs[ad.dev].add(how, []entryChange{{as, b.ino}, {bs, a.ino}}, a, b)
}
