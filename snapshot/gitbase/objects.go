package gitbase

import (
	"bytes"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/go-git/go-git/v5/plumbing/format/objfile"
)

// objects reads git objects: loose, packed, and those of alternates. Nothing is
// opened before the first object is asked for: a warm stamp reads none. Safe
// for concurrent use.
//
// Of go-git only the formats of loose objects and deltas are used. Its storage
// would do the rest, at the price of a configuration parser, gob and regular
// expressions that every start of every command pays for, and of loading pack
// indexes whole; its object package brings key rings and ssh on top.
type objects struct {
	common string

	mu    sync.Mutex
	dirs  []string
	packs []*pack
	ready bool
}

// Limits: a tree or commit held in memory; alternates of alternates, as git.
const (
	maxTree       = 256 << 20
	maxAlternates = 5
)

var errNoObject = errors.New("object is not in the repository")

// open lists object directories and packs.
func (o *objects) open() error {
	if o.ready {
		return nil
	}
	o.dirs = nil
	if err := o.alternates(filepath.Join(o.common, "objects"), 0); err != nil {
		return err
	}
	for _, d := range o.dirs {
		list, err := os.ReadDir(filepath.Join(d, "pack"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, e := range list {
			name, ok := strings.CutSuffix(e.Name(), ".idx")
			if !ok {
				continue
			}
			p, err := openPack(filepath.Join(d, "pack", name))
			if errors.Is(err, fs.ErrNotExist) {
				continue // an index without its pack, or a repack under way
			}
			if err != nil {
				return err
			}
			o.packs = append(o.packs, p)
		}
	}
	o.ready = true
	return nil
}

func (o *objects) alternates(dir string, depth int) error {
	for _, d := range o.dirs {
		if d == dir {
			return nil
		}
	}
	o.dirs = append(o.dirs, dir)
	b, err := readSmall(filepath.Join(dir, "info", "alternates"), maxRules)
	if errors.Is(err, fs.ErrNotExist) || depth >= maxAlternates {
		return nil
	}
	if err != nil {
		return err
	}
	for line := range strings.SplitSeq(string(b), "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		if line[0] == '"' {
			if u, err := strconv.Unquote(line); err == nil {
				line = u
			}
		}
		if !filepath.IsAbs(line) {
			line = filepath.Join(dir, line)
		}
		if fi, err := os.Stat(line); err != nil || !fi.IsDir() {
			continue // as git: an alternate that is gone is passed over
		}
		if err := o.alternates(filepath.Clean(line), depth+1); err != nil {
			return err
		}
	}
	return nil
}

func (o *objects) close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.forget()
}

func (o *objects) forget() error {
	var errs []error
	for _, p := range o.packs {
		errs = append(errs, p.close())
	}
	o.packs, o.ready = nil, false
	return errors.Join(errs...)
}

// with finds the object and calls f once, with a reader of its content.
func (o *objects) with(id oid, f func(typ string, size int64, r io.Reader) error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for try := range 2 {
		if err := o.open(); err != nil {
			return fmt.Errorf("read object %s: %w", id, err)
		}
		err := o.locate(id, f)
		if try == 0 && errors.Is(err, errNoObject) {
			// A repack may have moved it since the packs were listed.
			if err := o.forget(); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("read object %s: %w", id, err)
		}
		return nil
	}
	return nil
}

func (o *objects) locate(id oid, f func(typ string, size int64, r io.Reader) error) error {
	for _, p := range o.packs {
		at, err := p.find(id)
		if err != nil {
			return err
		}
		if at == 0 {
			continue
		}
		h, err := p.header(at)
		if err != nil {
			return err
		}
		if h.typ == packBlob { // may be large: streamed
			r, err := p.inflate(h)
			if err != nil {
				return err
			}
			return errors.Join(f("blob", h.size, r), r.Close())
		}
		typ, b, err := p.whole(at)
		if err != nil {
			return err
		}
		names := map[int]string{packCommit: "commit", packTree: "tree", packBlob: "blob"}
		return f(names[typ], int64(len(b)), bytes.NewReader(b))
	}
	hx := id.String()
	for _, d := range o.dirs {
		file, err := openRegular(filepath.Join(d, hx[:2], hx[2:]))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		defer file.Close()
		r, err := objfile.NewReader(file)
		if err != nil {
			return err
		}
		defer r.Close()
		typ, size, err := r.Header()
		if err != nil {
			return err
		}
		return f(typ.String(), size, r)
	}
	return errNoObject
}

// read returns the content of a commit or tree, checked against its id.
func (o *objects) read(want string, id oid) (b []byte, err error) {
	err = o.with(id, func(typ string, size int64, r io.Reader) error {
		if typ != want {
			return fmt.Errorf("it is a %s, not a %s", typ, want)
		}
		if size > maxTree {
			return fmt.Errorf("%d bytes is too large", size)
		}
		b = make([]byte, size)
		if _, err := io.ReadFull(r, b); err != nil {
			return err
		}
		h := sha1.New()
		h.Write(objectHeader(typ, size))
		h.Write(b)
		if oid(h.Sum(nil)) != id {
			return errDamaged
		}
		return nil
	})
	return b, err
}

// errDamaged says that what has an object's name is not what the name says. The
// checksum of its compression need not find that: a file under another's name, or
// a delta on another base, is whole.
var errDamaged = errors.New("its content does not hash to its name; `git fsck` tells what is damaged")

// blob calls f with a reader of the blob's content. What f was given counts only if
// there is no error: f sees the bytes before they are known to be those of the name.
// What f leaves unread is read after it, unless it fails.
func (o *objects) blob(id oid, f func(size int64, r io.Reader) error) error {
	return o.with(id, func(typ string, size int64, r io.Reader) error {
		if typ != "blob" {
			return fmt.Errorf("it is a %s, not a blob", typ)
		}
		h := sha1.New()
		h.Write(objectHeader(typ, size))
		r = io.TeeReader(io.LimitReader(r, size), h)
		if err := f(size, r); err != nil {
			return err
		}
		if _, err := io.Copy(io.Discard, r); err != nil {
			return err
		}
		if oid(h.Sum(nil)) != id {
			return errDamaged
		}
		return nil
	})
}

// treeOf reads the id of a commit's tree from the commit's first line.
func (o *objects) treeOf(commit string) (oid, error) {
	id, err := parseOID(commit)
	if err != nil {
		return id, err
	}
	b, err := o.read("commit", id)
	if err != nil {
		return oid{}, err
	}
	if len(b) < 46 || string(b[:5]) != "tree " || b[45] != '\n' {
		return oid{}, fmt.Errorf("read commit %s: no tree line", commit)
	}
	return parseOID(string(b[5:45]))
}

func parseOID(s string) (id oid, err error) {
	if len(s) != 2*len(id) {
		return id, fmt.Errorf("%.200q is no SHA-1 object id", s)
	}
	if _, err = hex.Decode(id[:], []byte(s)); err != nil {
		return id, fmt.Errorf("%.200q is no SHA-1 object id", s)
	}
	return id, nil
}

// emptyTree is the id of the tree without entries, which git knows without
// storing it.
const emptyTree = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"

// tree calls f for every entry of the tree id, in its order. Modes are git's
// canonical ones.
func (o *objects) tree(id oid, f func(name string, te treeEntry) error) error {
	if id.String() == emptyTree {
		return nil
	}
	b, err := o.read("tree", id)
	if err != nil {
		return err
	}
	for len(b) > 0 {
		sp, z := bytes.IndexByte(b, ' '), bytes.IndexByte(b, 0)
		if sp < 1 || sp > 7 || z < sp+2 || len(b) < z+21 {
			return fmt.Errorf("read tree %s: malformed entry", id)
		}
		var m uint32
		for _, c := range b[:sp] {
			if c < '0' || c > '7' {
				return fmt.Errorf("read tree %s: malformed mode", id)
			}
			m = m<<3 | uint32(c-'0')
		}
		te := treeEntry{mode: canonicalMode(m)}
		copy(te.id[:], b[z+1:])
		name := string(b[sp+1 : z])
		if err := checkName(name); err != nil || strings.IndexByte(name, '/') >= 0 {
			return fmt.Errorf("read tree %s: bad name %.200q", id, name)
		}
		if err := f(name, te); err != nil {
			return err
		}
		b = b[z+21:]
	}
	return nil
}

const modeTree = 0o040000

// canonicalMode maps what old programs wrote (0100664) to what git means.
func canonicalMode(m uint32) uint32 {
	switch m & 0o170000 {
	case 0o100000:
		if m&0o100 != 0 {
			return 0o100755
		}
		return 0o100644
	case 0o120000, 0o160000:
		return m & 0o170000
	case modeTree:
		return modeTree
	}
	return 0o160000 // as git does with the unknown
}
