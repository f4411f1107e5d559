package sandbox

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/aspengine/asp/internal/need"
	"golang.org/x/sys/unix"
)

// TestArrange: whatever numbers the descriptors have in the parent, those of the child are the
// ones that were given, in their order, and stay open.
func TestArrange(t *testing.T) {
	for _, fds := range [][]int{{7, 8, 9}, {0, 1, 2}, {2, 1, 0}, {1, 2, 0}, {2, 2, 2}, {0, 0, 5, 3, 3}, {4, 3, 2, 1, 0}, {9, 0, 9, 1, 9}, {3, 4}} {
		table, stays := map[uintptr]int{}, map[uintptr]bool{}
		for _, fd := range fds {
			table[uintptr(fd)] = fd
		}
		for _, d := range arrange(fds) {
			if d[0] == d[1] {
				t.Fatalf("%v: %v is refused by the kernel", fds, d)
			}
			table[d[1]], stays[d[1]] = table[d[0]], d[2]&unix.O_CLOEXEC == 0
		}
		for i, fd := range fds {
			if table[uintptr(i)] != fd || !stays[uintptr(i)] {
				t.Errorf("%v: %d is %d, and stays: %v", fds, i, table[uintptr(i)], stays[uintptr(i)])
			}
			delete(stays, uintptr(i))
		}
		for at, open := range stays {
			if open {
				t.Errorf("%v: %d stays open", fds, at)
			}
		}
	}
}

// TestForkBorrowsMemory: what a child writes before it executes anything is in the parent's
// memory, where everybody else goes on: the parent allocates, collects garbage and starts more. Of
// the memory's properties none is the child's: it may be traced and read as before.
func TestForkBorrowsMemory(t *testing.T) {
	need.UserNS(t)
	before, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	caps := Probe(context.Background(), ProbeDirs{})
	stop := make(chan struct{})
	var noise, launches sync.WaitGroup
	noise.Go(func() {
		for kept := [][]byte(nil); ; kept = append(kept[max(0, len(kept)-8):], make([]byte, 1<<16)) {
			select {
			case <-stop:
				return
			default:
				runtime.GC()
			}
		}
	})
	for range 3 {
		launches.Go(func() {
			for range 3 {
				res, err := Run(context.Background(), caps, Spec{Argv: []string{"true"}, Dir: "/", Env: map[string]string{"PATH": os.Getenv("PATH")}, Require: Advisory})
				if err != nil || !res.Started || res.ExitCode != 0 {
					t.Errorf("%+v %v", res, err)
				}
			}
		})
	}
	launches.Wait()
	close(stop)
	noise.Wait()
	if n, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); n != before || err != nil {
		t.Errorf("dumpable: %d instead of %d, %v", n, before, err)
	}
}

// TestForkRefused: a step that fails is told, and no process is left.
func TestForkRefused(t *testing.T) {
	need.UserNS(t)
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	gone, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	files, ns := []*os.File{null, null, null}, launchNamespaces(true)
	for what, start := range map[string]func() (*os.Process, error){
		"clone":   func() (*os.Process, error) { return forkInto([]string{"x"}, nil, files, ns|unix.CLONE_FS, -1) },
		"clone3":  func() (*os.Process, error) { return forkInto([]string{"x"}, nil, files, ns, int(null.Fd())) },
		"inherit": func() (*os.Process, error) { return forkInto([]string{"x"}, nil, []*os.File{null, gone}, ns, -1) },
	} {
		p, err := start()
		var n unix.Errno
		if p != nil || !errors.As(err, &n) || what == "inherit" && (n != unix.EBADF || !strings.HasPrefix(err.Error(), what)) {
			t.Errorf("%s: %v %v", what, p, err)
		}
	}
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil); err != unix.ECHILD {
		t.Errorf("a process is left: %v", err)
	}
}

// A child that died before it was under any limit was not the command.
func TestBecame(t *testing.T) {
	for at := range stepNames {
		err := (&forked{said: &said{at: at}}).became()
		if (err == nil) != (at == stepLimit || at == stepExec) {
			t.Errorf("%s: %v", stepNames[at], err)
		}
	}
}
