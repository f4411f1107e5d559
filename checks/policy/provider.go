package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/aspengine/asp/checks"
	"github.com/aspengine/asp/seam/wire"
)

// mismatch says in what a participant differs from a pin; "" when it does not.
// It compares what the manifest states; that the artifact is the stated one is
// Participant.Verified, which only a launch can tell.
func (pin Pin) mismatch(who checks.Participant) string {
	for _, f := range []struct{ what, want, is string }{
		{"version", pin.Version, who.Version}, {"identity", pin.Identity, who.Publisher}, {"integrity", pin.Integrity, who.Fingerprint},
	} {
		if f.want != f.is {
			return fmt.Sprintf("the policy pins %s %q, the manifest says %q", f.what, clip(f.want, 100), clip(f.is, 100))
		}
	}
	if !slices.Contains(who.Profiles, pin.Conformance) {
		return fmt.Sprintf("the policy pins conformance %q, the manifest claims %q", clip(pin.Conformance, 100), clip(strings.Join(who.Profiles, ", "), 200))
	}
	return ""
}

// standing is what one pin comes to in one family.
type standing struct {
	at       int    // index of the result, -1 without one
	provider string // id
	cause    cause  // reason "" when it counts
	blocks   int    // gating diagnostics
	granted  bool   // the policy gives it authority for the requirement
	weak     string // how its run falls short of the assurance that is asked for
}

// weigh judges the answer of one pinned provider. What forbids to listen at all
// comes first; then who it is, then whether it answered, then how it was run.
func (d *decider) weigh(m Demand, pin Pin, f wire.Family) standing {
	s := standing{at: d.provided(pin.ID, f), provider: pin.ID}
	no := func(reason wire.DegradeReason, format string, a ...any) standing {
		s.cause = cause{reason: reason, state: s.cause.state, detail: fmt.Sprintf(format, a...)}
		return s
	}
	if s.at < 0 {
		return no(wire.DegradeMissingRequiredProvider, "provider %q is not enabled for this repository, or was not asked: see `asp repo enable`", clip(pin.ID, 100))
	}
	r := d.q.Results[s.at]
	who := *r.Provider
	c := causeOf(r)
	s.cause.state = r.State
	if c.reason == wire.DegradeMissingRequiredProvider {
		s.cause = c
		return s
	}
	diff := pin.mismatch(who)
	s.weak = d.tooWeak(m, r)
	s.granted = diff == "" && who.Mode == wire.Gated && who.FastPath == "" && !who.DirectWrite
	switch {
	case who.FastPath != "":
		return no(wire.DegradeLatticeFastPath, "a provider has no path around the host: %s", who.FastPath)
	case who.DirectWrite:
		return no(wire.DegradeDirectWriteRisk, "it asked for, or has, a way to write the workspace without the host")
	case diff != "":
		return no(wire.DegradeMissingAuthority, "%s", diff)
	case who.Mode != wire.Gated:
		return no(wire.DegradeMissingAuthority, "it is enabled as %s: `asp repo enable %s --mode gated` lets it gate", orNone(string(who.Mode)), clip(who.ID, 100))
	case c.reason != "":
		s.cause = c
		return s
	case who.ServerVersion != "" && who.ServerVersion != who.Version:
		return no(wire.DegradeSkewed, "it says that it is version %q, its manifest says %q", clip(who.ServerVersion, 100), clip(who.Version, 100))
	case who.PinnedConfig != "" && who.ConfigDigest != who.PinnedConfig:
		return no(wire.DegradeSkewed, "it ran with configuration %q, config.json pins %q", clip(who.ConfigDigest, 100), clip(who.PinnedConfig, 100))
	case !who.Verified:
		s.granted = false
		return no(wire.DegradeMissingAuthority, "its artifact was not verified at this launch")
	case len(who.Families) > 0 && !slices.Contains(who.Families, f):
		return no(wire.DegradeUnsupported, "it does not offer %s", f)
	}
	if s.weak != "" {
		return no(wire.DegradeInsufficientAssurance, "%s", s.weak)
	}
	errors := 0
	for _, g := range r.Diagnostics {
		if g.Severity == wire.SeverityError {
			errors++
		}
		if gating(g, r.Comparison) == "" {
			s.blocks++
		}
	}
	if r.Status == checks.Failed && errors == 0 {
		return no(wire.DegradeError, "it is said to have failed and shows nothing")
	}
	return s
}

// tooWeak says how a run falls short of the assurance that the requirement and
// the configuration ask for; "" when it does not.
func (d *decider) tooWeak(m Demand, r checks.Result) string {
	got := modeOf(r.Isolation)
	if least := weakest(m.Requirement.Assurance); got.Rank() < least {
		return fmt.Sprintf("the requirement accepts %s, the run established %s. %s", join(m.Requirement.Assurance), got, r.Evidence)
	}
	if got.Rank() < d.p.Config.Sandbox.Require.Rank() {
		return fmt.Sprintf("config.json demands %s, the run established %s. %s", d.p.Config.Sandbox.Require, got, r.Evidence)
	}
	return ""
}

func orNone(s string) string {
	if s == "" {
		return "nothing"
	}
	return s
}

// gating says why a diagnostic of a provider with authority does not block; ""
// when it does. Severity error blocks and nothing else does: warning and info
// are the provider's own statement that one may go on, and a host that raised
// them would make policy out of taste. What the change did not bring does not
// block it either.
func gating(g wire.Diagnostic, comparison string) string {
	switch {
	case g.Severity != wire.SeverityError:
		return "its severity is " + string(g.Severity)
	case comparison == "resolved":
		return "it reports what the change resolves"
	case comparison == "introduced" && g.Introduced != nil && !*g.Introduced:
		return "it was there before the change"
	}
	return ""
}

// provided finds a provider's answer in a family.
func (d *decider) provided(id string, f wire.Family) int {
	return slices.IndexFunc(d.q.Results, func(r checks.Result) bool { return r.Provider != nil && r.Provider.ID == id && familyOf(r) == f })
}

func familyOf(r checks.Result) wire.Family {
	if r.Family == "" {
		return wire.Check
	}
	return r.Family
}

// requirement judges a required requirement of the policy; it tells whether it
// ran to completion in every family.
func (d *decider) requirement(m Demand) bool {
	complete := true
	for _, f := range m.Requirement.Capabilities {
		complete = d.family(m, f) && complete
	}
	return complete
}

// family judges one family of a required requirement. Of several pins one that
// counts is enough; but a finding of any one that counts blocks.
func (d *decider) family(m Demand, f wire.Family) bool {
	all := d.weighAll(m, f)
	met := false
	for _, s := range all {
		if s.cause.reason == "" {
			met = true
			d.gates[s.at] = true
			if s.blocks > 0 {
				d.denied = true
				d.degrade(m, f, s, wire.DegradeBlockingDiagnostic, d.blocking(s))
			}
		}
	}
	if met {
		d.solid = true
		for _, s := range all {
			if s.cause.reason == "" || s.at < 0 {
				continue
			}
			d.explain(s)
			// Those that were asked and failed are shown; another one stood in.
			if d.failed(s) {
				d.degrade(m, f, s, wire.DegradeOptionalDegraded, string(s.cause.reason)+": "+s.cause.detail)
			}
		}
		return true
	}
	opens := d.open()
	health := false
	for _, s := range all {
		// A pin that nobody enabled is an alternative that was not taken; every
		// other cause has to be one of health.
		opens = opens && (s.cause.health || s.cause.reason == wire.DegradeMissingRequiredProvider)
		health = health || s.cause.health
	}
	opens = opens && health
	if !opens {
		d.unmet = true
	}
	for _, s := range all {
		switch {
		case opens && s.cause.health:
			d.degrade(m, f, s, wire.DegradeFailOpen, string(s.cause.reason)+": "+s.cause.detail)
		case opens: // the alternative explains nothing
		default:
			d.degrade(m, f, s, s.cause.reason, s.cause.detail)
			if s.cause.reason == wire.DegradeDirectWriteRisk && s.weak != "" {
				// A launch without a sandbox is both, and each cause has to be seen.
				d.degrade(m, f, s, wire.DegradeInsufficientAssurance, s.weak)
			}
		}
		d.explain(s)
	}
	return false
}

// explain keeps why the findings of an answer that does not count only inform.
func (d *decider) explain(s standing) {
	if s.at >= 0 && d.notes[s.at] == "" {
		d.notes[s.at] = note(s)
	}
}

// note says why findings of an answer that does not count only inform.
func note(s standing) string {
	switch s.cause.reason {
	case "":
		return ""
	case wire.DegradeMissingAuthority:
		return "its provider lacks authority"
	case wire.DegradeInsufficientAssurance:
		return "its provider ran with less isolation than is demanded"
	}
	return "the answer of its provider does not count (" + string(s.cause.reason) + ")"
}

// failed tells whether a provider was asked and gave no complete answer.
func (d *decider) failed(s standing) bool {
	reason := causeOf(d.q.Results[s.at]).reason
	return reason != "" && reason != wire.DegradeMissingRequiredProvider
}

// weighAll weighs every pin; of several pins of one provider the best counts.
func (d *decider) weighAll(m Demand, f wire.Family) []standing {
	var all []standing
	for _, pin := range m.Requirement.Pins {
		s := d.weigh(m, pin, f)
		i := slices.IndexFunc(all, func(x standing) bool { return x.provider == s.provider })
		switch {
		case i < 0:
			all = append(all, s)
		case s.cause.reason == "" || s.granted && !all[i].granted:
			all[i] = s
		}
	}
	for _, s := range all {
		if s.at >= 0 {
			d.provider(s.at, m, s.granted)
		}
	}
	return all
}

// provider notes who answered, on five axes, once for each requirement, and as
// provenance.
func (d *decider) provider(at int, m Demand, granted bool) {
	r := d.q.Results[at]
	if r.Status == checks.Missing {
		return
	}
	conformance := ""
	if m.Requirement != nil {
		for _, pin := range m.Requirement.Pins {
			if pin.ID == r.Provider.ID && slices.Contains(r.Provider.Profiles, pin.Conformance) {
				conformance = pin.Conformance
			}
		}
	}
	ev := Evidence(*r.Provider, r.Isolation)
	if conformance != "" {
		ev.Conformance = conformance
	}
	ev.Authority = wire.Authority{Granted: granted, Requirement: m.ID, CallSite: d.q.CallSite, PolicyDigest: d.p.Digest}
	if !slices.Contains(d.evidence, ev) {
		d.evidence = append(d.evidence, ev)
	}
	if d.by[at].Identity == "" || granted {
		d.by[at] = ev
	}
	pv := wire.ProviderProvenance{Provider: r.Provider.ID, Capability: familyOf(r), Identity: ev.Identity, Integrity: ev.Integrity, Conformance: ev.Conformance}
	if !slices.ContainsFunc(d.provenance, func(x wire.ProviderProvenance) bool {
		return x.Provider == pv.Provider && x.Capability == pv.Capability
	}) {
		d.provenance = append(d.provenance, pv)
	}
}

// noRequirement stands where no requirement of the policy names a provider.
const noRequirement = "none"

// Evidence says what is known of a provider on the first four axes; the fifth,
// authority, says no. An artifact of which nothing was measured
// is not shown as verified.
func Evidence(who checks.Participant, established checks.Isolation) wire.AuthorityEvidence {
	ev := wire.AuthorityEvidence{
		Identity: clip(who.Publisher, maxDetail), Integrity: clip(who.Fingerprint, maxDetail), Conformance: noRequirement, Isolation: modeOf(established),
		Authority: wire.Authority{Requirement: noRequirement},
	}
	if !who.Verified || who.NoChecksums {
		ev.Integrity = "unverified:" + ev.Integrity
	}
	if len(who.Profiles) > 0 {
		ev.Conformance = clip(strings.Join(who.Profiles, " "), maxDetail)
	}
	return ev
}

func (d *decider) degrade(m Demand, f wire.Family, s standing, reason wire.DegradeReason, detail string) {
	d.degraded = append(d.degraded, wire.Degradation{
		Source: clip(s.provider, maxDetail), Reason: reason, Requirement: m.ID, Detail: clip(detail, maxDetail), Capability: f, ProviderState: s.cause.state,
	})
}

// optionalRequirement shows what a requirement that is not required came to.
func (d *decider) optionalRequirement(m Demand) {
	ran := true
	for _, f := range m.Requirement.Capabilities {
		all := d.weighAll(m, f)
		met := slices.ContainsFunc(all, func(s standing) bool { return s.cause.reason == "" })
		ran = ran && met
		for _, s := range all {
			if s.at >= 0 && d.notes[s.at] == "" {
				if d.notes[s.at] = note(s); s.cause.reason == "" {
					d.notes[s.at] = "its requirement is not required here"
				}
			}
			if s.cause.reason != "" && (!met || s.at >= 0 && d.failed(s)) {
				d.degrade(m, f, s, wire.DegradeOptionalDegraded, string(s.cause.reason)+": "+s.cause.detail)
			}
		}
	}
	if ran {
		d.ran = addOnce(d.ran, m.ID)
	}
}

// volunteers shows the providers that took part without any requirement of the
// call-site: their evidence, and that they failed.
func (d *decider) volunteers() {
	for i, r := range d.q.Results {
		if r.Provider == nil || d.asked(r.Provider.ID, familyOf(r)) || r.Status == checks.Missing {
			continue
		}
		d.provider(i, Demand{ID: noRequirement}, false)
		d.notes[i] = "no requirement of this call-site gives its provider authority"
		if c := causeOf(r); c.reason != "" {
			d.degraded = append(d.degraded, wire.Degradation{
				Source: clip(r.Provider.ID, maxDetail), Reason: wire.DegradeOptionalDegraded, Detail: clip(string(c.reason)+": "+c.detail, maxDetail),
				Capability: familyOf(r), ProviderState: c.state,
			})
		}
	}
}

// asked tells whether a requirement of the call-site names the provider.
func (d *decider) asked(id string, f wire.Family) bool {
	return slices.ContainsFunc(d.demands, func(m Demand) bool {
		return m.Requirement != nil && slices.Contains(m.Requirement.Capabilities, f) &&
			slices.ContainsFunc(m.Requirement.Pins, func(pin Pin) bool { return pin.ID == id })
	})
}
