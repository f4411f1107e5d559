package conformance

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/wire"
)

// checked is the requirement id that most worlds use.
const checked = "checked"

// oneCheck is a world with one pinned check provider that every call-site
// requires.
func (t *trial) oneCheck(p enrolled) setup {
	return setup{providers: []enrolled{p}, policy: everywhere([]demand{t.checkNeed(checked, t.pinOf(p))}, []string{checked}, nil)}
}

func coreRequirements() []requirement {
	return []requirement{
		{"CORE-HOST-STATUS", "host/status tells readiness, policy, servers, gates and assurance, and launches nothing", coreStatus},
		{"CORE-HOST-CAPABILITIES", "host/capabilities is the composed surface, never the raw union", coreCapabilities},
		{"CORE-HOST-EVALUATE", "host/evaluateChangeset runs what is required and decides", coreEvaluate},
		{"CORE-CHECK-ASSESSMENT", "an acceptable assessment counts, with its source overwritten; one outside its bounds does not", coreAssessment},
		{"CORE-CHECK-CONFIGURATION", "the configured settings reach the provider, and a pinned configDigest holds", coreConfiguration},
		{"CORE-PROVIDER-FORBIDDEN-FIELDS", "a host-owned key at any depth makes an assessment malformed", forbiddenFields},
		{"CORE-STALE-VALID-AS-OF", "an assessment of other content than the host served is stale", staleAssessments},
		{"CORE-MISSING-REQUIRED-PROVIDER", "a required provider that is not there keeps a gate closed, visibly", missingProvider},
		{"CORE-MISSING-AUTHORITY", "a provider without a matching pin satisfies nothing", missingAuthority},
		{"CORE-INSUFFICIENT-ASSURANCE", "a requirement on assurance that cannot be established keeps a gate closed", insufficientAssurance},
		{"CORE-PROVIDER-QUARANTINED", "three failures in a row quarantine a provider until reset, across restarts", quarantine},
		{"CORE-PROVIDER-SKEWED", "a provider of another protocol or version never counts", skewed},
		{"CORE-HOST-INITIALIZE-CONTRACT-REFUSAL", "an initialize error of any class means incompatible, and is closed everywhere", initializeRefusal},
		{"CORE-PROVIDER-FAIL-OPEN", "health opens on interactive, visibly, and never on a gate", failOpen},
		{"CORE-MALFORMED-REQUIRED-PROVIDER", "a malformed assessment is degraded coverage, closed everywhere", malformedProvider},
		{"CORE-REQUIRED-COVERAGE-VISIBLE", "every requirement stands in ran or degraded, in verdict and receipt alike", coverageVisible},
		{"CORE-HOST-DECISION-AUTHORITATIVE", "findings without authority inform and neither block nor satisfy", decisionAuthoritative},
		{"CORE-NO-LATTICE-FAST-PATH", "no name is special, and providers have no host methods", func(ctx context.Context, t *trial) error { return noFastPath(ctx, t, "lattice") }},
	}
}

func coreStatus(ctx context.Context, t *trial) error {
	p := checker("one")
	su := t.oneCheck(p)
	su.files = map[string]string{".gitignore": ".asp/local.json\n"}
	s, err := t.open(ctx, su)
	if err != nil {
		return err
	}
	if err := s.w.write(".asp/local.json", "{}\n"); err != nil {
		return err
	}
	before, err := s.w.mark()
	if err != nil {
		return err
	}
	var st wire.StatusResult
	params := object()
	v, err := s.result(ctx, "first line of the session", "host/status", params, &st, []string{"host"}, []string{"workspace"}, []string{"policy"},
		[]string{"servers"}, []string{"gates"}, []string{"assuranceCapabilities"})
	if err != nil {
		return err
	}
	s.w.t.run.named(v)
	t.judge(st.Host.State == "ready" || st.Host.State == "degraded", "host.state %q", st.Host.State)
	t.judge(st.Host.BindingCandidate == "json-rpc-stdio", "bindingCandidate %q", st.Host.BindingCandidate)
	t.judge(st.Policy.Activation == "active" && st.Policy.PolicyDigest != "" && st.Policy.Source != "builtin-default", "policy %+v", st.Policy)
	t.judge(st.Policy.LocalOverride != nil && st.Policy.LocalOverride.Present && st.Policy.LocalOverride.AuthorityEffect == "none", "localOverride %+v", st.Policy.LocalOverride)
	t.judge(len(st.AssuranceCapabilities) > 0, "no assurance mode is available")
	t.judge(st.Workspace.Baseline.Rev != "", "no baseline")
	i := slices.IndexFunc(st.Servers, func(x wire.ServerStatus) bool { return x.ID == p.ID })
	if t.judge(i >= 0, "the enrolled provider is not among the servers") {
		x := st.Servers[i]
		t.judge(x.State == "installed", "state %q before the first use, want installed", x.State)
		t.judge(x.CapabilityStates.Check.Advertised && !x.CapabilityStates.Edit.Advertised, "per-family health %+v", x.CapabilityStates)
		t.judge(slices.Contains(x.RequiredFor, wire.Gate), "requiredFor %q lacks gate", x.RequiredFor)
		t.judge(x.EnrollmentState == "enrolled", "enrollmentState %q", x.EnrollmentState)
	}
	t.judge(slices.Contains(st.Gates.Gate.RequiredProviders, p.ID), "gates.gate.requiredProviders %q lacks %s", st.Gates.Gate.RequiredProviders, p.ID)
	t.judge(len(s.w.leftovers()) == 0, "host/status launched a provider")
	t.receipt("status", st.Receipt, wire.ReceiptStatus, requestDigest("host/status", params))
	t.untouched(s.w, before, "after host/status")
	_, err = s.result(ctx, "with a call-site", "host/status", object(member("callSite", "gate")), &st, []string{"receipt", "callSite"})
	return err
}

// receipt judges what every receipt holds.
func (t *trial) receipt(step string, r wire.AuditReceipt, kind wire.ReceiptKind, digest string) {
	t.judge(r.Kind == kind, "%s: receipt kind %s, want %s", step, r.Kind, kind)
	t.judge(digest == "" || r.RequestDigest == digest, "%s: the receipt's requestDigest is not the request's", step)
	t.judge(r.ReceiptID != "" && r.PolicyDigest != "" && r.Baseline.Rev != "" && r.ValidAsOf.Rev != "", "%s: the receipt lacks id, policy, baseline or freshness", step)
	t.judge(slices.Equal(r.Coverage.Enrolled, r.Coverage.Required), "%s: the receipt's enrolled is not its required", step)
	t.judge(len(r.Coverage.Degraded) == 0 || !r.Coverage.Exhaustive, "%s: the receipt is exhaustive although degraded", step)
}

func coreCapabilities(ctx context.Context, t *trial) error {
	one, spare := checker("one"), editor("spare")
	spare.mode = "added"
	su := t.oneCheck(one)
	su.providers = append(su.providers, spare)
	s, err := t.open(ctx, su)
	if err != nil {
		return err
	}
	var c wire.CapabilitiesResult
	params := object()
	if _, err := s.result(ctx, "the surface", "host/capabilities", params, &c, []string{"capabilities"}, []string{"coverage"}); err != nil {
		return err
	}
	t.judge(c.Capabilities.Check.Available && slices.Contains(c.Capabilities.Check.Providers, one.ID), "check is not available from %s: %+v", one.ID, c.Capabilities.Check)
	t.judge(!c.Capabilities.Edit.Available && !slices.Contains(c.Capabilities.Edit.Providers, spare.ID), "edit is available though its provider is not enabled here")
	t.judge(!c.Capabilities.Inspect.Available, "inspect is available from nobody")
	t.judge(slices.Equal(c.Coverage.Enrolled, c.Coverage.Required), "enrolled %q, required %q", c.Coverage.Enrolled, c.Coverage.Required)
	t.receipt("capabilities", c.Receipt, wire.ReceiptCapabilities, requestDigest("host/capabilities", params))
	// A provider that fails is not on offer any more.
	for range 3 {
		if _, err := s.evaluate(ctx, wire.Gate, "one=crash"); err != nil {
			return err
		}
	}
	if _, err := s.result(ctx, "the surface with the provider quarantined", "host/capabilities", params, &c, []string{"capabilities", "check"}); err != nil {
		return err
	}
	t.judge(!c.Capabilities.Check.Available && len(c.Capabilities.Check.Degraded) > 0, "check is on offer from a quarantined provider")
	return nil
}

func coreEvaluate(ctx context.Context, t *trial) error {
	s, before, err := t.begin(ctx, t.oneCheck(checker("one")))
	if err != nil {
		return err
	}
	for _, site := range []wire.CallSite{wire.Gate, wire.Interactive, wire.Sweep} {
		e, err := s.evaluate(ctx, site, "one=ok")
		if err != nil {
			return err
		}
		t.allowed(e)
		t.judge(slices.Equal(e.Coverage.Required, []string{checked}) && slices.Equal(e.Coverage.Ran, []string{checked}) && e.Coverage.Exhaustive,
			"%s: coverage %+v", e.step, e.Coverage)
		t.judge(len(e.AuthorityEvidence) > 0 && e.AuthorityEvidence[0].Authority.Granted && e.AuthorityEvidence[0].Identity == publisher, "%s: authority evidence %+v", e.step, e.AuthorityEvidence)
		t.judge(slices.Contains(e.Receipt.ProviderIDs, "one"), "%s: the receipt names providers %q", e.step, e.Receipt.ProviderIDs)
		t.judge(len(e.ValidAsOf.Blobs) > 0, "%s: validAsOf names no content although the provider read some", e.step)
	}
	e, err := s.evaluate(ctx, wire.Gate, "one=find")
	if err != nil {
		return err
	}
	t.denied(e, checked)
	if err := refusedChangesets(ctx, s); err != nil {
		return err
	}
	t.untouched(s.w, before, "after evaluations")
	return nil
}

// refusedChangesets sends what is no changeset on this workspace.
func refusedChangesets(ctx context.Context, s *session) error {
	good, err := s.candidate(ctx, "one=ok")
	if err != nil {
		return err
	}
	t, id := s.t, text(at(good, "changes").At(0), "after")
	change := func(kind, path string, more ...canon.Member) canon.Value {
		return object(append([]canon.Member{member("path", path), member("kind", kind)}, more...)...)
	}
	for _, c := range []struct {
		name    string
		changes []canon.Value
	}{
		{"an unknown after", []canon.Value{change("create", "x.txt", member("after", "blob:sha256:"+t.hexID()))}},
		{"a wrong before", []canon.Value{change("modify", "src/a.txt", member("before", blobID("other")), member("after", id))}},
		{"a doubled destination", []canon.Value{change("create", "x.txt", member("after", id)), change("create", "x.txt", member("after", id))}},
		{"a path outside", []canon.Value{change("create", "../x.txt", member("after", id))}},
		{"a path into .git", []canon.Value{change("create", ".git/hooks/x", member("after", id))}},
	} {
		e, err := s.fails(ctx, c.name, "host/evaluateChangeset", object(member("callSite", "gate"), member("changeset", put(good, c.changes, "changes"))))
		if err != nil {
			return err
		}
		if e != nil {
			want := wire.CodeInvalidInput
			if c.name == "an unknown after" {
				want = wire.CodeBlobUnavailable
			}
			t.judge(e.Code == want, "%s: error %d, want %d", c.name, e.Code, want)
		}
	}
	e, err := s.evaluateSet(ctx, wire.Gate, put(good, "git:tree:"+strings.Repeat("0", 40), "baseline", "rev"), nil, "a foreign baseline")
	if err != nil {
		return err
	}
	t.judge(e.Decision == wire.Indeterminate && hasReason(e.Verdict, wire.DegradeStaleBaseline), "a foreign baseline: %s, %s", e.Decision, causes(e.Verdict))
	e, err = s.evaluateSet(ctx, wire.Gate, good, []canon.Member{member("basePolicyDigest", "sha256:"+t.hexID())}, "another policy than the active one")
	if err != nil {
		return err
	}
	t.judge(e.Decision == wire.Indeterminate && hasReason(e.Verdict, wire.DegradeIncompatible), "another policy: %s, %s", e.Decision, causes(e.Verdict))
	_, err = s.fails(ctx, "a member that there is not", "host/evaluateChangeset", object(member("callSite", "gate"), member("changeset", good), member("force", true)))
	return err
}

func hasReason(v wire.Verdict, reasons ...wire.DegradeReason) bool {
	return slices.ContainsFunc(v.Coverage.Degraded, func(d wire.Degradation) bool { return slices.Contains(reasons, d.Reason) })
}

func coreAssessment(ctx context.Context, t *trial) error {
	s, err := t.open(ctx, t.oneCheck(checker("one")))
	if err != nil {
		return err
	}
	e, err := s.evaluate(ctx, wire.Gate, "one=warn")
	if err != nil {
		return err
	}
	t.allowed(e)
	if t.judge(len(e.Findings) == 1, "%d findings, want the one", len(e.Findings)) {
		f := e.Findings[0]
		t.judge(f.Diagnostic.Source == "one", "diagnostic.source %q, want the provider's id", f.Diagnostic.Source)
		t.judge(f.Diagnostic.Code == "one/rule" && f.Disposition == wire.AdvisoryFinding, "finding %s is %s", f.Diagnostic.Code, f.Disposition)
	}
	if e, err = s.evaluate(ctx, wire.Gate, "one=duplicates"); err != nil {
		return err
	}
	t.judge(len(e.Findings) == 2, "two findings with one fingerprint became %d: they are a multiset", len(e.Findings))
	if e, err = s.evaluate(ctx, wire.Gate, "one=command-message"); err != nil {
		return err
	}
	t.judge(!strings.Contains(string(e.answer.result.Bytes()), "\x1b"), "an escape character of a provider came through")
	if err := s.malformedOnes(ctx, []string{"foreign-code", "foreign-path", "escaping-path", "wrong-introduced"}); err != nil {
		return err
	}
	return t.callbackScope(ctx)
}

var idPattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`blob:sha256:[0-9a-f]{64}|secret/[a-z]+\.txt`) })

// callbackScope judges what a check provider gets by its callbacks: nothing
// outside of its grant, and no way to tell what is there.
func (t *trial) callbackScope(ctx context.Context) error {
	p := checker("one")
	p.Reads = []string{"src/**", "do/**"}
	s, err := t.open(ctx, t.oneCheck(p))
	if err != nil {
		return err
	}
	for _, how := range []string{"read-outside", "list-outside", "put-blob", "escaping-paths", "read-nonsense"} {
		e, err := s.evaluate(ctx, wire.Gate, "one="+how)
		if err != nil {
			return err
		}
		if len(e.Findings) != 1 {
			// To ask for nonsense may cost a provider its request.
			t.judge(e.Decision != wire.Allow, "%s: no report and yet allow", e.step)
			continue
		}
		answers := strings.Split(idPattern().ReplaceAllString(e.Findings[0].Diagnostic.Message, "IT"), "; ")
		for _, a := range answers {
			t.judge(!strings.Contains(a, "served") && (strings.Contains(a, ": error ") || strings.Contains(a, ": 0 entries")), "%s: %s", e.step, a)
			t.judge(how != "read-outside" && how != "put-blob" || strings.Contains(a, "error -32012 policy"), "%s: refused otherwise than as policy: %s", e.step, a)
		}
		t.judge(how != "read-outside" && how != "list-outside" || len(answers) == 2 && answers[0] == answers[1],
			"%s: the answer tells what is there from what is not: %q", e.step, answers)
	}
	return nil
}

// malformedOnes judges that each behaviour is degraded as malformed on a gate. A
// good request between keeps the provider out of quarantine.
func (s *session) malformedOnes(ctx context.Context, hows []string) error {
	return s.each(ctx, hows, wire.Gate, []string{"ok"}, wire.DegradeMalformed)
}

// each judges that every behaviour is withheld for one of the reasons, with a
// good request before each.
func (s *session) each(ctx context.Context, hows []string, site wire.CallSite, between []string, reasons ...wire.DegradeReason) error {
	for i, how := range hows {
		if len(between) > 0 && i%2 == 0 {
			e, err := s.evaluate(ctx, site, "one="+between[0])
			if err != nil {
				return err
			}
			s.t.allowed(e)
		}
		e, err := s.evaluate(ctx, site, "one="+how)
		if err != nil {
			return err
		}
		s.t.withheld(e, checked, reasons...)
	}
	return nil
}

func coreConfiguration(ctx context.Context, t *trial) error {
	config := object(member("level", "strict"), member("max", 3))
	provider := object(member("configuration", config), member("configDigest", canon.DigestText(config)), member("rules", []string{"one/rule"}), member("diagnosticSources", []string{"one"}))
	su := t.oneCheck(checker("one"))
	su.config = object(member("providers", object(member("one", provider))))
	s, err := t.open(ctx, su)
	if err != nil {
		return err
	}
	e, err := s.evaluate(ctx, wire.Gate, "one=say-configuration")
	if err != nil {
		return err
	}
	t.allowed(e)
	t.judge(len(e.Findings) == 1 && e.Findings[0].Diagnostic.Message == string(config.Bytes()), "the provider was not given the configuration: %+v", e.Findings)
	if e, err = s.evaluate(ctx, wire.Gate, "one=other-config"); err != nil {
		return err
	}
	t.withheld(e, checked)
	su.config = object(member("providers", object(member("one", put(provider, "sha256:"+t.hexID(), "configDigest")))))
	if s, err = t.open(ctx, su); err != nil {
		return err
	}
	if e, err = s.evaluate(ctx, wire.Gate, "one=ok"); err != nil {
		return err
	}
	t.withheld(e, checked)
	return nil
}

func forbiddenFields(ctx context.Context, t *trial) error {
	s, err := t.open(ctx, t.oneCheck(checker("one")))
	if err != nil {
		return err
	}
	var hows []string
	for _, k := range hostOwned() {
		hows = append(hows, []string{"forge-top", "forge-evidence", "forge-fix"}[t.rng.IntN(3)]+"!"+k)
	}
	t.rng.Shuffle(len(hows), func(i, j int) { hows[i], hows[j] = hows[j], hows[i] })
	return s.malformedOnes(ctx, hows)
}

func staleAssessments(ctx context.Context, t *trial) error {
	s, err := t.open(ctx, t.oneCheck(checker("one")))
	if err != nil {
		return err
	}
	hows := []string{"stale-baseline", "stale-digest", "blobs-missing", "blobs-foreign"}
	if err := s.each(ctx, hows, wire.Gate, []string{"ok"}, wire.DegradeStale); err != nil {
		return err
	}
	return s.each(ctx, []string{"blobs-twice"}, wire.Gate, []string{"ok"}, wire.DegradeStale, wire.DegradeMalformed)
}
