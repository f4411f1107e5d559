package exchange

import (
	"fmt"
	"io/fs"
	"strings"

	"github.com/aspengine/asp/internal/vfs"
)

// A walk keeps this many levels of a tree open, or a share of what the process may
// have open: two walks go down side by side, and there are other users.
const (
	maxLevels  = 64
	levelShare = 16
)

// maxPath is the longest path, in bytes, that is opened in one go: systems take
// no longer ones than a few KiB, and a tree can be deeper.
const maxPath = 1000

// level is a directory that a walk is in. Far below the top only the lowest one is
// open: to go down lets go of the one above, and to come back up opens that again
// by its path and holds it against what it was. Near the top, where nearly all
// directories are, every level stays open and costs nothing more.
type level struct {
	vfs.Dir
	top  vfs.Dir // where the walk began; never closed here
	path string  // below top
	n    int     // levels below top
	most int     // of them that stay open
	st   vfs.Stat
}

// walkFrom begins a walk at d, which stays the caller's.
func walkFrom(d vfs.Dir) *level {
	return &level{Dir: d, top: d, path: ".", most: max(1, vfs.MayKeep(maxLevels, levelShare))}
}

// down opens the directory name of l. l is not to be used before up.
func (l *level) down(name string) (*level, error) {
	sub, err := l.OpenDir(name)
	if err != nil {
		return nil, err
	}
	if l.n >= l.most {
		if l.st, err = l.Stat(); err != nil {
			sub.Close()
			return nil, err
		}
		l.Close()
		l.Dir = nil
	}
	return &level{Dir: sub, top: l.top, path: join(l.path, name), n: l.n + 1, most: l.most}, nil
}

// up closes sub and comes back to l. Where another directory has its path by now, it
// is one of the errors that vanished tells, and l is of no more use.
func (l *level) up(sub *level) error {
	if sub.Dir != nil {
		sub.Close()
	}
	if l.Dir != nil {
		return nil
	}
	d, err := openLong(l.top, l.path)
	if err != nil {
		return fmt.Errorf("come back to %.200q: %w", l.path, err)
	}
	st, err := d.Stat()
	if err == nil && !st.SameFile(l.st) {
		err = &fs.PathError{Op: "come back to", Path: fmt.Sprintf("%.200s", l.path), Err: fs.ErrNotExist}
	}
	if err != nil {
		d.Close()
		return err
	}
	l.Dir = d
	return nil
}

// openLong opens the directory at a path of any length.
func openLong(d vfs.Dir, path string) (vfs.Dir, error) {
	for at := d; ; {
		part, rest := path, ""
		if len(path) > maxPath {
			// A name is far shorter than this, so there is a slash.
			i := strings.LastIndexByte(path[:maxPath], '/')
			part, rest = path[:i], path[i+1:]
		}
		next, err := at.OpenDir(part)
		if at != d {
			at.Close()
		}
		if err != nil || rest == "" {
			return next, err
		}
		at, path = next, rest
	}
}
