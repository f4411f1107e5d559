package casetest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aspengine/asp/internal/need"
	"golang.org/x/sys/unix"
)

// until waits for something that another process does, and fails when it never
// comes.
func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); runtime.Gosched() {
		if time.Now().After(end) {
			w.t.Fatalf("never came true: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// screen is what a process has said so far.
type screen struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func (s *screen) has(word string) func() bool {
	return func() bool { return strings.Contains(s.String(), word) }
}

// signal sends a signal to the one run of the binary that has word in its command
// line.
func (w *world) signal(word string, sig syscall.Signal) {
	w.t.Helper()
	var pids []int
	dirs, err := filepath.Glob("/proc/[0-9]*")
	must(w.t, err)
	for _, d := range dirs {
		exe, _ := os.Readlink(d + "/exe")
		line, _ := os.ReadFile(d + "/cmdline")
		// The binary is the parent of the processes that it starts by itself.
		if exe == binary && bytes.Contains(line, []byte(word)) && bytes.Contains(line, []byte("\x00apply\x00")) {
			pid, _ := strconv.Atoi(filepath.Base(d))
			pids = append(pids, pid)
		}
	}
	if len(pids) != 1 {
		w.t.Fatalf("%d runs of %s with %q: %v", len(pids), binary, word, pids)
	}
	must(w.t, syscall.Kill(pids[0], sig))
}

// cancelled fails unless the run ended as one that was cancelled, with a receipt that
// says so and claims nothing.
func (w *world) cancelled(r *result) {
	w.t.Helper()
	if r.code != 3 || fmt.Sprint(r.at("error", "code")) != "-32016" || strings.Contains(r.errs+string(r.out), "context canceled") {
		w.t.Fatalf("want cancelled: %s", r)
	}
	detail := r.str("error", "data", "detail")
	for _, x := range w.receipts() {
		if strings.Contains(detail, fmt.Sprint(x["receiptId"])) {
			if x["outcome"] != "cancelled" {
				w.t.Errorf("the receipt's outcome is %v", x["outcome"])
			}
			return
		}
	}
	w.t.Errorf("no receipt: %s", r)
}

// sleeper is the configuration of a check that does not end by itself; its process
// is known by word.
func sleeper(word string) string {
	return `{"checks":{"wait":{"argv":["sh","-c","sleep 100000; : ` + word + `"],"callSites":["sweep"]}}}`
}

// running tells whether a process with word in its command line exists.
func running(word string) func() bool {
	return func() bool {
		files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, f := range files {
			if b, err := os.ReadFile(f); err == nil && bytes.HasPrefix(b, []byte("sh\x00-c\x00")) && bytes.Contains(b, []byte(word)) {
				return true
			}
		}
		return false
	}
}

// TestInterrupt sends the signals of a person who presses Ctrl-C, at every place
// where a run may wait.
func TestInterrupt(t *testing.T) {
	// word is in the command line of one check only: the name of its world.
	word := func(w *world) string { return filepath.Base(w.base) + "-check" }

	t.Run("while a check runs, and while another waits for its turn", func(t *testing.T) {
		need.UserNS(t)
		w := newWorld(t, map[string]string{"x": "x\n"})
		w.config(sleeper(word(w)))
		first, second := w.plan().modify("x", "x\n", "first\n").file(), w.plan().modify("x", "x\n", "second\n").file()
		m := w.mark()
		checking := w.start(w.root, nil, "apply", "--plan", first, "--check", "wait", "--json")
		w.until("the check runs", running(word(w)))
		waiting := w.start(w.root, nil, "apply", "--plan", second, "--json")
		w.until("the second waits in the queue", func() bool { return w.queued() })
		w.signal(second, syscall.SIGINT)
		r := waiting()
		if r.code != 3 || fmt.Sprint(r.at("error", "code")) != "-32016" || strings.Contains(r.errs+string(r.out), "context") {
			t.Errorf("want cancelled: %s", r)
		}
		if !running(word(w))() {
			t.Error("the first run was ended too")
		}
		w.signal(first, syscall.SIGTERM)
		w.cancelled(checking())
		if running(word(w))() {
			t.Error("the check outlives the run")
		}
		m.unchanged()
		w.run("apply", "--plan", second, "--json").applied()
		w.is("x", "second\n")
		w.clean()
	})
	for name, twice := range map[string]bool{"between the first swap and the decision": false, "a second time": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, map[string]string{"x": "x\n", "y": "y\n"})
			said := &screen{}
			w.stderr = said
			file := w.plan().modify("x", "x\n", "X\n").modify("y", "y\n", "Y\n").file()
			m := w.mark()
			run := w.heldAt("/ws/repo/y flags 2", func() {
				w.signal(file, syscall.SIGINT)
				// What is heard before anything is told is no second wish.
				w.signal(file, syscall.SIGTERM)
				w.until("the run has heard it", func() bool { return said.has("interrupt again")() || said.has("ended at once")() })
				if said.has("ended at once")() {
					t.Error("two signals in a row ended the run")
				}
				if twice {
					w.signal(file, syscall.SIGINT)
					w.until("the run ends", said.has("ended at once; `asp recover`"))
				}
			}, "apply", "--plan", file, "--json")
			if !twice {
				w.cancelled(run.result)
			} else if r := w.run("recover", "--json"); run.code != 3 || r.code != 0 || !strings.Contains(string(r.out), `"rolled-back"`) {
				t.Errorf("want exit status 3: %s, and then: %s", run.result, r)
			}
			m.rolledBack("x", "y")
			w.clean()
		})
	}
	t.Run("while the plan is read", func(t *testing.T) {
		w := newWorld(t, map[string]string{"x": "x\n"})
		m := w.mark()
		from, to, err := os.Pipe()
		must(t, err)
		defer to.Close()
		args := []string{"apply", "--patch", "-", "--repo", w.root, "--json"}
		cmd := w.command(w.root, binary, args...)
		cmd.Stdin = from
		wait := w.begin(cmd, args)
		from.Close()
		_, err = to.WriteString("x")
		must(t, err)
		w.until("the run reads", func() bool {
			n, err := unix.IoctlGetInt(int(to.Fd()), unix.TIOCINQ)
			return err == nil && n == 0
		})
		w.signal(w.root, syscall.SIGINT)
		if r := wait(); r.code != 3 || fmt.Sprint(r.at("error", "code")) != "-32016" || r.errs != "asp: cancelled\n" || strings.Contains(string(r.out), "context") {
			t.Errorf("want cancelled: %s", r)
		}
		m.unchanged()
		w.clean()
	})
}

// TestClosedOutput closes what the answer goes to. What was to be shown before the
// write stops it; a lost answer does not undo what is done, and is no success.
func TestClosedOutput(t *testing.T) {
	for _, c := range []struct {
		name    string
		flags   []string
		to      func(w *world) *os.File
		applied bool
	}{
		{"a pipe that nobody reads, the diff first", []string{"--diff"}, closedPipe, false},
		{"a pipe that nobody reads", nil, closedPipe, true},
		{"a full disk, the diff first", []string{"--diff"}, fullDisk, false},
		{"a full disk", nil, fullDisk, true},
		{"a full disk and --json", []string{"--json"}, fullDisk, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, map[string]string{"x": "x\n"})
			args := append([]string{"apply", "--plan", w.plan().modify("x", "x\n", "y\n").file()}, c.flags...)
			m := w.mark()
			cmd := w.command(w.root, binary, args...)
			out := c.to(w)
			defer out.Close()
			cmd.Stdout = out
			r := w.begin(cmd, args)()
			if r.code != 3 || !strings.Contains(r.errs, "could not be written") {
				t.Errorf("%s", r)
			}
			if c.applied {
				w.is("x", "y\n")
			} else {
				m.unchanged()
			}
			w.clean()
		})
	}
	for _, args := range [][]string{{"--version"}, {"--help"}, {"apply", "--help"}, {"status"}, {"schema"}, {"receipts", "list", "--json"}} {
		w := newWorld(t, nil)
		cmd := w.command(w.root, binary, args...)
		out := fullDisk(w)
		cmd.Stdout = out
		if r := w.begin(cmd, args)(); r.code != 3 {
			t.Errorf("onto a full disk: %s", r)
		}
		cmd = w.command(w.root, binary, args...)
		pipe := closedPipe(w)
		cmd.Stdout = pipe
		if r := w.begin(cmd, args)(); r.code != 141 && r.code != -1 || r.errs != "" { // -1: of the signal itself
			t.Errorf("to a reader who has had enough: %s", r)
		}
		pipe.Close()
		out.Close()
	}
}

func closedPipe(w *world) *os.File {
	from, to, err := os.Pipe()
	must(w.t, err)
	from.Close()
	return to
}

func fullDisk(w *world) *os.File {
	f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	must(w.t, err)
	return f
}

// queued tells whether somebody waits for the workspace's lock.
func (w *world) queued() bool {
	names, _ := filepath.Glob(filepath.Join(w.asp, "workspaces", "*", "queue"))
	for _, n := range names {
		f, err := os.Open(n)
		if err != nil {
			continue
		}
		defer f.Close()
		b, _ := os.ReadFile("/proc/locks")
		fi, err := f.Stat()
		if err == nil && strings.Count(string(b), fmt.Sprintf(":%d ", fi.Sys().(*syscall.Stat_t).Ino)) > 1 {
			return true
		}
	}
	return false
}
