package preconditions

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/snapshot"
)

// Fact is what is on disk at one path, seen through descriptors: every
// component was opened relative to its parent and no link was followed.
type Fact struct {
	Stat   vfs.Stat        // Kind is vfs.KindInvalid when nothing is there
	Digest snapshot.Digest // of a regular file's bytes, or of a link's target
	Target string          // link target
	// Mount is the mount of the nearest directory that exists above the path.
	Mount uint64
	// Blocked says why the path may not be looked at or written at all; the
	// other members are then unset.
	Blocked *refusal.Item
	// Under is the spelling of a parent that exists and is no directory.
	Under string
	// content is kept of small files, which later stages read again.
	content []byte
}

// maxContent and maxContents bound what one look keeps of files in memory: of
// one, and of all.
const (
	maxContent  = 1 << 20
	maxContents = 32 << 20
)

// live reads single paths of one workspace. It keeps the directories that it
// opened, so that a thousand files in a hundred directories cost a hundred
// opens. Not safe for concurrent use.
type live struct {
	root      vfs.Dir
	mount     uint64
	protected []vfs.Stat
	dirs      map[string]*dirFact
	open      int // of dirs, beside the root
	mayOpen   int
	facts     map[snapshot.Path]*Fact
	buf       []byte
	kept      int // bytes in contents
	// The rules of the system for names: what none may be, and whether one may be found
	// by another spelling.
	usable func(name string) error
	folds  bool
}

// dirFact is what was found when a directory of the workspace was opened.
type dirFact struct {
	dir     vfs.Dir // nil when absent, blocked, or closed again to save descriptors
	path    string
	stat    vfs.Stat
	absent  bool
	under   string
	blocked *refusal.Item
	mount   uint64
	names   map[string]uint64 // its listing, inode by name; nil until it is asked for
	ro      error             // not nil: names in it cannot be changed by us
	roKnown bool
}

// maxOpenDirs bounds the descriptors that one admission holds, together with a share
// of what the process may have open: a plan may touch more directories than that.
const (
	maxOpenDirs = 512
	openShare   = 8
)

func newLive(root vfs.Dir, protected []vfs.Stat) (*live, error) {
	st, err := root.Stat()
	if err != nil {
		return nil, fmt.Errorf("stat workspace root: %w", err)
	}
	l := &live{root: root, mount: st.MntID, protected: protected, mayOpen: vfs.MayKeep(maxOpenDirs, openShare), dirs: map[string]*dirFact{}, facts: map[snapshot.Path]*Fact{},
		usable: vfs.CheckName, folds: vfs.MayFold}
	l.dirs["."] = &dirFact{dir: root, path: ".", stat: st, mount: st.MntID}
	return l, nil
}

// close releases every directory but the root, which is the caller's.
func (l *live) close() {
	for k, d := range l.dirs {
		if k != "." && d.dir != nil {
			d.dir.Close()
		}
	}
}

// dirAt opens the directory at path ("." for the root), one component below
// its parent at a time.
func (l *live) dirAt(path string) (*dirFact, error) {
	if d, ok := l.dirs[path]; ok {
		if d.dir == nil && !d.absent && d.under == "" && d.blocked == nil {
			dir, err := l.root.OpenDir(path)
			if err != nil {
				return nil, fmt.Errorf("open directory %.200q: %w", path, err)
			}
			st, err := dir.Stat()
			if err != nil || !st.SameFile(d.stat) {
				dir.Close()
				return nil, errors.Join(fmt.Errorf("directory %.200q was replaced while it was looked at", path), err)
			}
			l.keep(d, dir)
		}
		return d, nil
	}
	parent, name := ".", path
	for i := len(path) - 1; i >= 0; i-- {
		if path[i] == '/' {
			parent, name = path[:i], path[i+1:]
			break
		}
	}
	p, err := l.dirAt(parent)
	if err != nil {
		return nil, err
	}
	d := &dirFact{path: path, mount: p.mount, absent: p.absent, under: p.under, blocked: p.blocked}
	if d.blocked == nil {
		d.blocked = l.unusable(name, path)
	}
	if !p.absent && p.under == "" && d.blocked == nil {
		if err := l.descend(p, name, d); err != nil {
			return nil, err
		}
	}
	l.dirs[path] = d
	return d, nil
}

func (l *live) descend(p *dirFact, name string, d *dirFact) error {
	// Opened first and looked at only if that fails: what is no directory, or is a
	// link to one, is not opened by this.
	dir, err := p.dir.OpenDir(name)
	if errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP) {
		st, serr := p.dir.Lstat(name)
		switch {
		case errors.Is(serr, fs.ErrNotExist):
			d.absent = true
			return nil
		case serr != nil:
			return fmt.Errorf("stat %.200q: %w", d.path, serr)
		case st.Kind == vfs.KindSymlink:
			it := refusal.New(refusal.PathEscape, d.path, -1, "%q is a symbolic link; name the file by its real path", cut(d.path))
			d.blocked = &it
			return nil
		case st.Kind != vfs.KindDir:
			d.under = d.path
			return nil
		}
	}
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			d.absent = true
			return nil
		}
		if errors.Is(err, syscall.EACCES) {
			it := refusal.New(refusal.NotWritable, d.path, -1, "directory %q cannot be opened: permission denied", cut(d.path))
			d.blocked = &it
			return nil
		}
		return fmt.Errorf("open directory %.200q: %w", d.path, err)
	}
	if d.stat, err = dir.Stat(); err != nil {
		dir.Close()
		return fmt.Errorf("stat directory %.200q: %w", d.path, err)
	}
	d.mount = d.stat.MntID
	if d.blocked, err = l.misspelt(p, name, d.path, d.stat); err != nil || d.blocked != nil {
		dir.Close()
		return err
	}
	for _, x := range l.protected {
		if d.stat.SameFile(x) {
			dir.Close()
			it := refusal.New(refusal.PathProtected, d.path, -1, "%q is the repository's or the engine's own directory", cut(d.path))
			d.blocked = &it
			return nil
		}
	}
	if _, err := dir.Lstat(".git"); err == nil {
		dir.Close()
		it := refusal.New(refusal.OtherRepository, d.path, -1, "%q is another git repository; apply the plan there", cut(d.path))
		d.blocked = &it
		return nil
	}
	l.keep(d, dir)
	return nil
}

// unusable refuses a name that the system gives another meaning, or none.
func (l *live) unusable(name, path string) *refusal.Item {
	if l.usable(name) == nil {
		return nil
	}
	it := refusal.New(refusal.PathInvalid, path, -1, "%q is no name that a file can have on this system", cut(name))
	return &it
}

// misspelt refuses a path whose last name was found in d although it is spelled
// otherwise there: the baseline, the receipt and the index know it by its own.
func (l *live) misspelt(d *dirFact, name, path string, st vfs.Stat) (*refusal.Item, error) {
	if !l.folds {
		return nil, nil
	}
	if d.names == nil {
		es, err := d.dir.List()
		if err != nil {
			return nil, fmt.Errorf("list %.200q: %w", d.path, err)
		}
		d.names = make(map[string]uint64, len(es))
		for _, e := range es {
			d.names[e.Name] = e.Ino
		}
	}
	if _, ok := d.names[name]; ok {
		return nil, nil
	}
	for own, ino := range d.names {
		if ino == st.Ino {
			it := refusal.New(refusal.NameCollision, path, -1, "is spelled %q on disk, and the file system does not tell the two apart", cut(own))
			return &it, nil
		}
	}
	return nil, fmt.Errorf("%.200q came or went while it was looked at", path)
}

// keep holds the open handle of d, which is not held yet.
func (l *live) keep(d *dirFact, dir vfs.Dir) {
	if l.open >= l.mayOpen {
		l.closeSome(d.path)
	}
	d.dir = dir
	l.open++
}

// closeSome gives back half of the descriptors, those of the directories above path
// last: what is looked at next is likely to be below them. They are not needed, as path
// is open already; one path may have more of them than may be open. Identities stay
// known and are compared when a directory is opened again.
func (l *live) closeSome(path string) {
	for _, above := range []bool{false, true} {
		for k, d := range l.dirs {
			if k == "." || d.dir == nil || within(path, k) != above {
				continue
			}
			d.dir.Close()
			d.dir = nil
			if l.open--; l.open <= l.mayOpen/2 {
				return
			}
		}
	}
}

func within(path, dir string) bool {
	return len(path) > len(dir) && path[len(dir)] == '/' && path[:len(dir)] == dir
}

// fact looks at a path once and remembers the answer.
func (l *live) fact(p snapshot.Path) (*Fact, error) {
	if f, ok := l.facts[p]; ok {
		return f, nil
	}
	f, err := l.look(p, true)
	if err != nil {
		return nil, err
	}
	l.facts[p] = f
	return f, nil
}

// look reads a path's present state; with digest, a file's bytes too.
func (l *live) look(p snapshot.Path, digest bool) (*Fact, error) {
	d, err := l.dirAt(p.Dir())
	if err != nil {
		return nil, err
	}
	f := &Fact{Mount: d.mount, Blocked: d.blocked, Under: d.under}
	if f.Blocked == nil {
		f.Blocked = l.unusable(p.Base(), p.String())
	}
	if d.absent || f.Blocked != nil || d.under != "" {
		return f, nil
	}
	// Most are files, which are described through the handle that reads them.
	var fh vfs.File
	open := func() (err error) {
		if fh, err = d.dir.Open(p.Base()); err == nil {
			f.Stat, err = fh.Stat()
		}
		return err
	}
	defer func() {
		if fh != nil {
			fh.Close()
		}
	}()
	if !digest || open() != nil && fh == nil {
		f.Stat, err = d.dir.Lstat(p.Base())
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f.Stat = vfs.Stat{}
		return f, nil
	case err != nil:
		return nil, fmt.Errorf("stat %.200q: %w", p, err)
	}
	if f.Blocked, err = l.misspelt(d, p.Base(), p.String(), f.Stat); err != nil || f.Blocked != nil {
		f.Stat = vfs.Stat{}
		return f, err
	}
	for _, x := range l.protected {
		if f.Stat.SameFile(x) {
			it := refusal.New(refusal.PathProtected, p.String(), -1, "%q is the repository's or the engine's own", cut(p.String()))
			f.Blocked = &it
			return f, nil
		}
	}
	switch f.Stat.Kind {
	case vfs.KindSymlink:
		if f.Target, err = d.dir.Readlink(p.Base()); err != nil {
			return nil, fmt.Errorf("read link %.200q: %w", p, err)
		}
		f.Digest = snapshot.DigestOf([]byte(f.Target))
	case vfs.KindFile:
		if !digest {
			return f, nil
		}
		if fh == nil { // for the error, or because it is a file only now
			err = open()
		}
		if err == nil {
			// What was hashed is what is described, even if the name was given to
			// another file in between.
			f.Digest, f.content, err = l.hash(fh, f.Stat.Size)
		}
		if errors.Is(err, syscall.EACCES) {
			it := refusal.New(refusal.NotWritable, p.String(), -1, "%q cannot be read: permission denied", cut(p.String()))
			f.Blocked = &it
			return f, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read %.200q: %w", p, err)
		}
	}
	return f, nil
}

// hash streams a file, or keeps it if it is small.
func (l *live) hash(fh vfs.File, size int64) (d snapshot.Digest, content []byte, err error) {
	if size <= maxContent && l.kept+int(size) <= maxContents {
		content = make([]byte, 0, size+1)
		for len(content) < cap(content) {
			n, err := fh.Read(content[len(content):cap(content)])
			content = content[:len(content)+n]
			// A read that is shorter than asked for and reaches the size has met the
			// end: a regular file reads short nowhere else, and there was room for
			// one byte more.
			if err == io.EOF || err == nil && int64(len(content)) == size {
				l.kept += len(content)
				return snapshot.DigestOf(content), content, nil
			}
			if err != nil {
				return d, nil, err
			}
		}
		// It grew. What was read so far counts, and the rest is streamed.
	}
	h := sha256.New()
	h.Write(content)
	if l.buf == nil {
		l.buf = make([]byte, 128<<10)
	}
	for {
		n, err := fh.Read(l.buf)
		h.Write(l.buf[:n])
		if err == io.EOF {
			break
		}
		if err != nil {
			return d, nil, err
		}
	}
	h.Sum(d[:0])
	return d, nil, nil
}

// bytes reads a whole file; only files that take text edits come here.
func (l *live) bytes(p snapshot.Path, limit int64) ([]byte, error) {
	d, err := l.dirAt(p.Dir())
	if err != nil {
		return nil, err
	}
	if d.dir == nil {
		return nil, fmt.Errorf("read %.200q: %w", p, fs.ErrNotExist)
	}
	fh, err := d.dir.Open(p.Base())
	if err != nil {
		return nil, err
	}
	defer fh.Close()
	st, err := fh.Stat()
	if err != nil {
		return nil, err
	}
	if st.Size > limit {
		return nil, fmt.Errorf("read %.200q: %d bytes are more than a text edit may load (%d)", p, st.Size, limit)
	}
	b := make([]byte, 0, st.Size+1)
	for {
		n, err := fh.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if err == io.EOF {
			return b, nil
		}
		if err != nil {
			return nil, err
		}
		if len(b) == cap(b) {
			if int64(len(b)) > limit {
				return nil, fmt.Errorf("read %.200q: grows while it is read", p)
			}
			b = append(b, 0)[:len(b)]
		}
	}
}

// writable tells why names in the nearest existing directory above p cannot be
// changed by this process, or nil.
func (l *live) writable(p snapshot.Path) error {
	path := p.Dir()
	for {
		d, err := l.dirAt(path)
		if err != nil {
			return err
		}
		if d.dir == nil {
			path = parentOf(path)
			continue
		}
		if !d.roKnown {
			d.roKnown = true
			if fd, ok := d.dir.(vfs.Descriptor); ok {
				d.ro = vfs.MayWrite(fd)
			}
		}
		if d.ro != nil {
			return &os.PathError{Op: "write in directory", Path: path, Err: d.ro}
		}
		return nil
	}
}

func parentOf(p string) string {
	for i := len(p) - 1; i >= 0; i-- {
		if p[i] == '/' {
			return p[:i]
		}
	}
	return "."
}

// cut bounds foreign text.
func cut(s string) string {
	if len(s) > 200 {
		return s[:200] + "…"
	}
	return s
}
