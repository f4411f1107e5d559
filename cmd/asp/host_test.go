package main

import "testing"

// TestHostHeap: a small heap is left alone up to hostHeap, and no heap may grow to more
// than that or twice what lives of it.
func TestHostHeap(t *testing.T) {
	for live := uint64(0); live < 1<<30; live = live*5/4 + 100<<10 {
		p := percentOf(live)
		if most := max(hostHeap, 2*live); p < 100 || p > 400 || live+live*uint64(p)/100 > most {
			t.Errorf("%d bytes live: %d percent", live, p)
		}
	}
	if p := percentOf(4 << 20); p != 400 {
		t.Errorf("4 MiB live: %d percent", p)
	}
}
