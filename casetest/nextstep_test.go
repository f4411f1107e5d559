package casetest

import (
	"strings"
	"testing"
)

// TestRefusalsNameTheNextStep: what is refused says what helps, and does not send people
// in a circle.
func TestRefusalsNameTheNextStep(t *testing.T) {
	w := newWorld(t, map[string]string{"a": "a\n", "b.bin": "\x00\x01"})
	says := func(r *result, code int, want, never string) {
		t.Helper()
		text := strings.Join(strings.Fields(string(r.exits(code).out)), " ")
		if !strings.Contains(text, want) || never != "" && strings.Contains(text, never) {
			t.Errorf("want %q and not %q: %s", want, never, r)
		}
	}
	p := w.plan().modify("a", "a\n", "A\n")
	says(w.run("apply", "--plan", p.file(), "--require-assurance", "isolated"), 1, "nothing ran in a sandbox: name a check (--check)", "asp doctor")

	w.write("a", "B\n", 0o644)
	done := w.beside("done.diff", w.gitRun("diff"), 0o644)
	says(w.run("apply", "--patch", done), 1, "it seems to be applied already at line 1; then nothing needs to be done", "make the patch anew")
	w.gitRun("checkout", "-q", ".")

	w.write("b.bin", "\x00\x02", 0o644)
	short, full := w.beside("short.diff", w.gitRun("diff"), 0o644), w.beside("full.diff", w.gitRun("diff", "--full-index"), 0o644)
	w.gitRun("checkout", "-q", ".")
	for _, f := range []string{short, full} {
		says(w.run("apply", "--patch", f), 1, "does not hold the data of this binary change; `git diff --binary` writes it", "object ids")
	}

	says(w.run("apply", "--plan", p.file()), 0, "applied", "")
	w.write("a", "edited\n", 0o644)
	says(w.run("apply", "--plan", p.file()), 0, "make the plan again from the present files, under a new id", "")
	if r := w.run("repo", "enable", "x").exits(2); !strings.Contains(r.errs, "--mode is missing") {
		t.Errorf("%s", r)
	}
	says(w.run("check", "--changed"), 0, "change 1 path against", "")
}
