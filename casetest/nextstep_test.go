package casetest

import (
	"os"
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

	w.write("a", "C\n", 0o644)
	says(w.run("apply", "--plan", p.file()), 1, "make the plan again from the present content, or allow a clean three-way merge (--merge", "")
	says(w.run("apply", "--plan", p.file(), "--merge"), 1, "merge-conflict", "--merge")
	w.gitRun("checkout", "-q", ".")

	w.link("a", "l")
	w.gitRun("add", "-N", "l")
	made := w.beside("made.diff", w.gitRun("diff"), 0o644)
	w.commit()
	must(t, os.Remove(w.path("l")))
	w.link("b.bin", "l")
	elsewhere := w.beside("elsewhere.diff", w.gitRun("diff"), 0o644)
	must(t, os.Remove(w.path("l")))
	for _, c := range []struct{ patch, why string }{{made, "makes a symbolic link"}, {elsewhere, "changes what a symbolic link names"}} {
		r := w.run("apply", "--patch", c.patch, "--json").refused("unsupported-operation", "l")
		says(r, 1, c.why+", and a plan can only delete or rename one; leave it out of the patch (git diff -- . ':!PATH') and do it with ln -s", "")
		if c.patch == made {
			w.link("a", "l")
		}
	}

	w.write("b.bin", "\x00\x02", 0o644)
	short, full := w.beside("short.diff", w.gitRun("diff"), 0o644), w.beside("full.diff", w.gitRun("diff", "--full-index"), 0o644)
	w.gitRun("checkout", "-q", ".")
	for _, f := range []string{short, full} {
		says(w.run("apply", "--patch", f), 1, "does not hold the data of this binary change; `git diff --binary` writes it", "object ids")
		w.run("apply", "--patch", f, "--json").refused("bad-message", "b.bin")
	}

	says(w.run("apply", "--plan", p.file()), 0, "applied", "")
	w.write("a", "edited\n", 0o644)
	says(w.run("apply", "--plan", p.file()), 0, "make the plan again from the present files, under a new id", "")
	if r := w.run("repo", "enable", "x").exits(2); !strings.Contains(r.errs, "--mode is missing") {
		t.Errorf("%s", r)
	}
	says(w.run("check", "--changed"), 0, "change 1 path against", "")
}
