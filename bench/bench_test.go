package main

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aspengine/asp/apply/commit"
	"github.com/aspengine/asp/internal/need"
	"github.com/aspengine/asp/internal/vfs"
)

func testRepo(t *testing.T, files, changed int) (*repo, *change) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		need.Missing(t, "git is not installed")
	}
	for k, v := range map[string]string{"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.DevNull, "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"} {
		t.Setenv(k, v)
	}
	r, err := newRepo(t.TempDir(), files)
	if err != nil {
		t.Fatal(err)
	}
	ch, err := r.change(changed)
	if err != nil {
		t.Fatal(err)
	}
	return r, ch
}

// The contenders must do the same work: the floor and the commit room both
// leave exactly the after-images, and restoring leaves a clean tree.
func TestContendersDoTheWork(t *testing.T) {
	r, ch := testRepo(t, 60, 7)
	if err := ch.verify(r); err == nil {
		t.Fatal("the change is there before it was made")
	}
	root, err := vfs.OS{}.OpenRoot(r.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for name, run := range map[string]func() error{
		"floor":     func() error { return ch.floor(root, r) },
		"commit":    func() error { return ch.commit(context.Background(), root, r, commit.SyncFS) },
		"git apply": func() error { return r.git("apply", ch.patch) },
	} {
		if err := run(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := r.restore(ch)(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := os.RemoveAll(r.aside()); err != nil {
			t.Fatal(err)
		}
		if out, err := output(r.dir, "git", "status", "--porcelain"); err != nil || len(out) > 0 {
			t.Errorf("after %s and back: %v %s", name, err, out)
		}
	}
	if err := chain(r.lstatAll, r.hashAll)(); err != nil {
		t.Error(err)
	}
	if err := os.Remove(filepath.Join(r.dir, r.files[3])); err != nil {
		t.Fatal(err)
	}
	if r.lstatAll() == nil || r.hashAll() == nil {
		t.Error("a floor does not notice a missing file")
	}
}

func TestReversedPatchGoesBack(t *testing.T) {
	r, ch := testRepo(t, 30, 3)
	b, err := os.ReadFile(ch.patch)
	if err != nil {
		t.Fatal(err)
	}
	back := filepath.Join(t.TempDir(), "back.patch")
	if err := os.WriteFile(back, reversed(b), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := chain(func() error { return r.git("apply", ch.patch) }, func() error { return ch.verify(r) }, func() error { return r.git("apply", back) })(); err != nil {
		t.Fatal(err)
	}
	if out, err := output(r.dir, "git", "status", "--porcelain"); err != nil || len(out) > 0 {
		t.Errorf("%v %s", err, out)
	}
}

func TestVerdicts(t *testing.T) {
	rep := &report{c: &config{runs: 7}}
	rep.add(row{What: "a", Unit: "ms", Ours: 10, Peer: 10, Floor: 4}, limit{1, "peer"}, limit{2.5, "floor"})
	rep.add(row{What: "b", Unit: "ms", Ours: 11, Peer: 10, Floor: 4}, limit{1, "peer"}, limit{2.5, "floor"})
	rep.add(row{What: "c", Unit: "ms", Ours: 1}, limit{1, "peer"})
	rep.most(row{What: "d", Unit: "B", Ours: 3 << 20}, 1<<20)
	rep.add(row{What: "e", Unit: "ms", Ours: 1})
	want := []string{"met", "missed: 1.10 × peer; missed: 2.75 × floor", "no peer measured", "missed: 3.00 × the goal", ""}
	for i, w := range want {
		if rep.Rows[i].Verdict != w {
			t.Errorf("row %s: %q, want %q", rep.Rows[i].What, rep.Rows[i].Verdict, w)
		}
	}
	var out strings.Builder
	rep.table(&out)
	if !strings.Contains(out.String(), "1 goals met, 2 missed") || !strings.Contains(out.String(), "3.0 MiB") {
		t.Error(out.String())
	}
}

// TestHostRows has a host measured once on few files: every step of the rows is
// held against what it has to come to, the verdict from memory too.
func TestHostRows(t *testing.T) {
	testRepo(t, 1, 1) // for the environment
	c := &config{runs: 1, hosts: []int{30}, medium: 30, mem: t.TempDir(), memType: "any", asp: filepath.Join(t.TempDir(), "asp")}
	c.out = &report{c: c}
	build := exec.Command("go", "build", "-o", c.asp, "github.com/aspengine/asp/cmd/asp")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := c.hostRows(t.Context()); err != nil {
		t.Fatal(err)
	}
	var timed int
	for _, r := range c.out.Rows {
		if r.Ours > 0 && r.Goal != "" {
			timed++
		}
	}
	if timed != 5 {
		t.Errorf("%d rows with a goal, want 5: %+v", timed, c.out.Rows)
	}
}

// TestChart holds the chart that is committed against the rows that are: it is
// what bench draws of them, and is a picture with two bars for each row.
func TestChart(t *testing.T) {
	out := filepath.Join(t.TempDir(), "bench.svg")
	if err := drawChart(out, "../docs/bench.json"); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("../docs/bench.svg")
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("docs/bench.svg is not drawn from docs/bench.json (make chart draws it): %v", err)
	}
	d := xml.NewDecoder(bytes.NewReader(got))
	for {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	var r report
	b, err := os.ReadFile("../docs/bench.json")
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil {
		t.Fatal(err)
	}
	if bars, rows := bytes.Count(got, []byte("<rect"))-1, len(charted(r.Rows)); rows < 3 || bars != 2*rows {
		t.Errorf("%d bars for %d rows", bars, rows)
	}
}

// TestPage holds the rows in the page against the rows that are.
func TestPage(t *testing.T) {
	want, err := os.ReadFile("../docs/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	r, err := readReport("../docs/bench.json")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := page(string(want), r); err != nil || got != string(want) {
		t.Errorf("docs/performance.md has other rows than docs/bench.json (make chart puts them in): %v", err)
	}
	r = &report{Form: "short", Rows: []row{{Group: "start", What: "… later", Where: "tmpfs", Unit: "ms", Ours: 2, Goal: "≤ 1 × peer, ≤ 1 × floor", Verdict: "missed: 2.00 × peer; missed: 3.00 × floor"}}}
	got, err := page("a\n"+rowsMark+"old\n"+endMark+"b\n"+missedMark+endMark+"c\n", r)
	if err != nil || !strings.Contains(got, "| … later | tmpfs | 2.00 ms |") || strings.Contains(got, "old") || !strings.Contains(got, "nothing was measured of apply, ") ||
		!strings.Contains(got, endMark+"b\n"+missedMark+"- `start`\n  - later (tmpfs): 2.00 × peer; 3.00 × floor, goal ≤ 1 × peer, ≤ 1 × floor\n"+endMark+"c\n") {
		t.Errorf("%v\n%s", err, got)
	}
	if _, err := page(rowsMark+endMark, r); err == nil {
		t.Error("a page without a place for what was missed")
	}
}

// TestProgram: a binary that is named from here is found from everywhere.
func TestProgram(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	if err := os.WriteFile("asp", nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("asp", "link"); err != nil {
		t.Fatal(err)
	}
	if got, err := program("./link"); err != nil || got != filepath.Join(dir, "asp") {
		t.Errorf("%q %v", got, err)
	}
}

// TestChartEscapes: what stands in a report is text in the picture.
func TestChartEscapes(t *testing.T) {
	got, err := chart(&report{Host: "<h&>", Rows: []row{{Group: "start", What: `<b>"&`, Unit: "ms", Ours: 1, Peer: 1000, PeerIs: "</svg>"}}})
	if err != nil || bytes.Contains(got, []byte("<b>")) || bytes.Count(got, []byte("</svg>")) != 1 || bytes.Contains(got, []byte("<h&>")) {
		t.Errorf("%v %s", err, got)
	}
	if _, err := chart(&report{}); err == nil {
		t.Error("a chart of nothing")
	}
}
