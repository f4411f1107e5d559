package apply_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aspengine/asp/apply"
	"github.com/aspengine/asp/checks"
	"github.com/aspengine/asp/editplan"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/receipt"
	"github.com/aspengine/asp/sandbox"
	"github.com/aspengine/asp/seam/provider"
	"github.com/aspengine/asp/seam/wire"
	"github.com/aspengine/asp/snapshot"
	"github.com/aspengine/asp/worktree"
)

// crew is providers by script: what a pool would have found out.
type crew struct {
	mu      sync.Mutex
	roster  []provider.Standing
	check   func(ctx context.Context, id string, s provider.Subject, set provider.Settings) checks.Result
	propose func(id string, q provider.ProposeRequest) (provider.Proposal, error)
	query   func(id string, q provider.QueryRequest) (provider.Answer, error)
	asked   []string
	budgets []time.Duration
	warmed  []string
	changed []wire.Baseline
}

func (c *crew) note(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, what)
}

type scripted struct {
	c   *crew
	id  string
	s   provider.Subject
	set provider.Settings
}

func (s *scripted) Name() string { return checks.ProviderPrefix + s.id }
func (s *scripted) Remote() bool { return true }
func (s *scripted) Run(ctx context.Context, _ *worktree.Candidate) (checks.Result, error) {
	s.c.note("check " + s.id)
	return s.c.check(ctx, s.id, s.s, s.set), nil
}

func (c *crew) Check(id string, s provider.Subject, set provider.Settings, budget time.Duration) checks.Check {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.budgets = append(c.budgets, budget)
	return &scripted{c, id, s, set}
}

func (c *crew) Propose(_ context.Context, id string, q provider.ProposeRequest) (provider.Proposal, error) {
	c.note("propose " + id)
	return c.propose(id, q)
}

func (c *crew) Query(_ context.Context, id string, q provider.QueryRequest) (provider.Answer, error) {
	c.note("query " + id)
	return c.query(id, q)
}

func (c *crew) BaselineChanged(b wire.Baseline) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changed = append(c.changed, b)
}

func (c *crew) Standing(_ context.Context, id string) provider.Standing {
	for _, s := range c.roster {
		if s.ID == id {
			return s
		}
	}
	return provider.Standing{ID: id}
}

func (c *crew) Demand(sandbox.Level, bool) {}

func (c *crew) Look(_ context.Context, all []provider.Standing) []provider.Standing { return all }
func (c *crew) Roster(context.Context) ([]provider.Standing, error)                 { return c.roster, nil }

func (c *crew) Warm(ctx context.Context, id string) provider.Standing {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.warmed = append(c.warmed, id)
	for i := range c.roster {
		if s := &c.roster[i]; s.ID == id && !s.Used {
			*s = running(*s)
		}
	}
	return c.Standing(ctx, id)
}

// running is a standing after a launch that went well.
func running(s provider.Standing) provider.Standing {
	s.Used, s.State, s.Isolation, s.Evidence = true, wire.Initialized, wire.Isolated, "kept apart, as the probe showed"
	s.Participant.Verified, s.Participant.ServerVersion = true, s.Participant.Version
	s.Health = map[wire.Family]wire.CapabilityHealth{}
	for _, f := range s.Participant.Families {
		s.Health[f] = wire.CapabilityHealth{Capability: f, Advertised: true, Available: true, LifecycleState: wire.Initialized, Degraded: []wire.Degradation{}}
	}
	return s
}

// standing is an enrolled provider that was not launched yet.
func standing(id string, mode wire.Mode, families ...wire.Family) provider.Standing {
	return provider.Standing{ID: id, State: wire.Unavailable, Participant: checks.Participant{
		ID: id, Version: "1.0", Publisher: "acme", Fingerprint: "sha256:f", Profiles: []string{"core"}, Families: families, Mode: mode,
	}}
}

// said is the answer of a provider of the crew.
func (c *crew) said(id string, status checks.Status) checks.Result {
	s := running(c.Standing(context.Background(), id))
	r := checks.Result{Status: status, Isolation: checks.Isolated, Evidence: s.Evidence}
	r.Provider, r.State, r.Comparison = &s.Participant, wire.Active, "introduced"
	return r
}

func (c *crew) failed(id, path string) checks.Result {
	r := c.said(id, checks.Failed)
	yes := true
	r.Diagnostics = []wire.Diagnostic{{Code: id + "/bad", Severity: wire.SeverityError, Source: id, Message: "bad", Location: wire.Location{Path: path}, Fingerprint: "sha256:1", Introduced: &yes}}
	return r
}

// pins is a policy whose requirement "req" pins a provider, required at the
// call-sites given.
func pins(id string, families []wire.Family, assurance string, sites ...wire.CallSite) string {
	fs, err := json.Marshal(families)
	if err != nil {
		panic(err)
	}
	gate := func(cs wire.CallSite) string {
		if slices.Contains(sites, cs) {
			return `{"requiredRequirements":["req"],"optionalRequirements":[]}`
		}
		return `{"requiredRequirements":[],"optionalRequirements":[]}`
	}
	return fmt.Sprintf(`{"aspVersion":"asp/1.0","requirements":[{"id":"req","capabilities":%s,"assurance":[%q],"authority":{"providers":[
		{"id":%q,"version":"1.0","identity":"acme","integrity":"sha256:f","conformance":"core"}]}}],
		"gates":{"interactive":%s,"gate":%s,"sweep":%s},
		"policy":{"authorityModel":"explicit-pinned-provider","policyChangeActivation":"base-policy-two-phase",
		"candidatePolicyAuthority":"trusted-base-or-organization-floor","missingHost":{"interactive":"warn-open","gate":"fail-closed","sweep":"warn-open"}}}`,
		fs, assurance, id, gate(wire.Interactive), gate(wire.Gate), gate(wire.Sweep))
}

// hosted is a workspace that is enrolled, with a committed policy and a crew.
type hosted struct {
	*bed
	crew     *crew
	verdicts *apply.Verdicts
	shares   *apply.Engine
}

func newHosted(t *testing.T, config, policy string, c *crew, files map[string]string) *hosted {
	t.Helper()
	if policy != "" {
		files[".asp/asp.json"] = policy
	}
	b := newBed(t, config, files)
	servers := []string{}
	for _, s := range c.roster {
		if s.Participant.Mode != "" {
			servers = append(servers, fmt.Sprintf("%q:{\"mode\":%q}", s.ID, s.Participant.Mode))
		}
	}
	root, err := filepath.EvalSymlinks(b.root)
	if err != nil {
		t.Fatal(err)
	}
	repos := fmt.Sprintf(`{"repos":{%q:{"mode":"gated","servers":{%s}}}}`, root, strings.Join(servers, ","))
	if err := os.WriteFile(b.home.Path("repos.json"), []byte(repos), 0o600); err != nil {
		t.Fatal(err)
	}
	return &hosted{bed: b, crew: c}
}

func (h *hosted) engine() *apply.Engine {
	h.t.Helper()
	e, err := apply.Open(context.Background(), apply.Options{Dir: h.root, Home: h.home, Version: "test", Providers: h.crew, Verdicts: h.verdicts, Shares: h.shares,
		Before: func(s string) {
			if h.hook != nil {
				h.hook(s)
			}
		}})
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { e.Close() })
	return e
}

func (h *hosted) baseline() wire.Baseline {
	h.t.Helper()
	s, err := h.engine().Status(context.Background(), apply.SurfaceRequest{})
	if err != nil {
		h.t.Fatal(err)
	}
	return s.Result.Workspace.Baseline
}

func blobID(s string) wire.BlobRef { return wire.BlobRef(snapshot.DigestOf([]byte(s)).Blob()) }

// put is a session's blobs.
func put(contents ...string) apply.Blobs {
	return func(d snapshot.Digest) ([]byte, bool) {
		for _, c := range contents {
			if snapshot.DigestOf([]byte(c)) == d {
				return []byte(c), true
			}
		}
		return nil, false
	}
}

func value(t *testing.T, v any) canon.Value {
	t.Helper()
	out, err := canon.From(v)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (h *hosted) evaluate(q apply.EvaluateRequest, changes ...wire.Change) (*apply.Evaluation, error) {
	h.t.Helper()
	if q.Changeset.Kind() == canon.Invalid {
		q.Changeset = value(h.t, wire.ChangeSet{Baseline: h.baseline(), Changes: changes})
	}
	if q.CallSite == "" {
		q.CallSite = wire.Gate
	}
	return h.engine().Evaluate(context.Background(), q)
}

// reasons lists why coverage is degraded.
func reasons(g []wire.Degradation) string {
	var out []string
	for _, x := range g {
		out = append(out, x.Source+":"+string(x.Reason))
	}
	return strings.Join(out, " ")
}

// kinds lists the kinds of the receipts that are kept, oldest first.
func (h *hosted) kinds() []string {
	h.t.Helper()
	var out []string
	for _, s := range h.stored() {
		out = append(out, string(s.Receipt.Kind)+"/"+string(s.Outcome))
	}
	return out
}

func (h *hosted) stored() []*receipt.Stored {
	h.t.Helper()
	store := h.engine().Receipts()
	all, err := store.List(context.Background())
	if err != nil {
		h.t.Fatal(err)
	}
	var out []*receipt.Stored
	for _, x := range all {
		s, err := store.Get(x.ReceiptID)
		if err != nil {
			h.t.Fatal(err)
		}
		out = append(out, s)
	}
	return out
}

func wireErr(t *testing.T, err error) *wire.Error {
	t.Helper()
	var w *wire.Error
	if !errors.As(err, &w) {
		t.Fatalf("%v (%T) is no error of the seam", err, err)
	}
	return w
}

var checkOnly = []wire.Family{wire.Check}

// TestEvaluateRefusesWhatIsNoChangeset has a row for every way in which a
// changeset is wrong by itself or against the disk.
func TestEvaluateRefusesWhatIsNoChangeset(t *testing.T) {
	c := &crew{}
	h := newHosted(t, "", "", c, map[string]string{"a": "1\n", "b": "2\n", "d/x": "x\n"})
	modify := func(p string) wire.Change {
		return wire.Change{Path: p, Kind: wire.KindModify, Before: blobID("1\n"), After: blobID("3\n")}
	}
	created := func(p string) wire.Change {
		return wire.Change{Path: p, Kind: wire.KindCreate, After: blobID("3\n")}
	}
	for _, x := range []struct {
		name    string
		changes []wire.Change
		code    int
		says    string
	}{
		{"wrong before", []wire.Change{modify("b")}, wire.CodeInvalidInput, "before"},
		{"before of nothing", []wire.Change{modify("none")}, wire.CodeInvalidInput, "no file is there"},
		{"created twice", []wire.Change{created("n"), created("n")}, wire.CodeInvalidInput, "same path"},
		{"created over a file", []wire.Change{created("a")}, wire.CodeInvalidInput, "there already"},
		{"created below a file", []wire.Change{created("a/n")}, wire.CodeInvalidInput, "no directory"},
		{"created below a created file", []wire.Change{created("n"), created("n/m")}, wire.CodeInvalidInput, "above it"},
		{"created over a directory", []wire.Change{created("d")}, wire.CodeInvalidInput, "there already"},
		{"absolute", []wire.Change{created("/n")}, wire.CodeInvalidInput, "absolute"},
		{"dots", []wire.Change{created("x/../n")}, wire.CodeInvalidInput, "component"},
		{"git directory", []wire.Change{created(".git/hooks/x")}, wire.CodeInvalidInput, "reserved"},
		{"git in disguise", []wire.Change{created(".GIT/x")}, wire.CodeInvalidInput, "reserved"},
		{"renamed to itself", []wire.Change{{Path: "a", From: "a", Kind: wire.KindRename, Before: blobID("1\n"), After: blobID("1\n")}}, wire.CodeInvalidInput, "itself"},
		{"renamed twice", []wire.Change{{Path: "n", From: "a", Kind: wire.KindRename, Before: blobID("1\n"), After: blobID("1\n")},
			{Path: "m", From: "a", Kind: wire.KindRename, Before: blobID("1\n"), After: blobID("1\n")}}, wire.CodeInvalidInput, "same file"},
		{"from beside a modify", []wire.Change{{Path: "a", From: "b", Kind: wire.KindModify, Before: blobID("1\n"), After: blobID("3\n")}}, wire.CodeInvalidInput, "from"},
		{"unknown after", []wire.Change{{Path: "a", Kind: wire.KindModify, Before: blobID("1\n"), After: blobID("nobody has this")}}, wire.CodeBlobUnavailable, "never sent"},
		{"after of another algorithm", []wire.Change{{Path: "n", Kind: wire.KindCreate, After: "blob:md5:00"}}, wire.CodeBlobUnavailable, "never sent"},
	} {
		t.Run(x.name, func(t *testing.T) {
			before := len(h.stored())
			_, err := h.evaluate(apply.EvaluateRequest{Blobs: put("3\n")}, x.changes...)
			w := wireErr(t, err)
			class := wire.FailInput
			if x.code == wire.CodeBlobUnavailable {
				class = wire.FailHealth // as the registry of the protocol has it: sent now, it can be tried again
			}
			if w.Code != x.code || w.Data.FailClass != class || !strings.Contains(w.Message, x.says) {
				t.Errorf("%d %s %q", w.Code, w.Data.FailClass, w.Message)
			}
			after := h.stored()
			if len(after) != before+2 || !strings.Contains(w.Data.Detail, after[len(after)-1].Receipt.ReceiptID) {
				t.Errorf("%q does not name the stored receipt (%d before, %d after)", w.Data.Detail, before, len(after))
			}
		})
	}
	if _, err := h.evaluate(apply.EvaluateRequest{Changeset: canon.ObjectOf(canon.Member{Key: "changes", Value: canon.ArrayOf()})}); wireErr(t, err).Code != wire.CodeInvalidInput {
		t.Errorf("a changeset without baseline: %v", err)
	}
}

// TestEvaluateDecides has a row for every cause that the engine itself finds, and
// for what providers say.
func TestEvaluateDecides(t *testing.T) {
	change := wire.Change{Path: "a", Kind: wire.KindModify, Before: blobID("1\n"), After: blobID("3\n")}
	other := `{"aspVersion":"asp/1.0"}`
	for _, x := range []struct {
		name    string
		policy  string
		site    wire.CallSite
		mode    wire.Mode
		answer  checks.Status // 0: passed
		request func(h *hosted, q *apply.EvaluateRequest)
		during  func(h *hosted) // while the provider is asked
		changes []wire.Change
		want    wire.Decision
		why     string // all reasons
		kinds   []string
	}{
		{name: "passes", want: wire.Allow, kinds: []string{"evaluate/answered"}},
		{name: "finding", answer: checks.Failed, want: wire.Deny, why: "p:blocking-diagnostic"},
		{name: "crash on a gate", answer: checks.Crashed, want: wire.Indeterminate, why: "p:crashed", kinds: []string{"evaluate/answered", "provider-failure/failed"}},
		{name: "crash on interactive", site: wire.Interactive, answer: checks.Crashed, want: wire.Allow, why: "p:fail-open"},
		{name: "malformed on interactive", site: wire.Interactive, answer: checks.Malformed, want: wire.Indeterminate, why: "p:malformed"},
		{name: "advisory provider", mode: wire.Advisory, want: wire.Indeterminate, why: "p:missing-authority"},
		{name: "no policy for a gate", policy: "-", want: wire.Indeterminate, why: "policy:missing"},
		{name: "another policy", want: wire.Indeterminate, why: "policy:incompatible",
			request: func(_ *hosted, q *apply.EvaluateRequest) { q.BasePolicyDigest = "sha256:other" }},
		{name: "foreign baseline", want: wire.Indeterminate, why: "baseline:stale-baseline p:stale",
			request: func(h *hosted, q *apply.EvaluateRequest) {
				q.Changeset = value(h.t, wire.ChangeSet{Baseline: wire.Baseline{Rev: "git:tree:" + strings.Repeat("0", 40)}, Changes: []wire.Change{change}})
			}},
		{name: "older baseline", want: wire.Indeterminate, why: "baseline:stale-baseline p:stale",
			request: func(h *hosted, q *apply.EvaluateRequest) {
				q.Changeset = value(h.t, wire.ChangeSet{Baseline: h.baseline(), Changes: []wire.Change{change}})
				h.write("b", "moved\n")
			}},
		{name: "moves meanwhile", want: wire.Indeterminate, why: "baseline:stale-baseline p:stale",
			during: func(h *hosted) { h.write("b", "moved\n") }},
		{name: "own policy weakened", want: wire.Indeterminate, why: "policy:policy-self-authorization",
			changes: []wire.Change{{Path: ".asp/asp.json", Kind: wire.KindDelete, Before: blobID(pins("p", checkOnly, "gated", wire.Gate, wire.Interactive))}}},
		{name: "own policy outside its schema", want: wire.Indeterminate, why: "policy:policy-self-authorization",
			changes: []wire.Change{{Path: ".asp/asp.json", Kind: wire.KindModify, Before: blobID(pins("p", checkOnly, "gated", wire.Gate, wire.Interactive)), After: blobID(other)}}},
		{name: "own policy on interactive", site: wire.Interactive, want: wire.Allow, why: "policy:policy-self-authorization",
			changes: []wire.Change{{Path: ".asp/asp.json", Kind: wire.KindModify, Before: blobID(pins("p", checkOnly, "gated", wire.Gate, wire.Interactive)), After: blobID(other)}}},
		{name: "own policy on sweep", site: wire.Sweep, want: wire.Allow, why: "policy:policy-self-authorization",
			changes: []wire.Change{{Path: ".asp/asp.json", Kind: wire.KindDelete, Before: blobID(pins("p", checkOnly, "gated", wire.Gate, wire.Interactive))}}},
	} {
		t.Run(x.name, func(t *testing.T) {
			mode := x.mode
			if mode == "" {
				mode = wire.Gated
			}
			c := &crew{roster: []provider.Standing{standing("p", mode, wire.Check)}}
			policy := pins("p", checkOnly, "gated", wire.Gate, wire.Interactive)
			if x.policy == "-" {
				policy = ""
			}
			h := newHosted(t, "", policy, c, map[string]string{"a": "1\n", "b": "2\n"})
			c.check = func(_ context.Context, id string, s provider.Subject, _ provider.Settings) checks.Result {
				if x.during != nil {
					x.during(h)
				}
				switch x.answer {
				case 0:
					return c.said(id, checks.Passed)
				case checks.Failed:
					return c.failed(id, "a")
				}
				r := c.said(id, x.answer)
				r.State = wire.Crashed
				return r
			}
			q := apply.EvaluateRequest{CallSite: x.site, Blobs: put("3\n", other)}
			if x.request != nil {
				x.request(h, &q)
			}
			changes := x.changes
			if changes == nil {
				changes = []wire.Change{change}
			}
			n := len(h.kinds())
			ev, err := h.evaluate(q, changes...)
			if err != nil {
				t.Fatal(err)
			}
			v := ev.Verdict
			if v.Decision != x.want || reasons(v.Coverage.Degraded) != x.why {
				t.Errorf("%s, %s", v.Decision, reasons(v.Coverage.Degraded))
			}
			if v.Receipt.Kind != wire.ReceiptEvaluate || v.Assurance.TransactionGuarantee != wire.GuaranteeNone || v.ChangesetDigest != canonOf(t, h, q, changes) {
				t.Errorf("receipt %s, guarantee %s, digest %s", v.Receipt.Kind, v.Assurance.TransactionGuarantee, v.ChangesetDigest)
			}
			if len(v.Coverage.Degraded) > 0 && (v.Coverage.Exhaustive || len(v.Receipt.Failures) < len(v.Coverage.Degraded)) {
				t.Errorf("exhaustive %v with %d failures", v.Coverage.Exhaustive, len(v.Receipt.Failures))
			}
			h.soundFaults(v.Coverage.Required)
			if x.kinds != nil {
				var got []string
				for _, k := range h.kinds()[n:] {
					if !strings.HasPrefix(k, "status/") {
						got = append(got, k)
					}
				}
				if !slices.Equal(got, x.kinds) {
					t.Errorf("receipts %v", got)
				}
			}
		})
	}
}

// canonOf is the digest that a verdict must have: of the changeset as sent.
func canonOf(t *testing.T, h *hosted, q apply.EvaluateRequest, changes []wire.Change) string {
	t.Helper()
	if q.Changeset.Kind() != canon.Invalid {
		return canon.DigestText(q.Changeset)
	}
	for _, s := range slices.Backward(h.stored()) {
		if s.Receipt.Kind == wire.ReceiptEvaluate {
			return s.Receipt.ChangesetDigest // sent with the stamp of its moment
		}
	}
	return ""
}

// TestProvidersReadTheCandidate holds what a provider is given against the disk.
func TestProvidersReadTheCandidate(t *testing.T) {
	c := &crew{roster: []provider.Standing{standing("p", wire.Gated, wire.Check)}}
	h := newHosted(t, "", pins("p", checkOnly, "gated", wire.Gate), c, map[string]string{"a": "1\n", "d/b": "2\n", ".gitignore": "ignored\n"})
	h.write("untracked", "u\n")
	h.write("ignored", "i\n")
	if err := os.Symlink("a", filepath.Join(h.root, "link")); err != nil {
		t.Fatal(err)
	}
	c.check = func(ctx context.Context, id string, s provider.Subject, _ provider.Settings) checks.Result {
		tree, err := s.Content.Tree(ctx)
		if err != nil {
			t.Error(err)
		}
		got := map[string]wire.TreeEntry{}
		for _, x := range tree {
			got[x.Path] = x
		}
		for p, content := range map[string]string{"a": "1\n", "d/b": "2\n", "untracked": "u\n", "link": "a"} {
			if got[p].BlobID != blobID(content) {
				t.Errorf("%s is %s", p, got[p].BlobID)
			}
		}
		if got["link"].Kind != "symlink" || got["a"].Kind != "file" {
			t.Errorf("kinds %q %q", got["link"].Kind, got["a"].Kind)
		}
		for _, p := range []string{"ignored", "new", ".git/HEAD"} {
			if _, ok := got[p]; ok {
				t.Errorf("%s is in the tree", p)
			}
		}
		if s.Changes[1].After != blobID("2\n") || canon.DigestText(s.Changeset) != s.ChangesetDigest {
			t.Errorf("a rename is shown as %+v under %s", s.Changes[1], s.ChangesetDigest)
		}
		for content, want := range map[string]string{"1\n": "a", "3\n": "new", "2\n": "d/b moved", "i\n": "", "nobody": ""} {
			paths, err := s.Content.Where(ctx, blobID(content))
			if err != nil {
				t.Error(err)
			}
			slices.Sort(paths)
			if strings.Join(paths, " ") != want {
				t.Errorf("%q is at %v, want %q", content, paths, want)
			}
			if want == "" {
				continue
			}
			b, err := s.Content.Bytes(ctx, blobID(content))
			if err != nil || string(b) != content {
				t.Errorf("%q: %q %v", content, b, err)
			}
		}
		// A file that moves is not served as what it was.
		h.write("untracked", "U\n")
		if b, err := s.Content.Bytes(ctx, blobID("u\n")); err == nil {
			t.Errorf("a file that moved is served: %q", b)
		}
		h.write("untracked", "u\n")
		return c.said(id, checks.Passed)
	}
	ev, err := h.evaluate(apply.EvaluateRequest{Blobs: put("3\n")},
		wire.Change{Path: "new", Kind: wire.KindCreate, After: blobID("3\n")},
		wire.Change{Path: "moved", From: "d/b", Kind: wire.KindRename, Before: blobID("2\n")})
	if err != nil || ev.Verdict.Decision != wire.Allow {
		t.Fatalf("%+v %v", ev, err)
	}
}

// TestImpactBecomesTheScope asks the inspect provider first, and the whole
// workspace where that one cannot tell.
func TestImpactBecomesTheScope(t *testing.T) {
	for _, ok := range []bool{true, false} {
		c := &crew{roster: []provider.Standing{standing("p", wire.Gated, wire.Check), standing("i", wire.Advisory, wire.Inspect)}}
		h := newHosted(t, `{"providers":{"p":{"scope":"impact"}}}`, pins("p", checkOnly, "gated", wire.Gate), c, map[string]string{"a": "1\n", "b": "2\n"})
		c.query = func(id string, q provider.QueryRequest) (provider.Answer, error) {
			if !ok {
				return provider.Answer{}, &provider.Failure{Provider: id, Reason: wire.DegradeCrashed, State: wire.Crashed, Class: wire.FailHealth, Detail: "gone"}
			}
			v, err := canon.Parse([]byte(`{"changedNodes":[],"impactedNodes":[],"impactedFiles":["b","gone"],"validAsOf":{"rev":"x","blobs":[]}}`), canon.Limits{})
			return provider.Answer{Value: v, Complete: true}, err
		}
		var scope []string
		var set provider.Settings
		c.check = func(_ context.Context, id string, s provider.Subject, x provider.Settings) checks.Result {
			scope, set = s.Scope, x
			return c.said(id, checks.Passed)
		}
		ev, err := h.evaluate(apply.EvaluateRequest{Blobs: put("3\n")}, wire.Change{Path: "a", Kind: wire.KindModify, Before: blobID("1\n"), After: blobID("3\n")})
		if err != nil {
			t.Fatal(err)
		}
		if ok && (!slices.Equal(scope, []string{"a", "b"}) || set.Scope != "impact") || !ok && (scope != nil || set.Scope != "workspace" || len(ev.Notes) == 0) {
			t.Errorf("%v: scope %v, settings %q, notes %v", ok, scope, set.Scope, ev.Notes)
		}
		if failed := slices.Contains(h.kinds(), "provider-failure/failed"); failed == ok {
			t.Errorf("%v: receipts %v", ok, h.kinds())
		}
		h.soundFaults([]string{"req"})
	}
}

// TestVerdictsAreRemembered asks twice, and again after each part of the question
// changed.
func TestVerdictsAreRemembered(t *testing.T) {
	c := &crew{roster: []provider.Standing{running(standing("p", wire.Gated, wire.Check))}}
	h := newHosted(t, "", pins("p", checkOnly, "gated", wire.Gate, wire.Interactive), c, map[string]string{"a": "1\n"})
	h.verdicts = apply.NewVerdicts(100)
	c.check = func(_ context.Context, id string, _ provider.Subject, _ provider.Settings) checks.Result {
		r := c.said(id, checks.Passed)
		r.Served = []wire.BlobRef{blobID("3\n")}
		return r
	}
	after := "3\n"
	site := wire.Gate
	ask := func() (n int, cache string) {
		t.Helper()
		before := len(c.asked)
		ev, err := h.evaluate(apply.EvaluateRequest{CallSite: site, Blobs: put(after)}, wire.Change{Path: "a", Kind: wire.KindModify, Before: blobID(h.read("a")), After: blobID(after)})
		if err != nil || ev.Verdict.Decision != wire.Allow {
			t.Fatalf("%+v %v", ev, err)
		}
		if !slices.Equal(ev.Verdict.ValidAsOf.Blobs, []string{string(blobID("3\n"))}) {
			t.Errorf("validAsOf %v", ev.Verdict.ValidAsOf)
		}
		return len(c.asked) - before, ev.Checks[0].Cache
	}
	if n, _ := ask(); n != 1 {
		t.Fatalf("first: asked %d times", n)
	}
	if n, cache := ask(); n != 0 || cache != "verdict" {
		t.Fatalf("second: asked %d times, cache %q", n, cache)
	}
	config := func(s string) func() {
		return func() {
			if err := os.WriteFile(h.home.Path("config.json"), []byte(s), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, x := range []struct {
		name string
		do   func()
	}{
		{"other after-state", func() { after = "4\n" }},
		{"other baseline", func() { h.write("b", "new\n") }},
		{"other call-site", func() { site = wire.Interactive }},
		{"other rules", config(`{"providers":{"p":{"rules":["p/x"]}}}`)},
		{"other configuration", config(`{"providers":{"p":{"configuration":{"x":1}}}}`)},
		{"other policy", config(`{"checks":{}}`)},
		{"other comparison", config(`{"providers":{"p":{"comparison":"all"}}}`)},
		{"other executable", func() { c.roster[0].Evidence = "another launch" }},
		{"other isolation", func() { c.roster[0].Isolation = wire.MediatedWrite }},
	} {
		x.do()
		if n, _ := ask(); n != 1 {
			t.Errorf("%s: asked %d times", x.name, n)
		}
		if n, _ := ask(); n != 0 {
			t.Errorf("%s again: asked %d times", x.name, n)
		}
	}
	c.roster[0].Quarantine = &provider.Quarantine{Failures: 3}
	if n, _ := ask(); n != 1 {
		t.Error("a provider in quarantine is answered for")
	}
	c.roster[0].Quarantine = nil
	// Bounded: the oldest answer goes.
	h.verdicts = apply.NewVerdicts(1)
	ask()
	after = "5\n"
	ask()
	after = "4\n"
	if n, _ := ask(); n != 1 {
		t.Error("more is kept than the bound allows")
	}
}

// TestOnlyWhatHeldIsRemembered: what a provider said while the tree moved was about
// another state, whatever it was called, and nobody is given it when the tree is back.
func TestOnlyWhatHeldIsRemembered(t *testing.T) {
	c := &crew{roster: []provider.Standing{running(standing("p", wire.Gated, wire.Check))}}
	h := newHosted(t, "", pins("p", checkOnly, "gated", wire.Gate), c, map[string]string{"a": "1\n", "b": "1\n"})
	h.verdicts = apply.NewVerdicts(100)
	move := true
	c.check = func(_ context.Context, id string, _ provider.Subject, _ provider.Settings) checks.Result {
		if move {
			h.write("b", "2\n")
		}
		return c.said(id, checks.Passed)
	}
	change := wire.Change{Path: "a", Kind: wire.KindModify, Before: blobID("1\n"), After: blobID("3\n")}
	q := apply.EvaluateRequest{Blobs: put("3\n"), Changeset: value(t, wire.ChangeSet{Baseline: h.baseline(), Changes: []wire.Change{change}})}
	ev, err := h.evaluate(q)
	if err != nil || ev.Verdict.Decision == wire.Allow {
		t.Fatalf("while the tree moved: %+v %v", ev, err)
	}
	h.write("b", "1\n")
	move = false
	if ev, err = h.evaluate(q); err != nil || ev.Verdict.Decision != wire.Allow || ev.Checks[0].Cache != "" || len(c.asked) != 2 {
		t.Fatalf("%+v %v, asked %d times", ev, err, len(c.asked))
	}
	if ev, err = h.evaluate(q); err != nil || ev.Verdict.Decision != wire.Allow || ev.Checks[0].Cache != "verdict" || len(c.asked) != 2 {
		t.Errorf("again: %+v %v, asked %d times", ev, err, len(c.asked))
	}
}

// TestListedIsOfTheBaseline: where a provider has the tree listed while a file holds other
// content, its answer is about no state that has a name, though the file holds again what
// it held when the next look is made; and where nothing moves, files that are converted
// on their way to git are no reason for anything.
func TestListedIsOfTheBaseline(t *testing.T) {
	c := &crew{roster: []provider.Standing{running(standing("p", wire.Gated, wire.Check))}}
	h := newHosted(t, "", pins("p", checkOnly, "gated", wire.Gate), c, map[string]string{
		"a": "1\n", "b": "1\n", "c": "1\r\n2\r\n", ".gitattributes": "c text eol=crlf\n",
	})
	h.shares = h.engine()
	h.shares.Reside()
	move := false
	c.check = func(ctx context.Context, _ string, s provider.Subject, _ provider.Settings) checks.Result {
		if move {
			h.write("b", "2\n")
			defer h.write("b", "1\n")
		}
		if tree, err := s.Content.Tree(ctx); err != nil || len(tree) != 5 {
			t.Errorf("%v %v", tree, err)
		}
		return c.said("p", checks.Passed)
	}
	change := wire.Change{Path: "a", Kind: wire.KindModify, Before: blobID("1\n"), After: blobID("3\n")}
	for _, move = range []bool{false, true, false} {
		ev, err := h.evaluate(apply.EvaluateRequest{Blobs: put("3\n")}, change)
		if err != nil || (ev.Verdict.Decision == wire.Allow) == move {
			t.Errorf("moving %v: %+v %v", move, ev, err)
		}
	}
	// An apply asks again, and then nothing moves.
	move = true
	asked, check := 0, c.check
	c.check = func(ctx context.Context, id string, s provider.Subject, set provider.Settings) checks.Result {
		defer func() { asked, move = asked+1, false }()
		return check(ctx, id, s, set)
	}
	p := proposal(t, c, "harness", "q", h.baseline(), "a", "1\n", "3\n")
	a := h.applyProposal(wire.ApplyProposalParams{ProposalID: "q", CallSite: wire.Gate, Proposal: p.Plan}, put("3\n"))
	if !a.Result.Applied || asked != 2 {
		t.Errorf("asked %d times: %s", asked, code(a))
	}
}

// TestHostLooksAtPacksByTurns: the first transaction of a host tidies the store of what
// undo needs, and then one of eight, so that the others do not list it.
func TestHostLooksAtPacksByTurns(t *testing.T) {
	h := newHosted(t, "", "", &crew{}, map[string]string{"a": "0\n"})
	h.shares = h.engine()
	found, err := filepath.Glob(h.home.Path("workspaces", "*"))
	if err != nil || len(found) != 1 {
		t.Fatalf("%q %v", found, err)
	}
	dead := filepath.Join(found[0], home.Packs, "tx-dead.part")
	for i := 1; i <= 9; i++ {
		if err := os.WriteFile(dead, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		a, err := h.engine().Apply(context.Background(), apply.Request{CallSite: wire.Interactive, Intent: wire.IntentUser,
			Load: plan(fmt.Sprint("p", i), func(*apply.View) []editplan.Draft {
				return []editplan.Draft{replace("a", fmt.Sprintf("%d\n", i-1), fmt.Sprintf("%d\n", i))}
			})})
		if err != nil || a.Outcome != receipt.Applied {
			t.Fatalf("%d: %+v %v", i, a, err)
		}
		_, err = os.Lstat(dead)
		if gone := errors.Is(err, os.ErrNotExist); gone != (i%8 == 1) {
			t.Errorf("after transaction %d: gone %v", i, gone)
		}
	}
}

// TestJudgedContentIsKeptOnce: a changeset that is judged again writes no pack of its own,
// the one of before goes by the name of the last receipt and counts as new; where that
// one is gone the content is kept anew. The engines of a host look at the bounds by turns.
func TestJudgedContentIsKeptOnce(t *testing.T) {
	c := &crew{roster: []provider.Standing{running(standing("p", wire.Gated, wire.Check))}}
	c.check = func(context.Context, string, provider.Subject, provider.Settings) checks.Result {
		return c.said("p", checks.Passed)
	}
	h := newHosted(t, "", pins("p", checkOnly, "gated", wire.Gate), c, map[string]string{"a": "1\n"})
	h.verdicts = apply.NewVerdicts(100)
	h.shares = h.engine()
	found, err := filepath.Glob(h.home.Path("workspaces", "*"))
	if err != nil || len(found) != 1 {
		t.Fatalf("%q %v", found, err)
	}
	dir := filepath.Join(found[0], home.Judged)
	dead := filepath.Join(dir, "dead.part")
	change := func(n int) wire.Change {
		return wire.Change{Path: "a", Kind: wire.KindModify, Before: blobID("1\n"), After: blobID(fmt.Sprintf("%d\n", n))}
	}
	base := h.baseline()
	ask := func(n int) (pack string, fi os.FileInfo) {
		t.Helper()
		ev, err := h.evaluate(apply.EvaluateRequest{CallSite: wire.Gate, Blobs: put(fmt.Sprintf("%d\n", n)),
			Changeset: value(t, wire.ChangeSet{Baseline: base, Changes: []wire.Change{change(n)}})})
		if err != nil || ev.Verdict.Decision != wire.Allow {
			t.Fatalf("%+v %v", ev, err)
		}
		pack = filepath.Join(dir, ev.Verdict.Receipt.ReceiptID+".pack")
		if fi, err = os.Lstat(pack); err != nil {
			t.Fatal(err)
		}
		return pack, fi
	}
	packs := func() int {
		all, err := filepath.Glob(filepath.Join(dir, "*.pack"))
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	first, was := ask(2)
	again, is := ask(2)
	if !os.SameFile(was, is) || again == first || packs() != 1 {
		t.Errorf("judged again: pack %s, the file of %s: %v; %d packs", again, first, os.SameFile(was, is), packs())
	}
	if err := os.Remove(again); err != nil {
		t.Fatal(err)
	}
	if ask(2); packs() != 1 {
		t.Error("a pack that was gone is not made again")
	}
	for i := 3; i <= 18; i++ { // the third pack to the 18th of the host
		if err := os.WriteFile(dead, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		ask(i)
		_, err := os.Lstat(dead)
		if gone := errors.Is(err, os.ErrNotExist); gone != (i == 17) {
			t.Errorf("after pack %d: gone %v", i, gone)
		}
	}
	if n := packs(); n != 17 {
		t.Errorf("%d packs are kept, of 17 changesets", n)
	}
}

// TestBudgetIsTheWholeHosts holds that a provider gets no more time than is left
// on interactive, and its own budget elsewhere.
func TestBudgetIsTheWholeHosts(t *testing.T) {
	c := &crew{roster: []provider.Standing{standing("p", wire.Gated, wire.Check)}}
	h := newHosted(t, `{"budgets":{"interactiveMs":60000,"gateMs":50000}}`, pins("p", checkOnly, "gated", wire.Gate, wire.Interactive), c, map[string]string{"a": "1\n"})
	c.check = func(_ context.Context, id string, _ provider.Subject, _ provider.Settings) checks.Result {
		return c.said(id, checks.Passed)
	}
	change := wire.Change{Path: "a", Kind: wire.KindDelete, Before: blobID("1\n")}
	for _, x := range []struct {
		site    wire.CallSite
		timeout int64
		least   time.Duration
		most    time.Duration
	}{
		{wire.Interactive, 0, 1, 60*time.Second - 1},
		{wire.Interactive, 30000, 1, 30*time.Second - 1},
		{wire.Gate, 0, 50 * time.Second, 50 * time.Second},
		{wire.Gate, 30000, 1, 30*time.Second - 1},
	} {
		if _, err := h.evaluate(apply.EvaluateRequest{CallSite: x.site, TimeoutMs: x.timeout}, change); err != nil {
			t.Fatal(err)
		}
		if got := c.budgets[len(c.budgets)-1]; got < x.least || got > x.most {
			t.Errorf("%s with %d ms: the provider got %s", x.site, x.timeout, got)
		}
	}
}
