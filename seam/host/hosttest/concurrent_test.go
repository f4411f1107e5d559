package hosttest

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// clients is how many harnesses share one workspace here.
const clients = 64

// TestFirstCommitterWins: all change the same file from the same state. One does,
// the others are told of the conflict, and what they brought is nowhere.
func TestFirstCommitterWins(t *testing.T) {
	w := newWorld(t, "", map[string]string{"a": "base\n"})
	s := w.serve()
	first := s.dial()
	base := first.baseline()
	first.close()
	answers := make([]answer, clients)
	together(clients, func(i int) {
		c := s.dial()
		defer c.close()
		after := fmt.Sprintf("client %d\n", i)
		c.put(after)
		answers[i] = c.good("host/applyProposal", applyParams(proposal(fmt.Sprintf("p%d", i), base, modify("a", "base\n", after))))
	})
	winner := -1
	for i, a := range answers {
		switch {
		case a.result["applied"] == true && winner < 0:
			winner = i
		case a.result["applied"] == true:
			t.Errorf("clients %d and %d both won", winner, i)
		case a.refused() != "conflict":
			t.Errorf("client %d: %.500s", i, a.raw)
		}
	}
	if got := w.read("a"); winner < 0 || got != fmt.Sprintf("client %d\n", winner) {
		t.Errorf("client %d won, a holds %q", winner, got)
	}
}

// together runs f in n goroutines that start at once.
func together(n int, f func(i int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() { <-start; f(i) })
	}
	close(start)
	wg.Wait()
}

// adders is less: every success makes all others try again.
const adders = 16

// TestNoLostUpdate: every client adds one to a counter, and tries again when
// another one was faster. A refusal says on which baseline.
func TestNoLostUpdate(t *testing.T) {
	w := newWorld(t, "", map[string]string{"n": "0\n"})
	s := w.serve()
	var mu sync.Mutex
	baselines := map[string]int{} // that a success started from
	together(adders, func(i int) {
		c := s.dial()
		defer c.close()
		base := c.baseline()
		for try := 0; ; try++ {
			before, err := os.ReadFile(w.root + "/n")
			if err != nil {
				t.Errorf("client %d: %v", i, err)
				return
			}
			n, err := strconv.Atoi(strings.TrimSpace(string(before)))
			if err != nil {
				t.Errorf("client %d reads %q", i, before)
				return
			}
			after := strconv.Itoa(n+1) + "\n"
			c.put(after)
			a := c.good("host/applyProposal", applyParams(proposal(fmt.Sprintf("c%d-%d", i, try), base, modify("n", string(before), after))))
			if a.result["applied"] != true {
				if r := a.refused(); r != "conflict" && r != "stale-baseline" {
					t.Errorf("client %d: %.500s", i, a.raw)
					return
				}
				base, _ = a.result["baselineBefore"].(obj)
				continue
			}
			b, _ := a.result["baselineBefore"].(obj)
			mu.Lock()
			baselines[fmt.Sprint(b["rev"], b["dirty"])]++
			mu.Unlock()
			return
		}
	})
	if got := w.read("n"); got != strconv.Itoa(adders)+"\n" {
		t.Errorf("%d clients added one, the counter is %q", adders, got)
	}
	// Serial order: no two successes started from the same state.
	for b, n := range baselines {
		if n != 1 {
			t.Errorf("%d successes from %s", n, b)
		}
	}
}

// TestOneAfterTheOther: changes that do not meet all succeed, each on the state that
// another one left.
func TestOneAfterTheOther(t *testing.T) {
	w := newWorld(t, "", map[string]string{"a": "a\n"})
	s := w.serve()
	probe := s.dial()
	base := probe.baseline()
	probe.close()
	answers := make([]answer, clients)
	together(clients, func(i int) {
		c := s.dial()
		defer c.close()
		content := fmt.Sprintf("%d\n", i)
		c.put(content)
		answers[i] = c.good("host/applyProposal", applyParams(proposal(fmt.Sprintf("p%d", i), base, create(fmt.Sprintf("d/%d", i), content))))
	})
	follows := map[string]string{}
	for i, a := range answers {
		if a.result["applied"] != true {
			t.Fatalf("client %d: %.500s", i, a.raw)
		}
		b, _ := a.result["baselineBefore"].(obj)
		n, _ := a.result["baselineAfter"].(obj)
		follows[fmt.Sprint(b["rev"], b["dirty"])] = fmt.Sprint(n["rev"], n["dirty"])
		if got := w.read(fmt.Sprintf("d/%d", i)); got != fmt.Sprintf("%d\n", i) {
			t.Errorf("d/%d holds %q", i, got)
		}
	}
	at := fmt.Sprint(base["rev"], base["dirty"])
	for range clients {
		at = follows[at]
	}
	c := s.dial()
	defer c.close()
	now := c.baseline()
	if want := fmt.Sprint(now["rev"], now["dirty"]); at != want || len(follows) != clients {
		t.Errorf("the successes form no chain to %s: %d links, end %q", want, len(follows), at)
	}
}

// TestPipelined: many requests on one connection, answered in any order.
func TestPipelined(t *testing.T) {
	w := newWorld(t, "", map[string]string{"a": "a\n"})
	c := w.stdio()
	base := c.baseline()
	const n = 100
	for i := range n {
		c.put(fmt.Sprintf("%d\n", i))
	}
	for i := range n {
		c.start("host/applyProposal", applyParams(proposal(fmt.Sprintf("p%d", i), base, create(fmt.Sprintf("d/%d", i), fmt.Sprintf("%d\n", i)))))
	}
	c.start("shutdown", obj{})
	c.notify("exit", obj{})
	seen := map[string]bool{}
	for range n + 1 {
		a := c.next()
		if a.err != nil || a.result != nil && a.result["applied"] != true {
			t.Errorf("%.500s", a.raw)
		}
		seen[fmt.Sprint(a.id)] = true
	}
	if len(seen) != n+1 {
		t.Errorf("%d different answers, want %d", len(seen), n+1)
	}
	if code := c.status(); code != 0 {
		t.Errorf("exit status %d", code)
	}
	for i := range n {
		if got := w.read(fmt.Sprintf("d/%d", i)); got != fmt.Sprintf("%d\n", i) {
			t.Errorf("d/%d holds %q", i, got)
		}
	}
}
