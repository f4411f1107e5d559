package policy_test

import (
	"strings"
	"testing"

	"github.com/aspengine/asp/checks/policy"
	"github.com/aspengine/asp/seam/wire"
)

func TestCandidateMayNotWeaken(t *testing.T) {
	base := policy.Active(config(t, `{}`), []byte(goodRepository), true)
	change := func(pairs ...string) []byte {
		s := goodRepository
		for i := 0; i < len(pairs); i += 2 {
			if !strings.Contains(s, pairs[i]) {
				t.Fatalf("nothing to replace: %s", pairs[i])
			}
			s = strings.Replace(s, pairs[i], pairs[i+1], 1)
		}
		return []byte(s)
	}
	for _, c := range []struct {
		name  string
		after []byte
		want  string // "" when it may be judged like any change
	}{
		{"the same", change(), ""},
		{"another spelling", change("\n", "  \n"), ""},
		{"a further gate", change(`"interactive": {"requiredRequirements": []`, `"interactive": {"requiredRequirements": ["edit"]`), ""},
		{"optional made required", change(`{"requiredRequirements": [], "optionalRequirements": ["lint"]}`, `{"requiredRequirements": ["lint"], "optionalRequirements": []}`), ""},
		{"a stronger assurance", change(`["gated", "isolated"]`, `["isolated"]`), ""},
		{"a shorter budget", change(`"interactiveMs": 5000`, `"interactiveMs": 50`), ""},
		{"removed", nil, "the policy is removed"},
		{"outside the schema", []byte(`{}`), "would be rejected"},
		{"a gate less", change(`["lint", "command/vet"]`, `["lint"]`), `gate no longer requires "command/vet"`},
		{"required made optional", change(`{"requiredRequirements": ["lint", "command/vet"], "optionalRequirements": []}`,
			`{"requiredRequirements": ["lint"], "optionalRequirements": ["command/vet"]}`), "gate no longer requires"},
		{"optional dropped", change(`"optionalRequirements": ["lint"]`, `"optionalRequirements": []`), "interactive no longer asks for"},
		{"a weaker assurance", change(`["gated", "isolated"]`, `["gated", "advisory"]`), "accepts a weaker assurance"},
		{"another pin", change(`"version": "1", "package"`, `"version": "2", "package"`), `gives authority to "p" "2"`},
		{"a new capability", change(`["edit", "inspect"]`, `["edit", "inspect", "check"]`), "authority to check"},
		{"a capability less", change(`["edit", "inspect"]`, `["edit"]`), "no longer covers inspect"},
		{"another id", change(`"id": "lint"`, `"id": "lint2"`), `requirement "lint" is removed`},
		{"a longer budget", change(`"interactiveMs": 5000`, `"interactiveMs": 50000`), "budget of interactive is raised"},
		{"open without a host", change(`"sweep": "fail-closed"`, `"sweep": "warn-open"`), "sweep opens where no host is there"},
		{"closed without a host", change(`"interactive": "warn-open"`, `"interactive": "fail-closed"`), ""},
		{"an adapter", change(`"acp": {"enabled": false}`, `"acp": {"enabled": true}`), "adapter acp"},
		{"an adapter less", change(`"enabled": true, "mode"`, `"enabled": false, "mode"`), ""},
		{"no budget", change(`"gateMs": 1`, `"sweepMs": 1`), "budget of gate is raised"},
	} {
		g, found := base.Candidate(c.after)
		if found != (c.want != "") || !strings.Contains(g.Detail, c.want) {
			t.Errorf("%s: %v %q, want %q", c.name, found, g.Detail, c.want)
		}
		if found && g.Reason != wire.DegradePolicySelfAuthorization {
			t.Errorf("%s: reason %s", c.name, g.Reason)
		}
	}
	// The first policy of a repository gives authority that nobody approved.
	if _, found := policy.Active(config(t, `{}`), nil, true).Candidate([]byte(goodRepository)); !found {
		t.Error("a first policy with pins authorizes itself")
	}
}
