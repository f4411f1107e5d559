package gitbase

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sort"
	"strings"
	"unsafe"

	"github.com/aspengine/asp/snapshot/scan"
)

// oid is the id of a git object (SHA-1 repositories only).
type oid [20]byte

func (o oid) String() string { return fmt.Sprintf("%x", o[:]) }

// Flags of an entry.
const (
	inIndex    uint8 = 1 << iota // stage 0 in the index
	skipWT                       // skip-worktree: not checked out on purpose
	notInHead                    // the index has it, HEAD's tree does not
	unmerged                     // stages 1 to 3 only: no stat data, no single id
	intentOnly                   // intent-to-add: the index id means nothing
)

// entry is one path of the index or of HEAD's tree. Its stat data and id stay
// in the index's bytes; entries that HEAD holds differently point into heads.
type entry struct {
	path  string
	off   uint32 // of the fixed part in the index's bytes, 0 when there is none
	head  int32  // index into table.heads, or -1: HEAD has what the index has
	flags uint8
}

// treeEntry is what a tree says of a name.
type treeEntry struct {
	mode uint32
	id   oid
}

// index is a decoded git index. It refers to the bytes it was read from.
type index struct {
	raw     []byte
	entries []entry   // sorted by path, one for each path
	mtime   int64     // of the file, for the racy rule; 0 for no index
	tree    cacheTree // absent: entryCount -1
	partial string    // why the entries are not all: "sparse index", "split index"
	sparse  []entry   // directories of a sparse index
}

func sortEntries(all []entry) {
	slices.SortFunc(all, func(a, b entry) int { return strings.Compare(a.path, b.path) })
}

// cacheTree is a node of git's TREE extension: ids of trees that the entries
// below would give. entryCount is -1 for an invalid node, which has no id.
type cacheTree struct {
	name       string
	entryCount int
	id         oid
	subs       []cacheTree
}

// ErrIndex is wrapped by every complaint about the form of an index.
var ErrIndex = errors.New("not a git index that can be read")

// Forms of an index that does not hold all entries itself.
const (
	splitIndex  = "split index"
	sparseIndex = "sparse index"
)

// maxIndex bounds what is read into memory: 1 GiB is about ten million files.
const maxIndex = 1 << 30

// readIndex reads the index at path. A missing index is an empty one.
func readIndex(path string) (*index, error) {
	x := &index{tree: cacheTree{entryCount: -1}}
	f, err := openRegular(path)
	if errors.Is(err, fs.ErrNotExist) {
		return x, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() || fi.Size() > maxIndex {
		return nil, fmt.Errorf("read index %.200q: %w: no regular file of less than 1 GiB", path, ErrIndex)
	}
	x.raw = make([]byte, fi.Size())
	if _, err := io.ReadFull(f, x.raw); err != nil {
		return nil, fmt.Errorf("read index %.200q: %w", path, err)
	}
	// git replaces the index by a rename, so an open one does not change.
	x.mtime = fi.ModTime().UnixNano()
	if err := x.decode(); err != nil {
		return nil, fmt.Errorf("read index %.200q: %w", path, err)
	}
	return x, nil
}

// The fixed part of an entry: ten 32-bit words, the id, 16 bits of flags.
const (
	entryFixed = 62
	oCtime     = 0
	oMtime     = 8
	oIno       = 20
	oMode      = 24
	oSize      = 36
	oID        = 40
	oFlags     = 60
)

func (x *index) u32(o uint32) uint32 { return binary.BigEndian.Uint32(x.raw[o:]) }

// id is the object id that the index holds for e.
func (x *index) id(e *entry) (id oid) { copy(id[:], x.raw[e.off+oID:]); return id }

// mode is git's mode of e.
func (x *index) mode(e *entry) uint32 { return x.u32(e.off + oMode) }

func (x *index) decode() error {
	bad := func(f string, a ...any) error { return fmt.Errorf("%w: %s", ErrIndex, fmt.Sprintf(f, a...)) }
	b := x.raw
	if len(b) < 12+20 || string(b[:4]) != "DIRC" {
		return bad("no DIRC header")
	}
	v, n := binary.BigEndian.Uint32(b[4:]), int(binary.BigEndian.Uint32(b[8:]))
	if v < 2 || v > 4 {
		return bad("version %d", v)
	}
	end := len(b) - 20 // the trailing checksum
	if n > (end-12)/entryFixed {
		return bad("%d entries in %d bytes", n, len(b))
	}
	x.entries = make([]entry, 0, n)
	all := unsafe.String(&b[0], len(b)) // paths of versions 2 and 3 share the file's bytes
	var names arena
	prev, nameless := "", 0
	off := 12
	for range n {
		if off+entryFixed+1 > end {
			return bad("ends inside an entry")
		}
		fl := binary.BigEndian.Uint16(b[off+oFlags:])
		e := entry{off: uint32(off), head: -1, flags: inIndex}
		p := off + entryFixed
		if fl&0x4000 != 0 {
			if v < 3 || p+2 > end {
				return bad("extended flags in version %d", v)
			}
			ext := binary.BigEndian.Uint16(b[p:])
			if ext&0x4000 != 0 {
				e.flags |= skipWT
			}
			if ext&0x2000 != 0 {
				e.flags |= intentOnly
			}
			p += 2
		}
		if v < 4 {
			l := int(fl & 0xfff)
			if l == 0xfff {
				if l = bytes.IndexByte(b[p:end], 0); l < 0 {
					return bad("name without end")
				}
			}
			if p+l+1 > end {
				return bad("ends inside a name")
			}
			e.path = all[p : p+l]
			off += (p - off + l + 8) &^ 7
		} else {
			strip, k := varint(b[p:end])
			z := -1
			if k > 0 {
				z = bytes.IndexByte(b[p+k:end], 0)
			}
			if z < 0 || strip > len(prev) {
				return bad("name without end")
			}
			e.path = names.join(prev[:len(prev)-strip], b[p+k:p+k+z])
			off = p + k + z + 1
		}
		if e.path == "" {
			nameless++ // in a split index it replaces an entry of the shared one
			continue
		}
		if err := checkName(e.path); err != nil {
			if strings.HasSuffix(e.path, "/") && x.mode(&e) == 0o040000 {
				x.partial = sparseIndex
				x.sparse = append(x.sparse, e)
				prev = e.path
				continue
			}
			return bad("%s in name %.200q", err, e.path)
		}
		stage := fl >> 12 & 3
		if prev != "" && (e.path < prev || e.path == prev && stage == 0) {
			return bad("names out of order at %.200q", e.path)
		}
		prev = e.path
		if stage != 0 {
			if k := len(x.entries); k > 0 && x.entries[k-1].path == e.path {
				continue
			}
			e.flags = unmerged
		}
		x.entries = append(x.entries, e)
	}
	if err := x.extensions(off, end); err != nil {
		return err
	}
	if nameless > 0 && x.partial != splitIndex {
		return bad("%d entries without a name", nameless)
	}
	return nil
}

// extensions reads what follows the entries. Extensions whose name starts with
// a capital letter may be ignored; the others change what the entries mean.
func (x *index) extensions(off, end int) error {
	for off+8 <= end {
		name, l := string(x.raw[off:off+4]), int(binary.BigEndian.Uint32(x.raw[off+4:]))
		off += 8
		if l > end-off {
			return fmt.Errorf("%w: extension %q longer than the file", ErrIndex, name)
		}
		data := x.raw[off : off+l]
		off += l
		switch {
		case name == "TREE":
			if t, rest, ok := decodeTree(data, 0); ok && len(rest) == 0 {
				x.tree = t
			}
		case name == "link":
			if l >= 20 && !bytes.Equal(data[:20], make([]byte, 20)) {
				x.partial = splitIndex
			}
		case name == "sdir":
			x.partial = sparseIndex
		case name[0] < 'A' || name[0] > 'Z':
			x.partial = fmt.Sprintf("index extension %q", name)
		}
	}
	return nil
}

func decodeTree(b []byte, depth int) (t cacheTree, rest []byte, ok bool) {
	if depth > 4096 {
		return t, b, false
	}
	z := bytes.IndexByte(b, 0)
	if z < 0 {
		return t, b, false
	}
	t.name, b = string(b[:z]), b[z+1:]
	nl := bytes.IndexByte(b, '\n')
	if nl < 0 {
		return t, b, false
	}
	var subs int
	if k, err := fmt.Sscanf(string(b[:min(nl, 40)]), "%d %d", &t.entryCount, &subs); k != 2 || err != nil || subs < 0 || subs > len(b) {
		return t, b, false
	}
	b = b[nl+1:]
	if t.entryCount >= 0 {
		if len(b) < 20 {
			return t, b, false
		}
		copy(t.id[:], b)
		b = b[20:]
	}
	for range subs {
		var s cacheTree
		if s, b, ok = decodeTree(b, depth+1); !ok {
			return t, b, false
		}
		t.subs = append(t.subs, s)
	}
	return t, b, true
}

// sub returns the node for a sub-directory, nil when there is none.
func (t *cacheTree) sub(name string) *cacheTree {
	if t == nil {
		return nil
	}
	for i := range t.subs {
		if t.subs[i].name == name {
			return &t.subs[i]
		}
	}
	return nil
}

// varint reads the offset encoding that version 4 shares with pack files.
func varint(b []byte) (v, n int) {
	for n < len(b) && n < 5 {
		c := b[n]
		n++
		v = v<<7 | int(c&0x7f)
		if c&0x80 == 0 {
			return v, n
		}
		v++
	}
	return 0, 0
}

// checkName refuses what git itself never writes: such a name could lead out
// of the work tree or into a git directory.
func checkName(p string) error {
	if p == "" || p[0] == '/' {
		return errors.New("empty or absolute path")
	}
	for {
		i := strings.IndexByte(p, '/')
		c := p
		if i >= 0 {
			c = p[:i]
		}
		switch {
		case c == "" || c == "." || c == "..":
			return errors.New("empty, . or .. component")
		case len(c) == 4 && c[0] == '.' && strings.EqualFold(c, ".git"):
			return errors.New(".git component")
		}
		if i < 0 {
			return nil
		}
		p = p[i+1:]
	}
}

// arena stores strings in large pieces that never move.
type arena struct{ b []byte }

func (a *arena) join(p string, q []byte) string {
	n := len(p) + len(q)
	if n == 0 {
		return ""
	}
	if cap(a.b)-len(a.b) < n {
		a.b = make([]byte, 0, max(64<<10, n))
	}
	o := len(a.b)
	a.b = append(append(a.b, p...), q...)
	return unsafe.String(&a.b[o], n)
}

// unchanged tells whether the stat data of e, as git recorded it, are those of
// the file, and the file cannot have changed after git looked (the racy rule).
func (x *index) unchanged(e *entry, s *scan.Stat) bool {
	o := e.off
	ms, mn := x.u32(o+oMtime), x.u32(o+oMtime+4)
	if ms != uint32(s.Mtime/1e9) || mn != uint32(s.Mtime%1e9) ||
		x.u32(o+oCtime) != uint32(s.Ctime/1e9) || x.u32(o+oCtime+4) != uint32(s.Ctime%1e9) ||
		x.u32(o+oSize) != uint32(s.Size) || x.u32(o+oIno) != uint32(s.Ino) || s.Size >= 1<<32 {
		return false
	}
	switch x.mode(e) & 0o170000 {
	case 0o100000:
		if s.Kind != scan.File {
			return false
		}
	case 0o120000:
		if s.Kind != scan.Symlink {
			return false
		}
	default:
		return false
	}
	return !racy(max(s.Mtime, s.Ctime), x.mtime)
}

// tick is the longest time two writes may share a time stamp on a file system
// with sub-second stamps: one timer interrupt of the slowest common clock.
const tick = 10_000_000

// racy tells whether a file stamped at file could have been written again,
// with the same stamp, after it was recorded at time rec. Where stamps have
// whole seconds a second is what may be shared.
func racy(file, rec int64) bool {
	if file%1e9 == 0 || rec%1e9 == 0 {
		return file/1e9 >= rec/1e9
	}
	return file+tick >= rec
}

// table is what the work tree is compared with: every path of HEAD's tree and
// of the index, sorted, arranged by directory. It is immutable once built.
type table struct {
	idx     *index
	entries []entry
	heads   []treeEntry
	dirs    []dirNode
	files   []int32 // entries of each directory, in order
	kids    []int32 // sub-directories of each directory, in order
}

// dirNode is one directory that holds entries. lo and hi delimit everything
// below it in entries; f and k its own part of files and kids.
type dirNode struct {
	path   string // "" for the root
	base   int    // length of path plus its slash: where names start
	lo, hi int32
	f0, f1 int32
	k0, k1 int32
	parent int32
}

// arrange sorts the entries (already ordered by path) into directories.
func (t *table) arrange() {
	t.dirs = append(make([]dirNode, 0, len(t.entries)/8+8), dirNode{hi: int32(len(t.entries)), parent: -1})
	of := make([]int32, len(t.entries))
	cur := int32(0)
	for i := range t.entries {
		p := t.entries[i].path
		for {
			d := &t.dirs[cur]
			if len(p) > d.base && p[:d.base] == d.prefix(p) {
				break
			}
			d.hi = int32(i)
			cur = d.parent
		}
		for {
			base := t.dirs[cur].base
			s := strings.IndexByte(p[base:], '/')
			if s < 0 {
				break
			}
			t.dirs = append(t.dirs, dirNode{path: p[:base+s], base: base + s + 1, lo: int32(i), hi: int32(len(t.entries)), parent: cur})
			t.dirs[cur].k1++
			cur = int32(len(t.dirs) - 1)
		}
		of[i] = cur
		t.dirs[cur].f1++
	}
	for cur > 0 {
		t.dirs[cur].hi = int32(len(t.entries))
		cur = t.dirs[cur].parent
	}
	var f, k int32
	for i := range t.dirs {
		d := &t.dirs[i]
		d.f0, d.k0 = f, k
		f, k = f+d.f1, k+d.k1
		d.f1, d.k1 = d.f0, d.k0
	}
	t.files, t.kids = make([]int32, f), make([]int32, k)
	for i, d := range of {
		n := &t.dirs[d]
		t.files[n.f1] = int32(i)
		n.f1++
	}
	for i := 1; i < len(t.dirs); i++ {
		n := &t.dirs[t.dirs[i].parent]
		t.kids[n.k1] = int32(i)
		n.k1++
	}
}

// prefix is the directory's path with its slash, taken from a path p that is
// long enough to hold it; equal lengths make the comparison cheap.
func (d *dirNode) prefix(p string) string {
	if d.base == 0 {
		return ""
	}
	if p[d.base-1] != '/' || p[:d.base-1] != d.path {
		return "\x00" // no path starts so
	}
	return p[:d.base]
}

// file finds the entry of a name in d, -1 when there is none.
func (t *table) file(d *dirNode, name string) int32 {
	if i := t.fileAt(d, name); i >= 0 {
		return t.files[i]
	}
	return -1
}

// fileAt finds the place in files of a name in d, -1 when there is none. Names
// in one directory are in order because all paths share the prefix.
func (t *table) fileAt(d *dirNode, name string) int32 {
	lo, hi := d.f0, d.f1
	for lo < hi {
		m := int32(uint32(lo+hi) >> 1)
		if t.entries[t.files[m]].path[d.base:] < name {
			lo = m + 1
		} else {
			hi = m
		}
	}
	if lo < d.f1 && t.entries[t.files[lo]].path[d.base:] == name {
		return lo
	}
	return -1
}

// kidAt finds the place in kids of a name in d, -1 when there is none. The
// order of kids is that of their names with a slash behind.
func (t *table) kidAt(d *dirNode, name string) int32 {
	lo, hi := d.k0, d.k1
	for lo < hi {
		m := int32(uint32(lo+hi) >> 1)
		if slashLess(t.dirs[t.kids[m]].path[d.base:], name) {
			lo = m + 1
		} else {
			hi = m
		}
	}
	if lo < d.k1 && t.dirs[t.kids[lo]].path[d.base:] == name {
		return lo
	}
	return -1
}

// slashLess compares a+"/" with b+"/".
func slashLess(a, b string) bool {
	n := min(len(a), len(b))
	if c := strings.Compare(a[:n], b[:n]); c != 0 {
		return c < 0
	}
	switch {
	case len(a) == len(b):
		return false
	case len(a) == n:
		return '/' < b[n]
	default:
		return a[n] < '/'
	}
}

// find returns the entry of a whole path, nil when there is none.
func (t *table) find(path string) *entry {
	i := sort.Search(len(t.entries), func(i int) bool { return t.entries[i].path >= path })
	if i < len(t.entries) && t.entries[i].path == path {
		return &t.entries[i]
	}
	return nil
}

// under tells whether some entry lies below the directory path.
func (t *table) under(path string) bool {
	i := t.below(path)
	return i < len(t.entries) && under(t.entries[i].path, path)
}

// below is where entries below the directory path start, if there are any.
func (t *table) below(path string) int {
	p := path + "/"
	return sort.Search(len(t.entries), func(i int) bool { return t.entries[i].path >= p })
}

// under tells whether path lies below dir.
func under(path, dir string) bool {
	return len(path) > len(dir) && path[len(dir)] == '/' && path[:len(dir)] == dir
}

// inHead returns what HEAD's tree has at e.
func (t *table) inHead(e *entry) (treeEntry, bool) {
	switch {
	case e.head >= 0:
		return t.heads[e.head], true
	case e.flags&notInHead != 0 || e.flags&inIndex == 0:
		return treeEntry{}, false
	default:
		return treeEntry{t.idx.mode(e), t.idx.id(e)}, true
	}
}
