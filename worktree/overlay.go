//go:build linux

package worktree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// layer is the writable half of one overlay, prepared before it is mounted. It
// holds open the chain of directories where it wrote last: the effects come in
// the order of their paths, so that most names are looked up in an open
// directory and most directories are looked at once. The caller closes it.
type layer struct {
	lower  string // the live directory
	upper  string
	work   string
	umask  uint32
	uid    int // what the kernel gives a new file, where chain.plain says so
	gid    int
	chains []chain // from the root down; never empty until closed
}

// chain is one open directory.
type chain struct {
	name  string // in the one above; "" for the root
	up    int    // in the upper layer; -1 where it was closed to save descriptors
	low   int    // the live directory that is merged with it; -1 where there is none
	plain bool   // a name made in it gets the mode asked for less the umask, and our owner
	shut  bool   // its owner may not write in it: mode is given to it when it is left
	mode  uint32
}

// maxChain bounds the descriptors that a layer holds, two for each directory.
const maxChain = 100

// newLayer makes the directories of an overlay over lower in scratch. The upper
// directory is the root of what is seen, so it takes lower's mode and owner.
func newLayer(scratch, name string, lower *live, umask uint32) (_ *layer, err error) {
	dir := filepath.Join(scratch, name)
	l := &layer{lower: lower.path, upper: filepath.Join(dir, "upper"), work: filepath.Join(dir, "work"), umask: umask, uid: os.Geteuid(), gid: os.Getegid()}
	for _, d := range []string{dir, l.work} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return nil, err
		}
	}
	if err := os.Mkdir(l.upper, 0o777); err != nil {
		return nil, err
	}
	root := chain{up: -1, low: -1}
	defer func() {
		if err != nil {
			root.close()
		}
	}()
	if root.up, err = openDir(unix.AT_FDCWD, l.upper); err != nil {
		return nil, &fs.PathError{Op: "open", Path: l.upper, Err: err}
	}
	if root.low, err = openDir(lower.fd, "."); err != nil {
		return nil, &fs.PathError{Op: "open", Path: lower.path, Err: err}
	}
	var made, st unix.Stat_t
	if err := errors.Join(unix.Fstat(root.up, &made), unix.Fstat(root.low, &st)); err != nil {
		return nil, fmt.Errorf("look at layer: %w", err)
	}
	// A default access list or an inherited group shows here at the latest.
	root.plain = made.Mode&0o7777 == 0o777&^umask && int(made.Uid) == l.uid && int(made.Gid) == l.gid
	l.chains = []chain{root}
	return l, l.give(0, &st)
}

func openDir(at int, name string) (int, error) {
	return unix.Openat(at, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

func (c *chain) close() {
	for _, fd := range []*int{&c.up, &c.low} {
		if *fd >= 0 {
			unix.Close(*fd)
		}
		*fd = -1
	}
}

// close ends the writing: directories that forbid it get their modes now.
func (l *layer) close() error { return l.leave(0) }

// leave closes the chain down to its first n directories.
func (l *layer) leave(n int) error {
	var err error
	for len(l.chains) > n {
		i := len(l.chains) - 1
		c := &l.chains[i]
		if c.shut {
			err = errors.Join(err, l.chmod(i, c.mode))
		}
		c.close()
		l.chains = l.chains[:i]
	}
	return err
}

// path is where chain i is in the upper layer.
func (l *layer) path(i int) string {
	p := l.upper
	for _, c := range l.chains[1 : i+1] {
		p += "/" + c.name
	}
	return p
}

// give makes chain i like st, a live directory or what a new one would be, as far
// as it is not so already.
func (l *layer) give(i int, st *unix.Stat_t) error {
	c := &l.chains[i]
	if l.uid == 0 && c.low >= 0 {
		_ = unix.Fchownat(c.up, "", int(st.Uid), int(st.Gid), unix.AT_EMPTY_PATH)
	}
	c.mode = st.Mode & 0o7777
	now := c.mode
	if c.mode&0o300 != 0o300 {
		c.shut = true
		now = 0o700
	}
	c.plain = c.plain && int(st.Gid) == l.gid && c.mode&unix.S_ISGID == 0
	return l.chmod(i, now)
}

// chmod sets the mode of chain i, whose descriptor is not for that.
func (l *layer) chmod(i int, mode uint32) error {
	at, name := unix.AT_FDCWD, ""
	if i > 0 && l.chains[i-1].up >= 0 {
		at, name = l.chains[i-1].up, l.chains[i].name
	} else {
		name = l.path(i)
	}
	if err := unix.Fchmodat(at, name, mode, 0); err != nil {
		return &fs.PathError{Op: "chmod", Path: l.path(i), Err: err}
	}
	return nil
}

// enter makes rel and the directories above it, merged with the live ones where
// those are directories, fresh ones where there is nothing, a file, or something
// that the plan takes away. Other links are refused: a plan whose path leads
// through one was never admitted. What it returns is good until the next call.
func (l *layer) enter(rel string, lo *layout) (*chain, error) {
	var names []string
	if rel != "." {
		names = strings.Split(rel, "/")
	}
	same := 0
	for same < len(names) && same+1 < len(l.chains) && l.chains[same+1].name == names[same] {
		same++
	}
	if l.chains[same].up < 0 {
		same = 0 // closed to save descriptors; down again from the root, which never is
	}
	if err := l.leave(same + 1); err != nil {
		return nil, err
	}
	for i := same; i < len(names); i++ {
		if err := l.push(names[i], strings.Join(names[:i+1], "/"), lo); err != nil {
			return nil, err
		}
	}
	return &l.chains[len(l.chains)-1], nil
}

// push makes or finds the directory name, which is rel, in the last one.
func (l *layer) push(name, rel string, lo *layout) error {
	above := l.chains[len(l.chains)-1]
	c := chain{name: name, up: -1, low: -1, plain: above.plain}
	st := unix.Stat_t{Mode: 0o777 &^ l.umask, Uid: uint32(l.uid), Gid: uint32(l.gid)} // of a fresh one
	if above.low >= 0 {
		var err error
		if c.low, st, err = lookIn(above.low, name, st); err != nil {
			return &fs.PathError{Op: "look at", Path: filepath.Join(l.lower, rel), Err: err}
		}
		if st.Mode&unix.S_IFMT == unix.S_IFLNK && !lo.gone[rel] {
			return fmt.Errorf("make directory %.200q: the live tree has a link there", rel)
		}
		if c.low < 0 {
			st.Mode = 0o777 &^ l.umask
		}
	}
	fail := func(err error) error {
		c.close()
		if err == unix.ENOTDIR {
			return fmt.Errorf("make directory %.200q: a file of the plan is there", rel)
		}
		return &fs.PathError{Op: "make directory", Path: filepath.Join(l.upper, rel), Err: err}
	}
	mode := st.Mode & 0o7777
	made := unix.Mkdirat(above.up, name, mode)
	if made != nil && made != unix.EEXIST {
		return fail(made)
	}
	var err error
	if c.up, err = openDir(above.up, name); err != nil {
		return fail(err)
	}
	l.chains = append(l.chains, c)
	if i := len(l.chains) - 1; i > maxChain {
		l.chains[i-maxChain].close()
	}
	switch last := len(l.chains) - 1; {
	case made != nil: // we made it earlier and left it
		var now unix.Stat_t
		if err := unix.Fstat(c.up, &now); err != nil {
			return &fs.PathError{Op: "look at", Path: l.path(last), Err: err}
		}
		return l.reopen(last, &now)
	case c.plain && mode&(l.umask|0o7000) == 0 && mode&0o300 == 0o300 && (l.uid != 0 || int(st.Uid) == l.uid && int(st.Gid) == l.gid):
		return nil // as it should be
	default:
		return l.give(last, &st)
	}
}

// reopen prepares a directory for writing that has its mode already.
func (l *layer) reopen(i int, now *unix.Stat_t) error {
	c := &l.chains[i]
	c.mode = now.Mode & 0o7777
	c.plain = c.plain && int(now.Gid) == l.gid && c.mode&unix.S_ISGID == 0
	if c.mode&0o300 == 0o300 {
		return nil
	}
	c.shut = true
	return l.chmod(i, 0o700)
}

// lookIn describes the live name in the directory dir, and opens it if it is a
// directory. Where nothing is, st is what it was.
func lookIn(dir int, name string, st unix.Stat_t) (int, unix.Stat_t, error) {
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT {
		return -1, st, nil
	}
	if err != nil {
		return -1, st, err
	}
	var now unix.Stat_t
	if err := unix.Fstat(fd, &now); err != nil {
		unix.Close(fd)
		return -1, st, err
	}
	switch now.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return fd, now, nil
	case unix.S_IFLNK:
		st.Mode |= unix.S_IFLNK
	} // a directory hides a lower file by itself
	unix.Close(fd)
	return -1, st, nil
}

// hide makes the live name rel absent, if it is there or always: then it stays
// absent when it comes up later. A name that the layer has is fs.ErrExist.
func (l *layer) hide(rel string, lo *layout, lower *live, always bool) error {
	if _, err := lower.lstat(rel); !always && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	c, err := l.enter(filepath.Dir(rel), lo)
	if err != nil {
		return err
	}
	// A character device 0/0 is overlay's mark of absence; anybody may make it.
	if err := unix.Mknodat(c.up, filepath.Base(rel), unix.S_IFCHR, int(unix.Mkdev(0, 0))); err != nil {
		return &fs.PathError{Op: "make whiteout", Path: filepath.Join(l.upper, rel), Err: err}
	}
	return nil
}

// lay puts the after-state over the live tree.
func (l *layer) lay(lo *layout) error {
	for _, rel := range lo.remove {
		if err := l.hide(rel, lo, lo.live, false); err != nil {
			return err
		}
	}
	for _, e := range lo.write {
		rel := e.Path.String()
		c, err := l.enter(filepath.Dir(rel), lo)
		if err != nil {
			return err
		}
		at := target{dir: c.up, name: filepath.Base(rel), plain: c.plain}
		if c.low >= 0 {
			var st unix.Stat_t
			switch err := unix.Fstatat(c.low, at.name, &st, unix.AT_SYMLINK_NOFOLLOW); {
			case err == nil:
				at.now = &st
			case err != unix.ENOENT:
				return &fs.PathError{Op: "look at", Path: filepath.Join(l.lower, rel), Err: err}
			}
		}
		if err := lo.put(e, at); err != nil {
			return err
		}
	}
	return nil
}
