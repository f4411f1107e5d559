package wire_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/wire"
)

const schemaBase = "https://covibes.dev/asp/schemas/"

// schemaDir finds the public schemas: ASP_SCHEMA_DIR, or asp/schemas in a
// directory named shared beside one of our parents.
func schemaDir(t *testing.T) string {
	t.Helper()
	if d := os.Getenv("ASP_SCHEMA_DIR"); d != "" {
		return d
	}
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for d := wd; d != filepath.Dir(d); d = filepath.Dir(d) {
		s := filepath.Join(d, "shared", "asp", "schemas")
		if _, err := os.Stat(s); err == nil {
			return s
		}
	}
	t.Skip("the public schemas are not here; set ASP_SCHEMA_DIR")
	return ""
}

func compiler(t *testing.T) *jsonschema.Compiler {
	t.Helper()
	dir := schemaDir(t)
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	names, err := filepath.Glob(filepath.Join(dir, "*.schema.json"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no schemas in %s: %v", dir, err)
	}
	for _, n := range names {
		b, err := os.ReadFile(n)
		if err != nil {
			t.Fatal(err)
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.AddResource(schemaBase+filepath.Base(n), doc); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func validate(t *testing.T, s *jsonschema.Schema, v canon.Value) error {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(v.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(doc)
}

// messages pairs our types with the public schema of each.
var messages = []struct {
	schema string
	fresh  func() any
	member string // where examples hold it, under "result"
}{
	{"edit-plan.schema.json", func() any { return new(wire.EditPlan) }, "proposal"},
	{"verdict.schema.json", func() any { return new(wire.Verdict) }, ""},
	{"outer-host.schema.json#/$defs/applyProposalResult", func() any { return new(wire.ApplyProposalResult) }, ""},
	{"outer-host.schema.json#/$defs/statusResult", func() any { return new(wire.StatusResult) }, ""},
	{"outer-host.schema.json#/$defs/capabilitiesResult", func() any { return new(wire.CapabilitiesResult) }, ""},
	{"outer-host.schema.json#/$defs/authorityStatusResult", func() any { return new(wire.AuthorityStatusResult) }, ""},
	{"outer-host.schema.json#/$defs/requestEditPlanResult", func() any { return new(wire.RequestEditPlanResult) }, ""},
	{"outer-host.schema.json#/$defs/queryInspectResult", func() any { return new(wire.QueryInspectResult) }, ""},
	{"changeset.schema.json", func() any { return new(wire.ChangeSet) }, ""},
	{"error.schema.json", func() any { return new(wire.Error) }, ""},
	{"initialize.schema.json#/$defs/params", func() any { return new(wire.InitializeParams) }, ""},
	{"initialize.schema.json#/$defs/result", func() any { return new(wire.InitializeResult) }, ""},
	{"initialize.schema.json#/$defs/initializedParams", func() any { return new(wire.InitializedParams) }, ""},
	{"capabilities.schema.json#/$defs/checkCapability", func() any { return new(wire.CheckCapability) }, ""},
	{"capabilities.schema.json#/$defs/editCapability", func() any { return new(wire.EditCapability) }, ""},
	{"check-evaluate.schema.json#/$defs/params", func() any { return new(wire.EvaluateParams) }, ""},
	{"check-assessment.schema.json", func() any { return new(wire.Assessment) }, ""},
	{"check-assessment.schema.json#/$defs/validAsOf", func() any { return new(wire.AssessmentValidAsOf) }, ""},
	{"diagnostic.schema.json", func() any { return new(wire.Diagnostic) }, ""},
	{"edit-propose.schema.json#/$defs/params", func() any { return new(wire.ProposeParams) }, ""},
	{"edit-propose.schema.json#/$defs/result", func() any { return new(wire.ProposeResult) }, ""},
	{"sense-requests.schema.json#/$defs/references.params", func() any { return new(wire.ReferencesParams) }, ""},
	{"sense-requests.schema.json#/$defs/impact.params", func() any { return new(wire.ImpactParams) }, ""},
	{"sense-graph.schema.json#/$defs/graphResult", func() any { return new(wire.GraphResult) }, ""},
	{"sense-graph.schema.json#/$defs/impactResult", func() any { return new(wire.ImpactResult) }, ""},
	{"host-callbacks.schema.json#/$defs/readBlob.params", func() any { return new(wire.ReadBlobParams) }, ""},
	{"host-callbacks.schema.json#/$defs/readBlob.result", func() any { return new(wire.ReadBlobResult) }, ""},
	{"progress.schema.json#/$defs/params", func() any { return new(wire.ProgressParams) }, ""},
}

// TestAgreesWithPublicExamples decodes every value in the public examples that
// is a valid message, and holds that our own encoding of it is valid too.
func TestAgreesWithPublicExamples(t *testing.T) {
	c := compiler(t)
	examples := filepath.Join(filepath.Dir(schemaDir(t)), "examples")
	if _, err := os.Stat(examples); err != nil {
		t.Skip("the public examples are not beside the schemas")
	}
	for _, m := range messages {
		s, err := c.Compile(schemaBase + m.schema)
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		try := func(file string, v canon.Value) {
			valid := validate(t, s, v) == nil
			into := m.fresh()
			err := wire.Decode(v, into)
			if !valid {
				return
			}
			found++
			if err != nil {
				t.Errorf("%s: valid %s refused: %v", file, m.schema, err)
				return
			}
			again, err := canon.From(into)
			if err != nil {
				t.Errorf("%s: %v", file, err)
			} else if err := validate(t, s, again); err != nil {
				t.Errorf("%s: our %s is not valid: %v", file, m.schema, err)
			} else if !canon.Equal(v, again) {
				t.Errorf("%s: %s changed:\n%s\n%s", file, m.schema, v.Bytes(), again.Bytes())
			}
		}
		err = filepath.WalkDir(examples, func(p string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(p, ".json") {
				return err
			}
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			v, err := canon.Parse(b, canon.Limits{})
			if err != nil {
				return err
			}
			everyObject(v, func(o canon.Value) { try(filepath.Base(p), o) })
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%-55s %d valid values", m.schema, found)
		// The published status examples are older than the schema.
		if found == 0 && !strings.Contains(m.schema, "outer-host") {
			t.Errorf("no example of %s found", m.schema)
		}
	}
}

func everyObject(v canon.Value, f func(canon.Value)) {
	if v.Kind() == canon.Object {
		f(v)
	}
	for i := range v.Len() {
		everyObject(v.At(i), f)
	}
}

// TestRefusesWhatTheSchemaRefuses takes messages and drops or renames each
// member in turn: what is invalid for the schema must be refused by us, and
// nothing else.
func TestRefusesWhatTheSchemaRefuses(t *testing.T) {
	c := compiler(t)
	for _, m := range []struct {
		schema, in string
		fresh      func() any
		scan       func(canon.Value) []wire.Forbidden
		least      int
	}{
		{"edit-plan.schema.json", plan, func() any { return new(wire.EditPlan) }, wire.ScanForbidden, 100},
		{"edit-plan.schema.json", fullPlan, func() any { return new(wire.EditPlan) }, wire.ScanForbidden, 100},
		{"edit-plan.schema.json", incompletePlan, func() any { return new(wire.EditPlan) }, wire.ScanForbidden, 100},
		{"check-assessment.schema.json", assessment, func() any { return new(wire.Assessment) }, wire.ScanHostOwned, 400},
		{"check-evaluate.schema.json#/$defs/params", evaluateParams, func() any { return new(wire.EvaluateParams) }, scanPrior, 100},
		{"initialize.schema.json#/$defs/params", initializeParams, func() any { return new(wire.InitializeParams) }, nil, 60},
		{"initialize.schema.json#/$defs/result", initializeResult, func() any { return new(wire.InitializeResult) }, nil, 300},
		{"initialize.schema.json#/$defs/initializedParams", initializedParams, func() any { return new(wire.InitializedParams) }, nil, 60},
		{"edit-propose.schema.json#/$defs/params", proposeParams, func() any { return new(wire.ProposeParams) }, wire.ScanForbidden, 60},
		{"sense-requests.schema.json#/$defs/references.params", referencesParams, func() any { return new(wire.ReferencesParams) }, nil, 30},
		{"sense-requests.schema.json#/$defs/callers.params", callersParams, func() any { return new(wire.CallsParams) }, nil, 20},
		{"sense-requests.schema.json#/$defs/symbols.params", symbolsParams, func() any { return new(wire.SymbolsParams) }, nil, 20},
		{"sense-requests.schema.json#/$defs/impact.params", impactParams, func() any { return new(wire.ImpactParams) }, nil, 30},
		{"sense-requests.schema.json#/$defs/query.params", queryParams, func() any { return new(wire.QueryParams) }, nil, 20},
		{"sense-graph.schema.json#/$defs/graphResult", graphResult, func() any { return new(wire.GraphResult) }, nil, 100},
		{"sense-graph.schema.json#/$defs/impactResult", impactResult, func() any { return new(wire.ImpactResult) }, nil, 60},
		{"host-callbacks.schema.json#/$defs/listTree.params", listTreeParams, func() any { return new(wire.ListTreeParams) }, nil, 20},
		{"host-callbacks.schema.json#/$defs/putBlob.params", `{"blobs":[{"encoding":"utf-8","bytes":"x"}]}`, func() any { return new(wire.PutBlobParams) }, nil, 20},
		{"host-callbacks.schema.json#/$defs/logMessage.params", `{"level":"warn","message":"m"}`, func() any { return new(wire.LogMessageParams) }, nil, 10},
		{"host-callbacks.schema.json#/$defs/publishDiagnostics.params", publishParams, func() any { return new(wire.PublishDiagnosticsParams) }, wire.ScanHostOwned, 60},
		{"progress.schema.json#/$defs/params", `{"token":"t","value":{"kind":"report","percentage":5,"message":"m"}}`, func() any { return new(wire.ProgressParams) }, nil, 20},
		{"progress.schema.json#/$defs/params", `{"token":7,"value":{"kind":"diagnostics","diagnostics":[]}}`, func() any { return new(wire.ProgressParams) }, nil, 20},
		{"progress.schema.json#/$defs/params", `{"token":7,"value":{"kind":"end","message":"m"}}`, func() any { return new(wire.ProgressParams) }, nil, 20},
	} {
		s, err := c.Compile(schemaBase + m.schema)
		if err != nil {
			t.Fatal(err)
		}
		v := value(t, m.in)
		if err := validate(t, s, v); err != nil {
			t.Fatal(err)
		}
		into := m.fresh()
		if err := wire.Decode(v, into); err != nil {
			t.Errorf("%s: %v", m.schema, err)
			continue
		}
		if again, err := canon.From(into); err != nil || !canon.Equal(v, again) {
			t.Errorf("%s: decoded and encoded again: %v\n%s\n%s", m.schema, err, v.Bytes(), again.Bytes())
		}
		tried := 0
		mutate(v, func(v canon.Value) {
			tried++
			got, want := wire.Decode(v, m.fresh()), validate(t, s, v)
			if m.scan != nil && len(m.scan(v)) > 0 {
				got = errForbidden // the two belong together
			}
			if got == nil && want != nil {
				t.Errorf("%s: accepted against the schema: %v\n%s", m.schema, want, v.Bytes())
			}
			if got != nil && want == nil {
				t.Errorf("%s: refused in spite of the schema: %v\n%s", m.schema, got, v.Bytes())
			}
		})
		if tried < m.least {
			t.Errorf("%s: only %d variants", m.schema, tried)
		}
	}
}

// scanPrior leaves out the configuration, which is the host's own.
func scanPrior(v canon.Value) []wire.Forbidden {
	prior, _ := v.Get("priorDiagnostics")
	return wire.ScanHostOwned(prior)
}

var errForbidden = errors.New("forbidden member")

// fullPlan has every member of a plan and every kind of operation.
const fullPlan = `{"proposalId":"p1","provider":{"id":"x","version":"1","capabilityFamily":"edit","capabilityVersion":"edit/1.0","configDigest":"d","buildDigest":"b"},
"status":"complete","baseline":{"rev":"tree:x","dirty":"sha256:00","stampedAt":"2026-01-02T03:04:05.5+01:00"},
"validAsOf":{"baseline":{"rev":"tree:x"},"blobs":["blob:sha256:aa","blob:sha256:bb"]},
"touchedResources":[{"path":"a","kind":"rename","to":"b","precondition":{"expectedDigest":"blob:sha256:aa"}},{"path":"c","kind":"create","precondition":{"expectedAbsence":true}}],
"workspaceEdit":{"baseline":{"rev":"tree:x"},"documentChanges":[
{"path":"a","kind":"rename","to":"b","precondition":{"expectedDigest":"blob:sha256:aa"}},
{"path":"a","kind":"move","to":"b","precondition":{"expectedDigest":"blob:sha256:aa"}},
{"path":"c","kind":"create","precondition":{"expectedAbsence":true},"after":"blob:sha256:bb","annotations":[{"message":"m","range":{"start":{"line":0,"char":0},"end":{"line":0,"char":1}},"data":{"x":{"y":[1,null]}}}]},
{"path":"d","kind":"delete","precondition":{"expectedDigest":"blob:sha256:aa"}},
{"path":"e","kind":"modify","precondition":{"expectedDigest":"blob:sha256:aa"},"after":"blob:sha256:bb"}]},
"incomplete":{"reason":"budget-exhausted","detail":"d","recoverable":true},
"unsupported":{"operation":"o","reason":"scope","detail":"d","supportedOperations":["a","b"]},
"refusal":{"reason":"scope-denied","detail":"d","data":{"k":1}},"error":{"code":"c","message":"m","data":{}},
"conflictHints":[{"path":"a","kind":"overlap","detail":"d","data":{}}],
"confidence":1,"rationale":"r","warnings":["w"],"annotations":[{"path":"a","message":"m","severity":"info","range":{"start":{"line":0,"char":0},"end":{"line":0,"char":1}},"data":{"k":1.5}}]}`

const incompletePlan = `{"proposalId":"p1","provider":{"id":"x","version":"1","capabilityFamily":"edit","capabilityVersion":"edit/1.0","configDigest":"d"},
"status":"incomplete","baseline":{"rev":"tree:x"},"validAsOf":{"baseline":{"rev":"tree:x"},"blobs":[]},"touchedResources":[],"incomplete":{"reason":"partial-coverage","detail":"d"}}`

// mutate calls f with v changed at one place in many ways.
func mutate(v canon.Value, f func(canon.Value)) {
	replacements := []canon.Value{canon.NullOf(), canon.StringOf("zz"), canon.IntOf(-3), canon.BoolOf(false), canon.ArrayOf(), canon.ObjectOf()}
	for _, r := range replacements {
		if r.Kind() != v.Kind() {
			f(r)
		}
	}
	switch v.Kind() {
	case canon.Object:
		members := func() []canon.Member {
			var out []canon.Member
			for k, m := range v.Members() {
				out = append(out, canon.Member{Key: k, Value: m})
			}
			return out
		}
		f(canon.ObjectOf(append(members(), canon.Member{Key: "receipt", Value: canon.IntOf(1)})...))
		f(canon.ObjectOf(append(members(), canon.Member{Key: "unheard", Value: canon.IntOf(1)})...))
		for i := range v.Len() {
			f(v.Without(v.Key(i)))
			mutate(v.At(i), func(c canon.Value) {
				m := members()
				m[i].Value = c
				f(canon.ObjectOf(m...))
			})
		}
	case canon.Array:
		for i := range v.Len() {
			mutate(v.At(i), func(c canon.Value) {
				var items []canon.Value
				for j, e := range v.Elements() {
					if j == i {
						e = c
					}
					items = append(items, e)
				}
				f(canon.ArrayOf(items...))
			})
		}
	}
}

// TestOurMessagesAreValid encodes messages as the rooms build them, with nil
// slices where there is nothing to say.
func TestOurMessagesAreValid(t *testing.T) {
	c := compiler(t)
	at := "2026-01-02T03:04:05.678Z"
	base := wire.Baseline{Rev: "git:tree:00", Dirty: "sha256:00", StampedAt: at}
	none := wire.ApplyAssurance{Mode: wire.Advisory, TransactionGuarantee: wire.GuaranteeNone}
	receipt := wire.AuditReceipt{ReceiptID: "r", IssuedAt: at, Kind: wire.ReceiptStatus, Host: wire.HostName{Name: "asp", Version: "0"},
		CapabilityFamily: wire.Check, RequestDigest: "sha256:0", PolicyDigest: "sha256:0", Baseline: base, ValidAsOf: wire.HostValidAsOf{Rev: base.Rev},
		Assurance: none, Timing: wire.Timing{StartedAt: at, EndedAt: at}, PrivateOnly: true, Experimental: true}
	degraded := []wire.Degradation{{Source: "policy", Reason: wire.DegradeMissing, Detail: "no policy", Capability: wire.Check, ProviderState: wire.Unavailable}}
	verdict := wire.Verdict{Decision: wire.Indeterminate, CallSite: wire.Gate, RequestDigest: "d", PolicyDigest: "d", Assurance: none, Receipt: receipt,
		ValidAsOf: wire.HostValidAsOf{Rev: base.Rev, Blobs: []string{"blob:sha256:aa"}}, Coverage: wire.Coverage{Degraded: degraded},
		Findings: []wire.Finding{{Diagnostic: wire.Diagnostic{Code: "command/vet:exit", Severity: wire.SeverityError, Source: "command/vet", Message: "m",
			Location: wire.Location{Path: "."}, Fingerprint: "f"}, Authority: wire.AuthorityEvidence{Isolation: wire.Gated, Authority: wire.Authority{Granted: true, CallSite: wire.Gate}},
			Disposition: wire.Gating, NextStep: "fix it", NextStepOrigin: wire.StepSynthesized}}}
	health := wire.CapabilityHealth{Capability: wire.Inspect, LifecycleState: wire.Launched}
	server := wire.ServerStatus{ID: "x", Capabilities: []wire.Family{wire.Check}, AuthorityEvidence: wire.AuthorityEvidence{Isolation: wire.Advisory}, State: "installed",
		LifecycleState: wire.Unavailable, EnrollmentState: "enrolled", CapabilityStates: wire.CapabilityHealths{Inspect: health, Check: health, Edit: health},
		Coverage: &wire.HostCoverage{}, ManifestDetail: &wire.ManifestDetail{TrustEffect: "metadata-only"}, ManifestState: "valid", Role: "required"}
	caps := wire.CapabilityCoverage{Check: wire.CapabilityStatus{Degraded: degraded, CapabilityStates: []wire.CapabilityProviderState{
		{Provider: "x", Role: "optional", Capability: wire.Check, LifecycleState: wire.Exited}}}}
	for _, m := range []struct {
		schema string
		v      any
	}{
		{"verdict.schema.json", verdict},
		{"outer-host.schema.json#/$defs/statusResult", wire.StatusResult{
			Host:      wire.StatusHost{Name: "asp", Version: "0", OuterProtocol: "asp-outer/1.0", State: "ready", BindingCandidate: "json-rpc-stdio"},
			Workspace: wire.StatusWorkspace{Root: "/w", Baseline: base, ValidAsOf: base},
			Policy:    wire.StatusPolicy{Source: "builtin-default", Activation: "active", PolicyDigest: "d", LocalOverride: &wire.LocalOverride{AuthorityEffect: "none"}},
			Servers:   []wire.ServerStatus{server}, Gates: wire.Gates{Gate: wire.GateStatus{Degraded: degraded}}, Capabilities: caps,
			AssuranceCapabilities: []wire.Mode{wire.Advisory, wire.Gated}, Receipt: receipt}},
		{"outer-host.schema.json#/$defs/capabilitiesResult", wire.CapabilitiesResult{Capabilities: caps, Sources: []wire.ServerStatus{server}, Receipt: receipt}},
		{"outer-host.schema.json#/$defs/authorityStatusResult", wire.AuthorityStatusResult{PolicyActivation: "base-active", Receipt: receipt}},
		{"outer-host.schema.json#/$defs/applyProposalResult", wire.ApplyProposalResult{ProposalID: "p", BaselineBefore: base, Assurance: none, Decision: &verdict, Receipt: receipt,
			Refusal: &wire.Refusal{Reason: "conflict", Detail: "stale-basis: x", Conflicts: []wire.Conflict{{Path: "a", Detail: "stale-basis: y"}}}}},
		{"outer-host.schema.json#/$defs/applyProposalResult", wire.ApplyProposalResult{Applied: true, ProposalID: "p", BaselineBefore: base, BaselineAfter: &base,
			Assurance: wire.ApplyAssurance{Mode: wire.Isolated, TransactionGuarantee: wire.WorkspaceTransactional, Detail: "d"}, Receipt: receipt}},
		{"error.schema.json", wire.NewError(wire.CodeNotReady, wire.FailHealth, "not ready", "")},
	} {
		s, err := c.Compile(schemaBase + m.schema)
		if err != nil {
			t.Fatal(err)
		}
		v, err := canon.From(m.v)
		if err != nil {
			t.Fatal(err)
		}
		if err := validate(t, s, v); err != nil {
			t.Errorf("%s: %v\n%s", m.schema, err, v.Bytes())
		}
	}
}
