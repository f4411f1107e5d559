package patch

import (
	"bytes"
	"fmt"
	"unicode"
	"unicode/utf8"

	"github.com/aspengine/asp/editplan/patch/linediff"
)

// The escape sequences of the colored form. Nothing else in it is one.
const (
	styleHead = "\x1b[1m"
	styleHunk = "\x1b[36m"
	styleDel  = "\x1b[31m"
	styleAdd  = "\x1b[32m"
	reverseOn = "\x1b[7m"
	reverse0  = "\x1b[27m"
	reset     = "\x1b[0m"
)

// styled writes a text of ours that may hold foreign names.
func (r *renderer) styled(style, s string) {
	if r.o.Color {
		r.out = append(r.out, style...)
	}
	r.text([]byte(s))
	if r.o.Color {
		r.out = append(r.out, reset...)
	}
}

// colored writes a line of content with emphasis.
func (r *renderer) colored(mark byte, text []byte, strong []span) {
	switch mark {
	case '-':
		r.out = append(r.out, styleDel...)
	case '+':
		r.out = append(r.out, styleAdd...)
	}
	r.out = append(r.out, mark)
	at := 0
	for _, s := range strong {
		lo, hi := min(s.lo, len(text)), min(s.hi, len(text))
		if lo == hi {
			continue
		}
		r.text(text[at:lo])
		r.out = append(r.out, reverseOn...)
		r.text(text[lo:hi])
		r.out = append(r.out, reverse0...)
		at = hi
	}
	r.text(text[at:])
	if mark != ' ' {
		r.out = append(r.out, reset...)
	}
}

// appendSafe spells out what a terminal would act upon or a reader could not
// see: control characters but the tab (^[ for escape), bytes that are no UTF-8
// (<E9>), and characters of format, line or private use (<U+202E>), with which
// text can be made to look like other text.
func appendSafe(dst, b []byte) []byte {
	for len(b) > 0 {
		c, n := utf8.DecodeRune(b)
		switch {
		case c == '\t':
			dst = append(dst, '\t')
		case c < ' ' || c == 0x7f:
			dst = append(dst, '^', byte(c)^0x40)
		case c < utf8.RuneSelf:
			dst = append(dst, byte(c))
		case c == utf8.RuneError && n == 1:
			dst = fmt.Appendf(dst, "<%02X>", b[0])
		case !unicode.IsPrint(c):
			dst = fmt.Appendf(dst, "<U+%04X>", c)
		default:
			dst = append(dst, b[:n]...)
		}
		b = b[n:]
	}
	return dst
}

// span is a range of bytes in a line.
type span struct{ lo, hi int }

// longLine is where emphasis inside a line is given up: nobody reads it, and
// its cost grows with the line.
const longLine = 2000

// emphasis compares two lines word by word and returns what is not common. No
// spans if they have too little in common for the eye to gain from it.
//
// go-diff was tried for this and rejected: it compares characters, so that words
// which share letters are cut (read-er to writ-er, old-Name to new-Name), costs
// several times as much, and has no byte offsets where
// a line is not UTF-8.
func emphasis(a, b []byte) (inA, inB []span) {
	a, b = bytes.TrimSuffix(a, []byte{'\n'}), bytes.TrimSuffix(b, []byte{'\n'})
	if len(a) > longLine || len(b) > longLine {
		return nil, nil
	}
	wa, wb := words(a), words(b)
	oa, ob := offsets(wa), offsets(wb)
	gone := 0
	for _, c := range linediff.Diff(wa, wb) {
		inA = append(inA, span{oa[c.A0], oa[c.A1]})
		inB = append(inB, span{ob[c.B0], ob[c.B1]})
		gone += oa[c.A1] - oa[c.A0]
	}
	if gone*4 > len(a)*3 {
		return nil, nil
	}
	return inA, inB
}

// words cuts a line into words, runs of white space and single other
// characters.
func words(b []byte) [][]byte {
	class := func(c rune) int {
		switch {
		case c == ' ' || c == '\t':
			return 1
		case c == '_' || unicode.IsLetter(c) || unicode.IsDigit(c):
			return 2
		}
		return 0
	}
	var out [][]byte
	for len(b) > 0 {
		c, n := utf8.DecodeRune(b)
		k := class(c)
		for k != 0 && n < len(b) {
			c, m := utf8.DecodeRune(b[n:])
			if class(c) != k {
				break
			}
			n += m
		}
		out = append(out, b[:n])
		b = b[n:]
	}
	return out
}

func offsets(words [][]byte) []int {
	out := make([]int, len(words)+1)
	for i, w := range words {
		out[i+1] = out[i] + len(w)
	}
	return out
}
