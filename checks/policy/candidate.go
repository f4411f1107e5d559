package policy

import (
	"fmt"
	"slices"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/wire"
)

// Weakens compares the policy that a candidate would bring with the one in
// force and lists what it would authorize, lower or drop; none when it leaves
// the gates alone or strengthens them. nil stands for no policy: bringing the
// first one is a weakening only so far as it authorizes somebody, and every
// policy with pins does.
//
// The candidate decides nothing either way: it is judged by the policy at its
// base. A non-empty list is reported as policy-self-authorization.
func Weakens(base, candidate *Repository) []string {
	var out []string
	add := func(format string, a ...any) { out = append(out, fmt.Sprintf(format, a...)) }
	if base == nil {
		base = &Repository{}
	}
	if candidate == nil {
		if len(base.Requirements) > 0 {
			add("the policy is removed")
		}
		return out
	}
	for _, cs := range callSites {
		have := candidate.Gates[cs].Required
		for _, id := range base.Gates[cs].Required {
			if !slices.Contains(have, id) {
				add("%s no longer requires %.60q", cs, id)
			}
		}
		for _, id := range base.Gates[cs].Optional {
			if !slices.Contains(have, id) && !slices.Contains(candidate.Gates[cs].Optional, id) {
				add("%s no longer asks for %.60q", cs, id)
			}
		}
		// A shorter budget makes checks fail sooner, never pass.
		if was, now := base.Budgets[cs], candidate.Budgets[cs]; was > 0 && (now == 0 || now > was) {
			add("the budget of %s is raised", cs)
		}
	}
	for _, cs := range callSites {
		if missingHost(base, cs) == failClosed && missingHost(candidate, cs) != failClosed {
			add("%s opens where no host is there", cs)
		}
	}
	for _, name := range []string{"mcp", "acp"} {
		was, now := adapter(base, name), adapter(candidate, name)
		if on, _ := now.Get("enabled"); on.Truth() && !canon.Equal(was, now) {
			add("adapter %s is switched on or changed", name)
		}
	}
	for _, was := range base.Requirements {
		now := candidate.Requirement(was.ID)
		if now == nil {
			add("requirement %.60q is removed", was.ID)
			continue
		}
		for _, f := range was.Capabilities {
			if !slices.Contains(now.Capabilities, f) {
				add("requirement %.60q no longer covers %s", was.ID, f)
			}
		}
		if weakest(now.Assurance) < weakest(was.Assurance) {
			add("requirement %.60q accepts a weaker assurance", was.ID)
		}
	}
	for _, now := range candidate.Requirements {
		was := base.Requirement(now.ID)
		for _, p := range now.Pins {
			if was == nil || !slices.Contains(was.Pins, p) {
				add("requirement %.60q gives authority to %.60q %.60q", now.ID, p.ID, p.Version)
			}
		}
		for _, f := range now.Capabilities {
			if was != nil && !slices.Contains(was.Capabilities, f) {
				add("requirement %.60q gives its providers authority to %s", now.ID, f)
			}
		}
	}
	return out
}

const failClosed = "fail-closed"

// missingHost is what harnesses are told to do at a call-site without a host.
func missingHost(r *Repository, cs wire.CallSite) string {
	behaviour, _ := r.Value.Get("policy")
	missing, _ := behaviour.Get("missingHost")
	word, _ := missing.Get(string(cs))
	return word.Str()
}

// adapter is what a policy says of another binding of the seam; no value where it
// says nothing. This host has none of them, so any change could only widen.
func adapter(r *Repository, name string) canon.Value {
	all, _ := r.Value.Get("adapters")
	v, _ := all.Get(name)
	return v
}

// weakest is the rank of the weakest acceptable mode.
func weakest(ms []wire.Mode) int {
	least := wire.Isolated.Rank()
	for _, m := range ms {
		least = min(least, m.Rank())
	}
	return least
}

// Candidate judges a change that touches .asp/asp.json: the cause to put into
// Question.Candidate, and true, when it may not be judged like any other. after
// is the file in the after-state, nil when the change removes it. A candidate
// outside the schema authorizes nothing and takes all away: it is a weakening
// of whatever there was.
//
// By the contract the cause blocks a gate and is shown on interactive and sweep;
// Decide sees to that.
func (p Policy) Candidate(after []byte) (wire.Degradation, bool) {
	g := wire.Degradation{Source: "policy", Reason: wire.DegradePolicySelfAuthorization}
	var next *Repository
	if after != nil {
		r, err := ParseRepository(SourceRepository, after)
		if err != nil {
			g.Detail = clip("the candidate policy would be rejected: "+err.Error(), maxDetail)
			return g, true
		}
		next = &r
	}
	w := Weakens(p.Repository, next)
	if len(w) == 0 {
		return wire.Degradation{}, false
	}
	g.Detail = clip("a change cannot approve its own policy: "+w[0], maxDetail)
	if len(w) > 1 {
		g.Detail += fmt.Sprintf(" (and %d more)", len(w)-1)
	}
	return g, true
}
