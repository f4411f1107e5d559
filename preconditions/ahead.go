package preconditions

import (
	"runtime"
	"sync"

	"github.com/aspengine/asp/editplan"
	"github.com/aspengine/asp/snapshot"
)

// ahead is a goroutine that looks at paths before they are asked for. While it
// runs the live is its own; the View gets facts from here, and waits for its end
// before it does anything else.
type ahead struct {
	paths []snapshot.Path
	index map[snapshot.Path]int

	mu    sync.Mutex
	more  sync.Cond
	facts []*Fact // of the first paths
	over  bool
	stop  bool
}

// From so many paths on a second goroutine is worth its start; so many facts are
// handed over at a time.
const (
	minAhead   = 32
	aheadBatch = 16
)

// Ahead begins to look at paths, which will be asked for in about this order,
// beside the caller. It changes no answer: a path that could not be looked at is
// looked at again when it is asked for. Close ends it.
func (v *View) Ahead(paths []snapshot.Path) {
	if len(paths) < minAhead || runtime.GOMAXPROCS(0) < 2 {
		return
	}
	l := v.live()
	a := &ahead{index: make(map[snapshot.Path]int, len(paths))}
	for _, p := range paths {
		if _, twice := a.index[p]; twice || l.facts[p] != nil {
			continue
		}
		if _, no := editplan.ProtectedPath(p); no {
			continue // nobody looks there
		}
		a.index[p] = len(a.paths)
		a.paths = append(a.paths, p)
	}
	if len(a.paths) < minAhead {
		return
	}
	a.more.L = &a.mu
	v.ahead = a
	go a.run(l)
}

func (a *ahead) run(l *live) {
	var batch []*Fact
	for _, p := range a.paths {
		f, err := l.fact(p)
		if err != nil {
			break
		}
		if batch = append(batch, f); len(batch) < aheadBatch {
			continue
		}
		stop := a.give(batch, false)
		if batch = batch[:0]; stop {
			break
		}
	}
	a.give(batch, true)
}

// give hands facts over; it tells whether no more are wanted.
func (a *ahead) give(batch []*Fact, over bool) (stop bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.facts = append(a.facts, batch...)
	a.over = over
	a.more.Broadcast()
	return a.stop
}

// fact waits for what is found at p; ok is false if that is not looked at here.
func (a *ahead) fact(p snapshot.Path) (f *Fact, ok bool) {
	i, ok := a.index[p]
	if !ok {
		return nil, false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.facts) <= i && !a.over {
		a.more.Wait()
	}
	if len(a.facts) <= i {
		return nil, false
	}
	return a.facts[i], true
}

// end waits until the goroutine is done with the live, all paths looked at or not.
func (a *ahead) end(stop bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stop = a.stop || stop
	for !a.over {
		a.more.Wait()
	}
}

// live is what the View's own looks go through.
func (v *View) live() *live {
	if v.ahead != nil {
		v.ahead.end(false)
		v.ahead = nil
	}
	return v.l
}
