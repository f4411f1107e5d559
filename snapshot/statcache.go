package snapshot

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"unsafe"

	"github.com/aspengine/asp/internal/crc32c"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/snapshot/scan"
)

// StatCache remembers digests of files by their stat data, in one file of the
// trusted state directory. It is a cache: a file that is missing, damaged, of
// another version or of another workspace is the same as an empty one.
//
// A StatCache is immutable; CacheBuilder makes the next one. Safe for
// concurrent use.
//
// Layout, little endian: "aspstat" and a version byte; two strings with 16-bit
// lengths (the workspace's key, a free memo); then the records; then CRC-32C of
// all before. A record: flags, 16-bit path length, path, size, mtime, ctime,
// inode, device (64 bits each), SHA-256, and by flags the git id of the raw
// bytes, and the id after conversion with the key of the rule that made it.
type StatCache struct {
	raw   []byte
	key   string
	memo  string
	body  int      // where the records start
	n     int      // records
	table []uint32 // open addressing over record offsets, 0 empty
	seed  maphash.Seed
}

const (
	cacheMagic = "aspstat\x01"
	cacheName  = "statcache"
	maxCache   = 1 << 30

	recGit   = 1
	recClean = 2
	recExec  = 4
	recLink  = 8

	recFixed = 1 + 2 // before the path
	recStat  = 5 * 8
)

// Known is what a cache knows of a file's bytes.
type Known struct {
	SHA256 Digest
	// Git is the blob id of the raw bytes, when HasGit.
	Git    [20]byte
	HasGit bool
	// Clean is the id after conversion under the rule that CleanKey names;
	// a zero CleanKey: not known.
	Clean    [20]byte
	CleanKey [21]byte
}

// checksum is CRC-32C; MakeTable keeps its table, so it is made at first use.
func checksum(b []byte) uint32 { return crc32c.Checksum(b) }

// LoadStatCache reads the cache of the workspace that key names from dir, which
// may be nil. Only an error of the system is an error.
func LoadStatCache(dir vfs.Dir, key string) (*StatCache, error) {
	return loadCache(dir, cacheName, key)
}

// loadCache is LoadStatCache for the file name.
func loadCache(dir vfs.Dir, name, key string) (*StatCache, error) {
	empty := &StatCache{key: key}
	if dir == nil {
		return empty, nil
	}
	f, err := dir.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return empty, nil
	}
	if err != nil {
		return empty, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || st.Size > maxCache {
		return empty, err
	}
	raw := make([]byte, st.Size)
	if _, err := io.ReadFull(f, raw); err != nil {
		return empty, fmt.Errorf("read stat cache: %w", err)
	}
	c := &StatCache{raw: raw, key: key}
	if !c.decode() {
		return empty, nil
	}
	return c, nil
}

// decode checks the form and builds the table.
func (c *StatCache) decode() bool {
	b := c.raw
	if len(b) < len(cacheMagic)+4+4 || string(b[:len(cacheMagic)]) != cacheMagic {
		return false
	}
	end := len(b) - 4
	if checksum(b[:end]) != binary.LittleEndian.Uint32(b[end:]) {
		return false
	}
	o := len(cacheMagic)
	str := func() (string, bool) {
		if o+2 > end {
			return "", false
		}
		l := int(binary.LittleEndian.Uint16(b[o:]))
		if o += 2; o+l > end {
			return "", false
		}
		o += l
		return string(b[o-l : o]), true
	}
	key, ok := str()
	if !ok || key != c.key {
		return false
	}
	if c.memo, ok = str(); !ok {
		return false
	}
	c.body = o
	n := 0
	for p := o; p < end; n++ {
		l := recordLen(b[p:end])
		if l == 0 {
			return false
		}
		p += l
	}
	c.n = n
	size := 16
	for size < 2*n {
		size *= 2
	}
	c.table, c.seed = make([]uint32, size), maphash.MakeSeed()
	for p := o; p < end; p += recordLen(b[p:end]) {
		i := c.slot(recordPath(b[p:]))
		for c.table[i] != 0 {
			i = (i + 1) & (size - 1)
		}
		c.table[i] = uint32(p)
	}
	return true
}

func recordLen(b []byte) int {
	if len(b) < recFixed {
		return 0
	}
	l := recFixed + int(binary.LittleEndian.Uint16(b[1:])) + recStat + 32
	if b[0]&recGit != 0 {
		l += 20
	}
	if b[0]&recClean != 0 {
		l += 41
	}
	if l > len(b) {
		return 0
	}
	return l
}

// recordPath is a view into b.
func recordPath(b []byte) string {
	n := int(binary.LittleEndian.Uint16(b[1:]))
	return unsafe.String(unsafe.SliceData(b[recFixed:]), n)
}

func (c *StatCache) slot(path string) int {
	return int(maphash.String(c.seed, path)) & (len(c.table) - 1)
}

// Memo is the free string that the last builder left.
func (c *StatCache) Memo() string { return c.memo }

// Len is the number of files known.
func (c *StatCache) Len() int { return c.n }

// lookup finds the record whose path and stat data are those given, 0 if none.
func (c *StatCache) lookup(path string, s *scan.Stat) uint32 {
	if len(c.table) == 0 {
		return 0
	}
	for i := c.slot(path); c.table[i] != 0; i = (i + 1) & (len(c.table) - 1) {
		b := c.raw[c.table[i]:]
		if recordPath(b) != path {
			continue
		}
		f := b[recFixed+len(path):]
		u := func(i int) uint64 { return binary.LittleEndian.Uint64(f[8*i:]) }
		if u(0) != uint64(s.Size) || u(1) != uint64(s.Mtime) || u(2) != uint64(s.Ctime) || u(3) != s.Ino || u(4) != s.Dev ||
			b[0]&recExec != 0 != s.Exec || b[0]&recLink != 0 != (s.Kind == scan.Symlink) {
			return 0
		}
		return c.table[i]
	}
	return 0
}

func (c *StatCache) at(o uint32) (k Known) {
	b := c.raw[o:]
	f := b[recFixed+len(recordPath(b))+recStat:]
	copy(k.SHA256[:], f)
	f = f[32:]
	if b[0]&recGit != 0 {
		k.HasGit = true
		copy(k.Git[:], f)
		f = f[20:]
	}
	if b[0]&recClean != 0 {
		copy(k.Clean[:], f)
		copy(k.CleanKey[:], f[20:])
	}
	return k
}

// CacheBuilder collects what one worker learns in a scan. The builders of one
// scan are merged by MergeCaches. Not for concurrent use.
type CacheBuilder struct {
	from *StatCache
	now  int64 // when the scan began, nanoseconds
	kept []uint32
	news []byte
	n    int
}

// Builder returns a builder on top of c for a scan that begins at now
// (nanoseconds since the epoch).
func (c *StatCache) Builder(now int64) *CacheBuilder { return &CacheBuilder{from: c, now: now} }

// Lookup returns what is known of the file of that path and stat data, and
// keeps it for the next cache.
func (b *CacheBuilder) Lookup(path string, s *scan.Stat) (Known, bool) {
	o := b.from.lookup(path, s)
	if o == 0 {
		return Known{}, false
	}
	b.kept = append(b.kept, o)
	return b.from.at(o), true
}

// Forget takes back the last Lookup: something better will be added.
func (b *CacheBuilder) Forget() { b.kept = b.kept[:len(b.kept)-1] }

// Settled tells whether a file with these time stamps is old enough at now (all
// in nanoseconds since the epoch) for a later write to be sure to give others:
// clocks tick every 10 ms at the slowest, and where stamps have whole seconds (or
// two), much slower.
func Settled(mtime, ctime, now int64) bool {
	last := max(mtime, ctime)
	margin := int64(50e6)
	if mtime%1e9 == 0 && ctime%1e9 == 0 {
		margin = 3e9
	}
	return last+margin < now
}

// Add remembers k for a file that was read while it had the stat data s. A file
// whose stamps are too fresh to tell a later write apart is not remembered.
func (b *CacheBuilder) Add(path string, s *scan.Stat, k *Known) bool {
	if len(path) > MaxPath || !Settled(s.Mtime, s.Ctime, b.now) {
		return false
	}
	var fl byte
	if k.HasGit {
		fl |= recGit
	}
	if k.CleanKey != [21]byte{} {
		fl |= recClean
	}
	if s.Exec {
		fl |= recExec
	}
	if s.Kind == scan.Symlink {
		fl |= recLink
	}
	le := binary.LittleEndian
	n := append(b.news, fl)
	n = le.AppendUint16(n, uint16(len(path)))
	n = append(n, path...)
	for _, v := range [5]uint64{uint64(s.Size), uint64(s.Mtime), uint64(s.Ctime), s.Ino, s.Dev} {
		n = le.AppendUint64(n, v)
	}
	n = append(n, k.SHA256[:]...)
	if fl&recGit != 0 {
		n = append(n, k.Git[:]...)
	}
	if fl&recClean != 0 {
		n = append(append(n, k.Clean[:]...), k.CleanKey[:]...)
	}
	b.news, b.n = n, b.n+1
	return true
}

// MergeCaches makes the cache that a scan leaves behind. changed is false when
// it would say what the old one says; then the old one is returned.
func MergeCaches(old *StatCache, memo string, parts []*CacheBuilder) (next *StatCache, changed bool) {
	kept, news, size := 0, 0, 0
	for _, p := range parts {
		if p == nil {
			continue
		}
		kept, news, size = kept+len(p.kept), news+p.n, size+len(p.news)
	}
	if news == 0 && kept == old.n && memo == old.memo {
		return old, false
	}
	if len(old.key) > 1<<16-1 || len(memo) > 1<<16-1 {
		return old, false
	}
	le := binary.LittleEndian
	raw := make([]byte, 0, len(cacheMagic)+8+len(old.key)+len(memo)+len(old.raw)+size)
	raw = append(raw, cacheMagic...)
	for _, s := range []string{old.key, memo} {
		raw = append(le.AppendUint16(raw, uint16(len(s))), s...)
	}
	for _, p := range parts {
		if p == nil {
			continue
		}
		for _, o := range p.kept {
			b := old.raw[o:]
			raw = append(raw, b[:recordLen(b)]...)
		}
		raw = append(raw, p.news...)
	}
	raw = le.AppendUint32(raw, checksum(raw))
	next = &StatCache{raw: raw, key: old.key}
	if len(raw) > maxCache || !next.decode() {
		return old, false
	}
	return next, true
}

// Store writes the cache to dir by an atomic replacement, unsynced: a cache
// that a crash tears fails its checksum and counts as empty. When another
// process is writing at the same time, its cache stands and ours is dropped.
func (c *StatCache) Store(dir vfs.Dir) error { return c.storeAs(dir, cacheName) }

// dropDead removes a half-written cache if its writer is dead: a living one has it
// locked.
func dropDead(dir vfs.Dir, tmp string) bool {
	f, err := dir.Open(tmp)
	if err != nil {
		return false
	}
	defer f.Close()
	dead, err := vfs.Claim(f)
	return err == nil && dead && dir.Unlink(tmp) == nil
}

func (c *StatCache) storeAs(dir vfs.Dir, name string) error {
	if dir == nil || len(c.raw) == 0 {
		return nil
	}
	tmp := name + ".new"
	f, err := dir.Create(tmp, 0o600)
	if errors.Is(err, fs.ErrExist) {
		if !dropDead(dir, tmp) {
			return nil
		}
		f, err = dir.Create(tmp, 0o600)
		if errors.Is(err, fs.ErrExist) {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("write stat cache: %w", err)
	}
	// Who is taken for dead before this lock leaves a cache with a wrong checksum
	// at worst, which counts as none.
	_, _ = vfs.Claim(f)
	if _, err = f.Write(c.raw); err == nil {
		// Not closed before, which would give the lock up.
		err = dir.Rename(tmp, dir, name, vfs.Replace)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // taken for dead: another's stands
	}
	if err != nil {
		err = errors.Join(err, dir.Unlink(tmp))
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write stat cache: %w", err)
	}
	return nil
}
