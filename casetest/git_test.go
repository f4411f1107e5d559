package casetest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// staged fails unless git sees exactly these lines of status.
func (w *world) statusIs(want string) {
	w.t.Helper()
	if got := w.status(); got != want {
		w.t.Errorf("git status says %q, want %q", got, want)
	}
}

// inIndex is the blob that the index holds for a path.
func (w *world) inIndex(path string) string {
	w.t.Helper()
	return w.gitRun("cat-file", "blob", ":"+path)
}

func TestGT01(t *testing.T) {
	linked := func(t *testing.T, packed bool) (*world, *world) {
		w := newWorld(t, map[string]string{"x": "x\n"})
		bare := filepath.Join(w.ws, "b.git")
		w.gitIn(w.ws, "clone", "-q", "--bare", "--template=", w.root, bare)
		wt := w.as(t)
		wt.root = filepath.Join(w.ws, "wt")
		w.gitIn(bare, "worktree", "add", "-q", wt.root, "main")
		w.gitIn(bare, "worktree", "add", "-q", "-b", "second", filepath.Join(w.ws, "wt2"))
		if packed {
			w.gitIn(bare, "pack-refs", "--all")
		}
		return w, wt
	}
	for _, packed := range []bool{false, true} {
		name := map[bool]string{false: "loose refs", true: "packed refs"}[packed]
		t.Run("worktree "+name, func(t *testing.T) {
			w, wt := linked(t, packed)
			second := w.gitIn(filepath.Join(w.ws, "wt2"), "--no-optional-locks", "status", "--porcelain")
			wt.plan().modify("x", "x\n", "y\n").apply().applied()
			wt.statusIs(" M x\n")
			wt.clean()
			if now := w.gitIn(filepath.Join(w.ws, "wt2"), "--no-optional-locks", "status", "--porcelain"); now != second {
				t.Errorf("the other worktree: %q", now)
			}
		})
		t.Run("worktree index "+name, func(t *testing.T) {
			w, wt := linked(t, packed)
			other, err := os.ReadFile(filepath.Join(w.ws, "b.git/worktrees/wt2/index"))
			must(t, err)
			wt.plan().modify("x", "x\n", "y\n").apply("--index").applied()
			wt.statusIs("M  x\n")
			if got := wt.inIndex("x"); got != "y\n" {
				t.Errorf("index holds %q", got)
			}
			now, err := os.ReadFile(filepath.Join(w.ws, "b.git/worktrees/wt2/index"))
			must(t, err)
			if string(now) != string(other) {
				t.Error("the index of the other worktree changed")
			}
			wt.clean()
		})
	}
	for _, flags := range [][]string{nil, {"--index"}} {
		t.Run("alternates "+strings.Join(flags, ""), func(t *testing.T) {
			w := newWorld(t, map[string]string{"x": "x\n"})
			c := w.as(t)
			c.root = filepath.Join(w.ws, "clone")
			w.gitIn(w.ws, "clone", "-q", "--shared", "--template=", w.root, c.root)
			c.plan().modify("x", "x\n", "y\n").apply(flags...).applied()
			c.statusIs(map[bool]string{true: " M x\n", false: "M  x\n"}[flags == nil])
			w.statusIs("")
		})
	}
}

func TestGT02(t *testing.T) {
	for _, how := range []string{"autocrlf", "attributes"} {
		setup := func(t *testing.T) *world {
			w := newWorld(t, map[string]string{"w.txt": "a\nb\n"})
			if how == "autocrlf" {
				w.gitRun("config", "core.autocrlf", "true")
			} else {
				w.write(".gitattributes", "* text eol=crlf\n", 0o644)
				w.commit()
			}
			must(t, os.Remove(w.path("w.txt")))
			w.gitRun("checkout", "-q", "--", ".")
			w.is("w.txt", "a\r\nb\r\n")
			w.statusIs("")
			return w
		}
		t.Run(how, func(t *testing.T) {
			w := setup(t)
			if b := w.baselineNow(); b["dirty"] != nil {
				t.Errorf("a clean tree is called dirty: %v", b)
			}
			w.write("check.sh", "", 0o644)
			must(t, os.Remove(w.path("check.sh")))
			w.config(`{"checks":{"bytes":{"argv":["sh","-c","od -An -c w.txt"]},"exact":{"argv":["sh","-c","test \"$(od -An -tx1 w.txt | tr -d ' \\n')\" = 610d0a420d0a"]}}}`)
			p := w.plan().modify("w.txt", "a\nb\n", "x")
			m := w.mark()
			p.apply().refused("stale-basis", "w.txt")
			m.unchanged()
			w.plan().edits("w.txt", "a\r\nb\r\n", edit(1, 0, 1, 1, "B")).apply("--check", "exact").applied()
			w.is("w.txt", "a\r\nB\r\n")
			if got := w.gitRun("diff", "--numstat"); got != "1\t1\tw.txt\n" {
				t.Errorf("git diff --numstat: %q", got)
			}
		})
		t.Run(how+" index", func(t *testing.T) {
			w := setup(t)
			w.plan().edits("w.txt", "a\r\nb\r\n", edit(1, 0, 1, 1, "B")).apply("--index").applied()
			w.is("w.txt", "a\r\nB\r\n")
			if got := w.inIndex("w.txt"); got != "a\nB\n" {
				t.Errorf("index holds %q", got)
			}
			w.statusIs("M  w.txt\n")
		})
	}
}

// config writes the trusted configuration.
func (w *world) config(json string) {
	w.t.Helper()
	w.mkdir(w.asp)
	must(w.t, os.Chmod(w.asp, 0o700))
	w.write(filepath.Join(w.asp, "config.json"), json, 0o600)
}

func TestGT03(t *testing.T) {
	setup := func(t *testing.T) *world {
		w := newWorld(t, map[string]string{"build/gen.txt": "gen\n", "src/a": "theirs\n", ".gitignore": "*.bin\n"})
		w.write("build/cache.bin", "\x00cache", 0o644)
		w.write("notes.txt", "notes\n", 0o644)
		w.write("src/a", "mine\n", 0o644)
		w.write(".gitignore", "*.bin\n*.o\n", 0o644)
		return w
	}
	t.Run("rolled back at the last step", func(t *testing.T) {
		w := setup(t)
		p := w.plan().remove("build/gen.txt", "gen\n").modify("src/a", "mine\n", "plan\n").create("zz", "z\n")
		m := w.mark()
		run := w.heldAt("-> "+w.path("src/a"), func() { w.write("zz", "stranger\n", 0o644) }, "apply", "--plan", p.file(), "--json")
		if run.code != 1 {
			t.Fatal(run.result)
		}
		w.is("zz", "stranger\n")
		must(t, os.Remove(w.path("zz")))
		w.is("src/a", "mine\n")
		m.rolledBack("build/gen.txt", "src/a", "zz")
	})
	t.Run("delete beside ignored files", func(t *testing.T) {
		w := setup(t)
		w.plan().remove("build/gen.txt", "gen\n").apply().applied()
		w.gone("build/gen.txt")
		w.is("build/cache.bin", "\x00cache")
		w.is("notes.txt", "notes\n")
		w.clean()
	})
	t.Run("delete of the directory", func(t *testing.T) {
		w := setup(t)
		p := w.plan().remove("build", "gen\n")
		m := w.mark()
		r := p.apply().refusedAny([]string{"not-empty", "not-regular"}, "build")
		if !strings.Contains(string(r.out), "cache.bin") {
			t.Logf("the refusal does not name the file that no snapshot holds: %s", r.str("refusal", "detail"))
			if r.codes()[0] == "not-empty" {
				t.Error("not-empty must name it")
			}
		}
		m.unchanged()
	})
}

func TestGT05(t *testing.T) {
	setup := func(t *testing.T) *world {
		w := newWorld(t, map[string]string{"other": "o\n"})
		w.gitRun("config", "filter.ptr.clean", "sed s/^/pointer:/")
		w.gitRun("config", "filter.ptr.smudge", "sed s/^pointer://")
		w.gitRun("config", "filter.ptr.required", "true")
		w.write(".gitattributes", "*.bin filter=ptr\n", 0o644)
		w.write("a.bin", "payload\n", 0o644)
		w.commit()
		if got := w.inIndex("a.bin"); got != "pointer:payload\n" {
			t.Fatalf("the filter does not work: %q", got)
		}
		return w
	}
	t.Run("apply", func(t *testing.T) {
		w := setup(t)
		w.plan().modify("a.bin", "payload\n", "payload2\n").apply().applied()
		w.is("a.bin", "payload2\n")
		w.statusIs(" M a.bin\n")
	})
	t.Run("index", func(t *testing.T) {
		w := setup(t)
		p := w.plan().modify("a.bin", "payload\n", "payload2\n")
		m := w.mark()
		p.apply("--index").refused("filtered-path", "a.bin")
		m.unchanged()
	})
	t.Run("attributes of the same plan", func(t *testing.T) {
		w := setup(t)
		p := w.plan().modify(".gitattributes", "*.bin filter=ptr\n", "*.bin filter=ptr\n*.dat filter=ptr\n").create("b.dat", "raw\n")
		m := w.mark()
		p.apply("--index").refused("filtered-path", "b.dat")
		m.unchanged()
		p.apply().applied()
		w.is("b.dat", "raw\n")
	})
}

func TestGT08(t *testing.T) {
	w := newWorld(t, map[string]string{"x": "x\n"})
	decoy, third := filepath.Join(w.ws, "decoy"), filepath.Join(w.base, "third")
	w.mkdir(decoy)
	w.mkdir(third)
	w.gitIn(decoy, "init", "-q", "--template=")
	w.write(filepath.Join(decoy, "y"), "y\n", 0o644)
	w.gitIn(decoy, "add", ".")
	w.gitIn(decoy, "commit", "-qm", "y")
	w.write(filepath.Join(w.home, ".gitconfig"), "[core]\n\tworktree = "+third+"\n\tbare = true\n\thooksPath = "+third+"\n", 0o644)
	w.config(`{"checks":{"git":{"argv":["sh","-c","env | grep ^GIT_ && exit 7; git init -q t && git -C t -c user.name=a -c user.email=a commit -q --allow-empty -m x"]}}}`)
	w.env = []string{
		"GIT_DIR=" + filepath.Join(decoy, ".git"), "GIT_INDEX_FILE=" + filepath.Join(decoy, ".git/index"), "GIT_WORK_TREE=" + decoy,
		"GIT_OBJECT_DIRECTORY=" + filepath.Join(decoy, ".git/objects"),
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=core.worktree", "GIT_CONFIG_VALUE_0=" + third,
	}
	before := w.list()
	r := w.plan().modify("x", "x\n", "y\n").apply("--index", "--check", "git")
	r.applied()
	must(t, os.Remove(filepath.Join(w.home, ".gitconfig")))
	if d := only(before, "decoy").diff(only(w.list(), "decoy"), nil); len(d) > 0 {
		t.Errorf("the decoy changed: %v", d)
	}
	if es, err := os.ReadDir(third); err != nil || len(es) > 0 {
		t.Errorf("the third directory: %v %v", es, err)
	}
	w.statusIs("M  x\n")
	w.clean()
}

// only is the part of a listing below a name.
func only(l listing, name string) listing {
	out := listing{}
	for p, e := range l {
		if p == name || strings.HasPrefix(p, name+"/") {
			out[p] = e
		}
	}
	return out
}

func TestGT10(t *testing.T) {
	w := newWorld(t, map[string]string{"x": "x\n"})
	w.write("x", "stash\n", 0o644)
	w.gitRun("stash")
	w.gitRun("gc", "-q")
	w.config(`{"checks":{"vandal":{"argv":["sh","-c","` + strings.Join([]string{
		"git config core.bare true", "git config core.hooksPath evil", "git stash", "git commit -qam x", "git branch tmp", "git tag t", "git gc -q --prune=now",
		`h=$(git rev-parse --git-path hooks/post-commit); mkdir -p $(dirname $h); echo evil > $h`,
		"echo evil > " + w.path(".git/hooks/post-commit"), "echo evil > " + w.path(".git/config"), "rm -rf " + w.path(".git/objects"),
		"git --git-dir=" + w.path(".git") + " branch tmp2", "exit 0",
	}, "; ") + `"],"timeoutMs":60000}}}`)
	p := w.plan().modify("x", "x\n", "y\n")
	m := w.mark()
	objects := w.gitRun("count-objects", "-v")
	p.apply("--dry-run", "--check", "vandal")
	m.unchanged()
	r := p.apply("--check", "vandal")
	r.applied()
	loose := map[string]bool{"repo/.git": true, "repo": true}
	after := w.list()
	for path, e := range m.list {
		if path == "repo/x" {
			continue
		}
		if loose[path] {
			continue
		}
		if after[path] != e {
			t.Errorf("%s: was %+v, is %+v", path, e, after[path])
		}
	}
	for path := range after {
		if _, ok := m.list[path]; !ok {
			t.Errorf("%s is new", path)
		}
	}
	if now := w.gitRun("count-objects", "-v"); now != objects {
		t.Errorf("objects: %s, were %s", now, objects)
	}
	w.gitRun("fsck", "--strict")
	w.statusIs(" M x\n")
	w.clean()
}

func TestCR03(t *testing.T) {
	w := newWorld(t, map[string]string{"conf.yml": "0\n"})
	w.write("conf.yml.tmp", "my backup\n", 0o644)
	w.write(".conf.yml.swp", "swap\n", 0o644)
	uw := filepath.Join(w.ws, "uw")
	w.gitRun("worktree", "add", "-q", "-b", "mine", uw)
	w.config(`{"checks":{"ok":{"argv":["true"]}}}`)
	trees, refs := w.gitRun("worktree", "list", "--porcelain"), w.gitRun("for-each-ref")
	w.run("status", "--json")
	names := w.list()
	// next is a run that changes the file once more, killed before its n-th change of
	// the disk; 0 is never.
	next := func(n int) *trace {
		t.Helper()
		old := w.read("conf.yml")
		run := w.killedAt(n, "apply", "--plan", w.plan().modify("conf.yml", old, old+"x\n").file(), "--json", "--check", "ok")
		if !run.killed {
			run.applied()
		}
		if now := w.read("conf.yml"); now != old && now != old+"x\n" {
			t.Fatalf("conf.yml: %q", now)
		}
		return run
	}
	// The sweep ends where a run comes through, the making of the scratch tree and the
	// receipt included. What a killed run left is ended before the next, which would
	// count that too: by a recovery, or by a run like it, which leaves nothing half-made
	// in any directory that it writes to.
	next(0) // makes what is made once
	full := len(next(0).lines)
	step := stride(full, 14)
	end := 0
	for n := 1; ; n += step {
		run := next(n)
		if !run.killed {
			end = n
			break
		}
		// A plan is made for what a recovery leaves.
		_, err := os.Stat(w.path(".git/asp"))
		if half := err == nil; half || n/step%2 == 1 {
			w.run("recover", "--json")
			if !half {
				continue
			}
		}
		next(0)
		w.stateClean()
		if t.Failed() {
			t.Fatalf("killed before %d, %q", n, run.lines[n-1])
		}
	}
	if end < full-full/5 {
		t.Errorf("the sweep ended at %d, and a whole run makes %d changes", end, full)
	}
	old := w.read("conf.yml")
	w.plan().modify("conf.yml", old, "last\n").apply("--check", "ok").applied()
	w.is("conf.yml", "last\n")
	w.is("conf.yml.tmp", "my backup\n")
	w.is(".conf.yml.swp", "swap\n")
	for p := range w.list() {
		if _, ok := names[p]; !ok {
			t.Errorf("%s is new", p)
		}
	}
	if now := w.gitRun("worktree", "list", "--porcelain"); now != trees {
		t.Errorf("worktrees: %s", now)
	}
	if now := w.gitRun("for-each-ref"); now != refs {
		t.Errorf("refs: %s", now)
	}
	w.clean()
	w.stateClean()
}

// stateClean fails if the state directory holds half-made files.
func (w *world) stateClean() {
	w.t.Helper()
	if left := w.halfMade(); left != "" {
		w.t.Errorf("left in the state directory: %s", left)
	}
}

// halfMade lists the files of the state directory that were never finished.
func (w *world) halfMade() string {
	w.t.Helper()
	out, err := exec.Command("find", w.asp, "-name", ".tmp-*", "-o", "-name", "*.part", "-o", "-name", "*.new").Output()
	must(w.t, err)
	return string(out)
}
