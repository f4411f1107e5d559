package casetest

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/aspengine/asp/internal/need"
)

// TestRootLeavesNothingOfItsOwn: what root writes into the repository of somebody else
// belongs to them: objects, their directories, references, logs and the index. They could
// not go on working there otherwise.
func TestRootLeavesNothingOfItsOwn(t *testing.T) {
	need.Root(t)
	w := newWorld(t, map[string]string{"a": "a\n"})
	w.gitRun("config", "user.name", "A")
	w.gitRun("config", "user.email", "a@example.org")
	must(t, os.RemoveAll(w.path(".git/logs")))
	w.cred = nil // its state is root's own, too
	if out := w.plan().modify("a", "a\n", "b\n").apply("--index").applied(); out.code != 0 {
		t.Fatal(out)
	}
	w.plan().create("n", "n\n").apply("--stage", "--ref", "refs/heads/of/root", "--include-dirty").applied()
	whose := func() (n int) {
		must(t, filepath.WalkDir(w.path(".git"), func(p string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			fi, err := d.Info()
			if err == nil {
				n++
				if st := fi.Sys().(*syscall.Stat_t); st.Uid != ordinary || st.Gid != ordinary {
					t.Errorf("%s belongs to %d:%d", p, st.Uid, st.Gid)
				}
			}
			return err
		}))
		return n
	}
	before := whose()
	for _, p := range []string{"logs/refs/heads/of/root", "refs/heads/of/root", "index"} {
		if _, err := os.Lstat(w.path(".git/" + p)); err != nil {
			t.Errorf("the test looked at nothing: %v", err)
		}
	}
	// An index that was not there.
	fresh := newWorld(t, nil)
	must(t, os.RemoveAll(fresh.path(".git/index")))
	fresh.write("x", "x\n", 0o644)
	w, fresh.cred = fresh, nil
	w.plan().modify("x", "x\n", "y\n").apply("--index").applied()
	if after := whose(); before == 0 || after == 0 {
		t.Error(fmt.Sprint("nothing was looked at: ", before, after))
	}
	if _, err := os.Lstat(w.path(".git/index")); err != nil {
		t.Error(err)
	}
}

// TestRootCreatesItsOwn: in the work tree of somebody else a replaced or renamed file stays
// whose it was, and what root creates there is root's, as with git and every editor,
// however the plan is published; so is a file that an undo makes again.
func TestRootCreatesItsOwn(t *testing.T) {
	need.Root(t)
	for _, mode := range []string{"journal", "exchange"} {
		t.Run(mode, func(t *testing.T) {
			w := newWorld(t, map[string]string{"a": "a\n", "old": "old\n", "gone": "gone\n"})
			w.cred = nil
			done := w.plan().modify("a", "a\n", "b\n").rename("old", "moved", "old\n").create("made/f", "f\n").remove("gone", "gone\n").apply("--publish", mode).applied()
			whose := func(name string, want uint32) {
				t.Helper()
				var st syscall.Stat_t
				if err := syscall.Lstat(w.path(name), &st); err != nil || st.Uid != want || st.Gid != want {
					t.Errorf("%s belongs to %d:%d, want %d: %v", name, st.Uid, st.Gid, want, err)
				}
			}
			whose("a", ordinary)
			whose("moved", ordinary)
			whose("made", 0)
			whose("made/f", 0)
			if r := w.run("undo", done.str("receipt", "receiptId"), "--json"); r.code != 0 {
				t.Fatal(r)
			}
			whose("a", ordinary)
			whose("old", ordinary)
			whose("gone", 0)
		})
	}
}
