package journal

import (
	"encoding/binary"

	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/snapshot"
)

// decoder reads a payload. The first fault sets bad, and everything after it
// reads as zero, so that callers check once.
type decoder struct {
	b   []byte
	bad bool
}

// done tells whether all was read without a fault.
func (d *decoder) done() bool { return !d.bad && len(d.b) == 0 }

func (d *decoder) fail() { d.bad, d.b = true, nil }

func (d *decoder) byte() byte {
	if len(d.b) == 0 {
		d.fail()
		return 0
	}
	c := d.b[0]
	d.b = d.b[1:]
	return c
}

func (d *decoder) uint(most uint64) uint64 {
	n, w := binary.Uvarint(d.b)
	if w <= 0 || n > most {
		d.fail()
		return 0
	}
	d.b = d.b[w:]
	return n
}

// count reads how many items follow; each takes at least one byte, so that a
// forged count cannot ask for more than the payload holds.
func (d *decoder) count(most int) int {
	return int(d.uint(uint64(min(most, len(d.b)))))
}

func (d *decoder) string(most int) string {
	n := d.uint(uint64(most))
	if n > uint64(len(d.b)) {
		d.fail()
		return ""
	}
	s := string(d.b[:n])
	d.b = d.b[n:]
	return s
}

// name reads one path component.
func (d *decoder) name() string {
	s := d.string(snapshot.MaxName)
	if vfs.CheckName(s) != nil {
		d.fail()
		return ""
	}
	return s
}

func (d *decoder) nameOrNone() string {
	s := d.string(snapshot.MaxName)
	if s != "" && vfs.CheckName(s) != nil {
		d.fail()
	}
	return s
}

// dir reads a directory of the workspace, "." for its root.
func (d *decoder) dir() string {
	s := d.string(snapshot.MaxPath)
	if s == "." {
		return s
	}
	if _, err := snapshot.ParsePath(s); err != nil {
		d.fail()
	}
	return s
}

func (d *decoder) image() (i Image) {
	i.Kind = vfs.Kind(d.byte())
	switch i.Kind {
	case vfs.KindInvalid:
		return i
	case vfs.KindFile, vfs.KindDir, vfs.KindSymlink:
	default:
		d.fail()
		return Image{}
	}
	switch d.byte() {
	case 0:
	case 1:
		if len(d.b) < digestLen {
			d.fail()
			return Image{}
		}
		copy(i.Digest[:], d.b)
		d.b = d.b[digestLen:]
	default:
		d.fail()
	}
	i.Size = int64(d.uint(1<<63 - 1))
	i.Perm = uint32(d.uint(0o7777))
	i.Ino = d.uint(1<<64 - 1)
	// A directory has no digest, everything else must have one: judging by
	// content must never be judging by nothing.
	if (i.Kind == vfs.KindDir) != i.Digest.IsZero() {
		d.fail()
	}
	return i
}
