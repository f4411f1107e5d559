package memfs_test

import (
	"fmt"
	"testing"

	"github.com/aspengine/asp/internal/vfs/memfs"
)

// TestEnumerate: every combination within the bounds is met, and none twice.
func TestEnumerate(t *testing.T) {
	for _, c := range []struct {
		base, deviations, limit int
		want                    int
		all                     bool
	}{
		{0, 9, 1000, 2 + 2*3*2, true}, // of 500 the first, the middle and the last are tried
		{1, 9, 1000, 2 + 2*4*2, true}, // and the base
		{0, 0, 1000, 1, true},
		{0, 9, 5, 5, false},
	} {
		seen := map[string]bool{}
		calls, all := memfs.Enumerate(c.base, c.deviations, c.limit, func(choose func(int) int) {
			a, b := choose(2), choose(2)
			s := fmt.Sprint(a, b)
			if b == 1 {
				s += fmt.Sprint(" ", choose(500), choose(2))
			}
			if seen[s] {
				t.Errorf("%v: %s comes twice", c, s)
			}
			seen[s] = true
		})
		if calls != c.want || all != c.all || len(seen) != calls {
			t.Errorf("%+v: %d calls, %d different, all %v; want %d", c, calls, len(seen), all, c.want)
		}
	}
}
