package conformance

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/aspengine/asp/internal/canon"
)

// proxyWord makes the test binary a host: the real one, with something broken.
const proxyWord = "conformance-proxy"

// proxy runs the real host, args[1:], and changes its answers as args[0] says.
func proxy(args []string) int {
	cmd := exec.Command(args[1], args[2:]...)
	cmd.Stderr = os.Stderr
	cmd.Stdin = os.Stdin
	if !slices.Contains(args, "serve") {
		cmd.Stdout = os.Stdout
		return status(cmd.Run())
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 3
	}
	if err := cmd.Start(); err != nil {
		return 3
	}
	r := bufio.NewReader(out)
	for {
		line, err := r.ReadBytes('\n')
		if args[0] == "writes-early" && bytes.Contains(line, []byte(`"proposal":`)) {
			os.WriteFile(args[len(args)-1]+"/early.txt", nil, 0o644) // --repo ROOT comes last
		}
		if v, perr := canon.Parse(bytes.TrimSpace(line), canon.Limits{Bytes: lineLimit}); perr == nil {
			line = append(corrupt(v, args[0]).Bytes(), '\n')
		}
		os.Stdout.Write(line)
		if err == io.EOF {
			break
		}
	}
	return status(cmd.Wait())
}

func status(err error) int {
	if e, ok := err.(*exec.ExitError); ok {
		return e.ExitCode()
	}
	if err != nil {
		return 3
	}
	return 0
}

// corrupt puts the fault into an answer, where it has what the fault is about.
func corrupt(m canon.Value, fault string) canon.Value {
	r, ok := m.Get("result")
	if !ok || r.Kind() != canon.Object {
		return m
	}
	none := canon.ArrayOf()
	has := func(keys ...string) bool { return at(r, keys...).Kind() != canon.Invalid }
	verdict := has("coverage", "degraded") && has("decision")
	switch {
	case fault == "flips-allow" && verdict:
		r = put(put(r, "allow", "decision"), true, "pass")
	case fault == "always-denies" && verdict:
		r = put(put(r, "deny", "decision"), false, "pass")
	case fault == "strips-degraded" && verdict:
		r = put(put(put(r, none, "coverage", "degraded"), none, "receipt", "coverage", "degraded"), none, "receipt", "failures")
	case fault == "hides-failures" && verdict:
		r = put(r, none, "receipt", "failures")
	case fault == "claims-isolated" && has("assurance", "mode"):
		r = put(put(r, "isolated", "assurance", "mode"), "isolated", "receipt", "assurance", "mode")
	case fault == "claims-staged" && at(r, "applied").Truth():
		r = put(put(r, "staged_snapshot", "assurance", "transactionGuarantee"), "staged_snapshot", "receipt", "assurance", "transactionGuarantee")
	case fault == "forgets-findings" && verdict:
		r = put(r, none, "findings")
	case fault == "says-applied" && has("applied") && !at(r, "applied").Truth():
		r = put(put(r, true, "applied"), at(r, "baselineBefore"), "baselineAfter").Without("refusal")
	case fault == "wrong-digest" && has("requestDigest"):
		r = put(put(r, "sha256:"+strings.Repeat("0", 64), "requestDigest"), "sha256:"+strings.Repeat("0", 64), "receipt", "requestDigest")
	case fault == "extra-member":
		r = put(r, true, "extra")
	case fault == "runs-everything" && verdict:
		r = put(put(r, at(r, "coverage", "required"), "coverage", "ran"), at(r, "coverage", "required"), "receipt", "coverage", "ran")
	}
	return m.With("result", r)
}

// TestRunnerCatches breaks the host in one way each, and wants the requirements
// that are about it to fail.
func TestRunnerCatches(t *testing.T) {
	self, err := os.Executable()
	ok(t, err)
	for _, c := range []struct {
		fault string
		fails []string
	}{
		{"flips-allow", []string{"CORE-MISSING-REQUIRED-PROVIDER", "HOSTILE-INCOMPLETE-REQUIRED-COVERAGE"}},
		{"always-denies", []string{"CORE-HOST-EVALUATE"}},
		{"strips-degraded", []string{"CORE-REQUIRED-COVERAGE-VISIBLE", "HOSTILE-OPTIONAL-DEGRADED-PROVIDER"}},
		{"hides-failures", []string{"CORE-REQUIRED-COVERAGE-VISIBLE"}},
		{"claims-isolated", []string{"ASSURANCE-ISOLATED-DOWNGRADE", "ASSURANCE-GATED-BOUNDARY", "ASSURANCE-ADVISORY-REPORTING"}},
		{"claims-staged", []string{"ASSURANCE-TRANSACTION-GUARANTEE-BOUND"}},
		{"forgets-findings", []string{"CORE-HOST-EVALUATE", "CORE-CHECK-ASSESSMENT"}},
		{"says-applied", []string{"EDIT-HOST-UNKNOWN-PROPOSAL", "EDIT-HOST-CAS-CONFLICT"}},
		{"wrong-digest", []string{"CORE-HOST-EVALUATE"}},
		{"extra-member", []string{"CORE-HOST-STATUS"}},
		{"writes-early", []string{"EDIT-HOST-REQUEST-PLAN-NO-WRITE", "EDIT-HOST-MALFORMED-OUTPUT"}},
		{"runs-everything", []string{"CORE-REQUIRED-COVERAGE-VISIBLE"}},
	} {
		t.Run(c.fault, func(t *testing.T) {
			t.Parallel()
			r, _ := suite(t, "--host", fmt.Sprintf("%s %s %s %s", self, proxyWord, c.fault, binary), "--only", strings.Join(c.fails, ","))
			for _, q := range r.Requirements {
				if q.Result == Pass {
					t.Errorf("%s passes on a host that %s", q.ID, c.fault)
				}
				if slices.ContainsFunc(q.Problems, func(p string) bool { return strings.Contains(p, "exit status 2") }) {
					t.Errorf("%s fails for the proxy's own sake: %q", q.ID, q.Problems)
				}
			}
		})
	}
}

// TestRunnerCatchesProviders tries providers that are none.
func TestRunnerCatchesProviders(t *testing.T) {
	role := `{"families":["check"],"id":"p","version":"1.0.0"}`
	r, _ := suite(t, "--profile", Server, "--provider", binary+" "+ProviderWord+" "+role)
	byID := map[string]string{}
	for _, q := range r.Requirements {
		byID[q.ID] = q.Result
	}
	// The seeded provider is good to a host, and careless where only a bad host
	// would see it.
	for _, id := range []string{"CORE-SERVER-UNSUPPORTED-PROTOCOL", "CORE-SERVER-PREINITIALIZED", "CORE-SERVER-TYPED-ERROR", "CORE-SERVER-REJECTED-MALFORMED-HOST-FIELDS"} {
		if byID[id] != Fail {
			t.Errorf("%s: %s for a provider that accepts everything", id, byID[id])
		}
	}
	for _, id := range []string{"CORE-SERVER-INITIALIZE", "CORE-SERVER-VALID-RESULTS", "CORE-SERVER-BEHAVIOR-ONLY"} {
		if byID[id] == Skipped || byID[id] == "" {
			t.Errorf("%s: %q", id, byID[id])
		}
	}
	r, _ = suite(t, "--profile", Server, "--provider", "/bin/cat")
	if r.Summary.Passed > 0 {
		t.Errorf("cat passes %d requirements", r.Summary.Passed)
	}
}
