package home_test

import (
	"errors"
	"testing"

	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/internal/vfs/faultfs"
	"github.com/aspengine/asp/internal/vfs/memfs"
)

// TestWholeWithoutSyncFS: where the system has no call for all of a file system, a batch
// that was told to cover what others left unsynced syncs every file beside its own.
func TestWholeWithoutSyncFS(t *testing.T) {
	for _, whole := range []bool{true, false} {
		mem := memfs.New(memfs.Options{})
		fsys := faultfs.New(mem, faultfs.When(func(e faultfs.Event) bool { return e.Op == faultfs.SyncFS }, 0, faultfs.Fault{Err: errors.ErrUnsupported}))
		d, err := fsys.OpenRoot("/")
		if err != nil {
			t.Fatal(err)
		}
		var other, b home.Batch
		if err := errors.Join(other.WriteFile(d, "left", []byte("left")), b.WriteFile(d, "mine", []byte("mine"))); err != nil {
			t.Fatal(err)
		}
		other.Drop()
		if whole {
			b.Whole()
		}
		if err := b.Sync(home.EachFile); err != nil {
			t.Fatal(err)
		}
		after, err := mem.Crash(memfs.NamesOnly, nil).OpenRoot("/")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"left", "mine"} {
			got, err := home.ReadFile(after, name, 10)
			if kept := err == nil && string(got) == name; kept != (whole || name == "mine") {
				t.Errorf("told to cover the whole %v: %s is %q after a power cut, %v", whole, name, got, err)
			}
		}
	}
}
