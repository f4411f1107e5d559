package attrs

import (
	"bytes"
	"strings"

	"github.com/aspengine/asp/snapshot/gitbase/ignore/pattern"
)

// Git's limits: longer lines and larger files are passed over.
const (
	maxLine = 2047
	maxFile = 100 << 20
)

// macroPrefix starts a line that defines a macro.
const macroPrefix = "[attr]"

// blank are the bytes between the words of a line.
const blank = " \t\r\n"

// setting is one attribute as a line states it.
type setting struct {
	name string
	attr Attr
}

// line is one pattern with its settings.
type line struct {
	pattern  pattern.Pattern
	settings []setting
}

// file is one parsed file. Lines keep their order; later ones win.
type file struct {
	dir    string // directory of the file, "" at the top
	lines  []line
	macros map[string][]setting
}

// parse reads a file; nil when it says nothing. Where macros are not allowed
// (below the top directory) lines that define one are passed over, as is every
// line that git complains of.
func parse(b []byte, dir string, macros bool) *file {
	if len(b) == 0 || len(b) > maxFile {
		return nil
	}
	f := &file{dir: dir}
	b = bytes.TrimPrefix(b, []byte("\xef\xbb\xbf"))
	for l := range bytes.SplitSeq(b, []byte("\n")) {
		f.add(string(bytes.TrimSuffix(l, []byte("\r"))), macros)
	}
	if f.lines == nil && f.macros == nil {
		return nil
	}
	return f
}

// add takes one line in.
func (f *file) add(s string, macros bool) {
	if i := strings.IndexByte(s, 0); i >= 0 {
		s = s[:i]
	}
	long := len(s) > maxLine
	s = strings.TrimLeft(s, blank)
	if s == "" || s[0] == '#' || long {
		return
	}
	name, rest, ok := unquote(s)
	if !ok {
		name, rest = word(s)
	}
	macro := len(name) > len(macroPrefix) && strings.HasPrefix(name, macroPrefix)
	if macro {
		if !macros {
			return
		}
		name, _ = word(strings.TrimLeft(name[len(macroPrefix):], blank))
		if !validName(name) {
			return
		}
	}
	settings, ok := parseSettings(rest)
	if !ok {
		return
	}
	if macro {
		if f.macros == nil {
			f.macros = map[string][]setting{}
		}
		f.macros[name] = settings
		return
	}
	p := pattern.Parse(name)
	if p.Negative || p.DirOnly {
		// Git refuses the one, and the other matches no file.
		return
	}
	f.lines = append(f.lines, line{p, settings})
}

// word splits s after its first word.
func word(s string) (first, rest string) {
	if i := strings.IndexAny(s, blank); i >= 0 {
		return s[:i], s[i:]
	}
	return s, ""
}

// parseSettings reads "name -name !name name=value …"; one bad name spoils
// the line.
func parseSettings(s string) ([]setting, bool) {
	var all []setting
	for {
		s = strings.TrimLeft(s, blank)
		if s == "" {
			return all, true
		}
		var w string
		w, s = word(s)
		name, value, hasValue := strings.Cut(w, "=")
		set := setting{attr: Attr{State: Set}}
		switch {
		case w[0] == '-':
			name, set.attr = name[1:], Attr{State: Unset}
		case w[0] == '!':
			name, set.attr = name[1:], Attr{State: Unspecified}
		case hasValue:
			set.attr = Attr{State: Value, Text: value}
		}
		if !validName(name) {
			return nil, false
		}
		set.name = name
		all = append(all, set)
	}
}

// validName tells whether git accepts name as an attribute's.
func validName(name string) bool {
	if name == "" || name[0] == '-' {
		return false
	}
	for i := range len(name) {
		c := name[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '.', c == '_':
		default:
			return false
		}
	}
	return true
}

// unquote reads a pattern in double quotes with C escapes at the start of s.
func unquote(s string) (name, rest string, ok bool) {
	if s[0] != '"' {
		return "", "", false
	}
	var b []byte
	for i := 1; i < len(s); i++ {
		c := s[i]
		if c == '"' {
			return string(b), s[i+1:], true
		}
		if c != '\\' {
			b = append(b, c)
			continue
		}
		if i++; i >= len(s) {
			break
		}
		c = s[i]
		if j := strings.IndexByte("abfnrtv", c); j >= 0 {
			b = append(b, "\a\b\f\n\r\t\v"[j])
			continue
		}
		switch {
		case c == '\\' || c == '"':
			b = append(b, c)
		case '0' <= c && c <= '3' && i+2 < len(s) && octal(s[i+1]) && octal(s[i+2]):
			b = append(b, (c-'0')<<6|(s[i+1]-'0')<<3|(s[i+2]-'0'))
			i += 2
		default:
			return "", "", false
		}
	}
	return "", "", false
}

func octal(c byte) bool { return '0' <= c && c <= '7' }
