package apply_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/aspengine/asp/apply"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/provider"
	"github.com/aspengine/asp/seam/wire"
)

// sound holds a result against its own message type.
func sound[T any](t *testing.T, v *T) {
	t.Helper()
	if err := wire.Decode(value(t, v), new(T)); err != nil {
		t.Errorf("the result is no message: %v", err)
	}
}

// TestStatusShowsProviders has a row for every standing, and launches nothing.
func TestStatusShowsProviders(t *testing.T) {
	for _, x := range []struct {
		name  string
		mode  wire.Mode
		with  func(s *provider.Standing)
		state string
		enrolled,
		role string
		gate    bool
		host    string
		granted bool
	}{
		{"not used yet", wire.Gated, nil, "installed", "enrolled", "required", true, "ready", true},
		{"running", wire.Gated, func(s *provider.Standing) { *s = running(*s) }, "ready", "enrolled", "required", true, "ready", true},
		{"advisory", wire.Advisory, nil, "installed", "enrolled", "required", false, "ready", false},
		{"not enabled", "", nil, "installed", "installed-not-enrolled", "disabled", false, "ready", false},
		{"in quarantine", wire.Gated, func(s *provider.Standing) {
			*s = running(*s)
			s.State, s.Quarantine = wire.Quarantined, &provider.Quarantine{Failures: 3, Reason: "crashed"}
		}, "quarantined", "quarantined", "required", false, "degraded", true},
		{"incompatible", wire.Gated, func(s *provider.Standing) { *s = running(*s); s.State = wire.Incompatible }, "incompatible", "incompatible", "required", false, "degraded", true},
		{"crashed", wire.Gated, func(s *provider.Standing) { *s = running(*s); s.State, s.Failure = wire.Crashed, "crashed" }, "degraded", "enrolled", "required", false, "degraded", true},
		{"no manifest that can be read", wire.Gated, func(s *provider.Standing) { s.Problem = "not JSON"; s.Participant.Families = nil }, "unavailable", "error", "optional", false, "degraded", false},
		{"another version", wire.Gated, func(s *provider.Standing) { s.Participant.Version = "2" }, "installed", "enrolled", "required", false, "ready", false},
	} {
		t.Run(x.name, func(t *testing.T) {
			c := &crew{roster: []provider.Standing{standing("p", x.mode, wire.Check)}}
			if x.with != nil {
				x.with(&c.roster[0])
			}
			h := newHosted(t, "", pins("p", checkOnly, "gated", wire.Gate), c, map[string]string{"a": "1\n"})
			st, err := h.engine().Status(context.Background(), apply.SurfaceRequest{})
			if err != nil {
				t.Fatal(err)
			}
			sound(t, &st.Result)
			r := st.Result
			i := slices.IndexFunc(r.Servers, func(s wire.ServerStatus) bool { return s.ID == "p" })
			if i < 0 || len(r.Servers) != 1 {
				t.Fatalf("servers %+v", r.Servers)
			}
			s := r.Servers[i]
			if s.State != x.state || s.EnrollmentState != x.enrolled || s.Role != x.role || r.Host.State != x.host || s.AuthorityEvidence.Authority.Granted != x.granted {
				t.Errorf("%s %s %s, host %s, granted %v", s.State, s.EnrollmentState, s.Role, r.Host.State, s.AuthorityEvidence.Authority.Granted)
			}
			if r.Gates.Gate.Available != x.gate || !r.Gates.Interactive.Available || !slices.Equal(r.Gates.Gate.RequiredProviders, []string{"p"}) ||
				x.gate == (len(r.Gates.Gate.Degraded) > 0) {
				t.Errorf("gate %+v", r.Gates.Gate)
			}
			listed := slices.Contains(r.Capabilities.Check.Providers, "p")
			if listed != x.gate || r.Capabilities.Check.Available != x.gate || r.Capabilities.Edit.Available {
				t.Errorf("check %+v", r.Capabilities.Check)
			}
			a, err := h.engine().AuthorityStatus(context.Background(), apply.SurfaceRequest{})
			if err != nil {
				t.Fatal(err)
			}
			sound(t, a)
			if a.PolicyActivation != "base-active" || a.Receipt.Kind != wire.ReceiptAuthorityStatus || len(a.Providers) != 1 {
				t.Errorf("authority %s %s", a.PolicyActivation, a.Receipt.Kind)
			}
			if len(c.warmed)+len(c.asked) > 0 {
				t.Errorf("launched %v, asked %v", c.warmed, c.asked)
			}
		})
	}
}

// TestMissingProvidersAreShown lists what policy and enrolment name and nobody
// registered.
func TestMissingProvidersAreShown(t *testing.T) {
	h := newHosted(t, "", pins("p", checkOnly, "gated", wire.Gate), &crew{}, map[string]string{"a": "1\n"})
	st, err := h.engine().Status(context.Background(), apply.SurfaceRequest{})
	if err != nil {
		t.Fatal(err)
	}
	sound(t, &st.Result)
	if s := st.Result.Servers; len(s) != 1 || s[0].ID != "p" || s[0].EnrollmentState != "missing" || !slices.Equal(s[0].RequiredFor, []wire.CallSite{wire.Gate}) || st.Result.Gates.Gate.Available {
		t.Errorf("%+v", s)
	}
}

// TestCandidatePolicyIsPending shows a policy that is not committed yet, and goes
// on by the committed one.
func TestCandidatePolicyIsPending(t *testing.T) {
	h := newHosted(t, "", pins("p", checkOnly, "gated", wire.Gate), &crew{}, map[string]string{"a": "1\n"})
	before, err := h.engine().Status(context.Background(), apply.SurfaceRequest{})
	if err != nil {
		t.Fatal(err)
	}
	h.write(".asp/asp.json", pins("q", checkOnly, "gated"))
	after, err := h.engine().Status(context.Background(), apply.SurfaceRequest{})
	if err != nil {
		t.Fatal(err)
	}
	a, err := h.engine().AuthorityStatus(context.Background(), apply.SurfaceRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if before.Result.Policy.Activation != "active" || after.Result.Policy.Activation != "pending" || a.PolicyActivation != "candidate-pending" ||
		after.Result.Policy.PolicyDigest != before.Result.Policy.PolicyDigest {
		t.Errorf("%s, then %s and %s", before.Result.Policy.Activation, after.Result.Policy.Activation, a.PolicyActivation)
	}
}

// TestCapabilitiesAreComposed launches, and shows who has authority apart from
// who only offers.
func TestCapabilitiesAreComposed(t *testing.T) {
	c := &crew{roster: []provider.Standing{
		standing("p", wire.Gated, wire.Check, wire.Edit), standing("adv", wire.Advisory, wire.Check, wire.Inspect), standing("off", "", wire.Check, wire.Edit),
	}}
	h := newHosted(t, "", pins("p", checkOnly, "gated", wire.Gate), c, map[string]string{"a": "1\n"})
	r, err := h.engine().Capabilities(context.Background(), apply.SurfaceRequest{})
	if err != nil {
		t.Fatal(err)
	}
	sound(t, r)
	slices.Sort(c.warmed)
	if !slices.Equal(c.warmed, []string{"adv", "p"}) {
		t.Errorf("launched %v", c.warmed)
	}
	got := map[wire.Family][]string{wire.Inspect: r.Capabilities.Inspect.Providers, wire.Check: r.Capabilities.Check.Providers, wire.Edit: r.Capabilities.Edit.Providers}
	if !slices.Equal(got[wire.Inspect], []string{"adv"}) || !slices.Equal(got[wire.Check], []string{"p"}) || len(got[wire.Edit]) != 0 || *r.LegacyRoles.Act || !*r.LegacyRoles.Judge {
		t.Errorf("%v", got)
	}
	if !slices.Equal(r.Coverage.Required, []string{"req"}) || !slices.Equal(r.Coverage.Ran, []string{"req"}) || r.Receipt.Kind != wire.ReceiptCapabilities || len(r.Sources) != 3 {
		t.Errorf("coverage %+v", r.Coverage)
	}
}

// TestInspect has a row for everything that can come of a question; none is
// answered by nothing.
func TestInspect(t *testing.T) {
	inspectOnly := []wire.Family{wire.Inspect}
	call := func(method string) canon.Value {
		return canon.ObjectOf(canon.Member{Key: "method", Value: canon.StringOf(method)}, canon.Member{Key: "params", Value: canon.ObjectOf()})
	}
	impact, err := canon.Parse([]byte(`{"changeset":{"baseline":{"rev":"r"},"changes":[]},"scope":"workspace"}`), canon.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	graph := func(rev string) canon.Value {
		v, err := canon.Parse([]byte(`{"nodes":[{"id":"n"}],"impactedFiles":["a"],"validAsOf":{"rev":"`+rev+`","blobs":[]}}`), canon.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, x := range []struct {
		name    string
		mode    wire.Mode
		policy  string
		rev     string // of the answer; "": the present one
		cut     bool
		fails   wire.DegradeReason
		base    *wire.Baseline
		results int
		ran     bool
		why     string
	}{
		{"answered", wire.Gated, pins("i", inspectOnly, "gated", wire.Gate), "", false, "", nil, 1, true, ""},
		{"stale", wire.Gated, pins("i", inspectOnly, "gated", wire.Gate), "git:tree:0", false, "", nil, 0, false, "i:stale"},
		{"cut", wire.Gated, pins("i", inspectOnly, "gated", wire.Gate), "", true, "", nil, 1, false, "i:incomplete"},
		{"crashed", wire.Gated, pins("i", inspectOnly, "gated", wire.Gate), "", false, wire.DegradeCrashed, nil, 0, false, "i:crashed"},
		{"advisory", wire.Advisory, pins("i", inspectOnly, "gated", wire.Gate), "", false, "", nil, 1, false, "i:missing-authority"},
		{"not required", wire.Advisory, "", "", false, "", nil, 1, false, ""},
		{"crashed, not required", wire.Advisory, "", "", false, wire.DegradeCrashed, nil, 0, false, "i:optional-degraded"},
		{"pinned and not there", "", pins("i", inspectOnly, "gated", wire.Gate), "", false, "", nil, 0, false, "req:missing-required-provider"},
		{"nobody", "", "", "", false, "", nil, 0, false, "inspect:missing"},
		{"older baseline", wire.Gated, pins("i", inspectOnly, "gated", wire.Gate), "", false, "", &wire.Baseline{Rev: "git:tree:0"}, 0, false, "baseline:stale-baseline baseline:stale-baseline"},
	} {
		t.Run(x.name, func(t *testing.T) {
			c := &crew{roster: []provider.Standing{standing("i", x.mode, wire.Inspect)}}
			h := newHosted(t, "", x.policy, c, map[string]string{"a": "1\n"})
			c.query = func(id string, q provider.QueryRequest) (provider.Answer, error) {
				if x.fails != "" {
					return provider.Answer{}, &provider.Failure{Provider: id, Reason: x.fails, State: wire.Crashed, Class: wire.FailHealth, Detail: "x"}
				}
				rev := x.rev
				if rev == "" {
					rev = q.Baseline.Rev
				}
				return provider.Answer{Value: graph(rev), Complete: !x.cut, Served: []wire.BlobRef{blobID("1\n")}, Isolation: wire.Isolated,
					Participant: running(c.roster[0]).Participant}, nil
			}
			r, err := h.engine().Inspect(context.Background(), apply.InspectRequest{CallSite: wire.Gate, Request: call("inspect/impact").With("params", impact), Baseline: x.base})
			if err != nil {
				t.Fatal(err)
			}
			sound(t, r)
			if len(r.Data.Results) != x.results || slices.Contains(r.Coverage.Ran, "req") != x.ran || reasons(r.Coverage.Degraded) != x.why {
				t.Errorf("%d results, ran %v, %s", len(r.Data.Results), r.Coverage.Ran, reasons(r.Coverage.Degraded))
			}
			if *r.Coverage.Exhaustive != (x.why == "") || r.Receipt.Kind != wire.ReceiptInspect || !slices.Equal(r.Coverage.Enrolled, r.Coverage.Required) {
				t.Errorf("coverage %+v, receipt %s", r.Coverage, r.Receipt.Kind)
			}
			if x.results > 0 {
				if f, ok := r.Data.Results[0].Result.Data.Get("impactedFiles"); !ok || f.Len() != 1 || len(r.Data.Results[0].Result.Nodes) != 1 {
					t.Errorf("result %+v", r.Data.Results[0])
				}
			}
			h.soundFaults(r.Coverage.Required)
			if failed := slices.Contains(h.kinds(), "provider-failure/failed"); failed != (x.fails != "") {
				t.Errorf("receipts %v", h.kinds())
			}
		})
	}
	h := newHosted(t, "", "", &crew{}, map[string]string{"a": "1\n"})
	for _, req := range []canon.Value{call("check/evaluate"), call("inspect/"), call("host/status"), call("inspect/a/b"), canon.ObjectOf(), call("x").With("y", canon.NullOf())} {
		_, err := h.engine().Inspect(context.Background(), apply.InspectRequest{CallSite: wire.Gate, Request: req})
		if w := wireErr(t, err); w.Code != wire.CodeInvalidInput || !strings.Contains(w.Data.Detail, "receipt rcpt-") {
			t.Errorf("%s: %+v", req.Bytes(), w)
		}
	}
}
