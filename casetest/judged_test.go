package casetest

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// enrol registers a bundled provider from the manifest that it prints, and lets it
// take part here. It returns the pin that names it.
func (w *world) enrol(name, mode string) obj {
	w.t.Helper()
	m := w.run("provider", name, "--print-manifest").exits(0)
	var v struct {
		Server             struct{ ID, Version string }
		Provenance         struct{ Publisher string }
		Artifact           struct{ Fingerprint string }
		CapabilityProfiles []string
	}
	must(w.t, json.Unmarshal(m.out, &v))
	w.run("server", "add", "--manifest", w.beside(name+".json", string(m.out), 0o644)).exits(0)
	w.run("repo", "add", w.root).exits(0)
	w.run("repo", "enable", v.Server.ID, "--mode", mode).exits(0)
	return obj{"id": v.Server.ID, "version": v.Server.Version, "identity": v.Provenance.Publisher, "integrity": v.Artifact.Fingerprint, "conformance": v.CapabilityProfiles[0]}
}

// policy commits a policy whose one requirement pins a provider for check on the
// call-site gate.
func (w *world) policy(pin obj) {
	w.t.Helper()
	none := obj{"requiredRequirements": []string{}, "optionalRequirements": []string{}}
	b, err := json.Marshal(obj{
		"aspVersion": "asp/1.0",
		"requirements": []obj{{"id": "no-secrets", "capabilities": []string{"check"}, "assurance": []string{"advisory"},
			"authority": obj{"providers": []obj{pin}}}},
		"gates": obj{"interactive": none, "sweep": none, "gate": obj{"requiredRequirements": []string{"no-secrets"}, "optionalRequirements": []string{}}},
		"policy": obj{"authorityModel": "explicit-pinned-provider", "policyChangeActivation": "base-policy-two-phase",
			"candidatePolicyAuthority": "trusted-base-or-organization-floor", "missingHost": obj{"interactive": "warn-open", "gate": "fail-closed", "sweep": "warn-open"}},
	})
	must(w.t, err)
	w.write(".asp/asp.json", string(b), 0o644)
	w.commit()
}

// TestJudgedByAProvider lets a bundled provider, enrolled like any other, judge
// what the shell applies: started for it, heard, and gone afterwards.
func TestJudgedByAProvider(t *testing.T) {
	w := newWorld(t, map[string]string{"a.txt": "hello\n"})
	w.policy(w.enrol("secrets", "gated"))
	key := "AKIA" + "Q3EGVZ7WXK2LMN4P"
	leak := w.plan().modify("a.txt", "hello\n", "key = \""+key+"\"\n")
	m := w.mark()
	r := leak.apply("--call-site", "gate").refused("check-denied")
	m.unchanged()
	if strings.Contains(string(r.out), key) {
		t.Error("the answer repeats the secret")
	}
	if ran, _ := r.at("decision", "coverage", "ran").([]any); !slices.Contains(ran, any("no-secrets")) {
		t.Errorf("ran %v", ran)
	}
	r = w.plan().modify("a.txt", "hello\n", "hi\n").apply("--call-site", "gate").applied()
	if ids, _ := r.at("receipt", "providerIds").([]any); !slices.Contains(ids, any("secrets")) {
		t.Errorf("the receipt credits %v", ids)
	}
	// Nothing asks it on interactive, so nothing starts it.
	leak = w.plan().modify("a.txt", "hi\n", "key = \""+key+"\"\n")
	r = leak.apply().applied()
	ran, _ := r.at("decision", "coverage", "ran").([]any)
	if r.at("decision", "decision") != "allow" || len(ran) > 0 {
		t.Errorf("asked where nothing was to be asked: %v", r)
	}
	w.clean()

	st := w.run("status", "--json").exits(0)
	servers, _ := st.at("servers").([]any)
	if len(servers) != 1 || servers[0].(map[string]any)["state"] != "installed" || st.at("gates", "gate", "available") != true {
		t.Errorf("status: %v", st)
	}
	// Without it a gate cannot be passed.
	w.run("repo", "enable", "secrets", "--mode", "advisory").exits(0)
	m = w.mark()
	w.plan().modify("a.txt", "key = \""+key+"\"\n", "hello\n").apply("--call-site", "gate").refused("check-indeterminate")
	m.unchanged()
	if got := w.listed(); slices.Index(got, "answered - status") < 0 || !slices.Equal(slices.DeleteFunc(got, func(s string) bool { return s == "answered - status" }),
		[]string{"refused deny p", "applied allow p", "applied allow p", "refused indeterminate p"}) {
		t.Errorf("%q", got)
	}
}

// listed is what the list of receipts says of each: what became of it, what was
// decided, and of what, a proposal being p.
func (w *world) listed() (out []string) {
	w.t.Helper()
	for l := range strings.Lines(string(w.run("receipts", "list").exits(0).out)) {
		f := strings.Fields(l)
		if len(f) != 5 {
			w.t.Fatalf("%q", l)
		}
		if f[4] != "status" && f[4] != "evaluate" {
			f[4] = "p"
		}
		out = append(out, strings.Join(f[2:], " "))
	}
	return out
}
