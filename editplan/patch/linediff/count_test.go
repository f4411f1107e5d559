package linediff_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/aspengine/asp/editplan/patch/linediff"
)

// Count says what Diff says, with and without final newlines, for texts of few
// different lines, where heads and tails meet and overlap.
func TestCountIsTheSizeOfTheDiff(t *testing.T) {
	text := rapid.Custom(func(t *rapid.T) string {
		lines := rapid.SliceOfN(rapid.SampledFrom([]string{"", "a", "b", "ab", "ba", "x"}), 0, 30).Draw(t, "lines")
		return strings.Join(lines, "\n")
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := text.Draw(t, "a"), text.Draw(t, "b")
		if rapid.Bool().Draw(t, "edit") && len(a) > 0 { // close to each other
			i := rapid.IntRange(0, len(a)).Draw(t, "from")
			j := rapid.IntRange(i, len(a)).Draw(t, "to")
			b = a[:i] + rapid.SampledFrom([]string{"", "\n", "a", "new\n", "\nnew"}).Draw(t, "put") + a[j:]
		}
		gone, added := linediff.Count([]byte(a), []byte(b))
		wantGone, wantAdded := 0, 0
		for _, c := range linediff.Diff(linediff.Lines([]byte(a)), linediff.Lines([]byte(b))) {
			wantGone, wantAdded = wantGone+c.A1-c.A0, wantAdded+c.B1-c.B0
		}
		if gone != wantGone || added != wantAdded {
			t.Fatalf("%q to %q: -%d +%d, the diff has -%d +%d", a, b, gone, added, wantGone, wantAdded)
		}
	})
}
