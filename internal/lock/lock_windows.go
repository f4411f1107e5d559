package lock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/windows"
)

// No call of this system locks a directory, and a share mode that keeps others out
// would keep out the shell that stands in it, or a rename into it. So the lock of a
// directory is that a named object of the kernel exists, named by the directory's
// identity: it is gone with the last handle on it, by the end of the process too.
// It holds on one machine, not between those that share a network drive.

// directory is an open directory, with what locks it.
type directory struct {
	*os.File
	held windows.Handle
}

func openDirectory(name string) (*directory, error) {
	f, err := openPath(name, windows.FILE_READ_ATTRIBUTES, windows.OPEN_EXISTING, windows.FILE_FLAG_BACKUP_SEMANTICS)
	if err != nil {
		return nil, err
	}
	return &directory{File: f}, nil
}

func openQueueFile(name string) (*os.File, error) {
	return openPath(name, windows.GENERIC_READ|windows.GENERIC_WRITE, windows.OPEN_ALWAYS, windows.FILE_FLAG_OPEN_REPARSE_POINT)
}

// openTicket opens a ticket's file that is there. One that is about to go, as its last
// holder has it open still, is denied to everybody, and is as good as gone: at worst
// that costs the order.
func openTicket(name string) (*os.File, error) {
	f, err := openPath(name, windows.GENERIC_READ|windows.GENERIC_WRITE, windows.OPEN_EXISTING, windows.FILE_FLAG_OPEN_REPARSE_POINT)
	if errors.Is(err, windows.ERROR_ACCESS_DENIED) {
		err = &os.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return f, err
}

func openPath(name string, access, how, flags uint32) (*os.File, error) {
	p, err := windows.UTF16PtrFromString(name)
	if err != nil {
		return nil, err
	}
	h, err := windows.CreateFile(p, access, windows.FILE_SHARE_READ|windows.FILE_SHARE_WRITE|windows.FILE_SHARE_DELETE, nil, how, flags, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(h), name), nil
}

// The byte of a file that is locked lies where no file has one: what is locked
// cannot be read here.
func farByte() *windows.Overlapped { return &windows.Overlapped{OffsetHigh: 1 << 30} }

func lockByte(f *os.File, flags uint32) error {
	err := windows.LockFileEx(windows.Handle(f.Fd()), flags|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, farByte())
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
		return ErrBusy
	}
	return err
}

func tryLockFile(f *os.File) error { return lockByte(f, windows.LOCKFILE_EXCLUSIVE_LOCK) }

func shareFile(f *os.File) error { return lockByte(f, 0) }

func unlockFile(f *os.File) error {
	return windows.UnlockFileEx(windows.Handle(f.Fd()), 0, 1, 0, farByte())
}

// object is the name of the object that stands for a lock on what h has open.
func object(h windows.Handle, what string) (*uint16, error) {
	var i windows.ByHandleFileInformation
	if err := windows.GetFileInformationByHandle(h, &i); err != nil {
		return nil, err
	}
	return windows.UTF16PtrFromString(fmt.Sprintf(`Global\asp-%s-%08x-%08x%08x`, what, i.VolumeSerialNumber, i.FileIndexHigh, i.FileIndexLow))
}

// makeObject makes the object; ErrBusy when it is there, or another user's.
func makeObject(name *uint16) (windows.Handle, error) {
	h, err := windows.CreateMutex(nil, false, name)
	switch {
	case err == nil:
		return h, nil
	case errors.Is(err, windows.ERROR_ALREADY_EXISTS):
		return 0, errors.Join(ErrBusy, windows.CloseHandle(h))
	case errors.Is(err, windows.ERROR_ACCESS_DENIED):
		return 0, ErrBusy
	}
	return 0, err
}

// isThere tells whether somebody has the object.
func isThere(name *uint16) (bool, error) {
	h, err := windows.OpenMutex(windows.SYNCHRONIZE, false, name)
	switch {
	case err == nil:
		return true, windows.CloseHandle(h)
	case errors.Is(err, windows.ERROR_FILE_NOT_FOUND):
		return false, nil
	case errors.Is(err, windows.ERROR_ACCESS_DENIED):
		return true, nil
	}
	return false, err
}

// lockDir and shareDir make their own object first and look for the other's then, so
// that of two who come at once at least one gives way.
func lockDir(d *directory) error {
	own, err := object(windows.Handle(d.Fd()), "lock")
	if err != nil {
		return err
	}
	other, err := object(windows.Handle(d.Fd()), "look")
	if err != nil {
		return err
	}
	h, err := makeObject(own)
	if err != nil {
		return err
	}
	if looked, err := isThere(other); err != nil || looked {
		if err == nil {
			err = ErrBusy
		}
		return errors.Join(err, windows.CloseHandle(h))
	}
	d.held = h
	return nil
}

func shareDir(d *directory) error {
	own, err := object(windows.Handle(d.Fd()), "look")
	if err != nil {
		return err
	}
	other, err := object(windows.Handle(d.Fd()), "lock")
	if err != nil {
		return err
	}
	h, err := windows.CreateMutex(nil, false, own) // there already: another one looks, too
	if err != nil && !errors.Is(err, windows.ERROR_ALREADY_EXISTS) {
		return err
	}
	if held, err := isThere(other); err != nil || held {
		if err == nil {
			err = ErrBusy
		}
		return errors.Join(err, windows.CloseHandle(h))
	}
	d.held = h
	return nil
}

func unlockDir(d *directory) error {
	if d.held == 0 {
		return nil
	}
	h := d.held
	d.held = 0
	return windows.CloseHandle(h)
}

// lockShort locks the open directory fd for Short.
func lockShort(fd uintptr) (unlock func() error, err error) {
	name, err := object(windows.Handle(fd), "short")
	if err != nil {
		return nil, err
	}
	h, err := makeObject(name)
	if err != nil {
		return nil, err
	}
	return func() error { return windows.CloseHandle(h) }, nil
}

// startTime is when the process began, in units of 100 nanoseconds since 1601.
func startTime(pid int) (uint64, error) {
	p, err := windows.OpenProcess(windows.PROCESS_QUERY_LIMITED_INFORMATION|windows.SYNCHRONIZE, false, uint32(pid))
	if err != nil {
		return 0, err
	}
	defer windows.CloseHandle(p)
	// A process that ended can be opened for as long as somebody else has it open.
	if ended, err := windows.WaitForSingleObject(p, 0); err != nil || ended == windows.WAIT_OBJECT_0 {
		return 0, errors.Join(err, fs.ErrNotExist)
	}
	var created, exited, kernel, user windows.Filetime
	if err := windows.GetProcessTimes(p, &created, &exited, &kernel, &user); err != nil {
		return 0, err
	}
	return uint64(created.HighDateTime)<<32 | uint64(created.LowDateTime), nil
}
