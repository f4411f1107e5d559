package apply

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/aspengine/asp/editplan"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/wire"
	"github.com/aspengine/asp/snapshot"
	"github.com/aspengine/asp/snapshot/gitbase"
)

// Changed is a change that is there already, in the workspace or in git's index,
// seen from the tree of a revision: what `asp check` and `asp ci verify` judge.
// Evaluate takes it where a changeset on the present baseline has no words for
// it: its baseline is that tree, and its after-state is (nearly) the live tree.
type Changed struct {
	// Changeset is on the baseline {rev: git:tree of the revision}.
	Changeset canon.Value
	// Live is the workspace's baseline when this was made. If the workspace has
	// another one when it is judged, the change is another one too.
	Live snapshot.Baseline
	// Base is what the revision has at the paths that differ from the live tree:
	// over that, it makes the tree of the revision, which is the baseline that
	// providers may ask for.
	Base []BaseEntry
	// Effects make the after-state out of the live tree; none where it is the live
	// tree as it is.
	Effects []snapshot.Effect
	// Notes are facts that a person should know: what was left out, and why.
	Notes []string
}

// BaseEntry is one path of a revision that the live tree does not have, or has
// otherwise. Its bytes are those that git stores: without the line ends that a
// checkout would make.
type BaseEntry struct {
	Path   snapshot.Path
	Gone   bool // the revision has nothing there
	Mode   snapshot.FileMode
	Digest snapshot.Digest
	Size   int64
	Open   func(ctx context.Context) ([]byte, error) // of a link: its target
}

// Changed compares the workspace, or with staged git's index, with the tree of a
// revision ("HEAD", a branch, a commit). What a crash left
// open is ended first; nothing else is written. What no changeset can
// name or nobody can read is refused by a *wire.Error that lists it: a change that
// cannot be judged must not look like none.
func (e *Engine) Changed(ctx context.Context, from string, staged bool) (*Changed, error) {
	if e.git == nil {
		return nil, wire.NewError(wire.CodeInvalidInput, wire.FailInput, "there is no git repository, so there is nothing to compare the workspace with", "")
	}
	if err := e.settle(ctx); err != nil {
		return nil, err
	}
	rev, err := e.git.Revision(ctx, from)
	if errors.Is(err, gitbase.ErrNoRevision) {
		return nil, wire.NewError(wire.CodeInvalidInput, wire.FailInput, err.Error()+"; name a branch, a tag or a commit that was fetched", "")
	}
	if err != nil {
		return nil, err
	}
	s, err := e.ws.Stamp(ctx, snapshot.StampOptions{})
	if err != nil {
		return nil, err
	}
	c := &comparison{e: e, rev: rev, staged: staged, paths: map[string]*compared{}, out: Changed{Live: s.Baseline}}
	for _, step := range []func(context.Context, *snapshot.Stamp) error{c.collect, c.read} {
		if err := step(ctx, s); err != nil {
			return nil, fmt.Errorf("compare with %.200q: %w", from, err)
		}
	}
	return c.finish(ctx)
}

// MergeBase names the commit at which HEAD left the history of a revision, for
// Changed. Errors are those of Changed.
func (e *Engine) MergeBase(ctx context.Context, ref string) (string, error) {
	if e.git == nil {
		return "", wire.NewError(wire.CodeInvalidInput, wire.FailInput, "there is no git repository, so there is nothing to compare the workspace with", "")
	}
	rev, err := e.git.MergeBase(ctx, ref)
	if errors.Is(err, gitbase.ErrNoRevision) {
		return "", wire.NewError(wire.CodeInvalidInput, wire.FailInput, err.Error()+"; name a branch, a tag or a commit that was fetched, with the history up to where this one left it", "")
	}
	return rev.Commit, err
}

// compared is one path that may differ.
type compared struct {
	from, index gitbase.Stored
	live        snapshot.File
	note        string // why the live tree has no file that can be read here
}

type comparison struct {
	e       *Engine
	rev     gitbase.Revision
	staged  bool
	paths   map[string]*compared
	out     Changed
	changes []wire.Change
	refused []string
}

func (c *comparison) at(p string) *compared {
	x := c.paths[p]
	if x == nil {
		x = &compared{}
		c.paths[p] = x
	}
	return x
}

// collect finds the paths at which revision, HEAD, index and disk may differ.
func (c *comparison) collect(ctx context.Context, s *snapshot.Stamp) error {
	diffs, err := c.e.git.DifferencesToHead(ctx, c.rev)
	if err != nil {
		return err
	}
	for _, d := range diffs {
		x := c.at(d.Path)
		x.from = d.From
		if !d.To.IsZero() {
			x.live = snapshot.File{Path: d.Path, Mode: d.To.Mode} // unless the overlay says otherwise
		}
	}
	if c.staged {
		if diffs, err = c.e.git.DifferencesToIndex(ctx, c.rev); err != nil {
			return err
		}
		for _, d := range diffs {
			if _, known := c.paths[d.Path]; !known && !d.From.IsZero() {
				// Not in the overlay so far: on disk as in HEAD, which has it as the
				// revision does.
				c.at(d.Path).live = snapshot.File{Path: d.Path, Mode: d.From.Mode}
			}
			x := c.at(d.Path)
			x.from, x.index = d.From, d.To
		}
	}
	for _, o := range s.Overlay {
		_, known := c.paths[o.Path]
		x := c.at(o.Path)
		x.live, x.note = snapshot.File{}, o.Note
		if !o.Gone && o.Note == "" {
			x.live = snapshot.File{Path: o.Path, Mode: o.Mode, Digest: o.Digest}
		}
		if known {
			continue
		}
		if p, err := snapshot.ParsePath(o.Path); err == nil {
			if x.from, err = c.e.git.StoredAt(ctx, c.rev, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// read fills in digests of the live tree and what the index has.
func (c *comparison) read(ctx context.Context, _ *snapshot.Stamp) error {
	var names []string
	var files []snapshot.File
	for p, x := range c.paths {
		names = append(names, p)
		if x.live.Path != "" {
			files = append(files, x.live)
		}
	}
	hashed, err := snapshot.HashFiles(ctx, c.e.ws.Root(), files, c.e.state.Dir())
	if err != nil {
		return err
	}
	for _, x := range c.paths {
		if x.live.Digest.IsZero() {
			x.live = snapshot.File{}
		}
	}
	for _, f := range hashed {
		c.paths[f.Path].live = f
	}
	if !c.staged {
		return nil
	}
	index, err := c.e.git.InIndex(ctx, names)
	if err != nil {
		return err
	}
	for p, x := range c.paths {
		if x.index.IsZero() {
			x.index = index[p]
		}
	}
	return nil
}

// finish turns what was found into a changeset, path by path.
func (c *comparison) finish(ctx context.Context) (*Changed, error) {
	names := make([]string, 0, len(c.paths))
	for p := range c.paths {
		names = append(names, p)
	}
	slices.Sort(names)
	for _, name := range names {
		x := c.paths[name]
		p, err := snapshot.ParsePath(name)
		switch {
		case err != nil:
			c.refuse("%q: its name is no path that a changeset can hold", cut(name))
			continue
		case x.from.Mode == snapshot.ModeGitlink || x.index.Mode == snapshot.ModeGitlink || x.live.Mode == snapshot.ModeGitlink || x.note == "submodule":
			c.refuse("%q: a submodule, or unmerged; settle it by itself", cut(name))
			continue
		case x.note != "" && (x.note == "unreadable" || x.note == "changing" || !x.from.IsZero()):
			c.refuse("%q: %s", cut(name), x.note)
			continue
		case x.note != "":
			c.note("%q is left out: %s", cut(name), x.note)
			continue
		}
		if err := c.path(ctx, p, x); err != nil {
			return nil, fmt.Errorf("read %.200q: %w", name, err)
		}
	}
	if len(c.refused) > 0 {
		return nil, wire.NewError(wire.CodeInvalidInput, wire.FailInput, "the change holds what cannot be judged: "+c.refused[0], strings.Join(firstFew(c.refused, 20), "; "))
	}
	v, err := canon.From(wire.ChangeSet{Baseline: wire.Baseline{Rev: c.rev.Rev()}, Changes: c.changes})
	if err != nil {
		return nil, err
	}
	c.out.Changeset = v
	return &c.out, nil
}

func (c *comparison) refuse(format string, a ...any) {
	c.refused = append(c.refused, fmt.Sprintf(format, a...))
}
func (c *comparison) note(format string, a ...any) {
	c.out.Notes = append(c.out.Notes, fmt.Sprintf(format, a...))
}

// path compares one path.
func (c *comparison) path(ctx context.Context, p snapshot.Path, x *compared) error {
	base := BaseEntry{Path: p, Gone: x.from.IsZero(), Mode: x.from.Mode}
	var err error
	if !base.Gone {
		if base.Digest, base.Size, err = c.e.git.Digest(ctx, x.from); err != nil {
			return err
		}
		base.Open = c.content(x.from)
	}
	after := x.live
	if c.staged {
		if after, err = c.stage(ctx, p, x); err != nil {
			return err
		}
	}
	if base.Gone != x.live.Digest.IsZero() || base.Digest != x.live.Digest || base.Mode != x.live.Mode {
		c.out.Base = append(c.out.Base, base)
	}
	ch := wire.Change{Path: p.String(), Kind: wire.KindModify, Before: wire.BlobRef(base.Digest.Blob()), After: wire.BlobRef(after.Digest.Blob())}
	switch gone := after.Digest.IsZero(); {
	case base.Gone && gone:
		return nil
	case base.Gone:
		ch.Kind, ch.Before = wire.KindCreate, ""
	case gone:
		ch.Kind, ch.After = wire.KindDelete, ""
	case base.Digest == after.Digest:
		if base.Mode != after.Mode {
			c.note("%q differs in its mode only, which a changeset does not tell", cut(p.String()))
		}
		return nil
	}
	c.changes = append(c.changes, ch)
	return nil
}

// stage is what the index makes of a path, with the effect that brings the live
// tree there.
func (c *comparison) stage(ctx context.Context, p snapshot.Path, x *compared) (snapshot.File, error) {
	if x.index.IsZero() {
		if !x.live.Digest.IsZero() {
			c.out.Effects = append(c.out.Effects, snapshot.Effect{Path: p, Gone: true})
		}
		return snapshot.File{}, nil
	}
	d, size, err := c.e.git.Digest(ctx, x.index)
	if err != nil {
		return snapshot.File{}, err
	}
	f := snapshot.File{Path: p.String(), Mode: x.index.Mode, Digest: d}
	if d == x.live.Digest && f.Mode == x.live.Mode {
		return f, nil
	}
	read := c.content(x.index)
	c.out.Effects = append(c.out.Effects, snapshot.Effect{Path: p, Digest: d, Size: size, Mode: f.Mode, Open: func() (snapshot.ReadCloser, error) {
		b, err := read(context.WithoutCancel(ctx))
		return io.NopCloser(bytes.NewReader(b)), err
	}})
	return f, nil
}

func (c *comparison) content(s gitbase.Stored) func(context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) { return c.e.git.Content(ctx, s, editplan.DefaultBlobBytes) }
}

func firstFew(s []string, n int) []string {
	if len(s) <= n {
		return s
	}
	return append(slices.Clone(s[:n]), fmt.Sprintf("and %d more", len(s)-n))
}
