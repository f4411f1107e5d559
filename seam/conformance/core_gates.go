package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aspengine/asp/seam/wire"
)

func missingProvider(ctx context.Context, t *trial) error {
	ghost := checker("ghost")
	s, err := t.open(ctx, setup{policy: everywhere([]demand{t.checkNeed(checked, t.pinOf(ghost))}, []string{checked}, nil)})
	if err != nil {
		return err
	}
	e, err := s.evaluate(ctx, wire.Gate)
	if err != nil {
		return err
	}
	t.withheld(e, checked, wire.DegradeMissingRequiredProvider)
	t.judge(e.Decision == wire.Indeterminate, "%s: %s, want indeterminate", e.step, e.Decision)
	var st wire.StatusResult
	if _, err := s.result(ctx, "status", "host/status", object(), &st, []string{"gates", "gate"}); err != nil {
		return err
	}
	t.judge(!st.Gates.Gate.Available && len(st.Gates.Gate.Degraded) > 0, "the gate is available without its provider: %+v", st.Gates.Gate)
	// No policy at all: a gate has nothing to allow by.
	if s, err = t.open(ctx, setup{}); err != nil {
		return err
	}
	if e, err = s.evaluate(ctx, wire.Gate); err != nil {
		return err
	}
	t.judge(e.Decision == wire.Indeterminate && hasReason(e.Verdict, wire.DegradeMissing), "a gate without policy: %s, %s", e.Decision, causes(e.Verdict))
	if e, err = s.evaluate(ctx, wire.Interactive); err != nil {
		return err
	}
	t.allowed(e)
	// A policy of a repository that nobody enrolled is not one.
	p := checker("one")
	su := t.oneCheck(p)
	su.stranger = true
	if s, err = t.open(ctx, su); err != nil {
		return err
	}
	if e, err = s.evaluate(ctx, wire.Gate, "one=ok"); err != nil {
		return err
	}
	t.judge(e.Decision == wire.Indeterminate, "a gate of a repository that is not enrolled: %s", e.Decision)
	return nil
}

func missingAuthority(ctx context.Context, t *trial) error {
	p := checker("one")
	good := t.pinOf(p)
	for _, c := range []struct {
		name string
		pin  pin
	}{
		{"identity", pin{good.id, good.version, "somebody else", good.integrity, good.conformance}},
		{"integrity", pin{good.id, good.version, good.identity, "sha256:" + t.hexID(), good.conformance}},
		{"conformance", pin{good.id, good.version, good.identity, good.integrity, "another-profile"}},
		{"version", pin{good.id, "2.0.0", good.identity, good.integrity, good.conformance}},
	} {
		s, err := t.open(ctx, setup{providers: []enrolled{p}, policy: everywhere([]demand{t.checkNeed(checked, c.pin)}, []string{checked}, nil)})
		if err != nil {
			return err
		}
		e, err := s.evaluate(ctx, wire.Gate, "one=ok")
		if err != nil {
			return err
		}
		e.step += ", pin differs in " + c.name
		reasons := []wire.DegradeReason{wire.DegradeMissingAuthority}
		if c.name == "version" {
			reasons = append(reasons, wire.DegradeSkewed, wire.DegradeIncompatible)
		}
		t.withheld(e, checked, reasons...)
		t.judge(!slices.ContainsFunc(e.AuthorityEvidence, func(a wire.AuthorityEvidence) bool { return a.Authority.Granted }), "%s: authority is granted", e.step)
		var as wire.AuthorityStatusResult
		if _, err := s.result(ctx, "authority", "host/authority/status", object(), &as, []string{"providers"}, []string{"policyActivation"}); err != nil {
			return err
		}
		t.judge(!slices.ContainsFunc(as.Providers, func(x wire.ServerStatus) bool { return x.ID == p.ID && x.AuthorityEvidence.Authority.Granted }), "%s: host/authority/status grants it", e.step)
		s.finish()
	}
	p.mode = "advisory"
	s, err := t.open(ctx, t.oneCheck(p))
	if err != nil {
		return err
	}
	e, err := s.evaluate(ctx, wire.Gate, "one=ok")
	if err != nil {
		return err
	}
	e.step += ", enrolled as advisory"
	t.withheld(e, checked, wire.DegradeMissingAuthority, wire.DegradeInsufficientAssurance)
	return nil
}

func insufficientAssurance(ctx context.Context, t *trial) error {
	p := checker("one")
	for _, mode := range []string{"mediated-write", "isolated"} {
		su := t.oneCheck(p)
		su.policy.needs[0].assurance = []string{mode}
		su.noSandbox = true
		s, err := t.open(ctx, su)
		if err != nil {
			return err
		}
		e, err := s.evaluate(ctx, wire.Gate, "one=ok")
		if err != nil {
			return err
		}
		e.step += ", " + mode + " required and no sandbox to be had"
		t.withheld(e, checked, wire.DegradeInsufficientAssurance, wire.DegradeUnsupportedAssurance)
		t.judge(e.Assurance.Mode.Rank() < wire.MediatedWrite.Rank(), "%s: claims %s", e.step, e.Assurance.Mode)
		s.finish()
	}
	su := t.oneCheck(p)
	su.noSandbox = true
	s, err := t.open(ctx, su)
	if err != nil {
		return err
	}
	e, err := s.evaluate(ctx, wire.Gate, "one=ok")
	if err != nil {
		return err
	}
	e.step += ", gated required and no sandbox to be had"
	t.bare(e)
	return nil
}

func quarantine(ctx context.Context, t *trial) error {
	s, err := t.open(ctx, t.oneCheck(checker("one")))
	if err != nil {
		return err
	}
	hows := []string{"one=crash", "one=missing-member", "one=half-and-exit"}
	for _, how := range hows {
		e, err := s.evaluate(ctx, wire.Gate, how)
		if err != nil {
			return err
		}
		t.withheld(e, checked, wire.DegradeCrashed, wire.DegradeMalformed, wire.DegradeUnavailable)
	}
	after := func(s *session, when string) error {
		e, err := s.evaluate(ctx, wire.Gate, "one=ok")
		if err != nil {
			return err
		}
		e.step += ", " + when
		t.withheld(e, checked, wire.DegradeQuarantined)
		var st wire.StatusResult
		if _, err := s.result(ctx, "status "+when, "host/status", object(), &st, []string{"servers"}); err != nil {
			return err
		}
		t.judge(slices.ContainsFunc(st.Servers, func(x wire.ServerStatus) bool {
			return x.ID == "one" && x.State == "quarantined" && x.LifecycleState == wire.Quarantined
		}),
			"%s: host/status does not say quarantined", when)
		return nil
	}
	if err := after(s, "after three failures"); err != nil {
		return err
	}
	w := s.w
	s.finish()
	if s, err = w.serve(); err != nil {
		return err
	}
	if err := after(s, "after a restart of the host"); err != nil {
		return err
	}
	s.finish()
	if err := w.must(ctx, "server", "reset", "one", "--repo", w.root); err != nil {
		return fmt.Errorf("end the quarantine: %w", err)
	}
	if s, err = w.serve(); err != nil {
		return err
	}
	e, err := s.evaluate(ctx, wire.Gate, "one=ok")
	if err != nil {
		return err
	}
	e.step += ", after a reset"
	t.allowed(e)
	return nil
}

func skewed(ctx context.Context, t *trial) error {
	future := checker("one")
	future.protocols = []string{"asp/9.0"}
	server, capability := checker("one"), checker("one")
	server.Initialize, capability.Initialize = "skewed-server", "skewed-capability"
	for _, c := range []struct {
		name string
		p    enrolled
	}{{"a protocol that nobody speaks", future}, {"serverInfo.version is not the manifest's", server}, {"a capability version that nobody knows", capability}} {
		s, err := t.open(ctx, t.oneCheck(c.p))
		if err != nil {
			return err
		}
		for _, site := range []wire.CallSite{wire.Gate, wire.Interactive} {
			e, err := s.evaluate(ctx, site, "one=ok")
			if err != nil {
				return err
			}
			e.step += ", " + c.name
			t.withheld(e, checked, wire.DegradeSkewed, wire.DegradeIncompatible, wire.DegradeMalformed, wire.DegradeMissingAuthority)
		}
		s.finish()
	}
	return nil
}

func initializeRefusal(ctx context.Context, t *trial) error {
	for _, how := range []string{"refuse-contract", "refuse-input", "refuse-health", "refuse-untyped"} {
		p := checker("one")
		p.Initialize = how
		s, err := t.open(ctx, t.oneCheck(p))
		if err != nil {
			return err
		}
		for _, site := range []wire.CallSite{wire.Gate, wire.Interactive} {
			e, err := s.evaluate(ctx, site, "one=ok")
			if err != nil {
				return err
			}
			e.step += ", initialize: " + how
			t.withheld(e, checked, wire.DegradeIncompatible, wire.DegradeSkewed)
			d := t.degraded(e.Verdict, checked)
			t.judge(d == nil || d.ProviderState == wire.Incompatible, "%s: providerState is not incompatible", e.step)
		}
		s.finish()
	}
	return nil
}

func failOpen(ctx context.Context, t *trial) error {
	s, err := t.open(ctx, t.oneCheck(checker("one")))
	if err != nil {
		return err
	}
	for i, how := range []string{"crash", "ok", "error!health", "ok", "half-and-exit"} {
		if how == "ok" {
			if _, err := s.evaluate(ctx, wire.Gate, "one=ok"); err != nil {
				return err
			}
			continue
		}
		e, err := s.evaluate(ctx, wire.Gate, "one="+how)
		if err != nil {
			return err
		}
		t.withheld(e, checked)
		if how == "half-and-exit" {
			break // a cut message is as much a breach of contract as a crash
		}
		if e, err = s.evaluate(ctx, wire.Interactive, "one="+how); err != nil {
			return err
		}
		t.allowed(e)
		t.judge(t.degraded(e.Verdict, checked) != nil && !e.Coverage.Exhaustive, "%s: opened without showing it: %s", e.step, causes(e.Verdict))
		_ = i
	}
	for _, how := range []string{"error!contract", "error!policy", "error!input", "error!untyped", "missing-member"} {
		if _, err := s.evaluate(ctx, wire.Interactive, "one=ok"); err != nil {
			return err
		}
		e, err := s.evaluate(ctx, wire.Interactive, "one="+how)
		if err != nil {
			return err
		}
		t.withheld(e, checked)
	}
	return nil
}

// malformedShapes are assessments outside their shape.
func malformedShapes() []string {
	return []string{"unknown-member", "missing-member", "bad-status", "null-member", "null-result", "empty-result", "list-result", "bad-severity",
		"other-provider", "other-version", "other-family"}
}

func malformedProvider(ctx context.Context, t *trial) error {
	s, err := t.open(ctx, t.oneCheck(checker("one")))
	if err != nil {
		return err
	}
	if err := s.malformedOnes(ctx, malformedShapes()); err != nil {
		return err
	}
	e, err := s.evaluate(ctx, wire.Interactive, "one=ok")
	if err != nil {
		return err
	}
	t.allowed(e)
	if e, err = s.evaluate(ctx, wire.Interactive, "one=missing-member"); err != nil {
		return err
	}
	t.withheld(e, checked, wire.DegradeMalformed)
	return nil
}

func coverageVisible(ctx context.Context, t *trial) error {
	one, two := checker("one"), checker("two")
	s, err := t.open(ctx, setup{providers: []enrolled{one, two},
		policy: everywhere([]demand{t.checkNeed("first", t.pinOf(one)), t.checkNeed("second", t.pinOf(two))}, []string{"first", "second"}, nil)})
	if err != nil {
		return err
	}
	for _, c := range []struct{ one, two, bad string }{{"ok", "ok", ""}, {"ok", "crash", "second"}, {"incomplete", "ok", "first"}} {
		e, err := s.evaluate(ctx, wire.Gate, "one="+c.one, "two="+c.two)
		if err != nil {
			return err
		}
		t.judge(slices.Equal(sorted(e.Coverage.Required), []string{"first", "second"}), "%s: required %q", e.step, e.Coverage.Required)
		if c.bad == "" {
			t.allowed(e)
			t.judge(e.Coverage.Exhaustive, "%s: not exhaustive", e.step)
			continue
		}
		t.withheld(e, c.bad)
		t.judge(len(e.Coverage.Ran) == 1 && e.Coverage.Ran[0] != c.bad, "%s: ran %q", e.step, e.Coverage.Ran)
	}
	return nil
}

func sorted(list []string) []string {
	list = slices.Clone(list)
	slices.Sort(list)
	return list
}

func decisionAuthoritative(ctx context.Context, t *trial) error {
	one, guest := checker("one"), checker("guest")
	guest.mode = "advisory"
	s, err := t.open(ctx, setup{providers: []enrolled{one, guest}, policy: everywhere([]demand{t.checkNeed(checked, t.pinOf(one))}, []string{checked}, nil)})
	if err != nil {
		return err
	}
	e, err := s.evaluate(ctx, wire.Gate, "one=ok", "guest=find")
	if err != nil {
		return err
	}
	t.allowed(e)
	t.judge(!slices.ContainsFunc(e.Findings, func(f wire.Finding) bool { return f.Diagnostic.Source == "guest" && f.Disposition == wire.Gating }),
		"%s: a provider without authority blocks", e.step)
	for _, f := range e.Findings {
		t.judge(f.Diagnostic.Source != "guest" || !f.Authority.Authority.Granted, "%s: a finding of a guest bears authority", e.step)
	}
	if e, err = s.evaluate(ctx, wire.Gate, "one=crash", "guest=ok"); err != nil {
		return err
	}
	t.withheld(e, checked)
	if e, err = s.evaluate(ctx, wire.Gate, "one=find", "guest=ok"); err != nil {
		return err
	}
	t.denied(e, checked)
	return nil
}

// noFastPath judges that a provider of that name is one like any other.
func noFastPath(ctx context.Context, t *trial, name string) error {
	p := checker(name)
	s, err := t.open(ctx, setup{providers: []enrolled{p}, policy: everywhere([]demand{t.checkNeed(checked, t.pinOf(checker("one")))}, []string{checked}, nil)})
	if err != nil {
		return err
	}
	e, err := s.evaluate(ctx, wire.Gate, name+"=ok")
	if err != nil {
		return err
	}
	t.withheld(e, checked)
	for _, method := range []string{"check/evaluate", "judge/evaluate", "edit/propose", "initialize"} {
		e, err := s.fails(ctx, "ask the host for "+method, method, object())
		if err != nil {
			return err
		}
		t.judge(e == nil || e.Code == wire.CodeMethodNotFound, "%s on the outer seam: not method-not-found", method)
	}
	s.finish()
	if s, err = t.open(ctx, t.oneCheck(p)); err != nil {
		return err
	}
	if e, err = s.evaluate(ctx, wire.Gate, name+"=host-methods"); err != nil {
		return err
	}
	for _, f := range e.Findings {
		t.judge(strings.Count(f.Diagnostic.Message, "error") == 3, "%s: a provider got through with a host method: %s", e.step, f.Diagnostic.Message)
	}
	// Asking may cost a provider its request; if it does not, the report must be there.
	t.judge(len(e.Findings) == 1 || e.Decision != wire.Allow, "%s: no report and yet allow", e.step)
	return nil
}
