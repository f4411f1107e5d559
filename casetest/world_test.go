package casetest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/aspengine/asp/internal/need"
)

// ordinary is the user that the binary runs as when the tests are root.
const ordinary = 65534

// world is one workspace with everything around it: a state directory, a user's
// home, a temporary directory, and a place beside the workspace. All of it lies
// in one private directory that is removed at the end, after the receipts were
// verified.
type world struct {
	t    testing.TB
	base string
	ws   string // holds the workspace and what lies beside it
	root string // the workspace
	asp  string // ASP_HOME
	home string
	tmp  string
	cred *syscall.Credential // nil: the tests' own user
	env  []string            // added to the clean environment of the binary
	git  bool

	program []string // what is run in place of the binary; nil: the binary

	stderr io.Writer // also gets what the binary says there, while it runs

	broken   bool // the receipts are meant not to verify
	proposal *int // counts plans, so that ids are never used twice
}

type worldOption func(*world)

// asRoot runs the binary with the rights of the tests.
func asRoot(w *world) { w.cred = nil }

// noGit makes the workspace a plain directory.
func noGit(w *world) { w.git = false }

// on puts the world below a directory of another file system.
func on(dir string) worldOption { return func(w *world) { w.base = dir } }

// source is called when a test runs: what is opened before is not counted.
var source = sync.OnceValue(need.Source)

func newWorld(t testing.TB, files map[string]string, opts ...worldOption) *world {
	t.Helper()
	must(t, source())
	w := &world{t: t, git: true, proposal: new(int)}
	if os.Geteuid() == 0 {
		w.cred = &syscall.Credential{Uid: ordinary, Gid: ordinary}
	}
	for _, o := range opts {
		o(w)
	}
	base, err := os.MkdirTemp(w.base, "casetest-")
	must(t, err)
	w.base, err = filepath.EvalSymlinks(base)
	must(t, err)
	t.Cleanup(func() {
		w.verifyReceipts()
		w.removeAll()
	})
	must(t, os.Chmod(w.base, 0o755))
	w.own(w.base)
	for p, name := range map[*string]string{&w.ws: "ws", &w.root: "ws/repo", &w.asp: "state", &w.home: "home", &w.tmp: "tmp"} {
		*p = filepath.Join(w.base, name)
	}
	for _, d := range []string{w.ws, w.root, w.home, w.tmp} {
		must(t, os.MkdirAll(d, 0o755))
		w.own(d)
	}
	if w.git {
		w.gitRun("init", "-q", "-b", "main", "--template=")
	}
	names := make([]string, 0, len(files))
	for n := range files {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		w.write(n, files[n], 0o644)
	}
	if w.git {
		w.commit()
	}
	return w
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// as returns a view of the same world that reports to another test.
func (w *world) as(t testing.TB) *world {
	c := *w
	c.t = t
	return &c
}

// own gives a path to the user of the binary.
func (w *world) own(path string) {
	w.t.Helper()
	if w.cred != nil {
		must(w.t, os.Lchown(path, int(w.cred.Uid), int(w.cred.Gid)))
	}
}

// path of a name in the workspace; absolute names stay.
func (w *world) path(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(w.root, name)
}

// mkdir makes a directory and its parents, owned by the user.
func (w *world) mkdir(name string) {
	w.t.Helper()
	p := w.path(name)
	if _, err := os.Lstat(p); err == nil {
		return
	}
	w.mkdir(filepath.Dir(p))
	must(w.t, os.Mkdir(p, 0o755))
	w.own(p)
}

// write puts a file there as the user would, in place if it exists.
func (w *world) write(name, data string, perm os.FileMode) {
	w.t.Helper()
	p := w.path(name)
	w.mkdir(filepath.Dir(p))
	must(w.t, os.WriteFile(p, []byte(data), perm))
	w.own(p)
	must(w.t, os.Chmod(p, perm))
}

func (w *world) link(target, name string) {
	w.t.Helper()
	p := w.path(name)
	w.mkdir(filepath.Dir(p))
	must(w.t, os.Symlink(target, p))
	w.own(p)
}

// read returns the bytes of a file.
func (w *world) read(name string) string {
	w.t.Helper()
	b, err := os.ReadFile(w.path(name))
	must(w.t, err)
	return string(b)
}

// is fails unless the file holds exactly these bytes.
func (w *world) is(name, want string) {
	w.t.Helper()
	b, err := os.ReadFile(w.path(name))
	if err != nil {
		w.t.Errorf("%s: %v", name, err)
	} else if string(b) != want {
		w.t.Errorf("%s holds %.200q, want %.200q", name, b, want)
	}
}

// gone fails if the name exists.
func (w *world) gone(name string) {
	w.t.Helper()
	if _, err := os.Lstat(w.path(name)); !errors.Is(err, os.ErrNotExist) {
		w.t.Errorf("%s exists (%v), want nothing there", name, err)
	}
}

// perm fails unless the file has exactly these permission bits.
func (w *world) perm(name string, want uint32) {
	w.t.Helper()
	var st syscall.Stat_t
	if err := syscall.Lstat(w.path(name), &st); err != nil {
		w.t.Errorf("%s: %v", name, err)
	} else if uint32(st.Mode)&0o7777 != want {
		w.t.Errorf("%s has mode %#o, want %#o", name, st.Mode&0o7777, want)
	}
}

// cleanEnv is the whole environment of every program started here, apart from
// what a case adds.
func (w *world) cleanEnv() []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + w.home, "LANG=C.UTF-8", "TMPDIR=" + w.tmp, "ASP_HOME=" + w.asp,
		"GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=A", "GIT_COMMITTER_EMAIL=a@example.org",
	}
}

// command prepares a program that runs as the user in a directory.
func (w *world) command(dir, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, w.cleanEnv()
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: w.cred}
	return cmd
}

// gitIn runs git in a directory and returns its output.
func (w *world) gitIn(dir string, args ...string) string {
	w.t.Helper()
	cmd := w.command(dir, "git", args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		w.t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, errs.Bytes())
	}
	return out.String()
}

func (w *world) gitRun(args ...string) string { w.t.Helper(); return w.gitIn(w.root, args...) }

// commit records the workspace as it is.
func (w *world) commit() {
	w.t.Helper()
	w.gitRun("add", "-A", ".")
	w.gitRun("commit", "-q", "--allow-empty", "-m", "state")
}

// status is what git says of the workspace, without refreshing anything.
func (w *world) status() string {
	w.t.Helper()
	return w.gitRun("--no-optional-locks", "status", "--porcelain=v1", "-uall")
}

// result is what one run of the binary said.
type result struct {
	t      testing.TB
	args   []string
	code   int // -1: killed by a signal
	out    []byte
	errs   string
	answer map[string]any // of --json; nil if stdout was no object
}

// run runs the binary. With --json among the arguments stdout is parsed.
func (w *world) run(args ...string) *result { w.t.Helper(); return w.runIn(w.root, nil, args...) }

func (w *world) runIn(dir string, stdin []byte, args ...string) *result {
	w.t.Helper()
	return w.start(dir, stdin, args...)()
}

// argv is the command line of the program under test.
func (w *world) argv(args []string) []string {
	if w.program != nil {
		return slices.Concat(w.program, args)
	}
	return append([]string{binary}, args...)
}

// start starts the binary; the function that it returns waits for the end.
func (w *world) start(dir string, stdin []byte, args ...string) func() *result {
	w.t.Helper()
	argv := w.argv(args)
	cmd := w.command(dir, argv[0], argv[1:]...)
	cmd.Env = append(cmd.Env, w.env...)
	cmd.Stdin = bytes.NewReader(stdin)
	return w.begin(cmd, args)
}

func (w *world) begin(cmd *exec.Cmd, args []string) func() *result {
	w.t.Helper()
	var out, errs bytes.Buffer
	if cmd.Stdout == nil {
		cmd.Stdout = &out
	}
	switch {
	case cmd.Stderr != nil:
	case w.stderr != nil:
		cmd.Stderr = io.MultiWriter(&errs, w.stderr)
	default:
		cmd.Stderr = &errs
	}
	must(w.t, cmd.Start())
	return func() *result {
		w.t.Helper()
		err := cmd.Wait()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			w.t.Fatal(err)
		}
		r := &result{t: w.t, args: args, code: cmd.ProcessState.ExitCode(), out: out.Bytes(), errs: errs.String()}
		if strings.Contains(r.errs, "panic:") || strings.Contains(r.errs, "goroutine ") {
			w.t.Fatalf("asp %s panicked:\n%s", strings.Join(args, " "), r.errs)
		}
		if slices.Contains(args, "--json") {
			d := json.NewDecoder(bytes.NewReader(r.out))
			d.UseNumber()
			_ = d.Decode(&r.answer)
		}
		return r
	}
}

// removeAll removes the world; directories may have been made read-only.
func (w *world) removeAll() {
	_ = filepath.WalkDir(w.base, func(p string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			_ = os.Chmod(p, 0o755)
		}
		return nil
	})
	if err := os.RemoveAll(w.base); err != nil {
		w.t.Errorf("clean up: %v", err)
	}
}

// verifyReceipts checks the chain of everything that the world was told.
func (w *world) verifyReceipts() {
	if w.broken || w.t.Failed() {
		return
	}
	if _, err := os.Stat(w.asp); err != nil {
		return
	}
	r := w.run("receipts", "verify", "--json")
	if r.code != 0 || r.answer["ok"] != true {
		w.t.Errorf("receipts verify: exit %d, %s %s", r.code, r.out, r.errs)
	}
}

func (w *world) receipts() []obj {
	w.t.Helper()
	r := w.run("receipts", "list", "--json")
	var out []obj
	must(w.t, jsonInto(r.out, &out))
	return out
}

// configure writes the trusted configuration.
func (w *world) configure(o obj) {
	w.t.Helper()
	b, err := json.Marshal(o)
	must(w.t, err)
	w.config(string(b))
}
