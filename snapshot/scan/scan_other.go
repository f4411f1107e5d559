//go:build !unix && !windows

package scan

import (
	"errors"
	"io/fs"
)

// This system has no open directories to walk below, so nothing is walked: every
// root fails to open with an error for which errors.Is(err,
// errors.ErrUnsupported) holds, and what would be reached from one is never used.

// DirHandle is an open directory; none is on this system.
type DirHandle struct{}

// OpenRoot always fails.
func OpenRoot(path string) (DirHandle, error) {
	return DirHandle{}, &fs.PathError{Op: "open", Path: path, Err: errors.ErrUnsupported}
}

// LstatPath always fails.
func LstatPath(path string) (Stat, error) {
	return Stat{}, &fs.PathError{Op: "lstat", Path: path, Err: errors.ErrUnsupported}
}

// OpenDir always fails.
func (DirHandle) OpenDir(rel string) (DirHandle, error) { return OpenRoot(rel) }

// Close does nothing.
func (DirHandle) Close() error { return nil }

// Fd is no descriptor.
func (DirHandle) Fd() int { return -1 }

// Stat always fails.
func (DirHandle) Stat() (Stat, error) { return Stat{}, errors.ErrUnsupported }

// Lstat always fails.
func (DirHandle) Lstat(string) (Stat, error) { return Stat{}, errors.ErrUnsupported }

// LstatName always fails.
func (DirHandle) LstatName(Name, *Stat) error { return errors.ErrUnsupported }

// Name is one entry of a listing.
type Name struct{ Kind Kind }

// Bytes is empty.
func (Name) Bytes() []byte { return nil }

// View is empty.
func (Name) View() string { return "" }

// Readlink always fails.
func (DirHandle) Readlink(string, []byte) ([]byte, error) { return nil, errors.ErrUnsupported }

func (DirHandle) list([]byte, func(Name) error) error { return errors.ErrUnsupported }
func (DirHandle) openFile(string) (int, error)        { return -1, errors.ErrUnsupported }
func fstat(int, *Stat) error                          { return errors.ErrUnsupported }
func readFile(int, []byte) (int, error)               { return 0, errors.ErrUnsupported }
func readFileAt(int, []byte, int64) (int, error)      { return 0, errors.ErrUnsupported }
func closeFile(int) error                             { return nil }
func retry(f func() (int, error)) (int, error)        { return f() }
