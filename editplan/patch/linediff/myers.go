package linediff

import "math"

const (
	minCap   = 256  // cost below which a split is always exact
	maxEqual = 1024 // a line with so many partners is never a good anchor
	window   = 100  // how far prune looks around a line
)

// compare marks the changed lines of a and b.
func compare(a, b side, classes int) {
	lo := 0
	for lo < len(a.ids) && lo < len(b.ids) && a.ids[lo] == b.ids[lo] {
		lo++
	}
	ahi, bhi := len(a.ids), len(b.ids)
	for ahi > lo && bhi > lo && a.ids[ahi-1] == b.ids[bhi-1] {
		ahi--
		bhi--
	}
	na, nb := make([]int32, classes), make([]int32, classes)
	for _, id := range a.ids {
		na[id]++
	}
	for _, id := range b.ids {
		nb[id]++
	}
	ka := prune(a, lo, ahi, nb)
	kb := prune(b, lo, bhi, na)
	s := newSearch(ka, kb)
	s.box(box{0, len(ka.ids), 0, len(kb.ids)}, false)
}

// kept is what is left of a side for the search: classes, and where they stood.
type kept struct {
	side
	ids []int32
	at  []int
}

func (k kept) mark(i int) { k.changed[k.at[i]] = true }

// prune marks the lines of s[lo:hi] that cannot or should not be matched, and
// keeps the rest. Lines without a partner on the other side cannot. Lines with
// a great many (blank lines, braces) should not when they stand among lines
// without one: matching them there costs time and makes a diff that nobody
// wants to read.
func prune(s side, lo, hi int, partners []int32) kept {
	limit := int32(min(root(len(s.ids)), maxEqual))
	const none, some, many = 0, 1, 2
	grade := make([]uint8, hi-lo)
	for i := range grade {
		switch n := partners[s.ids[lo+i]]; {
		case n == 0:
			grade[i] = none
		case n >= limit:
			grade[i] = many
		default:
			grade[i] = some
		}
	}
	// run counts the lines without and with many partners next to i in one
	// direction, up to the first line that is a good anchor.
	run := func(i, step int) (alone, crowded int) {
		for n := 1; n <= window; n++ {
			j := i + n*step
			if j < 0 || j >= len(grade) || grade[j] == some {
				break
			}
			if grade[j] == none {
				alone++
			} else {
				crowded++
			}
		}
		return alone, crowded
	}
	k := kept{side: s}
	for i, g := range grade {
		keep := g == some
		if g == many {
			a1, c1 := run(i, -1)
			a2, c2 := run(i, +1)
			crowded := c1 + c2 + 2
			keep = a1 == 0 || a2 == 0 || crowded*4 >= crowded+a1+a2
		}
		if keep {
			k.ids = append(k.ids, s.ids[lo+i])
			k.at = append(k.at, lo+i)
		} else {
			s.changed[lo+i] = true
		}
	}
	return k
}

// root is a power of two near the square root of n, never below it.
func root(n int) int {
	r := 1
	for ; n > 0; n >>= 2 {
		r <<= 1
	}
	return r
}

// search is the linear-space algorithm of Myers: find a point in the middle of
// a shortest path by searching from both corners, then do the two halves.
type search struct {
	a, b   kept
	fw, bw []int // furthest x on each diagonal, shifted by off
	off    int
	limit  int
}

type box struct{ a0, a1, b0, b1 int }

func newSearch(a, b kept) *search {
	n := len(a.ids) + len(b.ids) + 3
	v := make([]int, 2*n)
	return &search{a: a, b: b, fw: v[:n], bw: v[n:], off: len(b.ids) + 1, limit: max(root(n), minCap)}
}

// box marks the changes inside q. exact forbids giving up on the shortest path.
func (s *search) box(q box, exact bool) {
	for {
		for q.a0 < q.a1 && q.b0 < q.b1 && s.a.ids[q.a0] == s.b.ids[q.b0] {
			q.a0++
			q.b0++
		}
		for q.a0 < q.a1 && q.b0 < q.b1 && s.a.ids[q.a1-1] == s.b.ids[q.b1-1] {
			q.a1--
			q.b1--
		}
		if q.a0 == q.a1 || q.b0 == q.b1 {
			for i := q.a0; i < q.a1; i++ {
				s.a.mark(i)
			}
			for j := q.b0; j < q.b1; j++ {
				s.b.mark(j)
			}
			return
		}
		m := s.middle(q, exact)
		// The smaller half by recursion, the larger by iteration: the stack
		// stays logarithmic whatever the input.
		lo, hi := box{q.a0, m.x, q.b0, m.y}, box{m.x, q.a1, m.y, q.b1}
		if lo.size() < hi.size() {
			s.box(lo, m.exactLo)
			q, exact = hi, m.exactHi
		} else {
			s.box(hi, m.exactHi)
			q, exact = lo, m.exactLo
		}
	}
}

func (q box) size() int { return q.a1 - q.a0 + q.b1 - q.b0 }

// split is a point on a path, and on which side of it the path is known to be
// within the cost limit, so that it must be followed exactly.
type split struct {
	x, y             int
	exactLo, exactHi bool
}

// front is the state of one of the two searches: the diagonals [lo,hi] that it
// has reached, every second of which is current.
type front struct {
	v      []int
	lo, hi int
}

// grow widens the front by a diagonal on each side while it stays in bounds.
// Outside stands a value that never wins.
func (f *front) grow(off, dmin, dmax, never int) {
	if f.lo > dmin {
		f.lo--
		f.v[off+f.lo-1] = never
	} else {
		f.lo++
	}
	if f.hi < dmax {
		f.hi++
		f.v[off+f.hi+1] = never
	} else {
		f.hi--
	}
}

func (f *front) holds(d int) bool { return f.lo <= d && d <= f.hi }

func (s *search) middle(q box, exact bool) split {
	a, b, off := s.a.ids, s.b.ids, s.off
	dmin, dmax := q.a0-q.b1, q.a1-q.b0
	f := front{s.fw, q.a0 - q.b0, q.a0 - q.b0}
	r := front{s.bw, q.a1 - q.b1, q.a1 - q.b1}
	odd := (f.lo-r.lo)&1 != 0
	f.v[off+f.lo], r.v[off+r.lo] = q.a0, q.a1
	for cost := 1; ; cost++ {
		f.grow(off, dmin, dmax, -1)
		for d := f.hi; d >= f.lo; d -= 2 {
			x := max(f.v[off+d-1]+1, f.v[off+d+1])
			for x < q.a1 && x-d < q.b1 && a[x] == b[x-d] {
				x++
			}
			f.v[off+d] = x
			if odd && r.holds(d) && r.v[off+d] <= x {
				return split{x, x - d, true, true}
			}
		}
		r.grow(off, dmin, dmax, math.MaxInt)
		for d := r.hi; d >= r.lo; d -= 2 {
			x := min(r.v[off+d-1], r.v[off+d+1]-1)
			for x > q.a0 && x-d > q.b0 && a[x-1] == b[x-d-1] {
				x--
			}
			r.v[off+d] = x
			if !odd && f.holds(d) && x <= f.v[off+d] {
				return split{x, x - d, true, true}
			}
		}
		if cost >= s.limit && !exact {
			return s.best(q, f, r)
		}
	}
}

// best settles for the point that one of the two searches got furthest with.
func (s *search) best(q box, f, r front) split {
	far, fx := -1, 0
	for d := f.hi; d >= f.lo; d -= 2 {
		x := min(f.v[s.off+d], q.a1)
		if x-d > q.b1 {
			x = q.b1 + d
		}
		if x+x-d > far {
			far, fx = x+x-d, x
		}
	}
	near, rx := math.MaxInt, 0
	for d := r.hi; d >= r.lo; d -= 2 {
		x := max(r.v[s.off+d], q.a0)
		if x-d < q.b0 {
			x = q.b0 + d
		}
		if x+x-d < near {
			near, rx = x+x-d, x
		}
	}
	if q.a1+q.b1-near < far-(q.a0+q.b0) {
		return split{fx, far - fx, true, false}
	}
	return split{rx, near - rx, false, true}
}
