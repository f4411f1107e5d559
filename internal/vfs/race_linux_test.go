package vfs

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/aspengine/asp/internal/need"
)

// While somebody keeps swapping names for links that lead out, every answer is
// about what is inside or an error, never about what is outside.
func TestSwappedForLinks(t *testing.T) {
	for name, o := range map[string]OS{"openat2": {}, "components": {componentWalk: true}} {
		t.Run(name, func(t *testing.T) {
			root, d := openTemp(t, o)
			outside := t.TempDir()
			for path, data := range map[string]string{root + "/f": "inside", outside + "/secret": "outside"} {
				check(t, os.WriteFile(path, []byte(data), 0o644))
			}
			check(t, os.Mkdir(filepath.Join(root, "d"), 0o755))
			check(t, os.WriteFile(filepath.Join(root, "d/x"), []byte("inside"), 0o644))
			check(t, os.WriteFile(filepath.Join(outside, "x"), []byte("outside"), 0o600))
			check(t, os.Symlink(filepath.Join(outside, "secret"), filepath.Join(root, "fl")))
			check(t, os.Symlink(outside, filepath.Join(root, "dl")))
			check(t, unix.Mkfifo(filepath.Join(root, "p"), 0o644))

			stop := make(chan struct{})
			var wg sync.WaitGroup
			wg.Go(func() {
				n, err := OS{}.OpenRoot(root)
				if err != nil {
					t.Error(err)
					return
				}
				defer n.Close()
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
					}
					at := int(n.(Descriptor).Fd())
					swap := func(a, b string) error { return unix.Renameat2(at, a, at, b, unix.RENAME_EXCHANGE) }
					if err := errors.Join(swap("f", []string{"fl", "p"}[i%2]), swap("d", "dl")); err != nil {
						t.Error(err)
						return
					}
				}
			})
			// The walk by components, all there is in the portable form, asks twice, and may get the second answer of
			// the directory that was a link at the first.
			refused := func(err error) bool {
				return errors.Is(err, unix.ELOOP) || (o.componentWalk || !CanSyncFS) && errors.Is(err, unix.ENOTDIR)
			}
			for range 3000 {
				if f, err := d.Open("f"); err == nil {
					b, err := io.ReadAll(f)
					if err != nil || string(b) != "inside" {
						t.Errorf("opened %q, %v", b, err)
					}
					check(t, f.Close())
				} else if !errors.Is(err, unix.ELOOP) && !errors.Is(err, unix.EINVAL) {
					t.Error(err)
				}
				if s, err := d.Lstat("d/x"); err == nil && s.Perm != 0o644 || err != nil && !refused(err) {
					t.Errorf("%+v, %v", s, err)
				}
				if sub, err := d.OpenDir("d"); err == nil {
					if s, err := sub.Lstat("secret"); !errors.Is(err, unix.ENOENT) {
						t.Errorf("outside is open: %+v, %v", s, err)
					}
					check(t, sub.Close())
				} else if !refused(err) {
					t.Error(err)
				}
			}
			close(stop)
			wg.Wait()
		})
	}
}

func TestInterruptedCallsAreRepeated(t *testing.T) {
	for _, last := range []error{nil, unix.EIO, unix.EAGAIN} {
		calls := 0
		err := retry(func() error {
			if calls++; calls < 4 {
				return unix.EINTR
			}
			return last
		})
		if err != last || calls != 4 {
			t.Errorf("got %v after %d calls, want %v after 4", err, calls, last)
		}
	}
}

func TestOtherFileSystem(t *testing.T) {
	_, a := openTemp(t, OS{})
	sa, err := a.Stat()
	check(t, err)
	for _, base := range []string{"/dev/shm", "/var/tmp", "/tmp"} {
		path, err := os.MkdirTemp(base, "vfs")
		if err != nil {
			continue
		}
		defer os.RemoveAll(path)
		b, err := OS{}.OpenRoot(path)
		check(t, err)
		defer b.Close()
		sb, err := b.Stat()
		check(t, err)
		if sb.Dev == sa.Dev {
			continue
		}
		if sa.MntID == sb.MntID && sa.MntID != 0 {
			t.Errorf("one mount, two devices: %+v, %+v", sa, sb)
		}
		h, err := a.Create("f", 0o644)
		check(t, err)
		check(t, h.Close())
		for _, mode := range []RenameMode{NoReplace, Replace} {
			if err := a.Rename("f", b, "f", mode); !errors.Is(err, unix.EXDEV) {
				t.Errorf("rename in mode %d: %v", mode, err)
			}
		}
		if err := a.Link("f", b, "f"); !errors.Is(err, unix.EXDEV) {
			t.Errorf("link: %v", err)
		}
		return
	}
	need.Missing(t, "only one file system is writable here")
}

func TestOpenRoot(t *testing.T) {
	root, _ := openTemp(t, OS{})
	check(t, os.WriteFile(filepath.Join(root, "f"), nil, 0o644))
	check(t, os.Mkdir(filepath.Join(root, "d"), 0o755))
	check(t, os.Symlink("d", filepath.Join(root, "l")))
	for path, want := range map[string]error{
		root: nil, root + "/d": nil, root + "/l": nil,
		root + "/f": unix.ENOTDIR, root + "/none": unix.ENOENT, "d": unix.EINVAL, "": unix.EINVAL,
	} {
		d, err := OS{}.OpenRoot(path)
		if !errors.Is(err, want) {
			t.Errorf("%q: got %v, want %v", path, err, want)
		}
		if err == nil {
			check(t, d.Close())
		}
	}
}
