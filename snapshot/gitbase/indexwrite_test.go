package gitbase_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/snapshot"
	"github.com/aspengine/asp/snapshot/gitbase"
	"pgregory.net/rapid"
)

func mustPath(t tb, s string) snapshot.Path {
	t.Helper()
	p, err := snapshot.ParsePath(s)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return p
}

func bytesEffect(t tb, path, content string, mode snapshot.FileMode) snapshot.Effect {
	t.Helper()
	b := []byte(content)
	return snapshot.Effect{
		Path: mustPath(t, path), Digest: snapshot.DigestOf(b), Size: int64(len(b)), Mode: mode,
		Open: func() (snapshot.ReadCloser, error) { return memReader{bytes.NewReader(b)}, nil },
	}
}

type memReader struct{ *bytes.Reader }

func (memReader) Close() error { return nil }

func (r tree) repo(t tb) *gitbase.Repo {
	t.Helper()
	ws, err := gitbase.OpenRoot(context.Background(), r.dir, snapshot.Options{})
	if err != nil {
		t.Fatalf("%v", err)
	}
	repo, ok := ws.(*gitbase.Repo)
	if !ok {
		t.Fatalf("%s is no repository", r.dir)
	}
	return repo
}

// stage writes the changes into the index, as a transaction would, without the
// files.
func (r tree) stage(t tb, changes []gitbase.IndexChange) refusal.List {
	t.Helper()
	ctx, repo := context.Background(), r.repo(t)
	defer repo.Close()
	plan, items, err := repo.PlanIndex(ctx, changes)
	if err != nil {
		t.Fatalf("%v", err)
	}
	if len(items) > 0 {
		return items
	}
	w, err := repo.WriteObjects(ctx, vfs.OS{})
	if err != nil {
		t.Fatalf("%v", err)
	}
	after, items, err := plan.Write(ctx, w)
	if err == nil {
		err = w.Sync()
	}
	if cerr := w.Close(); err != nil || cerr != nil || len(items) > 0 {
		t.Fatalf("%v %v %v", err, cerr, items)
	}
	index := filepath.Join(repo.GitDir, "index")
	if err := os.WriteFile(index+".new", after, 0o644); err != nil {
		t.Fatalf("%v", err)
	}
	if err := os.Rename(index+".new", index); err != nil {
		t.Fatalf("%v", err)
	}
	return nil
}

// age makes every file look old, so that no entry is racy, and lets git record
// that.
func (r tree) age(t testing.TB) {
	t.Helper()
	old := time.Now().Add(-time.Hour)
	err := filepath.Walk(r.dir, func(p string, fi os.FileInfo, err error) error {
		if err != nil || strings.HasPrefix(p, r.path(".git")) || fi.IsDir() || fi.Mode()&os.ModeSymlink != 0 {
			return err
		}
		return os.Chtimes(p, old, old)
	})
	if err != nil {
		t.Fatal(err)
	}
	r.git(t, "update-index", "-q", "--refresh")
}

// debug is git's own listing of every field of every entry, without the paths
// given.
func (r tree) debug(t tb, without ...string) string {
	t.Helper()
	var out []string
	keep := true
	for _, l := range strings.Split(r.git(t, "ls-files", "--debug", "-s", "-t", "-v"), "\n") {
		if _, path, ok := strings.Cut(l, "\t"); ok && l[0] != ' ' {
			keep = !slices.Contains(without, path)
		}
		if keep {
			out = append(out, l)
		}
	}
	return strings.Join(out, "\n")
}

// TestIndexVersions: in each version of the format an entry changes, one is
// added, one is removed, and git finds every other field of the rest as it was.
func TestIndexVersions(t *testing.T) {
	for _, version := range []string{"2", "3", "4"} {
		t.Run(version, func(t *testing.T) {
			r := newRepo(t)
			long := strings.Repeat("n", 120)
			for _, p := range []string{"a", "d/b", "d/c", "d/e/f", "d.x", "z/" + long} {
				r.write(t, p, p+"\n")
			}
			r.commit(t)
			r.age(t)
			r.git(t, "update-index", "--index-version", version)
			if version == "3" { // git writes version 3 only for entries that need it
				r.git(t, "update-index", "--skip-worktree", "d/c")
			}
			r.git(t, "update-index", "--assume-unchanged", "d.x")
			r.git(t, "write-tree") // a whole cache-tree
			before := r.debug(t, "d/b")
			r.write(t, "d/b", "new\n")
			r.write(t, "d/bb", "added\n")
			r.write(t, "d.", "sorts between\n")
			if err := os.Remove(r.path("d/e/f")); err != nil {
				t.Fatal(err)
			}
			prior := bytesEffect(t, "d/b", "d/b\n", snapshot.ModeRegular)
			gone := bytesEffect(t, "d/e/f", "d/e/f\n", snapshot.ModeRegular)
			items := r.stage(t, []gitbase.IndexChange{
				{After: bytesEffect(t, "d/b", "new\n", snapshot.ModeRegular), Before: &prior},
				{After: bytesEffect(t, "d/bb", "added\n", snapshot.ModeRegular)},
				{After: bytesEffect(t, "d.", "sorts between\n", snapshot.ModeRegular)},
				{After: snapshot.Effect{Path: mustPath(t, "d/e/f"), Gone: true}, Before: &gone},
			})
			if len(items) > 0 {
				t.Fatal(items)
			}
			head, err := os.ReadFile(r.path(".git/index"))
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(head[7]); got != version {
				t.Fatalf("index version %s, want %s", got, version)
			}
			if got := r.git(t, "status", "--porcelain"); got != "A  d.\nM  d/b\nA  d/bb\nD  d/e/f" {
				t.Fatalf("status:\n%s", got)
			}
			// ls-files does not refresh, so that the fields are those of our bytes.
			if err := os.WriteFile(r.path(".git/index"), head, 0o644); err != nil {
				t.Fatal(err)
			}
			if got, want := r.debug(t, "d/b", "d/bb", "d."), r.strip(before, "d/e/f"); got != want {
				t.Fatalf("untouched entries changed:\n%s\nwant\n%s", got, want)
			}
			r.git(t, "fsck", "--strict")
			want := r.git(t, "write-tree")
			if err := os.Remove(r.path(".git/index")); err != nil {
				t.Fatal(err)
			}
			r.git(t, "read-tree", want) // from objects alone
			if got := r.git(t, "write-tree"); got != want {
				t.Fatalf("the cache-tree gave %s, the entries give %s", want, got)
			}
		})
	}
}

// strip takes the entry of a path out of a listing of debug.
func (r tree) strip(list, path string) string {
	var out []string
	keep := true
	for _, l := range strings.Split(list, "\n") {
		if _, p, ok := strings.Cut(l, "\t"); ok && l[0] != ' ' {
			keep = p != path
		}
		if keep {
			out = append(out, l)
		}
	}
	return strings.Join(out, "\n")
}

// TestIndexRacy: a file that was changed right after git recorded it, with the
// same size, must not look clean because the index got younger.
func TestIndexRacy(t *testing.T) {
	r := newRepo(t)
	r.write(t, "a", "a\n")
	r.write(t, "racy", "old\n")
	r.commit(t)
	when := time.Now().Add(-time.Hour).Truncate(time.Second)
	for _, p := range []string{"racy", ".git/index"} {
		if err := os.Chtimes(r.path(p), when, when); err != nil {
			t.Fatal(err)
		}
	}
	r.git(t, "update-index", "-q", "--refresh")
	// The same stamp on the index and on the file: the next write is not seen in
	// the stat data, only by the racy rule. (The change time is not compared.)
	r.git(t, "config", "core.trustctime", "false")
	f, err := os.OpenFile(r.path("racy"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("new\n"); err != nil {
		t.Fatal(err)
	}
	f.Close()
	for _, p := range []string{"racy", ".git/index"} {
		if err := os.Chtimes(r.path(p), when, when); err != nil {
			t.Fatal(err)
		}
	}
	prior := bytesEffect(t, "a", "a\n", snapshot.ModeRegular)
	r.write(t, "a", "A\n")
	if items := r.stage(t, []gitbase.IndexChange{{After: bytesEffect(t, "a", "A\n", snapshot.ModeRegular), Before: &prior}}); len(items) > 0 {
		t.Fatal(items)
	}
	if got := r.git(t, "status", "--porcelain"); got != "M  a\n M racy" {
		t.Fatalf("status:\n%s", got)
	}
}

// TestIndexExtensions: what stays of the other parts of an index.
func TestIndexExtensions(t *testing.T) {
	r := newRepo(t)
	r.write(t, "a", "a\n")
	r.write(t, "d/known", "k\n")
	r.commit(t)
	r.write(t, "u/x", "untracked\n")
	r.write(t, "u/y", "untracked\n")
	r.age(t)
	old := time.Now().Add(-time.Hour)
	for _, d := range []string{"u", "d", "."} {
		if err := os.Chtimes(r.path(d), old, old); err != nil {
			t.Fatal(err)
		}
	}
	r.git(t, "update-index", "--force-untracked-cache")
	for range 2 {
		r.git(t, "status", "--porcelain") // fills it: u/ is untracked as a whole
	}
	raw, _ := os.ReadFile(r.path(".git/index"))
	if !bytes.Contains(raw, []byte("UNTR")) {
		t.Fatal("git made no untracked cache, so that this tests nothing")
	}
	prior := bytesEffect(t, "u/x", "untracked\n", snapshot.ModeRegular)
	if items := r.stage(t, []gitbase.IndexChange{{After: bytesEffect(t, "u/x", "untracked\n", snapshot.ModeRegular), Before: &prior}}); len(items) > 0 {
		t.Fatal(items)
	}
	raw, _ = os.ReadFile(r.path(".git/index"))
	if !bytes.Contains(raw, []byte("UNTR")) {
		t.Error("the untracked cache was switched off")
	}
	if got := r.git(t, "status", "--porcelain"); got != "A  u/x\n?? u/y" {
		t.Fatalf("status:\n%s", got)
	}
}

// TestIndexRefusals: forms that cannot be written, and staged work that would be
// lost.
func TestIndexRefusals(t *testing.T) {
	change := func(t *testing.T, path, before, after string) gitbase.IndexChange {
		c := gitbase.IndexChange{After: snapshot.Effect{Path: mustPath(t, path), Gone: true}}
		if after != "" {
			c.After = bytesEffect(t, path, after, snapshot.ModeRegular)
		}
		if before != "" {
			b := bytesEffect(t, path, before, snapshot.ModeRegular)
			c.Before = &b
		}
		return c
	}
	for _, c := range []struct {
		name                string
		do                  func(t *testing.T, r tree)
		path, before, after string
		want                refusal.Code
	}{
		{"staged other content", func(t *testing.T, r tree) {
			r.write(t, "a", "staged\n")
			r.git(t, "add", "a")
			r.write(t, "a", "a\n")
		}, "a", "a\n", "A\n", refusal.IndexDiverges},
		{"staged is the file", func(t *testing.T, r tree) {
			r.write(t, "a", "mine\n")
			r.git(t, "add", "a")
		}, "a", "mine\n", "A\n", ""},
		{"unstaged change", func(t *testing.T, r tree) { r.write(t, "a", "mine\n") }, "a", "mine\n", "A\n", ""},
		{"staged removal, file kept", func(t *testing.T, r tree) { r.git(t, "rm", "-q", "--cached", "a") }, "a", "a\n", "A\n", refusal.IndexDiverges},
		{"staged and removed from disk", func(t *testing.T, r tree) {
			r.write(t, "n", "staged\n")
			r.git(t, "add", "n")
			if err := os.Remove(r.path("n")); err != nil {
				t.Fatal(err)
			}
		}, "n", "", "N\n", refusal.IndexDiverges},
		{"staged execute bit", func(t *testing.T, r tree) { r.git(t, "update-index", "--chmod=+x", "a") }, "a", "a\n", "A\n", refusal.IndexDiverges},
		{"intent to add", func(t *testing.T, r tree) {
			r.write(t, "n", "n\n")
			r.git(t, "add", "-N", "n")
		}, "n", "n\n", "N\n", ""},
		{"delete with staged work", func(t *testing.T, r tree) {
			r.write(t, "a", "staged\n")
			r.git(t, "add", "a")
			r.write(t, "a", "a\n")
		}, "a", "a\n", "", refusal.IndexDiverges},
		{"unmerged", func(t *testing.T, r tree) {
			r.git(t, "checkout", "-q", "-b", "o")
			r.write(t, "a", "theirs\n")
			r.commit(t)
			r.git(t, "checkout", "-q", "main")
			r.write(t, "a", "ours\n")
			r.commit(t)
			_ = r.try("merge", "-q", "o")
		}, "a", "x\n", "A\n", refusal.IndexDiverges},
		{"ignored", func(t *testing.T, r tree) { r.write(t, ".gitignore", "*.o\n") }, "x.o", "", "o\n", refusal.UnsupportedOperation},
		{"tracked though ignored", func(t *testing.T, r tree) {
			r.write(t, "x.o", "o\n")
			r.commit(t)
			r.write(t, ".gitignore", "*.o\n")
		}, "x.o", "o\n", "O\n", ""},
		{"index has a file where a directory is", func(t *testing.T, r tree) {
			if err := os.Remove(r.path("a")); err != nil {
				t.Fatal(err)
			}
			r.write(t, "a/keep", "k\n")
		}, "a/b", "", "b\n", refusal.IndexDiverges},
		{"index has files below", func(t *testing.T, r tree) {
			r.write(t, "d/x", "x\n")
			r.git(t, "add", "d/x")
			if err := os.RemoveAll(r.path("d")); err != nil {
				t.Fatal(err)
			}
		}, "d", "", "file\n", refusal.IndexDiverges},
		{"split index", func(t *testing.T, r tree) { r.git(t, "update-index", "--split-index") }, "a", "a\n", "A\n", refusal.UnsupportedOperation},
		{"sparse index", func(t *testing.T, r tree) {
			r.write(t, "d/x", "x\n")
			r.commit(t)
			r.git(t, "sparse-checkout", "init", "--cone", "--sparse-index")
		}, "a", "a\n", "A\n", refusal.UnsupportedOperation},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRepo(t)
			r.write(t, "a", "a\n")
			r.commit(t)
			c.do(t, r)
			raw, _ := os.ReadFile(r.path(".git/index"))
			items := r.stage(t, []gitbase.IndexChange{change(t, c.path, c.before, c.after)})
			switch {
			case c.want == "" && len(items) > 0:
				t.Fatalf("refused: %v", items)
			case c.want != "" && (len(items) == 0 || items[0].Code != c.want):
				t.Fatalf("got %v, want %s", items, c.want)
			}
			if now, _ := os.ReadFile(r.path(".git/index")); c.want != "" && !bytes.Equal(raw, now) {
				t.Error("a refusal changed the index")
			}
		})
	}
}

// TestIndexLikeGitAdd: for any tree and any set of changes, in each version, the
// index is the one that git makes by add and rm.
func TestIndexLikeGitAdd(t *testing.T) {
	sealed(t)
	base := t.TempDir()
	n := 0
	names := []string{"a", "b", "a.c", "d/a", "d/b", "d/e/f", "d/e/g", "d-x", "da", "é/ü"}
	contents := []string{"", "1\n", "2\r\n", "x\r\ny\r\n", "bin\x00\r\n"}
	rapid.Check(t, func(t *rapid.T) {
		n++
		r := tree{filepath.Join(base, fmt.Sprint(n))}
		if err := os.Mkdir(r.dir, 0o755); err != nil {
			t.Fatalf("%v", err)
		}
		defer os.RemoveAll(r.dir)
		r.git(t, "init", "-q", "-b", "main")
		r.git(t, "config", "core.autocrlf", rapid.SampledFrom([]string{"false", "true", "input"}).Draw(t, "autocrlf"))
		have := map[string]string{}
		for _, p := range names {
			if rapid.Bool().Draw(t, "has") {
				have[p] = rapid.SampledFrom(contents).Draw(t, "content")
				r.write(t, p, have[p])
			}
		}
		r.git(t, "-c", "core.safecrlf=false", "add", "-A")
		r.git(t, "commit", "-q", "--allow-empty", "-m", "c")
		r.git(t, "update-index", "--force-write-index", "--index-version", rapid.SampledFrom([]string{"2", "4"}).Draw(t, "version"))
		var changes []gitbase.IndexChange
		var touched []string
		for _, p := range names {
			old, was := have[p]
			what := rapid.SampledFrom([]string{"keep", "write", "delete"}).Draw(t, "what")
			c := gitbase.IndexChange{After: snapshot.Effect{Path: mustPath(t, p), Gone: true}}
			if was {
				b := bytesEffect(t, p, old, snapshot.ModeRegular)
				c.Before = &b
			}
			switch {
			case what == "write":
				now := rapid.SampledFrom(contents).Draw(t, "new")
				c.After = bytesEffect(t, p, now, snapshot.ModeRegular)
				r.write(t, p, now)
			case what == "delete" && was:
				if err := os.Remove(r.path(p)); err != nil {
					t.Fatalf("%v", err)
				}
			default:
				continue
			}
			changes, touched = append(changes, c), append(touched, p)
		}
		if len(changes) == 0 {
			return
		}
		raw, err := os.ReadFile(r.path(".git/index"))
		if err != nil {
			t.Fatalf("%v", err)
		}
		r.git(t, append([]string{"-c", "core.safecrlf=false", "add", "-A", "--"}, touched...)...)
		want := r.git(t, "ls-files", "-s")
		if err := os.WriteFile(r.path(".git/index"), raw, 0o644); err != nil {
			t.Fatalf("%v", err)
		}
		if items := r.stage(t, changes); len(items) > 0 {
			t.Fatalf("refused: %v", items)
		}
		if got := r.git(t, "ls-files", "-s"); got != want {
			t.Fatalf("got\n%s\nwant\n%s", got, want)
		}
		for _, l := range strings.Split(r.git(t, "status", "--porcelain"), "\n") {
			if len(l) > 1 && l[1] != ' ' {
				t.Fatalf("a second column: %q", l)
			}
		}
	})
}
