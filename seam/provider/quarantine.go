package provider

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/seam/wire"
)

const (
	quarantineFile  = "quarantine.json"
	quarantineBytes = 1 << 20
	failuresAllowed = 3 // in a row
	firstQuarantine = 5 * time.Minute
	maxQuarantine   = time.Hour
)

// quarantineState is the file. Level counts how often in a row it came to a quarantine;
// it is forgotten with the first success.
type quarantineState struct {
	Format    int          `json:"format"`
	Providers []quarantine `json:"providers"`
}

type quarantine struct {
	ID       string `json:"id"`
	Failures int    `json:"failures" wire:"min0"` // in a row
	Level    int    `json:"level" wire:"min0"`
	Until    string `json:"until,omitempty" wire:"time"`
	Last     string `json:"last,omitempty" wire:"time"`
	Reason   string `json:"reason,omitempty"`
}

// ledger counts failures. The file is read anew each time: another process may
// have reset a provider, or have had its own bad experience. Two processes that write at once
// keep one count of two; that costs a little patience and no safety.
type ledger struct {
	dir vfs.Dir // nil: in memory alone
	now func() time.Time

	mu  sync.Mutex
	mem quarantineState
}

func (l *ledger) load() (quarantineState, error) {
	if l.dir == nil {
		return l.mem, nil
	}
	b, err := home.ReadFile(l.dir, quarantineFile, quarantineBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return quarantineState{Format: 1}, nil
	}
	if err != nil {
		return quarantineState{}, fmt.Errorf("read quarantine: %w", err)
	}
	var s quarantineState
	v, err := canon.Parse(b, canon.Limits{Bytes: quarantineBytes})
	if err == nil {
		err = wire.Decode(v, &s)
	}
	if err != nil {
		return quarantineState{}, fmt.Errorf("read quarantine: %s in the state of the workspace is damaged: %w; remove it, and no provider has failed yet", quarantineFile, err)
	}
	if s.Format != 1 {
		return s, fmt.Errorf("read quarantine: format %d is not known; a newer asp wrote it", s.Format)
	}
	return s, nil
}

func (l *ledger) store(s quarantineState) error {
	s.Format = 1
	if l.dir == nil {
		l.mem = s
		return nil
	}
	b, err := canon.Marshal(s)
	if err != nil {
		return err
	}
	if err := home.WriteFile(l.dir, quarantineFile, append(b, '\n')); err != nil {
		return fmt.Errorf("keep quarantine: %w", err)
	}
	return nil
}

// of is the record of id.
func (s quarantineState) of(id string) quarantine {
	for _, q := range s.Providers {
		if q.ID == id {
			return q
		}
	}
	return quarantine{ID: id}
}

func (s quarantineState) with(q quarantine) quarantineState {
	s.Providers = slices.DeleteFunc(slices.Clone(s.Providers), func(x quarantine) bool { return x.ID == q.ID })
	if q != (quarantine{ID: q.ID}) {
		s.Providers = append(s.Providers, q)
		slices.SortFunc(s.Providers, func(a, b quarantine) int { return canon.CompareUTF16(a.ID, b.ID) })
	}
	return s
}

// standing is the quarantine of id, nil while there is none, and how often it failed
// in a row and when last.
func (l *ledger) standing(id string) (q *Quarantine, failures int, last time.Time, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, err := l.load()
	if err != nil {
		return nil, 0, time.Time{}, err
	}
	r := s.of(id)
	last, _ = time.Parse(time.RFC3339Nano, r.Last)
	if until, err := time.Parse(time.RFC3339Nano, r.Until); err == nil && l.now().Before(until) {
		return &Quarantine{Until: until, Failures: r.Failures, Reason: r.Reason}, r.Failures, last, nil
	}
	return nil, r.Failures, last, nil
}

// failed counts one failure. after is the record that a success ended which turns out to
// have been none.
func (l *ledger) failed(id, reason string, after quarantine) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, err := l.load()
	if err != nil {
		return err
	}
	q, now := s.of(id), l.now()
	if after.ID == id && q.Failures < after.Failures {
		q.Failures, q.Level = after.Failures, max(q.Level, after.Level)
	}
	q.Failures++
	q.Last, q.Reason = now.UTC().Format(time.RFC3339Nano), cut(reason, 300)
	if q.Failures >= failuresAllowed {
		wait := maxQuarantine
		if q.Level < 4 {
			wait = min(maxQuarantine, firstQuarantine<<q.Level)
		}
		q.Level = min(q.Level+1, 100)
		q.Until = now.Add(wait).UTC().Format(time.RFC3339Nano)
	}
	return l.store(s.with(q))
}

// forget is what a success and a reset do. What it returns is what was known.
func (l *ledger) forget(id string) (quarantine, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, err := l.load()
	if err != nil {
		return quarantine{}, err
	}
	was := s.of(id)
	if was == (quarantine{ID: id}) {
		return was, nil
	}
	return was, l.store(s.with(quarantine{ID: id}))
}
