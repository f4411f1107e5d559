package casetest

import (
	"fmt"
	"maps"
	"strings"
)

// scene is a plan of one shape.
type scene struct {
	name     string
	old, new things
	plan     func(w *world) *plan
}

// scenes are the shapes beside that of crashPlan, which has a little of each.
func scenes() []scene {
	base := things{"a": {"a\n", 0o644}, "c": {"c\n", 0o600}, "run": {"run\n", 0o755}, "dir/x": {"x\n", 0o644}, "dir/sub/y": {"y\n", 0o640}, "lone/z": {"z\n", 0o644}}
	with := func(change func(s things)) things {
		s := maps.Clone(base)
		change(s)
		return s
	}
	many, manyNew := things{}, things{}
	for i := range 24 {
		p := fmt.Sprintf("m%d/f%02d", i%3, i)
		many[p], manyNew[p] = thing{fmt.Sprintf("old %d\n", i), 0o644}, thing{fmt.Sprintf("new %d\n", i), 0o644}
	}
	large := strings.Repeat("0123456789abcdef", 40<<10)
	return []scene{
		{"change", base, with(func(s things) { s["a"] = thing{"A, and longer\n", 0o644} }),
			func(w *world) *plan { return w.plan().modify("a", "a\n", "A, and longer\n") }},
		{"make in new directories", base, with(func(s things) { s["n/m/b"] = thing{"b\n", 0o644} }),
			func(w *world) *plan { return w.plan().create("n/m/b", "b\n") }},
		{"remove", base, with(func(s things) { delete(s, "c") }),
			func(w *world) *plan { return w.plan().remove("c", "c\n") }},
		{"move", base, with(func(s things) { s["n/c"] = s["c"]; delete(s, "c") }),
			func(w *world) *plan { return w.plan().rename("c", "n/c", "c\n") }},
		{"move and change", base, with(func(s things) { s["ran"] = thing{"ran\n", 0o755}; delete(s, "run") }),
			func(w *world) *plan { return w.plan().rename("run", "ran", "run\n").modify("ran", "run\n", "ran\n") }},
		{"two change places", base, with(func(s things) { s["a"], s["c"] = s["c"], s["a"] }),
			func(w *world) *plan {
				return w.plan().rename("a", "t", "a\n").rename("c", "a", "c\n").rename("t", "c", "a\n")
			}},
		{"file becomes directory", base, with(func(s things) { delete(s, "c"); s["c/in"] = thing{"in\n", 0o644} }),
			func(w *world) *plan { return w.plan().remove("c", "c\n").create("c/in", "in\n") }},
		{"directory becomes file", base, with(func(s things) { delete(s, "dir/x"); delete(s, "dir/sub/y"); s["dir"] = thing{"now a file\n", 0o644} }),
			func(w *world) *plan {
				return w.plan().remove("dir/x", "x\n").remove("dir/sub/y", "y\n").create("dir", "now a file\n")
			}},
		{"directories emptied", base, with(func(s things) { delete(s, "lone/z"); delete(s, "dir/sub/y") }),
			func(w *world) *plan { return w.plan().remove("lone/z", "z\n").remove("dir/sub/y", "y\n") }},
		{"executable made", base, with(func(s things) { s["tool"] = thing{"#!\n", 0o755} }),
			func(w *world) *plan { return w.plan().create("tool", "#!\n").executable() }},
		{"nothing in a file", base, with(func(s things) { s["a"], s["void"] = thing{"", 0o644}, thing{"", 0o644} }),
			func(w *world) *plan { return w.plan().modify("a", "a\n", "").create("void", "") }},
		{"bytes that are no text", base, with(func(s things) { s["a"] = thing{"\x00\xff\r\n\xfe", 0o644} }),
			func(w *world) *plan { return w.plan().modify("a", "a\n", "\x00\xff\r\n\xfe") }},
		{"many", many, manyNew, func(w *world) *plan {
			p := w.plan()
			for f, x := range many {
				p.modify(f, x.data, manyNew[f].data)
			}
			return p
		}},
		{"large", base, with(func(s things) { s["a"] = thing{large, 0o644} }),
			func(w *world) *plan { return w.plan().modify("a", "a\n", large) }},
	}
}
