package preconditions_test

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/preconditions"
	"github.com/aspengine/asp/snapshot"
)

// TestAhead: whether somebody looked before or not, a path has the same facts.
func TestAhead(t *testing.T) {
	dir := t.TempDir()
	var paths []snapshot.Path
	add := func(name string) {
		p, err := snapshot.ParsePath(name)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, p)
	}
	for i := range 200 {
		name := fmt.Sprintf("d%d/f%d", i%7, i)
		if i%10 != 3 { // the others are missing
			if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		add(name)
	}
	for _, link := range []string{"link", "d1/link"} {
		if err := os.Symlink("d1", filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
		add(link)
	}
	add("link/f1")   // leads through a link
	add("d1")        // a directory
	add("d1/f1/x")   // below a file
	add("none/none") // below nothing
	add(".git/config")
	root, err := vfs.OS{}.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	view := func() *preconditions.View {
		v, err := preconditions.NewView(root, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(v.Close)
		return v
	}
	plain, forward, backward := view(), view(), view()
	forward.Ahead(paths)
	backward.Ahead(paths)
	for i := range paths {
		for _, x := range []struct {
			v *preconditions.View
			p snapshot.Path
		}{{forward, paths[i]}, {backward, paths[len(paths)-1-i]}} {
			want, werr := plain.Fact(x.p)
			got, gerr := x.v.Fact(x.p)
			if werr != nil || gerr != nil {
				t.Fatal(x.p, werr, gerr)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %+v, want %+v", x.p, got, want)
			}
			if want.Stat.Kind == vfs.KindFile {
				b, err := x.v.Bytes(x.p)
				if err != nil || snapshot.DigestOf(b) != want.Digest {
					t.Errorf("%s: %q, %v", x.p, b, err)
				}
			}
		}
	}
	early := view()
	early.Ahead(paths)
	early.Close()
	closed := view()
	closed.Ahead(paths)
	if _, _, err := closed.Names(paths[len(paths)-4]); err != nil {
		t.Error(err)
	}
}
