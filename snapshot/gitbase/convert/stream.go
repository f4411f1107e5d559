package convert

import "hash"

// stats is what git counts in a file to guess whether it is text.
type stats struct {
	nul, loneCR, crlf   int64
	printable, odd      int64 // odd: control characters that text has no use for
	last                byte
	pendingCR, nonEmpty bool
}

// add counts the bytes of b, which follow those counted before.
func (s *stats) add(b []byte) {
	if len(b) == 0 {
		return
	}
	s.nonEmpty = true
	s.last = b[len(b)-1]
	for _, c := range b {
		if s.pendingCR {
			s.pendingCR = false
			if c == '\n' {
				s.crlf++
				continue
			}
			s.loneCR++
		}
		switch {
		case c >= ' ' && c != 0x7f, c == '\b', c == '\t', c == 0x1b, c == '\f':
			s.printable++
		case c == '\n':
		case c == '\r':
			s.pendingCR = true
		default:
			s.odd++
			if c == 0 {
				s.nul++
			}
		}
	}
}

// end closes the count after the last byte.
func (s *stats) end() {
	if s.pendingCR {
		s.loneCR++
		s.pendingCR = false
	}
	if s.nonEmpty && s.last == 0x1a { // the end-of-file mark of old systems is forgiven
		s.odd--
	}
}

// binary is git's guess: a NUL byte, a CR without LF, or more than one odd
// character in 128 printable ones.
func (s *stats) binary() bool {
	return s.loneCR > 0 || s.nul > 0 || s.printable/128 < s.odd
}

// sink takes the converted bytes and can go back to one place in them.
type sink interface {
	write(b []byte)
	mark()   // remembers the present place
	rewind() // forgets everything written since mark
}

// counter only counts.
type counter struct{ n, at int64 }

func (c *counter) write(b []byte) { c.n += int64(len(b)) }
func (c *counter) mark()          { c.at = c.n }
func (c *counter) rewind()        { c.n = c.at }

// buffer collects.
type buffer struct {
	b  []byte
	at int
}

func (s *buffer) write(b []byte) { s.b = append(s.b, b...) }
func (s *buffer) mark()          { s.at = len(s.b) }
func (s *buffer) rewind()        { s.b = s.b[:s.at] }

// hasher feeds a hash and counts. Going back means going on with a copy of the
// hash's state: so an $Id$ of any length is collapsed without keeping its text.
type hasher struct {
	counter
	h, saved hash.Cloner
	err      error
}

func (s *hasher) write(b []byte) {
	if s.err != nil {
		return
	}
	s.counter.write(b)
	s.h.Write(b) //nolint:errcheck // a hash never fails
}

func (s *hasher) mark() {
	if s.err != nil {
		return
	}
	s.counter.mark()
	var err error
	if s.saved, err = s.h.Clone(); err != nil {
		s.err = err
	}
}

func (s *hasher) rewind() {
	s.counter.rewind()
	if s.err == nil {
		s.h = s.saved
	}
}

// lineEnds drops the CR of every CRLF, or, with keep, passes everything on.
type lineEnds struct {
	to      func(b []byte)
	keep    bool
	pending bool // a CR whose successor is not known yet
}

func (l *lineEnds) write(b []byte) {
	if l.keep || len(b) == 0 {
		l.to(b)
		return
	}
	if l.pending && b[0] != '\n' {
		l.to([]byte{'\r'})
	}
	l.pending = false
	from := 0
	for i, c := range b {
		if c != '\r' {
			continue
		}
		if i+1 == len(b) {
			l.to(b[from:i])
			l.pending = true
			return
		}
		if b[i+1] == '\n' {
			l.to(b[from:i])
			from = i + 1
		}
	}
	l.to(b[from:])
}

func (l *lineEnds) end() {
	if l.pending {
		l.to([]byte{'\r'})
		l.pending = false
	}
}

// openIdent begins what ident collapses.
const openIdent = "$Id:"

// ident collapses "$Id: anything$" within one line to "$Id$". It writes the
// text as it comes and takes it back when the closing dollar arrives.
type ident struct {
	to   sink
	seen int // bytes of "$Id:" matched last; 4 means inside
}

func (d *ident) write(b []byte) {
	from := 0
	for i, c := range b {
		switch {
		case d.seen == len(openIdent):
			if c == '$' {
				d.to.rewind()
				from = i
				d.seen = 0
			} else if c == '\n' {
				d.seen = 0
			}
		case c == '$':
			d.seen = 1
		case d.seen > 0 && c == openIdent[d.seen]:
			if d.seen++; d.seen == len(openIdent) {
				d.to.write(b[from:i])
				d.to.mark() // after "$Id"
				from = i
			}
		default:
			d.seen = 0
		}
	}
	d.to.write(b[from:])
}
