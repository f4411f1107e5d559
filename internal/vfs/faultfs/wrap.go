package faultfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/aspengine/asp/internal/vfs"
)

// do numbers and records one operation and does it, as the injector says.
func (f *FS) do(e Event, run func(Fault) error) error {
	i, fault, err := f.start(&e)
	if err != nil {
		return wrap(e, err)
	}
	short := e.Op == Write && fault.Short > 0
	if fault.Death == DiesBefore && !short {
		return f.end(i, wrap(e, ErrDied))
	}
	if fault.Err != nil && fault.Death == Lives && !short {
		return f.end(i, wrap(e, fault.Err))
	}
	err = run(fault)
	switch {
	case fault.Death != Lives:
		err = wrap(e, ErrDied)
	case fault.Err != nil && err == nil:
		err = wrap(e, fault.Err)
	}
	return f.end(i, err)
}

// start numbers an operation and asks the injector. Both happen under one lock,
// so that an injector sees the operations in the order of their numbers.
func (f *FS) start(e *Event) (int, Fault, error) {
	f.decide.Lock()
	defer f.decide.Unlock()
	f.mu.Lock()
	if f.dead {
		f.mu.Unlock()
		return 0, Fault{}, ErrDied
	}
	e.N = len(f.events) + 1
	if e.Op.Mutating() {
		f.mutations++
		e.M = f.mutations
	}
	f.events = append(f.events, *e)
	f.mu.Unlock()
	var fault Fault
	if f.inject != nil {
		fault = f.inject(*e)
	}
	if fault.Death != Lives {
		f.mu.Lock()
		f.dead = true // from here on, whatever starts fails
		f.mu.Unlock()
	}
	return e.N - 1, fault, nil
}

func (f *FS) end(i int, err error) error {
	if err != nil && err != io.EOF {
		f.mu.Lock()
		f.events[i].Err = err
		f.mu.Unlock()
	}
	return err
}

// wrap dresses an injected error as the layers below do.
func wrap(e Event, err error) error {
	switch e.Op {
	case Link, NoReplace, Exchange, Replace:
		return &os.LinkError{Op: e.Op.String(), Old: e.Path, New: e.To, Err: err}
	}
	return &fs.PathError{Op: e.Op.String(), Path: e.Path, Err: err}
}

// dir wraps a directory handle.
type dir struct {
	fs    *FS
	under vfs.Dir
	label string
	path  string
}

// descriptor adds vfs.Descriptor where the handle below has it.
type descriptor struct {
	*dir
	vfs.Descriptor
}

type wrapped interface{ unwrap() *dir }

func (d *dir) unwrap() *dir { return d }

func (f *FS) wrapDir(under vfs.Dir, label, path string) vfs.Dir {
	d := &dir{fs: f, under: under, label: label, path: path}
	if fd, ok := under.(vfs.Descriptor); ok {
		return descriptor{d, fd}
	}
	return d
}

func (d *dir) join(name string) string {
	switch {
	case name == "" || name == ".":
		return d.path
	case d.path == ".":
		return name
	}
	return d.path + "/" + name
}

func (d *dir) event(op Op, name string) Event {
	return Event{Op: op, Path: d.label + d.join(name)}
}

func (d *dir) Lstat(path string) (s vfs.Stat, err error) {
	err = d.fs.do(d.event(Lstat, path), func(Fault) (err error) { s, err = d.under.Lstat(path); return })
	return s, err
}

func (d *dir) Stat() (s vfs.Stat, err error) {
	err = d.fs.do(d.event(Stat, ""), func(Fault) (err error) { s, err = d.under.Stat(); return })
	return s, err
}

func (d *dir) OpenDir(path string) (vfs.Dir, error) {
	var sub vfs.Dir
	err := d.fs.do(d.event(OpenDir, path), func(Fault) (err error) { sub, err = d.under.OpenDir(path); return })
	if err != nil {
		return nil, d.release(sub, err)
	}
	return d.fs.wrapDir(sub, d.label, d.join(path)), nil
}

// release closes a handle that was opened by an operation whose result nobody
// gets, as the end of the process would.
func (d *dir) release(h io.Closer, err error) error {
	if h != nil {
		_ = h.Close()
	}
	return err
}

func (d *dir) Open(name string) (vfs.File, error) { return d.file(Open, name, d.under.Open) }

func (d *dir) Create(name string, perm uint32) (vfs.File, error) {
	return d.file(Create, name, func(name string) (vfs.File, error) { return d.under.Create(name, perm) })
}

func (d *dir) file(op Op, name string, open func(string) (vfs.File, error)) (vfs.File, error) {
	var under vfs.File
	e := d.event(op, name)
	err := d.fs.do(e, func(Fault) (err error) { under, err = open(name); return })
	if err != nil {
		return nil, d.release(under, err)
	}
	h := &file{fs: d.fs, under: under, path: e.Path}
	if fd, ok := under.(vfs.Descriptor); ok {
		return fileDescriptor{h, fd}, nil
	}
	return h, nil
}

func (d *dir) Mkdir(name string, perm uint32) error {
	return d.fs.do(d.event(Mkdir, name), func(Fault) error { return d.under.Mkdir(name, perm) })
}

func (d *dir) Symlink(target, name string) error {
	e := d.event(Symlink, name)
	e.To = target
	return d.fs.do(e, func(Fault) error { return d.under.Symlink(target, name) })
}

func (d *dir) Readlink(name string) (target string, err error) {
	err = d.fs.do(d.event(Readlink, name), func(Fault) (err error) { target, err = d.under.Readlink(name); return })
	return target, err
}

func (d *dir) between(op Op, name string, to vfs.Dir, toName string, run func(to vfs.Dir) error) error {
	e := d.event(op, name)
	w, ok := to.(wrapped)
	if !ok || w.unwrap().fs != d.fs {
		return &os.LinkError{Op: op.String(), Old: e.Path, New: toName, Err: syscall.EXDEV}
	}
	t := w.unwrap()
	e.To = t.label + t.join(toName)
	return d.fs.do(e, func(Fault) error { return run(t.under) })
}

func (d *dir) Link(name string, to vfs.Dir, toName string) error {
	return d.between(Link, name, to, toName, func(to vfs.Dir) error { return d.under.Link(name, to, toName) })
}

func (d *dir) Rename(name string, to vfs.Dir, toName string, mode vfs.RenameMode) error {
	op := map[vfs.RenameMode]Op{vfs.NoReplace: NoReplace, vfs.Exchange: Exchange, vfs.Replace: Replace}[mode]
	return d.between(op, name, to, toName, func(to vfs.Dir) error { return d.under.Rename(name, to, toName, mode) })
}

func (d *dir) Unlink(name string) error {
	return d.fs.do(d.event(Unlink, name), func(Fault) error { return d.under.Unlink(name) })
}

func (d *dir) Rmdir(name string) error {
	return d.fs.do(d.event(Rmdir, name), func(Fault) error { return d.under.Rmdir(name) })
}

func (d *dir) List() (out []vfs.DirEntry, err error) {
	err = d.fs.do(d.event(List, ""), func(Fault) (err error) { out, err = d.under.List(); return })
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (d *dir) Chown(uid, gid uint32) error {
	return d.fs.do(d.event(ChmodDir, ""), func(Fault) error { return d.under.Chown(uid, gid) })
}

func (d *dir) Chmod(perm uint32) error {
	return d.fs.do(d.event(ChmodDir, ""), func(Fault) error { return d.under.Chmod(perm) })
}

func (d *dir) Sync() error {
	return d.fs.do(d.event(SyncDir, ""), func(Fault) error { return d.under.Sync() })
}

func (d *dir) SyncFS() error {
	return d.fs.do(d.event(SyncFS, ""), func(Fault) error { return d.under.SyncFS() })
}

// Close lets go of the handle below whatever else happens: a descriptor goes
// with its process, and a failed close has closed all the same.
func (d *dir) Close() error { return d.fs.close(d.event(CloseDir, ""), d.under) }

func (f *FS) close(e Event, under io.Closer) error {
	var err error
	done := false
	rerr := f.do(e, func(Fault) error { done = true; err = under.Close(); return err })
	if !done {
		if cerr := under.Close(); errors.Is(cerr, fs.ErrClosed) {
			return cerr
		}
	}
	return rerr
}
