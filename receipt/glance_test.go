package receipt_test

import (
	"strings"
	"testing"

	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/internal/vfs/faultfs"
	"github.com/aspengine/asp/internal/vfs/memfs"
	"github.com/aspengine/asp/receipt"
)

// A head that was glanced at is read once, and again as soon as somebody else has
// appended: the chain goes on after theirs.
func TestAHeadIsReadAgainWhenItIsAnother(t *testing.T) {
	fsys := faultfs.New(memfs.New(memfs.Options{}), nil)
	h, err := home.Open(fsys, "/home/u/.local/state/asp")
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	st, err := h.Workspace(home.Identity{Root: "/work"})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	open := func() *receipt.Store {
		s, err := receipt.Open(st, receipt.Options{Boot: "one"})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	ours, theirs := open(), open()
	fill(t, theirs, 0, 3)
	reads := func() (n int) {
		for _, e := range fsys.Events() {
			if e.Op == faultfs.Open && strings.Contains(e.String(), ".head.") {
				n++
			}
		}
		return n
	}
	look := func() int {
		before := reads()
		if _, err := ours.Lookup(ctx, "prov", "never"); err != nil {
			t.Fatal(err)
		}
		return reads() - before
	}
	if n := look(); n != 2 {
		t.Errorf("%d heads read at first, want both", n)
	}
	if n := look(); n != 0 {
		t.Errorf("%d heads read although both are the same files", n)
	}
	fill(t, theirs, 3, 1)
	if n := look(); n != 1 {
		t.Errorf("%d heads read after one was replaced", n)
	}
	fill(t, theirs, 4, 2)
	fill(t, ours, 6, 1)
	wantOK(t, ours, 7)
}
