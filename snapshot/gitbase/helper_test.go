package gitbase_test

import (
	"bytes"
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/aspengine/asp/internal/need"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/snapshot"
	"github.com/aspengine/asp/snapshot/gitbase"
)

// tb is what testing.T and rapid.T have in common.
type tb interface {
	Helper()
	Fatalf(format string, args ...any)
}

// tree is a directory that tests fill, with git at hand.
type tree struct{ dir string }

// sealed keeps the user's git configuration out of the tests of this package,
// on our side and on git's.
func sealed(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		need.Missing(t, "git is not installed; it makes the repositories and is what the answers are compared with")
	}
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(home, ".config"))
}

func newTree(t testing.TB) tree {
	t.Helper()
	sealed(t)
	d, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return tree{d}
}

func newRepo(t testing.TB) tree {
	t.Helper()
	r := newTree(t)
	r.git(t, "init", "-q", "-b", "main")
	return r
}

func (r tree) path(p string) string { return filepath.Join(r.dir, filepath.FromSlash(p)) }

func gitEnv(extra ...string) []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "GIT_") {
			env = append(env, v)
		}
	}
	return append(append(env, "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=c",
		"GIT_COMMITTER_EMAIL=c@example.org", "GIT_AUTHOR_DATE=2020-01-01T00:00:00Z", "GIT_COMMITTER_DATE=2020-01-01T00:00:00Z"), extra...)
}

// git runs git in the tree and returns what it prints.
func (r tree) git(t tb, args ...string) string {
	t.Helper()
	return r.gitWith(t, nil, args...)
}

func (r tree) gitWith(t tb, env []string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "protocol.file.allow=always"}, args...)...)
	cmd.Dir, cmd.Env = r.dir, gitEnv(env...)
	var out, msg bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &msg
	if err := cmd.Run(); err != nil {
		t.Fatalf("git %q: %v: %s", args, err, msg.String())
	}
	return strings.TrimSuffix(out.String(), "\n")
}

func (r tree) write(t tb, p, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(r.path(p)), 0o755); err != nil {
		t.Fatalf("%v", err)
	}
	if err := os.WriteFile(r.path(p), []byte(content), 0o644); err != nil {
		t.Fatalf("%v", err)
	}
}

func (r tree) commit(t tb) {
	t.Helper()
	r.git(t, "add", "-A")
	r.git(t, "commit", "-q", "--allow-empty", "-m", "c")
}

func (r tree) open(t testing.TB, state vfs.Dir) snapshot.Workspace {
	t.Helper()
	ws, err := gitbase.Open(context.Background(), r.dir, snapshot.Options{State: state})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ws.Close(); err != nil {
			t.Error(err)
		}
	})
	return ws
}

func stamp(t tb, ws snapshot.Workspace, content bool) *snapshot.Stamp {
	t.Helper()
	s, err := ws.Stamp(context.Background(), snapshot.StampOptions{Content: content})
	if err != nil {
		t.Fatalf("stamp: %v", err)
	}
	return s
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// paths lists the overlay.
func paths(s *snapshot.Stamp) []string {
	out := []string{}
	for _, o := range s.Overlay {
		out = append(out, o.Path)
	}
	return out
}

func (r tree) try(args ...string) error {
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Env = r.dir, gitEnv()
	return cmd.Run()
}

func TestMain(m *testing.M) {
	if need.Race {
		// A drawn case is mostly git's work, which the detector does not see.
		if err := flag.Set("rapid.checks", "40"); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(m)
}
