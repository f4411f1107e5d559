package apply

import (
	"slices"
	"strings"

	"github.com/aspengine/asp/editplan"
	"github.com/aspengine/asp/snapshot"
)

// soon is one change as it is foreseen. Open is nil where the bytes are those of the
// live file at from: whoever reads them does it through a workspace of its own.
type soon struct {
	snapshot.Effect
	from  snapshot.Path // what is read, and so may not be changed by somebody else
	perm  uint32
	exact bool // perm is known
}

func (s soon) is(o soon) bool {
	return s.Path == o.Path && s.Gone == o.Gone && s.Digest == o.Digest && s.Size == o.Size && s.Mode == o.Mode &&
		s.from == o.from && s.perm == o.perm && s.exact == o.exact
}

// soon is what the compiled plan changes, in a form that outlives the engine.
func (t *tx) soon() []soon {
	perm := t.permOf()
	out := make([]soon, len(t.effects))
	for i, ef := range t.effects {
		n := t.adm.Nets[i]
		s := soon{Effect: ef, from: n.From}
		if s.perm, s.exact = perm(ef.Path); !ef.Gone && ef.Mode != snapshot.ModeSymlink && n.Content != editplan.ContentBlob && n.Content != editplan.ContentEdits {
			if s.Open = nil; s.from.IsZero() {
				s.from = ef.Path
			}
		}
		out[i] = s
	}
	return out
}

// pathsOf are those at which the changes are made or from which they read.
func pathsOf(changes []soon) (out []snapshot.Path) {
	for _, c := range changes {
		out = append(out, c.Path)
		if !c.from.IsZero() && c.from != c.Path {
			out = append(out, c.from)
		}
	}
	return out
}

// ground is where changes are made, to find out who else comes near. Names that differ in
// case alone are taken for one, as they are on some file systems.
type ground struct{ at, above map[string]bool }

func newGround(paths ...snapshot.Path) *ground {
	g := &ground{map[string]bool{}, map[string]bool{}}
	g.add(paths)
	return g
}

func folded(p snapshot.Path) string { return strings.ToLower(p.String()) }

func (g *ground) add(paths []snapshot.Path) {
	for _, p := range paths {
		g.at[folded(p)] = true
		for _, up := range p.Parents() {
			g.above[folded(up)] = true
		}
	}
}

// meets tells whether one of the paths is at, above or below one that was added.
func (g *ground) meets(paths []snapshot.Path) bool {
	return slices.ContainsFunc(paths, func(p snapshot.Path) bool {
		return g.at[folded(p)] || g.above[folded(p)] || slices.ContainsFunc(p.Parents(), func(up snapshot.Path) bool { return g.at[folded(up)] })
	})
}
