//go:build linux || darwin

package vfs

import (
	"strings"

	"golang.org/x/sys/unix"
)

// openAt is openat with EINTR retried.
func openAt(fd int, name string, flags int, perm uint32) (out int, err error) {
	err = retry(func() (err error) { out, err = unix.Openat(fd, name, flags, perm); return })
	return out, err
}

// walk opens path component by component. It gives the same answers as openat2
// except that a directory moved away under it may be left from where it went:
// every step is still a name below the step before, never a link, never "..".
func walk(fd int, path string) (int, error) {
	at := fd
	for {
		name, rest, more := strings.Cut(path, "/")
		next, err := openAt(at, name, dirFlags|unix.O_NOFOLLOW, 0)
		if err == unix.ENOTDIR {
			// With O_DIRECTORY the kernel says ENOTDIR of a link too.
			if st, serr := statAt(at, name); serr == nil && st.Kind == KindSymlink {
				err = unix.ELOOP
			}
		}
		if at != fd {
			_ = unix.Close(at)
		}
		if err != nil {
			return -1, err
		}
		if !more {
			return next, nil
		}
		at, path = next, rest
	}
}
