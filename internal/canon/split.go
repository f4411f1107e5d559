package canon

import "bytes"

// RawMember is one member of an object as it lies in the input.
type RawMember struct {
	Key  string
	Text []byte
}

// Split cuts the text of an object in canonical form into its members without
// reading them: it looks at brackets and quotes only, which is many times
// faster than Parse and proves nothing about the members. It is for text whose
// digest is checked by other means. ok is false for anything that is not cut
// cleanly: white space between tokens, a key beyond plain ASCII, text left over.
func Split(b []byte) (members []RawMember, ok bool) {
	if len(b) < 2 || b[0] != '{' || b[len(b)-1] != '}' {
		return nil, false
	}
	if len(b) == 2 {
		return nil, true
	}
	for at := 1; ; {
		key, end := rawString(b, at)
		if end < 0 || end >= len(b) || b[end] != ':' {
			return nil, false
		}
		for _, c := range key {
			if c == '\\' || c < 0x20 || c > 0x7e {
				return nil, false
			}
		}
		from := end + 1
		at = rawValue(b, from)
		if at < 0 || at == from {
			return nil, false
		}
		members = append(members, RawMember{string(key), b[from:at]})
		switch {
		case b[at] == ',':
			at++
		case at == len(b)-1:
			return members, true
		default:
			return nil, false
		}
	}
}

// rawString returns what stands between the quote at b[at] and its partner, and
// the index behind that; -1 without one.
func rawString(b []byte, at int) (text []byte, end int) {
	if at >= len(b) || b[at] != '"' {
		return nil, -1
	}
	quote := 0 // the next one at or after i
	for i := at + 1; i < len(b); {
		if quote < i {
			n := bytes.IndexByte(b[i:], '"')
			if n < 0 {
				return nil, -1
			}
			quote = i + n
		}
		// An escape takes the character behind it along, which may be this very
		// quote.
		n := bytes.IndexByte(b[i:quote], '\\')
		if n < 0 {
			return b[at+1 : quote], quote + 1
		}
		i += n + 2
	}
	return nil, -1
}

// rawValue returns the index of the comma or bracket that ends the value at
// b[at], -1 without one.
func rawValue(b []byte, at int) int {
	depth := 0
	for at < len(b) {
		switch b[at] {
		case '"':
			if _, at = rawString(b, at); at < 0 {
				return -1
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return at
			}
			depth--
		case ',':
			if depth == 0 {
				return at
			}
		}
		at++
	}
	return -1
}
