package policy_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"

	"github.com/aspengine/asp/checks/policy"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/internal/need"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/seam/wire"
)

const goodRepository = `{
 "$schema": "x", "aspVersion": "asp/1.0",
 "requirements": [
  {"id": "lint", "capabilities": ["check"], "assurance": ["gated", "isolated"], "authority": {"providers": [
   {"id": "p", "version": "1", "package": "q", "identity": "i", "integrity": "sha256:0", "conformance": "core"}]}},
  {"id": "edit", "capabilities": ["edit", "inspect"], "assurance": ["advisory"], "authority": {"providers": [
   {"id": "p", "version": "1", "identity": "i", "integrity": "sha256:0", "conformance": "core"}]}}],
 "gates": {"interactive": {"requiredRequirements": [], "optionalRequirements": ["lint"]},
  "gate": {"requiredRequirements": ["lint", "command/vet"], "optionalRequirements": []},
  "sweep": {"requiredRequirements": ["nowhere"], "optionalRequirements": []}},
 "policy": {"authorityModel": "explicit-pinned-provider", "policyChangeActivation": "base-policy-two-phase",
  "candidatePolicyAuthority": "trusted-base-or-organization-floor",
  "missingHost": {"interactive": "warn-open", "gate": "fail-closed", "sweep": "fail-closed"}},
 "budgets": {"interactiveMs": 5000, "gateMs": 1},
 "adapters": {"mcp": {"enabled": true, "mode": "full-outer-seam"}, "acp": {"enabled": false}}
}`

const goodConfig = `{
 "floor": ` + goodRepository + `,
 "checks": {"vet": {"argv": ["go", "vet", "./..."], "env": {"GOFLAGS": "-mod=mod"}, "timeoutMs": 60000, "callSites": ["interactive"], "required": true},
  "all": {"argv": ["true"]}},
 "sandbox": {"require": "isolated", "read": ["/usr"], "env": ["PATH"], "limits": {"memoryMb": 512, "fd": 64}},
 "limits": {"messageBytes": 16777216, "planBytes": 1000, "callbacks": 5},
 "providers": {"p": {"checks": ["a"], "rules": [], "diagnosticSources": ["s"], "configuration": {"x": [1]}, "configDigest": "sha256:1", "comparison": "introduced", "scope": "impact"}},
 "publish": "exchange", "merge": true, "guaranteeCeiling": "text_only_transactional",
 "budgets": {"interactiveMs": 3000}, "retention": {"receipts": 10, "blobBytes": 1000}
}`

func config(t *testing.T, s string) policy.Config {
	t.Helper()
	c, err := policy.ParseConfig("config.json", []byte(s))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestConfig(t *testing.T) {
	c := config(t, goodConfig)
	vet := c.Command("vet")
	if vet == nil || c.Command("none") != nil {
		t.Fatal("checks are not found by name")
	}
	digest := vet.Digest
	vet.Digest = ""
	want := policy.Command{Name: "vet", Argv: []string{"go", "vet", "./..."}, Env: map[string]string{"GOFLAGS": "-mod=mod"},
		Timeout: time.Minute, CallSites: []wire.CallSite{wire.Interactive}, Required: true}
	if d := cmp.Diff(want, *vet); d != "" {
		t.Error(d)
	}
	if all := c.Command("all"); len(all.CallSites) != 3 || all.Required || all.Digest == digest {
		t.Errorf("defaults of a check: %+v", all)
	}
	if c.Sandbox.Require != wire.Isolated || c.Sandbox.Limits["memoryMb"] != 512 || c.Limits.Callbacks != 5 ||
		c.Publish != "exchange" || !c.Merge || c.Ceiling != wire.TextOnlyTransactional || c.Budgets[wire.Interactive] != 3*time.Second ||
		c.Retention.Receipts != 10 || c.Providers["p"].Scope != "impact" || c.Floor == nil {
		t.Errorf("%+v", c)
	}
	if empty := config(t, `{}`); empty.Sandbox.Require != wire.Advisory || empty.Floor != nil {
		t.Errorf("empty file: %+v", empty)
	}
	if none := config(t, `{"sandbox":{"require":"none"}}`); none.Sandbox.Require != wire.Advisory {
		t.Errorf("require none: %+v", none)
	}
}

// Every row names the place and, where there is a choice, what is allowed.
func TestConfigErrorsSayWhereAndWhat(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{`[]`, "$: array, must be object"},
		{`{"chekcs":{}}`, "$.chekcs: unknown member; allowed: $schema, floor, checks, sandbox, limits, providers, publish, merge, guaranteeCeiling, budgets, retention"},
		{`{"checks":{"a":{}}}`, "$.checks.a: member argv is missing"},
		{`{"checks":{"a":{"argv":[]}}}`, "$.checks.a.argv: 0 elements, must have at least 1"},
		{`{"checks":{"a":{"argv":[""]}}}`, "$.checks.a.argv[0]: empty"},
		{`{"checks":{"a":{"argv":["x",1]}}}`, "$.checks.a.argv[1]: number, must be string"},
		{`{"checks":{"a":{"argv":["x\u0000"]}}}`, "NUL"},
		{`{"checks":{"a/b":{"argv":["x"]}}}`, "the name of a check"},
		{`{"checks":{"a":{"argv":["x"],"env":{"A=B":"1"}}}}`, `"A=B" is no name of a variable`},
		{`{"checks":{"a":{"argv":["x"],"shell":true}}}`, "$.checks.a.shell: unknown member; allowed: argv, env, timeoutMs, callSites, required"},
		{`{"checks":{"a":{"argv":["x"],"timeoutMs":0}}}`, "$.checks.a.timeoutMs: 0, must be between 1"},
		{`{"checks":{"a":{"argv":["x"],"timeoutMs":1e3}}}`, "$.checks.a.timeoutMs: must be an integer"},
		{`{"checks":{"a":{"argv":["x"],"timeoutMs":99999999999999}}}`, "100 days"},
		{`{"checks":{"a":{"argv":["x"],"callSites":["ci"]}}}`, `$.checks.a.callSites[0]: "ci"; allowed: interactive, gate, sweep`},
		{`{"checks":{"a":{"argv":["x"],"callSites":["gate","gate"]}}}`, "$.checks.a.callSites[1]: listed twice"},
		{`{"checks":{"a":{"argv":["x"],"required":"yes"}}}`, "$.checks.a.required: string, must be boolean"},
		{`{"sandbox":{"require":"gated"}}`, `$.sandbox.require: "gated"; allowed: none, mediated-write, isolated`},
		{`{"sandbox":{"read":["usr"]}}`, `$.sandbox.read[0]: "usr", must be an absolute path`},
		{`{"sandbox":{"network":["example.org"]}}`, `$.sandbox.network[0]: "example.org", must be host:port`},
		{`{"sandbox":{"network":["ftp://example.org:21"]}}`, "must be https, http or tcp"},
		{`{"sandbox":{"network":["169.254.169.254:80"]}}`, "never let through"},
		{`{"sandbox":{"network":true}}`, "$.sandbox.network: boolean, must be array"},
		{`{"sandbox":{"limits":{"memory":1}}}`, "allowed: cpuPct, memoryMb, wallclockMs, fd, processes, fileMb"},
		{`{"limits":{"messageBytes":1024}}`, "$.limits.messageBytes: 1024, must be at least 8388608"},
		{`{"limits":{"callbacks":-1}}`, "$.limits.callbacks: -1, must be between 1"},
		{`{"publish":"copy"}`, "allowed: journal, exchange, staged"},
		{`{"guaranteeCeiling":"all"}`, "allowed: none, rollback_attempted"},
		{`{"providers":{"p":{"scope":"all"}}}`, "$.providers.p.scope"},
		{`{"providers":{"p":{"network":["example.org"]}}}`, `$.providers.p.network[0]: "example.org", must be host:port`},
		{`{"providers":{"p":{"network":["10.0.0.1:443"]}}}`, "never let through"},
		{`{"providers":{"p":{"command":"x"}}}`, "$.providers.p.command: unknown member"},
		{`{"floor":{"aspVersion":"asp/1.0"}}`, "$.floor: member requirements is missing"},
		{`{"retention":{"receipts":"1"}}`, "$.retention.receipts: must be an integer"},
		{`{"publish":"journal","publish":"journal"}`, "read JSON"},
		{`{"publish":"journal"} x`, "read JSON"},
		{strings.Repeat("[", 100) + strings.Repeat("]", 100), "read JSON"},
	} {
		_, err := policy.ParseConfig("/home/x/config.json", []byte(c.in))
		var e *policy.Error
		if !errors.As(err, &e) {
			t.Errorf("%s: %v, want *policy.Error", c.in, err)
			continue
		}
		if all := strings.Join(e.Problems, "\n"); !strings.Contains(all, c.want) {
			t.Errorf("%.80s\ngot:  %s\nwant: %s", c.in, all, c.want)
		}
		if !strings.HasPrefix(err.Error(), "/home/x/config.json: ") {
			t.Errorf("error does not name the file: %v", err)
		}
	}
	var many bytes.Buffer
	for i := range 1000 {
		fmt.Fprintf(&many, `,"%s%d":1`, strings.Repeat("y", 500), i)
	}
	_, err := policy.ParseConfig("c", []byte("{"+many.String()[1:]+"}"))
	var e *policy.Error
	if !errors.As(err, &e) || len(strings.Join(e.Problems, "")) > 20*1000 {
		t.Error("a hopeless file makes a hopeless message")
	}
}

func TestEnrolment(t *testing.T) {
	e, err := policy.ParseEnrolment("repos.json", []byte(`{"repos":{"/a":{"mode":"gated","servers":{"p":{"mode":"advisory"},"q":{"mode":"gated"}}},"/b <c>":{"mode":"advisory"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	b, err := e.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	again, err := policy.ParseEnrolment("repos.json", b)
	if d := cmp.Diff(e, again); d != "" || err != nil {
		t.Error(d, err)
	}
	for in, want := range map[string]string{
		`{}`:                                     "member repos is missing",
		`{"repos":{"a":{"mode":"gated"}}}`:       "absolute",
		`{"repos":{"/a/../b":{"mode":"gated"}}}`: "clean",
		`{"repos":{"/a":{}}}`:                    "member mode is missing",
		`{"repos":{"/a":{"mode":"isolated"}}}`:   "allowed: advisory, gated",
		`{"repos":{"/a":{"mode":"gated","servers":{"p":{}}}}}`:                     "$.repos[\"/a\"].servers.p: member mode is missing",
		`{"repos":{"/a":{"mode":"gated","servers":{"":{"mode":"gated"}}}}}`:        "empty provider id",
		`{"repos":{"/a":{"mode":"gated","servers":{"p":{"mode":"gated","x":1}}}}}`: "unknown member",
	} {
		if _, err := policy.ParseEnrolment("repos.json", []byte(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", in, err, want)
		}
	}
}

func TestEnrolmentMethods(t *testing.T) {
	e := policy.Enrolment{}
	fails := func(err error, want string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	is := func(id string, want wire.Mode) {
		t.Helper()
		if got, ok := e.Enabled("/r", id); got != want || ok != (want != "") {
			t.Errorf("%s: %q %v, want %q", id, got, ok, want)
		}
	}
	fails(e.Enable("/r", "p", wire.Gated), "asp repo add")
	fails(e.Add("r", ""), "absolute")
	fails(e.Add("/r", wire.Isolated), "neither")
	for _, m := range []wire.Mode{"", wire.Advisory, wire.Gated} {
		if err := e.Add("/r", m); err != nil {
			t.Fatal(err)
		}
	}
	fails(e.Enable("/r", "", wire.Gated), "empty")
	fails(e.Enable("/r", "p", wire.MediatedWrite), "neither")
	for id, m := range map[string]wire.Mode{"p": wire.Gated, "q": wire.Advisory} {
		if err := e.Enable("/r", id, m); err != nil {
			t.Fatal(err)
		}
		is(id, m)
	}
	// The repository's mode is the most that counts.
	if err := e.Add("/r", wire.Advisory); err != nil {
		t.Fatal(err)
	}
	is("p", wire.Advisory)
	fails(e.Enable("/r", "s", wire.Gated), "asp repo add --mode gated")
	if !e.Disable("/r", "p") || e.Disable("/r", "p") || e.Disable("/none", "p") {
		t.Error("disable")
	}
	is("p", "")
	if !e.Remove("/r") || e.Remove("/r") {
		t.Error("remove")
	}
	is("q", "")
}

func TestLoad(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "asp")
	h, err := home.Open(vfs.OS{}, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	c, e, err := policy.Load(h)
	if err != nil || len(c.Checks) != 0 || len(e) != 0 {
		t.Fatalf("without files: %+v, %v, %v", c, e, err)
	}
	for n, s := range map[string]string{home.ConfigFile: goodConfig, home.ReposFile: `{"repos":{"/a":{"mode":"gated"}}}`} {
		if err := os.WriteFile(filepath.Join(dir, n), []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if c, e, err = policy.Load(h); err != nil || len(c.Checks) != 2 || e["/a"].Mode != wire.Gated {
		t.Fatalf("with files: %+v, %v, %v", c, e, err)
	}
	if err := os.Chmod(filepath.Join(dir, home.ConfigFile), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, _, err = policy.Load(h); !errors.Is(err, home.ErrUntrusted) {
		t.Errorf("a file that others may write: %v", err)
	}
}

// publicSchema compiles one of the public schemas: those of ASP_SCHEMA_DIR, or
// of shared/asp/schemas beside one of our parents.
func publicSchema(t *testing.T, name string) *jsonschema.Schema {
	t.Helper()
	dir := os.Getenv("ASP_SCHEMA_DIR")
	if dir == "" {
		wd, err := os.Getwd()
		if err != nil {
			t.Fatal(err)
		}
		for ; wd != filepath.Dir(wd) && dir == ""; wd = filepath.Dir(wd) {
			s := filepath.Join(wd, "shared", "asp", "schemas")
			if _, err := os.Stat(s); err == nil {
				dir = s
			}
		}
	}
	if dir == "" {
		t.Skip("the public schemas are not here; set ASP_SCHEMA_DIR")
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.schema.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no schemas in %s: %v", dir, err)
	}
	const base = "https://covibes.dev/asp/schemas/"
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.AddResource(base+filepath.Base(f), doc); err != nil {
			t.Fatal(err)
		}
	}
	s, err := c.Compile(base + name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func conforms(t *testing.T, s *jsonschema.Schema, b []byte) error {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(doc)
}

// Our reader and the public schema agree on mutations of a good policy, save
// for what we refuse on top: empty pins, ids defined twice, over-long budgets.
func TestRepositoryAgreesWithTheSchema(t *testing.T) {
	schema := publicSchema(t, "asp-config.schema.json")
	good, err := canon.Parse([]byte(goodRepository), canon.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if err := conforms(t, schema, good.Bytes()); err != nil {
		t.Fatal(err)
	}
	if _, err := policy.ParseRepository("asp.json", []byte(goodRepository)); err != nil {
		t.Fatal(err)
	}
	refused := 0
	rapid.Check(t, func(rt *rapid.T) {
		v := mutate(rt, good)
		want := conforms(t, schema, v.Bytes())
		_, got := policy.ParseRepository("asp.json", v.Bytes())
		if (want == nil) == (got == nil) {
			if got != nil {
				refused++
			}
			return
		}
		if got != nil && (strings.Contains(got.Error(), "defined twice") || strings.Contains(got.Error(), "must be between")) {
			return
		}
		rt.Fatalf("%s\nschema: %v\nreader: %v", v.Bytes(), want, got)
	})
	if refused == 0 {
		t.Error("no mutation was refused: the test tests nothing")
	}
}

// mutate changes one value, key or element somewhere in v.
func mutate(rt *rapid.T, v canon.Value) canon.Value {
	replacements := []canon.Value{
		canon.NullOf(), canon.BoolOf(true), canon.IntOf(0), canon.IntOf(-1), canon.IntOf(7), canon.StringOf(""), canon.StringOf("gated"),
		canon.StringOf("asp/2.1"), canon.StringOf("warn-open"), canon.StringOf("fail-closed"), canon.StringOf("edit"),
		canon.ArrayOf(), canon.ArrayOf(canon.StringOf("x"), canon.StringOf("x")), canon.ObjectOf(),
	}
	if v.Len() == 0 || rapid.IntRange(0, 9).Draw(rt, "here") == 0 {
		return rapid.SampledFrom(replacements).Draw(rt, "value")
	}
	i := rapid.IntRange(0, v.Len()-1).Draw(rt, "at")
	act := rapid.SampledFrom([]string{"down", "down", "down", "drop", "add", "twice"}).Draw(rt, "act")
	if v.Kind() == canon.Array {
		var es []canon.Value
		for j, e := range v.Elements() {
			switch {
			case j != i || act == "add":
				es = append(es, e)
			case act == "drop":
			case act == "twice":
				es = append(es, e, e)
			default:
				es = append(es, mutate(rt, e))
			}
		}
		if act == "add" {
			es = append(es, rapid.SampledFrom(replacements).Draw(rt, "element"))
		}
		return canon.ArrayOf(es...)
	}
	var ms []canon.Member
	j := 0
	for k, m := range v.Members() {
		switch {
		case j != i || act == "add" || act == "twice":
			ms = append(ms, canon.Member{Key: k, Value: m})
		case act == "drop":
		default:
			ms = append(ms, canon.Member{Key: k, Value: mutate(rt, m)})
		}
		j++
	}
	if act == "add" || act == "twice" {
		key := rapid.SampledFrom([]string{"command", "budgets", "mode", "id", "x"}).Draw(rt, "key")
		if _, ok := v.Get(key); !ok {
			ms = append(ms, canon.Member{Key: key, Value: rapid.SampledFrom(replacements).Draw(rt, "member")})
		}
	}
	return canon.ObjectOf(ms...)
}

func FuzzConfig(f *testing.F) {
	f.Add([]byte(goodConfig))
	f.Add([]byte(`{"checks":{"a":{"argv":["x"]}}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		need.Bounded(t, len(b), func() {
			c, err := policy.ParseConfig("config.json", b)
			if err != nil {
				return
			}
			again, err := policy.ParseConfig("config.json", c.Value.Bytes())
			if err != nil {
				t.Fatalf("the canonical form is refused: %v", err)
			}
			if a, b := policy.Active(c, nil, false).Digest, policy.Active(again, nil, false).Digest; a != b {
				t.Errorf("digests %s and %s", a, b)
			}
		})
	})
}
