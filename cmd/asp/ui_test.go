package main

import (
	"strings"
	"testing"
)

func TestWrap(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"short", "short"},
		{strings.Repeat("word ", 12), strings.TrimSpace(strings.Repeat("word ", 8)) + "\n  " + strings.TrimSpace(strings.Repeat("word ", 4))},
		{`line 3 should be "a  \"b   c" and is "d"`, `line 3 should be "a  \"b   c" and is "d"`},
	} {
		if got := wrap(c.in, "  ", 42); got != c.want {
			t.Errorf("wrap(%q) = %q, want %q", c.in, got, c.want)
		}
	}
}

func TestCleanMakesOneHarmlessLine(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"plain, é 🟢\t\\", "plain, é 🟢\t\\"},
		{"a\x1b[31mb", `a\u001b[31mb`},
		{"a\nb\r\nc", `a\nb\r\nc`},
		{"a\u0085b\u2028c\u2029d\u009be\x7f", `a\u0085b\u2028c\u2029d\u009be\u007f`},
		{"a\u061cb\u200ec\u200fd\u202ae\u202ef\u2066g\u2069", `a\u061cb\u200ec\u200fd\u202ae\u202ef\u2066g\u2069`},
	} {
		if got := clean(c.in); got != c.want {
			t.Errorf("clean(%q) = %q, want %q", c.in, got, c.want)
		}
	}
}

func TestCleanLines(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"one", "one"}, {"one\n", "one"}, {"", ""},
		{"one\r\ntwo\x1b\n\nthree\rfour", "one\n| two\\u001b\n| \n| three\\rfour"},
	} {
		if got := cleanLines(c.in, "| "); got != c.want {
			t.Errorf("cleanLines(%q) = %q, want %q", c.in, got, c.want)
		}
	}
}
