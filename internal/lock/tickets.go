//go:build darwin || windows || portablefs

package lock

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// Where byte locks belong to a process and not to an open file, each ticket is a
// locked file in a directory beside the queue file, and the dispenser is the lock of
// the queue file itself. A dead one's file stays, unlocked, until somebody draws.

// queue is one waiter's own description of the queue file.
type queue struct {
	f      *os.File
	ticket int64    // position of our ticket; 0 before draw
	held   *os.File // the file of our ticket
}

func newQueue(f *os.File) *queue { return &queue{f: f} }

func (q *queue) dir() string { return q.f.Name() + ".d" }

func (q *queue) file(pos int64) string {
	return filepath.Join(q.dir(), strconv.FormatInt(pos, 16))
}

// tryByte takes the dispenser or a ticket; false when another description has it.
// Tickets are taken by who has the dispenser.
func (q *queue) tryByte(pos int64) (bool, error) {
	if pos == dispenserByte {
		return taken(tryLockFile(q.f))
	}
	if err := os.Mkdir(q.dir(), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return false, err
	}
	f, err := openQueueFile(q.file(pos))
	if err != nil {
		return false, err
	}
	ok, err := taken(tryLockFile(f))
	if !ok {
		return false, errors.Join(err, f.Close())
	}
	q.held = f
	return true, nil
}

func taken(err error) (bool, error) {
	if errors.Is(err, ErrBusy) {
		return false, nil
	}
	return err == nil, err
}

func (q *queue) unlockByte(pos int64) error {
	if pos == dispenserByte {
		return unlockFile(q.f)
	}
	if q.held == nil {
		return nil
	}
	// The lock first leaves the name, then goes with the handle: who finds the name
	// finds it locked.
	err := os.Remove(q.held.Name())
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	err = errors.Join(err, unlockFile(q.held), q.held.Close())
	q.held = nil
	return err
}

// heldIn returns the position of a ticket in [from, to] that another description
// holds, -1 when there is none. Who draws (to is the last position there is) has the
// dispenser, so nobody is between making a file and locking it, and unlocked files
// below are those of the dead: they are removed.
func (q *queue) heldIn(from, to int64) (int64, error) {
	names, err := os.ReadDir(q.dir())
	if errors.Is(err, fs.ErrNotExist) {
		return -1, nil
	}
	if err != nil {
		return 0, err
	}
	held := int64(-1)
	for _, n := range names {
		pos, err := strconv.ParseInt(n.Name(), 16, 64)
		if err != nil || q.file(pos) != filepath.Join(q.dir(), n.Name()) || pos > to || pos < from && to != lastPos {
			continue
		}
		alive, err := q.alive(pos, to == lastPos)
		if err != nil {
			return 0, err
		}
		if alive && pos >= from {
			held = max(held, pos)
		}
	}
	return held, nil
}

// alive tells whether somebody holds the ticket. It shares the lock for a moment,
// which keeps out nobody but who would take that very ticket.
func (q *queue) alive(pos int64, sweep bool) (bool, error) {
	f, err := openTicket(q.file(pos))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	free, err := taken(shareFile(f))
	if err != nil || !free {
		return !free, err
	}
	if sweep {
		if err := os.Remove(f.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
	}
	return false, unlockFile(f)
}

// waiter looks again every longWait: nobody says here that a ticket was given back.
type waiter struct{}

func newWaiter(string) *waiter                 { return &waiter{} }
func (*waiter) wait(ctx context.Context) error { return sleep(ctx, longWait) }
func (*waiter) close()                         {}
