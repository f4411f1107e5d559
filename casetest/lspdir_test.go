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
	t.Run("ignored files in it", func(t *testing.T) {
		w := newWorld(t, map[string]string{"d/x": "x\n", ".gitignore": "*.ign\n"})
		const many = 20
		for i := range many {
			w.write(fmt.Sprintf("d/%02d.ign", i), "kept by nobody\n", 0o644)
		}
		said := func(r *result) {
			t.Helper()
			want := `ignored files, which no commit has, are deleted with the directory "d": 20 ("d/00.ign", "d/01.ign", "d/02.ign", …)`
			if !strings.Contains(string(r.errs), want) {
				t.Errorf("the answer does not say %s: %s", want, r)
			}
		}
		said(w.runIn(w.root, edit(w, "delete", "d", ""), "apply", "--workspace-edit", "-", "--dry-run", "--json"))
		w.is("d/19.ign", "kept by nobody\n")
		r := w.runIn(w.root, edit(w, "delete", "d", ""), "apply", "--workspace-edit", "-", "--json")
		r.applied()
		said(r)
		if _, err := os.Lstat(w.path("d")); !os.IsNotExist(err) {
			t.Errorf("the directory: %v", err)
		}
	})
}
