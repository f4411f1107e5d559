package gitbase_test

import (
	"bytes"
	"compress/zlib"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/snapshot"
	"github.com/aspengine/asp/snapshot/gitbase"
	"pgregory.net/rapid"
)

// TestTreeLikeGit: for any committed tree, any uncommitted change and any
// effects, the tree is the one that git makes when the effects are there and
// all is added.
func TestTreeLikeGit(t *testing.T) {
	sealed(t)
	base := t.TempDir()
	n := 0
	names := []string{"a", "a/b", "a.c", "a-", "d", "d/a", "d/e/f", "d/e/g", "d/e.x", "z\xff"}
	draw := func(t *rapid.T, what string) map[string]string {
		out := map[string]string{}
		for _, p := range names {
			if rapid.Bool().Draw(t, what) && !slices.ContainsFunc(names, func(q string) bool {
				_, has := out[q]
				return has && (strings.HasPrefix(p, q+"/") || strings.HasPrefix(q, p+"/"))
			}) {
				out[p] = rapid.SampledFrom([]string{"", "1\n", "2\r\n", "3\n"}).Draw(t, "content")
			}
		}
		return out
	}
	rapid.Check(t, func(t *rapid.T) {
		n++
		r := tree{filepath.Join(base, fmt.Sprint(n))}
		defer os.RemoveAll(r.dir)
		lay := func(files map[string]string) {
			list, err := os.ReadDir(r.dir)
			if err != nil {
				t.Fatalf("%v", err)
			}
			for _, e := range list {
				if e.Name() != ".git" {
					os.RemoveAll(r.path(e.Name()))
				}
			}
			for p, c := range files {
				r.write(t, p, c)
			}
		}
		if err := os.Mkdir(r.dir, 0o755); err != nil {
			t.Fatalf("%v", err)
		}
		r.git(t, "init", "-q", "-b", "main")
		if rapid.Bool().Draw(t, "autocrlf") {
			r.git(t, "config", "core.autocrlf", "true")
			r.git(t, "config", "core.safecrlf", "false")
		}
		lay(draw(t, "head"))
		r.commit(t)
		if rapid.Bool().Draw(t, "packed") {
			r.git(t, "gc", "-q")
		}
		dirty := draw(t, "dirty")
		lay(dirty)
		ctx, repo := context.Background(), r.repo(t)
		defer repo.Close()
		s := stamp(t, repo, false)
		after := draw(t, "after")
		for p, c := range dirty { // a name that no plan can say stays as it is
			if _, err := snapshot.ParsePath(p); err != nil {
				after[p] = c
			}
		}
		var effects []snapshot.Effect
		for _, p := range names {
			if _, err := snapshot.ParsePath(p); err != nil {
				if _, was := dirty[p]; !was {
					delete(after, p)
				}
				continue
			}
			old, was := dirty[p]
			now, is := after[p]
			switch {
			case is && (!was || old != now):
				effects = append(effects, bytesEffect(t, p, now, snapshot.ModeRegular))
			case was && !is:
				effects = append(effects, snapshot.Effect{Path: mustPath(t, p), Gone: true})
			}
		}
		plan, items, err := repo.PlanTree(ctx, s, effects, true)
		if err != nil || len(items) > 0 {
			t.Fatalf("%v %v", err, items)
		}
		w, err := repo.WriteObjects(ctx, vfs.OS{})
		if err != nil {
			t.Fatalf("%v", err)
		}
		got, items, err := plan.Write(ctx, w)
		if cerr := w.Close(); err != nil || cerr != nil || len(items) > 0 {
			t.Fatalf("%v %v %v", err, cerr, items)
		}
		lay(after)
		r.git(t, "add", "-A")
		if want := r.git(t, "write-tree"); got != want {
			t.Fatalf("got %s\n%s\nwant %s\n%s", got, r.git(t, "ls-tree", "-r", got), want, r.git(t, "ls-tree", "-r", want))
		}
	})
}

// TestTornObject: a power cut leaves objects that have their names and not their
// bytes. One that is needed again is written again; a whole one is not.
func TestTornObject(t *testing.T) {
	r := newRepo(t)
	r.write(t, "a", "a\n")
	r.commit(t)
	ctx := context.Background()
	write := func() string {
		t.Helper()
		repo := r.repo(t)
		defer repo.Close()
		plan, items, err := repo.PlanTree(ctx, stamp(t, repo, false), []snapshot.Effect{bytesEffect(t, "d/b", "new\n", snapshot.ModeRegular)}, true)
		if err != nil || len(items) > 0 {
			t.Fatal(err, items)
		}
		w, err := repo.WriteObjects(ctx, vfs.OS{})
		if err != nil {
			t.Fatal(err)
		}
		id, items, err := plan.Write(ctx, w)
		if err = errors.Join(err, w.Sync(), w.Close()); err != nil || len(items) > 0 {
			t.Fatal(err, items)
		}
		return id
	}
	top := write()
	blob := r.git(t, "rev-parse", top+":d/b")
	objects := map[string][]byte{}
	for _, id := range []string{top, r.git(t, "rev-parse", top+":d"), blob} {
		name := filepath.Join(r.git(t, "rev-parse", "--absolute-git-dir"), "objects", id[:2], id[2:])
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		objects[name] = b
	}
	for what, damage := range map[string]func(b []byte) []byte{
		"none": func(b []byte) []byte { return b }, "empty": func([]byte) []byte { return nil }, "cut off": func(b []byte) []byte { return b[:len(b)-3] },
		"zeros": func(b []byte) []byte { return make([]byte, len(b)) },
		"another": func([]byte) []byte {
			var z bytes.Buffer
			w := zlib.NewWriter(&z)
			w.Write([]byte("blob 4\x00old\n"))
			w.Close()
			return z.Bytes()
		},
	} {
		was := map[string]os.FileInfo{}
		for name, b := range objects {
			if err := errors.Join(os.Remove(name), os.WriteFile(name, damage(b), 0o444)); err != nil {
				t.Fatal(err)
			}
			was[name], _ = os.Lstat(name)
		}
		if got := write(); got != top {
			t.Errorf("%s: tree %s, want %s", what, got, top)
		}
		if got := r.git(t, "cat-file", "blob", blob); got != "new" {
			t.Errorf("%s: the blob is %q", what, got)
		}
		r.git(t, "fsck", "--full", "--strict", "--no-dangling")
		for name := range objects {
			if now, err := os.Lstat(name); err != nil || os.SameFile(now, was[name]) != (what == "none") {
				t.Errorf("%s: %s was written anew or not: %v", what, name, err)
			}
		}
	}
}

// TestTreeSeesMovedBytes: a dirty file that moved after the stamp is refused, not
// committed.
func TestTreeSeesMovedBytes(t *testing.T) {
	r := newRepo(t)
	r.write(t, "a", "a\n")
	r.commit(t)
	r.write(t, "a", "dirty\n")
	ctx, repo := context.Background(), r.repo(t)
	defer repo.Close()
	plan, items, err := repo.PlanTree(ctx, stamp(t, repo, false), nil, true)
	if err != nil || len(items) > 0 {
		t.Fatal(err, items)
	}
	r.write(t, "a", "other\n") // the same length
	w, err := repo.WriteObjects(ctx, vfs.OS{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, items, err = plan.Write(ctx, w); err != nil || len(items) != 1 || items[0].Code != "changed-underneath" {
		t.Fatal(err, items)
	}
}

// TestRefName holds our rules against git's own.
func TestRefName(t *testing.T) {
	sealed(t)
	r := tree{t.TempDir()}
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringOfN(rapid.SampledFrom([]rune("ab./-@{~^:?*[\\ \x01\x7f")), 1, 8, -1).Draw(t, "name")
		if name == "@" || strings.HasPrefix(name, "-") {
			return // branches have rules of their own
		}
		full, why := gitbase.RefName(name)
		if ok := r.try("check-ref-format", "refs/heads/"+name) == nil; ok != (why == "") {
			t.Fatalf("%q: %q, git says %v", name, why, ok)
		}
		if why == "" && full != "refs/heads/"+name {
			t.Fatalf("%q became %q", name, full)
		}
	})
}

// TestCleanMessage holds the message against git's own clean-up.
func TestCleanMessage(t *testing.T) {
	for in, want := range map[string]string{
		"":                        "",
		" \n\t\n":                 "",
		"a":                       "a\n",
		"\n\na  \r\nb\n\n\n\nc\n": "a\nb\n\nc\n",
		"a\x00b\x1b[1m\xff":       "ab[1m\uFFFD\n",
		"  indented":              "  indented\n",
	} {
		if got := gitbase.CleanMessage(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
