//go:build linux

package worktree

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/aspengine/asp/snapshot"
	"golang.org/x/sys/unix"
)

// layout is what the effects mean for the tree, worked out once for both
// methods against the live tree as it is.
type layout struct {
	live   *live
	umask  uint32
	euid   int
	egid   int
	write  []snapshot.Effect // files and links to make, by path
	remove []string          // paths that vanish: files, and directories left empty; outermost only
	gone   map[string]bool   // every path that the plan takes away, even if it puts something else there
	perm   func(snapshot.Path) (uint32, bool)
	buf    []byte // of pour
	hash   digester
}

// plan works the layout out. It reads the live tree and writes nothing.
func plan(root *live, effects []snapshot.Effect, perm func(snapshot.Path) (uint32, bool)) (*layout, error) {
	l := &layout{live: root, perm: perm, euid: os.Geteuid(), egid: os.Getegid(), gone: map[string]bool{}}
	var err error
	if l.umask, err = umask(); err != nil {
		return nil, err
	}
	gone := l.gone
	stay := map[string]bool{} // written paths and all directories above them
	for _, e := range effects {
		if e.Path.IsZero() {
			return nil, errors.New("lay out candidate: an effect has no path")
		}
		if e.Gone {
			gone[e.Path.String()] = true
			continue
		}
		switch e.Mode {
		case snapshot.ModeRegular, snapshot.ModeExecutable, snapshot.ModeSymlink:
		default:
			return nil, fmt.Errorf("lay out candidate: %.200q has mode %o, which no file has", e.Path, e.Mode)
		}
		l.write = append(l.write, e)
		for s := e.Path.String(); s != "."; s = filepath.Dir(s) {
			stay[s] = true
		}
	}
	sort.Slice(l.write, func(i, j int) bool { return l.write[i].Path.String() < l.write[j].Path.String() })
	removed := map[string]bool{}
	for p := range gone {
		if !stay[p] {
			removed[p] = true
		}
	}
	// A directory that loses its last name goes too, as in git; one level up may
	// follow. Deepest first, so that a parent sees what became of its children.
	dirs := map[string]bool{}
	for p := range gone {
		for d := filepath.Dir(p); d != "."; d = filepath.Dir(d) {
			dirs[d] = true
		}
	}
	order := make([]string, 0, len(dirs))
	for d := range dirs {
		order = append(order, d)
	}
	sort.Slice(order, func(i, j int) bool { return strings.Count(order[i], "/") > strings.Count(order[j], "/") })
	for _, d := range order {
		if stay[d] && !l.writesAt(d) {
			continue
		}
		empty, err := l.emptied(d, removed)
		if err != nil {
			return nil, err
		}
		if !empty {
			if l.writesAt(d) {
				return nil, fmt.Errorf("lay out candidate: %.200q becomes a file, but holds other names", d)
			}
			continue
		}
		if !stay[d] {
			removed[d] = true
		}
	}
	for p := range removed {
		outer := false
		for d := filepath.Dir(p); d != "."; d = filepath.Dir(d) {
			outer = outer || removed[d] || l.writesAt(d)
		}
		if !outer {
			l.remove = append(l.remove, p)
		}
	}
	sort.Strings(l.remove)
	return l, nil
}

func (l *layout) writesAt(p string) bool {
	i := sort.Search(len(l.write), func(i int) bool { return l.write[i].Path.String() >= p })
	return i < len(l.write) && l.write[i].Path.String() == p
}

// emptied tells whether every live name in d is removed.
func (l *layout) emptied(d string, removed map[string]bool) (bool, error) {
	st, err := l.live.lstat(d)
	if errors.Is(err, fs.ErrNotExist) || err == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return false, nil
	}
	names, err := os.ReadDir(filepath.Join(l.live.path, d))
	if err != nil {
		return false, fmt.Errorf("lay out candidate: %w", err)
	}
	for _, n := range names {
		p := d + "/" + n.Name()
		if !removed[p] && !l.gone[p] {
			return false, nil
		}
	}
	return true, nil
}

// permOf gives the bits that a regular file of the after-state has; live is the
// regular file that is there now, nil when there is none.
func (l *layout) permOf(e snapshot.Effect, live *unix.Stat_t) uint32 {
	if l.perm != nil {
		if p, ok := l.perm(e.Path); ok {
			return p & 0o7777
		}
	}
	if live == nil {
		if e.Mode == snapshot.ModeExecutable {
			return 0o777 &^ l.umask
		}
		return 0o666 &^ l.umask
	}
	p := live.Mode & 0o7777
	switch {
	case e.Mode == snapshot.ModeExecutable && p&0o100 == 0:
		p |= (p & 0o444) >> 2 // whoever may read may run
	case e.Mode == snapshot.ModeRegular && p&0o100 != 0:
		p &^= 0o111
	}
	return p
}

// target is where put writes.
type target struct {
	dir   int // descriptor that name is relative to
	name  string
	now   *unix.Stat_t // what the live tree has there; nil for nothing
	plain bool         // a file made there gets the mode asked for less the umask, and our owner
}

// put writes one effect at a name that must not exist, and checks its bytes. It
// is not for concurrent use.
func (l *layout) put(e snapshot.Effect, at target) error {
	r, err := e.Open()
	if err != nil {
		return fmt.Errorf("open after-bytes of %.200q: %w", e.Path, err)
	}
	defer r.Close()
	if e.Mode == snapshot.ModeSymlink {
		b, err := io.ReadAll(io.LimitReader(r, unix.PathMax+1))
		if err != nil {
			return fmt.Errorf("read after-bytes of %.200q: %w", e.Path, err)
		}
		if snapshot.DigestOf(b) != e.Digest {
			return fmt.Errorf("after-bytes of %.200q do not match their digest", e.Path)
		}
		if err := unix.Symlinkat(string(b), at.dir, at.name); err != nil {
			return &fs.PathError{Op: "make link", Path: e.Path.String(), Err: err}
		}
		return nil
	}
	if at.now != nil && at.now.Mode&unix.S_IFMT != unix.S_IFREG {
		at.now = nil
	}
	perm := l.permOf(e, at.now)
	plain := at.plain && perm&(l.umask|0o7000) == 0
	uid, gid, owned := 0, 0, at.now != nil && l.euid == 0 // only root may give files away
	if owned {
		uid, gid = int(at.now.Uid), int(at.now.Gid)
		plain = plain && uid == 0 && gid == l.egid
	}
	mode := perm
	if !plain {
		mode = 0o600
	}
	fd, err := unix.Openat(at.dir, at.name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode)
	if err != nil {
		return &fs.PathError{Op: "create", Path: e.Path.String(), Err: err}
	}
	err = l.pour(e, r, fd)
	if err == nil && owned && !plain {
		_ = unix.Fchown(fd, uid, gid)
	}
	if err == nil && !plain {
		err = unix.Fchmod(fd, perm) // after chown, which clears set-id bits
	}
	return errors.Join(err, unix.Close(fd))
}

// pour copies r to fd and holds it against the effect's digest.
func (l *layout) pour(e snapshot.Effect, r io.Reader, fd int) error {
	if l.buf == nil {
		l.buf, l.hash = make([]byte, 64<<10), newDigester()
	}
	l.hash.Reset()
	for {
		n, err := r.Read(l.buf)
		l.hash.Write(l.buf[:n])
		for b := l.buf[:n]; len(b) > 0; {
			k, err := unix.Write(fd, b)
			if err == unix.EINTR {
				continue
			}
			if err != nil {
				return fmt.Errorf("write after-bytes of %.200q: %w", e.Path, err)
			}
			b = b[k:]
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return fmt.Errorf("read after-bytes of %.200q: %w", e.Path, err)
		}
	}
	if l.hash.digest() != e.Digest {
		return fmt.Errorf("after-bytes of %.200q do not match their digest", e.Path)
	}
	return nil
}

// live is a live directory held open for looking at names in it.
type live struct {
	path string
	fd   int
}

func openLive(path string) (*live, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return &live{path, fd}, nil
}

func (l *live) close() { unix.Close(l.fd) }

// lstat describes the name rel. A name behind a link or a file is not there: what
// the link leads to is not what the plan will put at that path.
func (l *live) lstat(rel string) (unix.Stat_t, error) {
	var st unix.Stat_t
	fd, err := unix.Openat2(l.fd, rel, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
	if err == unix.ELOOP || err == unix.ENOTDIR {
		err = unix.ENOENT
	}
	if err == nil {
		err = unix.Fstat(fd, &st)
		unix.Close(fd)
	}
	if err != nil {
		return st, &fs.PathError{Op: "stat", Path: filepath.Join(l.path, rel), Err: err}
	}
	return st, nil
}

// umask reads the process's mask without changing it: to ask with umask(2) means
// to set it, for every thread.
func umask() (uint32, error) {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, fmt.Errorf("read umask: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "Umask:"); ok {
			var m uint32
			if _, err := fmt.Sscanf(v, "%o", &m); err != nil {
				return 0, fmt.Errorf("read umask: %w", err)
			}
			return m, nil
		}
	}
	return 0, errors.New("read umask: not told")
}
