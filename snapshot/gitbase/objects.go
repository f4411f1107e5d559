package gitbase

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/storage/filesystem"
)

// objects reads git objects through go-git's storage. The storage is opened at
// the first object: a warm stamp reads none. Safe for concurrent use (go-git's
// storage is not, hence the lock).
//
// Only go-git's storage and format packages are linked in. Its object package
// and its top package cost start-up time of every command (key rings, ssh),
// and all that is needed of a commit is its first line.
type objects struct {
	common string

	mu sync.Mutex
	st *filesystem.ObjectStorage
}

// maxTree bounds a commit or tree object that is read into memory.
const maxTree = 256 << 20

func (o *objects) open() *filesystem.ObjectStorage {
	if o.st == nil {
		s := filesystem.NewStorageWithOptions(osfs.New(o.common), cache.NewObjectLRU(4*cache.MiByte), filesystem.Options{
			AlternatesFS: osfs.New("/", osfs.WithBoundOS()),
		})
		o.st = &s.ObjectStorage
	}
	return o.st
}

// read returns the content of a commit or tree.
func (o *objects) read(t plumbing.ObjectType, id oid) ([]byte, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	obj, err := o.open().EncodedObject(t, plumbing.Hash(id))
	if errors.Is(err, plumbing.ErrObjectNotFound) {
		// A repack may have moved it since the packs were listed.
		o.st.Reindex()
		obj, err = o.st.EncodedObject(t, plumbing.Hash(id))
	}
	if err != nil {
		return nil, fmt.Errorf("read %s %s: %w", t, id, err)
	}
	if obj.Size() > maxTree {
		return nil, fmt.Errorf("read %s %s: %d bytes is too large", t, id, obj.Size())
	}
	r, err := obj.Reader()
	if err != nil {
		return nil, fmt.Errorf("read %s %s: %w", t, id, err)
	}
	defer r.Close()
	b := bytes.NewBuffer(make([]byte, 0, obj.Size()+bytes.MinRead))
	if _, err := b.ReadFrom(r); err != nil {
		return nil, fmt.Errorf("read %s %s: %w", t, id, err)
	}
	return b.Bytes(), nil
}

// blob calls f with a reader of the blob's content.
func (o *objects) blob(id oid, f func(size int64, r io.Reader) error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	obj, err := o.open().EncodedObject(plumbing.BlobObject, plumbing.Hash(id))
	if err != nil {
		return fmt.Errorf("read blob %s: %w", id, err)
	}
	r, err := obj.Reader()
	if err != nil {
		return fmt.Errorf("read blob %s: %w", id, err)
	}
	defer r.Close()
	return f(obj.Size(), r)
}

func (o *objects) close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.st == nil {
		return nil
	}
	err := o.st.Close()
	o.st = nil
	return err
}

// treeOf reads the id of a commit's tree from the commit's first line.
func (o *objects) treeOf(commit string) (oid, error) {
	id, err := parseOID(commit)
	if err != nil {
		return id, err
	}
	b, err := o.read(plumbing.CommitObject, id)
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

// emptyTree is the id of the tree without entries, known to git without being
// stored.
var emptyTreeID = oid{0x4b, 0x82, 0x5d, 0xc6, 0x42, 0xcb, 0x6e, 0xb9, 0xa0, 0x60,
	0xe5, 0x4b, 0xf8, 0xd6, 0x92, 0x88, 0xfb, 0xee, 0x49, 0x04}

// tree calls f for every entry of the tree id, in its order. Modes are git's
// canonical ones.
func (o *objects) tree(id oid, f func(name string, te treeEntry) error) error {
	if id == emptyTreeID {
		return nil
	}
	b, err := o.read(plumbing.TreeObject, id)
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
		if err := checkName(name); err != nil || bytes.IndexByte(b[sp+1:z], '/') >= 0 {
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
