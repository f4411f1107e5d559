package faultfs_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/internal/vfs/faultfs"
	"github.com/aspengine/asp/internal/vfs/memfs"
)

// script does one of each operation and stops at the first error, closing what
// it opened.
func script(f vfs.FS) (err error) {
	d, err := f.OpenRoot("/ws")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	if err := d.Mkdir("tx", 0o777); err != nil {
		return err
	}
	tx, err := d.OpenDir("tx")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tx.Close()) }()
	h, err := tx.Create("new", 0o666)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	if _, err := io.Copy(h, strings.NewReader("new bytes")); err != nil {
		return err
	}
	steps := []func() error{
		func() error { _, err := h.Write([]byte(" and more")); return err },
		func() error { _, err := h.ReadAt(make([]byte, 3), 0); return err },
		func() error { return h.Truncate(9) },
		func() error { return h.Chmod(0o644) },
		func() error { return h.Chown(0, 0) },
		func() error { return h.SetMtime(1) },
		func() error { return h.SetXattr("user.a", nil) },
		func() error { _, err := h.Xattrs(); return err },
		func() error { _, err := h.Stat(); return err },
		h.StartWriteback,
		h.Sync,
		func() error { return tx.Symlink("target", "sym") },
		func() error { _, err := tx.Readlink("sym"); return err },
		func() error { return tx.Link("new", tx, "second") },
		func() error { return tx.Unlink("second") },
		func() error { return tx.Rename("new", d, "a", vfs.Exchange) },
		func() error { return tx.Rename("sym", d, "sym", vfs.NoReplace) },
		func() error { return tx.Rename("new", d, "sym", vfs.Replace) },
		tx.Sync,
		d.SyncFS,
		func() error { _, err := d.Lstat("tx/none"); return ignore(err, fs.ErrNotExist) },
		func() error { _, err := d.List(); return err },
		func() error { _, err := d.Stat(); return err },
		func() error { return d.Chmod(0o755) },
		func() error { return d.Rmdir("tx") },
	}
	for _, s := range steps {
		if err := s(); err != nil {
			return err
		}
	}
	return nil
}

func ignore(err, what error) error {
	if errors.Is(err, what) {
		return nil
	}
	return err
}

func below(t *testing.T) *memfs.FS {
	t.Helper()
	m := memfs.New(memfs.Options{})
	if err := m.Put("/ws", memfs.Tree{"a": memfs.Text("old")}); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestTrace(t *testing.T) {
	f := faultfs.New(below(t), nil)
	if err := script(f); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"mkdir tx", "create tx/new", "write tx/new", "write tx/new", "truncate tx/new", "chmod tx/new", "chown tx/new",
		"setmtime tx/new", "setxattr tx/new", "sync tx/new", "symlink tx/sym target", "link tx/new tx/second",
		"unlink tx/second", "exchange tx/new a", "noreplace tx/sym sym", "replace tx/new sym", "syncdir tx", "syncfs .",
		"chmoddir .", "rmdir tx",
	}
	if d := cmp.Diff(want, f.Trace()); d != "" {
		t.Errorf("trace (-want +got):\n%s", d)
	}
	all, mutating := f.Counts()
	if mutating != len(want) || all != len(f.Events()) {
		t.Errorf("counts %d, %d", all, mutating)
	}
	m := 0
	var failed []string
	for i, e := range f.Events() {
		if e.N != i+1 {
			t.Errorf("event %d has number %d", i, e.N)
		}
		if e.Op.Mutating() {
			if m++; e.M != m {
				t.Errorf("%v has number %d among the mutating, want %d", e, e.M, m)
			}
		} else if e.M != 0 {
			t.Errorf("%v is not mutating and has number %d", e, e.M)
		}
		if e.Err != nil {
			failed = append(failed, e.String())
		}
	}
	if want := []string{"lstat tx/none ! no such file or directory"}; !cmp.Equal(want, failed) {
		t.Errorf("failed: %q, want %q", failed, want)
	}
}

func TestLabels(t *testing.T) {
	f := faultfs.New(below(t), nil)
	f.Label = func(root string) string { return strings.TrimPrefix(root, "/") }
	if err := script(f); err != nil {
		t.Fatal(err)
	}
	if got := f.Trace()[13]; got != "exchange ws:tx/new ws:a" {
		t.Errorf("got %q", got)
	}
}

// At whatever operation the fault falls, the error comes out, the operation has
// had no effect, and later ones work.
func TestFailEach(t *testing.T) {
	clean := faultfs.New(below(t), nil)
	if err := script(clean); err != nil {
		t.Fatal(err)
	}
	events := clean.Events()
	for _, e := range events {
		m := below(t)
		var before memfs.Tree
		f := faultfs.New(m, func(ev faultfs.Event) faultfs.Fault {
			if ev.N == e.N {
				before = m.Dump("/")
				return faultfs.Fault{Err: syscall.EIO}
			}
			return faultfs.Fault{}
		})
		if err := script(f); !errors.Is(err, syscall.EIO) {
			t.Errorf("fault at %v: got %v", e, err)
		}
		if d := cmp.Diff(before, m.Dump("/")); d != "" {
			t.Errorf("fault at %v had an effect:\n%s", e, d)
		}
		got := f.Events()[e.N-1]
		if got.Op != e.Op || got.Path != e.Path || !errors.Is(got.Err, syscall.EIO) {
			t.Errorf("recorded %v, want a failed %v", got, e)
		}
		if f.Dead() {
			t.Error("died of an error")
		}
	}
}

// Death before an operation leaves what the operations before it did, death
// after it one more; nothing that comes later has an effect.
func TestDieAtEach(t *testing.T) {
	var states []memfs.Tree // before each mutating operation
	m := below(t)
	clean := faultfs.New(m, func(e faultfs.Event) faultfs.Fault {
		if e.Op.Mutating() {
			states = append(states, m.Dump("/"))
		}
		return faultfs.Fault{}
	})
	if err := script(clean); err != nil {
		t.Fatal(err)
	}
	states = append(states, m.Dump("/"))
	_, n := clean.Counts()
	for i := 1; i <= n; i++ {
		for _, death := range []faultfs.Death{faultfs.DiesBefore, faultfs.DiesAfter} {
			m := below(t)
			f := faultfs.New(m, faultfs.AtMutation(i, faultfs.Fault{Death: death}))
			if err := script(f); !errors.Is(err, faultfs.ErrDied) {
				t.Fatalf("death %d at %d: got %v", death, i, err)
			}
			want := states[i-1]
			if death == faultfs.DiesAfter {
				want = states[i]
			}
			if d := cmp.Diff(want, m.Dump("/")); d != "" {
				t.Errorf("death %d at %d (-want +got):\n%s", death, i, d)
			}
			if _, got := f.Counts(); got != i || !f.Dead() {
				t.Errorf("death at %d: %d operations, dead %v", i, got, f.Dead())
			}
			if _, err := f.OpenRoot("/ws"); !errors.Is(err, faultfs.ErrDied) {
				t.Errorf("after death: %v", err)
			}
		}
	}
}

func TestShortWrite(t *testing.T) {
	isWrite := func(e faultfs.Event) bool { return e.Op == faultfs.Write }
	for _, c := range []struct {
		name  string
		fault faultfs.Fault
		copy  bool
		want  string
		err   error
	}{
		{"full disk", faultfs.Fault{Err: syscall.ENOSPC, Short: 4}, false, "0123", syscall.ENOSPC},
		{"full disk in a copy", faultfs.Fault{Err: syscall.ENOSPC, Short: 4}, true, "0123", syscall.ENOSPC},
		{"death in the middle", faultfs.Fault{Death: faultfs.DiesAfter, Short: 4}, false, "0123", faultfs.ErrDied},
		{"death in the middle, before", faultfs.Fault{Death: faultfs.DiesBefore, Short: 4}, true, "0123", faultfs.ErrDied},
		{"death after", faultfs.Fault{Death: faultfs.DiesAfter}, false, "0123456789", faultfs.ErrDied},
		{"death before", faultfs.Fault{Death: faultfs.DiesBefore}, false, "", faultfs.ErrDied},
		{"longer than the write", faultfs.Fault{Err: syscall.ENOSPC, Short: 99}, false, "0123456789", syscall.ENOSPC},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := below(t)
			f := faultfs.New(m, faultfs.When(isWrite, 1, c.fault))
			d, err := f.OpenRoot("/ws")
			if err != nil {
				t.Fatal(err)
			}
			h, err := d.Create("f", 0o666)
			if err != nil {
				t.Fatal(err)
			}
			var n int64
			if c.copy {
				n, err = io.Copy(h, strings.NewReader("0123456789"))
			} else {
				var k int
				k, err = h.Write([]byte("0123456789"))
				n = int64(k)
			}
			if !errors.Is(err, c.err) || n > int64(len(c.want)) {
				t.Errorf("got %d, %v, want %v", n, err, c.err)
			}
			if got := m.Dump("/ws")["f"].Data; got != c.want {
				t.Errorf("on disk %q, want %q", got, c.want)
			}
		})
	}
}

// A neighbour may act between two operations.
func TestInjectorMayWorkBelow(t *testing.T) {
	m := below(t)
	f := faultfs.New(m, faultfs.Injector(func(e faultfs.Event) faultfs.Fault {
		if e.Op == faultfs.Exchange {
			if err := m.Put("/ws", memfs.Tree{"a": memfs.Text("theirs")}); err != nil {
				t.Error(err)
			}
		}
		if e.Op == faultfs.NoReplace {
			if got := m.Dump("/ws")["tx/new"].Data; got != "theirs" {
				t.Errorf("displaced %q", got)
			}
		}
		return faultfs.Fault{}
	}))
	if err := script(f); err != nil {
		t.Fatal(err)
	}
}

func TestWhen(t *testing.T) {
	all := faultfs.When(func(e faultfs.Event) bool { return e.Op.IsSync() }, 0, faultfs.Fault{Err: syscall.EIO})
	for _, op := range []faultfs.Op{faultfs.Sync, faultfs.SyncDir, faultfs.SyncFS} {
		if all(faultfs.Event{Op: op}).Err != syscall.EIO {
			t.Errorf("%v passed", op)
		}
	}
	if all(faultfs.Event{Op: faultfs.Create}).Err != nil {
		t.Error("create did not pass")
	}
	third := faultfs.At(3, faultfs.Fault{Err: syscall.EIO})
	for n := 1; n < 5; n++ {
		if got := third(faultfs.Event{N: n}).Err != nil; got != (n == 3) {
			t.Errorf("operation %d: fault %v", n, got)
		}
	}
}

// Handles show a descriptor only if those below have one, and no descriptor
// survives the death of the process.
func TestDescriptors(t *testing.T) {
	d, err := faultfs.New(below(t), nil).OpenRoot("/ws")
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := d.(vfs.Descriptor); ok {
		t.Error("descriptor out of memory")
	}
	real, err := vfs.OS{}.OpenRoot(t.TempDir())
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	path := t.TempDir()
	if err := real.Close(); err != nil {
		t.Fatal(err)
	}
	f := faultfs.New(vfs.OS{}, faultfs.When(func(e faultfs.Event) bool { return e.Op == faultfs.Create }, 2, faultfs.Fault{Death: faultfs.DiesAfter}))
	d, err = f.OpenRoot(path)
	if err != nil {
		t.Fatal(err)
	}
	h, err := d.Create("a", 0o666)
	if err != nil {
		t.Fatal(err)
	}
	dd, ok := d.(vfs.Descriptor)
	hd, ok2 := h.(vfs.Descriptor)
	if !ok || !ok2 || dd.Fd() == hd.Fd() {
		t.Fatal("no descriptors from the real form")
	}
	if _, err := d.Create("b", 0o666); !errors.Is(err, faultfs.ErrDied) {
		t.Fatal(err)
	}
	for _, c := range []io.Closer{h, d} {
		if err := c.Close(); !errors.Is(err, faultfs.ErrDied) {
			t.Errorf("close after death: %v", err)
		}
		if err := c.Close(); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("the handle below was not closed: %v", err)
		}
	}
}

func TestConcurrent(t *testing.T) {
	f := faultfs.New(below(t), faultfs.AtMutation(150, faultfs.Fault{Death: faultfs.DiesBefore}))
	d, err := f.OpenRoot("/ws")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				if err := d.Mkdir(fmt.Sprint(g, "-", i), 0o777); err != nil {
					if !errors.Is(err, faultfs.ErrDied) {
						t.Error(err)
					}
					return
				}
			}
		})
	}
	wg.Wait()
	if _, n := f.Counts(); n != 150 {
		t.Errorf("%d mutating operations, want 150", n)
	}
	for i, e := range f.Events() {
		if e.N != i+1 {
			t.Fatalf("number %d at %d", e.N, i)
		}
	}
}
