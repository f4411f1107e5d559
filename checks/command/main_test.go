package command_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aspengine/asp/checks"
	"github.com/aspengine/asp/checks/command"
	"github.com/aspengine/asp/sandbox"
	"github.com/aspengine/asp/sandbox/sandboxtest"
	"github.com/aspengine/asp/snapshot"
	"github.com/aspengine/asp/worktree"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(loopVar) != "" {
		if err := loop(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func TestAsOrdinaryUser(t *testing.T) { sandboxtest.AsUser(t) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// repo is a workspace under git and where its git files are.
type repo struct {
	top               string // everything that belongs to the user
	root, git, common string
	scratch           string
	caps              sandbox.Caps
}

func gitIn(t testing.TB, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1", "LANG=C"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// newRepo makes a repository of the kind; the kinds differ in where git's files are.
func newRepo(t testing.TB, kind string) *repo {
	t.Helper()
	d, err := os.MkdirTemp("", "repo-")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(d)) })
	d, err = filepath.EvalSymlinks(d)
	must(t, err)
	r := &repo{top: filepath.Join(d, "user"), scratch: filepath.Join(d, "state", "scratch")}
	must(t, os.MkdirAll(r.scratch, 0o700))
	must(t, os.Mkdir(r.top, 0o755))
	main := filepath.Join(r.top, "main")
	switch kind {
	case "separate":
		gitIn(t, r.top, "init", "-q", "-b", "main", "--separate-git-dir", filepath.Join(r.top, "elsewhere.git"), main)
	default:
		gitIn(t, r.top, "init", "-q", "-b", "main", main)
	}
	gitIn(t, main, "config", "user.name", "u")
	gitIn(t, main, "config", "user.email", "u@example.org")
	for name, s := range map[string]string{"x": "x\n", "y": "y\n", ".gitignore": "ign/\n", "d/z": "z\n"} {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(main, name)), 0o755))
		must(t, os.WriteFile(filepath.Join(main, name), []byte(s), 0o644))
	}
	gitIn(t, main, "add", ".")
	gitIn(t, main, "commit", "-q", "-m", "one")
	must(t, os.WriteFile(filepath.Join(main, "y"), []byte("stashed\n"), 0o644))
	gitIn(t, main, "stash", "-q")
	gitIn(t, main, "branch", "old")
	gitIn(t, main, "pack-refs", "--all")
	r.root = main
	switch kind {
	case "linked":
		r.root = filepath.Join(r.top, "wt")
		gitIn(t, main, "worktree", "add", "-q", r.root, "-b", "side")
	case "bare":
		bare := filepath.Join(r.top, "b.git")
		gitIn(t, r.top, "clone", "-q", "--bare", main, bare)
		gitIn(t, bare, "config", "user.name", "u")
		gitIn(t, bare, "config", "user.email", "u@example.org")
		r.root = filepath.Join(bare, "wt")
		gitIn(t, bare, "worktree", "add", "-q", r.root, "old")
	case "shared":
		r.root = filepath.Join(r.top, "clone")
		gitIn(t, r.top, "clone", "-q", "--shared", main, r.root)
		gitIn(t, r.root, "config", "user.name", "u")
		gitIn(t, r.root, "config", "user.email", "u@example.org")
	}
	must(t, os.WriteFile(filepath.Join(r.root, "d/z"), []byte("mine\n"), 0o644))
	must(t, os.MkdirAll(filepath.Join(r.root, "ign"), 0o755))
	must(t, os.WriteFile(filepath.Join(r.root, "ign/cache"), []byte("c"), 0o644))
	r.git = gitIn(t, r.root, "rev-parse", "--absolute-git-dir")
	r.common = gitIn(t, r.root, "rev-parse", "--path-format=absolute", "--git-common-dir")
	must(t, os.Mkdir(filepath.Join(r.git, "asp"), 0o700))
	must(t, os.WriteFile(filepath.Join(r.git, "asp", "journal"), []byte("open"), 0o600))
	r.caps = sandboxtest.Caps(t, r.root, r.scratch)
	return r
}

func (r *repo) spec(m worktree.Method) worktree.Spec {
	return worktree.Spec{
		Root: r.root, GitDir: r.git, CommonDir: r.common, ScratchBase: r.scratch, StateDir: filepath.Dir(r.scratch),
		Home: os.Getenv("HOME"), Caps: r.caps, Method: m, Ignored: snapshot.Ignored{Names: []string{"ign"}, Count: 1},
	}
}

// check runs one command check over a candidate of its own.
func check(t testing.TB, ws worktree.Spec, s command.Spec) checks.Result {
	t.Helper()
	if s.Path == "" {
		s.Path = os.Getenv("PATH")
	}
	c, err := command.New("t", s)
	must(t, err)
	rep, err := checks.Run(context.Background(), []checks.Check{c},
		func(ctx context.Context) (*worktree.Candidate, error) { return worktree.Build(ctx, ws) },
		func(context.Context) ([]string, error) { return nil, nil }, checks.Options{})
	must(t, err)
	left, err := os.ReadDir(ws.ScratchBase)
	must(t, err)
	for _, e := range left {
		t.Errorf("left in scratch: %s", e.Name())
	}
	return rep.Results[0]
}

func sh(script string) command.Spec {
	return command.Spec{Argv: []string{"sh", "-c", script}, Require: sandbox.MediatedWrite}
}
