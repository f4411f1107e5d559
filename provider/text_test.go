package provider_test

import (
	"path"
	"regexp"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/aspengine/asp/provider"
	"pgregory.net/rapid"
)

var lineEnd = regexp.MustCompile(`\r\n|\r|\n`)

// TestPositions holds positions against a second reading: lines by a regular
// expression, units by UTF-16 arrays.
func TestPositions(t *testing.T) {
	alphabet := []string{"a", "ü", "\u2028", "\u0085", "\v", "😀", "\r", "\n", "\r\n", "\ufeff"}
	rapid.Check(t, func(t *rapid.T) {
		s := strings.Join(rapid.SliceOfN(rapid.SampledFrom(alphabet), 0, 25).Draw(t, "text"), "")
		x := provider.NewText([]byte(s))
		ends := lineEnd.FindAllStringIndex(s, -1)
		if x.Lines() != len(ends)+1 {
			t.Fatalf("%d lines, want %d", x.Lines(), len(ends)+1)
		}
		for at := range len(s) + 1 {
			line, start := 0, 0
			for _, e := range ends {
				if at >= e[1] {
					line, start = line+1, e[1]
				}
			}
			boundary := at == len(s) || s[at]&0xC0 != 0x80
			inCRLF := at > 0 && at < len(s) && s[at-1] == '\r' && s[at] == '\n'
			r, err := x.Range(at, at)
			if (err == nil) != (boundary && !inCRLF) {
				t.Fatalf("offset %d of %q: %v", at, s, err)
			}
			if err != nil {
				continue
			}
			want := provider.Position{Line: line, Char: len(utf16.Encode([]rune(s[start:at])))}
			if r.Start != want || r.End != want || x.Position(at) != want {
				t.Fatalf("offset %d of %q is %v, want %v", at, s, r.Start, want)
			}
			if back, ok := x.Offset(want); !ok || back != at {
				t.Fatalf("%v of %q is offset %d %v, want %d", want, s, back, ok, at)
			}
		}
		// What is not there is never snapped to what is.
		last := x.Line(x.Lines() - 1)
		for _, p := range []provider.Position{{Line: x.Lines()}, {Line: x.Lines() - 1, Char: len(utf16.Encode([]rune(string(last)))) + 1}, {Line: -1}, {Char: -1}} {
			if at, ok := x.Offset(p); ok {
				t.Fatalf("%v of %q is offset %d", p, s, at)
			}
		}
	})
	x := provider.NewText([]byte("😀"))
	if at, ok := x.Offset(provider.Position{Char: 1}); ok {
		t.Errorf("inside a pair: %d", at)
	}
	if _, err := provider.NewText([]byte("a\xff")).Range(0, 1); err == nil {
		t.Error("an edit in content that is not UTF-8")
	}
}

func FuzzText(f *testing.F) {
	f.Add([]byte("a\r\n\xff\xf0\x9f"), 3)
	f.Fuzz(func(t *testing.T, b []byte, at int) {
		x := provider.NewText(b)
		p := x.Position(at)
		if back, ok := x.Offset(p); !ok || back > max(at, 0) {
			t.Fatalf("offset %d of %q is %v, which is %d %v", at, b, p, back, ok)
		}
	})
}

func TestGlobs(t *testing.T) {
	for _, c := range []struct {
		glob, path string
		want       bool
	}{
		{"**/*", "a", true}, {"**/*", "a/b/c", true}, {"**", "a/b", true}, {"*", "a/b", false}, {"src/**", "src/a/b", true}, {"src/**", "srcs/a", false},
		{"**/*.go", "a.go", true}, {"**/*.go", "x/y/a.go", true}, {"**/*.go", "a.gox", false}, {"a/**/b", "a/b", true}, {"a/**/b", "a/x/y/b", true},
		{"a/**/b/**/c", "a/b/b/x/c", true}, {"**/.env*", "x/.env.local", true}, {"[ab]/?", "a/x", true}, {"", "a", false}, {"{a,b}", "a", false}, {"[", "a", false},
		{"**/a/**/a/**/a", strings.Repeat("a/", 200) + "b", false},
	} {
		if got := provider.MatchGlob(c.glob, c.path); got != c.want {
			t.Errorf("MatchGlob(%q, %.30q) = %v", c.glob, c.path, got)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		part := rapid.SampledFrom([]string{"a", "b", "*", "**", "?"})
		glob := strings.Join(rapid.SliceOfN(part, 1, 5).Draw(t, "glob"), "/")
		name := strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b"}), 1, 6).Draw(t, "name"), "/")
		if got, want := provider.MatchGlob(glob, name), slow(strings.Split(glob, "/"), strings.Split(name, "/")); got != want {
			t.Fatalf("%q over %q: %v, want %v", glob, name, got, want)
		}
	})
	g := provider.Grant{Read: []string{"src/**", "!**/.env*"}}
	if !g.Allows("src/a") || g.Allows("src/.env") || g.Allows("lib/a") || (provider.Grant{}).Allows("a") {
		t.Error("a grant is not what its globs say")
	}
	if g := (provider.Grant{Read: []string{"{src,lib}/**"}}); !g.Allows("lib/a") {
		t.Error("a glob in another spelling is for the host to judge")
	}
}

// slow is the definition.
func slow(glob, name []string) bool {
	switch {
	case len(glob) == 0:
		return len(name) == 0
	case glob[0] == "**":
		for i := range len(name) + 1 {
			if slow(glob[1:], name[i:]) {
				return true
			}
		}
		return false
	}
	if len(name) == 0 {
		return false
	}
	ok, _ := path.Match(glob[0], name[0])
	return ok && slow(glob[1:], name[1:])
}
