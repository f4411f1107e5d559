package memfs

import (
	"bytes"
)

// content is the data of one file, now and after a power cut.
type content struct {
	data    []byte
	durable []byte
	// since holds what was done to data after durable was equal to it.
	since []change
	// low is the smallest size that the file had since then: durable bytes
	// behind it are gone from the current file, even if it grew again.
	low int
}

// change is one write, or with cut set the truncation to size off.
type change struct {
	cut bool
	off int64
	b   []byte
}

func (c *content) write(off int64, b []byte) {
	if len(b) == 0 {
		return
	}
	c.record(change{off: off, b: bytes.Clone(b)})
}

func (c *content) truncate(size int64) {
	c.record(change{cut: true, off: size})
}

func (c *content) record(ch change) {
	c.data = ch.apply(c.data)
	c.since = append(c.since, ch)
	c.low = min(c.low, len(c.data))
}

func (ch change) apply(data []byte) []byte {
	size := ch.off
	if !ch.cut {
		size = max(int64(len(data)), ch.off+int64(len(ch.b)))
	}
	if n := size - int64(len(data)); n > 0 {
		data = append(data, make([]byte, n)...)
	}
	data = data[:size]
	if !ch.cut {
		copy(data[ch.off:], ch.b)
	}
	return data
}

// sync makes the current data durable.
func (c *content) sync() {
	if len(c.since) > 0 || len(c.durable) != len(c.data) {
		c.durable = bytes.Clone(c.data)
	}
	c.since = nil
	c.low = len(c.data)
}

// sector is the unit that a disk writes whole.
const sector = 512

// afterCut returns one of the contents that a power cut may leave. Bytes that
// were synced and not touched since are always kept: an append to a synced file
// can lose the appended part only.
func (c *content) afterCut(choose func(n int) int) (data []byte, whole bool) {
	if len(c.since) == 0 {
		return bytes.Clone(c.durable), true
	}
	switch choose(4) {
	case 0: // nothing was written back: the old data, none for a new file
		return bytes.Clone(c.durable), false
	case 1: // all was
		return bytes.Clone(c.data), true
	case 2: // the changes up to some point, the last one torn
		data := bytes.Clone(c.durable)
		n := choose(len(c.since) + 1)
		for _, ch := range c.since[:n] {
			data = ch.apply(data)
		}
		if n < len(c.since) && !c.since[n].cut {
			ch := c.since[n]
			ch.b = ch.b[:choose(len(ch.b))]
			if len(ch.b) > 0 {
				data = ch.apply(data)
			}
		}
		return data, false
	default: // the size reached the disk, and any of the sectors; no order
		data := make([]byte, len(c.data))
		copy(data, c.durable[:min(c.low, len(c.durable))])
		for at := 0; at < len(data); at += sector {
			end := min(at+sector, len(data))
			if choose(2) == 1 {
				copy(data[at:end], c.data[at:end])
			}
		}
		return data, false
	}
}
