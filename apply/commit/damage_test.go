package commit_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/aspengine/asp/apply/commit"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/internal/vfs/faultfs"
	"github.com/aspengine/asp/snapshot"
)

// damageBed is a workspace of six files on the real file system, and the plan
// that changes them all.
func damageBed(t *testing.T) (root, tx string, changes []commit.Change) {
	t.Helper()
	root = filepath.Join(t.TempDir(), "ws")
	tx = filepath.Join(root, ".git", "asp")
	if err := os.MkdirAll(filepath.Dir(tx), 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		name := fmt.Sprintf("f%d", i)
		old, after := []byte("old "+name), []byte("new "+name)
		if err := os.WriteFile(filepath.Join(root, name), old, 0o644); err != nil {
			t.Fatal(err)
		}
		p, err := snapshot.ParsePath(name)
		if err != nil {
			t.Fatal(err)
		}
		changes = append(changes, commit.Change{
			Path:   p,
			Before: &commit.Image{Kind: vfs.KindFile, Digest: snapshot.DigestOf(old), Size: int64(len(old)), Perm: 0o644},
			After: &commit.Image{Kind: vfs.KindFile, Digest: snapshot.DigestOf(after), Size: int64(len(after)), Perm: 0o644,
				Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(after)), nil }},
		})
	}
	return root, tx, changes
}

// A journal that was damaged after swaps began is no journal that was never
// finished: nothing is removed, and a person is asked.
func TestDamagedJournal(t *testing.T) {
	for name, damage := range map[string]func([]byte) []byte{
		"empty":   func([]byte) []byte { return nil },
		"short":   func(b []byte) []byte { return b[:len(b)/2] },
		"flipped": func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
		"header":  func(b []byte) []byte { b[1] ^= 1; return b },
		"gone":    nil,
	} {
		t.Run(name, func(t *testing.T) {
			root, tx, changes := damageBed(t)
			// The process dies in the middle of the swaps, which come after the mark. An
			// exchange is one rename or two.
			marked := false
			fsys := faultfs.New(vfs.OS{}, faultfs.When(func(e faultfs.Event) bool {
				marked = marked || e.Op == faultfs.Create && filepath.Base(e.Path) == "swapping"
				return marked && (e.Op == faultfs.Exchange || e.Op == faultfs.NoReplace)
			}, 4, faultfs.Fault{Death: faultfs.DiesBefore}))
			rd, err := fsys.OpenRoot(root)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := commit.Run(context.Background(), commit.Env{FS: fsys, Root: rd, TxDir: tx, Boot: "this one"}, "tx-1", changes, commit.Options{Tag: "p"}); err == nil {
				t.Fatal("the run survived")
			}
			j := filepath.Join(tx, "tx-1", "journal")
			b, err := os.ReadFile(j)
			if err != nil {
				t.Fatal(err)
			}
			if damage == nil {
				err = os.Remove(j)
			} else {
				err = os.WriteFile(j, damage(b), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			live, err := vfs.OS{}.OpenRoot(root)
			if err != nil {
				t.Fatal(err)
			}
			defer live.Close()
			env := commit.Env{FS: vfs.OS{}, Root: live, TxDir: tx, Boot: "this one"}
			for round := range 3 {
				if round > 1 {
					env.Boot = "a later one" // what waits for a person goes on waiting
				}
				rec, err := commit.Recover(context.Background(), env, commit.RecoverOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if round == 0 && (len(rec) != 1 || rec[0].Outcome != commit.NeedsAttention) || round > 0 && len(rec) != 0 {
					t.Fatalf("round %d: %+v", round, rec)
				}
				at, err := commit.Attention(context.Background(), env)
				if err != nil || len(at) != 1 || at[0].Path != filepath.Join(tx, "tx-1") {
					t.Fatalf("attention %+v %v", at, err)
				}
			}
			// Every old byte is still somewhere.
			all := map[string]bool{}
			err = filepath.WalkDir(root, func(p string, d os.DirEntry, err error) error {
				if err != nil || !d.Type().IsRegular() {
					return err
				}
				c, err := os.ReadFile(p)
				all[string(c)] = true
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			for i := range 6 {
				if !all[fmt.Sprintf("old f%d", i)] {
					t.Errorf("the bytes of f%d are gone", i)
				}
			}
			if err := commit.Resolve(context.Background(), env, filepath.Join(tx, "tx-1"), commit.KeepMine, func(commit.PreImage, io.Reader) error { return nil }); err == nil {
				t.Error("resolved by dropping what is kept")
			}
		})
	}
}
