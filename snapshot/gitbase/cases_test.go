package gitbase_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/snapshot"
	"github.com/aspengine/asp/snapshot/gitbase"
)

func want(t *testing.T, s *snapshot.Stamp, changed ...string) {
	t.Helper()
	if changed == nil {
		changed = []string{}
	}
	if d := gocmp.Diff(changed, paths(s)); d != "" {
		t.Errorf("changed paths (-want +got):\n%s", d)
	}
	if (s.Baseline.Dirty == "") != (len(changed) == 0) {
		t.Errorf("dirty = %q", s.Baseline.Dirty)
	}
}

func head(t *testing.T, r tree) string { return "git:tree:" + r.git(t, "rev-parse", "HEAD^{tree}") }

func info(t *testing.T, ws snapshot.Workspace, names ...string) []snapshot.PathInfo {
	t.Helper()
	var ps []snapshot.Path
	for _, n := range names {
		p, err := snapshot.ParsePath(n)
		if err != nil {
			t.Fatal(err)
		}
		ps = append(ps, p)
	}
	in, err := ws.PathInfo(context.Background(), ps)
	if err != nil {
		t.Fatal(err)
	}
	s, err := ws.Stamp(context.Background(), snapshot.StampOptions{})
	if err != nil {
		t.Fatal(err)
	}
	at, err := ws.(snapshot.StampInfo).PathInfoAt(context.Background(), s, ps)
	if err != nil || !slices.Equal(at, in) {
		t.Errorf("as of a stamp: %+v, %v; asked anew: %+v", at, err, in)
	}
	return in
}

func stateDir(t testing.TB) vfs.Dir {
	t.Helper()
	d, err := vfs.OS{}.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func TestUnbornHead(t *testing.T) {
	r := newRepo(t)
	ws := r.open(t, nil)
	s := stamp(t, ws, false)
	want(t, s)
	if s.Baseline.Rev != "git:tree:4b825dc642cb6eb9a060e54bf8d69288fbee4904" {
		t.Errorf("rev = %s", s.Baseline.Rev)
	}
	r.write(t, "a", "1\n")
	r.git(t, "add", "a")
	want(t, stamp(t, ws, false), "a")
}

// TestGT01LinkedWorkTree: a linked work tree of a bare repository whose branch
// exists in packed-refs of the common directory only; a clone with alternates;
// a git directory of its own name; a submodule's.
func TestGT01LinkedWorkTree(t *testing.T) {
	seed := newRepo(t)
	seed.write(t, "x", "x\n")
	seed.write(t, "d/y", "y\n")
	seed.commit(t)
	tests := map[string]func(t *testing.T, top tree) tree{
		"worktree": func(t *testing.T, top tree) tree {
			top.git(t, "clone", "-q", "--bare", seed.dir, "b.git")
			top.git(t, "-C", "b.git", "worktree", "add", "-q", "-b", "topic", "../wt", "main")
			// The bare repository's own HEAD goes elsewhere.
			top.git(t, "-C", "b.git", "update-ref", "refs/heads/main", top.git(t, "-C", "b.git", "commit-tree", "4b825dc642cb6eb9a060e54bf8d69288fbee4904", "-m", "x"))
			top.git(t, "-C", "b.git", "pack-refs", "--all")
			return tree{top.path("wt")}
		},
		"alternates": func(t *testing.T, top tree) tree {
			top.git(t, "clone", "-q", "--shared", seed.dir, "c")
			return tree{top.path("c")}
		},
		"separate git dir": func(t *testing.T, top tree) tree {
			top.git(t, "clone", "-q", "--separate-git-dir", top.path("elsewhere"), seed.dir, "c")
			return tree{top.path("c")}
		},
		"submodule": func(t *testing.T, top tree) tree {
			top.git(t, "init", "-q", "super")
			top.git(t, "-C", "super", "submodule", "--quiet", "add", seed.dir, "sub")
			return tree{top.path("super/sub")}
		},
		"core.worktree": func(t *testing.T, top tree) tree {
			top.git(t, "clone", "-q", "--bare", seed.dir, "store.git")
			top.git(t, "-C", "store.git", "config", "core.bare", "false")
			top.git(t, "-C", "store.git", "config", "core.worktree", "../c")
			top.write(t, "c/.git", "gitdir: ../store.git\n")
			top.git(t, "-C", "c", "checkout", "-q", "-f")
			return tree{top.path("c")}
		},
		"detached": func(t *testing.T, top tree) tree {
			top.git(t, "clone", "-q", seed.dir, "c")
			top.git(t, "-C", "c", "checkout", "-q", "--detach")
			return tree{top.path("c")}
		},
		"packed objects": func(t *testing.T, top tree) tree {
			top.git(t, "clone", "-q", seed.dir, "c")
			top.git(t, "-C", "c", "gc", "-q")
			return tree{top.path("c")}
		},
		"index v4": func(t *testing.T, top tree) tree {
			top.git(t, "clone", "-q", seed.dir, "c")
			top.git(t, "-C", "c", "update-index", "--index-version", "4")
			return tree{top.path("c")}
		},
		"index without cache-tree": func(t *testing.T, top tree) tree {
			top.git(t, "clone", "-q", seed.dir, "c")
			top.git(t, "-C", "c", "read-tree", "--empty")
			top.git(t, "-C", "c", "add", ".")
			return tree{top.path("c")}
		},
		"worktree config": func(t *testing.T, top tree) tree {
			top.git(t, "clone", "-q", seed.dir, "c")
			top.git(t, "-C", "c", "config", "extensions.worktreeConfig", "true")
			top.git(t, "-C", "c", "config", "--worktree", "core.fileMode", "false")
			return tree{top.path("c")}
		},
	}
	for name, mk := range tests {
		t.Run(name, func(t *testing.T) {
			r := mk(t, newTree(t))
			ws := r.open(t, nil)
			for _, content := range []bool{false, true} {
				s := stamp(t, ws, content)
				want(t, s)
				if s.Baseline.Rev != head(t, seed) {
					t.Errorf("rev = %s, want %s", s.Baseline.Rev, head(t, seed))
				}
			}
			if gd := r.git(t, "rev-parse", "--absolute-git-dir"); ws.LockDir() != gd || ws.TxDir() != gd+"/asp" {
				t.Errorf("LockDir %s, TxDir %s, git dir %s", ws.LockDir(), ws.TxDir(), gd)
			}
			r.write(t, "x", "changed\n")
			r.write(t, "new", "n\n")
			if err := os.Remove(r.path("d/y")); err != nil {
				t.Fatal(err)
			}
			want(t, stamp(t, ws, false), "d/y", "new", "x")
		})
	}
}

func TestOpenFromBelow(t *testing.T) {
	r := newRepo(t)
	r.write(t, "a/b/c", "1\n")
	below := tree{r.path("a/b")}
	if ws := below.open(t, nil); ws.Root() != r.dir || !ws.Git() {
		t.Errorf("root %s, git %v", ws.Root(), ws.Git())
	}
	ws, err := gitbase.OpenRoot(context.Background(), below.dir, snapshot.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer ws.Close()
	if ws.Root() != below.dir || ws.Git() {
		t.Errorf("OpenRoot: root %s, git %v", ws.Root(), ws.Git())
	}
}

func TestRefused(t *testing.T) {
	tests := map[string]struct {
		mk   func(t *testing.T, r tree) string
		want func(error) bool
	}{
		"sha256": {func(t *testing.T, r tree) string {
			r.git(t, "init", "-q", "--object-format=sha256", "s")
			return "s"
		}, isUnsupported},
		"unknown extension": {func(t *testing.T, r tree) string {
			r.git(t, "init", "-q", "s")
			r.git(t, "-C", "s", "config", "core.repositoryformatversion", "1")
			r.git(t, "-C", "s", "config", "extensions.frobnicate", "true")
			return "s"
		}, isUnsupported},
		"bare": {func(t *testing.T, r tree) string {
			r.git(t, "init", "-q", "--bare", "s")
			return "s"
		}, func(err error) bool { return errors.Is(err, gitbase.ErrNoWorkTree) }},
		"inside the git directory": {func(t *testing.T, r tree) string {
			r.git(t, "init", "-q", "s")
			return "s/.git/refs"
		}, func(err error) bool { return errors.Is(err, gitbase.ErrNoWorkTree) }},
		"broken .git file": {func(t *testing.T, r tree) string {
			r.write(t, "s/.git", "gitdir: \n")
			return "s"
		}, func(err error) bool { return errors.Is(err, gitbase.ErrGitFile) }},
		".git file naming itself": {func(t *testing.T, r tree) string {
			r.write(t, "s/.git", "gitdir: .git\n")
			return "s"
		}, func(err error) bool { return errors.Is(err, gitbase.ErrGitFile) }},
		"endless .git file": {func(t *testing.T, r tree) string {
			r.write(t, "s/.git", "gitdir: "+strings.Repeat("a/", 1<<20))
			return "s"
		}, func(err error) bool { return err != nil }},
		"work tree elsewhere": {func(t *testing.T, r tree) string {
			r.git(t, "init", "-q", "s")
			r.write(t, "victim/x", "1\n")
			r.git(t, "-C", "s", "config", "core.worktree", r.path("victim"))
			return "s"
		}, func(err error) bool { return err != nil }},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := newTree(t)
			dir := tt.mk(t, r)
			ws, err := gitbase.Open(context.Background(), r.path(dir), snapshot.Options{})
			if err == nil {
				ws.Close()
			}
			if !tt.want(err) {
				t.Errorf("error %v", err)
			}
		})
	}
}

func isUnsupported(err error) bool {
	u, ok := errors.AsType[*gitbase.UnsupportedError](err)
	return ok && u.Next != ""
}

func TestSymbolicHeadLoop(t *testing.T) {
	r := newRepo(t)
	r.write(t, ".git/refs/heads/main", "ref: refs/heads/main\n")
	if _, err := r.open(t, nil).Stamp(context.Background(), snapshot.StampOptions{}); err == nil {
		t.Error("a reference loop was resolved")
	}
}

// TestGT02LineEnds: a tree that is clean under autocrlf or an eol attribute is
// clean, by stat data, by content, and after a touch.
func TestGT02LineEnds(t *testing.T) {
	for name, set := range map[string]func(t *testing.T, r tree){
		"autocrlf":  func(t *testing.T, r tree) { r.git(t, "config", "core.autocrlf", "true") },
		"attribute": func(t *testing.T, r tree) { r.write(t, ".gitattributes", "* text eol=crlf\n") },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRepo(t)
			set(t, r)
			r.write(t, "w.txt", "a\r\nb\r\n")
			r.commit(t)
			if got := r.git(t, "cat-file", "-p", "HEAD:w.txt"); got != "a\nb" {
				t.Fatalf("the blob is %q", got)
			}
			ws := r.open(t, stateDir(t))
			want(t, stamp(t, ws, false))
			want(t, stamp(t, ws, true))
			old := time.Now().Add(-time.Hour)
			if err := os.Chtimes(r.path("w.txt"), old, old); err != nil {
				t.Fatal(err)
			}
			want(t, stamp(t, ws, false))
			want(t, stamp(t, ws, false))
			clean := stamp(t, ws, false)
			r.write(t, "w.txt", "a\r\nB\r\n")
			s := stamp(t, ws, false)
			want(t, s, "w.txt")
			if s.Overlay[0].Digest != snapshot.DigestOf([]byte("a\r\nB\r\n")) {
				t.Error("the overlay does not hold the digest of the working bytes")
			}
			after, err := ws.After(context.Background(), s, []snapshot.Effect{effect(t, "w.txt", "a\r\nb\r\n")})
			if err != nil || after != clean.Baseline {
				t.Errorf("after putting the bytes back: %+v, %v; want %+v", after, err, clean.Baseline)
			}
		})
	}
}

// TestAttributesChangeInTree: with attributes that differ from HEAD's, stat data
// that git recorded under the old ones do not count; touching files changes
// nothing.
func TestAttributesChangeInTree(t *testing.T) {
	r := newRepo(t)
	r.write(t, ".gitattributes", "* text\n")
	r.write(t, "w", "a\r\n")
	r.write(t, "x", "a\n")
	r.commit(t)
	settle(t, r)
	ws := r.open(t, nil)
	s := stamp(t, ws, false)
	want(t, s)
	eff := effect(t, ".gitattributes", "* -text\n")
	after, err := ws.After(context.Background(), s, []snapshot.Effect{eff})
	if err != nil {
		t.Fatal(err)
	}
	r.write(t, ".gitattributes", "* -text\n")
	s = stamp(t, ws, false)
	want(t, s, ".gitattributes", "w")
	if s.Baseline != after {
		t.Errorf("After said %+v, it is %+v", after, s.Baseline)
	}
	now := time.Now()
	os.Chtimes(r.path("w"), now, now)
	if again := stamp(t, ws, false); again.Baseline != s.Baseline {
		t.Errorf("touching changed the baseline: %v, %v", paths(s), paths(again))
	}
}

func effect(t *testing.T, name, text string) snapshot.Effect {
	t.Helper()
	p, err := snapshot.ParsePath(name)
	if err != nil {
		t.Fatal(err)
	}
	return snapshot.Effect{Path: p, Digest: snapshot.DigestOf([]byte(text)), Size: int64(len(text)), Mode: snapshot.ModeRegular,
		Open: func() (snapshot.ReadCloser, error) { return nopCloser{strings.NewReader(text)}, nil }}
}

type nopCloser struct{ *strings.Reader }

func (nopCloser) Close() error { return nil }

// settle makes the index's stat data trustworthy: older than the index.
func settle(t *testing.T, r tree) {
	t.Helper()
	old := time.Now().Add(-time.Minute)
	for p := range strings.SplitSeq(r.git(t, "ls-files", "-z"), "\x00") {
		if p != "" {
			os.Chtimes(r.path(p), old, old)
		}
	}
	time.Sleep(30 * time.Millisecond)
	r.git(t, "update-index", "-q", "--refresh")
}

// TestCC01SameSizeSameMtime: an edit that keeps the size and puts the old mtime
// back is seen, through ctime.
func TestCC01SameSizeSameMtime(t *testing.T) {
	r := newRepo(t)
	r.write(t, "n.md", "alpha\nbeta\n")
	r.write(t, "u.md", "alpha\nbeta\n")
	r.git(t, "add", "n.md")
	r.git(t, "commit", "-q", "-m", "c")
	settle(t, r)
	old := time.Now().Add(-time.Minute)
	os.Chtimes(r.path("u.md"), old, old)
	time.Sleep(60 * time.Millisecond)
	ws := r.open(t, stateDir(t))
	want(t, stamp(t, ws, false), "u.md")
	before := stamp(t, ws, false)
	if before.Hashed != 0 {
		t.Fatalf("%d files read although nothing moved: the case is not what it should be", before.Hashed)
	}
	for _, name := range []string{"n.md", "u.md"} {
		fi, err := os.Stat(r.path(name))
		if err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(r.path(name), os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString("alphx\nbeta\n"); err != nil {
			t.Fatal(err)
		}
		f.Close()
		if err := os.Chtimes(r.path(name), fi.ModTime(), fi.ModTime()); err != nil {
			t.Fatal(err)
		}
		s := stamp(t, ws, false)
		if s.Baseline == before.Baseline {
			t.Errorf("the change of %s was not seen", name)
		}
		before = s
	}
	want(t, before, "n.md", "u.md")
}

// TestRacyIndex: a file rewritten in the tick in which the index was written
// has stat data that match; it is read all the same.
func TestRacyIndex(t *testing.T) {
	r := newRepo(t)
	r.write(t, "a", "1\n")
	r.commit(t)
	// Make the worst case exact: index and file carry one stamp.
	fi, err := os.Stat(r.path(".git/index"))
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Stat(r.path("a"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(r.path(".git/index"), fi.ModTime(), f.ModTime()); err != nil {
		t.Fatal(err)
	}
	if s := stamp(t, r.open(t, nil), false); s.Hashed != 1 || len(s.Overlay) != 0 {
		t.Errorf("%d files read, changed %v", s.Hashed, paths(s))
	}
}

func TestSpecialFiles(t *testing.T) {
	r := newRepo(t)
	r.write(t, "was", "1\n")
	r.write(t, "locked", "1\n")
	r.commit(t)
	ws := r.open(t, nil)
	if err := os.Remove(r.path("was")); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"was", "fifo"} {
		if err := unix.Mkfifo(r.path(p), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/passwd", r.path("out")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("dir", r.path("loop")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r.path("n\xffon"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(r.path("locked"), 0); err != nil {
		t.Fatal(err)
	}
	s := stamp(t, ws, true)
	notes := map[string]string{}
	for _, o := range s.Overlay {
		notes[o.Path] = o.Note
	}
	wantNotes := map[string]string{"was": "fifo", "fifo": "fifo", "out": "", "loop": "", "n\xffon": ""}
	if os.Geteuid() != 0 {
		wantNotes["locked"] = "unreadable"
	}
	if d := gocmp.Diff(wantNotes, notes); d != "" {
		t.Errorf("notes (-want +got):\n%s", d)
	}
	for _, o := range s.Overlay {
		if o.Path == "out" && (o.Mode != snapshot.ModeSymlink || o.Digest != snapshot.DigestOf([]byte("/etc/passwd"))) {
			t.Errorf("link: %+v", o)
		}
	}
}

// TestGT08InheritedVariables: GIT_ variables naming another repository change
// nothing.
func TestGT08InheritedVariables(t *testing.T) {
	target, decoy := newRepo(t), newRepo(t)
	target.write(t, "x", "target\n")
	target.commit(t)
	decoy.write(t, "y", "decoy\n")
	decoy.commit(t)
	plainWant := stamp(t, target.open(t, nil), false)
	third := t.TempDir()
	for k, v := range map[string]string{
		"GIT_DIR": decoy.path(".git"), "GIT_WORK_TREE": decoy.dir, "GIT_INDEX_FILE": decoy.path(".git/index"),
		"GIT_OBJECT_DIRECTORY": decoy.path(".git/objects"), "GIT_COMMON_DIR": decoy.path(".git"),
		"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.worktree", "GIT_CONFIG_VALUE_0": third,
		"GIT_CONFIG_PARAMETERS": "'core.bare=true'", "GIT_CEILING_DIRECTORIES": target.dir,
	} {
		t.Setenv(k, v)
	}
	ws := target.open(t, nil)
	if ws.Root() != target.dir {
		t.Fatalf("root = %s", ws.Root())
	}
	if s := stamp(t, ws, true); s.Baseline != plainWant.Baseline {
		t.Errorf("baseline %+v, without the variables %+v", s.Baseline, plainWant.Baseline)
	}
}

// TestNothingIsExecuted: everything in a repository that names a program stays
// unused, for the index forms read here and for the one that git lists.
func TestNothingIsExecuted(t *testing.T) {
	for _, split := range []bool{false, true} {
		r := newRepo(t)
		r.write(t, "a", "1\n")
		r.write(t, "b.bin", "payload\n")
		r.commit(t)
		if split {
			r.git(t, "update-index", "--split-index")
		}
		marker := r.path(".git/executed")
		r.write(t, ".git/run", "#!/bin/sh\ntouch "+marker+"\n")
		if err := os.Chmod(r.path(".git/run"), 0o755); err != nil {
			t.Fatal(err)
		}
		run := r.path(".git/run")
		for _, hook := range []string{"post-index-change", "pre-commit", "post-checkout", "fsmonitor-watchman"} {
			r.write(t, ".git/hooks/"+hook, "#!/bin/sh\ntouch "+marker+"\n")
			os.Chmod(r.path(".git/hooks/"+hook), 0o755)
		}
		for _, kv := range [][2]string{
			{"core.pager", run}, {"core.editor", run}, {"core.sshCommand", run}, {"credential.helper", run}, {"diff.external", run},
			{"filter.f.clean", run}, {"filter.f.smudge", run}, {"filter.f.process", run}, {"diff.f.textconv", run},
			{"alias.ls-files", "!" + run}, {"pager.ls-files", run}, {"trace2.eventTarget", marker}, {"core.fsmonitor", run},
		} {
			r.write(t, ".git/config", readFile(t, r.path(".git/config"))+sectionOf(kv[0], kv[1]))
		}
		r.write(t, ".gitattributes", "*.bin filter=f diff=f\n")
		r.write(t, "b.bin", "changed\n")
		ws := r.open(t, nil)
		for _, content := range []bool{false, true} {
			s := stamp(t, ws, content)
			want(t, s, ".gitattributes", "b.bin")
			if split && !slices.ContainsFunc(s.Notes, func(n string) bool { return strings.Contains(n, "split index") }) {
				t.Errorf("the detour over git is not noted: %q", s.Notes)
			}
		}
		if got := info(t, ws, "b.bin", "a"); got[0].Filter != "f" || got[1].Filter != "" {
			t.Errorf("filters %+v", got)
		}
		if _, err := os.Lstat(marker); err == nil {
			t.Errorf("split=%v: something was executed", split)
		}
	}
}

func sectionOf(key, value string) string {
	f := strings.Split(key, ".")
	head := "[" + f[0] + "]"
	if len(f) == 3 {
		head = "[" + f[0] + " \"" + f[1] + "\"]"
	}
	return head + "\n\t" + f[len(f)-1] + " = " + value + "\n"
}

func readFile(t *testing.T, p string) string {
	t.Helper()
	b, err := os.ReadFile(p)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestFilteredPaths(t *testing.T) {
	r := newRepo(t)
	r.write(t, "a.bin", "payload\n")
	r.write(t, "sub/b.bin", "payload\n")
	r.write(t, "c", "c\n")
	r.commit(t)
	settle(t, r)
	ws := r.open(t, nil)
	want(t, stamp(t, ws, false))
	// An attribute without a driver is none.
	r.write(t, ".git/info/attributes", "*.bin filter=ptr\n")
	want(t, stamp(t, ws, false))
	r.git(t, "config", "filter.ptr.clean", "false")
	s := stamp(t, ws, false)
	want(t, s, "a.bin", "sub/b.bin")
	if len(s.Notes) != 1 || !strings.Contains(s.Notes[0], "2 files have a content filter") {
		t.Errorf("notes %q", s.Notes)
	}
	if s.Overlay[0].Digest != snapshot.DigestOf([]byte("payload\n")) {
		t.Errorf("entry %+v", s.Overlay[0])
	}
	if c := stamp(t, ws, true); c.Baseline != s.Baseline {
		t.Errorf("by content %+v, by stat data %+v", c.Baseline, s.Baseline)
	}
}

func TestIndexDoesNotMatter(t *testing.T) {
	r := newRepo(t)
	r.write(t, "a", "1\n")
	r.write(t, "d/b", "1\n")
	r.write(t, ".gitignore", "*.log\n")
	r.commit(t)
	ws := r.open(t, nil)
	want(t, stamp(t, ws, false))
	// Staged, then put back on disk: equal to HEAD.
	r.write(t, "a", "2\n")
	r.git(t, "add", "a")
	r.write(t, "a", "1\n")
	want(t, stamp(t, ws, false))
	// Removed from the index only.
	r.git(t, "rm", "-q", "--cached", "d/b")
	want(t, stamp(t, ws, false))
	// Removed and ignored.
	r.write(t, "e.log", "1\n")
	want(t, stamp(t, ws, false))
	// Tracked although ignored: it is on disk and not in HEAD.
	r.git(t, "add", "-f", "e.log")
	want(t, stamp(t, ws, false), "e.log")
	// Intent to add.
	r.write(t, "f", "")
	r.git(t, "add", "-N", "f")
	want(t, stamp(t, ws, false), "e.log", "f")
}

func TestUnmergedPaths(t *testing.T) {
	r := newRepo(t)
	r.write(t, "a", "base\n")
	r.commit(t)
	r.git(t, "checkout", "-q", "-b", "other")
	r.write(t, "a", "theirs\n")
	r.commit(t)
	r.git(t, "checkout", "-q", "main")
	r.write(t, "a", "ours\n")
	r.commit(t)
	ws := r.open(t, nil)
	cleanHead := stamp(t, ws, false)
	want(t, cleanHead)
	r.gitFails(t, "merge", "-q", "other")
	want(t, stamp(t, ws, false), "a")
	if !info(t, ws, "a")[0].Tracked {
		t.Error("an unmerged path is tracked")
	}
	r.write(t, "a", "ours\n")
	if s := stamp(t, ws, false); s.Baseline != cleanHead.Baseline {
		t.Errorf("bytes as in HEAD: %+v", s)
	}
}

func TestSparseCheckout(t *testing.T) {
	for _, sparseIndex := range []bool{false, true} {
		r := newRepo(t)
		r.write(t, "in/a", "1\n")
		r.write(t, "out/deep/b", "1\n")
		r.write(t, "out/c", "1\n")
		r.write(t, "top", "1\n")
		r.commit(t)
		if sparseIndex {
			r.git(t, "sparse-checkout", "set", "--cone", "--sparse-index", "in")
		} else {
			r.git(t, "sparse-checkout", "set", "--cone", "in")
		}
		if _, err := os.Lstat(r.path("out")); err == nil {
			t.Fatal("the checkout is not sparse")
		}
		ws := r.open(t, nil)
		s := stamp(t, ws, false)
		want(t, s)
		if s.Baseline.Rev != head(t, r) {
			t.Errorf("rev %s", s.Baseline.Rev)
		}
		in := info(t, ws, "out/c", "in/a", "out/new")
		if !in[0].Tracked || !in[0].SkipWorktree || in[1].SkipWorktree || in[2].Tracked {
			t.Errorf("sparse index %v: %+v", sparseIndex, in)
		}
		r.write(t, "out/c", "2\n")
		want(t, stamp(t, ws, false), "out/c")
	}
}

func TestSubmodulesAndNestedRepositories(t *testing.T) {
	lib := newRepo(t)
	lib.write(t, "l", "1\n")
	lib.commit(t)
	r := newRepo(t)
	r.write(t, "a", "1\n")
	r.git(t, "submodule", "--quiet", "add", lib.dir, "sub")
	r.commit(t)
	ws := r.open(t, nil)
	want(t, stamp(t, ws, false))
	in := info(t, ws, "sub/l", "sub", "a")
	if !in[0].InSubmodule || !in[1].InSubmodule || in[2].InSubmodule {
		t.Errorf("%+v", in)
	}
	r.write(t, "sub/l", "2\n")
	s := stamp(t, ws, false)
	want(t, s, "sub")
	r.write(t, "sub/l", "3\n")
	if again := stamp(t, ws, false); again.Baseline == s.Baseline {
		t.Error("a change inside the submodule changed nothing")
	}
	sub := tree{r.path("sub")}
	sub.commit(t)
	s = stamp(t, ws, false)
	want(t, s, "sub")
	if !strings.Contains(s.Overlay[0].Ref, sub.git(t, "rev-parse", "HEAD")) {
		t.Errorf("ref %q", s.Overlay[0].Ref)
	}
	r.git(t, "submodule", "--quiet", "update", "--force")
	want(t, stamp(t, ws, false))
	r.git(t, "submodule", "--quiet", "deinit", "-f", "sub")
	want(t, stamp(t, ws, false))

	r.git(t, "init", "-q", "x/nested")
	r.write(t, "x/nested/n", "1\n")
	s = stamp(t, ws, false)
	want(t, s, "x/nested")
	if s.Overlay[0].Note != "repository" || !info(t, ws, "x/nested/n")[0].InSubmodule {
		t.Errorf("%+v", s.Overlay[0])
	}
	if _, err := ws.After(context.Background(), s, []snapshot.Effect{effect(t, "x/nested/n", "2\n")}); err == nil {
		t.Error("After took an effect in another repository")
	}
}

func TestIgnoredInfo(t *testing.T) {
	r := newRepo(t)
	r.write(t, ".gitignore", "build/\n*.o\n!keep.o\n")
	r.write(t, "build/out", "1\n")
	r.write(t, "sub/.gitignore", "x\n")
	r.write(t, "t.o", "1\n")
	r.git(t, "add", "-f", "t.o")
	ws := r.open(t, nil)
	in := info(t, ws, "build/out", "build/none/at/all", "a.o", "keep.o", "sub/x", "x", "t.o", "build")
	got := make([]bool, len(in))
	for i := range in {
		got[i] = in[i].Ignored
	}
	if d := gocmp.Diff([]bool{true, true, true, false, true, false, false, true}, got); d != "" {
		t.Errorf("ignored (-want +got):\n%s", d)
	}
}

// TestStatCache: the second stamp of a dirty tree reads nothing, in the same
// process and in another; a damaged or foreign cache counts as none.
func TestStatCache(t *testing.T) {
	r := newRepo(t)
	r.write(t, "a", "1\n")
	r.write(t, "b", "1\n")
	r.commit(t)
	settle(t, r)
	r.write(t, "a", "2\n")
	r.write(t, "u", "2\n")
	time.Sleep(80 * time.Millisecond)
	dir := t.TempDir()
	state, err := vfs.OS{}.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	look := func() *snapshot.Stamp {
		t.Helper()
		ws, err := gitbase.Open(context.Background(), r.dir, snapshot.Options{State: state})
		if err != nil {
			t.Fatal(err)
		}
		s := stamp(t, ws, false)
		if err := ws.Close(); err != nil {
			t.Fatal(err)
		}
		return s
	}
	first := look()
	if first.Hashed != 2 {
		t.Errorf("first look read %d files", first.Hashed)
	}
	if s := look(); s.Hashed != 0 || s.Baseline != first.Baseline {
		t.Errorf("second look read %d files; %+v, %+v", s.Hashed, s.Baseline, first.Baseline)
	}
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(names) != 1 {
		t.Fatalf("state directory holds %q, %v", names, err)
	}
	b := readFile(t, names[0])
	for _, bad := range []string{"", b[:len(b)/2], b[:len(b)-9] + "x" + b[len(b)-8:], strings.Replace(b, r.dir, strings.Repeat("z", len(r.dir)), 1)} {
		if err := os.WriteFile(names[0], []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if s := look(); s.Hashed != 2 || s.Baseline != first.Baseline {
			t.Errorf("with a bad cache: read %d files, %+v", s.Hashed, s.Baseline)
		}
	}
}

func (r tree) gitFails(t *testing.T, args ...string) {
	t.Helper()
	if err := r.try(args...); err == nil {
		t.Fatalf("git %q succeeded", args)
	}
}

// TestPackedHistory reads trees out of delta chains: HEAD is put on every
// commit of a packed history while the files stay at the newest.
func TestPackedHistory(t *testing.T) {
	r := newRepo(t)
	name := func(i int) string {
		return "d" + string(rune('a'+i%5)) + "/e" + string(rune('a'+i%7)) + "/file" + string(rune('a'+i%26)) + string(rune('a'+i/26))
	}
	for i := range 300 {
		r.write(t, name(i), "start\n")
	}
	r.commit(t)
	for i := range 12 {
		r.write(t, name(i*17), "changed "+name(i)+"\n")
		r.write(t, name(i*3), "too "+name(i)+"\n")
		r.commit(t)
	}
	r.git(t, "-c", "pack.depth=250", "gc", "-q", "--aggressive", "--prune=now")
	if m, err := filepath.Glob(r.path(".git/objects/??")); err != nil || len(m) != 0 {
		t.Fatalf("loose objects are left: %q, %v", m, err)
	}
	ws := r.open(t, nil)
	for id := range strings.SplitSeq(r.git(t, "rev-list", "--all"), "\n") {
		r.write(t, ".git/HEAD", id+"\n")
		s := stamp(t, ws, false)
		want(t, s, strings.Fields(r.git(t, "diff", "--name-only", id))...)
		if s.Baseline.Rev != head(t, r) {
			t.Errorf("rev %s", s.Baseline.Rev)
		}
	}
}

func TestDamagedObjects(t *testing.T) {
	r := newRepo(t)
	for i := range 30 {
		r.write(t, "f"+string(rune('a'+i)), strings.Repeat("x", i))
	}
	r.commit(t)
	r.git(t, "gc", "-q")
	r.git(t, "read-tree", "--empty")
	packs, err := filepath.Glob(r.path(".git/objects/pack/*.*"))
	if err != nil || len(packs) < 2 {
		t.Fatal(packs, err)
	}
	good := stamp(t, r.open(t, nil), false)
	want(t, good)
	for _, p := range packs {
		b := readFile(t, p)
		if err := os.Chmod(p, 0o644); err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(b); i += 7 {
			bad := []byte(b)
			bad[i] ^= 0x15
			if err := os.WriteFile(p, bad, 0o644); err != nil {
				t.Fatal(err)
			}
			ws, err := gitbase.Open(context.Background(), r.dir, snapshot.Options{})
			if err != nil {
				t.Fatal(err)
			}
			s, err := ws.Stamp(context.Background(), snapshot.StampOptions{})
			if err == nil && s.Baseline != good.Baseline {
				t.Fatalf("%s, byte %d: a wrong baseline: %v", p, i, paths(s))
			}
			ws.Close()
		}
		if err := os.WriteFile(p, []byte(b), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestStatCacheOfConvertedFiles: files that git's index cannot answer for
// (touched since) and whose bytes are not the blob's are read once.
func TestStatCacheOfConvertedFiles(t *testing.T) {
	r := newRepo(t)
	r.git(t, "config", "core.autocrlf", "true")
	big := strings.Repeat("line\r\n", 100_000) // more than one buffer
	r.write(t, "big", big)
	r.write(t, "changed", "a\r\n")
	r.write(t, "small", "a\r\n")
	r.write(t, "plain", "a\n")
	r.commit(t)
	r.write(t, "changed", big)
	now := time.Now().Add(-time.Minute)
	for _, p := range []string{"big", "small", "plain", "changed"} {
		os.Chtimes(r.path(p), now, now)
	}
	time.Sleep(80 * time.Millisecond)
	state := stateDir(t)
	var base snapshot.Baseline
	for i, reads := range []int{5, 0, 0} { // "changed" is large: its digest takes a second look
		ws, err := gitbase.Open(context.Background(), r.dir, snapshot.Options{State: state, Workers: 1})
		if err != nil {
			t.Fatal(err)
		}
		s := stamp(t, ws, false)
		want(t, s, "changed")
		if s.Hashed != reads || i > 0 && s.Baseline != base {
			t.Errorf("look %d read %d files, want %d; %+v, %+v", i, s.Hashed, reads, s.Baseline, base)
		}
		base = s.Baseline
		if err := ws.Close(); err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			// Nothing but stat data and the cache: the objects may be gone.
			if err := os.Rename(r.path(".git/objects"), r.path(".git/gone")); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(r.path(".git/objects"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestCancelled(t *testing.T) {
	r := newRepo(t)
	r.write(t, "a/b/c", "1\n")
	ws := r.open(t, nil)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := ws.Stamp(ctx, snapshot.StampOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

// TestGT05FilterOfTheAfterState: attributes that a plan brings count for its
// other paths.
func TestGT05FilterOfTheAfterState(t *testing.T) {
	r := newRepo(t)
	r.git(t, "config", "filter.ptr.clean", "false")
	ws := r.open(t, nil).(*gitbase.Repo)
	p, err := snapshot.ParsePath("b.bin")
	if err != nil {
		t.Fatal(err)
	}
	in, err := ws.PathInfoAfter(context.Background(), []snapshot.Effect{effect(t, ".gitattributes", "*.bin filter=ptr\n")}, []snapshot.Path{p})
	if err != nil || in[0].Filter != "ptr" {
		t.Errorf("%+v, %v", in, err)
	}
	if in := info(t, ws, "b.bin"); in[0].Filter != "" {
		t.Errorf("before the plan: %+v", in)
	}
}

// TestContentKeepsTheCacheSmall: what the index answers is not remembered again.
func TestContentKeepsTheCacheSmall(t *testing.T) {
	r := newRepo(t)
	for i := range 20 {
		r.write(t, "f"+string(rune('a'+i)), "1\n")
	}
	r.commit(t)
	settle(t, r)
	time.Sleep(80 * time.Millisecond)
	dir := t.TempDir()
	state, err := vfs.OS{}.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	ws, err := gitbase.Open(context.Background(), r.dir, snapshot.Options{State: state})
	if err != nil {
		t.Fatal(err)
	}
	if s := stamp(t, ws, true); s.Hashed != 20 {
		t.Errorf("%d files read", s.Hashed)
	}
	if err := ws.Close(); err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(names) != 1 {
		t.Fatal(names, err)
	}
	if b := readFile(t, names[0]); len(b) > 400 {
		t.Errorf("the cache has %d bytes", len(b))
	}
}

// TestRulesUnderAnotherName: core.excludesFile may name a file of the work tree;
// an effect on it changes what is ignored.
func TestRulesUnderAnotherName(t *testing.T) {
	r := newRepo(t)
	r.git(t, "config", "core.excludesFile", r.path("rules"))
	r.write(t, "rules", "*.tmp\n")
	r.commit(t)
	r.write(t, "u.log", "1\n")
	r.write(t, "u.tmp", "1\n")
	ws := r.open(t, nil)
	s := stamp(t, ws, false)
	want(t, s, "u.log")
	after, err := ws.After(context.Background(), s, []snapshot.Effect{effect(t, "rules", "*.log\n")})
	if err != nil {
		t.Fatal(err)
	}
	r.write(t, "rules", "*.log\n")
	s = stamp(t, ws, false)
	want(t, s, "rules", "u.tmp")
	if s.Baseline != after {
		t.Errorf("After said %+v, it is %+v", after, s.Baseline)
	}
}
