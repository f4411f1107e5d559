package casetest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// seeded enrols the provider of the conformance suite that comes with the binary,
// gated, and commits a policy that pins it: its check is asked for everywhere and
// its plans have authority. What it does stands in the name of a file that is
// judged, as ID=HOW.txt.
func (w *world) seeded(id string) {
	w.t.Helper()
	b, err := os.ReadFile(binary)
	must(w.t, err)
	s := sha256.Sum256(b)
	sum := hex.EncodeToString(s[:])
	none := []string{}
	manifest, err := json.Marshal(obj{
		"manifestVersion": "asp-server/1.0", "server": obj{"id": id, "name": id, "version": "1.0.0"},
		"protocolVersions": []string{"asp/1.0"}, "capabilities": []string{"check", "edit"}, "capabilityProfiles": []string{"seeded"},
		"entrypoint": obj{"transport": "stdio", "bin": binary, "args": []string{"conformance-provider", `{"id":"` + id + `","version":"1.0.0","families":["check","edit"]}`}},
		"artifact":   obj{"fingerprint": "sha256:" + sum, "checksums": []obj{{"path": binary, "sha256": sum}}},
		"provenance": obj{"publisher": "tests", "source": "local", "license": "Apache-2.0"},
		"accessExpectations": obj{
			"filesystem": obj{"read": []string{"**/*"}, "write": none}, "network": obj{"outbound": false, "allowlist": none},
			"secrets": obj{"names": none}, "environment": obj{"inherit": false, "variables": none}, "dataClasses": []string{"source-code"}},
	})
	must(w.t, err)
	w.run("server", "add", "--manifest", w.beside(id+".json", string(manifest), 0o644)).exits(0)
	w.run("repo", "add", w.root).exits(0)
	w.run("repo", "enable", id, "--mode", "gated").exits(0)
	pin := obj{"id": id, "version": "1.0.0", "identity": "tests", "integrity": "sha256:" + sum, "conformance": "seeded"}
	need := func(name, family string) obj {
		return obj{"id": name, "capabilities": []string{family}, "assurance": []string{"advisory"}, "authority": obj{"providers": []obj{pin}}}
	}
	gate := obj{"requiredRequirements": []string{"checked"}, "optionalRequirements": none}
	policy, err := json.Marshal(obj{
		"aspVersion": "asp/1.0", "requirements": []obj{need("checked", "check"), need("edits", "edit")},
		"gates": obj{"interactive": gate, "gate": gate, "sweep": gate},
		"policy": obj{"authorityModel": "explicit-pinned-provider", "policyChangeActivation": "base-policy-two-phase",
			"candidatePolicyAuthority": "trusted-base-or-organization-floor", "missingHost": obj{"interactive": "warn-open", "gate": "fail-closed", "sweep": "fail-closed"}},
	})
	must(w.t, err)
	w.write(".asp/asp.json", string(policy), 0o644)
	w.commit()
}

// TestFix: what a finding brings as a fix becomes a proposal, by editRef, by actRef and
// by the edit itself, and the finding is named in full, by its start, or by its code.
// Nothing is applied until the proposal is.
func TestFix(t *testing.T) {
	w := newWorld(t, map[string]string{"a.txt": "a\n"})
	w.seeded("fx")
	fingerprint := strings.Repeat("cd", 32)
	w.run("fix", "cdcdcd").exits(1) // nothing was evaluated yet
	for _, c := range []struct{ how, name string }{
		{"fix-edit", "sha256:" + fingerprint}, {"fix-act", fingerprint[:6]}, {"fix-edit", "fx/rule"}, {"fix-own", fingerprint[:7]}, {"fix-inline", fingerprint[:8]},
	} {
		t.Run(c.how+" by "+c.name[:6], func(t *testing.T) {
			w := w.as(t)
			file := "fx=" + c.how + ".txt"
			w.write(file, "text\n", 0o644)
			r := w.run("check", "--changed", "--json").exits(0)
			if findings, _ := r.at("hostDecision", "findings").([]any); len(findings) != 1 {
				t.Fatalf("%s", r)
			}
			// A dry run of what does not come with the finding keeps the plan all the same:
			// the provider has to be asked for it.
			m := w.mark()
			if c.how == "fix-inline" { // there is nobody to be asked, so nothing is kept
				r = w.run("fix", c.name, "--dry-run", "--json").exits(0)
				w.run("apply", r.str("proposalId"), "--json").exits(1)
			}
			r = w.run("fix", c.name, "--json").exits(0)
			m.unchanged()
			id := r.str("proposalId")
			if r.at("wouldApply") != true || !strings.HasPrefix(id, "fix-cdcdcdcdcdcd-") || !strings.Contains(r.str("diff"), "+"+c.how) {
				t.Fatalf("%s", r)
			}
			w.run("apply", id, "--json").applied()
			w.is(file, c.how+"\ntext\n")
			if c.how == "fix-inline" { // made for content that has moved since
				if r = w.run("fix", c.name, "--json").exits(1); !strings.HasPrefix(r.str("refusal", "detail"), "stale-basis: ") {
					t.Errorf("%s", r)
				}
				w.is(file, c.how+"\ntext\n")
			}
			must(t, os.Remove(w.path(file)))
		})
	}
	// Nobody makes a plan of what it names: that is said, and not that a plan is missing.
	w.write("fx=fix-none.txt", "text\n", 0o644)
	w.run("check", "--changed").exits(0)
	if r := w.run("fix", "cdcdcd", "--json").exits(1); !strings.HasPrefix(r.str("refusal", "detail"), "unsupported-operation: ") || !strings.Contains(r.str("refusal", "detail"), `"fx/text-edit"`) {
		t.Errorf("%s", r)
	}
	must(t, os.Remove(w.path("fx=fix-none.txt")))
	w.write("fx=warn.txt", "text\n", 0o644)
	w.run("check", "--changed").exits(0)
	for name, says := range map[string]string{"cdcdcd": "brings no fix", "cdc": "no finding", "ab12": "no finding", "fx/other": "no finding"} {
		if r := w.run("fix", name).exits(1); !strings.Contains(r.errs, says) {
			t.Errorf("fix %s: %s", name, r.errs)
		}
	}
}
