package receipt

import (
	"errors"
	"io/fs"

	"github.com/aspengine/asp/internal/home"
)

// prune applies the retention to the head that is about to be written. The
// oldest entries are replaced by the checkpoint in the head; their files go
// after the barrier that makes that head durable, because the other way round
// a power cut would leave a hole without a reason.
//
// Pruning follows the chain. Where it is broken, pruning stops: evidence is
// not tidied away.
func (s *Store) prune(h *head) error {
	over := func(slack int64) bool {
		return h.count-h.pruned.Count > s.retention.Count-s.retention.Count/slack ||
			h.bytes-h.pruned.Bytes > s.retention.Bytes-s.retention.Bytes/slack
	}
	if h.count-h.pruned.Count <= s.retention.Count && h.bytes-h.pruned.Bytes <= s.retention.Bytes {
		return nil
	}
	names, err := s.names()
	if err != nil {
		return err
	}
	// Ids sort by the time they were drawn, which is nearly, but not always,
	// the order of the chain: so read on until the next link is found.
	after := map[string]*Stored{}
	byDigest := map[string]*Stored{}
	var gone []*Stored
	for h.count-h.pruned.Count > 2 && over(8) {
		st := after[h.pruned.Digest]
		for st == nil && len(names) > 0 {
			got, err := s.read(names[0])
			names = names[1:]
			if errors.Is(err, errDamaged) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, home.ErrTooLarge) {
				continue
			}
			if err != nil {
				return err
			}
			after[got.Previous], byDigest[got.Digest] = got, got
			st = after[h.pruned.Digest]
		}
		if st == nil || st.Digest == h.entry.Digest {
			break
		}
		removed, err := s.unindex(st)
		if err != nil {
			return err
		}
		if removed {
			h.results--
		}
		h.pruned = checkpoint{
			ReceiptID: st.Receipt.ReceiptID, Digest: st.Digest, At: Time(s.now()),
			Count: h.pruned.Count + 1, Bytes: h.pruned.Bytes + int64(len(st.raw)),
		}
		gone = append(gone, st)
	}
	if len(gone) == 0 {
		return nil
	}
	// Files that an earlier prune left, because no barrier came.
	for st := byDigest[gone[0].Previous]; st != nil; st = byDigest[st.Previous] {
		gone = append(gone, st)
	}
	s.batch.Touch(s.receipts)
	s.batch.After(func() error {
		var errs []error
		for _, st := range gone {
			if err := s.receipts.Unlink(fileName(st)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
		return errors.Join(errs...)
	})
	return nil
}
