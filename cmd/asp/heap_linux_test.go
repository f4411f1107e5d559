package main

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"unsafe"
)

// TestHugeHeap: after a plan was announced the kernel is asked for huge pages under what
// is allocated next: a large part of it lies where it was asked. Looked at in a process
// of its own; whether there are any to be had is the machine's affair.
func TestHugeHeap(t *testing.T) {
	if plan, err := strconv.Atoi(os.Getenv("ASP_TEST_HEAP")); err == nil {
		var next [][]byte
		h := newHeap()
		// What is left of the piece that is mapped last is too little to pass for it.
		for at := uintptr(0); at%(4<<20) < 3<<20; {
			next = append(next, make([]byte, 16<<10))
			at = uintptr(unsafe.Pointer(unsafe.SliceData(next[len(next)-1])))
		}
		h.expect(plan)
		next = nil
		for range 384 {
			next = append(next, make([]byte, 16<<10))
		}
		n, err := advised(next)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("advised %d\n", n)
		return
	}
	if !hugeOnWish() {
		t.Skip("the kernel gives huge pages to everybody or to nobody")
	}
	for _, plan := range []int{mediumPlan - 1, mediumPlan, largePlan} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestHugeHeap$")
		cmd.Env = append(os.Environ(), "ASP_TEST_HEAP="+strconv.Itoa(plan), "GOGC=", "GOMEMLIMIT=")
		out, err := cmd.Output()
		n := -1
		_, _ = fmt.Sscanf(string(out), "advised %d", &n)
		if err != nil || n < 0 || (plan >= mediumPlan) != (n > 64) {
			t.Errorf("a plan of %d bytes: %d of 384 allocations after it are where huge pages were asked for (%v)", plan, n, err)
		}
	}
}

// advised is how many of the slices lie where huge pages were asked for.
func advised(bs [][]byte) (int, error) {
	b, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return 0, err
	}
	n := 0
	var from, to uintptr
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, "VmFlags:") && strings.Contains(line, " hg") {
			for _, b := range bs {
				if at := uintptr(unsafe.Pointer(unsafe.SliceData(b))); from <= at && at < to {
					n++
				}
			}
			continue
		}
		where, _, _ := strings.Cut(line, " ")
		lo, hi, mapping := strings.Cut(where, "-")
		a, err := strconv.ParseUint(lo, 16, 64)
		z, zerr := strconv.ParseUint(hi, 16, 64)
		if mapping && err == nil && zerr == nil {
			from, to = uintptr(a), uintptr(z)
		}
	}
	return n, nil
}
