package memfs

// Enumerate calls try with one choose after another, for Crash in Random: first
// with one that always says base (0: nothing survives, 1: everything), then with
// all that say otherwise at most deviations times, and no more than limit in
// all. Where many numbers could be chosen, as where a write is torn, only the
// first, the middle and the last are. It returns how often try was called, and
// whether that was all of them.
//
// A walk by depth alone would never, within a limit, change its mind about the
// first operations; states a step or two away from "all" and "nothing" are those
// that a missing barrier shows.
func Enumerate(base, deviations, limit int, try func(choose func(n int) int)) (calls int, all bool) {
	type choice struct{ options, at int } // at 0 is the default
	var path []choice
	for calls < limit {
		depth := 0
		try(func(n int) int {
			if depth == len(path) {
				path = append(path, choice{options: len(options(base, n))})
			}
			c := path[depth]
			depth++
			return options(base, n)[c.at]
		})
		calls++
		path = path[:depth]
		for {
			if len(path) == 0 {
				return calls, true
			}
			last := &path[len(path)-1]
			spent := 0
			for _, c := range path[:len(path)-1] {
				if c.at > 0 {
					spent++
				}
			}
			if last.at+1 < last.options && spent < deviations {
				last.at++
				break
			}
			path = path[:len(path)-1]
		}
	}
	return calls, false
}

// options are the numbers below n that are tried, the default first.
func options(base, n int) []int {
	first := min(base, n-1)
	out := []int{first}
	few := []int{0, n / 2, n - 1}
	if n <= 4 {
		few = []int{0, 1, 2, 3}[:n]
	}
	for i, v := range few {
		if v != first && (i == 0 || v != few[i-1]) {
			out = append(out, v)
		}
	}
	return out
}
