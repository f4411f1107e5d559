package conformance

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/wire"
)

// TestHostileCrowd has ten hostile providers at work beside a good one: what the
// good one says still counts, within the budget that is set, and the memory of the
// host stays bounded although each may fill a line of 16 MiB.
func TestHostileCrowd(t *testing.T) {
	ctx := t.Context()
	tr := newTrial(t, "crowd")
	good := checker("good")
	su := setup{providers: []enrolled{good}}
	needs, orders := []demand{tr.checkNeed(checked, tr.pinOf(good))}, []string{"good=ok"}
	var optional []string
	for i, how := range []string{"endless", "over-limit", "hang", "callbacks", "flood", "huge-findings", "slow", "noise", "children", "endless"} {
		p := checker(fmt.Sprintf("h%d", i))
		p.End = []string{"", "ignore-eof", "ignore-term"}[i%3]
		su.providers = append(su.providers, p)
		id := "hostile-" + strconv.Itoa(i)
		needs, optional, orders = append(needs, tr.checkNeed(id, tr.pinOf(p))), append(optional, id), append(orders, p.ID+"="+how)
	}
	su.policy = everywhere(needs, []string{checked}, optional)
	s, err := tr.open(ctx, su)
	ok(t, err)
	_, err = s.evaluate(ctx, wire.Gate, "good=ok") // warm
	ok(t, err)
	rounds := 2
	if long() {
		rounds = 20
	}
	for range rounds {
		e, err := s.evaluateWith(ctx, wire.Gate, []canon.Member{member("timeoutMs", 6000)}, orders...)
		ok(t, err)
		tr.allowed(e)
	}
	if hwm := memory(t, s.cmd.Process.Pid); hwm > 200<<10 {
		t.Errorf("the host took %d MiB, want at most 200", hwm>>10)
	}
}

// descriptors counts what the descriptors of a process are.
func descriptors(t *testing.T, pid int) map[string]int {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	ok(t, err)
	out := map[string]int{}
	for _, e := range entries {
		if to, err := os.Readlink(dir + "/" + e.Name()); err == nil {
			kind, _, _ := strings.Cut(to, "[")
			out[kind]++
		}
	}
	return out
}

// memory is the most resident memory that a process had, in KiB.
func memory(t *testing.T, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	ok(t, err)
	for _, l := range strings.Split(string(b), "\n") {
		if rest, found := strings.CutPrefix(l, "VmHWM:"); found {
			n, err := strconv.Atoi(strings.Fields(rest)[0])
			ok(t, err)
			return n
		}
	}
	t.Fatal("no VmHWM")
	return 0
}

// TestManySessions starts and ends hosts, and one host many providers; nothing
// is left of either.
func TestManySessions(t *testing.T) {
	ctx := t.Context()
	tr := newTrial(t, "sessions")
	w, err := tr.world(ctx, tr.oneCheck(checker("one")))
	ok(t, err)
	n := 100
	if long() {
		n = 1000
	}
	for i := range n {
		s, err := w.serve()
		ok(t, err)
		if i%4 == 0 {
			e, err := s.evaluate(ctx, wire.Gate, "one="+[]string{"ok", "crash", "ok", "half-and-exit"}[i/4%4])
			ok(t, err)
			if i/4%2 == 0 {
				tr.allowed(e)
			}
		} else {
			_, err := s.baseline(ctx)
			ok(t, err)
		}
		s.finish()
		tr.sessions = tr.sessions[:0]
		if left := w.leftovers(); len(left) > 0 {
			t.Fatalf("after session %d: %q", i, left)
		}
	}
	s, err := w.serve()
	ok(t, err)
	count := func() int {
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.cmd.Process.Pid))
		ok(t, err)
		return len(entries)
	}
	first := 0
	for i := range n / 4 {
		for _, how := range []string{"crash", "ok"} {
			_, err := s.evaluate(ctx, wire.Gate, "one="+how)
			ok(t, err)
		}
		if i == 2 {
			first = count()
		}
	}
	if last := count(); last > first+2 {
		t.Errorf("%d descriptors after a few launches, %d after many: %v", first, last, descriptors(t, s.cmd.Process.Pid))
	}
}
