package patch_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/aspengine/asp/editplan/patch"
)

const hunk = "@@ -1 +1 @@\n-a\n+b\n"

func TestParseNames(t *testing.T) {
	for _, c := range []struct {
		name, patch string
		strip       int
		want        string // of every file: kind old new
	}{
		{"git", "diff --git a/x/y b/x/y\n--- a/x/y\n+++ b/x/y\n" + hunk, 0, `modify "x/y" "x/y"`},
		{"git, other prefixes", "diff --git i/x w/x\n--- i/x\n+++ w/x\n" + hunk, 0, `modify "x" "x"`},
		{"git without prefix", "diff --git x/y x/y\n--- x/y\n+++ x/y\n" + hunk, patch.StripNone, `modify "x/y" "x/y"`},
		{"git, two off", "diff --git a/x/y b/x/y\n--- a/x/y\n+++ b/x/y\n" + hunk, 2, `modify "y" "y"`},
		{"spaces and no names elsewhere", "diff --git a/x y b/x y\nold mode 100644\nnew mode 100755\n", 0, `modify "x y" "x y"`},
		{"deceiving space", "diff --git a/x b/x b/x b/x\nold mode 100644\nnew mode 100755\n", 0, `modify "x b/x" "x b/x"`},
		{"quoted", `diff --git "a/\303\274\t\"\\" "b/\303\274\t\"\\"` + "\nold mode 100644\nnew mode 100755\n", 0, `modify "ü\t\"\\" "ü\t\"\\"`},
		{"quoted on one side", "diff --git a/x \"b/x\"\nold mode 100644\nnew mode 100755\n", 0, `modify "x" "x"`},
		{"CRLF header", "diff --git a/x y b/x y\r\nold mode 100644\r\nnew mode 100755\r\n", 0, `modify "x y" "x y"`},
		{"CRLF names", "diff --git a/x b/x\r\n--- a/x\r\n+++ b/x\r\n@@ -1 +1 @@\r\n-a\r\n+b\r\n", 0, `modify "x" "x"`},
		{"rename", "diff --git a/x b/y\nsimilarity index 100%\nrename from x\nrename to y\n", 0, `rename "x" "y"`},
		{"rename, two off", "diff --git a/d/x b/d/y\nsimilarity index 100%\nrename from d/x\nrename to d/y\n", 2, `rename "x" "y"`},
		{"two names, no word", "diff --git a/x b/y\n--- a/x\n+++ b/y\n" + hunk, 0, `rename "x" "y"`},
		{"copy", "diff --git a/x b/y\nsimilarity index 100%\ncopy from x\ncopy to y\n", 0, `copy "x" "y"`},
		{"new and empty", "diff --git a/x b/x\nnew file mode 100644\nindex 0000000..e69de29\n", 0, `create "" "x"`},
		{"deleted and empty", "diff --git a/x b/x\ndeleted file mode 100644\nindex e69de29..0000000\n", 0, `delete "x" ""`},
		{"plain", "--- a/x/y\n+++ b/x/y\n" + hunk, 0, `modify "x/y" "x/y"`},
		{"plain without prefix", "--- y\n+++ y\n" + hunk, 0, `modify "y" "y"`},
		{"plain with a date", "--- a/x 1\t2010-07-05 19:41:17.000000000 -0500\n+++ b/x 1\t2010-07-05 19:41:17.5 -0500\n" + hunk, 0, `modify "x 1" "x 1"`},
		{"plain with a date after spaces", "--- a/x 1 2010-07-05 19:41:17 -0500\n+++ b/x 1  2010-07-05\n" + hunk, 0, `modify "x 1" "x 1"`},
		{"plain new", "--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+b\n", 0, `create "" "x"`},
		{"plain new by the epoch", "--- a/x\t1970-01-01 01:00:00.000000000 +0100\n+++ b/x\t2010-07-05 19:41:17 +0100\n@@ -0,0 +1 @@\n+b\n", 0, `create "" "x"`},
		{"plain new by the epoch, west", "--- a/x\t1969-12-31 19:00:00 -0500\n+++ b/x\t2010-07-05 19:41:17 -0500\n@@ -0,0 +1 @@\n+b\n", 0, `create "" "x"`},
		{"plain deleted", "--- a/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-b\n", 0, `delete "x" ""`},
		{"plain with a backup name", "--- a/x.orig\n+++ b/x\n" + hunk, 0, `modify "x" "x"`},
		{"plain, longer second name", "--- a/x\n+++ b/x.new\n" + hunk, 0, `modify "x" "x"`},
		{"doubled slashes", "--- a//x//y\n+++ b//x//y\n" + hunk, 0, `modify "/x/y" "/x/y"`},
		{"mail around", "From 1 Mon Sep 17\nSubject: x\n\nbody --- here\n---\n x | 2 +-\n\ndiff --git a/x b/x\n--- a/x\n+++ b/x\n" + hunk + "-- \n2.39.5\n\n", 0, `modify "x" "x"`},
		{"several, one twice", "--- a/x\n+++ b/x\n" + hunk + "junk\n--- a/y\n+++ b/y\n" + hunk + "--- a/x\n+++ b/x\n" + hunk, 0, `modify "x" "x"; modify "y" "y"; modify "x" "x"`},
	} {
		files, err := patch.Parse([]byte(c.patch), patch.ParseOptions{Strip: c.strip})
		var got []string
		for _, f := range files {
			got = append(got, fmt.Sprintf("%v %q %q", f.Kind, f.Old, f.New))
		}
		if err != nil || strings.Join(got, "; ") != c.want {
			t.Errorf("%s: got %s %v, want %s", c.name, strings.Join(got, "; "), err, c.want)
		}
	}
}

func TestParseErrors(t *testing.T) {
	const head = "--- a/x\n+++ b/x\n"
	for _, c := range []struct {
		name, patch string
		line        int
		reason      string
	}{
		{"empty", "", 1, "no patch"},
		{"prose", "hello\nworld\n", 2, "no patch"},
		{"no header", "x\n" + hunk, 2, "without a file header"},
		{"cut in a hunk", head + "@@ -1,2 +1,2 @@\n-a\n+b\n", 6, "ends early"},
		{"no newline at the end of the patch", head + "@@ -1,2 +1,2 @@\n-a\n+b\n c", 6, "ends early"},
		{"negative", head + "@@ --1 +1 @@\n-a\n+b\n", 3, ""},
		{"more lines than said", head + "@@ -1,0 +1,2 @@\n a\n+b\n", 4, "more lines"},
		{"count overflows", head + "@@ -1,99999999999999999999 +1 @@\n-a\n+b\n", 3, "corrupt hunk header"},
		{"count is huge", head + "@@ -1,1099511627776 +1 @@\n-a\n+b\n", 6, "ends early"},
		{"no change", head + "@@ -1 +1 @@\n a\n", 5, "changes nothing"},
		{"wrong mark", head + "@@ -1 +1 @@\n-a\n*b\n", 5, "corrupt patch"},
		{"short no-newline line", head + "@@ -1 +1 @@\n-a\n\\ No\n+b\n", 5, "corrupt patch"},
		{"new file with old lines", "--- /dev/null\n+++ b/x\n" + hunk, 6, "depends on old"},
		{"deleted file with lines left", "--- a/x\n+++ /dev/null\n" + hunk, 6, "still has"},
		{"second file", head + hunk + "diff --git a/x b/x\nindex 1..2 100644\n", 8, "changes nothing"},
		{"header alone", "diff --git a/x b/x\nindecision\n", 1, "without a change"},
		{"names differ", "diff --git a/x b/y\nold mode 100644\nnew mode 100755\n", 1, "file names"},
		{"mode", "diff --git a/x b/x\nold mode 10z\nnew mode 100755\n", 2, "invalid mode"},
		{"two kinds", "diff --git a/x b/x\nnew file mode 100644\ndeleted file mode 100644\n", 3, "inconsistent"},
		{"nothing left of the name", "--- x/y\n+++ x/y\n" + hunk, 1, "no file name"},
		{"base 85", "diff --git a/x b/x\nnew file mode 100644\nindex 0..1\nGIT binary patch\nliteral 1\nA\"\"\"\"\"\n\n", 6, "base 85"},
		{"length byte", "diff --git a/x b/x\nnew file mode 100644\nindex 0..1\nGIT binary patch\nliteral 1\nz00000\n\n", 6, "length byte"},
		{"binary cut", "diff --git a/x b/x\nnew file mode 100644\nindex 0..1\nGIT binary patch\nliteral 1\nA00000\n", 7, "ends early"},
		{"binary size", "diff --git a/x b/x\nnew file mode 100644\nindex 0..1\nGIT binary patch\nliteral 99999999999\n\n", 5, "binary size"},
	} {
		o := patch.ParseOptions{}
		if strings.HasPrefix(c.reason, "no file name") {
			o.Strip = 3
		}
		files, err := patch.Parse([]byte(c.patch), o)
		var pe *patch.ParseError
		if c.name == "negative" {
			// Not a hunk header at all, so not a patch.
			c.line, c.reason = 0, ""
			if err == nil {
				t.Errorf("negative: taken: %v", files)
			}
			continue
		}
		if !errors.As(err, &pe) || pe.Line != c.line || !strings.Contains(pe.Reason, c.reason) {
			t.Errorf("%s: got %v, want line %d: %s", c.name, err, c.line, c.reason)
		}
	}
}

func TestParseLimits(t *testing.T) {
	two := []byte("--- a/x\n+++ b/x\n" + hunk + hunk + "--- a/y\n+++ b/y\n" + hunk)
	for _, c := range []struct {
		l  patch.Limits
		ok bool
	}{
		{patch.Limits{}, true},
		{patch.Limits{Bytes: len(two)}, true},
		{patch.Limits{Bytes: len(two) - 1}, false},
		{patch.Limits{Files: 2}, true},
		{patch.Limits{Files: 1}, false},
		{patch.Limits{Hunks: 3}, true},
		{patch.Limits{Hunks: 2}, false},
	} {
		if _, err := patch.Parse(two, patch.ParseOptions{Limits: c.l}); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c.l, err)
		}
	}
}

func TestQuote(t *testing.T) {
	for _, c := range [][2]string{
		{"plain name", "plain name"}, {"ü", "ü"}, {"a\tb", `"a\tb"`}, {"a\"b", `"a\"b"`}, {`a\b`, `"a\\b"`},
		{"\xe9", `"\351"`}, {"\x01\x7f", `"\001\177"`}, {"\a\b\v\f\r\n", `"\a\b\v\f\r\n"`},
	} {
		if got := patch.Quote(c[0]); got != c[1] {
			t.Errorf("quote %q: %s, want %s", c[0], got, c[1])
		}
		if c[1][0] != '"' {
			continue
		}
		if text, rest, ok := patch.Unquote(c[1] + "tail"); !ok || text != c[0] || rest != "tail" {
			t.Errorf("unquote %s: %q %q %v", c[1], text, rest, ok)
		}
	}
	for _, bad := range []string{``, `x`, `"`, `"a`, `"\"`, `"\x"`, `"\4"`, `"\400"`, `"\12"`, `"\18 "`, "\"a\n\""} {
		if text, _, ok := patch.Unquote(bad); ok {
			t.Errorf("unquote %s: taken as %q", bad, text)
		}
	}
}
