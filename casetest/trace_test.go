package casetest

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"time"
)

// trace is one run of the binary under the tracer.
type trace struct {
	*result
	lines  []string
	killed bool
}

// traced prepares a run under the tracer; the function returned waits for it.
func (w *world) traced(flags []string, args ...string) func() *trace {
	w.t.Helper()
	self, err := os.Executable()
	must(w.t, err)
	report := filepath.Join(w.base, "trace")
	_ = os.Remove(report)
	argv := append([]string{tracerWord, "-report", report}, flags...)
	if w.cred != nil {
		argv = append(argv, "-uid", fmt.Sprint(w.cred.Uid))
	}
	cmd := exec.Command(self, append(append(argv, "--"), w.argv(args)...)...)
	cmd.Dir, cmd.Env = w.root, append(w.cleanEnv(), w.env...)
	wait := w.begin(cmd, args)
	return func() *trace {
		w.t.Helper()
		t := &trace{result: wait()}
		b, err := os.ReadFile(report)
		if err != nil {
			w.t.Fatalf("no trace: %s", t.result)
		}
		s := bufio.NewScanner(bytes.NewReader(b))
		for s.Scan() {
			t.lines = append(t.lines, s.Text())
		}
		t.killed = t.code == 128+int(syscall.SIGKILL)
		return t
	}
}

// killedAt runs the binary and kills it before its n-th change of the disk; 0 is
// never.
func (w *world) killedAt(n int, args ...string) *trace {
	w.t.Helper()
	return w.traced([]string{"-kill", fmt.Sprint(n)}, args...)()
}

// failedAt runs the binary and lets its n-th change of the disk fail.
func (w *world) failedAt(n int, errno syscall.Errno, args ...string) *trace {
	w.t.Helper()
	return w.traced([]string{"-fail", fmt.Sprint(n), "-errno", fmt.Sprint(int(errno))}, args...)()
}

// failingAt runs the binary and lets each change of the disk fail whose line holds call.
func (w *world) failingAt(call string, errno syscall.Errno, args ...string) *trace {
	w.t.Helper()
	return w.traced([]string{"-failat", regexp.QuoteMeta(call), "-errno", fmt.Sprint(int(errno))}, args...)()
}

// failingNth runs the binary and lets the n-th change of the disk fail whose line matches.
func (w *world) failingNth(n int, call *regexp.Regexp, errno syscall.Errno, args ...string) *trace {
	w.t.Helper()
	return w.traced([]string{"-failat", call.String(), "-nth", fmt.Sprint(n), "-errno", fmt.Sprint(int(errno))}, args...)()
}

// killedBefore runs the binary and kills it before the first change of the disk
// whose line holds call.
func (w *world) killedBefore(call string, args ...string) *trace {
	w.t.Helper()
	return w.traced([]string{"-killat", call}, args...)()
}

// heldAt runs the binary until the first change of the disk whose line holds
// call, lets the test meddle, and goes on. It fails if the call never came.
func (w *world) heldAt(call string, meddle func(), args ...string) *trace {
	w.t.Helper()
	held := filepath.Join(w.base, "held")
	wait := w.traced([]string{"-pause", call, "-held", held}, args...)
	done := make(chan *trace, 1)
	go func() { done <- wait() }()
	for {
		select {
		case t := <-done:
			w.t.Fatalf("the run never came to %q: %s", call, t.result)
		case <-time.After(time.Millisecond):
		}
		if _, err := os.Stat(held); err == nil {
			break
		}
	}
	meddle()
	must(w.t, os.Remove(held))
	return <-done
}
