package crc32c_test

import (
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"github.com/aspengine/asp/internal/crc32c"
)

func TestAgreesWithTheStandardLibrary(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	table := crc32.MakeTable(crc32.Castagnoli)
	for _, n := range []int{0, 1, 2, 3, 7, 64, 255, 4096, 32<<10 - 1, 32 << 10, 32<<10 + 1} {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		if got, want := crc32c.Checksum(b), crc32.Checksum(b, table); got != want {
			t.Errorf("%d bytes: %08x, want %08x", n, got, want)
		}
		for _, cut := range []int{0, n / 3, n} {
			if got, want := crc32c.Update(crc32c.Checksum(b[:cut]), b[cut:]), crc32.Checksum(b, table); got != want {
				t.Errorf("%d bytes cut at %d: %08x, want %08x", n, cut, got, want)
			}
		}
	}
}
