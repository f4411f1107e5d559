package casetest

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDamagedCommitRecord: the receipt of a change is stored, its commit record is
// damaged. What was acknowledged is not taken back: it is completed where everything is
// as the receipt says, and left to a person where it is not.
func TestDamagedCommitRecord(t *testing.T) {
	w := crashWorld(t, crashOld)
	p := crashPlan(w)
	p.id = crashID
	file := p.file()
	if !w.killedBefore("unlinkat "+w.path(".git/asp"), "apply", "--plan", file, "--json").killed {
		t.Fatal("survived")
	}
	names, err := filepath.Glob(w.path(".git/asp/*/journal"))
	if err != nil || len(names) != 1 {
		t.Fatal(names, err)
	}
	b, err := os.ReadFile(names[0])
	must(t, err)
	b[len(bytes.TrimRight(b, "\x00"))-1] ^= 1 // behind the record is room for a longer one
	must(t, os.WriteFile(names[0], b, 0o600))
	keep := w.keep()
	applied := func(t *testing.T, w *world) {
		t.Helper()
		all := w.receipts()
		again := w.run("apply", "--plan", file, "--json").applied()
		if now := w.receipts(); len(now) != len(all) {
			t.Errorf("a retry does not get the first answer: %s", again)
		}
		w.verifyReceipts()
	}
	t.Run("as the receipt says", func(t *testing.T) {
		w := w.as(t)
		keep.restore()
		w.run("recover").says(0, "completed", crashID)
		for p, x := range crashNew {
			w.is(p, x.data)
			w.perm(p, x.perm)
		}
		w.gone("c")
		w.gone("d")
		w.clean()
		applied(t, w)
		w.run("recover").says(0, "nothing to recover")
	})
	for _, side := range []string{"--keep-mine", "--keep-theirs"} {
		t.Run("edited since, "+side, func(t *testing.T) {
			w := w.as(t)
			keep.restore()
			w.write("a", "mine\n", 0o644)
			w.run("recover").says(4, "needs-attention", crashID, "a: the stored receipt says that the change was applied")
			w.is("a", "mine\n")
			w.is("f", "f new\n")
			r := w.run("recover", side).exits(0)
			if side == "--keep-mine" {
				w.is("a", "mine\n")
			} else {
				w.is("a", "a old\n")
			}
			_, id, _ := strings.Cut(r.errs, "recover --show ")
			kept := "a old\n"
			if side == "--keep-theirs" {
				kept = "mine\n"
			}
			if got := w.run("recover", "--show", strings.TrimSpace(id)); string(got.out) != kept {
				t.Errorf("what gave way is not kept: %s, %s", r, got)
			}
			w.is("f", "f new\n")
			w.is("e/d", "d\n")
			w.clean()
		})
	}
}
