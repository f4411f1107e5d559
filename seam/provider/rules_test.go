package provider_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aspengine/asp/checks"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/provider"
	"github.com/aspengine/asp/seam/wire"
)

// changed is the result of one request to a provider that changes its honest
// answer as edits say: set PATH JSON, or del PATH.
func args(edits string) []string {
	var out []string
	for e := range strings.SplitSeq(edits, "\n") {
		if f := strings.SplitN(strings.TrimSpace(e), " ", 3); len(f) > 1 {
			out = append(out, strings.Join(f, "="))
		}
	}
	return out
}

// once leaves what does not depend on who runs it out of the second run of
// TestAsOrdinaryUser.
func once(t *testing.T) {
	t.Helper()
	if os.Getenv("ASP_TEST_ORDINARY_USER") != "" {
		t.Skip("the same for every user")
	}
}

// TestAssessmentRules changes one thing in an acceptable assessment at a time.
func TestAssessmentRules(t *testing.T) {
	once(t)
	for _, c := range []struct {
		name, edits string
		set         provider.Settings
		want        checks.Status
		detail      string
	}{
		{"closed", `set extra 1`, provider.Settings{}, checks.Malformed, "unknown member"},
		{"closed below", `set provider.extra 1`, provider.Settings{}, checks.Malformed, "unknown member"},
		{"host-owned", `set decision "allow"`, provider.Settings{}, checks.Malformed, "member decision"},
		{"host-owned in evidence", `set evidence [{"kind":"trace","data":{"a":[{"verdict":1}]}}]`, provider.Settings{}, checks.Malformed, "member verdict"},
		{"host-owned in a fix", `set diagnostics.0.fix {"editRef":"fake/x","args":{"receipt":1}}`, provider.Settings{}, checks.Malformed, "member receipt"},
		{"commands are data here", `set evidence [{"kind":"trace","data":{"command":"ls"}}]`, provider.Settings{}, checks.Failed, ""},
		{"two fixes", `set diagnostics.0.fix {"editRef":"fake/x","actRef":"y"}`, provider.Settings{}, checks.Malformed, "a fix is one of"},
		{"no timing", `set timing {}`, provider.Settings{}, checks.Malformed, "timing"},
		{"both ends", `set timing {"startedAt":"2026-01-02T03:04:05Z","endedAt":"2026-01-02T03:04:06Z"}`, provider.Settings{}, checks.Failed, ""},
		{"ended before it started", `set timing {"startedAt":"2026-01-02T03:04:06Z","endedAt":"2026-01-02T04:04:05+01:00"}`, provider.Settings{}, checks.Malformed, "runs backwards"},
		{"backwards beside a duration", `set timing {"elapsedMs":1,"startedAt":"2026-01-02T03:04:06Z","endedAt":"2026-01-02T03:04:05.9Z"}`, provider.Settings{}, checks.Malformed, "runs backwards"},
		{"took less than nothing", `set timing {"elapsedMs":-1}`, provider.Settings{}, checks.Malformed, "elapsedMs"},
		{"out of a stale cache", `set cache.status "stale"`, provider.Settings{}, checks.Stale, "calls stale"},
		{"out of a cache", `set cache {"status":"hit","key":"k","refreshedAt":"2026-01-02T03:04:05Z"}`, provider.Settings{}, checks.Failed, ""},
		{"cache word", `set cache.status "warm"`, provider.Settings{}, checks.Malformed, "none of"},

		{"id", `set provider.id "other"`, provider.Settings{}, checks.Malformed, `signed "other"`},
		{"version", `set provider.version "1.0.1"`, provider.Settings{}, checks.Malformed, `version "1.0.1"`},
		{"capability version", `set provider.capabilityVersion "check/2.0"`, provider.Settings{}, checks.Malformed, "check/2.0"},
		{"family", `set provider.capabilityFamily "edit"`, provider.Settings{}, checks.Malformed, "none of"},
		{"pinned", ``, provider.Settings{ConfigDigest: "sha256:cfg"}, checks.Failed, ""},
		{"another configuration", ``, provider.Settings{ConfigDigest: "sha256:mine"}, checks.Skewed, "config.json pins"},

		{"baseline", `set validAsOf.baseline.rev "git:tree:00"`, provider.Settings{}, checks.Stale, "another baseline"},
		{"stamp", `set validAsOf.baseline.stampedAt "2026-01-02T03:04:06Z"`, provider.Settings{}, checks.Stale, "another baseline"},
		{"no stamp", `del validAsOf.baseline.stampedAt`, provider.Settings{}, checks.Stale, "another baseline"},
		{"digest", `set validAsOf.changesetDigest "sha256:00"`, provider.Settings{}, checks.Stale, "changeset"},
		{"blob too many", `set validAsOf.blobs.+ "blob:sha256:aa"`, provider.Settings{}, checks.Stale, "not served"},
		{"blob too few", `set validAsOf.blobs []`, provider.Settings{}, checks.Stale, "leaves out"},
		{"blob twice", `set validAsOf.blobs ["blob:sha256:aa","blob:sha256:aa"]`, provider.Settings{}, checks.Malformed, "same as element"},

		{"covered less", `set coverage.covered.scope "workspace"`, provider.Settings{}, checks.Malformed, "not what was requested"},
		{"not exhaustive", `set coverage.exhaustive false`, provider.Settings{}, checks.Malformed, "without exhaustive"},
		{"truncated", `set coverage.truncated true`, provider.Settings{}, checks.Malformed, "truncated"},
		{"degraded", `set coverage.degraded [{"source":"x","reason":"incomplete","detail":"d"}]`, provider.Settings{}, checks.Malformed, "degraded"},
		{"unsupported", `set coverage.unsupported [{"source":"x","reason":"unsupported","detail":"d"}]`, provider.Settings{}, checks.Malformed, "unsupported"},
		{"another reason", `set coverage.degraded [{"source":"x","reason":"lazy","detail":"d"}]`, provider.Settings{}, checks.Malformed, "none of"},
		{"requested scope", "set coverage.requested.scope \"workspace\"\nset coverage.covered.scope \"workspace\"", provider.Settings{}, checks.Malformed, "another scope"},
		{"requested comparison", "set coverage.requested.comparison \"all\"\nset coverage.covered.comparison \"all\"", provider.Settings{}, checks.Malformed, "comparison"},
		{"requested rules", "set coverage.requested.rules [\"fake/b\"]\nset coverage.covered.rules [\"fake/b\"]", provider.Settings{Rules: []string{"fake/a"}}, checks.Malformed, "other rules"},
		{"requested sources", "set coverage.requested.diagnosticSources []\nset coverage.covered.diagnosticSources []", provider.Settings{Sources: []string{"fake"}}, checks.Malformed, "other diagnostic sources"},
		{"sources and rules", ``, provider.Settings{Sources: []string{"fake"}, Rules: []string{"fake/a", "fake/b"}, Configuration: canon.ObjectOf()}, checks.Failed, ""},

		{"incomplete", "set status \"incomplete\"\nset coverage.exhaustive false\nset coverage.degraded [{\"source\":\"x\",\"reason\":\"incomplete\",\"detail\":\"why\"}]", provider.Settings{}, checks.Incomplete, `"why"`},
		{"incomplete and exhaustive", `set status "incomplete"`, provider.Settings{}, checks.Malformed, "with exhaustive"},
		{"says unsupported", "set status \"unsupported\"\nset coverage.exhaustive false", provider.Settings{}, checks.Unsupported, "cannot evaluate"},
		{"says error", "set status \"error\"\nset coverage.exhaustive false", provider.Settings{}, checks.Errored, "status error"},
		{"says cancelled", "set status \"cancelled\"\nset coverage.exhaustive false", provider.Settings{}, checks.Cancelled, "gave the evaluation up"},
		{"stale whatever it says", "set status \"error\"\nset coverage.exhaustive false\nset validAsOf.blobs []", provider.Settings{}, checks.Stale, "leaves out"},

		{"code of another", `set diagnostics.0.code "other/bad"`, provider.Settings{}, checks.Malformed, "no declared source"},
		{"code without rule", `set diagnostics.0.code "fake/"`, provider.Settings{}, checks.Malformed, "no declared source"},
		{"code that only begins so", `set diagnostics.0.code "fakery/bad"`, provider.Settings{}, checks.Malformed, "no declared source"},
		{"outside the changeset", `set diagnostics.0.location.path "b/c.go"`, provider.Settings{}, checks.Malformed, "outside"},
		{"inside the workspace", `set diagnostics.0.location.path "b/c.go"`, provider.Settings{Scope: "workspace"}, checks.Failed, ""},
		{"outside the grant", `set diagnostics.0.location.path "secret/key"`, provider.Settings{Scope: "workspace"}, checks.Malformed, "outside"},
		{"no such file", `set diagnostics.0.location.path "gone"`, provider.Settings{Scope: "workspace"}, checks.Malformed, "outside"},
		{"not a path", `set diagnostics.0.location.path "../a.txt"`, provider.Settings{Scope: "workspace"}, checks.Malformed, "outside"},
		{"backwards", `set diagnostics.0.location.range {"start":{"line":2,"char":0},"end":{"line":1,"char":9}}`, provider.Settings{}, checks.Malformed, "ends before"},
		{"not introduced", `set diagnostics.0.introduced false`, provider.Settings{}, checks.Malformed, "introduced false"},
		{"introduced of all", `set diagnostics.0.introduced true`, provider.Settings{Comparison: "all"}, checks.Malformed, "introduced true"},
		{"false of all", `set diagnostics.0.introduced false`, provider.Settings{Comparison: "all"}, checks.Failed, ""},
		{"resolved never complains", ``, provider.Settings{Comparison: "resolved"}, checks.Passed, ""},
		{"warning", `set diagnostics.0.severity "warning"`, provider.Settings{}, checks.Passed, ""},
		{"long code", `set diagnostics.0.code "fake/` + strings.Repeat("x", 600) + `"`, provider.Settings{}, checks.Malformed, "more than 512"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			w.add("fake", args(c.edits)...)
			res := w.check("fake", c.set, nil)
			if res.Status != c.want || !strings.Contains(res.Detail, c.detail) {
				t.Errorf("%s: %s", res.Status, res.Detail)
			}
			if complete := res.Status == checks.Passed || res.Status == checks.Failed; !complete && len(res.Diagnostics) > 0 && res.Status != checks.Incomplete && res.Status != checks.Unsupported &&
				res.Status != checks.Errored && res.Status != checks.Cancelled {
				t.Error("diagnostics of what is not acceptable")
			}
		})
	}
}

// Equal fingerprints at two places are two findings; the same one twice is one.
// Text is cut, and the source is the host's.
func TestDiagnosticsAreContained(t *testing.T) {
	w := newWorld(t, nil)
	d := func(line int) string {
		return fmt.Sprintf(`{"code":"fake/a","severity":"error","source":"someone else","message":%q,"location":{"path":"a.txt","range":{"start":{"line":%d,"char":0},"end":{"line":%d,"char":1}}},"fingerprint":"f"}`,
			strings.Repeat("é", 5000), line, line)
	}
	w.add("fake", "set=diagnostics=["+d(0)+","+d(1)+","+d(1)+"]")
	res := w.check("fake", provider.Settings{}, nil)
	if res.Status != checks.Failed || len(res.Diagnostics) != 2 {
		t.Fatalf("%s: %s, %d diagnostics", res.Status, res.Detail, len(res.Diagnostics))
	}
	for _, d := range res.Diagnostics {
		if d.Source != "fake" || len(d.Message) > 4100 || !strings.HasSuffix(d.Message, "é…") {
			t.Errorf("source %q, message of %d bytes", d.Source, len(d.Message))
		}
	}
}

func TestLegacyRules(t *testing.T) {
	once(t)
	all := provider.Settings{Comparison: "all", Checks: []string{"types"}}
	for _, c := range []struct {
		name, edits string
		set         provider.Settings
		want        checks.Status
		detail      string
	}{
		{"no place", `set diagnostics.0.location {}`, all, checks.Failed, ""},
		{"columns", `set diagnostics.0.location {"path":"a.txt","range":{"start":{"line":1,"column":2}}}`, all, checks.Failed, ""},
		{"evidence of its own", `set evidence [{"kind":"python_project_context"}]`, all, checks.Failed, ""},
		{"open", `set processState "x"`, all, checks.Failed, ""},
		{"took less than nothing", `set timing {"durationMs":-0.5}`, all, checks.Malformed, "runs backwards"},
		{"took long", `set timing {"durationMs":1e300}`, all, checks.Failed, ""},
		{"host-owned", `set evidence [{"kind":"x","data":{"decision":1}}]`, all, checks.Malformed, "member decision"},
		{"freshness", `set validAsOf.blobs []`, all, checks.Stale, "leaves out"},
		{"out of a stale cache", `set cache.status "stale"`, all, checks.Stale, "calls stale"},
		{"other checks", "set coverage.requested.rules [\"b\"]\nset coverage.covered.rules [\"b\"]", all, checks.Malformed, "other rules"},
		{"its unsupported", "set status \"unsupported\"\nset coverage.exhaustive false\nset coverage.unsupported [{\"source\":\"o\",\"reason\":\"odd\",\"detail\":\"d\"}]", all, checks.Unsupported, "incomplete"},
		{"nothing chosen", ``, provider.Settings{}, checks.Failed, ""},
		{"resolved", ``, provider.Settings{Comparison: "resolved"}, checks.Unsupported, "resolved"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			w.add("fake", append(args(c.edits), "proto=asp/0.1")...)
			res := w.check("fake", c.set, nil)
			if res.Status != c.want || !strings.Contains(res.Detail, c.detail) {
				t.Errorf("%s: %s", res.Status, res.Detail)
			}
		})
	}
	// The two dialects exclude each other.
	w := newWorld(t, nil)
	w.add("old", "proto=asp/0.1", `set=coverage.covered.scope="workspace"`)
	if res := w.check("old", all, nil); res.Status != checks.Malformed {
		t.Errorf("%s: %s", res.Status, res.Detail)
	}
}

func (w *world) propose(id string, scope ...string) (provider.Proposal, error) {
	return w.pool.Propose(w.t.Context(), id, provider.ProposeRequest{Operation: "text-edit", Args: parse(`{"k":1}`), Baseline: base, Scope: scope, ProposalID: "p1",
		Content: w.files, Budget: 20 * time.Second})
}

func TestPlanRules(t *testing.T) {
	once(t)
	w := newWorld(t, nil)
	w.add("good")
	got, err := w.propose("good")
	must(t, err)
	if got.Decoded.Status != wire.StatusComplete || string(got.Blobs[blob("\xff")]) != "\xff" || len(got.Served) != 1 || got.Isolation != wire.MediatedWrite || got.Participant.ConfigDigest != "d" {
		t.Errorf("%+v", got)
	}
	for _, c := range []struct {
		name, edits, scope string
		reason             wire.DegradeReason
		detail             string
	}{
		{"closed", `set proposal.extra 1`, "", wire.DegradeMalformed, "unknown member"},
		{"host-owned", `set proposal.annotations [{"path":"a","message":"m","data":{"pass":1}}]`, "", wire.DegradeMalformed, "host-field"},
		{"command", `set proposal.annotations [{"path":"a","message":"m","data":{"command":"rm"}}]`, "", wire.DegradeMalformed, "command-like"},
		{"id", `set proposal.proposalId "p2"`, "", wire.DegradeMalformed, `"p2"`},
		{"provider", `set proposal.provider.id "x"`, "", wire.DegradeMalformed, `signed "x"`},
		{"version", `set proposal.provider.version "2"`, "", wire.DegradeMalformed, `version "2"`},
		{"baseline", `set proposal.baseline.rev "git:tree:00"`, "", wire.DegradeStale, "another baseline"},
		{"edit baseline", `set proposal.workspaceEdit.baseline.rev "git:tree:00"`, "", wire.DegradeMalformed, "workspaceEdit.baseline"},
		{"freshness", `set proposal.validAsOf.blobs []`, "", wire.DegradeStale, "leaves out"},
		{"unknown blob", `set proposal.validAsOf.blobs.+ "blob:sha256:aa"`, "", wire.DegradeStale, "no content"},
		{"mirror", `set proposal.touchedResources []`, "", wire.DegradeMalformed, "touchedResources"},
		{"digest missing", `del proposal.workspaceEdit.documentChanges.0.precondition.expectedDigest`, "", wire.DegradeMalformed, "precondition"},
		{"basis missing", `del proposal.workspaceEdit.documentChanges.0.edits.0.rangeBasis`, "", wire.DegradeMalformed, "rangeBasis"},
		{"content missing", `set proposal.workspaceEdit.documentChanges.1.after "blob:sha256:` + strings.Repeat("a", 64) + `"`, "", wire.DegradeMalformed, "missing-blob"},
		{"protected", "set proposal.touchedResources.1.path \".git/config\"\nset proposal.workspaceEdit.documentChanges.1.path \".git/config\"", "", wire.DegradeMalformed, "path-protected"},
		{"escape", "set proposal.touchedResources.1.path \"../x\"\nset proposal.workspaceEdit.documentChanges.1.path \"../x\"", "", wire.DegradeMalformed, "component .."},
		{"scope", ``, "a.txt", wire.DegradeMalformed, `"n.bin"`},
		{"not a proposal", `del proposal`, "", wire.DegradeMalformed, "no proposal"},
		{"secret content", `set proposal.workspaceEdit.documentChanges.1.after "` + string(blob("hunter2\n")) + `"`, "", wire.DegradeMalformed, "missing-blob"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			w.add("fake", args(c.edits)...)
			_, err := w.propose("fake", strings.Fields(c.scope)...)
			f := provider.AsFailure(err)
			if f == nil || f.Reason != c.reason || f.Class != wire.FailContract || !strings.Contains(f.Detail, c.detail) {
				t.Errorf("%v", err)
			}
		})
	}
	t.Run("incomplete is a plan", func(t *testing.T) {
		w := newWorld(t, nil)
		w.add("fake", `set=proposal.status="unsupported"`, `set=proposal.unsupported={"operation":"o","reason":"operation","detail":"d"}`, `del=proposal.workspaceEdit`, `set=proposal.touchedResources=[]`)
		got, err := w.propose("fake")
		if err != nil || got.Decoded.Status != wire.StatusUnsupported || len(got.Blobs) != 0 {
			t.Errorf("%+v, %v", got, err)
		}
	})
	t.Run("who asks to write proposes nothing", func(t *testing.T) {
		w := newWorld(t, nil)
		w.add("fake", "init=write")
		_, err := w.propose("fake")
		if f := provider.AsFailure(err); f == nil || f.Reason != wire.DegradeDirectWriteRisk || f.Class != wire.FailPolicy || !f.Participant.DirectWrite {
			t.Errorf("%v", err)
		}
		if res := w.check("fake", provider.Settings{}, nil); !res.DirectWrite || !res.Provider.DirectWrite {
			t.Errorf("%+v", res)
		}
	})
}

func TestQueryRules(t *testing.T) {
	once(t)
	refs := `{"symbol":{"id":"n"}}`
	changes, err := canon.From(wire.ChangeSet{Baseline: base, Changes: []wire.Change{}})
	must(t, err)
	impact := `{"changeset":` + string(changes.Bytes()) + `,"scope":"changeset"}`
	for _, c := range []struct {
		name, method, params, edits string
		reason                      wire.DegradeReason
		class                       wire.FailClass
		detail                      string
	}{
		{"references", "inspect/references", refs, ``, "", "", ""},
		{"old name", "sense/references", refs, ``, "", "", ""},
		{"impact", "sense/impact", impact, ``, "", "", ""},
		{"only the old name", "inspect/references", refs, `set spelling sense`, "", "", ""},
		{"only the new name", "sense/references", refs, `set spelling inspect`, "", "", ""},
		{"its own", "inspect/query", `{"verb":"own","args":{}}`, ``, "", "", ""},
		{"not its own", "inspect/query", `{"verb":"else","args":{}}`, ``, wire.DegradeUnsupported, wire.FailContract, "declare"},
		{"not declared", "inspect/callers", refs, ``, wire.DegradeUnsupported, wire.FailContract, "declare"},
		{"no verb", "inspect/everything", refs, ``, wire.DegradeError, wire.FailInput, "no inspect verb"},
		{"no method", "check/evaluate", refs, ``, wire.DegradeError, wire.FailInput, "no inspect method"},
		{"params", "inspect/references", `{}`, ``, wire.DegradeError, wire.FailInput, "symbol is missing"},
		{"closed", "inspect/references", refs, `set extra 1`, wire.DegradeMalformed, wire.FailContract, "unknown member"},
		{"host-owned", "inspect/references", refs, `set data {"verdict":1}`, wire.DegradeMalformed, wire.FailContract, "verdict"},
		{"path", "inspect/references", refs, `set nodes.0.location.path "/etc/passwd"`, wire.DegradeMalformed, wire.FailContract, "absolute"},
		{"files", "inspect/impact", impact, `set impactedFiles ["../x"]`, wire.DegradeMalformed, wire.FailContract, "component .."},
		{"rev", "inspect/references", refs, `set validAsOf.rev "git:tree:00"`, wire.DegradeStale, wire.FailContract, "rev"},
		{"blobs", "inspect/references", refs, `set validAsOf.blobs []`, wire.DegradeStale, wire.FailContract, "leaves out"},
		{"foreign blob", "inspect/references", refs, `set validAsOf.blobs.+ "blob:sha256:aa"`, wire.DegradeStale, wire.FailContract, "no content"},
		{"no blobs", "inspect/references", refs, `del validAsOf.blobs`, wire.DegradeMalformed, wire.FailContract, "blobs"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			a := args(c.edits)
			for i := range a {
				a[i] = strings.Replace(a[i], "set=spelling=", "spelling=", 1)
			}
			w.add("fake", a...)
			got, err := w.pool.Query(t.Context(), "fake", provider.QueryRequest{Method: c.method, Params: parse(c.params), Baseline: base, Content: w.files, Budget: 20 * time.Second})
			if c.reason == "" {
				if err != nil || !got.Complete || len(got.Served) == 0 || got.Isolation != wire.MediatedWrite {
					t.Errorf("%+v, %v", got, err)
				}
				return
			}
			if f := provider.AsFailure(err); f == nil || f.Reason != c.reason || f.Class != c.class || !strings.Contains(f.Detail, c.detail) {
				t.Errorf("%v", err)
			}
		})
	}
	w := newWorld(t, nil)
	w.add("fake", "set=truncated=true")
	got, err := w.pool.Query(t.Context(), "fake", provider.QueryRequest{Method: "inspect/impact", Params: parse(impact), Baseline: base, Content: w.files})
	if err != nil || got.Complete {
		t.Errorf("%+v, %v", got, err)
	}
}
