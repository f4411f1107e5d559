package patch

import (
	"bytes"
	"slices"
	"sort"
)

// image is a file with some hunks applied. It keeps the old lines in place and
// a list of what was put where, instead of splicing lines: hunks never overlap,
// so a hunk matches inside one stretch of old lines or not at all, and applying
// a patch costs what its hunks and the file cost and not their product.
type image struct {
	base    []byte
	starts  []int // of the lines of base, and its end
	placed  []placement
	budget  int // work left for searching
	grown   int // lines that the placements add
	outSize int
}

// placement replaced the old lines [lo,hi) by post, which begins at line at of
// the image.
type placement struct {
	lo, hi, at int
	post       text
}

func (p placement) end() int { return p.at + p.post.n }

func newImage(base []byte, budget int) *image {
	im := &image{base: base, budget: budget, outSize: len(base)}
	im.starts = make([]int, 1, bytes.Count(base, []byte{'\n'})+2)
	for pos := 0; pos < len(base); {
		n := bytes.IndexByte(base[pos:], '\n') + 1
		if n == 0 {
			n = len(base) - pos
		}
		pos += n
		im.starts = append(im.starts, pos)
	}
	return im
}

func (im *image) oldLines() int { return len(im.starts) - 1 }

func (im *image) lines() int { return im.oldLines() + im.grown }

// old is one line of the old content; nil beyond its end.
func (im *image) old(i int) []byte {
	if i >= im.oldLines() {
		return nil
	}
	return im.base[im.starts[i]:im.starts[i+1]]
}

// gap finds the stretch of old lines around line p of the image: the index of
// the placement after it. A line that a placement wrote is in no gap; the
// border between two placements is an empty gap.
func (im *image) gap(p int) (next int, ok bool) {
	// Hunks come in order as a rule, and then p is behind all of them.
	next = len(im.placed)
	if next > 0 && im.placed[next-1].end() > p {
		next = sort.Search(len(im.placed), func(i int) bool { return im.placed[i].at >= p })
	}
	if next > 0 && im.placed[next-1].end() > p {
		return 0, false
	}
	// An empty placement at p lies before what is placed at p now.
	for next < len(im.placed) && im.placed[next].end() <= p {
		next++
	}
	return next, true
}

// index maps line p of the image, in the gap before placement next, to the old
// lines.
func (im *image) index(p, next int) int {
	if next == 0 {
		return p
	}
	return p - im.placed[next-1].end() + im.placed[next-1].hi
}

// line is one line of the image.
func (im *image) line(p int) ([]byte, bool) {
	if p < 0 || p >= im.lines() {
		return nil, false
	}
	if next, ok := im.gap(p); ok {
		return im.old(im.index(p, next)), true
	}
	i := sort.Search(len(im.placed), func(i int) bool { return im.placed[i].end() > p })
	rest := im.placed[i].post.b
	for range p - im.placed[i].at {
		rest = rest[bytes.IndexByte(rest, '\n')+1:]
	}
	if n := bytes.IndexByte(rest, '\n') + 1; n > 0 {
		rest = rest[:n]
	}
	return rest, true
}

// matches tells whether pre stands at line p, in lines that no hunk wrote.
func (im *image) matches(pre text, p int) bool {
	im.budget--
	next, ok := im.gap(p)
	if !ok {
		return false
	}
	lo := im.index(p, next)
	limit := im.oldLines()
	if next < len(im.placed) {
		limit = im.placed[next].lo
	}
	hi := lo + pre.n
	if hi > limit || im.starts[hi]-im.starts[lo] != len(pre.b) {
		return false
	}
	im.budget -= len(pre.b) / 64
	return bytes.Equal(im.base[im.starts[lo]:im.starts[hi]], pre.b)
}

// place replaces n lines at p, which matches has approved, by post.
func (im *image) place(p, n int, post text) {
	next, _ := im.gap(p)
	lo := im.index(p, next)
	im.placed = slices.Insert(im.placed, next, placement{lo, lo + n, p, post})
	for i := next + 1; i < len(im.placed); i++ {
		im.placed[i].at += post.n - n
	}
	im.grown += post.n - n
	im.outSize += len(post.b)
}

// bytes is the image as one piece.
func (im *image) bytes() []byte {
	out := make([]byte, 0, im.outSize)
	at := 0
	for _, p := range im.placed {
		out = append(out, im.base[im.starts[at]:im.starts[p.lo]]...)
		out = append(out, p.post.b...)
		at = p.hi
	}
	return append(out, im.base[im.starts[at]:]...)
}
