package casetest

import (
	"fmt"
	"sync"
	"testing"
)

// TestConcurrent: many processes at once; one transaction at a time, the first
// wins, no update is lost.
func TestConcurrent(t *testing.T) {
	const writers = 24
	all := func(w *world, ps []*plan, flags ...string) []*result {
		out := make([]*result, len(ps))
		files := make([]string, len(ps))
		for i, p := range ps {
			files[i] = p.file()
		}
		var wg sync.WaitGroup
		for i := range ps {
			wait := w.start(w.root, nil, append([]string{"apply", "--plan", files[i], "--json"}, flags...)...)
			wg.Add(1)
			go func() { defer wg.Done(); out[i] = wait() }()
		}
		wg.Wait()
		return out
	}
	t.Run("disjoint", func(t *testing.T) {
		files := map[string]string{}
		for i := range writers {
			files[fmt.Sprintf("f%02d", i)] = "old\n"
		}
		w := newWorld(t, files)
		var ps []*plan
		for i := range writers {
			ps = append(ps, w.plan().modify(fmt.Sprintf("f%02d", i), "old\n", fmt.Sprintf("new %d\n", i)).create(fmt.Sprintf("d/%02d", i), "n\n"))
		}
		for i, r := range all(w, ps) {
			r.applied()
			w.is(fmt.Sprintf("f%02d", i), fmt.Sprintf("new %d\n", i))
			w.is(fmt.Sprintf("d/%02d", i), "n\n")
		}
		w.clean()
	})
	t.Run("colliding", func(t *testing.T) {
		w := newWorld(t, map[string]string{"hot": "0\n", "side": "s\n"})
		var ps []*plan
		for i := range writers {
			ps = append(ps, w.plan().modify("hot", "0\n", fmt.Sprintf("by %d\n", i)).create(fmt.Sprintf("mine%02d", i), "n\n"))
		}
		winner := -1
		for i, r := range all(w, ps) {
			if r.at("applied") == true {
				if winner >= 0 {
					t.Errorf("%d and %d both won", winner, i)
				}
				winner = i
				continue
			}
			r.refusedAny([]string{"stale-basis", "changed-underneath"}, "hot")
			w.gone(fmt.Sprintf("mine%02d", i))
		}
		if winner < 0 {
			t.Fatal("nobody won")
		}
		w.is("hot", fmt.Sprintf("by %d\n", winner))
		w.is(fmt.Sprintf("mine%02d", winner), "n\n")
		w.clean()
	})
	t.Run("the same plan", func(t *testing.T) {
		w := newWorld(t, map[string]string{"x": "x\n"})
		p := w.plan().modify("x", "x\n", "y\n")
		var ps []*plan
		for range writers {
			ps = append(ps, p)
		}
		rs := all(w, ps)
		for _, r := range rs {
			if r.applied(); string(r.out) != string(rs[0].out) {
				t.Errorf("two answers:\n%s\n%s", r.out, rs[0].out)
			}
		}
		applied := 0
		for _, x := range w.receipts() {
			if x["outcome"] == "applied" {
				applied++
			}
		}
		if applied != 1 {
			t.Errorf("%d receipts of one plan", applied)
		}
	})
	t.Run("counting", func(t *testing.T) {
		// Everybody adds a line and tries again when somebody was faster.
		w := newWorld(t, map[string]string{"n": ""})
		const each, n = 4, 6
		var wg sync.WaitGroup
		var mu sync.Mutex // plans are numbered by the world
		for range n {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for done := 0; done < each; {
					mu.Lock()
					old := w.read("n")
					p := w.plan().modify("n", old, old+"line\n")
					file := p.file()
					mu.Unlock()
					if r := w.run("apply", "--plan", file, "--json"); r.at("applied") == true {
						done++
					}
				}
			}()
		}
		wg.Wait()
		if got := w.read("n"); len(got) != each*n*len("line\n") {
			t.Errorf("%d lines, want %d", len(got)/5, each*n)
		}
	})
}
