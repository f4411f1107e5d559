package policy

import (
	"fmt"
	"slices"

	"github.com/aspengine/asp/checks"
	"github.com/aspengine/asp/seam/wire"
)

// Assigned is one provider to be asked in one family.
type Assigned struct {
	Provider     string
	Requirements []string // of the call-site, that pin it; none: it takes part without authority
	Required     bool     // one of them is required
}

// Assign says whom a call-site asks in one family: those of known that a
// requirement of the call-site pins by their id, in the order of the policy;
// then the other enabled ones, which take part as advisory. known are the
// providers that are enabled for the repository, as their manifests describe
// them. Whether a pin matches in full is for Decide: launch has to tell.
func (p Policy) Assign(cs wire.CallSite, f wire.Family, known []checks.Participant) []Assigned {
	var out []Assigned
	for _, m := range p.Demands(cs, nil) {
		if m.Requirement == nil || !slices.Contains(m.Requirement.Capabilities, f) {
			continue
		}
		for _, pin := range m.Requirement.Pins {
			if !slices.ContainsFunc(known, func(k checks.Participant) bool { return k.ID == pin.ID && k.Mode != "" }) {
				continue
			}
			i := slices.IndexFunc(out, func(a Assigned) bool { return a.Provider == pin.ID })
			if i < 0 {
				out, i = append(out, Assigned{Provider: pin.ID}), len(out)
			}
			out[i].Requirements = addOnce(out[i].Requirements, m.ID)
			out[i].Required = out[i].Required || m.Required
		}
	}
	for _, k := range known {
		if k.Mode != "" && slices.Contains(k.Families, f) && !slices.ContainsFunc(out, func(a Assigned) bool { return a.Provider == k.ID }) {
			out = append(out, Assigned{Provider: k.ID})
		}
	}
	return out
}

// EditAuthority says whether the plans of a provider may be applied: some
// requirement of the active policy, in a gate or not, pins it for edit; it is
// enabled as gated; and what was established of its isolation is enough for
// that requirement. The cause is nil exactly when authority is granted; its
// reason is missing-authority, insufficient-assurance or direct-write-risk,
// which are refusals no-authority, weak-assurance and direct-write of an apply.
func (p Policy) EditAuthority(who checks.Participant, established checks.Isolation) (wire.AuthorityEvidence, *wire.Degradation) {
	ev := Evidence(who, established)
	ev.Authority.PolicyDigest = p.Digest
	no := func(reason wire.DegradeReason, requirement, detail string) *wire.Degradation {
		return &wire.Degradation{Source: clip(who.ID, maxDetail), Reason: reason, Requirement: requirement, Capability: wire.Edit,
			ProviderState: who.State, Detail: clip(detail, maxDetail)}
	}
	if who.DirectWrite {
		return ev, no(wire.DegradeDirectWriteRisk, "", "it asked for, or has, a way to write the workspace without the host")
	}
	bad := no(wire.DegradeMissingAuthority, "", "no requirement of the active policy pins it for edit; see docs/policy.md")
	for _, r := range []*Repository{p.Repository, p.Config.Floor} {
		if r == nil {
			continue
		}
		for _, req := range r.Requirements {
			if !slices.Contains(req.Capabilities, wire.Edit) {
				continue
			}
			for _, pin := range req.Pins {
				if pin.ID != who.ID {
					continue
				}
				cause := p.editPin(req, pin, who, established)
				if cause.reason == "" {
					ev.Conformance = pin.Conformance
					ev.Authority.Granted, ev.Authority.Requirement = true, req.ID
					return ev, nil
				}
				// The nearest miss is what to tell: assurance before authority.
				if bad.Requirement == "" || cause.reason == wire.DegradeInsufficientAssurance {
					bad = no(cause.reason, req.ID, cause.detail)
				}
			}
		}
	}
	if bad.Requirement != "" {
		ev.Authority.Requirement = bad.Requirement
	}
	return ev, bad
}

// editPin says why one pin gives no authority to edit; the zero cause when it
// does.
func (p Policy) editPin(req Requirement, pin Pin, who checks.Participant, established checks.Isolation) cause {
	got, diff := modeOf(established), pin.mismatch(who)
	switch {
	case who.FastPath != "":
		return cause{reason: wire.DegradeMissingAuthority, detail: "a provider has no path around the host: " + who.FastPath}
	case diff != "":
		return cause{reason: wire.DegradeMissingAuthority, detail: diff}
	case who.Mode != wire.Gated:
		return cause{reason: wire.DegradeMissingAuthority, detail: fmt.Sprintf("it is enabled as %s: `asp repo enable %s --mode gated` lets its plans be applied", orNone(string(who.Mode)), clip(who.ID, 100))}
	case who.ServerVersion != "" && who.ServerVersion != who.Version:
		return cause{reason: wire.DegradeMissingAuthority, detail: fmt.Sprintf("it says that it is version %q, its manifest says %q", clip(who.ServerVersion, 100), clip(who.Version, 100))}
	case !who.Verified:
		return cause{reason: wire.DegradeMissingAuthority, detail: "its artifact was not verified at this launch"}
	case got.Rank() < weakest(req.Assurance):
		return cause{reason: wire.DegradeInsufficientAssurance, detail: fmt.Sprintf("the requirement accepts %s, the run established %s", join(req.Assurance), got)}
	case got.Rank() < p.Config.Sandbox.Require.Rank():
		return cause{reason: wire.DegradeInsufficientAssurance, detail: fmt.Sprintf("config.json demands %s, the run established %s", p.Config.Sandbox.Require, got)}
	}
	return cause{}
}
