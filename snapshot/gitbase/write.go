package gitbase

import (
	"bytes"
	"compress/flate"
	"compress/zlib"
	"context"
	"crypto/rand"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/snapshot/gitbase/gitconfig"
)

// ObjectWriter adds loose objects to the repository. What it wrote is there, and
// durable, after Sync. An object that is there
// already (loose, packed or in an alternate) is read, and not written again, unless
// it is loose and not whole: git does not sync an object before it has its
// name, so a power cut can leave one without its bytes. In an alternate, which is
// somebody else's, it stays as it is: git takes the repository's own first. Where it
// is packed and damaged nothing helps, as git takes the pack's before a loose one,
// and that is an error. One goroutine at a time.
//
// A file is written under a name that starts with tempObject, which
// SweepObjects and, should that never run, git's own prune remove; the object's
// name appears, once its bytes are durable, by a rename that cannot replace. Names first
// would be a barrier less in bulk, and leave objects without their bytes where the power
// goes: nothing refers to them, but git fsck calls the repository corrupt.
type ObjectWriter struct {
	r     *Repo
	root  vfs.Dir            // objects
	dirs  map[string]vfs.Dir // as many as may stay open
	open  []vfs.File         // written or found, not synced
	fresh []freshObject      // written, without their names
	has   map[oid]bool       // of fresh
	most  int                // open files, and directories
	bulk  bool               // too many to sync one by one
	made  bool               // a directory was made in root
	perm  sharedPerm
}

type freshObject struct {
	id   oid
	tmp  string
	size int64 // header and content, not compressed
}

const (
	tempObject = "tmp_obj_asp_"
	// Open files, and directories that files go to, at a time: those of a writer are
	// a share of what the process may have. Beyond them one syncfs is cheaper, too.
	maxUnsynced   = 64
	unsyncedShare = 8
)

// WriteObjects opens the object directory for writing. The caller closes the
// writer.
func (r *Repo) WriteObjects(ctx context.Context, fsys vfs.FS) (*ObjectWriter, error) {
	cfg, err := loadConfig(ctx, r.Places, Head{})
	if err != nil {
		return nil, fmt.Errorf("write objects: %w", err)
	}
	w := &ObjectWriter{r: r, dirs: map[string]vfs.Dir{}, has: map[oid]bool{}, most: vfs.MayKeep(maxUnsynced, unsyncedShare)}
	if w.perm, err = sharedFrom(cfg); err != nil {
		return nil, fmt.Errorf("write objects: %w", err)
	}
	if w.root, err = fsys.OpenRoot(filepath.Join(r.Common, "objects")); err != nil {
		return nil, fmt.Errorf("write objects: %w", err)
	}
	if err := w.perm.ownedLike(w.root); err != nil {
		return nil, fmt.Errorf("write objects: %w", errors.Join(err, w.Close()))
	}
	return w, nil
}

// Close releases the handles, and removes what has no name, as it has after Sync.
func (w *ObjectWriter) Close() error {
	var errs []error
	for _, o := range w.fresh {
		errs = append(errs, w.drop(o.tmp))
	}
	w.fresh = nil
	for _, f := range w.open {
		errs = append(errs, f.Close())
	}
	for _, d := range w.dirs {
		errs = append(errs, d.Close())
	}
	w.open, w.dirs = nil, nil
	return errors.Join(append(errs, w.root.Close())...)
}

// Sync gives every object that was written its name, and makes those and the ones
// found loose durable: bytes first, then names.
func (w *ObjectWriter) Sync() error {
	err := w.barrier(func() error {
		for _, f := range w.open {
			if err := f.Sync(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("sync objects: %w", err)
	}
	n := len(w.open)
	for len(w.fresh) > 0 {
		if err := w.name(w.fresh[0]); err != nil {
			return fmt.Errorf("name object %s: %w", w.fresh[0].id, err)
		}
		w.fresh = w.fresh[1:]
	}
	err = w.barrier(func() error {
		for _, f := range w.open[n:] { // somebody else's, found at the name
			if err := f.Sync(); err != nil {
				return err
			}
		}
		for _, d := range w.dirs {
			if err := d.Sync(); err != nil {
				return err
			}
		}
		if w.made {
			return w.root.Sync()
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("sync objects: %w", err)
	}
	return nil
}

// barrier is one by one, or all in one call where they are many.
func (w *ObjectWriter) barrier(each func() error) error {
	if w.bulk {
		return w.root.SyncFS()
	}
	return each()
}

// name gives an object its name.
func (w *ObjectWriter) name(o freshObject) error {
	d, err := w.dir(o.id)
	if err != nil {
		return err
	}
	err = w.root.Rename(o.tmp, d, o.id.String()[2:], vfs.NoReplace)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	ok, err := w.cover(o.id, o.size)
	if err != nil {
		return err
	}
	if ok { // somebody else was faster, with the same bytes
		return w.drop(o.tmp)
	}
	// What has the name is not what the name says, so it is no object of anybody's.
	return w.root.Rename(o.tmp, d, o.id.String()[2:], vfs.Replace)
}

func (w *ObjectWriter) drop(tmp string) error {
	if err := w.root.Unlink(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// bytes stores b as an object of the type.
func (w *ObjectWriter) bytes(ctx context.Context, typ string, b []byte) (oid, error) {
	h := sha1.New()
	h.Write(objectHeader(typ, int64(len(b))))
	h.Write(b)
	id := oid(h.Sum(nil))
	return id, w.put(ctx, id, typ, int64(len(b)), func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil })
}

// put stores the object that is known to have the id.
func (w *ObjectWriter) put(ctx context.Context, id oid, typ string, size int64, open func() (io.ReadCloser, error)) error {
	if err := ctx.Err(); err != nil || w.has[id] {
		return err
	}
	at, err := w.r.objs.has(id)
	has := false
	if err == nil {
		switch {
		case at.packed:
			has, err = true, w.r.objs.check(id, typ)
		case at.loose == "":
		case at.own:
			has, err = w.cover(id, int64(len(objectHeader(typ, size)))+size)
		default:
			has, err = whole(at.loose, id, typ, size)
		}
		if err == nil && has {
			return nil
		}
	}
	if err == nil {
		err = w.write(ctx, id, typ, size, open)
	}
	if err != nil {
		return fmt.Errorf("write object %s: %w", id, err)
	}
	return nil
}

// cover takes a loose object of our own directory into the barrier, as git does
// not sync loose objects by default, and tells whether it is whole: size bytes, header
// included.
func (w *ObjectWriter) cover(id oid, size int64) (bool, error) {
	d, err := w.dir(id)
	if err != nil {
		return false, err
	}
	f, err := d.Open(id.String()[2:])
	if err != nil {
		return false, err
	}
	ok, err := holds(f, id, size)
	if err != nil || !ok {
		return false, errors.Join(err, f.Close())
	}
	w.keep(f)
	return true, nil
}

// whole tells whether the file is the loose form of the object, in an alternate.
func whole(name string, id oid, typ string, size int64) (bool, error) {
	f, err := openRegular(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // packed meanwhile; to write it twice is harmless
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	return holds(f, id, int64(len(objectHeader(typ, size)))+size)
}

// holds tells whether r is the loose form of the object, of so many bytes.
func holds(r io.Reader, id oid, size int64) (bool, error) {
	h := sha1.New()
	z, err := zlib.NewReader(r)
	if err == nil {
		_, err = io.Copy(h, io.LimitReader(z, size+1))
	}
	var corrupt flate.CorruptInputError
	switch {
	case err == nil:
		return oid(h.Sum(nil)) == id, nil
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, zlib.ErrHeader), errors.Is(err, zlib.ErrChecksum), errors.Is(err, zlib.ErrDictionary), errors.As(err, &corrupt):
		return false, nil
	}
	return false, err
}

// keep holds a file for the barrier.
func (w *ObjectWriter) keep(f vfs.File) {
	if len(w.open) >= w.most {
		w.inBulk()
	}
	if w.bulk {
		_ = f.Close() // the barrier is a syncfs, which needs no handle
		return
	}
	w.open = append(w.open, f)
}

// inBulk makes the barrier a syncfs and gives back the handles that it does not need.
func (w *ObjectWriter) inBulk() {
	w.bulk = true
	for _, f := range w.open {
		_ = f.Close() // syncfs tells of every write since root was opened
	}
	for _, d := range w.dirs {
		_ = d.Close() // a directory handle loses nothing by closing
	}
	w.open = nil
	clear(w.dirs)
}

func (w *ObjectWriter) dir(id oid) (vfs.Dir, error) {
	name := id.String()[:2]
	if d := w.dirs[name]; d != nil {
		return d, nil
	}
	err := w.root.Mkdir(name, 0o777)
	fresh := err == nil
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	if len(w.dirs) >= w.most {
		w.inBulk()
	}
	d, err := w.root.OpenDir(name)
	if err != nil {
		return nil, err
	}
	w.dirs[name] = d
	if fresh {
		w.made = true
		err = w.perm.dir(d)
	}
	return d, err
}

// write puts the object down under a name of its own.
func (w *ObjectWriter) write(ctx context.Context, id oid, typ string, size int64, open func() (io.ReadCloser, error)) (err error) {
	tmp := w.r.tempName()
	f, err := w.root.Create(tmp, 0o444)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close(), w.drop(tmp))
		}
	}()
	r, err := open()
	if err != nil {
		return err
	}
	sum, err := deflate(ctx, f, typ, size, r)
	if err = errors.Join(err, r.Close()); err != nil {
		return err
	}
	if sum != id {
		return fmt.Errorf("%w: the bytes are those of %s", errMoved, sum)
	}
	if err := w.perm.file(f); err != nil {
		return err
	}
	_ = f.StartWriteback() // a hint; the sync that counts comes later
	w.keep(f)
	w.fresh = append(w.fresh, freshObject{id, tmp, int64(len(objectHeader(typ, size))) + size})
	w.has[id] = true
	return nil
}

// errMoved says that a file was another one when it was read again.
var errMoved = errors.New("file changed while it was read")

// deflate writes the loose form. git's default for loose objects is its fastest
// compression, too.
func deflate(ctx context.Context, to io.Writer, typ string, size int64, r io.Reader) (id oid, err error) {
	z, err := zlib.NewWriterLevel(to, zlib.BestSpeed)
	if err != nil {
		return id, err
	}
	h := sha1.New()
	both := io.MultiWriter(z, h)
	if _, err := both.Write(objectHeader(typ, size)); err != nil {
		return id, err
	}
	n, err := io.CopyBuffer(both, &interruptible{ctx, r}, make([]byte, min(max(size+1, 512), 128<<10)))
	if err == nil && n != size {
		err = fmt.Errorf("%w: %d bytes, not %d", errMoved, n, size)
	}
	if err = errors.Join(err, z.Close()); err != nil {
		return id, err
	}
	return oid(sumOf(h)), nil
}

func sumOf(h hash.Hash) (b [sha1.Size]byte) {
	h.Sum(b[:0])
	return b
}

// interruptible ends a long read when its context ends.
type interruptible struct {
	ctx context.Context
	r   io.Reader
}

func (i *interruptible) Read(p []byte) (int, error) {
	if err := i.ctx.Err(); err != nil {
		return 0, err
	}
	return i.r.Read(p)
}

func objectHeader(typ string, size int64) []byte {
	return append(strconv.AppendInt([]byte(typ+" "), size, 10), 0)
}

func (r *Repo) tempName() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails
	return r.tempPrefix() + hex.EncodeToString(b[:])
}

// tempPrefix is that of this work tree: others of the repository have locks of their own,
// and may be writing.
func (r *Repo) tempPrefix() string {
	sum := sha1.Sum([]byte(r.GitDir))
	return tempObject + hex.EncodeToString(sum[:8]) + "_"
}

// SweepObjects removes what a writer of this work tree that died left half written. The
// workspace lock must be held, so that none is at work.
func (r *Repo) SweepObjects(fsys vfs.FS) error {
	root, err := fsys.OpenRoot(filepath.Join(r.Common, "objects"))
	if err != nil {
		return fmt.Errorf("sweep objects: %w", err)
	}
	defer root.Close()
	names, err := root.List()
	if err != nil {
		return fmt.Errorf("sweep objects: %w", err)
	}
	prefix := r.tempPrefix()
	for _, e := range names {
		if strings.HasPrefix(e.Name, prefix) {
			if err := root.Unlink(e.Name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("sweep objects: %w", err)
			}
		}
	}
	return nil
}

// where an object lies: in a pack, or loose, in the repository's own directory or
// in an alternate; nowhere if zero.
type where struct {
	packed bool
	loose  string // the name of the file
	own    bool
}

// has finds an object. Other than with, it does not list the packs again for one that
// is not there: to write one twice is harmless.
func (o *objects) has(id oid) (at where, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.open(); err != nil {
		return at, err
	}
	for _, p := range o.packs {
		if at, err := p.find(id); err != nil || at != 0 {
			return where{packed: at != 0}, err
		}
	}
	hx := id.String()
	for i, d := range o.dirs {
		name := filepath.Join(d, hx[:2], hx[2:])
		fi, err := os.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil && fi.Mode().IsRegular() {
			at = where{loose: name, own: i == 0}
		}
		return at, err
	}
	return at, nil
}

// check reads an object to its end and compares it with its name.
func (o *objects) check(id oid, typ string) error {
	if typ == "blob" {
		return o.blob(id, func(int64, io.Reader) error { return nil })
	}
	_, err := o.read(typ, id)
	return err
}

// sharedPerm is what becomes of what is made in the repository: by
// core.sharedRepository bits to add (or, exact, to have); and by root in a repository of
// somebody else the owner of that, who could not write there any more otherwise.
type sharedPerm struct {
	bits     uint32
	exact    bool
	give     bool
	uid, gid uint32
}

// ownedLike has everything belong to whom d belongs to, where only root could make it
// so, and must.
func (s *sharedPerm) ownedLike(d vfs.Dir) error {
	if os.Geteuid() != 0 {
		return nil
	}
	st, err := d.Stat()
	if err == nil {
		s.give, s.uid, s.gid = st.UID != 0, st.UID, st.GID
	}
	return err
}

func sharedFrom(c *gitconfig.Config) (sharedPerm, error) {
	v, ok := c.String("core.sharedrepository")
	if !ok {
		return sharedPerm{}, nil
	}
	switch strings.ToLower(v) {
	case "umask", "false", "no", "off", "0":
		return sharedPerm{}, nil
	case "group", "true", "yes", "on", "1", "":
		return sharedPerm{bits: 0o660}, nil
	case "all", "world", "everybody", "2":
		return sharedPerm{bits: 0o664}, nil
	}
	n, err := strconv.ParseUint(v, 8, 32)
	if err != nil || n&0o600 != 0o600 {
		return sharedPerm{}, fmt.Errorf("core.sharedRepository is %.40q, which git does not understand", v)
	}
	return sharedPerm{bits: uint32(n) & 0o666, exact: true}, nil
}

func (s sharedPerm) file(f vfs.File) error {
	if s.give {
		if err := f.Chown(s.uid, s.gid); err != nil {
			return err
		}
	}
	if s.bits == 0 {
		return nil
	}
	st, err := f.Stat()
	if err != nil {
		return err
	}
	want := s.bits
	if st.Perm&0o200 == 0 {
		want &^= 0o222
	}
	if !s.exact {
		want |= st.Perm
	}
	return f.Chmod(want)
}

func (s sharedPerm) dir(d vfs.Dir) error {
	if s.give {
		if err := d.Chown(s.uid, s.gid); err != nil {
			return err
		}
	}
	if s.bits == 0 {
		return nil
	}
	st, err := d.Stat()
	if err != nil {
		return err
	}
	want := s.bits | s.bits&0o444>>2 | 0o2000 // new files get the group of the directory
	if !s.exact {
		want |= st.Perm
	}
	return d.Chmod(want)
}
