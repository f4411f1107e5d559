package provider_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aspengine/asp/checks"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/sandbox"
	"github.com/aspengine/asp/sandbox/sandboxtest"
	"github.com/aspengine/asp/seam/manifest"
	"github.com/aspengine/asp/seam/provider"
	"github.com/aspengine/asp/seam/wire"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "fake" {
		os.Exit(fakeMain(os.Args[2:]))
	}
	goleak.VerifyTestMain(m)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// world is a workspace, a state directory and a pool.
type world struct {
	t       testing.TB
	ws, dir string
	reg     *manifest.Registry
	o       provider.Options
	pool    *provider.Pool
	files   content
	clock   time.Time
	network string // accessExpectations.network of what is added; "" is none
}

// caps is what the machine gives; probing takes as long as a launch.
var caps = sync.OnceValue(func() sandbox.Caps { return sandbox.Probe(context.Background(), sandbox.ProbeDirs{}) })

func newWorld(t testing.TB, edit func(*provider.Options)) *world {
	t.Helper()
	if !caps().Namespaces() {
		sandboxtest.Caps(t, "/", t.TempDir()) // skips or fails
	}
	top, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	w := &world{t: t, dir: top, ws: filepath.Join(top, "ws"), clock: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	must(t, os.Mkdir(w.ws, 0o755))
	must(t, os.WriteFile(filepath.Join(w.ws, "a.txt"), []byte("old\n"), 0o644))
	h, err := home.Open(vfs.OS{}, filepath.Join(top, "home"))
	must(t, err)
	t.Cleanup(func() { _ = h.Close() })
	state, err := h.Sub("state")
	must(t, err)
	t.Cleanup(func() { _ = state.Close() })
	w.reg = manifest.OpenRegistry(h)
	w.o = provider.Options{
		Registry: w.reg, Enabled: func(string) (wire.Mode, bool) { return wire.Gated, true }, State: state, Version: "1",
		Now: func() time.Time { return w.clock },
		Sandbox: provider.Launch{Caps: caps(), Hide: []string{w.ws, filepath.Join(top, "home")},
			Protect: []string{w.ws}, Require: sandbox.MediatedWrite},
	}
	if edit != nil {
		edit(&w.o)
	}
	w.files = content{base: map[string]string{"a.txt": "old\n", "b/c.go": "package c\n", "secret/key": "hunter2\n", "twin": "same\n", "secret/twin": "same\n"},
		after: map[string]string{"a.txt": "BAD\n"}}
	w.open()
	return w
}

func (w *world) open() {
	w.pool = provider.New(w.o)
	p := w.pool
	w.t.Cleanup(func() { must(w.t, p.Close(context.Background())) })
}

// add enrols a fake that behaves as args say.
func (w *world) add(id string, args ...string) {
	w.t.Helper()
	exe, err := os.Executable()
	must(w.t, err)
	w.addProgram(id, exe, append([]string{"fake", "id=" + id}, args...), `"read":["workspace:snapshot"],"write":[]`)
}

func (w *world) addProgram(id, bin string, args []string, filesystem string) {
	w.t.Helper()
	proto := `"asp/1.0"`
	if slices.Contains(args, "proto=asp/0.1") {
		proto = `"asp/0.1"`
	}
	list, err := canon.From(args)
	must(w.t, err)
	network := w.network
	if network == "" {
		network = `{"outbound":false,"allowlist":[]}`
	}
	text := fmt.Sprintf(`{"manifestVersion":"asp-server/1.0","server":{"id":%q,"name":"Fake","version":"1.0.0"},"protocolVersions":[%s],"capabilities":["check","edit","inspect"],
		"capabilityProfiles":["core"],"entrypoint":{"transport":"stdio","bin":%q,"args":%s},"artifact":{"fingerprint":"sha256:00"},
		"provenance":{"publisher":"p","source":"s","license":"MIT"},
		"accessExpectations":{"filesystem":{%s},"network":%s,"secrets":{"names":[]},"environment":{"inherit":false,"variables":["FAKE_TOKEN"]},"dataClasses":[]}}`,
		id, proto, bin, list.Bytes(), filesystem, network)
	m, err := manifest.Parse(filepath.Join(w.dir, "asp-server.json"), []byte(text))
	must(w.t, err)
	must(w.t, w.reg.Add(context.Background(), m))
}

// content is what the host would show.
type content struct{ base, after map[string]string }

func blob(s string) wire.BlobRef {
	sum := sha256.Sum256([]byte(s))
	return wire.BlobRef("blob:sha256:" + hex.EncodeToString(sum[:]))
}

func (c content) Tree(context.Context) ([]wire.TreeEntry, error) {
	var out []wire.TreeEntry
	for p, s := range c.base {
		out = append(out, wire.TreeEntry{Path: p, BlobID: blob(s), Kind: "file"})
	}
	return out, nil
}

func (c content) Where(_ context.Context, b wire.BlobRef) (paths []string, err error) {
	for _, m := range []map[string]string{c.base, c.after} {
		for p, s := range m {
			if blob(s) == b {
				paths = append(paths, p)
			}
		}
	}
	return paths, nil
}

func (c content) Bytes(_ context.Context, b wire.BlobRef) ([]byte, error) {
	for _, m := range []map[string]string{c.base, c.after} {
		for _, s := range m {
			if blob(s) == b {
				return []byte(s), nil
			}
		}
	}
	return nil, errors.New("no such blob")
}

var base = wire.Baseline{Rev: "git:tree:0a", Dirty: "sha256:0b", StampedAt: "2026-01-02T03:04:05Z"}

func (w *world) subject() provider.Subject {
	changes := []wire.Change{{Path: "a.txt", Kind: wire.KindModify, Before: blob("old\n"), After: blob(w.files.after["a.txt"])}}
	v, err := canon.From(wire.ChangeSet{Baseline: base, Changes: changes})
	must(w.t, err)
	return provider.Subject{Baseline: base, Changeset: v, ChangesetDigest: canon.DigestText(v), Changes: changes, Content: w.files, CallSite: wire.Gate}
}

func (w *world) check(id string, set provider.Settings, edit func(*provider.Subject)) checks.Result {
	w.t.Helper()
	s := w.subject()
	if edit != nil {
		edit(&s)
	}
	return w.run(context.Background(), id, s, set, 20*time.Second)
}

func (w *world) run(ctx context.Context, id string, s provider.Subject, set provider.Settings, budget time.Duration) checks.Result {
	w.t.Helper()
	c := w.pool.Check(id, s, set, budget)
	if r, ok := c.(checks.Remote); !ok || !r.Remote() {
		w.t.Fatal("not remote")
	}
	res, err := c.Run(ctx, nil)
	must(w.t, err)
	return res
}

func TestHonestCheck(t *testing.T) {
	for _, proto := range []string{"asp/1.0", "asp/0.1"} {
		w := newWorld(t, nil)
		w.add("good", "proto="+proto)
		set := provider.Settings{}
		if proto == "asp/0.1" {
			set = provider.Settings{Comparison: "all", Checks: []string{"types"}}
		}
		for range 2 { // cold, warm
			res := w.check("good", set, nil)
			if res.Status != checks.Failed || len(res.Diagnostics) != 1 || res.Name != "provider/good" {
				t.Fatalf("%s: %s: %s", proto, res.Status, res.Detail)
			}
			d := res.Diagnostics[0]
			if d.Source != "good" || d.Location.Path != "a.txt" || (d.Introduced != nil) != (proto == "asp/1.0") {
				t.Errorf("%s: %+v", proto, d)
			}
			if !slices.Equal(res.Served, []wire.BlobRef{blob("BAD\n")}) || res.Isolation != checks.MediatedWrite || res.Evidence == "" || res.DirectWrite {
				t.Errorf("%s: served %v, %s: %s", proto, res.Served, res.Isolation, res.Evidence)
			}
			p := res.Provider
			if p.ID != "good" || !p.Verified || p.ServerVersion != "1.0.0" || p.ConfigDigest != "sha256:cfg" || p.State != wire.Initialized || p.Mode != wire.Gated {
				t.Errorf("%s: %+v", proto, p)
			}
		}
		w.files.after["a.txt"] = "fine\n"
		if res := w.check("good", set, nil); res.Status != checks.Passed || len(res.Diagnostics) != 0 {
			t.Errorf("%s: %s: %s", proto, res.Status, res.Detail)
		}
		s := w.pool.Standing(t.Context(), "good")
		if !s.Used || s.State != wire.Initialized || s.Protocol != proto || !s.Health[wire.Check].Available || s.Failure != "" {
			t.Errorf("%+v", s)
		}
	}
}

// TestOutcomes has one row for everything that a provider may do instead.
func TestOutcomes(t *testing.T) {
	for _, c := range []struct {
		args   string
		status checks.Status
		state  wire.Lifecycle
		class  wire.FailClass
		detail string
	}{
		// Launch and handshake.
		{"start=exit", checks.Crashed, wire.Crashed, wire.FailHealth, `exit status 3; standard error ends in "cannot \x1b[31mstart"`},
		{"init=refuse", checks.Incompatible, wire.Incompatible, wire.FailContract, "error -32013"},
		{"init=malformed", checks.Malformed, wire.Malformed, wire.FailContract, "serverInfo is missing"},
		{"init=pass", checks.Malformed, wire.Malformed, wire.FailContract, "member pass"},
		{"init=skew", checks.Skewed, wire.Incompatible, wire.FailContract, `"2.0.0"`},
		{"init=noblock", checks.Incompatible, wire.Incompatible, wire.FailContract, "declares no capability"},
		{"init=hang", checks.TimedOut, wire.TimedOut, wire.FailHealth, "time was over"},
		{"init=exit", checks.Crashed, wire.Crashed, wire.FailHealth, "exit status 4"},
		// RP-01: noise and cuts in the stream.
		{"start=noise", checks.Malformed, wire.Malformed, wire.FailContract, "Ready on port 0"},
		{"work=half", checks.Malformed, wire.Malformed, wire.FailContract, "exit status 3"},
		{"work=noeol", checks.Malformed, wire.Malformed, wire.FailContract, "exit status 0"},
		{"work=exit", checks.Crashed, wire.Crashed, wire.FailHealth, "exit status 5"},
		{"work=null", checks.Malformed, wire.Malformed, wire.FailContract, "null"},
		{"work=array", checks.Malformed, wire.Malformed, wire.FailContract, "[]"},
		{"work=object", checks.Malformed, wire.Malformed, wire.FailContract, "{}"},
		{"work=unknown-id", checks.Malformed, wire.Malformed, wire.FailContract, "protocol error"},
		{"work=noise", checks.Malformed, wire.Malformed, wire.FailContract, "progress: 50%"},
		// RP-02: a line without end.
		{"work=endless", checks.Malformed, wire.Malformed, wire.FailContract, "8388608"},
		// Ends, and work that has none.
		{"work=abort", checks.Crashed, wire.Crashed, wire.FailHealth, "SIGKILL"},
		{"work=hang", checks.TimedOut, wire.TimedOut, wire.FailHealth, "time was over"},
		{"work=hang-deaf", checks.TimedOut, wire.TimedOut, wire.FailHealth, "time was over"},
		{"work=fork", checks.TimedOut, wire.TimedOut, wire.FailHealth, "time was over"},
		{"work=flood", checks.Malformed, wire.Malformed, wire.FailContract, "unasked"},
		// Error answers.
		{`work=error data={"failClass":"health"}`, checks.Errored, wire.Active, wire.FailHealth, `-32010, health: "no\a"`},
		{`work=error data={"failClass":"input"}`, checks.Errored, wire.Active, wire.FailInput, "input"},
		{`work=error data={"failClass":"policy","detail":"d"}`, checks.Errored, wire.Active, wire.FailPolicy, `("d")`},
		{`work=error data={"failClass":"mine"}`, checks.Errored, wire.Active, wire.FailContract, "contract"},
		{`work=error`, checks.Errored, wire.Active, wire.FailContract, "contract"},
		// Harmless things.
		{"work=publish", checks.Failed, wire.Active, "", ""},
		{"start=stderr", checks.Failed, wire.Active, "", ""},
	} {
		t.Run(c.args, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(o *provider.Options) { o.MessageBytes = 8 << 20 })
			w.add("fake", strings.Fields(c.args)...)
			budget := 2 * time.Minute
			if c.status == checks.TimedOut {
				budget = 700 * time.Millisecond
			}
			res := w.run(t.Context(), "fake", w.subject(), provider.Settings{}, budget)
			if res.Status != c.status || res.State != c.state || res.FailClass != c.class || !strings.Contains(res.Detail, c.detail) {
				t.Errorf("%s, state %s, class %s: %s", res.Status, res.State, res.FailClass, res.Detail)
			}
			if len(res.Detail) > 2100 || strings.ContainsRune(res.Detail, '\x1b') {
				t.Errorf("detail is not contained: %q", res.Detail)
			}
			if c.status != checks.Failed && len(res.Diagnostics) > 0 {
				t.Error("diagnostics of a failure")
			}
		})
	}
}
