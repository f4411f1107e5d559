package apply_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/aspengine/asp/apply"
	"github.com/aspengine/asp/editplan"
	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/internal/need"
	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/internal/vfs/faultfs"
	"github.com/aspengine/asp/receipt"
	"github.com/aspengine/asp/seam/wire"
	"github.com/aspengine/asp/snapshot"
)

// causes are what a system says of a device that fails, a full one, a used-up
// quota, too many open files, and a file system that became read-only.
var causes = []error{unix.EIO, unix.ENOSPC, unix.EDQUOT, unix.EMFILE, unix.EROFS}

// long asks for every point of a sweep instead of a selection.
func long() bool { return os.Getenv("ASP_CRASH") == "long" }

// stride is how far apart the points of a sweep are: every one in the long form,
// every n-th otherwise, and a third of those with -short or the race detector.
func stride(n int) int {
	switch {
	case long():
		return 1
	case testing.Short() || need.Race:
		return 3 * n
	}
	return n
}

// gitCase is one command on a repository, made to fail at each operation.
type gitCase struct {
	name     string
	prepare  func(e *apply.Engine) (receipt string) // before the pristine state is kept
	run      func(e *apply.Engine, load apply.Loader, receipt string) (*apply.Answer, error)
	key      func(receipt string) (provider, proposal string)
	old, new string // contents of both files
	status   string // of git when it is new
	ref      bool
}

func gitCases(t *testing.T) []gitCase {
	done := func(a *apply.Answer, err error) string {
		t.Helper()
		if err != nil || !a.Result.Applied {
			t.Fatal(err, a.Refusals)
		}
		return a.Receipt
	}
	asked := apply.Request{CallSite: wire.Interactive, Intent: wire.IntentUser}
	p1 := func(string) (string, string) { return "test", "p1" }
	const old, changed = "one\ntwo\n", "ONE\nTWO\n"
	return []gitCase{
		{name: "index", key: p1, old: old, new: changed, status: "M  a.txt\nM  b.txt\n",
			run: func(e *apply.Engine, load apply.Loader, _ string) (*apply.Answer, error) {
				return request(e, apply.Request{Index: true, Load: load})
			}},
		{name: "ref", key: p1, old: old, new: old, ref: true,
			run: func(e *apply.Engine, load apply.Loader, _ string) (*apply.Answer, error) {
				return request(e, apply.Request{Publish: apply.Stage, Ref: "deep/side", Message: "m", Load: load})
			}},
		{name: "publish", key: p1, old: old, new: changed, status: " M a.txt\n M b.txt\n",
			prepare: func(e *apply.Engine) string {
				return done(request(e, apply.Request{Publish: apply.Stage, Load: plan("p1", bothFiles)}))
			},
			run: func(e *apply.Engine, _ apply.Loader, _ string) (*apply.Answer, error) {
				return e.PublishStaged(context.Background(), "p1", asked)
			}},
		{name: "undo", old: changed, new: old,
			key:     func(r string) (string, string) { return "asp-undo", apply.UndoPrefix + r },
			prepare: func(e *apply.Engine) string { return done(request(e, apply.Request{Load: plan("p1", bothFiles)})) },
			run: func(e *apply.Engine, _ apply.Loader, r string) (*apply.Answer, error) {
				return e.Undo(context.Background(), r, asked)
			}},
	}
}

// TestGitFails: each operation in turn fails, on the workspace, the repository
// and the state directory alike. Files, index, reference and receipts agree with
// the answer, nothing is left, and asking again works.
func TestGitFails(t *testing.T) {
	for _, c := range gitCases(t) {
		t.Run(c.name, func(t *testing.T) {
			b := gitBed(t, twoFiles)
			if err := os.RemoveAll(filepath.Join(b.root, ".git/hooks")); err != nil {
				t.Fatal(err)
			}
			b.git("pack-refs", "--all")
			g := &gitFault{gitCase: c, bed: b, top: filepath.Dir(b.root)}
			if c.prepare != nil {
				g.must("prepare", g.with(vfs.OS{}, func(e *apply.Engine) error { g.receipt = c.prepare(e); return nil }))
			}
			g.keep()
			step := stride(59)
			for i, cause := range causes {
				// Each cause begins elsewhere, so that together they meet more points.
				for n := 1 + i*step/len(causes); g.fail(n, cause); n += step {
				}
			}
		})
	}
}

type gitFault struct {
	gitCase
	*bed
	top, receipt, at string
	file             editplan.File // the plan, once it was made; a retry sends the same
}

func (g *gitFault) load(ctx context.Context, v *apply.View, base snapshot.Baseline) (_ editplan.File, items refusal.List, err error) {
	if g.file.Blobs == nil {
		g.file, items, err = plan("p1", bothFiles)(ctx, v, base)
	}
	return g.file, items, err
}

func (g *gitFault) must(what string, err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatalf("%s: %s: %v", g.at, what, err)
	}
}

// keep puts a copy of everything beside, for restore.
func (g *gitFault) keep() {
	for _, d := range []string{"ws", "home"} {
		g.must("keep", os.CopyFS(filepath.Join(g.top, "kept", d), os.DirFS(filepath.Join(g.top, d))))
	}
}

func (g *gitFault) restore() {
	for _, d := range []string{"ws", "home"} {
		g.must("restore", os.RemoveAll(filepath.Join(g.top, d)))
		g.must("restore", os.CopyFS(filepath.Join(g.top, d), os.DirFS(filepath.Join(g.top, "kept", d))))
		g.must("restore", os.Chmod(filepath.Join(g.top, d), 0o700))
	}
}

func (g *gitFault) with(fsys vfs.FS, act func(e *apply.Engine) error) error {
	h, err := home.Open(fsys, filepath.Join(g.top, "home"))
	if err != nil {
		return err
	}
	defer h.Close()
	e, err := apply.Open(context.Background(), apply.Options{Dir: g.root, Home: h, FS: fsys, Version: "test"})
	if err != nil {
		return err
	}
	defer e.Close()
	return act(e)
}

func (g *gitFault) once(fsys vfs.FS) (a *apply.Answer, err error) {
	err = g.with(fsys, func(e *apply.Engine) (err error) { a, err = g.run(e, g.load, g.receipt); return err })
	return a, err
}

// fail is one attempt; more is false when there is no n-th operation.
func (g *gitFault) fail(n int, cause error) (more bool) {
	g.t.Helper()
	g.restore()
	g.file = editplan.File{}
	ff := faultfs.New(vfs.OS{}, faultfs.At(n, faultfs.Fault{Err: cause}))
	a, err := g.once(ff)
	if all, _ := ff.Counts(); all < n {
		return false
	}
	hit := ff.Events()[n-1]
	g.at = fmt.Sprintf("fault %d, %s, answer %v", n, hit, err)
	applied := err == nil && a.Result != nil && a.Result.Applied
	var out receipt.Outcomes
	files := g.read("a.txt") + g.read("b.txt")
	g.must("recover", g.with(vfs.OS{}, func(e *apply.Engine) error {
		rec, err := e.Recover(context.Background())
		if err == nil && len(rec.Attention) > 0 {
			err = fmt.Errorf("attention %v", rec.Attention)
		}
		if err != nil {
			return err
		}
		if r, err := e.Receipts().Verify(context.Background()); err != nil || !r.OK {
			return fmt.Errorf("receipts: %v %v", r.Problems, err)
		}
		provider, proposal := g.key(g.receipt)
		out, err = e.Receipts().Lookup(context.Background(), provider, proposal)
		return err
	}))
	is := out.Applied != nil
	if g.ref {
		is = out.Staged != nil
	}
	g.check(files, applied, is, hit)
	again, err := g.once(vfs.OS{})
	// An error may come when the receipt of a staging is there already.
	if err != nil || !again.Result.Applied || again.Repeated != is {
		g.t.Errorf("%s: again: %v, applied %v, %s, repeated %v, is there: %v", g.at, err, again.Result.Applied, codes(again), again.Repeated, is)
	}
	g.check(g.read("a.txt")+g.read("b.txt"), true, true, hit)
	if g.t.Failed() {
		g.t.FailNow()
	}
	return true
}

// check compares files, index, reference and left-overs with what the answer and
// the receipts say. files is what was there before the recovery.
func (g *gitFault) check(files string, applied, is bool, hit faultfs.Event) {
	g.t.Helper()
	if applied && !is || !applied && is && !g.ref {
		g.t.Errorf("%s: the answer says applied: %v, the receipts %v", g.at, applied, is)
	}
	want, status := g.old, ""
	if g.name == "undo" {
		status = " M a.txt\n M b.txt\n"
	}
	if is {
		want, status = g.new, g.gitCase.status
	}
	if now := g.read("a.txt") + g.read("b.txt"); files != want || now != want {
		g.t.Errorf("%s: %q, after recovery %q, want %q", g.at, files, now, want)
	}
	if got := g.bed.status(); got != status {
		g.t.Errorf("%s: status %q, want %q", g.at, got, status)
	}
	if g.ref {
		tree, err := exec.Command("git", "-C", g.root, "show", "deep/side:a.txt").Output()
		if (err == nil) != is || is && string(tree) != "ONE\n" {
			g.t.Errorf("%s: the reference holds %q (%v), the receipts say %v", g.at, tree, err, is)
		}
		if _, err := os.Lstat(filepath.Join(g.root, ".git/refs/heads/deep")); err == nil && !is {
			g.t.Errorf("%s: a directory of references is left", g.at)
		}
	}
	if out, err := exec.Command("git", "-C", g.root, "fsck", "--strict").CombinedOutput(); err != nil {
		g.t.Errorf("%s: fsck: %s", g.at, out)
	}
	list := g.listing()
	for _, bad := range []string{".lock", "tmp_obj", ".git/asp", ".asp"} {
		// A temporary object that could not be removed is git's prune's to find.
		if strings.Contains(list, bad) && !(bad == "tmp_obj" && hit.Op == faultfs.Unlink) {
			g.t.Errorf("%s: %s is left:\n%s", g.at, bad, list)
		}
	}
	es, err := filepath.Glob(filepath.Join(g.top, "home/workspaces/*/*"))
	g.must("glob", err)
	for _, p := range es {
		if filepath.Base(p) == "pending-ref.json" {
			g.t.Errorf("%s: the intent is left", g.at)
		}
	}
	top, err := os.ReadDir(g.top)
	g.must("list", err)
	if len(top) != 3 {
		g.t.Errorf("%s: something is left beside the workspace: %v", g.at, top)
	}
}
