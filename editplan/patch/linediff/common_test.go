package linediff_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/aspengine/asp/editplan/patch/linediff"
)

// Common says what a comparison byte by byte says, at every length around its
// stride, and head and tail never share a byte.
func TestCommonIsByteByByte(t *testing.T) {
	text := rapid.Custom(func(t *rapid.T) []byte {
		return rapid.SliceOfN(rapid.ByteRange('a', 'b'), 0, 40).Draw(t, "bytes")
	})
	rapid.Check(t, func(t *rapid.T) {
		head, tail := text.Draw(t, "head"), text.Draw(t, "tail")
		a := append(append(append([]byte(nil), head...), text.Draw(t, "a")...), tail...)
		b := append(append(append([]byte(nil), head...), text.Draw(t, "b")...), tail...)
		n := min(len(a), len(b))
		wantHead, wantTail := 0, 0
		for wantHead < n && a[wantHead] == b[wantHead] {
			wantHead++
		}
		for wantTail < n-wantHead && a[len(a)-1-wantTail] == b[len(b)-1-wantTail] {
			wantTail++
		}
		if h, l := linediff.Common(a, b); h != wantHead || l != wantTail {
			t.Fatalf("%q and %q: %d, %d, want %d, %d", a, b, h, l, wantHead, wantTail)
		}
	})
}
