package receipt

import (
	"errors"
	"io/fs"

	"github.com/aspengine/asp/seam/wire"
)

// lane is one chain of receipts: the name of its directory, and the start of the
// names of its heads. A chain loses its oldest entries first, so what may push
// what out is a matter of which chains there are:
//
//	receipts           attempts to apply: a repeated request is answered from them
//	receipts.answers   evaluations, inspections, requested plans, provider failures
//	receipts.status    status, capabilities, authority: asked often, needed briefly
//
// Tombstones in one chain were the alternative: their number is bounded by
// nothing but the receipts that stay between them, and each append writes a head.
type lane string

const (
	laneApply  lane = "receipts"
	laneAnswer lane = "receipts.answers"
	laneStatus lane = "receipts.status"
)

// laneOf is where a receipt of that kind goes.
func laneOf(k wire.ReceiptKind) lane {
	switch k {
	case wire.ReceiptApplyAttempt:
		return laneApply
	case wire.ReceiptStatus, wire.ReceiptCapabilities, wire.ReceiptAuthorityStatus:
		return laneStatus
	}
	return laneAnswer
}

// The status lane keeps an eighth of what the others keep, and of receipts never
// more than maxStatuses.
const (
	statusShare = 8
	maxStatuses = 100
)

// lanes returns the chains that exist; the first is always there.
func (s *Store) lanes() ([]*Store, error) {
	out := []*Store{s}
	for _, l := range []lane{laneAnswer, laneStatus} {
		if _, err := s.dir.Lstat(string(l)); errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return nil, err
		}
		x, err := s.of(l)
		if err != nil {
			return nil, err
		}
		out = append(out, x)
	}
	return out, nil
}

// of opens the chain of a lane, making its directory if needed.
func (s *Store) of(l lane) (*Store, error) {
	if l == s.lane {
		return s, nil
	}
	s.open.Lock()
	defer s.open.Unlock()
	if x := s.others[l]; x != nil {
		return x, nil
	}
	d, err := s.state.Sub(string(l))
	if err != nil {
		return nil, err
	}
	x := &Store{lane: l, state: s.state, dir: s.dir, receipts: d, batch: s.batch, retention: s.retention, boot: s.boot, now: s.now}
	if l == laneStatus {
		x.retention.Count = max(4, min(x.retention.Count/statusShare, maxStatuses))
		x.retention.Bytes /= statusShare
	}
	if s.others == nil {
		s.others = map[lane]*Store{}
	}
	s.others[l] = x
	return x, nil
}

// each calls f for every chain that exists.
func (s *Store) each(f func(*Store) error) error {
	all, err := s.lanes()
	if err != nil {
		return err
	}
	for _, x := range all {
		if err := f(x); err != nil {
			return err
		}
	}
	return nil
}
