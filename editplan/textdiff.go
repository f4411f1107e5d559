package editplan

import (
	"bytes"
	"unicode/utf8"
)

// Diff returns edits that Apply turns old into new with: nothing for equal
// texts, else one replacement of what lies between the common beginning and the
// common end. ok is false when one of the two is not valid UTF-8; then only a
// whole-blob replacement says the same.
func Diff(old, new []byte) (edits []TextEdit, ok bool) {
	if !utf8.Valid(old) || !utf8.Valid(new) {
		return nil, false
	}
	if bytes.Equal(old, new) {
		return nil, true
	}
	start := 0
	for start < len(old) && start < len(new) && old[start] == new[start] {
		start++
	}
	// Back to a place that is a position in both: no character and no CRLF of
	// the old text is split.
	for start > 0 && (!boundary(old, start) || !boundary(new, start)) {
		start--
	}
	oe, ne := len(old), len(new)
	for oe > start && ne > start && old[oe-1] == new[ne-1] {
		oe--
		ne--
	}
	for oe < len(old) && (!boundary(old, oe) || !boundary(new, ne)) {
		oe++
		ne++
	}
	return []TextEdit{{Start: PosAt(old, start), End: PosAt(old, oe), NewText: string(new[start:ne])}}, true
}

func boundary(b []byte, i int) bool {
	if i < len(b) && !utf8.RuneStart(b[i]) {
		return false
	}
	return i == 0 || i >= len(b) || b[i-1] != '\r' || b[i] != '\n'
}

// PosAt is the position of byte offset off in text, which must be valid
// UTF-8; an offset inside a character or a CRLF counts as its beginning.
func PosAt(text []byte, off int) Pos {
	s := newSweep(text)
	for s.next >= 0 && s.next <= off {
		s.enter(s.next)
		s.line++
	}
	for s.off < min(off, s.end) {
		_, n := utf8.DecodeRune(s.b[s.off:])
		if s.off+n > off {
			break
		}
		s.off += n
		if s.char++; n == 4 {
			s.char++
		}
	}
	return Pos{s.line, s.char}
}
