package casetest

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/aspengine/asp/internal/need"
)

// TestGofix: the bundled Go provider, enrolled by the manifest that the binary prints,
// renames a symbol through the host, in its sandbox, by the gopls of this machine. The
// plan has authority from the committed policy, and the shell applies it.
func TestGofix(t *testing.T) {
	need.Tool(t, "gopls")
	root, err := exec.Command(need.Tool(t, "go"), "env", "GOROOT").Output()
	must(t, err)
	w := newWorld(t, map[string]string{
		"go.mod":   "module example.org/m\n\ngo 1.24\n",
		"a.go":     "package m\n\n// ü😀 Old is old.\nfunc Old() int { return 1 }\n",
		"sub/b.go": "package sub\n\nimport \"example.org/m\"\n\nfunc Use() int { /* 😀 */ return m.Old() }\n",
		"loose.md": "Old\n",
	})
	w.configure(obj{"sandbox": obj{"read": []string{strings.TrimSpace(string(root))}}})
	b := w.run("provider", "gofix", "--print-manifest").exits(0).out
	var m struct {
		Server     struct{ ID, Version string }
		Artifact   struct{ Fingerprint string }
		Provenance struct{ Publisher string }
		Profiles   []string `json:"capabilityProfiles"`
	}
	must(t, json.Unmarshal(b, &m))
	w.run("server", "add", "--manifest", w.beside("gofix.json", string(b), 0o644)).exits(0)
	w.run("repo", "add", w.root).exits(0)
	w.run("repo", "enable", "gofix", "--mode", "gated").exits(0)
	gate := obj{"requiredRequirements": []string{}, "optionalRequirements": []string{}}
	policy, err := json.Marshal(obj{
		"aspVersion": "asp/1.0", "requirements": []obj{{"id": "edits", "capabilities": []string{"edit"}, "assurance": []string{"gated"}, "authority": obj{"providers": []obj{{
			"id": m.Server.ID, "version": m.Server.Version, "identity": m.Provenance.Publisher, "integrity": m.Artifact.Fingerprint, "conformance": m.Profiles[0]}}}}},
		"gates": obj{"interactive": gate, "gate": gate, "sweep": gate},
		"policy": obj{"authorityModel": "explicit-pinned-provider", "policyChangeActivation": "base-policy-two-phase",
			"candidatePolicyAuthority": "trusted-base-or-organization-floor", "missingHost": obj{"interactive": "warn-open", "gate": "fail-closed", "sweep": "fail-closed"}},
	})
	must(t, err)
	w.write(".asp/asp.json", string(policy), 0o644)
	w.commit()

	base := w.run("status", "--json").exits(0).at("workspace", "baseline")
	at := obj{"line": 3, "char": 5}
	var in bytes.Buffer
	for i, c := range []struct {
		method string
		params obj
	}{
		{"host/queryInspect", obj{"callSite": "interactive", "timeoutMs": 120000, "request": obj{"method": "inspect/references", "params": obj{"symbol": obj{"path": "a.go", "position": at}}}}},
		{"host/requestEditPlan", obj{"callSite": "interactive", "operation": "rename", "baseline": base, "proposalId": "rename-1", "scope": obj{"paths": []string{"."}},
			"args": obj{"path": "a.go", "position": at, "newName": "New"}}},
		{"shutdown", obj{}},
	} {
		must(t, json.NewEncoder(&in).Encode(obj{"jsonrpc": "2.0", "id": i, "method": c.method, "params": c.params}))
	}
	mark := w.mark()
	r := w.runIn(w.root, in.Bytes(), "host", "serve").exits(0)
	mark.unchanged()
	for _, want := range []string{`"id":"a.go:3:5"`, `"id":"sub/b.go:4:35"`, `"status":"complete"`} {
		if !bytes.Contains(r.out, []byte(want)) {
			t.Errorf("no %s: %s", want, r)
		}
	}
	w.run("apply", "rename-1", "--json").applied()
	w.is("a.go", "package m\n\n// ü😀 New is old.\nfunc New() int { return 1 }\n")
	w.is("sub/b.go", "package sub\n\nimport \"example.org/m\"\n\nfunc Use() int { /* 😀 */ return m.New() }\n")
	w.is("loose.md", "Old\n")
	w.verifyReceipts()
	if left, err := os.ReadDir(w.tmp); err != nil || len(left) > 0 {
		t.Errorf("left in the temporary directory: %v, %v", left, err)
	}
}
