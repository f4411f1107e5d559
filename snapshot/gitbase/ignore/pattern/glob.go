package pattern

import "strings"

// Glob tells whether pat matches all of text by the rules of git's wildmatch.
// With path set, "*", "?" and classes do not match a slash, and "**" between
// slashes (or the ends) matches any number of directories. With fold set the
// text's ASCII capitals are taken as small, and so are literals of the pattern;
// as in git, escaped literals and single members of classes are not.
//
// A malformed pattern (open class, unknown class name, backslash at the end)
// matches nothing.
//
// The search backtracks to the last "*" and the last "**" only, so its time is
// polynomial for hostile patterns. That loses no match: whatever an earlier
// star could reach by taking more, the later one reaches from where it is; and
// a "*" cannot matter any more once a slash behind it has been matched.
func Glob(pat, text string, path, fold bool) bool {
	var star, deep retry
	pi, ti := 0, 0
	for {
		ok := false
		switch {
		case pi == len(pat):
			if ti == len(text) {
				return true
			}
		case pat[pi] == '*':
			end := pi
			for end < len(pat) && pat[end] == '*' {
				end++
			}
			switch {
			case !path || crosses(pat, pi, end):
				star = retry{}
				switch {
				case end == len(pat):
					return true
				case path && pat[end] == '/':
					// Either no directory at all, or everything up to a slash.
					deep = retry{set: true, toSlash: true, pi: end + 1, ti: ti}
					pi = end + 1
				default:
					deep = retry{set: true, pi: end, ti: ti}
					pi = end
				}
				ok = true
			case end == len(pat):
				if strings.IndexByte(text[ti:], '/') < 0 {
					return true
				}
			case pat[end] == '/':
				// Only the next slash can follow; no choice to come back to.
				if i := strings.IndexByte(text[ti:], '/'); i >= 0 {
					pi, ti, ok, star = end+1, ti+i+1, true, retry{}
				}
			default:
				star = retry{set: true, pi: end, ti: ti}
				pi, ok = end, true
			}
		case ti < len(text):
			next, res := one(pat, pi, text[ti], path, fold)
			if res == malformed {
				return false
			}
			if res == yes {
				if path && text[ti] == '/' {
					star = retry{}
				}
				pi, ti, ok = next, ti+1, true
			}
		}
		if ok {
			continue
		}
		switch {
		case star.set && star.ti < len(text) && text[star.ti] != '/':
			star.ti++
			pi, ti = star.pi, star.ti
		case deep.set && deep.advance(text):
			pi, ti, star = deep.pi, deep.ti, retry{}
		default:
			return false
		}
	}
}

// retry is a star to come back to: the pattern after it, and the text that it
// has not taken yet.
type retry struct {
	set     bool
	toSlash bool // takes text up to and including a slash only
	pi, ti  int
}

// advance lets the star take more; false when there is nothing to take.
func (r *retry) advance(text string) bool {
	if !r.toSlash {
		r.ti++
		return r.ti <= len(text)
	}
	i := strings.IndexByte(text[r.ti:], '/')
	if i < 0 {
		return false
	}
	r.ti += i + 1
	return true
}

// crosses tells whether the stars pat[from:to] match slashes: at least two,
// with a slash or an end of the pattern on either side.
func crosses(pat string, from, to int) bool {
	return to-from >= 2 && (from == 0 || pat[from-1] == '/') &&
		(to == len(pat) || pat[to] == '/' || strings.HasPrefix(pat[to:], `\/`))
}

type result uint8

const (
	no result = iota
	yes
	malformed
)

// one matches the single-character element of pat at i and returns where the
// next element begins.
func one(pat string, i int, c byte, path, fold bool) (int, result) {
	if fold {
		c = lower(c)
	}
	switch p := pat[i]; p {
	case '?':
		return i + 1, is(!path || c != '/')
	case '[':
		return class(pat, i+1, c, path, fold)
	case '\\':
		if i+1 == len(pat) {
			return i, malformed
		}
		return i + 2, is(pat[i+1] == c)
	default:
		if fold {
			p = lower(p)
		}
		return i + 1, is(p == c)
	}
}

func is(b bool) result {
	if b {
		return yes
	}
	return no
}

// class matches c against the class whose "[" ends at i.
func class(pat string, i int, c byte, path, fold bool) (int, result) {
	negated := i < len(pat) && (pat[i] == '!' || pat[i] == '^')
	if negated {
		i++
	}
	found := false
	var low byte // start of a range that "-" would continue; 0 for none
	for first := true; ; first = false {
		if i >= len(pat) {
			return i, malformed
		}
		m := pat[i]
		switch {
		case m == ']' && !first:
			return i + 1, is(found != negated && !(path && c == '/'))
		case m == '\\':
			if i++; i >= len(pat) {
				return i, malformed
			}
			low = pat[i]
			found = found || c == low
		case m == '-' && low != 0 && i+1 < len(pat) && pat[i+1] != ']':
			if i++; pat[i] == '\\' {
				if i++; i >= len(pat) {
					return i, malformed
				}
			}
			high := pat[i]
			found = found || low <= c && c <= high
			if up := c - 'a' + 'A'; fold && 'a' <= c && c <= 'z' {
				found = found || low <= up && up <= high
			}
			low = 0
		case m == '[' && i+1 < len(pat) && pat[i+1] == ':':
			end := strings.IndexByte(pat[i+2:], ']')
			if end < 0 {
				return i, malformed
			}
			name, named := strings.CutSuffix(pat[i+2:i+2+end], ":")
			if !named { // an ordinary "["
				low = '['
				found = found || c == '['
				break
			}
			in, known := named8bit(name, c, fold)
			if !known {
				return i, malformed
			}
			found = found || in
			i += 2 + end
			low = 0
		default:
			low = m
			found = found || c == m
		}
		i++
	}
}

// named8bit tells whether c is in the POSIX class of that name. Only ASCII is
// in any class.
func named8bit(name string, c byte, fold bool) (in, known bool) {
	small, capital := 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z'
	digit := '0' <= c && c <= '9'
	graph := 0x21 <= c && c <= 0x7e
	switch name {
	case "alnum":
		in = small || capital || digit
	case "alpha":
		in = small || capital
	case "blank":
		in = c == ' ' || c == '\t'
	case "cntrl":
		in = c < 0x20 || c == 0x7f
	case "digit":
		in = digit
	case "graph":
		in = graph
	case "lower":
		in = small
	case "print":
		in = graph || c == ' '
	case "punct":
		in = graph && !small && !capital && !digit
	case "space":
		in = c == ' ' || '\t' <= c && c <= '\r'
	case "upper":
		in = capital || fold && small
	case "xdigit":
		in = digit || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
	default:
		return false, false
	}
	return in, true
}
