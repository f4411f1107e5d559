package snapshot

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"github.com/aspengine/asp/internal/vfs"
)

// Store keeps blobs by digest in packs, one file a transaction, in the packs
// directory of a workspace's trusted state: the pre-images of changed files for
// undo, and staged snapshots. One file for a hundred blobs means one create
// and one sync.
//
// Layout of a pack: the 8-byte magic; the blobs' bytes one after another; the
// index, 48 bytes each (digest, offset, size; big endian); the footer: offset
// of the index, number of blobs (64 bits each), SHA-256 of index and both
// numbers, the magic again. Overhead: 48 bytes a blob and 64.
//
// Reading is safe for concurrent use. Writing and GC belong to the holder of
// the workspace lock.
type Store struct {
	dir vfs.Dir
	lim StoreLimits

	mu    sync.Mutex
	packs map[string][]blobAt // read so far, by transaction
}

// StoreLimits bound a store. GC enforces them; a zero field takes the default.
type StoreLimits struct {
	MaxBytes int64 // all packs together; default 1 GiB
	MaxPacks int   // default 512
}

const (
	packMagic  = "asppack\x01"
	packExt    = ".pack"
	partExt    = ".part" // being written
	indexEntry = 48
	footerSize = 8 + 8 + sha256.Size + len(packMagic)
	maxBlobs   = 10 << 20
)

var (
	// ErrNoBlob says that no pack holds the blob.
	ErrNoBlob = errors.New("blob is not kept")
	// ErrCorrupt says that kept bytes are not what they were; they are not
	// handed out.
	ErrCorrupt = errors.New("kept bytes are damaged")
	// ErrTxID says that a transaction id cannot name a pack.
	ErrTxID = errors.New("not a transaction id")
)

type blobAt struct {
	digest    Digest
	off, size int64
}

// OpenStore opens the store in dir, the packs directory, which stays the
// caller's. Nothing is read before it is asked for.
func OpenStore(dir vfs.Dir, l StoreLimits) *Store {
	if l.MaxBytes <= 0 {
		l.MaxBytes = 1 << 30
	}
	if l.MaxPacks <= 0 {
		l.MaxPacks = 512
	}
	return &Store{dir: dir, lim: l, packs: map[string][]blobAt{}}
}

func checkTxID(id string) error {
	for _, c := range []byte(id) {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_') {
			return fmt.Errorf("name pack %.200q: %w", id, ErrTxID)
		}
	}
	if id == "" || len(id) > 200 {
		return fmt.Errorf("name pack %.200q: %w", id, ErrTxID)
	}
	return nil
}

// PackWriter writes the pack of one transaction. Not for concurrent use. Ends
// with Close, whatever happened before; a pack that was not finished is gone
// then.
type PackWriter struct {
	s        *Store
	id       string
	f        vfs.File
	off      int64
	blobs    []blobAt
	have     map[Digest]bool
	finished bool
	err      error
	out      []byte // written and not yet given to the file; off counts it
	in       []byte // what Add reads into
}

// chunk is how many bytes a PackWriter gathers before it writes: most blobs are
// small, and there are two for every changed file. Memory that nobody touched yet costs
// more than a call.
const chunk = 64 << 10

// Begin starts the pack of the transaction txid, which must have none yet
// (else an error for which errors.Is(err, fs.ErrExist) holds). A half-written
// pack that a crash left under that id is replaced.
func (s *Store) Begin(txid string) (*PackWriter, error) {
	if err := checkTxID(txid); err != nil {
		return nil, err
	}
	if _, err := s.dir.Lstat(txid + packExt); err == nil {
		return nil, fmt.Errorf("create pack %q: %w", txid, fs.ErrExist)
	}
	part := txid + partExt
	f, err := s.dir.Create(part, 0o600)
	if errors.Is(err, fs.ErrExist) {
		if err = s.dir.Unlink(part); err == nil {
			f, err = s.dir.Create(part, 0o600)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("create pack %q: %w", txid, err)
	}
	// For who cleans up without knowing that no pack is being written. One that comes
	// before the lock takes the file, and Finish fails.
	_, _ = vfs.Claim(f)
	w := &PackWriter{s: s, id: txid, f: f, have: map[Digest]bool{}}
	return w, w.write([]byte(packMagic))
}

func (w *PackWriter) write(b []byte) error {
	if w.err == nil {
		w.out = append(w.out, b...)
		w.off += int64(len(b))
		if len(w.out) >= chunk {
			w.flush()
		}
	}
	if w.err != nil {
		return fmt.Errorf("write pack %q: %w", w.id, w.err)
	}
	return nil
}

// flush gives the gathered bytes to the file.
func (w *PackWriter) flush() {
	if w.err == nil && len(w.out) > 0 {
		_, w.err = w.f.Write(w.out)
		w.out = w.out[:0]
	}
}

// Add appends the blob d of size bytes, read from r to its end. A blob that is
// there already is not read. Bytes that do not hash to d, or are more or fewer
// than size, make an error, and the pack cannot be finished.
func (w *PackWriter) Add(d Digest, size int64, r io.Reader) error {
	if w.err != nil || w.finished {
		return fmt.Errorf("write pack %q: closed or failed before", w.id)
	}
	if w.have[d] {
		return nil
	}
	h, start := sha256.New(), w.off
	if n := int(min(max(size, 512), chunk)); len(w.in) < n {
		w.in = make([]byte, max(n, 32<<10))
	}
	for {
		n, err := r.Read(w.in)
		if n > 0 {
			h.Write(w.in[:n])
			if w.off+int64(n)-start > size {
				w.err = fmt.Errorf("blob %s is longer than %d bytes", d, size)
				return w.write(nil)
			}
			if err := w.write(w.in[:n]); err != nil {
				return err
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			w.err = err
			return w.write(nil)
		}
	}
	if w.off-start != size || !bytes.Equal(h.Sum(nil), d[:]) {
		w.err = fmt.Errorf("blob %s: %w", d, ErrMoved)
		return w.write(nil)
	}
	w.have[d] = true
	w.blobs = append(w.blobs, blobAt{d, start, size})
	return nil
}

// Finish writes the index and gives the pack its name. Its bytes are written,
// not yet durable: see Sync.
func (w *PackWriter) Finish() error {
	slices.SortFunc(w.blobs, func(a, b blobAt) int { return bytes.Compare(a.digest[:], b.digest[:]) })
	b := make([]byte, 0, len(w.blobs)*indexEntry+footerSize)
	for _, e := range w.blobs {
		b = append(b, e.digest[:]...)
		b = binary.BigEndian.AppendUint64(b, uint64(e.off))
		b = binary.BigEndian.AppendUint64(b, uint64(e.size))
	}
	b = binary.BigEndian.AppendUint64(b, uint64(w.off))
	b = binary.BigEndian.AppendUint64(b, uint64(len(w.blobs)))
	sum := sha256.Sum256(b)
	b = append(append(b, sum[:]...), packMagic...)
	if err := w.write(b); err != nil {
		return err
	}
	if w.flush(); w.err != nil {
		return w.write(nil)
	}
	if err := w.s.dir.Rename(w.id+partExt, w.s.dir, w.id+packExt, vfs.NoReplace); err != nil {
		w.err = err
		return w.write(nil)
	}
	w.finished = true
	w.s.mu.Lock()
	w.s.packs[w.id] = w.blobs
	w.s.mu.Unlock()
	return nil
}

// Sync makes a finished pack durable, bytes and name. A caller that has a
// barrier of its own for the file system may leave it out. A failed Sync is
// not to be tried again: the pack may be lost.
func (w *PackWriter) Sync() error {
	if err := w.f.Sync(); err != nil {
		return fmt.Errorf("sync pack %q: %w", w.id, err)
	}
	if err := w.s.dir.Sync(); err != nil {
		return fmt.Errorf("sync pack %q: %w", w.id, err)
	}
	return nil
}

// Close releases the file, and removes the pack if it was not finished. A
// second Close does nothing.
func (w *PackWriter) Close() error {
	if w.f == nil {
		return nil
	}
	err := w.f.Close()
	w.f = nil
	if !w.finished {
		err = errors.Join(err, w.s.dir.Unlink(w.id+partExt))
	}
	return err
}

// Drop removes the pack of a transaction; one that is not there is no error.
func (s *Store) Drop(txid string) error {
	if err := checkTxID(txid); err != nil {
		return err
	}
	s.mu.Lock()
	delete(s.packs, txid)
	s.mu.Unlock()
	if err := s.dir.Unlink(txid + packExt); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove pack %q: %w", txid, err)
	}
	return nil
}

// Get opens the blob d for reading and returns its size. The reader answers
// ErrCorrupt in place of io.EOF when what it read does not hash to d, so bytes
// may be used only after io.EOF was seen. ErrNoBlob when no readable pack
// holds it; damaged packs are passed over (Packs reports them).
func (s *Store) Get(d Digest) (io.ReadCloser, int64, error) {
	names, err := s.names()
	if err != nil {
		return nil, 0, err
	}
	for _, id := range names {
		blobs, err := s.index(id)
		if err != nil {
			continue
		}
		i, ok := slices.BinarySearchFunc(blobs, d, func(b blobAt, d Digest) int { return bytes.Compare(b.digest[:], d[:]) })
		if !ok {
			continue
		}
		f, err := s.dir.Open(id + packExt)
		if err != nil {
			continue
		}
		return &blobReader{f: f, h: sha256.New(), want: d, off: blobs[i].off, left: blobs[i].size}, blobs[i].size, nil
	}
	return nil, 0, fmt.Errorf("read blob %s: %w", d, ErrNoBlob)
}

// Bytes is Get for small blobs: the whole content, verified.
func (s *Store) Bytes(d Digest) ([]byte, error) {
	r, size, err := s.Get(d)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	b := bytes.NewBuffer(make([]byte, 0, min(size, 64<<20)+512))
	if _, err := b.ReadFrom(r); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// Blobs lists what the pack of a transaction holds, in the order of digests.
func (s *Store) Blobs(txid string) ([]Digest, error) {
	if err := checkTxID(txid); err != nil {
		return nil, err
	}
	blobs, err := s.index(txid)
	if err != nil {
		return nil, err
	}
	out := make([]Digest, len(blobs))
	for i := range blobs {
		out[i] = blobs[i].digest
	}
	return out, nil
}

type blobReader struct {
	f    vfs.File
	h    hash.Hash
	want Digest
	off  int64
	left int64
}

func (r *blobReader) Read(p []byte) (int, error) {
	if r.left == 0 {
		if !bytes.Equal(r.h.Sum(nil), r.want[:]) {
			return 0, fmt.Errorf("read blob %s: %w", r.want, ErrCorrupt)
		}
		return 0, io.EOF
	}
	if len(p) == 0 {
		return 0, nil
	}
	n, err := r.f.ReadAt(p[:min(int64(len(p)), r.left)], r.off)
	r.h.Write(p[:n])
	r.off, r.left = r.off+int64(n), r.left-int64(n)
	if n > 0 {
		return n, nil
	}
	if err == nil || err == io.EOF {
		err = ErrCorrupt
	}
	return 0, fmt.Errorf("read blob %s: %w", r.want, err)
}

func (r *blobReader) Close() error { return r.f.Close() }

// names lists the transactions that have a pack.
func (s *Store) names() ([]string, error) {
	list, err := s.dir.List()
	if err != nil {
		return nil, fmt.Errorf("list packs: %w", err)
	}
	var out []string
	for _, e := range list {
		if id, ok := strings.CutSuffix(e.Name, packExt); ok && checkTxID(id) == nil {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out, nil
}

// index reads the index of a pack, once.
func (s *Store) index(id string) ([]blobAt, error) {
	s.mu.Lock()
	b, ok := s.packs[id]
	s.mu.Unlock()
	if ok {
		return b, nil
	}
	f, err := s.dir.Open(id + packExt)
	if err != nil {
		return nil, fmt.Errorf("read pack %q: %w", id, err)
	}
	defer f.Close()
	if b, err = readPackIndex(f); err != nil {
		return nil, fmt.Errorf("read pack %q: %w", id, err)
	}
	s.mu.Lock()
	s.packs[id] = b
	s.mu.Unlock()
	return b, nil
}

func readPackIndex(f vfs.File) ([]blobAt, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.Size < int64(len(packMagic)+footerSize) {
		return nil, fmt.Errorf("%w: too short", ErrCorrupt)
	}
	foot := make([]byte, footerSize)
	if _, err := f.ReadAt(foot, st.Size-int64(footerSize)); err != nil {
		return nil, err
	}
	off, n := int64(binary.BigEndian.Uint64(foot)), int64(binary.BigEndian.Uint64(foot[8:]))
	if string(foot[footerSize-len(packMagic):]) != packMagic || n < 0 || n > maxBlobs ||
		off < int64(len(packMagic)) || off != st.Size-int64(footerSize)-n*indexEntry {
		return nil, fmt.Errorf("%w: no valid footer", ErrCorrupt)
	}
	raw := make([]byte, n*indexEntry+16)
	if _, err := f.ReadAt(raw, off); err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(raw); !bytes.Equal(sum[:], foot[16:16+sha256.Size]) {
		return nil, fmt.Errorf("%w: index checksum", ErrCorrupt)
	}
	out := make([]blobAt, n)
	for i := range out {
		b := raw[i*indexEntry:]
		copy(out[i].digest[:], b)
		out[i].off, out[i].size = int64(binary.BigEndian.Uint64(b[32:])), int64(binary.BigEndian.Uint64(b[40:]))
		if o, s := out[i].off, out[i].size; s < 0 || o < int64(len(packMagic)) || s > off-o {
			return nil, fmt.Errorf("%w: blob outside the pack", ErrCorrupt)
		}
	}
	return out, nil
}

// PackInfo describes one pack.
type PackInfo struct {
	TxID  string
	Size  int64
	Mtime int64
	Blobs int
	Err   error // the pack is damaged or cannot be read: nothing of it is trusted
}

// Packs describes all packs, oldest first. Only their indexes are checked; the
// blobs are when they are read.
func (s *Store) Packs() ([]PackInfo, error) {
	names, err := s.names()
	if err != nil {
		return nil, err
	}
	var out []PackInfo
	for _, id := range names {
		st, err := s.dir.Lstat(id + packExt)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		p := PackInfo{TxID: id, Size: st.Size, Mtime: st.Mtime, Err: err}
		if err == nil {
			b, err := s.index(id)
			p.Blobs, p.Err = len(b), err
		}
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b PackInfo) int { return cmp.Or(cmp.Compare(a.Mtime, b.Mtime), cmp.Compare(a.TxID, b.TxID)) })
	return out, nil
}

// Tidy removes the half-written packs of dead writers. The caller holds the workspace
// lock: no PackWriter may be open.
func (s *Store) Tidy() error {
	list, err := s.dir.List()
	if err != nil {
		return fmt.Errorf("list packs: %w", err)
	}
	return errors.Join(s.dropParts(list)...)
}

func (s *Store) dropParts(list []vfs.DirEntry) (errs []error) {
	for _, e := range list {
		if id, ok := strings.CutSuffix(e.Name, partExt); ok && checkTxID(id) == nil {
			if err := s.dir.Unlink(e.Name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return errs
}

// Collected is what a GC did.
type Collected struct {
	Removed []string // transactions whose pack is gone, oldest first
	Kept    int
	Bytes   int64 // in the packs kept
}

// GC removes the oldest packs until the limits hold, and what unfinished packs
// a crash left. pinned (nil: none) names transactions whose pack must stay;
// they count, so pins can keep a store above its limits. The caller holds the
// workspace lock: no PackWriter may be open.
func (s *Store) GC(pinned func(txid string) bool) (Collected, error) {
	var c Collected
	list, err := s.dir.List()
	if err != nil {
		return c, fmt.Errorf("list packs: %w", err)
	}
	errs := s.dropParts(list)
	var packs []PackInfo
	for _, e := range list {
		id, ok := strings.CutSuffix(e.Name, packExt)
		if !ok || checkTxID(id) != nil {
			continue
		}
		st, err := s.dir.Lstat(e.Name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		packs = append(packs, PackInfo{TxID: id, Size: st.Size, Mtime: st.Mtime})
		c.Kept, c.Bytes = c.Kept+1, c.Bytes+st.Size
	}
	slices.SortFunc(packs, func(a, b PackInfo) int { return cmp.Or(cmp.Compare(a.Mtime, b.Mtime), cmp.Compare(a.TxID, b.TxID)) })
	for _, p := range packs {
		if c.Bytes <= s.lim.MaxBytes && c.Kept <= s.lim.MaxPacks {
			break
		}
		if pinned != nil && pinned(p.TxID) {
			continue
		}
		if err := s.Drop(p.TxID); err != nil {
			errs = append(errs, err)
			continue
		}
		c.Removed = append(c.Removed, p.TxID)
		c.Kept, c.Bytes = c.Kept-1, c.Bytes-p.Size
	}
	return c, errors.Join(errs...)
}
