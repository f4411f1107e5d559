package patch

import (
	"bytes"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"strings"
)

// alphabet85 are the digits of git's base 85, by value.
const alphabet85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"

const lineBytes = 52 // what one line of base 85 holds

// decode85 appends the n bytes that the digits say. There are five digits for
// every four bytes, the last group filled up.
func decode85(dst []byte, digits []byte, n int) ([]byte, bool) {
	for ; n > 0; digits = digits[5:] {
		var v uint64
		for _, c := range digits[:5] {
			d := strings.IndexByte(alphabet85, c)
			if d < 0 {
				return nil, false
			}
			v = v*85 + uint64(d)
		}
		if v > 0xffffffff {
			return nil, false
		}
		group := [4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)}
		dst = append(dst, group[:min(n, 4)]...)
		n -= 4
	}
	return dst, true
}

func encode85(dst []byte, src []byte) []byte {
	for len(src) > 0 {
		var group [4]byte
		src = src[copy(group[:], src):]
		v := uint32(group[0])<<24 | uint32(group[1])<<16 | uint32(group[2])<<8 | uint32(group[3])
		var digits [5]byte
		for i := 4; i >= 0; i-- {
			digits[i] = alphabet85[v%85]
			v /= 85
		}
		dst = append(dst, digits[:]...)
	}
	return dst
}

// appendLiteral writes content as one literal section of a binary patch.
func appendLiteral(dst, content []byte) []byte {
	var z bytes.Buffer
	w := zlib.NewWriter(&z)
	// A bytes.Buffer takes everything.
	_, _ = w.Write(content)
	_ = w.Close()
	dst = fmt.Appendf(dst, "literal %d\n", len(content))
	for b := z.Bytes(); len(b) > 0; {
		n := min(len(b), lineBytes)
		if n <= 26 {
			dst = append(dst, 'A'+byte(n-1))
		} else {
			dst = append(dst, 'a'+byte(n-27))
		}
		dst = append(encode85(dst, b[:n]), '\n')
		b = b[n:]
	}
	return append(dst, '\n')
}

// binarySection reads "literal N" or "delta N" and its lines, up to and with
// the blank line. found is false if the input begins with something else.
func (p *parser) binarySection() (b *Binary, found bool, err error) {
	line := p.peek()
	b = &Binary{}
	head := p.line
	digits, ok := bytes.CutPrefix(line, []byte("literal "))
	b.Method = Literal
	if !ok {
		digits, ok = bytes.CutPrefix(line, []byte("delta "))
		b.Method = Delta
	}
	if !ok {
		return nil, false, nil
	}
	size, _, ok := number(digits)
	if !ok || int64(size) > p.limits.Result {
		return nil, true, &ParseError{head, fmt.Sprintf("binary size %s is no number or over the limit of %d bytes", cut(string(digits)), p.limits.Result)}
	}
	b.Size = int64(size)
	p.skip()
	for {
		line, n := p.peek(), p.line
		corrupt := func(why string) error {
			return &ParseError{n, "corrupt binary patch: " + why}
		}
		if len(line) == 0 || line[len(line)-1] != '\n' {
			return nil, true, corrupt("ends early")
		}
		p.skip()
		line = bytes.TrimSuffix(line[:len(line)-1], []byte{'\r'})
		if len(line) == 0 {
			if p.inflated += b.Size; p.inflated > p.limits.Inflated {
				return nil, true, &ParseError{head, fmt.Sprintf("binary changes of more than %d bytes in all", p.limits.Inflated)}
			}
			// Damage anywhere makes the whole patch suspect, so it is looked
			// for here and not when the change is applied.
			if err := b.inflate(io.Discard, p.limits.Result); err != nil {
				return nil, true, &ParseError{head, "corrupt binary patch: " + err.Error()}
			}
			return b, true, nil
		}
		if len(line) < 6 || (len(line)-1)%5 != 0 {
			return nil, true, corrupt("line of a wrong length")
		}
		most := (len(line) - 1) / 5 * 4
		count := 0
		switch c := line[0]; {
		case 'A' <= c && c <= 'Z':
			count = int(c-'A') + 1
		case 'a' <= c && c <= 'z':
			count = int(c-'a') + 27
		}
		if count == 0 || count > most || count <= most-4 {
			return nil, true, corrupt("length byte does not fit the line")
		}
		if b.Data, ok = decode85(b.Data, line[1:], count); !ok {
			return nil, true, corrupt("not base 85")
		}
	}
}

var (
	errInflate = errors.New("compressed data is damaged")
	errSize    = errors.New("compressed data does not have the stated size")
	errDelta   = errors.New("delta is damaged")
	errBase    = errors.New("delta is for content of another size")
	errLimit   = errors.New("result is over the size limit")
)

// inflate writes exactly Size bytes to w. It goes by what is there: a stated
// size alone costs nothing.
func (b *Binary) inflate(w io.Writer, limit int64) error {
	if b.Size > limit {
		return errLimit
	}
	z, err := zlib.NewReader(bytes.NewReader(b.Data))
	if err != nil {
		return errInflate
	}
	switch n, err := io.Copy(w, io.LimitReader(z, b.Size+1)); {
	case err != nil:
		return errInflate
	case n != b.Size:
		return errSize
	}
	return nil
}

// apply makes the new content from the old.
func (b *Binary) apply(old []byte, limit int64) ([]byte, error) {
	var data bytes.Buffer
	if err := b.inflate(&data, limit); err != nil {
		return nil, err
	}
	if b.Method == Literal {
		return data.Bytes(), nil
	}
	return applyDelta(old, data.Bytes(), limit)
}

// applyDelta follows git's delta: two sizes, then opcodes that copy a range of
// the old content or bring bytes along. Every number is checked before use.
func applyDelta(old, delta []byte, limit int64) ([]byte, error) {
	from, delta, ok := deltaSize(delta)
	if !ok {
		return nil, errDelta
	}
	if from != uint64(len(old)) {
		return nil, errBase
	}
	to, delta, ok := deltaSize(delta)
	if !ok {
		return nil, errDelta
	}
	if to > uint64(limit) {
		return nil, errLimit
	}
	var out []byte
	for len(delta) > 0 {
		op := delta[0]
		delta = delta[1:]
		var piece []byte
		switch {
		case op&0x80 != 0:
			var at, n uint64
			for i := range 7 {
				if op>>i&1 == 0 {
					continue
				}
				if len(delta) == 0 {
					return nil, errDelta
				}
				if i < 4 {
					at |= uint64(delta[0]) << (8 * i)
				} else {
					n |= uint64(delta[0]) << (8 * (i - 4))
				}
				delta = delta[1:]
			}
			if n == 0 {
				n = 0x10000
			}
			if at+n > from {
				return nil, errDelta
			}
			piece = old[at : at+n]
		case op == 0 || int(op) > len(delta):
			return nil, errDelta
		default:
			piece, delta = delta[:op], delta[op:]
		}
		if uint64(len(out)+len(piece)) > to {
			return nil, errDelta
		}
		out = append(out, piece...)
	}
	if uint64(len(out)) != to {
		return nil, errDelta
	}
	return out, nil
}

func deltaSize(b []byte) (uint64, []byte, bool) {
	var v uint64
	for i := 0; i < len(b) && i < 9; i++ {
		v |= uint64(b[i]&0x7f) << (7 * i)
		if b[i]&0x80 == 0 {
			return v, b[i+1:], true
		}
	}
	return 0, nil, false
}
