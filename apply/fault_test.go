package apply_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/aspengine/asp/apply"
	"github.com/aspengine/asp/editplan"
	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/internal/vfs/faultfs"
	"github.com/aspengine/asp/receipt"
	"github.com/aspengine/asp/seam/wire"
	"github.com/aspengine/asp/snapshot"
)

// plainBed is a plain directory as a workspace with its own state directory,
// cheap enough to be made for each of some hundred faults.
type plainBed struct {
	*bed
	dir  string
	file editplan.File // the plan, once it was made; a retry sends the same
	// stays: the answer named something that could not be removed.
	stays bool
}

func newPlainBed(t *testing.T, dir string) *plainBed {
	t.Helper()
	b := &plainBed{bed: &bed{t: t, root: filepath.Join(dir, "ws")}, dir: dir}
	for p, c := range twoFiles {
		b.write(p, c)
	}
	b.write("lone/c.txt", "three\n")
	if err := os.Mkdir(filepath.Join(dir, "home"), 0o700); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *plainBed) load(ctx context.Context, v *apply.View, base snapshot.Baseline) (editplan.File, refusal.List, error) {
	if b.file.Blobs == nil {
		f, items, err := plan("p1", func(v *apply.View) []editplan.Draft {
			return append(bothFiles(v), editplan.Draft{Kind: editplan.Delete, Path: "lone/c.txt", Expected: snapshot.DigestOf([]byte("three\n"))})
		})(ctx, v, base)
		if err != nil || len(items) > 0 {
			return f, items, err
		}
		b.file = f
	}
	return b.file, nil, nil
}

// with runs f on an engine whose workspace is seen through ws and whose state
// directory through state.
func (b *plainBed) with(ws, state vfs.FS, f func(e *apply.Engine) error) error {
	h, err := home.Open(state, filepath.Join(b.dir, "home"))
	if err != nil {
		return err
	}
	defer h.Close()
	e, err := apply.Open(context.Background(), apply.Options{Dir: b.root, Home: h, FS: ws, Version: "test"})
	if err != nil {
		return err
	}
	defer e.Close()
	return f(e)
}

func (b *plainBed) once(ws, state vfs.FS, mode apply.Publish) (a *apply.Answer, err error) {
	err = b.with(ws, state, func(e *apply.Engine) error {
		var err error
		a, err = e.Apply(context.Background(), apply.Request{Load: b.load, CallSite: wire.Interactive, Intent: wire.IntentUser, Publish: mode})
		return err
	})
	return a, err
}

// state is "old", "new", or "untidy": new, with the directory that the plan
// emptied still there. Anything else ends the test.
func (b *plainBed) state(at ...any) string {
	b.t.Helper()
	got := b.read("a.txt") + b.read("b.txt") + b.read("lone/c.txt")
	_, err := os.Lstat(filepath.Join(b.root, "lone"))
	switch {
	case got == "one\ntwo\nthree\n" && err == nil:
		return "old"
	case got == "ONE\nTWO\n(absent)" && errors.Is(err, os.ErrNotExist):
		return "new"
	case got == "ONE\nTWO\n(absent)" && err == nil:
		return "untidy"
	}
	b.t.Fatalf("neither old nor new: %q %v %v", got, err, at)
	return ""
}

// settled checks the answer of a faulted attempt against the workspace, lets a
// healthy engine recover, verifies the receipts, and repeats the request.
func (b *plainBed) settled(mode apply.Publish, a *apply.Answer, err error, at ...any) {
	b.t.Helper()
	applied := err == nil && a != nil && a.Result != nil && a.Result.Applied
	state := b.state(at...)
	if state == "untidy" && mode == apply.Journal && applied {
		// Decided, and left for recovery to tidy.
		state = "new"
	}
	switch {
	case applied && mode != apply.Stage && state != "new":
		b.t.Fatalf("the answer says applied, the workspace is old %v", at)
	case !applied && state != "old":
		b.t.Fatalf("the answer says %v, the workspace is new %v", err, at)
	case mode == apply.Stage && state != "old":
		b.t.Fatalf("staging wrote to the workspace %v", at)
	}
	rerr := b.with(vfs.OS{}, vfs.OS{}, func(e *apply.Engine) error {
		rec, err := e.Recover(context.Background())
		if err != nil || len(rec.Attention) > 0 {
			b.t.Fatalf("recover: %v %v %v", rec.Attention, err, at)
		}
		if now := b.state(at...); now != state && (now != "untidy" || !b.stays) {
			b.t.Fatalf("recovery went from %s to %s %v", state, now, at)
		}
		rep, err := e.Receipts().Verify(context.Background())
		if err == nil && !rep.OK {
			b.t.Fatalf("receipts: %v %v", rep.Problems, at)
		}
		return err
	})
	if rerr != nil {
		b.t.Fatal(rerr, at)
	}
	again, err := b.once(vfs.OS{}, vfs.OS{}, mode)
	// An error of a staging may come when the receipt is there already: nobody
	// has seen anything of it, and the repeated request is told.
	repeated := again != nil && (applied == again.Repeated || mode == apply.Stage && again.Repeated)
	if err != nil || again.Result == nil || !again.Result.Applied || !repeated {
		b.t.Fatalf("again: applied %v, repeated %v, %v %v", applied, again.Repeated, err, at)
	}
	if mode == apply.Stage {
		if outs := b.outcomes(); outs[receipt.Staged] != 1 {
			b.t.Errorf("receipts %v %v", outs, at)
		}
		err := b.with(vfs.OS{}, vfs.OS{}, func(e *apply.Engine) error {
			p, err := e.PublishStaged(context.Background(), "p1", apply.Request{CallSite: wire.Interactive, Intent: wire.IntentUser})
			if err == nil && !p.Result.Applied {
				err = errors.New(codes(p))
			}
			return err
		})
		if err != nil {
			b.t.Fatalf("publish: %v %v", err, at)
		}
	}
	if now := b.state(at...); now != "new" && (now != "untidy" || !b.stays) {
		b.t.Fatalf("again: %s %v", now, at)
	}
	es, err := os.ReadDir(b.dir)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, x := range es {
		if x.Name() != "ws" && x.Name() != "home" && !b.stays {
			b.t.Errorf("%s is left beside the workspace %v", x.Name(), at)
		}
	}
	if _, err := os.Lstat(filepath.Join(b.root, ".asp")); !errors.Is(err, os.ErrNotExist) {
		b.t.Errorf(".asp is left %v", at)
	}
	if outs := b.outcomes(); outs[receipt.Applied] != 1 {
		b.t.Errorf("receipts %v %v", outs, at)
	}
}

func (b *plainBed) outcomes() map[receipt.Outcome]int {
	b.t.Helper()
	out := map[receipt.Outcome]int{}
	err := b.with(vfs.OS{}, vfs.OS{}, func(e *apply.Engine) error {
		es, err := e.Receipts().List(context.Background())
		for _, x := range es {
			out[x.Outcome]++
		}
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

func publishModes() map[string]apply.Publish {
	return map[string]apply.Publish{"journal": apply.Journal, "exchange": apply.Exchange, "stage": apply.Stage}
}

// sweep runs try for every apart-th operation, or as stride says, until there are no
// more, each on a bed of its own. Where it begins depends on
// the name of the test.
func sweep(t *testing.T, apart int, try func(b *plainBed, n int) (more bool)) {
	t.Helper()
	top := t.TempDir()
	step := stride(apart)
	for n := 1 + len(t.Name())%step; ; n += step {
		dir, err := os.MkdirTemp(top, "b")
		if err != nil {
			t.Fatal(err)
		}
		more := try(newPlainBed(t, dir), n)
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if !more {
			return
		}
	}
}

// faults are what a system says of a device that fails, a full one, a used-up quota, a
// file system that became read-only, a right that was taken away, and too many open
// files.
var faults = []error{unix.EIO, unix.ENOSPC, unix.EDQUOT, unix.EROFS, unix.EACCES, unix.EMFILE}

// apart spreads the faults: the first two meet more of the operations, and in the long
// form all meet every one.
func apart(i int) int {
	if i < 2 {
		return 7
	}
	return 23
}

// TestStateDirectoryFails: each operation on the state directory in turn fails.
func TestStateDirectoryFails(t *testing.T) {
	for name, mode := range publishModes() {
		for i, cause := range faults {
			t.Run(name+"/"+strings.ReplaceAll(cause.Error(), " ", "-"), func(t *testing.T) {
				sweep(t, apart(i), func(b *plainBed, n int) bool {
					ff := faultfs.New(vfs.OS{}, faultfs.At(n, faultfs.Fault{Err: cause}))
					a, err := b.once(vfs.OS{}, ff, mode)
					if all, _ := ff.Counts(); all < n {
						return false
					}
					b.settled(mode, a, err, "fault", n, ff.Events()[n-1].String())
					return true
				})
			})
		}
	}
}

// TestStateDirectoryFull: from an operation on nothing can be written there.
func TestStateDirectoryFull(t *testing.T) {
	for name, mode := range publishModes() {
		t.Run(name, func(t *testing.T) {
			sweep(t, 5, func(b *plainBed, n int) bool {
				ff := faultfs.New(vfs.OS{}, func(e faultfs.Event) faultfs.Fault {
					if e.M >= n && (e.Op == faultfs.Create || e.Op == faultfs.Write || e.Op == faultfs.Mkdir) {
						return faultfs.Fault{Err: unix.ENOSPC}
					}
					return faultfs.Fault{}
				})
				a, err := b.once(vfs.OS{}, ff, mode)
				if _, m := ff.Counts(); m < n {
					return false
				}
				b.settled(mode, a, err, "full from", n)
				return true
			})
		})
	}
}

// TestWorkspaceFails: each operation on the workspace in turn fails.
func TestWorkspaceFails(t *testing.T) {
	for name, mode := range publishModes() {
		for i, cause := range faults {
			t.Run(name+"/"+strings.ReplaceAll(cause.Error(), " ", "-"), func(t *testing.T) {
				sweep(t, apart(i), func(b *plainBed, n int) bool {
					ff := faultfs.New(vfs.OS{}, faultfs.At(n, faultfs.Fault{Err: cause}))
					a, err := b.once(ff, vfs.OS{}, mode)
					if all, _ := ff.Counts(); all < n {
						return false
					}
					// What may not be removed stays, and the answer says so.
					b.stays = errors.Is(cause, unix.EACCES) && a != nil && len(a.Notes) > 0
					b.settled(mode, a, err, "fault", n, ff.Events()[n-1].String())
					return true
				})
			})
		}
	}
}
