//go:build unix

// Package sandboxtest helps the tests of the rooms that start commands: a full
// listing of a tree, a second run of a test binary as an ordinary user, and a
// look for processes that should be dead. Only tests import it.
package sandboxtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aspengine/asp/internal/need"
	"github.com/aspengine/asp/sandbox"
	"golang.org/x/sys/unix"
)

// ordinary is a uid and gid that belong to nobody. Not 65534: that is also what
// unmapped owners look like inside a user namespace.
const ordinary = 54321

const userVar = "ASP_TEST_ORDINARY_USER"

// Listing describes every name below dir: kind, mode, size, times of change,
// inode and digest of files, target of links. Two equal listings mean that
// nothing was done to the tree.
func Listing(t testing.TB, dir string) map[string]string {
	t.Helper()
	return list(t, dir, true)
}

// Content is Listing without inodes and times: what a copy must share with its
// original. Directories' sizes are left out.
func Content(t testing.TB, dir string) map[string]string {
	t.Helper()
	return list(t, dir, false)
}

func list(t testing.TB, dir string, identity bool) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		st, err := os.Lstat(p)
		if err != nil {
			return err
		}
		s := st.Mode().String()
		switch {
		case st.Mode().IsRegular():
			b, err := os.ReadFile(p)
			if err != nil {
				b = []byte("unreadable")
			}
			s += fmt.Sprintf(" %d %x", st.Size(), sha256.Sum256(b))
		case st.Mode()&fs.ModeSymlink != 0:
			l, err := os.Readlink(p)
			if err != nil {
				return err
			}
			s += " -> " + l
		}
		if identity {
			var sys unix.Stat_t // its fields have the same names on every system
			if err := unix.Lstat(p, &sys); err != nil {
				return err
			}
			s += fmt.Sprintf(" ino %d mtime %d ctime %d nlink %d", sys.Ino, sys.Mtim.Nano(), sys.Ctim.Nano(), sys.Nlink)
		}
		out[rel] = s
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Caps probes the machine for overlays over lower with scratch; a machine that
// cannot do it skips the test, or fails it under REQUIRE_SANDBOX=1.
func Caps(t testing.TB, lower, scratch string) sandbox.Caps {
	t.Helper()
	caps := sandbox.Probe(context.Background(), sandbox.ProbeDirs{Lower: lower, Scratch: scratch})
	if !caps.CanOverlay() {
		if os.Getenv("REQUIRE_SANDBOX") == "1" {
			t.Fatalf("sandbox required, but: %s", caps.Missing())
		}
		need.Missing(t, "this machine cannot: %s", caps.Missing())
	}
	return caps
}

// AsUser runs all other tests of the binary again as an ordinary user. Root
// passes where others get EPERM; the guarantees are meant for both.
func AsUser(t *testing.T) {
	if os.Getenv(userVar) != "" {
		t.Skip("this is the second run already")
	}
	if os.Geteuid() != 0 {
		t.Skip("the whole run is an ordinary user's")
	}
	dir, err := os.MkdirTemp("", "as-user-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	bin, home := filepath.Join(dir, "test"), filepath.Join(dir, "home")
	if err := os.WriteFile(bin, b, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{home, filepath.Join(dir, "tmp")} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(d, ordinary, ordinary); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	args := []string{"-test.run", "^Test", "-test.skip", "^" + t.Name() + "$", "-test.v"}
	if testing.Short() {
		args = append(args, "-test.short")
	}
	cmd := exec.Command(bin, args...)
	cmd.Env = []string{
		"HOME=" + home, "TMPDIR=" + filepath.Join(dir, "tmp"), "PATH=" + os.Getenv("PATH"), userVar + "=1",
		"REQUIRE_SANDBOX=" + os.Getenv("REQUIRE_SANDBOX"),
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ordinary, Gid: ordinary}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("as uid %d: %v\n%s", ordinary, err, out)
	}
	for l := range bytes.Lines(out) {
		if bytes.Contains(l, []byte("--- SKIP")) {
			t.Logf("as uid %d: %s", ordinary, bytes.TrimSpace(l))
		}
	}
}

// Processes lists pids whose command line holds word.
func Processes(t testing.TB, word string) []int {
	t.Helper()
	var out []int
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err == nil && bytes.Contains(b, []byte(word)) {
			pid, _ := strconv.Atoi(strings.Split(f, "/")[2])
			out = append(out, pid)
		}
	}
	return out
}

// Eventually waits until ok, and fails the test when it never comes true. For
// deaths that nobody can wait for because the parent was killed.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; runtime.Gosched() {
		if ok() {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("never came true: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Held lists what of launches this process holds: mount namespaces that are not its own, and
// control groups.
func Held(t testing.TB) (mounts, groups []string) {
	t.Helper()
	own, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		t.Fatal(err)
	}
	fds, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil && strings.HasPrefix(to, "mnt:") && to != own {
			mounts = append(mounts, to)
		}
	}
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), fmt.Sprintf("asp-%d-", os.Getpid())) {
			groups = append(groups, path)
		}
		return nil
	})
	return mounts, groups
}
