package casetest

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/aspengine/asp/internal/need"
	"golang.org/x/sys/unix"
)

// terminal is a pseudo terminal: the end for a process, and what it has said there.
// done waits for the rest, when nobody has the end for a process open any more.
func (w *world) terminal() (end *os.File, said *screen, done func()) {
	w.t.Helper()
	own, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		need.Missing(w.t, "there are no pseudo terminals: %v", err)
	}
	must(w.t, unix.IoctlSetPointerInt(int(own.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(own.Fd()), unix.TIOCGPTN)
	must(w.t, err)
	end, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	must(w.t, err)
	said = &screen{}
	over := make(chan struct{})
	go func() {
		defer close(over)
		buf := make([]byte, 4096)
		for {
			n, err := own.Read(buf)
			said.Write(buf[:n])
			if err != nil { // EIO: the other end is closed
				return
			}
		}
	}()
	return end, said, func() { <-over; own.Close() }
}

// TestColour: colour and the marks inside a line are for terminals that want them.
func TestColour(t *testing.T) {
	const escape = "\x1b["
	w := newWorld(t, map[string]string{"x": "one two\n"})
	file := w.plan().modify("x", "one two\n", "one three\n").file()
	args := []string{"apply", "--plan", file, "--dry-run"}
	for _, c := range []struct {
		env    string
		colour bool
	}{{"TERM=xterm", true}, {"NO_COLOR=", true}, {"NO_COLOR=1", false}, {"TERM=dumb", false}} {
		end, said, done := w.terminal()
		cmd := w.command(w.root, binary, args...)
		cmd.Env = append(cmd.Env, c.env)
		cmd.Stdout = end
		r := w.begin(cmd, args)()
		end.Close()
		done()
		if r.code != 0 || !strings.Contains(said.String(), "three") || strings.Contains(said.String(), escape) != c.colour {
			t.Errorf("%s: colour wanted: %v: %q, %s", c.env, c.colour, said, r)
		}
	}
	if r := w.run(args...); r.code != 0 || strings.Contains(string(r.out)+r.errs, escape) || !strings.Contains(string(r.out), "+one three") {
		t.Errorf("into a pipe: %s", r)
	}
}

// TestProgress: a step of more than a second is named, on a terminal. The step is a
// check that ends when the run is interrupted, so that nothing here depends on how
// long anything takes.
func TestProgress(t *testing.T) {
	need.UserNS(t)
	w := newWorld(t, map[string]string{"x": "x\n"})
	word := "the-check-of-progress"
	w.config(sleeper(word))
	file := w.plan().modify("x", "x\n", "y\n").file()
	args := []string{"apply", "--plan", file, "--check", "wait"}
	end, said, done := w.terminal()
	cmd := w.command(w.root, binary, args...)
	cmd.Stderr = end
	wait := w.begin(cmd, args)
	w.until("the step is named", said.has("running checks … 1s"))
	w.until("and goes on", said.has("running checks … 2s"))
	w.signal(file, syscall.SIGINT)
	r := wait()
	end.Close()
	done()
	if r.code != 3 || len(r.out) > 0 {
		t.Errorf("%s", r)
	}
	if i, j := strings.LastIndex(said.String(), "\r\x1b[K"), strings.Index(said.String(), "cancelled"); i < 0 || j < i {
		t.Errorf("the line is not taken away before the end is said: %q", said)
	}

	// Elsewhere nothing is said: the same for as long, with a pipe.
	piped := &screen{}
	w.stderr = piped
	running := w.start(w.root, nil, args...)
	end, said, done = w.terminal()
	cmd = w.command(w.root, binary, "apply", "--plan", w.plan().modify("x", "x\n", "z\n").file(), "--require-guarantee", "none")
	cmd.Stderr = end // waits for its turn, and says how long
	waiting := w.begin(cmd, nil)
	w.until("a clock runs beside it", said.has("waiting for the workspace … 2s"))
	w.signal(file, syscall.SIGINT)
	if r := running(); strings.Contains(r.errs, "…") || !strings.Contains(r.errs, "cancelled") {
		t.Errorf("%s", r)
	}
	if r := waiting(); r.code != 0 {
		t.Errorf("%s", r)
	}
	end.Close()
	done()
	w.clean()
}
