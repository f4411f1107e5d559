// Package gitoracle runs the installed git over throw-away repositories, so
// that tests can compare our answers with its own. Tests only.
package gitoracle

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Repo is a repository in a temporary directory, cut off from the settings of
// the user and the machine.
type Repo struct {
	Root   string // work tree
	Home   string // HOME of git, empty at first
	git    string
	system string // stands in for /etc/gitconfig
}

// New makes an empty repository. The test is skipped where git is missing.
func New(t testing.TB) *Repo {
	t.Helper()
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("git is not installed; it is what the answers are compared with")
	}
	top := t.TempDir()
	r := &Repo{
		Root: filepath.Join(top, "w"), Home: filepath.Join(top, "home"), git: git,
		system: filepath.Join(top, "system"),
	}
	// What "git init" makes, without the cost of a process.
	for _, d := range []string{".git/objects", ".git/refs", ".git/info"} {
		r.Mkdir(t, d)
	}
	if err := os.Mkdir(r.Home, 0o700); err != nil {
		t.Fatal(err)
	}
	r.Write(t, ".git/HEAD", "ref: refs/heads/main\n")
	r.Write(t, ".git/config", "[core]\n\trepositoryformatversion = 0\n")
	return r
}

// System is the path of the file that git takes for the system configuration;
// it does not exist at first.
func (r *Repo) System() string { return r.system }

// Mkdir makes a directory and its parents below the root.
func (r *Repo) Mkdir(t testing.TB, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(r.Root, path), 0o755); err != nil {
		t.Fatal(err)
	}
}

// Write makes a file and its parents below the root; an absolute path is taken
// as it is.
func (r *Repo) Write(t testing.TB, path, content string) {
	t.Helper()
	if !filepath.IsAbs(path) {
		path = filepath.Join(r.Root, path)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Run runs git in the work tree and returns its output and whether it ended
// with status 0; if it did not and printed nothing, what it complained of.
func (r *Repo) Run(t testing.TB, stdin string, args ...string) (out []byte, ok bool) {
	t.Helper()
	c := exec.Command(r.git, args...)
	c.Dir = r.Root
	c.Env = []string{
		"HOME=" + r.Home, "PATH=" + os.Getenv("PATH"), "LC_ALL=C", "GIT_CONFIG_SYSTEM=" + r.system,
		"GIT_ATTR_NOSYSTEM=1", "GIT_CEILING_DIRECTORIES=" + filepath.Dir(r.Root), "GIT_OPTIONAL_LOCKS=0",
	}
	c.Stdin = strings.NewReader(stdin)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		if _, exited := err.(*exec.ExitError); !exited {
			t.Fatalf("git %q: %v", args, err)
		}
		if len(out) == 0 {
			out = stderr.Bytes()
		}
		return out, false
	}
	return out, true
}

// Git is Run that fails the test unless git ends with status 0.
func (r *Repo) Git(t testing.TB, stdin string, args ...string) []byte {
	t.Helper()
	out, ok := r.Run(t, stdin, args...)
	if !ok {
		t.Fatalf("git %.200q: %.300q", args, out)
	}
	return out
}

// Fields splits output that was asked for with -z.
func Fields(out []byte) []string {
	s := strings.Split(string(out), "\x00")
	return s[:len(s)-1]
}
