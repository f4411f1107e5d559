//go:build linux

package worktree_test

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"

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
