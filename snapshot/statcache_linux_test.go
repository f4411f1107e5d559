package snapshot

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/aspengine/asp/internal/vfs"
)

// watchedDir calls renaming before it renames.
type watchedDir struct {
	vfs.Dir
	renaming func()
}

func (d *watchedDir) Rename(name string, _ vfs.Dir, toName string, mode vfs.RenameMode) error {
	d.renaming()
	return d.Dir.Rename(name, d.Dir, toName, mode)
}

// TestHalfWrittenCache: what a living writer has begun is left alone, and so is ours;
// what a dead one left does not stop the next for ever.
func TestHalfWrittenCache(t *testing.T) {
	p := t.TempDir()
	dir, err := vfs.OS{}.OpenRoot(p)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	const begun = cacheName + ".new"
	his, err := dir.Create(begun, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if mine, err := vfs.Claim(his); err != nil || !mine {
		t.Fatal(mine, err)
	}
	c := &StatCache{raw: []byte("ours")}
	if err := c.Store(dir); err != nil {
		t.Fatal(err)
	}
	_, there := os.Lstat(filepath.Join(p, begun))
	if _, err := os.Lstat(filepath.Join(p, cacheName)); !errors.Is(err, os.ErrNotExist) || there != nil {
		t.Errorf("beside a living writer: a cache %v, his file %v", err, there)
	}
	if err := his.Close(); err != nil { // as by the end of his process
		t.Fatal(err)
	}
	tries := 0
	w := &watchedDir{dir, func() {
		if tries++; dropDead(dir, begun) {
			t.Error("we were taken for dead while writing")
		}
	}}
	if err := c.Store(w); err != nil || tries != 1 {
		t.Errorf("after a dead writer: %v, %d renames", err, tries)
	}
	if b, err := os.ReadFile(filepath.Join(p, cacheName)); err != nil || string(b) != "ours" {
		t.Errorf("%q, %v", b, err)
	}
	// In the moment before the lock we can be, and then it is no failure of ours.
	if err := c.Store(&watchedDir{dir, func() { _ = dir.Unlink(begun) }}); err != nil {
		t.Errorf("taken for dead: %v", err)
	}
}
