//go:build linux

package worktree_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/aspengine/asp/internal/need"
	"github.com/aspengine/asp/sandbox/sandboxtest"
	"github.com/aspengine/asp/snapshot"
	"github.com/aspengine/asp/worktree"
	"github.com/google/go-cmp/cmp"
)

// TestFrozenView builds several candidates of one repository with all that
// repositories have in them, and runs a check over each at the same time. Each sees
// the live tree to the bit, its own change and no other's.
func TestFrozenView(t *testing.T) {
	need.Tool(t, "git")
	p := newPlace(t)
	lib := filepath.Join(filepath.Dir(p.root), "lib")
	git := func(dir string, args ...string) {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=n", "-c", "user.email=e@x", "-c", "protocol.file.allow=always"}, args...)...)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1"}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v %s", args, err, out)
		}
	}
	repo := func(dir string, files ...string) {
		t.Helper()
		must(t, os.MkdirAll(dir, 0o755))
		git(dir, "init", "-q", "-b", "main")
		for _, f := range files {
			must(t, os.WriteFile(filepath.Join(dir, f), []byte(f+"\n"), 0o644))
		}
		git(dir, "add", "-A")
		git(dir, "commit", "-qm", "x")
	}
	repo(lib, "lib.go")
	repo(p.root, "main.go", "tool.sh")
	git(p.root, "submodule", "--quiet", "add", lib, "third/lib")
	p.write(t, map[string]string{
		".gitignore":                     "node_modules/\nvendored/\n*.log\n",
		"node_modules/dep/index.js":      "module.exports = 1\n",
		"node_modules/.bin/dep":          "-> ../dep/index.js",
		"node_modules/locked/a":          "a\n",
		"debug.log":                      "log\n",
		"untracked.txt":                  "u\n",
		"dir/link":                       "-> ../main.go",
		"dir/nowhere":                    "-> /nonexistent/x",
		"sub/empty dir/.keep":            "",
		"node_modules/locked/deep/x.txt": "x\n",
	})
	repo(filepath.Join(p.root, "nested"), "own.go")
	repo(filepath.Join(p.root, "vendored/other"), "ignored.go")
	git(p.root, "add", "-A", "--", ".gitignore", "dir", "sub")
	git(p.root, "commit", "-qm", "y")
	must(t, os.Chmod(filepath.Join(p.root, "tool.sh"), 0o750))
	must(t, os.Chmod(filepath.Join(p.root, "debug.log"), 0o400))
	must(t, os.Chmod(filepath.Join(p.root, "node_modules/locked"), 0o555))
	before := sandboxtest.Listing(t, p.root)
	live := sandboxtest.Content(t, p.root)
	libBefore := sandboxtest.Listing(t, lib)

	const each = 2
	var wg sync.WaitGroup
	seen := make([]map[string]string, len(methods)*each)
	said := make([]string, len(seen))
	dirs := make([]*worktree.Candidate, len(seen))
	for i := range seen {
		dirs[i] = build(t, p.spec(methods[i%len(methods)], put(t, "main.go", fmt.Sprint("changed ", i, "\n"), snapshot.ModeRegular)))
	}
	for i, c := range dirs {
		wg.Go(func() {
			// Looked at by the check itself, then spoiled for whoever shares it.
			said[i] = in(t, c, `cp -a . /tmp/seen && cd . && export HOME=/nonexistent
				git status --porcelain --ignore-submodules=none; git submodule status; git -C nested log --format=%s; git -C third/lib log --format=%s; node_modules/.bin/dep 2>/dev/null
				cat node_modules/dep/index.js; rm -rf node_modules nested third .git dir; echo spoiled > untracked.txt; ls`)
			seen[i] = sandboxtest.Content(t, filepath.Join(c.Scratch, "tmp", "seen"))
		})
	}
	wg.Wait()
	for i, got := range seen {
		m := methods[i%len(methods)]
		want := map[string]string{}
		for name, x := range live {
			want[name] = x
		}
		after := fmt.Sprint("changed ", i, "\n")
		want["main.go"] = fmt.Sprintf("%s %d %x", strings.Fields(live["main.go"])[0], len(after), sha256.Sum256([]byte(after)))
		for _, names := range []map[string]string{want, got} {
			for name := range names {
				// A copy has a repository of its own, made for it. An overlay shows the
				// user's, but for the directory of transactions.
				if m == worktree.Copy && (name == ".git" || strings.HasPrefix(name, ".git/")) || name == ".git/asp" {
					delete(names, name)
				}
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", m, diff)
		}
		for _, want := range []string{" M main.go", "?? nested/", "?? untracked.txt", " third/lib (", "x\nx\n", "module.exports = 1", "vendored"} {
			if !strings.Contains(said[i], want) {
				t.Errorf("%s: %q is not in what git says:\n%s", m, want, said[i])
			}
		}
		if strings.Contains(said[i], "node_modules/\n") || strings.Contains(said[i], "debug.log\n?") {
			t.Errorf("%s: what is ignored is not: %s", m, said[i])
		}
	}
	if now := sandboxtest.Listing(t, p.root); !cmp.Equal(before, now) {
		t.Errorf("live tree changed: %s", cmp.Diff(before, now))
	}
	if now := sandboxtest.Listing(t, lib); !cmp.Equal(libBefore, now) {
		t.Errorf("the other repository changed: %s", cmp.Diff(libBefore, now))
	}
}
