//go:build linux

package worktree_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aspengine/asp/sandbox"
	"github.com/aspengine/asp/snapshot"
	"github.com/aspengine/asp/worktree"
)

// BenchmarkScratch takes the time from nothing to a first command that ran over
// the after-state, and its removal, beside what git needs for a work tree of the
// same size (without any change laid in, without running anything). Run it with
// TMPDIR on tmpfs: ratios mean something, times of one machine do not.
func BenchmarkScratch(b *testing.B) {
	for _, n := range []int{5000, 50000} {
		p := newPlace(b)
		body := strings.Repeat("0123456789abcdef", 256)
		for i := range n {
			f := filepath.Join(p.root, fmt.Sprintf("d%d/s%d/f%d.go", i/1000, i/25%40, i))
			must(b, os.MkdirAll(filepath.Dir(f), 0o755))
			must(b, os.WriteFile(f, []byte(fmt.Sprint(i, body)), 0o644))
		}
		g := func(args ...string) {
			cmd := exec.Command("git", append([]string{"-C", p.root, "-c", "user.name=n", "-c", "user.email=e"}, args...)...)
			cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent"}
			if out, err := cmd.CombinedOutput(); err != nil {
				b.Fatalf("git %v: %v\n%s", args, err, out)
			}
		}
		g("init", "-q")
		g("add", ".")
		g("commit", "-qm", "x")
		effects := make([]snapshot.Effect, 100)
		for i := range effects {
			f := i * n / 100
			effects[i] = put(b, fmt.Sprintf("d%d/s%d/f%d.go", f/1000, f/25%40, f), fmt.Sprint("new", i, body), snapshot.ModeRegular)
		}
		for _, m := range methods {
			b.Run(fmt.Sprintf("files=%d/%s", n, m), func(b *testing.B) {
				for b.Loop() {
					c, err := worktree.Build(context.Background(), p.spec(m, effects...))
					must(b, err)
					s := c.Sandbox(nil)
					s.Argv, s.Require, s.Env["PATH"] = []string{"true"}, sandbox.MediatedWrite, os.Getenv("PATH")
					res, err := sandbox.Run(context.Background(), c.Caps, s)
					must(b, err)
					if res.ExitCode != 0 {
						b.Fatalf("%+v", res)
					}
					b.StopTimer() // removal apart, as for git below
					must(b, c.Close())
					b.StartTimer()
				}
			})
		}
		b.Run(fmt.Sprintf("files=%d/git-worktree-add", n), func(b *testing.B) {
			for b.Loop() {
				d := filepath.Join(p.scratch, "gw")
				g("worktree", "add", "-q", "--detach", d)
				b.StopTimer()
				must(b, os.RemoveAll(d))
				g("worktree", "prune")
				b.StartTimer()
			}
		})
	}
}
