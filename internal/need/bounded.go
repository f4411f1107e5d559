package need

import (
	"bytes"
	"runtime/metrics"
	"runtime/pprof"
	"testing"
	"time"
)

// What f may take in Bounded: some of it in any case, and so much for a byte of input.
const (
	boundBase    = 64 << 20
	boundPerByte = 4 << 10
	boundTime    = time.Minute // for what takes milliseconds: a machine may be busy, an endless loop does not end
)

// Bounded runs f, which reads an input of so many bytes, for a fuzz target: one that
// allocates out of all proportion fails the test, and one that does not end ends the
// process with the stacks of all goroutines, which is how a fuzzer gets hold of its
// input. What others allocate meanwhile is counted too.
func Bounded(t testing.TB, input int, f func()) {
	t.Helper()
	bounded(t, input, boundTime, func(stacks string) { panic("it does not end:\n" + stacks) }, f)
}

func bounded(t testing.TB, input int, limit time.Duration, late func(stacks string), f func()) {
	t.Helper()
	watch := time.AfterFunc(limit, func() {
		var b bytes.Buffer
		_ = pprof.Lookup("goroutine").WriteTo(&b, 2)
		late(b.String())
	})
	defer watch.Stop()
	before := allocated()
	f()
	if n, most := allocated()-before, uint64(boundBase+boundPerByte*input); n > most {
		t.Errorf("%d bytes of input made it allocate %d, over %d", input, n, most)
	}
}

// allocated is what the process has allocated on its heap since it began.
func allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}
