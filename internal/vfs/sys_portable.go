//go:build darwin || portablefs

package vfs

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// This is the form for systems that offer no more than POSIX and a rename that
// cannot overwrite. Linux has it too, under the build tag portablefs, so that what
// other systems run is tested where the tests run. It lacks what no imitation could
// give: one barrier for a whole file system, and the mount that a name is on. Under
// the tag it cannot exchange two names either, as Windows cannot.

// shared is what all handles below one root have in common: nothing here.
type shared struct{}

func newShared(OS) *shared { return &shared{} }

// openBeneath opens the directory at the checked path below fd.
func (*shared) openBeneath(fd int, path string) (int, error) { return walk(fd, path) }

// statAt describes name below fd without following a link in it; an empty name
// describes fd itself.
func statAt(fd int, name string) (Stat, error) {
	var t unix.Stat_t
	err := retry(func() error {
		if name == "" {
			return unix.Fstat(fd, &t)
		}
		return unix.Fstatat(fd, name, &t, unix.AT_SYMLINK_NOFOLLOW)
	})
	if err != nil {
		return Stat{}, err
	}
	return Stat{
		Kind:      kindOfMode(uint32(t.Mode)),
		Perm:      uint32(t.Mode) & 0o7777,
		Size:      t.Size,
		Ino:       t.Ino,
		Dev:       uint64(t.Dev),
		Nlink:     uint64(t.Nlink),
		UID:       t.Uid,
		GID:       t.Gid,
		Mtime:     unix.TimespecToNsec(t.Mtim),
		Ctime:     unix.TimespecToNsec(t.Ctim),
		Immutable: immutable(&t),
	}, nil
}

// List goes through package os and looks at every name: raw listings differ between
// systems. A name that is gone between the two was never listed.
func (d *osDir) List() ([]DirEntry, error) {
	var out []DirEntry
	err := d.self("list", "", func(fd int) error {
		out = nil
		own, err := openAt(fd, ".", dirFlags, 0) // with a read position of its own
		if err != nil {
			return err
		}
		f := os.NewFile(uintptr(own), d.path)
		names, err := f.Readdirnames(-1)
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
		for _, n := range names {
			s, err := statAt(fd, n)
			if err == unix.ENOENT {
				continue
			}
			if err != nil {
				return err
			}
			out = append(out, DirEntry{Name: n, Kind: s.Kind, Ino: s.Ino})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// syncFS fails: there is no call that waits for all of a file system and says
// whether that worked.
func syncFS(int) error { return unix.ENOTSUP }

// copyRange leaves all to the plain copy.
func (f *osFile) copyRange(io.Reader, int64) (int64, error) { return 0, nil }

// StartWriteback does nothing: a hint that nobody takes here.
func (f *osFile) StartWriteback() error {
	return f.do("start writeback of", func(int) error { return nil })
}
