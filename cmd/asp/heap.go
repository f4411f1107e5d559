package main

import (
	"math"
	"os"
	"runtime"
	"runtime/debug"
)

// heap tunes the collector for a program that lives for milliseconds: collecting at
// twice the live heap from 4 MiB on, the runtime's default, costs a large apply a
// seventh of its time. So nothing is collected up to gcStart, which an apply of a
// thousand files hardly reaches, and from then on at five times the live heap. A nil
// heap leaves everything as the environment says. Not for concurrent use.
type heap struct {
	first runtime.Cleanup // runs after the first collection
}

const (
	gcPercent = 400
	gcStart   = 56 << 20
	// A plan of largePlan bytes allocates so much that huge pages pay for the
	// collection that it takes to get them under all of it. From mediumPlan on some
	// pay that take none; under that a huge page is more zeros than pages are touched.
	largePlan  = 256 << 10
	mediumPlan = 16 << 10
)

func newHeap() *heap {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return nil
	}
	h := &heap{}
	h.start()
	return h
}

func (h *heap) start() {
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(gcStart)
	// The limit is where to begin. It would make the runtime collect without end
	// where more is needed, so the first collection lifts it.
	h.first = runtime.AddCleanup(new([2]uintptr), func(struct{}) {
		debug.SetGCPercent(gcPercent)
		debug.SetMemoryLimit(math.MaxInt64)
	}, struct{}{})
}

// expect is told the size of a plan as soon as it is known.
func (h *heap) expect(plan int) {
	if h == nil || plan < mediumPlan || !hugeOnWish() {
		return
	}
	if plan < largePlan {
		adviseNext()
		return
	}
	h.first.Stop()
	adviseHuge(gcStart - 8<<20)
	runtime.GC()
	h.start()
}

// leave stops tuning, for a process that lives on and sets the collector itself:
// the first collection would undo that.
func (h *heap) leave() {
	if h != nil {
		h.first.Stop()
	}
}
