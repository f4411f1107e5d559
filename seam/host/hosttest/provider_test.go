package hosttest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/aspengine/asp/internal/need"
)

// changes makes a changeset that modifies files, with the content put.
func (c *client) changes(base obj, files ...[3]string) obj {
	c.t.Helper()
	list := []obj{}
	for _, f := range files {
		x := obj{"path": f[0], "kind": "modify", "before": digest(f[1]), "after": c.put(f[2])}
		if f[1] == "" {
			x["kind"] = "create"
			delete(x, "before")
		}
		list = append(list, x)
	}
	return obj{"baseline": base, "changes": list}
}

// verdict asks for a decision at the gate.
func (c *client) verdict(changeset obj, comparison string) answer {
	c.t.Helper()
	p := obj{"callSite": "gate", "changeset": changeset}
	if comparison != "" {
		p["comparison"] = comparison
	}
	return c.good("host/evaluateChangeset", p)
}

func (a answer) text(path ...string) string {
	var v any = a.result
	for _, k := range path {
		m, _ := v.(obj)
		v = m[k]
	}
	s, _ := v.(string)
	return s
}

// findings are the messages of a verdict's diagnostics.
func (a answer) findings() (out []string) {
	list, _ := a.result["findings"].([]any)
	for _, d := range list {
		d, _ := d.(obj)["diagnostic"].(obj)
		s, _ := d["message"].(string)
		out = append(out, s)
	}
	return out
}

// TestIncremental: a provider that says it is incremental is told what it found in
// the very state that a change starts from, and which answer was its last; another is
// not.
func TestIncremental(t *testing.T) {
	for _, incremental := range []bool{true, false} {
		t.Run(fmt.Sprint(incremental), func(t *testing.T) {
			const old, first, second = "x\n", "x\nBAD one\n", "x\nBAD one\nBAD two\n"
			w := newWorld(t, "", map[string]string{"a.txt": old, "b.txt": "b\n"})
			args := []string{}
			if incremental {
				args = append(args, "incremental")
			}
			w.enrol("p", []string{"check"}, args...)
			tr := w.trace()
			c := w.stdio(tr.env(), "ASP_TRACE_CONTENTS=1")
			base := c.baseline()
			whole := c.verdict(c.changes(base, [3]string{"a.txt", old, first}), "all")
			if got := whole.findings(); !reflect.DeepEqual(got, []string{"BAD one"}) || whole.text("decision") != "deny" {
				t.Fatalf("all: %s", whole.raw)
			}
			// Somebody brings the workspace into that state: now it is where changes start.
			w.write("a.txt", first)
			base = c.baseline()
			next := c.verdict(c.changes(base, [3]string{"a.txt", first, second}), "introduced")
			if got := next.findings(); !reflect.DeepEqual(got, []string{"BAD two"}) {
				t.Errorf("introduced: %s", next.raw)
			}
			// A file that the answer was not about, or another state: nothing is known of it.
			c.verdict(c.changes(base, [3]string{"a.txt", first, old}, [3]string{"b.txt", "b\n", "BAD b\n"}), "introduced")
			w.write("new", "n\n")
			c.verdict(c.changes(c.baseline(), [3]string{"a.txt", first, second}), "introduced")
			if code := c.exit(); code != 0 {
				t.Errorf("exit status %d", code)
			}
			asked := tr.sent("check/evaluate")
			if len(asked) != 4 {
				t.Fatalf("asked %d times", len(asked))
			}
			for i, p := range asked {
				prior, told := p["priorDiagnostics"].([]any)
				last, _ := p["priorAssessments"].([]any)
				if told != (incremental && i == 1) || (len(last) == 1) != (incremental && i > 0) {
					t.Errorf("question %d: prior findings %v, prior assessments %v", i, p["priorDiagnostics"], last)
				}
				if !told {
					continue
				}
				if len(prior) != 1 {
					t.Fatalf("%v", prior)
				}
				p := prior[0].(obj)
				if d := p["diagnostic"].(obj); d["message"] != "BAD one" || p["validAsOf"].(obj)["changesetDigest"] != whole.text("changesetDigest") {
					t.Errorf("prior finding %v", p)
				}
				// It rested on that: the state before was not read again.
				if v := next.result["validAsOf"].(obj)["blobs"].([]any); len(v) != 1 || v[0] != digest(second) {
					t.Errorf("served %v", v)
				}
			}
		})
	}
}

// TestTakesItselfBack: where a provider told the states before and after a change
// whole, what it calls introduced is what the one has more than the other. One that says
// otherwise is not believed, and neither is what it said before.
func TestTakesItselfBack(t *testing.T) {
	const old, first, second = "x\n", "x\nBAD one\n", "x\nBAD one\nBAD two\n"
	w := newWorld(t, "", map[string]string{"a.txt": old})
	w.enrol("p", []string{"check"}, "hide")
	c := w.stdio()
	c.verdict(c.changes(c.baseline(), [3]string{"a.txt", old, first}), "all")
	w.write("a.txt", first)
	change := c.changes(c.baseline(), [3]string{"a.txt", first, second})
	if a := c.verdict(change, "introduced"); a.text("decision") != "allow" {
		t.Fatalf("nobody knows better yet: %s", a.raw)
	}
	if a := c.verdict(change, "all"); a.text("decision") != "indeterminate" || !strings.Contains(string(a.raw), `"reason":"malformed"`) {
		t.Errorf("the other view: %s", a.raw)
	}
	// The first answer is not handed out again either; asked anew it is the first one.
	if a := c.verdict(change, "all"); a.text("decision") != "deny" || len(a.findings()) != 2 {
		t.Errorf("asked anew: %s", a.raw)
	}
	c.exit()
}

// TestLegacyDialect: a provider of asp/0.1 is asked in its own words, and its answer
// gates like any other.
func TestLegacyDialect(t *testing.T) {
	w := newWorld(t, `{"providers":{"old":{"comparison":"all","checks":["bad"]}}}`, map[string]string{"a.txt": "x\n"})
	w.enrol("old", []string{"check"}, "proto=asp/0.1")
	tr := w.trace()
	c := w.stdio(tr.env(), "ASP_TRACE_CONTENTS=1")
	base := c.baseline()
	if a := c.verdict(c.changes(base, [3]string{"a.txt", "x\n", "BAD\n"}), ""); a.text("decision") != "deny" || !reflect.DeepEqual(a.findings(), []string{"BAD"}) {
		t.Errorf("%s", a.raw)
	}
	if a := c.verdict(c.changes(base, [3]string{"a.txt", "x\n", "good\n"}), ""); a.text("decision") != "allow" {
		t.Errorf("%s", a.raw)
	}
	if code := c.exit(); code != 0 {
		t.Errorf("exit status %d", code)
	}
	for _, p := range tr.sent("check/evaluate") {
		keys := []string{}
		for _, k := range []string{"callSite", "changeset", "changesetDigest", "checks", "comparison"} {
			if p[k] != nil {
				keys = append(keys, k)
			}
		}
		if len(p) != len(keys) || p["callSite"] != "gate" || fmt.Sprint(p["checks"]) != "[bad]" {
			t.Errorf("asked %v", p)
		}
	}
}

// TestLegacyNames: a provider that knows its requests by their legacy names alone is
// asked by those, in every family.
func TestLegacyNames(t *testing.T) {
	w := newWorld(t, `{"providers":{"p":{"scope":"impact","comparison":"all"}}}`, map[string]string{"a.txt": "x\n", "user": "see a.txt\nBAD\n"})
	w.enrol("p", []string{"check", "edit", "inspect"}, "names=old")
	tr := w.trace()
	c := w.stdio(tr.env())
	if a := c.verdict(c.changes(c.baseline(), [3]string{"a.txt", "x\n", "y\n"}), ""); a.text("decision") != "deny" || !reflect.DeepEqual(a.findings(), []string{"BAD"}) {
		t.Errorf("%s", a.raw)
	}
	a := c.good("host/requestEditPlan", obj{"callSite": "gate", "operation": "text-edit", "baseline": c.baseline(), "proposalId": "one"})
	if a.text("proposal", "status") != "complete" {
		t.Errorf("%s", a.raw)
	}
	// The harness may use either name, too.
	for _, name := range []string{"inspect/references", "sense/references"} {
		a := c.good("host/queryInspect", obj{"callSite": "gate", "request": obj{"method": name, "params": obj{"symbol": obj{"id": "x"}}}})
		if a.result["coverage"].(obj)["exhaustive"] != true {
			t.Errorf("%s: %s", name, a.raw)
		}
	}
	c.exit()
	for _, old := range []string{"judge/evaluate", "act/propose", "sense/impact", "sense/references"} {
		if len(tr.sent(old)) == 0 {
			t.Errorf("%s was not asked", old)
		}
	}
}

// TestConfigurationIsPinned: a provider gets the configuration of config.json, and counts
// only as long as the digest of what it works by is the one that stands there.
func TestConfigurationIsPinned(t *testing.T) {
	for digest, want := range map[string]string{"sha256:cfg": "allow", "sha256:other": "indeterminate"} {
		w := newWorld(t, `{"providers":{"p":{"configuration":{"depth":3},"configDigest":"`+digest+`"}}}`, map[string]string{"a.txt": "x\n"})
		w.enrol("p", []string{"check"})
		tr := w.trace()
		c := w.stdio(tr.env(), "ASP_TRACE_CONTENTS=1")
		a := c.verdict(c.changes(c.baseline(), [3]string{"a.txt", "x\n", "y\n"}), "")
		if a.text("decision") != want || strings.Contains(string(a.raw), "config.json pins") != (want != "allow") {
			t.Errorf("%s: %s", digest, a.raw)
		}
		c.exit()
		asked := tr.sent("check/evaluate")
		if len(asked) != 1 || !reflect.DeepEqual(asked[0]["configuration"], obj{"depth": 3.0}) {
			t.Errorf("asked %v", asked)
		}
	}
}

// TestImpactIsTheScope: an inspect provider tells what a change reaches, and the check
// looks there too.
func TestImpactIsTheScope(t *testing.T) {
	w := newWorld(t, `{"providers":{"p":{"scope":"impact","comparison":"all"}}}`, map[string]string{"a.txt": "x\n", "user": "see a.txt\nBAD\n", "other": "BAD\n"})
	w.enrol("p", []string{"check", "inspect"})
	tr := w.trace()
	c := w.stdio(tr.env(), "ASP_TRACE_CONTENTS=1")
	a := c.verdict(c.changes(c.baseline(), [3]string{"a.txt", "x\n", "y\n"}), "")
	if a.text("decision") != "deny" || !reflect.DeepEqual(a.findings(), []string{"BAD"}) {
		t.Errorf("%s", a.raw)
	}
	c.exit()
	if got := tr.sent("check/evaluate"); len(got) != 1 || !reflect.DeepEqual(got[0]["scope"], obj{"paths": []any{"a.txt", "user"}}) {
		t.Errorf("asked %v", got)
	}
}

// TestBaselineIsTold: after an apply every provider that runs is told the new
// baseline, before anything else that is asked of it.
func TestBaselineIsTold(t *testing.T) {
	w := newWorld(t, "", map[string]string{"a.txt": "x\n"})
	w.enrol("p", []string{"check"})
	tr := w.trace()
	c := w.stdio(tr.env(), "ASP_TRACE_CONTENTS=1")
	base := c.baseline()
	c.put("y\n")
	first := c.good("host/applyProposal", applyParams(proposal("one", base, modify("a.txt", "x\n", "y\n"))))
	after, _ := first.result["baselineAfter"].(obj)
	if first.result["applied"] != true {
		t.Fatalf("%s", first.raw)
	}
	if a := c.verdict(c.changes(after, [3]string{"a.txt", "y\n", "z\n"}), ""); a.text("decision") != "allow" {
		t.Errorf("%s", a.raw)
	}
	c.exit()
	told := tr.sent("workspace/baselineChanged")
	if len(told) != 1 {
		t.Fatalf("told %v", told)
	}
	got, err := json.Marshal(told[0]["baseline"])
	must(t, err)
	want, err := json.Marshal(after)
	must(t, err)
	if string(got) != string(want) {
		t.Errorf("told %s, the apply says %s", got, want)
	}
}

// TestNewDemandOnIsolation: a policy that takes nothing less than isolated from now
// on is met by the next request, though the provider runs since before.
func TestNewDemandOnIsolation(t *testing.T) {
	w := newWorld(t, "", map[string]string{"a.txt": "x\n"})
	if _, out, _ := w.run("", "status", "--json"); !strings.Contains(out, `"isolated"]`) {
		need.Missing(t, "this machine cannot isolate")
	}
	w.enrol("p", []string{"check", "edit"})
	c := w.stdio()
	change := func() obj { return c.changes(c.baseline(), [3]string{"a.txt", "x\n", "y\n"}) }
	if a := c.verdict(change(), ""); a.text("decision") != "allow" || a.text("assurance", "mode") != "mediated-write" {
		t.Fatalf("%s", a.raw)
	}
	w.write(".asp/asp.json", w.policy("isolated", "check", "edit"))
	w.git("commit", "-qam", "isolated")
	if g := c.good("host/status", obj{}).result["gates"].(obj)["gate"].(obj); g["available"] != true {
		t.Errorf("gate: %v", g)
	}
	plan := c.good("host/requestEditPlan", obj{"callSite": "gate", "operation": "text-edit", "baseline": c.baseline(), "proposalId": "one"})
	if a := c.verdict(change(), ""); a.text("decision") != "allow" || a.text("assurance", "mode") != "isolated" {
		t.Errorf("%s", a.raw)
	}
	if a := c.good("host/applyProposal", obj{"callSite": "gate", "proposalId": "one", "intent": "user"}); a.result["applied"] != true || a.text("assurance", "mode") != "isolated" {
		t.Errorf("%s\nof %s", a.raw, plan.raw)
	}
	c.exit()
}

// TestAmbientFindings: what a provider publishes by itself is shown, as contained text,
// to whoever looks, and gates nothing.
func TestAmbientFindings(t *testing.T) {
	w := newWorld(t, "", map[string]string{"a.txt": "x\n"})
	w.enrol("p", []string{"check"}, "publish")
	c := w.stdio()
	if a := c.verdict(c.changes(c.baseline(), [3]string{"a.txt", "x\n", "y\n"}), ""); a.text("decision") != "allow" || len(a.findings()) != 0 {
		t.Errorf("%s", a.raw)
	}
	shown := func(s string) bool {
		return strings.Contains(s, "counted nowhere: 1 findings on 1 files") && strings.Contains(s, `ambient \x1b[31mBAD`)
	}
	status := c.good("host/status", obj{})
	server, _ := status.result["servers"].([]any)[0].(obj)
	if d, _ := server["detail"].(string); !shown(d) || server["state"] != "ready" {
		t.Errorf("status: %v", server)
	}
	if g := status.result["gates"].(obj)["gate"].(obj); g["available"] != true {
		t.Errorf("gate: %v", g)
	}
	c.exit()
	if _, out, errs := w.run("", "server", "status", "p"); !shown(out) {
		t.Errorf("asp server status: %s%s", out, errs)
	}
	if code, out, errs := w.run("", "server", "reset", "p"); code != 0 {
		t.Errorf("%s%s", out, errs)
	}
	if _, out, _ := w.run("", "server", "status", "p", "--json"); strings.Contains(out, "ambient") {
		t.Errorf("after a reset: %s", out)
	}
}

// kinds are the kinds of the receipts that are kept.
func (w *world) kinds() (out []string) {
	w.t.Helper()
	_, text, errs := w.run("", "receipts", "list", "--json")
	var list []obj
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		w.t.Fatalf("%v: %s%s", err, text, errs)
	}
	for _, r := range list {
		out = append(out, fmt.Sprint(r["kind"]))
	}
	return out
}

// TestWhoseFaultItIs: what the harness asks wrong is an error of its own, found before
// any provider is started; a provider that fails beside the checks leaves a receipt.
func TestWhoseFaultItIs(t *testing.T) {
	w := newWorld(t, `{"providers":{"p":{"scope":"impact"}}}`, map[string]string{"a.txt": "x\n"})
	w.enrol("p", []string{"check", "inspect", "edit"}, "work=crash")
	tr := w.trace()
	c := w.stdio(tr.env(), "ASP_TRACE_CONTENTS=1")
	for _, q := range []obj{
		{"method": "inspect/references", "params": obj{"symbl": 1}},
		{"method": "inspect/everything"},
		{"method": "check/evaluate", "params": obj{}},
	} {
		a := c.call("host/queryInspect", obj{"callSite": "gate", "request": q})
		if a.code() != -32013 || a.class() != "input" || !strings.Contains(fmt.Sprint(a.err["data"]), "receipt rcpt-") {
			t.Errorf("%v: %s", q, a.raw)
		}
	}
	if got := tr.sent("initialize"); len(got) != 0 {
		t.Errorf("a provider was started for it")
	}
	a := c.call("host/requestEditPlan", obj{"callSite": "gate", "operation": "organize-imports", "baseline": c.baseline()})
	if a.code() != -32013 || a.class() != "input" || !strings.Contains(string(a.raw), `\"text-edit\"`) {
		t.Errorf("%s", a.raw)
	}
	if got := tr.sent("edit/propose"); len(got) != 0 {
		t.Errorf("asked for what it does not offer: %v", got)
	}
	for _, k := range w.kinds() {
		if k == "provider-failure" {
			t.Errorf("the provider is blamed: %v", w.kinds())
		}
	}
	if a := c.verdict(c.changes(c.baseline(), [3]string{"a.txt", "x\n", "y\n"}), ""); a.text("decision") != "indeterminate" {
		t.Errorf("%s", a.raw)
	}
	n := 0
	for _, k := range w.kinds() {
		if k == "provider-failure" {
			n++
		}
	}
	if n != 2 { // as asked for the impact, and as a check
		t.Errorf("%d receipts of failures: %v", n, w.kinds())
	}
	c.exit()
}

// TestAppliedInline: a plan that a harness held itself is answered by its first outcome
// when it is named by id alone, also by another host; the receipt that its decision
// names is stored.
func TestAppliedInline(t *testing.T) {
	w := newWorld(t, "", map[string]string{"a.txt": "x\n"})
	w.enrol("p", []string{"check"})
	c := w.stdio()
	c.put("y\n")
	p := proposal("mine", c.baseline(), modify("a.txt", "x\n", "y\n"))
	params := applyParams(p)
	params["callSite"] = "gate"
	first := c.good("host/applyProposal", params)
	decision, _ := first.result["decision"].(obj)
	if first.result["applied"] != true || decision["decision"] != "allow" {
		t.Fatalf("%s", first.raw)
	}
	named, _ := decision["receipt"].(obj)["receiptId"].(string)
	code, out, _ := w.run("", "receipts", "show", named, "--json")
	if code != 0 || !strings.Contains(out, named) {
		t.Errorf("the receipt of the decision: exit status %d, %s", code, out)
	}
	for range 2 {
		again := c.good("host/applyProposal", obj{"callSite": "gate", "proposalId": "mine", "intent": "harness"})
		if !sameResult(t, first, again) {
			t.Errorf("%s\nand then %s", first.raw, again.raw)
		}
		c.exit()
		c = w.stdio()
	}
	if a := c.good("host/applyProposal", obj{"callSite": "gate", "proposalId": "other", "intent": "harness"}); !strings.HasPrefix(a.detail(), "unknown-proposal") {
		t.Errorf("%s", a.raw)
	}
	c.exit()
	if w.read("a.txt") != "y\n" {
		t.Error("it was not applied once")
	}
}

func sameResult(t testing.TB, a, b answer) bool {
	t.Helper()
	x, err := json.Marshal(a.result)
	must(t, err)
	y, err := json.Marshal(b.result)
	must(t, err)
	return string(x) == string(y)
}
