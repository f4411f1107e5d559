package syntax

import (
	"bytes"

	"github.com/aspengine/asp/provider"
)

// conflicts finds the marks of a merge that was not finished: seven of <, | or >
// at the start of a line with a blank and a label behind, in an order that git
// writes. A line of = alone is a heading in several languages and means something
// only between two others.
func (s *file) conflicts() {
	open := -1 // line of the mark that waits for its partner
	for i := range s.text.Lines() {
		line := s.text.Line(i)
		if len(line) < 7 {
			continue
		}
		switch {
		case mark(line, '<'):
			if open >= 0 {
				s.conflict(open)
			}
			open = i
		case mark(line, '>') && open >= 0:
			s.conflict(open)
			open = -1
		}
	}
	if open >= 0 && s.divided(open) {
		s.conflict(open)
	}
}

func (s *file) conflict(line int) {
	s.add(RuleConflict, provider.SeverityError, s.text.Start(line), "a merge conflict was left in the file")
}

// divided tells whether a middle mark follows: half a conflict that someone began
// to mend.
func (s *file) divided(line int) bool {
	for i := line + 1; i < s.text.Lines(); i++ {
		if bytes.Equal(s.text.Line(i), []byte("=======")) {
			return true
		}
	}
	return false
}

func mark(line []byte, c byte) bool {
	for i := range 7 {
		if line[i] != c {
			return false
		}
	}
	return len(line) == 7 && c == '>' || len(line) > 8 && line[7] == ' '
}
