package command_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aspengine/asp/checks"
	"github.com/aspengine/asp/sandbox"
	"github.com/aspengine/asp/sandbox/sandboxtest"
	"github.com/aspengine/asp/worktree"
	"github.com/google/go-cmp/cmp"
)

// evil is everything that a check may do to the repository it finds itself in.
// Each line goes on whatever the one before said; what worked is echoed.
const evil = `
cd "$(git rev-parse --show-toplevel)" || exit 9
test -e "$(git rev-parse --absolute-git-dir)/asp" && echo SEES-ASP
git status --porcelain | sed 's/^/status:/'
git log -1 --format=log:%s
git stash list | sed 's/^/stash:/'
hook=$(git rev-parse --git-path hooks/post-commit); mkdir -p "$(dirname "$hook")"; echo '#!/bin/sh' > "$hook"; chmod +x "$hook"; test -x "$hook" && echo did:hook
echo changed > x; echo more >> y
git stash >/dev/null 2>&1 && echo did:stash
echo changed > x
git commit -qam evil >/dev/null 2>&1 && echo did:commit
git branch tmp && echo did:branch
git tag t && echo did:tag
git branch -D old >/dev/null 2>&1 && echo did:branch-D
git reflog expire --expire=now --all && echo did:reflog
git gc -q --prune=now && echo did:gc
git update-ref refs/heads/main 4b825dc642cb6eb9a060e54bf8d69288fbee4904 >/dev/null 2>&1
git worktree prune; git worktree list | sed -n '$='  | sed 's/^/worktrees:/'
common=$(git rev-parse --path-format=absolute --git-common-dir)
git config core.hooksPath evil && echo did:hooksPath
git config core.bare true && echo did:bare
git config --global user.name evil
rm -rf "$common/objects" "$common/refs" && echo did:rm
true
`

// GT-10: a check cannot change the user's repository, whatever git command it
// runs, in every shape a repository has and by either method.
func TestGT10_RepositoryIsUntouched(t *testing.T) {
	for _, kind := range []string{"ordinary", "linked", "separate", "bare", "shared"} {
		for _, m := range []worktree.Method{worktree.Overlay, worktree.Copy} {
			t.Run(kind+"/"+m.String(), func(t *testing.T) {
				r := newRepo(t, kind)
				before := sandboxtest.Listing(t, r.top)
				res := check(t, r.spec(m), sh(evil))
				if after := sandboxtest.Listing(t, r.top); !cmp.Equal(before, after) {
					t.Errorf("the user's files changed: %s", cmp.Diff(before, after))
				}
				out := string(res.Output)
				for _, want := range []string{"did:hook", "did:stash", "did:commit", "did:branch", "did:branch-D", "did:tag", "did:reflog", "did:gc", "did:hooksPath", "did:bare", "did:rm", "log:one", "status: M d/z"} {
					if (kind == "bare" || kind == "shared") && want == "did:branch-D" {
						continue // checked out, or not cloned
					}
					if !strings.Contains(out, want+"\n") {
						t.Errorf("the check could not do %s", want)
					}
				}
				if kind != "bare" && kind != "shared" && !strings.Contains(out, "stash:stash@{0}") {
					t.Error("the check does not see the stash")
				}
				if strings.Contains(out, "SEES-ASP") {
					t.Error("the transaction directory is visible")
				}
				if res.Status != checks.Passed || res.Isolation != checks.MediatedWrite || res.DirectWrite || res.Method != m {
					t.Errorf("result %s %s %v %s: %s", res.Status, res.Isolation, res.DirectWrite, res.Method, res.Detail)
				}
				if t.Failed() {
					t.Logf("%s", out)
				}
				gitIn(t, r.root, "fsck", "--full")
				if s := gitIn(t, r.root, "status", "--porcelain"); s != "M d/z" { // trimmed
					t.Errorf("status %q", s)
				}
			})
		}
	}
}

// Without namespaces the copy still keeps git commands away from the bytes of the
// user's repository (not from the times of borrowed objects); what it cannot keep away is said.
func TestGT10_PlainCopy(t *testing.T) {
	rules := sandbox.Caps{Landlock: sandbox.Cap{Answer: sandbox.Yes}, Seccomp: sandbox.Cap{Answer: sandbox.Yes}}
	for i, kind := range []string{"ordinary", "linked", "separate", "bare", "shared", "ordinary", "linked"} {
		r := newRepo(t, kind)
		ws := r.spec(worktree.MethodInvalid)
		ws.Caps = sandbox.Caps{}
		require, want := sandbox.Advisory, checks.Advisory
		if i >= 5 {
			ws.Caps, require, want = rules, sandbox.Gated, checks.MediatedWrite
		}
		if i == 6 {
			require = sandbox.MediatedWrite
		}
		before := sandboxtest.Content(t, r.top)
		s := sh(evil)
		s.Require = require
		res := check(t, ws, s)
		if after := sandboxtest.Content(t, r.top); !cmp.Equal(before, after) {
			t.Errorf("%s: the user's files changed: %s", kind, cmp.Diff(before, after))
		}
		if !strings.Contains(string(res.Output), "did:commit\n") || !strings.Contains(string(res.Output), "status: M d/z\n") {
			t.Errorf("%s: git does not work in the copy:\n%s", kind, res.Output)
		}
		if res.Isolation != want || res.DirectWrite != (require == sandbox.Advisory) || res.Method != worktree.Copy {
			t.Errorf("%s: result claims %s, direct write %v, %s", kind, res.Isolation, res.DirectWrite, res.Method)
		}
	}
}

// GT-08: git variables of the host's environment never reach a check, by
// inheritance or by a list that lets them through.
func TestGT08_NoInheritedGitVariables(t *testing.T) {
	r := newRepo(t, "ordinary")
	decoy := newRepo(t, "ordinary")
	for k, v := range map[string]string{
		"GIT_DIR": decoy.git, "GIT_INDEX_FILE": filepath.Join(decoy.git, "index"), "GIT_WORK_TREE": decoy.root,
		"GIT_OBJECT_DIRECTORY": filepath.Join(decoy.git, "objects"), "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.worktree", "GIT_CONFIG_VALUE_0": decoy.root,
	} {
		t.Setenv(k, v)
	}
	before := sandboxtest.Listing(t, decoy.top)
	s := sh(`env | sort; git init -q t && git -C t -c user.name=n -c user.email=e commit -q --allow-empty -m x && echo did:init; git rev-parse --absolute-git-dir`)
	s.Pass = map[string]string{"GIT_DIR": decoy.git, "KEEP": "kept"}
	s.Env = map[string]string{"OWN": "own"}
	for _, caps := range []sandbox.Caps{r.caps, {}} {
		ws := r.spec(worktree.MethodInvalid)
		if ws.Caps = caps; !caps.Namespaces() {
			s.Require = sandbox.Advisory
		}
		res := check(t, ws, s)
		out := string(res.Output)
		want := []string{"HOME", "KEEP", "LANG", "OWN", "PATH", "PWD", "TMPDIR"} // PWD is the shell's own
		if !caps.Namespaces() {
			// Ours, where the system's configuration may be out of reach.
			ours := "GIT_CONFIG_NOSYSTEM=1\n"
			if !strings.Contains(out, ours) {
				t.Errorf("git reads the system's configuration:\n%s", out)
			}
			out = strings.Replace(out, ours, "", 1)
		}
		if strings.Contains(out, "GIT_") || strings.Contains(out, decoy.top) {
			t.Errorf("output names the decoy:\n%s", out)
		}
		var names []string
		for l := range strings.Lines(out) {
			if k, _, ok := strings.Cut(l, "="); ok {
				names = append(names, k)
			}
		}
		if !cmp.Equal(names, want) {
			t.Errorf("environment: %s", cmp.Diff(want, names))
		}
		if !strings.Contains(out, "did:init") {
			t.Errorf("git does not work:\n%s", out)
		}
	}
	if after := sandboxtest.Listing(t, decoy.top); !cmp.Equal(before, after) {
		t.Errorf("decoy changed: %s", cmp.Diff(before, after))
	}
}

// A transaction directory that appears while a check runs stays invisible.
func TestTransactionDirectoryIsHidden(t *testing.T) {
	r := newRepo(t, "ordinary")
	must(t, os.RemoveAll(filepath.Join(r.git, "asp")))
	for _, m := range []worktree.Method{worktree.Overlay, worktree.Copy} {
		res := check(t, r.spec(m), sh(`test -e .git/HEAD && test ! -e .git/asp`))
		if res.Status != checks.Passed {
			t.Errorf("%s: %s %s", m, res.Status, res.Detail)
		}
	}
}
