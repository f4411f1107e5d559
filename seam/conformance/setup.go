package conformance

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"

	"github.com/aspengine/asp/internal/canon"
)

// Role is what a seeded provider plays: who it says it is, and how it behaves.
// It travels as JSON in the provider's argument vector.
type Role struct {
	ID       string   `json:"id"`
	Version  string   `json:"version"`
	Families []string `json:"families"`
	// Initialize, Check, Edit and End name behaviours; "" is the good one. A
	// request may name another; see seeded.go.
	Initialize string `json:"initialize,omitempty"`
	Check      string `json:"check,omitempty"`
	Edit       string `json:"edit,omitempty"`
	End        string `json:"end,omitempty"`
	// Reads are the globs that it asks for; none stands for everything.
	Reads []string `json:"reads,omitempty"`
	// Target is a directory that an attacking provider tries to write into.
	Target string `json:"target,omitempty"`
	// Token marks the processes of one world.
	Token string `json:"token,omitempty"`
}

// enrolled is a provider with what its manifest and enrolment say.
type enrolled struct {
	Role
	mode      string   // gated, advisory, or "added": in the registry, not enabled
	protocols []string // nil: asp/1.0
	profiles  []string // nil: conformanceProfile
}

// The facts of every seeded provider's manifest, which a pin repeats.
const (
	publisher          = "conformance-lab"
	conformanceProfile = "seeded-provider"
	roleVersion        = "1.0.0"
)

// checker is a check provider that behaves, enrolled as gated.
func checker(id string) enrolled {
	return enrolled{Role: Role{ID: id, Version: roleVersion, Families: []string{"check"}}, mode: "gated"}
}

// editor is an edit provider that behaves, enrolled as gated.
func editor(id string) enrolled {
	return enrolled{Role: Role{ID: id, Version: roleVersion, Families: []string{"edit"}}, mode: "gated"}
}

// pin is one entry of authority.providers.
type pin struct{ id, version, identity, integrity, conformance string }

// pinOf is the pin that matches a provider.
func (t *trial) pinOf(p enrolled) pin {
	return pin{p.ID, p.Version, publisher, t.run.fingerprint(p.ID), conformanceProfile}
}

// demand is one requirement of a policy.
type demand struct {
	id        string
	families  []string
	assurance []string
	pins      []pin
}

// gateList is required and optional requirement ids of one call-site.
type gateList struct{ required, optional []string }

// policy is what .asp/asp.json says.
type policy struct {
	needs                    []demand
	interactive, gate, sweep gateList
	budgetMs                 int64 // every call-site; 0: longBudget
}

// longBudget is far more than a good provider needs on a busy machine.
const longBudget = 30000

func (p policy) value() canon.Value {
	var needs []canon.Value
	for _, n := range p.needs {
		var pins []canon.Value
		for _, q := range n.pins {
			pins = append(pins, object(member("id", q.id), member("version", q.version), member("identity", q.identity),
				member("integrity", q.integrity), member("conformance", q.conformance)))
		}
		needs = append(needs, object(member("id", n.id), member("capabilities", n.families), member("assurance", n.assurance),
			member("authority", object(member("providers", pins)))))
	}
	list := func(g gateList) canon.Value {
		return object(member("requiredRequirements", g.required), member("optionalRequirements", g.optional))
	}
	budget := p.budgetMs
	if budget == 0 {
		budget = longBudget
	}
	return object(
		member("aspVersion", "asp/1.0"),
		member("requirements", needs),
		member("gates", object(member("interactive", list(p.interactive)), member("gate", list(p.gate)), member("sweep", list(p.sweep)))),
		member("policy", object(member("authorityModel", "explicit-pinned-provider"), member("policyChangeActivation", "base-policy-two-phase"),
			member("candidatePolicyAuthority", "trusted-base-or-organization-floor"),
			member("missingHost", object(member("interactive", "warn-open"), member("gate", "fail-closed"), member("sweep", "warn-open"))))),
		member("budgets", object(member("interactiveMs", budget), member("gateMs", budget), member("sweepMs", budget))),
	)
}

// everywhere requires the same of every call-site.
func everywhere(needs []demand, required, optional []string) *policy {
	g := gateList{required, optional}
	return &policy{needs: needs, interactive: g, gate: g, sweep: g}
}

// checkNeed is a requirement on the check family that a provider satisfies.
func (t *trial) checkNeed(id string, pins ...pin) demand {
	return demand{id, []string{"check"}, []string{"gated"}, pins}
}

// editNeed gives edit authority.
func (t *trial) editNeed(id string, pins ...pin) demand {
	return demand{id, []string{"edit"}, []string{"gated"}, pins}
}

// manifest is the asp-server.json of a seeded provider.
func (t *trial) manifest(p enrolled, role Role) (canon.Value, error) {
	rv, err := canon.From(role)
	if err != nil {
		return canon.Value{}, fmt.Errorf("write role: %w", err)
	}
	protocols, profiles := p.protocols, p.profiles
	if protocols == nil {
		protocols = []string{"asp/1.0"}
	}
	if profiles == nil {
		profiles = []string{conformanceProfile}
	}
	args := append(append([]string(nil), t.run.self[1:]...), ProviderWord, string(rv.Bytes()))
	return object(
		member("manifestVersion", "asp-server/1.0"),
		member("server", object(member("id", p.ID), member("name", "Seeded "+p.ID), member("version", p.Version))),
		member("protocolVersions", protocols),
		member("capabilities", p.Families),
		member("capabilityProfiles", profiles),
		member("entrypoint", object(member("transport", "stdio"), member("bin", t.run.self[0]), member("args", args))),
		member("artifact", object(member("fingerprint", t.run.fingerprint(p.ID)),
			member("checksums", []canon.Value{object(member("path", t.run.self[0]), member("sha256", t.run.selfSum))}))),
		member("provenance", object(member("publisher", publisher), member("source", "local"), member("license", "MIT"))),
		member("accessExpectations", object(
			member("filesystem", object(member("read", []string{"**/*"}), member("write", []string{}))),
			member("network", object(member("outbound", false), member("allowlist", []string{}))),
			member("secrets", object(member("names", []string{}))),
			member("environment", object(member("inherit", false), member("variables", []string{}))),
			member("dataClasses", []string{"source-code"}))),
	), nil
}

// fingerprint is what the manifest of a seeded provider says of its build: the
// program and the name that it goes by.
func (r *runner) fingerprint(id string) string {
	sum := sha256.Sum256([]byte(r.selfSum + "\n" + id))
	return "sha256:" + hex.EncodeToString(sum[:])
}

func fileSum(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
