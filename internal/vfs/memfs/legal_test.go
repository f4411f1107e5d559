package memfs_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/internal/vfs/memfs"
)

// inodes maps the inode numbers below a directory to their paths.
func inodes(t *rapid.T, f *memfs.FS) map[uint64][]string {
	out := make(map[uint64][]string)
	var walk func(d vfs.Dir, prefix string)
	walk = func(d vfs.Dir, prefix string) {
		list, err := d.List()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			out[e.Ino] = append(out[e.Ino], prefix+e.Name)
			if e.Kind == vfs.KindDir {
				sub, err := d.OpenDir(e.Name)
				if err != nil {
					t.Fatal(err)
				}
				walk(sub, prefix+e.Name+"/")
			}
		}
	}
	d, err := f.OpenRoot("/")
	if err != nil {
		t.Fatal(err)
	}
	walk(d, "")
	return out
}

// skeleton is a tree's names and kinds and, of what is no directory, inodes.
func skeleton(t *rapid.T, f *memfs.FS) string {
	var out []string
	for ino, paths := range inodes(t, f) {
		for _, p := range paths {
			out = append(out, fmt.Sprint(p, "=", ino))
		}
	}
	slices.Sort(out)
	return fmt.Sprint(out)
}

// After any operations with any syncs, a power cut in any mode
//   - keeps every file and directory that was durable at the start and has not
//     been removed or replaced since: moves never lose anything;
//   - shows a directory in one place only, and link counts that are right;
//   - in the ordered mode without single syncs: shows a state that was there at
//     some moment since the last barrier;
//   - keeps all that a barrier covered.
func TestCutsAreLegal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := memfs.New(memfs.Options{})
		if err := f.Put("/", memfs.Tree{
			"a": memfs.Folder(), "b": memfs.Folder(), "a/a": memfs.Folder(),
			"c": memfs.Text("c"), "a/c": memfs.Text("ac"), "b/c": memfs.Text("bc"), "a/a/c": memfs.Text("aac"),
		}); err != nil {
			t.Fatal(err)
		}
		top, err := f.OpenRoot("/")
		if err != nil {
			t.Fatal(err)
		}
		keep := inodes(t, f)
		dirs := []vfs.Dir{top}
		for _, p := range []string{"a", "b", "a/a"} {
			d, err := top.OpenDir(p)
			if err != nil {
				t.Fatal(err)
			}
			dirs = append(dirs, d)
		}
		history := []string{skeleton(t, f)}
		singleSyncs := rapid.Bool().Draw(t, "single syncs")
		name := rapid.SampledFrom([]string{"a", "b", "c"})
		dir := func(t *rapid.T) vfs.Dir { return rapid.SampledFrom(dirs).Draw(t, "dir") }
		gone := func(d vfs.Dir, n string) func() {
			s, err := d.Lstat(n)
			if err != nil {
				return func() {}
			}
			return func() { delete(keep, s.Ino) }
		}
		after := func(err error, then func()) {
			if err == nil {
				then()
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"create": func(t *rapid.T) {
				h, err := dir(t).Create(name.Draw(t, "name"), 0o666)
				after(err, func() { _, _ = h.Write([]byte("new")) })
			},
			"mkdir": func(t *rapid.T) {
				d, n := dir(t), name.Draw(t, "name")
				after(d.Mkdir(n, 0o777), func() {
					sub, err := d.OpenDir(n)
					if err != nil {
						t.Fatal(err)
					}
					dirs = append(dirs, sub)
				})
			},
			"unlink": func(t *rapid.T) {
				d, n := dir(t), name.Draw(t, "name")
				g := gone(d, n)
				after(d.Unlink(n), g)
			},
			"rmdir": func(t *rapid.T) {
				d, n := dir(t), name.Draw(t, "name")
				g := gone(d, n)
				after(d.Rmdir(n), g)
			},
			"link": func(t *rapid.T) {
				_ = dir(t).Link(name.Draw(t, "name"), dir(t), name.Draw(t, "to"))
			},
			"move": func(t *rapid.T) {
				_ = dir(t).Rename(name.Draw(t, "name"), dir(t), name.Draw(t, "to"), vfs.NoReplace)
			},
			"exchange": func(t *rapid.T) {
				_ = dir(t).Rename(name.Draw(t, "name"), dir(t), name.Draw(t, "to"), vfs.Exchange)
			},
			"replace": func(t *rapid.T) {
				d, n := dir(t), name.Draw(t, "to")
				g := gone(d, n)
				after(dir(t).Rename(name.Draw(t, "name"), d, n, vfs.Replace), g)
			},
			"sync": func(t *rapid.T) {
				if singleSyncs {
					_ = dir(t).Sync()
				}
			},
			"barrier": func(t *rapid.T) {
				if rapid.IntRange(0, 3).Draw(t, "rare") == 0 {
					if err := top.SyncFS(); err != nil {
						t.Fatal(err)
					}
					history = nil
				}
			},
			"": func(t *rapid.T) {
				history = append(history, skeleton(t, f))
				mode := rapid.SampledFrom(memfs.Modes()).Draw(t, "mode")
				g := f.Crash(mode, memfs.Seeded(rapid.Uint64().Draw(t, "seed")))
				found := inodes(t, g)
				for ino, paths := range keep {
					if len(found[ino]) == 0 {
						t.Fatalf("%v: inode %d, once %v, is lost; left is %v", mode, ino, paths, skeleton(t, g))
					}
				}
				d, err := g.OpenRoot("/")
				if err != nil {
					t.Fatal(err)
				}
				for ino, paths := range found {
					s, err := d.Lstat(paths[0])
					if err != nil {
						t.Fatal(err)
					}
					if s.Kind == vfs.KindDir && len(paths) != 1 || s.Kind == vfs.KindFile && int(s.Nlink) != len(paths) {
						t.Fatalf("%v: inode %d with %d links is at %v", mode, ino, s.Nlink, paths)
					}
				}
				if mode == memfs.Ordered && !singleSyncs && !slices.Contains(history, skeleton(t, g)) {
					t.Fatalf("%v: %v was never there", mode, skeleton(t, g))
				}
			},
		})
	})
}
