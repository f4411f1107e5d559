package apply_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aspengine/asp/apply"
	"github.com/aspengine/asp/editplan"
	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/internal/vfs/faultfs"
	"github.com/aspengine/asp/seam/wire"
	"github.com/aspengine/asp/snapshot"
)

// shape is a plan of one kind, on the files of shapeFiles.
type shape struct {
	name   string
	drafts []editplan.Draft
}

var shapeFiles = map[string]string{
	"a": "a\n", "b": "b\n", "run": "#!\n", "dir/x": "x\n", "dir/sub/y": "y\n", "lone/z": "z\n", "big": strings.Repeat("0123456789abcde\n", 1<<13),
}

func shapes() []shape {
	at := func(p string) snapshot.Digest { return snapshot.DigestOf([]byte(shapeFiles[p])) }
	change := func(p, after string) editplan.Draft { return replace(p, shapeFiles[p], after) }
	gone := func(p string) editplan.Draft {
		return editplan.Draft{Kind: editplan.Delete, Path: p, Expected: at(p)}
	}
	made := func(p, text string) editplan.Draft {
		return editplan.Draft{Kind: editplan.Create, Path: p, Content: []byte(text), HasContent: true}
	}
	move := func(p, to string) editplan.Draft {
		return editplan.Draft{Kind: editplan.Rename, Path: p, To: to, Expected: at(p)}
	}
	link := editplan.Draft{Kind: editplan.Rename, Path: "ln", To: "dir/ln", Expected: snapshot.DigestOf([]byte("a"))}
	exec := editplan.Draft{Kind: editplan.Modify, Path: "run", Expected: at("run"), Mode: editplan.ModeExec}
	return []shape{
		{"modify", []editplan.Draft{change("a", "A\n")}},
		{"text edits", []editplan.Draft{{Kind: editplan.Modify, Path: "a", Expected: at("a"), Edits: []editplan.TextEdit{{End: editplan.Pos{Char: 1}, NewText: "edited"}}}}},
		{"create, nested", []editplan.Draft{made("n/e/w", "new\n"), made("n/too", "")}},
		{"a directory's last file", []editplan.Draft{gone("lone/z"), gone("dir/sub/y")}},
		{"across directories", []editplan.Draft{move("dir/x", "lone/x"), move("lone/z", "far/z")}},
		{"renamed and edited", []editplan.Draft{move("a", "dir/a"), replace("dir/a", "a\n", "A\n")}},
		{"swapped", []editplan.Draft{move("a", "t"), move("b", "a"), {Kind: editplan.Rename, Path: "t", To: "b", Expected: at("a")}}},
		{"file becomes directory", []editplan.Draft{gone("b"), made("b/in", "in\n")}},
		{"directory becomes file", []editplan.Draft{gone("dir/x"), gone("dir/sub/y"), made("dir", "a file\n")}},
		{"mode", []editplan.Draft{exec}},
		{"link", []editplan.Draft{link}},
		{"large", []editplan.Draft{change("big", strings.Replace(shapeFiles["big"], "5", "five", 100))}},
		{"of everything", []editplan.Draft{change("a", "A\n"), made("n/e/w", "new\n"), gone("lone/z"), move("dir/x", "x"), exec, link}},
	}
}

// shapeBed is a plain directory with the files of shapes, and its state directory.
func shapeBed(t *testing.T, dir string) *plainBed {
	b := &plainBed{bed: &bed{t: t, root: filepath.Join(dir, "ws")}, dir: dir}
	for p, c := range shapeFiles {
		b.write(p, c)
	}
	if err := errors.Join(os.Symlink("a", filepath.Join(b.root, "ln")), os.Mkdir(filepath.Join(dir, "home"), 0o700)); err != nil {
		t.Fatal(err)
	}
	return b
}

// tree is everything in the workspace.
func (b *plainBed) tree() map[string]string {
	b.t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(b.root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(b.root, p)
		switch fi, err := d.Info(); {
		case err != nil:
			return err
		case d.Type() == fs.ModeSymlink:
			to, err := os.Readlink(p)
			out[rel] = "link to " + to
			return err
		case d.IsDir():
			out[rel] = "directory"
		default:
			out[rel] = fmt.Sprintf("%v %s", fi.Mode().Perm(), b.read(rel))
		}
		return nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

func (b *plainBed) send(ws, state vfs.FS, s shape, mode apply.Publish) (a *apply.Answer, err error) {
	err = b.with(ws, state, func(e *apply.Engine) error {
		var err error
		a, err = e.Apply(context.Background(), apply.Request{CallSite: wire.Interactive, Intent: wire.IntentUser, Publish: mode,
			Load: func(ctx context.Context, v *apply.View, base snapshot.Baseline) (editplan.File, refusal.List, error) {
				return plan("p1", func(*apply.View) []editplan.Draft { return s.drafts })(ctx, v, base)
			}})
		return err
	})
	return a, err
}

// TestStagingFails: plans of every kind are staged, and operations on the state
// directory or the workspace fail. The workspace is untouched whatever happens; asking
// again stages, and what is published then is what a journalled apply would have made.
func TestStagingFails(t *testing.T) {
	step := stride(41)
	for k, s := range shapes() {
		t.Run(s.name, func(t *testing.T) {
			top := t.TempDir()
			bed := func(name string) *plainBed { return shapeBed(t, filepath.Join(top, name)) }
			whole := bed("whole")
			old := whole.tree()
			if a, err := whole.send(vfs.OS{}, vfs.OS{}, s, apply.Journal); err != nil || !a.Result.Applied {
				t.Fatal(err, codes(a))
			}
			want := whole.tree()
			if maps.Equal(old, want) {
				t.Fatal("the plan does nothing")
			}
			for side := range 2 {
				for n, i := 1+(7*k+17*side)%step, k; ; n, i = n+step, i+1 {
					cause := faults[i%len(faults)]
					b := bed(fmt.Sprint(side, "-", n))
					ff := faultfs.New(vfs.OS{}, faultfs.At(n, faultfs.Fault{Err: cause}))
					both := [2]vfs.FS{vfs.OS{}, vfs.OS{}}
					both[side] = ff
					_, err := b.send(both[0], both[1], s, apply.Stage)
					if all, _ := ff.Counts(); all < n {
						break
					}
					at := fmt.Sprintf("%v at %v (%v)", cause, ff.Events()[n-1], err)
					if now := b.tree(); !maps.Equal(now, old) {
						t.Fatalf("%s: staging wrote to the workspace: %v", at, now)
					}
					if a, err := b.send(vfs.OS{}, vfs.OS{}, s, apply.Stage); err != nil || a.Result == nil || !a.Result.Applied {
						t.Fatalf("%s: again: %v %s", at, err, codes(a))
					}
					err = b.with(vfs.OS{}, vfs.OS{}, func(e *apply.Engine) error {
						p, err := e.PublishStaged(context.Background(), "p1", apply.Request{CallSite: wire.Interactive, Intent: wire.IntentUser})
						if err == nil && !p.Result.Applied {
							err = errors.New(codes(p))
						}
						rep, verr := e.Receipts().Verify(context.Background())
						if verr == nil && !rep.OK {
							verr = fmt.Errorf("receipts: %v", rep.Problems)
						}
						return errors.Join(err, verr)
					})
					if now := b.tree(); err != nil || !maps.Equal(now, want) {
						t.Fatalf("%s: published: %v\n got %v\nwant %v", at, err, now, want)
					}
				}
			}
		})
	}
}
