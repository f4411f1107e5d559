package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestHugeHeap: after a large plan was announced the kernel is asked for huge pages
// under the heap. Looked at in a process of its own; whether there are any to be had is
// the machine's affair.
func TestHugeHeap(t *testing.T) {
	if os.Getenv("ASP_TEST_HEAP") != "" {
		newHeap().expect(largePlan)
		b, err := os.ReadFile("/proc/self/smaps")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			if strings.HasPrefix(line, "VmFlags:") && strings.Contains(line, " hg") {
				os.Stdout.WriteString("advised\n")
				break
			}
		}
		return
	}
	if !hugeOnWish() {
		t.Skip("the kernel gives huge pages to everybody or to nobody")
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestHugeHeap$")
	cmd.Env = append(os.Environ(), "ASP_TEST_HEAP=1", "GOGC=", "GOMEMLIMIT=")
	out, err := cmd.Output()
	if err != nil || !strings.Contains(string(out), "advised\n") {
		t.Errorf("%v %q: nothing is advised", err, out)
	}
}
