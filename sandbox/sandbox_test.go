//go:build linux

package sandbox_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aspengine/asp/internal/need"
	"github.com/aspengine/asp/sandbox"
	"github.com/aspengine/asp/sandbox/sandboxtest"
	"github.com/google/go-cmp/cmp"
)

// world is a live directory, an upper layer over it and the machine's abilities.
type world struct {
	live, upper, work string
	caps              sandbox.Caps
}

func newWorld(t *testing.T) *world {
	t.Helper()
	d, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{live: filepath.Join(d, "live"), upper: filepath.Join(d, "upper"), work: filepath.Join(d, "work")}
	for _, p := range []string{w.live, w.upper, w.work} {
		must(t, os.Mkdir(p, 0o755))
	}
	must(t, os.WriteFile(filepath.Join(w.live, "f"), []byte("live\n"), 0o644))
	w.caps = sandboxtest.Caps(t, w.live, d)
	// Overlay leaves a directory without permission bits, which an ordinary
	// user's clean-up cannot read.
	t.Cleanup(w.open)
	return w
}

func (w *world) open() {
	for _, d := range []string{"work", "work/incompat", "work/incompat/volatile"} {
		_ = os.Chmod(filepath.Join(w.work, d), 0o700)
	}
}

// fresh empties the layers, which serve one launch.
func (w *world) fresh(t *testing.T) {
	t.Helper()
	w.open()
	for _, d := range []string{w.upper, w.work} {
		must(t, os.RemoveAll(d))
		must(t, os.Mkdir(d, 0o755))
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// spec runs a shell script over an overlay on the live directory.
func (w *world) spec(script string) sandbox.Spec {
	return sandbox.Spec{
		Argv: []string{"sh", "-c", script}, Dir: w.live,
		Env:         map[string]string{"PATH": os.Getenv("PATH"), "LIVE": w.live},
		Mounts:      []sandbox.Mount{{Kind: sandbox.MountOverlay, Target: w.live, Lower: w.live, Upper: w.upper, Work: w.work}},
		Protect:     []sandbox.Protect{{Path: w.live, Lands: w.upper}},
		Require:     sandbox.MediatedWrite,
		MergeOutput: true,
	}
}

// plain is the same script without any namespace.
func (w *world) plain(script string) sandbox.Spec {
	s := w.spec(script)
	s.Mounts, s.Require = nil, sandbox.Advisory
	return s
}

func run(t *testing.T, caps sandbox.Caps, s sandbox.Spec) sandbox.Result {
	t.Helper()
	res, err := sandbox.Run(context.Background(), caps, s)
	if err != nil {
		t.Fatalf("run: %v", err)
	}
	return res
}

func TestCannotWriteLiveTree(t *testing.T) {
	w := newWorld(t)
	outside := t.TempDir()
	before := sandboxtest.Listing(t, w.live)
	res := run(t, w.caps, w.spec(`
		echo changed > f; echo new > $LIVE/new; mkdir d; mv f g; chmod 777 .
		touch `+outside+`/x; touch /x; touch /usr/x
		cat g new; ls`))
	if got := sandboxtest.Listing(t, w.live); !cmp.Equal(before, got) {
		t.Errorf("live tree changed: %s", cmp.Diff(before, got))
	}
	if len(sandboxtest.Content(t, outside)) != 1 {
		t.Error("a directory outside was written")
	}
	if res.Boundary.Level != sandbox.MediatedWrite || res.Boundary.DirectWrite {
		t.Errorf("boundary %+v", res.Boundary)
	}
	if !strings.HasSuffix(string(res.Stdout), "changed\nnew\nd\ng\nnew\n") || res.ExitCode != 0 {
		t.Errorf("the command did not see its own writes: exit %d\n%s", res.ExitCode, res.Stdout)
	}
	if b, _ := os.ReadFile(filepath.Join(w.upper, "g")); string(b) != "changed\n" {
		t.Errorf("upper layer holds %q", b)
	}
	if m, _ := filepath.Glob(filepath.Join(w.upper, ".asp-probe-*")); len(m) > 0 {
		t.Errorf("the probe left %v", m)
	}
}

// A command that makes a further user namespace, where it is root, still cannot
// take our mounts away.
func TestNestedNamespaceCannotUncover(t *testing.T) {
	if _, err := exec.LookPath("unshare"); err != nil {
		need.Missing(t, "unshare is not installed")
	}
	w := newWorld(t)
	before := sandboxtest.Listing(t, w.live)
	res := run(t, w.caps, w.spec(`cd /
		unshare -Urm sh -c 'umount -l $LIVE; umount /proc; mount -o remount,rw /; mount -o remount,rw,bind /; echo x > $LIVE/f; touch /usr/x; cat $LIVE/f'`))
	if got := sandboxtest.Listing(t, w.live); !cmp.Equal(before, got) {
		t.Errorf("live tree changed: %s", cmp.Diff(before, got))
	}
	if os.Geteuid() == 0 {
		return // the kernel lets a root without capabilities map nothing
	}
	// The script's last word is what it wrote itself, through the overlay.
	if !strings.HasSuffix(string(res.Stdout), "\nx\n") {
		t.Errorf("the overlay was uncovered or the script did not run:\n%s", res.Stdout)
	}
}

func TestNoPrivilege(t *testing.T) {
	w := newWorld(t)
	res := run(t, w.caps, w.spec(`
		grep -E '^(Cap|NoNewPrivs)' /proc/self/status
		ls /dev
		echo 1 > /proc/sys/kernel/core_uses_pid && echo wrote-sysctl
		mknod n b 1 1 && echo made-device
		mount -t tmpfs none . && echo mounted
		chmod 600 /dev/null && echo chmod-device
		echo x > /dev/null && echo null-works
		cat /proc/net/dev`))
	out := string(res.Stdout)
	for _, bad := range []string{"wrote-sysctl", "made-device", "mounted\n", "chmod-device", "vda", "sda", "eth0", "kmsg"} {
		if strings.Contains(out, bad) {
			t.Errorf("output holds %q", bad)
		}
	}
	for _, want := range []string{"CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "CapPrm:\t0000000000000000", "NoNewPrivs:\t1", "null-works", "lo:"} {
		if !strings.Contains(out, want) {
			t.Errorf("output lacks %q", want)
		}
	}
	if !res.Boundary.NetworkOff {
		t.Error("network not off")
	}
	if t.Failed() {
		t.Log(out)
	}
}

func TestIdentityIsKept(t *testing.T) {
	w := newWorld(t)
	res := run(t, w.caps, w.spec("id -u; id -g; stat -c '%u %g' f"))
	want := fmt.Sprintf("%d\n%d\n%d %d\n", os.Geteuid(), os.Getegid(), os.Geteuid(), os.Getegid())
	if string(res.Stdout) != want {
		t.Errorf("got %q, want %q", res.Stdout, want)
	}
}

// The level comes from where the probe's bytes went, not from what was mounted.
func TestLevelIsProven(t *testing.T) {
	w := newWorld(t)
	touched := filepath.Join(w.live, "started")
	leak := w.spec("touch " + touched)
	// A mount that hands the live tree through: configured like a boundary, but none.
	leak.Mounts = []sandbox.Mount{{Kind: sandbox.MountBindRW, Target: w.live, Source: w.live}}
	_, err := sandbox.Run(context.Background(), w.caps, leak)
	if !errors.Is(err, sandbox.ErrUnsupported) {
		t.Errorf("leaking mount: got %v", err)
	}
	if names := sandboxtest.Content(t, w.live); len(names) != 2 {
		t.Errorf("started, or marker left: %v", names)
	}
	leak.Require = sandbox.Advisory
	if res := run(t, w.caps, leak); res.Boundary.Level != sandbox.Advisory || !res.Boundary.DirectWrite {
		t.Errorf("leaking mount: boundary %+v", res.Boundary)
	}
	must(t, os.Remove(touched))

	lost := w.spec("touch " + filepath.Join(w.upper, "started"))
	lost.Protect[0].Lands = t.TempDir() // the marker does not come out where it should
	if _, err := sandbox.Run(context.Background(), w.caps, lost); !errors.Is(err, sandbox.ErrUnsupported) {
		t.Errorf("lost marker: got %v", err)
	}

	ro := w.spec("echo x > $LIVE/y; test ! -e $LIVE/y")
	ro.Mounts, ro.Protect[0].Lands = nil, ""
	if res := run(t, w.caps, ro); res.Boundary.Level != sandbox.MediatedWrite || res.ExitCode != 0 {
		t.Errorf("read-only live tree: %+v\n%s", res.Boundary, res.Stdout)
	}
}

// SB-01: asked for a level and could not have it: not started.
func TestSB01_RequiredLevelOrNothing(t *testing.T) {
	w := newWorld(t)
	weaken := map[string]func(*sandbox.Caps){
		"nothing known":       func(c *sandbox.Caps) { *c = sandbox.Caps{} },
		"no user namespace":   func(c *sandbox.Caps) { c.UserNS = sandbox.Cap{Answer: sandbox.No, Errno: int(syscall.EPERM)} },
		"mount ns unknown":    func(c *sandbox.Caps) { c.MountNS = sandbox.Cap{} },
		"no pid namespace":    func(c *sandbox.Caps) { c.PIDNS.Answer = sandbox.No },
		"no mount_setattr":    func(c *sandbox.Caps) { c.ReadOnlyTree = sandbox.Cap{Answer: sandbox.No, Errno: int(syscall.ENOSYS)} },
		"no proc":             func(c *sandbox.Caps) { c.Proc.Answer = sandbox.No },
		"no overlay":          func(c *sandbox.Caps) { c.Overlay.Answer = sandbox.No },
		"overlay not told":    func(c *sandbox.Caps) { c.Overlay = sandbox.Cap{} },
		"no mount descriptor": func(c *sandbox.Caps) { c.NewMounts.Answer = sandbox.No },
	}
	witness := filepath.Join(t.TempDir(), "started")
	for name, f := range weaken {
		caps := w.caps
		f(&caps)
		s := w.spec("touch " + witness)
		if _, err := sandbox.Run(context.Background(), caps, s); !errors.Is(err, sandbox.ErrUnsupported) {
			t.Errorf("%s: got %v", name, err)
		}
		if caps.Namespaces() {
			continue
		}
		// Best effort: it runs, and the result says what it was.
		res := run(t, caps, w.plain("touch "+witness))
		if res.Boundary.Level != sandbox.Advisory || !res.Boundary.DirectWrite || res.Boundary.NetworkOff {
			t.Errorf("%s: best effort claims %+v", name, res.Boundary)
		}
		if os.Remove(witness) != nil {
			t.Errorf("%s: best effort did not run", name)
		}
	}
	iso := w.spec("touch " + witness)
	iso.Require = sandbox.Isolated
	weak := w.caps
	weak.Landlock = sandbox.Cap{}
	if _, err := sandbox.Run(context.Background(), weak, iso); !errors.Is(err, sandbox.ErrUnsupported) {
		t.Errorf("isolated: got %v", err)
	}
	none := w.spec("touch " + witness)
	none.Require = sandbox.LevelInvalid
	if _, err := sandbox.Run(context.Background(), w.caps, none); err == nil {
		t.Error("no level said: started")
	}
	if _, err := os.Lstat(witness); err == nil {
		t.Error("something was started")
	}
}

// SB-01 once more, on a kernel that really refuses.
func TestSB01_KernelRefuses(t *testing.T) {
	newWorld(t)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{helperVar + "=probe-without-user-namespaces"}
	uid, gid := os.Geteuid(), os.Getegid()
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: gid, Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() == 3 {
		need.Missing(t, "the limit cannot be set here: %s", out)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	lines := strings.SplitN(string(out), "\n", 2)
	if want := fmt.Sprintf("no %d false", syscall.ENOSPC); lines[0] != want {
		t.Errorf("probe says %q, want %q", lines[0], want)
	}
	if !strings.Contains(lines[1], "user namespace: no") {
		t.Errorf("refusal says %q", lines[1])
	}
	if strings.Count(lines[1], "expected: true") != 2 || strings.Contains(lines[1], "it ran") {
		t.Errorf("launches that expected more: %q", lines[1])
	}
}

// SB-04: nothing of the host's secrets is inside.
func TestSB04_NoSecretsInside(t *testing.T) {
	newWorld(t)
	for _, plain := range []string{"", "1"} {
		secret, err := os.CreateTemp(t.TempDir(), "outside")
		must(t, err)
		cmd := exec.Command("/proc/self/exe")
		cmd.ExtraFiles = []*os.File{nil, nil, nil, nil, nil, nil, secret} // descriptor 9, inherited
		cmd.Env = []string{
			helperVar + "=run", "PLAIN=" + plain, "PATH=" + os.Getenv("PATH"), "API_TOKEN=canary-1", "GIT_DIR=/canary-1",
			`SCRIPT=env; ls -l /proc/self/fd; for p in /proc/[0-9]*; do tr '\0' '\n' < $p/environ; tr '\0' ' ' < $p/cmdline; ls -l $p/fd; done 2>/dev/null; echo end`,
		}
		if plain != "" {
			// Without namespaces the host's /proc is open to the same user; only
			// what is handed down can be kept back.
			cmd.Env[len(cmd.Env)-1] = "SCRIPT=env; ls -l /proc/self/fd; echo end"
		}
		out, err := cmd.CombinedOutput()
		secret.Close()
		if err != nil || !strings.Contains(string(out), "end\n") || !strings.Contains(string(out), "err=<nil>") {
			t.Fatalf("%v\n%s", err, out)
		}
		for _, bad := range []string{"canary-1", "outside", " 9 ->", "API_TOKEN", "GIT_"} {
			if strings.Contains(string(out), bad) {
				t.Errorf("plain=%q: output holds %q:\n%s", plain, bad, out)
			}
		}
	}
}

func TestStdinIsEmpty(t *testing.T) {
	w := newWorld(t)
	for _, s := range []sandbox.Spec{w.spec("cat; readlink /proc/self/fd/0"), w.plain("cat; readlink /proc/self/fd/0")} {
		caps := w.caps
		if s.Mounts == nil {
			caps = sandbox.Caps{}
		}
		if res := run(t, caps, s); string(res.Stdout) != "/dev/null\n" {
			t.Errorf("got %q", res.Stdout)
		}
	}
}

func TestExits(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		name string
		argv []string
		want sandbox.Result
	}{
		{"status", []string{"sh", "-c", "exit 7"}, sandbox.Result{Started: true, ExitCode: 7}},
		{"signal", []string{"sh", "-c", "kill -SEGV $$"}, sandbox.Result{Started: true, ExitCode: -1, Signal: "SIGSEGV"}},
		{"own kill", []string{"sh", "-c", "kill -KILL $$"}, sandbox.Result{Started: true, ExitCode: -1, Signal: "SIGKILL"}},
		{"not found", []string{"no-such-program"}, sandbox.Result{}},
		{"no such path", []string{"./nothing"}, sandbox.Result{}},
		{"not executable", []string{"./f"}, sandbox.Result{}},
	} {
		for _, caps := range []sandbox.Caps{w.caps, {}} {
			w.fresh(t)
			s := w.spec("")
			if !caps.Namespaces() {
				s = w.plain("")
			}
			s.Argv = c.argv
			res := run(t, caps, s)
			if (res.StartError == "") != res.Started {
				t.Errorf("%s: started %v, error %q", c.name, res.Started, res.StartError)
			}
			got := sandbox.Result{Started: res.Started, ExitCode: res.ExitCode, Signal: res.Signal, TimedOut: res.TimedOut, Cancelled: res.Cancelled, Leftovers: res.Leftovers}
			if !cmp.Equal(got, c.want) {
				t.Errorf("%s: %s", c.name, cmp.Diff(c.want, got))
			}
		}
	}
	w.fresh(t)
	s := w.spec("true")
	s.Dir = filepath.Join(w.live, "nothing")
	if res := run(t, w.caps, s); res.Started || res.StartError == "" {
		t.Errorf("missing directory: %+v", res)
	}
}

// TestSignalsToWhoWatches: the command may send them, nothing happens, and it ignores and blocks none itself.
func TestSignalsToWhoWatches(t *testing.T) {
	w := newWorld(t)
	own, err := os.ReadFile("/proc/self/status")
	must(t, err)
	ignored := "SigBlk:\t0000000000000000\n" + string(regexp.MustCompile(`SigIgn:.*\n`).Find(own))
	const script = "for s in HUP INT QUIT ILL TRAP ABRT BUS FPE USR1 SEGV USR2 PIPE ALRM TERM CHLD URG XCPU XFSZ PROF 35 64; do kill -$s $PPID || echo $s; done; grep -E 'Sig(Blk|Ign):' /proc/self/status"
	limits := sandbox.Limits{Processes: 1000}
	for _, caps := range []sandbox.Caps{w.caps, {}} {
		for _, l := range []sandbox.Limits{{}, limits} {
			w.fresh(t)
			s := w.spec(script)
			if !caps.Namespaces() {
				s = w.plain(script)
			}
			s.Limits = l
			if res := run(t, caps, s); string(res.Stdout) != ignored || res.ExitCode != 0 || res.Lost != "" {
				t.Errorf("namespaces %v: %q instead of %q, %d %q", caps.Namespaces(), res.Stdout, ignored, res.ExitCode, res.Lost)
			}
		}
	}
}

func TestOutputIsBounded(t *testing.T) {
	w := newWorld(t)
	s := w.spec("echo first; yes | head -c 30000000; yes n | head -c 30000000 >&2; echo last")
	s.MergeOutput = false
	s.Limits.Output = 1000
	res := run(t, w.caps, s)
	out := string(res.Stdout)
	if !res.Truncated || len(out) > 1100 || !strings.HasPrefix(out, "first\ny\n") || !strings.HasSuffix(out, "y\nlast\n") || !strings.Contains(out, "bytes left out") {
		t.Errorf("stdout: truncated %v, %d bytes, %.60q", res.Truncated, len(out), out)
	}
	if len(res.Stderr) > 1100 || !strings.HasPrefix(string(res.Stderr), "n\n") {
		t.Errorf("stderr: %d bytes", len(res.Stderr))
	}
}

// sleeper makes a script's processes findable from outside.
func sleeper(t *testing.T) string {
	return fmt.Sprintf("%d.%d", 100000+os.Getpid(), time.Now().UnixNano()%1000000000)
}

func TestLeftoversAreReportedAndDead(t *testing.T) {
	w := newWorld(t)
	scripts := map[string]string{
		"background": "sleep $S & exit 0",
		"daemon":     "(setsid sh -c 'setsid sleep $S >/dev/null 2>&1 </dev/null & ' &) ; exit 0",
		"trap":       "sh -c 'trap \"\" TERM HUP INT; while :; do sleep $S; done' & exit 0",
	}
	for name, script := range scripts {
		for _, caps := range []sandbox.Caps{w.caps, {}} {
			word := sleeper(t)
			w.fresh(t)
			s := w.spec(script)
			if !caps.Namespaces() {
				s = w.plain(script)
			}
			s.Env["S"] = word
			s.Limits.Grace = 50 * time.Millisecond
			res := run(t, caps, s)
			if len(res.Leftovers) == 0 || res.ExitCode != 0 {
				t.Errorf("%s: leftovers %v, exit %d\n%s", name, res.Leftovers, res.ExitCode, res.Stdout)
			}
			if p := sandboxtest.Processes(t, word); len(p) > 0 {
				t.Errorf("%s (namespaces %v): still running: %v", name, caps.Namespaces(), p)
			}
		}
	}
	// A helper that ends by itself right after is none.
	w.fresh(t)
	short := w.spec("sleep 0.02 & exit 0")
	short.Limits.Grace = time.Minute
	if res := run(t, w.caps, short); len(res.Leftovers) > 0 {
		t.Errorf("short helper reported: %v", res.Leftovers)
	}
}

func TestWallClockKillsEverything(t *testing.T) {
	w := newWorld(t)
	for _, caps := range []sandbox.Caps{w.caps, {}} {
		word := sleeper(t)
		script := "for i in 1 2 3 4 5 6 7 8; do (setsid sh -c 'sleep $S & sleep $S' &); sleep $S & done; echo up; wait"
		s := w.spec(script)
		if !caps.Namespaces() {
			s = w.plain(script)
		}
		s.Env["S"] = word
		s.Limits.Wall = time.Second
		res := run(t, caps, s)
		if !res.TimedOut || !res.Started || res.Cancelled {
			t.Errorf("result %+v", res)
		}
		if p := sandboxtest.Processes(t, word); len(p) > 0 {
			t.Errorf("namespaces %v: still running: %v", caps.Namespaces(), p)
		}
	}
}

func TestCancelKillsEverything(t *testing.T) {
	w := newWorld(t)
	for _, caps := range []sandbox.Caps{w.caps, {}} {
		word := sleeper(t)
		s := w.spec("sleep $S & sleep $S")
		if !caps.Namespaces() {
			s = w.plain("sleep $S & sleep $S")
		}
		s.Env["S"] = word
		ctx, cancel := context.WithCancel(context.Background())
		p, err := sandbox.Start(ctx, caps, s, sandbox.Stdio{})
		must(t, err)
		sandboxtest.Eventually(t, "both sleep", func() bool { return len(sandboxtest.Processes(t, word)) >= 2 })
		cancel()
		res, err := p.Wait()
		must(t, err)
		if !res.Cancelled || res.TimedOut {
			t.Errorf("result %+v", res)
		}
		if p := sandboxtest.Processes(t, word); len(p) > 0 {
			t.Errorf("namespaces %v: still running: %v", caps.Namespaces(), p)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	w.fresh(t)
	if _, err := sandbox.Run(ctx, w.caps, w.spec("true")); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled before: %v", err)
	}
}

// The host dies without a word: its commands die too.
func TestHostKilled(t *testing.T) {
	newWorld(t)
	for _, plain := range []string{"", "1"} {
		word := sleeper(t)
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = []string{helperVar + "=run", "PLAIN=" + plain, "PATH=" + os.Getenv("PATH"), "SCRIPT=(setsid sleep " + word + " &) ; sleep " + word}
		must(t, cmd.Start())
		sandboxtest.Eventually(t, "sleepers run", func() bool {
			n := 0
			for _, p := range sandboxtest.Processes(t, word) {
				if b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p)); string(b) == "sleep\n" {
					n++
				}
			}
			return n == 2
		})
		must(t, cmd.Process.Kill())
		_ = cmd.Wait()
		sandboxtest.Eventually(t, "sleepers die with the host", func() bool { return len(sandboxtest.Processes(t, word)) == 0 })
	}
}

// The host dies while it starts several at once: no child half waits for one that does
// not come, holding what another waits for the end of.
func TestHostKilledWhileStarting(t *testing.T) {
	newWorld(t)
	rounds := 1
	if os.Getenv("ASP_CRASH") == "long" {
		rounds = 20
	}
	for i := range 2 * rounds {
		word := sleeper(t)
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = []string{helperVar + "=many", "PATH=" + os.Getenv("PATH"), "WORD=" + word}
		if i%2 == 1 {
			cmd.Env = append(cmd.Env, "PLAIN=1")
		}
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		said := bufio.NewReader(out)
		wait := []string{"up\n", "launched\n"} // once in the middle of it, once at the very start
		if i%4 >= 2 {
			wait = wait[:1]
		}
		for _, w := range wait { // however slow the machine is
			if line, err := said.ReadString('\n'); err != nil || line != w {
				t.Fatalf("the host says %q instead of %q: %v", line, w, err)
			}
		}
		// Child halves are its children as long as it lives; after that they are known
		// by what they have in common, the process group being their own.
		var halves []int
		for _, p := range sandboxtest.Processes(t, sandbox.ChildArg) {
			if parent(p) == cmd.Process.Pid {
				halves = append(halves, p)
			}
		}
		must(t, cmd.Process.Kill())
		_ = cmd.Wait()
		sandboxtest.Eventually(t, "all child halves and commands are dead", func() bool {
			for _, p := range halves {
				if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p)); err == nil && strings.Contains(string(b), sandbox.ChildArg) {
					return false
				}
			}
			return len(sandboxtest.Processes(t, word)) == 0
		})
	}
}

// parent is the parent of a process, 0 when there is none.
func parent(pid int) int {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(b), ") ")
	var state string
	ppid := 0
	_, _ = fmt.Sscan(rest, &state, &ppid)
	return ppid
}

func TestBytesArriveUnchanged(t *testing.T) {
	w := newWorld(t)
	s := w.spec("")
	s.Argv = []string{"sh", "-c", `printf '%s|%s' "$1" "$V"`, "sh", "a\xff\n<&>"}
	s.Env["V"] = "v\xe9\u2028"
	if res := run(t, w.caps, s); string(res.Stdout) != "a\xff\n<&>|v\xe9\u2028" {
		t.Errorf("got %q", res.Stdout)
	}
}

func TestNetworkKept(t *testing.T) {
	w := newWorld(t)
	s := w.spec("readlink /proc/self/ns/net")
	s.Network, s.Require = true, sandbox.Gated
	host, err := os.Readlink("/proc/self/ns/net")
	must(t, err)
	if res := run(t, w.caps, s); res.Boundary.NetworkOff || string(res.Stdout) != host+"\n" || res.Boundary.Level != sandbox.Gated {
		t.Errorf("network off %v, namespace %q, %s", res.Boundary.NetworkOff, res.Stdout, res.Boundary.Level)
	}
	w.fresh(t)
	s.Network, s.Require = false, sandbox.MediatedWrite
	if res := run(t, w.caps, s); !res.Boundary.NetworkOff || string(res.Stdout) == host+"\n" {
		t.Errorf("network off %v, namespace %q", res.Boundary.NetworkOff, res.Stdout)
	}
}

func TestLimits(t *testing.T) {
	w := newWorld(t)
	s := w.spec("ulimit -n; ulimit -c")
	s.Limits.Files = 77
	if res := run(t, w.caps, s); string(res.Stdout) != "77\n0\n" {
		t.Errorf("limits: %q", res.Stdout)
	}
	w.fresh(t)
	s = w.spec("i=0; while [ $i -lt 100 ]; do sleep 1000 & i=$((i+1)); done; echo all")
	s.Limits.Processes, s.Limits.Grace = 50, time.Millisecond
	res := run(t, w.caps, s)
	if os.Geteuid() == 0 && !slices.Contains(res.Boundary.Bounded, "pids") {
		return // the kernel exempts root from the resource limit
	}
	if strings.Contains(string(res.Stdout), "all") || res.ExitCode == 0 || !res.Started {
		t.Errorf("a hundred processes under a limit of 50: exit %d, %q", res.ExitCode, res.Stdout)
	}
}

// The same launch leaves the same evidence, whether its groups are there or not.
func TestEvidenceIsTheSame(t *testing.T) {
	w := newWorld(t)
	var said [2]string
	for i := range said {
		w.fresh(t)
		s := w.spec("true")
		s.Limits.Processes, s.Limits.CPUPct, s.Limits.Memory = 500, 100, 1<<30
		s.Egress, s.Gateway = []string{"a.invalid:443"}, gate
		said[i] = run(t, w.caps, s).Boundary.Evidence
	}
	if said[0] != said[1] || !strings.Contains(said[0], "bound") {
		t.Errorf("%s\n%s", said[0], said[1])
	}
}

// The child half is under none of the limits that would keep it from reporting: a
// command that takes all the processes there may be is reported as one that does.
func TestLimitsSpareTheChildHalf(t *testing.T) {
	w := newWorld(t)
	for _, n := range []uint64{1, 2, 9} {
		w.fresh(t)
		s := w.spec("while :; do sleep 1000 & done")
		s.Limits.Processes, s.Limits.Grace = n, time.Millisecond
		s.Limits.Wall = 20 * time.Second // for root without control groups, whom nothing stops
		res := run(t, w.caps, s)
		if !res.TimedOut && (!res.Started || res.ExitCode == 0) {
			t.Errorf("limit %d: %+v", n, res)
		}
	}
}

func TestHideAndShow(t *testing.T) {
	w := newWorld(t)
	d, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	for _, f := range []string{"home/secret", "home/go/mod/m", "home/bin/tool"} {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(d, f)), 0o755))
		must(t, os.WriteFile(filepath.Join(d, f), []byte(f), 0o644))
	}
	home := filepath.Join(d, "home")
	s := w.spec("find . -type f | sort; touch x; touch go/mod/x; cat bin/tool")
	s.Dir = home
	s.Hide = []string{home, filepath.Join(d, "missing")}
	s.Mounts = append(s.Mounts,
		sandbox.Mount{Kind: sandbox.MountBindRO, Source: filepath.Join(home, "go/mod"), Target: filepath.Join(home, "go/mod")},
		sandbox.Mount{Kind: sandbox.MountBindRO, Source: filepath.Join(home, "bin/tool"), Target: filepath.Join(home, "bin/tool")})
	res := run(t, w.caps, s)
	out := string(res.Stdout)
	if !strings.HasPrefix(out, "./bin/tool\n./go/mod/m\n") || strings.Contains(out, "secret") || !strings.HasSuffix(out, "home/bin/tool") {
		t.Errorf("got:\n%s", out)
	}
	if n := len(sandboxtest.Content(t, d)); n != 8 {
		t.Errorf("%d names after, want 8: %v", n, sandboxtest.Content(t, d))
	}
}
