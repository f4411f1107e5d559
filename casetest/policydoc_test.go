package casetest

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
)

const policyDoc = "../docs/policy.md"

// transcript is one command of a document, with what it is said to print.
type transcript struct {
	command string
	says    []string // lines; "…" stands for any number of them
}

// transcripts reads the indented blocks that begin with a prompt.
func transcripts(doc string) []transcript {
	var out []transcript
	in := false
	for line := range strings.Lines(doc) {
		line, indented := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "    ")
		command, prompt := strings.CutPrefix(line, "$ ")
		switch {
		case !indented:
			in = false
		case prompt:
			out, in = append(out, transcript{command: command}), true
		case in:
			t := &out[len(out)-1]
			t.says = append(t.says, line)
		}
	}
	return out
}

// steady leaves out what differs between runs, machines and builds.
func (w *world) steady(s string) string {
	s = strings.ReplaceAll(s, w.root, "REPO")
	for _, v := range []struct{ is, becomes string }{
		{`/dev/shm/demo/repo`, "REPO"},
		{`rcpt-[0-9TZ]+-[0-9a-f]+`, "rcpt-…"},
		{`sha256:[0-9a-f]{64}`, "sha256:…"},
	} {
		s = regexp.MustCompile(v.is).ReplaceAllString(s, v.becomes)
	}
	return s
}

// printed tells whether lines are what a transcript says, in that order.
func printed(says, got []string) bool {
	if len(says) == 0 {
		return len(got) == 0
	}
	if says[0] == "…" {
		for i := range len(got) + 1 {
			if printed(says[1:], got[i:]) {
				return true
			}
		}
		return false
	}
	return len(got) > 0 && says[0] == got[0] && printed(says[1:], got[1:])
}

// TestPolicyDoc goes the way of docs/policy.md, step by step, and holds every
// transcript in it against what the binary prints.
func TestPolicyDoc(t *testing.T) {
	b, err := os.ReadFile(policyDoc)
	must(t, err)
	doc := string(b)
	w := newWorld(t, map[string]string{"a.txt": "hello\n"})
	all := transcripts(doc)
	next := func(want string, args ...string) {
		t.Helper()
		if len(all) == 0 || !strings.HasPrefix(all[0].command, want) {
			t.Fatalf("the next transcript should be %q: %q", want, all)
		}
		r := w.run(args...)
		got := strings.Split(strings.TrimSuffix(w.steady(string(r.out)), "\n"), "\n")
		says := strings.Split(w.steady(strings.Join(all[0].says, "\n")), "\n")
		if !printed(says, got) {
			t.Errorf("docs/policy.md says that %q prints\n%s\nand it prints\n%s", all[0].command, strings.Join(says, "\n"), strings.Join(got, "\n"))
		}
		all = all[1:]
	}

	// 1. Let it speak.
	pin := w.enrol("secrets", "advisory")
	next("asp repo status .", "repo", "status", ".")

	// 2. The policy of the document, with the fingerprint of this build.
	begin := strings.Index(doc, "    {\n      \"aspVersion\"")
	text := strings.ReplaceAll(doc[begin:begin+strings.Index(doc[begin:], "\n    }\n")+6], "\n    ", "\n")
	integrity := regexp.MustCompile(`sha256:[0-9a-f]{64}`).FindString(text)
	text = strings.TrimSpace(strings.ReplaceAll(text, integrity, pin["integrity"].(string)))
	if !json.Valid([]byte(text)) {
		t.Fatalf("the policy is no JSON:\n%s", text)
	}
	w.write(".asp/asp.json", text, 0o644)
	next("asp policy show", "policy", "show")
	w.commit()

	// 3. Require it on the gate; then let it gate.
	strict := strings.Replace(text, `"gate": {"requiredRequirements": [], "optionalRequirements": ["no-secrets"]}`,
		`"gate": {"requiredRequirements": ["no-secrets"], "optionalRequirements": []}`, 1)
	if strict == text {
		t.Fatal("the policy has another gate")
	}
	w.write(".asp/asp.json", strict, 0o644)
	next("asp policy show", "policy", "show")
	w.commit()

	// The replay is of the decision that step 3 speaks of: required, and only
	// advisory so far. What was evaluated is not on disk any more.
	w.write("a.txt", "hello, you\n", 0o644)
	r := w.run("check", "--changed", "--call-site", "gate", "--json").exits(1)
	if r.str("hostDecision", "decision") != "indeterminate" || !strings.Contains(string(r.out), `"missing-authority"`) {
		t.Errorf("advisory where the gate requires it: %s", r)
	}
	w.write("a.txt", "hello\n", 0o644)
	next("asp receipts verify --replay", "receipts", "verify", "--replay", r.str("receipt", "receiptId"))
	if len(all) > 0 {
		t.Errorf("transcripts that nothing holds: %q", all)
	}

	w.run("repo", "enable", "secrets", "--mode", "gated").exits(0)
	w.write("a.txt", "hello, you\n", 0o644)
	w.run("check", "--changed", "--call-site", "gate", "--json").exits(0)
}
