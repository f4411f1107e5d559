//go:build linux || darwin

package lock

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

func openDirectory(name string) (*os.File, error) {
	return openFile(name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
}

// directory is one that can be locked as a file can.
type directory = os.File

func lockDir(d *directory) error   { return tryLockFile(d) }
func shareDir(d *directory) error  { return shareFile(d) }
func unlockDir(d *directory) error { return unlockFile(d) }

// lockShort locks the open directory fd for Short.
func lockShort(fd uintptr) (unlock func() error, err error) {
	if err := flockFd(fd); err != nil {
		return nil, err
	}
	return func() error { return unix.Flock(int(fd), unix.LOCK_UN) }, nil
}

func openQueueFile(name string) (*os.File, error) {
	return openFile(name, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
}

func openFile(name string, flags int, perm uint32) (*os.File, error) {
	for {
		fd, err := unix.Open(name, flags|unix.O_CLOEXEC, perm)
		if err == nil {
			return os.NewFile(uintptr(fd), name), nil
		}
		if !errors.Is(err, unix.EINTR) {
			return nil, &os.PathError{Op: "open", Path: name, Err: err}
		}
	}
}

// control runs fn on the descriptor without changing its mode, as Fd would.
func control(f *os.File, fn func(fd uintptr) error) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	err = c.Control(func(fd uintptr) {
		for {
			inner = fn(fd)
			if !errors.Is(inner, unix.EINTR) {
				return
			}
		}
	})
	return errors.Join(err, inner)
}

// tryLockFile takes the exclusive flock. It never blocks: a blocked flock can
// not be called off from Go, whose signal handlers restart system calls.
func tryLockFile(f *os.File) error {
	err := control(f, func(fd uintptr) error { return unix.Flock(int(fd), unix.LOCK_EX|unix.LOCK_NB) })
	if errors.Is(err, unix.EWOULDBLOCK) {
		return ErrBusy
	}
	return err
}

// shareFile takes the shared flock, which keeps only an exclusive one out.
func shareFile(f *os.File) error {
	err := control(f, func(fd uintptr) error { return unix.Flock(int(fd), unix.LOCK_SH|unix.LOCK_NB) })
	if errors.Is(err, unix.EWOULDBLOCK) {
		return ErrBusy
	}
	return err
}

func unlockFile(f *os.File) error {
	return control(f, func(fd uintptr) error { return unix.Flock(int(fd), unix.LOCK_UN) })
}

func flockFd(fd uintptr) error {
	for {
		err := unix.Flock(int(fd), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EWOULDBLOCK):
			return ErrBusy
		default:
			return err
		}
	}
}
