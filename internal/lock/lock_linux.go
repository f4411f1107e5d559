//go:build !portablefs

package lock

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// queue is one waiter's own description of the queue file.
type queue struct {
	f      *os.File
	ticket int64 // position of our byte; 0 before draw
}

func newQueue(f *os.File) *queue { return &queue{f: f} }

func (q *queue) fcntl(cmd int, lk *unix.Flock_t) error {
	return control(q.f, func(fd uintptr) error { return unix.FcntlFlock(fd, cmd, lk) })
}

// tryByte locks one byte exclusively; false when another description has it.
func (q *queue) tryByte(pos int64) (bool, error) {
	err := q.fcntl(unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Start: pos, Len: 1})
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return false, nil
	}
	return err == nil, err
}

func (q *queue) unlockByte(pos int64) error {
	return q.fcntl(unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_UNLCK, Start: pos, Len: 1})
}

// heldIn returns the position of a byte in [from, to] that another description
// holds, -1 when there is none. It asks instead of taking a shared lock: lower
// tickets are never drawn again, so an answer "none" stays true.
func (q *queue) heldIn(from, to int64) (int64, error) {
	lk := unix.Flock_t{Type: unix.F_RDLCK, Start: from, Len: to - from + 1}
	if to == lastPos {
		lk.Len = 0 // to the end, however far
	}
	if err := q.fcntl(unix.F_OFD_GETLK, &lk); err != nil {
		return 0, err
	}
	if lk.Type == unix.F_UNLCK {
		return -1, nil
	}
	return lk.Start, nil
}

// waiter sleeps until the queue may have moved. It watches the queue file for
// descriptors being closed, which the kernel reports for killed processes too;
// without inotify (no instance left) it looks again every longWait.
type waiter struct {
	f *os.File // inotify instance, nil without
	b []byte
}

func newWaiter(queueFile string) *waiter {
	w := &waiter{b: make([]byte, 4096)}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return w
	}
	if _, err := unix.InotifyAddWatch(fd, queueFile, unix.IN_CLOSE); err != nil {
		unix.Close(fd)
		return w
	}
	w.f = os.NewFile(uintptr(fd), "inotify")
	return w
}

// wait returns nil when it is time to look again, or the error of ctx.
func (w *waiter) wait(ctx context.Context) error {
	if w.f == nil {
		return sleep(ctx, longWait)
	}
	if err := w.f.SetReadDeadline(time.Now().Add(longWait)); err != nil {
		return sleep(ctx, longWait)
	}
	stop := context.AfterFunc(ctx, func() { _ = w.f.SetReadDeadline(time.Unix(1, 0)) })
	_, err := w.f.Read(w.b)
	stop()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err == nil, errors.Is(err, os.ErrDeadlineExceeded):
		return nil
	case errors.Is(err, io.EOF):
		return sleep(ctx, longWait)
	default:
		return sleep(ctx, longWait)
	}
}

func (w *waiter) close() {
	if w.f != nil {
		w.f.Close()
	}
}
