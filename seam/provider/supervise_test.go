package provider_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aspengine/asp/checks"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/internal/need"
	"github.com/aspengine/asp/sandbox"
	"github.com/aspengine/asp/sandbox/sandboxtest"
	"github.com/aspengine/asp/seam/manifest"
	"github.com/aspengine/asp/seam/provider"
	"github.com/aspengine/asp/seam/wire"
)

// said is what the last launch of a provider printed, after the pool is closed.
func (w *world) said(id string) string {
	w.t.Helper()
	must(w.t, w.pool.Close(context.Background()))
	return w.pool.Standing(context.Background(), id).Stderr
}

// TestGrant asks for things by callbacks. The answer about what is refused is
// the same whether or not it exists.
func TestGrant(t *testing.T) {
	none := "blob:sha256:" + strings.Repeat("0", 64)
	read := func(b wire.BlobRef) string { return `workspace/readBlob {"blobs":["` + string(b) + `"]}` }
	refused := `{"code":-32012,"data":{"failClass":"policy"},"message":"not in the granted scope"}`
	for _, c := range []struct{ name, filesystem, ask, want string }{
		{"unknown blob", "", read(wire.BlobRef(none)), refused},
		{"secret blob", "", read(blob("hunter2\n")), refused},
		{"secret among others", "", `workspace/readBlob {"blobs":["` + string(blob("old\n")) + `","` + string(blob("hunter2\n")) + `"]}`, refused},
		{"other algorithm", "", `workspace/readBlob {"blobs":["blob:md5:00"]}`, refused},
		{"no blob id", "", `workspace/readBlob {"blobs":["a.txt"]}`, "-32602"},
		{"twin of a secret", "", read(blob("same\n")), `"bytes":"same\n"`},
		{"outside the manifest", `"read":["b/**"],"write":[]`, read(blob("old\n")), refused},
		{"inside the manifest", `"read":["b/**","a.txt"],"write":[]`, read(blob("package c\n")), `"bytes":"package c\n"`},
		{"whole tree", "", `workspace/listTree {}`, `["a.txt","b/c.go","twin"]`},
		{"tree of the manifest", `"read":["b/**","a.txt"],"write":[]`, `workspace/listTree {}`, `["a.txt","b/c.go"]`},
		{"globs", "", `workspace/listTree {"globs":["**/*.go","secret/**"]}`, `["b/c.go"]`},
		{"paths", "", `workspace/listTree {"paths":["twin","secret/key","none","twin"]}`, `["twin"]`},
		{"both", "", `workspace/listTree {"paths":["twin","a.txt"],"globs":["t*"]}`, `["twin"]`},
		{"no paths", "", `workspace/listTree {"paths":[]}`, `[]`},
		{"this baseline", "", `workspace/listTree {"globs":["t*"],"baseline":{"rev":"git:tree:0a","dirty":"sha256:0b"}}`, `["twin"]`},
		{"other baseline", "", `workspace/listTree {"baseline":{"rev":"git:tree:0a"}}`, "-32011"},
		{"bad glob", "", `workspace/listTree {"globs":["[a"]}`, "-32602"},
		{"unknown member", "", `workspace/listTree {"glob":["a"]}`, "-32602"},
		{"put by a check", "", `workspace/putBlob {"blobs":[{"encoding":"utf-8","bytes":"x"}]}`, refused},
		{"no callback", "", `workspace/applyEdit {}`, "-32601"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			if c.filesystem == "" {
				c.filesystem = `"read":["workspace:snapshot"],"write":[]`
			}
			exe, err := os.Executable()
			must(t, err)
			w.addProgram("fake", exe, []string{"fake", "id=fake", "tell=1", "ask=" + c.ask}, c.filesystem)
			res := w.check("fake", provider.Settings{}, nil)
			said := w.said("fake")
			if strings.HasPrefix(c.want, "[") {
				if got := paths(t, said); got != c.want {
					t.Errorf("%s: %s", got, said)
				}
			} else if !strings.Contains(said, c.want) {
				t.Errorf("%s: %s\n%s", res.Status, res.Detail, said)
			}
			if c.want == refused && (strings.Contains(said, "hunter2") || slices.Contains(res.Served, blob("hunter2\n"))) {
				t.Error("it was served")
			}
			if around := res.Provider.FastPath; (around != "") != (c.name == "no callback") {
				t.Errorf("fast path %q", around)
			}
		})
	}
}

// paths are those of the tree that a fake told of.
func paths(t *testing.T, said string) string {
	_, rest, _ := strings.Cut(said, " -> ")
	line, _, _ := strings.Cut(rest, "\n")
	v, err := canon.Parse([]byte(strings.TrimSuffix(line, " null")), canon.Limits{})
	if err != nil {
		return said
	}
	list, _ := v.Get("entries")
	var out []string
	for _, e := range list.Elements() {
		p, _ := e.Get("path")
		out = append(out, fmt.Sprintf("%q", p.Str()))
	}
	return "[" + strings.Join(out, ",") + "]"
}

func TestCallbacksAreCounted(t *testing.T) {
	w := newWorld(t, func(o *provider.Options) { o.Callbacks = 20 })
	w.add("fake", "ask=workspace/listTree {} x19") // and one blob
	w.add("greedy", "ask=workspace/listTree {} x20")
	if res := w.check("fake", provider.Settings{}, nil); res.Status != checks.Failed {
		t.Errorf("%s: %s", res.Status, res.Detail)
	}
	res := w.check("greedy", provider.Settings{}, nil)
	if res.Status != checks.Errored || res.FailClass != wire.FailPolicy || !strings.Contains(res.Detail, "20 callbacks") {
		t.Errorf("%s, %s: %s", res.Status, res.FailClass, res.Detail)
	}
}

// SB-04 and the launch: no environment but the allowlist, no descriptor but
// three, no workspace, no state, a private writable directory.
func TestWhatAProviderSees(t *testing.T) {
	t.Setenv("FAKE_CANARY", "canary-1")
	w := newWorld(t, func(o *provider.Options) {
		o.Sandbox.Lookup = func(name string) (string, bool) { return "token of " + name, true }
	})
	home := filepath.Join(w.dir, "home")
	w.add("fake", "start=look", "dirs="+strings.Join([]string{w.ws, home, filepath.Dir(w.dir), "/tmp"}, ","))
	if res := w.check("fake", provider.Settings{}, nil); res.Status != checks.Failed {
		t.Fatalf("%s: %s", res.Status, res.Detail)
	}
	said := w.said("fake")
	for _, want := range []string{`"FAKE_TOKEN=token of FAKE_TOKEN"`, `"HOME=/tmp"`, "wd /tmp writable true", "fd 0\nfd 1\nfd 2\ndir", " names, false, written true\n"} {
		if !strings.Contains(said, want) {
			t.Errorf("no %q in\n%s", want, said)
		}
	}
	if n := strings.Count(said, "written true"); n != 1 {
		t.Errorf("written at %d places", n)
	}
	for _, bad := range []string{"canary", "dir " + w.ws + ": 1 names", "dir " + home + ": 1"} {
		if strings.Contains(said, bad) {
			t.Errorf("%q in\n%s", bad, said)
		}
	}
	if n := strings.Count(said, "FAKE") + strings.Count(said, "GOGC"); n != 2 {
		t.Errorf("more of the environment came through: %s", said)
	}
	if _, err := os.Stat(filepath.Join(w.ws, "written")); err == nil {
		t.Error("the workspace was written")
	}
}

// Without namespaces a provider runs only where nothing more is required, is
// said to be able to write, and its directory is removed.
func TestWithoutNamespaces(t *testing.T) {
	w := newWorld(t, func(o *provider.Options) {
		o.Sandbox.Caps, o.Sandbox.Scratch = sandbox.Caps{}, t.TempDir()
		o.Sandbox.Require = sandbox.Advisory
	})
	w.add("fake")
	res := w.check("fake", provider.Settings{}, nil)
	if res.Status != checks.Failed || res.Isolation != checks.Advisory || !res.DirectWrite || !res.Provider.DirectWrite {
		t.Errorf("%s: %s, %s, direct write %v", res.Status, res.Detail, res.Isolation, res.DirectWrite)
	}
	must(t, w.pool.Close(t.Context()))
	if left, err := os.ReadDir(w.o.Sandbox.Scratch); err != nil || len(left) > 0 {
		t.Errorf("left in scratch: %v, %v", left, err)
	}
	w.o.Sandbox.Require = sandbox.Gated // what is required where nothing is said
	w.open()
	res = w.check("fake", provider.Settings{}, nil)
	if res.Status != checks.Unavailable || !res.Unsupported || !strings.Contains(res.Detail, "`asp doctor`") || !strings.Contains(res.Detail, `{"require": "none"}`) {
		t.Errorf("%s: %s", res.Status, res.Detail)
	}
	must(t, w.pool.Close(t.Context()))
	w.o.Sandbox.Require = sandbox.MediatedWrite
	w.open()
	res = w.check("fake", provider.Settings{}, nil)
	if res.Status != checks.Unavailable || !res.Unsupported {
		t.Errorf("%s: %s", res.Status, res.Detail)
	}
	for range 5 {
		if res := w.check("fake", provider.Settings{}, nil); res.Status != checks.Unavailable {
			t.Errorf("the machine's fault was counted: %s", res.Detail)
		}
	}
	must(t, w.pool.Close(t.Context()))
	// Where there are rules at least, it gets what is required.
	w.o.Sandbox.Caps = sandbox.Caps{Landlock: sandbox.Cap{Answer: sandbox.Yes}, Seccomp: sandbox.Cap{Answer: sandbox.Yes}}
	w.open()
	res = w.check("fake", provider.Settings{}, nil)
	if res.Status != checks.Failed || res.Isolation != checks.MediatedWrite || res.DirectWrite || res.Provider.DirectWrite {
		t.Errorf("%s: %s, %s, direct write %v", res.Status, res.Detail, res.Isolation, res.DirectWrite)
	}
	must(t, w.pool.Close(t.Context()))
	if left, err := os.ReadDir(w.o.Sandbox.Scratch); err != nil || len(left) > 0 {
		t.Errorf("left in scratch: %v, %v", left, err)
	}
}

func TestNotLaunched(t *testing.T) {
	w := newWorld(t, func(o *provider.Options) {
		o.Enabled = func(id string) (wire.Mode, bool) { return wire.Advisory, id != "off" }
	})
	w.add("off")
	if res := w.check("off", provider.Settings{}, nil); res.Status != checks.Missing || !strings.Contains(res.Detail, "asp repo enable off") {
		t.Errorf("%s: %s", res.Status, res.Detail)
	}
	if res := w.check("nobody", provider.Settings{}, nil); res.Status != checks.Missing || !strings.Contains(res.Detail, "no such provider") {
		t.Errorf("%s: %s", res.Status, res.Detail)
	}
	// A program that was changed since it was added.
	b, err := os.ReadFile("/bin/true")
	must(t, err)
	prog := filepath.Join(w.dir, "prog")
	must(t, os.WriteFile(prog, b, 0o755))
	text := fmt.Sprintf(`{"manifestVersion":"asp-server/1.0","server":{"id":"changed","name":"n","version":"1"},"protocolVersions":["asp/1.0"],"capabilities":["check"],
		"entrypoint":{"transport":"stdio","bin":%q,"args":[]},"artifact":{"fingerprint":"f","checksums":[{"path":%q,"sha256":"%x"}]},"provenance":{"publisher":"p","source":"s","license":"l"},
		"accessExpectations":{"filesystem":{"read":[],"write":[]},"network":{"outbound":false,"allowlist":[]},"secrets":{"names":[]},"environment":{"inherit":false,"variables":[]},"dataClasses":[]}}`,
		prog, prog, sha256.Sum256(b))
	m, err := manifest.Parse(filepath.Join(w.dir, "m.json"), []byte(text))
	must(t, err)
	must(t, w.reg.Add(t.Context(), m))
	witness := filepath.Join(w.dir, "witness")
	must(t, os.WriteFile(prog, []byte("#!/bin/sh\ntouch "+witness+"\n"), 0o755))
	res := w.check("changed", provider.Settings{}, nil)
	if res.Status != checks.Unavailable || res.FailClass != wire.FailPolicy || res.Reason != wire.DegradeMissingAuthority || !strings.Contains(res.Detail, "not what the manifest describes") || res.Provider.Verified {
		t.Errorf("%s, %s: %s", res.Status, res.FailClass, res.Detail)
	}
	if _, err := os.Stat(witness); err == nil {
		t.Error("it ran")
	}
	// A version that is not ours.
	text = strings.Replace(strings.Replace(text, `"changed"`, `"future"`, 1), "asp/1.0\"]", "asp/2.0\"]", 1)
	text = strings.Replace(text, fmt.Sprintf("%x", sha256.Sum256(b)), fmt.Sprintf("%x", sha256.Sum256([]byte("#!/bin/sh\ntouch "+witness+"\n"))), 1)
	m, err = manifest.Parse(filepath.Join(w.dir, "m.json"), []byte(text))
	must(t, err)
	must(t, w.reg.Add(t.Context(), m))
	res = w.check("future", provider.Settings{}, nil)
	if res.Status != checks.Incompatible || res.State != wire.Incompatible || !strings.Contains(res.Detail, "asp/2.0") {
		t.Errorf("%s: %s", res.Status, res.Detail)
	}
}

func TestQuarantine(t *testing.T) {
	w := newWorld(t, nil)
	w.add("bad", "work=exit")
	w.add("once", "work=first:exit")
	for i := range 3 {
		if res := w.check("bad", provider.Settings{}, nil); res.Status != checks.Crashed {
			t.Fatalf("%d: %s: %s", i, res.Status, res.Detail)
		}
	}
	expect := func(wait time.Duration) {
		t.Helper()
		res := w.check("bad", provider.Settings{}, nil)
		if res.Status != checks.Quarantined || res.State != wire.Quarantined || !strings.Contains(res.Detail, "asp server reset bad") {
			t.Fatalf("%s: %s", res.Status, res.Detail)
		}
		s := w.pool.Standing(t.Context(), "bad")
		if s.Quarantine == nil || !s.Quarantine.Until.Equal(w.clock.Add(wait)) || s.State != wire.Quarantined || s.Health[wire.Check].Available || len(s.Health[wire.Check].Degraded) != 1 {
			t.Fatalf("%+v %+v", s, s.Quarantine)
		}
	}
	again := func(status checks.Status) {
		t.Helper()
		if res := w.check("bad", provider.Settings{}, nil); res.Status != status {
			t.Fatalf("%s: %s", res.Status, res.Detail)
		}
	}
	expect(5 * time.Minute)
	must(t, w.pool.Close(t.Context()))
	w.open() // it outlives the host
	expect(5 * time.Minute)
	for _, next := range []time.Duration{10 * time.Minute, 20 * time.Minute, 40 * time.Minute, time.Hour, time.Hour} {
		w.clock = w.clock.Add(2 * time.Hour)
		again(checks.Crashed)
		expect(next)
	}
	must(t, w.pool.Reset("bad"))
	again(checks.Crashed)
	again(checks.Crashed)
	again(checks.Crashed)
	expect(5 * time.Minute)
	// A success forgets: first:exit works from the second request of a launch on, so
	// a warmed one alternates.
	for range 3 {
		if res := w.check("once", provider.Settings{}, nil); res.Status != checks.Crashed {
			t.Fatalf("%s: %s", res.Status, res.Detail)
		}
		must(t, w.pool.Reset("once"))
	}
	if s := w.pool.Standing(t.Context(), "once"); s.Quarantine != nil || s.Failure == "" {
		t.Errorf("%+v", s)
	}
}

// What the caller cancels is no failure, and a provider that lets go of it in
// time is not started again; one that does not is.
func TestCancel(t *testing.T) {
	for _, c := range []struct {
		how  string
		want checks.Status // of the request after
	}{{"first:hang", checks.Failed}, {"first:hang-deaf", checks.Cancelled}} {
		w := newWorld(t, nil)
		w.add("fake", "work="+c.how)
		w.pool.Warm(t.Context(), "fake")
		ask := func(hangs bool) checks.Result {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if hangs { // however long: it does not answer first
				go func() {
					for ctx.Err() == nil && w.pool.Standing(ctx, "fake").State != wire.Active {
						runtime.Gosched()
					}
					time.AfterFunc(100*time.Millisecond, cancel)
				}()
			}
			return w.run(ctx, "fake", w.subject(), provider.Settings{}, 20*time.Second)
		}
		if res := ask(true); res.Status != checks.Cancelled || res.State != wire.Cancelled {
			t.Errorf("%s: %s: %s", c.how, res.Status, res.Detail)
		}
		if res := ask(c.want == checks.Cancelled); res.Status != c.want {
			t.Errorf("%s: %s: %s", c.how, res.Status, res.Detail)
		}
		if s := w.pool.Standing(t.Context(), "fake"); s.Quarantine != nil {
			t.Errorf("%s: counted", c.how)
		}
	}
}

// A provider that ends after each answer is started again, whether or not its end
// was seen before the next request; one that ends at each request is a crash.
func TestEndsAfterItsAnswer(t *testing.T) {
	w := newWorld(t, nil)
	w.add("fake", "work=exit-after")
	w.add("bad", "work=exit")
	for range 10 {
		if res := w.check("fake", provider.Settings{}, nil); res.Status != checks.Failed {
			t.Errorf("%s: %s", res.Status, res.Detail)
		}
	}
	w.pool.Warm(t.Context(), "bad")
	if res := w.check("bad", provider.Settings{}, nil); res.Status != checks.Crashed {
		t.Errorf("%s: %s", res.Status, res.Detail)
	}
}

// RP-01 (5): what a provider sends after its answer, be it a second one, never takes
// the place of the first, and is a failure of the provider: three in a row are a
// quarantine, as for any other, though each request got its answer.
func TestRP01_SecondAnswer(t *testing.T) {
	for how, says := range map[string]string{"twice": "waits for none", "stray": `it called "workspace/listTree" after its answer`, "noise-after": `"done"`} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			w.add("fake", "work="+how)
			if how == "noise-after" { // also of one that runs for no longer than its request
				for range 3 {
					if res := w.check("fake", provider.Settings{}, nil); res.Status != checks.Failed || len(res.Diagnostics) != 1 {
						t.Errorf("%s: %s", res.Status, res.Detail)
					}
					must(t, w.pool.Close(t.Context()))
					w.open()
				}
			} else {
				for n := range 3 {
					if res := w.check("fake", provider.Settings{}, nil); res.Status != checks.Failed || len(res.Diagnostics) != 1 || res.Provider.State != wire.Initialized {
						t.Errorf("%d: %s: %s, state %s", n, res.Status, res.Detail, res.Provider.State)
					}
					sandboxtest.Eventually(t, "its failure", func() bool { return strings.Contains(w.pool.Standing(t.Context(), "fake").Failure, says) })
				}
			}
			if s := w.pool.Standing(t.Context(), "fake"); s.Quarantine == nil || !strings.Contains(s.Quarantine.Reason, says) || s.Quarantine.Failures != 3 {
				t.Errorf("%+v", s)
			}
			if res := w.check("fake", provider.Settings{}, nil); res.Status != checks.Quarantined {
				t.Errorf("%s: %s", res.Status, res.Detail)
			}
		})
	}
}

// What providers do that have done nothing wrong: call back when they were told
// something or given the grant, though no content is to be had then, let a callback cross
// with the end of their request, say that they could not read a notification.
func TestNoOffence(t *testing.T) {
	w := newWorld(t, nil)
	w.add("eager", "initialized=callback", "told=callback")
	w.add("deaf", "work=complain")
	w.add("early", "init=callback")
	heard := func(n int) {
		t.Helper()
		sandboxtest.Eventually(t, "its callback", func() bool { return w.pool.Standing(t.Context(), "eager").Ambient.Files == n })
	}
	w.pool.Warm(t.Context(), "eager")
	heard(1)
	for n := range 3 {
		for _, id := range []string{"eager", "deaf", "early"} {
			if res := w.check(id, provider.Settings{}, nil); res.Status != checks.Failed {
				t.Errorf("%s: %s: %s", id, res.Status, res.Detail)
			}
		}
		w.pool.BaselineChanged(wire.Baseline{Rev: fmt.Sprintf("git:tree:%d", n)})
		heard(2*n + 3) // told by the check and by this
	}
	must(t, w.pool.Close(t.Context()))
	for _, id := range []string{"eager", "deaf", "early"} {
		if s := w.pool.Standing(t.Context(), id); s.Failure != "" || s.Quarantine != nil {
			t.Errorf("%+v", s)
		}
	}
}

func TestShutdown(t *testing.T) {
	for _, how := range []string{"shutdown=exit", "shutdown=hang", "shutdown=unknown", "eof=ignore", "work=fork", "proto=asp/0.1", "work=hang-deaf"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			word := "word-" + strings.NewReplacer("=", "-", "/", "-").Replace(how) + filepath.Base(w.dir)
			w.add("fake", how, "word="+word)
			budget := 20 * time.Second
			if strings.HasPrefix(how, "work=") {
				budget = 300 * time.Millisecond
				w.pool.Warm(t.Context(), "fake") // the budget is for the work alone
			}
			_ = w.run(t.Context(), "fake", w.subject(), provider.Settings{Comparison: "all"}, budget)
			if !strings.Contains(how, "deaf") && len(sandboxtest.Processes(t, word)) == 0 {
				t.Error("it does not run")
			}
			must(t, w.pool.Close(t.Context()))
			if left := sandboxtest.Processes(t, word); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
			if s := w.pool.Standing(t.Context(), "fake"); s.State != wire.Exited && s.State != wire.TimedOut {
				t.Errorf("state %s", s.State)
			}
			if res := w.check("fake", provider.Settings{}, nil); res.Status != checks.Unavailable {
				t.Errorf("after the end: %s", res.Status)
			}
		})
	}
}

// TestTooLittleTimeToStart: a caller whose time is over while the host still starts a provider
// puts it in quarantine for nobody.
func TestTooLittleTimeToStart(t *testing.T) {
	w := newWorld(t, nil)
	w.add("fake")
	for range 5 {
		if res := w.run(t.Context(), "fake", w.subject(), provider.Settings{Comparison: "all"}, 3*time.Millisecond); res.Status == checks.Passed || res.Status == checks.Failed {
			t.Fatalf("%s: %s", res.Status, res.Detail)
		}
	}
	if s := w.pool.Standing(t.Context(), "fake"); s.Quarantine != nil {
		t.Errorf("in quarantine: %+v", s.Quarantine)
	}
	if res := w.check("fake", provider.Settings{}, nil); res.Status != checks.Failed {
		t.Errorf("%s: %s", res.Status, res.Detail)
	}
}

// Close does not wait for a request.
func TestCloseUnderARequest(t *testing.T) {
	w := newWorld(t, nil)
	w.add("fake", "work=hang-deaf")
	done := make(chan checks.Result)
	go func() { done <- w.run(t.Context(), "fake", w.subject(), provider.Settings{}, 4*time.Minute) }()
	sandboxtest.Eventually(t, "a request", func() bool { return w.pool.Standing(t.Context(), "fake").State == wire.Active })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	must(t, w.pool.Close(ctx))
	if res := <-done; res.Status != checks.Cancelled {
		t.Errorf("%s: %s", res.Status, res.Detail)
	}
	w.open()
	if s := w.pool.Standing(t.Context(), "fake"); s.Quarantine != nil || s.Failure != "" {
		t.Errorf("the end of the host was counted: %+v", s)
	}
}

func TestIdleAndChangedManifest(t *testing.T) {
	w := newWorld(t, func(o *provider.Options) { o.Idle = 30 * time.Millisecond })
	w.add("fake")
	if res := w.check("fake", provider.Settings{}, nil); res.Status != checks.Failed {
		t.Fatal(res.Detail)
	}
	sandboxtest.Eventually(t, "idle stop", func() bool { return w.pool.Standing(t.Context(), "fake").State == wire.Exited })
	if res := w.check("fake", provider.Settings{}, nil); res.Status != checks.Failed {
		t.Fatal(res.Detail)
	}
	// Another manifest under the same id is another provider, at once.
	w2 := newWorld(t, nil)
	w2.add("fake")
	if res := w2.check("fake", provider.Settings{}, nil); res.Status != checks.Failed {
		t.Fatal(res.Detail)
	}
	w2.add("fake", `set=diagnostics=[]`)
	if res := w2.check("fake", provider.Settings{}, nil); res.Status != checks.Passed {
		t.Errorf("%s: %s", res.Status, res.Detail)
	}
}

func TestBaselineMoves(t *testing.T) {
	w := newWorld(t, nil)
	w.add("fake")
	next := base
	for i, rev := range []string{"git:tree:0a", "git:tree:0b", "git:tree:0c"} {
		next.Rev = rev
		if i == 1 {
			w.pool.BaselineChanged(next) // otherwise told with the question
		}
		got, err := w.pool.Query(t.Context(), "fake", provider.QueryRequest{Method: "inspect/references", Params: parse(`{"symbol":{"id":"n"}}`), Baseline: next, Content: w.files})
		if err != nil || got.Complete != true {
			t.Errorf("%s: %v", rev, err)
		}
	}
}

// Providers that are never told of another baseline, because they do not listen,
// are started again for it.
func TestDeafToBaselines(t *testing.T) {
	for _, how := range []string{"deaf=refuse", "deaf=echo"} {
		w := newWorld(t, nil)
		w.add("fake", how)
		for _, rev := range []string{"git:tree:0a", "git:tree:0b", "git:tree:0b", "git:tree:0c"} {
			s := w.subject()
			s.Baseline.Rev = rev
			v, err := canon.From(wire.ChangeSet{Baseline: s.Baseline, Changes: s.Changes})
			must(t, err)
			s.Changeset, s.ChangesetDigest = v, canon.DigestText(v)
			if res := w.run(t.Context(), "fake", s, provider.Settings{}, 20*time.Second); res.Status != checks.Failed {
				t.Errorf("%s, %s: %s: %s", how, rev, res.Status, res.Detail)
			}
			w.pool.BaselineChanged(s.Baseline)
		}
		if s := w.pool.Standing(t.Context(), "fake"); s.Failure != "" || s.Quarantine != nil {
			t.Errorf("%+v", s)
		}
	}
}

// One request at a time, whoever asks; the fake ends when it is sent something
// while its callback is open.
func TestOneAtATime(t *testing.T) {
	w := newWorld(t, nil)
	w.add("fake", "ask=workspace/listTree {} x20")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			w.pool.BaselineChanged(base)
			if res := w.run(t.Context(), "fake", w.subject(), provider.Settings{}, time.Minute); res.Status != checks.Failed {
				t.Errorf("%s: %s", res.Status, res.Detail)
			}
		})
	}
	wg.Wait()
}

// Ten hostile providers beside a good one: each gets its own answer, and the
// good one a good answer.
func TestHostileCompany(t *testing.T) {
	w := newWorld(t, func(o *provider.Options) { o.MessageBytes = 8 << 20 })
	hostile := []string{"work=endless", "work=flood", "work=half", "work=hang-deaf", "start=noise", "init=exit", "work=unknown-id", "init=hang", "work=fork", "start=exit"}
	for i, how := range hostile {
		w.add(fmt.Sprintf("bad%d", i), how)
	}
	w.add("good")
	var wg sync.WaitGroup
	for i := range hostile {
		wg.Go(func() {
			res := w.run(t.Context(), fmt.Sprintf("bad%d", i), w.subject(), provider.Settings{}, 3*time.Second)
			if res.Status == checks.Passed || res.Status == checks.Failed || res.Detail == "" {
				t.Errorf("%s: %s", hostile[i], res.Status)
			}
		})
	}
	for range 5 {
		if res := w.check("good", provider.Settings{}, nil); res.Status != checks.Failed {
			t.Errorf("%s: %s", res.Status, res.Detail)
		}
	}
	wg.Wait()
	roster, err := w.pool.Roster(t.Context())
	must(t, err)
	if len(roster) != 11 || roster[10].ID != "good" || roster[10].Failure != "" || roster[0].Failure == "" {
		t.Errorf("%+v", roster)
	}
}

// Nothing is left after many sessions that end badly: no process, descriptor,
// goroutine (TestMain looks) or directory.
func TestNothingIsLeft(t *testing.T) {
	n := 40
	if os.Getenv("ASP_CRASH") == "long" {
		n = 400
	}
	w := newWorld(t, nil)
	word := "leftover" + filepath.Base(w.dir)
	ways := []string{"work=exit", "work=half", "work=null", "init=exit", "work=abort", "start=noise", "shutdown=exit", "work=noeol"}
	for i, how := range ways {
		w.add(fmt.Sprintf("p%d", i), how, "word="+word)
	}
	round := func(from, to int) {
		for i := from; i < to; i++ {
			id := fmt.Sprintf("p%d", i%len(ways))
			must(t, w.pool.Reset(id))
			_ = w.check(id, provider.Settings{}, nil)
			if i%8 == 7 {
				must(t, w.pool.Close(t.Context()))
				w.pool = provider.New(w.o)
			}
		}
		must(t, w.pool.Close(t.Context()))
		w.pool = provider.New(w.o)
	}
	round(0, len(ways)) // whatever the process keeps open once
	before, routines := descriptors(t), runtime.NumGoroutine()
	round(0, n)
	if after := descriptors(t); after > before {
		t.Errorf("%d descriptors, %d before", after, before)
	}
	if after := runtime.NumGoroutine(); after > routines+2 {
		t.Errorf("%d goroutines, %d before", after, routines)
	}
	if left := sandboxtest.Processes(t, word); len(left) > 0 {
		t.Errorf("processes left: %v", left)
	}
	must(t, w.pool.Close(t.Context()))
}

func descriptors(t *testing.T) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(names)
}

// hostVar makes the test binary a host of its own, which the test kills.
const hostVar = "ASP_PROVIDER_TEST_HOST"

// When the host is killed its providers die with it, with all that they
// started.
func TestHostKilled(t *testing.T) {
	if word := os.Getenv(hostVar); word != "" {
		w := newWorld(t, nil)
		w.add("fake", "work=fork", "word="+word)
		_ = w.run(t.Context(), "fake", w.subject(), provider.Settings{}, 4*time.Minute)
		return
	}
	word := "hostkilled" + filepath.Base(t.TempDir()) + fmt.Sprint(os.Getpid())
	exe, err := os.Executable()
	must(t, err)
	cmd := exec.Command(exe, "-test.run", "^TestHostKilled$")
	cmd.Env = append(os.Environ(), hostVar+"="+word)
	must(t, cmd.Start())
	sandboxtest.Eventually(t, "a provider", func() bool { return len(sandboxtest.Processes(t, "word="+word)) > 0 })
	must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	sandboxtest.Eventually(t, "its end", func() bool { return len(sandboxtest.Processes(t, "word="+word)) == 0 })
}

func TestAsOrdinaryUser(t *testing.T) { sandboxtest.AsUser(t) }

// Isolated, a provider sees nothing of the machine but its own program and the system,
// and the run says so.
func TestIsolatedProvider(t *testing.T) {
	if !caps().CanIsolate() {
		need.Missing(t, "this machine cannot isolate: %s", caps().MissingIsolation())
	}
	w := newWorld(t, func(o *provider.Options) { o.Sandbox.Require = sandbox.Isolated })
	w.add("fake", "start=look", "dirs="+strings.Join([]string{w.ws, filepath.Dir(w.dir), "/home", "/var/lib", "/sys", "/run", "/etc/ssh", "/tmp"}, ","))
	res := w.check("fake", provider.Settings{}, nil)
	if res.Status != checks.Failed || res.Isolation != checks.Isolated || !strings.Contains(res.Evidence, "attempts from inside") {
		t.Fatalf("%s, %s: %s %s", res.Status, res.Isolation, res.Detail, res.Evidence)
	}
	said := w.said("fake")
	for _, dir := range []string{w.ws, "/home", "/var/lib", "/sys", "/run", "/etc/ssh"} {
		if !strings.Contains(said, "dir "+dir+": 0 names, true, written false\n") {
			t.Errorf("%s is seen:\n%s", dir, said)
		}
	}
	if n := strings.Count(said, "written true"); n != 1 {
		t.Errorf("written at %d places:\n%s", n, said)
	}
	must(t, w.pool.Close(t.Context()))
	w.o.Sandbox.Caps.Landlock = sandbox.Cap{}
	w.open()
	if res := w.check("fake", provider.Settings{}, nil); res.Status != checks.Unavailable || !res.Unsupported || !strings.Contains(res.Detail, "Landlock") {
		t.Errorf("without Landlock: %s: %s", res.Status, res.Detail)
	}
	must(t, w.pool.Close(t.Context()))
	w.o.Sandbox.Require, w.o.Sandbox.Isolate = sandbox.MediatedWrite, true
	w.open()
	if res := w.check("fake", provider.Settings{}, nil); res.Status != checks.Failed || res.Isolation != checks.MediatedWrite {
		t.Errorf("best effort without Landlock: %s, %s: %s", res.Status, res.Isolation, res.Detail)
	}
}

// near is content that knows where its change lies without listing the tree.
type near struct {
	content
	where *atomic.Int32
}

func (n near) Near(b wire.BlobRef) (paths []string) {
	for p, s := range n.after {
		if blob(s) == b {
			paths = append(paths, p)
		}
	}
	return paths
}

func (n near) Where(ctx context.Context, b wire.BlobRef) ([]string, error) {
	n.where.Add(1)
	return n.content.Where(ctx, b)
}

// What the changeset puts at a granted path is served without looking for it in the
// whole tree; what is near at no granted path is looked for, and judged as ever.
func TestNearIsAskedFirst(t *testing.T) {
	w := newWorld(t, nil)
	w.add("fake")
	var n atomic.Int32
	if res := w.check("fake", provider.Settings{}, func(s *provider.Subject) { s.Content = near{w.files, &n} }); res.Status != checks.Failed || n.Load() != 0 {
		t.Errorf("%s: %s; looked %d times", res.Status, res.Detail, n.Load())
	}
	w.files.after["a.txt"] = "hunter2\n"
	hidden := near{content{w.files.base, map[string]string{"secret/key": "hunter2\n"}}, &n}
	if res := w.check("fake", provider.Settings{}, func(s *provider.Subject) { s.Content = hidden }); len(res.Served) != 0 || n.Load() == 0 {
		t.Errorf("%s: %s; served %v, looked %d times", res.Status, res.Detail, res.Served, n.Load())
	}
}
