package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aspengine/asp/fixtures/demo"
	"github.com/aspengine/asp/internal/need"
)

// TestMainJob is the main job on real input, on the built binary: about a hundred
// files of a public module are renamed with a build as required check; the same
// patch is refused once it is stale; and a kill leaves all old or all new. `make
// run` shows the same steps.
func TestMainJob(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a large module; not in -short")
	}
	for _, tool := range []string{"go", "gofmt", "git"} {
		need.Tool(t, tool)
	}
	ctx := t.Context()
	binary := filepath.Join(t.TempDir(), "asp")
	if _, err := demo.Run(ctx, ".", "go", "build", "-o", binary, "."); err != nil {
		t.Fatal(err)
	}
	e, err := demo.New(ctx, ".", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if len(e.Files) < 50 {
		t.Fatalf("the patch changes %d files, want 50 or more", len(e.Files))
	}
	j := &job{Example: e, binary: binary}
	t.Run("stale", j.stale)
	t.Run("failing check", j.failing)
	t.Run("applied and undone", j.applied)
	t.Run("killed", j.killed)
}

type job struct {
	*demo.Example
	binary string
}

// asp runs one command line and returns its exit status and standard output.
func (j *job) asp(t *testing.T, args ...string) (int, string) {
	t.Helper()
	c := j.command(t, args...)
	var stderr strings.Builder
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil && c.ProcessState == nil {
		t.Fatal(err)
	}
	if stderr.Len() > 0 {
		t.Logf("asp %s: stderr: %s", args[0], stderr.String())
	}
	return c.ProcessState.ExitCode(), string(out)
}

func (j *job) command(t *testing.T, args ...string) *exec.Cmd {
	c := exec.CommandContext(t.Context(), j.binary, args...)
	c.Dir, c.Env = j.Repo, append(os.Environ(), "ASP_HOME="+j.Home)
	return c
}

// old demands that git sees no change at all.
func (j *job) old(t *testing.T) {
	t.Helper()
	st, err := j.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if st != "" {
		t.Fatalf("something is changed:\n%s", st)
	}
}

func (j *job) renamed(t *testing.T) bool {
	t.Helper()
	ok, err := j.Renamed(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return ok
}

func (j *job) git(t *testing.T, args ...string) {
	t.Helper()
	if _, err := demo.Run(t.Context(), j.Repo, "git", args...); err != nil {
		t.Fatal(err)
	}
}

func (j *job) stale(t *testing.T) {
	paths, err := j.MakeStale(t.Context(), 3)
	if err != nil {
		t.Fatal(err)
	}
	code, out := j.asp(t, "apply", "--patch", j.Patch, "--check", "build")
	if code != exitRefused {
		t.Fatalf("exit status %d, want %d; %s", code, exitRefused, out)
	}
	j.old(t)
	var got []string
	for l := range strings.Lines(out) {
		if rest, ok := strings.CutPrefix(l, "  stale-basis: \""); ok {
			path, detail, _ := strings.Cut(rest, "\"")
			if !strings.HasPrefix(detail, " hunk 1 ") {
				t.Errorf("%s: %q names no hunk", path, detail)
			}
			got = append(got, path)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, paths) {
		t.Errorf("refused for %q, want all of %q", got, paths)
	}
	j.git(t, "reset", "-q", "--hard", "HEAD~")
}

// failing breaks the build of one renamed package: the check must stop the
// whole patch.
func (j *job) failing(t *testing.T) {
	name := filepath.Join(j.Repo, "go", "analysis", "uses_old_name.go")
	if err := os.WriteFile(name, []byte("package analysis\n\nvar _ = Pass{}.TypesInfo\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := j.Commit(t.Context(), "a user of the old name"); err != nil {
		t.Fatal(err)
	}
	code, out := j.asp(t, "apply", "--patch", j.Patch, "--check", "build")
	if code != exitRefused || !strings.Contains(out, "uses_old_name.go") {
		t.Fatalf("exit status %d, want %d and the compiler's complaint; %s", code, exitRefused, out)
	}
	j.old(t)
	j.git(t, "reset", "-q", "--hard", "HEAD~")
}

func (j *job) applied(t *testing.T) {
	code, out := j.asp(t, "apply", "--patch", j.Patch, "--check", "build", "--json")
	if code != exitOK {
		t.Fatalf("exit status %d; %s", code, out)
	}
	if !j.renamed(t) {
		t.Fatal("the tree is not what the patch makes")
	}
	var answer struct {
		Applied bool
		Receipt struct {
			ReceiptID string
			Assurance struct{ TransactionGuarantee, Detail string }
			Coverage  struct{ Ran, Required []string }
		}
	}
	parse(t, out, &answer)
	want := []string{"command/build"}
	r := answer.Receipt
	if !answer.Applied || !slices.Equal(r.Coverage.Ran, want) || !slices.Equal(r.Coverage.Required, want) {
		t.Errorf("applied %t, ran %q of %q; want true with %q", answer.Applied, r.Coverage.Ran, r.Coverage.Required, want)
	}
	if r.Assurance.TransactionGuarantee == "" || r.Assurance.Detail == "" {
		t.Error("the receipt names no guarantee")
	}
	t.Logf("guarantee %s: %s", r.Assurance.TransactionGuarantee, r.Assurance.Detail)
	if code, out := j.asp(t, "receipts", "verify"); code != exitOK {
		t.Errorf("receipts verify: exit status %d; %s", code, out)
	}
	if code, out := j.asp(t, "undo", r.ReceiptID); code != exitOK {
		t.Fatalf("undo: exit status %d; %s", code, out)
	}
	j.old(t)
}

func (j *job) killed(t *testing.T) {
	const rounds = 5
	middle := 0
	for range rounds {
		k, err := j.Kill(t.Context(), j.command(t, "apply", "--patch", j.Patch))
		if err != nil {
			t.Fatal(err)
		}
		if k.Middle() {
			middle++
		}
		for range 2 { // recovery is idempotent
			if code, out := j.asp(t, "recover"); code != exitOK {
				t.Fatalf("recover after %+v: exit status %d; %s", k, code, out)
			}
			if j.renamed(t) {
				continue
			}
			j.old(t)
		}
		j.git(t, "checkout", "-q", ".")
	}
	t.Logf("%d of %d kills hit between the first and the last file", middle, rounds)
	if code, out := j.asp(t, "receipts", "verify"); code != exitOK {
		t.Errorf("receipts verify: exit status %d; %s", code, out)
	}
}

func parse(t *testing.T, out string, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(out), v); err != nil {
		t.Fatalf("%v in %.500q", err, out)
	}
}
