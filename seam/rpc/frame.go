package rpc

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"
)

var (
	errTooLong      = errors.New("line over the limit")
	errUnterminated = errors.New("the input ends inside a line")
)

// readAhead is what is read at once, and what of a buffer is kept for the next
// line.
const readAhead = 64 << 10

// largeLine is the length from which a line takes a place in Options.Large.
const largeLine = 1 << 20

// largeTime is how long a large line may hold a place: who stalls inside one
// must not keep others from theirs.
const largeTime = 10 * time.Second

// Large bounds the memory of connections that share it: no more of them than it
// has places are inside a line of more than a mebibyte at once, counted until the
// message was understood. The others wait with reading, as long as their
// connection lasts. Shorter lines never wait for anybody.
type Large struct{ places chan []byte }

// NewLarge has n places, at least one.
func NewLarge(n int) *Large {
	l := &Large{places: make(chan []byte, max(n, 1))}
	for range cap(l.places) {
		l.places <- nil
	}
	return l
}

// lines cuts a stream into lines of at most limit bytes, ended by LF or CRLF.
// Memory is one line.
type lines struct {
	r     *bufio.Reader
	limit int
	buf   []byte
	skip  bool // the rest of an over-long line is to be thrown away
	large *Large
	done  <-chan struct{} // ends the wait for a place
	late  func()          // called when a place was held for too long
	held  *time.Timer     // a place
}

// grow makes room for n bytes more; false when the connection ended meanwhile.
func (l *lines) grow(n int) bool {
	if l.large == nil || l.held != nil || len(l.buf)+n <= largeLine {
		return true
	}
	select {
	case b := <-l.large.places:
		// A large message leaves several times its size behind as garbage; without
		// this, that of the last ones would stand beside this one.
		runtime.GC()
		// The place keeps its buffer, so that the next large line makes no garbage.
		if size := l.limit + readAhead + 2; cap(b) < size {
			b = make([]byte, 0, size)
		}
		l.buf, l.held = append(b[:0], l.buf...), time.AfterFunc(largeTime, l.late)
		return true
	case <-l.done:
		return false
	}
}

// release gives the place back. What next returned is not good any more.
func (l *lines) release() {
	if l.held != nil {
		l.held.Stop()
		l.large.places <- l.buf
		l.buf, l.held = nil, nil
	}
}

func newLines(r io.Reader, limit int64, ahead int) *lines {
	return &lines{r: bufio.NewReaderSize(r, ahead), limit: int(limit)}
}

// next returns the next line that is not blank, without its end. The slice is
// good until the call after. errTooLong comes as soon as the limit is passed,
// with the start of the line: waiting for the end would let a line without one go
// unanswered. The rest of that line is skipped by the call after. errUnterminated
// comes with what there was of the last line.
func (l *lines) next() ([]byte, error) {
	l.release()
	if cap(l.buf) > readAhead {
		l.buf = nil // one large message must not hold its memory for ever
	}
	l.buf = l.buf[:0]
	for {
		part, err := l.r.ReadSlice('\n')
		if l.skip {
			l.skip = errors.Is(err, bufio.ErrBufferFull)
			if err != nil && !l.skip {
				return nil, err
			}
			continue
		}
		if !l.grow(len(part)) {
			return nil, io.EOF
		}
		l.buf = append(l.buf, part...)
		switch {
		case err == nil:
			line := bytes.TrimSuffix(l.buf[:len(l.buf)-1], []byte("\r"))
			if len(line) > l.limit {
				return line, errTooLong
			}
			if len(bytes.Trim(line, " \t\r")) > 0 {
				return line, nil
			}
			l.buf = l.buf[:0]
		case errors.Is(err, bufio.ErrBufferFull):
			// One byte more may be the CR of a line of exactly the limit.
			if len(l.buf) > l.limit+1 {
				l.skip = true
				return l.buf, errTooLong
			}
		case errors.Is(err, io.EOF) && len(l.buf) > l.limit:
			return l.buf, errTooLong
		case errors.Is(err, io.EOF) && len(l.buf) > 0:
			return l.buf, errUnterminated
		case errors.Is(err, io.EOF):
			return nil, io.EOF
		default:
			return nil, fmt.Errorf("receive: %w", err)
		}
	}
}
