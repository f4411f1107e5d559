// Package merge brings a plan's edits onto a file that moved since the plan was
// made: a three-way merge by lines, clean or not at all. It writes no conflict
// markers and picks no side; the answer to a conflict is the list of places
// where the two sides met.
//
// What is clean is what git merge-file calls clean, with the same bytes. That is
// stricter than it could be: changes that merely touch, with no unchanged line
// between them, are a conflict, since nobody has seen their combination. The
// package is pure.
package merge

import (
	"bytes"
	"unicode/utf8"

	"github.com/aspengine/asp/editplan/patch/linediff"
)

// Range is a half-open range of zero-based lines; a line ends at LF.
type Range struct{ Start, End int }

// Conflict is one place where both sides changed the base, differently.
type Conflict struct{ Base, Mine, Theirs Range }

// Result is what Three found. If NotText or Conflicts is set Bytes is nil.
type Result struct {
	Bytes     []byte     // the merged text, possibly sharing memory with an input
	Conflicts []Conflict // in the order of the base
	NotText   bool       // an input is no text, so lines mean nothing
}

// Clean tells whether Bytes is the merge.
func (r Result) Clean() bool { return !r.NotText && len(r.Conflicts) == 0 }

// Three merges the changes that base→mine and base→theirs make. Changes that
// both sides made alike count once. All three must be text: valid UTF-8, and
// without a NUL where git would look for one.
func Three(base, mine, theirs []byte) Result {
	for _, b := range [][]byte{base, mine, theirs} {
		if !isText(b) {
			return Result{NotText: true}
		}
	}
	switch {
	case bytes.Equal(base, mine):
		return Result{Bytes: theirs}
	case bytes.Equal(base, theirs), bytes.Equal(mine, theirs):
		return Result{Bytes: mine}
	}
	lb, lm, lt := linediff.Lines(base), linediff.Lines(mine), linediff.Lines(theirs)
	regions := join(linediff.Diff(lb, lm), linediff.Diff(lb, lt), lm, lt)
	return assemble(regions, lm, lt, len(mine)+len(theirs))
}

// sniff is how far git looks for a NUL before it calls a file binary.
const sniff = 8000

func isText(b []byte) bool {
	return utf8.Valid(b) && bytes.IndexByte(b[:min(len(b), sniff)], 0) < 0
}

// side says who changed a region.
type side uint8

const (
	both side = iota // and not alike
	mine
	theirs
)

// region is a stretch that changed, as it stands in all three texts.
type region struct {
	who              side
	base, mine, them Range
}

// join walks both scripts in step. Every region of the result is separated from
// the next by a line that nobody changed.
func join(m, t []linediff.Change, lm, lt [][]byte) []region {
	var out []region
	add := func(r region) {
		if n := len(out); n > 0 && (r.mine.Start <= out[n-1].mine.End || r.them.Start <= out[n-1].them.End) {
			last := &out[n-1]
			if last.who != r.who {
				last.who = both
			}
			last.base.End, last.mine.End, last.them.End = r.base.End, r.mine.End, r.them.End
			return
		}
		out = append(out, r)
	}
	// shiftM and shiftT are how far the sides are displaced against the base
	// after the changes that were consumed.
	shiftM, shiftT := 0, 0
	onlyMine := func(c linediff.Change) {
		add(region{mine, Range{c.A0, c.A1}, Range{c.B0, c.B1}, Range{c.A0 + shiftT, c.A1 + shiftT}})
	}
	onlyTheirs := func(c linediff.Change) {
		add(region{theirs, Range{c.A0, c.A1}, Range{c.A0 + shiftM, c.A1 + shiftM}, Range{c.B0, c.B1}})
	}
	for len(m) > 0 && len(t) > 0 {
		cm, ct := m[0], t[0]
		switch {
		case cm.A1 < ct.A0:
			onlyMine(cm)
			shiftM = cm.B1 - cm.A1
			m = m[1:]
			continue
		case ct.A1 < cm.A0:
			onlyTheirs(ct)
			shiftT = ct.B1 - ct.A1
			t = t[1:]
			continue
		case cm.A0 == ct.A0 && cm.A1 == ct.A1 && equal(lm[cm.B0:cm.B1], lt[ct.B0:ct.B1]):
			// The same change on both sides: mine stands for both.
		default:
			lo, hi := min(cm.A0, ct.A0), max(cm.A1, ct.A1)
			add(region{both, Range{lo, hi},
				Range{cm.B0 - (cm.A0 - lo), cm.B1 + (hi - cm.A1)},
				Range{ct.B0 - (ct.A0 - lo), ct.B1 + (hi - ct.A1)}})
		}
		// The change that ends first is consumed; the other may meet more.
		if cm.A1 >= ct.A1 {
			shiftT = ct.B1 - ct.A1
			t = t[1:]
		}
		if ct.A1 >= cm.A1 {
			shiftM = cm.B1 - cm.A1
			m = m[1:]
		}
	}
	for _, c := range m {
		onlyMine(c)
	}
	for _, c := range t {
		onlyTheirs(c)
	}
	return out
}

func equal(a, b [][]byte) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !bytes.Equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

// assemble takes mine and lays the regions that only they changed over it.
func assemble(regions []region, lm, lt [][]byte, size int) Result {
	var res Result
	out := make([]byte, 0, size)
	at := 0
	for _, r := range regions {
		switch r.who {
		case theirs:
			out = appendLines(out, lm[at:r.mine.Start])
			out = appendLines(out, lt[r.them.Start:r.them.End])
			at = r.mine.End
		case both:
			m, t := lm[r.mine.Start:r.mine.End], lt[r.them.Start:r.them.End]
			// Two scripts may reach the same text in different steps.
			if len(m) == 0 || len(t) == 0 || !equal(m, t) {
				res.Conflicts = append(res.Conflicts, Conflict{r.base, r.mine, r.them})
			}
		}
	}
	if len(res.Conflicts) > 0 {
		return res
	}
	res.Bytes = appendLines(out, lm[at:])
	return res
}

func appendLines(out []byte, lines [][]byte) []byte {
	for _, l := range lines {
		out = append(out, l...)
	}
	return out
}
