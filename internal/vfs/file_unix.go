//go:build linux || darwin

package vfs

import (
	"io"
	"io/fs"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// osFile is a descriptor of a regular file. dir and name are for messages only.
type osFile struct {
	handle
	dir, name string
	seen      atomic.Pointer[Stat] // by Open, until the first Stat
}

func newFile(fd int, dir, name string) *osFile {
	f := &osFile{dir: dir, name: name}
	f.fd = fd
	return f
}

// do runs one system call, repeated while interrupted.
func (f *osFile) do(op string, call func(fd int) error) error {
	fd, err := f.use()
	if err == nil {
		err = retry(func() error { return call(fd) })
		_ = f.release() // an error of a close that had to wait for us is nobody's
	}
	if err != nil {
		return &fs.PathError{Op: op, Path: f.dir + "/" + f.name, Err: err}
	}
	return nil
}

func (f *osFile) Read(p []byte) (n int, err error) {
	if len(p) == 0 {
		return 0, nil
	}
	err = f.do("read", func(fd int) (err error) { n, err = unix.Read(fd, p); return })
	if err != nil {
		return 0, err
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

func (f *osFile) ReadAt(p []byte, off int64) (int, error) {
	return f.all("read", p, io.EOF, func(fd, done int) (int, error) { return unix.Pread(fd, p[done:], off+int64(done)) })
}

func (f *osFile) Write(p []byte) (int, error) {
	return f.all("write", p, io.ErrShortWrite, func(fd, done int) (int, error) { return unix.Write(fd, p[done:]) })
}

func (f *osFile) WriteAt(p []byte, off int64) (int, error) {
	return f.all("write", p, io.ErrShortWrite, func(fd, done int) (int, error) { return unix.Pwrite(fd, p[done:], off+int64(done)) })
}

// all calls move, which is told how much of p is through, until all of it is. none is
// what it means when nothing moves.
func (f *osFile) all(what string, p []byte, none error, move func(fd, done int) (int, error)) (int, error) {
	done := 0
	for done < len(p) {
		var n int
		err := f.do(what, func(fd int) (err error) { n, err = move(fd, done); return })
		if err != nil {
			return done, err
		}
		if n == 0 {
			return done, none
		}
		done += n
	}
	return done, nil
}

// ReadFrom copies all of r, inside the kernel where r is a file: such a copy
// shares blocks on file systems that can (xfs, btrfs).
func (f *osFile) ReadFrom(r io.Reader) (int64, error) {
	src, limit := r, int64(-1)
	lr, limited := r.(*io.LimitedReader)
	if limited {
		src, limit = lr.R, max(lr.N, 0)
	}
	done, err := f.copyRange(src, limit)
	if limited {
		lr.N -= done
	}
	if err != nil {
		return done, err
	}
	// Whatever is left, if only the end of the file: files of /proc end at once
	// for copy_file_range and have content all the same. The wrapper hides this
	// method from io.Copy.
	n, err := io.Copy(struct{ io.Writer }{f}, r)
	return done + n, err
}

func (f *osFile) Stat() (s Stat, err error) {
	// Open had to look anyway; whoever asks right after it gets that answer.
	if p := f.seen.Swap(nil); p != nil {
		return *p, nil
	}
	err = f.do("stat", func(fd int) (err error) { s, err = statAt(fd, ""); return })
	return s, err
}

func (f *osFile) Truncate(size int64) error {
	return f.do("truncate", func(fd int) error { return unix.Ftruncate(fd, size) })
}

func (f *osFile) Chmod(perm uint32) error {
	return f.do("chmod", func(fd int) error { return unix.Fchmod(fd, perm&0o7777) })
}

func (f *osFile) Chown(uid, gid uint32) error {
	return f.do("chown", func(fd int) error { return unix.Fchown(fd, int(uid), int(gid)) })
}

// Xattrs returns nil when there are none.
func (f *osFile) Xattrs() (out map[string][]byte, err error) {
	err = f.do("list attributes of", func(fd int) error {
		out = nil
		names, err := grow(func(b []byte) (int, error) { return unix.Flistxattr(fd, b) })
		if err == unix.ENOTSUP {
			return nil
		}
		if err != nil {
			return err
		}
		for name := range strings.SplitSeq(string(names), "\x00") {
			if name == "" {
				continue
			}
			value, err := grow(func(b []byte) (int, error) { return unix.Fgetxattr(fd, name, b) })
			switch err {
			case nil:
				if out == nil {
					out = make(map[string][]byte)
				}
				out[name] = value
			case noXattr, unix.ENOTSUP, unix.EPERM, unix.EACCES:
				// Gone since, or not ours to read.
			default:
				return err
			}
		}
		return nil
	})
	return out, err
}

// grow calls a function that fills a buffer, with larger buffers while it
// answers ERANGE. The first guess asks only for the size: most files have no
// attribute, and that answer costs no buffer.
func grow(fill func([]byte) (int, error)) ([]byte, error) {
	for {
		n, err := fill(nil)
		if err != nil || n == 0 {
			return []byte{}, err
		}
		b := make([]byte, n)
		n, err = fill(b)
		if err == unix.ERANGE {
			continue // it grew in between
		}
		if err != nil {
			return nil, err
		}
		return b[:n], nil
	}
}

func (f *osFile) SetXattr(name string, value []byte) error {
	return f.do("set attribute of", func(fd int) error { return unix.Fsetxattr(fd, name, value, 0) })
}

func (f *osFile) Sync() error {
	return f.do("sync", syncFile)
}

func (f *osFile) Close() error {
	if err := f.handle.Close(); err != nil {
		return &fs.PathError{Op: "close", Path: f.dir + "/" + f.name, Err: err}
	}
	return nil
}
