package command_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aspengine/asp/checks"
	"github.com/aspengine/asp/checks/command"
	"github.com/aspengine/asp/internal/need"
	"github.com/aspengine/asp/sandbox"
	"github.com/aspengine/asp/worktree"
)

func TestStatuses(t *testing.T) {
	r := newRepo(t, "ordinary")
	for _, c := range []struct {
		script string
		edit   func(*command.Spec)
		want   checks.Status
		detail string
	}{
		{"exit 0", nil, checks.Passed, ""},
		{"echo bad >&2; exit 3", nil, checks.Failed, "exit status 3"},
		{"sleep 1000", func(s *command.Spec) { s.Timeout = 100 * time.Millisecond }, checks.TimedOut, "time was over"},
		{"kill -ABRT $$", nil, checks.Crashed, "SIGABRT"},
		{"", func(s *command.Spec) { s.Argv = []string{"no-such-tool"} }, checks.Unavailable, "no-such-tool"},
		{"sleep 1000 & exit 0", nil, checks.Incomplete, "sleep"},
		{"", func(s *command.Spec) { s.Require, s.Network = sandbox.Isolated, true }, checks.Unavailable, "isolated"},
	} {
		s := sh(c.script)
		s.Limits.Grace = 50 * time.Millisecond
		if c.edit != nil {
			c.edit(&s)
		}
		res := check(t, r.spec(worktree.MethodInvalid), s)
		if res.Status != c.want || !strings.Contains(res.Detail, c.detail) {
			t.Errorf("%q: %s, %q", c.script, res.Status, res.Detail)
		}
		if (len(res.Findings) > 0) != (c.want == checks.Failed) {
			t.Errorf("%q: findings %v", c.script, res.Findings)
		}
		if res.Unsupported != (s.Require == sandbox.Isolated) {
			t.Errorf("%q: unsupported %v", c.script, res.Unsupported)
		}
	}
}

func TestFinding(t *testing.T) {
	r := newRepo(t, "ordinary")
	res := check(t, r.spec(worktree.MethodInvalid), sh(`i=0; while [ $i -lt 500 ]; do echo "line $i"; i=$((i+1)); done; printf 'bad \377 byte\n'; exit 1`))
	if len(res.Findings) != 1 {
		t.Fatalf("findings %v", res.Findings)
	}
	f := res.Findings[0]
	if f.Code != "command/t:exit" || f.NextStep == "" || len(f.Message) > 2100 || !strings.HasSuffix(f.Message, "line 499\nbad \ufffd byte") || !strings.HasPrefix(f.Message, "line ") {
		t.Errorf("finding %+v", f)
	}
	if res.Env.Count != 1 || res.Env.Names[0] != "ign" || res.Runs != 1 || res.Evidence == "" {
		t.Errorf("result %+v", res)
	}
}

func TestSB01_NotStartedWithoutTheLevel(t *testing.T) {
	r := newRepo(t, "ordinary")
	ws := r.spec(worktree.MethodInvalid)
	ws.Caps.UserNS, ws.Caps.Landlock = sandbox.Cap{Answer: sandbox.No}, sandbox.Cap{Answer: sandbox.No}
	witness := filepath.Join(t.TempDir(), "started")
	res := check(t, ws, sh("touch "+witness))
	if res.Status != checks.Unavailable || !res.Unsupported || !strings.Contains(res.Detail, "user namespace: no") {
		t.Errorf("%s: %s", res.Status, res.Detail)
	}
	if _, err := os.Lstat(witness); err == nil {
		t.Error("started")
	}
}

func TestCancelled(t *testing.T) {
	r := newRepo(t, "ordinary")
	s := sh("echo up > $TMPDIR/up; sleep 1000")
	s.Path = os.Getenv("PATH")
	c, err := command.New("t", s)
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(50*time.Millisecond, cancel) // before or after the start: the answer is the same
	rep, err := checks.Run(ctx, []checks.Check{c, c},
		func(ctx context.Context) (*worktree.Candidate, error) {
			return worktree.Build(ctx, r.spec(worktree.MethodInvalid))
		},
		func(context.Context) ([]string, error) { return nil, nil }, checks.Options{})
	must(t, err)
	if len(rep.Results) != 2 || rep.Results[0].Status != checks.Cancelled || rep.Results[1].Status != checks.Cancelled || rep.Passed() {
		t.Errorf("results %+v", rep.Results)
	}
}

// The work that checks are for: the Go tool, with the user's caches as
// throw-away overlays.
func TestGoTool(t *testing.T) {
	goTool, err := exec.LookPath("go")
	if err != nil {
		need.Missing(t, "there is no go tool")
	}
	r := newRepo(t, "ordinary")
	must(t, os.WriteFile(filepath.Join(r.root, "go.mod"), []byte("module example.org/m\n\ngo 1.21\n"), 0o644))
	must(t, os.WriteFile(filepath.Join(r.root, "m.go"), []byte("package m\n\nfunc F() int { return 1 }\n"), 0o644))
	cache := filepath.Join(filepath.Dir(r.top), "gocache")
	must(t, os.Mkdir(cache, 0o755))
	for _, c := range []struct {
		src  string
		want checks.Status
	}{{"package m\n\nvar _ int = F()\n", checks.Passed}, {"package m\n\nvar _ string = F()\n", checks.Failed}} {
		must(t, os.WriteFile(filepath.Join(r.root, "n.go"), []byte(c.src), 0o644))
		ws := r.spec(worktree.Overlay)
		ws.Read = []string{cache}
		s := command.Spec{
			Argv: []string{"go", "build", "./..."}, Require: sandbox.MediatedWrite, Timeout: 5 * time.Minute,
			Env:    map[string]string{"GOCACHE": cache, "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=mod", "GOPROXY": "off"},
			Path:   filepath.Dir(goTool) + ":" + os.Getenv("PATH"),
			Limits: sandbox.Limits{Grace: time.Minute}, // the tool's own helper may outlive it a little
		}
		res := check(t, ws, s)
		if res.Status != c.want {
			t.Errorf("%s: %s\n%s", res.Status, res.Detail, res.Output)
		}
	}
	if left, _ := os.ReadDir(cache); len(left) > 0 {
		t.Error("the user's build cache was written")
	}
}

func TestNew(t *testing.T) {
	for _, c := range []struct {
		name string
		argv []string
	}{{"", []string{"x"}}, {"a/b", []string{"x"}}, {"a:b", []string{"x"}}, {"a", nil}, {"a", []string{""}}} {
		if _, err := command.New(c.name, command.Spec{Argv: c.argv}); err == nil {
			t.Errorf("%q %q: accepted", c.name, c.argv)
		}
	}
}

// Whatever a check does to the process that watches it is no verdict and no end of the decision.
func TestWhoWatchesIsKilled(t *testing.T) {
	r := newRepo(t, "ordinary")
	// Caught, and nothing happens.
	res := check(t, r.spec(worktree.MethodInvalid), sh("for s in TERM INT HUP QUIT ABRT SEGV USR1 PIPE STOP KILL; do kill -$s 1; done; echo x > /var/tmp/x && cat /var/tmp/x; exit 0"))
	if res.Status != checks.Passed || string(res.Output) != "x\n" {
		t.Errorf("%s %s: %s", res.Status, res.Detail, res.Output)
	}
	// Without namespaces it can be killed.
	ws := r.spec(worktree.Copy)
	ws.Caps = sandbox.Caps{}
	s := sh("kill -KILL $PPID; sleep 300")
	s.Require = sandbox.Advisory
	if res := check(t, ws, s); res.Status != checks.Crashed || res.ExitCode != -1 {
		t.Errorf("%s %d: %s", res.Status, res.ExitCode, res.Detail)
	}
}
