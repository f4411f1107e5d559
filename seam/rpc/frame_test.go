package rpc

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/aspengine/asp/internal/canon"
)

// FuzzLines holds the framer against a split of the whole input.
func FuzzLines(f *testing.F) {
	for _, s := range []string{"a\nb\n", "a\r\n\r\n \n\nb", strings.Repeat("x", 40) + "\ny\n", "\r\n", "12345678\r\n123456789\r\n", "x\x00\n\n"} {
		f.Add([]byte(s), uint8(8))
	}
	f.Fuzz(func(t *testing.T, in []byte, limit uint8) {
		type got struct {
			text string
			err  error
		}
		read := func(r io.Reader) (out []got) {
			l := newLines(r, int64(limit), 16)
			for {
				line, err := l.next()
				if errors.Is(err, io.EOF) {
					return out
				}
				if len(line) > int(limit)+2+16 {
					t.Fatalf("a line of %d bytes for a limit of %d", len(line), limit)
				}
				if errors.Is(err, errTooLong) {
					line = nil // how much of it is seen depends on the reads
				}
				out = append(out, got{string(line), err})
				if err != nil && !errors.Is(err, errTooLong) && !errors.Is(err, errUnterminated) {
					t.Fatal(err)
				}
				if errors.Is(err, errUnterminated) {
					return out
				}
			}
		}
		var want []got
		parts := strings.SplitAfter(string(in), "\n")
		for _, s := range parts {
			line, ended := strings.CutSuffix(s, "\n")
			switch {
			case !ended && len(s) > int(limit):
				want = append(want, got{"", errTooLong})
			case !ended && s != "":
				want = append(want, got{s, errUnterminated})
			case !ended:
			case len(strings.TrimSuffix(line, "\r")) > int(limit):
				want = append(want, got{"", errTooLong})
			case strings.Trim(line, " \t\r") != "":
				want = append(want, got{strings.TrimSuffix(line, "\r"), nil})
			}
		}
		for _, r := range []io.Reader{bytes.NewReader(in), iotest.OneByteReader(bytes.NewReader(in))} {
			have := read(r)
			if len(have) != len(want) {
				t.Fatalf("%d lines of %q, want %d", len(have), in, len(want))
			}
			for i := range have {
				if have[i] != want[i] {
					t.Fatalf("line %d of %q is %q %v, want %q %v", i, in, have[i].text, have[i].err, want[i].text, want[i].err)
				}
			}
		}
	})
}

// FuzzMessage holds that what is taken for a message is written again as the
// same value, and that a refusal is bounded.
func FuzzMessage(f *testing.F) {
	for _, s := range []string{`{"jsonrpc":"2.0","id":1,"method":"m","params":{}}`, `{"jsonrpc":"2.0","method":"m"}`, `{"jsonrpc":"2.0","id":"x","result":null}`,
		`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"m","data":{"failClass":"input","detail":""}}}`, `{"jsonrpc":"2.0","id":1.0,"method":"m"}`, `[]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		m, v, bad := parse(line, 1<<20)
		if bad != nil {
			if len(bad.reason) > 1500 || (bad.id.Kind() != canon.Null && !goodID(bad.id)) {
				t.Fatalf("%q: refused with %q, id %s", line, bad.reason, bad.id.Bytes())
			}
			return
		}
		if m.raw != int64(len(line)) {
			t.Fatalf("%q: %d bytes", line, m.raw)
		}
		if m.kind != response || m.err == nil { // data of an error is read with less strictness
			if again := m.value(); !canon.Equal(again, v) {
				t.Fatalf("%q: written as %s", line, again.Bytes())
			}
		}
	})
}
