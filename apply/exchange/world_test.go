package exchange_test

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
	"github.com/aspengine/asp/apply/exchange"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/internal/vfs/memfs"
	"github.com/aspengine/asp/snapshot"
)

const (
	top  = "/home"
	root = "/home/ws"
)

// tree is a state: path → "f:<mode>:<bytes>", "l:<target>", "d:<mode>", or
// "=<path>" for a second name of a file.
type tree map[string]string

func file(perm uint32, text string) string { return fmt.Sprintf("f:%04o:%s", perm, text) }

func with(s tree, change func(tree)) tree {
	out := maps.Clone(s)
	change(out)
	return out
}

// world is a parent with a workspace in memory.
type world struct {
	t  testing.TB
	fs *memfs.FS
}

func (w *world) ok(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) open(path string) vfs.Dir {
	w.t.Helper()
	d, err := w.fs.OpenRoot(path)
	w.ok(err)
	return d
}

func newWorld(t testing.TB, state tree) *world {
	t.Helper()
	w := &world{t, memfs.New(memfs.Options{Umask: 0o022})}
	d := w.open("/")
	w.ok(d.Mkdir("home", 0o755))
	d.Close()
	d = w.open(top)
	w.ok(d.Mkdir("ws", 0o755))
	w.ok(d.Mkdir("neighbour", 0o755))
	d.Close()
	d = w.open(root)
	defer d.Close()
	for _, p := range slices.Sorted(maps.Keys(state)) {
		put(t, d, p, state[p])
	}
	w.ok(d.SyncFS())
	return w
}

func split(p string) (dir, name string) {
	if i := strings.LastIndexByte(p, '/'); i >= 0 {
		return p[:i], p[i+1:]
	}
	return ".", p
}

// put writes one path below d, over whatever is there, as an editor would.
func put(t testing.TB, d vfs.Dir, path, want string) {
	t.Helper()
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	dir, name := split(path)
	sub, err := d.OpenDir(dir)
	ok(err)
	defer sub.Close()
	if strings.HasPrefix(want, "=") {
		ok(sub.Link(want[1:], sub, name))
		return
	}
	kind, rest, _ := strings.Cut(want, ":")
	perm := uint32(0)
	switch kind {
	case "l":
		ok(sub.Symlink(rest, name))
	case "d":
		fmt.Sscanf(rest, "%o", &perm)
		ok(sub.Mkdir(name, 0o755))
		s, err := sub.OpenDir(name)
		ok(err)
		ok(s.Chmod(perm))
		s.Close()
	case "f":
		mode, text, _ := strings.Cut(rest, ":")
		fmt.Sscanf(mode, "%o", &perm)
		if err := sub.Unlink(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		f, err := sub.Create(name, 0o600)
		ok(err)
		_, err = f.Write([]byte(text))
		ok(err)
		ok(f.Chmod(perm))
		ok(f.Close())
	}
}

// listing reads the tree below path. Second names of one file are told by its
// first one.
func listing(t testing.TB, f vfs.FS, path string) tree {
	t.Helper()
	d, err := f.OpenRoot(path)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	out := tree{}
	walk(t, d, "", out, map[uint64]string{})
	return out
}

func walk(t testing.TB, d vfs.Dir, at string, out tree, links map[uint64]string) {
	t.Helper()
	names, err := d.List()
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(names, func(a, b vfs.DirEntry) int { return strings.Compare(a.Name, b.Name) })
	for _, e := range names {
		p := at + e.Name
		st, err := d.Lstat(e.Name)
		if err != nil {
			t.Fatal(err)
		}
		if first := links[st.Ino]; first != "" {
			out[p] = "=" + first
			continue
		}
		switch st.Kind {
		case vfs.KindDir:
			out[p] = fmt.Sprintf("d:%04o", st.Perm)
			sub, err := d.OpenDir(e.Name)
			if err != nil {
				t.Fatal(err)
			}
			walk(t, sub, p+"/", out, links)
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
			links[st.Ino] = p
		}
	}
}

// beside lists everything in the parent but the workspace and its neighbour.
func beside(t testing.TB, f vfs.FS) tree {
	t.Helper()
	d, err := f.OpenRoot(top)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	names, err := d.List()
	if err != nil {
		t.Fatal(err)
	}
	out := tree{}
	for _, e := range names {
		st, err := d.Lstat(e.Name)
		if err != nil {
			t.Fatal(err)
		}
		if e.Name == "ws" || e.Name == "neighbour" {
			continue
		}
		out[e.Name] = "d"
		if st.Kind == vfs.KindDir {
			maps.Copy(out, listing(t, f, top+"/"+e.Name))
		}
	}
	return out
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

func image(s string) *commit.Image {
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

func before(s string) *commit.Image {
	b := image(s)
	b.Open = nil
	return b
}

func modify(t testing.TB, p, old, after string) commit.Change {
	return commit.Change{Path: path(t, p), Before: before(old), After: image(after)}
}

func create(t testing.TB, p, text string, exec bool) commit.Change {
	im := image(file(0o666, text))
	if exec {
		im.Perm = 0o777
	}
	im.UmaskApplies = true
	return commit.Change{Path: path(t, p), After: im}
}

func remove(t testing.TB, p, old string) commit.Change {
	return commit.Change{Path: path(t, p), Before: before(old)}
}

func rename(t testing.TB, from, to, old string) []commit.Change {
	return []commit.Change{
		{Path: path(t, from), Before: before(old), MovedTo: path(t, to)},
		{Path: path(t, to), After: before(old), From: path(t, from)},
	}
}

func same(t testing.TB, what string, got, want tree) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Fatalf("%s: (-want +got)\n%s", what, d)
	}
}

func good(vfs.Dir) (commit.MountFacts, error) {
	return commit.MountFacts{Type: "model", Ordered: true, Barriers: true, Renames: true}, nil
}

func env(f vfs.FS) exchange.Env {
	return exchange.Env{FS: f, RootPath: root, Skip: []string{".git/asp"}, Probe: good}
}

// scenario is one plan on one tree, small enough to be stopped everywhere.
type scenario struct {
	name          string
	before, after tree
	changes       func(t testing.TB) []commit.Change
}

var base = tree{
	"a": file(0o644, "a old\n"), "b": "=a", "c": file(0o644, "c old\n"), "d": file(0o644, "d old\n"), "f": file(0o755, "f old\n"),
	"dir": "d:0755", "dir/x": file(0o644, "x old\n"), "dir/sub": "d:0700", "dir/sub/y": file(0o600, "y old\n"),
	"lone": "d:0555", "lone/z": file(0o640, "z\n"), "ln": "l:a", "bytes\xff": file(0o604, "keep\n"), "empty": "d:1777",
	".git": "d:0755", ".git/index": file(0o644, "index"),
}

func scenarios() []scenario {
	one := func(cs ...commit.Change) []commit.Change { return cs }
	b := base
	return []scenario{
		{"mixed", b, with(b, func(s tree) {
			s["f"] = file(0o755, "f new\n")
			s["n"], s["n/b"] = "d:0755", file(0o644, "b\n")
			s["e"], s["e/d"] = "d:0755", s["d"]
			delete(s, "c")
			delete(s, "d")
		}), func(t testing.TB) []commit.Change {
			cs := one(modify(t, "f", b["f"], file(0o755, "f new\n")), create(t, "n/b", "b\n", false), remove(t, "c", b["c"]))
			return append(cs, rename(t, "d", "e/d", b["d"])...)
		}},
		{"file becomes directory", b, with(b, func(s tree) { s["c"], s["c/in"] = "d:0755", file(0o755, "in\n") }),
			func(t testing.TB) []commit.Change {
				return one(remove(t, "c", b["c"]), create(t, "c/in", "in\n", true))
			}},
		{"directory becomes file", b, with(b, func(s tree) {
			for _, p := range []string{"dir/x", "dir/sub", "dir/sub/y"} {
				delete(s, p)
			}
			s["dir"] = file(0o644, "now a file\n")
		}), func(t testing.TB) []commit.Change {
			return one(remove(t, "dir/x", b["dir/x"]), remove(t, "dir/sub/y", b["dir/sub/y"]), create(t, "dir", "now a file\n", false))
		}},
		{"directories emptied", b, with(b, func(s tree) { delete(s, "lone"); delete(s, "lone/z"); delete(s, "dir/sub"); delete(s, "dir/sub/y") }),
			func(t testing.TB) []commit.Change {
				return one(remove(t, "lone/z", b["lone/z"]), remove(t, "dir/sub/y", b["dir/sub/y"]))
			}},
		{"directory emptied and filled", b, with(b, func(s tree) { delete(s, "lone/z"); s["lone/y"] = file(0o644, "y\n") }),
			func(t testing.TB) []commit.Change {
				return one(remove(t, "lone/z", b["lone/z"]), create(t, "lone/y", "y\n", false))
			}},
		{"links", b, with(b, func(s tree) { delete(s, "ln"); s["dir/ln"] = "l:a"; s["ln2"] = "l:dir/x" }),
			func(t testing.TB) []commit.Change {
				return append(rename(t, "ln", "dir/ln", b["ln"]), commit.Change{Path: path(t, "ln2"), After: image("l:dir/x")})
			}},
		{"swapped and edited", b, with(b, func(s tree) { s["c"], s["d"] = s["d"], s["c"]; s["g"] = file(0o755, "f new\n"); delete(s, "f") }),
			func(t testing.TB) []commit.Change {
				cs := rename(t, "f", "g", b["f"])
				cs[1].After = image(file(0o755, "f new\n"))
				return append(cs, modify(t, "c", b["c"], b["d"]), modify(t, "d", b["d"], b["c"]))
			}},
		{"mode", b, with(b, func(s tree) { s["c"] = file(0o755, "c old\n") }),
			func(t testing.TB) []commit.Change {
				c := modify(t, "c", b["c"], file(0o755, "c old\n"))
				c.After.Open = nil
				return one(c)
			}},
		{"one of two names of a file", b, with(b, func(s tree) { s["a"] = file(0o644, "a new\n"); s["b"] = b["a"] }),
			func(t testing.TB) []commit.Change { return one(modify(t, "a", b["a"], file(0o644, "a new\n"))) }},
		{"across directories, both ways", b, with(b, func(s tree) {
			s["lone/x"], s["dir/sub/z"], s["y"] = b["dir/x"], b["lone/z"], file(0o600, "y new\n")
			delete(s, "dir/x")
			delete(s, "lone/z")
			delete(s, "dir/sub/y")
		}), func(t testing.TB) []commit.Change {
			cs := rename(t, "dir/sub/y", "y", b["dir/sub/y"])
			cs[1].After = image(file(0o600, "y new\n"))
			return append(append(cs, rename(t, "dir/x", "lone/x", b["dir/x"])...), rename(t, "lone/z", "dir/sub/z", b["lone/z"])...)
		}},
		{"file becomes link, link becomes file", b, with(b, func(s tree) { s["c"], s["ln"] = "l:dir/x", file(0o644, "no link\n") }),
			func(t testing.TB) []commit.Change {
				return one(modify(t, "c", b["c"], "l:dir/x"), modify(t, "ln", b["ln"], file(0o644, "no link\n")))
			}},
		{"nested creates", b, with(b, func(s tree) {
			for _, d := range []string{"p", "p/q", "p/q/r", "dir/sub/new", "dir/sub/new/er"} {
				s[d] = "d:0755"
			}
			s["p/one"], s["p/q/two"], s["p/q/r/three"] = file(0o644, "1\n"), file(0o755, "2\n"), file(0o644, "")
			s["dir/sub/new/er/four"], s["empty/five"] = file(0o644, "4\n"), file(0o644, "5\n")
		}), func(t testing.TB) []commit.Change {
			return one(create(t, "p/one", "1\n", false), create(t, "p/q/two", "2\n", true), create(t, "p/q/r/three", "", false),
				create(t, "dir/sub/new/er/four", "4\n", false), create(t, "empty/five", "5\n", false))
		}},
		{"modes with content, a tree moved away", b, with(b, func(s tree) {
			s["f"], s["d"] = file(0o644, "f new\n"), file(0o755, "d new\n")
			s["moved"], s["moved/x"], s["moved/sub"], s["moved/sub/y"] = "d:0755", b["dir/x"], "d:0755", b["dir/sub/y"]
			for _, p := range []string{"dir", "dir/x", "dir/sub", "dir/sub/y"} {
				delete(s, p)
			}
		}), func(t testing.TB) []commit.Change {
			cs := one(modify(t, "f", b["f"], file(0o644, "f new\n")), modify(t, "d", b["d"], file(0o755, "d new\n")))
			return append(append(cs, rename(t, "dir/x", "moved/x", b["dir/x"])...), rename(t, "dir/sub/y", "moved/sub/y", b["dir/sub/y"])...)
		}},
	}
}

// attempt runs the scenario on f.
func attempt(t testing.TB, f vfs.FS, s scenario, change func(*exchange.Env, *exchange.Options)) (r exchange.Result, stored int, err error) {
	e := env(f)
	o := exchange.Options{
		Tag:  "proposal-1",
		Seal: func(context.Context, exchange.Facts) ([]byte, error) { return []byte("evidence"), nil },
		AfterCommit: func(_ context.Context, ev []byte) error {
			if string(ev) != "evidence" {
				t.Errorf("evidence %q", ev)
			}
			stored++
			return nil
		},
	}
	if change != nil {
		change(&e, &o)
	}
	r, err = exchange.Run(context.Background(), e, "tx1", s.changes(t), o)
	return r, stored, err
}
