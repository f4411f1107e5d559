package apply

import (
	"context"
	"runtime"
	"slices"
	"sync"

	"github.com/aspengine/asp/checks"
	"github.com/aspengine/asp/snapshot"
)

// waiting holds the applies of one process that wait for one workspace, in the order
// of their arrival, and has the checks of those who wait run before their turn: over
// the tree that will be there if those ahead of them do what they seem to want.
//
// It decides nothing. What a check said early is used only by the transaction that
// it was asked for, under the lock, and only where the state that was judged is the one
// that the transaction then finds (early.go); otherwise the checks run as if nobody had
// asked before. So a wrong guess here, about the order or about what somebody ahead
// will do, costs time and nothing else.
//
// Safe for concurrent use. Everything that it starts for one who waits has ended when
// end returns.
type waiting struct {
	mu   sync.Mutex
	max  int // of how many the checks may run at a time; 1: nothing is done early
	busy int // of how many something is done early
	line []*waiter
}

// waiter is one apply in the line. Its members are guarded by the line's mutex, but
// for do, which is set before anybody else knows it.
type waiter struct {
	q  *waiting
	do work

	wants    bool   // it has checks that can be asked early
	known    bool   // what it wants to change is known
	hidden   bool   // that cannot be known before its turn
	hopeless bool   // as things stand it will be refused
	changes  []soon // what it wants to change
	version  int    // of changes

	holds     bool // it has the workspace
	checking  bool // and its checks are asked
	left      bool
	committed bool // it left, and its changes are in the workspace

	working bool   // a goroutine works for it
	early   *early // the last attempt to judge it early; nil: none
	tries   int    // how often that came to nothing under the same assumptions
	all     sync.WaitGroup
}

// work is what is done early for one who waits. Both are called without the mutex, one
// at a time, and end with ctx.
type work struct {
	ctx context.Context
	// tell finds out what the apply wants to change. refused: as things stand, nothing,
	// because it will be refused.
	tell func(ctx context.Context) (changes []soon, refused bool, err error)
	// judge runs its checks over the live tree with the changes in it, and calls found
	// with the state that this is as soon as that is known. What it returns are complete
	// answers, or none; with an error it is tried again.
	judge func(ctx context.Context, changes []soon, found func(state)) (map[string]checks.Result, error)
}

// state is what an early verdict is about: the after-state, and what is ignored there
// and visible to a check.
type state struct {
	base    snapshot.Baseline
	ignored snapshot.Ignored
}

func (s state) is(o state) bool {
	return s.base == o.base && s.ignored.Count == o.ignored.Count && slices.Equal(s.ignored.Names, o.ignored.Names)
}

// early is one attempt to judge somebody before its turn.
type early struct {
	assumed []assumption // what those ahead do
	cancel  context.CancelFunc
	over    *state // what is judged, once that is known
	results map[string]checks.Result
	done    chan struct{} // closed with results set, if there are any
	ended   bool
	failed  bool // with nothing that holds
}

// assumption is that a waiter makes the changes that it wanted at that version.
type assumption struct {
	of      *waiter
	version int
}

// earlyTries bounds how often one is judged early under the same assumptions: the tree
// moves beside us, and perhaps it goes on moving.
const earlyTries = 2

func newWaiting() *waiting { return &waiting{} }

// enter takes the last place. The caller leaves it. max is that of the configuration; 0
// takes the number of processors.
func (q *waiting) enter(w *waiter, max int) {
	if max <= 0 {
		max = runtime.GOMAXPROCS(0)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	w.q, q.max = q, max
	q.line = append(q.line, w)
	q.schedule()
}

// turn says that w has the workspace. Whatever the line thought of the order, it is
// first now.
func (w *waiter) turn() {
	q := w.q
	q.mu.Lock()
	defer q.mu.Unlock()
	w.holds = true
	if i := slices.Index(q.line, w); i > 0 {
		q.line = slices.Insert(slices.Delete(q.line, i, i+1), 0, w)
	}
	q.schedule()
}

// checks says that the checks of w, which has the workspace, are asked now, or have
// been: those that run anew take the place of one that would run early.
func (w *waiter) checks(now bool) {
	if w == nil {
		return
	}
	w.q.mu.Lock()
	defer w.q.mu.Unlock()
	w.checking = now
	w.q.schedule()
}

// announce says what w, which has the workspace, is going to change.
func (w *waiter) announce(changes []soon) {
	q := w.q
	q.mu.Lock()
	defer q.mu.Unlock()
	w.set(changes, false)
	w.hidden = false
	q.schedule()
}

func (w *waiter) set(changes []soon, refused bool) {
	if !w.known || w.hopeless != refused || !slices.EqualFunc(w.changes, changes, soon.is) {
		w.version++
	}
	w.known, w.hopeless, w.changes = true, refused, changes
}

// leave gives the place up, when w is at its end and before it gives the workspace
// back: committed says whether its changes are in it now. What still runs for w is ended,
// and waited for by end.
func (w *waiter) leave(committed bool) {
	q := w.q
	q.mu.Lock()
	defer q.mu.Unlock()
	w.left, w.committed = true, committed
	if w.early != nil {
		w.early.cancel()
	}
	if i := slices.Index(q.line, w); i >= 0 {
		q.line = slices.Delete(q.line, i, i+1)
	}
	if committed && q.wanted() >= 0 {
		// Who wanted to change the same was told about a tree that is gone.
		mine := newGround(pathsOf(w.changes)...)
		for _, o := range q.line {
			if !o.holds && o.known && !o.hopeless && mine.meets(pathsOf(o.changes)) {
				o.set(nil, true)
			}
		}
	}
	for _, o := range q.line {
		o.tries = 0
	}
	w.changes = nil
	w.early = nil // it remembers those that were ahead, and they those before them
	q.schedule()
}

// end returns when nothing runs for w any more. To be called after leave.
func (w *waiter) end() { w.all.Wait() }

// claim gives what the checks of w said early about the state now, which w has found
// under the lock; nil where nothing was, or it was about another state. It waits for
// checks that are running over that state, and ends those that run over another one.
func (w *waiter) claim(now state) map[string]checks.Result {
	if w == nil {
		return nil
	}
	q := w.q
	q.mu.Lock()
	e := w.early
	if e == nil {
		q.mu.Unlock()
		return nil
	}
	if e.over == nil || !e.over.is(now) {
		e.cancel()
	}
	q.mu.Unlock()
	<-e.done
	q.mu.Lock()
	defer q.mu.Unlock()
	if e.over == nil || !e.over.is(now) {
		return nil
	}
	return e.results
}

// asked tells whether anything was asked early for w.
func (w *waiter) asked() bool {
	if w == nil {
		return false
	}
	w.q.mu.Lock()
	defer w.q.mu.Unlock()
	return w.early != nil
}

// schedule starts and ends early work after any change, from the front of the line to
// its end. The caller holds the mutex.
func (q *waiting) schedule() {
	last := q.wanted()
	if last < 0 {
		return
	}
	var ahead []*waiter // those that will change something, so far
	taken := newGround()
	certain := true // of all so far it is known what they will change
	for i, w := range q.line {
		if w.early != nil && !w.early.holds(ahead, certain) {
			if w.early.ended {
				w.early, w.tries = nil, 0
			} else {
				w.early.cancel()
			}
		}
		refused := w.known && (w.hopeless || taken.meets(pathsOf(w.changes)))
		switch {
		case i == 0, i > last, w.holds, w.working, w.hidden, w.do.ctx.Err() != nil, q.full():
		case !w.known:
			q.start(w, func(ctx context.Context) { w.tell(ctx) })
		case w.wants && certain && !refused && w.early == nil && w.tries < earlyTries:
			w.begin(ahead)
		}
		if !w.known {
			certain = false
			continue
		}
		if !refused && !w.early.complains() {
			ahead = append(ahead, w)
			taken.add(pathsOf(w.changes))
		}
	}
}

// wanted is the last one that wants to be judged early: nothing has to be known of those
// behind it. -1 where there is none. The caller holds the mutex.
func (q *waiting) wanted() int {
	for i, w := range slices.Backward(q.line) {
		if w.wants && !w.holds {
			return i
		}
	}
	return -1
}

// full tells whether nothing more may be begun early. The caller holds the mutex.
func (q *waiting) full() bool {
	n := q.busy
	if w := q.line[0]; w.checking && !w.working {
		n++
	}
	return q.max <= 1 || n >= q.max
}

// start has f done in a goroutine for w. The caller holds the mutex.
func (q *waiting) start(w *waiter, f func(ctx context.Context)) {
	q.busy++
	w.working = true
	w.all.Go(func() {
		f(w.do.ctx)
		q.mu.Lock()
		defer q.mu.Unlock()
		q.busy--
		w.working = false
		q.schedule()
	})
}

func (w *waiter) tell(ctx context.Context) {
	changes, refused, err := w.do.tell(ctx)
	w.q.mu.Lock()
	defer w.q.mu.Unlock()
	switch {
	case w.holds || w.left: // and says better what it does
	case err != nil:
		w.hidden = true
	default:
		w.set(changes, refused)
	}
}

// begin has w judged under the assumption that those ahead do what they want. The
// caller holds the mutex.
func (w *waiter) begin(ahead []*waiter) {
	ctx, cancel := context.WithCancel(w.do.ctx)
	e := &early{cancel: cancel, done: make(chan struct{})}
	var changes []soon
	for _, a := range ahead {
		e.assumed = append(e.assumed, assumption{a, a.version})
		changes = append(changes, a.changes...)
	}
	changes = append(changes, w.changes...)
	w.early = e
	q := w.q
	q.start(w, func(context.Context) {
		defer cancel()
		res, err := w.do.judge(ctx, changes, func(s state) {
			q.mu.Lock()
			defer q.mu.Unlock()
			e.over = &s
		})
		q.mu.Lock()
		defer q.mu.Unlock()
		e.ended = true
		e.failed = err != nil || ctx.Err() != nil
		if !e.failed {
			e.results = res
		}
		close(e.done)
		if e.failed && !w.holds {
			// Ended from outside it may begin again; by itself not without end.
			if w.early, w.tries = nil, w.tries+1; ctx.Err() != nil {
				w.tries = 0
			}
		}
	})
}

// holds tells whether what e assumes is still what those ahead will do, or have done.
func (e *early) holds(ahead []*waiter, certain bool) bool {
	if !certain {
		return false
	}
	for _, a := range e.assumed {
		if a.version != a.of.version || a.of.left && !a.of.committed || !a.of.left && !slices.Contains(ahead, a.of) {
			return false
		}
	}
	return !slices.ContainsFunc(ahead, func(w *waiter) bool {
		return !slices.ContainsFunc(e.assumed, func(a assumption) bool { return a.of == w })
	})
}

// complains tells whether a check that was asked early was not content, so that whoever
// it was asked for will probably be refused.
func (e *early) complains() bool {
	if e == nil {
		return false
	}
	for _, r := range e.results {
		if r.Status != checks.Passed {
			return true
		}
	}
	return false
}
