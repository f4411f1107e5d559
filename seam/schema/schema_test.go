package schema

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/wire"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

const publicBase = "https://covibes.dev/asp/schemas/"

// public pairs our schemas with the public ones of the same messages.
var public = map[string]string{
	"envelope":                   "envelope.schema.json",
	"verdict":                    "verdict.schema.json",
	"audit-receipt":              "verdict.schema.json#/$defs/auditReceipt",
	"status-result":              "outer-host.schema.json#/$defs/statusResult",
	"capabilities-result":        "outer-host.schema.json#/$defs/capabilitiesResult",
	"authority-status-result":    "outer-host.schema.json#/$defs/authorityStatusResult",
	"apply-proposal-result":      "outer-host.schema.json#/$defs/applyProposalResult",
	"request-edit-plan-result":   "outer-host.schema.json#/$defs/requestEditPlanResult",
	"query-inspect-result":       "outer-host.schema.json#/$defs/queryInspectResult",
	"changeset":                  "changeset.schema.json",
	"diagnostic":                 "diagnostic.schema.json",
	"edit-plan":                  "edit-plan.schema.json",
	"assessment":                 "check-assessment.schema.json",
	"evaluate-params":            "check-evaluate.schema.json#/$defs/params",
	"initialize-params":          "initialize.schema.json#/$defs/params",
	"initialize-result":          "initialize.schema.json#/$defs/result",
	"initialized-params":         "initialize.schema.json#/$defs/initializedParams",
	"propose-params":             "edit-propose.schema.json#/$defs/params",
	"references-params":          "sense-requests.schema.json#/$defs/references.params",
	"impact-params":              "sense-requests.schema.json#/$defs/impact.params",
	"graph-result":               "sense-graph.schema.json#/$defs/graphResult",
	"impact-result":              "sense-graph.schema.json#/$defs/impactResult",
	"read-blob-params":           "host-callbacks.schema.json#/$defs/readBlob.params",
	"read-blob-result":           "host-callbacks.schema.json#/$defs/readBlob.result",
	"list-tree-params":           "host-callbacks.schema.json#/$defs/listTree.params",
	"put-blob-params":            "host-callbacks.schema.json#/$defs/putBlob.params",
	"log-message-params":         "host-callbacks.schema.json#/$defs/logMessage.params",
	"publish-diagnostics-params": "host-callbacks.schema.json#/$defs/publishDiagnostics.params",
	"progress-params":            "progress.schema.json#/$defs/params",
	"server-manifest":            "server-manifest.schema.json",
}

// samples are messages that the public examples have none of.
var samples = map[string][]string{
	"status-params":              {`{"callSite":"gate"}`, `{}`},
	"evaluate-changeset-params":  {`{"callSite":"gate","changeset":{},"comparison":"all","timeoutMs":1}`},
	"request-edit-plan-params":   {`{"callSite":"gate","operation":"o","args":{},"baseline":{"rev":"r"},"scope":{},"proposalId":"p"}`},
	"baseline-changed-params":    {`{"baseline":{"rev":"r"}}`},
	"evaluate-params-0.1":        {`{"callSite":"gate","changeset":{},"changesetDigest":"d","comparison":"all","checks":["c"]}`},
	"publish-diagnostics-params": {`{"uri":"u","validAsOf":{"rev":"r","blobs":["b"]},"diagnostics":[{"code":"s/r","severity":"error","source":"x","message":"m","location":{"path":"a"},"fingerprint":"f"}]}`},
	"put-blob-params":            {`{"blobs":[{"encoding":"utf-8","bytes":"x"}]}`},
	"put-blob-result":            {`{"ids":["blob:sha256:aa"]}`},
	"list-tree-params":           {`{"globs":["a/**"],"paths":["b"],"baseline":{"rev":"tree:x","stampedAt":"2026-01-02T03:04:05Z"}}`},
	"list-tree-result":           {`{"entries":[{"path":"a","blobId":"blob:sha256:aa","kind":"file"}],"truncated":true}`},
	"log-message-params":         {`{"level":"warn","message":"m"}`},
	"cancel-params":              {`{"id":1}`},
	"plan-bundle":                {`{"proposal":{},"blobs":[{"encoding":"base64","bytes":"eA=="}]}`},
	"apply-proposal-params":      {`{"callSite":"gate","proposalId":"p","intent":"user","proposal":{},"basePolicyDigest":"d"}`},
	"query-inspect-params":       {`{"callSite":"sweep","request":{"method":"inspect/query","params":{}},"timeoutMs":5}`},
	"symbols-params":             {`{"query":"q","kinds":["file"],"baseline":{"rev":"tree:x"}}`},
	"query-params":               {`{"verb":"v","args":{},"baseline":{"rev":"tree:x"}}`},
	"calls-params":               {`{"symbol":{"path":"a","position":{"line":1,"char":2}},"depth":2}`},
	"workspace-edit": {`{"baseline":{"rev":"tree:x"},"documentChanges":[
{"path":"a","kind":"rename","to":"b","precondition":{"expectedDigest":"blob:sha256:aa"}},{"path":"c","kind":"create","precondition":{"expectedAbsence":true},"after":"blob:sha256:bb","annotations":[{"message":"m","data":{}}]},
{"path":"d","kind":"delete","precondition":{"expectedDigest":"blob:sha256:aa"}},{"path":"e","kind":"modify","precondition":{"expectedDigest":"blob:sha256:aa"},
"edits":[{"range":{"start":{"line":0,"char":0},"end":{"line":0,"char":1}},"rangeBasis":"blob:sha256:aa","coordinateSystem":"utf16","newText":""}]}]}`},
}

// goMessages are messages as the rooms build them, with nil slices where there is
// nothing to say.
func goMessages(t *testing.T) map[string][]canon.Value {
	t.Helper()
	at := "2026-01-02T03:04:05.678Z"
	base := wire.Baseline{Rev: "git:tree:00", Dirty: "sha256:00", StampedAt: at}
	none := wire.ApplyAssurance{Mode: wire.Advisory, TransactionGuarantee: wire.GuaranteeNone}
	receipt := wire.AuditReceipt{ReceiptID: "r", IssuedAt: at, Kind: wire.ReceiptStatus, Host: wire.HostName{Name: "asp", Version: "0"},
		CapabilityFamily: wire.Check, RequestDigest: "d", PolicyDigest: "d", Baseline: base, ValidAsOf: wire.HostValidAsOf{Rev: base.Rev},
		Assurance: none, Timing: wire.Timing{StartedAt: at, EndedAt: at}, PrivateOnly: true, Experimental: true}
	verdict := wire.Verdict{Decision: wire.Indeterminate, CallSite: wire.Gate, RequestDigest: "d", PolicyDigest: "d", Assurance: none, Receipt: receipt,
		ValidAsOf: wire.HostValidAsOf{Rev: base.Rev}, Coverage: wire.Coverage{Degraded: []wire.Degradation{{Source: "policy", Reason: wire.DegradeMissing, Detail: "d"}}}}
	health := wire.CapabilityHealth{Capability: wire.Inspect, LifecycleState: wire.Launched}
	server := wire.ServerStatus{ID: "x", Capabilities: []wire.Family{wire.Check}, AuthorityEvidence: wire.AuthorityEvidence{Isolation: wire.Advisory}, State: "installed", LifecycleState: wire.Unavailable,
		EnrollmentState: "enrolled", CapabilityStates: wire.CapabilityHealths{Inspect: health, Check: health, Edit: health}}
	refusal := &wire.Refusal{Reason: "conflict", Detail: "stale-basis: x", Conflicts: []wire.Conflict{{Path: "a", Detail: "stale-basis: y"}}}
	out := map[string][]canon.Value{}
	for name, m := range map[string]any{
		"audit-receipt": receipt, "verdict": verdict,
		"status-result": wire.StatusResult{Host: wire.StatusHost{Name: "asp", Version: "0", OuterProtocol: "asp-outer/1.0", State: "ready", BindingCandidate: "json-rpc-stdio"},
			Workspace: wire.StatusWorkspace{Root: "/w", Baseline: base, ValidAsOf: base}, Policy: wire.StatusPolicy{Source: "builtin-default", Activation: "active", PolicyDigest: "d"},
			Servers: []wire.ServerStatus{server}, AssuranceCapabilities: []wire.Mode{wire.Advisory}, Receipt: receipt},
		"capabilities-result":     wire.CapabilitiesResult{Sources: []wire.ServerStatus{server}, Receipt: receipt},
		"authority-status-result": wire.AuthorityStatusResult{PolicyActivation: "base-active", Receipt: receipt},
		"apply-proposal-result":   wire.ApplyProposalResult{ProposalID: "p", BaselineBefore: base, Assurance: none, Decision: &verdict, Receipt: receipt, Refusal: refusal},
		"dry-run-result": wire.DryRunResult{DryRun: true, ProposalID: "p", BaselineBefore: base, Assurance: none, Refusal: refusal,
			Changes: []wire.DryRunChange{{Path: "a", Kind: wire.KindDelete, Before: "blob:sha256:aa"}}},
		"check-result": wire.CheckResult{Command: "check", Repo: "/w", CallSite: wire.Gate, Changeset: wire.ChangeSet{Baseline: base}, HostDecision: verdict, Receipt: receipt},
		"error":        wire.NewError(wire.CodeNotReady, wire.FailHealth, "m", "d"),
		"error-result": wire.ErrorResult{Error: *wire.NewError(wire.CodeNotReady, wire.FailHealth, "m", "d")},
	} {
		v, err := canon.From(m)
		if err != nil {
			t.Fatal(err)
		}
		out[name] = append(out[name], v)
	}
	return out
}

func value(t *testing.T, s string) canon.Value {
	t.Helper()
	v, err := canon.Parse([]byte(s), canon.Limits{})
	if err != nil {
		t.Fatalf("%.100q: %v", s, err)
	}
	return v
}

func document(t *testing.T, v canon.Value) any {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(v.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// ours compiles every schema of ours, with no other document in reach.
func ours(t *testing.T) map[string]*jsonschema.Schema {
	t.Helper()
	out := map[string]*jsonschema.Schema{}
	for _, n := range Names() {
		v, ok := Of(n)
		if !ok || Title(n) == "" {
			t.Fatalf("no schema %s", n)
		}
		if bytes.Contains(v.Bytes(), []byte("://")) && strings.Count(string(v.Bytes()), "://") != 1 {
			t.Errorf("%s names a place beside the draft", n)
		}
		c := jsonschema.NewCompiler()
		c.AssertFormat()
		id := idPrefix + n
		if err := c.AddResource(id, document(t, v)); err != nil {
			t.Fatal(err)
		}
		s, err := c.Compile(id)
		if err != nil {
			t.Fatalf("%s: %v", n, err)
		}
		out[n] = s
	}
	return out
}

func shared(t *testing.T) string {
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
	return ""
}

// examples calls f with every object in the public examples; none where they
// are not.
func examples(t *testing.T, f func(canon.Value)) {
	t.Helper()
	dir := shared(t)
	if dir == "" {
		return
	}
	err := filepath.WalkDir(filepath.Join(filepath.Dir(dir), "examples"), func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(p, ".json") {
			return err
		}
		b, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		every(value(t, string(b)), f)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func every(v canon.Value, f func(canon.Value)) {
	if v.Kind() == canon.Object {
		f(v)
	}
	for i := range v.Len() {
		every(v.At(i), f)
	}
}

// TestEveryConstantIsRead: a rule that is no JSON would match nothing.
func TestEveryConstantIsRead(t *testing.T) {
	value(t, envelope)
	types := map[string]bool{}
	var walk func(reflect.Type)
	walk = func(t reflect.Type) {
		switch t.Kind() {
		case reflect.Pointer, reflect.Slice:
			walk(t.Elem())
		case reflect.Struct:
			if types[t.Name()] || t == reflect.TypeFor[canon.Value]() {
				return
			}
			types[t.Name()] = true
			for i := range t.NumField() {
				walk(t.Field(i).Type)
			}
		}
	}
	checker := reflect.TypeFor[interface{ Check() error }]()
	valueChecker := reflect.TypeFor[interface{ CheckValue(canon.Value) error }]()
	for _, m := range messages() {
		if m.typ != nil {
			walk(m.typ)
			if (m.typ.Implements(checker) || m.typ.Implements(valueChecker)) && rules()[m.typ.Name()].json == "" {
				t.Errorf("%s has a rule of its own, and its schema says nothing of it", m.typ.Name())
			}
		}
	}
	for name, r := range rules() {
		value(t, r.json)
		if !types[name] {
			t.Errorf("there is a rule for %s, which is in no message", name)
		}
	}
}

// TestAgreesWithTheDecoder: our schemas take what the decoder takes, and refuse
// what it refuses, over the public examples and samples, each as it is and with one
// thing changed.
func TestAgreesWithTheDecoder(t *testing.T) {
	schemas := ours(t)
	variants := 200
	if os.Getenv("ASP_CRASH") == "long" {
		variants = 10_000
	}
	for _, m := range messages() {
		if m.typ == nil || m.name == "policy" || m.name == "config" {
			continue // files are read by checks/policy, and held against it there
		}
		var good []canon.Value
		seen := map[string]bool{}
		compare := func(v canon.Value) bool {
			got := schemas[m.name].Validate(document(t, v)) == nil
			want := wire.Decode(v, reflect.New(m.typ).Interface()) == nil
			if got != want && !renameWithContent(v) {
				t.Errorf("%s: schema %v, decoder %v: %.1500s", m.name, got, want, v.Bytes())
			}
			return got && want
		}
		try := func(v canon.Value) {
			if compare(v) && len(good) < 3 && !seen[shape(v)] {
				seen[shape(v)] = true
				good = append(good, v)
			}
		}
		for _, v := range goMessages(t)[m.name] {
			if !compare(v) {
				t.Errorf("%s: our own message is not valid: %s", m.name, v.Bytes())
			}
			try(v)
		}
		for _, s := range samples[m.name] {
			try(value(t, s))
			if len(good) == 0 {
				t.Errorf("%s: the sample is not valid: %s", m.name, s)
			}
		}
		examples(t, try)
		if len(good) == 0 && shared(t) != "" {
			t.Errorf("%s: no sample", m.name)
		}
		all, tried := 0, 0
		for _, v := range good {
			mutate(v, func(canon.Value) { all++ })
		}
		for _, v := range good {
			mutate(v, func(v canon.Value) {
				if tried++; tried%(all/variants+1) == 0 {
					compare(v)
				}
			})
		}
		t.Logf("%-28s %d samples, %d variants", m.name, len(good), all)
	}
}

// renameWithContent: that a rename repeats its own digest is a comparison, which
// a schema cannot make.
func renameWithContent(v canon.Value) (found bool) {
	every(v, func(o canon.Value) {
		kind, _ := o.Get("kind")
		_, after := o.Get("after")
		_, precondition := o.Get("precondition")
		found = found || (kind.Str() == "rename" || kind.Str() == "move") && after && precondition
	})
	return found
}

// shape is what members an object has, two levels deep.
func shape(v canon.Value) string {
	var b strings.Builder
	for k, m := range v.Members() {
		b.WriteString(k + "(")
		for l := range m.Members() {
			b.WriteString(l + ",")
		}
		b.WriteString(")")
	}
	return b.String()
}

// TestAgreesWithThePublicSchemas: over every object in the public examples ours
// say what the public ones say.
func TestAgreesWithThePublicSchemas(t *testing.T) {
	dir := shared(t)
	if dir == "" {
		t.Skip("the public schemas are not here; set ASP_SCHEMA_DIR")
	}
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
		if err := c.AddResource(publicBase+filepath.Base(n), doc); err != nil {
			t.Fatal(err)
		}
	}
	schemas := ours(t)
	for name, ref := range public {
		theirs, err := c.Compile(publicBase + ref)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range goMessages(t)[name] {
			if err := theirs.Validate(document(t, v)); err != nil {
				t.Errorf("%s: our own message is not valid for the public schema: %v", name, err)
			}
		}
		both := 0
		examples(t, func(v canon.Value) {
			if _, comment := v.Get("//"); comment {
				return // a note of the examples, which no message has
			}
			doc := document(t, v)
			got, want := schemas[name].Validate(doc), theirs.Validate(doc)
			if got == nil && hostOwned[name] && len(wire.ScanHostOwned(v)) > 0 {
				return // refused beside the schema
			}
			if (got == nil) != (want == nil) && !onlyCloser(name, v) {
				t.Errorf("%s: ours %v, public %v: %.600s", name, got, want, v.Bytes())
			}
			if got == nil && want == nil {
				both++
			}
		})
		t.Logf("%-28s %d valid for both", name, both)
	}
}

// hostOwned are the messages in which a member of the host's is refused at any
// depth, which no schema of ours says.
var hostOwned = map[string]bool{"diagnostic": true, "assessment": true, "edit-plan": true, "propose-params": true, "publish-diagnostics-params": true, "evaluate-params": true}

// onlyCloser are the places where ours say more than the public ones.
func onlyCloser(name string, v canon.Value) bool {
	if name == "envelope" { // closed, and version 2.0 is a member that is needed
		for k := range v.Members() {
			if !strings.Contains("jsonrpc id method params result error", k) {
				return true
			}
		}
	}
	return false
}

// mutate calls f with v changed at one place in many ways.
func mutate(v canon.Value, f func(canon.Value)) {
	for _, r := range []canon.Value{canon.NullOf(), canon.StringOf("zz"), canon.StringOf(""), canon.IntOf(-3), canon.BoolOf(false), canon.ArrayOf(), canon.ObjectOf()} {
		if !canon.Equal(r, v) {
			f(r)
		}
	}
	switch v.Kind() {
	case canon.Object:
		f(v.With("unheard", canon.IntOf(1)))
		for i := range v.Len() {
			k := v.Key(i)
			f(v.Without(k))
			mutate(v.At(i), func(c canon.Value) { f(v.With(k, c)) })
		}
	case canon.Array:
		for i := range v.Len() {
			mutate(v.At(i), func(c canon.Value) {
				items := make([]canon.Value, 0, v.Len())
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
