package casetest

import (
	"os"
	"path/filepath"
	"testing"
)

func TestPA01(t *testing.T) {
	w := newWorld(t, map[string]string{"a/x": "x\n", "r": "r\n"})
	secret := filepath.Join(w.ws, "repo-private", "secret.txt")
	w.write(secret, "s\n", 0o644)
	for _, path := range []string{"../repo-private/secret.txt", "a/../../repo-private/secret.txt", secret, "", ".", "..", "a\x00b"} {
		for name, build := range map[string]func(p *plan) *plan{
			"create":             func(p *plan) *plan { return p.create(path, "n\n") },
			"modify":             func(p *plan) *plan { return p.modify(path, "s\n", "n\n") },
			"modify wrong basis": func(p *plan) *plan { return p.modify(path, "other\n", "n\n") },
			"delete":             func(p *plan) *plan { return p.remove(path, "s\n") },
			"rename from":        func(p *plan) *plan { return p.rename(path, "new", "s\n") },
			"rename to":          func(p *plan) *plan { return p.rename("r", path, "r\n") },
		} {
			w := w.as(t)
			p := build(w.plan())
			m := w.mark()
			r := p.apply()
			r.refused("path-invalid")
			if t.Failed() {
				t.Fatalf("%s %q: %s", name, path, r)
			}
			m.unchanged()
		}
	}
	// The answer tells nothing about the file.
	right := w.plan().modify("../repo-private/secret.txt", "s\n", "n\n").apply().str("refusal", "detail")
	wrong := w.plan().modify("../repo-private/secret.txt", "other\n", "n\n").apply().str("refusal", "detail")
	none := w.plan().modify("../repo-private/secret.txt", "s\n", "n\n")
	must(t, os.Remove(secret))
	if gone := none.apply().str("refusal", "detail"); right != wrong || right != gone {
		t.Errorf("the answers differ: %q, %q, %q", right, wrong, gone)
	}
}

func TestPA02(t *testing.T) {
	setup := func(t *testing.T) *world {
		w := newWorld(t, map[string]string{"real.md": "hello world\n"})
		w.write(filepath.Join(w.ws, "outside.md"), "o\n", 0o644)
		w.link("real.md", "link.md")
		w.link("../outside.md", "out.md")
		w.link("nowhere", "dangling")
		w.commit()
		return w
	}
	t.Run("modify", func(t *testing.T) {
		w := setup(t)
		for path, basis := range map[string]string{"link.md": "hello world\n", "out.md": "o\n"} {
			p := w.plan().modify(path, basis, "new\n")
			m := w.mark()
			p.apply().refused("not-regular", path)
			m.unchanged()
			p = w.plan().edits(path, basis, edit(0, 0, 0, 0, "x"))
			p.apply().refused("not-regular", path)
			m.unchanged()
		}
	})
	t.Run("create", func(t *testing.T) {
		w := setup(t)
		for _, path := range []string{"out.md", "dangling", "link.md"} {
			p := w.plan().create(path, "n\n")
			m := w.mark()
			p.apply().refused("exists", path)
			m.unchanged()
		}
	})
	t.Run("delete and rename", func(t *testing.T) {
		for _, digestOf := range []struct{ name, link, out string }{
			{"digest of the target's bytes", "hello world\n", "o\n"},
			{"digest of the link", "real.md", "../outside.md"},
		} {
			w := setup(t)
			m := w.mark()
			p := w.plan().remove("out.md", digestOf.out).rename("link.md", "l2.md", digestOf.link)
			r := p.apply()
			w.is(filepath.Join(w.ws, "outside.md"), "o\n")
			w.is("real.md", "hello world\n")
			if r.at("applied") == true {
				w.gone("out.md")
				if got, err := os.Readlink(w.path("l2.md")); err != nil || got != "real.md" {
					t.Errorf("%s: l2.md -> %q, %v", digestOf.name, got, err)
				}
				continue
			}
			r.refusedAny([]string{"not-regular", "stale-basis"})
			m.unchanged()
		}
	})
	t.Run("a link above the target", func(t *testing.T) {
		w := setup(t)
		w.write(filepath.Join(w.ws, "elsewhere/f"), "f\n", 0o644)
		w.link("../elsewhere", "d")
		m := w.mark()
		w.plan().create("d/new", "n\n").apply().refused("path-escape", "d/new")
		m.unchanged()
		w.plan().modify("d/f", "f\n", "n\n").apply().refused("path-escape", "d/f")
		m.unchanged()
	})
}

// gitDisguises are spellings that some file system takes for git's directory.
var gitDisguises = []string{
	".git/hooks/post-commit", ".GIT/config", ".Git", "sub/.git/config", ".git /config", ".git./config", "git~1/config", "GIT~1/x",
	".git::$INDEX_ALLOCATION/config", ".g\u200Cit/config", ".gi\uFEFFt/x", ".git", ".git/config", "sub/.git", ".git . ./x",
}

func TestPA04(t *testing.T) {
	w := newWorld(t, map[string]string{"f": "f\n"})
	for _, path := range gitDisguises {
		w := w.as(t)
		p := w.plan().create(path, "x\n")
		m := w.mark()
		if r := p.apply().refused("path-protected", path); t.Failed() {
			t.Fatalf("%q: %s", path, r)
		}
		m.unchanged()
		w.plan().rename("f", path, "f\n").apply().refused("path-protected")
		m.unchanged()
	}
	t.Run("controls", func(t *testing.T) {
		w := w.as(t)
		for _, path := range []string{".gitignore", ".GITIGNORE", ".github/w.yml", "docs/.gitkeep", "git/x", "a.git/x"} {
			w.plan().create(path, "x\n").apply().applied()
			w.is(path, "x\n")
		}
	})
	t.Run("linked worktree", func(t *testing.T) {
		w := newWorld(t, map[string]string{"f": "f\n"})
		wt := filepath.Join(w.ws, "wt")
		w.gitRun("worktree", "add", "-q", wt)
		l := w.as(t)
		l.root = wt
		file := l.read(".git")
		for _, p := range []*plan{
			l.plan().modify(".git", file, "gitdir: /elsewhere\n"), l.plan().rename(".git", "gone", file), l.plan().remove(".git", file),
		} {
			m := l.mark()
			p.apply().refused("path-protected", ".git")
			m.unchanged()
		}
	})
}
