package casetest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestHalfMadeStateGoes: whatever was killed while it wrote a file of the state
// directory, a recovery removes the half-made one, in whichever directory it is, and
// so does the next writer of that directory.
func TestHalfMadeStateGoes(t *testing.T) {
	w := newWorld(t, map[string]string{"a": "0\n"})
	n := 0
	stage := func() []string {
		n++
		return []string{"apply", "--stage", "--json", "--plan", w.plan().modify("a", w.read("a"), fmt.Sprintf("%d\n", n)).file()}
	}
	check := func() []string {
		n++ // another baseline
		w.write("a", fmt.Sprintf("%d\n", n), 0o644)
		w.config(fmt.Sprintf(`{"checks":{"n%d":{"argv":["true"]}}}`, n)) // another policy
		return []string{"check", "--changed", "--call-site", "interactive", "--json"}
	}
	plan := func() []string {
		n++
		w.write("../p.diff", fmt.Sprintf("--- a/a\n+++ b/a\n@@ -1 +1 @@\n-%s+%d\n", w.read("a"), n), 0o644)
		return []string{"plan", "--patch", w.path("../p.diff"), "--json"}
	}
	tried := map[string]bool{}
	for _, args := range []func() []string{stage, check, plan} {
		args := args
		for _, l := range w.killedAt(0, args()...).lines {
			// A file gets its name by the rename of one that was made before.
			from, ok := strings.CutPrefix(l, "renameat2 "+w.asp)
			if !ok {
				continue
			}
			from, _, _ = strings.Cut(from, " ->")
			dir := filepath.Base(filepath.Dir(from)) // of all that are written alike one
			if len(dir) == 64 {
				dir = "workspace"
			}
			if tried[dir] && !longCrash() {
				continue
			}
			call := "renameat2 " + w.asp + filepath.Dir(from) + "/"
			tried[dir] = true
			for who, next := range map[string]func() []string{"recovery": func() []string { return []string{"recover", "--json"} }, "the next writer": args} {
				if run := w.killedBefore(call, args()...); !run.killed {
					t.Fatalf("%q never came", call)
				}
				if w.halfMade() == "" {
					t.Fatalf("killed before %q, and nothing is left: this tries nothing", call)
				}
				w.run(next()...)
				w.stateClean()
				if t.Failed() {
					t.Fatalf("killed before %q, then came %s", call, who)
				}
			}
		}
	}
	for _, dir := range []string{"workspace", "results", "staged", "proposals", "packs", "policies", "judged"} {
		if !tried[dir] {
			t.Errorf("no writer of %s was killed", dir)
		}
	}
}

// TestHalfMadeJudgedContent: whoever evaluates holds no lock, so what somebody else has
// half written of content that was judged stays for as long as he lives.
func TestHalfMadeJudgedContent(t *testing.T) {
	w := newWorld(t, map[string]string{"a": "0\n"})
	check := func(content string) {
		t.Helper()
		w.write("a", content, 0o644)
		w.run("check", "--changed").exits(0)
	}
	check("1\n")
	dirs, err := filepath.Glob(filepath.Join(w.asp, "workspaces/*/judged"))
	if err != nil || len(dirs) != 1 {
		t.Fatalf("%q %v", dirs, err)
	}
	file := filepath.Join(dirs[0], "other.part")
	must(t, os.WriteFile(file, nil, 0o600))
	w.own(file)
	writer, err := os.Open(file)
	must(t, err)
	must(t, syscall.Flock(int(writer.Fd()), syscall.LOCK_EX))
	check("2\n")
	if _, err := os.Lstat(file); err != nil {
		t.Errorf("a living writer's is gone: %v", err)
	}
	must(t, writer.Close())
	check("3\n")
	if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a dead writer's stays: %v", err)
	}
}

// TestReceiptOwed: the disk of the state directory is full from the commit record on.
// The change is live, the answer says so and that its receipt is not stored, and a
// recovery stores it.
func TestReceiptOwed(t *testing.T) {
	for _, how := range [][]string{nil, {"--publish", "exchange"}} {
		w := newWorld(t, map[string]string{"a": "old\n"})
		w.plan().modify("a", "old\n", "mid\n").apply().applied()
		p := w.plan().modify("a", "mid\n", "new\n")
		args := append([]string{"apply", "--plan", p.file(), "--json"}, how...)
		r := w.failingAt("/receipts.next", syscall.ENOSPC, args...)
		w.is("a", "new\n")
		r.applied().valid("outer-host.schema.json#/$defs/applyProposalResult")
		id, said := r.str("receipt", "receiptId"), r.str("assurance", "detail")
		if r.code != 0 || !strings.Contains(said, "not stored yet") || !strings.Contains(said, "no space left") || !strings.Contains(r.errs, "left for recovery") {
			t.Errorf("%v: %s", how, r.result)
		}
		for _, x := range w.receipts() {
			if x["receiptId"] == id {
				t.Fatalf("%v: the receipt is stored, so this tries nothing", how)
			}
		}
		if rec := w.run("recover", "--json"); rec.code != 0 || !strings.Contains(string(rec.out), `"completed"`) {
			t.Errorf("%v: %s", how, rec)
		}
		if again := w.run(args...).applied(); again.str("receipt", "receiptId") != id || strings.Contains(again.str("assurance", "detail"), "not stored") {
			t.Errorf("%v: the retry says %s", how, again)
		}
		w.clean()
		w.stateClean()
	}
}
