package apply_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aspengine/asp/apply"
	"github.com/aspengine/asp/editplan"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/internal/vfs/faultfs"
	"github.com/aspengine/asp/receipt"
	"github.com/aspengine/asp/seam/wire"
)

// stateFiles are the files below the state directory by their names; the queue
// and the cache of digests are not among them, which nothing rests on.
func stateFiles(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == "queue" || d.Name() == "statcache" {
			return err
		}
		b, err := os.ReadFile(p)
		rel, _ := filepath.Rel(dir, p)
		out[rel] = b
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestTornReceipt: the power goes after the decision and before the barrier of
// the receipt. Of each file that its append touched the disk has the old state,
// the new one, or a name without bytes. Recovery ends the transaction in every
// combination, with exactly one receipt of it.
//
// The same without another boot: a disk that was pulled out and put back. Then a
// receipt that is missing altogether is one that somebody removed, and those
// combinations are left out.
func TestTornReceipt(t *testing.T) {
	for _, before := range []int{0, 1, 2} { // receipts before the one that is torn
		for _, boot := range []string{"same", "another"} {
			t.Run(fmt.Sprintf("%d before, %s boot", before, boot), func(t *testing.T) { tornReceipts(t, before, boot == "another") })
		}
	}
}

func tornReceipts(t *testing.T, before int, booted bool) {
	b := newPlainBed(t, t.TempDir())
	for i := range before {
		err := b.with(vfs.OS{}, vfs.OS{}, func(e *apply.Engine) error {
			_, err := e.Apply(context.Background(), apply.Request{CallSite: wire.Interactive, Intent: wire.IntentUser,
				Load: plan(fmt.Sprintf("earlier-%d", i), func(*apply.View) []editplan.Draft {
					return []editplan.Draft{{Kind: editplan.Create, Path: fmt.Sprintf("earlier-%d", i), Content: []byte("x\n"), HasContent: true}}
				})})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	home := filepath.Join(b.dir, "home")
	old := stateFiles(t, home)
	// Dies at the barrier of the receipt.
	placed := false
	ff := faultfs.New(vfs.OS{}, func(e faultfs.Event) faultfs.Fault {
		placed = placed || e.Op == faultfs.Link
		if placed && e.Op.IsSync() {
			return faultfs.Fault{Death: faultfs.DiesBefore}
		}
		return faultfs.Fault{}
	})
	if a, err := b.once(vfs.OS{}, ff, apply.Journal); !ff.Dead() {
		t.Fatalf("it did not die where it should: %+v %v", a, err)
	}
	kept := filepath.Join(b.dir, "kept")
	if err := os.CopyFS(kept, os.DirFS(b.root)); err != nil {
		t.Fatal(err)
	}
	now := stateFiles(t, home)
	var touched []string
	for _, n := range slices.Sorted(maps.Keys(now)) {
		if !bytes.Equal(now[n], old[n]) && (strings.Contains(n, "/receipts") || strings.Contains(n, "/results/")) {
			touched = append(touched, n)
		}
	}
	if len(touched) != 4 { // next, receipt, index, head
		t.Fatalf("the last append touched %v", touched)
	}
	pow3 := []int{1, 3, 9, 27, 81}
	step := stride(2)
	for state := before % step; state < pow3[len(touched)]; state += step {
		for n := range stateFiles(t, home) {
			if err := os.Remove(filepath.Join(home, n)); err != nil {
				t.Fatal(err)
			}
		}
		var what []string
		missing := false
		for _, n := range slices.Sorted(maps.Keys(now)) {
			data := now[n]
			i, k := slices.Index(touched, n), 0
			if i >= 0 {
				k = state / pow3[i] % 3
				what = append(what, fmt.Sprint(n, "=", []string{"new", "empty", "old"}[k]))
			}
			switch {
			case i >= 0 && k == 1:
				data = nil
			case i >= 0 && k == 2:
				missing = true
				data = old[n]
			}
			if booted {
				data = bytes.Replace(data, []byte(`"boot":"`), []byte(`"boot":"before `), 1)
			}
			file := filepath.Join(home, n)
			if _, was := old[n]; i >= 0 && k == 2 && !was {
				continue
			}
			if err := os.WriteFile(file, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		// Names reach a disk in the order in which they were made: without the first
		// of an empty chain none of the others is there.
		if missing && !booted || before == 0 && state/pow3[slices.IndexFunc(touched, isNext)]%3 == 2 {
			continue
		}
		if err := errors.Join(os.RemoveAll(b.root), os.CopyFS(b.root, os.DirFS(kept))); err != nil {
			t.Fatal(err)
		}
		b.tornOnce(what, before)
	}
}

func isNext(name string) bool { return strings.HasSuffix(name, "/receipts.next") }

// tornOnce recovers twice and counts the receipts.
func (b *plainBed) tornOnce(at []string, before int) {
	b.t.Helper()
	for range 2 {
		err := b.with(vfs.OS{}, vfs.OS{}, func(e *apply.Engine) error {
			rec, err := e.Recover(context.Background())
			if err == nil && len(rec.Attention) > 0 {
				err = fmt.Errorf("attention: %v", rec.Attention)
			}
			return err
		})
		if err != nil {
			b.t.Fatalf("%v: recover: %v", at, err)
		}
		if s := b.state(at); s != "new" {
			b.t.Fatalf("%v: the workspace is %s", at, s)
		}
	}
	err := b.with(vfs.OS{}, vfs.OS{}, func(e *apply.Engine) error {
		rep, err := e.Receipts().Verify(context.Background())
		if err == nil && !rep.OK {
			err = fmt.Errorf("%v", rep.Problems)
		}
		return err
	})
	if err != nil {
		b.t.Fatalf("%v: receipts: %v", at, err)
	}
	if outs := b.outcomes(); outs[receipt.Applied] != before+1 {
		b.t.Fatalf("%v: receipts %v", at, outs)
	}
	again, err := b.once(vfs.OS{}, vfs.OS{}, apply.Journal)
	if err != nil || !again.Repeated {
		b.t.Fatalf("%v: the repeated request: %v %v", at, again.Repeated, err)
	}
}
