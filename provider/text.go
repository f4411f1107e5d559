package provider

import (
	"bytes"
	"fmt"
	"sort"
	"unicode/utf8"
)

// Text finds positions of the protocol in content: zero-based lines that end at
// LF, CRLF or a lone CR and at nothing else, and UTF-16 code units in them. A byte
// order mark is one unit of line 0. It is made once and may be shared.
type Text struct {
	content []byte
	starts  []int // of the lines
	valid   bool
}

// NewText looks for the lines of content, which is kept and must not change.
func NewText(content []byte) *Text {
	t := &Text{content: content, starts: []int{0}, valid: utf8.Valid(content)}
	for i := 0; i < len(content); {
		j := bytes.IndexAny(content[i:], "\r\n")
		if j < 0 {
			break
		}
		i += j + 1
		if content[i-1] == '\r' && i < len(content) && content[i] == '\n' {
			i++
		}
		t.starts = append(t.starts, i)
	}
	return t
}

// Valid tells whether the content is UTF-8, which text edits need.
func (t *Text) Valid() bool { return t.valid }

// Lines is the number of lines. One that follows the last line end counts, empty
// or not.
func (t *Text) Lines() int { return len(t.starts) }

// Line returns line i without its end.
func (t *Text) Line(i int) []byte {
	from, to := t.line(i)
	return t.content[from:to]
}

func (t *Text) line(i int) (from, to int) {
	from, to = t.starts[i], len(t.content)
	if i+1 < len(t.starts) {
		to = t.starts[i+1] - 1
		if to > from && t.content[to] == '\n' && t.content[to-1] == '\r' {
			to--
		}
	}
	return from, to
}

// Start is the offset at which line i begins.
func (t *Text) Start(i int) int { return t.starts[i] }

// Position is the place of a byte offset. It never fails, for findings in
// content of any kind: what lies outside, inside a character or inside a line end
// moves to the nearest place before it, and a byte that is no UTF-8 counts one
// unit.
func (t *Text) Position(offset int) Position {
	offset = min(max(offset, 0), len(t.content))
	i := sort.Search(len(t.starts), func(i int) bool { return t.starts[i] > offset }) - 1
	from, to := t.line(i)
	char := 0
	for at := from; at < min(offset, to); {
		r, n := utf8.DecodeRune(t.content[at:])
		if at+n > offset {
			break
		}
		at += n
		if char++; r > 0xFFFF {
			char++
		}
	}
	return Position{Line: i, Char: char}
}

// Span is the range between two offsets, by Position.
func (t *Text) Span(start, end int) *Range {
	return &Range{Start: t.Position(start), End: t.Position(max(start, end))}
}

// Range is the range between two offsets for a text edit. Offsets outside the
// content or inside a character or a CRLF are errors, and so is content that is
// not UTF-8: a place for an edit is never moved.
func (t *Text) Range(start, end int) (Range, error) {
	if !t.valid {
		return Range{}, fmt.Errorf("content that is not UTF-8 takes no text edit")
	}
	if start > end {
		return Range{}, fmt.Errorf("range from %d to %d is reversed", start, end)
	}
	for _, at := range []int{start, end} {
		if at < 0 || at > len(t.content) || at < len(t.content) && !utf8.RuneStart(t.content[at]) ||
			at > 0 && at < len(t.content) && t.content[at-1] == '\r' && t.content[at] == '\n' {
			return Range{}, fmt.Errorf("offset %d is no place for an edit", at)
		}
	}
	return *t.Span(start, end), nil
}

// Offset is the byte offset of a position; false for a line or unit that is not
// there, and inside a surrogate pair.
func (t *Text) Offset(p Position) (int, bool) {
	if p.Line < 0 || p.Line >= len(t.starts) || p.Char < 0 {
		return 0, false
	}
	at, to := t.line(p.Line)
	for left := p.Char; left > 0; {
		if at >= to {
			return 0, false
		}
		r, n := utf8.DecodeRune(t.content[at:])
		at += n
		if left--; r > 0xFFFF {
			if left--; left < 0 {
				return 0, false
			}
		}
	}
	return at, true
}
