//go:build linux

package worktree

import (
	"bytes"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aspengine/asp/snapshot"
	"golang.org/x/sys/unix"
)

func newFile(t *testing.T, rel string, mode snapshot.FileMode) snapshot.Effect {
	t.Helper()
	p, err := snapshot.ParsePath(rel)
	if err != nil {
		t.Fatal(err)
	}
	b := []byte("after " + rel)
	return snapshot.Effect{Path: p, Mode: mode, Size: int64(len(b)), Digest: snapshot.DigestOf(b),
		Open: func() (snapshot.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }}
}

// Every directory of the layer looks like the live one that it is merged with,
// and every file like the one that it replaces, in whatever order they are
// reached: below directories that forbid writing, below ones that hand down
// their group, deeper than the layer holds directories open, and in a scratch
// directory that hands down a group of its own.
func TestLayerLooksLikeLive(t *testing.T) {
	top := t.TempDir()
	root, scratch := filepath.Join(top, "root"), filepath.Join(top, "scratch")
	deep := "deep" + strings.Repeat("/d", 3*maxChain)
	modes := map[string]uint32{ // by name; a plain 0755 elsewhere
		"shut": 0o555, "shut/in": 0o511, "shut-2": 0o555, "group": 0o2775, "group/in": 0o755, "open": 0o1777, "private": 0o700, "deep": 0o550, deep: 0o500,
	}
	files := map[string]uint32{
		"shut/a": 0o444, "shut/in/a": 0o755, "shut-2/a": 0o640, "shut/z": 0o600, "group/a": 0o664, "group/in/a": 0o644, "open/a": 0o666, "private/a": 0o777,
		deep + "/a": 0o644, "deep/d/z": 0o604, "a": 0o644,
	}
	for _, d := range []string{scratch, root} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for f := range files {
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(f)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var effects []snapshot.Effect
	for f, m := range files {
		p := filepath.Join(root, f)
		if err := os.WriteFile(p, []byte("live"), 0o600); err != nil {
			t.Fatal(err)
		}
		if os.Geteuid() == 0 && strings.HasSuffix(f, "z") {
			if err := os.Chown(p, 7, 8); err != nil {
				t.Fatal(err)
			}
		}
		if err := unix.Chmod(p, m); err != nil {
			t.Fatal(err)
		}
		mode := snapshot.ModeRegular
		if m&0o100 != 0 {
			mode = snapshot.ModeExecutable
		}
		effects = append(effects, newFile(t, f, mode), newFile(t, f+".new", snapshot.ModeRegular))
	}
	if os.Geteuid() == 0 {
		for d, own := range map[string][2]int{"group": {0, 9}, "private": {7, 8}, "shut/in": {7, 0}} {
			if err := os.Chown(filepath.Join(root, d), own[0], own[1]); err != nil {
				t.Fatal(err)
			}
		}
	}
	for d, m := range modes {
		if err := unix.Chmod(filepath.Join(root, d), m); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Chmod(filepath.Join(root, d), 0o700) })
	}
	for name, base := range map[string]uint32{"plain": 0o700, "hands down its group": 0o2700} {
		t.Run(name, func(t *testing.T) {
			base := base
			if os.Geteuid() == 0 && base&unix.S_ISGID != 0 {
				if err := os.Chown(scratch, 0, 9); err != nil {
					t.Fatal(err)
				}
			}
			if err := unix.Chmod(scratch, base); err != nil {
				t.Fatal(err)
			}
			low, err := openLive(root)
			if err != nil {
				t.Fatal(err)
			}
			defer low.close()
			lo, err := plan(low, effects, nil)
			if err != nil {
				t.Fatal(err)
			}
			l, err := newLayer(scratch, "layer", low, lo.umask)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := removeTree(scratch, "layer"); err != nil {
					t.Error(err)
				}
			})
			if err := l.lay(lo); err != nil {
				t.Fatal(err)
			}
			if err := l.hide("shut/in/b", lo, low, true); err != nil { // back into what was left
				t.Fatal(err)
			}
			if err := l.close(); err != nil {
				t.Fatal(err)
			}
			seen := 0
			walk := func(p string, d fs.DirEntry, err error) error {
				if err != nil {
					return err
				}
				rel, err := filepath.Rel(l.upper, p)
				if err != nil {
					return err
				}
				var up, live unix.Stat_t
				if err := unix.Lstat(p, &up); err != nil {
					return err
				}
				if up.Mode&unix.S_IFMT == unix.S_IFCHR {
					return nil
				}
				seen++
				if err := unix.Lstat(filepath.Join(root, rel), &live); err == unix.ENOENT {
					if up.Mode&0o7777 != 0o666&^lo.umask {
						t.Errorf("%.40s: mode %o", rel, up.Mode)
					}
					return nil
				} else if err != nil {
					return err
				}
				if up.Mode != live.Mode || up.Uid != live.Uid || os.Geteuid() == 0 && up.Gid != live.Gid {
					t.Errorf("%.40s: mode %o of %d:%d, live %o of %d:%d", rel, up.Mode, up.Uid, up.Gid, live.Mode, live.Uid, live.Gid)
				}
				return nil
			}
			for _, d := range []string{"shut", "shut/in", "shut-2", "private", "deep"} {
				defer os.Chmod(filepath.Join(l.upper, d), 0o700)
			}
			if err := filepath.WalkDir(l.upper, walk); err != nil {
				t.Fatal(err)
			}
			if want := 2*len(files) + 3*maxChain + 9; seen != want {
				t.Errorf("%d names in the layer, want %d", seen, want)
			}
		})
	}
}
