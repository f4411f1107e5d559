package apply_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aspengine/asp/apply"
	"github.com/aspengine/asp/apply/commit"
	"github.com/aspengine/asp/checks"
	"github.com/aspengine/asp/editplan"
	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/receipt"
	"github.com/aspengine/asp/seam/wire"
	"github.com/aspengine/asp/snapshot"
)

// bed is one workspace with its own state directory.
type bed struct {
	t    *testing.T
	root string
	home *home.Home
	hook func(stage string)
}

func newBed(t *testing.T, config string, files map[string]string) *bed {
	t.Helper()
	dir := t.TempDir()
	b := &bed{t: t, root: filepath.Join(dir, "ws")}
	for p, c := range files {
		b.write(p, c)
	}
	b.git("init", "-q")
	b.git("add", "-A")
	b.git("-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-qm", "base")
	hd := filepath.Join(dir, "home")
	if err := os.Mkdir(hd, 0o700); err != nil {
		t.Fatal(err)
	}
	if config != "" {
		if err := os.WriteFile(filepath.Join(hd, "config.json"), []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if b.home, err = home.Open(vfs.OS{}, hd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.home.Close() })
	return b
}

func (b *bed) write(p, content string) {
	b.t.Helper()
	f := filepath.Join(b.root, p)
	if err := os.MkdirAll(filepath.Dir(f), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(f, []byte(content), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bed) git(args ...string) string {
	b.t.Helper()
	c := exec.Command("git", append([]string{"-C", b.root}, args...)...)
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1"}
	out, err := c.CombinedOutput()
	if err != nil {
		b.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return string(out)
}

func (b *bed) read(p string) string {
	b.t.Helper()
	c, err := os.ReadFile(filepath.Join(b.root, p))
	if errors.Is(err, os.ErrNotExist) {
		return "(absent)"
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return string(c)
}

func (b *bed) open() *apply.Engine {
	b.t.Helper()
	e, err := apply.Open(context.Background(), apply.Options{Dir: b.root, Home: b.home, Version: "test", Before: func(s string) {
		if b.hook != nil {
			b.hook(s)
		}
	}})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { e.Close() })
	return e
}

// plan loads drafts over the present state.
func plan(id string, drafts func(v *apply.View) []editplan.Draft) apply.Loader {
	return func(_ context.Context, v *apply.View, base snapshot.Baseline) (editplan.File, refusal.List, error) {
		f, err := editplan.NewPlan(editplan.Source{Baseline: base, Provider: editplan.Provider{ID: "test", Version: "1"}}, drafts(v))
		return apply.Named(f, id), nil, err
	}
}

// replace is a whole-file change of p.
func replace(p, old, after string) editplan.Draft {
	return editplan.Draft{Kind: editplan.Modify, Path: p, Expected: snapshot.DigestOf([]byte(old)), Content: []byte(after), HasContent: true}
}

func (b *bed) apply(r apply.Request) (*apply.Answer, error) {
	if r.CallSite == "" {
		r.CallSite, r.Intent = wire.Interactive, wire.IntentUser
	}
	return b.open().Apply(context.Background(), r)
}

func codes(a *apply.Answer) string {
	var out []string
	for _, it := range a.Refusals {
		out = append(out, string(it.Code)+" "+it.Path)
	}
	return strings.Join(out, ", ")
}

// idle checks what must hold whenever no transaction is open.
func (b *bed) idle() {
	b.t.Helper()
	if _, err := os.Lstat(filepath.Join(b.root, ".git", "asp")); !errors.Is(err, os.ErrNotExist) {
		b.t.Errorf("transaction directory is left: %v", err)
	}
	es, err := os.ReadDir(filepath.Dir(b.root))
	if err != nil {
		b.t.Fatal(err)
	}
	for _, x := range es {
		if x.Name() != "ws" && x.Name() != "home" {
			b.t.Errorf("%s is left beside the workspace", x.Name())
		}
	}
	if es, _ := os.ReadDir(b.home.Path(home.ScratchDir)); len(es) > 0 {
		b.t.Errorf("scratch is left: %v", es)
	}
	rep, err := b.open().Receipts().Verify(context.Background())
	if err != nil || !rep.OK {
		b.t.Errorf("receipts: %v %v", rep.Problems, err)
	}
}

var twoFiles = map[string]string{"a.txt": "one\n", "b.txt": "two\n"}

func bothFiles(v *apply.View) []editplan.Draft {
	return []editplan.Draft{replace("a.txt", "one\n", "ONE\n"), replace("b.txt", "two\n", "TWO\n")}
}

func modes() map[string]apply.Publish {
	return map[string]apply.Publish{"journal": apply.Journal, "exchange": apply.Exchange}
}

func TestApplyAndRepeat(t *testing.T) {
	for name, mode := range modes() {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, "", twoFiles)
			a, err := b.apply(apply.Request{Load: plan("p1", bothFiles), Publish: mode})
			if err != nil || !a.Result.Applied {
				t.Fatalf("%v %s", err, codes(a))
			}
			if b.read("a.txt") != "ONE\n" || b.read("b.txt") != "TWO\n" {
				t.Fatal("not applied")
			}
			base := a.Result.BaselineAfter
			st, err := b.open().Status(context.Background(), apply.SurfaceRequest{})
			if err != nil {
				t.Fatal(err)
			}
			if now := st.Result.Workspace.Baseline; now.Rev != base.Rev || now.Dirty != base.Dirty {
				t.Errorf("baselineAfter %v, the workspace is at %v", base, now)
			}
			b.idle()
		})
	}
}

// A file that moves between the check of the plan and the write keeps the
// stranger's bytes, and nothing else of the plan happens.
func TestCC01MovedBeforeTheSwap(t *testing.T) {
	for name, mode := range modes() {
		for _, when := range []string{"publishing", "swap"} {
			t.Run(name+"/"+when, func(t *testing.T) {
				b := newBed(t, "", twoFiles)
				done := false
				b.hook = func(stage string) {
					if stage == when && !done {
						done = true
						b.write("b.txt", "stranger\n")
					}
				}
				a, err := b.apply(apply.Request{Load: plan("p1", bothFiles), Publish: mode})
				if err != nil {
					t.Fatal(err)
				}
				if !done || a.Result.Applied || a.Result.Refusal == nil {
					t.Fatalf("applied over a stranger's edit: %+v", a.Result)
				}
				if !strings.Contains(codes(a), "changed-underneath b.txt") {
					t.Errorf("codes: %s", codes(a))
				}
				if b.read("a.txt") != "one\n" || b.read("b.txt") != "stranger\n" {
					t.Errorf("a=%q b=%q", b.read("a.txt"), b.read("b.txt"))
				}
				// What is seen before the first write is refused there, not put back.
				if mode == apply.Journal && a.Outcome != receipt.Refused {
					t.Errorf("outcome %s", a.Outcome)
				}
				if g := a.Result.Assurance.TransactionGuarantee; g != wire.GuaranteeNone {
					t.Errorf("a refusal claims %s", g)
				}
				b.idle()
			})
		}
	}
}

// TestFM02LinkedBeforeTheSwap: a file that gets another name while the plan is judged or
// written is not split from it.
func TestFM02LinkedBeforeTheSwap(t *testing.T) {
	for name, mode := range modes() {
		for _, when := range []string{"publishing", "swap", "exchange"} {
			if when == "exchange" && mode != apply.Exchange {
				continue
			}
			t.Run(name+"/"+when, func(t *testing.T) {
				b := newBed(t, "", twoFiles)
				other := filepath.Join(t.TempDir(), "other")
				done := false
				b.hook = func(stage string) {
					if stage == when && !done {
						done = true
						if err := os.Link(filepath.Join(b.root, "b.txt"), other); err != nil {
							t.Error(err)
						}
					}
				}
				a, err := b.apply(apply.Request{Load: plan("p1", bothFiles), Publish: mode})
				if err != nil {
					t.Fatal(err)
				}
				if !done || a.Result.Applied || a.Result.Refusal == nil {
					t.Fatalf("done %v, split from its other name: %+v", done, a.Result)
				}
				if when != "exchange" && !strings.Contains(codes(a), "hard-linked b.txt") {
					t.Errorf("codes: %s", codes(a))
				}
				if b.read("a.txt") != "one\n" || b.read("b.txt") != "two\n" {
					t.Errorf("a=%q b=%q", b.read("a.txt"), b.read("b.txt"))
				}
				b.idle()
			})
		}
	}
}

// by is a loader of a plan of a provider.
func by(provider, id string, drafts ...editplan.Draft) apply.Loader {
	return func(_ context.Context, _ *apply.View, base snapshot.Baseline) (editplan.File, refusal.List, error) {
		f, err := editplan.NewPlan(editplan.Source{Baseline: base, Provider: editplan.Provider{ID: provider, Version: "1"}}, drafts)
		return apply.Named(f, id), nil, err
	}
}

// TestUndoIsNobodyElses: a plan that calls itself the host's own undo is refused, so
// that an undo later undoes.
func TestUndoIsNobodyElses(t *testing.T) {
	b := newBed(t, "", twoFiles)
	receipt := b.done(apply.Request{Load: plan("p1", bothFiles)}).Receipt
	b.refusedWith(apply.Request{Load: by("asp-undo", apply.UndoPrefix+receipt, editplan.Draft{Kind: editplan.Create, Path: "c", Content: []byte("c"), HasContent: true})}, "id-reuse")
	a, err := b.open().Undo(context.Background(), receipt, apply.Request{CallSite: wire.Interactive, Intent: wire.IntentUser})
	if err != nil || !a.Result.Applied {
		t.Fatalf("%v %s", err, codes(a))
	}
	b.want("a.txt", b.read("a.txt"), "one\n")
}

// TestStagedByAnother: one id stands for one staged plan.
func TestStagedByAnother(t *testing.T) {
	b := newBed(t, "", twoFiles)
	b.done(apply.Request{Load: by("me", "sid", replace("a.txt", "one\n", "ONE\n")), Publish: apply.Stage})
	b.refusedWith(apply.Request{Load: by("other", "sid", replace("b.txt", "two\n", "TWO\n")), Publish: apply.Stage}, "id-reuse")
	if _, err := b.open().PublishStaged(context.Background(), "sid", apply.Request{CallSite: wire.Interactive, Intent: wire.IntentUser}); err != nil {
		t.Fatal(err)
	}
	b.want("a.txt", b.read("a.txt"), "ONE\n")
	b.want("b.txt", b.read("b.txt"), "two\n")
	// Nothing waits under the id any more.
	b.done(apply.Request{Load: by("other", "sid", replace("b.txt", "two\n", "TWO\n")), Publish: apply.Stage})
	if _, err := b.open().PublishStaged(context.Background(), "sid", apply.Request{CallSite: wire.Interactive, Intent: wire.IntentUser}); err != nil {
		t.Fatal(err)
	}
	b.want("b.txt", b.read("b.txt"), "TWO\n")
}

// A file that is made where the plan creates one survives.
func TestPV01MadeBeforeTheSwap(t *testing.T) {
	b := newBed(t, "", twoFiles)
	b.hook = func(stage string) {
		if stage == "publishing" {
			b.write("new.txt", "stranger\n")
		}
	}
	a, err := b.apply(apply.Request{Load: plan("p1", func(*apply.View) []editplan.Draft {
		return []editplan.Draft{replace("a.txt", "one\n", "ONE\n"), {Kind: editplan.Create, Path: "new.txt", Content: []byte("ours\n"), HasContent: true}}
	})})
	if err != nil {
		t.Fatal(err)
	}
	if a.Result.Applied || !strings.Contains(codes(a), "exists new.txt") {
		t.Fatalf("%s", codes(a))
	}
	if b.read("new.txt") != "stranger\n" || b.read("a.txt") != "one\n" {
		t.Error("something changed")
	}
	b.idle()
}

const passing = `{"checks":{"ok":{"argv":["sh","-c","grep -q ONE a.txt"],"callSites":["interactive"],"required":true}}}`

// An untouched file that keeps moving makes every verdict void.
func TestDriftDuringChecks(t *testing.T) {
	b := newBed(t, passing, map[string]string{"a.txt": "one\n", "b.txt": "two\n", "other.txt": "x\n"})
	n := 0
	b.hook = func(stage string) {
		if stage == "checked command/ok" {
			n++
			b.write("other.txt", strings.Repeat("x", n+1))
		}
	}
	a, err := b.apply(apply.Request{Load: plan("p1", bothFiles)})
	if err != nil {
		t.Fatal(err)
	}
	if n != 3 || !strings.HasPrefix(codes(a), "check-indeterminate") {
		t.Fatalf("ran %d times: %s", n, codes(a))
	}
	if b.read("a.txt") != "one\n" {
		t.Error("applied on a void verdict")
	}
	b.idle()
}

// One that moves once only costs a second run.
func TestDriftOnce(t *testing.T) {
	b := newBed(t, passing, map[string]string{"a.txt": "one\n", "b.txt": "two\n", "other.txt": "x\n"})
	n := 0
	b.hook = func(stage string) {
		if stage == "checked command/ok" {
			if n++; n == 1 {
				b.write("other.txt", "moved\n")
			}
		}
	}
	a, err := b.apply(apply.Request{Load: plan("p1", bothFiles)})
	if err != nil || !a.Result.Applied || n != 2 {
		t.Fatalf("ran %d times: %v %s", n, err, codes(a))
	}
	b.idle()
}

func TestTouchedFileMovesDuringChecks(t *testing.T) {
	b := newBed(t, passing, twoFiles)
	b.hook = func(stage string) {
		if stage == "checked command/ok" {
			b.write("b.txt", "stranger\n")
		}
	}
	a, err := b.apply(apply.Request{Load: plan("p1", bothFiles)})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(codes(a), "changed-underneath b.txt") || b.read("b.txt") != "stranger\n" || b.read("a.txt") != "one\n" {
		t.Fatalf("%s", codes(a))
	}
	b.idle()
	// Without a write, and so without the look before it, the check's verdict is void
	// all the same.
	b.write("b.txt", twoFiles["b.txt"])
	dry, err := b.apply(apply.Request{Load: plan("p2", bothFiles), DryRun: true})
	if err != nil || dry.DryRun == nil || dry.DryRun.WouldApply || !strings.Contains(codes(dry), "changed-underneath b.txt") {
		t.Errorf("dry run: %v %+v %s", err, dry.DryRun, codes(dry))
	}
}

// The mode in the answer is the weakest that the checks proved, and none that
// configuration could set: without a check it is advisory.
func TestModeComesFromChecks(t *testing.T) {
	b := newBed(t, passing, twoFiles)
	a, err := b.apply(apply.Request{Load: plan("p1", bothFiles)})
	if err != nil || !a.Result.Applied {
		t.Fatalf("%v %s", err, codes(a))
	}
	want := a.Checks[0].Isolation.String()
	if string(a.Result.Assurance.Mode) != want {
		t.Errorf("mode %s, the check ran %s", a.Result.Assurance.Mode, want)
	}
	b2 := newBed(t, "", twoFiles)
	a, err = b2.apply(apply.Request{Load: plan("p1", bothFiles), RequireAssurance: checks.Gated})
	if err != nil {
		t.Fatal(err)
	}
	if codes(a) != "weak-assurance " || b2.read("a.txt") != "one\n" {
		t.Errorf("without any check: %s", codes(a))
	}
}

// The ceiling of the configuration lowers every claim and raises none.
func TestGuaranteeCeiling(t *testing.T) {
	b := newBed(t, `{"guaranteeCeiling":"none"}`, twoFiles)
	a, err := b.apply(apply.Request{Load: plan("p1", bothFiles)})
	if err != nil || !a.Result.Applied || a.Result.Assurance.TransactionGuarantee != wire.GuaranteeNone {
		t.Fatalf("%v %+v", err, a.Result)
	}
	a, err = b.apply(apply.Request{Load: plan("p2", func(*apply.View) []editplan.Draft {
		return []editplan.Draft{replace("a.txt", "ONE\n", "three\n")}
	}), RequireGuarantee: commit.RollbackAttempted})
	if err != nil || codes(a) != "weak-guarantee " {
		t.Fatalf("%v %s", err, codes(a))
	}
}

func TestCancelBeforeTheCommitRecord(t *testing.T) {
	for name, mode := range modes() {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, "", twoFiles)
			ctx, cancel := context.WithCancel(context.Background())
			b.hook = func(stage string) {
				if stage == "swap" {
					cancel()
				}
			}
			_, err := b.open().Apply(ctx, apply.Request{Load: plan("p1", bothFiles), Publish: mode, CallSite: wire.Interactive, Intent: wire.IntentUser})
			var f *apply.Failure
			if !errors.Is(err, context.Canceled) || !errors.As(err, &f) || f.Outcome != receipt.Cancelled || f.Receipt == "" {
				t.Fatalf("err %v", err)
			}
			if b.read("a.txt") != "one\n" || b.read("b.txt") != "two\n" {
				t.Error("a cancelled apply changed something")
			}
			st, err := b.open().Receipts().Get(f.Receipt)
			if err != nil || st.Outcome != receipt.Cancelled || st.Receipt.Assurance.TransactionGuarantee != wire.GuaranteeNone {
				t.Errorf("receipt: %v %+v", err, st)
			}
			b.idle()
		})
	}
}

func TestRepeatAndReuse(t *testing.T) {
	b := newBed(t, "", twoFiles)
	var kept editplan.File
	load := func(ctx context.Context, v *apply.View, base snapshot.Baseline) (editplan.File, refusal.List, error) {
		if kept.Blobs == nil {
			kept, _, _ = plan("same", bothFiles)(ctx, v, base)
		}
		return kept, nil, nil
	}
	first, err := b.apply(apply.Request{Load: load})
	if err != nil || !first.Result.Applied {
		t.Fatalf("%v %s", err, codes(first))
	}
	b.write("a.txt", "later\n")
	again, err := b.apply(apply.Request{Load: load})
	if err != nil || !again.Repeated {
		t.Fatalf("%v %+v", err, again)
	}
	if string(again.Stored.Bytes()) != string(first.Stored.Bytes()) {
		t.Error("another result object")
	}
	if b.read("a.txt") != "later\n" {
		t.Error("a repeated request wrote")
	}
	other, err := b.apply(apply.Request{Load: plan("same", func(*apply.View) []editplan.Draft {
		return []editplan.Draft{replace("b.txt", "TWO\n", "other\n")}
	})})
	if err != nil || codes(other) != "id-reuse " {
		t.Fatalf("%v %s", err, codes(other))
	}
}

func TestUndo(t *testing.T) {
	b := newBed(t, "", map[string]string{"a.txt": "1\n2\n3\n4\n5\n6\n7\n8\n9\n", "gone.sh": "#!/bin/sh\n", "old.txt": "mv\n"})
	if err := os.Chmod(filepath.Join(b.root, "gone.sh"), 0o700); err != nil {
		t.Fatal(err)
	}
	before := b.read("a.txt")
	a, err := b.apply(apply.Request{Load: plan("p1", func(*apply.View) []editplan.Draft {
		return []editplan.Draft{
			replace("a.txt", before, strings.Replace(before, "2\n", "two\n", 1)),
			{Kind: editplan.Delete, Path: "gone.sh", Expected: snapshot.DigestOf([]byte("#!/bin/sh\n"))},
			{Kind: editplan.Rename, Path: "old.txt", To: "sub/new.txt", Expected: snapshot.DigestOf([]byte("mv\n"))},
			{Kind: editplan.Create, Path: "made.txt", Content: []byte("made\n"), HasContent: true},
		}
	})})
	if err != nil || !a.Result.Applied {
		t.Fatalf("%v %s", err, codes(a))
	}
	// A later edit elsewhere in the file stays.
	b.write("a.txt", strings.Replace(b.read("a.txt"), "8\n", "eight\n", 1))
	u, err := b.open().Undo(context.Background(), a.Receipt, apply.Request{CallSite: wire.Interactive, Intent: wire.IntentUser})
	if err != nil || !u.Result.Applied {
		t.Fatalf("%v %s", err, codes(u))
	}
	if got := b.read("a.txt"); got != strings.Replace(before, "8\n", "eight\n", 1) {
		t.Errorf("a.txt = %q", got)
	}
	if b.read("gone.sh") != "#!/bin/sh\n" || b.read("old.txt") != "mv\n" || b.read("made.txt") != "(absent)" || b.read("sub/new.txt") != "(absent)" {
		t.Error("not as before")
	}
	if fi, err := os.Stat(filepath.Join(b.root, "gone.sh")); err != nil || fi.Mode().Perm() != 0o700 {
		t.Errorf("mode of a file that came back: %v %v", fi.Mode(), err)
	}
	if _, err := os.Stat(filepath.Join(b.root, "sub")); !errors.Is(err, os.ErrNotExist) {
		t.Error("the emptied directory stays")
	}
	again, err := b.open().Undo(context.Background(), a.Receipt, apply.Request{CallSite: wire.Interactive, Intent: wire.IntentUser})
	if err != nil || !again.Repeated || again.Receipt != u.Receipt || b.read("gone.sh") != "#!/bin/sh\n" {
		t.Errorf("the same undo asked for twice: %v %+v", err, again)
	}
	b.idle()
}

func TestUndoOverlap(t *testing.T) {
	b := newBed(t, "", twoFiles)
	a, err := b.apply(apply.Request{Load: plan("p1", bothFiles)})
	if err != nil || !a.Result.Applied {
		t.Fatal(err)
	}
	b.write("a.txt", "mine\n")
	u, err := b.open().Undo(context.Background(), a.Receipt, apply.Request{CallSite: wire.Interactive, Intent: wire.IntentUser})
	if err != nil || codes(u) != "merge-conflict a.txt" {
		t.Fatalf("%v %s", err, codes(u))
	}
	if b.read("a.txt") != "mine\n" || b.read("b.txt") != "TWO\n" {
		t.Error("a refused undo changed something")
	}
}

func TestStageAndPublish(t *testing.T) {
	b := newBed(t, "", twoFiles)
	a, err := b.apply(apply.Request{Load: plan("p1", bothFiles), Publish: apply.Stage})
	if err != nil || !a.Result.Applied || a.Result.Assurance.TransactionGuarantee != wire.StagedSnapshot {
		t.Fatalf("%v %+v", err, a.Result)
	}
	if b.read("a.txt") != "one\n" || b.git("status", "--porcelain") != "" {
		t.Fatal("staging touched the workspace")
	}
	p, err := b.open().PublishStaged(context.Background(), "p1", apply.Request{CallSite: wire.Interactive, Intent: wire.IntentUser})
	if err != nil || !p.Result.Applied {
		t.Fatalf("%v %s", err, codes(p))
	}
	if b.read("a.txt") != "ONE\n" {
		t.Error("not published")
	}
	if *p.Result.BaselineAfter != (wire.Baseline{Rev: a.Result.BaselineAfter.Rev, Dirty: a.Result.BaselineAfter.Dirty, StampedAt: p.Result.BaselineAfter.StampedAt}) {
		t.Errorf("staged baseline %v, published %v", a.Result.BaselineAfter, p.Result.BaselineAfter)
	}
	again, err := b.open().PublishStaged(context.Background(), "p1", apply.Request{CallSite: wire.Interactive, Intent: wire.IntentUser})
	if err != nil || !again.Repeated {
		t.Fatalf("%v %s", err, codes(again))
	}
	none, err := b.open().PublishStaged(context.Background(), "nope", apply.Request{CallSite: wire.Interactive, Intent: wire.IntentUser})
	if err != nil || codes(none) != "unknown-proposal " {
		t.Fatalf("%v %s", err, codes(none))
	}
	b.idle()
}

func TestMerge(t *testing.T) {
	lines := "1\n2\n3\n4\n5\n6\n7\n8\n9\n"
	b := newBed(t, "", map[string]string{"a.txt": lines})
	var kept editplan.File
	load := func(ctx context.Context, v *apply.View, base snapshot.Baseline) (editplan.File, refusal.List, error) {
		if kept.Blobs == nil {
			kept, _, _ = plan("m", func(*apply.View) []editplan.Draft {
				return []editplan.Draft{replace("a.txt", lines, strings.Replace(lines, "2\n", "two\n", 1))}
			})(ctx, v, base)
		}
		return kept, nil, nil
	}
	if _, _, err := b.open().Plan(context.Background(), load); err != nil {
		t.Fatal(err)
	}
	b.write("a.txt", strings.Replace(lines, "8\n", "eight\n", 1))
	a, err := b.apply(apply.Request{Load: load})
	if err != nil || codes(a) != "stale-basis a.txt" {
		t.Fatalf("%v %s", err, codes(a))
	}
	a, err = b.apply(apply.Request{Load: load, Merge: true})
	if err != nil || !a.Result.Applied {
		t.Fatalf("%v %s", err, codes(a))
	}
	if want := strings.NewReplacer("2\n", "two\n", "8\n", "eight\n").Replace(lines); b.read("a.txt") != want {
		t.Errorf("%q", b.read("a.txt"))
	}
}

func TestForeignBaseline(t *testing.T) {
	b := newBed(t, "", twoFiles)
	a, err := b.apply(apply.Request{Load: func(context.Context, *apply.View, snapshot.Baseline) (editplan.File, refusal.List, error) {
		f, err := editplan.NewPlan(editplan.Source{Baseline: snapshot.Baseline{Rev: "git:tree:0000000000000000000000000000000000000000"}}, bothFiles(nil))
		return f, nil, err
	}})
	if err != nil || codes(a) != "foreign-baseline " {
		t.Fatalf("%v %s", err, codes(a))
	}
}

func TestGateWithoutPolicy(t *testing.T) {
	b := newBed(t, "", twoFiles)
	a, err := b.apply(apply.Request{Load: plan("p", bothFiles), CallSite: wire.Gate, Intent: wire.IntentAgent})
	if err != nil || codes(a) != "check-indeterminate " || a.Result.Decision == nil || a.Result.Decision.Decision != wire.Indeterminate {
		t.Fatalf("%v %s", err, codes(a))
	}
}

// Deleting and renaming act on a link, never on what it names; editing it is
// refused.
func TestPA02Links(t *testing.T) {
	for name, mode := range modes() {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, "", map[string]string{"real.md": "hello\n"})
			for _, l := range []string{"link.md", "gone.md"} {
				if err := os.Symlink("real.md", filepath.Join(b.root, l)); err != nil {
					t.Fatal(err)
				}
			}
			target := snapshot.DigestOf([]byte("real.md"))
			a, err := b.apply(apply.Request{Publish: mode, Load: plan("p1", func(*apply.View) []editplan.Draft {
				return []editplan.Draft{
					{Kind: editplan.Rename, Path: "link.md", To: "l2.md", Expected: target},
					{Kind: editplan.Delete, Path: "gone.md", Expected: target},
				}
			})})
			if err != nil || !a.Result.Applied {
				t.Fatalf("%v %s", err, codes(a))
			}
			if got, err := os.Readlink(filepath.Join(b.root, "l2.md")); err != nil || got != "real.md" {
				t.Errorf("l2.md -> %q %v", got, err)
			}
			for _, l := range []string{"link.md", "gone.md"} {
				if _, err := os.Lstat(filepath.Join(b.root, l)); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("%s is still there", l)
				}
			}
			if b.read("real.md") != "hello\n" {
				t.Error("the file behind the link changed")
			}
			a, err = b.apply(apply.Request{Publish: mode, Load: plan("p2", func(*apply.View) []editplan.Draft {
				return []editplan.Draft{replace("l2.md", "hello\n", "HELLO\n")}
			})})
			if err != nil || codes(a) != "not-regular l2.md" {
				t.Fatalf("%v %s", err, codes(a))
			}
			b.idle()
		})
	}
}

// A file that is renamed and edited keeps its mode, and an undo brings both back.
func TestRenameAndEdit(t *testing.T) {
	for name, mode := range modes() {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, "", map[string]string{"d/a": "1\n2\n3\n", "x": "ex\n", "y": "why\n", "p": "plain\n"})
			if err := os.Chmod(filepath.Join(b.root, "d/a"), 0o750); err != nil {
				t.Fatal(err)
			}
			sum := func(s string) snapshot.Digest { return snapshot.DigestOf([]byte(s)) }
			a, err := b.apply(apply.Request{Publish: mode, Load: plan("p1", func(*apply.View) []editplan.Draft {
				return []editplan.Draft{
					{Kind: editplan.Rename, Path: "d/a", To: "e/f/b", Expected: sum("1\n2\n3\n")},
					replace("e/f/b", "1\n2\n3\n", "1\ntwo\n3\n"),
					// x and y trade places.
					{Kind: editplan.Rename, Path: "x", To: "t", Expected: sum("ex\n")},
					{Kind: editplan.Rename, Path: "y", To: "x", Expected: sum("why\n")},
					{Kind: editplan.Rename, Path: "t", To: "y", Expected: sum("ex\n")},
					// A file becomes a directory.
					{Kind: editplan.Delete, Path: "p", Expected: sum("plain\n")},
					{Kind: editplan.Create, Path: "p/c", Content: []byte("c\n"), HasContent: true},
				}
			})})
			if err != nil || !a.Result.Applied {
				t.Fatalf("%v %s", err, codes(a))
			}
			if b.read("e/f/b") != "1\ntwo\n3\n" || b.read("d/a") != "(absent)" || b.read("x") != "why\n" || b.read("y") != "ex\n" || b.read("p/c") != "c\n" {
				t.Error("not the after-state")
			}
			if fi, err := os.Stat(filepath.Join(b.root, "e/f/b")); err != nil || fi.Mode().Perm() != 0o750 {
				t.Errorf("mode %v %v", fi.Mode(), err)
			}
			b.idle()
			u, err := b.open().Undo(context.Background(), a.Receipt, apply.Request{CallSite: wire.Interactive, Intent: wire.IntentUser})
			if err != nil || !u.Result.Applied {
				t.Fatalf("%v %s", err, codes(u))
			}
			if b.read("d/a") != "1\n2\n3\n" || b.read("e/f/b") != "(absent)" || b.read("x") != "ex\n" || b.read("y") != "why\n" || b.read("p") != "plain\n" {
				t.Error("not as before")
			}
			if fi, err := os.Stat(filepath.Join(b.root, "d/a")); err != nil || fi.Mode().Perm() != 0o750 {
				t.Errorf("mode after undo %v %v", fi.Mode(), err)
			}
			if out := b.git("status", "--porcelain"); strings.Contains(out, "?? ") {
				t.Errorf("git status:\n%s", out)
			}
			b.idle()
		})
	}
}
