package receipt

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/internal/home"
)

const (
	headFormat = 1
	nextFile   = "receipts.next"
)

// Two heads are written in turn, by the parity of the count. A head is a new
// file renamed over the one of two entries ago, so a power cut before the
// barrier can tear one of them at most and never the one that the last barrier
// covered. Each holds its entry too: a head that survived without its receipt
// can restore it.
var headFiles = [2]string{"receipts.head.a", "receipts.head.b"}

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
	breaks []string
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

func (h *head) value() (canon.Value, error) {
	return canon.From(struct {
		Format  int         `json:"format"`
		Receipt string      `json:"receiptId"`
		Digest  string      `json:"digest"`
		Count   int64       `json:"count"`
		Bytes   int64       `json:"bytes"`
		Results int64       `json:"results"`
		Boot    string      `json:"boot"`
		Pruned  checkpoint  `json:"checkpoint"`
		Breaks  []string    `json:"breaks"`
		Entry   canon.Value `json:"entry"`
	}{headFormat, h.entry.Receipt.ReceiptID, h.entry.Digest, h.count, h.bytes, h.results, h.boot, h.pruned, h.breaks, h.entry.value})
}

func parseHead(b []byte) (*head, error) {
	v, err := canon.Parse(b, limits)
	if err != nil {
		return nil, err
	}
	if n, ok := integer(v, "format"); !ok || n < 1 {
		return nil, errors.New("no format")
	} else if n > headFormat {
		return nil, errNewer
	}
	h := &head{boot: text(v, "boot")}
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
	c, _ := v.Get("checkpoint")
	h.pruned = checkpoint{ReceiptID: text(c, "receiptId"), Digest: text(c, "digest"), At: text(c, "at")}
	for _, f := range []struct {
		in   canon.Value
		key  string
		into *int64
	}{
		{v, "count", &h.count}, {v, "bytes", &h.bytes}, {v, "results", &h.results},
		{c, "count", &h.pruned.Count}, {c, "bytes", &h.pruned.Bytes},
	} {
		n, ok := integer(f.in, f.key)
		if !ok || n < 0 {
			return nil, fmt.Errorf("no count %q", f.key)
		}
		*f.into = n
	}
	if h.count <= h.pruned.Count {
		return nil, errors.New("counts disagree")
	}
	if bs, ok := v.Get("breaks"); ok && bs.Kind() == canon.Array {
		for i, b := range bs.Elements() {
			if i < maxBreaks {
				h.breaks = append(h.breaks, b.Str())
			}
		}
	}
	return h, nil
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

// newest is the valid head with the higher count, nil without one.
func (hs *heads) newest() *head {
	a, b := hs.slot[0], hs.slot[1]
	if a == nil || b != nil && b.count > a.count {
		return b
	}
	return a
}

// lame tells that a head is missing or damaged that should be there.
func (hs *heads) lame() bool {
	h := hs.newest()
	if h == nil {
		return true
	}
	for _, err := range hs.problem {
		// The very first entry has one head only.
		if err != nil && (h.count > 1 || !errors.Is(err, fs.ErrNotExist)) {
			return true
		}
	}
	return false
}

// readHeads reads both. The error is for what forbids to go on (an I/O error, a
// newer format); damage is only noted.
func (s *Store) readHeads() (*heads, error) {
	hs := &heads{}
	for i, name := range headFiles {
		b, err := home.ReadFile(s.dir, name, 2*MaxStored)
		if err == nil {
			hs.slot[i], err = parseHead(b)
			if errors.Is(err, errNewer) {
				return nil, fmt.Errorf("read %s: %w", name, err)
			}
		} else if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, home.ErrTooLarge) {
			return nil, err
		}
		hs.problem[i] = err
	}
	return hs, nil
}

func (s *Store) writeHead(h *head) error { return s.writeHeadTo(h, headFiles[h.count&1]) }

func (s *Store) writeHeadTo(h *head, name string) error {
	h.boot = s.boot
	v, err := h.value()
	if err != nil {
		return err
	}
	return s.batch.WriteFile(s.dir, name, v.Bytes())
}
