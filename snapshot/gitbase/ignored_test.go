package gitbase_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/aspengine/asp/snapshot"
)

// ignoredByGit is what git calls ignored: names that match a rule, directories among
// them, which are not looked into.
func ignoredByGit(t *testing.T, r tree) []string {
	t.Helper()
	var out []string
	for e := range strings.SplitSeq(r.git(t, "status", "--porcelain=v1", "-z", "--untracked-files=all", "--ignored=matching"), "\x00") {
		if name, ok := strings.CutPrefix(e, "!! "); ok {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// TestIgnored: a stamp names what is ignored at any depth, as git does.
func TestIgnored(t *testing.T) {
	sealed(t)
	r := newRepo(t)
	for name, text := range map[string]string{
		".gitignore": "*.log\nnode_modules/\n/dist\n!keep.log\ncache/*\n", "a/.gitignore": "local\n!deep.log\n",
		"a/x": "x", "a/b/y": "y", "tracked/node_modules/f": "f", "cache/kept": "k",
	} {
		r.write(t, name, text)
	}
	r.git(t, "add", "-A", "-f")
	r.git(t, "commit", "-q", "-m", "c")
	if s := stamp(t, r.open(t, nil), false); s.Ignored.Count != 0 {
		t.Errorf("of tracked names: %v", s.Ignored)
	}
	for _, name := range []string{
		"one.log", "keep.log", "dist/out", "sub/dist/in", "node_modules/p/index.js", "a/b/node_modules/q", "a/b/c/two.log",
		"a/local/z", "a/deep.log", "a/b/deep.log", "new/only.log", "new/dir/node_modules/r", "tracked/node_modules/g", "cache/c1", "cache/d/e", "sp ace/ü.log",
	} {
		r.write(t, name, "i")
	}
	want := ignoredByGit(t, r)
	if len(want) < 10 {
		t.Fatalf("git sees only %q", want)
	}
	if s := stamp(t, r.open(t, nil), false); !slices.Equal(s.Ignored.Names, want) || s.Ignored.Count != len(want) {
		t.Errorf("got %d %q\nwant %d %q", s.Ignored.Count, s.Ignored.Names, len(want), want)
	}
}

// The names are bounded, the count is not; which names are shown does not hang on
// the order of the walk, and a crowd of files hides no directory.
func TestIgnoredBounds(t *testing.T) {
	r := newRepo(t)
	r.write(t, ".gitignore", "*.o\nbuild/\n")
	r.commit(t)
	for i := range 150 {
		r.write(t, fmt.Sprintf("d%d/%03d.o", i%7, i), "")
		r.write(t, fmt.Sprintf("d%d/more/%03d.o", i%7, i), "")
	}
	for i := range 30 {
		r.write(t, fmt.Sprintf("z%02d/build/out", i), "")
	}
	s := stamp(t, r.open(t, nil), false).Ignored
	dirs := slices.DeleteFunc(slices.Clone(s.Names), func(n string) bool { return !strings.HasSuffix(n, "/") })
	if s.Count != 330 || len(s.Names) != snapshot.MaxIgnored || len(dirs) != 30 || s.Names[0] != "d0/000.o" || !slices.IsSorted(s.Names) {
		t.Errorf("%d names, %d of %d directories, %q", s.Count, len(dirs), len(s.Names), s.Names)
	}
	if again := stamp(t, r.open(t, nil), true).Ignored; !slices.Equal(again.Names, s.Names) {
		t.Errorf("another look: %q", again.Names)
	}
}
