package casetest

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestWorkspaceEditDirectories: a directory goes as a whole or stays as it is,
// whatever is in it, and what goes with it unasked is told.
func TestWorkspaceEditDirectories(t *testing.T) {
	edit := func(w *world, kind, from, to string) []byte {
		op := fmt.Sprintf(`"kind":"delete","uri":%q,"options":{"recursive":true}`, "file://"+w.path(from))
		if kind == "rename" {
			op = fmt.Sprintf(`"kind":"rename","oldUri":%q,"newUri":%q`, "file://"+w.path(from), "file://"+w.path(to))
		}
		return []byte(`{"documentChanges":[{` + op + `}]}`)
	}
	t.Run("repositories in it", func(t *testing.T) {
		w := newWorld(t, map[string]string{"d/x": "x\n", "s/x": "x\n", "u/x": "x\n"})
		inner := newWorld(t, map[string]string{"y": "y\n"})
		for _, dir := range []string{"s", "u"} {
			w.gitRun("-c", "protocol.file.allow=always", "submodule", "add", "-q", inner.root, dir+"/sub")
		}
		w.commit()
		w.gitRun("submodule", "deinit", "-q", "-f", "u/sub")
		w.mkdir("d/nest")
		w.gitIn(w.path("d/nest"), "init", "-q", "--template=")
		w.write("d/nest/y", "y\n", 0o644)
		m := w.mark()
		for _, c := range []struct{ from, in string }{{"d", "d/nest"}, {"d/nest", "d/nest"}, {"s", "s/sub"}, {"u", "u/sub"}} {
			for _, kind := range []string{"rename", "delete"} {
				w.runIn(w.root, edit(w, kind, c.from, "e"), "apply", "--workspace-edit", "-", "--json").refused("other-repository", c.in)
			}
		}
		m.unchanged()
	})
	t.Run("the repository itself in it", func(t *testing.T) {
		w := newWorld(t, map[string]string{"d/x": "x\n"})
		w.gitRun("init", "-q", "--template=", "--separate-git-dir", w.path("d/meta"))
		w.runIn(w.root, edit(w, "rename", "d", "e"), "apply", "--workspace-edit", "-", "--json").refused("path-protected", "d/meta")
		w.is("d/x", "x\n")
		w.gone("e")
	})
	t.Run("files left out by a sparse checkout", func(t *testing.T) {
		for _, index := range []string{"--no-sparse-index", "--sparse-index"} {
			w := newWorld(t, map[string]string{"d/in/x": "x\n", "d/out/y": "y\n", "far/z": "z\n", "top": "t\n"})
			w.gitRun("sparse-checkout", "set", "--cone", index, "d/in")
			m := w.mark()
			for _, c := range []struct{ from, at string }{{"d", "d"}, {"far", "far"}, {"d/out", "d/out"}} {
				for _, kind := range []string{"rename", "delete"} {
					r := w.runIn(w.root, edit(w, kind, c.from, "e"), "apply", "--workspace-edit", "-", "--json")
					r.refused("not-checked-out", c.at)
					if !strings.Contains(string(r.out), "git sparse-checkout add") {
						t.Errorf("the answer does not say what to do: %s", r)
					}
				}
			}
			// A file where the index has a directory, or the other way round, would take
			// what is left out away from the next commit.
			w.plan().create("far", "a file\n").apply().refused("not-checked-out", "far")
			w.plan().create("d/out/y/below", "b\n").apply().refused("not-checked-out", "d/out/y/below")
			m.unchanged()
			// What is checked out moves.
			w.runIn(w.root, edit(w, "rename", "d/in", "e"), "apply", "--workspace-edit", "-", "--json").applied()
			w.is("e/x", "x\n")
		}
	})
	t.Run("ignored files in it", func(t *testing.T) {
		w := newWorld(t, map[string]string{"d/x": "x\n", ".gitignore": "*.ign\n"})
		const many = 20
		for i := range many {
			w.write(fmt.Sprintf("d/%02d.ign", i), "kept by nobody\n", 0o644)
		}
		said := func(r *result, how, dir string) {
			t.Helper()
			want := fmt.Sprintf(`ignored files, which no commit has, are %s with the directory %q: 20 ("%s/00.ign", "%s/01.ign", "%s/02.ign", …)`, how, dir, dir, dir, dir)
			if !strings.Contains(string(r.errs), want) {
				t.Errorf("the answer does not say %s: %s", want, r)
			}
		}
		said(w.runIn(w.root, edit(w, "delete", "d", ""), "apply", "--workspace-edit", "-", "--dry-run", "--json"), "deleted", "d")
		w.is("d/19.ign", "kept by nobody\n")
		moved := w.runIn(w.root, edit(w, "rename", "d", "m"), "apply", "--workspace-edit", "-", "--json").applied()
		said(moved, "moved", "d")
		w.is("m/19.ign", "kept by nobody\n")
		w.run("undo", moved.str("receipt", "receiptId"), "--json").applied()
		r := w.runIn(w.root, edit(w, "delete", "d", ""), "apply", "--workspace-edit", "-", "--json")
		r.applied()
		said(r, "deleted", "d")
		if _, err := os.Lstat(w.path("d")); !os.IsNotExist(err) {
			t.Errorf("the directory: %v", err)
		}
	})
}
