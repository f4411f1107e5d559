package canon

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Limits bound what Parse reads. A zero member stands for its default; there
// is no unlimited reading.
type Limits struct {
	Bytes  int // length of the input
	Depth  int // arrays and objects inside each other, the outermost counting 1
	Values int // values of every kind, keys not counted
	// AllowCaseTwins accepts keys that differ only in case. It is for foreign
	// formats whose keys are data, such as file names; never for messages.
	AllowCaseTwins bool
}

// The defaults. Values keeps the tree at a small multiple of the input however
// it is made up: a value takes 32 bytes, and `[0,0,…]` spends two on each.
const (
	DefaultBytes  = 16 << 20
	DefaultDepth  = 64
	DefaultValues = 2 << 20
)

func (l Limits) filled() Limits {
	if l.Bytes <= 0 {
		l.Bytes = DefaultBytes
	}
	if l.Depth <= 0 {
		l.Depth = DefaultDepth
	}
	if l.Values <= 0 {
		l.Values = DefaultValues
	}
	return l
}

// Error says why input is no acceptable JSON. Its text is bounded, whatever
// the input holds.
type Error struct {
	Offset int    // byte offset into the input
	Path   string // of the value being read, "$" for the outermost, cut to 200 bytes
	Reason string
}

func (e *Error) Error() string {
	return fmt.Sprintf("read JSON: %s at byte %d (%s)", e.Reason, e.Offset, e.Path)
}

// Parse reads exactly one JSON value from data. The result shares memory with a
// copy of data, never with data itself. Errors are *Error.
func Parse(data []byte, l Limits) (Value, error) {
	l = l.filled()
	if len(data) > l.Bytes {
		return Value{}, &Error{Offset: l.Bytes, Path: "$", Reason: fmt.Sprintf("input longer than %d bytes", l.Bytes)}
	}
	p := parser{in: string(data), left: l.Values, limits: l}
	if !utf8.ValidString(p.in) {
		return Value{}, &Error{Offset: invalidAt(p.in), Path: "$", Reason: "invalid UTF-8"}
	}
	p.space()
	v, err := p.value(1)
	if err != nil {
		return Value{}, err.finish()
	}
	p.space()
	if p.at < len(p.in) {
		return Value{}, &Error{Offset: p.at, Path: "$", Reason: "data after the value"}
	}
	return v, nil
}

func invalidAt(s string) int {
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return len(s)
}

// failure is an Error under way: the path grows while the recursion unwinds,
// so that reading good input costs nothing for it.
type failure struct {
	at     int
	reason string
	steps  []string // innermost first
}

func (f *failure) in(step string) *failure { f.steps = append(f.steps, step); return f }

func (f *failure) finish() *Error {
	p := "$"
	for i := len(f.steps) - 1; i >= 0; i-- {
		p += f.steps[i]
	}
	if len(p) > 200 {
		p = strings.ToValidUTF8(p[:197], "") + "…"
	}
	return &Error{Offset: f.at, Path: p, Reason: f.reason}
}

// KeyStep and IndexStep spell one step of a JSON path: .name, ["odd name"], [3].
func KeyStep(key string) string {
	if len(key) > 60 {
		return fmt.Sprintf("[%.60q…]", key)
	}
	for i := range len(key) {
		c := key[i] | 0x20
		if !(c >= 'a' && c <= 'z' || key[i] == '_' || i > 0 && key[i] >= '0' && key[i] <= '9') {
			return fmt.Sprintf("[%q]", key)
		}
	}
	if key == "" {
		return `[""]`
	}
	return "." + key
}

// IndexStep spells the step into an array.
func IndexStep(i int) string { return "[" + strconv.Itoa(i) + "]" }

type parser struct {
	in     string
	at     int
	left   int // values that may still come
	limits Limits
}

func (p *parser) fail(reason string, a ...any) *failure {
	if len(a) > 0 {
		reason = fmt.Sprintf(reason, a...)
	}
	return &failure{at: p.at, reason: reason}
}

func (p *parser) space() {
	for p.at < len(p.in) {
		switch p.in[p.at] {
		case ' ', '\t', '\n', '\r':
			p.at++
		default:
			return
		}
	}
}

func (p *parser) value(depth int) (Value, *failure) {
	if p.left--; p.left < 0 {
		return Value{}, p.fail("more than %d values", p.limits.Values)
	}
	if p.at >= len(p.in) {
		return Value{}, p.fail("unexpected end of input")
	}
	switch c := p.in[p.at]; {
	case c == '"':
		s, f := p.str()
		return Value{kind: String, s: s}, f
	case c == '{' || c == '[':
		if depth > p.limits.Depth {
			return Value{}, p.fail("nesting deeper than %d", p.limits.Depth)
		}
		if c == '{' {
			return p.object(depth)
		}
		return p.array(depth)
	case c == '-' || c >= '0' && c <= '9':
		return p.number()
	case strings.HasPrefix(p.in[p.at:], "true"):
		p.at += 4
		return BoolOf(true), nil
	case strings.HasPrefix(p.in[p.at:], "false"):
		p.at += 5
		return BoolOf(false), nil
	case strings.HasPrefix(p.in[p.at:], "null"):
		p.at += 4
		return NullOf(), nil
	}
	return Value{}, p.fail("no JSON value starts here")
}

func (p *parser) array(depth int) (Value, *failure) {
	p.at++
	c := &children{}
	for p.space(); ; p.space() {
		if p.at >= len(p.in) {
			return Value{}, p.fail("array without end")
		}
		if len(c.items) == 0 && p.in[p.at] == ']' {
			p.at++
			return Value{kind: Array, sub: c}, nil
		}
		v, f := p.value(depth + 1)
		if f != nil {
			return Value{}, f.in(IndexStep(len(c.items)))
		}
		c.items = append(c.items, v)
		p.space()
		switch {
		case p.at < len(p.in) && p.in[p.at] == ',':
			p.at++
		case p.at < len(p.in) && p.in[p.at] == ']':
			p.at++
			return Value{kind: Array, sub: c}, nil
		default:
			return Value{}, p.fail("comma or ] expected")
		}
	}
}

func (p *parser) object(depth int) (Value, *failure) {
	p.at++
	c := &children{}
	seen := keySet{exact: p.limits.AllowCaseTwins}
	for p.space(); ; p.space() {
		if len(c.keys) == 0 && p.at < len(p.in) && p.in[p.at] == '}' {
			p.at++
			return Value{kind: Object, sub: c}, nil
		}
		if p.at >= len(p.in) || p.in[p.at] != '"' {
			return Value{}, p.fail("key expected")
		}
		start := p.at
		key, f := p.str()
		if f != nil {
			return Value{}, f
		}
		if prior, dup := seen.add(c.keys, key); dup {
			p.at = start
			if prior == key {
				return Value{}, p.fail("duplicate key %.80q", key)
			}
			return Value{}, p.fail("keys %.80q and %.80q differ only in case", prior, key)
		}
		c.keys = append(c.keys, key)
		p.space()
		if p.at >= len(p.in) || p.in[p.at] != ':' {
			return Value{}, p.fail("colon expected")
		}
		p.at++
		p.space()
		v, f := p.value(depth + 1)
		if f != nil {
			return Value{}, f.in(KeyStep(key))
		}
		c.items = append(c.items, v)
		p.space()
		switch {
		case p.at < len(p.in) && p.in[p.at] == ',':
			p.at++
		case p.at < len(p.in) && p.in[p.at] == '}':
			p.at++
			return Value{kind: Object, sub: c}, nil
		default:
			return Value{}, p.fail("comma or } expected")
		}
	}
}

// keySet finds keys that are the same but for case. Few keys are compared with
// each other; a map is made only for objects larger than any message has.
type keySet struct {
	exact  bool // only keys that are the same count
	folded map[string]string
}

func (s *keySet) add(keys []string, key string) (prior string, dup bool) {
	const few = 16
	if len(keys) < few {
		for _, k := range keys {
			if k == key || !s.exact && strings.EqualFold(k, key) {
				return k, true
			}
		}
		return "", false
	}
	if s.folded == nil {
		s.folded = make(map[string]string, 2*few)
		for _, k := range keys {
			s.folded[s.fold(k)] = k
		}
	}
	f := s.fold(key)
	if prior, dup = s.folded[f]; !dup {
		s.folded[f] = key
	}
	return prior, dup
}

// fold maps all strings that strings.EqualFold calls equal to one of them.
func (s *keySet) fold(key string) string {
	if s.exact {
		return key
	}
	return strings.Map(func(r rune) rune {
		low := r
		for n := unicode.SimpleFold(r); n != r; n = unicode.SimpleFold(n) {
			low = min(low, n)
		}
		return low
	}, key)
}

func (p *parser) number() (Value, *failure) {
	start, in := p.at, p.in
	digits := func() bool {
		from := p.at
		for p.at < len(in) && in[p.at] >= '0' && in[p.at] <= '9' {
			p.at++
		}
		return p.at > from
	}
	if in[p.at] == '-' {
		p.at++
	}
	if p.at < len(in) && in[p.at] == '0' {
		p.at++
		if p.at < len(in) && in[p.at] >= '0' && in[p.at] <= '9' {
			return Value{}, p.fail("number with a leading zero")
		}
	} else if !digits() {
		return Value{}, p.fail("digit expected")
	}
	fraction := false
	if p.at < len(in) && in[p.at] == '.' {
		p.at++
		if fraction = true; !digits() {
			return Value{}, p.fail("digit expected")
		}
	}
	if p.at < len(in) && in[p.at]|0x20 == 'e' {
		p.at++
		if p.at < len(in) && (in[p.at] == '+' || in[p.at] == '-') {
			p.at++
		}
		if fraction = true; !digits() {
			return Value{}, p.fail("digit expected")
		}
	}
	lit := in[start:p.at]
	if fraction {
		if _, err := strconv.ParseFloat(lit, 64); err != nil {
			p.at = start
			return Value{}, p.fail("number outside the range of a double")
		}
	}
	return Value{kind: Number, s: lit}, nil
}

// str reads a string; one without escapes is a part of the input.
func (p *parser) str() (string, *failure) {
	p.at++
	start := p.at
	for p.at < len(p.in) {
		switch c := p.in[p.at]; {
		case c == '"':
			s := p.in[start:p.at]
			p.at++
			return s, nil
		case c == '\\':
			return p.escaped(start)
		case c < 0x20:
			return "", p.fail("control character in a string")
		}
		p.at++
	}
	return "", p.fail("string without end")
}

func (p *parser) escaped(start int) (string, *failure) {
	// One pass to find the end bounds the buffer: a decoded string is never
	// longer than its spelling.
	end := p.at
	for end < len(p.in) && p.in[end] != '"' {
		if p.in[end] == '\\' {
			end++
		}
		end++
	}
	if end >= len(p.in) {
		p.at = len(p.in)
		return "", p.fail("string without end")
	}
	out := make([]byte, 0, end-start)
	out = append(out, p.in[start:p.at]...)
	for p.at < end {
		c := p.in[p.at]
		if c < 0x20 {
			return "", p.fail("control character in a string")
		}
		if c != '\\' {
			run := p.at
			for p.at < end && p.in[p.at] != '\\' && p.in[p.at] >= 0x20 {
				p.at++
			}
			out = append(out, p.in[run:p.at]...)
			continue
		}
		switch e := p.in[p.at+1]; e {
		case '"', '\\', '/':
			out = append(out, e)
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r, n, f := p.unicodeEscape(end)
			if f != nil {
				return "", f
			}
			out = utf8.AppendRune(out, r)
			p.at += n
			continue
		default:
			return "", p.fail("unknown escape")
		}
		p.at += 2
	}
	p.at = end + 1
	return string(out), nil
}

// unicodeEscape reads \uXXXX or a pair of them and says how long it was.
func (p *parser) unicodeEscape(end int) (rune, int, *failure) {
	hi, ok := hex4(p.in[p.at+2 : end])
	if !ok {
		return 0, 0, p.fail("\\u needs four hexadecimal digits")
	}
	if !utf16.IsSurrogate(hi) {
		return hi, 6, nil
	}
	if rest := p.in[p.at+6 : end]; len(rest) >= 6 && rest[:2] == `\u` {
		if lo, ok := hex4(rest[2:]); ok {
			if r := utf16.DecodeRune(hi, lo); r != unicode.ReplacementChar {
				return r, 12, nil
			}
		}
	}
	return 0, 0, p.fail("lone surrogate")
}

func hex4(s string) (rune, bool) {
	if len(s) < 4 {
		return 0, false
	}
	var r rune
	for i := range 4 {
		c := s[i]
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}
