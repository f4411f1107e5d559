package receipt_test

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/internal/vfs/faultfs"
	"github.com/aspengine/asp/internal/vfs/memfs"
	"github.com/aspengine/asp/receipt"
	"github.com/aspengine/asp/seam/wire"
)

// session opens the store on a file system, appends n entries from the number
// on, each followed by a barrier, and returns the ids that were acknowledged:
// appended (survives the process) and synced (survives a power cut).
func session(fsys vfs.FS, boot string, from, n int, mode home.SyncMode) (appended, synced []string, err error) {
	h, err := home.Open(fsys, "/home/u/.local/state/asp")
	if err != nil {
		return nil, nil, err
	}
	defer h.Close()
	st, err := h.Workspace(home.Identity{Root: "/work"})
	if err != nil {
		return nil, nil, err
	}
	defer st.Close()
	s, err := receipt.Open(st, receipt.Options{Boot: boot, Retention: receipt.Retention{Count: 4}})
	if err != nil {
		return nil, nil, err
	}
	defer s.Batch().Drop()
	for i := range n {
		e := entry(from + i)
		if i == 3 { // another chain in the same directory
			e = answer(from+i, wire.ReceiptEvaluate)
		}
		kept, err := s.Append(ctx, e)
		if err != nil {
			return appended, synced, err
		}
		appended = append(appended, kept.Receipt.ReceiptID)
		if err := s.Sync(mode); err != nil {
			return appended, synced, err
		}
		synced = append(synced, kept.Receipt.ReceiptID)
	}
	return appended, synced, nil
}

// opened gives f a store of its own, which is closed without a barrier.
func opened(fsys vfs.FS, boot string, f func(s *receipt.Store) error) error {
	h, err := home.Open(fsys, "/home/u/.local/state/asp")
	if err != nil {
		return err
	}
	defer h.Close()
	st, err := h.Workspace(home.Identity{Root: "/work"})
	if err != nil {
		return err
	}
	defer st.Close()
	s, err := receipt.Open(st, receipt.Options{Boot: boot})
	if err != nil {
		return err
	}
	defer s.Batch().Drop()
	return f(s)
}

// sound looks at what is on a file system: the chain is whole, the newest of
// the acknowledged entries is there, and the chain goes on.
func sound(fsys vfs.FS, boot string, acknowledged []string) error {
	return soundFor(fsys, boot, acknowledged, 4)
}

// soundFor is sound with another retention.
func soundFor(fsys vfs.FS, boot string, acknowledged []string, kept int64) error {
	h, err := home.Open(fsys, "/home/u/.local/state/asp")
	if err != nil {
		return err
	}
	defer h.Close()
	st, err := h.Workspace(home.Identity{Root: "/work"})
	if err != nil {
		return err
	}
	defer st.Close()
	for round := range 2 {
		s, err := receipt.Open(st, receipt.Options{Boot: boot, Retention: receipt.Retention{Count: kept}})
		if err != nil {
			return err
		}
		defer s.Batch().Drop()
		r, err := s.Verify(ctx)
		if err != nil {
			return err
		}
		if !r.OK {
			return fmt.Errorf("round %d: %q", round, r.Problems)
		}
		// Retention may have taken the older ones; the newest stays.
		if n := len(acknowledged); n > 0 {
			if _, err := s.Get(acknowledged[n-1]); err != nil {
				return err
			}
		}
		kept, err := s.Append(ctx, entry(40+round))
		if err != nil {
			return err
		}
		if err := s.Sync(home.EachFile); err != nil {
			return err
		}
		o, err := s.Lookup(ctx, "prov", kept.Receipt.ProposalID)
		if err != nil || o.Applied == nil {
			return fmt.Errorf("lookup of what was just appended: %v, %v", o, err)
		}
	}
	return nil
}

// Every mutating operation of a session fails, or the process dies before or
// after it, or the power is cut then, in every way that the model knows.
func TestSweep(t *testing.T) {
	const entries = 6 // enough for the retention of four to prune
	for _, mode := range []home.SyncMode{home.EachFile, home.WholeFS} {
		clean := faultfs.New(memfs.New(memfs.Options{}), nil)
		if _, synced, err := session(clean, "one", 0, entries, mode); err != nil || len(synced) != entries {
			t.Fatal(synced, err)
		}
		_, total := clean.Counts()
		if total < entries*6 {
			t.Fatalf("only %d mutating operations", total)
		}
		step := 1
		if mode == home.WholeFS {
			step = 7 // the two differ in the barrier alone
		}
		long := os.Getenv("ASP_CRASH") == "long"
		switch {
		case long:
			step = 1
		case testing.Short():
			step = 13
		}
		for n := 1; n <= total; n += step {
			for name, fault := range map[string]faultfs.Fault{
				"EIO":         {Err: unix.EIO},
				"ENOSPC":      {Err: unix.ENOSPC, Short: 5},
				"dies before": {Death: faultfs.DiesBefore},
				"dies after":  {Death: faultfs.DiesAfter},
				"dies within": {Death: faultfs.DiesAfter, Short: 3},
			} {
				if cut := name == "dies after" || name == "EIO"; !cut && n%4 != 0 && !long {
					continue
				}
				mem := memfs.New(memfs.Options{})
				fsys := faultfs.New(mem, faultfs.AtMutation(n, fault))
				appended, synced, err := session(fsys, "one", 0, entries, mode)
				if err == nil && fault.Death != faultfs.Lives {
					t.Fatalf("%s at %d of %d: nobody noticed", name, n, total)
				}
				cuts := map[string]*memfs.FS{}
				seeds := 1
				if long {
					seeds = 8
				}
				for _, m := range memfs.Modes() {
					for seed := range seeds {
						// Dying before an operation is dying after the last one.
						if name == "dies after" || name == "EIO" {
							cuts[fmt.Sprintf("%v %d", m, seed)] = mem.Crash(m, memfs.Seeded(uint64(n+seed*total)))
						}
					}
				}
				for cut, after := range cuts {
					if err := sound(after, "two", synced); err != nil {
						t.Fatalf("%s at %d of %d, then a power cut, %s: %v\n%v", name, n, total, cut, err, tail(fsys))
					}
				}
				mem.Kill()
				if err := sound(mem, "one", appended); err != nil {
					t.Fatalf("%s at %d of %d: %v\n%v", name, n, total, err, tail(fsys))
				}
			}
		}
	}
}

func tail(f *faultfs.FS) []string {
	var out []string
	for _, e := range f.Events() {
		if e.M > 0 {
			out = append(out, e.String())
		}
	}
	return out[max(0, len(out)-25):]
}

// TestBarrierCoversThoseBefore: some stores append without a barrier, each as
// another process would, then one appends with one that syncs each of its own
// files. The chain that a power cut leaves is whole.
func TestBarrierCoversThoseBefore(t *testing.T) {
	for _, unsynced := range []int{1, 2, 3} {
		for _, mode := range []home.SyncMode{home.EachFile, home.WholeFS} {
			mem := memfs.New(memfs.Options{})
			var synced []string
			for i := range unsynced + 2 {
				err := opened(mem, "one", func(s *receipt.Store) error {
					kept, err := s.Append(ctx, entry(i))
					if err != nil || i > 0 && i <= unsynced {
						return err
					}
					synced = append(synced, kept.Receipt.ReceiptID)
					return s.Sync(mode)
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			for _, m := range memfs.Modes() {
				for seed := range uint64(5) {
					if err := sound(mem.Crash(m, memfs.Seeded(seed)), "two", synced); err != nil {
						t.Fatalf("%d without a barrier, then %v, cut with %v: %v", unsynced, mode, m, err)
					}
				}
			}
		}
	}
}

// TestEntriesWithoutABarrier: however many entries came since the last barrier, each
// from another process, a power cut leaves a chain in which all that was synced is,
// and no break.
func TestEntriesWithoutABarrier(t *testing.T) {
	seeds := uint64(8)
	if os.Getenv("ASP_CRASH") == "long" {
		seeds = 400
	}
	for _, first := range []int{1, 2, 3} { // with a barrier
		for _, unsynced := range []int{1, 2, 3, 5} {
			mem := memfs.New(memfs.Options{})
			var synced []string
			for i := range first + unsynced {
				err := opened(mem, "one", func(s *receipt.Store) error {
					kept, err := s.Append(ctx, entry(i))
					if err != nil || i >= first {
						return err
					}
					synced = append(synced, kept.Receipt.ReceiptID)
					return s.Sync(home.EachFile)
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			for _, m := range memfs.Modes() {
				for seed := range seeds {
					if err := soundFor(mem.Crash(m, memfs.Seeded(seed)), "two", synced, 100); err != nil {
						t.Fatalf("%d with a barrier, %d without, cut with %v %d: %v", first, unsynced, m, seed, err)
					}
				}
			}
		}
	}
}

func TestFailedSyncIsReportedAndNotRepeated(t *testing.T) {
	syncs := 0
	fsys := faultfs.New(memfs.New(memfs.Options{}), func(e faultfs.Event) faultfs.Fault {
		if e.Op == faultfs.Sync {
			syncs++
			return faultfs.Fault{Err: unix.EIO}
		}
		return faultfs.Fault{}
	})
	_, synced, err := session(fsys, "one", 0, 1, home.EachFile)
	if !errors.Is(err, unix.EIO) || len(synced) != 0 {
		t.Errorf("%v, %v", synced, err)
	}
	if files := 3; syncs != files { // entry, index, head
		t.Errorf("%d syncs, want %d: one for each file and no second try", syncs, files)
	}
}
