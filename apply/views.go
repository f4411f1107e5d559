package apply

import (
	"context"
	"path"
	"slices"

	"github.com/aspengine/asp/checks"
	"github.com/aspengine/asp/seam/provider"
	"github.com/aspengine/asp/seam/wire"
)

// Bounds of the remembered views: together, and one of them.
const (
	maxViews     = 64
	maxViewBytes = 8 << 20
	maxViewSize  = 1 << 20
)

// view is what a provider said of a candidate. With comparison all it said it of the
// whole after-state, as far as it looked; that state may be where a later change starts.
type view struct {
	asker, subject string
	state          wire.Baseline   // of the after-state, without a time; zero: not known
	whole          bool            // it looked at the workspace
	paths          map[string]bool // else at these
	said           *checks.Accepted
	size           int
}

// views is a bounded memory of them, the oldest first.
type views struct {
	list  []view
	bytes int
}

func (m *views) add(v view) {
	if v.size > maxViewSize {
		return
	}
	m.drop(func(o view) bool {
		return o.asker == v.asker && o.subject == v.subject && o.said.Comparison == v.said.Comparison
	})
	m.list, m.bytes = append(m.list, v), m.bytes+v.size
	for len(m.list) > maxViews || m.bytes > maxViewBytes {
		m.bytes -= m.list[0].size
		m.list = slices.Delete(m.list, 0, 1)
	}
}

func (m *views) drop(which func(view) bool) {
	m.list = slices.DeleteFunc(m.list, func(v view) bool {
		gone := which(v)
		if gone {
			m.bytes -= v.size
		}
		return gone
	})
}

func (m *views) forget(asker string) { m.drop(func(v view) bool { return v.asker == asker }) }

// recall is what an asker said that bears on a subject.
func (v *Verdicts) recall(asker, subject string, s provider.Subject, set provider.Settings) provider.Views {
	var out provider.Views
	if v == nil || asker == "" || subject == "" {
		return out
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, w := range v.views.list {
		if w.asker != asker {
			continue
		}
		out.Last = w.said
		if w.said.Comparison == wire.CompareAll && w.state.Rev != "" && w.state == (wire.Baseline{Rev: s.Baseline.Rev, Dirty: s.Baseline.Dirty}) && w.looked(s, set) {
			out.Before = w.said
		}
		if w.subject != subject {
			continue
		}
		switch w.said.Comparison {
		case wire.CompareAll:
			out.All = w.said
		case wire.CompareIntroduced:
			out.Introduced = w.said
		case wire.CompareResolved:
			out.Resolved = w.said
		}
	}
	return out
}

// looked tells whether a view covers the state before of everything that a subject is
// about.
func (w *view) looked(s provider.Subject, set provider.Settings) bool {
	switch {
	case w.whole:
		return s.Scope == nil
	case set.Scope == wire.ScopeWorkspace || s.Scope != nil:
		return false
	}
	for _, c := range s.Changes {
		if c.Kind == wire.KindRename && !w.paths[c.From] || c.Kind != wire.KindRename && c.Kind != wire.KindCreate && !w.paths[c.Path] {
			return false
		}
	}
	return true
}

// remember keeps an accepted answer.
func (j *judgement) remember(ctx context.Context, asker, subject string, r *round, s provider.Subject, set provider.Settings, said *checks.Accepted) {
	v := j.e.o.Verdicts
	if v == nil || asker == "" || subject == "" || said == nil {
		return
	}
	w := view{asker: asker, subject: subject, said: said, whole: set.Scope == wire.ScopeWorkspace, paths: map[string]bool{}, size: sizeOfAnswer(said)}
	if said.Comparison == wire.CompareAll {
		w.state = r.after(ctx)
	}
	for _, c := range s.Changes {
		if c.Kind != wire.KindDelete {
			w.paths[c.Path] = true
		}
		w.size += len(c.Path)
	}
	for _, p := range s.Scope {
		w.paths[p] = true
		w.size += len(p)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.views.add(w)
}

func sizeOfAnswer(a *checks.Accepted) int {
	n := 500
	for _, b := range a.ValidAsOf.Blobs {
		n += len(b) + 20
	}
	for _, d := range a.Diagnostics {
		n += 300 + len(d.Code) + len(d.Message) + len(d.Fingerprint) + len(d.Help) + len(d.Location.Path)
	}
	return n
}

// afterState is the state that the candidate would leave, as a baseline without a
// time; zero where it cannot be told. A change to the rules of what belongs to a state
// is not worth the walk that it takes.
func (j *judgement) afterState(ctx context.Context, c candidate) wire.Baseline {
	if j.listed || slices.ContainsFunc(c.changes, func(x wire.Change) bool {
		return rules(x.Path) || rules(x.From)
	}) {
		return wire.Baseline{}
	}
	b, err := j.e.ws.After(ctx, c.stamp, j.effects)
	if err != nil {
		return wire.Baseline{}
	}
	return wire.Baseline{Rev: b.Rev, Dirty: b.Dirty}
}

func rules(p string) bool { n := path.Base(p); return n == ".gitignore" || n == ".gitattributes" }
