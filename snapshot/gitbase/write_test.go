package gitbase_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/internal/vfs/faultfs"
	"github.com/aspengine/asp/snapshot"
	"github.com/aspengine/asp/snapshot/gitbase"
)

// TestObjectsGetTheirNamesLast: many objects are synced by one call before the first of them
// has its name, and by one after the last. What never gets that far leaves nothing.
func TestObjectsGetTheirNamesLast(t *testing.T) {
	for _, ends := range []bool{true, false} {
		t.Run(fmt.Sprint("synced ", ends), func(t *testing.T) {
			r := newRepo(t)
			r.write(t, "a", "a\n")
			r.commit(t)
			ctx, repo := context.Background(), r.repo(t)
			defer repo.Close()
			var effects []snapshot.Effect
			for i := range 200 {
				effects = append(effects, bytesEffect(t, fmt.Sprintf("d/%03d", i), fmt.Sprint("new ", i, "\n"), snapshot.ModeRegular))
			}
			plan, items, err := repo.PlanTree(ctx, stamp(t, repo, false), effects, true)
			if err != nil || len(items) > 0 {
				t.Fatal(err, items)
			}
			ff := faultfs.New(vfs.OS{}, nil)
			w, err := repo.WriteObjects(ctx, ff)
			if err != nil {
				t.Fatal(err)
			}
			tree, items, err := plan.Write(ctx, w)
			if err != nil || len(items) > 0 {
				t.Fatal(err, items)
			}
			if ends {
				err = w.Sync()
			}
			if cerr := w.Close(); err != nil || cerr != nil {
				t.Fatal(err, cerr)
			}
			var order []faultfs.Op
			for _, e := range ff.Events() {
				switch e.Op {
				case faultfs.Write, faultfs.NoReplace, faultfs.SyncFS:
					if len(order) == 0 || order[len(order)-1] != e.Op {
						order = append(order, e.Op)
					}
				}
			}
			if left, err := filepath.Glob(r.path(".git/objects/tmp_obj*")); err != nil || len(left) > 0 {
				t.Errorf("left: %q %v", left, err)
			}
			if !ends {
				if fmt.Sprint(order) != "[write]" || r.try("cat-file", "-e", tree) == nil {
					t.Errorf("%v, and %s may be there", order, tree)
				}
				return
			}
			if fmt.Sprint(order) != "[write syncfs noreplace syncfs]" {
				t.Errorf("%v", order)
			}
			if got := r.git(t, "ls-tree", "-r", "--name-only", tree); strings.Count(got, "\n") != 200 {
				t.Errorf("the tree has %.200q", got)
			}
			r.git(t, "fsck", "--full", "--strict")
		})
	}
}

// TestSweepObjects: what another work tree of the repository is writing stays.
func TestSweepObjects(t *testing.T) {
	top := newTree(t)
	one, two := tree{top.path("one")}, tree{top.path("two")}
	top.git(t, "init", "-q", "-b", "main", "one")
	one.write(t, "a", "a\n")
	one.commit(t)
	one.git(t, "worktree", "add", "-q", "../two")
	ctx := context.Background()
	begun := func(r tree) (*gitbase.Repo, *gitbase.ObjectWriter) {
		repo := r.repo(t)
		t.Cleanup(func() { repo.Close() })
		plan, items, err := repo.PlanTree(ctx, stamp(t, repo, false), []snapshot.Effect{bytesEffect(t, "b", r.dir, snapshot.ModeRegular)}, true)
		if err != nil || len(items) > 0 {
			t.Fatal(err, items)
		}
		w, err := repo.WriteObjects(ctx, vfs.OS{})
		if err != nil {
			t.Fatal(err)
		}
		if _, items, err := plan.Write(ctx, w); err != nil || len(items) > 0 {
			t.Fatal(err, items)
		}
		return repo, w
	}
	dead, died := begun(one)
	_, lives := begun(two)
	if err := dead.SweepObjects(vfs.OS{}); err != nil {
		t.Fatal(err)
	}
	if err := lives.Sync(); err != nil {
		t.Errorf("the other's: %v", err)
	}
	if err := died.Sync(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what was swept: %v", err)
	}
	for _, w := range []*gitbase.ObjectWriter{died, lives} {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
	if left, err := filepath.Glob(one.path(".git/objects/tmp_obj*")); err != nil || len(left) > 0 {
		t.Errorf("left: %q %v", left, err)
	}
}
