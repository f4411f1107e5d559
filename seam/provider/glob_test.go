package provider

import (
	"path"
	"strings"
	"testing"

	"github.com/aspengine/asp/seam/wire"
)

func TestGlobs(t *testing.T) {
	for _, c := range []struct {
		globs string // separated by blanks
		yes   string
		no    string
	}{
		{"**/*", "a a/b a/b/c .env", ""},
		{"**", "a a/b .x/y", ""},
		{".", "a a/b", ""},
		{"src/**", "src/a src/b/c", "src a/src/b srcs/a"},
		{"src/", "src/a src/b/c", "src"},
		{"./src/*", "src/a", "src/a/b"},
		{"/src/*", "src/a", "x/src/a"},
		{"**/x/**/y", "x/y a/x/y x/b/y a/x/b/c/y", "x y a/y x/yy"},
		{"*.go", "a.go", "a/b.go a.gox"},
		{"**/*.go", "a.go a/b.go a/b/c.go", "a.go/x"},
		{"a?c", "abc", "ac abbc a/c"},
		{"[a-c]x", "ax cx", "dx"},
		{"**/*.{ts,tsx}", "a.ts b/c.tsx", "a.js"},
		{"{a,b{c,d}}/x", "a/x bc/x bd/x", "b/x"},
		{`\*`, "*", "a"},
		{"** !secret/**", "a x/secret/y", "secret/a secret/b/c"},
		{"** !secret", "a", "secret secret/a x/secret x/secret/y"},
		{"** !**/.env*", "a", ".env a/.env.local a/.envs/b"},
		{"!a/b **", "a/c ab", "a/b a/b/c"},
		{"!a", "", "a b"},
		{"b/c", "b/c", "b b/c/d"},
	} {
		g, err := parseGlobs(strings.Fields(c.globs))
		if err != nil {
			t.Errorf("%q: %v", c.globs, err)
			continue
		}
		for _, p := range strings.Fields(c.yes) {
			if !g.match(p) {
				t.Errorf("%q leaves out %q", c.globs, p)
			}
		}
		for _, p := range strings.Fields(c.no) {
			if g.match(p) {
				t.Errorf("%q takes %q", c.globs, p)
			}
		}
	}
	for _, bad := range []string{"", "!", "a//b", "../a", "a/./b", "[a", "{a", strings.Repeat("x", 5000), strings.Repeat("{a,b}", 10)} {
		if _, err := parseGlobs([]string{bad}); err == nil {
			t.Errorf("%.40q is accepted", bad)
		}
	}
	if _, err := parseGlobs(make([]string, 2000)); err == nil {
		t.Error("too many are accepted")
	}
	g, _ := parseGlobs([]string{"src", "docs/*.md", "!src/private"})
	for p, want := range map[string]bool{"src": true, "src/a/b": true, "docs/x.md": true, "docs/x.md/y": true, "docs/x": false, "src/private/a": false} {
		if g.covers(p) != want {
			t.Errorf("covers(%q) = %v", p, !want)
		}
	}
}

// slow is the definition that the table of prefixes has to agree with.
func slow(x pattern, parts []string) bool {
	if len(x) == 0 {
		return len(parts) == 0
	}
	if x[0] == everythingDir {
		least := 0
		if len(x) == 1 {
			least = 1
		}
		for n := least; n <= len(parts); n++ {
			if slow(x[1:], parts[n:]) {
				return true
			}
		}
		return false
	}
	if len(parts) == 0 {
		return false
	}
	ok, _ := path.Match(x[0], parts[0])
	return ok && slow(x[1:], parts[1:])
}

func FuzzGlobs(f *testing.F) {
	f.Add("**/x/**/y", "a/x/b/y")
	f.Add("!a/{b,c}", "a/b/d")
	f.Fuzz(func(t *testing.T, glob, p string) {
		if len(glob) > 40 || len(p) > 40 {
			return
		}
		g, err := parseGlobs([]string{glob})
		if err != nil {
			return
		}
		parts := strings.Split(p, "/")
		for _, x := range append(g.in, g.out...) {
			if x.matches(parts) != slow(x, parts) {
				t.Errorf("%q on %q: %v", x, p, !slow(x, parts))
			}
		}
		for _, x := range g.out {
			if x.excludes(parts) && !x.excludes(append(parts, "below")) {
				t.Errorf("%q excludes %q and not what lies below", x, p)
			}
		}
	})
}

func TestNarrow(t *testing.T) {
	for _, c := range []struct {
		asked, declared, told string // separated by blanks; "-" is none
		yes, no               string
	}{
		{"**/*", "workspace:snapshot", "**/*", "a b/c", ""},
		{"**/* !s/**", "-", "**/* !s/**", "a", "s/a"},
		{"-", "workspace:snapshot", "**/*", "a", ""},
		{"-", "src/** !src/x", "src/** !src/x", "src/a", "a src/x"},
		{"**/*", "src/**", "src/**", "src/a", "a"},
		{"**/* !src/x", "src/**", "src/** !src/x", "src/a", "a src/x"},
		{"src/** !src/x", "src/** docs/**", "src/** !src/x", "src/a", "docs/a src/x"},
		{"src/a/**", "src/**", "src/**", "src/a/b", "src/b"},
		{"src/**", "**/* !**/.env", "**/* !**/.env", "src/a", "src/.env b"},
		{"", "**/*", "", "", "a"},
		{"**/*", "provider-artifacts", "**/*", "a", ""},
		{"**/*", "host-provided-cache /usr/lib/x", "**/*", "a", ""},
		{"**/*", "", "**/*", "a", ""},
	} {
		list := func(s string) []string {
			if s == "-" {
				return nil
			}
			return strings.Fields(s)
		}
		g, err := narrow(permissions(list(c.asked)), list(c.declared))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(g.told, " "); got != c.told {
			t.Errorf("asked %q, declared %q: told %q", c.asked, c.declared, got)
		}
		for _, p := range strings.Fields(c.yes) {
			if !g.allows(p) {
				t.Errorf("asked %q, declared %q: %q is refused", c.asked, c.declared, p)
			}
		}
		for _, p := range strings.Fields(c.no) {
			if g.allows(p) {
				t.Errorf("asked %q, declared %q: %q is given", c.asked, c.declared, p)
			}
		}
	}
	if _, err := narrow(permissions([]string{"[a"}), nil); err == nil {
		t.Error("a glob that is none is granted")
	}
}

func permissions(read []string) *wire.Permissions {
	if read == nil {
		return nil
	}
	return &wire.Permissions{Read: read}
}
