package apply

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/aspengine/asp/editplan"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/preconditions"
	"github.com/aspengine/asp/seam/wire"
	"github.com/aspengine/asp/snapshot"
)

// delta is a changeset that holds against the live tree.
type delta struct {
	effects []snapshot.Effect
	took    map[snapshot.Digest][]byte // what was there before, as far as it was kept
	perms   map[snapshot.Path]uint32
}

func (d *delta) perm(p snapshot.Path) (uint32, bool) {
	v, ok := d.perms[p]
	return v, ok
}

// maxFaults bounds how much is said of a hopeless changeset.
const maxFaults = 20

// faults is what is wrong with a changeset, in its order.
type faults []string

func (f *faults) add(i int, path, format string, a ...any) {
	if len(*f) < maxFaults {
		*f = append(*f, fmt.Sprintf("change %d, %q: %s", i, cut(path), fmt.Sprintf(format, a...)))
	}
}

// spellings checks what a changeset says by itself: members, spelling of paths,
// doubled destinations and sources. Nothing on disk is looked at.
func spellings(cs []wire.Change) (faults, []snapshot.Path, []snapshot.Path) {
	var bad faults
	to, from := make([]snapshot.Path, len(cs)), make([]snapshot.Path, len(cs))
	at, src := map[snapshot.Path]int{}, map[snapshot.Path]int{}
	parse := func(i int, s string) snapshot.Path {
		p, err := snapshot.ParsePath(s)
		if err != nil {
			bad.add(i, s, "%v", err)
			return snapshot.Path{}
		}
		if c, yes := editplan.ProtectedPath(p); yes {
			bad.add(i, s, "component %q is reserved for the repository or the engine", cut(c))
			return snapshot.Path{}
		}
		return p
	}
	for i, c := range cs {
		switch {
		case c.From != "" && c.Kind != wire.KindRename:
			bad.add(i, c.Path, "%s takes no from", c.Kind)
		case c.Before != "" && c.Kind == wire.KindCreate:
			bad.add(i, c.Path, "create takes no before")
		case c.After != "" && c.Kind == wire.KindDelete:
			bad.add(i, c.Path, "delete takes no after")
		}
		if to[i] = parse(i, c.Path); !to[i].IsZero() {
			if n, dup := at[to[i]]; dup {
				bad.add(i, c.Path, "change %d is on the same path", n)
			}
			at[to[i]] = i
		}
		if c.Kind != wire.KindRename {
			continue
		}
		if from[i] = parse(i, c.From); from[i].IsZero() {
			continue
		}
		if from[i] == to[i] {
			bad.add(i, c.Path, "is renamed to itself")
		}
		if n, dup := src[from[i]]; dup {
			bad.add(i, c.Path, "change %d renames the same file", n)
		}
		src[from[i]] = i
	}
	for i, c := range cs {
		if c.Kind == wire.KindDelete && !to[i].IsZero() {
			if n, dup := src[to[i]]; dup {
				bad.add(i, c.Path, "change %d renames it", n)
			}
		}
		for _, up := range to[i].Parents() {
			if n, ok := at[up]; ok && cs[n].Kind != wire.KindDelete && c.Kind != wire.KindDelete {
				bad.add(i, c.Path, "change %d puts a file at %q above it", n, cut(up.String()))
			}
		}
	}
	return bad, to, from
}

// hold holds a changeset against the live tree and finds the content that it
// puts. missing lists blobs that nobody has.
func (e *Engine) hold(ctx context.Context, s *snapshot.Stamp, v *preconditions.View, cs []wire.Change, blobs Blobs) (_ *delta, bad faults, missing []wire.BlobRef, err error) {
	bad, to, from := spellings(cs)
	if len(bad) > 0 {
		return nil, bad, nil, nil
	}
	freed := map[string]bool{} // paths at which nothing is left, unless a change puts something
	for i, c := range cs {
		switch c.Kind {
		case wire.KindDelete:
			freed[c.Path] = true
		case wire.KindRename:
			freed[from[i].String()] = true
		}
	}
	sources := make([]*preconditions.Fact, len(cs))
	for i, c := range cs {
		f, err := v.Fact(to[i])
		if err != nil {
			return nil, nil, nil, fmt.Errorf("look at %.200q: %w", c.Path, err)
		}
		if f.Blocked != nil {
			bad.add(i, c.Path, "%s: %s", f.Blocked.Code, f.Blocked.Detail)
			continue
		}
		if c.Kind == wire.KindCreate || c.Kind == wire.KindRename {
			switch {
			case f.Under != "" && !freed[f.Under]:
				bad.add(i, c.Path, "%q above it is no directory", cut(f.Under))
			case f.Stat.Kind != vfs.KindInvalid && !freed[c.Path]:
				bad.add(i, c.Path, "is there already")
			}
		}
		if c.Kind == wire.KindCreate {
			continue
		}
		if c.Kind == wire.KindRename {
			if f, err = v.Fact(from[i]); err != nil {
				return nil, nil, nil, fmt.Errorf("look at %.200q: %w", c.From, err)
			}
			if f.Blocked != nil {
				bad.add(i, c.From, "%s: %s", f.Blocked.Code, f.Blocked.Detail)
				continue
			}
		}
		is := f.Stat.Kind == vfs.KindFile || f.Stat.Kind == vfs.KindSymlink
		if !is || string(c.Before) != f.Digest.Blob() {
			now := "no file is there"
			if is {
				now = f.Digest.Blob() + " is there"
			}
			bad.add(i, c.Path, "before is %.90q, and %s", string(c.Before), now)
		}
		sources[i] = f
	}
	if len(bad) > 0 {
		return nil, bad, nil, nil
	}
	out := &delta{perms: map[snapshot.Path]uint32{}, took: map[snapshot.Digest][]byte{}}
	find := &finder{e: e, stamp: s, blobs: blobs, known: map[snapshot.Digest]found{}}
	for i, c := range cs {
		if f := sources[i]; f != nil && f.Stat.Kind == vfs.KindFile {
			p := to[i]
			if c.Kind == wire.KindRename {
				p = from[i]
			}
			find.known[f.Digest] = found{open: find.file(p), size: f.Stat.Size}
			if b, _, kept := v.Hashed(p); kept {
				out.took[f.Digest] = b
				find.known[f.Digest] = found{open: opener(b), size: int64(len(b))}
			}
		}
	}
	for i, c := range cs {
		switch c.Kind {
		case wire.KindDelete:
			out.effects = append(out.effects, snapshot.Effect{Path: to[i], Gone: true})
			continue
		case wire.KindRename:
			if !slices.ContainsFunc(to, func(p snapshot.Path) bool { return p == from[i] }) {
				out.effects = append(out.effects, snapshot.Effect{Path: from[i], Gone: true})
			}
		}
		x := snapshot.Effect{Path: to[i], Mode: snapshot.ModeRegular}
		ref := afterOf(c)
		d, err := snapshot.ParseBlob(string(ref))
		if err == nil {
			f := sources[i]
			if f != nil && f.Stat.Kind == vfs.KindSymlink {
				x.Mode = snapshot.ModeSymlink
				find.known[f.Digest] = found{open: opener([]byte(f.Target)), size: int64(len(f.Target))}
			} else if f != nil {
				out.perms[to[i]] = f.Stat.Perm
				if f.Stat.Perm&0o100 != 0 {
					x.Mode = snapshot.ModeExecutable
				}
			}
			got, ok, err := find.find(ctx, d)
			if err != nil {
				return nil, nil, nil, err
			}
			if ok {
				x.Digest, x.Size = d, got.size
				x.Open = func() (snapshot.ReadCloser, error) { return got.open() }
				out.effects = append(out.effects, x)
				continue
			}
		}
		if !slices.Contains(missing, ref) && len(missing) < maxFaults {
			missing = append(missing, ref)
		}
	}
	return out, nil, missing, nil
}

// match holds what the changes find before them against the state of s, by content: a
// look that trusts events or stat data may call a file unchanged that is not, and then
// the changeset would take away what its baseline does not have.
func (e *Engine) match(ctx context.Context, s *snapshot.Stamp, v *preconditions.View, cs []wire.Change) match {
	h, ok := e.ws.(snapshot.Holder)
	if !ok {
		return cannotTell
	}
	var there []snapshot.Effect
	for _, c := range cs {
		for _, spelled := range [2]string{c.Path, c.From} {
			if spelled == "" {
				continue
			}
			p, err := snapshot.ParsePath(spelled)
			if err != nil {
				return cannotTell
			}
			f, err := v.Fact(p)
			if err != nil {
				return cannotTell
			}
			x := snapshot.Effect{Path: p, Digest: f.Digest, Size: f.Stat.Size, Mode: snapshot.ModeRegular}
			switch f.Stat.Kind {
			case vfs.KindInvalid:
				x = snapshot.Effect{Path: p, Gone: true}
			case vfs.KindSymlink:
				x.Mode, x.Open = snapshot.ModeSymlink, func() (snapshot.ReadCloser, error) { return readBytes([]byte(f.Target)), nil }
			case vfs.KindFile:
				// The bytes that were hashed, not another look at them.
				b, _, kept := v.Hashed(p)
				if !kept {
					return cannotTell
				}
				if f.Stat.Perm&0o100 != 0 {
					x.Mode = snapshot.ModeExecutable
				}
				x.Size, x.Open = int64(len(b)), func() (snapshot.ReadCloser, error) { return readBytes(b), nil }
			default:
				return cannotTell
			}
			there = append(there, x)
		}
	}
	switch is, err := h.Holds(ctx, s, there); {
	case err != nil:
		return cannotTell
	case is:
		return same
	}
	return other
}

// found is content that somebody has.
type found struct {
	open func() (io.ReadCloser, error)
	size int64
}

// finder looks for content: what the session put, what the changed files hold,
// what is kept, and at last what any file of the workspace holds.
type finder struct {
	e     *Engine
	stamp *snapshot.Stamp
	blobs Blobs
	known map[snapshot.Digest]found
	tree  map[snapshot.Digest]snapshot.Path // nil: not looked yet
}

func (f *finder) file(p snapshot.Path) func() (io.ReadCloser, error) {
	live := snapshot.NewLive(f.e.root)
	return func() (io.ReadCloser, error) { return live.Open(p) }
}

func (f *finder) find(ctx context.Context, d snapshot.Digest) (found, bool, error) {
	if x, ok := f.known[d]; ok {
		return x, true, nil
	}
	if f.blobs != nil {
		if b, ok := f.blobs(d); ok && snapshot.DigestOf(b) == d {
			return found{opener(b), int64(len(b))}, true, nil
		}
	}
	if b, err := f.e.packs.Bytes(d); err == nil {
		return found{opener(b), int64(len(b))}, true, nil
	}
	if f.tree == nil {
		all, err := f.e.ws.Files(ctx, f.stamp)
		if err == nil {
			all, err = snapshot.HashFiles(ctx, f.e.ws.Root(), all, f.e.state.Dir())
		}
		if err != nil {
			return found{}, false, fmt.Errorf("look for the content that the changeset puts: %w", err)
		}
		f.tree = map[snapshot.Digest]snapshot.Path{}
		for _, x := range all {
			if p, err := snapshot.ParsePath(x.Path); err == nil && x.Mode != snapshot.ModeSymlink {
				f.tree[x.Digest] = p
			}
		}
	}
	p, ok := f.tree[d]
	if !ok {
		return found{}, false, nil
	}
	x, err := snapshot.NewLive(f.e.root).Entry(p)
	if err != nil {
		return found{}, false, nil // gone in between: nobody has it
	}
	return found{f.file(p), x.Stat.Size}, true, nil
}
