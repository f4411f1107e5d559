package policy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/aspengine/asp/checks"
	"github.com/aspengine/asp/checks/policy"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/receipt"
	"github.com/aspengine/asp/seam/wire"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// good is a provider that fulfils the pin of requirement "secrets".
func good(id string) checks.Result {
	return checks.Result{Name: checks.ProviderPrefix + id, Status: checks.Passed, Isolation: checks.Gated, Evidence: "launched alone.",
		Provided: checks.Provided{Comparison: "introduced", Provider: &checks.Participant{
			ID: id, Version: "1.2", Publisher: "acme", Fingerprint: "sha256:f", Profiles: []string{"other", "core"}, Families: []wire.Family{wire.Check},
			ServerVersion: "1.2", Mode: wire.Gated, Verified: true, State: wire.Active,
		}}}
}

func diagnostic(severity wire.Severity, introduced bool) wire.Diagnostic {
	return wire.Diagnostic{Code: "secrets/key", Severity: severity, Source: "secrets", Message: "a key", Fingerprint: "sha256:1",
		Introduced: &introduced, Location: wire.Location{Path: "a.txt", Range: &wire.Range{Start: wire.Position{Line: 4}}}}
}

// class is what the contract makes of a behaviour.
type class int

const (
	counts class = iota // complete, fresh, authorized, nothing blocks
	blocks              // the same, with a gating finding
	health              // opens on interactive, never for an apply
	closed              // never opens
)

// behaviour is one way in which a provider can behave.
type behaviour struct {
	name   string
	class  class
	reason wire.DegradeReason // on a required requirement
	do     func(r *checks.Result)
}

// behaviours lists them with what the contract says, sections 6, 9 and 11.
func behaviours() []behaviour {
	status := func(s checks.Status) func(*checks.Result) {
		return func(r *checks.Result) { r.Status, r.Detail = s, "because" }
	}
	failed := func(f func(r *checks.Result)) func(*checks.Result) {
		return func(r *checks.Result) {
			r.Status, r.Diagnostics = checks.Failed, []wire.Diagnostic{diagnostic(wire.SeverityError, true)}
			f(r)
		}
	}
	class := func(c wire.FailClass) func(*checks.Result) {
		return func(r *checks.Result) { r.Status, r.FailClass, r.Detail = checks.Errored, c, "because" }
	}
	as := func(s checks.Status, reason wire.DegradeReason) func(*checks.Result) {
		return func(r *checks.Result) { r.Status, r.Reason, r.Detail = s, reason, "because" }
	}
	return []behaviour{
		{"clean", counts, "", func(*checks.Result) {}},
		{"isolated", counts, "", func(r *checks.Result) { r.Isolation = checks.Isolated }},
		{"only a warning", counts, "", func(r *checks.Result) {
			r.Diagnostics = []wire.Diagnostic{diagnostic(wire.SeverityWarning, true), diagnostic(wire.SeverityInfo, true)}
		}},
		{"an error that was there before", counts, "", failed(func(r *checks.Result) { r.Diagnostics = []wire.Diagnostic{diagnostic(wire.SeverityError, false)} })},
		{"a finding that the change resolves", counts, "", failed(func(r *checks.Result) { r.Comparison = "resolved" })},
		{"a finding", blocks, wire.DegradeBlockingDiagnostic, failed(func(*checks.Result) {})},
		{"a finding with help", blocks, wire.DegradeBlockingDiagnostic, failed(func(r *checks.Result) { r.Diagnostics[0].Help = "take it out" })},
		{"a finding with a fix", blocks, wire.DegradeBlockingDiagnostic, failed(func(r *checks.Result) { r.Diagnostics[0].Fix = &wire.Fix{EditRef: "replace/text"} })},
		{"all findings asked for", blocks, wire.DegradeBlockingDiagnostic, failed(func(r *checks.Result) {
			r.Comparison, r.Diagnostics = "all", []wire.Diagnostic{diagnostic(wire.SeverityError, false)}
		})},
		{"a finding under the status passed", blocks, wire.DegradeBlockingDiagnostic, failed(func(r *checks.Result) { r.Status = checks.Passed })},

		{"not there", closed, wire.DegradeMissingRequiredProvider, nil},
		{"not enrolled", closed, wire.DegradeMissingRequiredProvider, status(checks.Missing)},
		{"not enabled", closed, wire.DegradeMissingAuthority, func(r *checks.Result) { r.Provider.Mode = "" }},
		{"enabled as advisory", closed, wire.DegradeMissingAuthority, failed(func(r *checks.Result) { r.Provider.Mode = wire.Advisory })},
		{"another version", closed, wire.DegradeMissingAuthority, func(r *checks.Result) { r.Provider.Version, r.Provider.ServerVersion = "1.3", "1.3" }},
		{"another publisher", closed, wire.DegradeMissingAuthority, failed(func(r *checks.Result) { r.Provider.Publisher = "acme2" })},
		{"another artifact", closed, wire.DegradeMissingAuthority, func(r *checks.Result) { r.Provider.Fingerprint = "sha256:e" }},
		{"no such conformance", closed, wire.DegradeMissingAuthority, func(r *checks.Result) { r.Provider.Profiles = []string{"cor", "core2"} }},
		{"no conformance at all", closed, wire.DegradeMissingAuthority, func(r *checks.Result) { r.Provider.Profiles = nil }},
		{"not verified", closed, wire.DegradeMissingAuthority, func(r *checks.Result) { r.Provider.Verified = false }},
		{"checksums differ", closed, wire.DegradeMissingAuthority, as(checks.Unavailable, wire.DegradeMissingAuthority)},
		{"says another version", closed, wire.DegradeSkewed, func(r *checks.Result) { r.Provider.ServerVersion = "1.3" }},
		{"another configuration", closed, wire.DegradeSkewed, func(r *checks.Result) { r.Provider.PinnedConfig, r.Provider.ConfigDigest = "sha256:a", "sha256:b" }},
		{"no check family", closed, wire.DegradeUnsupported, func(r *checks.Result) { r.Provider.Families = []wire.Family{wire.Edit} }},
		{"too little isolation", closed, wire.DegradeInsufficientAssurance, failed(func(r *checks.Result) { r.Isolation = checks.Advisory })},
		{"may write", closed, wire.DegradeDirectWriteRisk, failed(func(r *checks.Result) { r.Provider.DirectWrite = true })},
		{"a fast path", closed, wire.DegradeLatticeFastPath, func(r *checks.Result) { r.Provider.FastPath = "host/evaluateChangeset" }},
		{"failed without a finding", closed, wire.DegradeError, status(checks.Failed)},

		{"crashed", health, wire.DegradeCrashed, status(checks.Crashed)},
		{"timed out", health, wire.DegradeTimedOut, status(checks.TimedOut)},
		{"unavailable", health, wire.DegradeUnavailable, status(checks.Unavailable)},
		{"quarantined", health, wire.DegradeQuarantined, status(checks.Quarantined)},
		{"quarantined before it was ever verified", health, wire.DegradeQuarantined, func(r *checks.Result) {
			r.Status, r.Provider.Verified, r.Provider.ServerVersion, r.Isolation = checks.Quarantined, false, "", checks.Advisory
		}},
		{"an error of health", health, wire.DegradeError, class(wire.FailHealth)},
		{"an error of contract", closed, wire.DegradeError, class(wire.FailContract)},
		{"an error of policy", closed, wire.DegradeError, class(wire.FailPolicy)},
		{"an error of input", closed, wire.DegradeError, class(wire.FailInput)},
		{"an error without class", closed, wire.DegradeError, class("")},
		{"an error of no known class", closed, wire.DegradeError, class("Health")},
		{"an error called unavailable", health, wire.DegradeUnavailable, as(checks.Errored, wire.DegradeUnavailable)},

		{"malformed", closed, wire.DegradeMalformed, status(checks.Malformed)},
		{"malformed with findings", closed, wire.DegradeMalformed, failed(status(checks.Malformed))},
		{"incompatible", closed, wire.DegradeIncompatible, status(checks.Incompatible)},
		{"skewed", closed, wire.DegradeSkewed, status(checks.Skewed)},
		{"unsupported", closed, wire.DegradeUnsupported, status(checks.Unsupported)},
		{"incomplete", closed, wire.DegradeIncomplete, failed(status(checks.Incomplete))},
		{"cancelled", closed, wire.DegradeCancelled, status(checks.Cancelled)},
		{"stale", closed, wire.DegradeStale, status(checks.Stale)},
		{"another baseline", closed, wire.DegradeStaleBaseline, as(checks.Stale, wire.DegradeStaleBaseline)},
		{"no status", closed, wire.DegradeError, status(checks.StatusInvalid)},
	}
}

func (b behaviour) results(id string) []checks.Result {
	if b.do == nil {
		return nil
	}
	r := good(id)
	b.do(&r)
	return []checks.Result{r}
}

// secretsPolicy requires "secrets" of one of the providers on every call-site,
// or asks for it, or defines it only.
func secretsPolicy(role string, ids ...string) string {
	var pins []string
	for _, id := range ids {
		pins = append(pins, fmt.Sprintf(`{"id":%q,"version":"1.2","identity":"acme","integrity":"sha256:f","conformance":"core"}`, id))
	}
	gate := map[string]string{"required": `{"requiredRequirements":["secrets"],"optionalRequirements":[]}`,
		"optional": `{"requiredRequirements":[],"optionalRequirements":["secrets"]}`, "unasked": `{"requiredRequirements":[],"optionalRequirements":[]}`}[role]
	return strings.NewReplacer("GATE", gate, "PINS", strings.Join(pins, ",")).Replace(`{"aspVersion":"asp/1.0",
 "requirements":[{"id":"secrets","capabilities":["check"],"assurance":["gated","isolated"],"authority":{"providers":[PINS]}}],
 "gates":{"interactive":GATE,"gate":GATE,"sweep":GATE},
 "policy":{"authorityModel":"explicit-pinned-provider","policyChangeActivation":"base-policy-two-phase","candidatePolicyAuthority":"trusted-base-or-organization-floor",
  "missingHost":{"interactive":"warn-open","gate":"fail-closed","sweep":"fail-closed"}}}`)
}

// combination is one row of the matrix.
type combination struct {
	b    behaviour
	site wire.CallSite
	role string // required, optional, unasked
	form string // where the policy comes from
	app  bool
}

var forms = []string{"none", "repository", "floor", "both", "rejected", "rejected with floor", "candidate"}

func combinations(yield func(combination) bool) {
	for _, b := range behaviours() {
		for _, site := range []wire.CallSite{wire.Interactive, wire.Gate, wire.Sweep} {
			for _, role := range []string{"required", "optional", "unasked"} {
				for _, form := range forms {
					for _, app := range []bool{false, true} {
						if !yield(combination{b, site, role, form, app}) {
							return
						}
					}
				}
			}
		}
	}
}

func (c combination) ask(t *testing.T, made map[string]policy.Policy) (policy.Policy, policy.Question) {
	t.Helper()
	key := c.role + "/" + c.form
	p, ok := made[key]
	if !ok {
		text := secretsPolicy(c.role, "p")
		cfg, committed := `{}`, []byte(text)
		switch c.form {
		case "none":
			committed = nil
		case "floor":
			cfg, committed = `{"floor":`+text+`}`, nil
		case "both":
			cfg = `{"floor":` + text + `}`
		case "rejected":
			committed = []byte(`{"aspVersion":"asp/1.0"}`)
		case "rejected with floor":
			cfg, committed = `{"floor":`+text+`}`, []byte(`{}`)
		}
		p = policy.Active(config(t, cfg), committed, true)
		made[key] = p
	}
	q := policy.Question{CallSite: c.site, Apply: c.app, Results: c.b.results("p")}
	if c.form == "candidate" {
		g, bad := p.Candidate(nil)
		if !bad {
			t.Fatal("taking the policy away weakens nothing")
		}
		q.Candidate = &g
	}
	return p, q
}

// rule is the contract's rule once more, sentence by sentence and without regard
// to speed or elegance. It shares no code with Decide.
func (c combination) rule() (d wire.Decision, required, ran, failOpen bool) {
	asked := c.role != "unasked" && c.form != "none" && c.form != "rejected"
	required = asked && c.role == "required"
	complete := c.b.class == counts || c.b.class == blocks
	ran = asked && complete

	// "Neither there: requires nothing on interactive and sweep and makes gate
	// indeterminate."
	if c.form == "none" && c.site == wire.Gate {
		return wire.Indeterminate, required, ran, false
	}
	// "A committed policy outside its schema: rejected, and gates are
	// indeterminate." And a transaction is never let through by one.
	rejected := c.form == "rejected" || c.form == "rejected with floor"
	void := rejected && (c.site == wire.Gate || c.app)
	// "One that would authorize, lower or weaken anything: indeterminate on a gate."
	void = void || c.form == "candidate" && c.site == wire.Gate
	// "Health opens on interactive, never on gate"; "an apply never fails open".
	opens := required && c.b.class == health && c.site == wire.Interactive && !c.app
	switch {
	case void:
		return wire.Indeterminate, required, ran, opens
	case !required: // "advisory or non-authorized findings do not block a gate by themselves"
		return wire.Allow, required, ran, false
	case c.b.class == blocks:
		return wire.Deny, required, ran, false
	case c.b.class == counts || opens:
		return wire.Allow, required, ran, opens
	}
	return wire.Indeterminate, required, ran, false
}

func TestProviderMatrix(t *testing.T) {
	n, seen, made := 0, map[wire.Decision]int{}, map[string]policy.Policy{}
	for c := range combinations {
		n++
		p, q := c.ask(t, made)
		got := policy.Decide(p, q)
		want, required, ran, failOpen := c.rule()
		where := fmt.Sprintf("%s, %s, %s, policy %s, apply %v", c.b.name, c.site, c.role, c.form, c.app)
		if got.Decision != want || slices.Contains(got.Coverage.Required, "secrets") != required || slices.Contains(got.Coverage.Ran, "secrets") != ran {
			t.Fatalf("%s: %s, want %s (required %v, ran %v)\n%+v", where, got.Decision, want, required, ran, got.Coverage)
		}
		seen[want]++
		coverageHolds(t, where, got)
		reasons := map[wire.DegradeReason]wire.Degradation{}
		for _, g := range got.Coverage.Degraded {
			if g.Requirement == "secrets" {
				reasons[g.Reason] = g
			}
		}
		switch {
		case failOpen:
			if g := reasons[wire.DegradeFailOpen]; !strings.HasPrefix(g.Detail, string(c.b.reason)+": ") {
				t.Fatalf("%s: opened without saying why: %+v", where, got.Coverage.Degraded)
			}
		case required && c.b.reason != "":
			if g, ok := reasons[c.b.reason]; !ok || g.Source != "p" || g.Capability != wire.Check || g.Detail == "" {
				t.Fatalf("%s: no cause %s of p: %+v", where, c.b.reason, got.Coverage.Degraded)
			}
		case !required && len(reasons) > 0 && (len(reasons) != 1 || reasons[wire.DegradeOptionalDegraded].Detail == ""):
			t.Fatalf("%s: what is optional is degraded as %v", where, reasons)
		}
		// No gate, and no apply, lets anything through that is required and not
		// known to be good. The good behaviours are named here and nowhere else.
		known := []string{"clean", "isolated", "only a warning", "an error that was there before", "a finding that the change resolves"}
		if got.Decision == wire.Allow && required && (c.site == wire.Gate || c.app) && !slices.Contains(known, c.b.name) {
			t.Fatalf("%s: allowed", where)
		}
	}
	if n < 500 || len(seen) != 3 {
		t.Errorf("%d combinations, decisions %v", n, seen)
	}
	t.Logf("%d combinations: %v", n, seen)
}

// coverageHolds are the demands on every decision, whatever it is.
func coverageHolds(t *testing.T, where string, d policy.Decision) {
	t.Helper()
	cov := d.Coverage
	if !slices.Equal(cov.Required, cov.Enrolled) || cov.Exhaustive != (len(cov.Degraded) == 0) || !slices.Equal(cov.Degraded, d.Failures) {
		t.Fatalf("%s: %+v", where, cov)
	}
	for _, id := range cov.Required {
		other, any := false, false
		for _, g := range cov.Degraded {
			if g.Requirement == id {
				any = true
				other = other || g.Reason != wire.DegradeBlockingDiagnostic && g.Reason != wire.DegradeOptionalDegraded
			}
		}
		if ran := slices.Contains(cov.Ran, id); ran && other || !ran && !any {
			t.Fatalf("%s: %s ran %v: %+v", where, id, ran, cov.Degraded)
		}
	}
	gates := 0
	for _, f := range d.Findings {
		if err := f.Check(); err != nil {
			t.Fatalf("%s: %v", where, err)
		}
		if f.Disposition == wire.Gating {
			gates++
			if !f.Authority.Authority.Granted || f.Diagnostic.Severity != wire.SeverityError {
				t.Fatalf("%s: it gates without authority: %+v", where, f)
			}
		} else if f.Diagnostic.Severity == wire.SeverityError && f.SeverityNote == "" {
			t.Fatalf("%s: an error does not block and nobody says why", where)
		}
	}
	if d.Decision == wire.Deny && gates == 0 || d.Decision == wire.Allow && gates > 0 {
		t.Fatalf("%s: %s with %d gating findings", where, d.Decision, gates)
	}
}

func TestProviderVerdictsMatchTheSchema(t *testing.T) {
	schema := publicSchema(t, "verdict.schema.json")
	n, made := 0, map[string]policy.Policy{}
	for c := range combinations {
		if n++; n%37 == 0 {
			p, q := c.ask(t, made)
			verdictConforms(t, schema, p, policy.Decide(p, q))
		}
	}
}

func verdictConforms(t *testing.T, schema *jsonschema.Schema, p policy.Policy, d policy.Decision) {
	t.Helper()
	at := wire.Baseline{Rev: "tree:sha256:00"}
	v := d.Verdict(policy.Envelope{
		RequestDigest: "sha256:r", ChangesetDigest: "sha256:c", PolicyDigest: p.Digest, ValidAsOf: wire.HostValidAsOf{Rev: at.Rev},
		Assurance: wire.ApplyAssurance{Mode: d.Mode, TransactionGuarantee: wire.GuaranteeNone},
		Receipt: receipt.New(receipt.Draft{Kind: wire.ReceiptEvaluate, Family: wire.Check, CallSite: d.CallSite, Baseline: at,
			PolicyDigest: p.Digest, Coverage: d.Coverage, Authority: d.Evidence, Providers: d.Provenance}, "1"),
	})
	b, err := canon.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if err := conforms(t, schema, b); err != nil {
		t.Fatalf("%s\n%v", b, err)
	}
}

// Two pins for one requirement: every pair of behaviours. One that counts is
// enough, a finding of either that counts blocks, and an alternative that nobody
// enabled neither helps nor closes.
func TestOfSeveralPinsOneIsEnough(t *testing.T) {
	p := policy.Active(config(t, `{}`), []byte(secretsPolicy("required", "p", "q")), true)
	n := 0
	for _, a := range behaviours() {
		for _, b := range behaviours() {
			for _, site := range []wire.CallSite{wire.Interactive, wire.Gate} {
				n++
				d := policy.Decide(p, policy.Question{CallSite: site, Results: append(a.results("p"), b.results("q")...)})
				where := fmt.Sprintf("%s and %s at %s", a.name, b.name, site)
				is := func(c class) bool { return a.class == c || b.class == c }
				absent := func(x behaviour) bool { return x.reason == wire.DegradeMissingRequiredProvider }
				want := wire.Indeterminate
				switch {
				case is(blocks):
					want = wire.Deny
				case is(counts):
					want = wire.Allow
				case site == wire.Interactive && is(health) && (a.class == health || absent(a)) && (b.class == health || absent(b)):
					want = wire.Allow
				}
				if d.Decision != want {
					t.Fatalf("%s: %s, want %s\n%+v", where, d.Decision, want, d.Coverage.Degraded)
				}
				coverageHolds(t, where, d)
				// The one that was not taken is no gap.
				if a.class == counts && absent(b) && !d.Coverage.Exhaustive {
					t.Fatalf("%s: %+v", where, d.Coverage.Degraded)
				}
			}
		}
	}
	t.Logf("%d pairs", n)
}

func TestGatingFindingsSayWhatToDo(t *testing.T) {
	p := policy.Active(config(t, `{}`), []byte(secretsPolicy("required", "p")), true)
	for name, want := range map[string]struct {
		origin wire.StepOrigin
		step   string
	}{
		"a finding":            {wire.StepSynthesized, `Look at "a.txt" line 5`},
		"a finding with help":  {wire.StepFromServer, "take it out"},
		"a finding with a fix": {wire.StepSynthesized, "`asp fix sha256:1`"},
	} {
		i := slices.IndexFunc(behaviours(), func(b behaviour) bool { return b.name == name })
		d := policy.Decide(p, policy.Question{CallSite: wire.Gate, Results: behaviours()[i].results("p")})
		if len(d.Findings) != 1 || d.Findings[0].NextStepOrigin != want.origin || !strings.Contains(d.Findings[0].NextStep, want.step) {
			t.Errorf("%s: %+v", name, d.Findings)
			continue
		}
		f := d.Findings[0]
		if f.Diagnostic.Source != "p" || f.Authority.Authority.Requirement != "secrets" || f.Authority.Conformance != "core" {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// What blocks is never the part that is cut, and that something is cut is said.
func TestManyFindings(t *testing.T) {
	p := policy.Active(config(t, `{}`), []byte(secretsPolicy("required", "p")), true)
	r := good("p")
	for range 500 {
		r.Diagnostics = append(r.Diagnostics, diagnostic(wire.SeverityWarning, true))
	}
	r.Diagnostics = append(r.Diagnostics, diagnostic(wire.SeverityError, true))
	r.Status = checks.Failed
	d := policy.Decide(p, policy.Question{CallSite: wire.Gate, Results: []checks.Result{r}})
	if len(d.Findings) != 200 || d.Findings[0].Disposition != wire.Gating || !strings.Contains(d.Findings[199].SeverityNote, "301 further") {
		t.Errorf("%d findings, first %s, last %q", len(d.Findings), d.Findings[0].Disposition, d.Findings[199].SeverityNote)
	}
}

func TestModeIsTheWeakestOfAllThatTookPart(t *testing.T) {
	cfg := config(t, `{"checks":{"vet":{"argv":["vet"],"required":true}}}`)
	p := policy.Active(cfg, []byte(secretsPolicy("required", "p")), true)
	vet := checks.Result{Name: "command/vet", Status: checks.Passed, Isolation: checks.Isolated}
	strong, weak, down := good("p"), good("q"), good("z")
	strong.Isolation, weak.Isolation = checks.MediatedWrite, checks.Gated
	down.Status, down.Isolation = checks.Quarantined, checks.Advisory
	for _, c := range []struct {
		name string
		rs   []checks.Result
		want wire.Mode
	}{
		{"nothing ran", nil, wire.Advisory},
		{"both", []checks.Result{vet, strong}, wire.MediatedWrite},
		{"a volunteer that could write", []checks.Result{vet, strong, weak}, wire.Gated},
		{"one that was never started", []checks.Result{vet, strong, down}, wire.MediatedWrite},
		{"only volunteers", []checks.Result{weak}, wire.Advisory},
	} {
		if d := policy.Decide(p, policy.Question{CallSite: wire.Gate, Results: c.rs}); d.Mode != c.want {
			t.Errorf("%s: %s, want %s", c.name, d.Mode, c.want)
		}
	}
}

// A requirement on several families is met family by family.
func TestFamilies(t *testing.T) {
	text := strings.Replace(secretsPolicy("required", "p"), `["check"]`, `["check","edit","inspect"]`, 1)
	p := policy.Active(config(t, `{}`), []byte(text), true)
	stand := func(f wire.Family, s checks.Status) checks.Result {
		r := good("p")
		r.Family, r.Status, r.Provider.Families = f, s, []wire.Family{wire.Check, wire.Edit, wire.Inspect}
		return r
	}
	for _, c := range []struct {
		rs   []checks.Result
		want wire.Decision
		gaps string
	}{
		{[]checks.Result{stand("", checks.Passed), stand(wire.Edit, checks.Passed), stand(wire.Inspect, checks.Passed)}, wire.Allow, ""},
		{[]checks.Result{stand("", checks.Passed), stand(wire.Inspect, checks.Passed)}, wire.Indeterminate, "edit:missing-required-provider"},
		{[]checks.Result{stand("", checks.Passed), stand(wire.Edit, checks.Unsupported), stand(wire.Inspect, checks.Crashed)}, wire.Indeterminate, "edit:unsupported inspect:crashed"},
		{[]checks.Result{stand(wire.Edit, checks.Passed), stand(wire.Inspect, checks.Passed)}, wire.Indeterminate, "check:missing-required-provider"},
	} {
		d := policy.Decide(p, policy.Question{CallSite: wire.Gate, Results: c.rs})
		var gaps []string
		for _, g := range d.Coverage.Degraded {
			gaps = append(gaps, string(g.Capability)+":"+string(g.Reason))
		}
		if d.Decision != c.want || strings.Join(gaps, " ") != c.gaps || slices.Contains(d.Coverage.Ran, "secrets") != (c.want == wire.Allow) {
			t.Errorf("%s %v, want %s %s", d.Decision, gaps, c.want, c.gaps)
		}
		coverageHolds(t, c.gaps, d)
	}
}

// The sandbox that config.json demands holds for providers, too.
func TestDemandedSandboxHoldsForProviders(t *testing.T) {
	p := policy.Active(config(t, `{"sandbox":{"require":"isolated"}}`), []byte(secretsPolicy("required", "p")), true)
	r := good("p")
	for i, want := range map[checks.Isolation]wire.Decision{checks.Gated: wire.Indeterminate, checks.MediatedWrite: wire.Indeterminate, checks.Isolated: wire.Allow} {
		r.Isolation = i
		if d := policy.Decide(p, policy.Question{CallSite: wire.Gate, Results: []checks.Result{r}}); d.Decision != want {
			t.Errorf("%s: %s", i, d.Decision)
		}
	}
}

func TestAssign(t *testing.T) {
	text := strings.Replace(secretsPolicy("required", "p", "q"), `"interactive":{"requiredRequirements":["secrets"],"optionalRequirements":[]}`,
		`"interactive":{"requiredRequirements":[],"optionalRequirements":["secrets"]}`, 1)
	p := policy.Active(config(t, `{}`), []byte(text), true)
	known := func(ids ...string) (out []checks.Participant) {
		for _, id := range ids {
			who := *good(id).Provider
			if rest, off := strings.CutPrefix(id, "-"); off {
				who.ID, who.Mode = rest, ""
			}
			out = append(out, who)
		}
		return out
	}
	for _, c := range []struct {
		site  wire.CallSite
		f     wire.Family
		known []checks.Participant
		want  string
	}{
		{wire.Gate, wire.Check, known("x", "q", "p"), "[{p [secrets] true} {q [secrets] true} {x [] false}]"},
		{wire.Interactive, wire.Check, known("x", "q"), "[{q [secrets] false} {x [] false}]"},
		{wire.Gate, wire.Edit, known("x", "q"), "[]"},
		{wire.Gate, wire.Check, known("-p", "-x"), "[]"},
		{wire.Gate, wire.Check, nil, "[]"},
	} {
		if got := fmt.Sprint(p.Assign(c.site, c.f, c.known)); got != c.want {
			t.Errorf("%s %s: %s, want %s", c.site, c.f, got, c.want)
		}
	}
}

func TestEditAuthority(t *testing.T) {
	// Pinned for edit by a requirement that stands in no gate.
	text := strings.Replace(secretsPolicy("unasked", "p"), `["check"]`, `["edit"]`, 1)
	repo := policy.Active(config(t, `{}`), []byte(text), true)
	floor := policy.Active(config(t, `{"floor":`+text+`}`), nil, false)
	strict := policy.Active(config(t, `{"sandbox":{"require":"isolated"}}`), []byte(text), true)
	for _, c := range []struct {
		name   string
		p      policy.Policy
		change func(who *checks.Participant)
		got    checks.Isolation
		want   wire.DegradeReason
	}{
		{"as pinned", repo, nil, checks.Gated, ""},
		{"by the floor", floor, nil, checks.Isolated, ""},
		{"no policy", policy.Active(config(t, `{}`), nil, true), nil, checks.Gated, wire.DegradeMissingAuthority},
		{"pinned for check only", policy.Active(config(t, `{}`), []byte(secretsPolicy("required", "p")), true), nil, checks.Gated, wire.DegradeMissingAuthority},
		{"another id", repo, func(w *checks.Participant) { w.ID = "q" }, checks.Gated, wire.DegradeMissingAuthority},
		{"another version", repo, func(w *checks.Participant) { w.Version = "2" }, checks.Gated, wire.DegradeMissingAuthority},
		{"says another version", repo, func(w *checks.Participant) { w.ServerVersion = "2" }, checks.Gated, wire.DegradeMissingAuthority},
		{"another publisher", repo, func(w *checks.Participant) { w.Publisher = "" }, checks.Gated, wire.DegradeMissingAuthority},
		{"another artifact", repo, func(w *checks.Participant) { w.Fingerprint = "" }, checks.Gated, wire.DegradeMissingAuthority},
		{"no conformance", repo, func(w *checks.Participant) { w.Profiles = nil }, checks.Gated, wire.DegradeMissingAuthority},
		{"advisory", repo, func(w *checks.Participant) { w.Mode = wire.Advisory }, checks.Isolated, wire.DegradeMissingAuthority},
		{"not enabled", repo, func(w *checks.Participant) { w.Mode = "" }, checks.Gated, wire.DegradeMissingAuthority},
		{"not verified", repo, func(w *checks.Participant) { w.Verified = false }, checks.Gated, wire.DegradeMissingAuthority},
		{"a fast path", repo, func(w *checks.Participant) { w.FastPath = "gate" }, checks.Gated, wire.DegradeMissingAuthority},
		{"may write", repo, func(w *checks.Participant) { w.DirectWrite = true }, checks.Isolated, wire.DegradeDirectWriteRisk},
		{"too little isolation", repo, nil, checks.Advisory, wire.DegradeInsufficientAssurance},
		{"less than the sandbox demands", strict, nil, checks.MediatedWrite, wire.DegradeInsufficientAssurance},
	} {
		who := *good("p").Provider
		if c.change != nil {
			c.change(&who)
		}
		ev, no := c.p.EditAuthority(who, c.got)
		if (no == nil) != (c.want == "") || no != nil && (no.Reason != c.want || no.Detail == "" || no.Source != who.ID) {
			t.Errorf("%s: %+v, want %q", c.name, no, c.want)
		}
		if ev.Authority.Granted != (no == nil) || ev.Authority.Granted && (ev.Authority.Requirement != "secrets" || ev.Conformance != "core" || ev.Identity != "acme" || ev.Integrity != "sha256:f") {
			t.Errorf("%s: %+v", c.name, ev)
		}
	}
}

// TestEvidenceOfWhatWasNotMeasured: an artifact without a single checksum has
// authority by the letter of its pin, and is not shown as verified.
func TestEvidenceOfWhatWasNotMeasured(t *testing.T) {
	for _, x := range []struct {
		verified, none bool
		want           string
	}{{true, false, "sha256:aa"}, {false, false, "unverified:sha256:aa"}, {true, true, "unverified:sha256:aa"}} {
		who := checks.Participant{ID: "p", Fingerprint: "sha256:aa", Verified: x.verified, NoChecksums: x.none}
		if got := policy.Evidence(who, checks.Gated).Integrity; got != x.want {
			t.Errorf("%+v: %q", x, got)
		}
	}
}
