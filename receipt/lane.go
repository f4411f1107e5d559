package receipt

import (
	"strings"

	"github.com/aspengine/asp/seam/wire"
)

// lane is one chain of receipts, by the start of the names of its heads. All lie
// in one directory; what follows the digits of a receipt's id says which chain it
// is in. A chain loses its oldest entries first, so what may push what out is a
// matter of which chains there are:
//
//	rcpt-…          attempts to apply: a repeated request is answered from them
//	rcpt-…-answer   evaluations, inspections, requested plans, provider failures
//	rcpt-…-status   status, capabilities, authority: asked often, needed briefly
//
// The kind inside the receipt would say it too, but then each look at one chain,
// an append that prunes among them, would read the files of all. And the receipts
// of a state that has one chain only, which have plain ids whatever their kind,
// stay one chain that can be followed.
//
// Tombstones in one chain were the alternative: their number is bounded by
// nothing but the receipts that stay between them, and each append writes a head.
type lane string

const (
	laneApply  lane = "receipts"
	laneAnswer lane = "receipts-answer"
	laneStatus lane = "receipts-status"
)

// suffix ends the ids of a lane's receipts.
func (l lane) suffix() string { return strings.TrimPrefix(string(l), string(laneApply)) }

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

// laneOfID is the chain of the receipt with that id; false for what is no id.
func laneOfID(id string) (lane, bool) {
	if isPlainID(id) {
		return laneApply, true
	}
	for _, l := range []lane{laneAnswer, laneStatus} {
		if plain, ok := strings.CutSuffix(id, l.suffix()); ok && isPlainID(plain) {
			return l, true
		}
	}
	return "", false
}

// The status lane keeps an eighth of what the others keep, and of receipts never
// more than maxStatuses.
const (
	statusShare = 8
	maxStatuses = 100
)

// withLanes adds the further chains to the first. They share its directory, its
// locks and its batch, and have no index.
func (s *Store) withLanes() *Store {
	for _, l := range []lane{laneAnswer, laneStatus} {
		x := &Store{lane: l, mu: s.mu, state: s.state, dir: s.dir, receipts: s.receipts, batch: s.batch, retention: s.retention, boot: s.boot, now: s.now}
		if l == laneStatus {
			x.retention.Count = max(4, min(x.retention.Count/statusShare, maxStatuses))
			x.retention.Bytes /= statusShare
		}
		s.others = append(s.others, x)
	}
	return s
}

// of is the chain of a lane.
func (s *Store) of(l lane) *Store {
	for _, x := range s.others {
		if x.lane == l {
			return x
		}
	}
	return s
}

// each calls f for every chain.
func (s *Store) each(f func(*Store) error) error {
	if err := f(s); err != nil {
		return err
	}
	for _, x := range s.others {
		if err := f(x); err != nil {
			return err
		}
	}
	return nil
}
