package patch

import (
	"strings"
	"unicode/utf8"
)

// unquote reads a C-style quoted string at the start of s and returns what it
// says and what follows it.
func unquote(s string) (text, rest string, ok bool) {
	if s == "" || s[0] != '"' {
		return "", "", false
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch c := s[i]; c {
		case '"':
			return b.String(), s[i+1:], true
		case '\\':
			i++
			if i == len(s) {
				return "", "", false
			}
			const letters, meanings = `abfnrtv\"`, "\a\b\f\n\r\t\v\\\""
			if k := strings.IndexByte(letters, s[i]); k >= 0 {
				b.WriteByte(meanings[k])
				continue
			}
			if i+3 > len(s) || s[i] > '3' || !isOctal(s[i]) || !isOctal(s[i+1]) || !isOctal(s[i+2]) {
				return "", "", false
			}
			b.WriteByte((s[i]-'0')<<6 | (s[i+1]-'0')<<3 | (s[i+2] - '0'))
			i += 2
		case '\n':
			return "", "", false
		default:
			b.WriteByte(c)
		}
	}
	return "", "", false
}

func isOctal(c byte) bool { return '0' <= c && c <= '7' }

// quote is the inverse of unquote, for names that need it: control characters,
// quotes, backslashes, and bytes that are no UTF-8. Other names stay readable.
func quote(s string) string {
	plain := utf8.ValidString(s)
	for i := 0; plain && i < len(s); i++ {
		plain = s[i] >= ' ' && s[i] != 0x7f && s[i] != '"' && s[i] != '\\'
	}
	if plain {
		return s
	}
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(s) {
		c := s[i]
		if k := strings.IndexByte("\a\b\f\n\r\t\v\\\"", c); k >= 0 {
			b.WriteByte('\\')
			b.WriteByte(`abfnrtv\"`[k])
		} else if c < ' ' || c >= 0x7f {
			b.Write([]byte{'\\', '0' + c>>6, '0' + c>>3&7, '0' + c&7})
		} else {
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// strip takes n leading components off a name. The name must have them, and
// must not begin with a slash where something is taken off.
func strip(s string, n int) (string, bool) {
	if n == 0 {
		return s, s == "" || s[0] != '/'
	}
	for i := range len(s) {
		if s[i] == '/' {
			if n--; n <= 0 {
				return s[i+1:], i > 0
			}
		}
	}
	return "", false
}

// squash makes runs of slashes one.
func squash(s string) string {
	if !strings.Contains(s, "//") {
		return s
	}
	var b strings.Builder
	for i := range len(s) {
		if s[i] != '/' || i == 0 || s[i-1] != '/' {
			b.WriteByte(s[i])
		}
	}
	return b.String()
}

// isSpace is white space as git sees it.
func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

func isDevNull(line string) bool {
	rest, ok := strings.CutPrefix(line, "/dev/null")
	return ok && (rest == "" || isSpace(rest[0]))
}

// findName reads a name from a header line. Unquoted it ends at CR or LF and,
// if tab is set, at a tab; never at a space. "" if there is none.
func findName(line string, n int, tab bool) string {
	if text, ok := findQuoted(line, n); ok {
		return text
	}
	end := 0
	for end < len(line) && line[end] != '\n' && line[end] != '\r' && (line[end] != '\t' || !tab) {
		end++
	}
	return after(line[:end], n)
}

func findQuoted(line string, n int) (string, bool) {
	text, _, ok := unquote(line)
	if !ok {
		return "", false
	}
	for ; n > 0; n-- {
		if _, text, ok = strings.Cut(text, "/"); !ok {
			return "", false
		}
	}
	return squash(text), true
}

// after is what follows the n-th slash, "" without one. Unlike strip it does
// not mind where the slashes are.
func after(s string, n int) string {
	for ; n > 0; n-- {
		var ok bool
		if _, s, ok = strings.Cut(s, "/"); !ok {
			return ""
		}
	}
	return squash(s)
}

// gitNames reads the name from what follows "diff --git " if it can: where both
// names are the same but for the prefix. It is all there is to know the name of
// an empty file or of a change of mode; a space in it makes the line ambiguous,
// which only the sameness resolves.
func gitNames(line string, n int) string {
	line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
	if first, rest, ok := unquote(line); ok {
		first, ok = strip(first, n)
		rest = strings.TrimLeft(rest, " \t\r\n")
		if !ok || rest == "" {
			return ""
		}
		second := rest
		if rest[0] == '"' {
			if second, _, ok = unquote(rest); !ok {
				return ""
			}
		}
		if second, ok = strip(second, n); !ok || second != first {
			return ""
		}
		return first
	} else if strings.HasPrefix(line, `"`) {
		return ""
	}
	name, ok := strip(line, n)
	if !ok {
		return ""
	}
	if q := strings.IndexByte(name, '"'); q >= 0 {
		second, _, ok := unquote(name[q:])
		if !ok {
			return ""
		}
		second, ok = strip(second, n)
		if !ok || len(second) >= q || name[:len(second)] != second || !isSpace(name[len(second)]) {
			return ""
		}
		return second
	}
	for i := range len(name) {
		if name[i] != ' ' && name[i] != '\t' {
			continue
		}
		if i+1 == len(name) {
			return ""
		}
		second, ok := strip(name[i+1:], n)
		if !ok {
			return ""
		}
		if second == name[:i] {
			return second
		}
	}
	return ""
}
