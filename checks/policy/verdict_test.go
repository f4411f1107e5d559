package policy

import "testing"

func TestTelling(t *testing.T) {
	for out, want := range map[string]string{
		"# example.org/a\n./a.go:3:2: undefined: x\n":                                "./a.go:3:2: undefined: x",
		"--- FAIL: TestX (0.00s)\n    x_test.go:5: bad\nFAIL\nFAIL\ta\t0.1s\nFAIL\n": "FAIL\ta\t0.1s",
		"cc -c x.c\nmake: *** [Makefile:3: x] Error 1\n\n":                           "make: *** [Makefile:3: x] Error 1",
		"exit status 2, no output":                                                   "exit status 2, no output",
		"\nFAIL\n\n":                                                                 "FAIL",
		"# a heading\n":                                                              "# a heading",
	} {
		if got := telling(out); got != want {
			t.Errorf("of %q: %q, want %q", out, got, want)
		}
	}
}
