package gitbase

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sort"

	"github.com/go-git/go-git/v5/plumbing/format/packfile"
)

// pack is one pack with its index. Only what is asked for is read: the index is
// searched on disk, as that of a large repository is too much to load for the
// few objects that a stamp needs. Not for concurrent use.
type pack struct {
	name   string // without extension
	idx    *os.File
	data   *os.File
	v2     bool
	n      uint32
	recent map[int64][]byte // bases read lately, by offset
	held   int
}

// Object types in a pack, with their names as git hashes them.
const (
	packCommit = 1
	packTree   = 2
	packBlob   = 3
	packOfs    = 6
	packRef    = 7
)

const (
	idxMagic   = 0xff744f63
	fanoutSize = 256 * 4
	maxChain   = 4096     // of deltas; git makes at most 4095
	maxRecent  = 16 << 20 // bytes of bases to hold
	maxWhole   = 256 << 20
)

var errPack = errors.New("damaged or unknown pack")

// openPack opens the pack whose index is at name+".idx".
func openPack(name string) (*pack, error) {
	p := &pack{name: name, recent: map[int64][]byte{}}
	var err error
	if p.idx, err = openRegular(name + ".idx"); err != nil {
		return nil, err
	}
	var head [8]byte
	if _, err = p.idx.ReadAt(head[:], 0); err == nil {
		if binary.BigEndian.Uint32(head[:]) == idxMagic {
			p.v2 = true
			if v := binary.BigEndian.Uint32(head[4:]); v != 2 {
				err = fmt.Errorf("%w: index version %d", errPack, v)
			}
		}
	}
	if err == nil {
		p.n, err = p.fanout(255)
	}
	if err == nil {
		p.data, err = openRegular(name + ".pack")
	}
	if err != nil {
		p.close()
		return nil, fmt.Errorf("open pack %.200q: %w", name, err)
	}
	return p, nil
}

func (p *pack) close() error {
	err := p.idx.Close()
	if p.data != nil {
		err = errors.Join(err, p.data.Close())
	}
	return err
}

func (p *pack) base() int64 {
	if p.v2 {
		return 8
	}
	return 0
}

func (p *pack) fanout(b byte) (uint32, error) {
	var v [4]byte
	_, err := p.idx.ReadAt(v[:], p.base()+4*int64(b))
	return binary.BigEndian.Uint32(v[:]), err
}

// find returns where the object starts in the pack, 0 when it is not there.
func (p *pack) find(id oid) (int64, error) {
	lo, hi := uint32(0), uint32(0)
	var err error
	if id[0] > 0 {
		if lo, err = p.fanout(id[0] - 1); err != nil {
			return 0, err
		}
	}
	if hi, err = p.fanout(id[0]); err != nil {
		return 0, err
	}
	if lo > hi || hi > p.n {
		return 0, fmt.Errorf("search pack %.200q: %w: fan-out", p.name, errPack)
	}
	names, step, skip := p.base()+fanoutSize, int64(20), int64(0)
	if !p.v2 {
		step, skip = 24, 4
	}
	var at oid
	i := sort.Search(int(hi-lo), func(i int) bool {
		if err == nil {
			_, err = p.idx.ReadAt(at[:], names+step*(int64(lo)+int64(i))+skip)
		}
		return bytes.Compare(at[:], id[:]) >= 0
	})
	if err != nil || i == int(hi-lo) {
		return 0, err
	}
	k := int64(lo) + int64(i)
	if _, err = p.idx.ReadAt(at[:], names+step*k+skip); err != nil || at != id {
		return 0, err
	}
	var v [8]byte
	if !p.v2 {
		_, err = p.idx.ReadAt(v[:4], names+step*k)
		return int64(binary.BigEndian.Uint32(v[:])), err
	}
	offsets := names + 24*int64(p.n) // behind ids and checksums
	if _, err = p.idx.ReadAt(v[:4], offsets+4*k); err != nil {
		return 0, err
	}
	o := binary.BigEndian.Uint32(v[:])
	if o>>31 == 0 {
		return int64(o), nil
	}
	_, err = p.idx.ReadAt(v[:], offsets+4*int64(p.n)+8*int64(o&^(1<<31)))
	return int64(binary.BigEndian.Uint64(v[:]) &^ (1 << 63)), err
}

// header is what stands before an object's compressed bytes.
type header struct {
	typ  int
	size int64
	data int64 // where the compressed bytes start
	ofs  int64 // base of a packOfs delta
	ref  oid   // base of a packRef delta
}

func (p *pack) header(at int64) (h header, err error) {
	var b [48]byte
	n, err := p.data.ReadAt(b[:], at)
	if n < 24 {
		return h, errors.Join(err, errPack) // a pack ends with 20 bytes of checksum
	}
	h.typ, h.size = int(b[0]>>4&7), int64(b[0]&15)
	i := 1
	for sh := 4; b[i-1]&0x80 != 0; sh += 7 {
		if i > 9 {
			return h, errPack
		}
		h.size |= int64(b[i]&0x7f) << sh
		i++
	}
	switch h.typ {
	case packOfs:
		rel, k := int64(0), 0
		for {
			c := b[i+k]
			rel = rel<<7 | int64(c&0x7f)
			k++
			if c&0x80 == 0 {
				break
			}
			if k > 9 {
				return h, errPack
			}
			rel++
		}
		i += k
		if h.ofs = at - rel; rel <= 0 || h.ofs <= 0 {
			return h, errPack
		}
	case packRef:
		copy(h.ref[:], b[i:])
		i += 20
	}
	h.data = at + int64(i)
	if h.size < 0 {
		return h, errPack
	}
	return h, nil
}

func (p *pack) inflate(h header) (io.ReadCloser, error) {
	return zlib.NewReader(bufio.NewReader(io.NewSectionReader(p.data, h.data, 1<<62-h.data)))
}

// whole reads the object that starts at the offset, resolving deltas. base
// finds an object by id for deltas that name their base so.
func (p *pack) whole(at int64) (typ int, content []byte, err error) {
	var deltas [][]byte
	var offs []int64
	for {
		if len(deltas) > maxChain {
			return 0, nil, fmt.Errorf("%w: chain of deltas", errPack)
		}
		h, err := p.header(at)
		if err != nil {
			return 0, nil, err
		}
		if c, ok := p.recent[at]; ok && len(deltas) > 0 {
			content = c[1:]
			typ = int(c[0])
			break
		}
		if h.size > maxWhole {
			return 0, nil, fmt.Errorf("object of %d bytes is too large", h.size)
		}
		r, err := p.inflate(h)
		if err != nil {
			return 0, nil, err
		}
		b := make([]byte, 1+h.size)
		_, err = io.ReadFull(r, b[1:])
		if err = errors.Join(err, r.Close()); err != nil {
			return 0, nil, err
		}
		if h.typ == packOfs || h.typ == packRef {
			deltas, offs = append(deltas, b[1:]), append(offs, at)
			next := h.ofs
			if h.typ == packRef {
				if next, err = p.find(h.ref); err != nil || next == 0 {
					return 0, nil, errors.Join(err, errPack)
				}
			}
			at = next
			continue
		}
		b[0] = byte(h.typ)
		p.hold(at, b)
		typ, content = h.typ, b[1:]
		break
	}
	for i := len(deltas) - 1; i >= 0; i-- {
		if targetSize(deltas[i]) > maxWhole {
			return 0, nil, fmt.Errorf("object of more than %d bytes is too large", maxWhole)
		}
		next, err := packfile.PatchDelta(content, deltas[i])
		if err != nil {
			return 0, nil, fmt.Errorf("%w: %w", errPack, err)
		}
		content = next
		if i > 0 {
			p.hold(offs[i], append([]byte{byte(typ)}, content...))
		}
	}
	return typ, content, nil
}

// targetSize reads the size that a delta says its result has.
func targetSize(delta []byte) uint64 {
	_, n := binary.Uvarint(delta)
	if n <= 0 {
		return 0
	}
	v, _ := binary.Uvarint(delta[n:])
	return v
}

func (p *pack) hold(at int64, b []byte) {
	if len(b) > maxRecent/8 {
		return
	}
	if p.held += len(b); p.held > maxRecent {
		clear(p.recent)
		p.held = len(b)
	}
	p.recent[at] = b
}
