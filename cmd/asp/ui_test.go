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

func TestCleanMakesControlCharactersHarmless(t *testing.T) {
	if got := clean("a\x1b[31mb\u202ec\u009bd\te\n"); strings.ContainsAny(got, "\x1b\u202e\u009b") || !strings.Contains(got, "\te\n") {
		t.Errorf("%q", got)
	}
}
