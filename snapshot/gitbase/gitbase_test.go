package gitbase_test

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/aspengine/asp/snapshot"
	"github.com/aspengine/asp/snapshot/gitbase"
)

// changedByGit lists what git calls different from HEAD: a fresh index of HEAD's
// tree makes the index of the repository play no part.
func changedByGit(t tb, r tree) []string {
	t.Helper()
	dir := filepath.Join(r.dir, ".git")
	tmp := filepath.Join(dir, "oracle-index")
	defer os.Remove(tmp)
	env := []string{"GIT_INDEX_FILE=" + tmp}
	r.gitWith(t, env, "read-tree", "HEAD")
	out := []string{}
	for line := range strings.SplitSeq(r.gitWith(t, env, "status", "--porcelain=v1", "-uall", "-z", "--no-renames"), "\x00") {
		if len(line) > 3 {
			out = append(out, strings.TrimSuffix(line[3:], "/"))
		}
	}
	slices.Sort(out)
	return out
}

// op is one thing that happens to a work tree.
type op struct {
	kind, path, text string
}

var names = []string{"a", "b", "a.b", "sub", "sub/a", "sub/b", "sub/deep/a", "sub.x/a", "sub-x", "z/y/x", "z/y.c", "é", "build/o", "build/keep", ".gitignore", "sub/.gitignore"}

func drawOp(t *rapid.T) op {
	o := op{
		kind: rapid.SampledFrom([]string{"write", "write", "write", "remove", "exec", "link", "touch", "add", "unadd", "commit", "refresh"}).Draw(t, "kind"),
		path: rapid.SampledFrom(names).Draw(t, "path"),
		text: rapid.SampledFrom([]string{"", "1\n", "2\n", "three\n", "1\r\n"}).Draw(t, "text"),
	}
	if strings.HasSuffix(o.path, ".gitignore") {
		o.text = rapid.SampledFrom([]string{"build/\n", "*\n!a\n", "a\n", "/sub\n", "b\n!b\n", ""}).Draw(t, "rules")
		if o.kind == "link" || o.kind == "exec" {
			o.kind = "write"
		}
	}
	return o
}

// do carries o out; what cannot be done (a file is in the way) is left out.
func do(t tb, r tree, o op) {
	t.Helper()
	p := r.path(o.path)
	switch o.kind {
	case "write":
		if fi, err := os.Lstat(p); err == nil && !fi.Mode().IsRegular() {
			os.RemoveAll(p)
		}
		if os.MkdirAll(filepath.Dir(p), 0o755) == nil {
			os.WriteFile(p, []byte(o.text), 0o644)
		}
	case "remove":
		os.RemoveAll(p)
	case "exec":
		if fi, err := os.Lstat(p); err == nil && fi.Mode().IsRegular() {
			os.Chmod(p, fi.Mode().Perm()^0o111)
		}
	case "link":
		if os.MkdirAll(filepath.Dir(p), 0o755) == nil {
			os.RemoveAll(p)
			os.Symlink("t"+strings.TrimSpace(o.text), p)
		}
	case "touch":
		if fi, err := os.Lstat(p); err == nil && fi.Mode().IsRegular() {
			os.Chtimes(p, fi.ModTime().Add(-1e9), fi.ModTime().Add(-1e9))
		}
	case "add":
		r.git(t, "add", "-A")
	case "unadd":
		r.git(t, "rm", "-r", "-q", "-f", "--cached", "--ignore-unmatch", "--", o.path)
	case "commit":
		r.git(t, "commit", "-q", "--allow-empty", "-m", "c")
	case "refresh":
		r.git(t, "status")
	}
}

// TestStampAgreesWithGit: whatever happens to a work tree, the overlay holds
// exactly the paths that git calls changed against HEAD, stat data and content
// give the same baseline, the revision is HEAD's tree, and touching changes
// nothing.
func TestStampAgreesWithGit(t *testing.T) {
	sealed(t)
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "stamp")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		if dir, err = filepath.EvalSymlinks(dir); err != nil {
			t.Fatal(err)
		}
		r := tree{dir}
		r.git(t, "init", "-q", "-b", "main")
		r.git(t, "commit", "-q", "--allow-empty", "-m", "c")
		ws, err := gitbase.Open(context.Background(), r.dir, snapshot.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer ws.Close()
		for range rapid.IntRange(1, 3).Draw(t, "rounds") {
			for range rapid.IntRange(1, 10).Draw(t, "steps") {
				do(t, r, drawOp(t))
			}
			s := stamp(t, ws, false)
			want := changedByGit(t, r)
			if d := gocmp.Diff(tracked(t, r, want), paths(s)); d != "" {
				t.Fatalf("changed paths (-git +ours):\n%s", d)
			}
			if got, want := s.Baseline.Rev, "git:tree:"+r.git(t, "rev-parse", "HEAD^{tree}"); got != want {
				t.Fatalf("rev %s, want %s", got, want)
			}
			if (s.Baseline.Dirty == "") != (len(s.Overlay) == 0) {
				t.Fatalf("dirty %q with %d entries", s.Baseline.Dirty, len(s.Overlay))
			}
			if c := stamp(t, ws, true); c.Baseline != s.Baseline {
				t.Fatalf("by content %+v, by stat data %+v", c, s)
			}
			effects, undo := drawEffects(t, r)
			after, err := ws.After(context.Background(), s, effects)
			if err != nil {
				t.Fatalf("after: %v", err)
			}
			undo()
			if got := stamp(t, ws, false); got.Baseline != after {
				t.Fatalf("after %v: said %+v, is %+v: %v", effects, after, got.Baseline, got.Overlay)
			}
		}
	})
}

// tracked adds what only the real index knows: a file that is tracked though
// ignored and not in HEAD. git's view with a fresh index misses those.
func tracked(t tb, r tree, want []string) []string {
	out := slices.Clone(want)
	for p := range strings.SplitSeq(r.git(t, "ls-files", "-z", "--cached"), "\x00") {
		if p == "" || slices.Contains(out, p) {
			continue
		}
		if _, err := os.Lstat(r.path(p)); err != nil {
			continue
		}
		if fi, _ := os.Lstat(r.path(p)); fi.IsDir() {
			continue
		}
		if r.git(t, "ls-tree", "HEAD", "--", p) == "" && realParents(r, p) {
			out = append(out, p)
		}
	}
	slices.Sort(out)
	return out
}

func realParents(r tree, p string) bool {
	for d := filepath.Dir(p); d != "."; d = filepath.Dir(d) {
		if fi, err := os.Lstat(r.path(d)); err != nil || !fi.IsDir() {
			return false
		}
	}
	return true
}

// drawEffects draws effects that are possible now, and a function that makes
// them true on disk.
func drawEffects(t *rapid.T, r tree) ([]snapshot.Effect, func()) {
	by := map[string]snapshot.Effect{}
	for range rapid.IntRange(1, 4).Draw(t, "effects") {
		name := rapid.SampledFrom(names).Draw(t, "effect")
		p, err := snapshot.ParsePath(name)
		if err != nil {
			t.Fatal(err)
		}
		if !realParentsOrNone(r, name) || clash(by, name) {
			continue
		}
		fi, err := os.Lstat(r.path(name))
		if err == nil && fi.IsDir() {
			continue
		}
		if err == nil && rapid.Bool().Draw(t, "gone") {
			by[name] = snapshot.Effect{Path: p, Gone: true}
			continue
		}
		text := rapid.SampledFrom([]string{"", "1\n", "2\n", "build/\n", "a\n"}).Draw(t, "bytes")
		mode := rapid.SampledFrom([]snapshot.FileMode{snapshot.ModeRegular, snapshot.ModeExecutable}).Draw(t, "mode")
		by[name] = snapshot.Effect{Path: p, Digest: snapshot.DigestOf([]byte(text)), Size: int64(len(text)), Mode: mode,
			Open: func() (snapshot.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }}
	}
	var out []snapshot.Effect
	for _, e := range by {
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b snapshot.Effect) int { return cmp.Compare(a.Path.String(), b.Path.String()) })
	return out, func() {
		for _, e := range out {
			if e.Gone {
				os.Remove(r.path(e.Path.String()))
			}
		}
		for _, e := range out {
			if e.Gone {
				continue
			}
			f, _ := e.Open()
			b, _ := io.ReadAll(f)
			os.Remove(r.path(e.Path.String()))
			r.write(t, e.Path.String(), string(b))
			if e.Mode == snapshot.ModeExecutable {
				os.Chmod(r.path(e.Path.String()), 0o755)
			}
		}
	}
}

// clash tells whether name is above or below an effect that stays.
func clash(by map[string]snapshot.Effect, name string) bool {
	for p := range by {
		if strings.HasPrefix(p, name+"/") || strings.HasPrefix(name, p+"/") {
			return true
		}
	}
	return false
}

func realParentsOrNone(r tree, p string) bool {
	for d := filepath.Dir(p); d != "."; d = filepath.Dir(d) {
		if fi, err := os.Lstat(r.path(d)); err == nil && !fi.IsDir() {
			return false
		}
	}
	return true
}

// TestHeadFileFollowsHead: what HEAD's tree has at a path is told of the commit that HEAD
// is now, whatever was asked before, and within the limit of now.
func TestHeadFileFollowsHead(t *testing.T) {
	r := newTree(t)
	r.git(t, "init", "-q")
	r.write(t, "a/x", "one\n")
	r.commit(t)
	repo := r.repo(t)
	is := func(path string, limit int64, want string, gone bool) {
		t.Helper()
		p, err := snapshot.ParsePath(path)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second time it may be remembered
			b, err := repo.HeadFile(context.Background(), p, limit)
			if errors.Is(err, gitbase.ErrNotInHead) != gone || string(b) != want || limit > 0 && !gone && err != nil {
				t.Errorf("%s: %q %v, want %q", path, b, err, want)
			}
			clear(b) // whoever was given it may change it
		}
	}
	is("a/x", 100, "one\n", false)
	is("a/y", 100, "", true)
	is("a/x", 100, "one\n", false)
	is("a/x", 0, "", false) // an error of its own
	r.write(t, "a/x", "two\n")
	r.write(t, "a/y", "y\n")
	r.commit(t)
	is("a/x", 100, "two\n", false)
	is("a/y", 100, "y\n", false)
}

// TestTraces: a file that is written and holds again what it held, and one that is replaced
// by its like, leave the state and another sum of traces, whichever look is taken; a tree
// that rests leaves both.
func TestTraces(t *testing.T) {
	for name, r := range map[string]tree{"git": newRepo(t), "plain": newTree(t)} {
		r.write(t, "a/tracked", "one\n")
		if name == "git" {
			r.commit(t)
		}
		r.write(t, "a/new", "two\n")
		ws := r.open(t, nil)
		// later does something until the file system's clock tells it from before.
		later := func(p string, do func()) {
			was, err := os.Lstat(r.path(p))
			must(t, err)
			for {
				do()
				is, err := os.Lstat(r.path(p))
				must(t, err)
				if is.ModTime() != was.ModTime() {
					return
				}
			}
		}
		for what, do := range map[string]func(){
			"rests": func() {},
			"written": func() {
				later("a/tracked", func() { r.write(t, "a/tracked", "other\n"); r.write(t, "a/tracked", "one\n") })
			},
			"replaced": func() {
				later("a/new", func() {
					r.write(t, "b", "two\n")
					must(t, os.Rename(r.path("b"), r.path("a/new")))
				})
			},
		} {
			for _, content := range []bool{false, true} {
				before := stamp(t, ws, false)
				do()
				after := stamp(t, ws, content)
				if after.Baseline != before.Baseline || (after.Traces != before.Traces) != (what != "rests") {
					t.Errorf("%s, %s, by content %v: %v, traces %x, and before %v, %x", name, what, content, after.Baseline, after.Traces, before.Baseline, before.Traces)
				}
			}
		}
	}
}
