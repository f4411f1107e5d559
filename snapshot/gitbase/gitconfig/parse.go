package gitconfig

import (
	"bytes"
	"fmt"
	"strings"
)

// parser is a cursor over one file. It reads the way git's own reader does,
// character by character with CRLF taken for LF, because the grammar is
// defined by that reader only.
type parser struct {
	b    []byte
	i    int
	line int
	eof  bool // the end was read; reading on gives line ends
}

// next returns the next character; the end of the file reads as a line end.
func (p *parser) next() byte {
	if p.i >= len(p.b) {
		p.eof = true
		return '\n'
	}
	c := p.b[p.i]
	p.i++
	if c == '\r' && p.i < len(p.b) && p.b[p.i] == '\n' {
		c = '\n'
		p.i++
	}
	if c == '\n' {
		p.line++
	}
	return c
}

// Parse reads one file's bytes without following includes. Errors wrap
// ErrSyntax and name the line. Like git it ends keys and values at a NUL byte.
func Parse(b []byte) ([]Entry, error) {
	p := &parser{b: bytes.TrimPrefix(b, []byte("\xef\xbb\xbf")), line: 1}
	var all []Entry
	stem := "" // section, with its dot
	for {
		at := p.line
		c := p.next()
		switch {
		case p.eof:
			return all, nil
		case isSpace(c):
		case c == '#' || c == ';':
			for c != '\n' {
				c = p.next()
			}
		case c == '[':
			s, ok := p.section()
			if !ok || s == "" {
				return nil, fmt.Errorf("%w %d", ErrSyntax, at)
			}
			stem = s + "."
		case isAlpha(c):
			e, ok := p.assignment(stem, c)
			if !ok {
				return nil, fmt.Errorf("%w %d", ErrSyntax, at)
			}
			all = append(all, e)
		default:
			return nil, fmt.Errorf("%w %d", ErrSyntax, at)
		}
	}
}

// section reads after "[" up to and including "]".
func (p *parser) section() (string, bool) {
	var name []byte
	for {
		c := p.next()
		switch {
		case p.eof:
			return "", false
		case c == ']':
			return string(name), true
		case isSpace(c):
			return p.subsection(name, c)
		case !isKey(c) && c != '.':
			return "", false
		}
		name = append(name, lower(c))
	}
}

// subsection reads the quoted part of [name "quoted"]; c is the space read last.
func (p *parser) subsection(name []byte, c byte) (string, bool) {
	for isSpace(c) {
		if c == '\n' {
			return "", false
		}
		c = p.next()
	}
	if c != '"' {
		return "", false
	}
	name = append(name, '.')
	for {
		switch c = p.next(); c {
		case '\n':
			return "", false
		case '"':
			return string(name), p.next() == ']'
		case '\\': // makes any character literal
			if c = p.next(); c == '\n' {
				return "", false
			}
		}
		name = append(name, c)
	}
}

// assignment reads a key that begins with c, and its value.
func (p *parser) assignment(stem string, c byte) (Entry, bool) {
	name := []byte(stem)
	for isKey(c) && !p.eof {
		name = append(name, lower(c))
		c = p.next()
	}
	for c == ' ' || c == '\t' {
		c = p.next()
	}
	e := Entry{Key: upToNUL(name)}
	if c == '\n' {
		return e, true
	}
	if c != '=' {
		return e, false
	}
	v, ok := p.value()
	e.Value, e.HasValue = upToNUL(v), true
	return e, ok
}

// value reads after "=" to the end of the line. Outside quotes, space at both
// ends goes, and every other white character becomes one space.
func (p *parser) value() ([]byte, bool) {
	var v []byte
	quoted, spaces := false, 0
	for {
		c := p.next()
		switch {
		case c == '\n':
			return v, !quoted
		case isSpace(c) && !quoted:
			if len(v) > 0 {
				spaces++
			}
			continue
		case (c == ';' || c == '#') && !quoted:
			for c != '\n' {
				c = p.next()
			}
			return v, true
		}
		for ; spaces > 0; spaces-- {
			v = append(v, ' ')
		}
		switch c {
		case '"':
			quoted = !quoted
		case '\\':
			switch c = p.next(); c {
			case '\n': // the value goes on in the next line
			case 't':
				v = append(v, '\t')
			case 'b':
				v = append(v, '\b')
			case 'n':
				v = append(v, '\n')
			case '\\', '"':
				v = append(v, c)
			default:
				return nil, false
			}
		default:
			v = append(v, c)
		}
	}
}

func upToNUL(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(b)
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }
func isAlpha(c byte) bool { return 'a' <= lower(c) && lower(c) <= 'z' }
func isKey(c byte) bool   { return isAlpha(c) || '0' <= c && c <= '9' || c == '-' }

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// canonical lowers section and name of a dotted key; the subsection between
// the first and the last dot is case-sensitive.
func canonical(key string) string {
	first, last := strings.IndexByte(key, '.'), strings.LastIndexByte(key, '.')
	if first < 0 {
		return strings.ToLower(key)
	}
	return strings.ToLower(key[:first]) + key[first:last] + strings.ToLower(key[last:])
}
