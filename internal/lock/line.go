package lock

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// Line lets the waiters of one process wait for each other instead of each for the
// kernel: only the one in front looks at the queue, and who leaves wakes the next.
// Without it a release wakes all of them, and each looks whether it is its turn.
//
// It saves looks and decides nothing. Everybody draws a ticket on arrival and takes
// the kernel's locks as without a line, so the order of arrival holds across
// processes too. Handing the held lock to the next of the process would save a few
// calls more and let one process keep all others out.
//
// A line is for one queue file. Safe for concurrent use.
type Line struct {
	queueFile string
	// drawing lets one draw at a time, so that places are in the order of tickets, and
	// so that nobody spins on the dispenser because of a neighbour. A channel, because
	// a draw can be called off.
	drawing chan struct{}

	mu     sync.Mutex
	places []*place // the holder, if any, and who waits, in the order of tickets
	looks  int      // how often anybody looked at the queue; for tests
}

// place is one in the line; nil is one outside of any.
type place struct {
	line   *Line
	turn   chan struct{} // closed when nobody of this process is before it
	ticket int64
	who    any
}

// NewLine makes an empty line for those who wait by queueFile.
func NewLine(queueFile string) *Line {
	return &Line{queueFile: queueFile, drawing: make(chan struct{}, 1)}
}

// Acquire is the package's Acquire with the line's queue file.
func (l *Line) Acquire(ctx context.Context, lockDir string) (*Lock, error) {
	return l.AcquireFor(ctx, lockDir, nil)
}

// AcquireFor is Acquire for somebody whom the holder may want to know of: see Behind.
func (l *Line) AcquireFor(ctx context.Context, lockDir string, who any) (*Lock, error) {
	return acquire(ctx, lockDir, l.queueFile, l, who, true)
}

// Behind lists, in their order, what those gave to AcquireFor who wait for the lock in
// the line of the holder and are its next holders as things stand: up to the first one
// who gave nothing, or before whom somebody of another process stands.
func (l *Lock) Behind() []any {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.place == nil || l.queue == nil {
		return nil
	}
	line := l.place.line
	line.mu.Lock()
	places := slices.Clone(line.places)
	line.mu.Unlock()
	var out []any
	last := l.queue.ticket
	for _, p := range places {
		if p == l.place {
			continue
		}
		if p.who == nil {
			break
		}
		if p.ticket > last+1 {
			// Who left gave its ticket back, and lower ones are never drawn again.
			if held, err := l.queue.heldIn(last+1, p.ticket-1); err != nil || held >= 0 {
				break
			}
		}
		last = p.ticket
		out = append(out, p.who)
	}
	return out
}

// draw draws q's ticket and takes the place behind all who drew before.
func (l *Line) draw(ctx context.Context, q *queue, who any) (*place, error) {
	if l == nil {
		return nil, q.draw(ctx)
	}
	select {
	case l.drawing <- struct{}{}:
		defer func() { <-l.drawing }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err := q.draw(ctx); err != nil {
		return nil, err
	}
	p := &place{line: l, turn: make(chan struct{}), ticket: q.ticket, who: who}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.places = append(l.places, p); len(l.places) == 1 {
		close(p.turn)
	}
	return p, nil
}

// wait returns when nobody of this process is before p, or with the error of ctx.
// The place is kept until leave.
func (p *place) wait(ctx context.Context) error {
	if p == nil {
		return nil
	}
	select {
	case <-p.turn:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("in the line of this process: %w", ctx.Err())
	}
}

// leave gives up the place and wakes who is in front now. To be called once, after
// the ticket was given back, so that the next finds nobody before it.
func (p *place) leave() {
	if p == nil {
		return
	}
	l := p.line
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.places, p)
	l.places = slices.Delete(l.places, i, i+1)
	if i == 0 && len(l.places) > 0 {
		close(l.places[0].turn)
	}
}

func (p *place) looked() {
	if p != nil {
		p.line.mu.Lock()
		p.line.looks++
		p.line.mu.Unlock()
	}
}

// Len is how many hold the lock or wait for it in this line.
func (l *Line) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.places)
}
