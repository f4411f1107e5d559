package policy

import (
	"strings"
	"time"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/wire"
)

// Repository is a policy in the shape of .asp/asp.json: the repository's own,
// or the floor of the organization. It is logical only and names no program.
type Repository struct {
	Version      string // aspVersion
	Requirements []Requirement
	Gates        map[wire.CallSite]GateList
	Budgets      map[wire.CallSite]time.Duration
	Value        canon.Value // as read
}

// Requirement is satisfied by a pinned provider.
type Requirement struct {
	ID           string
	Capabilities []wire.Family
	Assurance    []wire.Mode // acceptable modes; a stronger one is, too
	Pins         []Pin
}

// Pin names a provider that has authority.
type Pin struct {
	ID, Version, Package, Identity, Integrity, Conformance string
}

// GateList is what one call-site asks for, by requirement id.
type GateList struct {
	Required, Optional []string
}

// Requirement returns the definition of id, nil without one.
func (p *Repository) Requirement(id string) *Requirement {
	for i := range p.Requirements {
		if p.Requirements[i].ID == id {
			return &p.Requirements[i]
		}
	}
	return nil
}

// ParseRepository reads the shape of .asp/asp.json. The error is an *Error
// that lists what is wrong; file is the name to show.
func ParseRepository(file string, b []byte) (Repository, error) {
	var p Repository
	err := parseFile(file, b, func(r *reader, v canon.Value) { p = readRepository(r, v, "$") })
	return p, err
}

// aspVersion tells whether s starts with asp/N.N.
func aspVersion(s string) bool {
	rest, ok := strings.CutPrefix(s, "asp/")
	major, minor, dot := strings.Cut(rest, ".")
	return ok && dot && major != "" && strings.Trim(major, "0123456789") == "" && minor != "" && minor[0] >= '0' && minor[0] <= '9'
}

func readRepository(r *reader, v canon.Value, path string) Repository {
	p := Repository{Value: v, Gates: map[wire.CallSite]GateList{}, Budgets: map[wire.CallSite]time.Duration{}}
	if !r.object(v, path, "$schema", "!aspVersion", "!requirements", "!gates", "!policy", "budgets", "adapters") {
		return p
	}
	member(v, path, "$schema", func(m canon.Value, path string) { r.text(m, path) })
	member(v, path, "aspVersion", func(m canon.Value, path string) {
		p.Version = r.text(m, path)
		if m.Kind() == canon.String && !aspVersion(p.Version) {
			r.fail(path, "%.60q, must look like asp/1.0", p.Version)
		}
	})
	member(v, path, "requirements", func(m canon.Value, path string) { p.Requirements = readRequirements(r, m, path) })
	member(v, path, "gates", func(m canon.Value, path string) {
		if !r.object(m, path, "!interactive", "!gate", "!sweep") {
			return
		}
		for _, cs := range callSites {
			member(m, path, string(cs), func(m canon.Value, path string) { p.Gates[cs] = readGate(r, m, path) })
		}
	})
	member(v, path, "policy", func(m canon.Value, path string) { readBehaviour(r, m, path) })
	member(v, path, "budgets", func(m canon.Value, path string) { p.Budgets = readBudgets(r, m, path) })
	member(v, path, "adapters", func(m canon.Value, path string) {
		if !r.object(m, path, "mcp", "acp") {
			return
		}
		for _, a := range []string{"mcp", "acp"} {
			member(m, path, a, func(m canon.Value, path string) {
				if !r.object(m, path, "!enabled", "mode") {
					return
				}
				member(m, path, "enabled", func(m canon.Value, path string) { r.truth(m, path) })
				member(m, path, "mode", func(m canon.Value, path string) {
					word(r, m, path, "inspect-status-only", "full-outer-seam", "mcp-extension-candidate")
				})
			})
		}
	})
	return p
}

func readRequirements(r *reader, v canon.Value, path string) []Requirement {
	if !r.kind(v, path, canon.Array) {
		return nil
	}
	if v.Len() == 0 {
		r.fail(path, "0 elements, must have at least 1")
	}
	var out []Requirement
	ids := map[string]bool{}
	for i, e := range v.Elements() {
		p := path + canon.IndexStep(i)
		q := readRequirement(r, e, p)
		// The public schema cannot say this: two definitions of one id would
		// let the order in the file decide which pins count.
		if q.ID != "" && ids[q.ID] {
			r.fail(p+".id", "%.60q is defined twice", q.ID)
		}
		ids[q.ID] = true
		out = append(out, q)
	}
	return out
}

func readRequirement(r *reader, v canon.Value, path string) Requirement {
	var q Requirement
	if !r.object(v, path, "!id", "!capabilities", "!assurance", "!authority") {
		return q
	}
	member(v, path, "id", func(m canon.Value, path string) { q.ID = r.nonempty(m, path) })
	member(v, path, "capabilities", func(m canon.Value, path string) {
		q.Capabilities = list(r, m, path, 1, true, func(e canon.Value, path string) wire.Family { return word(r, e, path, families...) })
	})
	member(v, path, "assurance", func(m canon.Value, path string) {
		q.Assurance = list(r, m, path, 1, true, func(e canon.Value, path string) wire.Mode { return word(r, e, path, modes...) })
	})
	member(v, path, "authority", func(m canon.Value, path string) {
		if !r.object(m, path, "!providers") {
			return
		}
		member(m, path, "providers", func(m canon.Value, path string) {
			q.Pins = list(r, m, path, 1, false, func(e canon.Value, path string) Pin { return readPin(r, e, path) })
		})
	})
	return q
}

func readPin(r *reader, v canon.Value, path string) Pin {
	var p Pin
	if !r.object(v, path, "!id", "!version", "package", "!identity", "!integrity", "!conformance") {
		return p
	}
	for _, f := range []struct {
		key  string
		into *string
	}{{"id", &p.ID}, {"version", &p.Version}, {"identity", &p.Identity}, {"integrity", &p.Integrity}, {"conformance", &p.Conformance}} {
		member(v, path, f.key, func(m canon.Value, path string) { *f.into = r.nonempty(m, path) })
	}
	member(v, path, "package", func(m canon.Value, path string) { p.Package = r.text(m, path) })
	return p
}

func readGate(r *reader, v canon.Value, path string) GateList {
	var g GateList
	if !r.object(v, path, "!requiredRequirements", "!optionalRequirements") {
		return g
	}
	ids := func(m canon.Value, path string) []string { return list(r, m, path, 0, true, r.text) }
	member(v, path, "requiredRequirements", func(m canon.Value, path string) { g.Required = ids(m, path) })
	member(v, path, "optionalRequirements", func(m canon.Value, path string) { g.Optional = ids(m, path) })
	return g
}

func readBehaviour(r *reader, v canon.Value, path string) {
	if !r.object(v, path, "!policyChangeActivation", "!candidatePolicyAuthority", "!missingHost", "!authorityModel") {
		return
	}
	only := func(key, value string) {
		member(v, path, key, func(m canon.Value, path string) { word(r, m, path, value) })
	}
	only("authorityModel", "explicit-pinned-provider")
	only("policyChangeActivation", "base-policy-two-phase")
	only("candidatePolicyAuthority", "trusted-base-or-organization-floor")
	member(v, path, "missingHost", func(m canon.Value, path string) {
		if !r.object(m, path, "!interactive", "!gate", "!sweep") {
			return
		}
		member(m, path, "interactive", func(m canon.Value, path string) { word(r, m, path, "warn-open", "fail-closed") })
		member(m, path, "gate", func(m canon.Value, path string) { word(r, m, path, "fail-closed") })
		member(m, path, "sweep", func(m canon.Value, path string) { word(r, m, path, "warn-open", "fail-closed") })
	})
}

func readBudgets(r *reader, v canon.Value, path string) map[wire.CallSite]time.Duration {
	out := map[wire.CallSite]time.Duration{}
	if !r.object(v, path, "interactiveMs", "gateMs", "sweepMs") {
		return out
	}
	for _, cs := range callSites {
		member(v, path, string(cs)+"Ms", func(m canon.Value, path string) { out[cs] = r.millis(m, path) })
	}
	return out
}
