package main

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestHugeHeap: after a large plan was announced the memory that it takes comes by
// huge pages. Page faults are counted in a process of its own.
func TestHugeHeap(t *testing.T) {
	const pages = 6000
	if os.Getenv("ASP_TEST_HEAP") != "" {
		newHeap().expect(largePlan)
		faults := func() int64 {
			var r unix.Rusage
			if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
				t.Fatal(err)
			}
			return r.Minflt
		}
		var kept [][]byte
		before := faults()
		for range pages {
			b := make([]byte, 4096)
			b[0] = 1
			kept = append(kept, b)
		}
		os.Stdout.WriteString("faults " + strconv.FormatInt(faults()-before, 10) + " of " + strconv.Itoa(len(kept)) + "\n")
		return
	}
	if !hugeOnWish() {
		t.Skip("the kernel gives huge pages to everybody or to nobody")
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestHugeHeap$")
	cmd.Env = append(os.Environ(), "ASP_TEST_HEAP=1", "GOGC=", "GOMEMLIMIT=")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(out), "faults ")
	n, err := strconv.Atoi(strings.Fields(text + " ?")[0])
	if err != nil || n > pages/2 {
		t.Errorf("%q: want at most a fault for every second page", out)
	}
}
