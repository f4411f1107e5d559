package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/wire"
)

func hostileRequirements() []requirement {
	return []requirement{
		{"HOSTILE-MALFORMED-INITIALIZE", "a handshake outside its shape never counts", hostileInitialize},
		{"HOSTILE-MALFORMED-ASSESSMENT", "broken JSON, broken shapes and broken streams never count", hostileAssessment},
		{"HOSTILE-FORGED-HOST-FIELDS", "a host-owned key at every depth is malformed", hostileForged},
		{"HOSTILE-STALE-ASSESSMENT", "an assessment bound to other content never counts", staleAssessments},
		{"HOSTILE-MISSING-REQUIRED-PROVIDER", "a required provider that is not there keeps a gate closed", missingProvider},
		{"HOSTILE-OPTIONAL-DEGRADED-PROVIDER", "an optional provider that fails is visible and takes nothing away", hostileOptional},
		{"HOSTILE-UNSUPPORTED-REQUIRED-CAPABILITY", "unsupported is shown as such and keeps a gate closed", hostileUnsupported},
		{"HOSTILE-INCOMPLETE-REQUIRED-COVERAGE", "less than was asked is incomplete, whatever the status says", hostileIncomplete},
		{"HOSTILE-PROVIDER-ERROR", "errors of every class, and of none, keep a gate closed", hostileErrors},
		{"HOSTILE-CANCELLED-PROVIDER-REQUEST", "a cancelled assessment does not count; a cancelled request says so", hostileCancelled},
		{"HOSTILE-SLOW-PROVIDER-TIMEOUT", "a provider over its budget is timed out, and the host goes on", hostileSlow},
		{"HOSTILE-PROVIDER-CRASH", "a crash before, during or after an answer is seen and survived", hostileCrash},
		{"HOSTILE-QUARANTINED-PROVIDER", "a provider that keeps failing is quarantined", quarantine},
		{"HOSTILE-MISSING-AUTHORITY", "a pin that does not match gives nothing", missingAuthority},
		{"HOSTILE-INSUFFICIENT-ASSURANCE", "assurance that cannot be established is not claimed", insufficientAssurance},
		{"HOSTILE-POLICY-SELF-AUTHORIZATION", "a change cannot approve itself by changing the policy", hostilePolicy},
		{"HOSTILE-DIRECT-WRITE-RISK", "a provider that asks for, or tries, direct writes does not count", hostileWrite},
		{"HOSTILE-COMMAND-LIKE-EDIT-OUTPUT", "a plan that carries something to execute is refused", hostileCommand},
		{"HOSTILE-NO-OPCORE-FAST-PATH", "no name is special, and providers have no host methods", func(ctx context.Context, t *trial) error { return noFastPath(ctx, t, "opcore") }},
	}
}

func hostileInitialize(ctx context.Context, t *trial) error {
	hows := []string{"not-json", "null", "array", "empty", "no-families", "empty-families", "unknown-family", "unknown-member", "host-field", "number-version",
		"no-check-block", "noise-at-start", "crash-at-start", "crash", "exit"}
	t.rng.Shuffle(len(hows), func(i, j int) { hows[i], hows[j] = hows[j], hows[i] })
	// One provider for each, so that none is in quarantine for another's faults;
	// one requirement each, so that each has its own cause.
	var su setup
	var needs []demand
	var ids []string
	for i, how := range hows {
		p := checker(fmt.Sprintf("p%d", i))
		p.Initialize = how
		su.providers = append(su.providers, p)
		id := "need-" + how
		needs, ids = append(needs, t.checkNeed(id, t.pinOf(p))), append(ids, id)
	}
	su.policy = everywhere(needs, ids, nil)
	s, err := t.open(ctx, su)
	if err != nil {
		return err
	}
	e, err := s.evaluate(ctx, wire.Gate)
	if err != nil {
		return err
	}
	for i, how := range hows {
		// What is not there is a crash; everything else breaks the contract. The host
		// may take a stream that ends in the middle for either.
		reasons := []wire.DegradeReason{wire.DegradeMalformed, wire.DegradeIncompatible, wire.DegradeSkewed}
		if how == "crash-at-start" || how == "crash" || how == "exit" {
			reasons = []wire.DegradeReason{wire.DegradeCrashed, wire.DegradeUnavailable, wire.DegradeIncompatible}
		}
		t.withheld(e, ids[i], reasons...)
	}
	return nil
}

// brokenStreams are answers that are no messages, or the wrong number of them.
func brokenStreams() []string {
	return []string{"noise", "null-line", "array-line", "object-line", "unknown-id", "twice-late", "duplicate-key", "case-key", "lone-surrogate",
		"invalid-utf8", "float-integer", "deep", "result-and-error"}
}

func hostileAssessment(ctx context.Context, t *trial) error {
	s, err := t.open(ctx, t.oneCheck(checker("one")))
	if err != nil {
		return err
	}
	hows := append(malformedShapes(), "foreign-code", "foreign-path", "escaping-path", "wrong-introduced")
	t.rng.Shuffle(len(hows), func(i, j int) { hows[i], hows[j] = hows[j], hows[i] })
	if err := s.malformedOnes(ctx, hows); err != nil {
		return err
	}
	for _, how := range append(brokenStreams(), "over-limit", "endless") {
		e, err := s.evaluate(ctx, wire.Gate, "one="+how)
		if err != nil {
			return err
		}
		if how == "twice-late" {
			t.withheld(e, checked) // the first answer, or the breach
		} else {
			t.withheld(e, checked, wire.DegradeMalformed)
		}
		if err := s.recovered(ctx, how); err != nil {
			return err
		}
	}
	return nil
}

// recovered judges that the provider counts again after what it did. What comes
// late, a second answer or an exit, may cost it one more request: the host cannot
// tell in time which one it belongs to.
func (s *session) recovered(ctx context.Context, after string) error {
	e, err := s.evaluate(ctx, wire.Gate, "one=ok")
	if err == nil && e.Decision != wire.Allow {
		e, err = s.evaluate(ctx, wire.Gate, "one=ok")
	}
	if err != nil {
		return err
	}
	e.step += ", after " + after
	s.t.allowed(e)
	return nil
}

func hostileForged(ctx context.Context, t *trial) error {
	s, err := t.open(ctx, t.oneCheck(checker("one")))
	if err != nil {
		return err
	}
	var hows []string
	for _, depth := range []string{"forge-top", "forge-evidence", "forge-fix"} {
		for _, k := range hostOwned() {
			hows = append(hows, depth+"!"+k)
		}
	}
	t.rng.Shuffle(len(hows), func(i, j int) { hows[i], hows[j] = hows[j], hows[i] })
	return s.malformedOnes(ctx, hows[:24])
}

func hostileOptional(ctx context.Context, t *trial) error {
	one, extra := checker("one"), checker("extra")
	s, err := t.open(ctx, setup{providers: []enrolled{one, extra},
		policy: everywhere([]demand{t.checkNeed(checked, t.pinOf(one)), t.checkNeed("nice", t.pinOf(extra))}, []string{checked}, []string{"nice"})})
	if err != nil {
		return err
	}
	for _, how := range []string{"ok", "crash", "ok", "missing-member", "ok", "unsupported", "ok", "forge-top!decision"} {
		e, err := s.evaluate(ctx, wire.Gate, "one=ok", "extra="+how)
		if err != nil {
			return err
		}
		t.allowed(e)
		t.judge(slices.Equal(e.Coverage.Required, []string{checked}), "%s: required %q", e.step, e.Coverage.Required)
		if how == "ok" {
			continue
		}
		t.judge(slices.ContainsFunc(e.Coverage.Degraded, func(d wire.Degradation) bool { return d.Source == "extra" || d.Requirement == "nice" }),
			"%s: the optional provider failed and it is not shown", e.step)
		t.judge(!slices.Contains(e.Coverage.Ran, "nice"), "%s: ran holds the optional requirement", e.step)
		t.judge(slices.Contains(e.Coverage.Ran, checked), "%s: ran lacks the required one", e.step)
	}
	e, err := s.evaluate(ctx, wire.Gate, "one=crash", "extra=ok")
	if err != nil {
		return err
	}
	t.withheld(e, checked)
	return nil
}

func hostileUnsupported(ctx context.Context, t *trial) error {
	s, err := t.open(ctx, t.oneCheck(checker("one")))
	if err != nil {
		return err
	}
	if err := s.each(ctx, []string{"unsupported"}, wire.Gate, []string{"ok"}, wire.DegradeUnsupported); err != nil {
		return err
	}
	e, err := s.evaluate(ctx, wire.Gate, "one=status-error")
	if err != nil {
		return err
	}
	d := t.degraded(e.Verdict, checked)
	t.judge(d == nil || d.Reason != wire.DegradeUnsupported, "%s: an error is shown as unsupported", e.step)
	s.finish()
	// A requirement on a family that its provider does not have.
	p := editor("one")
	s, err = t.open(ctx, setup{providers: []enrolled{p}, policy: everywhere([]demand{t.checkNeed(checked, t.pinOf(p))}, []string{checked}, nil)})
	if err != nil {
		return err
	}
	if e, err = s.evaluate(ctx, wire.Gate); err != nil {
		return err
	}
	e.step += ", from a provider of another family"
	t.withheld(e, checked, wire.DegradeUnsupported, wire.DegradeMissingRequiredProvider, wire.DegradeMissingAuthority, wire.DegradeIncompatible)
	return nil
}

func hostileIncomplete(ctx context.Context, t *trial) error {
	s, err := t.open(ctx, t.oneCheck(checker("one")))
	if err != nil {
		return err
	}
	if err := s.each(ctx, []string{"incomplete"}, wire.Gate, []string{"ok"}, wire.DegradeIncomplete); err != nil {
		return err
	}
	hows := []string{"covered-less", "not-exhaustive", "truncated", "degraded-complete", "other-requested"}
	return s.each(ctx, hows, wire.Gate, []string{"ok"}, wire.DegradeIncomplete, wire.DegradeMalformed)
}

func hostileErrors(ctx context.Context, t *trial) error {
	s, err := t.open(ctx, t.oneCheck(checker("one")))
	if err != nil {
		return err
	}
	for _, how := range []string{"error!health", "error!contract", "error!policy", "error!input", "error!untyped", "error!unknown", "status-error"} {
		for _, site := range []wire.CallSite{wire.Gate, wire.Interactive} {
			if _, err := s.evaluate(ctx, wire.Gate, "one=ok"); err != nil {
				return err
			}
			e, err := s.evaluate(ctx, site, "one="+how)
			if err != nil {
				return err
			}
			if site == wire.Interactive && how == "error!health" {
				t.allowed(e)
				t.judge(t.degraded(e.Verdict, checked) != nil, "%s: opened without showing it", e.step)
				continue
			}
			if site == wire.Interactive && how == "status-error" {
				continue // an assessment says nothing of its class
			}
			t.withheld(e, checked)
			d := t.degraded(e.Verdict, checked)
			t.judge(d == nil || d.Reason != wire.DegradeUnsupported, "%s: an error is shown as unsupported", e.step)
		}
	}
	return nil
}

func hostileCancelled(ctx context.Context, t *trial) error {
	s, err := t.open(ctx, t.oneCheck(checker("one")))
	if err != nil {
		return err
	}
	if err := s.each(ctx, []string{"cancelled", "error!cancelled"}, wire.Gate, []string{"ok"}, wire.DegradeCancelled, wire.DegradeError, wire.DegradeUnavailable); err != nil {
		return err
	}
	// The harness cancels.
	cs, err := s.candidate(ctx, "one=slow")
	if err != nil {
		return err
	}
	q, err := s.ask("host/evaluateChangeset", object(member("callSite", "gate"), member("changeset", cs)))
	if err != nil {
		return err
	}
	if err := s.notify("$/cancelRequest", object(member("id", q.id))); err != nil {
		return err
	}
	a, err := s.wait(ctx, q)
	if err != nil {
		return err
	}
	t.show("cancel a running evaluation", request(a), errorValue(orEmpty(a.err)))
	t.judge(a.err != nil && a.err.Code == wire.CodeCancelled, "a cancelled request is not answered by %d", wire.CodeCancelled)
	e, err := s.evaluate(ctx, wire.Gate, "one=ok")
	if err != nil {
		return err
	}
	e.step += ", after a cancelled request"
	t.allowed(e)
	return nil
}

func orEmpty(e *wire.Error) *wire.Error {
	if e == nil {
		return &wire.Error{Message: "no error"}
	}
	return e
}

// shortBudget is what slow providers are given, in milliseconds, and slack how
// much later the answer may still come: the provider has to be told, and then
// to be killed.
const (
	shortBudget = 400
	slack       = 20 * time.Second
)

func hostileSlow(ctx context.Context, t *trial) error {
	s, err := t.open(ctx, t.oneCheck(checker("one")))
	if err != nil {
		return err
	}
	budget := []canon.Member{member("timeoutMs", shortBudget)}
	for _, how := range []string{"slow", "hang"} {
		for _, site := range []wire.CallSite{wire.Gate, wire.Interactive} {
			// Warm, so that the budget is the provider's alone.
			e, err := s.evaluate(ctx, wire.Gate, "one=ok")
			if err != nil {
				return err
			}
			t.allowed(e)
			if e, err = s.evaluateWith(ctx, site, budget, "one="+how); err != nil {
				return err
			}
			t.judge(e.answer.at < shortBudget*time.Millisecond+slack, "%s: answered much later than its budget", e.step)
			if site == wire.Interactive {
				t.allowed(e)
				t.judge(t.degraded(e.Verdict, checked) != nil, "%s: opened without showing it", e.step)
				continue
			}
			t.withheld(e, checked, wire.DegradeTimedOut)
		}
	}
	for _, how := range []string{"callbacks", "flood"} {
		if _, err := s.evaluate(ctx, wire.Gate, "one=ok"); err != nil {
			return err
		}
		e, err := s.evaluateWith(ctx, wire.Gate, []canon.Member{member("timeoutMs", 5000)}, "one="+how)
		if err != nil {
			return err
		}
		if how == "callbacks" {
			t.withheld(e, checked)
		} else {
			t.allowed(e) // notifications are noise, and no fault
		}
	}
	return nil
}

func hostileCrash(ctx context.Context, t *trial) error {
	s, err := t.open(ctx, t.oneCheck(checker("one")))
	if err != nil {
		return err
	}
	for _, how := range []string{"crash-at-once", "crash", "half-and-exit", "no-newline", "exit-after", "children"} {
		e, err := s.evaluate(ctx, wire.Gate, "one="+how)
		if err != nil {
			return err
		}
		switch how {
		case "exit-after", "children":
			// The answer was complete. What came after is the host's to clear up, and it
			// may count it against the provider.
		case "half-and-exit", "no-newline":
			t.withheld(e, checked, wire.DegradeCrashed, wire.DegradeMalformed, wire.DegradeUnavailable)
		default:
			t.withheld(e, checked, wire.DegradeCrashed, wire.DegradeUnavailable)
			t.judge(e.answer.at < slack, "%s: a crash was noticed only by waiting", e.step)
		}
		if err := s.recovered(ctx, how); err != nil {
			return err
		}
	}
	s.finish()
	// Those that do not want to end are ended with the host.
	one, two := checker("one"), checker("two")
	one.End, two.End = "ignore-eof", "ignore-term"
	if s, err = t.open(ctx, setup{providers: []enrolled{one, two},
		policy: everywhere([]demand{t.checkNeed(checked, t.pinOf(one)), t.checkNeed("too", t.pinOf(two))}, []string{checked, "too"}, nil)}); err != nil {
		return err
	}
	e, err := s.evaluate(ctx, wire.Gate, "one=ok", "two=children")
	if err != nil {
		return err
	}
	t.allowed(e)
	return nil
}

func hostilePolicy(ctx context.Context, t *trial) error {
	p := checker("one")
	su := t.oneCheck(p)
	s, err := t.open(ctx, su)
	if err != nil {
		return err
	}
	old := s.w.read(".asp/asp.json")
	weaker := *su.policy
	weaker.gate = gateList{}
	granting := *su.policy
	ghost := t.pinOf(checker("ghost"))
	granting.needs = append(slices.Clone(granting.needs), t.checkNeed("more", ghost))
	stronger := *su.policy
	stronger.budgetMs = longBudget / 2
	for _, c := range []struct {
		name   string
		text   string
		closed bool
	}{
		{"drops the gate", string(weaker.value().Bytes()), true},
		{"pins another provider", string(granting.value().Bytes()), true},
		{"is no policy", "{}\n", true},
		{"only tightens", string(stronger.value().Bytes()), false},
	} {
		after, err := s.upload(ctx, c.text)
		if err != nil {
			return err
		}
		cs, err := s.changeset(ctx, object(member("path", ".asp/asp.json"), member("kind", "modify"), member("before", blobID(old)), member("after", after)))
		if err != nil {
			return err
		}
		e, err := s.evaluateSet(ctx, wire.Gate, cs, nil, "a candidate whose policy "+c.name)
		if err != nil {
			return err
		}
		t.judge(slices.Equal(e.Coverage.Required, []string{checked}), "%s: judged by required %q, not by the base policy", e.step, e.Coverage.Required)
		if c.closed {
			t.judge(e.Decision == wire.Indeterminate && hasReason(e.Verdict, wire.DegradePolicySelfAuthorization), "%s: %s, %s", e.step, e.Decision, causes(e.Verdict))
		} else {
			t.allowed(e)
		}
	}
	return nil
}

func hostileWrite(ctx context.Context, t *trial) error {
	p := checker("one")
	p.Initialize = "asks-write"
	s, err := t.open(ctx, t.oneCheck(p))
	if err != nil {
		return err
	}
	e, err := s.evaluate(ctx, wire.Gate, "one=ok")
	if err != nil {
		return err
	}
	t.withheld(e, checked, wire.DegradeDirectWriteRisk)
	s.finish()
	return t.attacked(ctx)
}

// attacked lets a provider try to write, and holds what it achieved against what
// the host claims.
func (t *trial) attacked(ctx context.Context) error {
	p := checker("one")
	p.Target = "set by the world"
	s, before, err := t.begin(ctx, t.oneCheck(p))
	if err != nil {
		return err
	}
	e, err := s.evaluate(ctx, wire.Gate, "one=attack")
	if err != nil {
		return err
	}
	changed, err := s.w.changedSince(before)
	if err != nil {
		return err
	}
	if e.Assurance.Mode.Rank() >= wire.MediatedWrite.Rank() {
		t.judge(len(changed) == 0, "claims %s, and the provider changed %q", e.Assurance.Mode, changed)
	}
	// Where nothing held the provider back, its writes moved the workspace under
	// the evaluation, and nothing may be allowed on what is not there any more.
	if len(changed) > 0 {
		t.judge(e.Decision != wire.Allow || e.Assurance.Mode.Rank() < wire.MediatedWrite.Rank(), "allowed while the provider wrote")
		return nil
	}
	if t.judge(len(e.Findings) == 1, "%s: no report of the attack: %s", e.step, causes(e.Verdict)) {
		m := e.Findings[0].Diagnostic.Message
		if e.Assurance.Mode.Rank() >= wire.MediatedWrite.Rank() {
			for _, what := range []string{"write-new", "write-existing", "write-git"} {
				t.judge(strings.Contains(m, what+" denied"), "claims %s, and: %s", e.Assurance.Mode, m)
			}
		}
		if e.Assurance.Mode == wire.Isolated {
			t.judge(strings.Contains(m, "read-secret denied"), "claims isolated, and: %s", m)
		}
	}
	return nil
}

func hostileCommand(ctx context.Context, t *trial) error { return commandLike(ctx, t) }
