package vfs

import (
	"io/fs"

	"golang.org/x/sys/unix"
)

// ReadProc reads a file that the kernel makes while it is read, as those in /proc. Room
// is about how long it gets. Package os would offer the descriptor to the poller and read
// by half kilobytes, three times as many calls.
func ReadProc(name string, room int) ([]byte, error) {
	fd, err := openAt(unix.AT_FDCWD, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd)
	b := make([]byte, 0, room)
	for {
		var n int
		err := retry(func() (err error) { n, err = unix.Read(fd, b[len(b):cap(b)]); return err })
		if err != nil {
			return nil, &fs.PathError{Op: "read", Path: name, Err: err}
		}
		if n == 0 {
			return b, nil
		}
		if b = b[:len(b)+n]; len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
	}
}
