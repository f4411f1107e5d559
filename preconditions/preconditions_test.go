package preconditions_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/aspengine/asp/editplan"
	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/internal/vfs/memfs"
	"github.com/aspengine/asp/preconditions"
	"github.com/aspengine/asp/snapshot"
)

// workspace answers for the repository; everything else is not asked.
type workspace struct {
	snapshot.Workspace
	info map[string]snapshot.PathInfo
}

func (w workspace) PathInfo(_ context.Context, paths []snapshot.Path) ([]snapshot.PathInfo, error) {
	out := make([]snapshot.PathInfo, len(paths))
	for i, p := range paths {
		out[i] = w.info[p.String()]
	}
	return out, nil
}

var base = snapshot.Baseline{Rev: "git:tree:4b825dc642cb6eb9a060e54bf8d69288fbee4904"}

func compile(t *testing.T, drafts ...editplan.Draft) *editplan.Plan {
	t.Helper()
	f, err := editplan.NewPlan(editplan.Source{Baseline: base}, drafts)
	if err != nil {
		t.Fatal(err)
	}
	p, items, err := editplan.Compile(f, editplan.Limits{}, nil)
	if err != nil || len(items) > 0 {
		t.Fatalf("%v %v", items, err)
	}
	return p
}

func sum(s string) snapshot.Digest { return snapshot.DigestOf([]byte(s)) }

func modify(p, old, after string) editplan.Draft {
	return editplan.Draft{Kind: editplan.Modify, Path: p, Expected: sum(old), Content: []byte(after), HasContent: true}
}

func create(p string) editplan.Draft {
	return editplan.Draft{Kind: editplan.Create, Path: p, Content: []byte("new\n"), HasContent: true}
}

func remove(p, old string) editplan.Draft {
	return editplan.Draft{Kind: editplan.Delete, Path: p, Expected: sum(old)}
}

func rename(p, to, old string) editplan.Draft {
	return editplan.Draft{Kind: editplan.Rename, Path: p, To: to, Expected: sum(old)}
}

// bed is a tree with one of everything that a plan can meet.
func bed(t *testing.T) (*memfs.FS, vfs.Dir) {
	t.Helper()
	m := memfs.New(memfs.Options{})
	if err := m.Put("/ws", memfs.Tree{
		"a.txt": memfs.Text("a\n"), "b.txt": memfs.Text("b\n"),
		"d/x": memfs.Text("x\n"), "link": memfs.Symlink("d"), "flink": memfs.Symlink("a.txt"),
		"fifo": memfs.FIFO(), "own/secret": memfs.Text("s\n"),
		"inner/.git/HEAD": memfs.Text("ref: refs/heads/main\n"), "inner/f": memfs.Text("f\n"),
		"ro.txt": {Kind: vfs.KindFile, Perm: 0o444, Data: "ro\n"},
		"h1":     memfs.Text("h\n"), "mnt": memfs.Folder(),
	}); err != nil {
		t.Fatal(err)
	}
	root, err := m.OpenRoot("/ws")
	if err != nil {
		t.Fatal(err)
	}
	if err := root.Link("h1", root, "h2"); err != nil {
		t.Fatal(err)
	}
	return m, root
}

func check(t *testing.T, root vfs.Dir, in preconditions.Input, protected ...vfs.Stat) (*preconditions.Admission, string) {
	t.Helper()
	v, err := preconditions.NewView(root, protected)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	if in.Workspace == nil {
		in.Workspace = workspace{}
	}
	a, items, err := preconditions.Check(context.Background(), v, in)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, it := range items {
		out = append(out, fmt.Sprintf("%d %s %s", it.Op, it.Code, it.Path))
	}
	if (a == nil) != (len(items) > 0) {
		t.Errorf("admission %v with refusals %v", a != nil, out)
	}
	return a, strings.Join(out, ", ")
}

// Each place that a plan must not write, by its own code, and all at once.
func TestPlaces(t *testing.T) {
	_, root := bed(t)
	own, err := root.Lstat("own")
	if err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		d    editplan.Draft
		code refusal.Code
		path string
	}{
		{modify("link/x", "x\n", "y\n"), refusal.PathEscape, "link/x"},
		{create("link/new"), refusal.PathEscape, "link/new"},
		{modify("flink", "a\n", "y\n"), refusal.NotRegular, "flink"},
		{modify("fifo", "", "y\n"), refusal.NotRegular, "fifo"},
		{modify("own/secret", "s\n", "y\n"), refusal.PathProtected, "own/secret"},
		{modify("own/secret", "guess", "y\n"), refusal.PathProtected, "own/secret"},
		{create("own/none"), refusal.PathProtected, "own/none"},
		{modify("inner/f", "f\n", "y\n"), refusal.OtherRepository, "inner/f"},
		{modify("ro.txt", "ro\n", "y\n"), refusal.NotWritable, "ro.txt"},
		{remove("ro.txt", "ro\n"), refusal.NotWritable, "ro.txt"},
		{modify("h1", "h\n", "y\n"), refusal.HardLinked, "h1"},
		{modify("a.txt", "stale", "y\n"), refusal.StaleBasis, "a.txt"},
		{modify("gone", "x", "y\n"), refusal.Missing, "gone"},
		{create("a.txt"), refusal.Exists, "a.txt"},
		{create("flink"), refusal.Exists, "flink"},
		{remove("d", ""), refusal.NotEmpty, "d"},
	}
	for _, c := range cases {
		want := fmt.Sprintf("0 %s %s", c.code, c.path)
		if _, got := check(t, root, preconditions.Input{Plan: compile(t, c.d)}, own); got != want {
			t.Errorf("%s %s: %q, want %q", c.d.Kind, c.d.Path, got, want)
		}
	}
	// Every failing operation is listed, in order, beside one that is fine.
	all := []editplan.Draft{modify("b.txt", "b\n", "B\n")}
	var want []string
	seen := map[string]bool{}
	for _, c := range cases {
		if !seen[c.path] {
			seen[c.path] = true
			want = append(want, fmt.Sprintf("%d %s %s", len(all), c.code, c.path))
			all = append(all, c.d)
		}
	}
	_, got := check(t, root, preconditions.Input{Plan: compile(t, all...)}, own)
	for _, w := range want {
		// What only the disk tells (hard links, modes) is looked at when the
		// operations themselves can be done.
		if strings.Contains(w, "hard-linked") || strings.Contains(w, "not-writable") {
			continue
		}
		if !strings.Contains(got, w) {
			t.Errorf("%q is not in %q", w, got)
		}
	}
}

// TestProtectedNames: a plan is not trusted to have gone through Compile, which
// makes none with such a path. Nothing is there, so that only the name can tell.
func TestProtectedNames(t *testing.T) {
	_, root := bed(t)
	for _, s := range []string{".git/hooks/x", ".GIT/config", "d/.git/x", "d/GIT~1/x"} {
		p, err := snapshot.ParsePath(s)
		if err != nil {
			t.Fatal(err)
		}
		made, moved := compile(t, create("new")), compile(t, rename("a.txt", "new", "a\n"))
		made.Ops[0].Path, moved.Ops[0].To = p, p
		for _, plan := range []*editplan.Plan{made, moved} {
			if _, got := check(t, root, preconditions.Input{Plan: plan}); got != "0 path-protected "+s {
				t.Errorf("%s: %q", s, got)
			}
		}
	}
}

func TestRepositoryAndAttention(t *testing.T) {
	_, root := bed(t)
	ws := workspace{info: map[string]snapshot.PathInfo{
		"sparse": {Tracked: true, SkipWorktree: true}, "sub/f": {InSubmodule: true}, "big.bin": {Filter: "lfs"},
	}}
	for _, c := range []struct {
		d       editplan.Draft
		staging bool
		want    string
	}{
		{create("sparse"), false, "0 not-checked-out sparse"},
		{create("sub/f"), false, "0 other-repository sub/f"},
		{create("big.bin"), true, "0 filtered-path big.bin"},
		{create("big.bin"), false, ""},
		{modify("a.txt", "a\n", "A\n"), false, "0 needs-attention a.txt"},
		{modify("b.txt", "b\n", "B\n"), false, ""},
	} {
		if _, got := check(t, root, preconditions.Input{Plan: compile(t, c.d), Workspace: ws, Staging: c.staging, Attention: []string{"a.txt"}}); got != c.want {
			t.Errorf("%s %s: %q, want %q", c.d.Kind, c.d.Path, got, c.want)
		}
	}
}

func TestRenameAcrossMounts(t *testing.T) {
	m, root := bed(t)
	if err := errors.Join(m.Mount("/ws/mnt"), m.Put("/ws/mnt", memfs.Tree{"m": memfs.Text("m\n")})); err != nil {
		t.Fatal(err)
	}
	if _, got := check(t, root, preconditions.Input{Plan: compile(t, rename("a.txt", "mnt/a", "a\n"))}); got != "0 cross-device mnt/a" {
		t.Errorf("%q", got)
	}
	if _, got := check(t, root, preconditions.Input{Plan: compile(t, modify("mnt/m", "m\n", "M\n"))}); got != "" {
		t.Errorf("a change on the other mount: %q", got)
	}
}

// folding is a directory in which a name is found in either case.
type folding struct{ vfs.Dir }

func (f folding) Lstat(name string) (vfs.Stat, error) {
	s, err := f.Dir.Lstat(name)
	if !errors.Is(err, fs.ErrNotExist) {
		return s, err
	}
	es, lerr := f.Dir.List()
	if lerr != nil {
		return s, err
	}
	for _, e := range es {
		if strings.EqualFold(e.Name, name) {
			return f.Dir.Lstat(e.Name)
		}
	}
	return s, err
}

func TestNameCollision(t *testing.T) {
	_, root := bed(t)
	drafts := []editplan.Draft{create("New"), create("new")}
	if _, got := check(t, folding{root}, preconditions.Input{Plan: compile(t, drafts...)}); got != "1 name-collision new" {
		t.Errorf("where case is ignored: %q", got)
	}
	if _, got := check(t, root, preconditions.Input{Plan: compile(t, drafts...)}); got != "" {
		t.Errorf("where it is not: %q", got)
	}
	if _, got := check(t, folding{root}, preconditions.Input{Plan: compile(t, create("A.TXT"))}); got != "0 exists A.TXT" {
		t.Errorf("a name that is there in the other case: %q", got)
	}
}

func (f folding) Open(name string) (vfs.File, error) {
	es, err := f.List()
	if err != nil {
		return nil, err
	}
	for _, e := range es {
		if strings.EqualFold(e.Name, name) {
			return f.Dir.Open(e.Name)
		}
	}
	return f.Dir.Open(name)
}

// The look right before the write finds whatever came in between.
func TestRecheck(t *testing.T) {
	_, root := bed(t)
	plan := compile(t, modify("a.txt", "a\n", "A\n"), create("fresh/new"), remove("b.txt", "b\n"))
	a, got := check(t, root, preconditions.Input{Plan: plan})
	if got != "" {
		t.Fatal(got)
	}
	recheck := func() string {
		items, err := a.Recheck(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, it := range items {
			out = append(out, fmt.Sprintf("%s %s", it.Code, it.Path))
		}
		return strings.Join(out, ", ")
	}
	if got := recheck(); got != "" {
		t.Errorf("nothing moved: %q", got)
	}
	must := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	must(root.Symlink("d", "fresh"))
	if got := recheck(); got != "path-escape fresh/new" {
		t.Errorf("a link on the way: %q", got)
	}
	must(root.Unlink("fresh"), root.Mkdir("fresh", 0o755))
	if got := recheck(); got != "" {
		t.Errorf("an empty directory: %q", got)
	}
	d, err := root.OpenDir("fresh")
	must(err)
	f, err := d.Create("new", 0o644)
	must(err)
	must(f.Close(), d.Close())
	if got := recheck(); got != "exists fresh/new" {
		t.Errorf("a file in the way: %q", got)
	}
	f, err = root.Create("tmp", 0o644)
	must(err)
	_, err = f.Write([]byte("z\n"))
	must(err, f.Close(), root.Rename("tmp", root, "a.txt", vfs.Replace))
	if got := recheck(); got != "changed-underneath a.txt, exists fresh/new" {
		t.Errorf("another file of the same size: %q", got)
	}
}
