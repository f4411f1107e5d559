// Package linediff compares two texts line by line. It is what rendering and
// merging stand on: linear space, bounded cost, no clock, bytes compared as
// bytes (no encoding is assumed, a line ends at LF and at nothing else).
//
// Where several shortest scripts exist the choice matters, because a three-way
// merge is clean or not depending on where a repeated line is thought to be
// inserted. The choices here (which lines are left out of the search, which way
// ties fall, where a movable run of changes comes to rest) are those that git
// makes, so that people see the hunks that they expect and a merge agrees with
// git merge-file. Above a cost of 256 or so the script is no longer promised
// to be the shortest, and no longer promised to be git's; it is always right.
package linediff

import "bytes"

// Change says that the lines [A0,A1) of the old text became the lines [B0,B1)
// of the new one. At least one of the two ranges is not empty.
type Change struct{ A0, A1, B0, B1 int }

// Lines cuts b after every LF. The pieces share b's memory; the last one has no
// LF if b does not end in one. No lines for empty input.
func Lines(b []byte) [][]byte {
	if len(b) == 0 {
		return nil
	}
	out := make([][]byte, 0, bytes.Count(b, []byte{'\n'})+1)
	for len(b) > 0 {
		n := bytes.IndexByte(b, '\n') + 1
		if n == 0 {
			n = len(b)
		}
		out = append(out, b[:n:n])
		b = b[n:]
	}
	return out
}

// Diff returns the changes that turn a into b, in order, with at least one
// common line between any two. Nil if the texts are equal.
func Diff(a, b [][]byte) []Change {
	t := newTable(len(a) + len(b))
	ia, ib := t.intern(a), t.intern(b)
	old := side{ids: ia, changed: make([]bool, len(ia))}
	new := side{ids: ib, changed: make([]bool, len(ib))}
	compare(old, new, t.classes())
	settle(old, new)
	settle(new, old)
	return script(old, new)
}

// Count is how many lines Diff would call gone from a and new in b, without
// making the diff where a look at the stretch between the common head and the
// common tail answers that: most edits are small and files are not.
func Count(a, b []byte) (gone, added int) {
	const few = 256 // pairs of lines that are compared one by one
	head, tail := lines(a, b)
	ma, mb := Lines(a[head:len(a)-tail]), Lines(b[head:len(b)-tail])
	if len(ma)*len(mb) <= few && apart(ma, mb) {
		return len(ma), len(mb)
	}
	for _, c := range Diff(Lines(a), Lines(b)) {
		gone, added = gone+c.A1-c.A0, added+c.B1-c.B0
	}
	return gone, added
}

// apart tells that no line is on both sides, so that nothing can be matched.
func apart(a, b [][]byte) bool {
	for _, x := range a {
		for _, y := range b {
			if bytes.Equal(x, y) {
				return false
			}
		}
	}
	return true
}

// side is one text: the class of every line, and whether it is changed.
type side struct {
	ids     []int32
	changed []bool
}

// script reads the marks of both sides in step.
func script(a, b side) []Change {
	var out []Change
	i, j := 0, 0
	for i < len(a.ids) || j < len(b.ids) {
		c := Change{A0: i, B0: j}
		for i < len(a.ids) && a.changed[i] {
			i++
		}
		for j < len(b.ids) && b.changed[j] {
			j++
		}
		if c.A1, c.B1 = i, j; c.A1 > c.A0 || c.B1 > c.B0 {
			out = append(out, c)
			continue
		}
		i++
		j++
	}
	return out
}
