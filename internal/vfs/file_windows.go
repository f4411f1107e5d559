package vfs

import (
	"errors"
	"io"
	"io/fs"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/windows"
)

// osFile is an open regular file. dir and name are for messages only.
type osFile struct {
	handle
	dir, name string
	written   bool                 // opened for writing
	seen      atomic.Pointer[Stat] // by Open, until the first Stat
}

func (f *osFile) do(op string, call func(h windows.Handle) error) error {
	h, err := f.use()
	if err == nil {
		err = call(h)
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
	err = f.do("read", func(h windows.Handle) error {
		var done uint32
		err := windows.ReadFile(h, p, &done, nil)
		n = int(done)
		return err
	})
	if errors.Is(err, windows.ERROR_HANDLE_EOF) || err == nil && n == 0 {
		return 0, io.EOF
	}
	return n, err
}

func (f *osFile) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, f.do("read", func(windows.Handle) error { return syscall.EINVAL })
	}
	done := 0
	for done < len(p) {
		var n uint32
		err := f.do("read", func(h windows.Handle) error { return readAt(h, p[done:], off+int64(done), &n) })
		done += int(n)
		if errors.Is(err, windows.ERROR_HANDLE_EOF) || err == nil && n == 0 {
			return done, io.EOF
		}
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// readAt reads at a position and puts the file's own back, which this system moves.
func readAt(h windows.Handle, p []byte, off int64, n *uint32) error {
	was, err := windows.Seek(h, 0, io.SeekCurrent)
	if err != nil {
		return err
	}
	o := &windows.Overlapped{Offset: uint32(off), OffsetHigh: uint32(off >> 32)}
	err = windows.ReadFile(h, p, n, o)
	_, serr := windows.Seek(h, was, io.SeekStart)
	return errors.Join(err, serr)
}

// HandleReadAt reads like pread, and like Read behind the end gives 0 and no error.
func HandleReadAt(h windows.Handle, p []byte, off int64) (int, error) {
	var n uint32
	err := readAt(h, p, off, &n)
	if errors.Is(err, windows.ERROR_HANDLE_EOF) {
		err = nil
	}
	return int(n), err
}

func (f *osFile) Write(p []byte) (int, error) {
	done := 0
	for done < len(p) {
		var n uint32
		err := f.do("write", func(h windows.Handle) error { return windows.WriteFile(h, p[done:], &n, nil) })
		done += int(n)
		if err != nil {
			return done, err
		}
		if n == 0 {
			return done, io.ErrShortWrite
		}
	}
	return done, nil
}

// WriteAt leaves the file's own position where it was, which this system would move.
func (f *osFile) WriteAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, f.do("write", func(windows.Handle) error { return syscall.EINVAL })
	}
	done := 0
	for done < len(p) {
		var n uint32
		err := f.do("write", func(h windows.Handle) error {
			was, err := windows.Seek(h, 0, io.SeekCurrent)
			if err != nil {
				return err
			}
			at := off + int64(done)
			err = windows.WriteFile(h, p[done:], &n, &windows.Overlapped{Offset: uint32(at), OffsetHigh: uint32(at >> 32)})
			_, serr := windows.Seek(h, was, io.SeekStart)
			return errors.Join(err, serr)
		})
		done += int(n)
		if err != nil {
			return done, err
		}
		if n == 0 {
			return done, io.ErrShortWrite
		}
	}
	return done, nil
}

func (f *osFile) Stat() (s Stat, err error) {
	if p := f.seen.Swap(nil); p != nil {
		return *p, nil
	}
	err = f.do("stat", func(h windows.Handle) (err error) { s, err = HandleStat(h); return err })
	return s, err
}

func (f *osFile) Truncate(size int64) error {
	return f.do("truncate", func(h windows.Handle) error {
		was, err := windows.Seek(h, 0, io.SeekCurrent)
		if err == nil {
			_, err = windows.Seek(h, size, io.SeekStart)
		}
		if err == nil {
			err = windows.SetEndOfFile(h)
		}
		_, serr := windows.Seek(h, was, io.SeekStart)
		return errors.Join(err, serr)
	})
}

// Chmod sets whether the file may be written, by the owner's bit; there is no other.
func (f *osFile) Chmod(perm uint32) error {
	return f.do("chmod", func(h windows.Handle) error {
		var i windows.ByHandleFileInformation
		if err := windows.GetFileInformationByHandle(h, &i); err != nil {
			return err
		}
		attrs := i.FileAttributes &^ windows.FILE_ATTRIBUTE_READONLY
		if perm&0o200 == 0 {
			attrs |= windows.FILE_ATTRIBUTE_READONLY
		}
		if attrs == i.FileAttributes {
			return nil
		}
		if attrs == 0 {
			attrs = windows.FILE_ATTRIBUTE_NORMAL
		}
		return setBasic(h, 0, attrs)
	})
}

// Chown fails unless nothing changes: owners have no numbers on this system.
func (f *osFile) Chown(uid, gid uint32) error {
	return f.do("chown", func(windows.Handle) error {
		if uid == 0 && gid == 0 {
			return nil
		}
		return syscall.EACCES
	})
}

func (f *osFile) SetMtime(ns int64) error {
	return f.do("set time of", func(h windows.Handle) error {
		t := from1970(ns)
		return windows.SetFileTime(h, nil, nil, &t)
	})
}

// Xattrs returns nil: what a file has of that kind is looked for by who replaces it.
func (f *osFile) Xattrs() (map[string][]byte, error) {
	return nil, f.do("list attributes of", func(windows.Handle) error { return nil })
}

// SetXattr is not supported.
func (f *osFile) SetXattr(string, []byte) error {
	return f.do("set attribute of", func(windows.Handle) error { return syscall.ENOTSUP })
}

// Sync needs the right to write, which a file that was opened for reading is opened
// anew for.
func (f *osFile) Sync() error {
	return f.do("sync", func(h windows.Handle) error {
		if f.written {
			return windows.FlushFileBuffers(h)
		}
		w, err := ntOpen(h, "", windows.FILE_GENERIC_WRITE, windows.FILE_OPEN, windows.FILE_NON_DIRECTORY_FILE)
		if err != nil {
			return err
		}
		return errors.Join(windows.FlushFileBuffers(w), windows.CloseHandle(w))
	})
}

// StartWriteback does nothing: a hint that nobody takes here.
func (f *osFile) StartWriteback() error {
	return f.do("start writeback of", func(windows.Handle) error { return nil })
}

func (f *osFile) Close() error {
	if err := f.handle.Close(); err != nil {
		return &fs.PathError{Op: "close", Path: f.dir + "/" + f.name, Err: err}
	}
	return nil
}
