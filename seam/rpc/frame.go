package rpc

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

var (
	errTooLong      = errors.New("line over the limit")
	errUnterminated = errors.New("the input ends inside a line")
)

// readAhead is what is read at once, and what of a buffer is kept for the next
// line.
const readAhead = 64 << 10

// lines cuts a stream into lines of at most limit bytes, ended by LF or CRLF.
// Memory is one line.
type lines struct {
	r     *bufio.Reader
	limit int
	buf   []byte
	skip  bool // the rest of an over-long line is to be thrown away
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
