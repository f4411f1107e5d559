package gitbase_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/aspengine/asp/snapshot"
	"github.com/aspengine/asp/snapshot/gitbase"
)

// TestLineEndsAgreeWithGit: under any mix of core.autocrlf, attributes and line
// ends, a file is clean when git, looking at a fresh index, calls it clean, or
// when its very bytes are HEAD's blob; and stat data, content and our cache
// give one answer.
func TestLineEndsAgreeWithGit(t *testing.T) {
	sealed(t)
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "eol")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		if dir, err = filepath.EvalSymlinks(dir); err != nil {
			t.Fatal(err)
		}
		r := tree{dir}
		r.git(t, "init", "-q", "-b", "main")
		setting := rapid.SampledFrom([]string{"false", "true", "input"})
		rules := rapid.SampledFrom([]string{"", "* text\n", "* text=auto\n", "* -text\n", "*.t text eol=crlf\n", "*.t text=auto eol=lf\n*.b binary\n", "a.t ident\n"})
		text := rapid.SampledFrom([]string{"", "a\n", "a\r\n", "a\r\nb\n", "a\r\nb\r\n", "a\x00\r\n", "$Id$\r\n", "$Id: x $\n"})
		file := rapid.SampledFrom([]string{"a.t", "b.t", "s/a.t", "x.b"})
		r.git(t, "config", "core.autocrlf", setting.Draw(t, "autocrlf at commit"))
		r.git(t, "config", "core.safecrlf", "false")
		if a := rules.Draw(t, "attributes at commit"); a != "" {
			r.write(t, ".gitattributes", a)
		}
		for range rapid.IntRange(1, 4).Draw(t, "files") {
			r.write(t, file.Draw(t, "file"), text.Draw(t, "text"))
		}
		r.commit(t)
		r.git(t, "config", "core.autocrlf", setting.Draw(t, "autocrlf"))
		if rapid.Bool().Draw(t, "other attributes") {
			r.write(t, ".gitattributes", rules.Draw(t, "attributes"))
		}
		for range rapid.IntRange(0, 3).Draw(t, "edits") {
			r.write(t, file.Draw(t, "file"), text.Draw(t, "text"))
		}
		// A new time stamp keeps the index out of it: what git recorded under
		// another setting of core.autocrlf is for git to know.
		for p := range strings.SplitSeq(r.git(t, "ls-files", "-z"), "\x00") {
			old := time.Now().Add(-time.Hour)
			os.Chtimes(r.path(p), old, old)
		}
		ws, err := gitbase.Open(context.Background(), r.dir, snapshot.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer ws.Close()
		s := stamp(t, ws, false)
		want := changedByGit(t, r)
		want = slices.DeleteFunc(want, func(p string) bool {
			entry := strings.Fields(r.git(t, "ls-tree", "HEAD", "--", p))
			return len(entry) > 2 && entry[2] == r.git(t, "hash-object", "--no-filters", p)
		})
		if d := gocmp.Diff(want, paths(s)); d != "" {
			t.Fatalf("changed paths (-git +ours):\n%s", d)
		}
		if c := stamp(t, ws, true); c.Baseline != s.Baseline {
			t.Fatalf("by content %v, by stat data %v", paths(c), paths(s))
		}
		if c := stamp(t, ws, false); c.Baseline != s.Baseline {
			t.Fatalf("second look %v, first %v", paths(c), paths(s))
		}
		name, body := file.Draw(t, "effect"), text.Draw(t, "after")
		p, err := snapshot.ParsePath(name)
		if err != nil {
			t.Fatal(err)
		}
		e := snapshot.Effect{Path: p, Digest: snapshot.DigestOf([]byte(body)), Size: int64(len(body)), Mode: snapshot.ModeRegular,
			Open: func() (snapshot.ReadCloser, error) { return nopCloser{strings.NewReader(body)}, nil }}
		after, err := ws.After(context.Background(), s, []snapshot.Effect{e})
		if err != nil {
			t.Fatal(err)
		}
		r.write(t, name, body)
		if now := stamp(t, ws, false); now.Baseline != after {
			t.Fatalf("After said %+v, it is %+v: %v", after, now.Baseline, paths(now))
		}
	})
}
