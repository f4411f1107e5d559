//go:build !portablefs

package exchange_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/aspengine/asp/apply/commit"
	"github.com/aspengine/asp/apply/exchange"
	"github.com/aspengine/asp/internal/need"
	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/internal/vfs/faultfs"
	"github.com/aspengine/asp/snapshot"
)

// disk is a workspace on the real file system.
type disk struct {
	t   testing.TB
	dir string
}

func newDisk(t testing.TB, parent string) *disk {
	t.Helper()
	d := &disk{t, filepath.Join(parent, "ws")}
	d.ok(os.MkdirAll(d.dir, 0o755))
	return d
}

func (d *disk) ok(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

func (d *disk) path(p string) string { return filepath.Join(d.dir, p) }

func (d *disk) write(p, text string, perm os.FileMode) {
	d.t.Helper()
	d.ok(os.MkdirAll(filepath.Dir(d.path(p)), 0o755))
	d.ok(os.WriteFile(d.path(p), []byte(text), 0o600))
	d.ok(os.Chmod(d.path(p), perm))
}

func (d *disk) read(p string) string {
	d.t.Helper()
	b, err := os.ReadFile(d.path(p))
	d.ok(err)
	return string(b)
}

func (d *disk) stat(p string) vfs.Stat {
	d.t.Helper()
	root, err := (vfs.OS{}).OpenRoot(d.dir)
	d.ok(err)
	defer root.Close()
	st, err := root.Lstat(p)
	d.ok(err)
	return st
}

func (d *disk) now(p string) *commit.Image {
	d.t.Helper()
	st, text := d.stat(p), d.read(p)
	return &commit.Image{Kind: st.Kind, Digest: snapshot.DigestOf([]byte(text)), Size: st.Size, Perm: st.Perm, Stat: st}
}

func (d *disk) modify(p, text string) commit.Change {
	b := d.now(p)
	return commit.Change{Path: path(d.t, p), Before: b, After: &commit.Image{Kind: vfs.KindFile, Digest: snapshot.DigestOf([]byte(text)), Size: int64(len(text)), Perm: b.Perm, Open: opener(text)}}
}

func (d *disk) run(f vfs.FS, cs ...commit.Change) (exchange.Result, error) {
	return exchange.Run(context.Background(), exchange.Env{FS: f, RootPath: d.dir}, "tx1", cs, exchange.Options{
		Seal: func(context.Context, exchange.Facts) ([]byte, error) { return []byte("evidence"), nil },
	})
}

func (d *disk) committed(cs ...commit.Change) {
	d.t.Helper()
	r, err := d.run(vfs.OS{}, cs...)
	if err != nil || r.Outcome != commit.Committed || len(r.Notes) > 0 {
		d.t.Fatal(r.Outcome, r.Items, r.Notes, err)
	}
	d.clean()
}

func (d *disk) refused(code refusal.Code, at string, cs ...commit.Change) {
	d.t.Helper()
	r, err := d.run(vfs.OS{}, cs...)
	if err != nil || r.Outcome != commit.Refused || len(r.Items) == 0 || r.Items[0].Code != code || r.Items[0].Path != at {
		d.t.Errorf("want %s at %q: %v %v %v", code, at, r.Outcome, r.Items, err)
	}
	d.clean()
}

func (d *disk) clean() {
	d.t.Helper()
	es, err := os.ReadDir(filepath.Dir(d.dir))
	d.ok(err)
	for _, e := range es {
		if strings.HasPrefix(e.Name(), exchange.Prefix) {
			d.t.Errorf("left over: %s", e.Name())
		}
	}
}

func needRoot(t testing.TB) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
}

// acl is user::rwx, group::r-x, group 34:rwx, mask::rwx, other::---.
var acl = []byte{2, 0, 0, 0,
	1, 0, 7, 0, 255, 255, 255, 255, 4, 0, 5, 0, 255, 255, 255, 255, 8, 0, 7, 0, 34, 0, 0, 0,
	16, 0, 7, 0, 255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255, 255}

func xattr(p, name string) string {
	var b [256]byte
	n, err := unix.Lgetxattr(p, name, b[:])
	if err != nil {
		return ""
	}
	return string(b[:n])
}

// TestMetadataStays: everything that the plan does not name is the same file
// with the same metadata, directories have theirs, new files what they would
// get in the live tree, and nothing of the directory above leaks in.
func TestMetadataStays(t *testing.T) {
	old := unix.Umask(0o027)
	defer unix.Umask(old)
	top := t.TempDir()
	d := newDisk(t, top)
	d.ok(os.Chmod(d.dir, 0o750))
	for _, p := range []string{"shared/old", "acl/old", "plain/old", "plain/gone/x", "deep/er/leaf"} {
		d.write(p, "old\n", 0o644)
	}
	gid := os.Getgid()
	if os.Getuid() == 0 {
		gid = 34
		d.ok(os.Chown(d.path("shared"), 12, gid))
		d.ok(os.Chown(d.path("shared/old"), 12, gid))
	}
	d.ok(os.Chmod(d.path("shared"), 0o775|os.ModeSetgid))
	withACL := unix.Setxattr(d.path("acl"), "system.posix_acl_default", acl, 0) == nil
	if withACL {
		d.ok(unix.Setxattr(top, "system.posix_acl_default", acl, 0)) // must not leak in
	}
	d.ok(os.Chmod(top, 0o755|os.ModeSetgid))
	withUser := unix.Setxattr(d.path("plain/old"), "user.note", []byte("kept"), 0) == nil && unix.Setxattr(d.path("plain"), "user.dir", []byte("kept too"), 0) == nil
	for _, p := range []string{"shared/model", "acl/model", "plain/model"} {
		d.ok(os.WriteFile(d.path(p), nil, 0o666)) // what the kernel makes by itself
	}
	d.ok(os.Mkdir(d.path("acl/modeldir"), 0o777))
	d.ok(os.Mkdir(d.path("shared/modeldir"), 0o777))
	d.write("run.sh", "#!\n", 0o4755)
	d.ok(os.Mkdir(d.path("locked"), 0o755))
	d.write("locked/in", "in\n", 0o400)
	d.ok(os.Chmod(d.path("locked"), 0o555))
	defer os.Chmod(d.path("locked"), 0o755) // so that it can be removed
	d.ok(os.Mkdir(d.path("sticky"), 0o777))
	d.ok(os.Chmod(d.path("sticky"), 0o777|os.ModeSticky))
	d.ok(os.Link(d.path("run.sh"), d.path("twin")))
	d.ok(os.Symlink("run.sh", d.path("ln")))
	d.ok(unix.Mkfifo(d.path("fifo"), 0o640))
	d.ok(os.WriteFile(d.path("bytes\xff\xfe"), []byte("b"), 0o644))
	d.ok(unix.Mknod(d.path("sock"), unix.S_IFSOCK|0o600, 0))
	past := time.Unix(1_000_000_000, 5)
	for _, p := range []string{"run.sh", "locked/in", "locked", "deep/er", "deep", "sticky", "plain", "."} {
		d.ok(os.Chtimes(d.path(p), past, past))
	}
	keep := []string{"run.sh", "twin", "ln", "fifo", "sock", "bytes\xff\xfe", "locked/in", "shared/model"}
	was := map[string]vfs.Stat{}
	for _, p := range append(keep, "locked", "sticky", "deep", "deep/er", "shared", "acl", "plain", ".") {
		was[p] = d.stat(p)
	}
	ch := d.modify("plain/old", "new\n")
	d.committed(ch, d.modify("shared/old", "new\n"), d.modify("acl/old", "new\n"), create(t, "shared/new", "n\n", false), create(t, "acl/new", "n\n", false),
		create(t, "plain/new", "n\n", false), create(t, "shared/sub/new", "n\n", false), create(t, "acl/sub/new", "n\n", false),
		commit.Change{Path: path(t, "plain/gone/x"), Before: d.now("plain/gone/x")})
	for p, a := range was {
		b := d.stat(p)
		isDir := a.Kind == vfs.KindDir
		if a.Perm != b.Perm || a.UID != b.UID || a.GID != b.GID || a.Kind != b.Kind || !isDir && (a.Ino != b.Ino || a.Nlink != b.Nlink || a.Mtime != b.Mtime) {
			t.Errorf("%q: %+v, was %+v", p, b, a)
		}
	}
	for _, p := range []string{"locked", "deep", "deep/er", "sticky", "."} {
		if d.stat(p).Mtime != past.UnixNano() {
			t.Errorf("%s: its names did not change, its time did", p)
		}
	}
	if d.stat("plain").Mtime == past.UnixNano() {
		t.Error("plain: its names changed, its time did not")
	}
	for _, p := range []string{"shared/", "acl/", "plain/"} {
		a, b := d.stat(p+"model"), d.stat(p+"new")
		if a.Perm != b.Perm || a.UID != b.UID || a.GID != b.GID {
			t.Errorf("%snew: mode %o owner %d:%d, made there: %o %d:%d", p, b.Perm, b.UID, b.GID, a.Perm, a.UID, a.GID)
		}
		if x, y := xattr(d.path(p+"model"), "system.posix_acl_access"), xattr(d.path(p+"new"), "system.posix_acl_access"); x != y {
			t.Errorf("%snew: ACL %x, made there: %x", p, y, x)
		}
		if d.read(p+"old") != "new\n" || d.stat(p+"old").Perm != 0o644 || xattr(d.path(p+"old"), "system.posix_acl_access") != "" {
			t.Errorf("%sold: %q %o", p, d.read(p+"old"), d.stat(p+"old").Perm)
		}
	}
	for _, p := range []string{"acl/", "shared/"} {
		if a, b := d.stat(p+"modeldir"), d.stat(p+"sub"); a.Perm != b.Perm || a.GID != b.GID || xattr(d.path(p+"modeldir"), "system.posix_acl_default") != xattr(d.path(p+"sub"), "system.posix_acl_default") {
			t.Errorf("%ssub: %o %d, made there %o %d", p, b.Perm, b.GID, a.Perm, a.GID)
		}
	}
	if st := d.stat("shared/old"); int(st.GID) != gid {
		t.Errorf("shared/old: group %d", st.GID)
	}
	if withACL && xattr(d.path("acl"), "system.posix_acl_default") != string(acl) {
		t.Error("the default ACL of a directory is lost")
	}
	for _, p := range []string{".", "plain", "deep", "shared"} {
		if xattr(d.path(p), "system.posix_acl_default") != "" || xattr(d.path(p), "system.posix_acl_access") != "" {
			t.Errorf("%s: an ACL leaked in", p)
		}
	}
	if withUser && (xattr(d.path("plain/old"), "user.note") != "kept" || xattr(d.path("plain"), "user.dir") != "kept too") {
		t.Error("attributes are lost")
	}
	if _, err := os.Lstat(d.path("plain/gone")); !errors.Is(err, os.ErrNotExist) {
		t.Error("an emptied directory stays")
	}
	if !withACL || !withUser {
		t.Logf("not all was tried here: ACLs %v, attributes %v", withACL, withUser)
	}
}

// TestAttributesMovedMeanwhile: an attribute that somebody sets on a directory or
// on a file of the plan, which both have a successor in the new tree, is seen.
func TestAttributesMovedMeanwhile(t *testing.T) {
	for _, at := range []string{"compare the tree", "exchange", "compare what was displaced"} {
		for _, p := range []string{"sub", "f"} {
			top := t.TempDir()
			d := newDisk(t, top)
			d.write("sub/x", "x\n", 0o644)
			d.write("f", "old\n", 0o644)
			sub, err := os.Open(d.path(p)) // by its descriptor, wherever it is
			d.ok(err)
			defer sub.Close()
			if err := unix.Fsetxattr(int(sub.Fd()), "user.first", []byte("1"), 0); err != nil {
				t.Skipf("no user attributes here: %v", err)
			}
			time.Sleep(20 * time.Millisecond) // a tick of the clock of the file system
			r, err := exchange.Run(context.Background(), exchange.Env{FS: vfs.OS{}, RootPath: d.dir}, "tx1", []commit.Change{d.modify("f", "new\n")}, exchange.Options{
				Step: func(name string) {
					if name == at {
						d.ok(unix.Fsetxattr(int(sub.Fd()), "user.second", []byte("2"), 0))
					}
				},
			})
			if err != nil || r.Outcome == commit.Committed || r.Items[0].Code != refusal.ChangedUnderneath || r.Items[0].Path != p {
				t.Errorf("%s at %q: %v %v %v", p, at, r.Outcome, r.Items, err)
			}
			if xattr(d.path(p), "user.second") != "2" || d.read("f") != "old\n" {
				t.Errorf("%s at %q: it is not as the other left it", p, at)
			}
			d.clean()
		}
	}
}

// chattr sets an inode flag, or skips; the function returned takes it away.
func chattr(t *testing.T, p string, flag int) func() {
	t.Helper()
	set := func(on bool) error {
		f, err := os.Open(p)
		if err != nil {
			return err
		}
		defer f.Close()
		v, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS)
		if err != nil {
			return err
		}
		v &^= flag
		if on {
			v |= flag
		}
		return unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, v)
	}
	if err := set(true); err != nil {
		t.Skipf("no inode flags here: %v", err)
	}
	return func() {
		if err := set(false); err != nil {
			t.Error(err)
		}
	}
}

// TestFlags: what cannot be moved refuses the plan, what can be kept is kept.
func TestFlags(t *testing.T) {
	needRoot(t)
	for _, flag := range []int{0x10, 0x20} {
		for _, p := range []string{"x", "sub", "sub/a", "."} {
			d := newDisk(t, t.TempDir())
			d.write("sub/a", "old\n", 0o644)
			d.write("x", "old\n", 0o644)
			off := chattr(t, d.path(p), flag)
			code, at := refusal.Metadata, p
			if p == "." {
				code, at = refusal.NotWritable, ""
			}
			d.refused(code, at, d.modify("x", "new\n"))
			off()
			if d.read("x") != "old\n" {
				t.Error("changed")
			}
		}
	}
	d := newDisk(t, t.TempDir())
	d.write("sub/a", "old\n", 0o644)
	chattr(t, d.path("sub/a"), 0x40) // no dump
	chattr(t, d.path("sub"), 0x40)
	d.committed(d.modify("sub/a", "new\n"))
	for _, p := range []string{"sub", "sub/a"} {
		f, err := os.Open(d.path(p))
		d.ok(err)
		if v, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS); err != nil || v&0x40 == 0 {
			t.Errorf("%s: flags %#x %v", p, v, err)
		}
		f.Close()
	}
}

// TestMounts: a mount in the tree, of a directory or of a file, and a root that
// is a mount point, are refused.
func TestMounts(t *testing.T) {
	needRoot(t)
	d := newDisk(t, t.TempDir())
	d.write("sub/a", "old\n", 0o644)
	d.write("f", "f\n", 0o644)
	d.write("x", "old\n", 0o644)
	mount := func(at, kind string, flags uintptr, src string) func() {
		if err := unix.Mount(src, at, kind, flags, ""); err != nil {
			need.Missing(t, "cannot mount: %v", err)
		}
		return func() { _ = unix.Unmount(at, unix.MNT_DETACH) }
	}
	off := mount(d.path("sub"), "tmpfs", 0, "tmpfs")
	d.refused(refusal.CrossDevice, "sub", d.modify("x", "new\n"))
	off()
	off = mount(d.path("f"), "", unix.MS_BIND, d.path("x"))
	d.refused(refusal.CrossDevice, "f", d.modify("x", "new\n"))
	off()
	off = mount(d.dir, "", unix.MS_BIND, d.dir)
	d.refused(refusal.CrossDevice, "", d.modify("x", "new\n"))
	if _, it, err := exchange.Forecast(exchange.Env{FS: vfs.OS{}, RootPath: d.dir}); it == nil || err != nil {
		t.Error(it, err)
	}
	off()
	d.committed(d.modify("x", "new\n"))
}

// TestOrdinaryUser: files and directories that are not ours, a parent that may
// not be written, directories that cannot be read, read-only ones. The body
// runs as nobody, in a process of its own where the test itself is root.
func TestOrdinaryUser(t *testing.T) {
	if os.Getuid() == 0 && os.Getenv("ASP_TEST_AS_USER") == "" {
		top, err := os.MkdirTemp("", "user")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(top)
		for p := top; p != "/"; p = filepath.Dir(p) {
			if fi, err := os.Stat(p); err != nil || p != top && fi.Mode().Perm()&0o001 == 0 {
				t.Skipf("%s is closed to other users", p)
			}
		}
		// What the user will not own.
		for _, p := range []string{"foreign/ws/dir", "file/ws"} {
			if err := os.MkdirAll(filepath.Join(top, p), 0o777); err != nil {
				t.Fatal(err)
			}
		}
		bin := filepath.Join(top, "test")
		err = errors.Join(os.Chmod(top, 0o755), os.WriteFile(filepath.Join(top, "file/ws/root"), []byte("x"), 0o644),
			os.Lchown(filepath.Join(top, "foreign"), 65534, 65534), os.Lchown(filepath.Join(top, "foreign/ws"), 65534, 65534),
			os.Lchown(filepath.Join(top, "file"), 65534, 65534), os.Lchown(filepath.Join(top, "file/ws"), 65534, 65534),
			os.Mkdir(filepath.Join(top, "own"), 0o755), os.Lchown(filepath.Join(top, "own"), 65534, 65534))
		if err != nil {
			t.Fatal(err)
		}
		self, err := os.ReadFile("/proc/self/exe")
		if err == nil {
			err = os.WriteFile(bin, self, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
		c := exec.Command(bin, "-test.run=^TestOrdinaryUser$", "-test.v")
		c.Env = []string{"ASP_TEST_AS_USER=" + top, "TMPDIR=" + filepath.Join(top, "own")}
		c.Dir = top
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("as nobody: %v\n%s", err, out)
		}
		return
	}
	if top := os.Getenv("ASP_TEST_AS_USER"); top != "" {
		// A directory of root cannot be copied with its owner; a file of root may
		// not get a second name where hard links are protected.
		d := &disk{t, filepath.Join(top, "foreign/ws")}
		d.write("x", "old\n", 0o644)
		d.refused(refusal.Metadata, "dir", d.modify("x", "new\n"))
		d = &disk{t, filepath.Join(top, "file/ws")}
		d.write("x", "old\n", 0o644)
		if b, err := os.ReadFile("/proc/sys/fs/protected_hardlinks"); err == nil && strings.TrimSpace(string(b)) == "1" {
			d.refused(refusal.Metadata, "root", d.modify("x", "new\n"))
		}
	}
	if os.Getuid() == 0 {
		t.Fatal("still root")
	}
	d := newDisk(t, t.TempDir())
	d.write("x", "old\n", 0o644)
	d.write("shut/y", "y\n", 0o644)
	d.ok(os.Chmod(d.path("shut"), 0o000))
	d.refused(refusal.Metadata, "shut", d.modify("x", "new\n"))
	d.ok(os.Chmod(d.path("shut"), 0o555))
	d.committed(d.modify("x", "new\n"))
	if d.stat("shut").Perm != 0o555 || d.read("shut/y") != "y\n" {
		t.Error("a read-only directory is not as it was")
	}
	d.ok(os.Chmod(d.path("shut"), 0o755))
	d.ok(os.Chmod(d.dir, 0o555))
	d.refused(refusal.NotWritable, "", d.modify("x", "newer\n"))
	d.ok(os.Chmod(d.dir, 0o755))
	d.ok(os.Chmod(filepath.Dir(d.dir), 0o555))
	d.refused(refusal.NotWritable, "", d.modify("x", "newer\n"))
	d.ok(os.Chmod(filepath.Dir(d.dir), 0o755))
	if d.read("x") != "new\n" {
		t.Error("changed")
	}
}

// TestDiskDeathSweep: on the real file system, dead at each mutation, with a
// reader that looks up the root after each: it exists and is whole.
func TestDiskDeathSweep(t *testing.T) {
	top := t.TempDir()
	for n := 1; ; n++ {
		d := newDisk(t, filepath.Join(top, fmt.Sprint(n)))
		d.write("a", "old\n", 0o644)
		d.write("sub/b", "old\n", 0o600)
		d.write("lone/c", "c\n", 0o644)
		whole := func() string {
			a, b := d.read("a"), d.read("sub/b")
			if _, err := os.Lstat(d.path("lone")); (err == nil) != (a == "old\n") || a != b {
				t.Fatalf("died at %d: a %q, b %q, %v", n, a, b, err)
			}
			return a
		}
		ff := faultfs.New(vfs.OS{}, func(e faultfs.Event) faultfs.Fault {
			_ = whole()
			if e.M == n {
				return faultfs.Fault{Death: faultfs.DiesAfter}
			}
			return faultfs.Fault{}
		})
		r, _ := d.run(ff, d.modify("a", "new\n"), d.modify("sub/b", "new\n"), commit.Change{Path: path(t, "lone/c"), Before: d.now("lone/c")})
		state := whole()
		for range 2 {
			if _, err := exchange.Recover(context.Background(), exchange.Env{FS: vfs.OS{}, RootPath: d.dir}, nil); err != nil {
				t.Fatal(n, err)
			}
		}
		d.clean()
		if whole() != state || r.Outcome == commit.Committed && state != "new\n" {
			t.Fatalf("died at %d: %v %q", n, r.Outcome, state)
		}
		if !ff.Dead() {
			return
		}
	}
}

// loop is a file system in a file, mounted by a loop device.
type loop struct {
	t        *testing.T
	img, mnt string
}

func newLoop(t *testing.T, fs string, mb int64) *loop {
	t.Helper()
	needRoot(t)
	t.Setenv("PATH", os.Getenv("PATH")+":/usr/sbin:/sbin")
	dir := t.TempDir()
	l := &loop{t, filepath.Join(dir, "img"), filepath.Join(dir, "m")}
	if err := errors.Join(os.WriteFile(l.img, nil, 0o600), os.Truncate(l.img, mb<<20), os.Mkdir(l.mnt, 0o755)); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs."+fs, "-q", l.img).CombinedOutput(); err != nil {
		need.Missing(t, "no mkfs.%s: %v %s", fs, err, out)
	}
	l.mount()
	t.Cleanup(func() { _ = unix.Unmount(l.mnt, unix.MNT_DETACH) })
	return l
}

func (l *loop) mount() {
	l.t.Helper()
	if out, err := exec.Command("mount", "-o", "loop", l.img, l.mnt).CombinedOutput(); err != nil {
		need.Missing(l.t, "cannot mount: %v %s", err, out)
	}
}

// cut shuts the file system down without flushing its log and mounts a copy of
// what the disk held: a namespace of some other process may still hold the
// dead mount.
func (l *loop) cut() {
	l.t.Helper()
	f, err := os.Open(l.mnt)
	if err != nil {
		l.t.Fatal(err)
	}
	flag := uint32(2) // no log flush
	_, _, e := unix.Syscall(unix.SYS_IOCTL, f.Fd(), 0x8004587D, uintptr(unsafe.Pointer(&flag)))
	f.Close()
	if e != 0 {
		l.t.Fatalf("shut down: %v", e)
	}
	next := l.img + "'"
	out, err := exec.Command("cp", "--sparse=always", l.img, next).CombinedOutput()
	if err = errors.Join(err, unix.Unmount(l.mnt, unix.MNT_DETACH), os.Remove(l.img)); err != nil {
		l.t.Fatalf("%v %s", err, out)
	}
	l.img = next
	l.mount()
}

// TestPowerCutOnDisk cuts the power of a real journalling file system at each
// step and in the clean-up.
func TestPowerCutOnDisk(t *testing.T) {
	l := newLoop(t, "ext4", 64)
	old, next := strings.Repeat("old\n", 1024), strings.Repeat("next\n", 1200)
	stops := []func(e faultfs.Event, swapped bool) bool{
		func(e faultfs.Event, _ bool) bool { return e.Op == faultfs.Link },
		func(e faultfs.Event, s bool) bool { return e.Op == faultfs.SyncFS && !s },
		func(e faultfs.Event, _ bool) bool { return e.Op == faultfs.SyncDir },
		func(e faultfs.Event, _ bool) bool { return e.Op == faultfs.Exchange },
		func(e faultfs.Event, s bool) bool { return e.Op == faultfs.SyncFS && s },
		func(e faultfs.Event, s bool) bool { return e.Op == faultfs.Unlink && s },
		func(e faultfs.Event, s bool) bool {
			return e.Op == faultfs.Unlink && strings.HasSuffix(e.Path, "/journal")
		},
		func(e faultfs.Event, _ bool) bool { return false },
	}
	for i, stop := range stops {
		d := newDisk(t, filepath.Join(l.mnt, fmt.Sprint(i)))
		names := []string{"a", "sub/b", "sub/c"}
		for _, n := range names {
			d.write(n, old, 0o644)
		}
		d.write("lone/gone", "gone\n", 0o644)
		d.write("stays", old, 0o644)
		unix.Sync()
		var cs []commit.Change
		for _, n := range names {
			cs = append(cs, d.modify(n, next))
		}
		cs = append(cs, commit.Change{Path: path(t, "lone/gone"), Before: d.now("lone/gone")}, create(t, "new/file", "new\n", false))
		swapped := false
		ff := faultfs.New(vfs.OS{}, func(e faultfs.Event) faultfs.Fault {
			hit := stop(e, swapped)
			swapped = swapped || e.Op == faultfs.Exchange
			if hit {
				return faultfs.Fault{Death: faultfs.DiesAfter}
			}
			return faultfs.Fault{}
		})
		r, _ := d.run(ff, cs...)
		if ff.Dead() == (i == len(stops)-1) {
			t.Fatalf("stop %d: dead %v", i, ff.Dead())
		}
		// Some unsynced work of recovery is cut off too.
		if i%2 == 0 {
			rf := faultfs.New(vfs.OS{}, faultfs.AtMutation(4, faultfs.Fault{Death: faultfs.DiesAfter}))
			_, _ = exchange.Recover(context.Background(), exchange.Env{FS: rf, RootPath: d.dir}, nil)
		}
		l.cut()
		for range 2 {
			if _, err := exchange.Recover(context.Background(), exchange.Env{FS: vfs.OS{}, RootPath: d.dir}, nil); err != nil {
				t.Fatalf("stop %d: %v", i, err)
			}
		}
		got := 0
		for _, n := range names {
			switch d.read(n) {
			case old:
			case next:
				got++
			default:
				t.Errorf("stop %d: %s is torn", i, n)
			}
		}
		_, goneErr := os.Stat(d.path("lone"))
		_, newErr := os.Stat(d.path("new/file"))
		if all := got == len(names); got != 0 && !all || all != (goneErr != nil) || all != (newErr == nil) {
			t.Errorf("stop %d: %d new, gone %v, new %v", i, got, goneErr, newErr)
		}
		if r.Outcome == commit.Committed && got == 0 {
			t.Errorf("stop %d: acknowledged and lost", i)
		}
		if !bytes.Equal([]byte(d.read("stays")), []byte(old)) {
			t.Errorf("stop %d: a bystander is torn", i)
		}
		d.clean()
		t.Logf("stop %d: %d of %d new, %v", i, got, len(names), r.Outcome)
		if i == len(stops)-1 && r.Facts.Guarantee() != commit.StagedSnapshot {
			t.Error(r.Facts.Detail())
		}
	}
}
