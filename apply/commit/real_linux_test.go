package commit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/aspengine/asp/apply/commit"
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

func newDisk(t testing.TB, dir string) *disk {
	t.Helper()
	d := &disk{t, dir}
	d.ok(os.MkdirAll(filepath.Join(dir, ".git"), 0o755))
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

func (d *disk) env(f vfs.FS) commit.Env {
	d.t.Helper()
	root, err := f.OpenRoot(d.dir)
	d.ok(err)
	d.t.Cleanup(func() { root.Close() })
	return commit.Env{FS: f, Root: root, TxDir: d.path(".git/asp")}
}

// now is the image that admission sees.
func (d *disk) now(p string) *commit.Image {
	d.t.Helper()
	root, err := (vfs.OS{}).OpenRoot(d.dir)
	d.ok(err)
	defer root.Close()
	st, err := root.Lstat(p)
	d.ok(err)
	text := ""
	if st.Kind == vfs.KindSymlink {
		text, err = os.Readlink(d.path(p))
		d.ok(err)
	} else {
		text = d.read(p)
	}
	return &commit.Image{Kind: st.Kind, Digest: snapshot.DigestOf([]byte(text)), Size: st.Size, Perm: st.Perm, Stat: st}
}

func (d *disk) modify(p, text string) commit.Change {
	b := d.now(p)
	return commit.Change{Path: path(d.t, p), Before: b,
		After: &commit.Image{Kind: vfs.KindFile, Digest: snapshot.DigestOf([]byte(text)), Size: int64(len(text)), Perm: b.Perm, Open: opener(text)}}
}

func (d *disk) remove(p string) commit.Change {
	return commit.Change{Path: path(d.t, p), Before: d.now(p)}
}

func (d *disk) rename(from, to string) []commit.Change {
	b := d.now(from)
	return []commit.Change{{Path: path(d.t, from), Before: b, MovedTo: path(d.t, to)}, {Path: path(d.t, to), After: b, From: path(d.t, from)}}
}

func (d *disk) committed(r commit.Result, err error) {
	d.t.Helper()
	if err != nil || r.Outcome != commit.Committed {
		d.t.Fatalf("%v %v %v", r.Outcome, r.Items, err)
	}
	d.clean()
}

func (d *disk) clean() {
	d.t.Helper()
	d.ok(filepath.WalkDir(d.dir, func(p string, _ os.DirEntry, err error) error {
		if err == nil && (p == d.path(".git/asp") || strings.Contains(p, ".asp-tx-")) {
			d.t.Errorf("left over: %s", p)
		}
		return err
	}))
}

func umask(t *testing.T, m int) {
	old := unix.Umask(m)
	t.Cleanup(func() { unix.Umask(old) })
}

// TestFM01Modes: modes stay, new files follow the umask, nothing of a private
// file is ever readable by others, setuid is kept.
func TestFM01Modes(t *testing.T) {
	umask(t, 0o027)
	d := newDisk(t, t.TempDir())
	modes := map[string]os.FileMode{"conf": 0o640, "key": 0o600, "odd": 0o604, "suid": 0o755 | os.ModeSetuid}
	var cs []commit.Change
	for p, m := range modes {
		d.write(p, "old\n", m)
		cs = append(cs, d.modify(p, "new\n"))
	}
	d.write("run.sh", "#!\n", 0o755)
	cs = append(cs, d.rename("run.sh", "bin/run.sh")...)
	cs = append(cs, create(t, "new.txt", "n\n", false), create(t, "new.sh", "n\n", true))
	ino := d.now("run.sh").Stat.Ino
	// Every file of ours is looked at after each operation on the disk.
	private := 0
	ff := faultfs.New(vfs.OS{}, func(e faultfs.Event) faultfs.Fault {
		if !e.Op.Mutating() {
			return faultfs.Fault{}
		}
		filepath.WalkDir(d.dir, func(p string, de os.DirEntry, err error) error {
			if err != nil || de.IsDir() {
				if de != nil && filepath.Base(filepath.Dir(p)) == "asp" {
					if i, err := de.Info(); err == nil && i.Mode().Perm()&0o077 != 0 {
						t.Errorf("%s has mode %v", p, i.Mode())
					}
				}
				return nil
			}
			if filepath.Base(p) == "key" {
				private++
				if i, err := de.Info(); err == nil && i.Mode().Perm() != 0o600 {
					t.Errorf("%s has mode %v", p, i.Mode())
				}
			}
			return nil
		})
		return faultfs.Fault{}
	})
	d.committed(runIn(d.env(ff), "tx1", cs, commit.Options{}))
	if private == 0 {
		t.Error("nobody looked")
	}
	for p, m := range modes {
		if i, err := os.Stat(d.path(p)); err != nil || i.Mode() != m || d.read(p) != "new\n" {
			t.Errorf("%s: %v %v", p, i.Mode(), err)
		}
	}
	for p, m := range map[string]os.FileMode{"new.txt": 0o640, "new.sh": 0o750, "bin/run.sh": 0o755, "bin": 0o750} {
		if i, err := os.Stat(d.path(p)); err != nil || i.Mode().Perm() != m {
			t.Errorf("%s: %v %v", p, i, err)
		}
	}
	if d.now("bin/run.sh").Stat.Ino != ino {
		t.Error("a move made a new inode")
	}
}

// TestFM01Metadata: extended attributes and the owner stay.
func TestFM01Metadata(t *testing.T) {
	d := newDisk(t, t.TempDir())
	d.write("a", "old\n", 0o644)
	if err := unix.Setxattr(d.path("a"), "user.note", []byte("kept"), 0); err != nil {
		need.Missing(t, "no user attributes here: %v", err)
	}
	uid, gid := os.Getuid(), os.Getgid()
	if uid == 0 {
		uid, gid = 12, 34
		d.ok(os.Chown(d.path("a"), uid, gid))
	}
	d.committed(runIn(d.env(vfs.OS{}), "tx1", []commit.Change{d.modify("a", "new\n")}, commit.Options{}))
	var b [16]byte
	n, err := unix.Getxattr(d.path("a"), "user.note", b[:])
	st := d.now("a").Stat
	if err != nil || string(b[:n]) != "kept" || int(st.UID) != uid || int(st.GID) != gid || d.read("a") != "new\n" {
		t.Errorf("%q %v %+v", b[:n], err, st)
	}
}

// TestImmutable: a flag that cannot be kept refuses the plan.
func TestImmutable(t *testing.T) {
	d := newDisk(t, t.TempDir())
	d.write("a", "old\n", 0o644)
	off := chattr(t, d.path("a"), 0x20) // append only
	defer off()
	r, err := runIn(d.env(vfs.OS{}), "tx1", []commit.Change{d.modify("a", "new\n")}, commit.Options{})
	if err != nil || r.Outcome != commit.Refused || r.Items[0].Code != refusal.Metadata {
		t.Fatal(r.Outcome, r.Items, err)
	}
	d.clean()
}

// chattr sets an inode flag, or skips; the function returned takes it away.
func chattr(t *testing.T, p string, flag int) func() {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("inode flags need root")
	}
	set := func(v int) error {
		f, err := os.Open(p)
		if err != nil {
			return err
		}
		defer f.Close()
		return unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, v)
	}
	if err := set(flag); err != nil {
		need.Missing(t, "no inode flags here: %v", err)
	}
	return func() { _ = set(0) }
}

// TestPV03FileToDirectory: p is a file, then a directory; made to fail at its
// last step, p is the same file again.
func TestPV03FileToDirectory(t *testing.T) {
	for _, fail := range []bool{false, true} {
		d := newDisk(t, t.TempDir())
		d.write("p", "plain\n", 0o644)
		ino := d.now("p").Stat.Ino
		var f vfs.FS = vfs.OS{}
		if fail {
			f = faultfs.New(f, faultfs.When(func(e faultfs.Event) bool { return e.Op == faultfs.NoReplace && e.To == "p/c.txt" }, 1, faultfs.Fault{Err: unix.EIO}))
		}
		r, err := runIn(d.env(f), "tx1", []commit.Change{d.remove("p"), create(t, "p/c.txt", "c\n", false)}, commit.Options{})
		if !fail {
			d.committed(r, err)
			if d.read("p/c.txt") != "c\n" {
				t.Error("not there")
			}
			continue
		}
		if r.Outcome != commit.RolledBack || !errors.Is(err, unix.EIO) || d.read("p") != "plain\n" || d.now("p").Stat.Ino != ino {
			t.Errorf("%v %v", r.Outcome, err)
		}
		d.clean()
	}
}

// TestPV04LastStepFails: the directory of the third target becomes unwritable
// after the checks; the first two are as before.
func TestPV04LastStepFails(t *testing.T) {
	d := newDisk(t, t.TempDir())
	d.write("keep.txt", "precious\n", 0o644)
	d.write("a.txt", "1\n", 0o600)
	d.write("sub/t", "t\n", 0o644)
	off := func() {}
	defer func() { off() }()
	cs := []commit.Change{d.remove("keep.txt"), d.modify("a.txt", "2\n"), d.modify("sub/t", "T\n")}
	r, err := runIn(d.env(vfs.OS{}), "tx1", cs, commit.Options{Recheck: func(context.Context) (refusal.List, error) {
		if os.Getuid() == 0 {
			off = chattr(t, d.path("sub"), 0x10)
			return nil, nil
		}
		off = func() { os.Chmod(d.path("sub"), 0o755) }
		return nil, os.Chmod(d.path("sub"), 0o555)
	}})
	if r.Outcome != commit.RolledBack || !errors.Is(err, os.ErrPermission) {
		t.Fatal(r.Outcome, r.Items, err)
	}
	if d.read("keep.txt") != "precious\n" || d.read("a.txt") != "1\n" || d.read("sub/t") != "t\n" || d.now("a.txt").Perm != 0o600 {
		t.Error("not as before")
	}
	d.clean()
}

func needRoot(t testing.TB) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
}

// TestFM04OtherMount: a target on another mount is staged beside it, and no
// rename crosses mounts.
func TestFM04OtherMount(t *testing.T) {
	needRoot(t)
	d := newDisk(t, t.TempDir())
	d.ok(os.Mkdir(d.path("mnt"), 0o755))
	if err := unix.Mount("tmpfs", d.path("mnt"), "tmpfs", 0, "size=1m"); err != nil {
		need.Missing(t, "cannot mount: %v", err)
	}
	defer unix.Unmount(d.path("mnt"), 0)
	d.write("mnt/f", "1\n", 0o644)
	d.write("g", "1\n", 0o644)
	ff := faultfs.New(vfs.OS{}, nil)
	e := d.env(ff)
	r, err := runIn(e, "tx1", []commit.Change{d.modify("mnt/f", "2\n"), d.modify("g", "2\n"), create(t, "mnt/n/new", "n\n", false)}, commit.Options{})
	d.committed(r, err)
	if d.read("mnt/f") != "2\n" || d.read("g") != "2\n" || d.read("mnt/n/new") != "n\n" || r.Facts.Beside != 1 || len(r.Facts.Mounts) != 2 {
		t.Errorf("%+v", r.Facts)
	}
	for _, ev := range ff.Events() {
		if ev.Op == faultfs.Exchange && ev.To == "mnt/f" && !strings.HasPrefix(ev.Path, "mnt/.asp-tx-") {
			t.Errorf("not staged beside: %v", ev)
		}
	}
	r, err = runIn(e, "tx2", d.rename("g", "mnt/g"), commit.Options{})
	if err != nil || r.Outcome != commit.Refused || r.Items[0].Code != refusal.CrossDevice {
		t.Errorf("%v %v %v", r.Outcome, r.Items, err)
	}
	d.clean()
	// Killed at every operation, the directory beside is found and removed.
	for n := 1; ; n++ {
		ff := faultfs.New(vfs.OS{}, faultfs.AtMutation(n, faultfs.Fault{Death: faultfs.DiesAfter}))
		r, _ := runIn(d.env(ff), fmt.Sprintf("tx%d", n+2), []commit.Change{d.modify("mnt/f", d.read("g")+"x"), d.modify("g", d.read("g")+"x")}, commit.Options{})
		if _, err := commit.Recover(context.Background(), d.env(vfs.OS{}), commit.RecoverOptions{}); err != nil {
			t.Fatal(n, err)
		}
		if d.read("mnt/f") != d.read("g") {
			t.Fatalf("killed at %d: %q %q", n, d.read("mnt/f"), d.read("g"))
		}
		d.clean()
		if !ff.Dead() {
			if r.Outcome != commit.Committed {
				t.Fatal(r)
			}
			break
		}
	}
}

// TestCR03Names: the user's look-alikes stay.
func TestCR03Names(t *testing.T) {
	d := newDisk(t, t.TempDir())
	d.write("conf.yml", "v0\n", 0o644)
	d.write("conf.yml.tmp", "my backup\n", 0o644)
	d.write(".conf.yml.swp", "swp\n", 0o644)
	for n := 1; n <= 20; n++ {
		ff := faultfs.New(vfs.OS{}, faultfs.AtMutation(n, faultfs.Fault{Death: faultfs.DiesBefore}))
		runIn(d.env(ff), fmt.Sprintf("tx%d", n), []commit.Change{d.modify("conf.yml", fmt.Sprintf("v%d\n", n))}, commit.Options{})
		for _, ev := range ff.Events() {
			if (ev.Op == faultfs.Create) && (strings.HasSuffix(ev.Path, ".yml") || !strings.HasPrefix(ev.Path, "asp/")) {
				t.Errorf("%v", ev)
			}
		}
		if _, err := commit.Recover(context.Background(), d.env(vfs.OS{}), commit.RecoverOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	d.committed(runIn(d.env(vfs.OS{}), "txlast", []commit.Change{d.modify("conf.yml", "last\n")}, commit.Options{}))
	if d.read("conf.yml.tmp") != "my backup\n" || d.read(".conf.yml.swp") != "swp\n" || d.read("conf.yml") != "last\n" {
		t.Error("not as it should be")
	}
}

// TestPlainDirectory: the area under .asp/tx goes, and .asp with it if it is ours.
func TestPlainDirectory(t *testing.T) {
	for _, own := range []bool{false, true} {
		d := &disk{t, t.TempDir()}
		d.write("a", "1\n", 0o644)
		if own {
			d.write(".asp/asp.json", "{}", 0o644)
		}
		e := d.env(vfs.OS{})
		e.TxDir = d.path(".asp/tx")
		d.committed(runIn(e, "tx1", []commit.Change{d.modify("a", "2\n")}, commit.Options{}))
		if _, err := os.Stat(d.path(".asp")); own != (err == nil) {
			t.Errorf("%v", err)
		}
		if _, err := os.Stat(d.path(".asp/tx")); err == nil {
			t.Error("left over")
		}
	}
}

// loop is a file system in a file, mounted by a loop device.
type loop struct {
	t        *testing.T
	img, mnt string
	opts     string // of mount
}

func newLoop(t *testing.T, fs string, mb int64, opts ...string) *loop {
	t.Helper()
	needRoot(t)
	os.Setenv("PATH", os.Getenv("PATH")+":/usr/sbin:/sbin")
	dir := t.TempDir()
	l := &loop{t, filepath.Join(dir, "img"), filepath.Join(dir, "m"), "loop"}
	if fs == "xfs" {
		// xfs does not mount a copy while its original is mounted, be it dead and in
		// the namespace of some other process only.
		l.opts += ",nouuid"
	}
	if err := os.WriteFile(l.img, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Truncate(l.img, mb<<20), os.Mkdir(l.mnt, 0o755)); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs."+fs, append(opts, "-q", l.img)...).CombinedOutput(); err != nil {
		need.Missing(t, "no mkfs.%s: %v %s", fs, err, out)
	}
	l.mount()
	t.Cleanup(func() { _ = unix.Unmount(l.mnt, unix.MNT_DETACH) })
	return l
}

func (l *loop) mount() {
	l.t.Helper()
	if out, err := exec.Command("mount", "-o", l.opts, l.img, l.mnt).CombinedOutput(); err != nil {
		need.Missing(l.t, "cannot mount: %v %s", err, out)
	}
}

// cut shuts the file system down without flushing its log, and mounts it again.
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
	if err := unix.Unmount(l.mnt, unix.MNT_DETACH); err != nil {
		l.t.Fatalf("umount: %v", err)
	}
	// A namespace of some other process may still hold the dead mount, and a
	// mount of the same image would then be that one again. A copy is what the
	// disk held.
	next := l.img + "'"
	if out, err := exec.Command("cp", "--sparse=always", l.img, next).CombinedOutput(); err != nil {
		l.t.Fatalf("copy: %v %s", err, out)
	}
	if err := os.Remove(l.img); err != nil {
		l.t.Fatal(err)
	}
	l.img = next
	l.mount()
}

// TestPowerCutOnDisk cuts the power of real journalling file systems at chosen
// operations, in the long form at all of them: all old or all new after recovery, and all new once acknowledged.
func TestPowerCutOnDisk(t *testing.T) {
	for _, fs := range []struct {
		name string
		mb   int64
	}{{"ext4", 64}, {"xfs", 320}} {
		for _, style := range styles {
			t.Run(fs.name+"/"+style.String(), func(t *testing.T) {
				l := newLoop(t, fs.name, fs.mb)
				if long() {
					for at := 1; powerCutOnce(t, l, style, at, at); at++ {
					}
					return
				}
				// Points: before and after each barrier and around the swaps.
				for round, at := range []int{6, 14, 15, 17, 20, 24, 28, 34, 1 << 20} {
					powerCutOnce(t, l, style, round, at)
				}
			})
		}
	}
}

// powerCutOnce tells whether there was an operation to cut at.
func powerCutOnce(t *testing.T, l *loop, style commit.SyncStyle, round, at int) bool {
	t.Helper()
	d := newDisk(t, filepath.Join(l.mnt, fmt.Sprint("w", round)))
	names := []string{"a", "sub/b", "sub/c", "d"}
	old, next := bytes.Repeat([]byte("old\n"), 1024), bytes.Repeat([]byte("next\n"), 1200)
	for _, n := range names {
		d.write(n, string(old), 0o644)
	}
	d.write("gone", "gone\n", 0o644)
	unix.Sync()
	var cs []commit.Change
	for _, n := range names {
		cs = append(cs, d.modify(n, string(next)))
	}
	cs = append(cs, d.remove("gone"), create(t, "new/file", "new\n", false))
	root, err := (vfs.OS{}).OpenRoot(d.dir)
	d.ok(err)
	ff := faultfs.New(vfs.OS{}, faultfs.AtMutation(at, faultfs.Fault{Death: faultfs.DiesAfter}))
	froot, err := ff.OpenRoot(d.dir)
	d.ok(err)
	r, _ := runIn(commit.Env{FS: ff, Root: froot, TxDir: d.path(".git/asp"), Probe: good}, "tx1", cs, commit.Options{Sync: style})
	froot.Close()
	root.Close()
	l.cut()
	root, err = (vfs.OS{}).OpenRoot(d.dir)
	d.ok(err)
	e := commit.Env{FS: vfs.OS{}, Root: root, TxDir: d.path(".git/asp")}
	for range 2 {
		if _, err := commit.Recover(context.Background(), e, commit.RecoverOptions{}); err != nil {
			t.Fatalf("cut at %d: %v", at, err)
		}
	}
	root.Close()
	got := 0
	for _, n := range names {
		switch d.read(n) {
		case string(old):
		case string(next):
			got++
		default:
			t.Errorf("cut at %d: %s is torn", at, n)
		}
	}
	_, goneErr := os.Stat(d.path("gone"))
	_, newErr := os.Stat(d.path("new"))
	if all := got == len(names); got != 0 && !all || all != (goneErr != nil) || all != (newErr == nil) {
		t.Errorf("cut at %d: %d new, gone %v, new %v", at, got, goneErr, newErr)
	}
	if r.Outcome == commit.Committed && got == 0 {
		t.Errorf("cut at %d: acknowledged and lost", at)
	}
	d.clean()
	return ff.Dead()
}

// TestFactsOnDisk: a journal is looked for, not assumed.
func TestFactsOnDisk(t *testing.T) {
	for _, c := range []struct {
		fs   string
		mb   int64
		opts []string
		want commit.Guarantee
	}{
		{"ext4", 64, nil, commit.WorkspaceTransactional},
		{"ext4", 64, []string{"-O", "^has_journal"}, commit.RollbackAttempted},
		{"xfs", 320, nil, commit.WorkspaceTransactional},
		{"btrfs", 320, nil, commit.WorkspaceTransactional},
	} {
		t.Run(c.fs+strings.Join(c.opts, ""), func(t *testing.T) {
			if !vfs.CanExchange { // the portable form tells no file systems apart
				c.want = commit.RollbackAttempted
			}
			l := newLoop(t, c.fs, c.mb, c.opts...)
			d := newDisk(t, filepath.Join(l.mnt, "w"))
			d.write("a", "1\n", 0o644)
			cs := []commit.Change{d.modify("a", "2\n")}
			root, err := (vfs.OS{}).OpenRoot(d.dir)
			d.ok(err)
			defer root.Close()
			e := commit.Env{FS: vfs.OS{}, Root: root, TxDir: d.path(".git/asp")}
			f, err := commit.Forecast(context.Background(), e, cs, commit.Options{})
			if err != nil || f.Guarantee() != c.want {
				t.Errorf("forecast: %v %v", f.Guarantee(), err)
			}
			r, err := runIn(e, "tx1", cs, commit.Options{})
			d.committed(r, err)
			if r.Facts.Guarantee() != c.want {
				t.Errorf("%v: %s", r.Facts.Guarantee(), r.Facts.Detail())
			}
			t.Log(r.Facts.Detail())
		})
	}
}

// TestBigFileFlat: memory does not grow with the file.
func TestBigFileFlat(t *testing.T) {
	d := newDisk(t, t.TempDir())
	const size = 64 << 20
	d.write("big", strings.Repeat("x", size), 0o644)
	text := strings.Repeat("y", size)
	b := d.now("big")
	after := &commit.Image{Kind: vfs.KindFile, Digest: snapshot.DigestOf([]byte(text)), Size: size, Perm: 0o644,
		Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }}
	e := d.env(vfs.OS{})
	var before, behind runtime.MemStats
	runtime.ReadMemStats(&before)
	r, err := runIn(e, "tx1", []commit.Change{{Path: path(t, "big"), Before: b, After: after}}, commit.Options{})
	runtime.ReadMemStats(&behind)
	d.committed(r, err)
	if grown := behind.TotalAlloc - before.TotalAlloc; grown > 4<<20 {
		t.Errorf("%d bytes allocated for a file of %d", grown, size)
	}
	if d.read("big") != text {
		t.Error("not there")
	}
}

// TestInherited: a new name in a setgid directory, or in one with a default
// ACL, is what it would be if it had been made there.
func TestInherited(t *testing.T) {
	umask(t, 0o022)
	d := newDisk(t, t.TempDir())
	for _, p := range []string{"shared/old", "acl/old", "plain/old"} {
		d.write(p, "old\n", 0o644)
	}
	gid := os.Getgid()
	if os.Getuid() == 0 {
		gid = 34
		d.ok(os.Chown(d.path("shared"), 0, gid))
	}
	d.ok(os.Chmod(d.path("shared"), 0o755|os.ModeSetgid))
	// user::rw-, group::r--, group 34:rw-, mask::rw-, other::---
	acl := []byte{2, 0, 0, 0,
		1, 0, 6, 0, 255, 255, 255, 255, 4, 0, 4, 0, 255, 255, 255, 255, 8, 0, 6, 0, 34, 0, 0, 0,
		16, 0, 6, 0, 255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255, 255}
	withACL := unix.Setxattr(d.path("acl"), "system.posix_acl_default", acl, 0) == nil
	// What the kernel makes by itself.
	for _, p := range []string{"shared/model", "acl/model", "plain/model"} {
		d.ok(os.WriteFile(d.path(p), nil, 0o666))
	}
	cs := []commit.Change{d.modify("shared/old", "new\n"), d.modify("acl/old", "new\n"), d.modify("plain/old", "new\n"),
		create(t, "shared/new", "n\n", false), create(t, "acl/new", "n\n", false), create(t, "plain/new", "n\n", false), create(t, "shared/sub/new", "n\n", false)}
	r, err := runIn(d.env(vfs.OS{}), "tx1", cs, commit.Options{})
	d.committed(r, err)
	for _, p := range []string{"shared/", "acl/", "plain/"} {
		a, b := d.now(p+"model").Stat, d.now(p+"new").Stat
		if a.Perm != b.Perm || a.UID != b.UID || a.GID != b.GID {
			t.Errorf("%snew: mode %o owner %d:%d, made there: %o %d:%d", p, b.Perm, b.UID, b.GID, a.Perm, a.UID, a.GID)
		}
		if x, y := xattr(d.path(p+"model")), xattr(d.path(p+"new")); x != y {
			t.Errorf("%snew: ACL %x, made there: %x", p, y, x)
		}
	}
	if i, err := os.Stat(d.path("shared/sub")); err != nil || i.Mode()&os.ModeSetgid == 0 || int(d.now("shared/sub/new").Stat.GID) != gid {
		t.Errorf("%v %v", i.Mode(), err)
	}
	if !withACL {
		t.Log("no ACLs here; that part was not tried")
	}
}

func xattr(p string) string {
	var b [256]byte
	n, err := unix.Getxattr(p, "system.posix_acl_access", b[:])
	if err != nil {
		return ""
	}
	return string(b[:n])
}
