package policy

import (
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
	return wire.AuthorityEvidence{}, &wire.Degradation{Source: who.ID, Reason: wire.DegradeMissingAuthority, Capability: wire.Edit}
}
