package receipt

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/internal/home"
)

// Outcomes are the kept successes of one proposal: the first entry that staged
// it and the first that applied it. Either may be nil.
type Outcomes struct {
	Staged  *Stored
	Applied *Stored
}

// Lookup finds what came of a proposal, as long as its receipts are kept. A
// refused or failed attempt is no outcome: it may be tried again.
func (s *Store) Lookup(ctx context.Context, provider, proposalID string) (Outcomes, error) {
	var out Outcomes
	err := s.locked(ctx, func() error {
		h, err := s.current()
		if err != nil || h == nil {
			return err
		}
		ok, err := s.lookup(h, provider, proposalID, &out)
		if err != nil || ok {
			return err
		}
		// The index does not know it. Believe that only if the index is
		// whole; it is a cache that anybody may have cleaned away.
		n, err := s.indexed()
		if err != nil || n == h.results {
			return err
		}
		if h.results, err = s.reindex(); err != nil {
			return err
		}
		if err := s.rewrite(h); err != nil {
			return err
		}
		_, err = s.lookup(h, provider, proposalID, &out)
		return err
	})
	if err != nil {
		return Outcomes{}, fmt.Errorf("look up proposal %.100q: %w", proposalID, err)
	}
	return out, nil
}

// lookup follows one index file; false when it is missing, damaged or points
// at what is not there.
func (s *Store) lookup(h *head, provider, proposalID string, out *Outcomes) (bool, error) {
	*out = Outcomes{}
	e, err := s.readIndex(indexName(provider, proposalID))
	if err != nil {
		return false, err
	}
	for _, f := range []struct {
		id   string
		want Outcome
		into **Stored
	}{{e.Staged, Staged, &out.Staged}, {e.Applied, Applied, &out.Applied}} {
		if f.id == "" {
			continue
		}
		if !isID(f.id) {
			return false, s.dropIndex(indexName(provider, proposalID))
		}
		st, err := s.read(f.id + ".json")
		if errors.Is(err, fs.ErrNotExist) && f.id > h.pruned.ReceiptID {
			h.note("%s: %s was known to the index of outcomes, and was removed", Time(s.now()), f.id)
			if err := s.rewrite(h); err != nil {
				return false, err
			}
		}
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errDamaged) {
			return false, s.dropIndex(indexName(provider, proposalID))
		}
		if err != nil {
			return false, err
		}
		if st.Outcome != f.want || st.Provider() != provider || st.Receipt.ProposalID != proposalID {
			return false, s.dropIndex(indexName(provider, proposalID))
		}
		*f.into = st
	}
	return out.Staged != nil || out.Applied != nil, nil
}

type indexEntry struct {
	Staged  string `json:"staged,omitempty"`
	Applied string `json:"applied,omitempty"`
}

// indexName hashes the pair; the parts are foreign text of any length.
func indexName(provider, proposalID string) string {
	sum := sha256.Sum256(canon.ArrayOf(canon.StringOf(provider), canon.StringOf(proposalID)).Bytes())
	return hex.EncodeToString(sum[:]) + ".json"
}

// readIndex returns the zero entry for a file that is missing or damaged.
func (s *Store) readIndex(name string) (e indexEntry, err error) {
	b, err := home.ReadFile(s.results, name, 4096)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, home.ErrTooLarge) {
		return e, nil
	}
	if err != nil {
		return e, err
	}
	if v, err := canon.Parse(b, canon.Limits{}); err == nil {
		e = indexEntry{Staged: text(v, "staged"), Applied: text(v, "applied")}
	}
	if e == (indexEntry{}) {
		err = s.dropIndex(name) // so that the count of files shows the gap
	}
	return e, err
}

func (s *Store) dropIndex(name string) error {
	if err := s.results.Unlink(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// index notes a success; it tells whether that made a new file. The first
// entry of each outcome stays: a repeated request gets the first answer.
func (s *Store) index(st *Stored) (created bool, err error) {
	if s.results == nil || st.Outcome != Applied && st.Outcome != Staged || st.Receipt.ProposalID == "" {
		return false, nil
	}
	name := indexName(st.Provider(), st.Receipt.ProposalID)
	old, err := s.readIndex(name)
	if err != nil {
		return false, err
	}
	e := old
	switch {
	case st.Outcome == Applied && e.Applied == "":
		e.Applied = st.Receipt.ReceiptID
	case st.Outcome == Staged && e.Staged == "":
		e.Staged = st.Receipt.ReceiptID
	default:
		return false, nil
	}
	b, err := canon.Marshal(e)
	if err != nil {
		return false, err
	}
	return old == (indexEntry{}), s.batch.WriteFile(s.results, name, b)
}

// unindex forgets a pruned success; it tells whether a file went away.
func (s *Store) unindex(st *Stored) (removed bool, err error) {
	if s.results == nil || st.Outcome != Applied && st.Outcome != Staged || st.Receipt.ProposalID == "" {
		return false, nil
	}
	name := indexName(st.Provider(), st.Receipt.ProposalID)
	old, err := s.readIndex(name)
	if err != nil || old == (indexEntry{}) {
		return false, err
	}
	e := old
	if e.Applied == st.Receipt.ReceiptID {
		e.Applied = ""
	}
	if e.Staged == st.Receipt.ReceiptID {
		e.Staged = ""
	}
	switch e {
	case old:
		return false, nil
	case indexEntry{}:
		s.batch.Touch(s.results)
		return true, s.dropIndex(name)
	}
	b, err := canon.Marshal(e)
	if err != nil {
		return false, err
	}
	return false, s.batch.WriteFile(s.results, name, b)
}

// indexed counts the files of the index.
func (s *Store) indexed() (int64, error) {
	if s.results == nil {
		return 0, nil // a lane without an index
	}
	es, err := s.results.List()
	if err != nil {
		return 0, err
	}
	n := int64(0)
	for _, e := range es {
		if strings.HasSuffix(e.Name, ".json") && !strings.HasPrefix(e.Name, home.TempPrefix) {
			n++
		}
	}
	return n, nil
}

// reindex makes the index again from the receipts and returns its size.
func (s *Store) reindex() (int64, error) {
	names, err := s.names()
	if err != nil {
		return 0, err
	}
	for _, n := range names {
		st, err := s.read(n)
		if errors.Is(err, errDamaged) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, home.ErrTooLarge) {
			continue
		}
		if err != nil {
			return 0, err
		}
		if _, err := s.index(st); err != nil {
			return 0, err
		}
	}
	return s.indexed()
}

// dropDangling removes what the index says of receipts that are not there. After a
// power cut it may know of one that was lost, because it had no barrier.
func (s *Store) dropDangling() error {
	return s.eachIndexed(func(name, id string) error {
		if _, err := s.receipts.Lstat(id + ".json"); errors.Is(err, fs.ErrNotExist) {
			return s.dropIndex(name)
		}
		return nil
	})
}

// eachIndexed calls f for every receipt that a file of the index names. Files that
// name none are left to those who look for them.
func (s *Store) eachIndexed(f func(name, id string) error) error {
	if s.results == nil {
		return nil
	}
	es, err := s.results.List()
	if err != nil {
		return err
	}
	for _, x := range es {
		if !strings.HasSuffix(x.Name, ".json") || strings.HasPrefix(x.Name, home.TempPrefix) {
			continue
		}
		b, err := home.ReadFile(s.results, x.Name, 4096)
		if err != nil {
			continue
		}
		v, err := canon.Parse(b, canon.Limits{})
		if err != nil {
			continue
		}
		for _, id := range []string{text(v, "staged"), text(v, "applied")} {
			if isID(id) {
				if err := f(x.Name, id); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
