package gitbase

import (
	"bytes"
	"cmp"
	"crypto/sha1"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// indexEdit is what shall stand in the index at one path: nothing (gone), or an
// entry of stage 0 without stat data.
type indexEdit struct {
	path string
	gone bool
	mode uint32
	id   oid
}

// rawEntry is an entry as it lies in the bytes of an index. Other than entry it
// exists for every stage.
type rawEntry struct {
	path     string
	off      int // where it starts
	name     int // where the fixed part (with extended flags) ends
	end      int // where the next one starts
	previous string
}

// rewrite returns the bytes of an index that has the edits and is otherwise the
// one that was read. Every other entry keeps its bytes, with one exception that
// git makes too: where the file system could not tell a later change of the
// file from the state recorded (the racy rule), the size is cleared, because
// the new index file will be younger than the old one and the entry would look
// trustworthy. In version 4 the name after a changed entry is compressed anew.
//
// A new entry has no stat data, as `git update-index --cacheinfo` leaves it: git
// then compares content once and remembers. Exact stat data cannot be known
// before the file has its name, and a guess would hide a later change.
func (x *index) rewrite(edits []indexEdit) ([]byte, error) {
	version := uint32(2)
	var old []rawEntry
	var ext int
	if len(x.raw) > 0 {
		if err := x.checksum(); err != nil {
			return nil, err
		}
		version = binary.BigEndian.Uint32(x.raw[4:])
		var err error
		if old, ext, err = x.rawEntries(version); err != nil {
			return nil, err
		}
	}
	touched := edits
	edits = slices.Clone(edits)
	slices.SortFunc(edits, func(a, b indexEdit) int { return cmp.Compare(a.path, b.path) })
	out := make([]byte, 12, len(x.raw)+128*len(edits)+64)
	copy(out, "DIRC")
	binary.BigEndian.PutUint32(out[4:], version)
	w := entryWriter{out: out, v4: version == 4}
	for i := 0; i < len(old) || len(edits) > 0; {
		switch {
		case len(edits) == 0 || i < len(old) && old[i].path < edits[0].path:
			w.keep(x, &old[i])
			i++
		case i < len(old) && old[i].path == edits[0].path:
			i++ // replaced, whatever stages it had
		default:
			if !edits[0].gone {
				w.add(&edits[0])
			}
			edits = edits[1:]
		}
	}
	binary.BigEndian.PutUint32(w.out[8:], w.n)
	return x.rewriteRest(w.out, ext, touched), nil
}

// checksum compares the trailing digest; all zero means that the writer was told
// to leave it out.
func (x *index) checksum() error {
	end := len(x.raw) - sha1.Size
	sum := sha1.Sum(x.raw[:end])
	if !bytes.Equal(sum[:], x.raw[end:]) && !bytes.Equal(make([]byte, sha1.Size), x.raw[end:]) {
		return fmt.Errorf("%w: its checksum is wrong", ErrIndex)
	}
	return nil
}

// rawEntries lists the entries of an index that decode accepted, and tells where
// the extensions start.
func (x *index) rawEntries(version uint32) (all []rawEntry, ext int, err error) {
	b, end := x.raw, len(x.raw)-sha1.Size
	n := int(binary.BigEndian.Uint32(b[8:]))
	all = make([]rawEntry, 0, n)
	off, prev := 12, ""
	for range n {
		e := rawEntry{off: off, name: off + entryFixed, previous: prev}
		if e.name+1 > end {
			return nil, 0, fmt.Errorf("%w: ends inside an entry", ErrIndex)
		}
		if binary.BigEndian.Uint16(b[off+oFlags:])&0x4000 != 0 {
			e.name += 2
		}
		at, strip := e.name, len(prev)
		if version == 4 {
			var k int
			if strip, k = varint(b[min(at, end):end]); k == 0 || strip > len(prev) {
				return nil, 0, fmt.Errorf("%w: name without end", ErrIndex)
			}
			at += k
		}
		z := bytes.IndexByte(b[min(at, end):end], 0)
		if z < 0 {
			return nil, 0, fmt.Errorf("%w: name without end", ErrIndex)
		}
		e.path, e.end = prev[:len(prev)-strip]+string(b[at:at+z]), at+z+1
		if version < 4 {
			e.path = string(b[at : at+z])
			e.end = off + (at+z-off+8)&^7
		}
		if e.end > end {
			return nil, 0, fmt.Errorf("%w: ends inside an entry", ErrIndex)
		}
		off, prev = e.end, e.path
		all = append(all, e)
	}
	return all, off, nil
}

// entryWriter appends entries.
type entryWriter struct {
	out  []byte
	v4   bool
	n    uint32
	last string
}

// keep appends an entry that is not touched.
func (w *entryWriter) keep(x *index, e *rawEntry) {
	start := len(w.out)
	switch {
	case !w.v4 || w.last == e.previous:
		w.out = append(w.out, x.raw[e.off:e.end]...)
	default:
		w.out = append(w.out, x.raw[e.off:e.name]...)
		w.name(e.path, start)
	}
	w.n, w.last = w.n+1, e.path
	// git compares whole seconds where it was built without finer ones, so that is
	// what counts as racy here.
	fixed := w.out[start : start+entryFixed]
	mtime, mode := binary.BigEndian.Uint32(fixed[oMtime:]), binary.BigEndian.Uint32(fixed[oMode:])
	if mode&0o170000 != 0o160000 && int64(mtime) >= x.mtime/1e9 {
		binary.BigEndian.PutUint32(fixed[oSize:], 0)
	}
}

// add appends a new entry.
func (w *entryWriter) add(e *indexEdit) {
	start := len(w.out)
	var fixed [entryFixed]byte
	binary.BigEndian.PutUint32(fixed[oMode:], e.mode)
	copy(fixed[oID:], e.id[:])
	binary.BigEndian.PutUint16(fixed[oFlags:], uint16(min(len(e.path), 0xfff)))
	w.out = append(w.out, fixed[:]...)
	w.name(e.path, start)
	w.n, w.last = w.n+1, e.path
}

// name appends a path to the entry that begins at start, and what ends it.
func (w *entryWriter) name(path string, start int) {
	if !w.v4 {
		w.out = append(w.out, path...)
		pad := 8 - (len(w.out)-start)%8 // at least one NUL
		w.out = append(w.out, make([]byte, pad)...)
		return
	}
	common := 0
	for common < len(path) && common < len(w.last) && path[common] == w.last[common] {
		common++
	}
	w.out = appendVarint(w.out, len(w.last)-common)
	w.out = append(append(w.out, path[common:]...), 0)
}

// appendVarint is the inverse of varint.
func appendVarint(b []byte, v int) []byte {
	var buf [10]byte
	i := len(buf) - 1
	buf[i] = byte(v & 0x7f)
	for v >>= 7; v > 0; v >>= 7 {
		v--
		i--
		buf[i] = 0x80 | byte(v&0x7f)
	}
	return append(b, buf[i:]...)
}

// rewriteRest appends the extensions that stay true, and the checksum.
//
//	TREE  kept, invalid along the touched paths
//	REUC  kept: what a resolved conflict was does not change
//	UNTR  kept empty: it stays switched on and forgets what it knew
//	FSMN  dropped: it counts entries by place; git makes a new one
//	EOIE, IEOT  dropped: they point into the old bytes
//
// An extension that we do not know is dropped if git's rules call it optional;
// an index with any other never gets here.
func (x *index) rewriteRest(out []byte, off int, touched []indexEdit) []byte {
	end := len(x.raw) - sha1.Size
	for ; off+8 <= end; off += 8 + int(binary.BigEndian.Uint32(x.raw[off+4:])) {
		name := string(x.raw[off : off+4])
		data := x.raw[off+8 : off+8+int(binary.BigEndian.Uint32(x.raw[off+4:]))]
		switch name {
		case "TREE":
			t, rest, ok := decodeTree(data, 0)
			if !ok || len(rest) > 0 {
				continue
			}
			for i := range touched {
				t.invalidate(touched[i].path)
			}
			data = t.encode(nil)
		case "REUC":
		case "UNTR":
			var ok bool
			if data, ok = emptyUntracked(data); !ok {
				continue
			}
		default:
			continue
		}
		out = append(out, name...)
		out = binary.BigEndian.AppendUint32(out, uint32(len(data)))
		out = append(out, data...)
	}
	sum := sha1.Sum(out)
	return append(out, sum[:]...)
}

// invalidate marks the nodes of all directories above path as not known.
func (t *cacheTree) invalidate(path string) {
	for {
		t.entryCount, t.id = -1, oid{}
		name, rest, nested := strings.Cut(path, "/")
		i := slices.IndexFunc(t.subs, func(s cacheTree) bool { return s.name == name })
		if i < 0 {
			return
		}
		if !nested { // a directory that became a file, or the other way round
			t.subs = slices.Delete(t.subs, i, i+1)
			return
		}
		t, path = &t.subs[i], rest
	}
}

// encode appends the form that decodeTree reads.
func (t *cacheTree) encode(b []byte) []byte {
	b = append(append(b, t.name...), 0)
	b = strconv.AppendInt(b, int64(t.entryCount), 10)
	b = append(strconv.AppendInt(append(b, ' '), int64(len(t.subs)), 10), '\n')
	if t.entryCount >= 0 {
		b = append(b, t.id[:]...)
	}
	for i := range t.subs {
		b = t.subs[i].encode(b)
	}
	return b
}

// emptyUntracked returns the untracked cache without any directory in it: the
// place it was made for and the exclude files stay.
func emptyUntracked(b []byte) ([]byte, bool) {
	l, k := varint(b)
	const fixed = 2*36 + 4 + 2*sha1.Size // two stat records, flags, two ids
	if k == 0 || l > len(b)-k-fixed {
		return nil, false
	}
	at := k + l + fixed
	z := bytes.IndexByte(b[at:], 0) // the name of per-directory exclude files
	if z < 0 {
		return nil, false
	}
	return append(slices.Clone(b[:at+z+1]), 0), true
}
