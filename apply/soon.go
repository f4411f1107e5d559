package apply

import (
	"slices"

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

// ground is where changes are made, to find out who else comes near.
type ground struct {
	at, above map[snapshot.Path]bool
}

func newGround(changes []soon) *ground {
	g := &ground{map[snapshot.Path]bool{}, map[snapshot.Path]bool{}}
	g.add(changes)
	return g
}

func (g *ground) add(changes []soon) {
	for _, c := range changes {
		for _, p := range c.paths() {
			g.at[p] = true
			for _, up := range p.Parents() {
				g.above[up] = true
			}
		}
	}
}

// meets tells whether one of the changes is at, above or below one that was added.
func (g *ground) meets(changes []soon) bool {
	for _, c := range changes {
		for _, p := range c.paths() {
			if g.at[p] || g.above[p] || slices.ContainsFunc(p.Parents(), func(up snapshot.Path) bool { return g.at[up] }) {
				return true
			}
		}
	}
	return false
}

func (s soon) paths() []snapshot.Path {
	if s.from.IsZero() || s.from == s.Path {
		return []snapshot.Path{s.Path}
	}
	return []snapshot.Path{s.Path, s.from}
}
