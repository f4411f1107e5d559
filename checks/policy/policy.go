// Package policy reads the trusted configuration and decides. Reading is
// strict: what it does not know it refuses, naming file, place and what is
// allowed. Deciding is pure: the same policy and the same outcomes give the
// same decision, on any machine.
//
// What counts as policy: the repository's `.asp/asp.json` as committed (only of
// an enrolled repository), and the organization's part of `config.json` in the
// trusted state directory, which can only add. Nothing a candidate contains
// takes part in the decision on it.
package policy

import (
	"slices"
	"time"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/wire"
)

// Sources of a policy, as status shows them.
const (
	SourceBuiltin    = "builtin-default"
	SourceRepository = ".asp/asp.json"
	SourceFloor      = "organization-floor"
	SourceBoth       = ".asp/asp.json+organization-floor"
)

// Activation of a policy.
const (
	Activated = "active"
	Rejected  = "rejected"
)

// CommandPrefix starts the requirement id and coverage source of a command
// check.
const CommandPrefix = "command/"

// Policy is what a decision is made by. Immutable.
type Policy struct {
	// Source is one of the Source constants; SourceBuiltin means that neither
	// repository nor organization has a policy.
	Source string
	// Activation is Rejected when the committed policy is outside its
	// schema; Problem says why. The floor holds all the same.
	Activation string
	Problem    string
	// Value is the active policy: repository part, floor, command checks, sandbox
	// demand, guarantee ceiling and what providers are asked. It is all of the
	// policy that a decision depends on; Parse reads it back.
	Value canon.Value
	// Digest is sha256:<hex> of the canonical Value.
	Digest string

	Repository *Repository // nil without one, and when rejected
	Config     Config
}

// Active puts the policy together. committed is the content of .asp/asp.json
// at the revision that counts, nil when there is none; it is ignored unless the
// repository is enrolled.
func Active(c Config, committed []byte, enrolled bool) Policy {
	p := Policy{Source: SourceBuiltin, Activation: Activated, Config: c}
	repo := canon.NullOf()
	if enrolled && committed != nil {
		p.Source = SourceRepository
		r, err := ParseRepository(SourceRepository, committed)
		if err != nil {
			p.Activation, p.Problem = Rejected, err.Error()
			repo = canon.StringOf(rejectedValue)
		} else {
			p.Repository = &r
			repo = r.Value
		}
	}
	floor := canon.NullOf()
	if c.Floor != nil {
		floor = c.Floor.Value
		p.Source = SourceFloor
		if enrolled && committed != nil {
			p.Source = SourceBoth
		}
	}
	part := func(key string) canon.Value {
		if v, ok := c.Value.Get(key); ok {
			return v
		}
		return canon.NullOf()
	}
	p.Value = canon.ObjectOf(
		canon.Member{Key: "repository", Value: repo},
		canon.Member{Key: "floor", Value: floor},
		canon.Member{Key: "checks", Value: part("checks")},
		canon.Member{Key: "sandbox", Value: part("sandbox")},
		canon.Member{Key: "guaranteeCeiling", Value: part("guaranteeCeiling")},
		canon.Member{Key: "providers", Value: part("providers")},
	)
	p.Digest = canon.DigestText(p.Value)
	return p
}

// Demand is one requirement of one call-site.
type Demand struct {
	ID string
	// Command is the check that fulfils it; nil for a demand on providers.
	Command *Command
	// Requirement is the policy's own definition; nil for command checks and
	// for an id that a gate names and nothing defines.
	Requirement *Requirement
	Required    bool // false: optional, degraded without blocking
}

// Demands lists what a call-site asks for: requirements of the repository, then
// of the floor, each as the gate lists them, required ones first; then command
// checks of the configuration that are required there, those of named (by
// --check, which are then required), and the optional ones. An id that both
// repository and floor define appears twice, because both have to be satisfied.
func (p Policy) Demands(cs wire.CallSite, named []string) []Demand {
	var out []Demand
	at := map[string]int{} // where a command check stands in out
	command := func(name string, required bool) {
		id := CommandPrefix + name
		if i, ok := at[id]; ok {
			out[i].Required = out[i].Required || required
			return
		}
		at[id] = len(out)
		out = append(out, Demand{ID: id, Command: p.Config.Command(name), Required: required})
	}
	for _, r := range []*Repository{p.Repository, p.Config.Floor} {
		if r == nil {
			continue
		}
		g := r.Gates[cs]
		for i, ids := range [][]string{g.Required, g.Optional} {
			for _, id := range ids {
				def := r.Requirement(id)
				if name, ok := commandName(id); ok && def == nil {
					command(name, i == 0)
					continue
				}
				out = append(out, Demand{ID: id, Requirement: def, Required: i == 0})
			}
		}
	}
	for _, c := range p.Config.Checks {
		if c.Required && slices.Contains(c.CallSites, cs) {
			command(c.Name, true)
		}
	}
	for _, n := range named {
		command(n, true)
	}
	for _, c := range p.Config.Checks {
		if !c.Required && slices.Contains(c.CallSites, cs) {
			command(c.Name, false)
		}
	}
	slices.SortStableFunc(out, func(a, b Demand) int {
		switch {
		case a.Required == b.Required:
			return 0
		case a.Required:
			return -1
		}
		return 1
	})
	return out
}

// Commands returns the command checks to run for a call-site, in the order of
// Demands: the required ones, those named, and the optional ones.
func (p Policy) Commands(cs wire.CallSite, named []string) []Command {
	var out []Command
	for _, d := range p.Demands(cs, named) {
		if d.Command != nil {
			out = append(out, *d.Command)
		}
	}
	return out
}

// Budget is the time that a call-site has, 0 when nothing limits it: the
// smallest of repository, floor and configuration.
func (p Policy) Budget(cs wire.CallSite) time.Duration {
	least := p.Config.Budgets[cs]
	for _, r := range []*Repository{p.Repository, p.Config.Floor} {
		if r == nil {
			continue
		}
		if b := r.Budgets[cs]; b > 0 && (least == 0 || b < least) {
			least = b
		}
	}
	return least
}
