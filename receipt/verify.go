package receipt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/internal/home"
)

// Report is the result of Verify.
type Report struct {
	OK       bool     `json:"ok"`
	Checked  int      `json:"checked"` // receipts read
	Problems []string `json:"problems"`
}

const maxProblems = 200

func (r *Report) add(format string, a ...any) {
	switch len(r.Problems) {
	case maxProblems:
		r.Problems = append(r.Problems, "and further problems")
	case maxProblems + 1:
	default:
		r.Problems = append(r.Problems, fmt.Sprintf(format, a...))
	}
}

// link is what Verify remembers of a receipt.
type link struct {
	id, digest, previous string
	seen                 bool
}

// Verify reads every receipt and follows each chain from its head to its first
// entry, or to the checkpoint that retention left. An error means that it could
// not tell.
func (s *Store) Verify(ctx context.Context) (Report, error) {
	r := Report{Problems: []string{}}
	err := s.each(func(x *Store) error {
		return x.locked(ctx, func() error { return x.verify(ctx, &r) })
	})
	if err != nil {
		return Report{}, fmt.Errorf("verify receipts: %w", err)
	}
	r.OK = len(r.Problems) == 0
	return r, nil
}

// verify adds what is wrong with one chain. At most maxProblems are kept of all.
func (s *Store) verify(ctx context.Context, all *Report) error {
	r := &Report{}
	hs, err := s.readHeads()
	if errors.Is(err, errNewer) {
		all.add("%v", err)
		return nil
	}
	if err != nil {
		return err
	}
	// What a crash left is repaired first; in a settled store nothing is
	// touched, so that everything out of order shows.
	unsettled, cut, err := s.crashed(hs)
	if err == nil && !unsettled && !cut && hs.newest() == nil && (hs.torn(0) || hs.torn(1)) {
		// So a power cut may leave the head of a first entry that is gone itself.
		var names []string
		names, err = s.names()
		unsettled = len(names) == 0
	}
	if err == nil && (unsettled || cut) {
		if _, err = s.repair(cut || hs.lame()); err == nil {
			hs, err = s.readHeads()
		}
	}
	if err != nil {
		return err
	}
	links, err := s.readLinks(ctx, r)
	if err != nil {
		return err
	}
	s.checkHeads(hs, r)
	follow(hs.newest(), links, r)
	if err := s.checkIndex(hs.newest(), links, r); err != nil {
		return err
	}
	all.Checked += r.Checked
	for _, p := range r.Problems {
		all.add("%s", p)
	}
	return nil
}

// readLinks reads the receipts of this chain; what is no receipt of any is
// reported with the first.
func (s *Store) readLinks(ctx context.Context, r *Report) ([]*link, error) {
	es, err := s.receipts.List()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range es {
		if !strings.HasPrefix(e.Name, home.TempPrefix) {
			names = append(names, e.Name)
		}
	}
	slices.Sort(names)
	var out []*link
	for _, n := range names {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		id, ok := strings.CutSuffix(n, ".json")
		l, is := laneOfID(id)
		if !ok || !is {
			if s.lane == laneApply {
				r.add("%.100q is no receipt", n)
			}
			continue
		}
		if l != s.lane {
			continue
		}
		r.Checked++
		st, err := s.read(n)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			r.Checked--
		case err != nil:
			// Damage, a link or a FIFO in the place of a file, a file
			// over the limit, one that cannot be read: all are findings.
			r.add("%s was changed: %.300s", id, err.Error())
		default:
			for _, p := range st.probes() {
				r.add("%s: %s", id, p)
			}
			out = append(out, &link{id: id, digest: st.Digest, previous: st.Previous})
		}
	}
	return out, nil
}

// probes recomputes the digests of the records of probes beside a receipt and says what
// is wrong: the detail of the assurance rests on these records, and names them.
func (s *Stored) probes() (problems []string) {
	list, _ := s.Evidence.Get("probes")
	for _, p := range list.Elements() {
		said, _ := p.Get("digest")
		attempts, _ := p.Get("attempts")
		switch d := canon.DigestText(attempts); {
		case d != said.Str():
			problems = append(problems, fmt.Sprintf("the record of a probe has the digest %s and not %.100q", d, said.Str()))
		case !strings.Contains(s.Receipt.Assurance.Detail, d):
			problems = append(problems, fmt.Sprintf("the record of a probe %s is not the one that the assurance rests on", d))
		}
	}
	return problems
}

// checkHeads reports damage to the heads themselves.
func (s *Store) checkHeads(hs *heads, r *Report) {
	headFiles := s.lane.headFiles()
	h := hs.newest()
	if h == nil {
		for i, err := range hs.problem {
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				r.add("%s was changed: %.300s", headFiles[i], err.Error())
			}
		}
		return
	}
	other := headFiles[1-h.slot]
	switch hs.wrong(h) {
	case missing:
		r.add("%s is missing", other)
	case damaged:
		r.add("%s was changed: %.300s", other, hs.problem[1-h.slot].Error())
	case strange:
		r.add("%s does not precede %s", other, headFiles[h.slot])
	}
	for _, b := range h.breaks {
		r.add("%.300s", b)
	}
}

// checkIndex reports receipts that the index of outcomes knows and that are not
// there: the newest ones, removed together with the heads that knew them. What is
// older than the checkpoint may have been pruned.
func (s *Store) checkIndex(h *head, links []*link, r *Report) error {
	known := map[string]bool{}
	for _, l := range links {
		known[l.id] = true
	}
	if s.lane == laneApply && len(links) == 0 {
		gone, err := s.vanished("")
		if err != nil {
			return err
		}
		if gone {
			r.add("every receipt and every head was removed")
		}
	}
	return s.eachIndexed(func(_, id string) error {
		if known[id] || h != nil && id <= h.pruned.ReceiptID {
			return nil
		}
		if _, err := s.receipts.Lstat(id + ".json"); errors.Is(err, fs.ErrNotExist) {
			r.add("%s is known to the index of outcomes, and was removed", id)
		}
		return nil
	})
}

// follow walks the chain and accounts for every receipt.
func follow(h *head, links []*link, r *Report) {
	byDigest := map[string]*link{}
	namers := map[string][]*link{}
	for _, l := range links {
		byDigest[l.digest] = l
		namers[l.previous] = append(namers[l.previous], l)
	}
	if h == nil {
		if len(links) > 0 {
			r.add("the head of the chain is missing")
		}
		return
	}
	end := h.pruned.Digest // "" without a checkpoint: the first entry's predecessor
	length := int64(0)
	// walk follows the chain from the entry with this digest on; it returns
	// the entry whose predecessor is not there, or nil at the proper end.
	walk := func(digest string) (last *link, complete bool) {
		for digest != end {
			l := byDigest[digest]
			if l == nil || l.seen {
				return last, false
			}
			l.seen = true
			length++
			last, digest = l, l.previous
		}
		return last, true
	}
	from, complete := walk(h.entry.Digest)
	if from == nil {
		r.add("%s, the newest, was removed or changed", h.entry.Receipt.ReceiptID)
	}
	for !complete {
		// Go on at the newest entry that nobody names: what lies there was
		// the predecessor, or came before it.
		var tip *link
		for _, l := range links {
			if !l.seen && len(namers[l.digest]) == 0 && (from == nil || l.id < from.id) {
				tip = l
			}
		}
		switch {
		case from == nil:
		case tip == nil:
			r.add("the predecessor of %s was removed or changed, and so were all before it", from.id)
		default:
			r.add("%s does not precede %s: it was changed, or what stood between them was removed", tip.id, from.id)
		}
		if tip == nil {
			break
		}
		from, complete = walk(tip.digest)
	}
	// Before the checkpoint: entries that are pruned, but not yet removed.
	for l := byDigest[end]; l != nil && !l.seen; l = byDigest[l.previous] {
		l.seen = true
	}
	for _, l := range links {
		if !l.seen {
			r.add("%s is not in the chain: inserted, or cut off by a removal", l.id)
		}
		if ns := namers[l.previous]; len(ns) > 1 && ns[0] == l {
			r.add("the chain forks: %s and %s name the same predecessor", ns[0].id, ns[1].id)
		}
	}
	if len(r.Problems) == 0 && length != h.count-h.pruned.Count {
		r.add("the chain has %d receipts and should have %d", length, h.count-h.pruned.Count)
	}
}
