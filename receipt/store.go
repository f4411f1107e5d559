package receipt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/internal/lock"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/seam/wire"
)

// Retention bounds what is kept: of attempts to apply, and once more as much of
// evaluations and other answers; of statuses a small part. Zero members stand for
// the defaults.
type Retention struct {
	Count int64 // receipts
	Bytes int64 // of stored entries
}

// The default retention.
const (
	DefaultCount = 2000
	DefaultBytes = 64 << 20
)

// Options of a store. The zero value is the usual one.
type Options struct {
	Retention Retention
	// Batch collects what is written, for a barrier shared with other
	// rooms; nil for a batch of the store's own.
	Batch *home.Batch
	// Boot names the present boot of the machine; "" asks the kernel. An
	// entry written under another boot may have met a power cut.
	Boot string
	// Now is the clock; nil for the system's.
	Now func() time.Time
}

// Store keeps the receipts of one workspace. Safe for concurrent use, also by
// other processes on the same directory.
type Store struct {
	lane      lane
	others    []*Store    // of the first lane: the others
	mu        *sync.Mutex // one for all lanes, as is the lock on the directory
	state     *home.State
	dir       vfs.Dir // of state, not ours to close
	receipts  vfs.Dir
	results   vfs.Dir
	batch     *home.Batch
	retention Retention
	boot      string
	now       func() time.Time
	settling  string // digest of the entry that settleLater was called for last
	glances   [2]*glanced
}

// Open opens the receipts of a workspace's state. The state must stay open as
// long as the store is used; nothing needs closing.
func Open(st *home.State, o Options) (*Store, error) {
	receipts, err := st.Sub(home.Receipts)
	if err != nil {
		return nil, err
	}
	results, err := st.Sub(home.Results)
	if err != nil {
		return nil, err
	}
	s := &Store{lane: laneApply, mu: new(sync.Mutex), state: st, dir: st.Dir(), receipts: receipts, results: results, batch: o.Batch, retention: o.Retention, boot: o.Boot, now: o.Now}
	if s.batch == nil {
		s.batch = new(home.Batch)
	}
	if s.retention.Count <= 0 {
		s.retention.Count = DefaultCount
	}
	s.retention.Count = max(s.retention.Count, 4)
	if s.retention.Bytes <= 0 {
		s.retention.Bytes = DefaultBytes
	}
	if s.boot == "" {
		s.boot = vfs.Boot()
	}
	if s.now == nil {
		s.now = time.Now
	}
	return s.withLanes(), nil
}

// Boot names the present boot of the machine; "" where the kernel does not tell.
func (s *Store) Boot() string { return s.boot }

// locked runs f alone among all users of the directory.
func (s *Store) locked(ctx context.Context, f func() error) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	unlock, err := lock.Short(ctx, s.receipts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	return f()
}

// Append keeps an entry as the newest of its chain. After it returns the entry
// survives the end of this process; it survives a power cut after the next
// Sync. On an error nothing was appended, or, after a failed clean-up, the
// entry may appear.
func (s *Store) Append(ctx context.Context, e Entry) (*Stored, error) {
	var out *Stored
	x := s.of(laneOf(e.Receipt.Kind))
	err := x.locked(ctx, func() (err error) {
		if err := x.state.Owe(x.batch); err != nil {
			return err
		}
		h, err := x.current()
		if err != nil {
			return err
		}
		out, err = x.append(h, e)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("append receipt %.100q: %w", e.Receipt.ReceiptID, err)
	}
	return out, nil
}

// append writes: 1. the entry under the fixed name receipts.next, by which a
// later writer finds what a killed one began; 2. its own name, by a link; 3.
// the index; 4. the head. receipts.next goes away after the barrier.
func (s *Store) append(h *head, e Entry) (*Stored, error) {
	st, err := e.seal(h.digest())
	if err != nil {
		return nil, err
	}
	if _, err := s.receipts.Lstat(fileName(st)); err == nil {
		return nil, fmt.Errorf("%w: receipt ids are never used twice", fs.ErrExist)
	}
	if err := s.batch.WriteFile(s.dir, s.lane.nextFile(), st.raw); err != nil {
		return nil, err
	}
	if err := s.place(st); err != nil {
		return nil, errors.Join(err, s.unplace(st))
	}
	if _, err := s.advance(h, st); err != nil {
		return nil, errors.Join(err, s.unplace(st))
	}
	s.settleLater(st)
	return st, nil
}

func fileName(st *Stored) string { return st.Receipt.ReceiptID + ".json" }

// place gives receipts.next its final name. A link and not a rename, because
// the fixed name has to stay until the head is written and durable.
func (s *Store) place(st *Stored) error {
	err := s.dir.Link(s.lane.nextFile(), s.receipts, fileName(st))
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.EMLINK) {
		return s.batch.CreateFile(s.receipts, fileName(st), st.raw) // a file system without links
	}
	s.batch.Touch(s.receipts)
	return err
}

// unplace takes back what a failed append wrote before its head.
func (s *Store) unplace(st *Stored) error {
	// First what names it. If that fails, it all stays for the next writer to finish.
	if _, err := s.unindex(st); err != nil {
		return err
	}
	var errs []error
	for _, f := range []struct {
		dir  vfs.Dir
		name string
	}{{s.receipts, fileName(st)}, {s.dir, s.lane.nextFile()}} {
		if err := f.dir.Unlink(f.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// advance makes the placed entry st the head after h.
func (s *Store) advance(h *head, st *Stored) (*head, error) {
	next := &head{count: 1, bytes: int64(len(st.raw)), entry: st, slot: 1}
	if h == nil {
		gone, err := s.vanished(fileName(st))
		if err != nil {
			return nil, err
		}
		if gone {
			next.note("%s: there was no receipt and no head, and there had been some; it begins anew with %s", Time(s.now()), st.Receipt.ReceiptID)
		}
	} else {
		next.slot, next.partner = h.into, h.follower()
		next.count += h.count
		next.bytes += h.bytes
		next.results, next.pruned, next.breaks = h.results, h.pruned, h.breaks
	}
	created, err := s.index(st)
	if err != nil {
		return nil, err
	}
	if created {
		next.results++
	}
	if err := s.prune(next); err != nil {
		return nil, err
	}
	next.into = next.slot // until a barrier
	return next, s.writeHead(next)
}

// settleLater removes receipts.next once a barrier covered the entry.
func (s *Store) settleLater(st *Stored) {
	if s.settling == st.Digest {
		return // repairs that only look would otherwise pile up
	}
	s.settling = st.Digest
	s.batch.After(func() error {
		return s.locked(context.Background(), func() error {
			b, err := home.ReadFile(s.dir, s.lane.nextFile(), MaxStored)
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil || string(b) != string(st.raw) {
				return err // a later entry's, not ours to remove
			}
			return s.dir.Unlink(s.lane.nextFile())
		})
	})
}

// Sync makes everything appended through this store (and whatever else is in
// its batch) durable by one barrier.
func (s *Store) Sync(mode home.SyncMode) error { return s.batch.Sync(mode) }

// Batch is the batch that the next Sync covers.
func (s *Store) Batch() *home.Batch { return s.batch }

// ErrNoReceipt is what Get answers for an id that is not kept.
var ErrNoReceipt = errors.New("no such receipt")

// Get reads one receipt. ErrNoReceipt when it was never made or was pruned;
// another error when the file is damaged. It proves nothing about the chain.
func (s *Store) Get(id string) (*Stored, error) {
	if !isID(id) {
		return nil, fmt.Errorf("read receipt %.100q: %w", id, ErrNoReceipt)
	}
	st, err := s.read(id + ".json")
	if errors.Is(err, fs.ErrNotExist) {
		err = ErrNoReceipt
	}
	if errors.Is(err, errDamaged) {
		err = fmt.Errorf("%w; `asp receipts verify` tells what else is not", err)
	}
	if err != nil {
		return nil, fmt.Errorf("read receipt %s: %w", id, err)
	}
	return st, nil
}

func (s *Store) read(name string) (*Stored, error) {
	b, err := home.ReadFile(s.receipts, name, MaxStored)
	if err != nil {
		return nil, err
	}
	st, err := parse(b)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	if fileName(st) != name {
		return nil, fmt.Errorf("%w: holds receipt %.100q", errDamaged, st.Receipt.ReceiptID)
	}
	return st, nil
}

var errDamaged = errors.New("no receipt as it was written")

// Summary is one line of a list.
type Summary struct {
	ReceiptID  string  `json:"receiptId"`
	IssuedAt   string  `json:"issuedAt"`
	Kind       string  `json:"kind"`
	ProposalID string  `json:"proposalId,omitempty"`
	Outcome    Outcome `json:"outcome"`
	// Decision is for people; "" where there is none. The form of the list for machines
	// is fixed without it.
	Decision wire.Decision `json:"-"`
}

// List returns the kept receipts, oldest first by their ids. Files that are no
// receipts are left out; Verify reports them.
func (s *Store) List(ctx context.Context) ([]Summary, error) {
	out := []Summary{}
	es, err := s.receipts.List()
	if err != nil {
		return nil, fmt.Errorf("list receipts: %w", err)
	}
	for _, e := range es {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("list receipts: %w", err)
		}
		if id, ok := strings.CutSuffix(e.Name, ".json"); !ok || !isID(id) {
			continue
		}
		st, err := s.read(e.Name)
		if err != nil {
			continue
		}
		r := st.Receipt
		decision, _ := st.Decision()
		out = append(out, Summary{r.ReceiptID, r.IssuedAt, string(r.Kind), r.ProposalID, st.Outcome, decision})
	}
	slices.SortFunc(out, func(a, b Summary) int { return strings.Compare(a.ReceiptID, b.ReceiptID) })
	return out, nil
}

// LastApplied is the newest readable entry of a change that was applied, nil without
// one. Changes of one workspace are applied one after the other, so no later one is
// applied.
func (s *Store) LastApplied(ctx context.Context) (*Stored, error) {
	es, err := s.receipts.List()
	if err != nil {
		return nil, fmt.Errorf("find the last applied change: %w", err)
	}
	slices.SortFunc(es, func(a, b vfs.DirEntry) int { return strings.Compare(b.Name, a.Name) })
	for _, e := range es {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("find the last applied change: %w", err)
		}
		if id, ok := strings.CutSuffix(e.Name, ".json"); !ok || !isID(id) {
			continue
		}
		if st, err := s.read(e.Name); err == nil && st.Outcome == Applied {
			return st, nil
		}
	}
	return nil, nil
}

// names lists the names in receipts/ that look like those of this chain's
// receipts, sorted, which is by time.
func (s *Store) names() ([]string, error) {
	es, err := s.receipts.List()
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range es {
		if id, ok := strings.CutSuffix(e.Name, ".json"); ok {
			if l, ok := laneOfID(id); ok && l == s.lane {
				out = append(out, e.Name)
			}
		}
	}
	slices.Sort(out)
	return out, nil
}
