package journal

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/aspengine/asp/internal/crc32c"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/snapshot"
)

// Read reads a journal. A torn or damaged tail is no error: the Log then holds
// what stands before it. Bytes that are no journal at all give an empty Log.
// Errors are ErrVersion, ErrTooLarge and those of r. Memory is bounded by the
// length of the input.
func Read(r io.Reader) (*Log, error) {
	l := &Log{}
	fr := newFrames(r)
	if err := fr.header(); err != nil {
		return l, ignoreTorn(err)
	}
	for {
		k, p, err := fr.next()
		if err != nil {
			return l, ignoreTorn(err)
		}
		if !l.take(k, p) {
			// A record that is whole but makes no sense: written by nobody of
			// ours. What follows it is not believed either.
			return l, nil
		}
		l.Valid = fr.at
	}
}

// ReadAttention reads an attention file. ok is false for one that is not whole
// or belongs to another transaction.
func ReadAttention(r io.Reader, txid string, steps int) (open []Open, ok bool, err error) {
	fr := newFrames(r)
	if err := fr.header(); err != nil {
		return nil, false, ignoreTorn(err)
	}
	k, p, err := fr.next()
	if err != nil {
		return nil, false, ignoreTorn(err)
	}
	d := decoder{b: p}
	if k != kindAttention || d.string(MaxTxID) != txid {
		return nil, false, nil
	}
	n := d.count(steps)
	for range n {
		o := Open{Step: int(d.uint(uint64(max(steps-1, 0)))), Why: d.string(4096)}
		open = append(open, o)
	}
	if d.bad || len(d.b) != 0 {
		return nil, false, nil
	}
	return open, true, nil
}

// errTorn ends reading without being an error.
var errTorn = errors.New("record not whole")

func ignoreTorn(err error) error {
	if errors.Is(err, errTorn) {
		return nil
	}
	return fmt.Errorf("read journal: %w", err)
}

// frames reads header and records one at a time.
type frames struct {
	r   *bufio.Reader
	crc uint32
	at  int64
}

func newFrames(r io.Reader) *frames { return &frames{r: bufio.NewReaderSize(r, 64<<10)} }

// full is io.ReadFull with a short read as errTorn.
func (f *frames) full(b []byte) error {
	n, err := io.ReadFull(f.r, b)
	f.at += int64(n)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return errTorn
	}
	if err == nil && f.at > MaxFile {
		return ErrTooLarge
	}
	return err
}

func (f *frames) header() error {
	var h [headerLen]byte
	if err := f.full(h[:]); err != nil {
		return err
	}
	f.crc = crc32c.Checksum(h[:12])
	if string(h[:8]) != magic || f.crc != binary.LittleEndian.Uint32(h[12:]) {
		return errTorn
	}
	if v := binary.LittleEndian.Uint32(h[8:]); v > Version {
		return fmt.Errorf("%w: %d, this release reads up to %d", ErrVersion, v, Version)
	} else if v == 0 {
		return errTorn
	}
	return nil
}

func (f *frames) next() (kind, []byte, error) {
	var head [recordHead]byte
	if err := f.full(head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.LittleEndian.Uint32(head[1:])
	if n > maxRecord {
		return 0, nil, errTorn
	}
	// A forged length must not cost more memory than there are bytes: grow with
	// what really comes.
	rec := append(make([]byte, 0, recordHead+min(int(n), 64<<10)), head[:]...)
	for left := int(n); left > 0; {
		step := min(left, max(64<<10, len(rec)))
		at := len(rec)
		rec = append(rec, make([]byte, step)...)
		if err := f.full(rec[at:]); err != nil {
			return 0, nil, err
		}
		left -= step
	}
	crc := recordCRC(f.crc, rec)
	if crc != binary.LittleEndian.Uint32(head[5:]) {
		return 0, nil, errTorn
	}
	f.crc = crc
	return kind(head[0]), rec[recordHead:], nil
}

// take adds one record to the log; false if it does not belong there.
func (l *Log) take(k kind, p []byte) bool {
	d := decoder{b: p}
	switch {
	case k == kindBegin && !l.Begun:
		return l.takeBegin(&d)
	case k == kindSteps && l.Begun && !l.Ready:
		return l.takeSteps(&d)
	case k == kindReady && l.Begun && !l.Ready:
		return l.takeReady(&d)
	case k == kindCommit && l.Ready && !l.Committed && len(p) <= MaxEvidence:
		l.Committed, l.Evidence = true, p
		return true
	}
	return false
}

func (l *Log) takeBegin(d *decoder) bool {
	txid, tag := d.name(), d.string(MaxTag)
	var areas []Area
	for range d.count(MaxAreas) {
		a := Area{Dir: d.dir(), Beside: d.nameOrNone()}
		if (a.Beside == "") != (len(areas) == 0) || a.Beside == "" && a.Dir != "." {
			d.bad = true // exactly the first is the journal's own directory
		}
		areas = append(areas, a)
	}
	if !d.done() || len(txid) > MaxTxID || len(areas) == 0 {
		return false
	}
	l.Begun, l.TxID, l.Tag, l.Areas = true, txid, tag, areas
	return true
}

func (l *Log) takeSteps(d *decoder) bool {
	for len(d.b) > 0 && !d.bad {
		s := Step{Op: Op(d.byte())}
		s.Live = Place{Base: d.string(snapshot.MaxPath), Path: d.string(snapshot.MaxPath)}
		s.From = d.string(snapshot.MaxPath)
		s.Area = int(d.uint(uint64(len(l.Areas) - 1)))
		s.Name = d.nameOrNone()
		s.Before, s.After = d.image(), d.image()
		if d.bad || !s.sound() || len(l.Steps) >= MaxSteps {
			return false
		}
		l.Steps = append(l.Steps, s)
	}
	return d.done()
}

func (l *Log) takeReady(d *decoder) bool {
	n := d.uint(MaxSteps)
	var emptied []string
	for range d.count(MaxSteps) {
		s := d.string(snapshot.MaxPath)
		if _, err := snapshot.ParsePath(s); err != nil {
			d.bad = true
			break
		}
		emptied = append(emptied, s)
	}
	if !d.done() || int(n) != len(l.Steps) {
		return false
	}
	l.Ready, l.Emptied = true, emptied
	return true
}

// sound checks a step against the meaning of its operation; names and paths are
// parsed again because a journal may be forged.
func (s *Step) sound() bool {
	if _, err := snapshot.ParsePath(s.Live.Path); err != nil {
		return false
	}
	if s.Live.Base != "" {
		// Outside the tree only a plain name in an absolute, clean directory; the
		// caller compares the directory with those that it allows.
		if !path.IsAbs(s.Live.Base) || path.Clean(s.Live.Base) != s.Live.Base || strings.Contains(s.Live.Path, "/") {
			return false
		}
	}
	switch s.Op {
	case Put:
		return s.Name != "" && s.From == "" && s.Before.Absent() && !s.After.Absent()
	case Take:
		return s.Name != "" && s.From == "" && !s.Before.Absent() && s.After.Absent()
	case Exchange:
		return s.Name != "" && s.From == "" && !s.Before.Absent() && !s.After.Absent()
	case Move:
		_, err := snapshot.ParsePath(s.From)
		return err == nil && s.Live.Base == "" && s.Name == "" && s.Before == s.After && !s.Before.Absent() && s.Before.Kind != vfs.KindDir
	}
	return false
}
