package commit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aspengine/asp/apply/commit"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/internal/vfs/memfs"
	"github.com/aspengine/asp/snapshot"
)

const (
	repo   = "/repo"
	gitDir = "/repo/.git"
	txDir  = "/repo/.git/asp"
)

// tree is a state: path → "f:<mode>:<bytes>", "l:<target>" or "d:<mode>".
type tree map[string]string

func file(perm uint32, text string) string { return fmt.Sprintf("f:%04o:%s", perm, text) }

// world is a workspace in memory.
type world struct {
	t  testing.TB
	fs *memfs.FS
}

func newWorld(t testing.TB, state tree) *world {
	t.Helper()
	return newWorldOn(t, memfs.New(memfs.Options{Umask: 0o022}), state)
}

func newWorldOn(t testing.TB, f *memfs.FS, state tree) *world {
	t.Helper()
	w := &world{t, f}
	root := w.root(w.fs, "/")
	defer root.Close()
	w.ok(root.Mkdir("repo", 0o755))
	top := w.root(w.fs, repo)
	defer top.Close()
	w.ok(top.Mkdir(".git", 0o755))
	for _, p := range slices.Sorted(maps.Keys(state)) {
		w.put(p, state[p])
	}
	w.ok(top.SyncFS())
	return w
}

func (w *world) ok(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) root(f vfs.FS, path string) vfs.Dir {
	w.t.Helper()
	d, err := f.OpenRoot(path)
	w.ok(err)
	return d
}

// put writes one path of a state, over whatever is there, as an editor would.
func (w *world) put(path, want string) {
	w.t.Helper()
	d := w.root(w.fs, repo)
	dir, name := ".", path
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		dir, name = path[:i], path[i+1:]
	}
	defer d.Close()
	sub, err := d.OpenDir(dir)
	w.ok(err)
	defer sub.Close()
	kind, rest, _ := strings.Cut(want, ":")
	switch kind {
	case "l":
		w.ok(sub.Symlink(rest, name))
	case "d":
		var perm uint32
		fmt.Sscanf(rest, "%o", &perm)
		w.ok(sub.Mkdir(name, 0o755))
		if perm != 0o755 {
			s, err := sub.OpenDir(name)
			w.ok(err)
			w.ok(s.Chmod(perm))
			s.Close()
		}
	case "f":
		mode, text, _ := strings.Cut(rest, ":")
		var perm uint32
		fmt.Sscanf(mode, "%o", &perm)
		if err := sub.Unlink(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			w.t.Fatal(err)
		}
		f, err := sub.Create(name, 0o600)
		w.ok(err)
		_, err = f.Write([]byte(text))
		w.ok(err)
		w.ok(f.Chmod(perm))
		w.ok(f.Close())
	}
}

// state reads the workspace, the git directory's own files included, our
// transaction area left out.
func state(t testing.TB, f vfs.FS) tree {
	t.Helper()
	d, err := f.OpenRoot(repo)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	out := tree{}
	walk(t, d, "", out)
	delete(out, ".git")
	return out
}

func walk(t testing.TB, d vfs.Dir, at string, out tree) {
	t.Helper()
	names, err := d.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range names {
		p := at + e.Name
		if p == ".git/asp" || strings.HasPrefix(e.Name, ".asp-tx-") {
			continue
		}
		st, err := d.Lstat(e.Name)
		if err != nil {
			t.Fatal(err)
		}
		switch st.Kind {
		case vfs.KindDir:
			out[p] = fmt.Sprintf("d:%04o", st.Perm)
			sub, err := d.OpenDir(e.Name)
			if err != nil {
				t.Fatal(err)
			}
			walk(t, sub, p+"/", out)
			sub.Close()
		case vfs.KindSymlink:
			target, err := d.Readlink(e.Name)
			if err != nil {
				t.Fatal(err)
			}
			out[p] = "l:" + target
		case vfs.KindFile:
			f, err := d.Open(e.Name)
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(f)
			if err != nil {
				t.Fatal(err)
			}
			f.Close()
			out[p] = file(st.Perm, string(b))
		}
	}
}

// leftovers lists every name of ours.
func leftovers(t testing.TB, f vfs.FS) []string {
	t.Helper()
	d, err := f.OpenRoot(repo)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var out []string
	var rec func(d vfs.Dir, at string)
	rec = func(d vfs.Dir, at string) {
		names, err := d.List()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range names {
			if at+e.Name == ".git/asp" || at+e.Name == ".asp" || strings.HasPrefix(e.Name, ".asp-tx-") {
				out = append(out, at+e.Name)
			}
			if st, err := d.Lstat(e.Name); err == nil && st.Kind == vfs.KindDir {
				sub, err := d.OpenDir(e.Name)
				if err != nil {
					t.Fatal(err)
				}
				rec(sub, at+e.Name+"/")
				sub.Close()
			}
		}
	}
	rec(d, "")
	return out
}

// good is what a trustworthy disk would say; memfs models one.
func good(vfs.Dir) (commit.MountFacts, error) {
	return commit.MountFacts{Type: "model", Ordered: true, Barriers: true, Renames: true}, nil
}

// probe is good, and tells where names cannot be exchanged.
func (w *world) probe(d vfs.Dir) (commit.MountFacts, error) {
	f, err := good(d)
	f.Aside = w.fs.Options().NoExchange
	return f, err
}

// env opens a workspace on f, which may be a wrapper of the world's.
func (w *world) env(f vfs.FS) (commit.Env, func(), error) {
	root, err := f.OpenRoot(repo)
	if err != nil {
		return commit.Env{}, nil, err
	}
	git, err := f.OpenRoot(gitDir)
	if err != nil {
		root.Close()
		return commit.Env{}, nil, err
	}
	gst, err := git.Stat()
	if err != nil {
		return commit.Env{}, nil, err
	}
	return commit.Env{
		FS: f, Root: root, TxDir: txDir, Protected: []vfs.Stat{gst},
		Extra: map[string]vfs.Dir{gitDir: git},
		Probe: w.probe, Dirty: func() (int64, error) { return 0, nil },
		Handles: 3, // so that files of either sort meet whatever a test does
	}, func() { root.Close(); git.Close() }, nil
}

func (w *world) mustEnv(f vfs.FS) (commit.Env, func()) {
	w.t.Helper()
	e, done, err := w.env(f)
	w.ok(err)
	return e, done
}

func path(t testing.TB, s string) snapshot.Path {
	t.Helper()
	p, err := snapshot.ParsePath(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func opener(s string) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(s)), nil }
}

// image is the image of a state's entry as admission would see it; nil for "".
func image(s string) *commit.Image {
	if s == "" {
		return nil
	}
	kind, rest, _ := strings.Cut(s, ":")
	im := &commit.Image{Kind: vfs.KindSymlink, Perm: 0o777}
	text := rest
	if kind == "f" {
		mode, b, _ := strings.Cut(rest, ":")
		text, im.Kind = b, vfs.KindFile
		fmt.Sscanf(mode, "%o", &im.Perm)
	}
	im.Digest, im.Size = snapshot.DigestOf([]byte(text)), int64(len(text))
	im.Open = opener(text)
	return im
}

// modify, create, remove and rename make changes from one entry to another.
func modify(t testing.TB, p, before, after string) commit.Change {
	b := image(before)
	b.Open = nil
	return commit.Change{Path: path(t, p), Before: b, After: image(after)}
}

func create(t testing.TB, p, text string, exec bool) commit.Change {
	im := image(file(0o666, text))
	if exec {
		im.Perm = 0o777
	}
	im.UmaskApplies = true
	return commit.Change{Path: path(t, p), After: im}
}

func remove(t testing.TB, p, before string) commit.Change {
	b := image(before)
	b.Open = nil
	return commit.Change{Path: path(t, p), Before: b}
}

func rename(t testing.TB, from, to, before string) []commit.Change {
	b, a := image(before), image(before)
	b.Open, a.Open = nil, nil
	return []commit.Change{
		{Path: path(t, from), Before: b, MovedTo: path(t, to)},
		{Path: path(t, to), After: a, From: path(t, from)},
	}
}

func with(s tree, change func(tree)) tree {
	out := maps.Clone(s)
	change(out)
	return out
}

func same(t testing.TB, what string, got, want tree) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Fatalf("%s: (-want +got)\n%s", what, d)
	}
}

func runIn(e commit.Env, id string, cs []commit.Change, o commit.Options) (commit.Result, error) {
	return commit.Run(context.Background(), e, id, cs, o)
}
