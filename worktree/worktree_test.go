//go:build linux

package worktree_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aspengine/asp/sandbox"
	"github.com/aspengine/asp/sandbox/sandboxtest"
	"github.com/aspengine/asp/snapshot"
	"github.com/aspengine/asp/worktree"
	"github.com/google/go-cmp/cmp"
)

var methods = []worktree.Method{worktree.Overlay, worktree.Copy}

func TestAfterStateIsVisible(t *testing.T) {
	for _, m := range methods {
		t.Run(m.String(), func(t *testing.T) {
			p := newPlace(t)
			p.write(t, map[string]string{
				"a": "1\n", "d/only": "x", "d2/e/f/g": "x", "d2/keep": "k", "file": "plain\n", "dir/x": "x",
				"ign/cache": "c", "ign/gen": "g", "link": "-> a", "run.sh": "#!/bin/sh\n", "key": "k",
			})
			must(t, os.Chmod(filepath.Join(p.root, "key"), 0o600))
			before := sandboxtest.Listing(t, p.root)
			c := build(t, p.spec(m,
				put(t, "a", "2\n", snapshot.ModeRegular), put(t, "n/e/w", "new", snapshot.ModeExecutable),
				gone(t, "d/only"), gone(t, "d2/e/f/g"), gone(t, "ign/gen"),
				gone(t, "file"), put(t, "file/inner", "i", snapshot.ModeRegular), // file to directory
				gone(t, "dir/x"), put(t, "dir", "now a file", snapshot.ModeRegular), // and back
				put(t, "l2", "a", snapshot.ModeSymlink), put(t, "key", "k2", snapshot.ModeRegular),
				put(t, "run.sh", "#!/bin/sh\n", snapshot.ModeExecutable),
			))
			got := in(t, c, `pwd; find . -mindepth 1 | sort | while read f; do stat -c '%n %A' "$f"; done; cat a file/inner dir; readlink l2; test "$(pwd)" = "$ROOT" && cat "$ROOT/a"`, "ROOT="+p.root)
			um := umask(t)
			perm := func(base os.FileMode) string { return (base &^ um).String() }
			want := p.root + "\n" + strings.Join([]string{
				"./a -rw-r--r--", "./d2 drwxr-xr-x", "./d2/keep -rw-r--r--", "./dir " + perm(0o666),
				"./file d" + perm(0o777)[1:], "./file/inner " + perm(0o666), "./ign drwxr-xr-x", "./ign/cache -rw-r--r--",
				"./key -rw-------", "./l2 lrwxrwxrwx", "./link lrwxrwxrwx",
				"./n d" + perm(0o777)[1:], "./n/e d" + perm(0o777)[1:], "./n/e/w " + perm(0o777), "./run.sh -rwxr-xr-x",
			}, "\n") + "\n2\ninow a filea\n2\n"
			if got != want {
				t.Errorf("after-state:\n%s", cmp.Diff(want, got))
			}
			if now := sandboxtest.Listing(t, p.root); !cmp.Equal(before, now) {
				t.Errorf("live tree changed: %s", cmp.Diff(before, now))
			}
			must(t, c.Close())
			p.empty(t)
		})
	}
}

func umask(t *testing.T) os.FileMode {
	t.Helper()
	b, err := os.ReadFile("/proc/self/status")
	must(t, err)
	_, rest, _ := strings.Cut(string(b), "Umask:\t")
	n, err := strconv.ParseUint(strings.Fields(rest)[0], 8, 32)
	must(t, err)
	return os.FileMode(n)
}

// What a check sees is live plus effects, to the bit, for any tree and any plan
// and both methods.
func TestCandidateEqualsLivePlusEffects(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("ASP_SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	t.Logf("ASP_SEED=%d", seed)
	rounds := 12
	if testing.Short() {
		rounds = 4
	}
	for round := range rounds {
		r := rand.New(rand.NewPCG(seed, uint64(round)))
		p := newPlace(t)
		randomTree(t, r, p.root)
		effects, want := randomPlan(t, r, p.root)
		before := sandboxtest.Listing(t, p.root)
		for _, m := range methods {
			c := build(t, p.spec(m, effects...))
			// Copied out by the check itself: what it sees, not what we prepared.
			in(t, c, `cp -a . /tmp/seen`)
			got := sandboxtest.Content(t, filepath.Join(c.Scratch, "tmp", "seen"))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("round %d, %s: %s", round, m, diff)
			}
			must(t, c.Close())
		}
		if now := sandboxtest.Listing(t, p.root); !cmp.Equal(before, now) {
			t.Fatalf("round %d: live tree changed: %s", round, cmp.Diff(before, now))
		}
		p.empty(t)
	}
}

func randomTree(t *testing.T, r *rand.Rand, root string) {
	names := []string{"a", "b", "c d", "é", "x.go", ".h", "-n", "q'\"", "com,ma:co\\lon"}
	perms := []os.FileMode{0o644, 0o755, 0o600, 0o640, 0o444, 0o604}
	var fill func(dir string, depth int)
	fill = func(dir string, depth int) {
		for _, n := range names {
			p := filepath.Join(dir, n)
			switch k := r.IntN(10); {
			case k < 3:
				b := make([]byte, r.IntN(5000))
				for i := range b {
					b[i] = byte(r.Uint32())
				}
				must(t, os.WriteFile(p, b, 0o644))
				must(t, os.Chmod(p, perms[r.IntN(len(perms))]))
			case k == 3:
				must(t, os.Symlink([]string{"a", "../b", "/nowhere", "."}[r.IntN(4)], p))
			case k < 7 && depth < 3:
				must(t, os.Mkdir(p, 0o755))
				fill(p, depth+1)
				must(t, os.Chmod(p, []os.FileMode{0o755, 0o700, 0o750, 0o555}[r.IntN(4)]))
			}
		}
	}
	fill(root, 0)
}

// randomPlan makes effects, and performs them on a copy made by cp for a model.
func randomPlan(t *testing.T, r *rand.Rand, root string) ([]snapshot.Effect, map[string]string) {
	model := filepath.Join(t.TempDir(), "model")
	if out, err := exec.Command("cp", "-a", root, model).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v %s", err, out)
	}
	type state struct {
		mode os.FileMode
		open bool
	}
	dirs := map[string]state{} // made writable for the model's sake, put back at the end
	var files []string
	must(t, filepath.WalkDir(model, func(p string, d os.DirEntry, err error) error {
		rel, _ := filepath.Rel(model, p)
		st, e := os.Lstat(p)
		if e != nil {
			return e
		}
		if d.IsDir() {
			dirs[rel] = state{st.Mode().Perm(), true}
			return os.Chmod(p, 0o755)
		}
		files = append(files, rel)
		return err
	}))
	var effects []snapshot.Effect
	write := func(rel, content string, exec bool) {
		mode, perm := snapshot.ModeRegular, 0o666&^umask(t)
		if exec {
			mode, perm = snapshot.ModeExecutable, 0o777&^umask(t)
		}
		p := filepath.Join(model, rel)
		if st, err := os.Lstat(p); err == nil && st.Mode().IsRegular() {
			perm = st.Mode().Perm()
			if exec && perm&0o100 == 0 {
				perm |= perm & 0o444 >> 2
			} else if !exec {
				if perm&0o100 != 0 {
					perm &^= 0o111
				}
			}
		}
		_ = os.Remove(p)
		must(t, os.MkdirAll(filepath.Dir(p), 0o777))
		must(t, os.WriteFile(p, []byte(content), 0o600))
		must(t, os.Chmod(p, perm))
		effects = append(effects, put(t, rel, content, mode))
	}
	for i, f := range files {
		if strings.ContainsAny(f, "\\") {
			continue // no valid spelling for some tools of the model; left alone
		}
		switch r.IntN(5) {
		case 0:
			write(f, fmt.Sprintf("changed %d", i), r.IntN(2) == 0)
		case 1:
			must(t, os.Remove(filepath.Join(model, f)))
			effects = append(effects, gone(t, f))
			for d := filepath.Dir(f); d != "."; d = filepath.Dir(d) {
				if os.Remove(filepath.Join(model, d)) != nil {
					break
				}
			}
		case 2: // file to directory
			if r.IntN(3) == 0 {
				must(t, os.Remove(filepath.Join(model, f)))
				effects = append(effects, gone(t, f))
				write(f+"/sub/x", "inner", false)
			}
		}
	}
	for i := range r.IntN(4) {
		write(fmt.Sprintf("new%d/deep/er/f%d", r.IntN(2), i), "new", i%2 == 0)
	}
	for rel, s := range dirs {
		if st, err := os.Lstat(filepath.Join(model, rel)); err == nil && st.IsDir() {
			must(t, os.Chmod(filepath.Join(model, rel), s.mode))
		}
	}
	want := sandboxtest.Content(t, model)
	_ = exec.Command("chmod", "-R", "u+rwx", model).Run()
	return effects, want
}

func TestDigestIsChecked(t *testing.T) {
	for _, m := range methods {
		p := newPlace(t)
		p.write(t, map[string]string{"a": "1"})
		e := put(t, "a", "2", snapshot.ModeRegular)
		e.Digest = snapshot.DigestOf([]byte("3"))
		if _, err := worktree.Build(context.Background(), p.spec(m, e)); err == nil || !strings.Contains(err.Error(), "digest") {
			t.Errorf("%s: got %v", m, err)
		}
		p.empty(t)
	}
}

// Close waits until nothing is left of the launches over a candidate, which is taken down
// beside their answers: its layers must not go before.
func TestCloseWaitsForLaunches(t *testing.T) {
	p := newPlace(t)
	for range 20 {
		c := build(t, p.spec(worktree.Overlay))
		s := c.Sandbox(nil)
		s.Argv, s.Require = []string{"true"}, sandbox.MediatedWrite
		s.Env["PATH"] = "/usr/bin:/bin"
		_, err := sandbox.Run(context.Background(), c.Caps, s)
		must(t, err)
		must(t, c.Close())
		if mounts, groups := sandboxtest.Held(t); len(mounts)+len(groups) != 0 {
			t.Fatalf("left: %q, %q", mounts, groups)
		}
	}
}

func TestHiddenFromTheCheck(t *testing.T) {
	p := newPlace(t)
	p.write(t, map[string]string{"a": "1", ".asp/tx/journal": "j", ".asp/asp.json": "{}"})
	home := filepath.Join(filepath.Dir(p.root), "home")
	for _, f := range []string{"secret", "cache/obj", "bin/tool"} {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(home, f)), 0o755))
		must(t, os.WriteFile(filepath.Join(home, f), []byte(f), 0o755))
	}
	must(t, os.WriteFile(filepath.Join(filepath.Dir(p.scratch), "config.json"), []byte("{}"), 0o600))
	for _, m := range methods {
		s := p.spec(m)
		s.Home, s.Read, s.Hide = home, []string{filepath.Join(home, "cache"), filepath.Join(home, "nothing")}, []string{filepath.Join(p.root, ".asp/tx")}
		before := sandboxtest.Listing(t, filepath.Dir(p.root))
		c := build(t, s)
		x := c.Sandbox([]string{filepath.Join(home, "bin"), "/usr/bin"})
		x.Argv, x.MergeOutput, x.Require = []string{"sh", "-c", `
			find . -mindepth 1 | sort; ls $STATE 2>/dev/null; find $H -type f | sort; echo w > $H/cache/obj && cat $H/cache/obj && rm $H/cache/obj && ls $H/cache
			echo t > $TMPDIR/x && ls /tmp | grep -Fxv "$WAY"; echo h > $HOME/y; ls $HOME`}, true, sandbox.MediatedWrite
		x.Env["PATH"], x.Env["H"], x.Env["STATE"] = os.Getenv("PATH"), home, filepath.Dir(p.scratch)
		// Where all of this lies below /tmp, the way to what is granted shows in there.
		below, _ := strings.CutPrefix(home, "/tmp/")
		x.Env["WAY"], _, _ = strings.Cut(below, "/")
		res, err := sandbox.Run(context.Background(), c.Caps, x)
		must(t, err)
		want := "./.asp\n./.asp/asp.json\n./a\n" + home + "/bin/tool\n" + home + "/cache/obj\nw\nhome\nx\ny\n"
		if string(res.Stdout) != want {
			t.Errorf("%s: %s", m, cmp.Diff(want, string(res.Stdout)))
		}
		must(t, c.Close())
		after := sandboxtest.Listing(t, filepath.Dir(p.root))
		for _, l := range []map[string]string{before, after} { // our own writes to scratch
			delete(l, "state/scratch")
		}
		if !cmp.Equal(before, after) {
			t.Errorf("%s: changed: %s", m, cmp.Diff(before, after))
		}
	}
}

func TestCopyLeavesSpecialFilesOut(t *testing.T) {
	p := newPlace(t)
	p.write(t, map[string]string{"a": "1", "ign/big": strings.Repeat("x", 5000), "l": "-> /etc/passwd"})
	must(t, syscall.Mkfifo(filepath.Join(p.root, "pipe"), 0o644))
	must(t, os.Link(filepath.Join(p.root, "a"), filepath.Join(p.root, "b")))
	s := p.spec(worktree.Copy)
	s.Ignored = snapshot.Ignored{Names: []string{"ign"}, Count: 1}
	c := build(t, s)
	if got := in(t, c, "ls; readlink l; echo y > a; cat b"); got != "a\nb\nign\nl\n/etc/passwd\n1" {
		t.Errorf("copy holds %q", got)
	}
	if len(c.Notes) != 1 || !strings.Contains(c.Notes[0], "pipe") || !cmp.Equal(c.Env, s.Ignored) {
		t.Errorf("notes %q, env %v", c.Notes, c.Env)
	}
	if b, _ := os.ReadFile(filepath.Join(p.root, "a")); string(b) != "1" {
		t.Error("a hard link led to the live file")
	}
	s.OmitIgnored = true
	c = build(t, s)
	if got := in(t, c, "ls"); got != "a\nb\nl\n" || c.Env.Count > 0 {
		t.Errorf("without ignored: %q, env %v", got, c.Env)
	}
	s.OmitIgnored, s.CopyLimit = false, 100
	if _, err := worktree.Build(context.Background(), s); !errors.Is(err, worktree.ErrTooLarge) {
		t.Errorf("limit: %v", err)
	}
}

func TestChoiceOfMethod(t *testing.T) {
	p := newPlace(t)
	p.write(t, map[string]string{"a": "1"})
	if c := build(t, p.spec(worktree.MethodInvalid)); c.Method != worktree.Overlay || len(c.Notes) > 0 {
		t.Errorf("got %s, %q", c.Method, c.Notes)
	}
	s := p.spec(worktree.MethodInvalid)
	s.Caps.Overlay = sandbox.Cap{Answer: sandbox.No, Detail: "because"}
	c := build(t, s)
	if c.Method != worktree.Copy || c.Dir != p.root || len(c.Notes) != 1 || !strings.Contains(c.Notes[0], "because") {
		t.Errorf("got %s at %s, %q", c.Method, c.Dir, c.Notes)
	}
	if got := in(t, c, "echo 2 > a; cat '"+p.root+"/a'"); got != "2\n" { // mounted at the workspace's own path
		t.Errorf("copy in namespaces: %q", got)
	}
	s.Method = worktree.Overlay
	if _, err := worktree.Build(context.Background(), s); !errors.Is(err, sandbox.ErrUnsupported) {
		t.Errorf("overlay forced: %v", err)
	}
	s = p.spec(worktree.MethodInvalid)
	s.Caps = sandbox.Caps{}
	c = build(t, s)
	if c.Method != worktree.Copy || c.Dir == p.root {
		t.Errorf("no namespaces: %s at %s", c.Method, c.Dir)
	}
	if got := in(t, c, "echo 2 > a; cat a; echo $HOME $TMPDIR"); got != fmt.Sprintf("2\n%s %s\n", c.HomeDir(), c.Tmp()) || !strings.HasPrefix(c.Tmp(), c.Scratch) {
		t.Errorf("plain copy: %q", got)
	}
	if b, _ := os.ReadFile(filepath.Join(p.root, "a")); string(b) != "1" {
		t.Error("live file changed")
	}
}

// A mount inside the workspace cannot be under an overlay: the check gets a copy
// that holds what is mounted there.
func TestMountInsideTheWorkspace(t *testing.T) {
	p := newPlace(t)
	must(t, os.Mkdir(filepath.Join(p.root, "mnt"), 0o755))
	out := inNamespace(t, "submount", "ROOT="+p.root, "SCRATCH="+p.scratch)
	want := "copy mounted\nchanged\nmounted\nmediated-write 1 notes, overlay false, err=<nil>\n"
	if out != want {
		t.Errorf("got %q, want %q", out, want)
	}
	p.empty(t)
}

// The caller's word on permissions is final, to the bit.
func TestPerm(t *testing.T) {
	for _, m := range methods {
		p := newPlace(t)
		p.write(t, map[string]string{"a": "1", "b": "1"})
		s := p.spec(m, put(t, "a", "2", snapshot.ModeRegular), put(t, "b", "2", snapshot.ModeExecutable), put(t, "n", "2", snapshot.ModeRegular))
		s.Perm = func(q snapshot.Path) (uint32, bool) { return 0o604, q.String() != "b" }
		if got := in(t, build(t, s), "stat -c %a a b n"); got != "604\n755\n604\n" {
			t.Errorf("%s: %q", m, got)
		}
	}
}

func TestRemovalCopesWithAnything(t *testing.T) {
	p := newPlace(t)
	outside := filepath.Join(filepath.Dir(p.root), "outside")
	must(t, os.WriteFile(outside, []byte("x"), 0o644))
	c := build(t, p.spec(worktree.Overlay))
	in(t, c, `
		mkdir -p ro/a/b no; echo x > ro/a/b/f; ln -s `+filepath.Dir(p.root)+` ro/link; ln -s `+outside+` l2; chmod 500 ro/a/b ro/a ro; chmod 0 no
		mkfifo $TMPDIR/pipe; cd $TMPDIR; i=0; while [ $i -lt 300 ]; do mkdir dddddddddddddddddd && cd dddddddddddddddddd || break; : > f; i=$((i+1)); done; chmod 0 .`)
	must(t, c.Close())
	must(t, c.Close())
	p.empty(t)
	if b, _ := os.ReadFile(outside); string(b) != "x" {
		t.Error("a link was followed")
	}
}

func TestSweepByProofOfDeath(t *testing.T) {
	p := newPlace(t)
	live := build(t, p.spec(worktree.Overlay))
	outside := filepath.Join(filepath.Dir(p.root), "outside")
	must(t, os.WriteFile(outside, []byte("x"), 0o644))
	name := filepath.Base(live.Scratch) // s-PID-START-BOOT-NS-RANDOM
	f := strings.Split(name, "-")
	like := func(i int, v string) string {
		g := append([]string(nil), f...)
		g[i] = v
		g[5] = fmt.Sprintf("%032d", i)
		d := strings.Join(g, "-")
		must(t, os.Mkdir(filepath.Join(p.scratch, d), 0o700))
		must(t, os.Symlink(outside, filepath.Join(p.scratch, d, "link")))
		return d
	}
	dead := exec.Command("true")
	must(t, dead.Run())
	wantGone := []string{
		like(1, strconv.Itoa(dead.Process.Pid)), // no such process
		like(2, "1"),                            // our pid, another start
		like(3, "00000000"),                     // another boot
	}
	stays := []string{name, like(4, "1")} // lives; cannot be told
	must(t, os.Mkdir(filepath.Join(p.scratch, "users-own"), 0o700))
	must(t, os.Chtimes(live.Scratch, time.Unix(0, 0), time.Unix(0, 0))) // age says nothing
	stays = append(stays, "users-own")
	got, err := worktree.Sweep(context.Background(), p.scratch)
	must(t, err)
	if len(got) != len(wantGone) {
		t.Errorf("swept %q, want %q", got, wantGone)
	}
	for _, d := range wantGone {
		if _, err := os.Lstat(filepath.Join(p.scratch, d)); err == nil {
			t.Errorf("%s is still there", d)
		}
	}
	for _, d := range stays {
		if _, err := os.Lstat(filepath.Join(p.scratch, d)); err != nil {
			t.Errorf("%s is gone", d)
		}
	}
	if b, _ := os.ReadFile(outside); string(b) != "x" {
		t.Error("a link was followed")
	}
	if _, err := worktree.Sweep(context.Background(), filepath.Join(p.scratch, "none")); err != nil {
		t.Errorf("missing base: %v", err)
	}
}

// A sweep does not go into a mount: what somebody mounted inside what a dead owner
// left is his, and stays, also when the mount is of the same file system.
func TestSweepEntersNoMount(t *testing.T) {
	p := newPlace(t)
	c := build(t, p.spec(worktree.Overlay))
	f := strings.Split(filepath.Base(c.Scratch), "-")
	f[3] = "00000000" // another boot: the owner is dead
	left, kept := filepath.Join(p.scratch, strings.Join(f, "-")), filepath.Join(filepath.Dir(p.root), "kept")
	for _, d := range []string{left + "/dir", left + "/a/b", kept + "/deep"} {
		must(t, os.MkdirAll(d, 0o700))
	}
	must(t, os.WriteFile(kept+"/f", []byte("precious\n"), 0o600))
	before := sandboxtest.Listing(t, kept)
	if out := inNamespace(t, "sweepmount", "SCRATCH="+p.scratch, "LEFT="+left, "KEPT="+kept); !strings.Contains(out, "cross-device") {
		t.Errorf("the sweep says %q", out)
	}
	if now := sandboxtest.Listing(t, kept); !cmp.Equal(before, now) {
		t.Errorf("what was mounted changed: %s", cmp.Diff(before, now))
	}
	// Without the mount nothing is in the way any more.
	if got, err := worktree.Sweep(context.Background(), p.scratch); err != nil || len(got) != 1 {
		t.Errorf("swept %q, %v", got, err)
	}
}

// Twenty violent ends of a host leave no process and no mount, and one sweep
// leaves no directory.
func TestViolentEnds(t *testing.T) {
	p := newPlace(t)
	files := map[string]string{}
	for i := range 200 {
		files[fmt.Sprintf("d%d/f%d", i%20, i)] = "x"
	}
	p.write(t, files)
	before := sandboxtest.Listing(t, p.root)
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	must(t, err)
	word := fmt.Sprintf("%d.%d", 100000+os.Getpid(), time.Now().UnixNano()%1000000000)
	for i := range 20 {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = []string{helperVar + "=1", "ROOT=" + p.root, "SCRATCH=" + p.scratch, "WORD=" + word, "PATH=" + os.Getenv("PATH")}
		if i%2 == 1 {
			cmd.Env = append(cmd.Env, "COPY=1")
		}
		must(t, cmd.Start())
		// Spread over probing, building, running and removing.
		time.Sleep(time.Duration(5+7*i) * time.Millisecond)
		must(t, cmd.Process.Kill())
		_ = cmd.Wait()
	}
	sandboxtest.Eventually(t, "all commands are dead", func() bool { return len(sandboxtest.Processes(t, word)) == 0 })
	_, err = worktree.Sweep(context.Background(), p.scratch)
	must(t, err)
	p.empty(t)
	after, err := os.ReadFile("/proc/self/mountinfo")
	must(t, err)
	if string(mounts) != string(after) {
		t.Error("mounts changed")
	}
	if now := sandboxtest.Listing(t, p.root); !cmp.Equal(before, now) {
		t.Errorf("live tree changed: %s", cmp.Diff(before, now))
	}
}
