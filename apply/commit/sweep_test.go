package commit_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/aspengine/asp/apply/commit"
	"github.com/aspengine/asp/apply/journal"
	"github.com/aspengine/asp/internal/need"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/internal/vfs/faultfs"
	"github.com/aspengine/asp/internal/vfs/memfs"
)

// scenario is one plan on one tree, small enough to be stopped everywhere.
type scenario struct {
	name    string
	before  tree
	after   tree
	changes func(t testing.TB) []commit.Change
	extra   func() []commit.ExtraFile
	aside   bool // on a system without an exchange
}

// world makes the workspace before the scenario.
func (s scenario) world(t testing.TB) *world {
	t.Helper()
	return newWorldOn(t, memfs.New(memfs.Options{Umask: 0o022, NoExchange: s.aside}), s.before)
}

var base = tree{
	"a": file(0o644, "a old\n"), "c": file(0o644, "c old\n"), "d": file(0o644, "d old\n"), "f": file(0o755, "f old\n"),
	"dir": "d:0755", "dir/x": file(0o644, "x old\n"), "dir/sub": "d:0700", "dir/sub/y": file(0o600, "y old\n"),
	"lone": "d:0755", "lone/z": file(0o640, "z\n"), "ln": "l:a", "bystander": file(0o604, "keep\n"),
	".git/index": file(0o644, "index old"),
}

func scenarios() []scenario {
	one := func(cs ...commit.Change) []commit.Change { return cs }
	b := base
	return []scenario{
		{"modify", b, with(b, func(s tree) { s["a"] = file(0o644, "a new, longer\n") }),
			func(t testing.TB) []commit.Change { return one(modify(t, "a", b["a"], file(0o644, "a new, longer\n"))) }, nil, false},
		{"create in new directories", b, with(b, func(s tree) { s["n"], s["n/m"], s["n/m/b"] = "d:0755", "d:0755", file(0o644, "b\n") }),
			func(t testing.TB) []commit.Change { return one(create(t, "n/m/b", "b\n", false)) }, nil, false},
		{"delete", b, with(b, func(s tree) { delete(s, "c") }),
			func(t testing.TB) []commit.Change { return one(remove(t, "c", b["c"])) }, nil, false},
		{"rename", b, with(b, func(s tree) { s["e"], s["e/d"] = "d:0755", s["d"]; delete(s, "d") }),
			func(t testing.TB) []commit.Change { return rename(t, "d", "e/d", b["d"]) }, nil, false},
		{"mode change", b, with(b, func(s tree) { s["a"] = file(0o755, "a old\n") }),
			func(t testing.TB) []commit.Change {
				c := modify(t, "a", b["a"], file(0o755, "a old\n"))
				c.After.Open = nil
				return one(c)
			}, nil, false},
		{"file becomes directory", b, with(b, func(s tree) { s["c"], s["c/in"] = "d:0755", file(0o644, "in\n") }),
			func(t testing.TB) []commit.Change {
				return one(remove(t, "c", b["c"]), create(t, "c/in", "in\n", false))
			}, nil, false},
		{"directory becomes file", b, with(b, func(s tree) {
			for _, p := range []string{"dir/x", "dir/sub", "dir/sub/y"} {
				delete(s, p)
			}
			s["dir"] = file(0o644, "now a file\n")
		}), func(t testing.TB) []commit.Change {
			return one(remove(t, "dir/x", b["dir/x"]), remove(t, "dir/sub/y", b["dir/sub/y"]), create(t, "dir", "now a file\n", false))
		}, nil, false},
		{"directory emptied", b, with(b, func(s tree) { delete(s, "lone"); delete(s, "lone/z"); delete(s, "dir/sub"); delete(s, "dir/sub/y") }),
			func(t testing.TB) []commit.Change {
				return one(remove(t, "lone/z", b["lone/z"]), remove(t, "dir/sub/y", b["dir/sub/y"]))
			}, nil, false},
		{"link deleted and moved", with(b, func(s tree) { s["ln2"] = "l:../outside" }),
			with(b, func(s tree) { delete(s, "ln"); s["dir/ln3"] = "l:../outside" }),
			func(t testing.TB) []commit.Change {
				return append(rename(t, "ln2", "dir/ln3", "l:../outside"), remove(t, "ln", b["ln"]))
			}, nil, false},
		{"link made", b, with(b, func(s tree) { s["ln4"] = "l:dir/x" }),
			func(t testing.TB) []commit.Change {
				return one(commit.Change{Path: path(t, "ln4"), After: image("l:dir/x")})
			}, nil, false},
		{"executable created", b, with(b, func(s tree) { s["tool"] = file(0o755, "#!\n") }),
			func(t testing.TB) []commit.Change { return one(create(t, "tool", "#!\n", true)) }, nil, false},
		{"CR-01 mixed", b, with(b, func(s tree) {
			s["a"], s["f"] = file(0o644, "a new\n"), file(0o755, "f new\n")
			s["n"], s["n/b"] = "d:0755", file(0o644, "b\n")
			s["e"], s["e/d"] = "d:0755", s["d"]
			delete(s, "c")
			delete(s, "d")
		}), func(t testing.TB) []commit.Change {
			cs := one(modify(t, "a", b["a"], file(0o644, "a new\n")), create(t, "n/b", "b\n", false), remove(t, "c", b["c"]))
			cs = append(cs, rename(t, "d", "e/d", b["d"])...)
			return append(cs, modify(t, "f", b["f"], file(0o755, "f new\n")))
		}, nil, false},
		{"file moved below itself", b, with(b, func(s tree) { s["c"], s["c/c"] = "d:0755", b["c"] }),
			func(t testing.TB) []commit.Change { return rename(t, "c", "c/c", b["c"]) }, nil, false},
		{"moved, and its name becomes a directory", b, with(b, func(s tree) { s["e"], s["c"], s["c/in"] = b["c"], "d:0755", file(0o644, "in\n") }),
			func(t testing.TB) []commit.Change {
				return append(rename(t, "c", "e", b["c"]), create(t, "c/in", "in\n", false))
			}, nil, false},
		{"names that turn into each other's directories", b, with(b, func(s tree) {
			delete(s, "c")
			delete(s, "d")
			s["c"], s["c/d"], s["d"], s["d/c"] = "d:0755", b["d"], "d:0755", b["c"]
		}), func(t testing.TB) []commit.Change {
			return append(rename(t, "c", "d/c", b["c"]), rename(t, "d", "c/d", b["d"])...)
		}, nil, false},
		{"file moved over its directory", with(b, func(s tree) { delete(s, "dir/sub"); delete(s, "dir/sub/y") }),
			with(b, func(s tree) {
				for _, p := range []string{"dir/x", "dir/sub", "dir/sub/y"} {
					delete(s, p)
				}
				s["dir"] = b["dir/x"]
			}), func(t testing.TB) []commit.Change { return rename(t, "dir/x", "dir", b["dir/x"]) }, nil, false},
		{"index in the same transaction", b, with(b, func(s tree) { s["a"] = file(0o644, "A\n"); s[".git/index"] = file(0o644, "index new") }),
			func(t testing.TB) []commit.Change { return one(modify(t, "a", b["a"], file(0o644, "A\n"))) },
			func() []commit.ExtraFile {
				before := image(b[".git/index"])
				before.Open = nil
				return []commit.ExtraFile{{DirPath: gitDir, Name: "index", Before: before, After: image(file(0o644, "index new"))}}
			}, false},
		{"renamed and edited", b, with(b, func(s tree) { s["g"] = file(0o755, "f new\n"); delete(s, "f") }),
			func(t testing.TB) []commit.Change {
				cs := rename(t, "f", "g", b["f"])
				cs[1].After = image(file(0o755, "f new\n"))
				return cs
			}, nil, false},
	}
}

var styles = []commit.SyncStyle{commit.SyncFS, commit.SyncEach}

// attempt runs the scenario on f. acknowledged: the caller was told that it is done.
func attempt(t testing.TB, w *world, f vfs.FS, s scenario, style commit.SyncStyle) (r commit.Result, acknowledged bool, err error) {
	e, done, err := w.env(f)
	if err != nil {
		return r, false, err
	}
	defer done()
	o := commit.Options{Tag: "proposal-1", Sync: style,
		Seal: func(context.Context, commit.Facts) ([]byte, error) { return []byte("evidence"), nil }}
	if s.extra != nil {
		o.Extra = s.extra()
	}
	r, err = runIn(e, "tx1", s.changes(t), o)
	return r, r.Outcome == commit.Committed, err
}

// decided reads the journal on f as an outsider: is there a commit record?
func decided(t testing.TB, f vfs.FS) bool {
	d, err := f.OpenRoot(txDir + "/tx1")
	if err != nil {
		return false
	}
	defer d.Close()
	j, err := d.Open("journal")
	if err != nil {
		return false
	}
	defer j.Close()
	l, err := journal.Read(j)
	if err != nil {
		t.Fatal(err)
	}
	return l.Committed
}

// perPath checks that each path is wholly as before or wholly as after. Without an
// exchange one that is both before and after may be neither, for a moment.
func perPath(t testing.TB, got tree, s scenario) {
	t.Helper()
	before, after := s.before, s.after
	for p, v := range got {
		if v != before[p] && v != after[p] {
			t.Fatalf("%s is neither old nor new: %q", p, v)
		}
	}
	for p := range before {
		if after[p] != "" && got[p] == "" && !s.aside {
			t.Fatalf("%s exists before and after, and not in between", p)
		}
	}
}

// recovered runs Recover until nothing is left and checks the result.
func recovered(t testing.TB, w *world, s scenario, must string, where ...any) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Log(where...)
		}
	}()
	committed := decided(t, w.fs)
	e, done := w.mustEnv(w.fs)
	defer done()
	stored := 0
	opt := commit.RecoverOptions{Completed: func(_ context.Context, r commit.Recovered) error {
		if string(r.Evidence) != "evidence" {
			t.Errorf("evidence %q", r.Evidence)
		}
		stored++
		return nil
	}}
	out, err := commit.Recover(context.Background(), e, opt)
	if err != nil {
		t.Fatalf("recover: %v", err)
	}
	again, err := commit.Recover(context.Background(), e, opt)
	if err != nil || len(again) != 0 {
		t.Fatalf("second recover: %v, %v", again, err)
	}
	if len(out) > 1 {
		t.Fatalf("reported %d times", len(out))
	}
	got := state(t, w.fs)
	switch {
	case len(out) == 1 && out[0].Outcome == commit.NeedsAttention:
		t.Fatalf("needs attention: %v", out[0].Paths)
	case committed:
		if len(out) != 1 || out[0].Outcome != commit.Committed || stored != 1 {
			t.Fatalf("a commit record, and recover says %+v (stored %d)", out, stored)
		}
		must = "new"
	}
	if len(out) == 1 && out[0].Tag != "" && out[0].Tag != "proposal-1" {
		t.Fatalf("tag %q", out[0].Tag)
	}
	switch must {
	case "new":
		same(t, "after recovery", got, s.after)
	case "old":
		same(t, "after recovery", got, s.before)
	default:
		if !equalTrees(got, s.before) {
			same(t, "after recovery, neither old nor new", got, s.after)
		}
	}
	if l := leftovers(t, w.fs); len(l) > 0 {
		t.Fatalf("left over: %v", l)
	}
}

func equalTrees(a, b tree) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if b[k] != v {
			return false
		}
	}
	return true
}

func TestScenarios(t *testing.T) { runScenarios(t, scenarios(), commit.WorkspaceTransactional) }

func runScenarios(t *testing.T, all []scenario, want commit.Guarantee) {
	for _, s := range all {
		for _, style := range styles {
			t.Run(s.name+"/"+style.String(), func(t *testing.T) {
				w := s.world(t)
				r, _, err := attempt(t, w, w.fs, s, style)
				if err != nil || r.Outcome != commit.Committed {
					t.Fatalf("%v %v %v", r.Outcome, r.Items, err)
				}
				same(t, "after", state(t, w.fs), s.after)
				if l := leftovers(t, w.fs); len(l) > 0 {
					t.Fatalf("left over: %v %v", l, r.Notes)
				}
				if g := r.Facts.Guarantee(); g != want {
					t.Errorf("guarantee %v: %s", g, r.Facts.Detail())
				}
				// Durable now, whatever the disk kept of the rest.
				for _, m := range memfs.Modes() {
					cut := &world{t, w.fs.Crash(m, rand.New(rand.NewPCG(1, 2)).IntN)}
					recovered(t, cut, s, "new")
				}
			})
		}
	}
}

// causes are what a system says of a device that fails, a full one, a used-up
// quota, too many open files, and a file system that became read-only.
var causes = []error{unix.EIO, unix.ENOSPC, unix.EDQUOT, unix.EMFILE, unix.EROFS, unix.EACCES}

// causeStep is how far apart the points of a cause are: the first meets every
// operation, the others a selection, and all of them every one in the long form.
func causeStep(i int) int {
	switch {
	case long():
		return 1
	case need.Race:
		return 7
	case i == 0:
		return 1
	case i == 1:
		return 3
	}
	return 11
}

// long asks for every point of a sweep and more power cuts at each.
func long() bool { return os.Getenv("ASP_CRASH") == "long" }

// seedsOf is how many ways of a power cut are tried at one point.
func seedsOf(m memfs.Mode) int {
	switch {
	case m != memfs.Random && m != memfs.Ordered:
		return 1
	case long():
		return 64
	case need.Race:
		return 1
	}
	return 4
}

// harmless are operations whose failure changes nothing that anybody was
// promised: closing handles that were only read, and hints.
func harmless(e faultfs.Event) bool {
	return e.Op == faultfs.CloseDir || e.Op == faultfs.Close || e.Op == faultfs.Writeback
}

func TestFaultSweep(t *testing.T) { faultSweep(t, scenarios(), causes) }

func faultSweep(t *testing.T, all []scenario, causes []error) {
	for _, s := range all {
		for _, style := range styles {
			for i, cause := range causes {
				t.Run(fmt.Sprintf("%s/%v/%v", s.name, style, cause), func(t *testing.T) {
					step := causeStep(i)
					for n := 1 + i%step; ; n += step {
						w := s.world(t)
						ff := faultfs.New(w.fs, faultfs.At(n, faultfs.Fault{Err: cause}))
						r, ack, err := attempt(t, w, ff, s, style)
						all, _ := ff.Counts()
						if all < n {
							break
						}
						hit := ff.Events()[n-1]
						at := fmt.Sprintf("fault %d %v: outcome %v, %v", n, hit, r.Outcome, err)
						denied := errors.Is(cause, unix.EACCES)
						// What may not be opened may be a link, which is then read as one.
						if err == nil && !harmless(hit) && len(r.Notes) == 0 && len(r.Items) == 0 && !(denied && hit.Op == faultfs.Open) {
							t.Fatalf("%s: not surfaced", at)
						}
						switch {
						case ack && denied && len(r.Notes) > 0:
							// An empty directory that may not be removed stays, and that is said.
							same(t, at, withoutEmptied(state(t, w.fs), s), s.after)
						case ack:
							perPath(t, state(t, w.fs), s)
							recovered(t, w, s, "new")
						case r.Outcome == commit.NeedsAttention:
							if !errors.Is(err, commit.ErrIndeterminate) && !strings.Contains(at, "undo") {
								t.Fatalf("%s: attention", at)
							}
							recovered(t, w, s, "")
						default:
							if !equalTrees(state(t, w.fs), s.before) {
								t.Log(at)
								same(t, at, state(t, w.fs), s.before)
							}
							recovered(t, w, s, "old")
						}
						if t.Failed() {
							t.Fatal(at)
						}
					}
				})
			}
		}
	}
}

func TestDeathSweep(t *testing.T) { deathSweep(t, scenarios()) }

func deathSweep(t *testing.T, all []scenario) {
	for _, s := range all {
		for _, style := range styles {
			for _, when := range []faultfs.Death{faultfs.DiesBefore, faultfs.DiesAfter} {
				t.Run(fmt.Sprintf("%s/%v/%d", s.name, style, when), func(t *testing.T) {
					for n := 1; ; n++ {
						w := s.world(t)
						ff := faultfs.New(w.fs, faultfs.AtMutation(n, faultfs.Fault{Death: when, Short: n % 3 * 20}))
						_, ack, _ := attempt(t, w, ff, s, style)
						if !ff.Dead() {
							break
						}
						must := ""
						if ack { // it died in the clean-up
							must = "new"
						}
						w.fs.Kill()
						perPath(t, state(t, w.fs), s)
						if n%4 == 0 {
							deadInRecovery(t, w, s)
						}
						recovered(t, w, s, must)
						if t.Failed() {
							t.Fatalf("died at mutation %d: %v", n, last(ff))
						}
					}
				})
			}
		}
	}
}

func last(f *faultfs.FS) faultfs.Event {
	all := f.Events()
	return all[len(all)-1]
}

// deadInRecovery lets recovery die at each of its own operations in turn, on the
// same workspace.
func deadInRecovery(t testing.TB, w *world, s scenario) {
	for n := 1; n < 400; n++ {
		committed := decided(t, w.fs)
		ff := faultfs.New(w.fs, faultfs.AtMutation(n, faultfs.Fault{Death: faultfs.DiesAfter}))
		e, done, err := w.env(ff)
		if err != nil {
			t.Fatal(err)
		}
		_, err = commit.Recover(context.Background(), e, commit.RecoverOptions{})
		done()
		if !ff.Dead() {
			if err != nil {
				t.Fatal(err)
			}
			return
		}
		w.fs.Kill()
		perPath(t, state(t, w.fs), s)
		if committed {
			same(t, "committed", withoutEmptied(state(t, w.fs), s), s.after)
		}
	}
}

// withoutEmptied takes away the directories that a committed plan still has to
// remove.
func withoutEmptied(got tree, s scenario) tree {
	return with(got, func(g tree) {
		for p, v := range g {
			if strings.HasPrefix(v, "d:") && s.after[p] == "" {
				delete(g, p)
			}
		}
	})
}

func TestPowerCutSweep(t *testing.T) { powerCutSweep(t, scenarios()) }

func powerCutSweep(t *testing.T, all []scenario) {
	for _, s := range all {
		for _, style := range styles {
			t.Run(s.name+"/"+style.String(), func(t *testing.T) {
				for n := 1; ; n++ {
					w := s.world(t)
					ff := faultfs.New(w.fs, faultfs.AtMutation(n, faultfs.Fault{Death: faultfs.DiesAfter}))
					_, ack, _ := attempt(t, w, ff, s, style)
					if !ff.Dead() {
						break
					}
					must := ""
					if ack {
						must = "new"
					}
					for _, m := range memfs.Modes() {
						for seed := range seedsOf(m) {
							cut := &world{t, w.fs.Crash(m, rand.New(rand.NewPCG(uint64(n), uint64(seed))).IntN)}
							recovered(t, cut, s, must, "cut after mutation", n, last(ff).String(), m, "seed", seed)
							if t.Failed() {
								t.Fatalf("cut after mutation %d, %v, seed %d", n, m, seed)
							}
						}
					}
				}
			})
		}
	}
}

// TestPowerCutInRecovery: the process is killed at some point, recovery begins,
// and the power goes at each of its operations. What the killed process had
// written but not synced, the commit record above all, must not decide anything
// that the disk then forgets.
func TestPowerCutInRecovery(t *testing.T) {
	for _, name := range []string{"CR-01 mixed", "file becomes directory", "directory becomes file", "index in the same transaction"} {
		s := scenarioNamed(t, name)
		t.Run(name, func(t *testing.T) {
			for n := 1; ; n++ {
				for m := 1; ; m++ {
					w := s.world(t)
					ff := faultfs.New(w.fs, faultfs.AtMutation(n, faultfs.Fault{Death: faultfs.DiesAfter}))
					attempt(t, w, ff, s, styles[n%2])
					if !ff.Dead() {
						return
					}
					w.fs.Kill()
					rf := faultfs.New(w.fs, faultfs.AtMutation(m, faultfs.Fault{Death: faultfs.DiesAfter}))
					e, done, err := w.env(rf)
					if err != nil {
						t.Fatal(err)
					}
					commit.Recover(context.Background(), e, commit.RecoverOptions{})
					done()
					if !rf.Dead() {
						break
					}
					for _, mode := range memfs.Modes() {
						cut := &world{t, w.fs.Crash(mode, rand.New(rand.NewPCG(uint64(n), uint64(m))).IntN)}
						recovered(t, cut, s, "", "killed after", n, last(ff).String(), "cut after", m, last(rf).String(), mode)
					}
				}
			}
		})
	}
}
