package pattern

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestGlob(t *testing.T) {
	for _, c := range []struct {
		pat, text  string
		path, fold bool
		want       bool
	}{
		{"foo", "foo", true, false, true},
		{"foo", "fooo", true, false, false},
		{"*", "a/b", true, false, false},
		{"*", "a/b", false, false, true},
		{"**", "a/b", true, false, true},
		{"a/**/b", "a/b", true, false, true},
		{"a/**/b", "a/x/y/b", true, false, true},
		{"a/**b", "a/x/b", true, false, false},
		{"a**/b", "a/x/b", true, false, false},
		{"**/a/*b*/c", "x/a/b/y/a/xbx/c", true, false, true},
		{"**/*a*a*b", "aaa/aaab", true, false, true},
		{"*/b", "a/b", true, false, true},
		{"*/b", "a/c/b", true, false, false},
		{`**\/b`, "a/c/b", true, false, true},
		{`**\/b`, "b", true, false, false},
		{"?", "/", true, false, false},
		{"?", "/", false, false, true},
		{"[/]", "/", true, false, false},
		{"[!a]", "/", true, false, false},
		{"[!a]", "b", true, false, true},
		{"[^a]", "a", true, false, false},
		{"[]]", "]", true, false, true},
		{"[]-a]", "^", true, false, true},
		{"[a-]", "-", true, false, true},
		{"[--0]", ".", true, false, true},
		{`[\]]`, "]", true, false, true},
		{`[a-\c]`, "b", true, false, true},
		{"[a-c-e]", "d", true, false, false},
		{"[[:alpha:]]", "x", true, false, true},
		{"[[:upper:]]", "x", true, false, false},
		{"[[:upper:]]", "x", true, true, true},
		{"[[:bogus:]]", "x", true, false, false},
		{"[[:alpha]", "[", true, false, true},
		{"[[:alpha]", ":", true, false, true},
		{"[", "[", true, false, false},
		{"[a", "a", true, false, false},
		{"[!", "a", true, false, false},
		{`a\`, `a\`, true, false, false},
		{`\*`, "*", true, false, true},
		{"ABC", "abc", true, true, true},
		{`\A`, "A", true, true, false}, // git folds the text but not an escaped literal
		{"[A]", "A", true, true, false},
		{"[A-C]", "b", true, true, true},
		{"[a-c]", "B", true, true, true},
		{"", "", true, false, true},
		{"*", "", true, false, true},
		{"a*", "a", true, false, true},
	} {
		if got := Glob(c.pat, c.text, c.path, c.fold); got != c.want {
			t.Errorf("Glob(%q, %q, path %v, fold %v) = %v", c.pat, c.text, c.path, c.fold, got)
		}
	}
}

// slowAt is the plain definition: every star tries everything.
func slowAt(pat string, pi int, text string, path bool) bool {
	if pi == len(pat) {
		return text == ""
	}
	if pat[pi] == '*' {
		return slowStar(pat, pi, text, path)
	}
	if text == "" {
		return false
	}
	next, res := one(pat, pi, text[0], path, false)
	return res == yes && slowAt(pat, next, text[1:], path)
}

func slowStar(pat string, pi int, text string, path bool) bool {
	end := pi
	for end < len(pat) && pat[end] == '*' {
		end++
	}
	deep := !path || crosses(pat, pi, end)
	if path && deep && end < len(pat) && pat[end] == '/' && slowAt(pat, end+1, text, path) {
		return true
	}
	for n := 0; n <= len(text); n++ {
		if slowAt(pat, end, text[n:], path) {
			return true
		}
		if n < len(text) && text[n] == '/' && !deep {
			return false
		}
	}
	return false
}

// The two retry points find what trying everything finds.
func TestGlobFindsWhatExhaustiveSearchFinds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pat := strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "*", "**", "/", "/**/", "?", "[ab]", `\/`, `\a`}), 0, 9).Draw(t, "pat"), "")
		path := rapid.Bool().Draw(t, "path")
		for range 20 {
			text := rapid.StringMatching(`[ab]{1,3}(/[ab]{1,3}){0,4}`).Draw(t, "text")
			if got, want := Glob(pat, text, path, false), slowAt(pat, 0, text, path); got != want {
				t.Fatalf("Glob(%q, %q, %v) = %v", pat, text, path, got)
			}
		}
	})
}

// A pattern that takes a naive matcher ages ends at once.
func TestGlobHostile(t *testing.T) {
	text := strings.Repeat(strings.Repeat("a", 200)+"/", 20) + "a"
	for _, pat := range []string{
		strings.Repeat("*a", 40) + "b", strings.Repeat("**/", 60) + "b", strings.Repeat("**/*a*", 60) + "b",
		strings.Repeat("a*", 90) + "**/" + strings.Repeat("?*", 90) + "b", strings.Repeat(`**\/a`, 90),
	} {
		if Glob(pat, text, true, false) {
			t.Errorf("Glob(%q) matched", pat)
		}
		if Glob(pat, text[:200], false, false) {
			t.Errorf("Glob(%q) matched a name", pat)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "!", "/", "//", "**/", "a/**/b/", `\!x\ `, "[[:alpha:]-z]*", "!/a\x00b", `*\`, "***", "**/**"} {
		f.Add(s, "a/b")
	}
	f.Fuzz(func(t *testing.T, line, text string) {
		p := Parse(TrimSpaces(line))
		name := text[strings.LastIndexByte(text, '/')+1:]
		if name == "" {
			return
		}
		for _, fold := range []bool{false, true} {
			if p.Base {
				if p.MatchName(name, fold) && !p.MayMatch(name) {
					t.Errorf("%q matches %q but may not", line, name)
				}
				continue
			}
			if p.MatchPath(text, fold) && !p.MayMatch(name) {
				t.Errorf("%q matches %q but may not", line, text)
			}
			if dir, _, ok := strings.Cut(text, "/"); ok && dir != "" && p.MatchPath(text, fold) && !p.Reaches(dir, fold) {
				t.Errorf("%q matches %q but does not reach %q", line, text, dir)
			}
		}
	})
}
