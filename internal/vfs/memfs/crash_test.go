package memfs_test

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/internal/vfs/memfs"
)

// The trap: exchanging names without a sync of the data first gives empty files
// after a power cut, every one of them, with all names synced.
func TestExchangeWithoutDataSync(t *testing.T) {
	const n = 50
	old := make(memfs.Tree)
	for i := range n {
		old[fmt.Sprint("f", i)] = memfs.Text("old")
	}
	run := func(sync func(d vfs.Dir, h vfs.File) error, barrier func(d vfs.Dir) error) *memfs.FS {
		f := memfs.New(memfs.Options{})
		must(t, f.Put("/ws", old))
		must(t, f.Put("/tx", nil))
		must(t, f.Put("/", memfs.Tree{"tx": memfs.Folder()}))
		ws, tx := root(t, f, "/ws"), root(t, f, "/tx")
		for i := range n {
			h := write(t, tx, fmt.Sprint(i), "new")
			must(t, sync(tx, h))
			must(t, h.Close())
		}
		must(t, barrier(ws))
		for i := range n {
			must(t, tx.Rename(fmt.Sprint(i), ws, fmt.Sprint("f", i), vfs.Exchange))
		}
		must(t, ws.Sync())
		must(t, tx.Sync())
		return f
	}
	count := func(f *memfs.FS) map[string]int {
		out := make(map[string]int)
		for p, e := range f.Dump("/ws") {
			if e.Kind == vfs.KindFile && strings.HasPrefix(p, "f") {
				out[e.Data]++
			}
		}
		return out
	}
	none := func(vfs.Dir, vfs.File) error { return nil }
	pass := func(vfs.Dir) error { return nil }
	for _, c := range []struct {
		name    string
		sync    func(vfs.Dir, vfs.File) error
		barrier func(vfs.Dir) error
		want    map[string]int
	}{
		{"no sync", none, pass, map[string]int{"": n}},
		{"a hint is no sync", func(_ vfs.Dir, h vfs.File) error { return h.StartWriteback() }, pass, map[string]int{"": n}},
		{"a sync of the names is no sync of the data", func(d vfs.Dir, _ vfs.File) error { return d.Sync() }, pass, map[string]int{"": n}},
		{"file by file", func(_ vfs.Dir, h vfs.File) error { return h.Sync() }, pass, map[string]int{"new": n}},
		{"one barrier", none, vfs.Dir.SyncFS, map[string]int{"new": n}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, mode := range []memfs.Mode{memfs.Nothing, memfs.NamesOnly} {
				if got := count(run(c.sync, c.barrier).Crash(mode, nil)); !cmp.Equal(got, c.want) {
					t.Errorf("%v: got %v, want %v", mode, got, c.want)
				}
			}
		})
	}
}

// What has been synced stays, however the unsynced rest is torn.
func TestAppendKeepsWhatWasSynced(t *testing.T) {
	f := memfs.New(memfs.Options{})
	d := root(t, f, "/")
	record := func(i int) string { return strings.Repeat(fmt.Sprintf("record %d;", i), 90) }
	h := write(t, d, "journal", record(1))
	must(t, h.Sync())
	must(t, d.Sync())
	_, err := io.WriteString(h, record(2))
	must(t, err)
	_, err = io.WriteString(h, record(3))
	must(t, err)
	whole := record(1) + record(2) + record(3)
	seen := make(map[string]bool)
	for seed := range uint64(300) {
		got := f.Crash(memfs.Random, memfs.Seeded(seed)).Dump("/")["journal"].Data
		if !strings.HasPrefix(got, record(1)) {
			t.Fatalf("seed %d: a synced record is gone: %q", seed, got)
		}
		switch {
		case got == record(1):
			seen["old"] = true
		case got == whole:
			seen["new"] = true
		case strings.HasPrefix(whole, got):
			seen["torn"] = true
		case len(got) == len(whole):
			seen["holes"] = true
		default:
			t.Fatalf("seed %d: impossible content %q", seed, got)
		}
	}
	if len(seen) != 4 {
		t.Errorf("only %v happened", seen)
	}
}

func TestTornContents(t *testing.T) {
	for _, c := range []struct {
		name  string
		do    func(h vfs.File) error
		never func(got string) bool
		some  []string
	}{
		{"truncation", func(h vfs.File) error { return h.Truncate(2) }, func(s string) bool { return s != "ol" && s != "old" }, []string{"ol", "old"}},
		{"cut and grown", func(h vfs.File) error {
			if err := h.Truncate(0); err != nil {
				return err
			}
			return h.Truncate(3)
		}, func(s string) bool { return s != "" && s != "old" && s != "\x00\x00\x00" }, []string{"", "old", "\x00\x00\x00"}},
		// The bytes that a truncation took never come back into the grown file.
		{"cut short and grown", func(h vfs.File) error {
			if err := h.Truncate(1); err != nil {
				return err
			}
			return h.Truncate(5)
		}, func(s string) bool { return s != "o" && s != "old" && s != "o\x00\x00\x00\x00" }, []string{"o", "old", "o\x00\x00\x00\x00"}},
		{"synced", func(h vfs.File) error {
			if err := h.Truncate(1); err != nil {
				return err
			}
			return h.Sync()
		}, func(s string) bool { return s != "o" }, []string{"o"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := memfs.New(memfs.Options{})
			d := root(t, f, "/")
			h := write(t, d, "a", "old")
			must(t, d.SyncFS())
			must(t, c.do(h))
			var seen []string
			for seed := range uint64(100) {
				got := f.Crash(memfs.Random, memfs.Seeded(seed)).Dump("/")["a"].Data
				if c.never(got) {
					t.Fatalf("seed %d: %q", seed, got)
				}
				seen = append(seen, got)
			}
			for _, s := range c.some {
				if !slices.Contains(seen, s) {
					t.Errorf("%q never happened", s)
				}
			}
		})
	}
}

// Which names a power cut leaves when nothing unsynced survives.
func TestNames(t *testing.T) {
	base := memfs.Tree{"a": memfs.Folder(), "b": memfs.Folder(), "a/f": memfs.Text("f"), "b/g": memfs.Text("g"), "a/s": memfs.Folder()}
	cases := []struct {
		name string
		do   func(t *testing.T, top, a, b vfs.Dir)
		want string // names after the cut
	}{
		{"create, no sync", func(t *testing.T, top, a, b vfs.Dir) { write(t, a, "new", "") }, "a a/f a/s b b/g"},
		{"create, file sync only", func(t *testing.T, top, a, b vfs.Dir) { must(t, write(t, a, "new", "").Sync()) }, "a a/f a/s b b/g"},
		{"create, other directory synced", func(t *testing.T, top, a, b vfs.Dir) { write(t, a, "new", ""); must(t, b.Sync()); must(t, top.Sync()) }, "a a/f a/s b b/g"},
		{"create, synced", func(t *testing.T, top, a, b vfs.Dir) { write(t, a, "new", ""); must(t, a.Sync()) }, "a a/f a/new a/s b b/g"},
		{"create, synced before", func(t *testing.T, top, a, b vfs.Dir) { must(t, a.Sync()); write(t, a, "new", "") }, "a a/f a/s b b/g"},
		{"create, barrier anywhere", func(t *testing.T, top, a, b vfs.Dir) { write(t, a, "new", ""); must(t, b.SyncFS()) }, "a a/f a/new a/s b b/g"},
		{"unlink, synced", func(t *testing.T, top, a, b vfs.Dir) { must(t, a.Unlink("f")); must(t, a.Sync()) }, "a a/s b b/g"},
		{"unlink, no sync", func(t *testing.T, top, a, b vfs.Dir) { must(t, a.Unlink("f")) }, "a a/f a/s b b/g"},
		{"move, only the source synced", func(t *testing.T, top, a, b vfs.Dir) {
			must(t, a.Rename("f", b, "f", vfs.NoReplace))
			must(t, a.Sync())
		}, "a a/f a/s b b/g"},
		{"move, only the destination synced", func(t *testing.T, top, a, b vfs.Dir) {
			must(t, a.Rename("f", b, "f", vfs.NoReplace))
			must(t, b.Sync())
		}, "a a/f a/s b b/g"},
		{"move, both synced", func(t *testing.T, top, a, b vfs.Dir) {
			must(t, a.Rename("f", b, "f", vfs.NoReplace))
			must(t, b.Sync())
			must(t, a.Sync())
		}, "a a/s b b/f b/g"},
		{"file in a new directory, parent not synced", func(t *testing.T, top, a, b vfs.Dir) {
			must(t, a.Mkdir("n", 0o777))
			n, err := a.OpenDir("n")
			must(t, err)
			write(t, n, "x", "")
			must(t, n.Sync())
		}, "a a/f a/s b b/g"},
		{"file in a new directory, only the parent synced", func(t *testing.T, top, a, b vfs.Dir) {
			must(t, a.Mkdir("n", 0o777))
			n, err := a.OpenDir("n")
			must(t, err)
			write(t, n, "x", "")
			must(t, a.Sync())
		}, "a a/f a/n a/s b b/g"},
		{"file in a new directory, child then parent synced", func(t *testing.T, top, a, b vfs.Dir) {
			must(t, a.Mkdir("n", 0o777))
			n, err := a.OpenDir("n")
			must(t, err)
			write(t, n, "x", "")
			must(t, n.Sync())
			must(t, a.Sync())
		}, "a a/f a/n a/n/x a/s b b/g"},
		{"move into a new directory whose parent is not synced", func(t *testing.T, top, a, b vfs.Dir) {
			must(t, b.Mkdir("n", 0o777))
			n, err := b.OpenDir("n")
			must(t, err)
			must(t, a.Rename("f", n, "f", vfs.NoReplace))
			must(t, n.Sync())
			must(t, a.Sync())
		}, "a a/f a/s b b/g"},
		{"rmdir synced brings the unlinks before it", func(t *testing.T, top, a, b vfs.Dir) {
			must(t, b.Unlink("g"))
			must(t, top.Rmdir("b"))
			must(t, top.Sync())
		}, "a a/f a/s"},
		{"second name synced brings the first", func(t *testing.T, top, a, b vfs.Dir) {
			write(t, a, "new", "")
			must(t, a.Link("new", b, "new"))
			must(t, b.Sync())
		}, "a a/f a/new a/s b b/g b/new"},
		{"exchange of directories, synced", func(t *testing.T, top, a, b vfs.Dir) {
			must(t, top.Rename("a", top, "b", vfs.Exchange))
			must(t, top.Sync())
		}, "a a/g b b/f b/s"},
		{"same name made again, synced", func(t *testing.T, top, a, b vfs.Dir) {
			must(t, a.Unlink("f"))
			must(t, a.Mkdir("f", 0o777))
			must(t, a.Sync())
		}, "a a/f a/s b b/g"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f := build(t, base)
			top := root(t, f, "/")
			c.do(t, top, root(t, f, "/a"), root(t, f, "/b"))
			live := f.Dump("/")
			if got := names(f.Crash(memfs.Nothing, nil).Dump("/")); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if d := cmp.Diff(live, f.Crash(memfs.Everything, nil).Dump("/")); d != "" {
				t.Errorf("everything survives, and yet:\n%s", d)
			}
			if d := cmp.Diff(live, f.Dump("/")); d != "" {
				t.Errorf("a crash changed the file system it was taken of:\n%s", d)
			}
			must(t, top.SyncFS())
			for _, mode := range memfs.Modes() {
				if d := cmp.Diff(live, f.Crash(mode, memfs.Seeded(7)).Dump("/")); d != "" {
					t.Errorf("%v after a barrier:\n%s", mode, d)
				}
			}
		})
	}
}

func names(t memfs.Tree) string {
	var out []string
	for p := range t {
		out = append(out, p)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// Two moves of directories that would make a loop if only the second survived.
func TestMovesKeepTheirOrder(t *testing.T) {
	for name, second := range map[string]func(top, q vfs.Dir) error{
		"move":     func(top, q vfs.Dir) error { return top.Rename("p", q, "p", vfs.NoReplace) },
		"exchange": func(top, q vfs.Dir) error { return top.Rename("p", q, "z", vfs.Exchange) },
	} {
		t.Run(name, func(t *testing.T) {
			f := build(t, memfs.Tree{"p/q/z": memfs.Text("z")})
			top, p, q := root(t, f, "/"), root(t, f, "/p"), root(t, f, "/p/q")
			must(t, p.Rename("q", top, "q", vfs.NoReplace))
			must(t, second(top, q))
			for seed := range uint64(50) {
				if got := f.Crash(memfs.Random, memfs.Seeded(seed)).Dump("/"); len(got) != 3 {
					t.Fatalf("seed %d: left is %s", seed, names(got))
				}
			}
		})
	}
}

// Permissions set before a move are durable with the move, those set after it
// only after a barrier.
func TestAttributes(t *testing.T) {
	f := build(t, memfs.Tree{"tx": memfs.Folder(), "ws": memfs.Folder()})
	tx, ws := root(t, f, "/tx"), root(t, f, "/ws")
	h := write(t, tx, "1", "new")
	must(t, h.Chmod(0o755))
	must(t, h.Sync())
	must(t, tx.Rename("1", ws, "a", vfs.NoReplace))
	must(t, h.Chmod(0o600))
	must(t, h.Sync())
	must(t, tx.Sync())
	must(t, ws.Sync())
	if got := f.Crash(memfs.Nothing, nil).Dump("/ws")["a"]; !cmp.Equal(got, memfs.Exec("new")) {
		t.Errorf("got %+v", got)
	}
	must(t, ws.SyncFS())
	if got := f.Crash(memfs.Nothing, nil).Dump("/ws")["a"].Perm; got != 0o600 {
		t.Errorf("got %o", got)
	}
	must(t, ws.Chmod(0o700))
	if got := f.Crash(memfs.Nothing, nil).Dump("/")["ws"].Perm; got != 0o755 {
		t.Errorf("unsynced: got %o", got)
	}
	must(t, ws.Sync())
	if got := f.Crash(memfs.Nothing, nil).Dump("/")["ws"].Perm; got != 0o700 {
		t.Errorf("synced: got %o", got)
	}
}

// Inode numbers, hard links and link counts outlive a cut; a crashed file
// system can go on and crash again.
func TestCrashTwice(t *testing.T) {
	f := build(t, memfs.Tree{"a": memfs.Text("a"), "d/e": memfs.Folder()})
	top := root(t, f, "/")
	must(t, top.Link("a", top, "b"))
	must(t, top.Sync())
	before, err := top.Lstat("b")
	must(t, err)
	g := f.Crash(memfs.Nothing, nil)
	top = root(t, g, "/")
	for _, p := range []string{"a", "b"} {
		s, err := top.Lstat(p)
		must(t, err)
		if !s.SameFile(before) || s.Nlink != 2 {
			t.Errorf("%s: %+v, want the inode of %+v", p, s, before)
		}
	}
	if s, err := top.Lstat("d"); err != nil || s.Nlink != 3 {
		t.Errorf("link count of a directory: %+v, %v", s, err)
	}
	h := write(t, top, "c", "c")
	if s, err := h.Stat(); err != nil || s.SameFile(before) {
		t.Errorf("an inode number is used again: %+v, %v", s, err)
	}
	must(t, top.Unlink("a"))
	if got := names(g.Crash(memfs.Nothing, nil).Dump("/")); got != "a b d d/e" {
		t.Errorf("got %s", got)
	}
	must(t, h.Sync())
	must(t, top.Sync())
	if got := g.Crash(memfs.Nothing, nil).Dump("/"); names(got) != "b c d d/e" || got["c"].Data != "c" {
		t.Errorf("got %v", got)
	}
}

// A barrier reaches its own file system only.
func TestMount(t *testing.T) {
	f := build(t, memfs.Tree{"ws/mnt": memfs.Folder(), "ws/a": memfs.Text("a"), "home": memfs.Folder()})
	must(t, f.Mount("/ws/mnt"))
	must(t, f.Mount("/home"))
	ws, mnt, home := root(t, f, "/ws"), root(t, f, "/ws/mnt"), root(t, f, "/home")
	seen := make(map[uint64]bool)
	for _, d := range []vfs.Dir{ws, mnt, home} {
		s, err := d.Stat()
		must(t, err)
		if seen[s.Dev] || s.MntID != s.Dev {
			t.Errorf("device and mount: %+v", s)
		}
		seen[s.Dev] = true
	}
	if s, err := ws.Lstat("mnt"); err != nil || !seen[s.Dev] {
		t.Errorf("a mount seen from outside: %+v, %v", s, err)
	}
	write(t, ws, "new", "1")
	write(t, mnt, "new", "2")
	write(t, home, "new", "3")
	for what, c := range map[string]struct{ got, want error }{
		"move across":        {ws.Rename("a", mnt, "a", vfs.NoReplace), syscall.EXDEV},
		"exchange across":    {ws.Rename("a", mnt, "new", vfs.Exchange), syscall.EXDEV},
		"link across":        {ws.Link("a", mnt, "a"), syscall.EXDEV},
		"move the mount":     {ws.Rename("mnt", ws, "m", vfs.NoReplace), syscall.EBUSY},
		"exchange the mount": {ws.Rename("a", ws, "mnt", vfs.Exchange), syscall.EBUSY},
		"remove the mount":   {root(t, f, "/").Rmdir("home"), syscall.ENOTEMPTY},
		"mount twice":        {f.Mount("/home"), syscall.EBUSY},
	} {
		if !errors.Is(c.got, c.want) {
			t.Errorf("%s: got %v, want %v", what, c.got, c.want)
		}
	}
	for _, c := range []struct {
		barrier vfs.Dir
		want    string
	}{
		{mnt, "home ws ws/a ws/mnt ws/mnt/new"},
		{ws, "home ws ws/a ws/mnt ws/mnt/new ws/new"},
		{home, "home home/new ws ws/a ws/mnt ws/mnt/new ws/new"},
	} {
		must(t, c.barrier.SyncFS())
		g := f.Crash(memfs.Nothing, nil)
		if got := names(g.Dump("/")); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
		if s, err := root(t, g, "/ws/mnt").Stat(); err != nil || !seen[s.Dev] || s.Dev == 1 {
			t.Errorf("the mount is lost in the cut: %+v, %v", s, err)
		}
	}
}
