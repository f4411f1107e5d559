package apply_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aspengine/asp/apply"
	"github.com/aspengine/asp/seam/wire"
	"github.com/aspengine/asp/snapshot"
)

// mixed is a workspace with two commits, a changed index and a changed disk, which
// disagree in every way that git can tell.
func mixed(t *testing.T) *bed {
	b := newBed(t, "", map[string]string{"same": "s\n", "d/old": "old\n", "both": "1\n", "staged": "1\n", "disk": "1\n", "rm-disk": "x\n", "rm-index": "x\n",
		"rm-both": "x\n", "back": "1\n", ".gitignore": "*.log\n", "moved": "m\n"})
	first := func(p, c string) { b.write(p, c) }
	first("d/old", "new\n")
	first("d/added", "added\n")
	b.git("rm", "-q", "moved")
	b.git("add", "-A")
	b.git("-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-qm", "second")
	b.write("both", "2\n")
	b.write("staged", "2\n")
	b.write("back", "2\n")
	b.write("new-staged", "n\n")
	b.git("add", "both", "staged", "back", "new-staged")
	b.git("rm", "-q", "--cached", "rm-index")
	b.git("rm", "-q", "rm-both")
	b.write("both", "3\n")
	b.write("back", "1\n")
	b.write("disk", "2\n")
	b.write("untracked", "u\n")
	b.write("x.log", "ignored\n")
	if err := os.Remove(filepath.Join(b.root, "rm-disk")); err != nil {
		t.Fatal(err)
	}
	return b
}

// names are the changes as git's --name-status prints them.
func names(t *testing.T, c *apply.Changed) []string {
	t.Helper()
	var cs wire.ChangeSet
	if err := wire.Decode(c.Changeset, &cs); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, x := range cs.Changes {
		out = append(out, map[wire.ChangeKind]string{wire.KindCreate: "A", wire.KindModify: "M", wire.KindDelete: "D"}[x.Kind]+" "+x.Path)
	}
	slices.Sort(out)
	return out
}

func TestChangedAgreesWithGit(t *testing.T) {
	b := mixed(t)
	e := b.open()
	for _, from := range []string{"HEAD", "HEAD~1"} {
		for _, staged := range []bool{false, true} {
			c, err := e.Changed(context.Background(), from, staged)
			if err != nil {
				t.Fatal(err)
			}
			args := []string{"diff", "--no-renames", "--name-status", from}
			if staged {
				args = append(args, "--cached")
			}
			var want []string
			for l := range strings.Lines(b.git(args...)) {
				want = append(want, strings.Replace(strings.TrimSpace(l), "\t", " ", 1))
			}
			if !staged {
				// git diff passes over what is not in the index; it is on disk all the same.
				want = slices.DeleteFunc(want, func(s string) bool { return s == "D rm-index" })
				want = append(want, "A untracked")
			}
			slices.Sort(want)
			if got := names(t, c); !slices.Equal(got, want) {
				t.Errorf("from %s, staged %v:\n got %q\nwant %q", from, staged, got, want)
			}
			checkTrees(t, b, c, from, staged)
		}
	}
}

// tree reads a directory, without .git.
func tree(t *testing.T, root string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(root, func(p string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if d != nil && d.Name() == ".git" {
				return filepath.SkipDir
			}
			return err
		}
		data, err := os.ReadFile(p)
		rel, _ := filepath.Rel(root, p)
		out[rel] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// checkTrees holds that Base over the live tree is the revision's tree, that the
// effects make what git would check out, and that the digests of the changeset are
// those of the two.
func checkTrees(t *testing.T, b *bed, c *apply.Changed, from string, staged bool) {
	t.Helper()
	base, after := tree(t, b.root), tree(t, b.root)
	for _, x := range c.Base {
		delete(base, x.Path.String())
		if !x.Gone {
			data, err := x.Open(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			if snapshot.DigestOf(data) != x.Digest || int64(len(data)) != x.Size {
				t.Errorf("%s: digest and size are not those of the bytes", x.Path)
			}
			base[x.Path.String()] = string(data)
		}
	}
	for _, x := range c.Effects {
		delete(after, x.Path.String())
		if !x.Gone {
			r, err := x.Open()
			if err != nil {
				t.Fatal(err)
			}
			data, _ := io.ReadAll(readerOf{r})
			after[x.Path.String()] = string(data)
		}
	}
	delete(base, "x.log")
	same(t, "base of "+from, base, checkout(t, b, "read-tree", from))
	if staged {
		delete(after, "x.log")
		same(t, "after-state of the index", after, checkout(t, b))
	}
	var cs wire.ChangeSet
	if err := wire.Decode(c.Changeset, &cs); err != nil {
		t.Fatal(err)
	}
	for _, x := range cs.Changes {
		for _, side := range []struct {
			id   wire.BlobRef
			tree map[string]string
		}{{x.Before, base}, {x.After, after}} {
			data, ok := side.tree[x.Path]
			if ok != (side.id != "") || ok && string(side.id) != snapshot.DigestOf([]byte(data)).Blob() {
				t.Errorf("%s: %s names other bytes than %q (%v)", x.Path, side.id, data, ok)
			}
		}
	}
}

type readerOf struct{ snapshot.ReadCloser }

// checkout is what git writes for an index: the present one, or what the command
// makes of it.
func checkout(t *testing.T, b *bed, cmd ...string) map[string]string {
	t.Helper()
	dir := t.TempDir()
	index, err := os.ReadFile(filepath.Join(b.root, ".git", "index"))
	if err != nil {
		t.Fatal(err)
	}
	if len(cmd) > 0 {
		b.git(append([]string{"read-tree"}, cmd[1:]...)...)
	}
	b.git("checkout-index", "-a", "--prefix="+dir+"/")
	if err := os.WriteFile(filepath.Join(b.root, ".git", "index"), index, 0o644); err != nil {
		t.Fatal(err)
	}
	return tree(t, dir)
}

func same(t *testing.T, what string, got, want map[string]string) {
	t.Helper()
	for p, w := range want {
		if g, ok := got[p]; !ok || g != w {
			t.Errorf("%s: %s is %q (%v), want %q", what, p, g, ok, w)
		}
	}
	for p := range got {
		if _, ok := want[p]; !ok {
			t.Errorf("%s: %s should not be there", what, p)
		}
	}
}

func TestChangedRefusesWhatCannotBeJudged(t *testing.T) {
	b := newBed(t, "", map[string]string{"a": "a\n"})
	e := b.open()
	for _, from := range []string{"nowhere", "", "--help", "HEAD..HEAD", "HEAD:a"} {
		var w *wire.Error
		if _, err := e.Changed(context.Background(), from, false); !errors.As(err, &w) || w.Code != wire.CodeInvalidInput {
			t.Errorf("from %q: %v", from, err)
		}
	}
	b.git("update-index", "--add", "--cacheinfo", "160000,"+strings.TrimSpace(b.git("rev-parse", "HEAD"))+",sub")
	var w *wire.Error
	if _, err := e.Changed(context.Background(), "HEAD", true); !errors.As(err, &w) || !strings.Contains(w.Message, `"sub"`) {
		t.Errorf("a submodule in the index: %v", err)
	}
}

func TestChangedWithoutCommitAndWithoutChange(t *testing.T) {
	b := newBed(t, "", map[string]string{"a": "a\n"})
	e := b.open()
	c, err := e.Changed(context.Background(), "HEAD", false)
	if err != nil || len(names(t, c)) != 0 || len(c.Base) != 0 {
		t.Errorf("nothing changed: %v, %v", names(t, c), err)
	}
	b.git("update-ref", "-d", "HEAD")
	if c, err = b.open().Changed(context.Background(), "HEAD", false); err != nil || !slices.Equal(names(t, c), []string{"A a"}) {
		t.Errorf("before the first commit: %v, %v", names(t, c), err)
	}
}
