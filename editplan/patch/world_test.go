package patch_test

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aspengine/asp/editplan"
	"github.com/aspengine/asp/editplan/patch"
	"github.com/aspengine/asp/snapshot"
)

// file is one file of a world.
type file struct {
	content string
	mode    snapshot.FileMode
}

// world is a small workspace in memory.
type world map[string]file

func (w world) Look(p snapshot.Path) (patch.Entry, error) {
	if f, ok := w[p.String()]; ok {
		return patch.Entry{Exists: true, Mode: f.mode, Bytes: []byte(f.content)}, nil
	}
	for name := range w {
		if strings.HasPrefix(name, p.String()+"/") {
			return patch.Entry{Exists: true, Dir: true}, nil
		}
	}
	return patch.Entry{}, nil
}

func (w world) String() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(w)) {
		fmt.Fprintf(&b, "%q %o %q\n", name, w[name].mode, w[name].content)
	}
	return b.String()
}

func (w world) write(t testing.TB, dir string) {
	t.Helper()
	for name, f := range w {
		p := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(p), 0o755)
		if err == nil && f.mode == snapshot.ModeSymlink {
			err = os.Symlink(f.content, p)
		} else if err == nil {
			err = os.WriteFile(p, []byte(f.content), os.FileMode(f.mode&0o777))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func read(t testing.TB, dir string) world {
	t.Helper()
	w := world{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		if d.Type() == fs.ModeSymlink {
			target, err := os.Readlink(p)
			w[rel] = file{target, snapshot.ModeSymlink}
			return err
		}
		content, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		info, err := d.Info()
		mode := snapshot.ModeRegular
		if err == nil && info.Mode()&0o100 != 0 {
			mode = snapshot.ModeExecutable
		}
		w[rel] = file{string(content), mode}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// run carries out drafts, as strictly as an engine would.
func (w world) run(drafts []editplan.Draft) (world, error) {
	w = maps.Clone(w)
	if w == nil {
		w = world{}
	}
	for i, d := range drafts {
		f, exists := w[d.Path]
		if d.Kind == editplan.Create {
			if exists || !d.Expected.IsZero() {
				return nil, fmt.Errorf("draft %d: create of %q, which exists", i, d.Path)
			}
			for p := range w {
				if strings.HasPrefix(p, d.Path+"/") || strings.HasPrefix(d.Path, p+"/") {
					return nil, fmt.Errorf("draft %d: create of %q beside %q", i, d.Path, p)
				}
			}
		} else if !exists || snapshot.DigestOf([]byte(f.content)) != d.Expected {
			return nil, fmt.Errorf("draft %d: %v %q: exists %v, digest not as expected", i, d.Kind, d.Path, exists)
		}
		switch d.Kind {
		case editplan.Create:
			f = file{string(d.Content), snapshot.ModeRegular}
		case editplan.Modify:
			if d.HasContent {
				f.content = string(d.Content)
			} else if d.Edits != nil {
				out, err := editplan.Apply([]byte(f.content), d.Edits)
				if err != nil {
					return nil, fmt.Errorf("draft %d: %w", i, err)
				}
				f.content = string(out)
			}
		case editplan.Delete:
			delete(w, d.Path)
			continue
		case editplan.Rename:
			if _, ok := w[d.To]; ok {
				return nil, fmt.Errorf("draft %d: rename onto %q", i, d.To)
			}
			delete(w, d.Path)
			w[d.To] = f
			continue
		}
		switch d.Mode {
		case editplan.ModeExec:
			f.mode = snapshot.ModeExecutable
		case editplan.ModePlain:
			f.mode = snapshot.ModeRegular
		}
		w[d.Path] = f
	}
	return w, nil
}
