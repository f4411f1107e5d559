//go:build linux

package sandbox_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aspengine/asp/sandbox"
	"github.com/aspengine/asp/sandbox/sandboxtest"
)

// children counts the child halves of this process, the dead ones that nobody
// waited for included.
func children(t *testing.T) int {
	t.Helper()
	names, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil || len(names) == 0 {
		t.Fatalf("list own children: %v", err)
	}
	n := 0
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			continue // the thread ended
		}
		for _, pid := range strings.Fields(string(b)) {
			cmd, err := os.ReadFile("/proc/" + pid + "/cmdline")
			// One that has not yet become the child half is waited for by who started it:
			// to kill that one is another failure.
			if err == nil && bytes.Contains(cmd, []byte(sandbox.ChildArg)) {
				n++
			}
		}
	}
	return n
}

// A launch takes the waiting process instead of starting one, proves as much with
// it, and a second launch has to start its own.
func TestSpareServesOneLaunch(t *testing.T) {
	w := newWorld(t)
	s := w.spec("echo out; echo err >&2; echo changed > f; readlink /proc/self/ns/net")
	s.Spare = sandbox.NewSpare(w.caps)
	defer s.Spare.Close()
	for i, merge := range []bool{true, false, false} {
		if i == 2 {
			s.Spare.Close()
			s.Spare = sandbox.NewSpare(w.caps)
			defer s.Spare.Close()
		}
		if i != 1 {
			sandboxtest.Eventually(t, "the process waits", func() bool { return children(t) == 1 })
		} else if n := children(t); n != 0 {
			t.Errorf("%d processes after the launch", n)
		}
		w.fresh(t)
		s.MergeOutput = merge
		res := run(t, w.caps, s)
		ns, _ := os.Readlink("/proc/self/ns/net")
		want, werr := "out\nerr\n", ""
		if !merge {
			want, werr = "out\n", "err\n"
		}
		if out := string(res.Stdout); !strings.HasPrefix(out, want+"net:") || strings.HasSuffix(out, ns+"\n") || string(res.Stderr) != werr || res.ExitCode != 0 {
			t.Errorf("launch %d: exit %d, output %q and %q", i, res.ExitCode, out, res.Stderr)
		}
		if b := res.Boundary; b.Level != sandbox.MediatedWrite || b.DirectWrite || !b.Namespaces || !b.NetworkOff {
			t.Errorf("launch %d: boundary %+v", i, b)
		}
		if n := children(t); n != 0 {
			t.Errorf("launch %d: %d processes are left", i, n)
		}
	}
}

// What does not fit is left alone and ended by Close: a launch with the host's
// network must not get a process without.
func TestSpareThatDoesNotFit(t *testing.T) {
	w := newWorld(t)
	s := w.spec("readlink /proc/self/ns/net")
	s.Network, s.Spare, s.Require = true, sandbox.NewSpare(w.caps), sandbox.Gated
	res := run(t, w.caps, s)
	ns, err := os.Readlink("/proc/self/ns/net")
	must(t, err)
	if string(res.Stdout) != ns+"\n" || res.Boundary.NetworkOff {
		t.Errorf("network namespace %q, boundary %+v; the host's is %q", res.Stdout, res.Boundary, ns)
	}
	p := w.plain("true")
	p.Spare = s.Spare
	if res := run(t, sandbox.Caps{}, p); res.Boundary.Namespaces {
		t.Errorf("a launch without namespaces: %+v", res.Boundary)
	}
	if n := children(t); n != 1 {
		t.Errorf("%d processes wait, want 1", n)
	}
	s.Spare.Close()
	s.Spare.Close()
	if n := children(t); n != 0 {
		t.Errorf("%d processes after Close", n)
	}
	w.fresh(t)
	s.Network, s.Require = false, sandbox.MediatedWrite
	if res := run(t, w.caps, s); res.ExitCode != 0 || !res.Boundary.NetworkOff {
		t.Errorf("after Close: exit %d, %+v", res.ExitCode, res.Boundary)
	}
}

// One that was killed while it waited fails the launch, and starts nothing.
func TestSpareThatDied(t *testing.T) {
	w := newWorld(t)
	s := w.spec("echo ran > f")
	s.Spare = sandbox.NewSpare(w.caps)
	defer s.Spare.Close()
	sandboxtest.Eventually(t, "the process waits", func() bool { return children(t) == 1 })
	names, _ := filepath.Glob("/proc/self/task/*/children")
	for _, n := range names {
		b, _ := os.ReadFile(n)
		for _, pid := range strings.Fields(string(b)) {
			var p int
			fmt.Sscan(pid, &p)
			if pr, err := os.FindProcess(p); err == nil {
				must(t, pr.Kill())
			}
		}
	}
	res, err := sandbox.Run(t.Context(), w.caps, s)
	if err == nil {
		t.Errorf("a dead process ran the command: %+v", res)
	}
	if _, err := os.Stat(filepath.Join(w.upper, "f")); err == nil {
		t.Error("the command ran")
	}
}

// On a machine without namespaces there is nothing to prepare.
func TestNoSpareWithoutNamespaces(t *testing.T) {
	s := sandbox.NewSpare(sandbox.Caps{})
	if s != nil {
		t.Error("a process was started")
	}
	s.Close()
}
