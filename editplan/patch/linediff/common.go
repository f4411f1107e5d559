package linediff

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// Common returns the lengths, in bytes, of the longest common head of a and b
// and of the longest common tail that does not overlap it. It takes eight bytes
// at a time: a patch of a thousand files looks at each of them four times, nearly
// always to find that nearly all of it is the same.
func Common(a, b []byte) (head, tail int) {
	n := min(len(a), len(b))
	head = commonHead(a[:n], b[:n])
	return head, commonTail(a[head:], b[head:])
}

func commonHead(a, b []byte) int {
	i, n := 0, min(len(a), len(b))
	for ; i+8 <= n; i += 8 {
		if x := binary.LittleEndian.Uint64(a[i:]) ^ binary.LittleEndian.Uint64(b[i:]); x != 0 {
			return i + bits.TrailingZeros64(x)/8
		}
	}
	for i < n && a[i] == b[i] {
		i++
	}
	return i
}

func commonTail(a, b []byte) int {
	i, n := 0, min(len(a), len(b))
	a, b = a[len(a)-n:], b[len(b)-n:]
	for ; i+8 <= n; i += 8 {
		if x := binary.LittleEndian.Uint64(a[n-i-8:]) ^ binary.LittleEndian.Uint64(b[n-i-8:]); x != 0 {
			return i + bits.LeadingZeros64(x)/8
		}
	}
	for i < n && a[n-1-i] == b[n-1-i] {
		i++
	}
	return i
}

// lines returns the lengths of a common head and a common tail of whole lines
// that do not overlap.
func lines(a, b []byte) (head, tail int) {
	n := min(len(a), len(b))
	head = commonHead(a, b)
	if head < n || len(a) != len(b) {
		head = bytes.LastIndexByte(a[:head], '\n') + 1
	}
	tail = commonTail(a[head:], b[head:])
	starts := func(t []byte) bool { at := len(t) - tail; return at == 0 || t[at-1] == '\n' }
	if tail > 0 && !(starts(a) && starts(b)) {
		// The first line of the tail is only the end of one.
		i := bytes.IndexByte(a[len(a)-tail:], '\n')
		if i < 0 {
			i = tail - 1
		}
		tail -= i + 1
	}
	return head, tail
}
