package gitbase

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/aspengine/asp/snapshot"
	"github.com/aspengine/asp/snapshot/scan"
)

// PathInfo implements snapshot.Workspace.
func (r *Repo) PathInfo(ctx context.Context, paths []snapshot.Path) ([]snapshot.PathInfo, error) {
	return r.PathInfoAfter(ctx, nil, paths)
}

// PathInfoAfter is PathInfo with the ignore rules and attributes as the effects
// would leave them: staging asks for the filters of the after-state.
func (r *Repo) PathInfoAfter(ctx context.Context, effects []snapshot.Effect, paths []snapshot.Path) ([]snapshot.PathInfo, error) {
	virt := make(map[string]*snapshot.Effect, len(effects))
	for i := range effects {
		virt[effects[i].Path.String()] = &effects[i]
	}
	out, err := r.pathInfo(ctx, virt, paths)
	if err != nil {
		return nil, fmt.Errorf("look up paths in %.200q: %w", r.Places.Root, err)
	}
	return out, nil
}

// PathInfoAt implements snapshot.StampInfo: index, configuration and the rules of
// the directories on the way are those that the stamp read.
func (r *Repo) PathInfoAt(ctx context.Context, s *snapshot.Stamp, paths []snapshot.Path) ([]snapshot.PathInfo, error) {
	st, ok := s.State.(*state)
	if !ok || st.of != r {
		return nil, snapshot.ErrStamp
	}
	out, err := r.infoOf(ctx, st.e, st.t.idx, st.walked(), nil, paths)
	if err != nil {
		return nil, fmt.Errorf("look up paths in %.200q: %w", r.Places.Root, err)
	}
	return out, nil
}

func (r *Repo) pathInfo(ctx context.Context, virt map[string]*snapshot.Effect, paths []snapshot.Path) ([]snapshot.PathInfo, error) {
	e, err := r.load(ctx)
	if err != nil {
		return nil, err
	}
	x := r.keptIndex()
	if x == nil {
		if x, _, err = r.index(ctx); err != nil {
			return nil, err
		}
	}
	return r.infoOf(ctx, e, x, nil, virt, paths)
}

func (r *Repo) infoOf(ctx context.Context, e *env, x *index, walked map[string]*rules, virt map[string]*snapshot.Effect, paths []snapshot.Path) ([]snapshot.PathInfo, error) {
	root, err := scan.OpenRoot(r.Places.Root)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	// The index alone: what only HEAD has is not tracked.
	t := &table{idx: x, entries: x.entries}
	gitlink := func(u *entry) bool { return x.mode(u) == 0o160000 }
	l := &lookup{e: e, src: source{t: t, objs: r.objs, virt: virt}, root: root, seen: map[string]*rules{}, walked: walked}
	out := make([]snapshot.PathInfo, len(paths))
	inner := map[string]bool{} // directories asked about: paths come in crowds
	leftOut := map[string]bool{}
	absent := func(u *entry) (bool, error) {
		if u.flags&skipWT == 0 {
			return false, nil
		}
		_, err := root.Lstat(u.path)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			return true, nil
		}
		return false, err
	}
	for i, p := range paths {
		in := &out[i]
		for _, up := range p.Parents() {
			dir := up.String()
			is, known := inner[dir]
			if !known {
				u := t.find(dir)
				is = u != nil && gitlink(u) || r.repositoryAt(root, t, dir)
				inner[dir] = is
				if u != nil && !is {
					if out, err := absent(u); err != nil {
						return nil, err
					} else if out {
						leftOut[dir] = true
					}
				}
			}
			in.InSubmodule = in.InSubmodule || is
			if leftOut[dir] {
				in.LeftOut = dir
			}
		}
		if in.InSubmodule {
			continue // its own repository has the say
		}
		if u := t.find(p.String()); u != nil {
			in.Tracked, in.SkipWorktree = true, u.flags&skipWT != 0
			in.InSubmodule = gitlink(u)
		}
		// What is below a directory of the index: the first that is not on disk says it.
		for k := t.below(p.String()); in.LeftOut == "" && k < len(t.entries) && under(t.entries[k].path, p.String()); k++ {
			out, err := absent(&t.entries[k])
			if err != nil {
				return nil, err
			}
			if out {
				in.LeftOut = t.entries[k].path
			}
		}
		rl, err := l.of(p.Dir())
		if err != nil {
			return nil, err
		}
		in.Filter = e.conv.Decide(rl.attrs().Lookup(p.Base())).Filter
		if !in.Tracked && !t.under(p.String()) {
			st, err := root.Lstat(p.String())
			isDir := err == nil && st.Kind == scan.Dir
			in.Ignored = rl.ignored(p.Base(), isDir)
			in.InSubmodule = isDir && r.repositoryAt(root, t, p.String())
		}
	}
	return out, ctx.Err()
}

// repositoryAt tells whether an untracked directory is a repository of its own.
func (r *Repo) repositoryAt(root scan.DirHandle, t *table, dir string) bool {
	if t.under(dir) {
		return false
	}
	if _, err := root.Lstat(dir + "/" + gitDirName); err != nil {
		return false
	}
	_, err := at(r.Places.Root + "/" + dir)
	return err == nil
}
