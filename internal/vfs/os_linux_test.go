package vfs

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/aspengine/asp/internal/need"
)

func openTemp(t *testing.T, o OS) (string, Dir) {
	t.Helper()
	path := t.TempDir()
	d, err := o.OpenRoot(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil && !errors.Is(err, fs.ErrClosed) {
			t.Error(err)
		}
	})
	return path, d
}

// Both ways of walking must agree on every answer.
func TestOpenDirWalks(t *testing.T) {
	for name, o := range map[string]OS{"openat2": {}, "components": {componentWalk: true}} {
		t.Run(name, func(t *testing.T) {
			root, d := openTemp(t, o)
			if err := os.MkdirAll(filepath.Join(root, "a/b/c"), 0o755); err != nil {
				t.Fatal(err)
			}
			for link, target := range map[string]string{"in": "a", "out": "/", "a/up": "..", "a/b/self": "."} {
				if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(filepath.Join(root, "a/f"), []byte("x"), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := unix.Mkfifo(filepath.Join(root, "a/p"), 0o644); err != nil {
				t.Fatal(err)
			}
			for _, c := range []struct {
				path string
				want error
			}{
				{".", nil}, {"a", nil}, {"a/b", nil}, {"a/b/c", nil},
				{"", unix.EINVAL}, {"/", unix.EINVAL}, {"/a", unix.EINVAL}, {"a/", unix.EINVAL}, {"a//b", unix.EINVAL},
				{"..", unix.EINVAL}, {"a/..", unix.EINVAL}, {"a/../a", unix.EINVAL}, {"./a", unix.EINVAL}, {"a\x00", unix.EINVAL},
				{"in", unix.ELOOP}, {"in/b", unix.ELOOP}, {"out", unix.ELOOP}, {"out/tmp", unix.ELOOP},
				{"a/up", unix.ELOOP}, {"a/up/a", unix.ELOOP}, {"a/b/self/c", unix.ELOOP},
				{"a/f", unix.ENOTDIR}, {"a/f/g", unix.ENOTDIR}, {"a/p", unix.ENOTDIR}, {"a/p/q", unix.ENOTDIR},
				{"a/none", unix.ENOENT}, {"a/none/b", unix.ENOENT},
			} {
				sub, err := d.OpenDir(c.path)
				if !errors.Is(err, c.want) {
					t.Errorf("OpenDir(%q): got %v, want %v", c.path, err, c.want)
				}
				if err == nil {
					_ = sub.Close()
				}
				if c.path == "." || c.path == "in" || c.path == "out" || c.path == "a/up" || c.path == "a/f" || c.path == "a/p" {
					continue // Lstat describes the last component itself
				}
				if _, err := d.Lstat(c.path); !errors.Is(err, c.want) {
					t.Errorf("Lstat(%q): got %v, want %v", c.path, err, c.want)
				}
			}
			if s, err := d.Lstat("a/up"); err != nil || s.Kind != KindSymlink || s.Size != 2 {
				t.Errorf("Lstat of a link: got %+v, %v", s, err)
			}
			if s, err := d.Lstat("a/p"); err != nil || s.Kind != KindOther {
				t.Errorf("Lstat of a FIFO: got %+v, %v", s, err)
			}
		})
	}
}

// A writer that waits in open for a reader must go on waiting: Open may not
// have been that reader.
func TestOpenNeverTouchesFIFO(t *testing.T) {
	root, d := openTemp(t, OS{})
	p := filepath.Join(root, "p")
	if err := unix.Mkfifo(p, 0o644); err != nil {
		t.Fatal(err)
	}
	watch, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	check(t, err)
	defer unix.Close(watch)
	_, err = unix.InotifyAddWatch(watch, p, unix.IN_OPEN)
	check(t, err)
	if _, err := d.Open("p"); !errors.Is(err, unix.EINVAL) {
		t.Fatalf("Open of a FIFO: got %v, want EINVAL", err)
	}
	// Not for a moment: a writer that waits for a reader would go on.
	if n, err := unix.Read(watch, make([]byte, 4096)); err != unix.EAGAIN {
		t.Fatalf("the FIFO was opened (%d bytes of events, %v)", n, err)
	}
	if fd, err := unix.Open(p, unix.O_WRONLY|unix.O_NONBLOCK, 0); err != unix.ENXIO {
		_ = unix.Close(fd)
		t.Fatalf("open for writing without a reader: got %v, want ENXIO", err)
	}
}

func TestReadFromCopiesInKernel(t *testing.T) {
	root, d := openTemp(t, OS{})
	want := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	if err := os.WriteFile(filepath.Join(root, "src"), want, 0o644); err != nil {
		t.Fatal(err)
	}
	open := func() io.ReadCloser { f, err := d.Open("src"); check(t, err); return f }
	osOpen := func() io.ReadCloser { f, err := os.Open(filepath.Join(root, "src")); check(t, err); return f }
	limit := func(r io.Reader, n int64) io.Reader { return &io.LimitedReader{R: r, N: n} }
	for _, c := range []struct {
		name string
		r    func(rc io.Reader) io.Reader
		open func() io.ReadCloser
		want []byte
	}{
		{"own file", func(r io.Reader) io.Reader { return r }, open, want},
		{"os file", func(r io.Reader) io.Reader { return r }, osOpen, want},
		{"limited", func(r io.Reader) io.Reader { return limit(r, 100) }, open, want[:100]},
		{"limited beyond the end", func(r io.Reader) io.Reader { return limit(r, 1<<40) }, osOpen, want},
		{"limited to nothing", func(r io.Reader) io.Reader { return limit(r, -1) }, open, nil},
		{"plain reader", func(r io.Reader) io.Reader { return struct{ io.Reader }{r} }, open, want},
	} {
		t.Run(c.name, func(t *testing.T) {
			src := c.open()
			defer src.Close()
			dst, err := d.Create("dst", 0o644)
			check(t, err)
			defer func() { check(t, dst.Close()); check(t, d.Unlink("dst")) }()
			n, err := io.Copy(dst, c.r(src))
			if err != nil || n != int64(len(c.want)) {
				t.Fatalf("copy: got %d, %v, want %d", n, err, len(c.want))
			}
			got := make([]byte, len(c.want)+1)
			m, err := dst.ReadAt(got, 0)
			if err != io.EOF || !bytes.Equal(got[:m], c.want) {
				t.Fatalf("read back: %d bytes, %v, want %d", m, err, len(c.want))
			}
		})
	}
	t.Run("file that ends at once for copy_file_range", func(t *testing.T) {
		src, err := os.Open("/proc/self/stat")
		if err != nil {
			need.Missing(t, "there is no /proc: %v", err)
		}
		defer src.Close()
		dst, err := d.Create("dst", 0o644)
		check(t, err)
		defer dst.Close()
		if n, err := io.Copy(dst, src); err != nil || n == 0 {
			t.Fatalf("got %d, %v", n, err)
		}
	})
}

// Every descriptor is closed once, by the last user, and none is used after.
func TestCloseWhileInUse(t *testing.T) {
	root, _ := openTemp(t, OS{})
	for range 200 {
		d, err := OS{}.OpenRoot(root)
		check(t, err)
		fd := int(d.(Descriptor).Fd())
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for {
					if _, err := d.Stat(); err != nil {
						if !errors.Is(err, fs.ErrClosed) {
							t.Error(err)
						}
						return
					}
				}
			})
		}
		closed := make(chan error, 2)
		for range 2 {
			wg.Go(func() { closed <- d.Close() })
		}
		wg.Wait()
		a, b := <-closed, <-closed
		if (a == nil) == (b == nil) {
			t.Fatalf("two closes: %v and %v; want one to fail with ErrClosed", a, b)
		}
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != unix.EBADF {
			t.Fatalf("descriptor still open: %v", err)
		}
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func BenchmarkOpenReadClose(b *testing.B) {
	root := b.TempDir()
	if err := os.WriteFile(filepath.Join(root, "f"), make([]byte, 4096), 0o644); err != nil {
		b.Fatal(err)
	}
	d, err := OS{}.OpenRoot(root)
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	buf := make([]byte, 8192)
	b.ReportAllocs()
	for b.Loop() {
		f, err := d.Open("f")
		if err != nil {
			b.Fatal(err)
		}
		for err == nil {
			_, err = f.Read(buf)
		}
		_ = f.Close()
	}
}

// TestStatDir: what OpenRoot and Stat say, by one call.
func TestStatDir(t *testing.T) {
	dir := t.TempDir()
	for name, err := range map[string]error{
		"d": os.Mkdir(filepath.Join(dir, "d"), 0o711), "f": os.WriteFile(filepath.Join(dir, "f"), nil, 0o600),
		"l": os.Symlink("d", filepath.Join(dir, "l")), "lf": os.Symlink("f", filepath.Join(dir, "lf")),
	} {
		if err != nil {
			t.Fatal(name, err)
		}
	}
	for _, p := range []string{"/", dir, filepath.Join(dir, "d"), filepath.Join(dir, "l")} {
		got, err := OS{}.StatDir(p)
		if err != nil {
			t.Fatal(err)
		}
		d, err := OS{}.OpenRoot(p)
		if err != nil {
			t.Fatal(err)
		}
		want, err := d.Stat()
		if got.Mtime, got.Ctime = want.Mtime, want.Ctime; err != nil || got != want {
			t.Errorf("%s: %+v, want %+v, %v", p, got, want, err)
		}
		d.Close()
	}
	for p, want := range map[string]error{
		filepath.Join(dir, "f"): unix.ENOTDIR, filepath.Join(dir, "lf"): unix.ENOTDIR, filepath.Join(dir, "none"): fs.ErrNotExist, "d": unix.EINVAL, "": unix.EINVAL,
	} {
		if st, err := (OS{}).StatDir(p); !errors.Is(err, want) {
			t.Errorf("%q: %+v, %v, want %v", p, st, err, want)
		}
	}
}

// TestReadProc: whatever the room, all of a file that has no size.
func TestReadProc(t *testing.T) {
	want, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || len(want) < 100 {
		t.Fatal(err, len(want))
	}
	for _, room := range []int{1, 64, len(want), 2 * len(want)} {
		if got, err := ReadProc("/proc/self/mountinfo", room); err != nil || string(got) != string(want) {
			t.Errorf("room %d: %d bytes of %d, %v", room, len(got), len(want), err)
		}
	}
	if _, err := ReadProc("/proc/self/none", 10); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// TestSyncDirectoryAsksTheKernel: a sync of a directory reaches its file system. procfs
// has no such call and says so. The power cuts on disks do not tell: on the file systems
// that are tried there, a later barrier covers for one that is left out.
func TestSyncDirectoryAsksTheKernel(t *testing.T) {
	d, err := OS{}.OpenRoot("/proc/self/fdinfo")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.Sync(); !errors.Is(err, unix.EINVAL) {
		t.Errorf("%v, want %v", err, unix.EINVAL)
	}
}
