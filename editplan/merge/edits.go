package merge

import (
	"bytes"

	"github.com/aspengine/asp/editplan/patch/linediff"
)

// Edit says that the bytes [Start, End) of the base become NewText.
type Edit struct {
	Start, End int
	NewText    string
}

// Edits merges the change base→mine with edits of base, which are in the order of
// their places, and none over another. A line that an edit is in counts as changed
// by it, whether or not the text after the edit says the same, and so does each line
// that it spans: whoever made the edit meant those. A change of mine in such a line,
// or next to one with no line between, is a conflict, unless it is the same change.
// One edit of the whole text says nothing about places, so it is merged as by Three.
//
// It is clean only if Three is, with the same bytes. Where lines repeat, a comparison
// of texts may find a change at another place than where it was made; then the two
// could disagree, and what nobody can tell is a conflict.
func Edits(base, mine []byte, edits []Edit) Result {
	theirs := splice(base, edits)
	m := Three(base, mine, theirs)
	if !m.Clean() || bytes.Equal(base, mine) || len(edits) == 1 && edits[0].Start == 0 && edits[0].End == len(base) {
		return m
	}
	lb, lm, lt := linediff.Lines(base), linediff.Lines(mine), linediff.Lines(theirs)
	regions := join(linediff.Diff(lb, lm), script(base, edits), lm, lt)
	e := assemble(regions, lm, lt, len(mine)+len(theirs))
	if e.Clean() && !bytes.Equal(e.Bytes, m.Bytes) {
		e = Result{}
		for _, r := range regions {
			e.Conflicts = append(e.Conflicts, Conflict{r.base, r.mine, r.them})
		}
	}
	return e
}

func splice(base []byte, edits []Edit) []byte {
	var out []byte
	at := 0
	for _, e := range edits {
		out = append(append(out, base[at:e.Start]...), e.NewText...)
		at = e.End
	}
	return append(out, base[at:]...)
}

// script gives edits as changes of lines, in order and with a line between any two.
// It claims no less than the edits touch, where a comparison of base with the
// outcome would claim no more than differs.
func script(base []byte, edits []Edit) []linediff.Change {
	starts := []int{0} // of the lines; one more where the text ends with a line
	for i, c := range base {
		if c == '\n' {
			starts = append(starts, i+1)
		}
	}
	whole := len(starts) - 1 // lines that end
	last := whole
	if starts[whole] < len(base) {
		last++ // and one that does not
	}
	var out []linediff.Change
	line, shift := 0, 0
	for i := 0; i < len(edits); {
		var c linediff.Change
		var text []byte // of the lines of c, afterwards
		first := true
		at := 0
		for i < len(edits) {
			e := edits[i]
			for line < whole && starts[line+1] <= e.Start {
				line++
			}
			if !first && line > c.A1 {
				break
			}
			if first {
				c.A0, at = line, starts[line]
				c.A1, first = line, false
			}
			text = append(append(text, base[at:e.Start]...), e.NewText...)
			at = e.End
			end := line
			for end < whole && starts[end+1] <= e.End {
				end++
			}
			// Unless the edit ends between two lines and leaves them apart, it is in the
			// line that follows, too.
			if apart := len(text) == 0 || text[len(text)-1] == '\n'; starts[end] != e.End || !apart {
				end = min(end+1, last)
			}
			c.A1 = max(c.A1, end)
			i++
		}
		stop := len(base)
		if c.A1 <= whole {
			stop = starts[c.A1]
		}
		text = append(text, base[at:stop]...)
		c.B0 = c.A0 + shift
		c.B1 = c.B0 + len(linediff.Lines(text))
		shift += (c.B1 - c.B0) - (c.A1 - c.A0)
		out = append(out, c)
	}
	return out
}
