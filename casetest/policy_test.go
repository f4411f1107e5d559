package casetest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const policyText = `{"aspVersion":"asp/1.0",
 "requirements":[{"id":"lint","capabilities":["check"],"assurance":["gated"],"authority":{"providers":[
  {"id":"linter","version":"1","identity":"acme","integrity":"sha256:0","conformance":"core"}]}}],
 "gates":{"interactive":{"requiredRequirements":[],"optionalRequirements":[]},
  "gate":{"requiredRequirements":["lint","command/ok"],"optionalRequirements":[]},
  "sweep":{"requiredRequirements":[],"optionalRequirements":[]}},
 "policy":{"authorityModel":"explicit-pinned-provider","policyChangeActivation":"base-policy-two-phase",
  "candidatePolicyAuthority":"trusted-base-or-organization-floor",
  "missingHost":{"interactive":"warn-open","gate":"fail-closed","sweep":"fail-closed"}}}`

// What is active, and what a candidate would change, in every state of a policy.
func TestPolicyShow(t *testing.T) {
	w := newWorld(t, map[string]string{"x": "x\n"})
	w.config(`{"checks":{"ok":{"argv":["true"],"callSites":[]}}}`)
	show := func(args ...string) *result {
		t.Helper()
		r := w.run(append([]string{"policy", "show", "--json"}, args...)...)
		if r.code != 0 || r.at("policy", "recomputed") != true {
			t.Fatalf("%s", r)
		}
		return r
	}
	m := w.mark()
	r := show()
	if r.at("enrolled") != false || r.str("policy", "source") != "builtin-default" || r.at("policy", "candidate") != nil || r.at("policy", "value") != nil || r.at("localOverride", "present") != false {
		t.Errorf("nothing there: %s", r)
	}
	m.unchanged()
	if r := w.run("repo", "add", w.root); r.code != 0 {
		t.Fatalf("%s", r)
	}
	w.write(".asp/asp.json", policyText, 0o644)
	w.write(".asp/local.json", `{"a":[{"weakenGate":1}],"authority":{}}`, 0o644)
	r = show()
	would := r.str("policy", "candidate", "policyDigest")
	if r.at("enrolled") != true || r.str("policy", "source") != "builtin-default" || r.str("policy", "candidate", "state") != "pending" || r.at("policy", "candidate", "selfAuthorization") != true ||
		!strings.Contains(fmt.Sprint(r.at("policy", "candidate", "weakens")), `gives authority to "linter" "1"`) {
		t.Errorf("not committed: %s", r)
	}
	if got := fmt.Sprint(r.at("localOverride", "forbidden")); got != "[$.a[0].weakenGate $.authority]" || r.str("localOverride", "authorityEffect") != "none" {
		t.Errorf("local override: %s", r)
	}
	w.commit()
	r = show("--explain")
	if r.str("policy", "policyDigest") != would || r.str("policy", "source") != ".asp/asp.json" || r.str("policy", "candidate", "state") != "same" || r.at("policy", "value") == nil {
		t.Errorf("committed: %s", r)
	}
	if s := w.run("status", "--json"); s.str("policy", "policyDigest") != would || !strings.Contains(s.str("policy", "localOverride", "detail"), "$.authority") {
		t.Errorf("status says otherwise: %s", s)
	}
	// A weaker one, from a file; a broken one, in the tree; none any more.
	weaker := filepath.Join(w.base, "weaker.json")
	w.write(weaker, strings.Replace(policyText, `["lint","command/ok"]`, `["command/ok"]`, 1), 0o644)
	r = show("--candidate", weaker)
	if got := fmt.Sprint(r.at("policy", "candidate", "weakens")); got != `[gate no longer requires "lint"]` || r.at("policy", "candidate", "selfAuthorization") != true {
		t.Errorf("a weaker one: %s", r)
	}
	w.write(".asp/asp.json", `{}`, 0o644)
	if r = show(); r.str("policy", "candidate", "state") != "rejected" || r.str("policy", "candidate", "problem") == "" || r.str("policy", "policyDigest") != would {
		t.Errorf("a broken one: %s", r)
	}
	must(t, os.Remove(w.path(".asp/asp.json")))
	if r = show(); fmt.Sprint(r.at("policy", "candidate", "weakens")) != "[the policy is removed]" {
		t.Errorf("removed: %s", r)
	}
	text := w.run("policy", "show", "--explain")
	for _, want := range []string{"lint: check by linter 1; assurance gated (from .asp/asp.json)", "command/ok: runs true (from .asp/asp.json)", "the policy is removed", "it must not hold $.authority"} {
		if !strings.Contains(string(text.out), want) {
			t.Errorf("the text lacks %q:\n%s", want, text.out)
		}
	}
	// A broken one that was committed: no call-site applies, and none is said to ask
	// for nothing.
	w.write(".asp/asp.json", `{}`, 0o644)
	w.commit()
	r = show()
	if sites := fmt.Sprint(r.at("policy", "callSites")); strings.Count(sites, "noApply:the committed policy is rejected") != 3 || strings.Count(sites, "undecidable:") != 1 ||
		r.str("policy", "candidate", "state") != "rejected" {
		t.Errorf("a broken one at HEAD: %s", r)
	}
	shown := w.run("policy", "show").says(0, "policy .asp/asp.json, rejected", "interactive 0 required", "every apply is refused", "gate 0 required", "indeterminate whatever runs",
		"sweep 0 required", "every apply is refused", "candidate would be rejected as well")
	for _, not := range []string{"asks for nothing", "the active"} {
		if strings.Contains(string(shown.out), not) {
			t.Errorf("under a rejected policy: %q in %s", not, shown)
		}
	}
	w.run("status").says(0, "apply refused at every call-site")
	w.run("repo", "status", w.root).says(0, "no gate decision", "no apply: refused at every call-site")
	w.plan().modify("x", "x\n", "y\n").apply().refused("check-indeterminate")
	must(t, os.Remove(w.path(".asp/asp.json")))
	if r = show(); r.str("policy", "candidate", "state") != "pending" {
		t.Errorf("a broken one is taken away: %s", r)
	}
	if r := w.run("policy"); r.code != 2 {
		t.Errorf("without a verb: %s", r)
	}
}

// A decision on the built binary is derived again from its receipt.
func TestReceiptsReplay(t *testing.T) {
	w := newWorld(t, map[string]string{"x": "x\n"})
	w.config(`{"checks":{"ok":{"argv":["true"],"callSites":[]}}}`)
	r := w.plan().modify("x", "x\n", "y\n").apply("--check", "ok").applied()
	id := r.str("receipt", "receiptId")
	v := w.run("receipts", "verify", "--replay", id, "--json")
	if v.code != 0 || v.at("ok") != true || v.str("receiptId") != id || fmt.Sprint(v.at("differs")) != "[]" || fmt.Sprint(v.at("gone")) != "[]" ||
		!strings.Contains(fmt.Sprint(v.at("confirmed")), "decision allow") {
		t.Errorf("%s", v)
	}
	files, err := filepath.Glob(filepath.Join(w.asp, "policies/*.json"))
	must(t, err)
	if len(files) != 1 {
		t.Fatalf("policies: %v", files)
	}
	must(t, os.WriteFile(files[0], []byte("{}"), 0o600))
	if v := w.run("receipts", "verify", "--replay", id, "--json"); v.code != 1 || v.at("ok") != false {
		t.Errorf("a policy that was changed: %s", v)
	}
	if v := w.run("receipts", "verify", "--replay", "rcpt-none", "--json"); v.code != 1 || v.at("error", "data", "failClass") != "input" {
		t.Errorf("no such receipt: %s", v)
	}
}
