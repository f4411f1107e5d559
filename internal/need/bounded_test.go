package need

import (
	"strings"
	"testing"
	"time"
)

// recorder is a test of which only the errors count.
type recorder struct {
	testing.TB
	errors int
}

func (*recorder) Helper()                 {}
func (r *recorder) Errorf(string, ...any) { r.errors++ }

func TestBounded(t *testing.T) {
	var kept []byte
	for _, c := range []struct {
		input, take, want int
	}{
		{10, 1 << 20, 0},
		{10, 80 << 20, 1},
		{10 << 10, 80 << 20, 0},
	} {
		r := &recorder{TB: t}
		Bounded(r, c.input, func() { kept = make([]byte, c.take) })
		if r.errors != c.want {
			t.Errorf("%d bytes for %d of input: %d errors, want %d", len(kept), c.input, r.errors, c.want)
		}
	}
}

func TestBoundedTime(t *testing.T) {
	stacks := make(chan string, 1)
	var got string
	bounded(t, 0, time.Nanosecond, func(s string) { stacks <- s }, func() { got = <-stacks })
	if !strings.Contains(got, "TestBoundedTime") {
		t.Errorf("the stacks do not show what hangs:\n%s", got)
	}
}
