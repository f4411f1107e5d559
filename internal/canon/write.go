package canon

import (
	"bytes"
	"slices"
	"strconv"
	"unicode/utf8"
)

// Append adds the canonical form of v to dst. The invalid Value is written as
// null.
func (v Value) Append(dst []byte) []byte {
	switch v.kind {
	case String:
		return AppendString(dst, v.s)
	case Number:
		return appendNumber(dst, v.s)
	case Bool:
		return append(dst, v.s...)
	case Array:
		return v.sub.appendArray(dst)
	case Object:
		return v.sub.appendObject(dst)
	}
	return append(dst, "null"...)
}

func (c *children) appendArray(dst []byte) []byte {
	if t := c.text.Load(); t != nil {
		return append(dst, *t...)
	}
	from := len(dst)
	dst = append(dst, '[')
	for i := range c.items {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = c.items[i].Append(dst)
	}
	dst = append(dst, ']')
	if len(c.items) >= long {
		t := bytes.Clone(dst[from:])
		c.text.Store(&t)
	}
	return dst
}

func (c *children) appendObject(dst []byte) []byte {
	member := func(n, i int) {
		if n > 0 {
			dst = append(dst, ',')
		}
		dst = AppendString(dst, c.keys[i])
		dst = append(dst, ':')
		dst = c.items[i].Append(dst)
	}
	dst = append(dst, '{')
	if inOrder(c.keys) { // what was canonical when it was read
		for i := range c.keys {
			member(i, i)
		}
	} else {
		var few [16]int
		order := few[:0]
		if len(c.keys) > len(few) {
			order = sortedKeys(c.keys)
		} else {
			order = sortFew(order, c.keys)
		}
		for n, i := range order {
			member(n, i)
		}
	}
	return append(dst, '}')
}

func inOrder(keys []string) bool {
	for i := 1; i < len(keys); i++ {
		if CompareUTF16(keys[i-1], keys[i]) > 0 {
			return false
		}
	}
	return true
}

// Bytes returns the canonical form of v.
func (v Value) Bytes() []byte { return v.Append(make([]byte, 0, v.room())) }

// room is the length of the canonical form where nothing needs an escape: to
// grow to a large one by doubling touches three times its memory.
func (v Value) room() int {
	switch v.kind {
	case String:
		return len(v.s) + 2
	case Number, Bool:
		return len(v.s)
	case Array, Object:
		if t := v.sub.text.Load(); t != nil {
			return len(*t)
		}
		n := 2 + len(v.sub.items) // a comma each
		for i := range v.sub.items {
			n += v.sub.items[i].room()
		}
		for _, k := range v.sub.keys {
			n += len(k) + 3
		}
		return n
	}
	return len("null")
}

// AppendIndented adds v in a form for people: keys in the order they have,
// two spaces a level, strings and numbers as in the canonical form.
func (v Value) AppendIndented(dst []byte) []byte { return v.indented(dst, 0) }

func (v Value) indented(dst []byte, level int) []byte {
	line := func(n int) {
		dst = append(dst, '\n')
		for range n {
			dst = append(dst, "  "...)
		}
	}
	if v.Len() == 0 {
		return v.Append(dst)
	}
	open, end := byte('['), byte(']')
	if v.kind == Object {
		open, end = '{', '}'
	}
	dst = append(dst, open)
	for i := range v.Len() {
		if i > 0 {
			dst = append(dst, ',')
		}
		line(level + 1)
		if v.kind == Object {
			dst = AppendString(dst, v.Key(i))
			dst = append(dst, ": "...)
		}
		dst = v.At(i).indented(dst, level+1)
	}
	line(level)
	return append(dst, end)
}

// AppendString adds s as a JSON string: quote, backslash and control characters
// are escaped, nothing else.
func AppendString(dst []byte, s string) []byte {
	const digits = "0123456789abcdef"
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf && c >= 0x20 && c != '"' && c != '\\' {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && n == 1 {
				dst = append(dst, s[start:i]...)
				dst = append(dst, "\ufffd"...)
				start = i + 1
			}
			i += n
			continue
		}
		dst = append(dst, s[start:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\b':
			dst = append(dst, `\b`...)
		case '\f':
			dst = append(dst, `\f`...)
		case '\n':
			dst = append(dst, `\n`...)
		case '\r':
			dst = append(dst, `\r`...)
		case '\t':
			dst = append(dst, `\t`...)
		default:
			dst = append(dst, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		}
		i++
		start = i
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}

func appendNumber(dst []byte, lit string) []byte {
	if plainInteger(lit) {
		if lit == "-0" {
			lit = "0"
		}
		return append(dst, lit...)
	}
	f, err := strconv.ParseFloat(lit, 64)
	if err != nil { // only a literal that Parse refuses
		return append(dst, "null"...)
	}
	return appendFloat(dst, f)
}

// appendFloat writes f as ECMAScript's Number::toString does.
func appendFloat(dst []byte, f float64) []byte {
	if f == 0 {
		return append(dst, '0') // minus zero too
	}
	if a := max(f, -f); a >= 1e-6 && a < 1e21 {
		return strconv.AppendFloat(dst, f, 'f', -1, 64)
	}
	from := len(dst)
	dst = strconv.AppendFloat(dst, f, 'e', -1, 64)
	// Go pads the exponent to two digits, ECMAScript does not.
	if n := len(dst); n-from >= 4 && dst[n-2] == '0' && (dst[n-3] == '-' || dst[n-3] == '+') {
		dst[n-2] = dst[n-1]
		dst = dst[:n-1]
	}
	return dst
}

// sortFew is sortedKeys for the objects of messages, whose keys are few and come
// by thousands: it makes no list on the heap.
func sortFew(order []int, keys []string) []int {
	for i := range keys {
		order = append(order, i)
		for j := i; j > 0 && CompareUTF16(keys[order[j-1]], keys[order[j]]) > 0; j-- {
			order[j-1], order[j] = order[j], order[j-1]
		}
	}
	return order
}

// sortedKeys returns the indices of keys in the order of their UTF-16 code units.
func sortedKeys(keys []string) []int {
	order := make([]int, len(keys))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return CompareUTF16(keys[a], keys[b]) })
	return order
}

// CompareUTF16 orders strings by UTF-16 code units. That is the order of their
// UTF-8 bytes, except that characters beyond U+FFFF (first byte F0 and up), being
// surrogate pairs, come before U+E000 to U+FFFF (first byte EE or EF).
func CompareUTF16(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		x, y := a[i], b[i]
		if x == y {
			continue
		}
		switch {
		case x >= 0xF0 && (y == 0xEE || y == 0xEF):
			return -1
		case y >= 0xF0 && (x == 0xEE || x == 0xEF):
			return 1
		case x < y:
			return -1
		}
		return 1
	}
	return len(a) - len(b)
}
