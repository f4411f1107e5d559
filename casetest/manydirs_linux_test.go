package casetest

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestManyDirectories: a plan goes through many more directories than the process may
// have open, in every publish mode, there and back.
func TestManyDirectories(t *testing.T) {
	dirs, hows := 240, [][]string{nil}
	if longCrash() {
		dirs, hows = 5000, [][]string{nil, {"--publish", "exchange"}, {"--stage"}}
	}
	for _, how := range hows {
		t.Run(fmt.Sprint(how), func(t *testing.T) {
			w := newWorld(t, nil, noGit)
			p := w.plan()
			for i := range dirs {
				old, made := fmt.Sprintf("d/%d/old", i), fmt.Sprintf("new/%d/made", i)
				w.write(old, "old\n", 0o644)
				switch i % 3 {
				case 0:
					p.modify(old, "old\n", "new\n")
				case 1:
					p.rename(old, fmt.Sprintf("moved/%d/old", i), "old\n")
				default:
					p.remove(old, "old\n")
				}
				p.create(made, "made\n")
			}
			if how == nil { // half of it, and back again: no new directory is in its place, or all are
				for _, call := range []string{w.path("new"), w.path("d/9/old")} {
					if !w.killedBefore(call, "apply", "--plan", p.file(), "--json").killed {
						t.Fatalf("%s was never changed", call)
					}
					if r := w.fewFiles("recover", "--json"); r.code != 0 || !strings.Contains(string(r.out), `"rolled-back"`) {
						t.Fatalf("killed before %s: %.3000s", call, r.String())
					}
				}
			}
			r := w.fewFiles(slices.Concat([]string{"apply", "--plan", p.file(), "--json"}, how)...)
			if r.code != 0 {
				t.Fatalf("%.3000s", r.String())
			}
			if how != nil && how[0] == "--stage" {
				return
			}
			if u := w.fewFiles("undo", r.str("receipt", "receiptId"), "--json"); u.code != 0 {
				t.Fatalf("%.3000s", u.String())
			}
			w.is("d/1/old", "old\n")
			w.is("d/3/old", "old\n")
			w.gone("new")
		})
	}
}

// TestDeepDirectory: a path is changed, and the change taken back, that has about as
// many directories above it as the process may have open.
func TestDeepDirectory(t *testing.T) {
	w := newWorld(t, nil, noGit)
	deep := strings.Repeat("d/", 240)
	w.write(deep+"x", "old\n", 0o644)
	p := w.plan().modify(deep+"x", "old\n", "new\n").create(deep+"n/made", "made\n")
	r := w.fewFiles("apply", "--plan", p.file(), "--json")
	if r.code != 0 {
		t.Fatalf("%.3000s", r.String())
	}
	w.is(deep+"x", "new\n")
	if u := w.fewFiles("undo", r.str("receipt", "receiptId"), "--json"); u.code != 0 {
		t.Fatalf("%.3000s", u.String())
	}
	w.is(deep+"x", "old\n")
	w.gone(deep + "n")
}

// TestDeepExchange: an exchange copies a tree that is deeper than a path can be long,
// by a process that may have 64 files open, and the old one goes. One that died before
// it exchanged is cleaned up.
func TestDeepExchange(t *testing.T) {
	w := newWorld(t, map[string]string{"x": "old\n", ".gitignore": "/deps/\n"})
	w.mkdir("deps")
	at := w.bottom("deps", 240, true)
	w.writeIn(at, "file", "bottom\n")
	must(t, at.Close())
	p := w.plan().modify("x", "old\n", "new\n")
	if r := w.killedBefore("/tree flags 2", "apply", "--plan", p.file(), "--publish", "exchange", "--json"); !r.killed {
		t.Fatalf("nothing was exchanged: %.1500s", r.result)
	}
	if r := w.withFiles(64, "recover", "--json"); r.code != 0 || !strings.Contains(string(r.out), `"rolled-back"`) {
		t.Fatalf("%.3000s", r.String())
	}
	w.is("x", "old\n")
	w.clean()
	if r := w.withFiles(64, "apply", "--plan", p.file(), "--publish", "exchange", "--json"); r.code != 0 {
		t.Fatalf("%.3000s", r.String())
	}
	w.is("x", "new\n")
	w.clean()
	at = w.bottom("deps", 240, false)
	defer at.Close()
	if b, err := at.ReadFile("file"); string(b) != "bottom\n" {
		t.Errorf("the lowest file holds %q (%v)", b, err)
	}
}

// level is the name of each directory of a deep tree.
const level = "twenty-bytes-of-name"

// bottom is the lowest of so many directories below dir, made first if they are not there.
func (w *world) bottom(dir string, levels int, make bool) *os.Root {
	w.t.Helper()
	at, err := os.OpenRoot(w.path(dir))
	for range levels {
		must(w.t, err)
		if make {
			w.mkdirIn(at, level)
		}
		below, oerr := at.OpenRoot(level)
		must(w.t, at.Close())
		at, err = below, oerr
	}
	must(w.t, err)
	return at
}

func (w *world) mkdirIn(at *os.Root, name string) {
	w.t.Helper()
	must(w.t, at.Mkdir(name, 0o755))
	if w.cred != nil {
		must(w.t, at.Lchown(name, int(w.cred.Uid), int(w.cred.Gid)))
	}
}

func (w *world) writeIn(at *os.Root, name, data string) {
	w.t.Helper()
	must(w.t, at.WriteFile(name, []byte(data), 0o644))
	if w.cred != nil {
		must(w.t, at.Lchown(name, int(w.cred.Uid), int(w.cred.Gid)))
	}
}

// TestDeeperThanAPath: a tree whose lowest files no path can name is looked at whole, and
// a path that only from the root on is too long is written like any other. A plan names
// none that is too long in itself.
func TestDeeperThanAPath(t *testing.T) {
	for name, opts := range map[string][]worldOption{"git": nil, "plain": {noGit}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, map[string]string{"x": "old\n"}, opts...)
			in := strings.Repeat(level+"/", 193) // 4,053 bytes
			must(t, w.bottom(".", 193, true).Close())
			at := w.bottom(".", 193, false)
			w.writeIn(at, "file", "old\n")
			must(t, at.Close())
			p := w.plan().modify(in+"file", "old\n", "new\n").create(in+"made", "made\n")
			p.apply("--stage").applied()
			if r := w.run("publish", p.id, "--json"); r.code != 0 {
				t.Fatalf("%.3000s", r.String())
			}
			at = w.bottom(".", 193, false)
			defer at.Close()
			for name, want := range map[string]string{"file": "new\n", "made": "made\n"} {
				if b, err := at.ReadFile(name); string(b) != want {
					t.Errorf("%s holds %q (%v)", name, b, err)
				}
			}

			for range 40 {
				w.mkdirIn(at, level)
				below, err := at.OpenRoot(level)
				must(t, err)
				defer below.Close()
				at = below
			}
			// Its name is short enough for a plan, and that of its .git for nobody.
			near := w.bottom(".", 194, false)
			defer near.Close()
			w.mkdirIn(near, "eighteen-bytes-dir")
			w.mkdirIn(near, "eighteen-bytes-dir/.git")
			w.plan().create(in+level+"/eighteen-bytes-dir/f", "made\n").apply().refused("other-repository")

			w.writeIn(at, "file", "bottom\n")
			was := w.baselineNow()
			w.writeIn(at, "file", "changed\n")
			if now := w.baselineNow(); now["rev"] == was["rev"] && now["dirty"] == was["dirty"] {
				t.Error("a change that no path can name is not seen")
			}
			w.plan().create(strings.Repeat(level+"/", 233)+"made", "made\n").apply().refused("path-invalid")
			if w.git {
				if r := w.run("status"); !strings.Contains(r.errs, "its path is too long to look for a repository there") {
					t.Errorf("%.3000s", r.String())
				}
			}
			w.plan().modify("x", "old\n", "new\n").apply().applied()
			w.is("x", "new\n")
		})
	}
}

// TestManyAreas: what is made in a directory that passes its group on is staged beside
// it, and each such place stays open. Where the process may not have so many open the
// plan fails before the first write, with a receipt.
func TestManyAreas(t *testing.T) {
	w := newWorld(t, nil, noGit)
	p := w.plan()
	for i := range 80 {
		w.write(fmt.Sprintf("d/%d/old", i), "old\n", 0o644)
		must(t, os.Chmod(w.path(fmt.Sprintf("d/%d", i)), 0o755|os.ModeSetgid))
		p.create(fmt.Sprintf("d/%d/made", i), "made\n")
	}
	before := w.list()
	r := w.fewFiles("apply", "--plan", p.file(), "--json")
	if r.code != 3 || !strings.Contains(r.str("error", "message"), "pass on a group") || !strings.Contains(r.str("error", "data", "detail"), "rcpt-") {
		t.Errorf("%.2000s", r.String())
	}
	for _, d := range before.diff(w.list(), nil) {
		t.Error(d)
	}
	w.clean()
}

// TestManyObjects: a plan whose files go to every one of git's 256 object directories is
// published with the index, and as a commit, by a process that may not have so many open.
func TestManyObjects(t *testing.T) {
	for _, how := range [][]string{{"--index"}, {"--stage", "--ref", "refs/heads/made"}} {
		t.Run(how[0], func(t *testing.T) {
			w := newWorld(t, map[string]string{"x": "x\n"})
			w.gitRun("config", "user.name", "A")
			w.gitRun("config", "user.email", "a@example.org")
			p := w.plan()
			for i := range 300 {
				p.create(fmt.Sprintf("s/f%d", i), fmt.Sprintf("%d\n", i))
			}
			if r := w.fewFiles(append([]string{"apply", "--plan", p.file(), "--json"}, how...)...); r.code != 0 {
				t.Fatalf("%.3000s", r.String())
			}
			at := ":s/f90"
			if how[0] == "--stage" {
				at = "refs/heads/made:s/f90"
			}
			if got := w.gitRun("cat-file", "blob", at); got != "90\n" {
				t.Errorf("%s holds %q", at, got)
			}
			w.gitRun("fsck", "--strict", "--no-dangling")
		})
	}
}

// fewFiles runs the binary with 256 open files at most.
func (w *world) fewFiles(args ...string) *result {
	w.t.Helper()
	return w.withFiles(256, args...)
}

// withFiles runs the binary with so many open files at most.
func (w *world) withFiles(most int, args ...string) *result {
	w.t.Helper()
	cmd := w.command(w.root, "sh", append([]string{"-c", fmt.Sprintf(`ulimit -n %d && exec "$@"`, most), "sh", binary}, args...)...)
	return w.begin(cmd, args)()
}
