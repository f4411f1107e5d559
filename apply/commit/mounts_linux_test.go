package commit_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/aspengine/asp/apply/commit"
	"github.com/aspengine/asp/internal/need"
	"github.com/aspengine/asp/internal/vfs"
)

// TestFactsOnStrangeMounts: where the kernel cannot tell that a sync is one, or
// that a rename is whole after a power cut, no more is claimed than an attempt.
func TestFactsOnStrangeMounts(t *testing.T) {
	needRoot(t)
	mount := func(t *testing.T, fs, dir, opts string) string {
		t.Helper()
		if err := unix.Mount(fs, dir, fs, 0, opts); err != nil {
			need.Missing(t, "cannot mount %s: %v", fs, err)
		}
		t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
		return dir
	}
	remounted := func(fs string, mb int64, opts string) func(t *testing.T) string {
		return func(t *testing.T) string {
			l := newLoop(t, fs, mb)
			if out, err := exec.Command("mount", "-o", "remount,"+opts, l.mnt).CombinedOutput(); err != nil {
				need.Missing(t, "cannot remount: %v %s", err, out)
			}
			return l.mnt
		}
	}
	for _, c := range []struct {
		name string
		make func(t *testing.T) string
	}{
		{"tmpfs", func(t *testing.T) string { return mount(t, "tmpfs", t.TempDir(), "size=4m") }},
		{"overlay", func(t *testing.T) string {
			base := mount(t, "tmpfs", t.TempDir(), "size=4m")
			for _, d := range []string{"lower", "upper", "work", "all"} {
				if err := os.Mkdir(filepath.Join(base, d), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			return mount(t, "overlay", filepath.Join(base, "all"), fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", base))
		}},
		{"ext4 without barriers", remounted("ext4", 64, "nobarrier")},
		{"btrfs without barriers", remounted("btrfs", 160, "nobarrier")},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDisk(t, filepath.Join(c.make(t), "w"))
			d.write("a", "1\n", 0o644)
			root, err := (vfs.OS{}).OpenRoot(d.dir)
			d.ok(err)
			defer root.Close()
			e := commit.Env{FS: vfs.OS{}, Root: root, TxDir: d.path(".git/asp")}
			cs := []commit.Change{d.modify("a", "2\n"), create(t, "b", "b\n", false)}
			f, err := commit.Forecast(context.Background(), e, cs, commit.Options{})
			if err != nil || f.Guarantee() > commit.RollbackAttempted {
				t.Errorf("forecast: %v %v", f.Guarantee(), err)
			}
			r, err := runIn(e, "tx1", cs, commit.Options{})
			d.committed(r, err)
			if r.Facts.Guarantee() != commit.RollbackAttempted {
				t.Errorf("%v: %s", r.Facts.Guarantee(), r.Facts.Detail())
			}
			t.Log(r.Facts.Detail())
		})
	}
	t.Run("fuse", func(t *testing.T) {
		root, err := (vfs.OS{}).OpenRoot(emptyFUSE(t))
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		want := "fuse"
		if !vfs.CanExchange {
			want = "unknown" // the portable form tells no file systems apart
		}
		f, err := commit.ProbeMount(root)
		if err != nil || f.Type != want || f.Ordered || f.Barriers || f.Renames || f.Why == "" {
			t.Errorf("%+v %v", f, err)
		}
	})
}

// emptyFUSE mounts a FUSE file system with nothing in it. It answers what a look
// at its root asks, and refuses everything else.
func emptyFUSE(t *testing.T) string {
	t.Helper()
	dev, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		need.Missing(t, "no FUSE here: %v", err)
	}
	dir := t.TempDir()
	if err := unix.Mount("test", dir, "fuse.test", 0, fmt.Sprintf("fd=%d,rootmode=40755,user_id=0,group_id=0", dev)); err != nil {
		unix.Close(dev)
		need.Missing(t, "cannot mount FUSE: %v", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		serveFUSE(dev)
	}()
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("umount: %v", err)
		}
		<-done // the kernel ends the connection with the mount
		unix.Close(dev)
	})
	return dir
}

func serveFUSE(dev int) {
	const (
		getattr, statfs, initialise, opendir, releasedir = 3, 17, 26, 27, 29
		header                                           = 16
	)
	in := make([]byte, 1<<17)
	for {
		n, err := unix.Read(dev, in)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil || n < 40 {
			return
		}
		body := []byte(nil)
		le := binary.NativeEndian
		errno := int32(0)
		switch le.Uint32(in[4:]) {
		case initialise:
			body = make([]byte, 64)
			le.PutUint32(body, 7)
			le.PutUint32(body[4:], 31)
			le.PutUint32(body[20:], 4096) // the largest write
		case getattr:
			body = make([]byte, 16+88)
			le.PutUint64(body[16:], 1)              // inode
			le.PutUint32(body[16+60:], 0o040755)    // mode
			le.PutUint32(body[16+64:], 2)           // links
			le.PutUint32(body[16+80:], uint32(512)) // block size
		case opendir:
			body = make([]byte, 16)
		case statfs:
			body = make([]byte, 80)
		case releasedir:
		default:
			errno = -int32(unix.ENOSYS)
		}
		out := make([]byte, header+len(body))
		le.PutUint32(out, uint32(len(out)))
		*(*int32)(unsafe.Pointer(&out[4])) = errno
		copy(out[8:16], in[8:16]) // which request this answers
		copy(out[header:], body)
		if _, err := unix.Write(dev, out); err != nil && !errors.Is(err, unix.ENOENT) {
			return
		}
	}
}
