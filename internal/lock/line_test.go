package lock

import (
	"bufio"
	"context"
	"errors"
	"io"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
)

// waiting waits until n have a place in the line.
func (l *Line) waiting(n int) {
	for {
		l.mu.Lock()
		got := len(l.places)
		l.mu.Unlock()
		if got == n {
			return
		}
		runtime.Gosched()
	}
}

// empty says what is left in the line that nobody is in.
func (l *Line) empty(t *testing.T) {
	t.Helper()
	if len(l.places) > 0 || len(l.drawing) > 0 {
		t.Errorf("%d places are left, and %d draws", len(l.places), len(l.drawing))
	}
}

// TestLineLooksOnce: whoever waits for one of its own process asks the kernel once,
// when it is in front.
func TestLineLooksOnce(t *testing.T) {
	dir, qf := places(t)
	line := NewLine(qf)
	const routines, times = 32, 10
	base := filepath.Join(t.TempDir(), "x")
	var wg sync.WaitGroup
	for range routines {
		wg.Go(func() {
			for range times {
				l, err := line.Acquire(context.Background(), dir)
				if err != nil {
					t.Error(err)
					return
				}
				if err := errors.Join(increment(base, l.queue.ticket), l.Unlock()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	checkLog(t, base, routines*times)
	if line.looks != routines*times {
		t.Errorf("%d looks at the queue for %d turns", line.looks, routines*times)
	}
	line.empty(t)
}

// TestLineBesideAProcess: another process gets its turns between those of a line that is
// never empty, in the order of arrival of all.
func TestLineBesideAProcess(t *testing.T) {
	dir, qf := places(t)
	line := NewLine(qf)
	base := filepath.Join(t.TempDir(), "x")
	const times = 10
	p := start(t, "count", dir, qf, strconv.Itoa(times), base)
	ended := make(chan struct{})
	var wg sync.WaitGroup
	var mu sync.Mutex
	turns := 0
	for range 16 {
		wg.Go(func() {
			// Who waits for the process to end shows that the line cannot keep it out.
			for more := true; more; {
				l, err := line.Acquire(context.Background(), dir)
				if err != nil {
					t.Error(err)
					return
				}
				if err := errors.Join(increment(base, l.queue.ticket), l.Unlock()); err != nil {
					t.Error(err)
				}
				mu.Lock()
				turns++
				mu.Unlock()
				select {
				case <-ended:
					more = false
				default:
				}
			}
		})
	}
	if b, _ := io.ReadAll(bufio.NewReader(readerOf(p))); len(b) > 0 {
		t.Errorf("helper: %s", b)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Error(err)
	}
	close(ended)
	wg.Wait()
	checkLog(t, base, times+turns)
	line.empty(t)
}

// TestLineOfTwoProcesses: a ticket of another process between two of a line is served
// between them.
func TestLineOfTwoProcesses(t *testing.T) {
	dir, qf := places(t)
	line := NewLine(qf)
	first, err := line.Acquire(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, "hold", dir, qf)
	queued(t, qf, 2)
	got := make(chan *Lock)
	go func() {
		l, err := line.Acquire(context.Background(), dir)
		if err != nil {
			t.Error(err)
		}
		got <- l
	}()
	queued(t, qf, 3)
	if err := first.Unlock(); err != nil {
		t.Fatal(err)
	}
	p.line(t) // it holds the lock now
	select {
	case <-got:
		t.Fatal("the line was served before the other process, or beside it")
	default:
	}
	p.in.Close()
	if err := (<-got).Unlock(); err != nil {
		t.Fatal(err)
	}
	line.empty(t)
}

// TestLineCalledOff: one in the middle of the line, and the one in front of it, give up;
// those behind move up, and a turn that was called off is not lost.
func TestLineCalledOff(t *testing.T) {
	dir, qf := places(t)
	line := NewLine(qf)
	held, err := Acquire(context.Background(), dir, qf) // outside of the line: the one in front waits for the kernel
	if err != nil {
		t.Fatal(err)
	}
	type waiter struct {
		cancel context.CancelFunc
		done   chan error
	}
	var ws []waiter
	for i := range 4 {
		ctx, cancel := context.WithCancel(context.Background())
		w := waiter{cancel, make(chan error, 1)}
		defer cancel()
		go func() {
			l, err := line.Acquire(ctx, dir)
			if err == nil {
				err = l.Unlock()
			}
			w.done <- err
		}()
		ws = append(ws, w)
		line.waiting(i + 1)
	}
	for i, j := range []int{1, 0} { // in the middle, then in front
		ws[j].cancel()
		if err := <-ws[j].done; !errors.Is(err, context.Canceled) {
			t.Fatalf("waiter %d: %v, want context.Canceled", j, err)
		}
		queued(t, qf, 4-i)
	}
	if err := held.Unlock(); err != nil {
		t.Fatal(err)
	}
	for _, j := range []int{2, 3} {
		if err := <-ws[j].done; err != nil {
			t.Fatalf("waiter %d: %v", j, err)
		}
	}
	line.empty(t)
	queued(t, qf, 0)
}

// TestBehind: the holder sees who comes next and gave something, up to the first one who
// did not, and nobody behind a waiter of another process.
func TestBehind(t *testing.T) {
	dir, qf := places(t)
	line, foreign := NewLine(qf), NewLine(qf)
	held, err := line.Acquire(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	calls := map[any]context.CancelFunc{}
	wait := func(l *Line, n int, who any) {
		ctx, cancel := context.WithCancel(context.Background())
		calls[who] = cancel
		wg.Go(func() {
			lk, err := l.AcquireFor(ctx, dir, who)
			if err == nil {
				err = lk.Unlock()
			}
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
		l.waiting(n)
	}
	is := func(want ...any) {
		t.Helper()
		if got := held.Behind(); !slices.Equal(got, want) {
			t.Errorf("behind are %v, want %v", got, want)
		}
	}
	is()
	wait(line, 2, "a")
	wait(line, 3, "b")
	is("a", "b")
	wait(foreign, 1, "another process")
	wait(line, 4, "c")
	is("a", "b")
	calls["another process"]()
	foreign.waiting(0)
	is("a", "b", "c")
	wait(line, 5, nil)
	wait(line, 6, "d")
	is("a", "b", "c")
	calls["b"]()
	line.waiting(5)
	is("a", "c")
	if err := held.Unlock(); err != nil {
		t.Fatal(err)
	}
	if got := held.Behind(); got != nil {
		t.Errorf("behind nobody are %v", got)
	}
	wg.Wait()
	line.empty(t)
	foreign.empty(t)
}
