package gitbase

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aspengine/asp/snapshot"
)

// Files implements snapshot.Workspace: HEAD's files as far as the overlay leaves
// them alone, and what the overlay puts. Submodules and other repositories are
// not looked into.
func (r *Repo) Files(ctx context.Context, s *snapshot.Stamp) ([]snapshot.File, error) {
	st, ok := s.State.(*state)
	if !ok || st.of != r {
		return nil, fmt.Errorf("list files of %.200q: %w", r.Places.Root, snapshot.ErrStamp)
	}
	out := make([]snapshot.File, 0, len(st.t.entries)+len(s.Overlay))
	i := 0
	for n := range st.t.entries {
		e := &st.t.entries[n]
		for i < len(s.Overlay) && s.Overlay[i].Path < e.path {
			i++
		}
		if i < len(s.Overlay) && s.Overlay[i].Path == e.path {
			continue // told by the overlay
		}
		te, in := st.t.inHead(e)
		if !in || te.mode == 0o160000 {
			continue
		}
		out = append(out, snapshot.File{Path: e.path, Mode: snapshot.FileMode(canonicalMode(te.mode)), Stored: te.id})
	}
	for _, o := range s.Overlay {
		if !o.Gone && o.Note == "" {
			out = append(out, snapshot.File{Path: o.Path, Mode: o.Mode, Digest: o.Digest})
		}
	}
	slices.SortFunc(out, func(a, b snapshot.File) int { return strings.Compare(a.Path, b.Path) })
	return out, ctx.Err()
}
