package snapshot_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/snapshot"
)

func newStore(t testing.TB, l snapshot.StoreLimits) (*snapshot.Store, string) {
	t.Helper()
	dir := t.TempDir()
	d, err := vfs.OS{}.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return snapshot.OpenStore(d, l), dir
}

// put keeps blobs under a transaction.
func put(t tb, s *snapshot.Store, id string, blobs ...string) {
	t.Helper()
	w, err := s.Begin(id)
	if err != nil {
		t.Fatalf("%v", err)
	}
	for _, b := range blobs {
		if err := w.Add(snapshot.DigestOf([]byte(b)), int64(len(b)), strings.NewReader(b)); err != nil {
			t.Fatalf("%v", err)
		}
	}
	if err := errors.Join(w.Finish(), w.Sync(), w.Close()); err != nil {
		t.Fatalf("%v", err)
	}
}

// TestStorePackIsClaimed: who would clean up finds that the writer of a half-written pack
// lives, until the pack has its name.
func TestStorePackIsClaimed(t *testing.T) {
	s, dir := newStore(t, snapshot.StoreLimits{})
	w, err := s.Begin("tx-1")
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(filepath.Join(dir, "tx-1.part"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	free := func() bool {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err != nil && !errors.Is(err, unix.EWOULDBLOCK) {
			t.Fatal(err)
		}
		return err == nil
	}
	if free() {
		t.Error("while it is written, nobody holds it")
	}
	if err := errors.Join(w.Finish(), w.Close()); err != nil {
		t.Fatal(err)
	}
	if !free() {
		t.Error("once it is there, somebody holds it")
	}
}

// TestStoreReturnsWhatWasPut, through the writer's own store and a fresh one.
func TestStoreReturnsWhatWasPut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "store")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		d, err := vfs.OS{}.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		s := snapshot.OpenStore(d, snapshot.StoreLimits{})
		var all []string
		var total int64
		for i := range rapid.IntRange(1, 4).Draw(t, "packs") {
			blobs := rapid.SliceOfN(rapid.StringN(0, 40, 100), 0, 8).Draw(t, "blobs")
			put(t, s, fmt.Sprint("tx", i), blobs...)
			all = append(all, blobs...)
			for _, b := range blobs {
				total += int64(len(b))
			}
		}
		for _, s := range []*snapshot.Store{s, snapshot.OpenStore(d, snapshot.StoreLimits{})} {
			for _, b := range all {
				got, err := s.Bytes(snapshot.DigestOf([]byte(b)))
				if err != nil || string(got) != b {
					t.Fatalf("%q, %v; want %q", got, err, b)
				}
			}
			if _, _, err := s.Get(snapshot.DigestOf([]byte("never put \x00"))); !errors.Is(err, snapshot.ErrNoBlob) {
				t.Fatalf("unknown blob: %v", err)
			}
		}
		packs, err := s.Packs()
		if err != nil {
			t.Fatal(err)
		}
		var size int64
		for _, p := range packs {
			size += p.Size
			if p.Err != nil || p.Size > 64<<10+total*12/10+48*8 {
				t.Fatalf("pack %+v for %d bytes", p, total)
			}
		}
	})
}

func TestStoreRefusesWrongBytes(t *testing.T) {
	s, dir := newStore(t, snapshot.StoreLimits{})
	for name, tt := range map[string]struct {
		size int64
		text string
	}{"other": {3, "xyz"}, "short": {3, "ab"}, "long": {3, "abcd"}} {
		w, err := s.Begin("t")
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Add(snapshot.DigestOf([]byte("abc")), tt.size, strings.NewReader(tt.text)); err == nil {
			t.Errorf("%s: taken", name)
		}
		if err := w.Finish(); err == nil {
			t.Errorf("%s: finished", name)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		if left, _ := os.ReadDir(dir); len(left) != 0 {
			t.Errorf("%s: left %v", name, left)
		}
	}
	put(t, s, "t", "abc")
	if _, err := s.Begin("t"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("second pack of a transaction: %v", err)
	}
	for _, id := range []string{"", "../x", "a/b", ".", "a.pack"} {
		if _, err := s.Begin(id); !errors.Is(err, snapshot.ErrTxID) {
			t.Errorf("id %q: %v", id, err)
		}
	}
}

// TestStoreDamage: whatever byte is damaged, no wrong byte is handed out, and
// what cannot be read is reported.
func TestStoreDamage(t *testing.T) {
	s, dir := newStore(t, snapshot.StoreLimits{})
	blobs := []string{"first blob", "second", ""}
	put(t, s, "t", blobs...)
	p := filepath.Join(dir, "t.pack")
	good, err := os.ReadFile(p)
	if err != nil {
		t.Fatal(err)
	}
	d, err := vfs.OS{}.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	check := func(what string, bad []byte) {
		t.Helper()
		if err := os.WriteFile(p, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		s := snapshot.OpenStore(d, snapshot.StoreLimits{})
		packs, err := s.Packs()
		if err != nil || len(packs) != 1 {
			t.Fatalf("%s: %v %v", what, packs, err)
		}
		lost := packs[0].Err != nil
		for _, b := range blobs {
			got, err := s.Bytes(snapshot.DigestOf([]byte(b)))
			if err == nil && string(got) != b {
				t.Fatalf("%s: %q handed out for %q", what, got, b)
			}
			lost = lost || err != nil
		}
		if !lost && !bytes.Equal(bad[8:], good[8:]) {
			t.Errorf("%s: not noticed", what)
		}
	}
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 0x40
		check(fmt.Sprintf("byte %d", i), bad)
		check(fmt.Sprintf("cut at %d", i), good[:i])
	}
}

func TestStoreGC(t *testing.T) {
	s, dir := newStore(t, snapshot.StoreLimits{MaxBytes: 4 << 10, MaxPacks: 8})
	for i := range 1000 {
		id := fmt.Sprintf("tx%04d", i)
		put(t, s, id, strings.Repeat("x", 100)+id)
		at := time.Unix(int64(1e9+i), 0)
		if err := os.Chtimes(filepath.Join(dir, id+".pack"), at, at); err != nil {
			t.Fatal(err)
		}
		c, err := s.GC(func(id string) bool { return id == "tx0003" })
		if err != nil {
			t.Fatal(err)
		}
		if c.Kept > 8 || c.Bytes > 4<<10 {
			t.Fatalf("after %d: %+v", i, c)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "dead.part"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.GC(nil); err != nil {
		t.Fatal(err)
	}
	packs, err := s.Packs()
	if err != nil || len(packs) != 8 || packs[0].TxID != "tx0003" || packs[7].TxID != "tx0999" {
		t.Errorf("%v %v", packs, err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*.part")); len(left) != 0 {
		t.Errorf("left %q", left)
	}
	if _, err := s.Bytes(snapshot.DigestOf([]byte(strings.Repeat("x", 100) + "tx0999"))); err != nil {
		t.Error(err)
	}
}
