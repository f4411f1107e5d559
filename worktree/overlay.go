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

// layer is the writable half of one overlay, prepared before it is mounted.
type layer struct {
	lower *live // the live directory
	upper string
	work  string
	made  map[string]bool // directories of upper that we made; true where the owner may write
}

// newLayer makes the directories of an overlay over lower in scratch. The upper
// directory is the root of what is seen, so it takes lower's mode and owner.
func newLayer(scratch, name string, lower *live) (layer, error) {
	l := layer{lower: lower, upper: filepath.Join(scratch, name, "upper"), work: filepath.Join(scratch, name, "work"), made: map[string]bool{}}
	if err := os.Mkdir(filepath.Join(scratch, name), 0o700); err != nil {
		return l, err
	}
	if err := os.Mkdir(l.work, 0o700); err != nil {
		return l, err
	}
	if err := os.Mkdir(l.upper, 0o700); err != nil {
		return l, err
	}
	return l, l.likeLower(".")
}

// likeLower gives upper/rel the mode, owner and times of lower/rel.
func (l layer) likeLower(rel string) error {
	st, err := l.lower.lstat(rel)
	if err != nil {
		return err
	}
	up := filepath.Join(l.upper, rel)
	if os.Geteuid() == 0 {
		_ = unix.Lchown(up, int(st.Uid), int(st.Gid))
	}
	if err := unix.Chmod(up, st.Mode&0o7777); err != nil {
		return &fs.PathError{Op: "chmod", Path: up, Err: err}
	}
	l.made[rel] = st.Mode&0o300 == 0o300
	return nil
}

// mkdirs makes upper/rel and the directories above it, merged with the live ones
// where those are directories, fresh ones where there is nothing, a file, or
// something that the plan takes away. Other links are refused: a plan whose path
// leads through one was never admitted.
func (l layer) mkdirs(rel string, lo *layout) error {
	if _, ok := l.made[rel]; ok {
		return nil
	}
	up := filepath.Join(l.upper, rel)
	if st, err := os.Lstat(up); err == nil {
		if !st.IsDir() {
			return fmt.Errorf("make directory %.200q: a file of the plan is there", rel)
		}
		return nil
	}
	if err := l.mkdirs(filepath.Dir(rel), lo); err != nil {
		return err
	}
	if err := l.writable(filepath.Dir(rel), func() error { return os.Mkdir(up, 0o700) }); err != nil {
		return err
	}
	st, err := l.lower.lstat(rel)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return l.fresh(rel, lo)
	case err != nil:
		return err
	case st.Mode&unix.S_IFMT == unix.S_IFLNK && !lo.gone[rel]:
		return fmt.Errorf("make directory %.200q: the live tree has a link there", rel)
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return l.fresh(rel, lo) // a directory hides a lower file by itself
	}
	return l.likeLower(rel)
}

// fresh gives a directory without a live one behind it the mode of a new one.
func (l layer) fresh(rel string, lo *layout) error {
	mode := 0o777 &^ lo.umask
	l.made[rel] = mode&0o300 == 0o300
	return os.Chmod(filepath.Join(l.upper, rel), fs.FileMode(mode))
}

// hide makes the live name rel absent, if it is there or always: then it stays
// absent when it comes up later.
func (l layer) hide(rel string, lo *layout, always bool) error {
	if _, err := l.lower.lstat(rel); !always && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := l.mkdirs(filepath.Dir(rel), lo); err != nil {
		return err
	}
	p := filepath.Join(l.upper, rel)
	return l.writable(filepath.Dir(rel), func() error {
		// A character device 0/0 is overlay's mark of absence; anybody may make it.
		if err := unix.Mknod(p, unix.S_IFCHR, int(unix.Mkdev(0, 0))); err != nil {
			return &fs.PathError{Op: "make whiteout", Path: p, Err: err}
		}
		return nil
	})
}

// writable runs f while upper/dir may be written by its owner: a merged
// directory has the live one's mode, which may forbid it.
func (l layer) writable(dir string, f func() error) error {
	if l.made[dir] || os.Geteuid() == 0 {
		return f()
	}
	d := filepath.Join(l.upper, dir)
	st, err := os.Lstat(d)
	if err != nil {
		return err
	}
	if err := os.Chmod(d, st.Mode()|0o300); err != nil {
		return err
	}
	return errors.Join(f(), os.Chmod(d, st.Mode()))
}

// lay puts the after-state over the live tree.
func (l layer) lay(lo *layout) error {
	for _, rel := range lo.remove {
		if err := l.hide(rel, lo, false); err != nil {
			return err
		}
	}
	for _, e := range lo.write {
		rel := e.Path.String()
		dir := filepath.Dir(rel)
		if err := l.mkdirs(dir, lo); err != nil {
			return err
		}
		err := l.writable(dir, func() error { return lo.put(e, filepath.Join(l.upper, rel)) })
		if err != nil {
			return err
		}
	}
	return nil
}
