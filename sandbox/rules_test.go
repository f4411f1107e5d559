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
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/aspengine/asp/internal/need"
	"github.com/aspengine/asp/sandbox"
	"github.com/aspengine/asp/sandbox/sandboxtest"
	"github.com/google/go-cmp/cmp"
)

// byRules is the script in a launch without namespaces over a private tree; the live one is
// to be kept from it.
func (w *world) byRules(t *testing.T, script string) (sandbox.Caps, sandbox.Spec) {
	t.Helper()
	caps := w.caps
	caps.UserNS = sandbox.Cap{Answer: sandbox.No, Errno: int(syscall.EPERM)}
	if !caps.CanConfine() {
		need.Missing(t, "no Landlock or no filter")
	}
	s := w.plain(script)
	s.Write = []string{filepath.Join(t.TempDir(), "tree")}
	must(t, os.Mkdir(s.Write[0], 0o755))
	s.Dir, s.Require, s.Protect[0].Lands = s.Write[0], sandbox.MediatedWrite, ""
	s.Env["PATH"] = "/usr/bin:/bin"
	return caps, s
}

// Without namespaces Landlock and the filter keep the live tree, and everybody who would write there, from
// the command, and a probe has seen it.
func TestRules(t *testing.T) {
	w := newWorld(t)
	sock := filepath.Join(t.TempDir(), "sock")
	l, err := net.Listen("unix", sock)
	must(t, err)
	defer l.Close()
	before := sandboxtest.Listing(t, w.live)
	caps, s := w.byRules(t, `
		cat $LIVE/f; ls $LIVE; ls /root /home /tmp; cat /proc/$HOST/environ
		echo changed > $LIVE/f; echo new > $LIVE/new; mkdir $LIVE/d; mv $LIVE/f $LIVE/g; ln $LIVE/f h; mv $LIVE/f .
		chmod 777 $LIVE $LIVE/f; touch $LIVE/f; true 3< $LIVE; truncate -s 0 $LIVE/f; rm -f $LIVE/f; ln -s / $LIVE/l
		kill -KILL $HOST; kill -STOP $HOST
		python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect("'`+sock+`'")' && echo reached
		echo a > a; mkdir d; mv a d/; cp d/a b; ln b c; (echo piped | cat); cat c; ls; echo x > /dev/null`)
	s.Env["HOST"] = strconv.Itoa(os.Getpid())
	res := run(t, caps, s)
	if got := sandboxtest.Listing(t, w.live); !cmp.Equal(before, got) {
		t.Errorf("live tree changed: %s", cmp.Diff(before, got))
	}
	b := res.Boundary
	if b.Level != sandbox.MediatedWrite || b.Namespaces || !b.Rules || b.DirectWrite || !strings.Contains(b.Evidence, "no namespaces") {
		t.Errorf("boundary %+v", b)
	}
	for _, a := range b.Attempts {
		if !a.Held {
			t.Errorf("%s: %s", a.Name, a.Answer)
		}
	}
	if out := string(res.Stdout); res.ExitCode != 0 || strings.Contains(out, "live\n") || strings.Contains(out, "reached") || !strings.HasSuffix(out, "piped\na\nb\nc\nd\n") {
		t.Errorf("exit %d\n%s", res.ExitCode, out)
	}
	if left, err := os.ReadDir(filepath.Dir(s.Write[0])); err != nil || len(left) != 1 {
		t.Errorf("the probe left %v, %v", left, err)
	}
	s.Require = sandbox.Isolated
	if _, err := sandbox.Run(context.Background(), caps, s); !errors.Is(err, sandbox.ErrUnsupported) {
		t.Errorf("isolated: %v", err)
	}
}

// Attributes cannot be changed by descriptor either, whatever is required: what may be read is the user's own.
func TestRulesAttributes(t *testing.T) {
	w := newWorld(t)
	own := filepath.Join(t.TempDir(), "own")
	must(t, os.WriteFile(own, []byte("x"), 0o644))
	before := sandboxtest.Listing(t, filepath.Dir(own))
	script := `
import os, fcntl, struct
fd = os.open(os.environ["OWN"], os.O_RDONLY)
for f in [lambda: os.fchmod(fd, 0), lambda: os.fchown(fd, os.getuid(), os.getgid()), lambda: os.utime(fd, (1, 1)),
          lambda: os.setxattr(fd, "user.x", b"x"), lambda: os.removexattr(fd, "user.x"), lambda: fcntl.ioctl(fd, 0x40086602, struct.pack("l", 0x40))]:
    try: f(); print("done")
    except OSError as e: print(e.errno)
`
	for _, l := range []sandbox.Level{sandbox.Gated, sandbox.MediatedWrite} {
		caps, s := w.byRules(t, "")
		s.Argv, s.Read, s.Env["OWN"], s.Require = []string{"python3", "-c", script}, []string{own}, own, l
		res := run(t, caps, s)
		if string(res.Stdout) != strings.Repeat("1\n", 6) || res.Boundary.Level != sandbox.MediatedWrite {
			t.Errorf("%s required: exit %d %q %q %s", l, res.ExitCode, res.Stdout, res.Stderr, res.Boundary.Evidence)
		}
		if got := sandboxtest.Listing(t, filepath.Dir(own)); !cmp.Equal(before, got) {
			t.Errorf("what may be read changed: %s", cmp.Diff(before, got))
		}
	}
}

// A pair of sockets of the command's own sends nothing to anybody else, and connected ones work.
func TestRulesSocketPairs(t *testing.T) {
	w := newWorld(t)
	sock := filepath.Join(t.TempDir(), "sock")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: sock, Net: "unixgram"})
	must(t, err)
	defer l.Close()
	script := `
import os, socket as s
for t in [s.SOCK_DGRAM, s.SOCK_RAW, s.SOCK_DGRAM | s.SOCK_NONBLOCK]:
    try: s.socketpair(s.AF_UNIX, t)[0].sendto(b"x", os.environ["SOCK"]); print("sent")
    except OSError as e: print(e.errno)
for t in [s.SOCK_STREAM, s.SOCK_SEQPACKET | s.SOCK_NONBLOCK]:
    a, b = s.socketpair(s.AF_UNIX, t)
    try: a.sendto(b"x", os.environ["SOCK"])
    except OSError: a.send(b"x")
    print(b.recv(1))
`
	caps, s := w.byRules(t, "")
	s.Argv, s.Env["SOCK"] = []string{"python3", "-c", script}, sock
	res := run(t, caps, s)
	if string(res.Stdout) != "94\n94\n94\nb'x'\nb'x'\n" {
		t.Errorf("exit %d %q %q", res.ExitCode, res.Stdout, res.Stderr)
	}
	f, err := l.File()
	must(t, err)
	defer f.Close()
	if n, _, err := syscall.Recvfrom(int(f.Fd()), make([]byte, 9), syscall.MSG_DONTWAIT); err != syscall.EAGAIN {
		t.Errorf("the listener got %d bytes, %v", n, err)
	}
}

// Scheduling of the host's processes is out of reach, the command's own is not.
func TestRulesScheduling(t *testing.T) {
	w := newWorld(t)
	other := exec.Command("sleep", "1000")
	must(t, other.Start())
	defer func() { _ = other.Process.Kill(); _ = other.Wait() }()
	script := `
import os, ctypes
c, pid = ctypes.CDLL(None, use_errno=True), int(os.environ["OTHER"])
def ioprio(which, who):
    if c.syscall({"x86_64": 251, "aarch64": 30}[os.uname().machine], which, who, 3 << 13) != 0: raise OSError(ctypes.get_errno(), "")
for f in [lambda: os.setpriority(os.PRIO_PROCESS, pid, 19), lambda: os.setpriority(os.PRIO_USER, 0, 19), lambda: os.setpriority(os.PRIO_PGRP, 0, 19),
          lambda: os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0)), lambda: os.sched_setparam(pid, os.sched_param(0)),
          lambda: os.sched_setaffinity(pid, os.sched_getaffinity(pid)), lambda: ioprio(1, pid), lambda: ioprio(3, 0),
          lambda: os.setpriority(os.PRIO_PROCESS, 0, 19), lambda: os.sched_setaffinity(0, os.sched_getaffinity(0)), lambda: ioprio(1, 0)]:
    try: f(); print("done")
    except OSError as e: print(e.errno)
`
	caps, s := w.byRules(t, "")
	s.Argv, s.Env["OTHER"] = []string{"python3", "-c", script}, strconv.Itoa(other.Process.Pid)
	res := run(t, caps, s)
	if string(res.Stdout) != strings.Repeat("1\n", 8)+strings.Repeat("done\n", 3) {
		t.Errorf("exit %d %q %q", res.ExitCode, res.Stdout, res.Stderr)
	}
}

// Who watches is out of reach of the command's signals.
func TestRulesWatcher(t *testing.T) {
	w := newWorld(t)
	caps, s := w.byRules(t, `exec 2>/dev/null; for s in KILL STOP TERM 0; do kill -$s $PPID && echo sent; done
		python3 -c 'import os, signal, sys; signal.pidfd_send_signal(os.pidfd_open(int(sys.argv[1])), 9)' $PPID && echo sent
		sleep 300 & kill -KILL $! && wait $!; echo $?`)
	if res := run(t, caps, s); res.Lost != "" || string(res.Stdout) != "137\n" || res.Boundary.Level != sandbox.MediatedWrite {
		t.Errorf("exit %d %q lost %q %s", res.ExitCode, res.Stdout, res.Lost, res.Boundary.Evidence)
	}
}

// Where it dies all the same and nothing else held the command, what that started may live
// on, and this is said.
func TestRulesWatcherDies(t *testing.T) {
	w := newWorld(t)
	for _, grouped := range []bool{false, true} {
		caps, s := w.byRules(t, "setsid sleep 300 >/dev/null 2>&1 </dev/null & echo $! $PPID; exec sleep 300")
		r, out, err := os.Pipe()
		must(t, err)
		defer r.Close()
		p, err := sandbox.Start(t.Context(), caps, s, sandbox.Stdio{Out: out})
		out.Close()
		must(t, err)
		var left, watcher int
		_, err = fmt.Fscan(r, &left, &watcher)
		must(t, err)
		end := func() error { return nil }
		if !grouped {
			end = sandbox.Ungroup(p)
		}
		must(t, syscall.Kill(watcher, syscall.SIGKILL))
		res, err := p.Wait()
		must(t, err)
		alive := syscall.Kill(left, 0) == nil && !zombie(t, left)
		said := len(res.Leftovers) > 0 && res.Boundary.Level == sandbox.Gated && strings.Contains(res.Boundary.Evidence, "may still run")
		if res.Lost == "" || alive && !said || !grouped && !said {
			t.Errorf("lost %q, alive %v, left %q, %s %s", res.Lost, alive, res.Leftovers, res.Boundary.Level, res.Boundary.Evidence)
		}
		must(t, end())
		_ = syscall.Kill(left, syscall.SIGKILL)
	}
}

// zombie tells whether a process is dead and nobody asked for its end yet.
func zombie(t *testing.T, pid int) bool {
	t.Helper()
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return strings.Contains(string(b), ") Z ")
}

// What was left out of the rules the probe notices, and nothing is tried at the live tree then.
func TestRulesNotice(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(w *world, s *sandbox.Spec)
		can  sandbox.Level
	}{
		{"Landlock", func(_ *world, s *sandbox.Spec) { *s = sandbox.Without(*s, "landlock") }, sandbox.Advisory},
		{"filter", func(_ *world, s *sandbox.Spec) { *s = sandbox.Without(*s, "seccomp") }, sandbox.Advisory},
		{"the live tree is granted", func(w *world, s *sandbox.Spec) { s.Read = []string{filepath.Dir(w.live)} }, sandbox.Gated},
		{"a part of it is granted", func(w *world, s *sandbox.Spec) { s.Read = []string{filepath.Join(w.live, "f")} }, sandbox.MediatedWrite},
		{"the network is granted", func(_ *world, s *sandbox.Spec) { s.Network = true }, sandbox.Gated},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			caps, s := w.byRules(t, "echo ran")
			before := sandboxtest.Listing(t, w.live)
			c.do(w, &s)
			for _, l := range []sandbox.Level{sandbox.Gated, sandbox.MediatedWrite} {
				s.Require = l
				res, err := sandbox.Run(context.Background(), caps, s)
				switch {
				case l <= c.can:
					if err != nil || string(res.Stdout) != "ran\n" || res.Boundary.Level != c.can {
						t.Errorf("%s required: %v, %s %s", l, err, res.Boundary.Level, res.Boundary.Evidence)
					}
				case !errors.Is(err, sandbox.ErrUnsupported):
					t.Errorf("%s required: %v, %s", l, err, res.Boundary.Level)
				}
			}
			if got := sandboxtest.Listing(t, w.live); !cmp.Equal(before, got) {
				t.Errorf("live tree changed: %s", cmp.Diff(before, got))
			}
		})
	}
}
