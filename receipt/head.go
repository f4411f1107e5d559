package receipt

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/internal/vfs"
)

// headFormat is what is written. Format 1 had no partner: its heads took turns with
// every entry.
const headFormat = 2

// There are two heads, and one of them is durable at any time: a head is a new file
// renamed over the other of the two if the newest is known to be durable, and over
// the newest itself if it is not. So a power cut can tear one of them at most,
// however many entries came without a barrier. Each holds its entry too: a head that
// survived without its receipt can restore it. And each names the other as it has
// to be, so that one that was removed or put back is seen.
//
// Each chain has heads of its own; see lane.
func (l lane) headFiles() [2]string { return [2]string{string(l) + ".head.a", string(l) + ".head.b"} }

// nextFile holds an entry that is not known to be durable yet.
func (l lane) nextFile() string { return string(l) + ".next" }

// head is the newest entry and the sums over the chain up to it.
type head struct {
	count   int64  // entries ever appended
	bytes   int64  // their sizes
	results int64  // files in the index
	boot    string // boot of the machine on which it was written
	entry   *Stored
	// The last pruned entry and the sums up to it; count 0 when none was.
	pruned checkpoint
	// Breaks of the chain that had to be repaired by guess, for Verify.
	breaks  []string
	format  int64
	partner partner // the other head when this one was written
	// Not written: which file it was read from, and which one the next goes to.
	slot, into int
}

// partner names a head: its count and the digest of its entry. Count 0 is none. A
// head that names itself is the copy that took the place of a damaged one.
type partner struct {
	Count  int64  `json:"count"`
	Digest string `json:"digest"`
}

// self is how another head names h.
func (h *head) self() partner { return partner{h.count, h.entry.Digest} }

// note adds a break for Verify.
func (h *head) note(format string, a ...any) {
	if len(h.breaks) < maxBreaks {
		h.breaks = append(slices.Clone(h.breaks), fmt.Sprintf(format, a...))
	}
}

// follower is what the head after h says of the other one.
func (h *head) follower() partner {
	if h.into == h.slot {
		return h.partner
	}
	return h.self()
}

// checkpoint takes the place of the entries that retention removed.
type checkpoint struct {
	ReceiptID string `json:"receiptId"`
	Digest    string `json:"digest"`
	Count     int64  `json:"count"`
	Bytes     int64  `json:"bytes"`
	At        string `json:"at"`
}

const maxBreaks = 16

// digest names the newest entry, "" for an empty chain.
func (h *head) digest() string {
	if h == nil {
		return ""
	}
	return h.entry.Digest
}

// errNewer: the state was written by a newer program and must be left alone.
var errNewer = errors.New("written in a newer format than this program knows")

// text is the head in canonical form. The entry is put in as its bytes: it is
// nearly all of the head, and was written and digested before.
func (h *head) text() ([]byte, error) {
	v, err := canon.From(struct {
		Format  int        `json:"format"`
		Receipt string     `json:"receiptId"`
		Digest  string     `json:"digest"`
		Count   int64      `json:"count"`
		Bytes   int64      `json:"bytes"`
		Results int64      `json:"results"`
		Boot    string     `json:"boot"`
		Pruned  checkpoint `json:"checkpoint"`
		Breaks  []string   `json:"breaks"`
		Partner partner    `json:"partner"`
		Entry   any        `json:"entry"`
	}{headFormat, h.entry.Receipt.ReceiptID, h.entry.Digest, h.count, h.bytes, h.results, h.boot, h.pruned, h.breaks, h.partner, nil})
	if err != nil {
		return nil, err
	}
	const hole = `,"entry":null,`
	before, after, ok := bytes.Cut(v.Bytes(), []byte(hole))
	if !ok {
		return nil, errors.New("head without a place for its entry")
	}
	out := make([]byte, 0, len(before)+len(h.entry.raw)+len(after)+len(hole))
	out = append(out, before...)
	out = append(out, `,"entry":`...)
	out = append(out, h.entry.raw...)
	out = append(out, ',')
	return append(out, after...), nil
}

// glanceHead reads a head without reading its entry. It answers only for a head
// whose entry has, byte for byte, the digest and the receipt id that the head
// states; parseHead judges every other one. The entry holds its bytes, digest
// and id and nothing else.
func glanceHead(b []byte) (*head, bool) {
	members, ok := canon.Split(b)
	if !ok {
		return nil, false
	}
	var entry []byte
	rest := make([]byte, 0, 1024)
	for _, m := range members {
		if m.Key == "entry" {
			if entry != nil {
				return nil, false
			}
			entry = m.Text
			continue
		}
		rest = append(rest, ',')
		rest = canon.AppendString(rest, m.Key)
		rest = append(append(rest, ':'), m.Text...)
	}
	if entry == nil || len(rest) == 0 {
		return nil, false
	}
	rest[0] = '{'
	v, err := canon.Parse(append(rest, '}'), canon.Limits{})
	if err != nil {
		return nil, false
	}
	n, ok := integer(v, "format")
	if !ok || n != headFormat {
		return nil, false
	}
	e := &Stored{raw: entry, Digest: digestOf(entry)}
	e.Receipt.ReceiptID = text(v, "receiptId")
	if e.Digest != text(v, "digest") || !isID(e.Receipt.ReceiptID) || rawID(entry) != e.Receipt.ReceiptID {
		return nil, false
	}
	h := &head{entry: e, format: n}
	if h.readSums(v) != nil {
		return nil, false
	}
	return h, true
}

// rawID is the receipt id in the text of an entry, "" if there is none.
func rawID(entry []byte) string {
	for _, key := range []string{"receipt", "receiptId"} {
		members, _ := canon.Split(entry)
		entry = nil
		for _, m := range members {
			if m.Key == key {
				entry = m.Text
			}
		}
	}
	return strings.Trim(string(entry), `"`)
}

func parseHead(b []byte) (*head, error) {
	v, err := canon.Parse(b, limits)
	if err != nil {
		return nil, err
	}
	n, ok := integer(v, "format")
	if !ok || n < 1 {
		return nil, errors.New("no format")
	} else if n > headFormat {
		return nil, errNewer
	}
	h := &head{format: n}
	ev, ok := v.Get("entry")
	if !ok {
		return nil, errors.New("no entry")
	}
	if h.entry, err = fromValue(ev, ev.Bytes()); err != nil {
		return nil, err
	}
	if h.entry.Digest != text(v, "digest") || h.entry.Receipt.ReceiptID != text(v, "receiptId") {
		return nil, errors.New("entry and digest disagree")
	}
	if err := h.readSums(v); err != nil {
		return nil, err
	}
	return h, nil
}

// readSums reads everything but the entry.
func (h *head) readSums(v canon.Value) error {
	h.boot = text(v, "boot")
	c, _ := v.Get("checkpoint")
	h.pruned = checkpoint{ReceiptID: text(c, "receiptId"), Digest: text(c, "digest"), At: text(c, "at")}
	sums := []struct {
		in   canon.Value
		key  string
		into *int64
	}{
		{v, "count", &h.count}, {v, "bytes", &h.bytes}, {v, "results", &h.results},
		{c, "count", &h.pruned.Count}, {c, "bytes", &h.pruned.Bytes},
	}
	if h.format > 1 {
		p, _ := v.Get("partner")
		h.partner.Digest = text(p, "digest")
		sums = append(sums, sums[0])
		last := &sums[len(sums)-1]
		last.in, last.into = p, &h.partner.Count
	}
	for _, f := range sums {
		n, ok := integer(f.in, f.key)
		if !ok || n < 0 {
			return fmt.Errorf("no count %q", f.key)
		}
		*f.into = n
	}
	if h.count <= h.pruned.Count {
		return errors.New("counts disagree")
	}
	if bs, ok := v.Get("breaks"); ok && bs.Kind() == canon.Array {
		for i, b := range bs.Elements() {
			if i < maxBreaks {
				h.breaks = append(h.breaks, b.Str())
			}
		}
	}
	return nil
}

func integer(v canon.Value, key string) (int64, bool) {
	m, ok := v.Get(key)
	if !ok {
		return 0, false
	}
	return m.Int()
}

// heads is what the two files hold.
type heads struct {
	slot    [2]*head
	problem [2]error // fs.ErrNotExist when missing
}

// newest is the valid head with the higher count, nil without one. What follows it
// goes into the other file, as is right when it is durable.
func (hs *heads) newest() *head {
	h := hs.slot[0]
	// Of two for one entry the copy is what was written last.
	if b := hs.slot[1]; h == nil || b != nil && (b.count > h.count || b.count == h.count && b.partner == b.self()) {
		h = b
	}
	if h != nil {
		h.into = 1 - h.slot
	}
	return h
}

// lame tells that a head is missing, damaged or another one than should be there.
func (hs *heads) lame() bool {
	h := hs.newest()
	return h == nil || hs.wrong(h) != fits
}

// torn tells that a file is there and is no head.
func (hs *heads) torn(slot int) bool {
	return hs.problem[slot] != nil && !errors.Is(hs.problem[slot], fs.ErrNotExist)
}

// fit is what the other head is to the newest.
type fit uint8

const (
	fits    fit = iota
	missing     // and no crash removes one
	damaged     // as by a power cut, or by hand
	strange     // a head, but of another time
)

// wrong says what is wrong with the head beside h.
func (hs *heads) wrong(h *head) fit {
	o, err := hs.slot[1-h.slot], hs.problem[1-h.slot]
	// The very first entry has one head only.
	first := h.partner.Count == 0
	if h.format == 1 {
		first = h.count == 1
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) && first:
		return fits
	case errors.Is(err, fs.ErrNotExist):
		return missing
	case err != nil || o == nil:
		return damaged
	case h.format == 1 && (len(h.breaks) > 0 || o.self() == h.self() || o.count == h.count-1 && o.entry.Digest == h.entry.Previous):
		return fits
	case h.format > 1 && (o.self() == h.partner || o.self() == h.self() && (o.partner == o.self() || h.partner == h.self())):
		return fits
	}
	return strange
}

// readHeads reads both. The error is for what forbids to go on (an I/O error, a
// newer format); damage is only noted.
func (s *Store) readHeads() (*heads, error) { return s.headsBy(s.readHead) }

// glance is readHeads for who needs no more of the entries than digest and id.
func (s *Store) glance() (*heads, error) { return s.headsBy(s.glanceFile) }

func (s *Store) headsBy(read func(slot int) (h *head, damage, err error)) (*heads, error) {
	hs := &heads{}
	for i, name := range s.lane.headFiles() {
		h, damage, err := read(i)
		switch {
		case errors.Is(damage, errNewer):
			return nil, fmt.Errorf("read %s: %w", name, damage)
		case err == nil:
			hs.slot[i], hs.problem[i] = h, damage
			if h != nil {
				h.slot = i
			}
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, home.ErrTooLarge):
			hs.problem[i] = err
		default:
			return nil, err
		}
	}
	if a, b := hs.slot[0], hs.slot[1]; a != nil && b != nil {
		for h, o := range map[*head]*head{a: b, b: a} {
			if h.format == 1 {
				h.partner = o.self() // it does not say
			}
		}
	}
	return hs, nil
}

func (s *Store) readHead(slot int) (h *head, damage, err error) {
	b, err := home.ReadFile(s.dir, s.lane.headFiles()[slot], 2*MaxStored)
	if err != nil {
		return nil, nil, err
	}
	h, damage = parseHead(b)
	return h, damage, nil
}

// glanced is a head that was read, and what its file was then.
type glanced struct {
	st vfs.Stat
	h  head
}

// settled is how long ago a head's file must have been made for it to be known
// again by its stat data. Younger ones could be mistaken: two appends within one
// tick of the file system's clock may give the number of a removed file to a head
// of the same size.
const settled = 100 * time.Millisecond

// glanceFile reads one head, unless this store read it before and its file is the
// same one since: an apply looks its proposal up and then appends to the chain
// that it looked at. A head is never written in place.
func (s *Store) glanceFile(slot int) (h *head, damage, err error) {
	name := s.lane.headFiles()[slot]
	st, err := s.dir.Lstat(name)
	if err != nil {
		return nil, nil, err
	}
	if g := s.glances[slot]; g != nil && g.st == st {
		known := g.h // whoever gets it may count on
		return &known, nil, nil
	}
	s.glances[slot] = nil
	b, err := home.ReadFile(s.dir, name, 2*MaxStored)
	if err != nil {
		return nil, nil, err
	}
	h, ok := glanceHead(b)
	if !ok {
		h, damage = parseHead(b)
		return h, damage, nil
	}
	// The same before and after it was read: then these are its bytes.
	if now, err := s.dir.Lstat(name); err == nil && now == st && time.Since(time.Unix(0, st.Ctime)) > settled {
		s.glances[slot] = &glanced{st, *h}
	}
	return h, nil, nil
}

// writeHead puts h into its file. It is not durable before a barrier, and until
// then receipts.next has to say so.
func (s *Store) writeHead(h *head) error {
	h.boot = s.boot
	b, err := h.text()
	if err != nil {
		return err
	}
	return s.batch.WriteFile(s.dir, s.lane.headFiles()[h.slot], b)
}

// copyHead makes the other file a copy of h, which stays as it is. What follows
// goes over the copy, whoever writes it: h itself may be all that is durable.
func (s *Store) copyHead(h *head) error {
	if err := s.owe(h.entry); err != nil {
		return err
	}
	c := *h
	c.slot, c.partner = 1-h.slot, h.self()
	if err := s.writeHead(&c); err != nil {
		return err
	}
	h.into = c.slot
	return nil
}

// rewrite puts h anew into its own file, which is not durable then: its entry says so
// in receipts.next, as for one that was just appended.
func (s *Store) rewrite(h *head) error {
	h.into = h.slot
	if err := s.owe(h.entry); err != nil {
		return err
	}
	return s.writeHead(h)
}

// owe says, before a head is written for st by who does not append it, that a barrier
// has to come.
func (s *Store) owe(st *Stored) error {
	if err := s.batch.WriteFile(s.dir, s.lane.nextFile(), st.raw); err != nil {
		return err
	}
	s.settleLater(st)
	return nil
}
