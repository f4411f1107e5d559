//go:build linux

package sandbox_test

import (
	"context"
	"errors"
	"net"
	"os"
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

// Where attributes are not at stake, they can be changed by descriptor, as everyday programs do.
func TestRulesGated(t *testing.T) {
	w := newWorld(t)
	caps, s := w.byRules(t, "echo a > a; cp -p a b; touch b; cat b")
	s.Require = sandbox.Gated
	if res := run(t, caps, s); string(res.Stdout) != "a\n" || res.ExitCode != 0 || res.Boundary.Level != sandbox.MediatedWrite {
		t.Errorf("exit %d %q %s", res.ExitCode, res.Stdout, res.Boundary.Evidence)
	}
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
		{"a part of it is granted", func(w *world, s *sandbox.Spec) { s.Read = []string{filepath.Join(w.live, "f")} }, sandbox.Gated},
		{"the network is granted", func(_ *world, s *sandbox.Spec) { s.Network = true }, sandbox.Gated},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			caps, s := w.byRules(t, "echo ran")
			before := sandboxtest.Listing(t, w.live)
			c.do(w, &s)
			for _, l := range []sandbox.Level{sandbox.Gated, sandbox.MediatedWrite} {
				s.Require = l
				strict := l == sandbox.MediatedWrite && c.name == "a part of it is granted"
				res, err := sandbox.Run(context.Background(), caps, s)
				switch {
				case l <= c.can || strict: // attributes are out of reach altogether then
					if err != nil || string(res.Stdout) != "ran\n" || !strict && res.Boundary.Level != c.can {
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
