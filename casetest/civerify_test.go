package casetest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestCIVerify goes through what a protected pipeline meets: a branch that passes, one
// that would weaken what it is judged by, one with a finding, and receipts that
// somebody changed. What happened on the target since the branch left it is no part
// of the change.
func TestCIVerify(t *testing.T) {
	w := newWorld(t, map[string]string{"a.txt": "hello\n"})
	w.policy(w.enrol("secrets", "gated"))
	key := "AKIA" + "Q3EGVZ7WXK2LMN4P"
	w.gitRun("checkout", "-q", "-b", "topic")
	w.write("a.txt", "hello, topic\n", 0o644)
	w.commit()
	w.gitRun("checkout", "-q", "main")
	w.write("later.txt", "key = \""+key+"\"\n", 0o644) // a fault of main, not of the branch
	w.commit()
	w.gitRun("checkout", "-q", "topic")

	verify := func(code int) *result {
		t.Helper()
		m := w.mark()
		r := w.run("ci", "verify", "--changed-from", "main", "--json").exits(code)
		m.unchanged()
		if r.at("verified") != (code == 0) || r.str("callSite") != "gate" {
			t.Errorf("%s", r)
		}
		return r
	}
	changed := func(r *result) string {
		var out []string
		changes, _ := r.at("changeset", "changes").([]any)
		for _, c := range changes {
			out = append(out, fmt.Sprint(c.(obj)["kind"], " ", c.(obj)["path"]))
		}
		return strings.Join(out, ",")
	}
	r := verify(0)
	if got := changed(r); got != "modify a.txt" || r.at("gatePassed") != true || r.at("receiptValid") != true || r.str("hostDecision", "decision") != "allow" {
		t.Errorf("a good branch: %q %s", got, r)
	}
	// What is not committed counts as well.
	w.write("new.txt", "x\n", 0o644)
	if got := changed(verify(0)); got != "modify a.txt,create new.txt" {
		t.Errorf("with a file that is not committed: %q", got)
	}
	w.write("new.txt", "key = \""+key+"\"\n", 0o644)
	if r := verify(1); r.str("hostDecision", "decision") != "deny" || r.at("receiptValid") != true || strings.Contains(string(r.out), key) {
		t.Errorf("a finding: %s", r)
	}
	must(t, os.Remove(w.path("new.txt")))

	// A policy that requires nothing any more, committed on the branch.
	old := w.read(".asp/asp.json")
	w.write(".asp/asp.json", strings.ReplaceAll(old, `"requiredRequirements":["no-secrets"]`, `"requiredRequirements":[]`), 0o644)
	w.commit()
	if r := verify(1); r.str("hostDecision", "decision") != "indeterminate" || !strings.Contains(string(r.out), `"policy-self-authorization"`) {
		t.Errorf("a weaker policy: %s", r)
	}
	w.write(".asp/asp.json", old, 0o644)
	w.commit()
	verify(0)

	if got := w.listed(); !slices.Equal(got, []string{"answered allow evaluate", "answered allow evaluate", "answered deny evaluate", "answered indeterminate evaluate", "answered allow evaluate"}) {
		t.Errorf("%q", got)
	}

	// A branch that shares nothing with the target cannot be compared.
	w.gitRun("checkout", "-q", "--orphan", "stranger")
	w.commit()
	if r := w.run("ci", "verify", "--changed-from", "main", "--json").exits(3); !strings.Contains(string(r.out), "history") {
		t.Errorf("no common commit: %s", r)
	}
	w.gitRun("checkout", "-q", "topic")

	files, err := filepath.Glob(filepath.Join(w.asp, "*/*/receipts/*.json"))
	must(t, err)
	if len(files) == 0 {
		files, err = filepath.Glob(filepath.Join(w.asp, "*/receipts/*.json"))
		must(t, err)
	}
	b, err := os.ReadFile(files[0])
	must(t, err)
	w.broken = true
	must(t, os.WriteFile(files[0], []byte(strings.Replace(string(b), `"callSite":"gate"`, `"callSite":"sweep"`, 1)), 0o600))
	if r := verify(1); r.at("gatePassed") != true || r.at("receiptValid") != false || !strings.Contains(string(r.out), `"receipt-invalid"`) {
		t.Errorf("a changed receipt: %s", r)
	}
}

// TestCheckStagedIntentToAdd: a file that git only knows it will be told of (git add
// -N) is not staged: git would not commit it, and so it is not judged.
func TestCheckStagedIntentToAdd(t *testing.T) {
	w := newWorld(t, map[string]string{"a.txt": "a\n"})
	w.write("new.txt", "n\n", 0o644)
	w.gitRun("add", "-N", "new.txt")
	w.write("a.txt", "b\n", 0o644)
	w.gitRun("add", "a.txt")
	for _, flag := range []string{"--staged", "--changed"} {
		want := w.gitRun("diff", "--name-only", map[string]string{"--staged": "--cached", "--changed": "HEAD"}[flag])
		r := w.run("check", flag, "--json").exits(0)
		var got strings.Builder
		changes, _ := r.at("changeset", "changes").([]any)
		for _, c := range changes {
			fmt.Fprintln(&got, c.(obj)["path"])
		}
		if got.String() != want {
			t.Errorf("%s: %q, and git says %q", flag, got.String(), want)
		}
	}
}
