package apply_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aspengine/asp/apply"
	"github.com/aspengine/asp/editplan"
	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/internal/vfs/faultfs"
	"github.com/aspengine/asp/receipt"
	"github.com/aspengine/asp/seam/wire"
)

// gitBed is a bed whose repository can make commits and whose user has no
// configuration of their own.
func gitBed(t *testing.T, files map[string]string) *bed {
	t.Helper()
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", "")
	b := newBed(t, "", files)
	b.git("config", "user.name", "Ann")
	b.git("config", "user.email", "ann@example.org")
	b.git("branch", "-M", "main")
	return b
}

func (b *bed) at(root string) *bed {
	n := *b
	n.root = root
	return &n
}

func (b *bed) done(r apply.Request) *apply.Answer {
	b.t.Helper()
	a, err := b.apply(r)
	if err != nil {
		b.t.Fatal(err)
	}
	if !a.Result.Applied {
		b.t.Fatalf("refused: %v", a.Refusals)
	}
	return a
}

func (b *bed) refusedWith(r apply.Request, code string) *apply.Answer {
	b.t.Helper()
	before := b.listing()
	a, err := b.apply(r)
	if err != nil {
		b.t.Fatal(err)
	}
	if a.Result.Applied || !strings.HasPrefix(codes(a), code) {
		b.t.Fatalf("got %q %v, want %q", codes(a), a.Refusals, code)
	}
	if after := b.listing(); after != before {
		b.t.Fatalf("a refusal changed something:\n%s\nbefore\n%s", after, before)
	}
	return a
}

// listing is every file of the workspace, its git directory included, with its
// content; unreachable objects are left out.
func (b *bed) listing() string {
	b.t.Helper()
	var out strings.Builder
	err := filepath.WalkDir(b.root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(b.root, p)
		if strings.HasPrefix(rel, ".git/objects/") && !strings.Contains(rel, "tmp") && !strings.Contains(rel, "pack") {
			return nil
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		fmt.Fprintf(&out, "%s %v", rel, fi.Mode())
		switch {
		case fi.Mode().IsRegular():
			c, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			fmt.Fprintf(&out, " %q", c)
		case fi.Mode()&fs.ModeSymlink != 0:
			to, _ := os.Readlink(p)
			fmt.Fprintf(&out, " -> %q", to)
		}
		out.WriteByte('\n')
		return nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return out.String()
}

func (b *bed) status() string { b.t.Helper(); return b.git("status", "--porcelain") }

func (b *bed) rev(name string) string {
	b.t.Helper()
	return strings.TrimSpace(b.git("rev-parse", name))
}

func (b *bed) want(what, got, want string) {
	b.t.Helper()
	if got != want {
		b.t.Errorf("%s:\n%q\nwant\n%q", what, got, want)
	}
}

func one(id, path, old, after string) apply.Loader {
	return plan(id, func(*apply.View) []editplan.Draft { return []editplan.Draft{replace(path, old, after)} })
}

// GT-01: the index written is that of the linked work tree, the commit goes to
// the shared object store, and the other work trees see nothing of it.
func TestGT01LinkedWorkTree(t *testing.T) {
	for _, packed := range []bool{false, true} {
		for _, shared := range []bool{false, true} {
			t.Run(fmt.Sprintf("packed=%v,shared=%v", packed, shared), func(t *testing.T) {
				b := gitBed(t, map[string]string{"x": "x\n"})
				if packed {
					b.git("pack-refs", "--all")
					b.git("gc", "-q")
				}
				wt := b.at(filepath.Join(t.TempDir(), "wt"))
				if shared {
					b.git("clone", "-q", "--shared", b.root, wt.root)
					wt.git("config", "user.name", "Ann")
					wt.git("config", "user.email", "ann@example.org")
				} else {
					b.git("worktree", "add", "-q", "-b", "topic", wt.root)
				}
				index, _ := os.ReadFile(filepath.Join(b.root, ".git/index"))
				wt.done(apply.Request{Load: one("p1", "x", "x\n", "y\n"), Index: true})
				wt.want("status", wt.status(), "M  x\n")
				wt.want("staged", wt.git("show", ":x"), "y\n")
				wt.git("commit", "-qm", "two")
				wt.done(apply.Request{Load: one("p2", "x", "y\n", "z\n"), Publish: apply.Stage, Ref: "side"})
				wt.want("commit", wt.git("show", "side:x"), "z\n")
				wt.want("parent", wt.rev("side~1"), wt.rev("HEAD"))
				wt.want("status", wt.status(), "")
				b.want("status of the other", b.status(), "")
				if now, _ := os.ReadFile(filepath.Join(b.root, ".git/index")); string(now) != string(index) {
					t.Error("the other work tree's index changed")
				}
				wt.git("fsck", "--strict")
				if !shared {
					// A branch that another work tree has checked out stays where it is.
					wt.refusedWith(apply.Request{Load: one("p3", "x", "y\n", "z\n"), Publish: apply.Stage, Ref: "main"}, "unsupported-operation")
				}
			})
		}
	}
}

// GT-02: what is staged and committed is what git would store for the bytes.
func TestGT02LineEnds(t *testing.T) {
	for name, attr := range map[string]string{"autocrlf": "", "attribute": "* text eol=crlf\n"} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{"w.txt": "a\nb\n"}
			if attr != "" {
				files[".gitattributes"] = attr
			}
			b := gitBed(t, files)
			if attr == "" {
				b.git("config", "core.autocrlf", "true")
			}
			b.write("w.txt", "a\r\nb\r\n")
			b.git("add", "w.txt") // records the stat data
			b.want("status", b.status(), "")
			b.refusedWith(apply.Request{Load: one("p0", "w.txt", "a\nb\n", "a\nB\n"), Index: true}, "stale-basis")
			b.done(apply.Request{Load: one("p1", "w.txt", "a\r\nb\r\n", "a\r\nB\r\n"), Publish: apply.Stage, Ref: "side"})
			b.want("blob in commit", b.git("show", "side:w.txt"), "a\nB\n")
			b.done(apply.Request{Load: one("p2", "w.txt", "a\r\nb\r\n", "a\r\nB\r\n"), Index: true})
			b.want("working bytes", b.read("w.txt"), "a\r\nB\r\n")
			b.want("blob in index", b.git("cat-file", "blob", ":w.txt"), "a\nB\n")
			b.want("status", b.status(), "M  w.txt\n")
			b.want("against the ref", b.git("diff", "side"), "")
			b.want("numstat", b.git("diff", "--cached", "--numstat"), "1\t1\tw.txt\n")
		})
	}
}

// GT-05: no raw bytes of a filtered path get into git, by the attributes that the
// plan leaves.
func TestGT05Filters(t *testing.T) {
	b := gitBed(t, map[string]string{"a": "a\n", ".gitattributes": "*.bin filter=ptr\n"})
	b.git("config", "filter.ptr.clean", "echo pointer")
	b.git("config", "filter.ptr.required", "true")
	b.write("a.bin", "payload\n")
	b.git("add", "a.bin")
	b.git("commit", "-qm", "bin")
	big := one("p1", "a.bin", "payload\n", "payload2\n")
	b.refusedWith(apply.Request{Load: big, Index: true}, "filtered-path a.bin")
	b.refusedWith(apply.Request{Load: big, Publish: apply.Stage, Ref: "side"}, "filtered-path a.bin")
	b.done(apply.Request{Load: big})
	b.want("literal bytes", b.read("a.bin"), "payload2\n")

	c := gitBed(t, map[string]string{"a": "a\n"})
	c.git("config", "filter.ptr.clean", "echo pointer")
	both := plan("p2", func(*apply.View) []editplan.Draft {
		return []editplan.Draft{
			{Kind: editplan.Create, Path: ".gitattributes", Content: []byte("*.bin filter=ptr\n"), HasContent: true},
			{Kind: editplan.Create, Path: "b.bin", Content: []byte("payload\n"), HasContent: true},
		}
	})
	c.refusedWith(apply.Request{Load: both, Index: true}, "filtered-path b.bin")
	c.refusedWith(apply.Request{Load: both, Publish: apply.Stage, Ref: "side"}, "filtered-path b.bin")

	// What is dirty beside the plan goes into the commit only if it can.
	c.write(".gitattributes", "*.bin filter=ptr\n")
	c.write("c.bin", "payload\n")
	c.refusedWith(apply.Request{Load: one("p3", "a", "a\n", "b\n"), Publish: apply.Stage, Ref: "side", IncludeDirty: true}, "filtered-path c.bin")
}

// GT-08: git's variables and the user's own configuration lead nowhere else, on
// the built binary.
func TestGT08InheritedVariables(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "asp")
	if out, err := exec.Command("go", "build", "-o", bin, "github.com/aspengine/asp/cmd/asp").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b := gitBed(t, map[string]string{"x": "x\n"})
	decoy, third := gitBed(t, map[string]string{"x": "x\n"}), t.TempDir()
	before := decoy.listing()
	patch := filepath.Join(t.TempDir(), "p.diff")
	text := "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-x\n+y\n"
	if err := os.WriteFile(patch, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) {
		c := exec.Command(bin, append([]string{"apply", "--repo", b.root, "--patch", patch}, args...)...)
		g := filepath.Join(decoy.root, ".git")
		c.Env = append(os.Environ(), "ASP_HOME="+b.home.Path(), "GIT_DIR="+g, "GIT_INDEX_FILE="+g+"/index", "GIT_WORK_TREE="+decoy.root,
			"GIT_OBJECT_DIRECTORY="+g+"/objects", "GIT_COMMON_DIR="+g, "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=core.worktree", "GIT_CONFIG_VALUE_0="+third,
			"GIT_AUTHOR_NAME=Eve", "GIT_COMMITTER_EMAIL=eve@example.org", "GIT_AUTHOR_DATE=2001-01-01T00:00:00Z")
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("asp %v: %v\n%s", args, err, out)
		}
	}
	run("--stage", "--ref", "side", "--message", "said")
	b.want("commit", b.git("log", "-1", "--format=%an %ae %cn %ce %s %P", "side"), "Ann ann@example.org Ann ann@example.org said "+b.rev("HEAD")+"\n")
	if y := strings.TrimSpace(b.git("log", "-1", "--format=%ad", "--date=format:%Y", "side")); y == "2001" {
		t.Error("the date came from the environment")
	}
	c := b.at(filepath.Join(t.TempDir(), "second"))
	b.git("clone", "-q", b.root, c.root)
	b.root = c.root
	run("--index")
	b.want("status", b.status(), "M  x\n")
	decoy.want("decoy", decoy.listing(), before)
	if es, _ := os.ReadDir(third); len(es) > 0 {
		t.Errorf("the third directory holds %v", es)
	}
}

// The lock of another git process on the index ends the attempt; ours keeps
// git out while it is held.
func TestIndexLock(t *testing.T) {
	b := gitBed(t, twoFiles)
	lock := filepath.Join(b.root, ".git", "index.lock")
	if err := os.WriteFile(lock, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	r := apply.Request{Load: plan("p1", bothFiles), Index: true}
	if a := b.refusedWith(r, "busy"); !strings.Contains(a.Refusals[0].Detail, lock) {
		t.Errorf("the file is not named: %s", a.Refusals[0].Detail)
	}
	if err := os.Remove(lock); err != nil {
		t.Fatal(err)
	}
	// Taken between the first look and ours.
	b.hook = func(s string) {
		if s == "publishing" {
			_ = os.WriteFile(lock, nil, 0o644)
		}
	}
	a, err := b.apply(r)
	if err != nil || codes(a) != "busy " || b.read("a.txt") != "one\n" {
		t.Fatalf("%v %v", err, a.Refusals)
	}
	os.Remove(lock)
	var out string
	b.hook = func(s string) {
		if s == "swap" {
			c := exec.Command("git", "-C", b.root, "rm", "-q", "--cached", "b.txt")
			o, _ := c.CombinedOutput()
			out = string(o)
		}
	}
	b.done(r)
	if !strings.Contains(out, "index.lock") {
		t.Errorf("git was not kept out: %q", out)
	}
	b.want("status", b.status(), "M  a.txt\nM  b.txt\n")
	b.idle()
}

// An index that changes although its lock is held is not overwritten.
func TestIndexChangesUnderneath(t *testing.T) {
	b := gitBed(t, twoFiles)
	index := filepath.Join(b.root, ".git", "index")
	b.git("update-index", "--index-version", "4")
	v4, _ := os.ReadFile(index)
	b.git("update-index", "--index-version", "2")
	b.hook = func(s string) {
		if s == "swap" {
			_ = os.WriteFile(index, v4, 0o644)
		}
	}
	a, err := b.apply(apply.Request{Load: plan("p1", bothFiles), Index: true})
	if err != nil || a.Result.Applied || !strings.Contains(codes(a), "changed-underneath") {
		t.Fatalf("%v %+v", err, a.Refusals)
	}
	if now, _ := os.ReadFile(index); string(now) != string(v4) || b.read("a.txt") != "one\n" {
		t.Error("something changed")
	}
	b.idle()
}

// Every kind of operation, on a repository without an index and without a
// commit too.
func TestIndexOperations(t *testing.T) {
	b := gitBed(t, map[string]string{"m": "m\n", "del": "d\n", "dir/one": "1\n", "old": "moved\n", "x.sh": "#!\n"})
	b.done(apply.Request{Index: true, Load: plan("p1", func(*apply.View) []editplan.Draft {
		d := func(s string) (p editplan.Draft) {
			p = replace("", s, "")
			p.HasContent, p.Content = false, nil
			return p
		}
		del, ren, mode := d("d\n"), d("moved\n"), d("#!\n")
		del.Kind, del.Path = editplan.Delete, "del"
		ren.Kind, ren.Path, ren.To = editplan.Rename, "old", "sub/new"
		mode.Path, mode.Mode = "x.sh", editplan.ModeExec
		return []editplan.Draft{replace("m", "m\n", "M\n"), del, ren, mode, {Kind: editplan.Create, Path: "dir/two", Content: []byte("2\n"), HasContent: true}}
	})})
	b.want("status", b.status(), "D  del\nA  dir/two\nM  m\nR  old -> sub/new\nM  x.sh\n")
	b.want("mode", strings.Fields(b.git("ls-files", "-s", "x.sh"))[0], "100755")
	b.git("fsck", "--strict")
	b.idle()

	b.root = filepath.Join(t.TempDir(), "unborn")
	if err := os.Mkdir(b.root, 0o755); err != nil {
		t.Fatal(err)
	}
	b.git("init", "-q", "-b", "main")
	b.git("config", "user.name", "Ann")
	b.git("config", "user.email", "ann@example.org")
	create := func(id, p string) apply.Loader {
		return plan(id, func(*apply.View) []editplan.Draft {
			return []editplan.Draft{{Kind: editplan.Create, Path: p, Content: []byte("n\n"), HasContent: true}}
		})
	}
	b.done(apply.Request{Index: true, Load: create("p2", "n")})
	b.want("status", b.status(), "A  n\n")
	b.refusedWith(apply.Request{Publish: apply.Stage, Ref: "main", Load: create("p3", "o")}, "unsupported-operation")
	b.done(apply.Request{Publish: apply.Stage, Ref: "first", IncludeDirty: true, Load: create("p3", "o")})
	b.want("root commit", b.git("log", "--format=%P", "first"), "\n")
	b.want("tree", b.git("ls-tree", "-r", "--name-only", "first"), "n\no\n")
	b.git("fsck", "--strict")
}

// Attributes that the plan removes, from the index too, count no more.
func TestIndexAttributesRemoved(t *testing.T) {
	b := gitBed(t, map[string]string{".gitattributes": "* text eol=crlf\n", "w": "a\n"})
	b.write("w", "a\r\n")
	b.git("add", "w")
	b.done(apply.Request{Index: true, Load: plan("p1", func(*apply.View) []editplan.Draft {
		del := replace(".gitattributes", "* text eol=crlf\n", "")
		del.Kind, del.HasContent, del.Content = editplan.Delete, false, nil
		return []editplan.Draft{del, replace("w", "a\r\n", "b\r\n")}
	})})
	b.want("status", b.status(), "D  .gitattributes\nM  w\n")
	b.want("blob", b.git("cat-file", "blob", ":w"), "b\r\n")
}

// Outside git there is nothing to write to, and the exchange mode writes no
// index.
func TestGitModesRefused(t *testing.T) {
	b := gitBed(t, twoFiles)
	b.refusedWith(apply.Request{Load: plan("p1", bothFiles), Index: true, Publish: apply.Exchange}, "unsupported-operation")
	if err := os.RemoveAll(filepath.Join(b.root, ".git")); err != nil {
		t.Fatal(err)
	}
	b.refusedWith(apply.Request{Load: plan("p1", bothFiles), Index: true}, "unsupported-operation")
	b.refusedWith(apply.Request{Load: plan("p1", bothFiles), Publish: apply.Stage, Ref: "x"}, "unsupported-operation")
}

// A dry run and the real one say the same about the index and the reference,
// and the dry one writes nothing.
func TestGitDryRun(t *testing.T) {
	b := gitBed(t, twoFiles)
	b.write("a.txt", "staged\n")
	b.git("add", "a.txt")
	b.write("a.txt", "one\n")
	before := b.listing()
	for _, r := range []apply.Request{{Index: true}, {Publish: apply.Stage, Ref: "HEAD"}} {
		r.DryRun, r.Load = true, plan("p1", bothFiles)
		a, err := b.apply(r)
		if err != nil || a.DryRun.WouldApply {
			t.Fatalf("%v %+v", err, a.DryRun)
		}
	}
	b.refusedWith(apply.Request{Index: true, Load: plan("p1", bothFiles)}, "index-diverges a.txt")
	b.git("reset", "-q")
	a, err := b.apply(apply.Request{DryRun: true, Publish: apply.Stage, Ref: "side", Load: plan("p1", bothFiles)})
	if err != nil || !a.DryRun.WouldApply {
		t.Fatalf("%v %+v", err, a.DryRun)
	}
	b.git("add", "a.txt")
	if strings.Contains(before, "refs/heads/side") || strings.Contains(b.listing(), "refs/heads/side") {
		t.Error("a dry run made the reference")
	}
}

// The commit holds the after-state, whatever the reference held before.
func TestRefCommit(t *testing.T) {
	b := gitBed(t, map[string]string{"a": "a\n", "d/b": "b\n", "d/c": "c\n", "run": "#!\n"})
	if err := os.Symlink("a", filepath.Join(b.root, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(b.root, "run"), 0o755); err != nil {
		t.Fatal(err)
	}
	sub := filepath.Join(t.TempDir(), "sub")
	b.git("clone", "-q", b.root, sub)
	b.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", sub, "sub")
	b.git("add", "-A")
	b.git("commit", "-qm", "two")
	b.git("branch", "other", "HEAD~1")
	old := b.rev("other")
	load := plan("p1", func(*apply.View) []editplan.Draft {
		del := replace("d/b", "b\n", "")
		del.Kind, del.HasContent, del.Content = editplan.Delete, false, nil
		return []editplan.Draft{replace("a", "a\n", "A\n"), del}
	})
	before := b.status()
	a := b.done(apply.Request{Load: load, Publish: apply.Stage, Ref: "refs/heads/other", Message: "subject\r\n\r\n\r\nbody \x07\n\n"})
	if a.Result.Assurance.TransactionGuarantee != wire.Guarantee("staged_snapshot") || a.Outcome != receipt.Staged {
		t.Errorf("%+v", a.Result.Assurance)
	}
	b.want("workspace", b.status(), before)
	b.want("message", b.git("log", "-1", "--format=%B", "other"), "subject\n\nbody\n\n")
	b.want("parent", b.rev("other~1"), old)
	b.want("against HEAD", b.git("diff", "--name-status", "HEAD", "other"), "M\ta\nD\td/b\n")
	b.want("kinds", b.git("ls-tree", "--format=%(objectmode) %(path)", "other", "link", "run", "sub"), "120000 link\n100755 run\n160000 sub\n")
	if !strings.Contains(b.git("reflog", "other"), "asp: subject") {
		t.Error("no line in the reflog")
	}
	b.git("fsck", "--strict")
	if _, err := b.open().PublishStaged(context.Background(), "p1", apply.Request{CallSite: wire.Interactive, Intent: wire.IntentUser}); err != nil {
		t.Fatal(err)
	}
	b.want("after publish", b.git("diff", "other"), "")
	b.idle()

	// A proposal's words are the message where the caller has none.
	b.git("checkout", "-q", "--", ".")
	b.done(apply.Request{Load: one("some-id", "a", "a\n", "B\n"), Publish: apply.Stage, Ref: "refs/tags/t"})
	b.want("message", b.git("log", "-1", "--format=%B", "refs/tags/t"), "some-id\n\n")
}

// What is dirty outside the plan is named, or taken in when asked.
func TestRefDirty(t *testing.T) {
	b := gitBed(t, map[string]string{"a": "a\n", "b": "b\n", "gone": "g\n", ".gitignore": "*.o\n"})
	b.write("b", "mine\n")
	b.write("new", "untracked\n")
	b.write("x.o", "ignored\n")
	if err := os.Remove(filepath.Join(b.root, "gone")); err != nil {
		t.Fatal(err)
	}
	load := one("p1", "a", "a\n", "A\n")
	a := b.refusedWith(apply.Request{Load: load, Publish: apply.Stage, Ref: "side"}, "dirty")
	b.want("named", codes(a), "dirty b, dirty gone, dirty new")
	b.done(apply.Request{Load: load, Publish: apply.Stage, Ref: "side", IncludeDirty: true})
	b.want("tree", b.git("ls-tree", "-r", "--name-only", "side"), ".gitignore\na\nb\nnew\n")
	b.want("content", b.git("show", "side:b"), "mine\n")
	b.write("a", "A\n")
	b.git("add", "-A")
	b.want("git makes the same", strings.TrimSpace(b.git("write-tree")), b.rev("side^{tree}"))
	b.git("fsck", "--strict")
}

// References that cannot or must not be moved.
func TestRefRefusals(t *testing.T) {
	b := gitBed(t, map[string]string{"a": "a\n"})
	b.git("branch", "taken")
	b.git("branch", "deep/er")
	b.git("pack-refs", "--all")
	b.git("branch", "loose/one")
	b.git("symbolic-ref", "refs/heads/sym", "refs/heads/taken")
	b.git("tag", "-a", "-m", "t", "annotated")
	load := one("p1", "a", "a\n", "A\n")
	for _, ref := range []string{
		"HEAD", "@", "main", "refs/heads/main", "taken/below", "deep", "loose", "loose/one/x", "sym", "refs/tags/annotated",
		"a..b", "a b", "a~1", "-x", "/x", "x/", "x//y", ".x", "x.lock", "x.lock/y", "x.", "x@{1}", "x\\y", "x\x01", "refs/", "refs/heads", "refs/stash", "refs/../x", strings.Repeat("x", 2000),
	} {
		b.refusedWith(apply.Request{Load: load, Publish: apply.Stage, Ref: ref}, "unsupported-operation")
	}
	lock := filepath.Join(b.root, ".git/refs/heads/taken.lock")
	if err := os.WriteFile(lock, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if a := b.refusedWith(apply.Request{Load: load, Publish: apply.Stage, Ref: "taken"}, "busy"); !strings.Contains(a.Refusals[0].Detail, lock) {
		t.Error("the lock is not named")
	}
	os.Remove(lock)
	b.git("config", "--unset", "user.email")
	if a := b.refusedWith(apply.Request{Load: load, Publish: apply.Stage, Ref: "side"}, "unsupported-operation"); !strings.Contains(a.Refusals[0].Detail, "git config user.email") {
		t.Errorf("no next step: %s", a.Refusals[0].Detail)
	}
	b.git("config", "user.email", "ann@example.org")
	// Empty directories that git left are no obstacle.
	if err := os.MkdirAll(filepath.Join(b.root, ".git/refs/heads/was/there/once"), 0o755); err != nil {
		t.Fatal(err)
	}
	b.done(apply.Request{Load: load, Publish: apply.Stage, Ref: "was"})
	b.idle()
}

// Whoever moves the reference between our look and our lock wins.
func TestRefCompareAndSwap(t *testing.T) {
	for _, old := range []string{"", "HEAD"} {
		b := gitBed(t, map[string]string{"a": "a\n"})
		b.git("commit", "-q", "--allow-empty", "-m", "two")
		if old != "" {
			b.git("branch", "side", old)
		}
		b.hook = func(s string) {
			if s == "lock ref" {
				b.git("update-ref", "refs/heads/side", "HEAD~1")
			}
		}
		a, err := b.apply(apply.Request{Load: one("p1", "a", "a\n", "A\n"), Publish: apply.Stage, Ref: "side"})
		if err != nil || a.Result.Applied || codes(a) != "changed-underneath " || a.Result.Refusal.Reason != "conflict" {
			t.Fatalf("%v %+v", err, a.Refusals)
		}
		b.want("the reference", b.rev("side"), b.rev("HEAD~1"))
		b.hook = func(s string) {
			if s == "ref locked" {
				c := exec.Command("git", "-C", b.root, "update-ref", "refs/heads/side", "HEAD")
				if out, err := c.CombinedOutput(); err == nil || !strings.Contains(string(out), "side.lock") {
					t.Errorf("git was not kept out: %s", out)
				}
			}
		}
		// Refused before, so it may be tried again, on the new value.
		b.done(apply.Request{Load: one("p1", "a", "a\n", "A\n"), Publish: apply.Stage, Ref: "side"})
		b.want("parent", b.rev("side~1"), b.rev("HEAD~1"))
		b.idle()
	}
}

// No hook runs, whatever is configured.
func TestRefRunsNoHook(t *testing.T) {
	b := gitBed(t, map[string]string{"a": "a\n"})
	mark := filepath.Join(t.TempDir(), "ran")
	for _, h := range []string{"reference-transaction", "pre-commit", "commit-msg", "post-commit", "post-index-change"} {
		p := filepath.Join(b.root, ".git/hooks", h)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte("#!/bin/sh\ntouch "+mark+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	b.done(apply.Request{Load: one("p1", "a", "a\n", "A\n"), Publish: apply.Stage, Ref: "side"})
	b.done(apply.Request{Load: one("p2", "a", "a\n", "A\n"), Index: true})
	if _, err := os.Lstat(mark); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a hook ran")
	}
}

// TestGitDeaths lets the process die at every operation on the file system, before
// and after it. Recovery then leaves files, index, reference and receipt all old
// or all new, and no lock and no half-written object.
func TestGitDeaths(t *testing.T) {
	requests := map[string]apply.Request{
		"index": {Index: true, Load: plan("p1", bothFiles)},
		"ref":   {Publish: apply.Stage, Ref: "deep/side", Message: "m", Load: plan("p1", bothFiles)},
	}
	for name, r := range requests {
		t.Run(name, func(t *testing.T) {
			tmpl := gitBed(t, twoFiles)
			tmpl.git("pack-refs", "--all")
			r.CallSite, r.Intent = wire.Interactive, wire.IntentUser
			if err := os.RemoveAll(filepath.Join(tmpl.root, ".git/hooks")); err != nil {
				t.Fatal(err)
			}
			step := stride(7)
			for n, alive := 1, false; !alive; n += step {
				for _, death := range []faultfs.Death{faultfs.DiesBefore, faultfs.DiesAfter} {
					alive = die(t, tmpl, r, n, death)
				}
			}
		})
	}
}

func die(t *testing.T, tmpl *bed, r apply.Request, n int, death faultfs.Death) (alive bool) {
	t.Helper()
	dir, err := os.MkdirTemp("", "death-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	root, hd := filepath.Join(dir, "ws"), filepath.Join(dir, "home")
	if err := os.CopyFS(root, os.DirFS(tmpl.root)); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(hd, 0o700); err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	ffs := faultfs.New(vfs.OS{}, faultfs.AtMutation(n, faultfs.Fault{Death: death}))
	attempt := func(fsys vfs.FS, act func(*apply.Engine) error) error {
		h, err := home.Open(fsys, hd)
		if err != nil {
			return err
		}
		defer h.Close()
		e, err := apply.Open(ctx, apply.Options{Dir: root, Home: h, FS: fsys, Version: "test"})
		if err != nil {
			return err
		}
		defer e.Close()
		return act(e)
	}
	err = attempt(ffs, func(e *apply.Engine) error { _, err := e.Apply(ctx, r); return err })
	if !ffs.Dead() && err != nil {
		t.Fatalf("without a death: %v", err)
	}
	b := &bed{t: t, root: root}
	fail := func(format string, a ...any) {
		t.Errorf("death %d at mutation %d (%v): %s", death, n, err, fmt.Sprintf(format, a...))
	}
	var outcomes receipt.Outcomes
	for range 2 { // recovery twice is recovery once
		if rerr := attempt(vfs.OS{}, func(e *apply.Engine) (err error) {
			if _, err = e.Recover(ctx); err == nil {
				outcomes, err = e.Receipts().Lookup(ctx, "test", "p1")
			}
			return err
		}); rerr != nil {
			fail("recovery: %v", rerr)
			return true
		}
	}
	done := outcomes.Applied != nil || outcomes.Staged != nil
	list := b.listing()
	for _, bad := range []string{".lock", "tmp_obj", ".git/asp"} {
		if strings.Contains(list, bad) {
			fail("%s is left:\n%s", bad, list)
		}
	}
	status := ""
	if r.Index && done {
		status = "M  a.txt\nM  b.txt\n"
	}
	if got := b.status(); got != status {
		fail("status %q, want %q", got, status)
	}
	if r.Ref != "" {
		out, _ := exec.Command("git", "-C", root, "rev-parse", "--verify", "-q", r.Ref).Output()
		if (len(out) > 0) != done {
			fail("the reference is %q, the receipt says %v", out, done)
		}
		_, serr := os.Lstat(filepath.Join(root, ".git/refs/heads/deep"))
		if !done && serr == nil {
			fail("a directory of references is left")
		}
	}
	if out, err := exec.Command("git", "-C", root, "fsck", "--strict").CombinedOutput(); err != nil {
		fail("fsck: %s", out)
	}
	return !ffs.Dead()
}
