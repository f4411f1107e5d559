package casetest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestExitStatus(t *testing.T) {
	w := newWorld(t, map[string]string{"x": "x\n"})
	good := w.plan().modify("x", "x\n", "y\n").file()
	w.write(filepath.Join(w.base, "bad.json"), "{", 0o644)
	for _, c := range []struct {
		code int
		args []string
	}{
		{0, []string{"--version"}}, {0, []string{"--help"}}, {0, []string{"apply", "--help"}}, {0, []string{"status"}}, {0, []string{"recover"}},
		{0, []string{"receipts", "list"}}, {0, []string{"apply", "--plan", good, "--dry-run"}},
		{1, []string{"apply", "--plan", filepath.Join(w.base, "bad.json")}},
		{2, nil}, {2, []string{"no-such"}}, {2, []string{"apply"}}, {2, []string{"apply", "--no-such"}}, {2, []string{"apply", "--plan", good, "--patch", good}},
		{2, []string{"apply", "--plan", filepath.Join(w.base, "none.json")}}, {2, []string{"apply", "--plan", good, "--publish", "magic"}},
		{2, []string{"apply", "--plan", good, "--check", "none"}}, {2, []string{"apply", "--plan", good, "--require-guarantee", "much"}},
		{2, []string{"apply", "--plan", good, "--require-assurance", "much"}}, {2, []string{"apply", "--plan", good, "--call-site", "bed"}},
		{2, []string{"apply", "--plan", good, "--stage", "--index"}}, {2, []string{"apply", "--plan", good, "--ref", "refs/heads/x"}},
		{2, []string{"recover", "--keep-mine", "--keep-theirs"}}, {2, []string{"status", "extra"}}, {2, []string{"undo"}}, {2, []string{"publish"}},
		{3, []string{"status", "--repo", filepath.Join(w.base, "nowhere")}}, {1, []string{"undo", "rcpt-none"}}, {1, []string{"publish", "none"}}, {1, []string{"apply", "none"}},
		{1, []string{"receipts", "show", "rcpt-none"}}, {1, []string{"receipts", "verify", "--replay", "rcpt-none"}}, {1, []string{"fix", "none"}},
		{1, []string{"recover", "--show", "x"}}, {1, []string{"recover", "--keep-theirs", "x"}}, {1, []string{"recover", "--show", "blob:sha256:" + strings.Repeat("0", 64)}},
		{1, []string{"server", "status", "none"}}, {1, []string{"server", "reset", "none"}}, {1, []string{"server", "remove", "none"}},
		{1, []string{"repo", "enable", "none", "--mode", "gated"}}, {1, []string{"repo", "disable", "none"}},
		{2, []string{"apply", "--plan", good, "--stage", "--ref", ""}}, {2, []string{"apply", "--plan", good, "--fuzz", "1"}},
		{2, []string{"apply", "--plan", good, "--stage", "--message", "m"}}, {2, []string{"apply", "--plan", good, "--include-dirty"}},
	} {
		m := w.mark()
		r := w.run(c.args...)
		if r.code != c.code {
			t.Errorf("want exit status %d: %s", c.code, r)
		}
		if c.code >= 2 {
			if len(r.out) > 0 {
				t.Errorf("an error on stdout: %s", r)
			}
			if len(c.args) > 0 && c.args[0] != "no-such" {
				j := w.run(append(c.args, "--json")...)
				if j.code != c.code || j.str("error", "message") == "" || j.str("error", "data", "failClass") == "" || j.at("error", "code") == nil || strings.Count(strings.TrimSpace(string(j.out)), "\n") > 0 {
					t.Errorf("with --json: %s", j)
				}
			}
		}
		m.unchanged()
	}
	w.write(filepath.Join(w.asp, "config.json"), `{"nonsense":1}`, 0o600)
	w.run("apply", "--plan", good, "--json").failed()
	w.is("x", "x\n")
	must(t, os.Remove(filepath.Join(w.asp, "config.json")))
}

func TestShapes(t *testing.T) {
	w := newWorld(t, map[string]string{"x": "x\n", "mv": "mv\n", "del": "del\n"})
	w.config(`{"checks":{"ok":{"argv":["true"],"callSites":[]}}}`)
	w.run("status", "--json").valid("outer-host.schema.json#/$defs/statusResult")
	p := w.plan().modify("x", "x\n", "y\n").rename("mv", "d/mv2", "mv\n").remove("del", "del\n").create("new", "n\n")
	m := w.mark()
	dry := p.apply("--dry-run", "--check", "ok")
	m.unchanged()
	if dry.code != 0 || dry.at("dryRun") != true || dry.at("wouldApply") != true || dry.str("proposalId") != p.id || dry.at("baselineBefore", "rev") == nil ||
		dry.str("assurance", "transactionGuarantee") == "" || dry.at("refusal") != nil || !strings.Contains(dry.str("diff"), "+++ b/x") {
		t.Errorf("dry run: %s", dry)
	}
	// Its decision has a receipt, since the shape demands one, which says what it is.
	if said := dry.str("decision", "receipt", "assurance", "detail"); !strings.HasPrefix(said, "not stored") {
		t.Errorf("the receipt of a dry run says %q", said)
	}
	if r := w.run("receipts", "show", dry.str("decision", "receipt", "receiptId")); r.code != 1 || !strings.Contains(r.errs, "never stored, as that of a dry run") {
		t.Errorf("the receipt of a dry run: %s", r)
	}
	for k := range dry.answer {
		if !strings.Contains(" dryRun wouldApply proposalId baselineBefore assurance decision refusal changes diff ", " "+k+" ") {
			t.Errorf("a dry run has no member %q", k)
		}
	}
	kinds := map[string]string{}
	cs, _ := dry.at("changes").([]any)
	for _, c := range cs {
		o := c.(obj)
		kinds[fmt.Sprint(o["path"])] = fmt.Sprint(o["kind"])
		if o["kind"] == "modify" && (o["before"] != digest("x\n") || o["after"] != digest("y\n")) {
			t.Errorf("change %v", o)
		}
	}
	if kinds["x"] != "modify" || kinds["del"] != "delete" || kinds["new"] != "create" || kinds["d/mv2"] == "" {
		t.Errorf("changes: %v", kinds)
	}
	// The diff is one that git can apply to the same end.
	clone := filepath.Join(w.base, "clone")
	w.gitIn(w.base, "clone", "-q", "--template=", w.root, clone)
	w.write(filepath.Join(w.base, "d.diff"), dry.str("diff"), 0o644)
	w.gitIn(clone, "apply", filepath.Join(w.base, "d.diff"))

	r := p.apply("--check", "ok").applied()
	if r.str("assurance", "transactionGuarantee") != dry.str("assurance", "transactionGuarantee") {
		t.Errorf("a dry run promised %s, earned is %s", dry.str("assurance", "transactionGuarantee"), r.str("assurance", "transactionGuarantee"))
	}
	for _, f := range []string{"x", "d/mv2", "new"} {
		b, err := os.ReadFile(filepath.Join(clone, f))
		must(t, err)
		w.is(f, string(b))
	}
	if got := w.baselineNow(); got["rev"] != r.str("baselineAfter", "rev") || fmt.Sprint(got["dirty"]) != r.str("baselineAfter", "dirty") {
		t.Errorf("baselineAfter %v, status says %v", r.at("baselineAfter"), got)
	}
	id := r.str("receipt", "receiptId")
	show := w.run("receipts", "show", id, "--json")
	if show.code != 0 || show.str("outcome") != "applied" || show.str("receipt", "receiptId") != id || show.at("result", "applied") != true {
		t.Errorf("show: %s", show)
	}
	w.run("receipts", "show", id).says(0, "receipt "+id+" (apply-attempt)", "outcome applied", "call-site interactive", "proposal "+r.str("proposalId"), "guarantee "+r.str("assurance", "transactionGuarantee"),
		"assurance "+r.str("assurance", "mode"), "paths", "checks command/ok: passed", "previous")
	w.run("receipts", "show", id).says(0, "mv -> d/mv2")
	w.run("receipts", "show", id).says(0, "del (deleted)")
	for k := range show.answer {
		if !strings.Contains(" receipt outcome previous evidence result ", " "+k+" ") {
			t.Errorf("a stored receipt has no member %q", k)
		}
	}
	for _, f := range []string{"privateOnly", "experimental"} {
		if show.at("receipt", f) != true {
			t.Errorf("receipt: %s is %v", f, show.at("receipt", f))
		}
	}
	if show.at("receipt", "trustArtifact") != false {
		t.Error("a receipt calls itself an artifact of trust")
	}
	for _, x := range w.receipts() {
		for k := range x {
			if !strings.Contains(" receiptId issuedAt kind proposalId outcome ", " "+k+" ") {
				t.Errorf("a list entry has no member %q", k)
			}
		}
	}
	v := w.run("receipts", "verify", "--json")
	if n, _ := v.at("checked").(json.Number); v.at("ok") != true || n.String() != fmt.Sprint(len(w.receipts())) {
		t.Errorf("verify: %s", v)
	}
	// What is kept of an applied plan is durable, and so is all before it.
	second := w.plan().modify("x", "y\n", "z\n").apply().applied()
	if show := w.run("receipts", "show", second.str("receipt", "receiptId"), "--json"); !strings.HasPrefix(show.str("previous"), "sha256:") {
		t.Errorf("the second does not name its predecessor: %s", show)
	}
	// A file of a chain that is changed or missing is found; the newest too.
	w.broken = true
	files, err := filepath.Glob(filepath.Join(w.asp, "workspaces/*/receipts*/*.json"))
	must(t, err)
	for i, f := range files {
		b, err := os.ReadFile(f)
		must(t, err)
		must(t, os.WriteFile(f, []byte(strings.Replace(string(b), `"kind":"`, `"kind":"x`, 1)), 0o600))
		if v := w.run("receipts", "verify", "--json"); v.code != 1 || v.at("ok") != false {
			t.Errorf("%d of %d changed: %s", i, len(files), v)
		}
		must(t, os.Remove(f))
		if v := w.run("receipts", "verify", "--json"); v.code != 1 || v.at("ok") != false {
			t.Errorf("%d of %d missing: %s", i, len(files), v)
		}
		must(t, os.WriteFile(f, b, 0o600))
		w.own(f)
		if v := w.run("receipts", "verify", "--json"); v.code != 0 {
			t.Errorf("put back: %s", v)
		}
	}
}

func TestIdempotency(t *testing.T) {
	for _, flags := range [][]string{nil, {"--stage"}, {"--publish", "exchange"}, {"--index"}} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			w := newWorld(t, map[string]string{"x": "x\n", "o": "o\n"})
			p := w.plan().modify("x", "x\n", "y\n")
			first := p.apply(flags...).applied()
			n := len(w.receipts())
			m := w.mark()
			again := p.apply(flags...).applied()
			if string(first.out) != string(again.out) {
				t.Errorf("another answer:\n%s\n%s", first.out, again.out)
			}
			m.unchanged()
			if len(w.receipts()) != n {
				t.Error("another receipt")
			}
			other := w.plan().modify("o", "o\n", "O\n")
			other.id = p.id
			m = w.mark()
			other.apply(flags...).refused("id-reuse")
			m.unchanged()
			// Another provider may use the same id, but where publish would not know
			// which of two staged plans is meant.
			other.provider = "another"
			if r := other.apply(flags...); slices.Contains(flags, "--stage") {
				r.refused("id-reuse")
			} else {
				r.applied()
			}
		})
	}
	t.Run("a refused plan may be tried again", func(t *testing.T) {
		w := newWorld(t, map[string]string{"x": "x\n"})
		p := w.plan().modify("x", "x\n", "y\n")
		w.write("x", "moved\n", 0o644)
		p.apply().refused("stale-basis", "x")
		w.write("x", "x\n", 0o644)
		p.apply().applied()
	})
	t.Run("an older baseline of ours", func(t *testing.T) {
		w := newWorld(t, map[string]string{"x": "x\n", "o": "o\n"})
		p := w.plan().modify("x", "x\n", "y\n")
		w.write("o", "moved\n", 0o644)
		p.apply().applied()
		w.is("o", "moved\n")
	})
}

func TestMerge(t *testing.T) {
	const text = "1\n2\n3\n4\n5\n6\n7\n8\n9\n"
	w := newWorld(t, map[string]string{"f": text})
	p := w.plan().edits("f", text, edit(1, 0, 1, 1, "two"))
	w.write("f", strings.Replace(text, "8", "eight", 1), 0o644)
	m := w.mark()
	p.apply().refused("stale-basis", "f")
	m.unchanged()
	p.apply("--merge").applied()
	w.is("f", strings.NewReplacer("2", "two", "8", "eight").Replace(text))
}

func TestUndo(t *testing.T) {
	const text = "1\n2\n3\n4\n5\n6\n7\n8\n9\n"
	setup := func(t *testing.T) (*world, string, listing) {
		w := newWorld(t, map[string]string{"f": text, "del": "del\n", "mv": "mv\n"})
		must(t, os.Chmod(w.path("del"), 0o750))
		before := w.list()
		r := w.plan().edits("f", text, edit(1, 0, 1, 1, "two")).remove("del", "del\n").rename("mv", "d/mv", "mv\n").create("new/n", "n\n").apply().applied()
		return w, r.str("receipt", "receiptId"), before
	}
	t.Run("all", func(t *testing.T) {
		w, id, before := setup(t)
		r := w.run("undo", id, "--json").applied()
		if r.str("proposalId") != "undo:"+id {
			t.Errorf("proposal id %q", r.str("proposalId"))
		}
		now := w.list()
		for p, e := range before {
			if !strings.HasPrefix(p, "repo/.git") && (now[p].bytes != e.bytes || now[p].mode != e.mode) {
				t.Errorf("%s: was %+v, is %+v", p, e, now[p])
			}
		}
		w.gone("d")
		w.gone("new")
		w.clean()
		m := w.mark()
		again := w.run("undo", id, "--json").applied()
		if string(again.out) != string(r.out) {
			t.Errorf("the same undo, another answer: %s", again)
		}
		m.unchanged()
		if again.errs != "" {
			t.Errorf("what stands is called overtaken: %s", again)
		}
		w.run("undo", id).says(0, "unchanged  undo:"+id)
		// The undo can be undone. Then the first undo is no word on what is there, and
		// says which receipt takes the change back.
		back := w.run("undo", r.str("receipt", "receiptId"), "--json").applied().str("receipt", "receiptId")
		w.is("f", strings.Replace(text, "2", "two", 1))
		w.is("d/mv", "mv\n")
		w.gone("del")
		m = w.mark()
		again = w.run("undo", id, "--json").applied()
		if string(again.out) != string(r.out) || !strings.Contains(again.errs, "asp undo "+back) {
			t.Errorf("overtaken, as JSON: %s", again)
		}
		w.run("undo", id).says(0, "overtaken  undo:"+id, "asp undo "+back)
		m.unchanged()
		w.run("undo", back).says(0, "applied    undo:"+back)
		w.is("f", text)
		w.run("undo", id).says(0, "unchanged  undo:"+id)
		w.write("f", "by hand\n", 0o644)
		w.run("undo", id).says(0, "overtaken  undo:"+id, "f: no kept receipt left what is there now")
	})
	t.Run("later edits elsewhere stay", func(t *testing.T) {
		w, id, _ := setup(t)
		w.write("f", strings.Replace(w.read("f"), "8", "eight", 1), 0o644)
		w.run("undo", id, "--json").applied()
		w.is("f", strings.Replace(text, "8", "eight", 1))
	})
	t.Run("later edits of the same lines", func(t *testing.T) {
		w, id, _ := setup(t)
		w.write("f", strings.Replace(w.read("f"), "two", "TWO", 1), 0o644)
		m := w.mark()
		w.run("undo", id, "--json").refused("merge-conflict", "f")
		m.unchanged()
	})
	t.Run("a refused receipt", func(t *testing.T) {
		w := newWorld(t, map[string]string{"f": text})
		r := w.plan().modify("gone", "x\n", "y\n").apply().refused("missing")
		m := w.mark()
		w.run("undo", r.str("receipt", "receiptId"), "--json").refusedAny([]string{"unknown-proposal", "unsupported-operation", "missing"})
		m.unchanged()
	})
}

func TestStageAndPublish(t *testing.T) {
	w := newWorld(t, map[string]string{"x": "x\n", "o": "o\n"})
	p := w.plan().modify("x", "x\n", "y\n").create("d/n", "n\n")
	m := w.mark()
	r := p.apply("--stage").applied()
	m.unchanged()
	if g := r.str("assurance", "transactionGuarantee"); g != "staged_snapshot" {
		t.Errorf("guarantee %q", g)
	}
	w.write("o", "moved\n", 0o644)
	pub := w.run("publish", p.id, "--json").applied()
	w.is("x", "y\n")
	w.is("d/n", "n\n")
	w.is("o", "moved\n")
	if pub.str("proposalId") != p.id || pub.str("assurance", "transactionGuarantee") == "staged_snapshot" {
		t.Errorf("publish: %s", pub)
	}
	w.clean()
	t.Run("re-validated", func(t *testing.T) {
		w := w.as(t)
		q := w.plan().modify("x", "y\n", "z\n")
		q.apply("--stage").applied()
		w.write("x", "stranger\n", 0o644)
		m := w.mark()
		w.run("publish", q.id, "--json").refused("stale-basis", "x")
		m.unchanged()
	})
	t.Run("the baseline that is foreseen", func(t *testing.T) {
		w := newWorld(t, map[string]string{"x": "x\n"})
		q := w.plan().modify("x", "x\n", "y\n").create("n", "n\n")
		r := q.apply("--stage").applied()
		w.run("publish", q.id, "--json").applied()
		if now := w.baselineNow(); now["dirty"] != r.at("baselineAfter", "dirty") || now["rev"] != r.at("baselineAfter", "rev") {
			t.Errorf("foreseen %v, is %v", r.at("baselineAfter"), now)
		}
	})
}

func TestRef(t *testing.T) {
	w := newWorld(t, map[string]string{"x": "x\n", "run.sh": "#!\n"})
	w.gitRun("config", "user.name", "A")
	w.gitRun("config", "user.email", "a@example.org")
	must(t, os.Chmod(w.path("run.sh"), 0o755))
	w.commit()
	head := strings.TrimSpace(w.gitRun("rev-parse", "HEAD"))
	files := w.list()
	w.plan().modify("x", "x\n", "y\n").create("d/n", "n\n").apply("--stage", "--ref", "refs/heads/made", "--message", "made here").applied()
	if got := w.gitRun("log", "-1", "--format=%P %s", "refs/heads/made"); got != head+" made here\n" {
		t.Errorf("commit %q", got)
	}
	if got := w.gitRun("ls-tree", "-r", "--name-only", "refs/heads/made"); got != "d/n\nrun.sh\nx\n" {
		t.Errorf("tree %q", got)
	}
	if w.gitRun("cat-file", "blob", "refs/heads/made:x") != "y\n" || !strings.HasPrefix(w.gitRun("ls-tree", "refs/heads/made", "run.sh"), "100755 ") {
		t.Error("the tree is not the after-state")
	}
	w.is("x", "x\n")
	now := w.list()
	for _, p := range []string{"repo/.git/index", "repo/.git/HEAD", "repo/.git/config", "repo/.git/refs/heads/main", "repo/x"} {
		if files[p] != now[p] {
			t.Errorf("%s changed", p)
		}
	}
	w.gitRun("fsck", "--strict")
	w.clean()
}

func TestBaselines(t *testing.T) {
	key := func(b obj) string { return fmt.Sprint(b["rev"], " ", b["dirty"]) }
	for _, o := range []struct {
		name string
		opts []worldOption
	}{{"git", nil}, {"plain", []worldOption{noGit}}} {
		t.Run(o.name, func(t *testing.T) {
			w := newWorld(t, map[string]string{"x": "x\n", "d/y": "y\n"}, o.opts...)
			if w.git {
				w.write(".gitignore", "*.o\n", 0o644)
				w.commit()
			}
			clean := key(w.baselineNow())
			if w.git && (!strings.HasPrefix(clean, "git:tree:"+strings.TrimSpace(w.gitRun("rev-parse", "HEAD^{tree}"))) || w.baselineNow()["dirty"] != nil) {
				t.Errorf("a clean tree: %s", clean)
			}
			seen := map[string]string{clean: "clean"}
			differs := func(what string) {
				t.Helper()
				k := key(w.baselineNow())
				if was, ok := seen[k]; ok {
					t.Errorf("%s has the baseline of %s", what, was)
				}
				seen[k] = what
			}
			back := func(what string) {
				t.Helper()
				if k := key(w.baselineNow()); k != clean {
					t.Errorf("%s: %s is not the clean baseline %s", what, k, clean)
				}
			}
			fi, err := os.Stat(w.path("x"))
			must(t, err)
			w.write("x", "X\n", 0o644)
			must(t, os.Chtimes(w.path("x"), fi.ModTime(), fi.ModTime()))
			differs("other bytes of the same size and time")
			w.write("x", "x\n", 0o644)
			back("the bytes again")
			w.write("x", "x\n", 0o755)
			differs("another mode")
			w.write("x", "x\n", 0o644)
			back("the mode again")
			must(t, os.Rename(w.path("x"), w.path("x2")))
			differs("another name")
			must(t, os.Rename(w.path("x2"), w.path("x")))
			back("the name again")
			w.write("new", "", 0o644)
			differs("a new empty file")
			must(t, os.Remove(w.path("new")))
			back("without it")
			must(t, os.Remove(w.path("d/y")))
			differs("a file less")
			w.write("d/y", "y\n", 0o644)
			back("the file again")
			if w.git {
				w.write("x.o", "ignored", 0o644)
				back("an ignored file")
				w.write("x", "staged\n", 0o644)
				differs("a change")
				k := key(w.baselineNow())
				w.gitRun("add", "x")
				if key(w.baselineNow()) != k {
					t.Error("staging changes the baseline though no bytes did")
				}
				w.gitRun("reset", "-q", "--hard")
				back("reset")
			}
		})
	}
	t.Run("known answer", func(t *testing.T) {
		w := newWorld(t, map[string]string{"src/dogfood.ts": "export const dogfoodValue: number = 1;\n"}, noGit)
		b := w.baselineNow()
		if rev, _ := b["rev"].(string); !strings.HasPrefix(rev, "tree:sha256:") || b["dirty"] != nil {
			t.Errorf("baseline %v", b)
		}
	})
}

// TestPlainDirectory: without git all of it works, under .asp/tx.
func TestPlainDirectory(t *testing.T) {
	w := newWorld(t, map[string]string{"x": "x\n", "d/y": "y\n"}, noGit)
	r := w.plan().modify("x", "x\n", "X\n").remove("d/y", "y\n").create("n", "n\n").apply().applied()
	w.is("x", "X\n")
	w.gone("d")
	w.clean()
	w.gone(".asp")
	w.run("undo", r.str("receipt", "receiptId"), "--json").applied()
	w.is("d/y", "y\n")
	p := w.plan().create(".asp/tx/evil", "x\n")
	m := w.mark()
	p.apply().refused("path-protected", ".asp/tx/evil")
	m.unchanged()
	p = w.plan().modify("x", "x\n", "Z\n")
	if r := p.apply("--index"); r.code == 0 {
		t.Errorf("an index without git: %s", r)
	}
}

func TestPlanCommand(t *testing.T) {
	w := newWorld(t, map[string]string{"x": "1\n2\n3\n"})
	diff := "--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@\n 1\n-2\n+two\n 3\n"
	file := filepath.Join(w.base, "p.diff")
	w.write(file, diff, 0o644)
	bundle := w.run("plan", "--patch", file)
	if bundle.code != 0 {
		t.Fatal(bundle)
	}
	w.runIn(w.root, bundle.out, "apply", "--plan", "-", "--json").applied()
	w.is("x", "1\ntwo\n3\n")
	edits := fmt.Sprintf(`{"changes":{%q:[{"range":{"start":{"line":0,"character":0},"end":{"line":0,"character":1}},"newText":"one"}]}}`, "file://"+w.path("x"))
	made := w.runIn(w.root, []byte(edits), "plan", "--workspace-edit", "-", "--json")
	if made.code != 0 {
		t.Fatal(made)
	}
	id := made.str("proposal", "proposalId")
	w.run("apply", id, "--json").applied()
	w.is("x", "one\ntwo\n3\n")
}
