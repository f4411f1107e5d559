//go:build linux

package worktree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// maxDepth bounds the descriptors that removing holds open. What lies deeper is
// first moved to the top: a check may nest directories as deep as it likes.
const maxDepth = 100

// removeTree removes base/name whatever a check did to it: no link is followed,
// directories without permission bits (overlay's work directory has none) are
// opened up first, and any depth is fine. Mounts are not entered: one in the tree is
// an error, and what is in it stays. A missing tree is removed already.
func removeTree(base, name string) error {
	dir, err := unix.Open(filepath.Clean(base), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: base, Err: err}
	}
	defer unix.Close(dir)
	if err := removeIn(dir, name); err != nil {
		return &fs.PathError{Op: "remove", Path: filepath.Join(base, name), Err: err}
	}
	return nil
}

// removeBelow removes base/rel. A link on the way is an error: what it leads to is
// not below base. A missing directory on the way is removed already.
func removeBelow(base, rel string) error {
	dir, err := openBelow(base, filepath.Dir(rel), unix.O_RDONLY)
	if err == unix.ENOENT || err == unix.ENOTDIR {
		return nil
	}
	if err == nil {
		defer unix.Close(dir)
		err = removeIn(dir, filepath.Base(rel))
	}
	if err != nil {
		return &fs.PathError{Op: "remove", Path: filepath.Join(base, rel), Err: err}
	}
	return nil
}

// openBelow opens the directory rel below base without following a link in rel.
func openBelow(base, rel string, mode uint64) (int, error) {
	at, err := unix.Open(base, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(at)
	return unix.Openat2(at, rel, &unix.OpenHow{ // ELOOP is a link, ENOTDIR a file
		Flags:   mode | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
}

func removeIn(dir int, name string) error {
	r := &remover{}
	for {
		r.moved = 0
		r.top = -1
		if err := r.remove(dir, name, 0); err != nil || r.moved == 0 {
			return err
		}
	}
}

type remover struct {
	top   int // descriptor of the tree's own directory
	moved int // deep directories moved to the top in this pass
	seq   int
}

func (r *remover) remove(parent int, name string, depth int) error {
	err := unix.Unlinkat(parent, name, 0)
	if err == nil || err == unix.ENOENT {
		return nil
	}
	if err != unix.EISDIR && err != unix.EPERM && err != unix.EACCES {
		return err
	}
	fd, err := openHere(parent, name, unix.O_RDONLY)
	if err == unix.EACCES {
		if err = openUp(parent, name); err == nil {
			fd, err = openHere(parent, name, unix.O_RDONLY)
		}
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_ = unix.Fchmod(fd, 0o700) // entries of a read-only directory cannot be unlinked
	if depth == 0 {
		r.top = fd
	}
	if depth >= maxDepth {
		err = r.lift(fd)
	} else {
		err = r.removeEntries(fd, depth)
	}
	if err != nil {
		return err
	}
	if depth == 0 && r.moved > 0 {
		return nil // not empty yet, the next pass goes on
	}
	if err = unix.Unlinkat(parent, name, unix.AT_REMOVEDIR); err == unix.ENOENT {
		return nil
	}
	return err
}

func (r *remover) removeEntries(fd, depth int) error {
	names, err := readNames(fd)
	if err != nil {
		return err
	}
	for _, n := range names {
		if err := r.remove(fd, n, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// lift moves everything in fd to the top of the tree, under fresh names.
func (r *remover) lift(fd int) error {
	names, err := readNames(fd)
	if err != nil {
		return err
	}
	for _, n := range names {
		for {
			r.seq++
			err = unix.Renameat2(fd, n, r.top, fmt.Sprintf(".lifted-%d", r.seq), unix.RENAME_NOREPLACE)
			if err != unix.EEXIST {
				break
			}
		}
		if err == unix.EACCES {
			// Moving a directory rewrites its "..", which needs write permission on it.
			if err = openUp(fd, n); err == nil {
				err = unix.Renameat2(fd, n, r.top, fmt.Sprintf(".lifted-%d", r.seq), unix.RENAME_NOREPLACE)
			}
		}
		if err != nil {
			return err
		}
		r.moved++
	}
	return nil
}

// openHere opens the directory name in parent unless something is mounted there: what
// is in a mount is somebody else's, even where the mount point is ours. Then it is
// EXDEV.
func openHere(parent int, name string, mode uint64) (int, error) {
	return unix.Openat2(parent, name, &unix.OpenHow{
		Flags:   mode | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_SYMLINKS,
	})
}

// openUp gives the owner all rights on a directory that cannot be opened. An
// O_PATH descriptor needs no right on it and pins what is changed.
func openUp(parent int, name string) error {
	fd, err := openHere(parent, name, unix.O_PATH)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), 0o700)
}

func readNames(fd int) ([]string, error) {
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(dup), "dir")
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return names, nil
}
