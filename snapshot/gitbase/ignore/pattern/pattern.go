// Package pattern is one line of a .gitignore or .gitattributes file: how it is
// taken apart and which paths it matches. Both files share this grammar.
//
// Git matches the literal start of a pattern by comparison and hands only the
// rest to its glob matcher. That is not a mere shortcut: the rest is matched as
// if a pattern began there, so "a**/b" behaves like "a" followed by "**/b". The
// same split is made here for that reason.
package pattern

import "strings"

// Kind is how a pattern is matched; the cheap ones come first.
type kind uint8

const (
	literal kind = iota // no wildcard
	suffix              // "*.ext": ends in arg
	prefix              // "name*": begins with arg
	glob                // anything else
)

// Pattern is a parsed line. Its zero value matches nothing. Immutable.
type Pattern struct {
	Text     string // the pattern, without leading "!" and one trailing slash
	Negative bool   // began with "!"
	DirOnly  bool   // ended in a slash: matches directories only
	Base     bool   // has no slash: matches names at any depth below its file

	kind kind
	arg  string // what a literal, suffix or prefix is compared with
	lit  string // literal start of an anchored glob
	rest string // what follows lit

	tail  string // what every matching name ends in
	whole bool   // and is, in full
	end   byte   // last byte of tail in lower case, 0 when tail is empty
}

// Parse takes a line apart. The line is already free of its line end, of
// trailing spaces (see TrimSpaces) and of comments. Like git it reads to the
// first NUL byte.
func Parse(line string) Pattern {
	p := parse(line)
	p.setTail()
	return p
}

func parse(line string) Pattern {
	if i := strings.IndexByte(line, 0); i >= 0 {
		line = line[:i]
	}
	var p Pattern
	line, p.Negative = strings.CutPrefix(line, "!")
	p.Text, p.DirOnly = strings.CutSuffix(line, "/")
	p.Base = strings.IndexByte(p.Text, '/') < 0
	n := strings.IndexAny(p.Text, `*?[\`)
	if n < 0 {
		n = len(p.Text)
	}
	if p.Base {
		p.parseBase(p.Text, n)
		return p
	}
	t := p.Text
	if t[0] == '/' { // anchors, and is no part of the path
		t, n = t[1:], n-1
	}
	if x, ok := strings.CutPrefix(t, "**/"); ok && strings.IndexByte(x, '/') < 0 {
		// "**/name" is "name": a name at any depth below the file.
		n := strings.IndexAny(x, `*?[\`)
		if n < 0 {
			n = len(x)
		}
		p.Base = true
		p.parseBase(x, n)
		return p
	}
	if n == len(t) {
		p.kind, p.arg, p.lit = literal, t, t
		return p
	}
	p.kind, p.lit, p.rest = glob, t[:n], t[n:]
	return p
}

// setTail derives the quick check of MayMatch from what was parsed.
func (p *Pattern) setTail() {
	switch p.kind {
	case literal:
		p.tail, p.whole = p.arg, true
	case suffix:
		p.tail = p.arg
	case glob:
		// Behind the last wildcard, class and escape all bytes are literal.
		i := strings.LastIndexAny(p.rest, `*?[]\`) + 1
		if p.rest[i-1] == '\\' {
			i++
		}
		p.tail = p.rest[min(i, len(p.rest)):]
	}
	if i := strings.LastIndexByte(p.tail, '/'); i >= 0 {
		// The slash after "**" may stand for nothing, in the middle of a name
		// even: "a**/b" matches "ab".
		p.tail, p.whole = p.tail[i+1:], p.kind == literal || i > 0
	}
	if p.tail != "" {
		p.end = lower(p.tail[len(p.tail)-1])
	}
}

// End is the byte, in lower case, that every matching path ends in; 0 for any.
func (p *Pattern) End() byte { return p.end }

// EndOf is what End of a pattern must be, if not 0, to match name, which must
// not be empty.
func EndOf(name string) byte { return lower(name[len(name)-1]) }

// MayMatch is a cheap check of a path's last component, which must not be
// empty; false means that the pattern does not match.
func (p *Pattern) MayMatch(name string) bool {
	switch {
	case len(name) < len(p.tail), p.whole && len(name) != len(p.tail):
		return false
	default:
		return p.end == 0 || p.end == lower(name[len(name)-1])
	}
}

// parseBase sets how the slashless pattern t, literal up to n, is compared
// with a name.
func (p *Pattern) parseBase(t string, n int) {
	switch {
	case n == len(t):
		p.kind, p.arg = literal, t
	case t[0] == '*' && !strings.ContainsAny(t[1:], `*?[\`):
		p.kind, p.arg = suffix, t[1:]
	case strings.Trim(t[n:], "*") == "":
		p.kind, p.arg = prefix, t[:n]
	default:
		p.kind, p.rest = glob, t
	}
}

// TrimSpaces removes the trailing spaces that no backslash protects, as git
// does for ignore files (tabs stay).
func TrimSpaces(line string) string {
	end := -1 // start of the spaces seen last
	for i := 0; i < len(line); i++ {
		switch line[i] {
		case 0:
			i = len(line)
		case ' ':
			if end < 0 {
				end = i
			}
		case '\\':
			if i++; i >= len(line) || line[i] == 0 {
				return line
			}
			end = -1
		default:
			end = -1
		}
	}
	if end >= 0 {
		return line[:end]
	}
	return line
}

// MatchName tells whether a pattern with Base set matches a name. The caller
// looks at DirOnly.
func (p *Pattern) MatchName(name string, fold bool) bool {
	switch p.kind {
	case literal:
		return len(name) == len(p.arg) && len(name) > 0 && equal(name, p.arg, fold)
	case suffix:
		return len(name) >= len(p.arg) && equal(name[len(name)-len(p.arg):], p.arg, fold)
	case prefix:
		return len(name) >= len(p.arg) && equal(name[:len(p.arg)], p.arg, fold)
	default:
		return Glob(p.rest, name, false, fold)
	}
}

// MatchPath tells whether a pattern without Base matches a path relative to
// the directory of its file. The caller looks at DirOnly.
func (p *Pattern) MatchPath(path string, fold bool) bool {
	if p.kind == literal {
		return len(path) == len(p.arg) && equal(path, p.arg, fold)
	}
	return len(path) >= len(p.lit) && equal(path[:len(p.lit)], p.lit, fold) &&
		Glob(p.rest, path[len(p.lit):], true, fold)
}

// Literal tells whether a pattern without Base is a plain path; then it is
// LiteralStart.
func (p *Pattern) Literal() bool { return p.kind == literal }

// LiteralStart is the start of every path that a pattern without Base matches.
func (p *Pattern) LiteralStart() string { return p.lit }

// Reaches tells whether a pattern without Base can match anything below the
// directory dir (relative to the pattern's file, not empty). False means never.
func (p *Pattern) Reaches(dir string, fold bool) bool {
	if len(p.lit) <= len(dir) {
		return p.kind != literal && equal(dir[:len(p.lit)], p.lit, fold)
	}
	return p.lit[len(dir)] == '/' && equal(p.lit[:len(dir)], dir, fold)
}

// equal compares strings of equal length; folding is that of ASCII, as git's.
func equal(a, b string, fold bool) bool {
	if a == b {
		return true
	}
	if !fold {
		return false
	}
	for i := range len(a) {
		if lower(a[i]) != lower(b[i]) {
			return false
		}
	}
	return true
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}
