package journal

import (
	"encoding/binary"

	"github.com/aspengine/asp/internal/crc32c"
	"github.com/aspengine/asp/snapshot"
)

// The layout, all numbers little-endian:
//
//	header  magic[8] version[4] crc32c(magic, version)[4]
//	record  kind[1] length[4] crc[4] payload[length]
//
// The CRC of a record covers the CRC of what stands before it, its kind, its
// length and its payload, so that a record is only valid in its place. Inside
// payloads numbers are unsigned varints and strings are a varint length and
// the bytes.
//
// Rejected: JSON lines. They would be readable, but a torn or forged line needs
// the same framing, and a thousand steps cost more than all of their renames'
// system calls.
const (
	magic      = "ASPJRNL\n"
	headerLen  = 16
	recordHead = 9
)

type kind uint8

const (
	kindBegin kind = iota + 1
	kindSteps
	kindReady
	kindCommit
	kindAttention
)

// encoder builds records in memory; one write brings them to the file.
type encoder struct {
	buf []byte
	crc uint32 // of the last record or header
	at  int    // start of the record being built
}

func (e *encoder) header(version uint32) {
	e.buf = append(e.buf, magic...)
	e.buf = binary.LittleEndian.AppendUint32(e.buf, version)
	e.crc = crc32c.Checksum(e.buf[len(e.buf)-12:])
	e.buf = binary.LittleEndian.AppendUint32(e.buf, e.crc)
}

func (e *encoder) begin(k kind) {
	e.at = len(e.buf)
	e.buf = append(e.buf, byte(k), 0, 0, 0, 0, 0, 0, 0, 0)
}

func (e *encoder) end() {
	rec := e.buf[e.at:]
	binary.LittleEndian.PutUint32(rec[1:], uint32(len(rec)-recordHead))
	e.crc = recordCRC(e.crc, rec)
	binary.LittleEndian.PutUint32(rec[5:], e.crc)
}

// recordCRC is the checksum of a whole record that follows one with CRC prev.
func recordCRC(prev uint32, rec []byte) uint32 {
	var p [4]byte
	binary.LittleEndian.PutUint32(p[:], prev)
	c := crc32c.Update(0, p[:])
	c = crc32c.Update(c, rec[:5])
	return crc32c.Update(c, rec[recordHead:])
}

func (e *encoder) uint(n uint64) { e.buf = binary.AppendUvarint(e.buf, n) }

func (e *encoder) string(s string) {
	e.uint(uint64(len(s)))
	e.buf = append(e.buf, s...)
}

func (e *encoder) image(i Image) {
	e.buf = append(e.buf, byte(i.Kind))
	if i.Absent() {
		return
	}
	if i.Digest.IsZero() {
		e.buf = append(e.buf, 0)
	} else {
		e.buf = append(e.buf, 1)
		e.buf = append(e.buf, i.Digest[:]...)
	}
	e.uint(uint64(i.Size))
	e.uint(uint64(i.Perm))
	e.uint(i.Ino)
}

func (e *encoder) beginRecord(txid, tag string, areas []Area) {
	e.begin(kindBegin)
	e.string(txid)
	e.string(tag)
	e.uint(uint64(len(areas)))
	for _, a := range areas {
		e.string(a.Dir)
		e.string(a.Beside)
	}
	e.end()
}

func (e *encoder) stepsRecords(steps []Step) {
	for len(steps) > 0 {
		e.begin(kindSteps)
		n := 0
		for n < len(steps) && len(e.buf)-e.at < stepsChunk {
			s := &steps[n]
			e.buf = append(e.buf, byte(s.Op))
			e.string(s.Live.Base)
			e.string(s.Live.Path)
			e.string(s.From)
			e.uint(uint64(s.Area))
			e.string(s.Name)
			e.image(s.Before)
			e.image(s.After)
			n++
		}
		e.end()
		steps = steps[n:]
	}
}

func (e *encoder) readyRecord(steps int, emptied []string) {
	e.begin(kindReady)
	e.uint(uint64(steps))
	e.uint(uint64(len(emptied)))
	for _, d := range emptied {
		e.string(d)
	}
	e.end()
}

func (e *encoder) commitRecord(evidence []byte) {
	e.begin(kindCommit)
	e.buf = append(e.buf, evidence...)
	e.end()
}

func (e *encoder) attentionRecord(txid string, open []Open) {
	e.begin(kindAttention)
	e.string(txid)
	e.uint(uint64(len(open)))
	for _, o := range open {
		e.uint(uint64(o.Step))
		e.string(o.Why)
	}
	e.end()
}

// digestLen is here so that the reader and the writer share it.
const digestLen = len(snapshot.Digest{})
