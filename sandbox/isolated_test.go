//go:build linux

package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aspengine/asp/internal/need"
	"github.com/aspengine/asp/sandbox"
	"github.com/aspengine/asp/sandbox/sandboxtest"
	"github.com/google/go-cmp/cmp"
)

// isolated is a world whose machine can isolate.
func isolated(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	if !w.caps.CanIsolate() {
		need.Missing(t, "this machine cannot isolate: %s", w.caps.MissingIsolation())
	}
	return w
}

func (w *world) alone(script string) sandbox.Spec {
	s := w.spec(script)
	s.Require = sandbox.Isolated
	s.Mounts = append(s.Mounts, sandbox.Mount{Kind: sandbox.MountTmpfs, Target: "/tmp"})
	s.Env["PATH"] = "/usr/local/bin:/usr/bin:/bin"
	s.Limits.FileSize, s.Limits.Memory, s.Limits.Files = 64<<20, 1<<30, 128
	return s
}

func TestIsolated(t *testing.T) {
	w := isolated(t)
	before := sandboxtest.Listing(t, w.live)
	res := run(t, w.caps, w.alone("cat f; echo new > n; mkdir d; mv n d/; cat d/n; echo x > /tmp/x; echo y > /dev/null; ls /"))
	b := res.Boundary
	if b.Level != sandbox.Isolated || !b.NetworkOff || b.DirectWrite || !strings.Contains(b.Evidence, "attempts from inside") {
		t.Errorf("boundary %s: %s", b.Level, b.Evidence)
	}
	for _, a := range b.Attempts {
		if !a.Held {
			t.Errorf("%s: %s", a.Name, a.Answer)
		}
	}
	if out := string(res.Stdout); res.ExitCode != 0 || !strings.HasPrefix(out, "live\nnew\n") || strings.Contains(out, "home") || strings.Contains(out, "sys\n") {
		t.Errorf("exit %d, output\n%s", res.ExitCode, out)
	}
	if got := sandboxtest.Listing(t, w.live); !cmp.Equal(before, got) {
		t.Errorf("live tree changed: %s", cmp.Diff(before, got))
	}
}

// What is to be hidden stays so in what is granted, and where something shows it all the
// same the probe sees it.
func TestHiddenInWhatIsGranted(t *testing.T) {
	w := isolated(t)
	d, err := os.MkdirTemp("", "granted")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(d) })
	d, err = filepath.EvalSymlinks(d)
	must(t, err)
	hidden := filepath.Join(d, "a", "hidden")
	must(t, os.MkdirAll(hidden, 0o755))
	for _, f := range []string{filepath.Join(hidden, "secret"), filepath.Join(d, "tool")} {
		must(t, os.WriteFile(f, []byte("canary-8\n"), 0o644))
	}
	must(t, os.Chmod(d, 0o755))
	s := w.spec("cat " + d + "/tool; ls -R " + d + "/a")
	s.Require, s.Read, s.Hide = sandbox.Isolated, []string{d}, []string{hidden}
	tried := func(b sandbox.Boundary) (out []string) {
		for _, a := range b.Attempts {
			if a.Name == "read "+hidden {
				out = append(out, a.Answer)
			}
		}
		return out
	}
	res := run(t, w.caps, s)
	if out := string(res.Stdout); !strings.HasPrefix(out, "canary-8\n") || strings.Contains(out, "secret") {
		t.Errorf("%s\n%s", res.Boundary.Evidence, out)
	}
	if got := tried(res.Boundary); !cmp.Equal(got, []string{"another file"}) {
		t.Errorf("tried: %q", got)
	}
	w.fresh(t)
	s.Require, s.Isolate = sandbox.Gated, true
	s.Mounts = append(s.Mounts, sandbox.Mount{Kind: sandbox.MountBindRO, Source: hidden, Target: hidden})
	if b := run(t, w.caps, s).Boundary; b.Level != sandbox.MediatedWrite || !cmp.Equal(tried(b), []string{"seen"}) {
		t.Errorf("shown all the same: %s, %q: %s", b.Level, tried(b), b.Evidence)
	}
	// One of the system directories, where only the real root can put something.
	w.fresh(t)
	s = w.spec("ls /usr/share && echo shown")
	s.Require, s.Hide = sandbox.Isolated, []string{"/usr/share"}
	if res := run(t, w.caps, s); string(res.Stdout) != "shown\n" {
		t.Errorf("in a system directory: %q", res.Stdout)
	}
}

// The limits are on the command alone: what starts it gets by with little memory, and a
// low limit on descriptors is raised to what it takes.
func TestLimitsAreOnTheCommand(t *testing.T) {
	w := isolated(t)
	for _, mb := range []uint64{1, 64, 65, 70, 80, 90, 100} {
		w.fresh(t)
		s := w.alone("echo ran; ulimit -n; ulimit -d; ulimit -f")
		s.Limits.Memory, s.Limits.Files, s.Limits.FileSize = mb<<20, 1, 1<<20
		res := run(t, w.caps, s)
		if want := fmt.Sprintf("ran\n16\n%d\n%d\n", max(mb, 64)<<10, 1<<20/512); string(res.Stdout) != want || res.ExitCode != 0 {
			t.Errorf("%d MiB: exit %d, %q, want %q", mb, res.ExitCode, res.Stdout, want)
		}
		for _, want := range []string{"tried to exceed: descriptors, file size, memory of a process", "set, not tried: wall clock"} {
			if !strings.Contains(res.Boundary.Evidence, want) {
				t.Errorf("not in the evidence: %s: %s", want, res.Boundary.Evidence)
			}
		}
	}
}

// What bounds the whole run is tried in each launch, and noticed where it does not hold. Without
// control groups, as for an ordinary user, it is the number of the user's processes.
func TestRunLimitsAreTried(t *testing.T) {
	w := isolated(t)
	spec := func(off string) sandbox.Spec {
		w.fresh(t)
		s := w.alone("for i in 1 2 3 4 5 6 7 8; do sleep 0 & done; wait; head -c 8000000 /dev/zero | tail -c 8000000 | wc -c")
		s.Limits.Processes, s.Limits.CPUPct = 5000, 150
		if off != "" {
			s = sandbox.Without(s, off)
			s.Require, s.Isolate = sandbox.Advisory, true
		}
		return s
	}
	answers := func(b sandbox.Boundary) map[string]string {
		out := map[string]string{}
		for _, a := range b.Attempts {
			out[a.Name] = a.Answer
			if !a.Held {
				out[a.Name] += ", open"
			}
		}
		return out
	}
	res := run(t, w.caps, spec(""))
	got, b := answers(res.Boundary), res.Boundary
	if out := string(res.Stdout); b.Level != sandbox.Isolated || out != "8000000\n" {
		t.Errorf("under the limits of the launch: %s %q %s", b.Level, out, b.Evidence)
	}
	type tried struct{ name, held, open, off string }
	var all []tried
	if os.Geteuid() == 0 {
		if !cmp.Equal(b.Bounded, []string{"cpu", "memory", "pids"}) {
			need.Missing(t, "control groups bound only %v", b.Bounded)
		}
		all = []tried{
			{"start a process too many of the run", "EAGAIN", "done, open", sandbox.GroupLimits},
			{"keep more memory than the run may have", "taken back", "kept, open", sandbox.GroupLimits},
		}
		for name, want := range map[string]string{"exceed the run's limit of pids": "refused, and read back", "exceed the run's limit of memory": "refused, and read back", "the run's limit of cpu": "read back"} {
			if got[name] != want {
				t.Errorf("%s: %q", name, got[name])
			}
		}
		if want := "tried to exceed lower ones, then set and read back: memory of the run, processes; set and read back, not tried: processor time; set, not tried: wall clock"; !strings.Contains(b.Evidence, want) {
			t.Errorf("not in the evidence: %s: %s", want, b.Evidence)
		}
	} else {
		all = []tried{{"start a process too many of a user", "EAGAIN", "done, open", sandbox.ProcessLimits}}
	}
	// Processor time is tried where it is asked what can be had.
	if os.Geteuid() == 0 {
		const name, want = "exceed the run's limit of cpu", "refused, and read back"
		s := spec("")
		s.Limits.Memory, s.Limits.Processes = 0, 0 // what tries these uses some as well
		b, err := sandbox.Prove(context.Background(), w.caps, s)
		must(t, err)
		if got := answers(b)[name]; got != want || b.Level != sandbox.Isolated || !strings.Contains(b.Evidence, "then set and read back: processor time") {
			t.Errorf("%s: %q, %s", name, got, b.Evidence)
		}
		s = spec("")
		s.Limits.CPUPct = 1000
		b, err = sandbox.Prove(context.Background(), w.caps, sandbox.Without(s, sandbox.GroupLimits))
		must(t, err)
		if got := answers(b)[name]; got == want || b.Level != sandbox.MediatedWrite {
			t.Errorf("%s, when it is too high: %q, %s %s", name, got, b.Level, b.Evidence)
		}
	}
	for _, a := range all {
		if got[a.name] != a.held {
			t.Errorf("%s: %q, want %q", a.name, got[a.name], a.held)
		}
		less := run(t, w.caps, spec(a.off)).Boundary
		if got := answers(less)[a.name]; got != a.open || less.Level != sandbox.MediatedWrite {
			t.Errorf("%s without %s: %q, want %q; %s: %s", a.name, a.off, got, a.open, less.Level, less.Evidence)
		}
		s := spec(a.off)
		s.Require = sandbox.Isolated
		if _, err := sandbox.Run(context.Background(), w.caps, s); !errors.Is(err, sandbox.ErrUnsupported) {
			t.Errorf("required without %s: %v", a.off, err)
		}
	}
}

// SB-01: with one layer less the level drops by itself, and a required one is refused.
func TestSB01_EachLayerCounts(t *testing.T) {
	w := isolated(t)
	started := filepath.Join(w.live, "started")
	for _, layer := range sandbox.Layers {
		t.Run(layer, func(t *testing.T) {
			w.fresh(t)
			s := sandbox.Without(w.alone("touch "+started), layer)
			_, err := sandbox.Run(context.Background(), w.caps, s)
			if !errors.Is(err, sandbox.ErrUnsupported) {
				t.Errorf("required: %v", err)
			}
			if _, err := os.Lstat(filepath.Join(w.upper, "started")); err == nil {
				t.Error("started though refused")
			}
			w.fresh(t)
			s.Require, s.Isolate = sandbox.Advisory, true
			res := run(t, w.caps, s)
			if l := res.Boundary.Level; l >= sandbox.Isolated || !strings.Contains(res.Boundary.Evidence, "not isolated") && !strings.Contains(res.Boundary.Evidence, "it is not proved") {
				t.Errorf("level %s: %s", l, res.Boundary.Evidence)
			}
		})
	}
	for name, f := range map[string]func(*sandbox.Caps){
		"no landlock":       func(c *sandbox.Caps) { c.Landlock.Answer = sandbox.No },
		"seccomp not told":  func(c *sandbox.Caps) { c.Seccomp = sandbox.Cap{} },
		"no pivot":          func(c *sandbox.Caps) { c.PrivateRoot.Answer = sandbox.No },
		"no net namespace":  func(c *sandbox.Caps) { c.NetNS.Answer = sandbox.No },
		"no user namespace": func(c *sandbox.Caps) { c.UserNS.Answer = sandbox.No },
	} {
		caps := w.caps
		f(&caps)
		if _, err := sandbox.Run(context.Background(), caps, w.alone("true")); !errors.Is(err, sandbox.ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
	s := w.alone("true")
	s.Network = true
	if _, err := sandbox.Run(context.Background(), w.caps, s); !errors.Is(err, sandbox.ErrUnsupported) {
		t.Errorf("network granted: %v", err)
	}
}

// Escapes, as a command would try them. Each line must print nothing.
func TestIsolatedEscapes(t *testing.T) {
	w := isolated(t)
	secret := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(secret, []byte("canary-7"), 0o644))
	l, err := net.Listen("unix", filepath.Join(filepath.Dir(secret), "agent"))
	must(t, err)
	defer l.Close()
	before := sandboxtest.Listing(t, w.live)
	for i, c := range []string{
		"cat " + secret, "ls " + filepath.Dir(secret), "ls /root /home", "cat /etc/shadow", "ls /sys /run /var /srv",
		"cat /proc/1/environ", "readlink /proc/1/root", "readlink /proc/1/exe", "readlink /proc/1/fd/5", "ls /proc/1/fd/5/ /proc/1/fd/6/", "ls /proc/1/root/",
		fmt.Sprintf("ls -d /proc/%d", os.Getpid()), "kill -9 1",
		"touch /usr/x && echo w", "touch /.asp/x && echo w", "touch /etc/x && echo w", "mkdir /x && echo w", "touch /proc/x && echo w",
		"echo x > /proc/sys/kernel/core_pattern && echo w", "echo b > /proc/sysrq-trigger && echo w", "chmod 777 / && echo w", "chmod 666 /dev/null && echo w",
		"unshare -U true && echo w", "unshare -m true && echo w", "unshare -n true && echo w", "nsenter -t 1 -m true && echo w",
		"mount -t tmpfs none /tmp && echo w", "umount -l / && echo w", "mount -o remount,rw / && echo w", "mount --bind / /tmp && echo w", "chroot /usr /bin/true && echo w",
		"mknod /tmp/n b 1 1 && echo w", "mknod /tmp/n c 1 1 && echo w", "cat /dev/sda /dev/vda /dev/mem /dev/kmsg", "ls /dev/tty && echo w", "cat /proc/kcore | head -c1",
		"cp /bin/sh /tmp/s && chmod 4755 /tmp/s && /tmp/s -p -c 'grep -q NoNewPrivs:.1 /proc/self/status || echo w'",
		"ln " + filepath.Join(w.live, "f") + " /tmp/f && echo w", "ln -s " + secret + " /tmp/l && cat /tmp/l", "ln -s /proc/1/root /tmp/r && ls /tmp/r/",
		"grep -v '^ *lo:' /proc/net/dev | grep :", "exec 3<>/dev/tcp/127.0.0.1/22 && echo w", "hostname evil && echo w", "date -s 2001-01-01 >/dev/null && echo w",
		"head -c 100000000 /dev/zero > /tmp/big && echo w", "sysctl -w kernel.hostname=x && echo w",
		"head -c 2000000000 /dev/zero > /dev/shm/big && echo w", "ulimit -f unlimited && echo w", "ulimit -n 4096 && echo w", "ulimit -c unlimited && echo w",
		"LD_PRELOAD=" + secret + " cat < /dev/null", "cat /proc/self/root" + secret, "cat /proc/self/cwd/../../../../../.." + secret, "cd /proc/self/root/../.. && ls root home",
		"setpriv --reuid 0 --clear-groups true && echo w", "su -c true && echo w", "capsh --print | grep -i 'current: .*cap_'", "keyctl show", "ipcs -m | grep 0x", "logger -s x >/dev/null && ls /dev/log",
		"touch -d 1999-01-01 /usr && echo w", "setfattr -n user.x -v y /usr && echo w", "chown 0:1 /usr && echo w", "swapon /tmp && echo w", "losetup -f && echo w", "echo 1 > /proc/self/loginuid && echo w",
		"echo -17 > /proc/1/oom_score_adj && echo w", "echo x > /proc/1/comm && echo w", "cat /proc/1/mem | head -c1", "cat /proc/1/maps", "cat /proc/1/cwd/etc/shadow", "exec 5>/dev/udp/169.254.169.254/53 && echo x >&5 && echo w", "dmesg", "ls /tmp/.X11-unix", "env | grep -v -e ^PATH= -e ^LIVE= -e ^PWD= -e ^SHLVL= -e ^_= -e ^OLDPWD=",
	} {
		w.fresh(t)
		s := w.alone("{ " + c + "; } 2>/dev/null; echo end " + fmt.Sprint(i))
		s.Argv[0] = "bash"
		res := run(t, w.caps, s)
		if out := string(res.Stdout); out != fmt.Sprintf("end %d\n", i) || res.Boundary.Level != sandbox.Isolated {
			t.Errorf("%s\n(%s) said: %s", c, res.Boundary.Level, out)
		}
	}
	if got := sandboxtest.Listing(t, w.live); !cmp.Equal(before, got) {
		t.Errorf("live tree changed: %s", cmp.Diff(before, got))
	}
}

// What isolated work must still be able to do.
func TestIsolatedWork(t *testing.T) {
	w := isolated(t)
	res := run(t, w.caps, w.alone(`set -e
		mkdir -p a/b; echo 1 > a/b/c; mv a d; ln d/b/c e; ln -s e g; cat g; rm -r d; chmod 755 e; touch -d 2001-01-01 e; test -x e
		mkfifo /tmp/p; (echo through > /tmp/p &); cat /tmp/p
		(exit 3) || echo $?; sleep 0.01 & wait; kill -0 $$
		id -u >/dev/null; date > /dev/null; head -c 4 /dev/urandom | wc -c; test -n "$(cat /proc/self/status)"; echo hi > /dev/shm/x; echo ok > /dev/stdout`))
	if out := string(res.Stdout); res.ExitCode != 0 || !strings.HasSuffix(out, "ok\n") || !strings.Contains(out, "1\nthrough\n3\n4\n") {
		t.Errorf("exit %d\n%s", res.ExitCode, out)
	}
	w.fresh(t)
	if _, err := exec.LookPath("git"); err == nil {
		res := run(t, w.caps, w.alone("git init -q . && git add f && git -c user.name=a -c user.email=a@b commit -qm x && git status --porcelain && git log --format=%s"))
		if out := string(res.Stdout); res.ExitCode != 0 || !strings.HasSuffix(out, "x\n") {
			t.Errorf("git: exit %d\n%s", res.ExitCode, out)
		}
	}
}

// Parts of /etc are shown through one shield of all of it, read-only, without what lies beside them, and as
// the host has them.
func TestPartsOfEtc(t *testing.T) {
	w := isolated(t)
	s := w.alone("cat /etc/passwd; echo --; ls /etc/ssl; ls /etc/shadow /etc/fstab; echo x > /etc/passwd; echo --; grep ' /etc/[^ ]* ' /proc/self/mountinfo | sed 's/.* - //' | sort -u")
	s.MergeOutput = false
	res := run(t, w.caps, s)
	want, err := os.ReadFile("/etc/passwd")
	must(t, err)
	parts := strings.Split(string(res.Stdout), "--\n")
	if len(parts) != 3 || parts[0] != string(want) {
		t.Fatalf("seen: %s", res.Stdout)
	}
	if strings.Contains(parts[1], "shadow") || strings.Contains(parts[1], "fstab") || strings.Contains(parts[1], "private") {
		t.Errorf("seen: %s", parts[1])
	}
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(mounts), " /etc/") {
		t.Logf("something is mounted below /etc here: its parts are shown one by one")
	} else if m := parts[2]; !strings.HasPrefix(m, "overlay ") || strings.Count(m, "\n") != 1 {
		t.Errorf("mounted below /etc: %s", m)
	}
	if !strings.Contains(string(res.Stderr), "Read-only file system") && !strings.Contains(string(res.Stderr), "Permission denied") {
		t.Errorf("it could write: %s", res.Stderr)
	}
}
