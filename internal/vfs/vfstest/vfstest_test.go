//go:build linux

package vfstest_test

import (
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/internal/vfs/faultfs"
	"github.com/aspengine/asp/internal/vfs/memfs"
	"github.com/aspengine/asp/internal/vfs/vfstest"
)

// places are directories on different file systems: the temporary one, memory
// and disk, as far as this machine has them.
func places(t *testing.T) map[string]string {
	t.Helper()
	out := make(map[string]string)
	seen := make(map[uint64]bool)
	for _, base := range []string{os.TempDir(), "/dev/shm", "/var/tmp"} {
		var st unix.Stat_t
		if unix.Stat(base, &st) != nil || seen[uint64(st.Dev)] {
			continue
		}
		dir, err := os.MkdirTemp(base, "vfstest")
		if err != nil {
			t.Logf("%s is not used: %v", base, err)
			continue
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		seen[uint64(st.Dev)] = true
		var fs unix.Statfs_t
		if err := unix.Statfs(dir, &fs); err != nil {
			t.Fatal(err)
		}
		out["type "+strconv.FormatInt(int64(fs.Type), 16)+" at "+filepath.Base(base)] = dir
	}
	return out
}

const tmpfs = "type 1021994 "

func setUmask(t *testing.T) {
	old := unix.Umask(0o022)
	t.Cleanup(func() { unix.Umask(old) })
}

func TestOS(t *testing.T) {
	setUmask(t)
	for name, base := range places(t) {
		t.Run(name, func(t *testing.T) {
			vfstest.Run(t, func(t *testing.T) vfstest.Place {
				dir, err := os.MkdirTemp(base, "")
				if err != nil {
					t.Fatal(err)
				}
				d := openRoot(t, vfs.OS{}, dir)
				return vfstest.Place{Dir: d, Portable: !vfs.CanExchange, Mkfifo: func(name string) error {
					return unix.Mkfifo(filepath.Join(dir, name), 0o644)
				}}
			})
		})
	}
}

func openRoot(t testing.TB, f vfs.FS, path string) vfs.Dir {
	t.Helper()
	d, err := f.OpenRoot(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func TestMem(t *testing.T) {
	vfstest.Run(t, func(t *testing.T) vfstest.Place {
		f := memfs.New(memfs.Options{})
		return vfstest.Place{Dir: openRoot(t, f, "/"), Mkfifo: func(name string) error {
			return f.Put("/", memfs.Tree{name: memfs.FIFO()})
		}}
	})
}

// The wrapper changes no answer.
func TestFault(t *testing.T) {
	vfstest.Run(t, func(t *testing.T) vfstest.Place {
		f := memfs.New(memfs.Options{})
		return vfstest.Place{Dir: openRoot(t, faultfs.New(f, nil), "/"), Mkfifo: func(name string) error {
			return f.Put("/", memfs.Tree{name: memfs.FIFO()})
		}}
	})
}

// The crash model and the kernel give the same answers and end in the same tree.
func TestModelAgreesWithKernel(t *testing.T) {
	setUmask(t)
	set := func(name, value string) {
		old := flag.Lookup(name).Value.String()
		if err := flag.Set(name, value); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = flag.Set(name, old) })
	}
	set("rapid.nofailfile", "true") // the seed is enough to run it again
	checks := flag.Lookup("rapid.checks").Value.String()
	for name, base := range places(t) {
		t.Run(name, func(t *testing.T) {
			set("rapid.checks", checks)
			if !strings.Contains(name, tmpfs) {
				set("rapid.checks", "20") // disks are a hundred times slower here
			}
			rapid.Check(t, func(r *rapid.T) {
				dir, err := os.MkdirTemp(base, "")
				if err != nil {
					r.Fatal(err)
				}
				defer os.RemoveAll(dir)
				if err := os.Chmod(dir, 0o755); err != nil { // as the model's root
					r.Fatal(err)
				}
				a, err := vfs.OS{}.OpenRoot(dir)
				if err != nil {
					r.Fatal(err)
				}
				defer a.Close()
				b, err := memfs.New(memfs.Options{}).OpenRoot("/")
				if err != nil {
					r.Fatal(err)
				}
				vfstest.Compare(r, a, b)
			})
		})
	}
}
