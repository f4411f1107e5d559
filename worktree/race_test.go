//go:build linux

package worktree_test

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/aspengine/asp/sandbox"
	"github.com/aspengine/asp/sandbox/sandboxtest"
	"github.com/aspengine/asp/snapshot"
	"github.com/aspengine/asp/worktree"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// TestBuildRaces builds candidates while somebody swaps the directories on their way
// for links that lead out of the workspace, as fast as he can. Nothing outside may be
// changed, and nothing of it may get into scratch. 10⁵ times with ASP_CRASH=long.
func TestBuildRaces(t *testing.T) {
	builds := 100
	if os.Getenv("ASP_CRASH") == "long" {
		builds = 100_000
	}
	p := newPlace(t)
	outside := filepath.Join(filepath.Dir(p.root), "outside")
	secret := []byte("not of this workspace")
	for _, d := range []string{"a/b", "a/c", ".git/hooks", ".git/asp"} {
		for _, at := range []string{p.root, outside} {
			must(t, os.MkdirAll(filepath.Join(at, d), 0o755))
			content := []byte("ours")
			if at == outside {
				content = secret
			}
			must(t, os.WriteFile(filepath.Join(at, d, "f"), content, 0o644))
		}
	}
	// What is swapped with what: a directory of the tree and a link of the same name outside.
	swaps := [][2]string{{"a", outside + "/a"}, {"a/b", outside + "/a/b"}, {".git/hooks", outside + "/.git/hooks"}, {".git/asp", outside + "/.git/asp"}}
	for _, s := range swaps {
		must(t, os.Symlink(s[1], filepath.Join(p.root, s[0])+".link"))
	}
	before := sandboxtest.Listing(t, outside)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	swapped := 0
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			n := filepath.Join(p.root, swaps[i/2%len(swaps)][0]) // there, and back again
			if unix.Renameat2(unix.AT_FDCWD, n, unix.AT_FDCWD, n+".link", unix.RENAME_EXCHANGE) == nil {
				swapped++
			}
		}
	})
	built := 0
	for i := range builds {
		spec := p.spec(methods[i%len(methods)], put(t, "a/b/f", "changed", snapshot.ModeRegular), put(t, "a/b/new", "new", snapshot.ModeRegular), gone(t, "a/c/f"))
		spec.Caps.NetNS.Answer = 0 // no process is made ready for a run that does not come
		c, err := worktree.Build(context.Background(), spec)
		if err != nil {
			continue // refused, for what it met
		}
		built++
		must(t, filepath.WalkDir(c.Scratch, func(name string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			b, err := os.ReadFile(name)
			if bytes.Contains(b, secret) {
				t.Errorf("round %d: %s holds what is outside", i, name)
			}
			return err
		}))
		must(t, c.Close())
		if t.Failed() {
			break
		}
	}
	close(stop)
	wg.Wait()
	if built == 0 || swapped < builds {
		t.Errorf("%d of %d were built, %d swaps", built, builds, swapped)
	}
	if now := sandboxtest.Listing(t, outside); !cmp.Equal(before, now) {
		t.Errorf("what is outside changed: %s", cmp.Diff(before, now))
	}
	p.empty(t)
	t.Logf("%d of %d built, %d swaps", built, builds, swapped)
}

// TestLaunchRaces starts commands over candidates while the same swaps are made, so that
// directories become links between any two steps of building, mounting and proving. A
// command writes, changes and removes through every one of them: nothing of it may be
// outside or in the live tree, and nothing of the outside may be read by an isolated one.
// 500 launches and at least 10⁵ swaps with ASP_CRASH=long.
func TestLaunchRaces(t *testing.T) {
	launches, least := 4, 300
	if os.Getenv("ASP_CRASH") == "long" {
		launches, least = 500, 100_000
	}
	p := newPlace(t)
	outside := filepath.Join(filepath.Dir(p.root), "outside")
	const secret = "not of this workspace"
	for _, d := range []string{"a/b", ".git/hooks"} {
		for at, content := range map[string]string{p.root: "ours", outside: secret} {
			must(t, os.MkdirAll(filepath.Join(at, d), 0o755))
			must(t, os.WriteFile(filepath.Join(at, d, "f"), []byte(content), 0o644))
		}
	}
	swaps := []string{"a", "a/b", ".git/hooks"}
	for _, s := range swaps {
		must(t, os.Symlink(filepath.Join(outside, s), filepath.Join(p.root, s)+".link"))
	}
	before := sandboxtest.Listing(t, outside)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var swapped atomic.Int64
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			n := filepath.Join(p.root, swaps[i/2%len(swaps)])
			if unix.Renameat2(unix.AT_FDCWD, n, unix.AT_FDCWD, n+".link", unix.RENAME_EXCHANGE) == nil {
				swapped.Add(1)
			}
		}
	})
	const script = `echo began; for d in a a/b .git/hooks; do cat $d/f; for f in $d/f $d.link/f; do
chmod 777 $f; ln $f $d/second; echo more >> $f; mv $f $f.moved; done; echo x > $d/new; echo x > $d.link/new; rm -rf $d; done 2>/dev/null; echo ended`
	began := map[sandbox.Level]int{}
	for i := 0; (i < launches || swapped.Load() < int64(least)) && !t.Failed(); i++ {
		level := []sandbox.Level{sandbox.MediatedWrite, sandbox.Isolated}[i/2%2]
		c, err := worktree.Build(context.Background(), p.spec(methods[i%len(methods)], put(t, "new", "new", snapshot.ModeRegular)))
		if err != nil {
			continue // refused, for what it met
		}
		s := c.Sandbox(nil)
		s.Argv, s.Require, s.Isolate, s.Env["PATH"] = []string{"sh", "-c", script}, level, level == sandbox.Isolated, "/usr/bin:/bin"
		res, err := sandbox.Run(context.Background(), c.Caps, s)
		switch said := string(res.Stdout); {
		case err != nil: // so is this
		case !strings.HasPrefix(said, "began\n") || !strings.HasSuffix(said, "ended\n"):
			t.Errorf("launch %d: %+v", i, res)
		case level == sandbox.Isolated && strings.Contains(said, secret):
			t.Errorf("launch %d reads what is outside", i)
		default:
			began[level]++
		}
		must(t, c.Close())
	}
	close(stop)
	wg.Wait()
	if began[sandbox.MediatedWrite] == 0 || began[sandbox.Isolated] == 0 {
		t.Errorf("not every mode was seen to run: %v", began)
	}
	if now := sandboxtest.Listing(t, outside); !cmp.Equal(before, now) {
		t.Errorf("what is outside changed: %s", cmp.Diff(before, now))
	}
	files := 0
	must(t, filepath.WalkDir(p.root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		if filepath.Base(name) == "f" {
			files++
			if b, err := os.ReadFile(name); err != nil || string(b) != "ours" {
				t.Errorf("%s holds %q, %v", name, b, err)
			}
		} else if n := filepath.Base(name); n == "new" || n == "second" || n == "f.moved" {
			t.Errorf("%s came into the live tree", name)
		}
		return nil
	}))
	if files != 2 {
		t.Errorf("%d of 2 files are left", files)
	}
	p.empty(t)
	t.Logf("%v launches, %d swaps", began, swapped.Load())
}

// TestCopyFollowsNoLinkOfThePlan: a plan that puts a link where a directory was must
// not have the copied directory's mode and times given to what the link leads to.
func TestCopyFollowsNoLinkOfThePlan(t *testing.T) {
	p := newPlace(t)
	outside := filepath.Join(filepath.Dir(p.root), "outside")
	for _, d := range []string{filepath.Join(p.root, "a/b"), filepath.Join(outside, "b")} {
		must(t, os.MkdirAll(d, 0o755))
	}
	must(t, os.WriteFile(filepath.Join(p.root, "a/b/f"), []byte("x"), 0o644))
	must(t, os.WriteFile(filepath.Join(outside, "b/f"), []byte("x"), 0o644))
	must(t, os.Chmod(filepath.Join(p.root, "a/b"), 0o700))
	before := sandboxtest.Listing(t, outside)
	link := put(t, "a", outside, snapshot.ModeSymlink)
	for _, m := range methods {
		c := build(t, p.spec(m, gone(t, "a/b/f"), link))
		if got := in(t, c, "readlink a"); got != outside+"\n" {
			t.Errorf("%s: a is %q", m, got)
		}
		must(t, c.Close())
	}
	if now := sandboxtest.Listing(t, outside); !cmp.Equal(before, now) {
		t.Errorf("what is outside changed: %s", cmp.Diff(before, now))
	}
}
