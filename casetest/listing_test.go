package casetest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// entry is everything about one name that a tool could disturb.
type entry struct {
	mode   uint32 // type and permission bits
	ino    uint64
	nlink  uint64
	owner  string
	mtime  unix.Timespec
	bytes  string // digest, or the target of a link
	xattrs string
}

// listing is every name below a directory, the directory included.
type listing map[string]entry

// list looks at everything under the workspace and beside it.
func (w *world) list() listing {
	w.t.Helper()
	l := listing{}
	must(w.t, filepath.WalkDir(w.ws, func(p string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		e, err := look(p)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(w.ws, p)
		l[rel] = e
		return err
	}))
	return l
}

func look(p string) (entry, error) {
	var st unix.Stat_t
	if err := unix.Lstat(p, &st); err != nil {
		return entry{}, fmt.Errorf("stat %s: %w", p, err)
	}
	e := entry{mode: uint32(st.Mode), ino: st.Ino, nlink: uint64(st.Nlink), owner: fmt.Sprintf("%d:%d", st.Uid, st.Gid), mtime: st.Mtim}
	switch st.Mode & syscall.S_IFMT {
	case syscall.S_IFREG:
		b, err := os.ReadFile(p)
		if err != nil {
			return e, err
		}
		s := sha256.Sum256(b)
		e.bytes = hex.EncodeToString(s[:])
	case syscall.S_IFLNK:
		t, err := os.Readlink(p)
		if err != nil {
			return e, err
		}
		e.bytes = "-> " + t
	}
	buf := make([]byte, 4096)
	n, err := unix.Llistxattr(p, buf)
	if err != nil {
		return e, nil // no attributes on this file system
	}
	names := strings.Split(strings.Trim(string(buf[:n]), "\x00"), "\x00")
	sort.Strings(names)
	for _, name := range names {
		if name == "" {
			continue
		}
		v := make([]byte, 4096)
		if n, err := unix.Lgetxattr(p, name, v); err == nil {
			e.xattrs += fmt.Sprintf("%s=%x;", name, v[:n])
		}
	}
	return e, nil
}

// diff names what differs. For the names in loose (workspace paths of a plan
// that was rolled back) and the directories above them, inode and times may.
func (l listing) diff(now listing, loose map[string]bool) []string {
	var out []string
	for p, a := range l {
		b, ok := now[p]
		if !ok {
			out = append(out, p+": gone")
			continue
		}
		if loose[p] {
			a.ino, a.mtime = b.ino, b.mtime
		}
		if a != b {
			out = append(out, fmt.Sprintf("%s: was %+v, is %+v", p, a, b))
		}
	}
	for p := range now {
		if _, ok := l[p]; !ok {
			out = append(out, p+": new")
		}
	}
	sort.Strings(out)
	return out
}

// before is a state to compare with.
type before struct {
	w    *world
	list listing
	git  string
}

// mark remembers the present state.
func (w *world) mark() *before {
	w.t.Helper()
	b := &before{w: w, list: w.list()}
	if w.git {
		b.git = w.gitView()
	}
	return b
}

func (w *world) gitView() string {
	w.t.Helper()
	return w.status() + w.gitRun("stash", "list") + w.gitRun("worktree", "list", "--porcelain") + w.gitRun("for-each-ref") + w.gitRun("config", "--local", "--list")
}

// unchanged is the contract's "nothing changed", literally: every path with its
// bytes, mode, type, inode and mtime; index, HEAD, refs, stash, configuration
// and worktrees; and nothing of ours left.
func (b *before) unchanged() {
	b.w.t.Helper()
	b.same(nil)
}

// rolledBack is the same, less inode and times of the plan's paths and of the
// directories that hold them.
func (b *before) rolledBack(paths ...string) {
	b.w.t.Helper()
	loose := map[string]bool{"repo/.git": true}
	for _, p := range paths {
		for q := filepath.Join("repo", p); q != "."; q = filepath.Dir(q) {
			loose[q] = true
		}
	}
	b.same(loose)
}

func (b *before) same(loose map[string]bool) {
	b.w.t.Helper()
	for _, d := range b.list.diff(b.w.list(), loose) {
		b.w.t.Errorf("changed: %s", d)
	}
	if b.w.git {
		if now := b.w.gitView(); now != b.git {
			b.w.t.Errorf("git's view changed from\n%s\nto\n%s", b.git, now)
		}
	}
	b.w.clean()
}

// clean fails if anything of ours is left: journal, staged files, scratch trees,
// temporary files, processes.
func (w *world) clean() {
	w.t.Helper()
	_ = filepath.WalkDir(w.ws, func(p string, d fs.DirEntry, err error) error {
		n := d.Name()
		if err == nil && (strings.HasPrefix(n, ".asp-") || n == "asp" && filepath.Base(filepath.Dir(p)) == ".git" || n == "tx" && filepath.Base(filepath.Dir(p)) == ".asp" || strings.HasSuffix(n, ".lock")) {
			w.t.Errorf("left over: %s", p)
		}
		return nil
	})
	for _, d := range []string{w.tmp, filepath.Join(w.asp, "scratch")} {
		es, _ := os.ReadDir(d)
		for _, e := range es {
			w.t.Errorf("left over: %s", filepath.Join(d, e.Name()))
		}
	}
	for _, p := range w.processes() {
		w.t.Errorf("left over: process %s", p)
	}
}

// processes lists what still runs on behalf of this world.
func (w *world) processes() []string {
	var out []string
	es, _ := os.ReadDir("/proc")
	for _, e := range es {
		if _, err := strconv.Atoi(e.Name()); err != nil || e.Name() == strconv.Itoa(os.Getpid()) {
			continue
		}
		dir := "/proc/" + e.Name()
		cmdline, _ := os.ReadFile(dir + "/cmdline")
		environ, _ := os.ReadFile(dir + "/environ")
		cwd, _ := os.Readlink(dir + "/cwd")
		if len(cmdline) == 0 {
			continue // a zombie or a thread of the kernel
		}
		if strings.Contains(string(cmdline), w.base) || strings.Contains(string(environ), w.base) || strings.HasPrefix(cwd, w.base) {
			out = append(out, e.Name()+" "+strings.ReplaceAll(string(cmdline), "\x00", " "))
		}
	}
	return out
}
