package conformance

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/internal/need"
	"github.com/aspengine/asp/seam/wire"
)

// binary is the built command, and seededBinary the seeded provider by itself. They
// are set once, before any test runs.
var binary, seededBinary string

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == proxyWord {
		os.Exit(proxy(os.Args[2:]))
	}
	os.Exit(mainTest(m))
}

// TestSources: a result that go test kept is one of the sources as they are.
func TestSources(t *testing.T) {
	if err := need.Source(); err != nil {
		t.Fatal(err)
	}
}

func mainTest(m *testing.M) int {
	dir, err := os.MkdirTemp("", "conformance-bin-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	build := func(pkg string) (name string, err error) {
		name = filepath.Join(dir, filepath.Base(pkg))
		cmd := exec.CommandContext(ctx, "go", "build", "-o", name, "github.com/aspengine/asp/"+pkg)
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		return name, cmd.Run()
	}
	if binary = os.Getenv("ASP_BINARY"); binary == "" { // else it was built elsewhere
		binary, err = build("cmd/asp")
	}
	if err == nil {
		seededBinary, err = build("fixtures/seeded")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "build the commands:", err)
		return 1
	}
	return m.Run()
}

// long tells whether the long forms were asked for.
func long() bool { return os.Getenv("ASP_CRASH") == "long" }

// newTrial is a trial of the built binary that reports to t.
func newTrial(t testing.TB, id string) *trial {
	t.Helper()
	need.Tool(t, "git")
	dir, err := os.MkdirTemp("", "conformance-test-")
	if err != nil {
		t.Fatal(err)
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	r := &runner{o: Options{Host: []string{binary}, Self: []string{seededBinary}}, self: []string{seededBinary}, dir: dir, token: filepath.Base(dir)}
	if r.selfSum, err = fileSum(seededBinary); err != nil {
		t.Fatal(err)
	}
	tr := r.trial(requirement{id: id})
	t.Cleanup(func() {
		tr.end(context.Background())
		for _, p := range tr.problems {
			t.Error(p)
		}
		if t.Failed() {
			for _, e := range tr.evidence[max(0, len(tr.evidence)-3):] {
				v, _ := canon.From(e)
				t.Logf("%s", clip(string(v.Bytes()), 3000))
			}
		}
		os.RemoveAll(dir)
	})
	return tr
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// suite runs `asp conformance` and returns its report.
func suite(t *testing.T, args ...string) (Report, canon.Value) {
	t.Helper()
	need.Tool(t, "git")
	cmd := exec.Command(binary, append([]string{"conformance", "--json"}, args...)...)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	v, perr := canon.Parse(out, canon.Limits{})
	if perr != nil {
		t.Fatalf("%v: %v: %.300q %s", err, perr, out, said.String())
	}
	var r Report
	if err := wire.Decode(v, &r); err != nil {
		t.Fatalf("the report is outside its own shape: %v", err)
	}
	if passed := err == nil; passed != (r.Summary.Result == Pass) {
		t.Errorf("exit status %v, and the summary says %s", err, r.Summary.Result)
	}
	return r, v
}

// TestConformance runs the whole suite on the built binary; every requirement is
// a subtest by its id.
func TestConformance(t *testing.T) {
	r, _ := suite(t)
	if got, want := r.Summary.Total, len(IDs()); got != want {
		t.Errorf("%d requirements in the report, %d in the contract", got, want)
	}
	for _, q := range r.Requirements {
		t.Run(q.ID, func(t *testing.T) {
			if q.Result != Pass {
				t.Errorf("%s:\n%s", q.Result, strings.Join(q.Problems, "\n"))
			}
			if len(q.Evidence) == 0 {
				t.Error("no evidence")
			}
		})
	}
}

// TestIDs holds the list against the one of the contract.
func TestIDs(t *testing.T) {
	want := map[string]int{Core: 18, Server: 12, Hostile: 19, Edit: 16, Assurance: 7}
	for p, n := range want {
		if got := IDs(p); len(got) != n {
			t.Errorf("%s: %d ids, want %d: %q", p, len(got), n, got)
		}
	}
	all := IDs()
	if s := slices.Compact(sorted(all)); len(s) != len(all) || len(all) != 72 {
		t.Errorf("%d ids, %d different", len(all), len(s))
	}
}

// TestReportIsDeterministic runs a part twice with one seed.
func TestReportIsDeterministic(t *testing.T) {
	args := []string{"--only", "CORE-HOST-EVALUATE,HOSTILE-PROVIDER-ERROR,EDIT-HOST-POSITIVE-APPLY,CORE-SERVER-VALID-RESULTS", "--seed", "7"}
	_, a := suite(t, args...)
	_, b := suite(t, args...)
	strip := func(v canon.Value) canon.Value { return withoutVolatile(v) }
	if x, y := string(strip(a).Bytes()), string(strip(b).Bytes()); x != y {
		i := 0
		for i < len(x) && i < len(y) && x[i] == y[i] {
			i++
		}
		t.Errorf("two runs with one seed differ:\n…%.300s\n…%.300s", x[max(0, i-100):], y[max(0, i-100):])
	}
}

func withoutVolatile(v canon.Value) canon.Value {
	switch v.Kind() {
	case canon.Array:
		items := each(v)
		for i := range items {
			items[i] = withoutVolatile(items[i])
		}
		return canon.ArrayOf(items...)
	case canon.Object:
		var ms []canon.Member
		for k, m := range v.Members() {
			if k != "volatile" {
				ms = append(ms, canon.Member{Key: k, Value: withoutVolatile(m)})
			}
		}
		return canon.ObjectOf(ms...)
	}
	return v
}
