//go:build linux

package hosttest

import (
	"os"
	"path/filepath"
	"testing"
)

// naive applies plans as tools do that read, compare and write. What it skips, and
// what happens between its look and its first write, is chosen by a row below.
type naive struct {
	s *scene
	// between runs after the comparison, before the first write.
	between func()
	blind   bool    // does not compare
	writes  int     // how many files it gets to; the rest is lost
	says    outcome // its answer, instead of the true one
}

func (n naive) apply(t *testing.T, name string, pre, post state) {
	t.Helper()
	h := happened{who: "naive " + name, pre: pre, post: post, out: applied, call: n.s.clock.Add(1)}
	for i := range pre {
		if !n.blind && pre[i] != other && n.s.look(0, i) != pre[i] {
			h.out = refused
		}
	}
	if n.between != nil {
		n.between()
	}
	for i, done := 0, 0; h.out == applied && i < len(post); i++ {
		if post[i] != other && done < n.writes {
			must(t, os.WriteFile(filepath.Join(n.s.w.root, pathOf(0, i)), []byte(post[i].text()), 0o644))
			done++
		}
	}
	if n.says != "" {
		h.out = n.says
	}
	h.ret = n.s.clock.Add(1)
	n.s.record(h)
}

// TestLinearizableNaive: histories of naive appliers are refused, each for what it
// does wrong, and accepted where nothing comes in between.
func TestLinearizableNaive(t *testing.T) {
	const all = groupPaths
	for _, c := range []struct {
		name string
		good bool
		play func(t *testing.T, s *scene, a, b state)
	}{
		{"careful and alone", true, func(t *testing.T, s *scene, a, b state) {
			naive{s: s, writes: all}.apply(t, "1", s.starts[0], a)
			naive{s: s, writes: all}.apply(t, "2", s.starts[0], b)
			must(t, s.save(0, 0, "rename"))
			naive{s: s, writes: all}.apply(t, "3", a, b)
		}},
		{"a save before the look", true, func(t *testing.T, s *scene, a, b state) {
			must(t, s.save(0, 1, "store"))
			naive{s: s, writes: all}.apply(t, "1", s.starts[0], a)
		}},
		{"killed, and nobody knows", true, func(t *testing.T, s *scene, a, b state) {
			naive{s: s, writes: all, says: unknown}.apply(t, "1", s.starts[0], a)
			naive{s: s, writes: 0, says: unknown}.apply(t, "2", a, b)
		}},
		{"a save between look and write", false, func(t *testing.T, s *scene, a, b state) {
			naive{s: s, writes: all, between: func() { must(t, s.save(0, 1, "rename")) }}.apply(t, "1", s.starts[0], a)
		}},
		{"a save in place between look and write", false, func(t *testing.T, s *scene, a, b state) {
			naive{s: s, writes: all, between: func() { must(t, s.save(0, 1, "truncate")) }}.apply(t, "1", s.starts[0], a)
		}},
		{"two at once", false, func(t *testing.T, s *scene, a, b state) {
			naive{s: s, writes: all, between: func() { naive{s: s, writes: all}.apply(t, "2", s.starts[0], b) }}.apply(t, "1", s.starts[0], a)
		}},
		{"no comparison", false, func(t *testing.T, s *scene, a, b state) {
			naive{s: s, writes: all}.apply(t, "1", s.starts[0], a)
			naive{s: s, writes: all, blind: true}.apply(t, "2", s.starts[0], b)
		}},
		{"acknowledged and lost", false, func(t *testing.T, s *scene, a, b state) {
			naive{s: s, writes: 0}.apply(t, "1", s.starts[0], a)
		}},
		{"half of it", false, func(t *testing.T, s *scene, a, b state) {
			naive{s: s, writes: all - 1}.apply(t, "1", s.starts[0], a)
		}},
		{"half of it, and nobody knows", false, func(t *testing.T, s *scene, a, b state) {
			naive{s: s, writes: all - 1, says: unknown}.apply(t, "1", s.starts[0], a)
		}},
		{"refused and in place", false, func(t *testing.T, s *scene, a, b state) {
			naive{s: s, writes: all, says: refused}.apply(t, "1", s.starts[0], a)
		}},
		{"refused without cause", false, func(t *testing.T, s *scene, a, b state) {
			naive{s: s, writes: 0, says: refused}.apply(t, "1", s.starts[0], a)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &scene{w: &world{t: t, base: t.TempDir()}}
			s.w.root = filepath.Join(s.w.base, "ws")
			for name, text := range s.start() {
				s.w.write(name, text)
			}
			var a, b state
			for i := range a {
				a[i], b[i] = s.fresh(), s.fresh()
			}
			c.play(t, s, a, b)
			s.close()
			err := judge(s.starts, s.history)
			if (err == nil) != c.good {
				t.Errorf("accepted: %v, want %v: %v\n%v", err == nil, c.good, err, s.history)
			}
		})
	}
}
