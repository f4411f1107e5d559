package memfs

import (
	"io"
	"io/fs"
	"strings"
	"syscall"

	"github.com/aspengine/asp/internal/vfs"
)

// file is a handle on a regular file; all its fields but path and writable are
// guarded by fs.mu.
type file struct {
	fs       *FS
	gen      int
	node     *inode
	path     string // for messages only
	off      int64
	writable bool
	closed   bool
}

func (h *file) do(op string, f func() error) error {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	var err error = fs.ErrClosed
	if !h.closed && h.gen == h.fs.gen {
		err = f()
	}
	if err != nil && err != io.EOF {
		err = &fs.PathError{Op: op, Path: h.path, Err: err}
	}
	return err
}

func (h *file) readAt(p []byte, off int64) (int, error) {
	if off >= int64(len(h.node.data)) {
		return 0, io.EOF
	}
	return copy(p, h.node.data[off:]), nil
}

func (h *file) Read(p []byte) (n int, err error) {
	err = h.do("read", func() error {
		if len(p) == 0 {
			return nil
		}
		n, err = h.readAt(p, h.off)
		h.off += int64(n)
		return err
	})
	return n, err
}

func (h *file) ReadAt(p []byte, off int64) (n int, err error) {
	err = h.do("read", func() error {
		if off < 0 {
			return syscall.EINVAL
		}
		if len(p) == 0 {
			return nil
		}
		if n, err = h.readAt(p, off); err == nil && n < len(p) {
			err = io.EOF
		}
		return err
	})
	return n, err
}

// Write writes what fits under the limit and then fails with ENOSPC.
func (h *file) Write(p []byte) (n int, err error) {
	err = h.do("write", func() (err error) {
		n, err = h.writeAt(p, h.off)
		h.off += int64(n)
		return err
	})
	return n, err
}

func (h *file) WriteAt(p []byte, off int64) (n int, err error) {
	err = h.do("write", func() (err error) {
		if off < 0 {
			return syscall.EINVAL
		}
		n, err = h.writeAt(p, off)
		return err
	})
	return n, err
}

func (h *file) writeAt(p []byte, off int64) (n int, full error) {
	if len(p) == 0 {
		return 0, nil
	}
	if !h.writable {
		return 0, syscall.EBADF
	}
	f := h.fs
	b := p
	if grows := off + int64(len(p)) - int64(len(h.node.data)); f.opt.Limit > 0 && grows > 0 {
		if over := f.used + grows - f.opt.Limit; over > 0 {
			full = syscall.ENOSPC
			b = p[:max(0, int64(len(p))-over)]
		}
	}
	if n = len(b); n > 0 {
		was := len(h.node.data)
		h.node.write(off, b)
		f.used += int64(len(h.node.data) - was)
		h.node.mtime = f.tick()
		h.node.ctime = f.clock
	}
	return n, full
}

func (h *file) Stat() (s vfs.Stat, err error) {
	err = h.do("stat", func() error { s = h.node.stat(); return nil })
	return s, err
}

func (h *file) Truncate(size int64) error {
	return h.do("truncate", func() error {
		if size < 0 || !h.writable {
			return syscall.EINVAL
		}
		was := len(h.node.data)
		h.node.truncate(size)
		h.fs.used += int64(len(h.node.data) - was)
		h.node.mtime = h.fs.tick()
		h.node.ctime = h.fs.clock
		return nil
	})
}

// attr changes attributes and logs it.
func (h *file) attr(op string, f func(n *inode) error) error {
	return h.do(op, func() error {
		if err := f(h.node); err != nil {
			return err
		}
		h.node.ctime = h.fs.tick()
		h.fs.logs[h.node.dev].add(plain, nil, h.node)
		return nil
	})
}

func (h *file) Chmod(perm uint32) error {
	return h.attr("chmod", func(n *inode) error { n.perm = perm & 0o7777; return nil })
}

// Chown takes the setuid bit away, and setgid where the group may execute, as
// the kernel does of every caller.
func (h *file) Chown(uid, gid uint32) error {
	return h.attr("chown", func(n *inode) error {
		const keep = ^uint32(0)
		if uid != keep {
			n.uid = uid
		}
		if gid != keep {
			n.gid = gid
		}
		n.perm &^= 0o4000
		if n.perm&0o010 != 0 {
			n.perm &^= 0o2000
		}
		return nil
	})
}

func (h *file) SetMtime(ns int64) error {
	return h.attr("set time of", func(n *inode) error { n.mtime = ns; return nil })
}

func (h *file) Xattrs() (out map[string][]byte, err error) {
	err = h.do("list attributes of", func() error {
		for k, v := range h.node.xattrs {
			if out == nil {
				out = make(map[string][]byte)
			}
			out[k] = []byte(v)
		}
		return nil
	})
	return out, err
}

func (h *file) SetXattr(name string, value []byte) error {
	return h.attr("set attribute of", func(n *inode) error {
		space, rest, _ := strings.Cut(name, ".")
		switch space {
		case "user", "trusted", "security", "system":
		default:
			return syscall.EOPNOTSUPP
		}
		if rest == "" {
			return syscall.EINVAL
		}
		if n.xattrs == nil {
			n.xattrs = make(map[string]string)
		}
		n.xattrs[name] = string(value)
		return nil
	})
}

func (h *file) Sync() error {
	return h.do("sync", func() error { h.node.sync(); return nil })
}

func (h *file) StartWriteback() error {
	return h.do("start writeback of", func() error { return nil })
}

func (h *file) Close() error {
	return h.do("close", func() error {
		h.closed = true
		h.node.opens--
		h.fs.drop(h.node)
		return nil
	})
}
