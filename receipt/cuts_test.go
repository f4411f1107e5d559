package receipt_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/internal/vfs/faultfs"
	"github.com/aspengine/asp/internal/vfs/memfs"
	"github.com/aspengine/asp/receipt"
)

// TestCutAfterCut: the power goes several times, and between two cuts processes look,
// repair and append with and without a barrier, some until they are killed. No cut
// breaks the chain or loses what had a barrier: also not one that meets what another
// cut's repair wrote, which nobody made durable.
func TestCutAfterCut(t *testing.T) {
	rows := uint64(60)
	if os.Getenv("ASP_CRASH") == "long" {
		rows = 20_000
	}
	for seed := range rows {
		if err := cutAfterCut(seed); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

func cutAfterCut(seed uint64) error {
	rnd := rand.New(rand.NewPCG(seed, 7))
	mem := memfs.New(memfs.Options{})
	var synced []string
	var did []string
	n := 0
	act := func(fsys vfs.FS, boot string, what int) error {
		return opened(fsys, boot, func(s *receipt.Store) error {
			switch what {
			case 0:
				did = append(did, "recover")
				return s.Recover(ctx)
			case 1:
				did = append(did, "verify")
				_, err := s.Verify(ctx)
				return err
			}
			n++
			did = append(did, fmt.Sprint("append ", n, []string{"", "", "", "", " each", " whole"}[what]))
			kept, err := s.Append(ctx, entry(n))
			if err != nil || what < 4 {
				return err
			}
			if err := s.Sync([]home.SyncMode{home.EachFile, home.WholeFS}[what-4]); err != nil {
				return err
			}
			synced = append(synced, kept.Receipt.ReceiptID)
			return nil
		})
	}
	if err := act(mem, "0", 4); err != nil { // before its first barrier a chain has no durable head
		return err
	}
	for cut := range 4 {
		for range rnd.IntN(4) {
			what := rnd.IntN(6)
			if rnd.IntN(4) > 0 {
				if err := act(mem, fmt.Sprint(cut), what); err != nil {
					return fmt.Errorf("%v: %w", did, err)
				}
				continue
			}
			_ = act(faultfs.New(mem, faultfs.AtMutation(1+rnd.IntN(8), faultfs.Fault{Death: faultfs.DiesBefore})), fmt.Sprint(cut), what)
			did = append(did, "killed")
			mem.Kill()
		}
		mode := memfs.Modes()[rnd.IntN(len(memfs.Modes()))]
		did = append(did, fmt.Sprint("cut ", mode))
		mem = mem.Crash(mode, rnd.IntN)
		// A look at a copy: what it repairs must not help what follows.
		if err := soundFor(mem.Crash(memfs.Everything, nil), fmt.Sprint(cut+1), synced, 100); err != nil {
			return fmt.Errorf("%v: %w", did, err)
		}
	}
	return nil
}

// TestCutAfterRepair: a cut among entries without a barrier, a repair of what it left,
// more entries, and a second cut, of which the disk keeps names alone. Each row of
// what is done between is one way to lose what the repair put back.
func TestCutAfterRepair(t *testing.T) {
	const most = uint64(500)
	seeds := []uint64{0, 1, 2, 3, 4, 5, 6, 62} // 62: both receipts stay, the head is torn
	if os.Getenv("ASP_CRASH") == "long" {
		seeds = nil
		for seed := range most {
			seeds = append(seeds, seed)
		}
	}
	for _, unsynced := range []int{1, 2} {
		for _, seed := range seeds {
			for _, between := range []string{"va", "vss", "ra"} {
				if err := cutAfterRepair(unsynced, seed, between); err != nil {
					t.Fatalf("%d without a barrier, seed %d, then %s: %v", unsynced, seed, between, err)
				}
			}
		}
	}
}

// cutAfterRepair does, each in a store of its own, v: verify, r: recover, a: append,
// s: append and sync.
func cutAfterRepair(unsynced int, seed uint64, between string) error {
	mem := memfs.New(memfs.Options{})
	var synced []string
	n := 0
	act := func(boot string, what rune) error {
		return opened(mem, boot, func(s *receipt.Store) error {
			switch what {
			case 'v':
				_, err := s.Verify(ctx)
				return err
			case 'r':
				return s.Recover(ctx)
			}
			n++
			kept, err := s.Append(ctx, entry(n))
			if err != nil || what == 'a' {
				return err
			}
			synced = append(synced, kept.Receipt.ReceiptID)
			return s.Sync(home.EachFile)
		})
	}
	for i, what := range "s" + strings.Repeat("a", unsynced) + between {
		boot := "one"
		if i > unsynced {
			boot = "two"
		}
		if i == unsynced+1 {
			mem = mem.Crash(memfs.Random, memfs.Seeded(seed))
		}
		if err := act(boot, what); err != nil {
			return err
		}
	}
	return soundFor(mem.Crash(memfs.NamesOnly, nil), "three", synced, 100)
}
