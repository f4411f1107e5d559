package hosttest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSessionsLeaveNothing: a host that served very many sessions has the descriptors
// and threads of one that served a few, also where providers were asked.
func TestSessionsLeaveNothing(t *testing.T) {
	w := newWorld(t, "", map[string]string{"a": "a\n"})
	w.enrol("p", []string{"check", "inspect"})
	s := w.serve()
	n := 150
	if os.Getenv("ASP_CRASH") == "long" {
		n = 1000
	}
	session := func(i int) {
		c := s.dial()
		defer c.close()
		switch i % 6 {
		case 0:
			c.good("host/status", obj{})
		case 1:
			c.start("host/status", obj{}) // and gone before the answer
		case 2:
			c.put(fmt.Sprint(i))
			c.good("shutdown", obj{})
			c.notify("exit", obj{})
			if _, err := c.in.ReadByte(); err == nil {
				t.Error("the session goes on after exit")
			}
		case 3:
			c.line([]byte(`{"half`))
		case 4:
			c.verdict(c.changes(c.baseline(), [3]string{"a", "a\n", fmt.Sprint(i)}), "")
		case 5: // gone while its provider is asked
			c.start("host/queryInspect", obj{"callSite": "gate", "request": obj{"method": "inspect/references", "params": obj{"symbol": obj{"id": "x"}}}})
		}
	}
	// Threads come and go with what blocks at once; what grows with the sessions is a leak.
	const spare, threads = 2, 8
	count := func(what string) int {
		// One status after the other: what came before has ended when the last is
		// answered, or ends without anybody's help.
		list, err := os.ReadDir(fmt.Sprintf("/proc/%d/%s", s.cmd.Process.Pid, what))
		must(t, err)
		return len(list)
	}
	for i := range 30 {
		session(i)
	}
	fds, tasks := count("fd"), count("task")
	for i := range n {
		session(i)
	}
	more := func() bool { return count("fd") > fds+spare || count("task") > tasks+threads }
	for i := 0; more() && i < 1000; i++ { // sessions end by themselves, a moment after their peer
		session(0)
	}
	if more() {
		t.Errorf("%d descriptors and %d threads after a few sessions, %d and %d after %d", fds, tasks, count("fd"), count("task"), n)
	}
	must(t, s.cmd.Process.Signal(os.Interrupt))
	s.wait()
	if code := s.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit status %d", code)
	}
	if _, err := os.Lstat(s.socket); !os.IsNotExist(err) {
		t.Errorf("the socket is left: %v", err)
	}
	nothingLeft(t, w)
}

// TestSocketOutlivesAKill: a socket that a killed host left is taken over; a live
// host's is not.
func TestSocketOutlivesAKill(t *testing.T) {
	w := newWorld(t, "", map[string]string{"a": "a\n"})
	s := w.serve()
	if code, _, errs := w.run("", "host", "serve", "--repo", w.root, "--socket", s.socket); code != 3 || !strings.Contains(errs, "another host") {
		t.Errorf("a second host: exit status %d, %s", code, errs)
	}
	c := s.dial()
	c.good("host/status", obj{})
	c.close()
	s.kill()
	if fi, err := os.Lstat(s.socket); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("after the kill: %v, %v", fi, err)
	}
	s = w.serve()
	c = s.dial()
	c.good("host/status", obj{})
	c.close()
}

// TestTrace: a transcript holds every message and no content of files, unless that is
// asked for too.
func TestTrace(t *testing.T) {
	w := newWorld(t, "", map[string]string{"a": "a\n"})
	for _, contents := range []bool{false, true} {
		file := filepath.Join(w.base, fmt.Sprintf("trace-%v", contents))
		env := []string{"ASP_TRACE=" + file}
		if contents {
			env = append(env, "ASP_TRACE_CONTENTS=1")
		}
		c := w.stdio(env...)
		c.put("a secret word\n")
		c.good("host/status", obj{})
		if code := c.exit(); code != 0 {
			t.Errorf("exit status %d", code)
		}
		b, err := os.ReadFile(file)
		must(t, err)
		if n := strings.Count(string(b), "\n"); n != 4 || !strings.Contains(string(b), `host/status`) {
			t.Errorf("%d lines: %.1000s", n, b)
		}
		// base64 of "a secret word\n"
		if strings.Contains(string(b), "YSBzZWNyZXQgd29yZAo=") != contents {
			t.Errorf("contents %v: %.1000s", contents, b)
		}
		if fi, err := os.Stat(file); err != nil || fi.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", fi.Mode(), err)
		}
	}
}
