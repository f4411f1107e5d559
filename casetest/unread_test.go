package casetest

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestRepositoriesThatAreNotRead: a repository whose format is not read is refused by
// every command, with the code and what to do; nothing is made in it or of it.
func TestRepositoriesThatAreNotRead(t *testing.T) {
	w := newWorld(t, nil, noGit)
	w.gitRun("init", "-q", "--template=", "--object-format=sha256")
	w.write("x", "x\n", 0o644)
	w.commit()
	w.write("x", "y\n", 0o644)
	patch := w.beside("p.diff", w.gitRun("diff"), 0o644)
	w.broken = true // there are no receipts to verify of what is not read
	commands := []string{
		"apply --patch " + patch, "apply --dry-run --patch " + patch, "plan --patch " + patch, "publish p", "undo rcpt-1", "policy show", "status", "doctor",
		"recover", "receipts list", "receipts verify", "host serve", "check --changed --call-site gate", "ci verify --changed-from HEAD",
		"repo add " + w.root, "repo status " + w.root,
	}
	for i, c := range []struct{ more, next string }{
		{"", "use a repository with SHA-1 object ids"},
		{"[core]\nrepositoryformatversion=1\n[extensions]\nrefstorage=reftable\n", "run `git refs migrate --ref-format=files`"},
		{"[core]\nrepositoryformatversion=2\n", "use a repository of format version 0 or 1"},
	} {
		if i > 0 {
			w.write(".git/config", c.more, 0o644)
			commands = []string{"status", "host serve"}
		}
		m := w.mark()
		for _, line := range commands {
			args := strings.Fields(line)
			r := w.run(args...)
			if r.code != 1 || len(r.out) > 0 || !strings.HasPrefix(r.errs, "asp: unsupported-operation: open repository ") || !strings.Contains(r.errs, c.next) {
				t.Errorf("%s", r)
			}
			if args[0] == "host" || args[0] == "repo" {
				continue
			}
			j := w.run(append(args, "--json")...)
			if j.code != 1 || j.str("error", "data", "failClass") != "input" || j.at("error", "data", "retryable") != false ||
				!strings.HasPrefix(j.str("error", "message"), "unsupported-operation: ") {
				t.Errorf("%s", j)
			}
		}
		m.unchanged()
		if left, err := filepath.Glob(filepath.Join(w.asp, "workspaces", "*")); err != nil || len(left) > 0 {
			t.Errorf("state was made of it: %q, %v", left, err)
		}
	}
}
