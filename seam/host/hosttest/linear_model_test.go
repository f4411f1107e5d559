//go:build linux

package hosttest

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
)

// What a workspace promises to many clients and to an editor that asks nobody,
// as a sequential object: a map from path to content, and on it
//
//   - a plan: compare-and-set over several paths. Applied, every path held its
//     basis at one moment and all of them were set then. Refused for a conflict,
//     at one moment one path did not hold its basis, and nothing was set.
//   - a save by the editor: sets one path, whatever it holds.
//
// Not promised, and so not modelled: what a reader of the files sees while they are
// swapped (clients read to guess a basis, no more), and a store through a
// descriptor whose file was replaced while it was open. The second is a save of
// which nobody knows whether it takes effect.
//
// All contents differ, so that no value can stand for another. Plans stay within a
// group of paths; groups share no path, and linearizability is local, so the
// history of each group is judged by itself.

// groupPaths is how many paths a group has.
const groupPaths = 6

// content is the number of a text; none is a missing file.
type content int32

const (
	none  content = 0
	other content = -1 // not named by the operation
)

// text is the file that holds a content. All are equally long: one store in place
// replaces another wholly.
func (c content) text() string { return fmt.Sprintf("v%09d\n", c) }

// parse is the inverse of text; a file that is being written has no content.
func parse(s string) (content, bool) {
	var c content
	if n, err := fmt.Sscanf(s, "v%09d\n", &c); n != 1 || err != nil || c.text() != s {
		return other, false
	}
	return c, true
}

// state is what the paths of one group hold.
type state [groupPaths]content

// nothing names no path.
var nothing = func() (s state) {
	for i := range s {
		s[i] = other
	}
	return s
}()

type outcome string

const (
	applied outcome = "applied"
	refused outcome = "refused"
	saved   outcome = "saved"
	unknown outcome = "unknown" // it takes effect once, or never
	final   outcome = "final"   // a look when nobody works
)

// happened is one operation of a history. Times are of a counter that everybody
// takes from, so that their order is that of real time.
type happened struct {
	who       string
	group     int
	pre, post state // other where a path is not named
	out       outcome
	call, ret int64
}

func (h happened) String() string {
	return fmt.Sprintf("%s %v -> %v %s [%d, %d]", h.who, h.pre, h.post, h.out, h.call, h.ret)
}

// step is the sequential object.
func step(s state, h happened) (bool, state) {
	match, next := true, s
	for i := range s {
		match = match && (h.pre[i] == other || h.pre[i] == s[i])
		if h.post[i] != other {
			next[i] = h.post[i]
		}
	}
	switch h.out {
	case applied, saved:
		return match, next
	case refused:
		return !match, s
	case final:
		return match, s
	case unknown:
		if match {
			return true, next
		}
		return true, s
	}
	return false, s
}

// judge asks the checker whether each group's history is that of the object.
// Starting states are by group. An error names the first group that is not.
func judge(starts []state, history []happened) error {
	for g, start := range starts {
		var ops []porcupine.Operation
		for _, h := range history {
			if h.group != g {
				continue
			}
			// What is unknown may come last, after the last look: that is "never".
			if h.out == unknown {
				h.ret = math.MaxInt64
			}
			ops = append(ops, porcupine.Operation{Input: h, Call: h.call, Return: h.ret})
		}
		m := porcupine.Model{
			Init:  func() any { return start },
			Step:  func(s, in, _ any) (bool, any) { return stepAny(s, in) },
			Equal: func(a, b any) bool { return a == b },
			Hash:  func(s any) uint64 { return hash(s.(state)) },
		}
		// A checker that runs out of time has not accepted anything.
		if result := porcupine.CheckOperationsTimeout(m, ops, limit); result != porcupine.Ok {
			_, info := porcupine.CheckOperationsVerbose(m, ops, limit)
			return fmt.Errorf("group %d, %d operations: %s\n%s", g, len(ops), result, stuck(start, ops, info))
		}
	}
	return nil
}

func stepAny(s, in any) (bool, any) { return step(s.(state), in.(happened)) }

func hash(s state) uint64 {
	var h uint64
	for _, c := range s {
		h = (h ^ uint64(c)) * 0x9e3779b97f4a7c15
	}
	return h
}

// stuck tells where the longest order that the checker found ends.
func stuck(start state, ops []porcupine.Operation, info porcupine.LinearizationInfo) string {
	var best []int
	for _, partition := range info.PartialLinearizations() {
		for _, order := range partition {
			if len(order) > len(best) {
				best = order
			}
		}
	}
	s, in := start, map[int]bool{}
	for _, i := range best {
		in[i] = true
		_, s = step(s, ops[i].Input.(happened))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d of them have an order, which leaves %v; the last of it, then the first that do not:\n", len(best), s)
	for _, i := range best[max(0, len(best)-8):] {
		fmt.Fprintln(&b, "  ", ops[i].Input)
	}
	var rest []happened
	for i := range ops {
		if !in[i] {
			rest = append(rest, ops[i].Input.(happened))
		}
	}
	slices.SortFunc(rest, func(a, b happened) int { return int(a.call - b.call) })
	for _, h := range rest[:min(len(rest), 12)] {
		fmt.Fprintln(&b, " -", h)
	}
	return b.String()
}
