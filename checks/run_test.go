package checks_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/aspengine/asp/checks"
	"github.com/aspengine/asp/seam/wire"
	"github.com/aspengine/asp/snapshot"
	"github.com/aspengine/asp/worktree"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake answers with a fixed status and writes down that it ran.
type fake struct {
	name   string
	status checks.Status
	err    error
	log    *[]string
	seen   *[]string // scratch directories
}

func (f fake) Name() string { return f.name }

func (f fake) Run(_ context.Context, c *worktree.Candidate) (checks.Result, error) {
	*f.log = append(*f.log, f.name)
	*f.seen = append(*f.seen, c.Scratch)
	return checks.Result{Name: "forged", Status: f.status}, f.err
}

// bench is a scripted run: drift returns the n-th entry at its n-th call.
type bench struct {
	t     *testing.T
	base  string
	log   []string
	seen  []string
	drift [][]string
}

func newBench(t *testing.T, drift ...[]string) *bench {
	return &bench{t: t, base: t.TempDir(), drift: drift}
}

func (b *bench) check(name string, s checks.Status) checks.Check {
	return fake{name: name, status: s, log: &b.log, seen: &b.seen}
}

func (b *bench) run(list ...checks.Check) (checks.Report, error) {
	p, err := snapshot.ParsePath("touched/file")
	if err != nil {
		b.t.Fatal(err)
	}
	n, calls := 0, 0
	rep, err := checks.Run(context.Background(), list,
		func(context.Context) (*worktree.Candidate, error) {
			n++
			d := filepath.Join(b.base, fmt.Sprintf("c%d", n))
			return &worktree.Candidate{Scratch: d, Method: worktree.Copy, Env: snapshot.Ignored{Names: []string{"ign"}, Count: 1}, Effects: []snapshot.Effect{{Path: p}}}, os.Mkdir(d, 0o700)
		},
		func(context.Context) ([]string, error) {
			calls++
			if calls <= len(b.drift) {
				return b.drift[calls-1], nil
			}
			return nil, nil
		}, checks.Options{Touched: []snapshot.Effect{{Path: p}}})
	for _, d := range b.seen {
		if _, err := os.Lstat(d); err == nil {
			b.t.Errorf("candidate %s is left", d)
		}
	}
	seen := map[string]bool{}
	for _, d := range b.seen {
		if seen[d] {
			b.t.Error("two runs shared a candidate")
		}
		seen[d] = true
	}
	return rep, err
}

func statuses(r checks.Report) (out []string) {
	for _, x := range r.Results {
		out = append(out, fmt.Sprintf("%s %s %d", x.Name, x.Status, x.Runs))
	}
	return out
}

func TestRun(t *testing.T) {
	other := []string{"other"}
	for _, c := range []struct {
		name    string
		drift   [][]string
		log     []string
		want    []string
		under   []string
		passed  bool
		statusB checks.Status
	}{
		{"quiet", nil, []string{"a", "b"}, []string{"a passed 1", "b passed 1"}, nil, true, checks.Passed},
		{"one fails, all run", nil, []string{"a", "b"}, []string{"a passed 1", "b failed 1"}, nil, false, checks.Failed},
		{"drift under a: a again", [][]string{other}, []string{"a", "a", "b"}, []string{"a passed 2", "b passed 1"}, nil, true, checks.Passed},
		{"drift under b: both verdicts are void", [][]string{nil, other}, []string{"a", "b", "a", "b"}, []string{"a passed 2", "b passed 2"}, nil, true, checks.Passed},
		{"never still", [][]string{other, other, other, other, other, other}, []string{"a", "a", "a", "b", "b", "b"}, []string{"a stale 3", "b stale 3"}, nil, false, checks.Passed},
		{"touched", [][]string{{"other", "touched/file"}}, []string{"a"}, []string{"a stale 1"}, []string{"touched/file"}, false, checks.Passed},
		{"parent of touched", [][]string{{"touched"}}, []string{"a"}, []string{"a stale 1"}, []string{"touched"}, false, checks.Passed},
		{"sibling name is no parent", [][]string{{"touched/file2"}}, []string{"a", "a", "b"}, []string{"a passed 2", "b passed 1"}, nil, true, checks.Passed},
	} {
		b := newBench(t, c.drift...)
		rep, err := b.run(b.check("a", checks.Passed), b.check("b", c.statusB))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if d := cmp.Diff(c.log, b.log); d != "" {
			t.Errorf("%s: runs: %s", c.name, d)
		}
		if d := cmp.Diff(c.want, statuses(rep)); d != "" {
			t.Errorf("%s: results: %s", c.name, d)
		}
		if d := cmp.Diff(c.under, rep.ChangedUnderneath); d != "" {
			t.Errorf("%s: changed underneath: %s", c.name, d)
		}
		if rep.Passed() != c.passed {
			t.Errorf("%s: passed %v", c.name, rep.Passed())
		}
		if len(c.under) > 0 && !strings.Contains(rep.Results[0].Detail, "during its run (") || strings.Contains(rep.Results[0].Detail, "()") {
			t.Errorf("%s: nothing is named: %s", c.name, rep.Results[0].Detail)
		}
		if rep.Results[0].Env.Names[0] != "ign" || rep.Results[0].Method != worktree.Copy {
			t.Errorf("%s: candidate's facts are missing: %+v", c.name, rep.Results[0])
		}
	}
}

func TestErrorsStopTheRun(t *testing.T) {
	boom := errors.New("boom")
	b := newBench(t)
	if _, err := b.run(fake{"a", checks.Passed, boom, &b.log, &b.seen}, b.check("b", checks.Passed)); !errors.Is(err, boom) || len(b.log) != 1 {
		t.Errorf("check: %v, %v", err, b.log)
	}
	_, err := checks.Run(context.Background(), []checks.Check{b.check("a", checks.Passed)},
		func(context.Context) (*worktree.Candidate, error) { return nil, boom }, nil, checks.Options{})
	if !errors.Is(err, boom) {
		t.Errorf("build: %v", err)
	}
	_, err = checks.Run(context.Background(), []checks.Check{b.check("a", checks.Passed)},
		func(context.Context) (*worktree.Candidate, error) { return &worktree.Candidate{}, nil },
		func(context.Context) ([]string, error) { return nil, boom }, checks.Options{})
	if !errors.Is(err, boom) {
		t.Errorf("drift: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	rep, err := checks.Run(ctx, []checks.Check{b.check("a", checks.Passed), b.check("b", checks.Passed)},
		func(ctx context.Context) (*worktree.Candidate, error) { return nil, ctx.Err() }, nil, checks.Options{})
	if err != nil || rep.Passed() || rep.Results[1].Status != checks.Cancelled {
		t.Errorf("cancelled: %v %+v", err, rep)
	}
}

// remote waits until all remote checks run at once, and demands that no
// candidate was made for it.
type remote struct {
	name string
	t    *testing.T
	all  *sync.WaitGroup
	res  checks.Result
}

func (r remote) Name() string { return r.name }
func (r remote) Remote() bool { return true }
func (r remote) Run(_ context.Context, c *worktree.Candidate) (checks.Result, error) {
	if c != nil {
		r.t.Error("a remote check got a candidate")
	}
	if r.all != nil {
		r.all.Done()
		r.all.Wait() // ends only if the others run, too
	}
	return r.res, nil
}

func TestRemoteChecksRunAtOnceWithoutACandidate(t *testing.T) {
	var all sync.WaitGroup
	all.Add(3)
	b := newBench(t)
	list := []checks.Check{b.check("command/a", checks.Passed)}
	for _, n := range []string{"provider/x", "provider/y", "provider/z"} {
		list = append(list, remote{n, t, &all, checks.Result{Status: checks.Passed}})
	}
	rep, err := b.run(list...)
	if err != nil || !rep.Passed() || len(rep.Results) != 4 || len(b.seen) != 1 {
		t.Fatalf("%+v, %v, %d candidates", rep, err, len(b.seen))
	}
	for i, c := range list {
		if rep.Results[i].Name != c.Name() || rep.Results[i].Runs != 1 {
			t.Errorf("result %d is %s after %d runs", i, rep.Results[i].Name, rep.Results[i].Runs)
		}
	}
}

func TestRemoteChecksSeeDrift(t *testing.T) {
	for _, c := range []struct {
		drift [][]string
		runs  int
		under int
		want  checks.Status
	}{
		{[][]string{{"other"}}, 2, 0, checks.Passed},
		{[][]string{{"other"}, {"other"}, {"other"}}, 3, 0, checks.Stale},
		{[][]string{{"touched/file"}}, 1, 1, checks.Stale},
	} {
		b := newBench(t, c.drift...)
		rep, err := b.run(remote{"provider/x", t, nil, checks.Result{Status: checks.Passed, Provided: checks.Provided{Diagnostics: []wire.Diagnostic{{Code: "a"}}}}})
		if err != nil || len(rep.ChangedUnderneath) != c.under || rep.Results[0].Status != c.want || rep.Results[0].Runs != c.runs {
			t.Errorf("%v: %+v, %v", c.drift, rep, err)
		}
		if (c.want == checks.Stale) != (rep.Results[0].Diagnostics == nil) {
			t.Errorf("%v: findings of a void verdict: %v", c.drift, rep.Results[0].Diagnostics)
		}
	}
}
