package vfs

import (
	"errors"
	"io/fs"
	"sync"
	"unsafe"

	"golang.org/x/sys/windows"
)

// handle owns one handle of the kernel. The last user closes, so that its number is
// not given to another file under a running call.
type handle struct {
	h      windows.Handle
	mu     sync.Mutex
	users  int
	closed bool
}

// use marks a call as running and returns the handle; release must follow.
func (h *handle) use() (windows.Handle, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return 0, fs.ErrClosed
	}
	h.users++
	return h.h, nil
}

func (h *handle) release() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.users--
	if h.closed && h.users == 0 {
		return windows.CloseHandle(h.h)
	}
	return nil
}

// Close marks the handle closed; it is closed now or by the last running call.
func (h *handle) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return fs.ErrClosed
	}
	h.closed = true
	if h.users > 0 {
		return nil
	}
	return windows.CloseHandle(h.h)
}

// Fd returns the handle, which stays owned by h; it is meaningless after Close.
func (h *handle) Fd() uintptr { return uintptr(h.h) }

// Claim locks the open file f for its holder, without waiting, and tells whether
// it did: false when another handle holds it. The system gives the lock up when the
// handle is closed, by the end of its process too. The byte that is locked lies where
// no file has one, because what is locked cannot be read here.
func Claim(f File) (bool, error) {
	d, ok := f.(Descriptor)
	if !ok {
		return true, nil
	}
	err := windows.LockFileEx(windows.Handle(d.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0,
		&windows.Overlapped{OffsetHigh: 1 << 30})
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
		return false, nil
	}
	return err == nil, err
}

// MayWrite asks whether this process may make and remove names in an open
// directory. nil is the answer of the moment and no promise.
func MayWrite(dir Descriptor) error {
	h, err := ntOpen(windows.Handle(dir.Fd()), "", windows.FILE_WRITE_DATA|windows.FILE_APPEND_DATA|windows.SYNCHRONIZE, windows.FILE_OPEN, windows.FILE_DIRECTORY_FILE)
	if err != nil {
		return err
	}
	return windows.CloseHandle(h)
}

// setBasic sets the time of the last write and the attributes; 0 leaves either.
func setBasic(h windows.Handle, written int64, attributes uint32) error {
	b := struct {
		created, accessed, written, changed int64
		attributes, _                       uint32
	}{written: written, attributes: attributes}
	return windows.SetFileInformationByHandle(h, windows.FileBasicInfo, (*byte)(unsafe.Pointer(&b)), uint32(unsafe.Sizeof(b)))
}

// ReadProc fails: there is no such file on this system.
func ReadProc(name string, _ int) ([]byte, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}
