package policy

import (
	"slices"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/wire"
)

// Explanation says what is asked of a workspace, and by what. Its members are
// the answer of `asp policy show --json`.
type Explanation struct {
	Source     string `json:"source"`
	Activation string `json:"activation"`
	Problem    string `json:"problem,omitempty"` // of a rejected policy
	Digest     string `json:"policyDigest"`
	// Recomputed: the digest was made again from the value, and is the same.
	Recomputed bool        `json:"recomputed"`
	Value      canon.Value `json:"value,omitempty"` // what the digest is over
	CallSites  []SiteView  `json:"callSites"`
	// Edit lists the requirements that give authority to edit.
	Edit      []AskView      `json:"edit"`
	Candidate *CandidateView `json:"candidate,omitempty"`
}

// SiteView is one call-site.
type SiteView struct {
	CallSite wire.CallSite `json:"callSite"`
	BudgetMs int64         `json:"budgetMs,omitempty"`
	Required []AskView     `json:"required"`
	Optional []AskView     `json:"optional"`
	// Undecidable: the call-site cannot say allow, whatever runs, and why.
	Undecidable string `json:"undecidable,omitempty"`
	// NoApply: no change is applied at the call-site, whatever runs, and why.
	NoApply string `json:"noApply,omitempty"`
}

// AskView is one demand: a requirement on providers, a command check, or an id
// that nothing defines.
type AskView struct {
	ID           string        `json:"id"`
	From         string        `json:"from"` // which part of the policy asks
	Kind         string        `json:"kind"` // provider, command, undefined
	Capabilities []wire.Family `json:"capabilities,omitempty"`
	Assurance    []wire.Mode   `json:"assurance,omitempty"`
	Providers    []PinView     `json:"providers,omitempty"`
	Argv         []string      `json:"argv,omitempty"`
}

// PinView is one provider that has authority.
type PinView struct {
	ID          string `json:"id"`
	Version     string `json:"version"`
	Identity    string `json:"identity"`
	Integrity   string `json:"integrity"`
	Conformance string `json:"conformance"`
}

// CandidateView is what another content of .asp/asp.json would change once it is
// the committed one.
type CandidateView struct {
	State   string   `json:"state"`             // same, pending, rejected
	Problem string   `json:"problem,omitempty"` // of a rejected one
	Digest  string   `json:"policyDigest"`      // of the policy that would be active
	Weakens []string `json:"weakens"`           // what it would authorize, lower or drop
	// Gate: a change that brings it is indeterminate on a gate.
	Gate bool `json:"selfAuthorization"`
	// CallSites that it would ask something else of.
	CallSites []SiteView `json:"callSites"`
}

// Explain says what the policy asks. candidate is another content of
// .asp/asp.json (of the working tree, say) and has is whether there is one to
// compare; nil with has stands for a removal.
func (p Policy) Explain(candidate []byte, has bool) Explanation {
	x := Explanation{Source: p.Source, Activation: p.Activation, Problem: p.Problem, Digest: p.Digest, Value: p.Value,
		CallSites: p.sites(), Edit: []AskView{}}
	again, err := Parse(p.Value, p.Problem)
	x.Recomputed = err == nil && again.Digest == p.Digest
	for i, r := range []*Repository{p.Repository, p.Config.Floor} {
		for j := range r.all() {
			if q := &r.Requirements[j]; slices.Contains(q.Capabilities, wire.Edit) {
				x.Edit = append(x.Edit, ask(Demand{ID: q.ID, Requirement: q}, []string{SourceRepository, SourceFloor}[i]))
			}
		}
	}
	if has {
		x.Candidate = p.candidateView(candidate)
	}
	return x
}

func (p *Repository) all() []Requirement {
	if p == nil {
		return nil
	}
	return p.Requirements
}

func (p Policy) candidateView(after []byte) *CandidateView {
	next := Active(p.Config, after, true)
	v := &CandidateView{State: "pending", Digest: next.Digest, Weakens: []string{}, CallSites: []SiteView{}}
	_, v.Gate = p.Candidate(after)
	switch {
	case next.Activation == Rejected: // before "same": all rejected ones have one digest
		v.State, v.Problem = "rejected", next.Problem
	case next.Digest == p.Digest && next.Activation == p.Activation:
		v.State = "same"
		v.Gate = false
		return v
	default:
		v.Weakens = append(v.Weakens, Weakens(p.Repository, next.Repository)...)
	}
	was := p.sites()
	for i, s := range next.sites() {
		a, errA := canon.Marshal(was[i])
		b, errB := canon.Marshal(s)
		if errA != nil || errB != nil || string(a) != string(b) {
			v.CallSites = append(v.CallSites, s)
		}
	}
	return v
}

func (p Policy) sites() []SiteView {
	var out []SiteView
	for _, cs := range callSites {
		s := SiteView{CallSite: cs, BudgetMs: p.Budget(cs).Milliseconds(), Required: []AskView{}, Optional: []AskView{}}
		for _, m := range p.Demands(cs, nil) {
			v := ask(m, p.from(cs, m))
			if m.Required {
				s.Required = append(s.Required, v)
			} else {
				s.Optional = append(s.Optional, v)
			}
		}
		switch {
		case p.Activation == Rejected:
			s.NoApply = "the committed policy is rejected"
		case cs == wire.Gate && p.Source == SourceBuiltin:
			s.NoApply = "there is no active policy"
		}
		if cs == wire.Gate {
			s.Undecidable = s.NoApply
		}
		out = append(out, s)
	}
	return out
}

// from tells which part of the policy a demand comes from.
func (p Policy) from(cs wire.CallSite, m Demand) string {
	names := func(r *Repository) bool {
		if r == nil {
			return false
		}
		g := r.Gates[cs]
		return slices.Contains(g.Required, m.ID) || slices.Contains(g.Optional, m.ID)
	}
	switch {
	case m.Requirement != nil && p.Repository != nil && p.Repository.Requirement(m.ID) == m.Requirement:
		return SourceRepository
	case m.Requirement != nil:
		return SourceFloor
	case names(p.Repository):
		return SourceRepository
	case names(p.Config.Floor):
		return SourceFloor
	}
	return "config.json"
}

func ask(m Demand, from string) AskView {
	v := AskView{ID: m.ID, From: from, Kind: "undefined"}
	switch {
	case m.Command != nil:
		v.Kind, v.Argv = "command", m.Command.Argv
	case m.Requirement != nil:
		v.Kind, v.Capabilities, v.Assurance = "provider", m.Requirement.Capabilities, m.Requirement.Assurance
		for _, pin := range m.Requirement.Pins {
			v.Providers = append(v.Providers, PinView{pin.ID, pin.Version, pin.Identity, pin.Integrity, pin.Conformance})
		}
	}
	return v
}

// LocalFile is the override of one working copy. It is advisory: nothing in it
// changes what is asked or who has authority.
const LocalFile = ".asp/local.json"

// forbiddenLocal are the members that a local override must not hold.
var forbiddenLocal = []string{"authority", "weakenGate", "missingHost", "certifyProvider", "sharedDecision"}

// ReadLocal looks at a local override: the forbidden members that it holds, at
// any depth, as paths; problem says why it cannot be read. Either way it has no
// effect.
func ReadLocal(b []byte) (forbidden []string, problem string) {
	v, err := canon.Parse(b, canon.Limits{Bytes: MaxFile})
	if err != nil {
		return nil, clip(err.Error(), maxDetail)
	}
	if v.Kind() != canon.Object {
		problem = "it is no object"
	}
	var walk func(v canon.Value, path string)
	walk = func(v canon.Value, path string) {
		switch v.Kind() {
		case canon.Object:
			for k, m := range v.Members() {
				at := path + canon.KeyStep(k)
				if slices.Contains(forbiddenLocal, k) && len(forbidden) < maxProblems {
					forbidden = append(forbidden, clip(at, 300))
				}
				walk(m, at)
			}
		case canon.Array:
			for i, e := range v.Elements() {
				walk(e, path+canon.IndexStep(i))
			}
		}
	}
	walk(v, "$")
	return forbidden, problem
}
