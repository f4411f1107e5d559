//go:build linux

package gitbase_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/aspengine/asp/snapshot"
	"github.com/aspengine/asp/snapshot/gitbase"
)

// reside opens the tree as a host does.
func (r tree) reside(t testing.TB, o gitbase.ResidentOptions) *gitbase.Repo {
	t.Helper()
	if o.MaxAge == 0 {
		o.MaxAge = time.Hour // a test is not to depend on how long it takes
	}
	repo := r.open(t, nil).(*gitbase.Repo)
	repo.Reside(o)
	return repo
}

func watched(t tb, ws snapshot.Workspace) *snapshot.Stamp {
	t.Helper()
	s, err := ws.Stamp(context.Background(), snapshot.StampOptions{Watched: true})
	if err != nil {
		t.Fatalf("stamp: %v", err)
	}
	return s
}

// settle waits until the index is old enough to be told from a later one.
func (r tree) settle(t tb) {
	t.Helper()
	past := time.Now().Add(-time.Hour)
	if err := os.Chtimes(r.path(".git/index"), past, past); err != nil {
		t.Fatalf("%v", err)
	}
	for { // ctime cannot be set
		var st unix.Stat_t
		if err := unix.Stat(r.path(".git/index"), &st); err != nil {
			t.Fatalf("%v", err)
		}
		if snapshot.Settled(st.Mtim.Nano(), st.Ctim.Nano(), time.Now().UnixNano()) {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// same compares a stamp with a walk by somebody who knows nothing.
func (r tree) same(t testing.TB, s *snapshot.Stamp, what string) {
	t.Helper()
	fresh := r.open(t, nil)
	defer fresh.Close()
	w := stamp(t, fresh, false)
	if s.Baseline != w.Baseline || !slices.Equal(s.Overlay, w.Overlay) || s.Files != w.Files || !s.Watched && s.Traces != w.Traces || !slices.Equal(s.Notes, w.Notes) ||
		s.Ignored.Count != w.Ignored.Count || !slices.Equal(s.Ignored.Names, w.Ignored.Names) {
		t.Fatalf("%s (watched %v): differs from a walk\nwatched: %+v\n%d files %q, ignored %v\nwalked: %+v\n%d files %q, ignored %v", what, s.Watched, s.Overlay, s.Files, s.Notes, s.Ignored, w.Overlay, w.Files, w.Notes, w.Ignored)
	}
}

// sample is a repository with some directories, ignored files among them.
func sample(t *testing.T) tree {
	r := newRepo(t)
	for d := range 6 {
		for s := range 2 {
			for f := range 2 {
				r.write(t, fmt.Sprintf("d%d/s%d/f%d", d, s, f), fmt.Sprint(d, s, f))
			}
		}
		r.write(t, fmt.Sprintf("d%d/top", d), fmt.Sprint(d))
	}
	r.write(t, ".gitignore", "*.log\nbuild/\n")
	r.write(t, "build/out", "x")
	r.commit(t)
	r.settle(t)
	return r
}

// copy is another repository like r. Its index knows it, so that stat data answer.
func (r tree) copy(t *testing.T) tree {
	t.Helper()
	n := tree{filepath.Join(t.TempDir(), "tree")}
	must(t, os.CopyFS(n.dir, os.DirFS(r.dir)))
	n.git(t, "update-index", "-q", "--refresh")
	n.settle(t)
	return n
}

// Each row does something between two looks. Where nothing speaks against it the
// second must be a look at what changed, else a walk; both must see what a walk sees.
func TestResidentSees(t *testing.T) {
	like := sample(t)
	for _, c := range []struct {
		name string
		old  func(t *testing.T, r tree) // before the first look
		pre  func(t *testing.T, r tree) // before the second
		do   func(t *testing.T, r tree)
		walk bool
		says string // must be in the overlay
	}{
		{name: "nothing", do: func(*testing.T, tree) {}},
		{name: "write", do: func(t *testing.T, r tree) { r.write(t, "d1/s1/f1", "other") }, says: "d1/s1/f1"},
		{name: "write of equal size with the old time", do: func(t *testing.T, r tree) {
			was, err := os.Stat(r.path("d1/s1/f1"))
			must(t, err)
			r.write(t, "d1/s1/f1", "9 9 9")
			must(t, os.Chtimes(r.path("d1/s1/f1"), was.ModTime(), was.ModTime()))
		}, says: "d1/s1/f1"},
		{name: "execute bit", do: func(t *testing.T, r tree) { must(t, os.Chmod(r.path("d1/top"), 0o755)) }, says: "d1/top"},
		{name: "new file", do: func(t *testing.T, r tree) { r.write(t, "d2/new", "n") }, says: "d2/new"},
		{name: "new ignored file", do: func(t *testing.T, r tree) { r.write(t, "d2/new.log", "n") }},
		{name: "removed file", do: func(t *testing.T, r tree) { must(t, os.Remove(r.path("d2/top"))) }, says: "d2/top"},
		{name: "new directories, and a file in a directory that was not there", do: func(t *testing.T, r tree) { r.write(t, "n/m/o/new", "n") }, says: "n/m/o/new"},
		{name: "a write in a directory made since the walk", pre: func(t *testing.T, r tree) { r.write(t, "n/m/o/new", "n") },
			do: func(t *testing.T, r tree) { r.write(t, "n/m/o/new2", "n") }, says: "n/m/o/new2"},
		{name: "removed tree", do: func(t *testing.T, r tree) { must(t, os.RemoveAll(r.path("d3"))) }, says: "d3/s0/f0"},
		{name: "directory moved within", do: func(t *testing.T, r tree) { must(t, os.Rename(r.path("d3/s1"), r.path("d4/moved"))) }, says: "d4/moved/f1"},
		{name: "write in a moved directory", pre: func(t *testing.T, r tree) { must(t, os.Rename(r.path("d3/s1"), r.path("d4/moved"))) },
			do: func(t *testing.T, r tree) { r.write(t, "d4/moved/f1", "z") }, says: "d4/moved/f1"},
		{name: "directory moved out, written there, and moved in", do: func(t *testing.T, r tree) {
			out := filepath.Join(t.TempDir(), "out")
			must(t, os.Rename(r.path("d3/s1"), out))
			must(t, os.WriteFile(filepath.Join(out, "f1"), []byte("was outside"), 0o644))
			must(t, os.Rename(out, r.path("d3/s1")))
		}, says: "d3/s1/f1"},
		{name: "write after a directory came back", pre: func(t *testing.T, r tree) {
			out := filepath.Join(t.TempDir(), "out")
			must(t, os.Rename(r.path("d3/s1"), out))
			must(t, os.Rename(out, r.path("d3/s1")))
		}, do: func(t *testing.T, r tree) { r.write(t, "d3/s1/f1", "z") }, says: "d3/s1/f1"},
		{name: "directories exchanged", do: func(t *testing.T, r tree) {
			must(t, unix.Renameat2(unix.AT_FDCWD, r.path("d3/s1"), unix.AT_FDCWD, r.path("d4"), unix.RENAME_EXCHANGE))
		}, says: "d3/s1/top"},
		{name: "write after an exchange", pre: func(t *testing.T, r tree) {
			must(t, unix.Renameat2(unix.AT_FDCWD, r.path("d3/s1"), unix.AT_FDCWD, r.path("d4"), unix.RENAME_EXCHANGE))
		}, do: func(t *testing.T, r tree) { r.write(t, "d3/s1/s0/f1", "z") }, says: "d3/s1/s0/f1"},
		{name: "directory becomes a link", do: func(t *testing.T, r tree) {
			must(t, os.RemoveAll(r.path("d3")))
			must(t, os.Symlink("d4", r.path("d3")))
		}, says: "d3"},
		{name: "write by another name", old: func(t *testing.T, r tree) {
			must(t, os.Link(r.path("d1/top"), filepath.Join(filepath.Dir(r.dir), "second")))
		},
			do: func(t *testing.T, r tree) {
				must(t, os.WriteFile(filepath.Join(filepath.Dir(r.dir), "second"), []byte("by the other name"), 0o644))
			}, says: "d1/top"},
		{name: "rules by another name", old: func(t *testing.T, r tree) {
			r.write(t, "d1/new.tmp", "x")
			must(t, os.Link(r.path(".gitignore"), filepath.Join(filepath.Dir(r.dir), "rules")))
		}, do: func(t *testing.T, r tree) {
			must(t, os.WriteFile(filepath.Join(filepath.Dir(r.dir), "rules"), []byte("*.tmp\n"), 0o644))
		}, walk: true, says: "build/out"},
		{name: "write of an untracked file by another name", pre: func(t *testing.T, r tree) {
			must(t, os.WriteFile(filepath.Join(filepath.Dir(r.dir), "second"), []byte("x"), 0o644))
			must(t, os.Link(filepath.Join(filepath.Dir(r.dir), "second"), r.path("d1/linked")))
		}, do: func(t *testing.T, r tree) {
			must(t, os.WriteFile(filepath.Join(filepath.Dir(r.dir), "second"), []byte("by the other name"), 0o644))
		}, says: "d1/linked"},
		{name: "write by a second name made since the walk", do: func(t *testing.T, r tree) {
			must(t, os.Link(r.path("d1/top"), r.path("d4/s1/second")))
			must(t, os.WriteFile(r.path("d4/s1/second"), []byte("by the new name"), 0o644))
		}, walk: true, says: "d1/top"},
		{name: "end of a mapping", pre: func(t *testing.T, r tree) {}, do: func(t *testing.T, r tree) {
			f, err := os.OpenFile(r.path("d1/top"), os.O_RDWR, 0)
			must(t, err)
			m, err := unix.Mmap(int(f.Fd()), 0, 1, unix.PROT_WRITE|unix.PROT_READ, unix.MAP_SHARED)
			must(t, err)
			must(t, f.Close())
			m[0] = 'M'
			must(t, unix.Munmap(m))
		}, says: "d1/top"},
		{name: "commit in an untracked repository", pre: func(t *testing.T, r tree) {
			must(t, os.Mkdir(r.path("inner"), 0o755))
			in := tree{r.path("inner")}
			in.git(t, "init", "-q")
			in.write(t, "f", "1")
			in.commit(t)
		}, do: func(t *testing.T, r tree) {
			in := tree{r.path("inner")}
			in.write(t, "f", "2")
			in.commit(t)
		}, says: "inner"},
		{name: "a directory becomes a repository", pre: func(t *testing.T, r tree) { r.write(t, "inner/a/f", "1") }, do: func(t *testing.T, r tree) {
			tree{r.path("inner")}.git(t, "init", "-q")
		}, says: "inner"},
		{name: "ignore rules", do: func(t *testing.T, r tree) { r.write(t, ".gitignore", "") }, walk: true, says: "build/out"},
		{name: "attributes", do: func(t *testing.T, r tree) { r.write(t, "d1/.gitattributes", "* text=auto") }, walk: true, says: "d1/.gitattributes"},
		{name: "ignore rules outside of the tree", do: func(t *testing.T, r tree) { r.write(t, ".git/info/exclude", "top\n") }, walk: true},
		{name: "configuration", do: func(t *testing.T, r tree) { r.git(t, "config", "core.autocrlf", "true") }, walk: true},
		{name: "index", do: func(t *testing.T, r tree) { r.write(t, "d1/top", "x"); r.git(t, "add", "d1/top") }, walk: true, says: "d1/top"},
		{name: "HEAD", do: func(t *testing.T, r tree) {
			r.write(t, "d1/top", "x")
			r.commit(t)
			r.write(t, "d1/top", "1")
		}, walk: true, says: "d1/top"},
		{name: "the root is another directory", do: func(t *testing.T, r tree) {
			must(t, os.Rename(r.dir, r.dir+".old"))
			must(t, os.CopyFS(r.dir, os.DirFS(r.dir+".old")))
			must(t, os.WriteFile(r.path("d1/top"), []byte("copied"), 0o644))
		}, walk: true, says: "d1/top"},
		{name: "more than the queue holds", do: func(t *testing.T, r tree) {
			b, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
			must(t, err)
			var n int
			_, err = fmt.Sscan(string(b), &n)
			must(t, err)
			a, err := os.OpenFile(r.path("d1/top"), os.O_WRONLY, 0)
			must(t, err)
			defer a.Close()
			o, err := os.OpenFile(r.path("d1/s1/f1"), os.O_WRONLY, 0)
			must(t, err)
			defer o.Close()
			for range n {
				_, err = a.WriteAt([]byte("a"), 0)
				must(t, err)
				_, err = o.WriteAt([]byte("o"), 0)
				must(t, err)
			}
			r.write(t, "d5/top", "the event of this one is lost")
		}, walk: true, says: "d5/top"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := like.copy(t)
			if c.old != nil {
				c.old(t, r)
			}
			repo := r.reside(t, gitbase.ResidentOptions{})
			if s := watched(t, repo); s.Watched {
				t.Fatal("the first look was no walk")
			}
			if c.pre != nil {
				c.pre(t, r)
				r.same(t, watched(t, repo), "before")
			}
			c.do(t, r)
			s := watched(t, repo)
			if s.Watched == c.walk && !strings.Contains(repo.WhyWalked(), unix.EMFILE.Error()) { // queues are few, and others have them
				t.Errorf("watched is %v: %s", s.Watched, repo.WhyWalked())
			}
			r.same(t, s, "after")
			if c.says != "" && !slices.Contains(paths(s), c.says) {
				t.Errorf("overlay %q lacks %s", paths(s), c.says)
			}
			r.same(t, watched(t, repo), "again")
		})
	}
}

// A write by a name made outside of the tree since the walk raises no event in it:
// neither the age of a walk nor somebody who asks for one may be passed over.
func TestResidentWalks(t *testing.T) {
	like := sample(t)
	for _, c := range []struct {
		name string
		o    gitbase.ResidentOptions
		ask  snapshot.StampOptions
		sees bool
	}{
		{"what is not seen", gitbase.ResidentOptions{}, snapshot.StampOptions{Watched: true}, false},
		{"a walk is asked for", gitbase.ResidentOptions{}, snapshot.StampOptions{}, true},
		{"a look by content is asked for", gitbase.ResidentOptions{}, snapshot.StampOptions{Content: true}, true},
		{"the walk is too old", gitbase.ResidentOptions{MaxAge: 1}, snapshot.StampOptions{Watched: true}, true},
		{"too many directories to watch", gitbase.ResidentOptions{Limit: 3}, snapshot.StampOptions{Watched: true}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := like.copy(t)
			repo := r.reside(t, c.o)
			before := watched(t, repo)
			second := filepath.Join(t.TempDir(), "second")
			must(t, os.Link(r.path("d1/top"), second))
			must(t, os.WriteFile(second, []byte("unheard"), 0o644))
			s, err := repo.Stamp(context.Background(), c.ask)
			must(t, err)
			if s.Watched == c.sees || (s.Baseline != before.Baseline) != c.sees {
				t.Errorf("watched %v, baseline changed: %v", s.Watched, s.Baseline != before.Baseline)
			}
			if c.sees {
				// What a walk found stands, whoever looks next.
				if again := watched(t, repo); again.Baseline != s.Baseline {
					t.Error("the next look goes back behind the walk")
				}
			}
		})
	}
}

// A walk goes on with the watches of the one before: to end them takes the kernel
// longer than the walk. What came, went and moved meanwhile is watched as it is now.
func TestResidentWalkKeepsItsWatches(t *testing.T) {
	r := sample(t)
	repo := r.reside(t, gitbase.ResidentOptions{})
	defer repo.Close()
	watched(t, repo)
	first := gitbase.Watches(repo)
	for range 3 {
		must(t, os.RemoveAll(r.path("d1/s0")))
		must(t, os.Rename(r.path("d2/s0"), r.path("d1/s0")))
		must(t, os.Rename(r.path("d3"), r.path("d2/s0")))
		must(t, os.Mkdir(r.path("d3"), 0o755))
		r.same(t, stamp(t, repo, false), "walk")
		must(t, os.WriteFile(r.path("d1/s0/new"), nil, 0o644))
		must(t, os.WriteFile(r.path("d2/s0/new"), nil, 0o644))
		s := watched(t, repo)
		if r.same(t, s, "look"); !s.Watched {
			t.Error("the look after a walk was another walk")
		}
	}
	if first == nil || gitbase.Watches(repo) != first {
		t.Error("a walk made watches of its own")
	}

	// One that belongs to the state no more is not watched: under its next name it would
	// pass for another.
	must(t, os.Mkdir(r.path("u"), 0o755))
	watched(t, repo)
	must(t, os.WriteFile(r.path(".git/info/exclude"), []byte("u\n"), 0o644))
	watched(t, repo)
	must(t, os.Rename(r.path("u"), r.path("v")))
	watched(t, repo)
	if s := watched(t, repo); !s.Watched || gitbase.Watches(repo) != first {
		t.Errorf("after %q: watched %v", repo.WhyWalked(), s.Watched)
	}

	// Nobody noted what a look that came to nothing had watched.
	must(t, os.Mkdir(r.path("w"), 0o755))
	must(t, os.Link(r.path("d4/top"), r.path("w/second")))
	if s := watched(t, repo); s.Watched || gitbase.Watches(repo) == first {
		t.Errorf("after a second name: watched %v", s.Watched)
	}
}

// A watched stamp is what a walk finds, after any changes.
func TestResidentModel(t *testing.T) {
	changes := 2000
	if os.Getenv("ASP_CRASH") == "long" {
		changes = 100_000
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	m := &disturber{r: sample(t), rnd: rand.New(rand.NewPCG(seed, 1)), out: t.TempDir()}
	when := rand.New(rand.NewPCG(seed, 2))
	repo := m.r.reside(t, gitbase.ResidentOptions{})
	looks, cheap := 0, 0
	for done := 0; done < changes; {
		if when.IntN(20) == 0 {
			// Changes during a look, which may be the first: it is as good as the
			// next one, which must see everything.
			end := make(chan struct{})
			go func() {
				defer close(end)
				for range 20 {
					m.change(t)
				}
			}()
			_, err := repo.Stamp(context.Background(), snapshot.StampOptions{Watched: when.IntN(2) == 0})
			<-end
			must(t, err)
			done += 20
		}
		n := 1 + when.IntN(4)
		for range n {
			m.change(t)
		}
		done += n
		if when.IntN(4) == 0 { // a walk in between, which goes on with the watches
			m.r.same(t, stamp(t, repo, false), "walk\n"+strings.Join(m.log, "\n"))
			m.change(t)
			done++
		}
		s := watched(t, repo)
		m.r.same(t, s, strings.Join(m.log, "\n"))
		m.log, m.linked = m.log[:0], false
		looks++
		if s.Watched {
			cheap++
		}
	}
	t.Logf("%d of %d stamps were no walk", cheap, looks)
	// How many depends on the seed: while a file of rules has a second name, each is one.
	if cheap < looks/20 {
		t.Errorf("only %d of %d stamps were no walk", cheap, looks)
	}
}

// disturber changes a tree at random. Most of what it tries is possible.
type disturber struct {
	r   tree
	rnd *rand.Rand
	out string // outside of the tree, on the same file system
	log []string
	// linked: a file got a second name since the last comparison.
	linked bool
}

func (m *disturber) name(of string, n int) string { return fmt.Sprint(of, m.rnd.IntN(n)) }

// dir is a directory that may be there.
func (m *disturber) dir() string {
	p := m.name("d", 7)
	for m.rnd.IntN(2) == 0 && strings.Count(p, "/") < 4 {
		p += "/" + m.name("s", 4)
	}
	return p
}

func (m *disturber) file() string {
	if m.rnd.IntN(3) == 0 {
		return m.dir() + "/top"
	}
	return m.dir() + "/" + m.name("f", 4)
}

// time is a time stamp as clocks that were put back and forth give them.
func (m *disturber) time() time.Time {
	return time.Unix(time.Now().Unix()+int64(m.rnd.IntN(7200)-3600), int64(m.rnd.IntN(2))*5e8)
}

// put writes a file, and never waits for a reader of a FIFO.
func put(path string, b []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NONBLOCK, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Close())
}

func (m *disturber) change(t tb) {
	t.Helper()
	f, at := m.file(), m.r.path
	var err error
	said := ""
	op := m.rnd.IntN(400)
	if m.linked {
		// What is written by a second name that is gone again before anybody looks
		// is not heard of; the package comment of watch says so.
		op %= 130
	}
	switch {
	case op < 100:
		said = "write " + f
		if err = os.MkdirAll(filepath.Dir(at(f)), 0o755); err == nil {
			err = put(at(f), []byte(fmt.Sprint(m.rnd.IntN(3))))
		}
	case op < 130:
		said = "write behind the clock's back " + f
		var was os.FileInfo
		if was, err = os.Lstat(at(f)); err == nil && was.Mode().IsRegular() {
			err = put(at(f), []byte(fmt.Sprint(m.rnd.IntN(3))))
			_ = os.Chtimes(at(f), was.ModTime(), was.ModTime())
		}
	case op < 160:
		said = "time of " + f
		if fi, e := os.Lstat(at(f)); e == nil && fi.Mode().IsRegular() {
			err = os.Chtimes(at(f), m.time(), m.time())
		}
	case op < 190:
		said = "remove " + f
		err = os.Remove(at(f))
	case op < 210:
		said = "chmod " + f
		if fi, e := os.Lstat(at(f)); e == nil && fi.Mode().IsRegular() {
			err = os.Chmod(at(f), os.FileMode(0o644+0o111*m.rnd.IntN(2)))
		}
	case op < 240:
		g := m.file()
		said = "rename " + f + " " + g
		err = os.Rename(at(f), at(g))
	case op < 265:
		a, b := m.dir(), m.dir()
		said = "rename directory " + a + " " + b
		err = os.Rename(at(a), at(b))
	case op < 280:
		a, b := m.dir(), m.dir()
		said = "exchange " + a + " " + b
		err = unix.Renameat2(unix.AT_FDCWD, at(a), unix.AT_FDCWD, at(b), unix.RENAME_EXCHANGE)
	case op < 300:
		a := m.dir()
		said = "move out " + a
		if err = os.Rename(at(a), filepath.Join(m.out, "moved")); err == nil && m.rnd.IntN(2) == 0 {
			said += ", write there"
			_ = put(filepath.Join(m.out, "moved", "top"), []byte("outside"))
		}
	case op < 325:
		a := m.dir()
		said = "move in " + a
		if err = os.Rename(filepath.Join(m.out, "moved"), at(a)); err != nil {
			err = os.RemoveAll(filepath.Join(m.out, "moved"))
		}
	case op < 335:
		a := m.dir()
		said = "remove all of " + a
		err = os.RemoveAll(at(a))
	case op < 345:
		said = "link " + f
		err = os.Symlink(m.name("d", 7), at(f))
	case op < 355:
		g := m.file()
		said = "second name " + f + " " + g
		err = os.Link(at(f), at(g))
		m.linked = m.linked || err == nil
	case op < 365:
		said = "fifo " + f
		err = unix.Mkfifo(at(f), 0o644)
	case op < 375:
		said = "ignored " + f
		err = put(at(f)+".log", []byte("l"))
	case op < 380:
		said = "clock of the index"
		err = os.Chtimes(at(".git/index"), m.time(), m.time())
	case op < 388:
		said = "ignore rules of " + filepath.Dir(f)
		err = put(at(filepath.Dir(f)+"/.gitignore"), []byte(m.name("f", 4)+"\n"))
	case op < 391:
		said = "no ignore rules in " + filepath.Dir(f)
		err = os.Remove(at(filepath.Dir(f) + "/.gitignore"))
	case op < 393:
		said = "attributes of " + filepath.Dir(f)
		if err = put(at(filepath.Dir(f)+"/.gitattributes"), []byte("f* text\n")); err == nil && m.rnd.IntN(2) == 0 {
			err = os.Remove(at(filepath.Dir(f) + "/.gitattributes"))
		}
	case op < 396:
		said = "put back the tree"
		err = m.r.try("checkout", "-q", "-f", "HEAD", "--", ".")
	case op < 398:
		said = "add"
		err = m.r.try("add", "-A")
	case op < 399:
		said = "commit"
		err = m.r.try("commit", "-q", "-a", "--allow-empty", "-m", "c")
	default:
		said = "exclude"
		err = put(at(".git/info/exclude"), []byte(m.name("s", 4)+"\n"))
	}
	if err == nil {
		m.log = append(m.log, said)
	}
}
