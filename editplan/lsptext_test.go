package editplan_test

import (
	"slices"
	"strings"
	"unicode/utf16"

	"pgregory.net/rapid"
)

// This file reads what LSP says of text edits a second time, in the plainest way: a
// document is an array of UTF-16 units, a position is a line and a unit, all ranges
// refer to the document before. Where LSP leaves a choice the model takes the one of
// this project: what is ambiguous has no outcome.

type lspPos struct{ line, char int }

type lspEdit struct {
	from, to lspPos
	text     string
}

// lspLine is where the text of a line begins and ends in units, its line end aside.
type lspLine struct{ from, to int }

func lspLines(u []uint16) []lspLine {
	out := []lspLine{{0, len(u)}}
	for i := 0; i < len(u); i++ {
		if u[i] != '\n' && u[i] != '\r' {
			continue
		}
		out[len(out)-1].to = i
		if u[i] == '\r' && i+1 < len(u) && u[i+1] == '\n' {
			i++
		}
		out = append(out, lspLine{i + 1, len(u)})
	}
	return out
}

// at is the unit of a position. A character past the end of its line is the end; a
// line that is not there, and half of a pair, is nowhere.
func (p lspPos) at(u []uint16, lines []lspLine) (int, bool) {
	if p.line >= len(lines) {
		return 0, false
	}
	l := lines[p.line]
	i := min(l.from+p.char, l.to)
	if i > 0 && i < len(u) && u[i-1]>>10 == 0xd800>>10 && u[i]>>10 == 0xdc00>>10 {
		return 0, false
	}
	return i, true
}

// lspApply makes the edits; false where they have no one outcome.
func lspApply(doc string, edits []lspEdit) (string, bool) {
	u := utf16.Encode([]rune(doc))
	lines := lspLines(u)
	type span struct{ from, to int }
	spans := make([]span, len(edits))
	for i, e := range edits {
		if e.from.line > e.to.line || e.from.line == e.to.line && e.from.char > e.to.char {
			return "", false
		}
		a, ok := e.from.at(u, lines)
		b, ok2 := e.to.at(u, lines)
		if !ok || !ok2 {
			return "", false
		}
		spans[i] = span{a, b}
	}
	for i, s := range spans {
		for j, o := range spans {
			insert, other := s.from == s.to, o.from == o.to
			switch {
			case i == j || insert && other:
			case insert && o.from < s.from && s.from < o.to: // in the middle of what goes
				return "", false
			case insert && s.from == o.from && i > j: // before or after what comes?
				return "", false
			case !insert && !other && s.from < o.to && o.from < s.to:
				return "", false
			}
		}
	}
	var out []uint16
	put := func(i int) { out = append(out, utf16.Encode([]rune(edits[i].text))...) }
	for at := 0; at <= len(u); {
		for i, s := range spans {
			if s.from == at && s.to == at {
				put(i)
			}
		}
		next := at
		for i, s := range spans {
			if s.from == at && s.to > at {
				put(i)
				next = s.to
			}
		}
		if next == at {
			if at < len(u) {
				out = append(out, u[at])
			}
			next = at + 1
		}
		at = next
	}
	return string(utf16.Decode(out)), true
}

var (
	lspWords = []string{"", "line", "é", "🟢x", "a🔺b🟢", "\u2028", "e\u0301"}
	lspEnds  = []string{"\n", "\r\n", "\r"}
)

// drawDoc is a document with characters of one and two units and all line ends.
func drawDoc(t *rapid.T, label string) string {
	var b strings.Builder
	if rapid.IntRange(0, 5).Draw(t, label+" mark") == 0 {
		b.WriteString("\ufeff")
	}
	for range rapid.IntRange(0, 4).Draw(t, label+" lines") {
		b.WriteString(rapid.SampledFrom(lspWords).Draw(t, "word"))
		b.WriteString(rapid.SampledFrom(lspEnds).Draw(t, "end"))
	}
	b.WriteString(rapid.SampledFrom([]string{"", "", "last", "🟢"}).Draw(t, "rest"))
	return b.String()
}

// drawEdits are some edits of a document: most of them at places that exist and apart
// from each other, listed in any order.
func drawEdits(t *rapid.T, doc string) []lspEdit {
	lines := lspLines(utf16.Encode([]rune(doc)))
	points := make([]lspPos, 2*rapid.IntRange(1, 3).Draw(t, "edits"))
	for i := range points {
		p := lspPos{line: rapid.IntRange(0, len(lines)-1).Draw(t, "line")}
		l := lines[p.line]
		if p.char = rapid.IntRange(0, l.to-l.from).Draw(t, "char"); rapid.IntRange(0, 19).Draw(t, "odd") == 0 {
			p.char += 3 // past the end of the line
			p.line += rapid.IntRange(0, 1).Draw(t, "line more")
		}
		points[i] = p
	}
	if rapid.IntRange(0, 9).Draw(t, "apart") > 0 {
		slices.SortFunc(points, func(a, b lspPos) int { return (a.line-b.line)*1000 + a.char - b.char })
	}
	var out []lspEdit
	for i := 0; i < len(points); i += 2 {
		e := lspEdit{from: points[i], to: points[i+1], text: rapid.SampledFrom([]string{"", "", "new", "🔺", "two\nlines", "\r\n", "\r", "\n"}).Draw(t, "text")}
		if rapid.IntRange(0, 2).Draw(t, "insert") == 0 {
			e.to = e.from
		}
		out = append(out, e)
	}
	if rapid.Bool().Draw(t, "backwards") {
		slices.Reverse(out)
	}
	return out
}
