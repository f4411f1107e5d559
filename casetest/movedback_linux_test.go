package casetest

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/aspengine/asp/internal/need"
)

// TestMovedAndBack: while the second of two checks runs a file that the change does not
// touch takes another content, which the check sees, and takes its old one again. The
// state is the one of before at every look, and no verdict stands: an apply has both
// checks run again, and an evaluation says that it is stale.
func TestMovedAndBack(t *testing.T) {
	need.UserNS(t)
	setup := func(t *testing.T) (w *world, there func(), back func()) {
		w = newWorld(t, map[string]string{"x": "A\n", "y": "y\n", ".gitignore": "/seen\n"})
		word := filepath.Base(w.base)
		w.configure(obj{"checks": obj{
			"first": obj{"argv": []string{"true"}, "callSites": []string{"sweep"}},
			"second": obj{"argv": []string{"sh", "-c", `[ ! -e seen ] || exit 0; w=` + word + `
				sh -c "until grep -q B x; do sleep 0.01; done; : $w-there"; sh -c "until grep -q A x; do sleep 0.01; done; : $w-back"`},
				"callSites": []string{"sweep"}},
		}})
		there = func() {
			w.until("the second check waits for the other content", running(word+"-there"))
			w.write("x", "B\n", 0o644)
		}
		back = func() {
			w.until("the second check has seen it", running(word+"-back"))
			w.write("seen", "", 0o644)
			w.write("x", "A\n", 0o644)
		}
		return w, there, back
	}
	t.Run("apply", func(t *testing.T) {
		w, there, back := setup(t)
		run := w.start(w.root, nil, "apply", "--plan", w.plan().modify("y", "y\n", "Y\n").file(), "--check", "first", "--check", "second", "--json")
		there()
		back()
		r := run()
		r.applied()
		files, err := filepath.Glob(filepath.Join(w.asp, "workspaces", "*", "receipts", r.str("receipt", "receiptId")+".json"))
		if err != nil || len(files) != 1 {
			t.Fatalf("%q %v: %s", files, err, r)
		}
		b, err := os.ReadFile(files[0])
		must(t, err)
		if n := bytes.Count(b, []byte(`"runs":2`)); n != 2 {
			t.Errorf("%d checks ran twice, want both: %s", n, b)
		}
		w.is("x", "A\n")
		w.clean()
	})
	t.Run("evaluate", func(t *testing.T) {
		w, there, back := setup(t)
		w.write("y", "Y\n", 0o644)
		run := w.start(w.root, nil, "check", "--changed", "--check", "first", "--check", "second", "--json")
		there()
		back()
		if r := run(); r.str("hostDecision", "decision") != "indeterminate" {
			t.Errorf("want indeterminate: %s", r)
		}
		if r := w.run("check", "--changed", "--check", "first", "--check", "second", "--json"); r.str("hostDecision", "decision") != "allow" {
			t.Errorf("without it, want allow: %s", r)
		}
	})
}
