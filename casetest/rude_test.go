//go:build linux

package casetest

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestCC01Rude runs plans against an editor that keeps no locks and saves all
// the time. The editor exchanges its file with the one in place and notes what
// it displaced; an applied plan displaces its basis, by its own word. So every
// text that was ever in place is accounted for, or a save was lost.
func TestCC01Rude(t *testing.T) {
	for _, mode := range []string{"journal", "exchange"} {
		t.Run(mode, func(t *testing.T) { rude(t, mode) })
	}
}

func rude(t *testing.T, mode string) {
	const plans = 30
	w := newWorld(t, map[string]string{"n.md": "start\n"})
	baseline := w.baselineNow()
	displaced, wrote := map[string]int{}, []string{"start\n"}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		beside := filepath.Join(w.base, "editor")
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(i%7) * 9 * time.Millisecond):
			}
			text := fmt.Sprintf("editor %d\n", i)
			err := os.WriteFile(beside, []byte(text), 0o644)
			if err == nil && w.cred != nil {
				err = os.Lchown(beside, int(w.cred.Uid), int(w.cred.Gid))
			}
			if err == nil {
				err = unix.Renameat2(unix.AT_FDCWD, beside, unix.AT_FDCWD, w.path("n.md"), unix.RENAME_EXCHANGE)
			}
			var was []byte
			if err == nil {
				was, err = os.ReadFile(beside)
			}
			if err != nil {
				t.Errorf("the editor: %v", err)
				return
			}
			wrote = append(wrote, text)
			displaced[string(was)]++
			if err := os.Remove(beside); err != nil {
				t.Errorf("the editor: %v", err)
			}
		}
	}()
	type outcome struct {
		after, basis string
		applied      bool
	}
	var outcomes []outcome
	for i := range plans {
		basis := w.read("n.md")
		o := outcome{after: fmt.Sprintf("plan %d\n", i), basis: basis}
		p := &plan{w: w, id: fmt.Sprintf("rude-%d", i), provider: "case", baseline: baseline}
		r := p.modify("n.md", basis, o.after).apply("--publish", mode)
		if o.applied = r.at("applied") == true; !o.applied {
			r.refusedAny([]string{"stale-basis", "changed-underneath"}, "n.md")
		}
		outcomes = append(outcomes, o)
	}
	close(stop)
	wg.Wait()
	final := w.read("n.md")
	won, passing := 0, 0
	for _, o := range outcomes {
		switch {
		case o.applied:
			won++
			displaced[o.basis]++
			wrote = append(wrote, o.after)
		case displaced[o.after] > 0:
			// In place for a moment, seen by the editor, and taken back: it stood for
			// the text that it had displaced.
			passing++
		case final == o.after:
			t.Errorf("a refused plan is in place: %q", final)
		}
	}
	lost := 0
	for _, text := range wrote {
		switch n := displaced[text]; {
		case n == 0 && text != final:
			lost++
		case n > 1:
			t.Errorf("%q was displaced %d times", text, n)
		}
	}
	t.Logf("%d of %d plans applied, %d passing, %d texts", won, plans, passing, len(wrote))
	if lost > passing {
		t.Errorf("%d saves are lost", lost)
	}
	w.clean()
}
