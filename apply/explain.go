package apply

import (
	"context"
	"slices"

	"github.com/aspengine/asp/apply/commit"
	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/snapshot"
)

// Explain gives the refusals of an importer the better reason where there is
// one: an importer sees bytes and names, not that a path waits for a person
// after a crash or is left out by a sparse checkout.
func (e *Engine) Explain(ctx context.Context, items refusal.List) (refusal.List, error) {
	waiting, err := commit.Attention(ctx, e.env(e.extraDirs()))
	if err != nil {
		return nil, err
	}
	var paths []snapshot.Path
	var at []int
	for i, it := range items {
		if slices.ContainsFunc(waiting, func(a commit.AttentionPath) bool { return a.Path == it.Path }) {
			items[i] = refusal.New(refusal.NeedsAttention, it.Path, it.Op, "an interrupted transaction left this path undecided; end that with `asp recover --keep-mine` or `--keep-theirs`")
			continue
		}
		if p, err := snapshot.ParsePath(it.Path); err == nil && it.Code == refusal.Missing {
			paths, at = append(paths, p), append(at, i)
		}
	}
	if len(paths) == 0 {
		return items, nil
	}
	infos, err := e.ws.PathInfo(ctx, paths)
	if err != nil {
		return nil, err
	}
	for k, info := range infos {
		it := items[at[k]]
		switch {
		case info.SkipWorktree:
			items[at[k]] = refusal.New(refusal.NotCheckedOut, it.Path, it.Op, "is left out by the sparse checkout; add it with `git sparse-checkout add` first")
		case info.LeftOut != "":
			items[at[k]] = refusal.New(refusal.NotCheckedOut, it.Path, it.Op, "holds %q, which the sparse checkout leaves out; add it with `git sparse-checkout add` first", cut(info.LeftOut))
		case info.InSubmodule:
			items[at[k]] = refusal.New(refusal.OtherRepository, it.Path, it.Op, "lies in a submodule or a nested repository; apply the patch there")
		}
	}
	return items, nil
}
