package gitbase

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"sync"

	"github.com/aspengine/asp/snapshot"
	"github.com/aspengine/asp/snapshot/gitbase/attrs"
	"github.com/aspengine/asp/snapshot/gitbase/ignore"
	"github.com/aspengine/asp/snapshot/scan"
)

// rules are the ignore rules and attributes of one directory. The matchers are
// built when first asked: most directories hold nothing untracked and nothing
// changed. Safe for concurrent use.
type rules struct {
	parent *rules
	name   string
	e      *env
	gi, ga []byte // the directory's .gitignore and .gitattributes
	// special: some attributes file above may give a path a content filter.
	special bool

	ignOnce, attOnce sync.Once
	ign              *ignore.Dir
	att              *attrs.Dir
}

const (
	ignoreName = ".gitignore"
	attrName   = ".gitattributes"
)

func newRules(e *env, gi, ga []byte) *rules {
	r := &rules{e: e, gi: gi, ga: ga}
	for _, b := range [][]byte{e.sysAttr, e.globalAttr, e.infoAttr, ga} {
		r.special = r.special || filters(b)
	}
	return r
}

func (r *rules) enter(name string, gi, ga []byte) *rules {
	return &rules{parent: r, name: name, e: r.e, gi: gi, ga: ga, special: r.special || filters(ga)}
}

// filters tells whether an attributes file can name a filter or an encoding.
func filters(ga []byte) bool {
	return bytes.Contains(ga, []byte("filter")) || bytes.Contains(ga, []byte("working-tree-encoding"))
}

func (r *rules) ignore() *ignore.Dir {
	r.ignOnce.Do(func() {
		if r.parent == nil {
			r.ign = ignore.New(ignore.Options{Global: r.e.globalIgnore, Info: r.e.infoIgnore, Root: r.gi, IgnoreCase: r.e.fold})
			return
		}
		r.ign = r.parent.ignore().Enter(r.name, r.gi)
	})
	return r.ign
}

func (r *rules) attrs() *attrs.Dir {
	r.attOnce.Do(func() {
		if r.parent == nil {
			r.att = attrs.New(attrs.Options{System: r.e.sysAttr, Global: r.e.globalAttr, Info: r.e.infoAttr, Root: r.ga, IgnoreCase: r.e.fold})
			return
		}
		r.att = r.parent.attrs().Enter(r.name, r.ga)
	})
	return r.att
}

// ignored tells whether an untracked name in the directory is ignored.
func (r *rules) ignored(name string, isDir bool) bool {
	return r.ignore().Match(name, isDir) == ignore.Ignored
}

// source reads files of rules: from disk, from the effects of a plan that is
// thought applied, or from the index where git does.
type source struct {
	t    *table
	objs *objects
	virt map[string]*snapshot.Effect
	// staged says that the effects go into the index, too: what they remove is
	// not found there any more.
	staged bool
}

// read returns the bytes of the file of rules name in the directory dir (d
// open, or invalid when it does not exist on disk). onDisk says that a listing
// saw a regular file of that name.
func (s *source) read(d scan.DirHandle, dir, name string, onDisk bool) ([]byte, error) {
	path := name
	if dir != "" {
		path = dir + "/" + name
	}
	if v := s.virt[path]; v != nil {
		if v.Gone && s.staged {
			return nil, nil
		}
		if v.Gone || v.Mode == snapshot.ModeSymlink {
			return s.fromIndex(path, name)
		}
		return effectBytes(v, maxRules)
	}
	if onDisk {
		f, err := d.Open(name)
		if err == nil {
			defer f.Close()
			b, err := io.ReadAll(io.LimitReader(f, maxRules+1))
			if err == nil && len(b) > maxRules {
				err = fmt.Errorf("read %.200q: more than %d bytes of rules", path, maxRules)
			}
			return b, err
		}
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, scan.ErrUnreadable) && !errors.Is(err, scan.ErrNotRegular) {
			return nil, err
		}
	}
	return s.fromIndex(path, name)
}

// fromIndex is git's fallback: attributes of a file that is not on disk come
// from the index; ignore rules only when it is not checked out on purpose.
func (s *source) fromIndex(path, name string) ([]byte, error) {
	e := s.t.find(path)
	if e == nil || e.flags&inIndex == 0 || e.flags&intentOnly != 0 || name == ignoreName && e.flags&skipWT == 0 ||
		s.t.idx.mode(e)&0o170000 != 0o100000 {
		return nil, nil
	}
	var out []byte
	err := s.objs.blob(s.t.idx.id(e), func(size int64, r io.Reader) (err error) {
		if size > maxRules {
			return fmt.Errorf("read %.200q: more than %d bytes of rules", path, maxRules)
		}
		out, err = io.ReadAll(r)
		return err
	})
	return out, err
}

func effectBytes(v *snapshot.Effect, limit int64) ([]byte, error) {
	if v.Size > limit || v.Open == nil {
		return nil, fmt.Errorf("read after-bytes of %.200q: %d bytes, at most %d", v.Path.String(), v.Size, limit)
	}
	r, err := v.Open()
	if err != nil {
		return nil, fmt.Errorf("read after-bytes of %.200q: %w", v.Path.String(), err)
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(b)) != v.Size {
		err = fmt.Errorf("read after-bytes of %.200q: %d bytes, not %d", v.Path.String(), len(b), v.Size)
	}
	return b, err
}

// dirRules are the rules of the directory at path, as a walk read them.
type dirRules struct {
	path string
	rl   *rules
}

// lookup builds the rules of single directories, from the top down, for paths
// that no walk passes. Not for concurrent use.
type lookup struct {
	e    *env
	src  source
	root scan.DirHandle
	seen map[string]*rules
	// walked are the rules that the walk of the stamp in question read: who asks
	// about that stamp gets its answer and not that of another moment.
	walked map[string]*rules
}

// of returns the rules of the directory dir ("" or "." for the top).
func (l *lookup) of(dir string) (*rules, error) {
	if dir == "." {
		dir = ""
	}
	if r := l.walked[dir]; r != nil {
		return r, nil
	}
	if r := l.seen[dir]; r != nil {
		return r, nil
	}
	var parent *rules
	name := dir
	if dir != "" {
		up := ""
		if i := strings.LastIndexByte(dir, '/'); i >= 0 {
			up, name = dir[:i], dir[i+1:]
		}
		var err error
		if parent, err = l.of(up); err != nil {
			return nil, err
		}
	}
	d, derr := l.root.OpenDir(dir)
	if derr == nil {
		defer d.Close()
	}
	gi, err := l.src.read(d, dir, ignoreName, derr == nil)
	if err != nil {
		return nil, err
	}
	ga, err := l.src.read(d, dir, attrName, derr == nil)
	if err != nil {
		return nil, err
	}
	var r *rules
	if parent == nil {
		r = newRules(l.e, gi, ga)
	} else {
		r = parent.enter(name, gi, ga)
	}
	l.seen[dir] = r
	return r, nil
}
