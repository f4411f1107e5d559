package exchange

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aspengine/asp/internal/vfs"
)

// counted counts the handles that are open below it.
type counted struct {
	vfs.Dir
	open, most *int
}

func (c counted) OpenDir(path string) (vfs.Dir, error) {
	d, err := c.Dir.OpenDir(path)
	if err != nil {
		return nil, err
	}
	*c.open++
	*c.most = max(*c.most, *c.open)
	return counted{d, c.open, c.most}, nil
}

func (c counted) Close() error {
	*c.open--
	return c.Dir.Close()
}

// TestLevels: a tree that is deeper than a path can be long is removed with a handful
// of open directories.
func TestLevels(t *testing.T) {
	root := t.TempDir()
	top, err := vfs.OS{}.OpenRoot(root)
	if err != nil {
		t.Fatal(err)
	}
	defer top.Close()
	const levels = 240
	at, err := top.OpenDir(".")
	for range levels {
		if err != nil {
			t.Fatal(err)
		}
		err = at.Symlink("nowhere", "link")
		if err == nil {
			err = at.Mkdir("twenty-bytes-of-name", 0o700)
		}
		sub, oerr := at.OpenDir("twenty-bytes-of-name")
		at.Close()
		if at = sub; err == nil {
			err = oerr
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	at.Close()
	var open, most int
	l := walkFrom(counted{top, &open, &most})
	l.most = 3
	if err := removeBelow(l); err != nil {
		t.Fatalf("%.300s", err)
	}
	if left, err := os.ReadDir(root); err != nil || len(left) > 0 {
		t.Errorf("%v stays: %v", left, err)
	}
	// Those kept, the lowest one, and one more while it is opened, and that twice
	// where a path is opened in parts.
	if open != 0 || most > l.most+3 {
		t.Errorf("%d directories were open at a time, %d stay open", most, open)
	}
}

// TestLevelReplaced: a walk that comes back to another directory than it left knows it.
func TestLevelReplaced(t *testing.T) {
	for _, how := range []string{"kept", "moved", "another", "link"} {
		root := t.TempDir()
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		must(os.MkdirAll(filepath.Join(root, "a/b/c"), 0o700))
		top, err := vfs.OS{}.OpenRoot(root)
		must(err)
		defer top.Close()
		l := walkFrom(top)
		l.most = 1
		way := []*level{l}
		for _, name := range []string{"a", "b", "c"} {
			next, err := way[len(way)-1].down(name)
			must(err)
			way = append(way, next)
		}
		b := filepath.Join(root, "a/b")
		if how != "kept" {
			must(os.Rename(b, b+"'"))
		}
		switch how {
		case "another":
			must(os.Mkdir(b, 0o700))
		case "link":
			must(os.Symlink("b'", b))
		}
		err = way[2].up(way[3])
		if how == "kept" {
			must(err)
		} else if !vanished(err) {
			t.Errorf("%s: %v", how, err)
		}
		must(way[1].up(way[2]))
		must(way[0].up(way[1]))
	}
}

// TestOpenLong: paths of every length about the longest that is opened in one go.
func TestOpenLong(t *testing.T) {
	top, err := vfs.OS{}.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer top.Close()
	at, names := top, []string(nil)
	for i := range 12 {
		name := fmt.Sprint(i) + strings.Repeat("x", 240+i)
		if err := at.Mkdir(name, 0o700); err != nil {
			t.Fatal(err)
		}
		if at, err = at.OpenDir(name); err != nil {
			t.Fatal(err)
		}
		defer at.Close()
		names = append(names, name)
		want, err := at.Stat()
		if err != nil {
			t.Fatal(err)
		}
		d, err := openLong(top, strings.Join(names, "/"))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := d.Stat(); err != nil || !got.SameFile(want) {
			t.Errorf("%d names: another directory (%v)", len(names), err)
		}
		d.Close()
	}
}
