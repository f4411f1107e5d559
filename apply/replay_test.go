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
	"github.com/aspengine/asp/receipt"
	"github.com/aspengine/asp/seam/wire"
	"github.com/aspengine/asp/snapshot"
)

func (b *bed) replay(id string) apply.Replay {
	b.t.Helper()
	r, err := b.open().Replay(context.Background(), id)
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

func has(list []string, want string) bool { return strings.Contains(strings.Join(list, "\n"), want) }

// Everything that an applied plan claims is derived again; then piece by piece
// what it needs goes, and the replay says what no longer can be.
func TestReplayOfAnAppliedPlan(t *testing.T) {
	b := newBed(t, passing, map[string]string{"a.txt": "one\n", "b.txt": "two\n", "c.txt": "three\n", "d.txt": "four\n"})
	a, err := b.apply(apply.Request{Load: plan("p1", func(*apply.View) []editplan.Draft {
		return []editplan.Draft{
			replace("a.txt", "one\n", "ONE\n"),
			{Kind: editplan.Create, Path: "new.txt", Content: []byte("new\n"), HasContent: true},
			{Kind: editplan.Rename, Path: "c.txt", To: "moved.txt", Expected: snapshot.DigestOf([]byte("three\n"))},
			{Kind: editplan.Delete, Path: "d.txt", Expected: snapshot.DigestOf([]byte("four\n"))},
		}
	})})
	if err != nil || !a.Result.Applied {
		t.Fatalf("%v %s", err, codes(a))
	}
	r := b.replay(a.Receipt)
	if !r.OK || len(r.Gone) > 0 || len(r.Differs) > 0 {
		t.Fatalf("%+v", r)
	}
	for _, want := range []string{"chain of receipts", "changeset digest sha256:", "after-state of 4 of 4 paths", "policy digest sha256:", "coverage: 1 required, 1 ran, 0 degraded", "decision allow, from 1 results (the receipt says allow)"} {
		if !has(r.Confirmed, want) {
			t.Errorf("%q is not confirmed: %q", want, r.Confirmed)
		}
	}
	// The edit is known by the kept difference, what was made because it was judged.
	b.write("a.txt", "later\n")
	b.write("new.txt", "later\n")
	if r = b.replay(a.Receipt); !r.OK || len(r.Gone) > 0 || !has(r.Confirmed, "after-state of 4 of 4 paths") {
		t.Errorf("%+v", r)
	}
	packs, err := filepath.Glob(b.home.Path("workspaces", "*", "judged", "*.pack"))
	if err != nil || len(packs) != 1 {
		t.Fatalf("%v %v", packs, err)
	}
	if err := os.Remove(packs[0]); err != nil {
		t.Fatal(err)
	}
	r = b.replay(a.Receipt)
	if !r.OK || !has(r.Gone, `"new.txt"`) || has(r.Gone, `"a.txt"`) || !has(r.Confirmed, "after-state of 3 of 4 paths") {
		t.Errorf("%+v", r)
	}
	files, err := filepath.Glob(b.home.Path("policies", "*.json"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v %v", files, err)
	}
	if err := os.WriteFile(files[0], []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r = b.replay(a.Receipt); r.OK || !has(r.Differs, "policy digest") {
		t.Errorf("a policy that was changed: %+v", r)
	}
	if err := os.Remove(files[0]); err != nil {
		t.Fatal(err)
	}
	if r = b.replay(a.Receipt); !r.OK || !has(r.Gone, "policy sha256:") {
		t.Errorf("a policy that is gone: %+v", r)
	}
	if _, err := b.open().Replay(context.Background(), "rcpt-none"); !errors.Is(err, receipt.ErrNoReceipt) {
		t.Errorf("no such receipt: %v", err)
	}
}

func TestReplayOfADenial(t *testing.T) {
	b := newBed(t, `{"checks":{"no":{"argv":["false"],"required":true}}}`, twoFiles)
	a, err := b.apply(apply.Request{Load: plan("p1", bothFiles), CallSite: wire.Interactive, Intent: wire.IntentUser})
	if err != nil || a.Result.Applied {
		t.Fatalf("%v %+v", err, a.Result)
	}
	r := b.replay(a.Receipt)
	if !r.OK || !has(r.Confirmed, "changeset digest") || !has(r.Confirmed, "decision deny, from 1 results (the receipt says deny)") {
		t.Errorf("%+v", r)
	}
	if !has(r.Confirmed, "after-state of 2 of 2 paths") || len(r.Gone) > 0 {
		t.Errorf("content that was refused: %+v", r)
	}
}

// An apply that nothing was required of has no policy kept for it; none is missing, and
// the replay does not say so.
func TestReplayWithoutChecks(t *testing.T) {
	b := newBed(t, "", twoFiles)
	a, err := b.apply(apply.Request{Load: plan("p1", bothFiles), CallSite: wire.Interactive, Intent: wire.IntentUser})
	if err != nil || !a.Result.Applied {
		t.Fatalf("%v %s", err, codes(a))
	}
	if r := b.replay(a.Receipt); !r.OK || !has(r.Gone, "it asked for nothing, and what asked for nothing is not kept") || has(r.Gone, "it is not kept") {
		t.Errorf("%+v", r)
	}
}

// A receipt without a decision is replayed as far as it goes.
func TestReplayOfAStatus(t *testing.T) {
	b := newBed(t, "", twoFiles)
	s, err := b.open().Status(context.Background(), apply.SurfaceRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if r := b.replay(s.Result.Receipt.ReceiptID); !r.OK || !has(r.Gone, "no changeset") || !has(r.Confirmed, "chain") {
		t.Errorf("%+v", r)
	}
}
