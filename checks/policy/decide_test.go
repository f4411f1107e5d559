package policy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/aspengine/asp/checks"
	"github.com/aspengine/asp/checks/policy"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/internal/need"
	"github.com/aspengine/asp/receipt"
	"github.com/aspengine/asp/seam/wire"
)

// truth is one generated situation: two checks, a, which is required by
// configuration or name or not at all, and b, which is optional or required.
type truth struct {
	site             wire.CallSite
	source           string // builtin, floor, rejected
	apply            bool
	a, b             checks.Status // StatusInvalid here: not run
	aReq, bReq       bool
	byName           bool // a is required by its name, not by configuration
	demand           string
	isolation        checks.Isolation
	digestOK, causes bool
}

// expected is the rule again, written from the contract alone: a list of
// sentences, not the structure of Decide.
func expected(c truth) (d wire.Decision, ran []string, exhaustive bool) {
	complete := func(s checks.Status) bool { return s == checks.Passed || s == checks.Failed }
	health := func(s checks.Status) bool {
		return s == checks.TimedOut || s == checks.Crashed || s == checks.Unavailable
	}
	strength := map[string]checks.Isolation{"none": checks.Advisory, "mediated-write": checks.MediatedWrite, "isolated": checks.Isolated}
	enough := c.isolation >= strength[c.demand]
	exhaustive = true

	void := c.source == "builtin" && c.site == wire.Gate || !c.digestOK || c.causes
	if c.source == "rejected" {
		exhaustive = false
		void = void || c.site == wire.Gate || c.apply
	}
	deny, unmet := false, false
	for _, x := range []struct {
		id       string
		s        checks.Status
		required bool
	}{{"command/a", c.a, c.aReq}, {"command/b", c.b, c.bReq}} {
		counts := complete(x.s) && (enough || !x.required)
		if counts {
			ran = append(ran, x.id)
		} else {
			exhaustive = false
		}
		if !x.required {
			continue
		}
		if counts && x.s == checks.Failed {
			deny, exhaustive = true, false
		}
		opens := health(x.s) && c.site == wire.Interactive && !c.apply
		if !counts && !opens {
			unmet = true
		}
	}
	slices.Sort(ran)
	switch {
	case void:
		return wire.Indeterminate, ran, false
	case deny:
		return wire.Deny, ran, exhaustive
	case unmet:
		return wire.Indeterminate, ran, exhaustive
	}
	return wire.Allow, ran, exhaustive
}

func situation(t *testing.T, c truth) (policy.Policy, policy.Question) {
	t.Helper()
	p := policyOf(t, c)
	q := policy.Question{CallSite: c.site, Apply: c.apply, BasePolicyDigest: p.Digest}
	return p, fillIn(q, c)
}

// policies keeps what situations share; one test makes a hundred thousand.
type policies map[string]policy.Policy

func (ps policies) situation(t *testing.T, c truth) (policy.Policy, policy.Question) {
	t.Helper()
	key := fmt.Sprint(c.source, c.aReq && !c.byName, c.bReq, c.demand)
	p, ok := ps[key]
	if !ok {
		p = policyOf(t, c)
		ps[key] = p
	}
	return p, fillIn(policy.Question{CallSite: c.site, Apply: c.apply, BasePolicyDigest: p.Digest}, c)
}

func policyOf(t *testing.T, c truth) policy.Policy {
	t.Helper()
	floor := ""
	if c.source == "floor" {
		floor = `"floor":` + strings.NewReplacer(`["lint"]`, `[]`, `["lint", "command/vet"]`, `[]`, `["nowhere"]`, `[]`).Replace(goodRepository) + ","
	}
	cfg := config(t, fmt.Sprintf(`{%s"checks":{"a":{"argv":["a"],"required":%v},"b":{"argv":["b"],"required":%v}},"sandbox":{"require":%q}}`,
		floor, c.aReq && !c.byName, c.bReq, c.demand))
	var committed []byte
	if c.source == "rejected" {
		committed = []byte(`{"aspVersion":1}`)
	}
	return policy.Active(cfg, committed, true)
}

func fillIn(q policy.Question, c truth) policy.Question {
	if c.aReq && c.byName {
		q.Named = []string{"a"}
	}
	if !c.digestOK {
		q.BasePolicyDigest = "sha256:other"
	}
	if c.causes {
		q.Blocking = []wire.Degradation{{Source: "host", Reason: wire.DegradeStaleBaseline, Detail: "moved"}}
	}
	for n, s := range map[string]checks.Status{"command/a": c.a, "command/b": c.b} {
		if s != checks.StatusInvalid {
			r := checks.Result{Name: n, Status: s, Isolation: c.isolation, Detail: "because"}
			if s == checks.Failed {
				r.Findings = []checks.Finding{{Code: n + ":exit", Message: "bad", Path: "x.go", Line: 3}, {Code: n + ":exit", Message: "bad", Path: "x.go", Line: 9}}
			}
			q.Results = append(q.Results, r)
		}
	}
	return q
}

func situations(yield func(truth) bool) {
	bools := []bool{false, true}
	for _, site := range []wire.CallSite{wire.Interactive, wire.Gate, wire.Sweep} {
		for _, source := range []string{"builtin", "floor", "rejected"} {
			for _, apply := range bools {
				for a := checks.StatusInvalid; a <= checks.Stale; a++ {
					for b := checks.StatusInvalid; b <= checks.Stale; b++ {
						for bits := range 8 {
							for _, demand := range []string{"none", "mediated-write", "isolated"} {
								for iso := checks.Advisory; iso <= checks.Isolated; iso++ {
									// The rare causes take turns instead of multiplying.
									n := int(a)*9 + int(b) + bits + int(iso)
									c := truth{site: site, source: source, apply: apply, a: a, b: b, aReq: bits&1 != 0, bReq: bits&2 != 0,
										byName: bits&4 != 0, demand: demand, isolation: iso, digestOK: n%7 != 0, causes: n%11 == 0}
									if !yield(c) {
										return
									}
								}
							}
						}
					}
				}
			}
		}
	}
}

func TestDecideTruthTable(t *testing.T) {
	n, seen, ps := 0, map[wire.Decision]int{}, policies{}
	for c := range situations {
		if n++; (testing.Short() || need.Race) && n%17 != 0 {
			continue
		}
		p, q := ps.situation(t, c)
		got := policy.Decide(p, q)
		want, ran, exhaustive := expected(c)
		gotRan := slices.Sorted(slices.Values(got.Coverage.Ran))
		if got.Decision != want || !slices.Equal(gotRan, ran) || got.Coverage.Exhaustive != exhaustive {
			t.Fatalf("%+v\n got %s, ran %v, exhaustive %v\nwant %s, ran %v, exhaustive %v\n%+v",
				c, got.Decision, gotRan, got.Coverage.Exhaustive, want, ran, exhaustive, got.Coverage)
		}
		seen[want]++
		invariants(t, c, q, got)
	}
	if len(seen) != 3 {
		t.Errorf("decisions seen: %v", seen)
	}
}

// invariants of every decision, whatever it is.
func invariants(t *testing.T, c truth, q policy.Question, d policy.Decision) {
	t.Helper()
	cov := d.Coverage
	if !slices.Equal(cov.Required, cov.Enrolled) {
		t.Fatalf("%+v: enrolled differs from required", c)
	}
	if cov.Exhaustive != (len(cov.Degraded) == 0) {
		t.Fatalf("%+v: exhaustive %v with %d degraded", c, cov.Exhaustive, len(cov.Degraded))
	}
	if len(d.Failures) != len(cov.Degraded) {
		t.Fatalf("%+v: a cause is missing in failures", c)
	}
	for _, id := range cov.Required {
		ran := slices.Contains(cov.Ran, id)
		degraded := false
		for _, g := range cov.Degraded {
			if g.Requirement != id {
				continue
			}
			degraded = true
			if (g.Reason == wire.DegradeBlockingDiagnostic) != ran {
				t.Fatalf("%+v: %s ran %v and is degraded as %s", c, id, ran, g.Reason)
			}
		}
		if !ran && !degraded {
			t.Fatalf("%+v: %s neither ran nor is degraded", c, id)
		}
	}
	gating := 0
	for _, f := range d.Findings {
		if err := f.Check(); err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
		if f.Disposition == wire.Gating {
			gating++
		}
	}
	if d.Decision == wire.Deny && gating == 0 || d.Decision == wire.Allow && gating > 0 {
		t.Fatalf("%+v: %s with %d gating findings", c, d.Decision, gating)
	}
	if q.Apply && slices.ContainsFunc(cov.Degraded, func(g wire.Degradation) bool { return g.Reason == wire.DegradeFailOpen }) {
		t.Fatalf("%+v: an apply failed open", c)
	}
}

func TestCausesByName(t *testing.T) {
	for s, want := range map[checks.Status]wire.DegradeReason{
		checks.TimedOut: wire.DegradeTimedOut, checks.Crashed: wire.DegradeCrashed, checks.Unavailable: wire.DegradeUnavailable,
		checks.Incomplete: wire.DegradeIncomplete, checks.Stale: wire.DegradeStale, checks.Cancelled: wire.DegradeCancelled,
		checks.Failed: wire.DegradeBlockingDiagnostic, checks.Status(77): wire.DegradeError, checks.StatusInvalid: wire.DegradeMissing,
	} {
		p, q := situation(t, truth{site: wire.Interactive, source: "floor", apply: true, a: s, aReq: true, b: checks.Passed, demand: "none", digestOK: true})
		d := policy.Decide(p, q)
		if len(d.Coverage.Degraded) != 1 || d.Coverage.Degraded[0].Reason != want || d.Coverage.Degraded[0].Requirement != "command/a" {
			t.Errorf("%v: %+v, want %s", s, d.Coverage.Degraded, want)
		}
	}
}

func TestProvidersAreMissed(t *testing.T) {
	p := policy.Active(config(t, `{}`), []byte(goodRepository), true)
	for _, c := range []struct {
		site     wire.CallSite
		decision wire.Decision
		reasons  string
	}{
		{wire.Interactive, wire.Allow, "p:optional-degraded"},
		{wire.Gate, wire.Indeterminate, "p:missing-required-provider command/vet:missing"},
		{wire.Sweep, wire.Indeterminate, "nowhere:missing"},
	} {
		d := policy.Decide(p, policy.Question{CallSite: c.site})
		var got []string
		for _, g := range d.Coverage.Degraded {
			got = append(got, g.Source+":"+string(g.Reason))
		}
		if d.Decision != c.decision || strings.Join(got, " ") != c.reasons {
			t.Errorf("%s: %s, %v", c.site, d.Decision, got)
		}
	}
}

func TestActive(t *testing.T) {
	none, floor := config(t, `{}`), config(t, goodConfig)
	repo := []byte(goodRepository)
	digests := map[string]string{}
	for _, c := range []struct {
		name       string
		cfg        policy.Config
		committed  []byte
		enrolled   bool
		source     string
		activation string
	}{
		{"nothing", none, nil, true, policy.SourceBuiltin, policy.Activated},
		{"not enrolled", none, repo, false, policy.SourceBuiltin, policy.Activated},
		{"enrolled", none, repo, true, policy.SourceRepository, policy.Activated},
		{"floor", floor, nil, true, policy.SourceFloor, policy.Activated},
		{"floor, not enrolled", floor, repo, false, policy.SourceFloor, policy.Activated},
		{"both", floor, repo, true, policy.SourceBoth, policy.Activated},
		{"rejected", none, []byte(`{"command":"rm"}`), true, policy.SourceRepository, policy.Rejected},
		{"empty", none, []byte{}, true, policy.SourceRepository, policy.Rejected},
	} {
		p := policy.Active(c.cfg, c.committed, c.enrolled)
		if p.Source != c.source || p.Activation != c.activation || (p.Problem != "") != (c.activation == policy.Rejected) {
			t.Errorf("%s: %s %s %q", c.name, p.Source, p.Activation, p.Problem)
		}
		digests[c.name] = p.Digest
	}
	for _, same := range [][2]string{{"nothing", "not enrolled"}, {"floor", "floor, not enrolled"}} {
		if digests[same[0]] != digests[same[1]] {
			t.Errorf("%v: different digests", same)
		}
	}
	for _, other := range [][2]string{{"nothing", "enrolled"}, {"enrolled", "both"}, {"floor", "both"}, {"nothing", "rejected"}} {
		if digests[other[0]] == digests[other[1]] {
			t.Errorf("%v: the same digest", other)
		}
	}
	// Limits and retention are no policy; a check is.
	if a, b := policy.Active(config(t, `{"retention":{"receipts":5}}`), nil, false), policy.Active(none, nil, false); a.Digest != b.Digest {
		t.Error("retention changes the policy digest")
	}
	if a, b := policy.Active(config(t, `{"checks":{"a":{"argv":["x"]}}}`), nil, false), policy.Active(none, nil, false); a.Digest == b.Digest {
		t.Error("a check does not change the policy digest")
	}
}

// The floor can only add: what either asks for is asked for, and the smaller
// budget counts.
func TestFloorAdds(t *testing.T) {
	strict := strings.Replace(goodRepository, `{"interactive": {"requiredRequirements": [], "optionalRequirements": ["lint"]}`,
		`{"interactive": {"requiredRequirements": ["lint"], "optionalRequirements": []}`, 1)
	cfg := config(t, `{"floor":`+strict+`,"budgets":{"gateMs":100}}`)
	p := policy.Active(cfg, []byte(goodRepository), true)
	d := policy.Decide(p, policy.Question{CallSite: wire.Interactive})
	if d.Decision != wire.Indeterminate || !slices.Equal(d.Coverage.Required, []string{"lint"}) {
		t.Errorf("%s, required %v", d.Decision, d.Coverage.Required)
	}
	if p.Budget(wire.Gate).Milliseconds() != 1 || p.Budget(wire.Sweep) != 0 || p.Budget(wire.Interactive).Milliseconds() != 5000 {
		t.Errorf("budgets %v %v %v", p.Budget(wire.Gate), p.Budget(wire.Sweep), p.Budget(wire.Interactive))
	}
}

func TestCommandsToRun(t *testing.T) {
	p := policy.Active(config(t, `{"checks":{"z":{"argv":["z"],"required":true,"callSites":["interactive"]},"a":{"argv":["a"]},"m":{"argv":["m"],"callSites":["gate"]}}}`), nil, false)
	for _, c := range []struct {
		site  wire.CallSite
		named []string
		want  string
	}{
		{wire.Interactive, nil, "z a"},
		{wire.Interactive, []string{"a"}, "z a"},
		{wire.Interactive, []string{"m"}, "z m a"},
		{wire.Sweep, nil, "a"},
		{wire.Gate, []string{"z", "z"}, "z a m"},
	} {
		var got []string
		for _, k := range p.Commands(c.site, c.named) {
			got = append(got, k.Name)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s %v: %v, want %s", c.site, c.named, got, c.want)
		}
	}
	d := policy.Decide(p, policy.Question{CallSite: wire.Interactive, Named: []string{"none"}, Results: []checks.Result{{Name: "command/z", Status: checks.Passed}}})
	if d.Decision != wire.Indeterminate {
		t.Errorf("an unknown check by name: %s", d.Decision)
	}
}

func TestVerdictMatchesTheSchema(t *testing.T) {
	schema := publicSchema(t, "verdict.schema.json")
	n, ps := 0, policies{}
	for c := range situations {
		if n++; n%499 != 0 {
			continue
		}
		p, q := ps.situation(t, c)
		d := policy.Decide(p, q)
		at := wire.Baseline{Rev: "tree:sha256:00"}
		v := d.Verdict(policy.Envelope{
			RequestDigest: "sha256:r", ChangesetDigest: "sha256:c", PolicyDigest: p.Digest, ValidAsOf: wire.HostValidAsOf{Rev: at.Rev},
			Assurance: wire.ApplyAssurance{Mode: d.Mode, TransactionGuarantee: wire.GuaranteeNone},
			Receipt: receipt.New(receipt.Draft{Kind: wire.ReceiptEvaluate, Family: wire.Check, CallSite: c.site, Baseline: at,
				PolicyDigest: p.Digest, Coverage: d.Coverage, Authority: d.Evidence}, "1"),
		})
		b, err := canon.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if err := conforms(t, schema, b); err != nil {
			t.Fatalf("%s\n%v", b, err)
		}
	}
}

func TestForeignTextIsBounded(t *testing.T) {
	p, q := situation(t, truth{site: wire.Interactive, source: "floor", a: checks.Failed, aReq: true, b: checks.Passed, demand: "none", digestOK: true})
	for i := range q.Results {
		if q.Results[i].Name != "command/a" {
			continue
		}
		q.Results[i].Findings = nil
		for j := range 1000 {
			q.Results[i].Findings = append(q.Results[i].Findings, checks.Finding{Code: "x", Message: strings.Repeat("\xff\u00e9", 5000), Path: fmt.Sprint(j), NextStep: strings.Repeat("n", 9999)})
		}
	}
	d := policy.Decide(p, q)
	if len(d.Findings) != 200 {
		t.Errorf("%d findings", len(d.Findings))
	}
	prints := map[string]bool{}
	for _, f := range d.Findings {
		if m := f.Diagnostic.Message; len(m) > 4000 || !utf8.ValidString(m) {
			t.Errorf("message of %d bytes", len(m))
		}
		if f.Diagnostic.Code != "command/a:x" || f.NextStepOrigin != wire.StepFromServer {
			t.Errorf("%s %s", f.Diagnostic.Code, f.NextStepOrigin)
		}
		prints[f.Diagnostic.Fingerprint] = true
	}
	if len(prints) != 200 {
		t.Errorf("%d fingerprints", len(prints))
	}
}
