//go:build unix && (!linux || portablefs)

package scan

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// OpenDir opens the directory rel ("" is d itself) below d without passing
// through a symbolic link.
func (d DirHandle) OpenDir(rel string) (DirHandle, error) {
	if rel == "" {
		rel = "."
	}
	fd, err := d.openStepwise(rel, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW)
	if err != nil {
		return DirHandle{-1}, &fs.PathError{Op: "open", Path: rel, Err: err}
	}
	return DirHandle{fd}, nil
}

// LstatName is Lstat for a name of a running listing.
func (d DirHandle) LstatName(n Name, s *Stat) (err error) {
	*s, err = d.Lstat(string(n.Bytes()))
	return err
}

// list calls fn for every name. The raw form of a listing differs between
// systems, so this one goes through package os.
func (d DirHandle) list(_ []byte, fn func(Name) error) error {
	fd, err := retry(func() (int, error) { return unix.Openat(d.fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return &fs.PathError{Op: "open", Path: ".", Err: err}
	}
	f := os.NewFile(uintptr(fd), ".")
	names, err := f.Readdirnames(-1)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	for _, n := range names {
		if err := fn(Name{append([]byte(n), 0), Unknown}); err != nil {
			return err
		}
	}
	return nil
}
