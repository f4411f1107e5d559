package receipt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/internal/vfs"
)

// Recover repairs what a killed process or a power cut left; a host calls it
// when it finds a transaction open. Append, Lookup and Verify do the same by
// themselves when they see an unsettled entry or another boot of the machine.
//
// A missing receipt is put back from the head's copy only after the machine
// started anew. A kill cannot lose it, because its name is made before the head:
// so a receipt that is missing under the same boot was removed, and stays a
// finding of Verify. One whose bytes are no receipt is put back here under the
// same boot too: a disk that was lost and came back, without its machine, leaves
// names without bytes.
func (s *Store) Recover(ctx context.Context) error {
	err := s.each(func(x *Store) error {
		return x.locked(ctx, func() error {
			x.tidy()
			if err := x.restoreTorn(); err != nil {
				return err
			}
			_, err := x.repair(true)
			return err
		})
	})
	if err != nil {
		return fmt.Errorf("recover receipts: %w", err)
	}
	return nil
}

// tidy removes the half-made files of dead writers. They are nothing that a reader
// sees, so that one which cannot be removed now is no reason to stop.
func (s *Store) tidy() {
	_ = home.CleanTemp(s.dir)
	_ = home.CleanTemp(s.receipts)
	if s.results != nil {
		_ = home.CleanTemp(s.results)
	}
}

// restoreTorn puts the receipts of the heads back where their names hold no
// receipt.
func (s *Store) restoreTorn() error {
	hs, err := s.readHeads()
	if err != nil {
		return err
	}
	for _, h := range hs.slot {
		if h == nil {
			continue
		}
		if _, err := s.read(fileName(h.entry)); errors.Is(err, errDamaged) {
			if err := s.restore(h.entry); err != nil {
				return err
			}
		}
	}
	return nil
}

// current is the head to append after, nil for an empty store. It repairs what
// needs it first.
func (s *Store) current() (*head, error) {
	hs, err := s.glance()
	if err != nil {
		return nil, err
	}
	unsettled, cut, err := s.crashed(hs)
	if err != nil {
		return nil, err
	}
	if cut || hs.lame() {
		return s.repair(true)
	}
	h := hs.newest()
	if !unsettled {
		return h, nil
	}
	// Of a repair only the entry is left that waits for its barrier; without one between
	// them that is so at every append. h may not be durable, unless it is alone.
	if h.into = h.slot; hs.slot[1-h.slot] == nil {
		h.into = 1 - h.slot
	}
	return s.finish(h)
}

// crashed tells whether an entry waits for its barrier (or its writer died), and
// whether the machine started anew since the newest head was written.
func (s *Store) crashed(hs *heads) (unsettled, cut bool, err error) {
	_, err = s.dir.Lstat(s.lane.nextFile())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, false, err
	}
	h := hs.newest()
	return err == nil, h != nil && h.boot != s.boot, nil
}

// repair brings heads and files together:
//
//  1. after a power cut, the newest head counts if its receipts are all there: of
//     those without a barrier some may be lost, and then it is the other, which is
//     durable, that counts. Its receipt is put back if missing or torn;
//  2. no head, but receipts: the chain goes on from its newest end, and the
//     head remembers the break for Verify;
//  3. an entry that follows the head is finished: receipts.next, and after a
//     power cut (deep), which may have kept the one name and not the other,
//     whatever follows under its own name. What a cut left behind a gap is set aside;
//  4. the other head, if it is not the one that it should be, becomes a copy. Where
//     no crash explains it the head remembers that too.
func (s *Store) repair(deep bool) (*head, error) {
	hs, err := s.readHeads()
	if err != nil {
		return nil, err
	}
	_, err = s.dir.Lstat(s.lane.nextFile())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	h, unsynced := hs.newest(), err == nil
	bad, cut := fits, false
	if h != nil {
		bad, cut = hs.wrong(h), h.boot != s.boot
		if h.into = h.slot; bad != fits || hs.slot[1-h.slot] == nil {
			h.into = 1 - h.slot // h is durable, or nothing is
		}
	}
	if cut {
		s.batch.Whole() // what is put back here is put back once
		whole, err := s.reaches(h, hs.slot[1-h.slot])
		if err != nil {
			return nil, err
		}
		if !whole {
			h, bad, unsynced = hs.slot[1-h.slot], damaged, true
			h.into = 1 - h.slot
		}
		for _, x := range hs.slot {
			if x != nil && x.boot != s.boot && x.count <= h.count {
				if err := s.restore(x.entry); err != nil {
					return nil, err
				}
			}
		}
	}
	if h == nil {
		first, err := s.first()
		if err != nil {
			return nil, err
		}
		if !first {
			if h, err = s.rebuild(); err != nil {
				return nil, err
			}
		}
	}
	if bad == missing && (h.format > 1 || !cut) {
		h.note("%s: %s was missing; it was removed", Time(s.now()), s.lane.headFiles()[1-h.slot])
	}
	if bad == strange {
		h.note("%s: %s was not the one before %s", Time(s.now()), s.lane.headFiles()[1-h.slot], s.lane.headFiles()[h.slot])
	}
	before := h
	if h, err = s.finish(h); err != nil {
		return nil, err
	}
	if deep || bad != fits {
		if h, err = s.adopt(h, cut && (unsynced || bad == damaged)); err != nil {
			return nil, err
		}
	}
	if cut || h == nil && unsynced {
		if err := s.dropDangling(); err != nil {
			return nil, err
		}
	}
	if h == nil {
		return nil, s.dropTornHeads()
	}
	if bad != fits && h == before {
		return h, s.copyHead(h)
	}
	return h, nil
}

// reaches tells whether the entries between h and the head beside it, o, are all
// there. h brings its own. Without o there is nothing to fall back to.
func (s *Store) reaches(h, o *head) (bool, error) {
	if o == nil || o.count >= h.count || o.self() != h.partner {
		return true, nil
	}
	st, left := h.entry, h.count-o.count
	if st.Receipt.IssuedAt == "" { // read at a glance
		return true, nil
	}
	byDigest := map[string]*Stored{}
	if left > 1 {
		names, err := s.names()
		if err != nil {
			return false, err
		}
		for _, n := range names {
			x, err := s.read(n)
			if errors.Is(err, errDamaged) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, home.ErrTooLarge) {
				continue
			}
			if err != nil {
				return false, err
			}
			byDigest[x.Digest] = &Stored{Previous: x.Previous}
		}
	}
	for ; left > 1; left-- {
		if st = byDigest[st.Previous]; st == nil {
			return false, nil
		}
	}
	return st.Previous == o.entry.Digest, nil
}

// vanished tells that receipts were durable here once, and that there is none now
// but the one named, nor any head: the name of the state is written after the first
// barrier that covers a receipt.
func (s *Store) vanished(but string) (bool, error) {
	if _, err := s.dir.Lstat(home.WorkspaceFile); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return false, err
	}
	for _, l := range []lane{laneApply, laneAnswer, laneStatus} {
		for _, n := range l.headFiles() {
			if _, err := s.dir.Lstat(n); !errors.Is(err, fs.ErrNotExist) {
				return false, err
			}
		}
	}
	es, err := s.receipts.List()
	for _, e := range es {
		if strings.HasSuffix(e.Name, ".json") && e.Name != but {
			return false, err
		}
	}
	return err == nil, err
}

// dropTornHeads removes what a cut left of the head of a first entry that is
// gone altogether. A head that reads as one was not left by a cut, and stays for
// Verify.
func (s *Store) dropTornHeads() error {
	for _, name := range s.lane.headFiles() {
		b, err := home.ReadFile(s.dir, name, 2*MaxStored)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, home.ErrTooLarge) {
			continue
		}
		if err != nil {
			return err
		}
		if _, err := canon.Parse(b, limits); err == nil {
			continue
		}
		if err := s.dir.Unlink(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// first tells that the very first entry was cut off before its head: nothing
// but receipts.next and, maybe, the one receipt is there.
func (s *Store) first() (bool, error) {
	if _, err := s.dir.Lstat(s.lane.nextFile()); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return false, err
	}
	names, err := s.names()
	return len(names) <= 1, err
}

// finish completes the entry that receipts.next holds.
func (s *Store) finish(h *head) (*head, error) {
	b, err := home.ReadFile(s.dir, s.lane.nextFile(), MaxStored)
	if errors.Is(err, fs.ErrNotExist) {
		return h, nil
	}
	if err != nil && !errors.Is(err, home.ErrTooLarge) {
		return nil, err
	}
	var st *Stored
	waits := h != nil && err == nil && bytes.Equal(b, h.entry.raw) // for its barrier, and is all written
	if waits {
		st = h.entry
	} else {
		st, err = parse(b)
	}
	if err != nil || st.Digest != s.settling {
		// Another process, or a store that was closed, left it without its barrier,
		// and maybe others before it. What follows names it as its predecessor and
		// must not outlive it.
		s.batch.Whole()
	}
	if waits {
		s.settleLater(st)
		return h, nil
	}
	if err != nil || st.Previous != h.digest() {
		return h, s.dir.Unlink(s.lane.nextFile())
	}
	// Its writer died, and may have been over any of its files.
	s.tidy()
	if err := s.restore(st); err != nil {
		return nil, err
	}
	if h, err = s.advance(h, st); err != nil {
		return nil, err
	}
	s.settleLater(st)
	return h, nil
}

// adopt looks at the files that may be newer than the head: one that names it
// as its predecessor is the next, one that is torn was never acknowledged as
// durable. Ids are drawn before they are appended; an hour is time enough.
//
// What is newer and follows nothing was cut off by the loss of its predecessor, if
// there was a cut and entries without a barrier (lossy): nothing durable rests on it.
func (s *Store) adopt(h *head, lossy bool) (*head, error) {
	names, err := s.names()
	if err != nil {
		return nil, err
	}
	from := ""
	if h != nil {
		if t, err := time.Parse(time.RFC3339, h.entry.Receipt.IssuedAt); err == nil {
			from = "rcpt-" + t.UTC().Add(-time.Hour).Format("20060102T150405")
		}
	}
	after := map[string]*Stored{}
	for _, n := range names {
		if n < from || h != nil && n == fileName(h.entry) {
			continue
		}
		b, err := home.ReadFile(s.receipts, n, MaxStored)
		if errors.Is(err, home.ErrTooLarge) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if st, err := parse(b); err == nil && fileName(st) == n {
			if after[st.Previous] == nil {
				after[st.Previous] = st
			}
		} else if _, err := canon.Parse(b, limits); err != nil {
			// Set aside, not removed: should it be damage to an older
			// receipt, Verify still finds the gap, and this is the rest.
			if err := s.setAside(n); err != nil {
				return nil, err
			}
		}
	}
	newer := ""
	if h != nil {
		newer = fileName(h.entry)
	}
	for st := after[h.digest()]; st != nil; st = after[h.digest()] {
		delete(after, st.Previous)
		if err := s.owe(st); err != nil {
			return nil, err
		}
		if h, err = s.advance(h, st); err != nil {
			return nil, err
		}
	}
	if lossy {
		for _, st := range after {
			if n := fileName(st); n > newer {
				if err := s.setAside(n); err != nil {
					return nil, err
				}
			}
		}
	}
	return h, nil
}

func (s *Store) setAside(name string) error {
	return s.receipts.Rename(name, s.receipts, home.TornPrefix+name, vfs.Replace)
}

// restore puts st back under its name if that is missing or torn. A file that
// reads as a receipt with other content is left alone: no power cut makes one.
func (s *Store) restore(st *Stored) error {
	_, err := s.read(fileName(st))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errDamaged) {
		return s.batch.WriteFile(s.receipts, fileName(st), st.raw)
	}
	if errors.Is(err, home.ErrTooLarge) {
		return nil
	}
	return err
}

// rebuild makes a head from the receipts alone, when both heads are gone.
func (s *Store) rebuild() (*head, error) {
	names, err := s.names()
	if err != nil || len(names) == 0 {
		return nil, err
	}
	h := &head{slot: 1}
	named := map[string]bool{}
	var all []*Stored
	for _, n := range names {
		st, err := s.read(n)
		if errors.Is(err, errDamaged) || errors.Is(err, home.ErrTooLarge) {
			continue
		}
		if err != nil {
			return nil, err
		}
		h.count++
		h.bytes += int64(len(st.raw))
		named[st.Previous] = true
		all = append(all, &Stored{Receipt: st.Receipt, Digest: st.Digest, Previous: st.Previous})
	}
	if len(all) == 0 {
		return nil, nil
	}
	// The newest of the entries that no other names as its predecessor.
	tip := ""
	for _, st := range all {
		if !named[st.Digest] {
			tip = fileName(st)
		}
	}
	if tip == "" {
		return nil, errors.New("the receipts form a ring")
	}
	if h.entry, err = s.read(tip); err != nil {
		return nil, err
	}
	h.note("%s: the head of the chain was missing; it goes on after %s", Time(s.now()), h.entry.Receipt.ReceiptID)
	if first := all[0]; first.Previous != "" {
		h.pruned.Digest = first.Previous // pruned before, as far as can be told
	}
	if h.results, err = s.reindex(); err != nil {
		return nil, err
	}
	return h, s.rewrite(h)
}
