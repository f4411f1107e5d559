package apply

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/aspengine/asp/checks"
	"github.com/aspengine/asp/snapshot"
)

// tree is a model of a workspace: what is at each path.
type tree struct {
	mu    sync.Mutex
	files map[snapshot.Path]byte
}

// with is the state that the changes would leave.
func (m *tree) with(changes []soon) state {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[string]byte{}
	for p, b := range m.files {
		all[p.String()] = b
	}
	for _, c := range changes {
		all[c.Path.String()] = c.Digest[0]
	}
	var s []string
	for p, b := range all {
		s = append(s, fmt.Sprint(p, "=", b))
	}
	slices.Sort(s)
	return state{base: snapshot.Baseline{Dirty: strings.Join(s, " ")}}
}

func (m *tree) put(changes []soon) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range changes {
		m.files[c.Path] = c.Digest[0]
	}
}

func change(t *testing.T, path string, b byte) soon {
	t.Helper()
	p, err := snapshot.ParsePath(path)
	if err != nil {
		t.Fatal(err)
	}
	return soon{Effect: snapshot.Effect{Path: p, Digest: snapshot.Digest{b}}}
}

// TestWaitingModel: applies come, have their turn in about the order of their arrival, do
// what they said or something else, commit or do not, and strangers write. What is claimed
// is about the state that is found, early work is bounded, and all of it ends.
func TestWaitingModel(t *testing.T) {
	const max = 3
	used := 0
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 1))
		m := &tree{files: map[snapshot.Path]byte{}}
		q := newWaiting()
		var atWork atomic.Int32
		type client struct {
			w    *waiter
			does []soon
		}
		var line []client
		enter := func() {
			var wants []soon
			for range 1 + rng.IntN(2) {
				wants = append(wants, change(t, []string{"a", "b", "c", "d/x", "d/y", "e", "d"}[rng.IntN(7)], byte(rng.IntN(3))))
			}
			c := client{does: wants}
			if rng.IntN(6) == 0 {
				c.does = []soon{change(t, "other", byte(rng.IntN(3)))} // than it says
			}
			ctx, cancel := context.WithCancel(t.Context())
			if rng.IntN(10) == 0 {
				cancel()
			} else {
				t.Cleanup(cancel)
			}
			fails, refused, yields := rng.IntN(8) == 0, rng.IntN(8) == 0, rng.IntN(20)
			c.w = &waiter{wants: rng.IntN(5) > 0, hidden: rng.IntN(8) == 0, do: work{
				ctx: ctx,
				tell: func(context.Context) ([]soon, bool, error) {
					if fails {
						return nil, false, errMovedEarly
					}
					return wants, refused, nil
				},
				judge: func(_ context.Context, changes []soon, found func(state)) (map[string]checks.Result, error) {
					if n := atWork.Add(1); n > max {
						t.Errorf("seed %d: %d are judged at once", seed, n)
					}
					defer atWork.Add(-1)
					before := m.with(changes)
					found(before)
					for range yields {
						runtime.Gosched()
					}
					if !m.with(changes).is(before) {
						return nil, errMovedEarly
					}
					return map[string]checks.Result{"c": {Status: []checks.Status{checks.Passed, checks.Failed}[len(before.base.Dirty)%2], Detail: before.base.Dirty}}, nil
				},
			}}
			q.enter(c.w, max)
			line = append(line, c)
		}
		for range 30 {
			for len(line) < 5 {
				enter()
			}
			for range rng.IntN(40) {
				runtime.Gosched()
			}
			i := 0
			if rng.IntN(10) == 0 {
				i = rng.IntN(len(line)) // the lock's order is another one
			}
			c := line[i]
			line = slices.Delete(line, i, i+1)
			if rng.IntN(10) > 0 {
				c.w.turn()
				if rng.IntN(6) == 0 {
					m.put([]soon{change(t, "stranger", byte(rng.IntN(3)))})
				}
				if rng.IntN(6) > 0 {
					c.w.announce(c.does)
				}
				c.w.checks(true)
				now := m.with(c.does)
				if res := c.w.claim(now); res != nil {
					used++
					if res["c"].Detail != now.base.Dirty {
						t.Fatalf("seed %d: the verdict is about %q, the state is %q", seed, res["c"].Detail, now.base.Dirty)
					}
				}
				c.w.checks(false)
				if rng.IntN(4) > 0 {
					m.put(c.does)
					c.w.leave(true)
					c.w.end()
					continue
				}
			}
			c.w.leave(false)
			c.w.end()
		}
		for _, c := range line {
			c.w.leave(false)
			c.w.end()
		}
		if q.busy != 0 || len(q.line) != 0 {
			t.Fatalf("seed %d: %d at work, %d in the line", seed, q.busy, len(q.line))
		}
	}
	if used == 0 {
		t.Error("nothing was ever known early")
	}
}

// TestWaitingOrder: who is nearer to its turn is judged first, and one at a time means
// that nobody is judged before it.
func TestWaitingOrder(t *testing.T) {
	for _, max := range []int{1, 2} {
		q := newWaiting()
		began := make(chan string, 10)
		open := make(chan struct{})
		var ws []*waiter
		for _, name := range []string{"a", "b", "c"} {
			w := &waiter{wants: true, do: work{
				ctx:  t.Context(),
				tell: func(context.Context) ([]soon, bool, error) { return []soon{change(t, name, 1)}, false, nil },
				judge: func(_ context.Context, changes []soon, found func(state)) (map[string]checks.Result, error) {
					var s []string
					for _, c := range changes {
						s = append(s, c.Path.String())
					}
					began <- strings.Join(s, " ")
					<-open
					return map[string]checks.Result{"c": {Status: checks.Passed}}, nil
				},
			}}
			ws = append(ws, w)
			q.enter(w, max)
		}
		ws[0].turn()
		ws[0].announce([]soon{change(t, "a", 1)})
		ws[0].checks(true)
		if max == 2 {
			if got := <-began; got != "a b" {
				t.Errorf("first over %q", got)
			}
			open <- struct{}{}
			if got := <-began; got != "a b c" {
				t.Errorf("then over %q", got)
			}
		}
		close(open)
		for _, w := range ws {
			w.leave(true)
			w.end()
		}
		close(began)
		for got := range began {
			t.Errorf("%d at a time: also over %q", max, got)
		}
	}
}

// TestStateIs: what is ignored belongs to no baseline, but a check may read it.
func TestStateIs(t *testing.T) {
	of := func(rev, dirty string, count int, names ...string) state {
		return state{snapshot.Baseline{Rev: rev, Dirty: dirty}, snapshot.Ignored{Names: names, Count: count}}
	}
	a := of("r", "d", 1, "x/")
	for _, o := range []state{of("s", "d", 1, "x/"), of("r", "e", 1, "x/"), of("r", "d", 2, "x/"), of("r", "d", 1, "y/"), of("r", "d", 0)} {
		if a.is(o) || !o.is(o) {
			t.Errorf("%v is %v", a, o)
		}
	}
	if !a.is(of("r", "d", 1, "x/")) {
		t.Error("the same state is another one")
	}
}
