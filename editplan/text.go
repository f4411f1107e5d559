package editplan

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/aspengine/asp/internal/refusal"
)

// EditError says why a list of text edits cannot be applied.
type EditError struct {
	Edit   int // index in the list, -1 when the basis itself is the reason
	Code   refusal.Code
	Detail string
}

func (e *EditError) Error() string {
	if e.Edit < 0 {
		return fmt.Sprintf("apply text edits: %s: %s", e.Code, e.Detail)
	}
	return fmt.Sprintf("apply text edit %d: %s: %s", e.Edit, e.Code, e.Detail)
}

// span is an edit in bytes of the basis.
type span struct {
	edit       int
	start, end int
}

// Apply returns basis with all edits made, every one of them referring to basis
// itself. Bytes outside the edits do not change and new text lands as it is:
// no line end, byte order mark or final newline is put right.
//
// Lines end at LF, CRLF or a lone CR, and at nothing else; a byte order mark is
// one unit of line 0. Inserts at one position go in list order, and before one
// replacement that starts there. Everything that would need a guess is refused:
// nothing is clamped, snapped, merged or dropped. Time is that of one look at
// the basis plus sorting the edits.
func Apply(basis []byte, edits []TextEdit) ([]byte, *EditError) {
	spans, err := spansOf(basis, edits)
	if err != nil {
		return nil, err
	}
	size := len(basis)
	for _, s := range spans {
		size += len(edits[s.edit].NewText) - (s.end - s.start)
	}
	out := make([]byte, 0, size)
	at := 0
	for _, s := range spans {
		out = append(out, basis[at:s.start]...)
		out = append(out, edits[s.edit].NewText...)
		at = s.end
	}
	return append(out, basis[at:]...), nil
}

// spansOf are the places of the edits in the order in which they are written.
func spansOf(basis []byte, edits []TextEdit) ([]span, *EditError) {
	if !utf8.Valid(basis) {
		return nil, &EditError{-1, refusal.NotText, "the file is not valid UTF-8, so positions in it mean nothing; send its whole content instead"}
	}
	spans, err := locate(basis, edits)
	if err != nil {
		return nil, err
	}
	if err := order(spans, edits); err != nil {
		return nil, err
	}
	return spans, nil
}

// Splice says that the bytes [Start, End) of a basis become NewText.
type Splice struct {
	Start, End int
	NewText    string
}

// Splices gives text edits as Apply makes them: in bytes of basis, in the order
// of their places, none over another. What Apply refuses is refused alike.
func Splices(basis []byte, edits []TextEdit) ([]Splice, *EditError) {
	spans, err := spansOf(basis, edits)
	if err != nil {
		return nil, err
	}
	out := make([]Splice, len(spans))
	for i, s := range spans {
		out[i] = Splice{s.start, s.end, edits[s.edit].NewText}
	}
	return out, nil
}

// order sorts spans into the order in which they are written, and refuses those
// that have none.
func order(spans []span, edits []TextEdit) *EditError {
	slices.SortFunc(spans, func(a, b span) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(min(a.end-a.start, 1), min(b.end-b.start, 1)), cmp.Compare(a.edit, b.edit))
	})
	lastInsert := -1 // listed last among the inserts at the current position
	for i, s := range spans {
		if i == 0 || spans[i-1].start != s.start {
			lastInsert = -1
		}
		if s.start == s.end {
			lastInsert = s.edit
		} else if lastInsert > s.edit {
			return &EditError{lastInsert, refusal.Overlap, fmt.Sprintf("insert at %v is listed after edit %d, a replacement that starts there", edits[lastInsert].Start, s.edit)}
		}
		if i > 0 && s.start < spans[i-1].end {
			p := spans[i-1].edit
			return &EditError{s.edit, refusal.Overlap, fmt.Sprintf("%v-%v meets %v-%v of edit %d", edits[s.edit].Start, edits[s.edit].End, edits[p].Start, edits[p].End, p)}
		}
	}
	return nil
}

// String gives line and column from zero, as on the wire.
func (p Pos) String() string { return fmt.Sprintf("[%d,%d]", p.Line, p.Char) }

// Compare orders positions.
func (p Pos) Compare(o Pos) int {
	return cmp.Or(cmp.Compare(p.Line, o.Line), cmp.Compare(p.Char, o.Char))
}

// locate turns positions into byte offsets, in one sweep over the basis in
// the order of the positions, so that neither many lines nor one huge line
// cost more than a look at every byte.
func locate(basis []byte, edits []TextEdit) ([]span, *EditError) {
	spans := make([]span, len(edits))
	type point struct {
		Pos
		edit int
		end  bool
	}
	points := make([]point, 0, 2*len(edits))
	for i, e := range edits {
		if e.Start.Compare(e.End) > 0 {
			return nil, &EditError{i, refusal.BadRange, fmt.Sprintf("range %v-%v is reversed", e.Start, e.End)}
		}
		spans[i].edit = i
		points = append(points, point{e.Start, i, false}, point{e.End, i, true})
	}
	slices.SortFunc(points, func(a, b point) int { return a.Compare(b.Pos) })
	s := newSweep(basis)
	for _, p := range points {
		off, why := s.offset(p.Pos)
		if why != "" {
			return nil, &EditError{p.edit, refusal.BadRange, fmt.Sprintf("position %v %s", p.Pos, why)}
		}
		if p.end {
			spans[p.edit].end = off
		} else {
			spans[p.edit].start = off
		}
	}
	return spans, nil
}

// sweep finds the byte offsets of positions that come in ascending order.
type sweep struct {
	b      []byte
	line   int // current line
	off    int // byte offset reached in it
	char   int // UTF-16 units before off in it
	end    int // where its text ends, before the line end
	next   int // start of the next line, -1 after the last
	lf, cr int // first LF and CR at or after the start of the line, len(b) for none
}

func newSweep(b []byte) *sweep {
	s := &sweep{b: b, lf: -1, cr: -1}
	s.enter(0)
	return s
}

// enter makes the line that starts at off current.
func (s *sweep) enter(off int) {
	s.off, s.char = off, 0
	// Remembering where the next LF and CR are keeps this linear for files
	// that have only one of them.
	if s.lf < off {
		s.lf = indexFrom(s.b, off, '\n')
	}
	if s.cr < off {
		s.cr = indexFrom(s.b, off, '\r')
	}
	s.end = min(s.lf, s.cr)
	switch {
	case s.end == len(s.b):
		s.next = -1
	case s.cr+1 == s.lf && s.lf < len(s.b):
		s.next = s.end + 2
	default:
		s.next = s.end + 1
	}
}

func indexFrom(b []byte, off int, c byte) int {
	if i := bytes.IndexByte(b[off:], c); i >= 0 {
		return off + i
	}
	return len(b)
}

// offset finds p, which must not be before an earlier one, or says why there
// is no such position.
func (s *sweep) offset(p Pos) (off int, why string) {
	if p.Line < 0 || p.Char < 0 {
		return 0, "is negative"
	}
	if !s.seek(p) {
		return 0, fmt.Sprintf("is past the end of the file, whose last line is %d", s.line)
	}
	switch {
	case s.char == p.Char:
		return s.off, ""
	case s.char > p.Char:
		return 0, "is inside a surrogate pair"
	case s.char+1 == p.Char && s.next == s.end+2:
		return 0, "is between CR and LF"
	}
	return 0, fmt.Sprintf("is past the end of its line, which has %d units", s.char)
}

// seek goes to p or, where that is no position, to the next one in its line or
// to the end of the line. It returns false when there is no such line.
func (s *sweep) seek(p Pos) bool {
	for s.line < p.Line {
		if s.next < 0 {
			return false
		}
		s.enter(s.next)
		s.line++
	}
	for s.char < p.Char && s.off < s.end {
		if s.b[s.off] < utf8.RuneSelf {
			s.off++
			s.char++
			continue
		}
		_, n := utf8.DecodeRune(s.b[s.off:])
		s.off += n
		if s.char++; n == 4 {
			s.char++
		}
	}
	return true
}
