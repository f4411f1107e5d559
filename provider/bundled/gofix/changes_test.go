package gofix

import (
	"strings"
	"testing"

	"github.com/aspengine/asp/provider"
	"pgregory.net/rapid"
)

// The runs of lines carry one content to the other, whatever the two are.
func TestChangesLeadToTheNewContent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) string {
			return strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a\n", "b\n", "c\r\n", "c\n", "ü\n", "ä\n", "a😀b\n", "a😁b\n", "\n", "x"}), 0, 8).Draw(t, name), "")
		}
		old, new := draw("old"), draw("new")
		out, at := "", 0
		for _, c := range changes([]byte(old), []byte(new)) {
			if c.start < at || c.end < c.start {
				t.Fatalf("runs out of order: %+v", c)
			}
			out += old[at:c.start] + c.with
			at = c.end
			x := provider.NewText([]byte(old))
			if _, err := x.Range(c.start, c.end); err != nil {
				t.Fatalf("run %+v of %q: %v", c, old, err)
			}
		}
		if out += old[at:]; out != new {
			t.Fatalf("%q to %q gives %q", old, new, out)
		}
	})
}

func TestRootOf(t *testing.T) {
	roots := map[string]bool{".": true, "sub/mod": true}
	for file, want := range map[string]string{"a.go": ".", "sub/a.go": ".", "sub/mod/x/a.go": "sub/mod", "sub/model/a.go": "."} {
		if got := rootOf(roots, file); got != want {
			t.Errorf("root of %s is %q, want %q", file, got, want)
		}
	}
	if got := rootOf(map[string]bool{"b": true}, "a/x.go"); got != "" {
		t.Errorf("got %q", got)
	}
}

func FuzzLocation(f *testing.F) {
	m := &module{dir: "/m", files: map[string]*provider.File{"a.go": {Path: "a.go", Content: []byte("package a\r\n// ü😀\n")}}}
	f.Add("/m/a.go:1:9-10")
	f.Add("/m/a.go:2:1-2:99999999999999999999")
	f.Fuzz(func(t *testing.T, line string) {
		if loc, ok := m.location(line); ok && (loc.Path != "a.go" || loc.Range.End.Line < loc.Range.Start.Line) {
			t.Fatalf("%+v", loc)
		}
	})
}
