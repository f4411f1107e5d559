package apply_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/aspengine/asp/apply"
	"github.com/aspengine/asp/editplan"
	"github.com/aspengine/asp/receipt"
	"github.com/aspengine/asp/snapshot"
)

// TestMovedBeforeItWasKept: the bytes that are read for keeping are no longer those that
// the plan was admitted over. That is a refusal, as it is at the swap, and no error.
func TestMovedBeforeItWasKept(t *testing.T) {
	old := snapshot.DigestOf([]byte("one\n"))
	remove := func(*apply.View) []editplan.Draft {
		return []editplan.Draft{{Kind: editplan.Delete, Path: "a.txt", Expected: old}}
	}
	rename := func(*apply.View) []editplan.Draft {
		return []editplan.Draft{{Kind: editplan.Rename, Path: "a.txt", To: "c.txt", Expected: old}}
	}
	for name, r := range map[string]apply.Request{
		"journal":  {Load: plan("p1", remove), Publish: apply.Journal},
		"index":    {Load: plan("p1", remove), Publish: apply.Journal, Index: true},
		"exchange": {Load: plan("p1", remove), Publish: apply.Exchange},
		"stage":    {Load: plan("p1", rename), Publish: apply.Stage},
	} {
		for now, bytes := range map[string]string{"longer": "stranger\n", "shorter": "1\n", "other": "two\n", "gone": "(absent)"} {
			t.Run(name+" "+now, func(t *testing.T) {
				b := newBed(t, "", twoFiles)
				b.hook = func(stage string) {
					if stage != "publishing" {
						return
					}
					if now != "gone" {
						b.write("a.txt", bytes)
					} else if err := os.Remove(filepath.Join(b.root, "a.txt")); err != nil {
						t.Error(err)
					}
				}
				a, err := b.apply(r)
				if err != nil {
					t.Fatal(err)
				}
				if codes(a) != "changed-underneath a.txt" || a.Outcome != receipt.Refused || a.Receipt == "" {
					t.Errorf("%s, receipt %q: %s", a.Outcome, a.Receipt, codes(a))
				}
				if got := b.read("a.txt"); got != bytes {
					t.Errorf("a.txt holds %q", got)
				}
				b.idle()
			})
		}
	}
}
