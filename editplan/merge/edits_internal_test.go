package merge

import (
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/aspengine/asp/editplan/patch/linediff"
)

// Splice makes the edits.
var Splice = splice

// RandomEdits are a few edits at bytes of base, without order among equal places.
func RandomEdits(r *rand.Rand, base string, alphabet []string) []Edit {
	cuts := make([]int, 2*(1+r.Intn(3)))
	for i := range cuts {
		cuts[i] = r.Intn(len(base) + 1)
		if r.Intn(2) == 0 { // most edits are of whole lines
			cuts[i] = strings.LastIndexByte(base[:cuts[i]], '\n') + 1
		}
		if i%2 == 1 && r.Intn(2) == 0 { // and small
			cuts[i] = cuts[i-1]
		}
	}
	slices.Sort(cuts)
	var out []Edit
	for i := 0; i < len(cuts); i += 2 {
		var text string
		for range r.Intn(3) {
			text += alphabet[r.Intn(len(alphabet))]
		}
		if r.Intn(3) > 0 && text != "" && (cuts[i+1] == 0 || base[cuts[i+1]-1] == '\n') && !strings.HasSuffix(text, "\n") {
			text += "\n"
		}
		out = append(out, Edit{cuts[i], cuts[i+1], text})
	}
	return out
}

// The script of edits turns the lines of the base into those of the outcome, has a
// line between any two changes, and covers every byte that an edit names.
func TestScript(t *testing.T) {
	r := rand.New(rand.NewSource(3))
	for range 20000 {
		base := strings.Join(make([]string, r.Intn(7)), "ab\n")
		if r.Intn(4) == 0 {
			base += "z"
		}
		edits := RandomEdits(r, base, []string{"x", "ab\n", "y\n", "\n"})
		lb, lt := linediff.Lines([]byte(base)), linediff.Lines(splice([]byte(base), edits))
		got := script([]byte(base), edits)
		var out []byte
		at, prev := 0, linediff.Change{A1: -1}
		for _, c := range got {
			if c.A0 <= prev.A1 || c.B1 < c.B0 || c.B1 > len(lt) || c.B0-c.A0 != prev.B1-max(prev.A1, 0) {
				t.Fatalf("base %q, edits %+v: script %v of %d and %d lines", base, edits, got, len(lb), len(lt))
			}
			out = appendLines(appendLines(out, lb[at:c.A0]), lt[c.B0:c.B1])
			at, prev = c.A1, c
		}
		if out = appendLines(out, lb[at:]); string(out) != string(splice([]byte(base), edits)) {
			t.Fatalf("base %q, edits %+v: script %v makes %q", base, edits, got, out)
		}
		for _, e := range edits {
			from, to := strings.Count(base[:e.Start], "\n"), strings.Count(base[:e.End], "\n")
			if !slices.ContainsFunc(got, func(c linediff.Change) bool { return c.A0 <= from && to <= c.A1 }) {
				t.Fatalf("base %q: script %v does not cover %v", base, got, e)
			}
		}
	}
}
