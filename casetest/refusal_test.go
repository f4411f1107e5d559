package casetest

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/aspengine/asp/internal/need"
)

// one is a code of the table that the shell can reach.
type one struct {
	code    string
	path    string // that a conflict names; "" for none
	prepare func(w *world)
	plan    func(w *world) *plan
	stale   func(w *world) // after the plan was made
	flags   []string
}

func rows() []one {
	mod := func(w *world) *plan { return w.plan().modify("x", "x\n", "y\n") }
	shape := func(f func(obj)) func(w *world) *plan {
		return func(w *world) *plan { p := mod(w); p.shape = f; return p }
	}
	first := func(p obj) obj { return p["workspaceEdit"].(obj)["documentChanges"].([]obj)[0] }
	return []one{
		{code: "bad-message", plan: shape(func(p obj) { p["extra"] = 1 })},
		{code: "bad-message", plan: shape(func(p obj) { delete(p, "validAsOf") })},
		{code: "bad-message", plan: shape(func(p obj) { p["touchedResources"] = []any{} })},
		{code: "bad-message", plan: shape(func(p obj) { first(p)["edits"] = []any{} })},
		{code: "bad-message", plan: shape(func(p obj) { first(p)["kind"] = "chmod" })},
		{code: "bad-message", plan: shape(func(p obj) { first(p)["precondition"] = obj{"expectedAbsence": true} })},
		{code: "bad-range", path: "x", plan: func(w *world) *plan { return w.plan().edits("x", "x\n", edit(0, 2, 0, 3, "")) }},
		{code: "overlap", path: "x", plan: func(w *world) *plan { return w.plan().edits("x", "x\n", edit(0, 0, 0, 1, "a"), edit(0, 0, 0, 1, "a")) }},
		{code: "not-text", path: "b", prepare: func(w *world) { w.write("b", "\xff\n", 0o644) }, plan: func(w *world) *plan { return w.plan().edits("b", "\xff\n", edit(0, 0, 0, 0, "a")) }},
		{code: "path-invalid", plan: func(w *world) *plan { return w.plan().create("a/../b", "b\n") }},
		{code: "path-invalid", plan: func(w *world) *plan { return w.plan().create("a//b", "b\n") }},
		{code: "path-invalid", plan: func(w *world) *plan { return w.plan().create(strings.Repeat("a", 300), "b\n") }},
		{code: "host-field", plan: shape(func(p obj) { p["receipt"] = obj{} })},
		{code: "host-field", plan: shape(func(p obj) {
			p["annotations"] = []any{obj{"path": "x", "message": "m", "data": obj{"deep": obj{"authority": 1}}}}
		})},
		{code: "command-like", plan: shape(func(p obj) { p["command"] = "rm" })},
		{code: "command-like", plan: shape(func(p obj) { p["annotations"] = []any{obj{"path": "x", "message": "m", "data": obj{"script": "rm"}}} })},
		{code: "missing-blob", plan: func(w *world) *plan { p := mod(w); p.blobs = nil; return p }},
		{code: "foreign-baseline", plan: func(w *world) *plan {
			p := mod(w)
			p.baseline = obj{"rev": "git:tree:" + strings.Repeat("0", 40)}
			return p
		}},
		{code: "stale-valid-as-of", plan: func(w *world) *plan { p := mod(w); p.current = []string{digest("never seen")}; return p }},
		{code: "stale-basis", path: "x", plan: mod, stale: func(w *world) { w.write("x", "moved\n", 0o644) }},
		{code: "merge-conflict", path: "x", plan: mod, stale: func(w *world) { w.write("x", "moved\n", 0o644) }, flags: []string{"--merge"}},
		{code: "index-diverges", path: "x", plan: mod, prepare: func(w *world) { w.write("x", "staged\n", 0o644); w.gitRun("add", "x"); w.write("x", "x\n", 0o644) }, flags: []string{"--index"}},
		{code: "exists", path: "x", plan: func(w *world) *plan { return w.plan().create("x", "y\n") }},
		{code: "missing", path: "gone", plan: func(w *world) *plan { return w.plan().modify("gone", "x\n", "y\n") }},
		{code: "missing", path: "gone", plan: func(w *world) *plan { return w.plan().remove("gone", "x\n") }},
		{code: "path-protected", path: ".git/config", plan: func(w *world) *plan { return w.plan().create(".git/config", "y\n") }},
		{code: "path-escape", path: "l/y", prepare: func(w *world) { w.link("..", "l") }, plan: func(w *world) *plan { return w.plan().create("l/y", "y\n") }},
		{code: "not-regular", path: "fifo", prepare: func(w *world) { must(w.t, syscall.Mkfifo(w.path("fifo"), 0o644)) }, plan: func(w *world) *plan { return w.plan().modify("fifo", "x\n", "y\n") }},
		{code: "hard-linked", path: "x", prepare: func(w *world) { must(w.t, os.Link(w.path("x"), w.path("x2"))) }, plan: mod},
		{code: "not-writable", path: "x", prepare: func(w *world) { must(w.t, os.Chmod(w.path("x"), 0o444)) }, plan: mod},
		{code: "filtered-path", path: "x", prepare: func(w *world) {
			w.write(".gitattributes", "x filter=lfs\n", 0o644)
			w.gitRun("config", "filter.lfs.clean", "cat")
		}, plan: mod, flags: []string{"--index"}},
		{code: "not-checked-out", path: "sp/far/f", prepare: func(w *world) {
			w.write("sp/far/f", "f\n", 0o644)
			w.write("near/n", "n\n", 0o644)
			w.commit()
			w.gitRun("sparse-checkout", "set", "near")
		}, plan: func(w *world) *plan { return w.plan().create("sp/far/f", "y\n") }},
		{code: "other-repository", path: "sub/f", prepare: func(w *world) {
			w.mkdir("sub")
			w.gitIn(w.path("sub"), "init", "-q", "--template=")
			w.write("sub/f", "f\n", 0o644)
		}, plan: func(w *world) *plan { return w.plan().modify("sub/f", "f\n", "y\n") }},
		{code: "dirty", plan: mod, prepare: func(w *world) {
			w.gitRun("config", "user.name", "A")
			w.gitRun("config", "user.email", "a@example.org")
			w.write("other", "dirty\n", 0o644)
		}, flags: []string{"--stage", "--ref", "refs/heads/made"}},
		{code: "unsupported-operation", plan: func(w *world) *plan {
			p := w.plan().create("n", "n\n")
			p.ops[0]["annotations"] = []any{obj{"message": "mode 120000", "data": obj{"mode": "120000"}}}
			return p
		}},
		{code: "check-denied", plan: mod, flags: []string{"--check", "no"}},
		{code: "check-indeterminate", plan: mod, flags: []string{"--check", "slow"}},
		{code: "check-indeterminate", plan: mod, flags: []string{"--call-site", "gate"}},
		{code: "weak-assurance", plan: mod, flags: []string{"--require-assurance", "isolated"}},
		{code: "weak-assurance", plan: mod, flags: []string{"--require-assurance", "gated"}},
		{code: "weak-guarantee", plan: mod, flags: []string{"--require-guarantee", "staged_snapshot"}},
	}
}

// TestRefusals goes through the contract's table: code, reason, path, exit
// status, and that nothing changed.
func TestRefusals(t *testing.T) {
	for _, c := range rows() {
		t.Run(c.code, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, map[string]string{"x": "x\n", "other": "other\n"})
			w.config(`{"checks":{"no":{"argv":["false"],"callSites":[]},"slow":{"argv":["sleep","30"],"timeoutMs":100,"callSites":[]}}}`)
			if c.prepare != nil {
				c.prepare(w)
			}
			p := c.plan(w)
			if c.stale != nil {
				c.stale(w)
			}
			m := w.mark()
			r := p.apply(c.flags...)
			if c.path != "" {
				r.refused(c.code, c.path)
			} else {
				r.refused(c.code)
			}
			m.unchanged()
			// A dry run says the same and leaves no receipt.
			n := len(w.receipts())
			dry := p.apply(append([]string{"--dry-run"}, c.flags...)...)
			if dry.code != 1 || dry.at("wouldApply") != false || !strings.HasPrefix(dry.str("refusal", "detail"), c.code+":") {
				t.Errorf("dry run: %s", dry)
			}
			if len(w.receipts()) != n {
				t.Error("a dry run left a receipt")
			}
			m.unchanged()
			// And so does the answer for people.
			if text := w.run(append([]string{"apply", "--plan", p.file()}, c.flags...)...); text.code != 1 || !strings.Contains(string(text.out), c.code) {
				t.Errorf("text: %s", text)
			}
		})
	}
	t.Run("metadata", func(t *testing.T) {
		need.Root(t)
		w := newWorld(t, map[string]string{"x": "x\n"})
		must(t, os.Lchown(w.path("x"), ordinary-1, ordinary-1)) // the group cannot be kept
		must(t, os.Chmod(w.path("x"), 0o666))
		p := w.plan().modify("x", "x\n", "y\n")
		m := w.mark()
		p.apply().refusedAny([]string{"metadata", "not-writable"}, "x")
		m.unchanged()
	})
	t.Run("name-collision", func(t *testing.T) {
		need.Root(t)
		w := newWorld(t, nil, on(caseless(t)))
		w.mkdir("fold")
		if out, err := exec.Command("chattr", "+F", w.path("fold")).CombinedOutput(); err != nil {
			need.Missing(t, "no names without case here: %v: %s", err, out)
		}
		w.write("fold/README", "r\n", 0o644)
		w.write("fold/x", "x\n", 0o644)
		w.commit()
		m := w.mark()
		w.plan().create("fold/New", "a\n").create("fold/new", "b\n").apply().refused("name-collision")
		w.plan().create("fold/readme", "a\n").apply().refusedAny([]string{"exists", "name-collision"}, "fold/readme")
		w.plan().rename("fold/x", "fold/ReadMe", "x\n").apply().refusedAny([]string{"exists", "name-collision"})
		w.plan().modify("fold/readme", "r\n", "R\n").apply().refusedAny([]string{"name-collision", "missing"}, "fold/readme")
		m.unchanged()
	})
	t.Run("unknown-proposal", func(t *testing.T) {
		w := newWorld(t, map[string]string{"x": "x\n"})
		m := w.mark()
		w.run("apply", "no-such", "--json").refused("unknown-proposal")
		m.unchanged()
	})
	t.Run("weak-guarantee on this file system", func(t *testing.T) {
		w := newWorld(t, map[string]string{"x": "x\n"})
		p := w.plan().modify("x", "x\n", "y\n")
		can := w.run("doctor", "--json").str("guarantee", "can")
		m := w.mark()
		r := p.apply("--require-guarantee", "workspace_transactional")
		if can == "workspace_transactional" {
			r.applied()
			return
		}
		r.refused("weak-guarantee")
		m.unchanged()
	})
	t.Run("busy", func(t *testing.T) {
		w := newWorld(t, map[string]string{"x": "x\n"})
		w.write(".git/index.lock", "", 0o644)
		p := w.plan().modify("x", "x\n", "y\n")
		p.apply("--index").refused("busy")
		must(t, os.Remove(w.path(".git/index.lock")))
		p.apply("--index").applied()
	})
}

func TestNeedsAttention(t *testing.T) {
	w := crashWorld(t, crashOld)
	p := crashPlan(w)
	p.id = crashID
	file := p.file()
	keep := w.keep()
	// Killed in the swap, and then somebody writes to a swapped path.
	stranded := func(t *testing.T) *world {
		keep.restore()
		if !w.killedBefore("-> "+w.path("f")+" flags", "apply", "--plan", file, "--json").killed {
			t.Fatal("survived")
		}
		w.is("a", "a new\n")
		w.write("a", "stranger\n", 0o644)
		r := w.run("recover", "--json")
		if r.code != 4 {
			t.Fatalf("want attention: %s", r)
		}
		rec, _ := r.at("recovered").([]any)
		if len(rec) != 1 || rec[0].(obj)["outcome"] != "needs-attention" || rec[0].(obj)["proposalId"] != crashID {
			t.Errorf("recovered: %s", r)
		}
		w.is("a", "stranger\n")
		if again := w.run("recover", "--json"); again.code != 4 {
			t.Errorf("it does not last: %s", again)
		}
		if s := w.run("status", "--json"); s.code != 4 {
			t.Errorf("status: %s", s)
		}
		return w.as(t)
	}
	t.Run("blocks its paths and no others", func(t *testing.T) {
		w := stranded(t)
		p := w.plan().modify("a", "stranger\n", "plan\n")
		p.apply().refused("needs-attention", "a")
		w.plan().modify("other", "other\n", "plan\n").apply().applied()
		w.is("a", "stranger\n")
	})
	t.Run("keep mine", func(t *testing.T) {
		w := stranded(t)
		w.run("doctor").exits(4)
		w.run("recover", "--keep-mine", "other").exits(1)
		if r := w.run("recover", "--keep-mine").says(0, "decided: a: what is on disk stays"); strings.Contains(string(r.out)+r.errs, "nothing to recover") {
			t.Error(r)
		}
		w.run("recover").says(0, "nothing to recover")
		w.is("a", "stranger\n")
		w.is("f", "f old\n")
		w.clean()
		w.plan().modify("a", "stranger\n", "plan\n").apply().applied()
	})
	t.Run("keep theirs", func(t *testing.T) {
		w := stranded(t)
		if show := w.run("recover", "--show", "a"); string(show.out) != "a old\n" {
			t.Errorf("show: %s", show)
		}
		if r := w.run("recover", "--json", "--keep-theirs", "a"); r.code != 0 {
			t.Fatal(r)
		}
		for p, x := range crashOld {
			w.is(p, x.data)
			w.perm(p, x.perm)
		}
		w.gone("n")
		w.gone("e")
		w.clean()
	})
}
