//go:build linux

package watch_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/aspengine/asp/internal/need"
	"github.com/aspengine/asp/snapshot/watch"
)

// grown is a tree on disk and the watched Tree of it.
type grown struct {
	*watch.Tree
	dir string
}

func (g grown) at(p string) string { return filepath.Join(g.dir, p) }

func grow(t *testing.T, o watch.Options, dirs ...string) grown {
	t.Helper()
	g := grown{dir: t.TempDir()}
	var err error
	for _, d := range dirs {
		must(t, os.MkdirAll(g.at(d), 0o755))
	}
	if g.Tree, err = watch.New(g.dir, o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { must(t, g.Close()) })
	for _, d := range append([]string{""}, dirs...) {
		must(t, g.add(t, d))
	}
	return g
}

func (g grown) add(t *testing.T, d string) error {
	t.Helper()
	f, err := os.Open(g.at(d))
	must(t, err)
	defer f.Close()
	return g.Add(int(f.Fd()), d)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func list(m map[string]struct{}) []string { return slices.Sorted(maps.Keys(m)) }

func TestChanges(t *testing.T) {
	for _, c := range []struct {
		name  string
		do    func(g grown) error
		dirs  []string
		trees []string
		lost  bool
	}{
		{name: "nothing", do: func(grown) error { return nil }},
		{name: "new file", do: func(g grown) error { return os.WriteFile(g.at("a/n"), nil, 0o644) }, dirs: []string{"a"}},
		{name: "reading is no change", do: func(g grown) error { _, err := os.ReadDir(g.at("a")); return err }},
		{name: "attributes", do: func(g grown) error { return os.Chmod(g.at("a/f"), 0o600) }, dirs: []string{"a"}},
		{name: "truncation", do: func(g grown) error { return os.Truncate(g.at("a/f"), 0) }, dirs: []string{"a"}},
		{name: "time", do: func(g grown) error { return unix.Utimes(g.at("a/f"), []unix.Timeval{{Sec: 1}, {Sec: 1}}) }, dirs: []string{"a"}},
		{name: "removed file", do: func(g grown) error { return os.Remove(g.at("a/f")) }, dirs: []string{"a"}},
		{name: "renamed file", do: func(g grown) error { return os.Rename(g.at("a/f"), g.at("b/g")) }, dirs: []string{"a", "b"}},
		{name: "new directory", do: func(g grown) error { return os.Mkdir(g.at("a/n"), 0o755) }, dirs: []string{"a"}, trees: []string{"a/n"}},
		{name: "removed directory", do: func(g grown) error { return os.Remove(g.at("a/c")) }, dirs: []string{"a"}, trees: []string{"a/c"}},
		{name: "renamed directory", do: func(g grown) error { return os.Rename(g.at("a/c"), g.at("d")) }, dirs: []string{"", "a"}, trees: []string{"a/c", "d"}},
		{name: "permissions of a directory", do: func(g grown) error { return os.Chmod(g.at("a/c"), 0o700) }, dirs: []string{"a", "a/c"}, trees: []string{"a/c"}},
		{name: "exchanged directories", do: func(g grown) error {
			return unix.Renameat2(unix.AT_FDCWD, g.at("a/c"), unix.AT_FDCWD, g.at("b"), unix.RENAME_EXCHANGE)
		}, dirs: []string{"", "a"}, trees: []string{"a/c", "b"}},
		{name: "second name", do: func(g grown) error { return os.Link(g.at("a/f"), g.at("b/g")) }, dirs: []string{"b"}},
		{name: "through a name outside", do: func(g grown) error { // not heard: package comment
			if err := os.Link(g.at("a/f"), g.dir+".second"); err != nil {
				return err
			}
			return errors.Join(os.WriteFile(g.dir+".second", []byte("x"), 0o644), os.Remove(g.dir+".second"))
		}},
		{name: "rules", do: func(g grown) error { return os.WriteFile(g.at("a/rules"), nil, 0o644) }, lost: true},
		{name: "the root moves", do: func(g grown) error {
			return errors.Join(os.Rename(g.dir, g.dir+".old"), os.Mkdir(g.dir, 0o755), os.RemoveAll(g.dir+".old"))
		}, lost: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := grow(t, watch.Options{Rules: func(n string) bool { return n == "rules" }}, "a", "a/c", "b")
			must(t, os.WriteFile(g.at("a/f"), []byte("f"), 0o644))
			g.Changes()
			must(t, c.do(g))
			ch := g.Changes()
			if (ch.Lost != "") != c.lost {
				t.Fatalf("lost: %q", ch.Lost)
			}
			if c.lost {
				if again := g.Changes(); again.Lost == "" {
					t.Error("lost once and not for good")
				}
				return
			}
			if !slices.Equal(list(ch.Dirs), c.dirs) || !slices.Equal(list(ch.Trees), c.trees) {
				t.Errorf("directories %q, trees %q", list(ch.Dirs), list(ch.Trees))
			}
			if again := g.Changes(); len(again.Dirs)+len(again.Trees) > 0 {
				t.Errorf("told twice: %v", again)
			}
		})
	}
}

// What was changed before the call is in its answer, however much it is.
func TestChangesAreComplete(t *testing.T) {
	var dirs []string
	for i := range 2000 {
		dirs = append(dirs, fmt.Sprintf("directory-with-a-longer-name-%04d", i))
	}
	g := grow(t, watch.Options{}, dirs...)
	for _, d := range dirs {
		must(t, os.WriteFile(g.at(d+"/f"), nil, 0o644))
	}
	if ch := g.Changes(); ch.Lost != "" || !slices.Equal(list(ch.Dirs), dirs) {
		t.Errorf("lost %q, %d directories of %d", ch.Lost, len(ch.Dirs), len(dirs))
	}
}

// A directory that was dropped is heard of no more, and can be watched again
// under another name.
func TestDrop(t *testing.T) {
	g := grow(t, watch.Options{}, "a", "b")
	g.Drop("a")
	must(t, os.WriteFile(g.at("a/f"), nil, 0o644))
	if ch := g.Changes(); ch.Lost != "" || len(ch.Dirs) > 0 {
		t.Errorf("%+v", ch)
	}
	must(t, os.Rename(g.at("a"), g.at("c")))
	must(t, g.add(t, "c"))
	g.Changes()
	must(t, os.WriteFile(g.at("c/f"), []byte("x"), 0o644))
	if ch := g.Changes(); ch.Lost != "" || !slices.Equal(list(ch.Dirs), []string{"c"}) {
		t.Errorf("%+v", ch)
	}
}

func TestAddFails(t *testing.T) {
	t.Run("more than may be watched", func(t *testing.T) {
		g := grow(t, watch.Options{Limit: 2}, "a")
		must(t, os.Mkdir(g.at("b"), 0o755))
		if err := g.add(t, "b"); err == nil || g.Changes().Lost == "" {
			t.Errorf("%v", err)
		}
	})
	t.Run("the same directory under two names", func(t *testing.T) {
		g := grow(t, watch.Options{}, "a")
		must(t, os.Rename(g.at("a"), g.at("b")))
		if err := g.add(t, "b"); err == nil || g.Changes().Lost == "" {
			t.Errorf("%v", err)
		}
	})
	t.Run("a file system that others may change", func(t *testing.T) {
		if _, err := watch.New("/proc", watch.Options{}); !errors.Is(err, watch.ErrUnsupported) {
			t.Errorf("%v", err)
		}
	})
}

// A mount inside of the tree raises no event; one elsewhere does not matter.
func TestMounts(t *testing.T) {
	need.Root(t)
	g := grow(t, watch.Options{}, "a", "a/b")
	other := t.TempDir()
	over := func(dir string) {
		t.Helper()
		must(t, unix.Mount("none", dir, "tmpfs", 0, ""))
		t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	}
	over(other)
	if ch := g.Changes(); ch.Lost != "" {
		t.Errorf("a mount elsewhere: %s", ch.Lost)
	}
	over(g.at("a/b"))
	if ch := g.Changes(); ch.Lost == "" {
		t.Error("a mount in the tree was not noticed")
	}
	file := grow(t, watch.Options{}, "a")
	for _, f := range []string{file.at("a/with space"), filepath.Join(other, "source")} {
		must(t, os.WriteFile(f, nil, 0o644))
	}
	must(t, unix.Mount(filepath.Join(other, "source"), file.at("a/with space"), "", unix.MS_BIND, ""))
	t.Cleanup(func() { must(t, unix.Unmount(file.at("a/with space"), unix.MNT_DETACH)) })
	if _, err := watch.New(file.dir, watch.Options{}); !errors.Is(err, watch.ErrUnsupported) {
		t.Errorf("a file mounted in the tree: %v", err)
	}
	fresh := grow(t, watch.Options{})
	must(t, os.Mkdir(fresh.at("m"), 0o755))
	over(fresh.at("m"))
	n, err := watch.New(fresh.dir, watch.Options{})
	must(t, err)
	defer n.Close()
	f, err := os.Open(fresh.at("m"))
	must(t, err)
	defer f.Close()
	if n.Add(int(f.Fd()), "m") == nil {
		t.Error("a directory on another file system was taken")
	}
}
