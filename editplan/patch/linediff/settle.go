package linediff

// run is a maximal stretch [lo,hi) of changed lines, possibly empty: every
// unchanged line has one, maybe empty, run before it, and there is one at the
// end. Both sides have equally many.
type run struct{ lo, hi int }

func (s side) first() run {
	var r run
	for r.hi < len(s.ids) && s.changed[r.hi] {
		r.hi++
	}
	return r
}

func (s side) next(r *run) bool {
	if r.hi == len(s.ids) {
		return false
	}
	r.lo = r.hi + 1
	for r.hi = r.lo; r.hi < len(s.ids) && s.changed[r.hi]; {
		r.hi++
	}
	return true
}

func (s side) prev(r *run) {
	r.hi = r.lo - 1
	for r.lo = r.hi; r.lo > 0 && s.changed[r.lo-1]; {
		r.lo--
	}
}

// up moves the run one line towards the start, if the line before it equals its
// last; a run that it then touches becomes part of it.
func (s side) up(r *run) bool {
	if r.lo == 0 || s.ids[r.lo-1] != s.ids[r.hi-1] {
		return false
	}
	r.lo--
	r.hi--
	s.changed[r.lo], s.changed[r.hi] = true, false
	for r.lo > 0 && s.changed[r.lo-1] {
		r.lo--
	}
	return true
}

// down is the mirror image of up.
func (s side) down(r *run) bool {
	if r.hi == len(s.ids) || s.ids[r.lo] != s.ids[r.hi] {
		return false
	}
	s.changed[r.lo], s.changed[r.hi] = false, true
	r.lo++
	r.hi++
	for r.hi < len(s.ids) && s.changed[r.hi] {
		r.hi++
	}
	return true
}

// settle brings every movable run of s to its place: beside a run of the other
// side if it can get there (the last such place), else as far down as it goes.
// Runs that meet on the way are joined.
func settle(s, other side) {
	for r, o := s.first(), other.first(); ; other.next(&o) {
		if r.hi > r.lo {
			settleRun(s, other, &r, &o)
		}
		if !s.next(&r) {
			return
		}
	}
}

func settleRun(s, other side, r, o *run) {
	top, paired := 0, false
	for size := -1; size != r.hi-r.lo; {
		size = r.hi - r.lo
		for s.up(r) {
			other.prev(o)
		}
		top, paired = r.hi, o.hi > o.lo
		for s.down(r) {
			other.next(o)
			paired = paired || o.hi > o.lo
		}
	}
	if r.hi == top || !paired {
		return
	}
	for o.hi == o.lo {
		s.up(r)
		other.prev(o)
	}
}
