package apply_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aspengine/asp/apply"
	"github.com/aspengine/asp/editplan"
	"github.com/aspengine/asp/internal/lock"
	"github.com/aspengine/asp/seam/wire"
	"github.com/aspengine/asp/snapshot"
)

// TestExchangeInGit: after an exchange the index is the same file with the same
// bytes, the repository is whole, git sees the plan's changes and no others, and
// an ignored or hidden file is where it was; in a linked worktree too.
// TestExchangeLocksTheNewTree: from the exchange on the new tree is under the name of
// the workspace, and whoever comes by that name meets a lock, with another state
// directory too.
func TestExchangeLocksTheNewTree(t *testing.T) {
	b := newBed(t, "", twoFiles)
	tried := 0
	b.hook = func(stage string) {
		if stage != "compare what was displaced" && stage != "clean up" {
			return
		}
		tried++
		l, err := lock.TryAcquire(t.Context(), filepath.Join(b.root, ".git"), filepath.Join(t.TempDir(), "queue"))
		if !errors.Is(err, lock.ErrBusy) {
			t.Errorf("%s: the new tree is not locked: %v", stage, err)
		}
		if err == nil {
			l.Unlock()
		}
	}
	a, err := b.apply(apply.Request{Load: plan("p1", bothFiles), Publish: apply.Exchange})
	if err != nil || !a.Result.Applied || tried < 2 {
		t.Fatalf("%v %s, tried %d times", err, codes(a), tried)
	}
}

func TestExchangeInGit(t *testing.T) {
	for _, linked := range []bool{false, true} {
		b := newBed(t, "", map[string]string{"a.txt": "one\n", "b.txt": "two\n", "deep/er/c": "c\n", ".gitignore": "ign\n"})
		main := b.root
		if linked {
			b.root = filepath.Join(filepath.Dir(main), "linked")
			wt := b.root
			b.root = main
			b.git("worktree", "add", "-q", "-b", "side", wt)
			b.root = wt
		}
		b.write("ign", "ignored\n")
		b.write("b.txt", "two, edited\n") // unstaged
		b.git("add", "b.txt")
		b.write(".hidden/x", "untracked\n")
		index := strings.TrimSpace(b.git("rev-parse", "--path-format=absolute", "--git-path", "index"))
		before, err := os.ReadFile(index)
		if err != nil {
			t.Fatal(err)
		}
		was := b.git("status", "--porcelain")
		before2, _ := os.ReadFile(index) // git refreshes it on its own
		a, err := b.apply(apply.Request{Load: plan("p1", func(*apply.View) []editplan.Draft {
			return []editplan.Draft{replace("a.txt", "one\n", "ONE\n"), {Kind: editplan.Delete, Path: "deep/er/c", Expected: snapshot.DigestOf([]byte("c\n"))}}
		}), Publish: apply.Exchange})
		if err != nil || a.Result == nil || !a.Result.Applied || len(a.Notes) > 0 {
			t.Fatalf("linked %v: %v %s %v", linked, err, codes(a), a.Notes)
		}
		after, err := os.ReadFile(index)
		if err != nil || string(after) != string(before) && string(after) != string(before2) {
			t.Errorf("linked %v: the index changed, %v", linked, err)
		}
		want := " M a.txt\n" + strings.Replace(was, "M  b.txt\n", "M  b.txt\n D deep/er/c\n", 1)
		if now := b.git("status", "--porcelain"); now != want {
			t.Errorf("linked %v: status\n%s, expected\n%s", linked, now, want)
		}
		b.git("fsck", "--strict")
		if b.read("ign") != "ignored\n" || b.read(".hidden/x") != "untracked\n" || b.read("b.txt") != "two, edited\n" || b.read("a.txt") != "ONE\n" {
			t.Error("a bystander is not as it was")
		}
		if _, err := os.Lstat(filepath.Join(b.root, "deep")); err == nil {
			t.Error("an emptied directory stays")
		}
		// And back, in the same mode and in the other one.
		b.git("-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-qam", "x")
		for _, mode := range []apply.Publish{apply.Journal, apply.Exchange} {
			cur := b.read("a.txt")
			a, err := b.apply(apply.Request{Load: plan("q"+mode.String(), func(*apply.View) []editplan.Draft {
				return []editplan.Draft{replace("a.txt", cur, cur+"more\n")}
			}), Publish: mode})
			if err != nil || !a.Result.Applied {
				t.Fatalf("linked %v, %v: %v %s", linked, mode, err, codes(a))
			}
		}
		b.git("fsck", "--strict")
		if linked {
			es, err := os.ReadDir(filepath.Dir(main))
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range es {
				if strings.HasPrefix(x.Name(), ".") {
					t.Errorf("%s is left", x.Name())
				}
			}
			continue
		}
		b.idle()
	}
}

// TestEngineOfAnotherTree: an engine that was opened before somebody else's
// exchange, or that made one itself, works in the tree that is there.
func TestEngineOfAnotherTree(t *testing.T) {
	b := newBed(t, "", twoFiles)
	early, maker := b.open(), b.open()
	step := 0
	apply1 := func(e *apply.Engine, mode apply.Publish, index bool) {
		t.Helper()
		step++
		b.git("add", "-A")
		old := b.read("a.txt")
		next := strings.Repeat("x", step) + "\n"
		a, err := e.Apply(context.Background(), apply.Request{
			Load: plan("p"+next, func(*apply.View) []editplan.Draft {
				return []editplan.Draft{replace("a.txt", old, next), {Kind: editplan.Create, Path: "new" + next[:step], Content: []byte("n\n"), HasContent: true}}
			}),
			CallSite: wire.Interactive, Intent: wire.IntentUser, Publish: mode, Index: index,
		})
		if err != nil || a.Result == nil || !a.Result.Applied || len(a.Notes) > 0 {
			t.Fatalf("step %d: %v %s %v", step, err, codes(a), a.Notes)
		}
		if b.read("a.txt") != next || b.read("new"+next[:step]) != "n\n" {
			t.Fatalf("step %d: it is not in the tree", step)
		}
	}
	apply1(maker, apply.Exchange, false)
	apply1(early, apply.Journal, true)
	apply1(maker, apply.Exchange, false)
	apply1(maker, apply.Journal, true)
	apply1(early, apply.Exchange, false)
	b.git("fsck", "--strict")
	b.idle()
}
