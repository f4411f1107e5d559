//go:build linux

package worktree_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/aspengine/asp/internal/need"
	"github.com/aspengine/asp/sandbox"
	"github.com/aspengine/asp/sandbox/sandboxtest"
	"github.com/aspengine/asp/snapshot"
	"github.com/aspengine/asp/worktree"
	"go.uber.org/goleak"
)

const helperVar = "ASP_WORKTREE_TEST_HELPER"

func TestMain(m *testing.M) {
	switch os.Getenv(helperVar) {
	case "":
	case "submount":
		os.Exit(submount())
	case "sweepmount":
		os.Exit(sweepmount())
	default:
		os.Exit(helper())
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

// place is a workspace and a scratch base beside it. The workspace's name holds
// what overlay options, mountinfo and text encodings stumble over.
type place struct {
	root, scratch string
	caps          sandbox.Caps
}

func newPlace(t testing.TB) *place {
	t.Helper()
	d, err := os.MkdirTemp("", "place-")
	must(t, err)
	// Scratch may hold what only our own removal can remove.
	t.Cleanup(func() {
		_ = filepath.WalkDir(d, func(p string, e os.DirEntry, err error) error {
			if e != nil && e.IsDir() {
				_ = os.Chmod(p, 0o700)
			}
			return nil
		})
		must(t, os.RemoveAll(d))
	})
	d, err = filepath.EvalSymlinks(d)
	must(t, err)
	p := &place{root: filepath.Join(d, "re po,a:b\\c\xe9"), scratch: filepath.Join(d, "state", "scratch")}
	must(t, os.Mkdir(p.root, 0o755))
	must(t, os.MkdirAll(p.scratch, 0o700))
	p.caps = sandboxtest.Caps(t, p.root, p.scratch)
	return p
}

func (p *place) write(t testing.TB, files map[string]string) {
	t.Helper()
	for name, s := range files {
		f := filepath.Join(p.root, name)
		must(t, os.MkdirAll(filepath.Dir(f), 0o755))
		if to, ok := strings.CutPrefix(s, "-> "); ok {
			must(t, os.Symlink(to, f))
			continue
		}
		must(t, os.WriteFile(f, []byte(s), 0o644))
	}
}

func (p *place) spec(m worktree.Method, effects ...snapshot.Effect) worktree.Spec {
	s := worktree.Spec{
		Root: p.root, ScratchBase: p.scratch, StateDir: filepath.Dir(p.scratch), Home: os.Getenv("HOME"),
		Caps: p.caps, Method: m, Effects: effects,
	}
	if _, err := os.Lstat(filepath.Join(p.root, ".git")); err == nil {
		s.GitDir, s.CommonDir = filepath.Join(p.root, ".git"), filepath.Join(p.root, ".git")
	}
	return s
}

func build(t testing.TB, s worktree.Spec) *worktree.Candidate {
	t.Helper()
	c, err := worktree.Build(context.Background(), s)
	must(t, err)
	t.Cleanup(func() { must(t, c.Close()) })
	return c
}

// in runs a script over the candidate, requiring that the live tree is out of
// reach unless the candidate has no namespaces.
func in(t testing.TB, c *worktree.Candidate, script string, env ...string) string {
	t.Helper()
	s := c.Sandbox(nil)
	s.Argv, s.MergeOutput, s.Require = []string{"sh", "-c", script}, true, sandbox.MediatedWrite
	if !c.Caps.Namespaces() {
		s.Require = sandbox.Advisory
	}
	s.Env["PATH"] = os.Getenv("PATH")
	for _, e := range env {
		k, v, _ := strings.Cut(e, "=")
		s.Env[k] = v
	}
	s.Limits.Output = 8 << 20
	res, err := sandbox.Run(context.Background(), c.Caps, s)
	must(t, err)
	if !res.Started || res.TimedOut || len(res.Leftovers) > 0 {
		t.Fatalf("run: %+v\n%s", res, res.Stdout)
	}
	return string(res.Stdout)
}

func path(t testing.TB, s string) snapshot.Path {
	t.Helper()
	p, err := snapshot.ParsePath(s)
	must(t, err)
	return p
}

func put(t testing.TB, name, content string, mode snapshot.FileMode) snapshot.Effect {
	t.Helper()
	return snapshot.Effect{
		Path: path(t, name), Digest: snapshot.DigestOf([]byte(content)), Size: int64(len(content)), Mode: mode,
		Open: func() (snapshot.ReadCloser, error) { return io.NopCloser(strings.NewReader(content)), nil },
	}
}

func gone(t testing.TB, name string) snapshot.Effect {
	t.Helper()
	return snapshot.Effect{Path: path(t, name), Gone: true}
}

// empty fails the test when something is left in the scratch base.
func (p *place) empty(t testing.TB) {
	t.Helper()
	left, err := os.ReadDir(p.scratch)
	must(t, err)
	for _, e := range left {
		t.Errorf("left in scratch: %s", e.Name())
	}
}

// helper builds a candidate and runs a long command over it, to be killed.
func helper() int {
	s := worktree.Spec{
		Root: os.Getenv("ROOT"), ScratchBase: os.Getenv("SCRATCH"),
		Caps: worktree.Probe(context.Background(), os.Getenv("ROOT"), os.Getenv("SCRATCH")),
	}
	if os.Getenv("COPY") != "" {
		s.Method = worktree.Copy
	}
	for {
		c, err := worktree.Build(context.Background(), s)
		if err != nil {
			fmt.Println(err)
			return 1
		}
		x := c.Sandbox(nil)
		x.Argv, x.Require = []string{"sh", "-c", "(setsid sleep $WORD &) ; sleep 0.02; echo x > made; exit 0"}, sandbox.Advisory
		x.Env["PATH"], x.Env["WORD"] = os.Getenv("PATH"), os.Getenv("WORD")
		x.Limits.Grace = 1
		if _, err := sandbox.Run(context.Background(), c.Caps, x); err != nil {
			fmt.Println(err)
			return 1
		}
		if err := c.Close(); err != nil {
			fmt.Println(err)
			return 1
		}
	}
}

// submount runs in a mount namespace of its own and mounts something inside the
// workspace.
func submount() int {
	ctx, root := context.Background(), os.Getenv("ROOT")
	mnt := filepath.Join(root, "mnt")
	if err := syscall.Mount("none", mnt, "tmpfs", 0, ""); err != nil {
		fmt.Println("cannot set up:", err)
		return 3
	}
	if err := os.WriteFile(filepath.Join(mnt, "f"), []byte("mounted\n"), 0o644); err != nil {
		fmt.Println(err)
		return 1
	}
	c, err := worktree.Build(ctx, worktree.Spec{Root: root, ScratchBase: os.Getenv("SCRATCH"), Caps: worktree.Probe(ctx, root, os.Getenv("SCRATCH"))})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	s := c.Sandbox(nil)
	s.Argv, s.Require, s.Env["PATH"] = []string{"sh", "-c", "cat mnt/f; echo changed > mnt/f; cat mnt/f"}, sandbox.MediatedWrite, os.Getenv("PATH")
	res, err := sandbox.Run(ctx, c.Caps, s)
	b, _ := os.ReadFile(filepath.Join(mnt, "f"))
	fmt.Printf("%s %s%s%v %d notes, overlay %v, err=%v\n", c.Method, res.Stdout, b, res.Boundary.Level, len(c.Notes), c.Caps.CanOverlay(), err)
	if err := c.Close(); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// sweepmount runs in a mount namespace of its own, where somebody mounted something
// inside what a dead owner left.
func sweepmount() int {
	left, kept := os.Getenv("LEFT"), os.Getenv("KEPT")
	for target, source := range map[string]string{left + "/dir": kept, left + "/a/b": kept} {
		if err := syscall.Mount(source, target, "", syscall.MS_BIND, ""); err != nil {
			fmt.Println("cannot set up:", err)
			return 3
		}
	}
	_, err := worktree.Sweep(context.Background(), os.Getenv("SCRATCH"))
	fmt.Printf("%v", err)
	return 0
}

// inNamespace runs a helper where it may mount.
func inNamespace(t *testing.T, name string, env ...string) string {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(env, helperVar+"="+name, "PATH="+os.Getenv("PATH"))
	uid, gid := os.Geteuid(), os.Getegid()
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}},
		AmbientCaps: []uintptr{21, 31}, // SYS_ADMIN to mount, SETFCAP to map root once more
	}
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() == 3 {
		need.Missing(t, "no mount in a namespace here: %s", out)
	}
	if err != nil {
		t.Fatalf("%s: %v %s", name, err, out)
	}
	return string(out)
}
