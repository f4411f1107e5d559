package casetest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/aspengine/asp/internal/need"
	"golang.org/x/sys/unix"
)

func TestFM01(t *testing.T) {
	users(t, func(t *testing.T, opts ...worldOption) {
		w := newWorld(t, nil, opts...)
		modes := map[string]uint32{"run.sh": 0o755, "conf": 0o640, "key": 0o600, "odd": 0o604, "mv.sh": 0o750}
		for f, m := range modes {
			w.write(f, "old\n", os.FileMode(m))
		}
		w.commit()
		p := w.plan().create("new.txt", "n\n").create("new.sh", "n\n").executable().create("deep/er/x", "x\n")
		for _, f := range []string{"run.sh", "conf", "key", "odd"} {
			p.modify(f, "old\n", "new\n")
		}
		p.rename("mv.sh", "mv2.sh", "old\n")
		file := p.file()
		sh := w.command(w.root, "sh", "-c", `umask 027; exec "$0" "$@"`, binary, "apply", "--plan", file, "--json")
		w.begin(sh, []string{"apply", "--json"})().applied()
		modes["mv2.sh"], modes["new.txt"], modes["new.sh"], modes["deep"], modes["deep/er"] = 0o750, 0o640, 0o750, 0o750, 0o750
		delete(modes, "mv.sh")
		for f, m := range modes {
			w.perm(f, m)
		}
		if out := w.gitRun("diff", "--summary"); strings.Contains(out, "mode change") {
			t.Errorf("git sees a mode change: %s", out)
		}
		w.clean()
	})
	t.Run("never wider than the original", func(t *testing.T) {
		w := newWorld(t, nil)
		w.write("key", "secret-old\n", 0o600)
		w.commit()
		p := w.plan().modify("key", "secret-old\n", "secret-new\n")
		wide := 0
		look := func() {
			for _, dir := range []string{w.root, w.asp} {
				_ = filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
					if err != nil || !d.Type().IsRegular() || filepath.Base(filepath.Dir(p)) == "proposals" {
						return nil
					}
					b, _ := os.ReadFile(p)
					fi, err := os.Lstat(p)
					if err == nil && strings.Contains(string(b), "secret-") && !strings.Contains(p, "/objects/") && fi.Mode().Perm()&0o077 != 0 && reachable(dir, p) {
						wide++
						t.Errorf("%s has mode %v", p, fi.Mode())
					}
					return nil
				})
			}
		}
		whole := w.keep()
		n := len(w.killedAt(0, "apply", "--plan", p.file(), "--json").lines)
		for i := 1; i <= n; i += 2 {
			whole.restore()
			w.killedAt(i, "apply", "--plan", p.file(), "--json")
			look()
			if wide > 0 {
				t.Fatalf("after a kill before %d", i)
			}
		}
		w.run("recover", "--json")
		w.perm("key", 0o600)
	})
	t.Run("setuid", func(t *testing.T) {
		w := newWorld(t, map[string]string{"s": "s\n"})
		must(t, syscall.Chmod(w.path("s"), 0o4755))
		p := w.plan().modify("s", "s\n", "S\n")
		m := w.mark()
		if r := p.apply(); r.at("applied") == true {
			w.perm("s", 0o4755)
		} else {
			r.refused("metadata", "s")
			m.unchanged()
		}
	})
	t.Run("extended attributes", func(t *testing.T) {
		w := newWorld(t, map[string]string{"x": "x\n"})
		if err := unix.Lsetxattr(w.path("x"), "user.note", []byte("kept"), 0); err != nil {
			need.Missing(t, "no extended attributes here: %v", err)
		}
		p := w.plan().modify("x", "x\n", "X\n")
		m := w.mark()
		if r := p.apply(); r.at("applied") == true {
			v := make([]byte, 64)
			n, err := unix.Lgetxattr(w.path("x"), "user.note", v)
			if err != nil || string(v[:n]) != "kept" {
				t.Errorf("the attribute is lost: %q %v", v, err)
			}
		} else {
			r.refused("metadata", "x")
			m.unchanged()
		}
	})
	t.Run("read-only", func(t *testing.T) {
		w := newWorld(t, map[string]string{"r": "r\n"})
		must(t, os.Chmod(w.path("r"), 0o444))
		p := w.plan().modify("r", "r\n", "R\n")
		m := w.mark()
		p.apply().refused("not-writable", "r")
		m.unchanged()
	})
}

// reachable tells whether others could reach a file below dir.
func reachable(dir, p string) bool {
	for d := filepath.Dir(p); len(d) >= len(dir); d = filepath.Dir(d) {
		if fi, err := os.Stat(d); err != nil || fi.Mode().Perm()&0o011 == 0 {
			return false
		}
	}
	return true
}

func TestFM02(t *testing.T) {
	for _, c := range []struct{ name, second string }{{"inside", "b.lua"}, {"outside", "../b.lua"}} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, map[string]string{"a.lua": "x\n"})
			must(t, os.Link(w.path("a.lua"), w.path(c.second)))
			p := w.plan().modify("a.lua", "x\n", "y\n")
			m := w.mark()
			r := p.apply()
			r.refused("hard-linked", "a.lua")
			m.unchanged()
			p.apply("--publish", "exchange").refused("hard-linked", "a.lua")
			m.unchanged()
			for _, mode := range []string{"journal", "exchange"} {
				w.plan().rename("a.lua", "c.lua", "x\n").modify("c.lua", "x\n", "y\n").apply("--publish", mode).refused("hard-linked")
				m.unchanged()
			}
			// The move would have to make a new file: its old name is a directory by then.
			w.plan().rename("a.lua", "c.lua", "x\n").create("a.lua/in", "in\n").apply().refused("hard-linked", "a.lua")
			m.unchanged()
			w.plan().rename("a.lua", "c.lua", "x\n").apply().applied()
			var moved, other unix.Stat_t
			must(t, errors.Join(unix.Lstat(w.path("c.lua"), &moved), unix.Lstat(w.path(c.second), &other)))
			if moved.Ino != other.Ino {
				t.Error("a plain move made a new file")
			}
		})
	}
}

func TestFM04(t *testing.T) {
	need.Root(t)
	disk := ext4(t)
	w := newWorld(t, map[string]string{"g": "1\n"}, on(disk))
	w.mkdir("mnt")
	for _, c := range [][]string{{"mount", "-t", "tmpfs", "none", w.path("mnt")}} {
		if out, err := exec.Command(c[0], c[1:]...).CombinedOutput(); err != nil {
			need.Missing(t, "cannot mount: %v: %s", err, out)
		}
	}
	defer func() {
		if err := syscall.Unmount(w.path("mnt"), 0); err != nil {
			t.Error(err)
		}
	}()
	w.own(w.path("mnt"))
	w.write("mnt/f", "1\n", 0o644)
	w.commit()
	t.Run("both sides", func(t *testing.T) {
		w := w.as(t)
		p := w.plan().modify("mnt/f", "1\n", "2\n").modify("g", "1\n", "2\n")
		m := w.mark()
		run := w.killedAt(0, "apply", "--plan", p.file(), "--json")
		if run.at("applied") != true {
			run.refused("cross-device")
			m.unchanged()
			return
		}
		run.applied()
		w.is("mnt/f", "2\n")
		w.is("g", "2\n")
		for _, target := range []string{w.path("mnt/f"), w.path("g")} {
			renamed := false
			for _, l := range run.lines {
				renamed = renamed || strings.HasPrefix(l, "renameat2 ") && strings.Contains(l, " -> "+target+" ")
				if strings.HasPrefix(l, "write "+target) || strings.HasPrefix(l, "create "+target) || strings.HasPrefix(l, "ftruncate "+target) {
					t.Errorf("written over: %s", l)
				}
			}
			if !renamed {
				t.Errorf("%s was not put in place by a rename", target)
			}
		}
		w.clean()
	})
	t.Run("rename across", func(t *testing.T) {
		w := w.as(t)
		p := w.plan().rename("g", "mnt/g", w.read("g"))
		m := w.mark()
		p.apply().refused("cross-device")
		m.unchanged()
	})
}
