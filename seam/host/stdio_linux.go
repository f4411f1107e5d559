package host

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Standard is the transport over two descriptors that this process was started
// with, usually 0 and 1. They may be anything, and they are shared with whoever
// started the process, so they are left in the mode that they have: every read and
// write waits for the descriptor first, beside a pipe that Close makes readable. A
// reader that is gone is an error of Write, never a signal. Close does not close
// the descriptors.
func Standard(in, out *os.File) (Transport, error) {
	s := &standard{in: int(in.Fd()), out: int(out.Fd())}
	var st unix.Stat_t
	if err := unix.Fstat(s.out, &st); err != nil {
		return nil, fmt.Errorf("look at the output: %w", err)
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFSOCK:
		s.socket, s.chunk = true, 64<<10
	case unix.S_IFREG:
		s.chunk = 1 << 20
	default:
		s.chunk = 4096 // what a pipe that can be written to takes without waiting
	}
	for _, e := range []*ending{&s.reads, &s.all} {
		if err := e.open(); err != nil {
			s.reads.release()
			return nil, err
		}
	}
	return s, nil
}

type standard struct {
	in, out    int
	socket     bool
	chunk      int
	reads, all ending
	rmu, wmu   sync.Mutex // held by the one who reads, the one who writes
}

// ending is an event that wakes a poll and stays.
type ending struct {
	r, w *os.File
	came atomic.Bool
}

func (e *ending) open() (err error) {
	e.r, e.w, err = os.Pipe()
	return err
}

func (e *ending) come() {
	if e.came.CompareAndSwap(false, true) {
		e.w.Close()
	}
}

func (e *ending) release() {
	if e.r != nil {
		e.come()
		e.r.Close()
	}
}

// await waits until fd is ready for events; false when one of the ends came first.
func await(fd int, events int16, ends ...*ending) (bool, error) {
	for _, e := range ends {
		if e.came.Load() {
			return false, nil // its descriptor may be gone, and poll would pass over it
		}
	}
	p := []unix.PollFd{{Fd: int32(fd), Events: events}}
	for _, e := range ends {
		p = append(p, unix.PollFd{Fd: int32(e.r.Fd()), Events: unix.POLLIN})
	}
	for {
		_, err := unix.Poll(p, -1)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return false, err
		}
		for _, x := range p[1:] {
			if x.Revents != 0 {
				return false, nil
			}
		}
		return true, nil
	}
}

func (s *standard) Read(b []byte) (int, error) {
	s.rmu.Lock()
	defer s.rmu.Unlock()
	for {
		ok, err := await(s.in, unix.POLLIN, &s.reads, &s.all)
		if err != nil {
			return 0, fmt.Errorf("read: %w", err)
		}
		if !ok {
			return 0, io.EOF
		}
		n, err := unix.Read(s.in, b)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
			continue
		case err != nil:
			return 0, fmt.Errorf("read: %w", err)
		case n == 0 && len(b) > 0:
			return 0, io.EOF
		}
		return n, nil
	}
}

func (s *standard) Write(b []byte) (done int, err error) {
	s.wmu.Lock()
	defer s.wmu.Unlock()
	for done < len(b) {
		ok, err := await(s.out, unix.POLLOUT, &s.all)
		if err != nil {
			return done, fmt.Errorf("write: %w", err)
		}
		if !ok {
			return done, os.ErrClosed
		}
		part := b[done:min(len(b), done+s.chunk)]
		n := 0
		if s.socket {
			n, err = unix.SendmsgN(s.out, part, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		} else {
			n, err = unix.Write(s.out, part)
		}
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
			continue
		case err != nil:
			return done, fmt.Errorf("write: %w", err)
		}
		done += n
	}
	return done, nil
}

func (s *standard) CloseRead() error {
	s.reads.come()
	return nil
}

// Close wakes who reads or writes, waits for them, and gives back what this needed.
func (s *standard) Close() error {
	s.reads.come()
	s.all.come()
	s.rmu.Lock()
	defer s.rmu.Unlock()
	s.wmu.Lock()
	defer s.wmu.Unlock()
	return errors.Join(s.reads.r.Close(), s.all.r.Close())
}
