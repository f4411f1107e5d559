//go:build linux

package worktree

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestOwnerName(t *testing.T) {
	me, err := self()
	if err != nil {
		t.Fatal(err)
	}
	n, err := me.name()
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := parseOwner(n); !ok || got != me {
		t.Errorf("%s: %+v, %v", n, got, ok)
	}
	if me.dead(me) {
		t.Error("the living are called dead")
	}
	if m, _ := me.name(); m == n {
		t.Error("two names are equal")
	}
}

func FuzzParseOwner(f *testing.F) {
	f.Add("s-1-2-abcdef01-4-0123456789abcdef0123456789abcdef")
	f.Add("s--1-2-x-4-")
	f.Fuzz(func(t *testing.T, s string) {
		if o, ok := parseOwner(s); ok && o.pid <= 0 {
			t.Errorf("%q: pid %d", s, o.pid)
		}
	})
}

func TestAdjustConfig(t *testing.T) {
	for in, want := range map[string]string{
		"[core]\n\tbare = false\n\tfilemode = true\n":           "[core]\n\tbare = false\n\tfilemode = true\n",
		"[core]\n\tbare = true\n[user]\n\tname = bare = x\n":    "[core]\n\tbare = false\n[user]\n\tname = bare = x\n",
		"[Core]\n  WorkTree = /home/u/wt\n":                     "[Core]\n  worktree = ..\n",
		"[core] bare\n":                                         "[core] bare = false\n",
		"[extensions]\n\tworktreeConfig = true\n[core \"x\"]\n": "[extensions]\n\tworktreeConfig = true\n[core \"x\"]\n",
		"[remote \"o\"]\n\tworktree = keep\n":                   "[remote \"o\"]\n\tworktree = keep\n",
	} {
		d := t.TempDir()
		p := filepath.Join(d, "config")
		if err := os.WriteFile(p, []byte(in), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := adjustConfig(d); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(b)); diff != "" {
			t.Errorf("%q: %s", in, diff)
		}
	}
}

// Removing below a copy goes through no link that was copied into it.
func TestRemoveBelowFollowsNoLink(t *testing.T) {
	base, outside := t.TempDir(), t.TempDir()
	for _, d := range []string{base + "/real/c", outside + "/c"} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, base+"/a"); err != nil {
		t.Fatal(err)
	}
	if err := removeBelow(base, "a/c"); err == nil {
		t.Error("a link on the way is no error")
	}
	if _, err := os.Lstat(outside + "/c"); err != nil {
		t.Errorf("outside: %v", err)
	}
	for _, rel := range []string{"real/c", "real/none", "none/c"} {
		if err := removeBelow(base, rel); err != nil {
			t.Errorf("%s: %v", rel, err)
		}
	}
	if _, err := os.Lstat(base + "/real/c"); err == nil {
		t.Error("nothing was removed")
	}
}
