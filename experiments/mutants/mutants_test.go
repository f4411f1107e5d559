package main

import (
	"testing"

	"github.com/aspengine/asp/internal/need"
)

// TestRowsApply: a row whose place was changed has to follow.
func TestRowsApply(t *testing.T) {
	root, err := moduleRoot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all := rows()
	if err := applyAll(root, all); err != nil {
		t.Error(err)
	}
	excused := 0
	for _, r := range all {
		if r.survives != "" {
			excused++
		}
	}
	if excused*100 > (100-wantKilled)*len(all) {
		t.Errorf("%d of %d rows are excused", excused, len(all))
	}
}

// TestOutcomes: the tool tells apart what was noticed, what was not, and what is
// no program.
func TestOutcomes(t *testing.T) {
	if need.Race {
		t.Skip("what it starts has no race detector")
	}
	root, err := moduleRoot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w := &workshop{root: root, dir: t.TempDir(), sound: map[string]bool{}}
	r := row{id: "a limit", file: "internal/canon/split.go", pkg: "internal/canon", run: "TestParse"}
	const place = "// RawMember is one member of an object"
	for _, c := range []struct {
		text, mutant string
		want         outcome
	}{
		{place, "// Nothing is different.\n\n" + place, survived},
		{place, "var _ = missing\n\n" + place, unbuilt},
		{place, "func init() { panic(\"no\") }\n\n" + place, killed},
	} {
		r.text, r.mutant = c.text, c.mutant
		if how, out, err := w.try(t.Context(), r); err != nil || how != c.want {
			t.Errorf("%q is %s (%v), want %s:\n%s", c.mutant, how, err, c.want, out)
		}
	}
	r.text = "no such text"
	if _, err := r.source(root); err == nil {
		t.Error("a row that does not apply is taken")
	}
}
