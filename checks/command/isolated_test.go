package command_test

import (
	"errors"
	"fmt"
	"net"
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
	"github.com/aspengine/asp/sandbox/sandboxtest"
	"github.com/aspengine/asp/worktree"
	"github.com/google/go-cmp/cmp"
)

func canIsolate(t *testing.T, r *repo) {
	t.Helper()
	if caps := r.spec(worktree.MethodInvalid).Caps; !caps.CanIsolate() {
		need.Missing(t, "this machine cannot isolate: %s", caps.MissingIsolation())
	}
}

// GT-10 in an isolated launch: the repository is as usable and as untouchable, and
// nothing around it is seen.
func TestGT10_Isolated(t *testing.T) {
	for _, kind := range []string{"ordinary", "linked", "shared"} {
		for _, m := range []worktree.Method{worktree.Overlay, worktree.Copy} {
			t.Run(kind+"/"+m.String(), func(t *testing.T) {
				r := newRepo(t, kind)
				canIsolate(t, r)
				before := sandboxtest.Listing(t, r.top)
				s := sh(evil + "\nls -d /root /home /var /sys /run /srv /opt /mnt /boot 2>/dev/null | sed 's/^/sees:/'")
				s.Require = sandbox.Isolated
				res := check(t, r.spec(m), s)
				if after := sandboxtest.Listing(t, r.top); !cmp.Equal(before, after) {
					t.Errorf("the user's files changed: %s", cmp.Diff(before, after))
				}
				out := string(res.Output)
				for _, want := range []string{"did:commit\n", "did:gc\n", "did:rm\n", "log:one\n", "status: M d/z\n"} {
					if !strings.Contains(out, want) {
						t.Errorf("the check could not do %s", want)
					}
				}
				if strings.Contains(out, "SEES-ASP") {
					t.Error("the transaction directory is visible")
				}
				for _, d := range []string{"/sys", "/run", "/srv", "/opt", "/mnt", "/boot"} {
					if strings.Contains(out, "sees:"+d+"\n") && !strings.HasPrefix(r.top, d+"/") && !strings.Contains(os.Getenv("PATH"), d+"/") {
						t.Errorf("%s is visible", d)
					}
				}
				if res.Status != checks.Passed || res.Isolation != checks.Isolated || res.DirectWrite || res.Method != m {
					t.Errorf("result %s %s %v %s: %s %s", res.Status, res.Isolation, res.DirectWrite, res.Method, res.Detail, res.Evidence)
				}
				if t.Failed() {
					t.Logf("%s", out)
				}
			})
		}
	}
}

// loop is what a test may do on its own: talk to itself over the loopback and a unix
// socket, start children, write files. TestMain calls it where loopVar is set.
func loop() error {
	dir, err := os.MkdirTemp("", "loop")
	if err != nil {
		return err
	}
	for network, at := range map[string]string{"tcp": "127.0.0.1:0", "unix": filepath.Join(dir, "s")} {
		l, err := net.Listen(network, at)
		if err != nil {
			return err
		}
		c, err := net.Dial(network, l.Addr().String())
		if err != nil {
			return err
		}
		if err := errors.Join(c.Close(), l.Close()); err != nil {
			return err
		}
	}
	if out, err := exec.Command("sh", "-c", "echo $((1+1))").Output(); err != nil || string(out) != "2\n" {
		return fmt.Errorf("%q, %v", out, err)
	}
	return os.WriteFile("made", nil, 0o644)
}

const loopVar = "ASP_COMMAND_TEST_LOOP"

func TestIsolatedLoop(t *testing.T) {
	r := newRepo(t, "ordinary")
	canIsolate(t, r)
	exe, err := os.Executable()
	must(t, err)
	ws := r.spec(worktree.MethodInvalid)
	ws.Read = []string{exe}
	res := check(t, ws, command.Spec{Argv: []string{exe}, Require: sandbox.Isolated, Env: map[string]string{loopVar: "1"}})
	if res.Status != checks.Passed || res.Isolation != checks.Isolated {
		t.Errorf("%s, %s: %s\n%s", res.Status, res.Isolation, res.Detail, res.Output)
	}
}

// Real work, isolated: the go tool, with the build cache as declared.
func TestIsolatedGoWork(t *testing.T) {
	goTool, err := exec.LookPath("go")
	if err != nil {
		need.Missing(t, "there is no go tool")
	}
	out, err := exec.Command(goTool, "env", "GOROOT").Output()
	if err != nil {
		need.Missing(t, "the go tool does not say where it is")
	}
	r := newRepo(t, "ordinary")
	canIsolate(t, r)
	for name, text := range map[string]string{"go.mod": "module example.org/m\n\ngo 1.21\n", "m.go": "package m\n\nfunc F() int { return 1 }\n"} {
		must(t, os.WriteFile(filepath.Join(r.root, name), []byte(text), 0o644))
	}
	cache := filepath.Join(filepath.Dir(r.top), "gocache")
	must(t, os.Mkdir(cache, 0o755))
	ws := r.spec(worktree.MethodInvalid)
	ws.Read = []string{cache}
	if root := strings.TrimSpace(string(out)); !sandbox.SystemPath(root) {
		ws.Read = append(ws.Read, root)
	}
	s := command.Spec{
		Argv: []string{"go", "build", "./..."}, Require: sandbox.Isolated, Timeout: 5 * time.Minute,
		Env:    map[string]string{"GOCACHE": cache, "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=mod", "GOPROXY": "off", "CGO_ENABLED": "0"},
		Path:   filepath.Dir(goTool) + ":" + os.Getenv("PATH"),
		Limits: sandbox.Limits{Grace: time.Minute},
	}
	res := check(t, ws, s)
	if res.Status != checks.Passed || res.Isolation != checks.Isolated {
		t.Errorf("%s, %s: %s\n%s", res.Status, res.Isolation, res.Detail, res.Output)
	}
	if left, _ := os.ReadDir(cache); len(left) > 0 {
		t.Error("the user's build cache was written")
	}
}
