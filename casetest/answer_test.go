package casetest

import (
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"strings"
)

// at walks into an answer: at("refusal", "reason").
func (r *result) at(keys ...string) any {
	var v any = r.answer
	for _, k := range keys {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[k]
	}
	return v
}

func (r *result) str(keys ...string) string { s, _ := r.at(keys...).(string); return s }

func (r *result) String() string {
	return fmt.Sprintf("asp %s: exit %d\nstdout %.3000s\nstderr %.2000s", strings.Join(r.args, " "), r.code, r.out, r.errs)
}

// applied fails unless the answer says that it is done.
func (r *result) applied() *result {
	r.t.Helper()
	if r.code != 0 || r.at("applied") != true {
		r.t.Fatalf("want applied: %s", r)
	}
	r.valid("outer-host.schema.json#/$defs/applyProposalResult")
	if r.at("refusal") != nil || r.at("baselineAfter") == nil {
		r.t.Errorf("an applied answer has baselineAfter and no refusal: %s", r)
	}
	return r
}

// codes are the distinct codes of a refusal, sorted.
func (r *result) codes() []string {
	set := map[string]bool{}
	add := func(s string) { c, _, _ := strings.Cut(s, ":"); set[c] = true }
	add(r.str("refusal", "detail"))
	cs, _ := r.at("refusal", "conflicts").([]any)
	for _, c := range cs {
		m, _ := c.(map[string]any)
		s, _ := m["detail"].(string)
		add(s)
	}
	var out []string
	for c := range set {
		out = append(out, c)
	}
	sort.Strings(out)
	return out
}

// conflict tells whether a code is given for a path.
func (r *result) conflict(code, path string) bool {
	cs, _ := r.at("refusal", "conflicts").([]any)
	for _, c := range cs {
		m, _ := c.(map[string]any)
		s, _ := m["detail"].(string)
		if m["path"] == path && strings.HasPrefix(s, code+":") {
			return true
		}
	}
	return false
}

// refused fails unless the answer is a refusal with this code first, its reason,
// and a conflict with the code for each path.
func (r *result) refused(code string, paths ...string) *result {
	r.t.Helper()
	return r.refusedAny([]string{code}, paths...)
}

// refusedAny is refused where the contract leaves a choice of codes.
func (r *result) refusedAny(codes []string, paths ...string) *result {
	r.t.Helper()
	if r.code != 1 || r.at("applied") != false {
		r.t.Fatalf("want refused (%s): %s", strings.Join(codes, " or "), r)
	}
	r.valid("outer-host.schema.json#/$defs/applyProposalResult")
	r.t.Logf("refused: %s", r.str("refusal", "detail"))
	got, _, _ := strings.Cut(r.str("refusal", "detail"), ":")
	if !slices.Contains(codes, got) {
		r.t.Fatalf("code %q, want %s: %s", got, strings.Join(codes, " or "), r)
	}
	if want := reasons[got]; r.str("refusal", "reason") != want {
		r.t.Errorf("reason %q of %s, want %q", r.str("refusal", "reason"), got, want)
	}
	for _, p := range paths {
		if !slices.ContainsFunc(codes, func(c string) bool { return r.conflict(c, p) }) {
			r.t.Errorf("no conflict %s for %q: %s", strings.Join(codes, " or "), p, r)
		}
	}
	if g := r.str("assurance", "transactionGuarantee"); g != "none" && !r.rolledBack() {
		r.t.Errorf("a refusal claims the guarantee %q", g)
	}
	if r.at("baselineAfter") != nil {
		r.t.Errorf("a refusal has a baselineAfter: %s", r)
	}
	if r.str("receipt", "receiptId") == "" {
		r.t.Errorf("a refusal without a receipt: %s", r)
	}
	return r
}

func (r *result) rolledBack() bool {
	return r.str("assurance", "transactionGuarantee") == "rollback_attempted"
}

// says fails unless the command ended so and its text holds all of this, in this
// order; lines may be broken anywhere.
func (r *result) says(code int, want ...string) *result {
	r.t.Helper()
	fold := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	rest := fold(string(r.out))
	for _, s := range want {
		_, after, ok := strings.Cut(rest, fold(s))
		if r.code != code || !ok {
			r.t.Errorf("want exit status %d and %q: %s", code, s, r)
		}
		rest = after
	}
	return r
}

// failed fails unless the command could not tell or could not do.
func (r *result) failed() *result {
	r.t.Helper()
	if r.code != 3 || r.str("error", "data", "failClass") == "" || r.str("error", "message") == "" {
		r.t.Fatalf("want an error with exit status 3: %s", r)
	}
	return r
}

// reasons is the contract's table.
var reasons = map[string]string{
	"bad-message": "malformed", "bad-range": "malformed", "overlap": "malformed", "not-text": "malformed", "path-invalid": "malformed",
	"host-field": "malformed", "command-like": "malformed",
	"missing-blob":     "missing-blob",
	"unknown-proposal": "stale-baseline", "foreign-baseline": "stale-baseline", "stale-valid-as-of": "stale-baseline",
	"stale-basis": "conflict", "merge-conflict": "conflict", "changed-underneath": "conflict", "index-diverges": "conflict",
	"id-reuse": "conflict", "needs-attention": "conflict",
	"exists": "precondition-failed", "missing": "precondition-failed", "not-empty": "precondition-failed", "out-of-scope": "precondition-failed",
	"path-protected": "unsupported", "path-escape": "unsupported", "not-regular": "unsupported", "hard-linked": "unsupported",
	"metadata": "unsupported", "not-writable": "unsupported", "cross-device": "unsupported", "filtered-path": "unsupported",
	"not-checked-out": "unsupported", "other-repository": "unsupported", "name-collision": "unsupported", "busy": "unsupported",
	"dirty": "unsupported", "unsupported-operation": "unsupported",
	"check-denied": "validation-denied", "check-indeterminate": "validation-indeterminate",
	"no-authority": "missing-authority", "weak-assurance": "insufficient-assurance", "weak-guarantee": "insufficient-assurance",
	"direct-write": "direct-write-risk",
}

// jsonInto decodes one answer.
func jsonInto(b []byte, v any) error { return json.Unmarshal(b, v) }
