package linediff

import (
	"bytes"
	"hash/maphash"
)

// table gives equal lines equal small numbers. It is an open-addressing table
// of line indices and not a map[string]int32, which would copy every line to
// make its key. The seed is random so that no input can be made to collide;
// numbers are handed out in order of appearance and do not depend on it.
type table struct {
	seed  maphash.Seed
	slots []slot
	mask  uint64
	lines [][]byte // one of each class
}

type slot struct {
	hash  uint64
	class int32 // plus one; zero is a free slot
}

func newTable(n int) *table {
	size := 16
	for size < 2*n {
		size *= 2
	}
	return &table{seed: maphash.MakeSeed(), slots: make([]slot, size), mask: uint64(size - 1)}
}

func (t *table) classes() int { return len(t.lines) }

func (t *table) intern(lines [][]byte) []int32 {
	out := make([]int32, len(lines))
	for i, l := range lines {
		out[i] = t.class(l)
	}
	return out
}

func (t *table) class(line []byte) int32 {
	h := maphash.Bytes(t.seed, line)
	for p := h & t.mask; ; p = (p + 1) & t.mask {
		s := &t.slots[p]
		if s.class == 0 {
			t.lines = append(t.lines, line)
			*s = slot{h, int32(len(t.lines))}
			return s.class - 1
		}
		if s.hash == h && bytes.Equal(t.lines[s.class-1], line) {
			return s.class - 1
		}
	}
}
