package faultfs

import (
	"io"

	"github.com/aspengine/asp/internal/vfs"
)

// file wraps a file handle.
type file struct {
	fs    *FS
	under vfs.File
	path  string
}

// fileDescriptor adds vfs.Descriptor where the handle below has it.
type fileDescriptor struct {
	*file
	vfs.Descriptor
}

func (h *file) do(op Op, run func() error) error {
	return h.fs.do(Event{Op: op, Path: h.path}, func(Fault) error { return run() })
}

func (h *file) Read(p []byte) (n int, err error) {
	err = h.do(Read, func() (err error) { n, err = h.under.Read(p); return })
	if err != nil && err != io.EOF {
		n = 0
	}
	return n, err
}

func (h *file) ReadAt(p []byte, off int64) (n int, err error) {
	err = h.do(Read, func() (err error) { n, err = h.under.ReadAt(p, off); return })
	if err != nil && err != io.EOF {
		n = 0
	}
	return n, err
}

// Write may put down a part before it fails.
func (h *file) Write(p []byte) (n int, err error) {
	err = h.fs.do(Event{Op: Write, Path: h.path, Size: int64(len(p))}, func(f Fault) (err error) {
		b := p
		if f.Short > 0 {
			b = p[:min(f.Short, len(p))]
		}
		n, err = h.under.Write(b)
		return err
	})
	return n, err
}

// WriteAt is as Write.
func (h *file) WriteAt(p []byte, off int64) (n int, err error) {
	err = h.fs.do(Event{Op: Write, Path: h.path, Size: int64(len(p))}, func(f Fault) (err error) {
		b := p
		if f.Short > 0 {
			b = p[:min(f.Short, len(p))]
		}
		n, err = h.under.WriteAt(b, off)
		return err
	})
	return n, err
}

// ReadFrom counts as one write, however the bytes come.
func (h *file) ReadFrom(r io.Reader) (n int64, err error) {
	err = h.fs.do(Event{Op: Write, Path: h.path, Size: -1}, func(f Fault) (err error) {
		r := r
		if f.Short > 0 {
			r = io.LimitReader(r, int64(f.Short))
		}
		if to, ok := h.under.(io.ReaderFrom); ok {
			n, err = to.ReadFrom(r)
		} else {
			n, err = io.Copy(struct{ io.Writer }{h.under}, r)
		}
		return err
	})
	return n, err
}

func (h *file) Stat() (s vfs.Stat, err error) {
	err = h.do(Stat, func() (err error) { s, err = h.under.Stat(); return })
	return s, err
}

func (h *file) Truncate(size int64) error {
	return h.fs.do(Event{Op: Truncate, Path: h.path, Size: size}, func(Fault) error { return h.under.Truncate(size) })
}

func (h *file) Chmod(perm uint32) error {
	return h.do(Chmod, func() error { return h.under.Chmod(perm) })
}

func (h *file) Chown(uid, gid uint32) error {
	return h.do(Chown, func() error { return h.under.Chown(uid, gid) })
}

func (h *file) SetMtime(ns int64) error {
	return h.do(SetMtime, func() error { return h.under.SetMtime(ns) })
}

func (h *file) Xattrs() (x map[string][]byte, err error) {
	err = h.do(Xattrs, func() (err error) { x, err = h.under.Xattrs(); return })
	return x, err
}

func (h *file) SetXattr(name string, value []byte) error {
	return h.do(SetXattr, func() error { return h.under.SetXattr(name, value) })
}

func (h *file) Sync() error { return h.do(Sync, h.under.Sync) }

func (h *file) StartWriteback() error { return h.do(Writeback, h.under.StartWriteback) }

// Close lets go of the handle below whatever else happens.
func (h *file) Close() error { return h.fs.close(Event{Op: Close, Path: h.path}, h.under) }
