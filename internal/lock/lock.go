// Package lock gives one workspace to one transaction at a time, across
// processes and inside one, in the order of arrival.
//
// Two kernel locks do it, and both die with their holder, so that no lock is
// ever judged stale by age or by a process id:
//
//   - exclusion: flock(2) on a descriptor of the locked directory itself (the
//     git directory, or the root). No file is created there, and two state
//     directories that meet on one workspace still exclude each other;
//   - order: a queue file in the trusted state directory. Who arrives draws a
//     ticket (a number) and holds a byte lock on it (an open-file-description
//     lock); it is its turn when nobody holds a lower byte.
//
// Losing the queue file costs the order, never the exclusion. Those of one process
// may wait for each other in a Line, which saves looks at the queue and decides nothing.
//
// Descriptors are close-on-exec, so a child never keeps a lock; Unlock also
// releases explicitly, because a child that is just being forked shares the
// descriptors for a moment.
//
// Lock order: a ticket before the directory. Nothing else is held inside.
package lock

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// ErrBusy is what TryAcquire answers when somebody else holds the lock or
// waits for it.
var ErrBusy = errors.New("locked by another transaction")

// How long a waiter sleeps between two looks. Waiters are woken by events
// where the kernel sends them; the period only covers what sends none: a
// holder that was killed, or one that came through another queue file.
const (
	shortWait = 50 * time.Microsecond
	longWait  = 10 * time.Millisecond
)

// Lock is one held lock. Its methods may be called from any goroutine.
type Lock struct {
	mu    sync.Mutex
	queue *queue
	place *place       // in the line of this process; nil without one
	dirs  []*directory // the locked directory, and those that Also added
}

// Acquire waits until it is the caller's turn on the directory lockDir. The
// file queueFile is created if needed, with mode 0600, and keeps the order
// among all who name the same file; its directory must exist and be trusted.
//
// The order is that of the tickets, drawn at the start of the call. When ctx
// ends first, its error is returned, wrapped, and the place in the queue is
// given up. Every call opens its own descriptors, so goroutines of one process
// exclude each other too, and a goroutine that calls Acquire again while
// holding the lock waits for itself.
func Acquire(ctx context.Context, lockDir, queueFile string) (*Lock, error) {
	return acquire(ctx, lockDir, queueFile, nil, nil, true)
}

// TryAcquire takes the lock if it is free and nobody waits for it, and fails
// with ErrBusy otherwise.
func TryAcquire(ctx context.Context, lockDir, queueFile string) (*Lock, error) {
	return acquire(ctx, lockDir, queueFile, nil, nil, false)
}

func acquire(ctx context.Context, lockDir, queueFile string, line *Line, who any, wait bool) (_ *Lock, err error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("lock %q: %w", lockDir, err)
	}
	q, err := openQueue(queueFile)
	if err != nil {
		return nil, err
	}
	l := &Lock{queue: q}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Unlock())
		}
	}()
	if l.place, err = line.draw(ctx, q, who); err != nil {
		return nil, fmt.Errorf("lock %q: draw a ticket: %w", lockDir, err)
	}
	if err := l.place.wait(ctx); err != nil {
		return nil, fmt.Errorf("wait for the lock on %q: %w", lockDir, err)
	}
	var w *waiter
	for {
		got, err := l.attempt(lockDir)
		if err != nil {
			return nil, err
		}
		if got {
			q.record()
			return l, nil
		}
		if !wait {
			return nil, fmt.Errorf("lock %q: %w", lockDir, ErrBusy)
		}
		if w == nil {
			// The watch is set up before the next look, so that a release
			// between the two is not missed.
			w = newWaiter(queueFile)
			defer w.close()
			continue
		}
		if err := w.wait(ctx); err != nil {
			return nil, fmt.Errorf("wait for the lock on %q: %w", lockDir, err)
		}
	}
}

// attempt takes the directory if the queue says that it is our turn.
func (l *Lock) attempt(dir string) (bool, error) {
	l.place.looked()
	first, err := l.queue.first()
	if err != nil || !first {
		return false, err
	}
	f, err := lockDirectory(dir)
	if err != nil {
		if errors.Is(err, ErrBusy) {
			return false, nil
		}
		return false, err
	}
	l.dirs = append(l.dirs, f)
	return true, nil
}

// Also takes a further directory without waiting, until Unlock: the new root
// of a publish that swaps directories, so that who opens the workspace by its
// path keeps meeting a locked directory. ErrBusy when somebody has it.
func (l *Lock) Also(dir string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	f, err := lockDirectory(dir)
	if err != nil {
		return err
	}
	l.dirs = append(l.dirs, f)
	return nil
}

// Unlock gives everything back: the directories first, then the ticket, so
// that the next in the queue finds the directory free. Further calls do
// nothing.
func (l *Lock) Unlock() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	q := l.queue
	if q != nil && len(l.dirs) > 0 {
		q.clearRecord()
	}
	for _, f := range l.dirs {
		errs = append(errs, unlockDir(f), f.Close())
	}
	l.dirs = nil
	if q != nil {
		errs = append(errs, q.close())
		l.queue = nil
	}
	l.place.leave()
	l.place = nil
	return errors.Join(errs...)
}

// lockDirectory opens and locks dir, until the name leads to what was locked.
func lockDirectory(dir string) (*directory, error) {
	for {
		f, err := openDirectory(dir)
		if err != nil {
			return nil, fmt.Errorf("open %q for locking: %w", dir, err)
		}
		if ok, err := lockOpened(f, dir); ok || err != nil {
			if err != nil {
				return nil, err
			}
			return f, nil
		}
	}
}

// lockOpened locks the directory f, which was opened as dir, and tells whether the name
// still leads to it: a directory exchange may have put another one there between the
// two steps. If not, or on an error, f is unlocked and closed.
func lockOpened(f *directory, dir string) (bool, error) {
	if err := lockDir(f); err != nil {
		f.Close()
		return false, fmt.Errorf("lock %q: %w", dir, err)
	}
	held, err := f.Stat()
	if err == nil {
		var named os.FileInfo
		if named, err = os.Stat(dir); err == nil && os.SameFile(held, named) {
			return true, nil
		}
	}
	if err = errors.Join(err, unlockDir(f), f.Close()); err != nil {
		return false, fmt.Errorf("look at %q after locking: %w", dir, err)
	}
	return false, nil
}

// Layout of the queue file: the next ticket as 8 little-endian bytes, padding,
// the holder record. Byte locks lie far behind and need no bytes under them.
const (
	recordOffset         = 64
	recordSize           = 960
	dispenserByte  int64 = 0
	firstTicketPos int64 = 1 << 20
	lastPos        int64 = 1<<63 - 1
)

func openQueue(name string) (*queue, error) {
	f, err := openQueueFile(name)
	if err != nil {
		return nil, fmt.Errorf("open queue file %q: %w; move it away where nobody waits, it is made anew", name, err)
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = errors.New("not a regular file")
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("open queue file %q: %w", name, err)
	}
	return newQueue(f), nil
}

// draw takes the next ticket. The counter and the byte lock change together
// under the dispenser's lock, which is held for microseconds; a higher ticket
// therefore never exists before a lower one is locked.
func (q *queue) draw(ctx context.Context) error {
	for d := shortWait; ; d = min(2*d, longWait) {
		ok, err := q.tryByte(dispenserByte)
		if err != nil {
			return err
		}
		if ok {
			break
		}
		if err := sleep(ctx, d); err != nil {
			return err
		}
	}
	err := q.take()
	return errors.Join(err, q.unlockByte(dispenserByte))
}

func (q *queue) take() error {
	var b [8]byte
	if _, err := q.f.ReadAt(b[:], 0); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	pos := firstTicketPos + int64(binary.LittleEndian.Uint64(b[:])&(1<<62-1))
	// A counter that was lost or damaged must not hand out a place before
	// those who wait already.
	for {
		held, err := q.heldIn(pos, lastPos)
		if err != nil {
			return err
		}
		if held < 0 {
			break
		}
		if held == lastPos {
			return errors.New("no ticket left")
		}
		pos = held + 1
	}
	ok, err := q.tryByte(pos)
	if err != nil {
		return err
	}
	if !ok {
		return errors.New("a new ticket is already locked")
	}
	q.ticket = pos
	binary.LittleEndian.PutUint64(b[:], uint64(pos-firstTicketPos)+1)
	_, err = q.f.WriteAt(b[:], 0)
	return err
}

// first tells whether nobody holds a lower ticket.
func (q *queue) first() (bool, error) {
	if q.ticket == firstTicketPos {
		return true, nil
	}
	held, err := q.heldIn(firstTicketPos, q.ticket-1)
	if err != nil {
		return false, fmt.Errorf("look at the queue: %w", err)
	}
	return held < 0, nil
}

func (q *queue) close() error {
	var err error
	if q.ticket != 0 {
		err = q.unlockByte(q.ticket)
	}
	return errors.Join(err, q.f.Close())
}

// sleep waits for d or for the end of ctx.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
