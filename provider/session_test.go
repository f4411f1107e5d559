package provider_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/provider"
	"github.com/aspengine/asp/provider/providertest"
	"github.com/aspengine/asp/seam/wire"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tabs finds lines with a tab: as simple as a check can be.
func tabs(ctx context.Context, f *provider.File, r *provider.CheckRequest) ([]provider.Diagnostic, error) {
	var out []provider.Diagnostic
	t := f.Text()
	for i := range t.Lines() {
		at := bytes.IndexByte(t.Line(i), '\t')
		if at < 0 {
			continue
		}
		if strings.HasPrefix(f.Path, "panic") {
			panic("as asked")
		}
		out = append(out, provider.Diagnostic{Rule: "toy/tab", Severity: provider.SeverityError, Message: "a tab",
			Range: t.Span(t.Start(i)+at, t.Start(i)+at+1), Key: string(bytes.TrimSpace(t.Line(i)))})
	}
	return out, nil
}

type toySettings struct {
	Max int `json:"max,omitempty"`
}

func toy() *provider.Provider {
	return &provider.Provider{ID: "toy", Version: "1.0.0", Fingerprint: "sha256:00", Check: &provider.Check{
		Rules: []string{"toy/tab"},
		Configure: func(d provider.Data) (any, error) {
			s := toySettings{Max: 10}
			err := d.Decode(&s)
			return s, err
		},
		Run: provider.PerFile{Analyse: tabs}.Check,
	}}
}

// blocking has a check that runs until its context ends.
func blocking(started chan<- struct{}) *provider.Provider {
	p := toy()
	p.Check.Run = func(ctx context.Context, h *provider.Host, r *provider.CheckRequest) (*provider.Report, error) {
		close(started)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return p
}

func wantError(t *testing.T, e *wire.Error, code int, class wire.FailClass) {
	t.Helper()
	if e == nil || e.Code != code || e.Data == nil || e.Data.FailClass != class {
		t.Fatalf("got %+v, want code %d class %s", e, code, class)
	}
}

func TestCORE_SERVER_INITIALIZE(t *testing.T) {
	h := providertest.Start(t, toy(), nil)
	r := h.Handshake()
	if r.ServerInfo.Version != "1.0.0" || r.ServerInfo.Fingerprint != "sha256:00" || len(r.CapabilityFamilies) != 1 || r.Capabilities.Check == nil {
		t.Errorf("initialize: %+v", r)
	}
	if p := r.RequestedPermissions; p == nil || *p.Write || *p.Network {
		t.Errorf("requested permissions %+v, want read only", p)
	}
	_, e := h.Call(wire.MethodInitialize, h.InitializeParams())
	wantError(t, e, wire.CodeInvalidRequest, wire.FailContract)
}

func TestCORE_SERVER_UNSUPPORTED_PROTOCOL(t *testing.T) {
	for _, v := range []string{"asp/0.1", "asp/2.0", "asp/1", ""} {
		h := providertest.Start(t, toy(), nil)
		p := h.InitializeParams()
		p.ProtocolVersion = v
		_, e := h.Call(wire.MethodInitialize, p)
		wantError(t, e, wire.CodeUnsupportedVersion, wire.FailContract)
		_, e = h.Call(wire.MethodEvaluate, h.EvaluateParams(h.Changeset(nil), wire.CompareAll, "changeset", ""))
		wantError(t, e, wire.CodeNotReady, wire.FailHealth)
		if err := h.End(); err != nil {
			t.Error(err)
		}
	}
}

func TestCORE_SERVER_PREINITIALIZED(t *testing.T) {
	h := providertest.Start(t, toy(), nil)
	params := h.EvaluateParams(h.Changeset(map[string]string{"a": "\t"}), wire.CompareAll, "changeset", "")
	_, e := h.Call(wire.MethodEvaluate, params)
	wantError(t, e, wire.CodeNotReady, wire.FailHealth)
	if _, e := h.Call(wire.MethodInitialize, h.InitializeParams()); e != nil {
		t.Fatal(e)
	}
	_, e = h.Call(wire.MethodEvaluate, params) // no grant yet
	wantError(t, e, wire.CodeNotReady, wire.FailHealth)
	if len(h.Asked) > 0 {
		t.Errorf("callbacks %q before the grant", h.Asked)
	}
}

func TestCORE_SERVER_INITIALIZED_GRANT(t *testing.T) {
	h := providertest.Start(t, toy(), map[string]string{"src/a": "x", "private/b": "x"})
	h.Grant.Read = []string{"src/**"}
	h.Handshake()
	a := h.Check(h.Changeset(map[string]string{"src/a": "\tx"}), wire.CompareAll, "workspace", "")
	if a.Status != wire.StatusComplete || len(a.Diagnostics) != 1 {
		t.Errorf("inside the grant: %s %+v", a.Status, a.Diagnostics)
	}

	// A grant for another baseline cannot be kept, and says so when first asked.
	h = providertest.Start(t, toy(), nil)
	if _, e := h.Call(wire.MethodInitialize, h.InitializeParams()); e != nil {
		t.Fatal(e)
	}
	h.Baseline.Rev = "tree:sha256:11"
	h.GrantAccess()
	_, e := h.Call(wire.MethodEvaluate, h.EvaluateParams(h.Changeset(nil), wire.CompareAll, "changeset", ""))
	wantError(t, e, wire.CodeInvalidInput, wire.FailContract)
}

func TestCORE_SERVER_CALLBACK_CONTENT(t *testing.T) {
	h := providertest.Open(t, toy(), map[string]string{"a": "old\t", "b": "\t"})
	a := h.Check(h.Changeset(map[string]string{"a": "new\t"}), wire.CompareIntroduced, "changeset", "")
	if len(a.Diagnostics) != 1 || len(h.Served) != 2 {
		t.Errorf("findings %+v, served %v", a.Diagnostics, h.Served)
	}
	for _, m := range []string{wire.MethodListTree, wire.MethodReadBlob} {
		if !slices.Contains(h.Asked, m) {
			t.Errorf("%s was not asked: %q", m, h.Asked)
		}
	}
	// Bytes that do not hash to their name are not taken.
	h.Intercept = func(method string, params canon.Value) (canon.Value, *wire.Error, bool) {
		if method != wire.MethodReadBlob {
			return canon.Value{}, nil, false
		}
		var p wire.ReadBlobParams
		if err := wire.Decode(params, &p); err != nil {
			t.Fatal(err)
		}
		return h.Value(wire.ReadBlobResult{Blobs: []wire.NamedBlob{{ID: p.Blobs[0], Encoding: wire.UTF8, Bytes: "other"}}}), nil, true
	}
	a = h.CheckUnverified(h.Changeset(map[string]string{"a": "new\t"}))
	if a.Status == wire.StatusComplete {
		t.Errorf("wrong bytes led to %+v", a)
	}
}

func TestCORE_SERVER_GRANT_SCOPE(t *testing.T) {
	h := providertest.Start(t, toy(), map[string]string{"src/a": "x", "src/.env": "x", "lib/b": "x"})
	h.Grant.Read = []string{"**/*", "!**/.env*"}
	h.Handshake()
	cs := h.Changeset(map[string]string{"src/a": "\t", "src/.env": "\t"})
	a := h.Check(cs, wire.CompareAll, "changeset", "")
	if a.Status != wire.StatusIncomplete || len(a.Diagnostics) != 1 || a.Diagnostics[0].Location.Path != "src/a" {
		t.Errorf("%s %+v", a.Status, a.Diagnostics)
	}
	// A host that refuses what the globs seem to allow is believed.
	h.Intercept = func(method string, _ canon.Value) (canon.Value, *wire.Error, bool) {
		return canon.Value{}, wire.NewError(wire.CodeScopeDenied, wire.FailPolicy, "no", ""), method == wire.MethodReadBlob
	}
	a = h.Check(h.Changeset(map[string]string{"src/a": "\t"}), wire.CompareAll, "changeset", "")
	if a.Status != wire.StatusIncomplete || len(a.Diagnostics) != 0 {
		t.Errorf("denied: %s %+v", a.Status, a.Diagnostics)
	}
}

func TestCORE_SERVER_VALID_RESULTS(t *testing.T) {
	h := providertest.Open(t, toy(), map[string]string{"a": "\tone\n", "gone": "\tgone\n", "panic": "x"})
	for _, c := range []struct {
		name       string
		after      map[string]string
		comparison wire.Comparison
		status     wire.Status
		found      int
	}{
		{"clean", map[string]string{"b": "x"}, wire.CompareAll, wire.StatusComplete, 0},
		{"finding", map[string]string{"b": "\t"}, wire.CompareIntroduced, wire.StatusComplete, 1},
		{"already there", map[string]string{"a": "\n\tone\n"}, wire.CompareIntroduced, wire.StatusComplete, 0},
		{"twice now", map[string]string{"a": "\tone\n\tone\n"}, wire.CompareIntroduced, wire.StatusComplete, 1},
		{"moved to another file", map[string]string{"a": "", "c": "\tone\n"}, wire.CompareIntroduced, wire.StatusComplete, 0},
		{"renamed", map[string]string{"c": "from:a"}, wire.CompareIntroduced, wire.StatusComplete, 0},
		{"resolved", map[string]string{"a": "one\n"}, wire.CompareResolved, wire.StatusComplete, 1},
		{"all", map[string]string{"a": "\tone\n"}, wire.CompareAll, wire.StatusComplete, 1},
		{"panic", map[string]string{"panic": "\t", "b": "\t"}, wire.CompareAll, wire.StatusIncomplete, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := h.Check(h.Changeset(c.after), c.comparison, "changeset", "")
			if a.Status != c.status || len(a.Diagnostics) != c.found {
				t.Errorf("%s with %+v %+v", a.Status, a.Diagnostics, a.Coverage)
			}
		})
	}
	t.Run("unsupported", func(t *testing.T) {
		p := h.EvaluateParams(h.Changeset(nil), wire.CompareAll, "changeset", "").With("rules", canon.ArrayOf(canon.StringOf("toy/other")))
		v, e := h.Call(wire.MethodEvaluate, p)
		if e != nil {
			t.Fatal(e)
		}
		if a := h.Assessment(v, h.Changeset(nil)); a.Status != wire.StatusUnsupported || len(a.Coverage.Unsupported) != 1 {
			t.Errorf("%+v", a)
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		started := make(chan struct{})
		h := providertest.Open(t, blocking(started), nil)
		cs := h.Changeset(map[string]string{"a": "x"})
		id := h.Send(wire.MethodEvaluate, h.EvaluateParams(cs, wire.CompareAll, "changeset", ""))
		<-started
		h.Notify(wire.MethodCancel, wire.CancelParams{ID: id})
		v, e := h.Await(id)
		if e != nil {
			t.Fatal(e)
		}
		if a := h.Assessment(v, cs); a.Status != wire.StatusCancelled {
			t.Errorf("%+v", a)
		}
	})
}

func TestScopes(t *testing.T) {
	h := providertest.Open(t, toy(), map[string]string{"src/a": "\ta\n", "src/b": "\tb\n", "lib/c": "\tc\n"})
	h.Links = map[string]string{"src/link": "\tnowhere"}
	cs := h.Changeset(map[string]string{"src/b": "\tb\n\tb2\n", "lib/d": "\td\n"})
	for _, c := range []struct {
		scope      any
		comparison wire.Comparison
		want       string
	}{
		{"changeset", wire.CompareAll, "lib/d src/b src/b"},
		{"changeset", wire.CompareIntroduced, "lib/d src/b"},
		{"workspace", wire.CompareAll, "lib/c lib/d src/a src/b src/b"},
		{"workspace", wire.CompareIntroduced, "lib/d src/b"},
		{[]string{"src/a"}, wire.CompareAll, "src/a"},
		{[]string{"src/a"}, wire.CompareIntroduced, ""},
		{[]string{"src/a", "src/b"}, wire.CompareAll, "src/a src/b src/b"},
		{[]string{"src"}, wire.CompareIntroduced, "src/b"},
		{[]string{"lib/d"}, wire.CompareIntroduced, "lib/d"},
	} {
		a := h.Check(cs, c.comparison, c.scope, "")
		var got []string
		for _, d := range a.Diagnostics {
			got = append(got, d.Location.Path)
		}
		if a.Status != wire.StatusComplete || strings.Join(got, " ") != c.want {
			t.Errorf("%v %s: %s %q, want %q", c.scope, c.comparison, a.Status, got, c.want)
		}
	}
}

func TestCORE_SERVER_TYPED_ERROR(t *testing.T) {
	failing := func(err error) *provider.Provider {
		p := toy()
		p.Check.Run = func(context.Context, *provider.Host, *provider.CheckRequest) (*provider.Report, error) {
			return nil, err
		}
		return p
	}
	for _, c := range []struct {
		err   error
		code  int
		class wire.FailClass
	}{
		{errors.New("disk on fire"), wire.CodeInternal, wire.FailHealth},
		{provider.HealthError("index not ready"), wire.CodeNotReady, wire.FailHealth},
		{fmt.Errorf("wrapped: %w", provider.InputError("bad")), wire.CodeInvalidInput, wire.FailInput},
		{&wire.Error{Code: 7, Message: "no class"}, 7, wire.FailContract},
	} {
		h := providertest.Open(t, failing(c.err), nil)
		_, e := h.Call(wire.MethodEvaluate, h.EvaluateParams(h.Changeset(nil), wire.CompareAll, "changeset", ""))
		wantError(t, e, c.code, c.class)
	}
	p := toy()
	p.Check.Run = func(context.Context, *provider.Host, *provider.CheckRequest) (*provider.Report, error) {
		panic("as asked")
	}
	h := providertest.Open(t, p, nil)
	for range 2 { // the session goes on
		_, e := h.Call(wire.MethodEvaluate, h.EvaluateParams(h.Changeset(nil), wire.CompareAll, "changeset", ""))
		wantError(t, e, wire.CodeInternal, wire.FailHealth)
	}
	_, e := h.Call("edit/propose", canon.ObjectOf())
	wantError(t, e, wire.CodeMethodNotFound, wire.FailContract)
}

func TestCORE_SERVER_REJECTED_MALFORMED_HOST_FIELDS(t *testing.T) {
	h := providertest.Open(t, toy(), nil)
	good := h.EvaluateParams(h.Changeset(map[string]string{"a": "x"}), wire.CompareAll, "changeset", "")
	cs, _ := good.Get("changeset")
	change := func(c wire.Change) canon.Value {
		return good.With("changeset", cs.With("changes", canon.ArrayOf(h.Value(c))))
	}
	blob := provider.Ref(nil)
	for name, p := range map[string]canon.Value{
		"unknown member":  good.With("callSite", canon.StringOf("gate")),
		"host field":      good.With("verdict", canon.StringOf("allow")),
		"no comparison":   good.Without("comparison"),
		"scope":           good.With("scope", canon.StringOf("everything")),
		"no changeset":    good.Without("changeset"),
		"null settings":   good.With("configuration", canon.NullOf()),
		"unknown setting": good.With("configuration", canon.ObjectOf(canon.Member{Key: "min", Value: canon.IntOf(1)})),
		"path up":         change(wire.Change{Path: "../a", Kind: wire.KindCreate, After: blob}),
		"absolute path":   change(wire.Change{Path: "/a", Kind: wire.KindCreate, After: blob}),
		"rename on itself": change(wire.Change{Path: "a", From: "a", Kind: wire.KindRename,
			Before: blob, After: blob}),
		"no after": change(wire.Change{Path: "a", Kind: wire.KindCreate}),
	} {
		_, e := h.Call(wire.MethodEvaluate, p)
		if e == nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		wantError(t, e, wire.CodeInvalidInput, wire.FailInput)
	}

	// An answer that holds what is the host's never leaves.
	p := toy()
	p.Check.Fixes = true
	p.Check.Run = func(context.Context, *provider.Host, *provider.CheckRequest) (*provider.Report, error) {
		return &provider.Report{Diagnostics: []provider.Diagnostic{{Rule: "toy/tab", Severity: provider.SeverityError, Message: "m", Path: "a",
			Fix: &provider.Fix{EditRef: "toy/fix", Args: map[string]map[string]string{"deep": {"decision": "allow"}}}}}}, nil
	}
	h = providertest.Open(t, p, nil)
	_, e := h.Call(wire.MethodEvaluate, good)
	wantError(t, e, wire.CodeInternal, wire.FailHealth)
}

func TestCORE_SERVER_REJECTED_FRESHNESS(t *testing.T) {
	h := providertest.Open(t, toy(), nil)
	old := h.Changeset(map[string]string{"a": "x"})
	stale := old
	stale.Baseline.Rev = "tree:sha256:ff"
	_, e := h.Call(wire.MethodEvaluate, h.EvaluateParams(stale, wire.CompareAll, "changeset", ""))
	wantError(t, e, wire.CodeStaleBaseline, wire.FailHealth)
	h.Baseline = stale.Baseline
	h.Notify(wire.MethodBaselineChanged, wire.BaselineChangedParams{Baseline: h.Baseline})
	if a := h.Check(stale, wire.CompareAll, "changeset", ""); a.Status != wire.StatusComplete {
		t.Errorf("%+v", a)
	}
	_, e = h.Call(wire.MethodEvaluate, h.EvaluateParams(old, wire.CompareAll, "changeset", ""))
	wantError(t, e, wire.CodeStaleBaseline, wire.FailHealth)
}

func TestCORE_SERVER_TIMEOUT(t *testing.T) {
	// The host's limit ends a request even while a callback is open.
	h := providertest.Start(t, toy(), map[string]string{"a": "x"})
	if _, e := h.Call(wire.MethodInitialize, h.InitializeParams()); e != nil {
		t.Fatal(e)
	}
	ms := int64(20)
	h.Notify(wire.MethodInitialized, wire.InitializedParams{Baseline: h.Baseline, GrantedPermissions: wire.Permissions{Read: []string{"**/*"},
		ResourceLimits: &wire.ResourceLimits{WallclockMs: &ms}}})
	id := h.Send(wire.MethodEvaluate, h.EvaluateParams(h.Changeset(map[string]string{"a": "y"}), wire.CompareAll, "changeset", ""))
	// On a slow machine the time may be over before the callback was sent.
	v := h.Read()
	callback, _ := v.Get("id")
	_, asked := v.Get("method")
	if asked {
		v = h.Read()
	}
	if got, _ := v.Get("id"); !canon.Equal(got, id) {
		t.Fatalf("%s", v.Bytes())
	}
	if f, _ := v.Get("error"); !strings.Contains(string(f.Bytes()), "20 ms") {
		t.Errorf("%s", v.Bytes())
	}
	if asked { // the answer comes late: it is dropped, and the session goes on
		h.Answer(callback, h.Value(wire.ListTreeResult{}), nil)
	}
	if _, e := h.Call(wire.MethodShutdown, canon.ObjectOf()); e != nil {
		t.Fatal(e)
	}
	// A function that ignores its context costs its own request only.
	release := make(chan struct{})
	p := toy()
	p.Check.Run = func(ctx context.Context, h *provider.Host, r *provider.CheckRequest) (*provider.Report, error) {
		<-release
		return &provider.Report{}, nil
	}
	h = providertest.Open(t, p, nil)
	cs := h.Changeset(nil)
	params := h.EvaluateParams(cs, wire.CompareAll, "changeset", "")
	id = h.Send(wire.MethodEvaluate, params)
	h.Notify(wire.MethodCancel, wire.CancelParams{ID: id})
	v, e := h.Await(id)
	if e != nil || h.Assessment(v, cs).Status != wire.StatusCancelled {
		t.Fatalf("%s %v", v.Bytes(), e)
	}
	_, e = h.Call(wire.MethodEvaluate, params)
	wantError(t, e, wire.CodeNotReady, wire.FailHealth)
	close(release)
}

func TestCORE_SERVER_BEHAVIOR_ONLY(t *testing.T) {
	h := providertest.Open(t, toy(), map[string]string{"a": "x"})
	v, e := h.Call(wire.MethodEvaluate, h.EvaluateParams(h.Changeset(map[string]string{"a": "\t"}), wire.CompareIntroduced, "changeset", ""))
	if e != nil {
		t.Fatal(e)
	}
	for k := range v.Members() {
		switch k {
		case "status", "diagnostics", "evidence", "coverage", "validAsOf", "provider", "timing", "cache":
		default:
			t.Errorf("member %q", k)
		}
	}
}

func TestConfigDigest(t *testing.T) {
	h := providertest.Open(t, toy(), nil)
	digest := func(settings string) string {
		return h.Check(h.Changeset(nil), wire.CompareAll, "changeset", settings).Provider.ConfigDigest
	}
	defaults := digest("")
	want := canon.DigestText(canon.ObjectOf(canon.Member{Key: "capabilityVersion", Value: canon.StringOf("check/1.0")},
		canon.Member{Key: "configuration", Value: canon.ObjectOf(canon.Member{Key: "max", Value: canon.IntOf(10)})},
		canon.Member{Key: "provider", Value: canon.StringOf("toy")}))
	if defaults != want {
		t.Errorf("digest of the defaults %s, want %s", defaults, want)
	}
	if digest(`{}`) != defaults || digest(`{"max":10}`) != defaults {
		t.Error("the same effective settings have several digests")
	}
	if digest(`{"max":11}`) == defaults {
		t.Error("other settings have the same digest")
	}
}

func TestFraming(t *testing.T) {
	p := toy()
	p.MessageBytes = 1 << 20
	h := providertest.Open(t, p, nil)
	bad := func(line string, code int) {
		t.Helper()
		h.Line(line)
		v := h.Read()
		id, _ := v.Get("id")
		f, _ := v.Get("error")
		var e wire.Error
		if err := wire.Decode(f, &e); err != nil || id.Kind() != canon.Null || e.Code != code {
			t.Errorf("%.60q: %s", line, v.Bytes())
		}
	}
	bad(strings.Repeat("x", 1<<20+1), wire.CodeParse)
	bad(`{"jsonrpc":"2.0"`, wire.CodeParse)
	bad(`{"jsonrpc":"2.0","id":1,"ID":2,"method":"a"}`, wire.CodeParse)
	bad(`[]`, wire.CodeInvalidRequest)
	bad(`{"jsonrpc":"2.0","id":1.5,"method":"a"}`, wire.CodeInvalidRequest)
	bad(`{"jsonrpc":"1.0","id":1,"method":"a"}`, wire.CodeInvalidRequest)
	bad(`{"jsonrpc":"2.0","id":1,"method":"a","params":null}`, wire.CodeInvalidRequest)
	bad(`{"jsonrpc":"2.0","id":1,"method":"a","extra":1}`, wire.CodeInvalidRequest)
	h.Line("")
	h.Line("\r")
	h.Line(`{"jsonrpc":"2.0","id":"s","method":"shutdown"}` + "\r")
	if v := h.Read(); string(v.Bytes()) != `{"id":"s","jsonrpc":"2.0","result":null}` {
		t.Errorf("%s", v.Bytes())
	}
	h.Line(`{"jsonrpc":"2.0","method":"exit"}`)
	if err := h.Wait(); err != nil {
		t.Error(err)
	}
}

func TestOneThingAtATime(t *testing.T) {
	h := providertest.Open(t, toy(), map[string]string{"a": "x"})
	params := h.EvaluateParams(h.Changeset(map[string]string{"a": "\t"}), wire.CompareAll, "changeset", "")
	id := h.Send(wire.MethodEvaluate, params)
	asked := h.Read()
	callback, _ := asked.Get("id")
	second := h.Send(wire.MethodEvaluate, params)
	_, e := h.Await(second)
	wantError(t, e, wire.CodeNotReady, wire.FailHealth)
	// A line that cannot be read may have been the answer.
	h.Line(`{"jsonrpc":"2.0","id":`)
	_ = h.Read()
	_, e = h.Await(id)
	wantError(t, e, wire.CodeParse, wire.FailContract)
	h.Answer(callback, canon.ObjectOf(), nil)
	if err := h.Wait(); err == nil {
		t.Error("an answer that nobody waits for went by")
	}
}

func TestHostileHost(t *testing.T) {
	for name, result := range map[string]string{
		"not asked":   `{"entries":[{"path":"b","blobId":"blob:sha256:00","kind":"file"}]}`,
		"twice":       `{"entries":[{"path":"a","blobId":"blob:sha256:00","kind":"file"},{"path":"a","blobId":"blob:sha256:00","kind":"file"}]}`,
		"up":          `{"entries":[{"path":"../a","blobId":"blob:sha256:00","kind":"file"}]}`,
		"no kind":     `{"entries":[{"path":"a","blobId":"blob:sha256:00"}]}`,
		"extra":       `{"entries":[],"more":1}`,
		"no entries":  `{}`,
		"other shape": `[]`,
	} {
		h := providertest.Open(t, toy(), map[string]string{"a": "x"})
		h.Intercept = func(method string, _ canon.Value) (canon.Value, *wire.Error, bool) {
			v, err := canon.Parse([]byte(result), canon.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			return v, nil, method == wire.MethodListTree
		}
		_, e := h.Call(wire.MethodEvaluate, h.EvaluateParams(h.Changeset(map[string]string{"a": "\t"}), wire.CompareAll, "changeset", ""))
		if e == nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		wantError(t, e, wire.CodeInvalidRequest, wire.FailContract)
	}
}

func TestServeEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	r, w := io.Pipe()
	defer w.Close()
	done := make(chan error)
	go func() { done <- toy().Serve(ctx, r, io.Discard) }()
	cause := errors.New("enough")
	cancel(cause)
	if err := <-done; !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
}

// FuzzSession feeds a session with lines: it neither panics nor hangs, and what it
// writes is strict JSON.
func FuzzSession(f *testing.F) {
	f.Add(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"asp/1.0","host":{"name":"h","version":"1"},"workspace":{"root":"/","baseline":{"rev":"r"}}}}
{"jsonrpc":"2.0","method":"initialized","params":{"grantedPermissions":{"read":["**/*"],"resourceLimits":{}},"baseline":{"rev":"r"}}}
{"jsonrpc":"2.0","id":2,"method":"check/evaluate","params":{"changeset":{"baseline":{"rev":"r"},"changes":[{"path":"a","kind":"create","after":"blob:sha256:00"}]},"scope":"changeset","comparison":"all"}}
{"jsonrpc":"2.0","id":"toy:1","result":{"entries":[]}}
{"jsonrpc":"2.0","id":"toy:2","error":{"code":-32012,"message":"no","data":{"failClass":"policy"}}}
{"jsonrpc":"2.0","method":"exit"}
`)
	f.Add("{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{}}\n")
	f.Fuzz(func(t *testing.T, in string) {
		var out bytes.Buffer
		_ = toy().Serve(t.Context(), strings.NewReader(in), &out)
		for line := range strings.Lines(out.String()) {
			if _, err := canon.Parse([]byte(line), canon.Limits{}); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
		}
	})
}
