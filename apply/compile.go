package apply

import (
	"context"
	"fmt"
	"io"

	"github.com/aspengine/asp/apply/commit"
	"github.com/aspengine/asp/editplan"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/preconditions"
	"github.com/aspengine/asp/seam/wire"
	"github.com/aspengine/asp/snapshot"
)

// compile turns the net changes into the three forms that later stages need:
// changes for commit, effects for snapshots and scratch trees, a ChangeSet for
// digests and checks; and says what the publish would earn.
func (t *tx) compile(ctx context.Context) (bool, error) {
	if err := t.net(); err != nil {
		return false, err
	}
	if t.place != nil && t.r.Publish == Journal && !t.r.DryRun && !t.r.Index {
		t.place.announce(t.soon())
	}
	t.changeset = wire.ChangeSet{Baseline: t.baseline, Changes: changesetOf(t.adm.Nets)}
	v, err := canon.From(t.changeset)
	if err != nil {
		return false, fmt.Errorf("digest changeset: %w", err)
	}
	t.csDigest = canon.DigestText(v)
	if t.foresees() {
		if t.forecast, err = commit.Forecast(ctx, t.e.env(t.e.extraDirs()), t.changes, commit.Options{}); err != nil {
			return false, fmt.Errorf("look at the file system: %w", err)
		}
	}
	if items, err := t.planGit(ctx); err != nil || len(items) > 0 {
		if err != nil {
			return false, err
		}
		return t.refuse(ctx, items)
	}
	if g, why := t.expected(); g < t.r.RequireGuarantee { // never where nothing was foreseen
		return t.refuse(ctx, refusal.List{refusal.New(refusal.WeakGuarantee, "", -1, "%s was asked for and %s is what can be earned here: %s", t.r.RequireGuarantee, g, why)})
	}
	return false, nil
}

// net makes changes and effects of the net changes, in their order.
func (t *tx) net() error {
	for _, n := range t.adm.Nets {
		c, err := t.change(n)
		if err != nil {
			return err
		}
		t.changes = append(t.changes, c)
		t.effects = append(t.effects, t.effect(n, c))
	}
	t.pair()
	return nil
}

// foresees tells whether what the publish would earn is looked up before it. Publishing
// under a journal looks at all of that itself, so it is done twice only where somebody
// asks for the answer, or where checks would run for a change that cannot be published.
func (t *tx) foresees() bool {
	return t.r.DryRun || t.r.RequireGuarantee > commit.GuaranteeNone || t.r.Publish != Journal || len(t.e.pol.Demands(t.r.CallSite, t.r.Checks)) > 0
}

// pair tells commit which file a new one takes its owner and attributes from:
// the one that leaves its name for it. Where the origin's name is taken by
// another file, as in a swap, each path keeps its own attributes.
func (t *tx) pair() {
	at := make(map[snapshot.Path]int, len(t.changes))
	for i, c := range t.changes {
		at[c.Path] = i
	}
	for i := range t.changes {
		c := &t.changes[i]
		if c.From.IsZero() {
			continue
		}
		j, ok := at[c.From]
		if from := &t.changes[max(j, 0)]; ok && c.Before == nil && from.Before != nil && from.After == nil && (from.MovedTo.IsZero() || from.MovedTo == c.Path) {
			from.MovedTo = c.Path
			continue
		}
		c.From = snapshot.Path{}
	}
}

// expected is what a publish now would earn, by the mode asked for, under the
// ceiling of the trusted configuration.
func (t *tx) expected() (commit.Guarantee, string) {
	g, why := t.forecast.Guarantee(), t.forecast.Detail()
	switch {
	case len(t.changes) == 0:
		return commit.GuaranteeNone, "the plan changes nothing"
	case t.r.Publish == Stage:
		g, why = t.e.stageForecast()
	case t.r.Publish == Exchange:
		g, why = t.e.exchangeForecast()
	}
	return t.e.ceiling(g), why
}

// ceiling lowers a guarantee to what the configuration lets be claimed.
func (e *Engine) ceiling(g commit.Guarantee) commit.Guarantee {
	if c, ok := commit.ParseGuarantee(string(e.cfg.Ceiling)); ok && e.cfg.Ceiling != "" && c < g {
		return c
	}
	return g
}

// change is one net change in the words of commit.
func (t *tx) change(n editplan.Net) (commit.Change, error) {
	c := commit.Change{Path: n.Path, MovedTo: n.MovedTo}
	if f := t.adm.Fact(n.Path); n.Before.Kind == editplan.IsFile || n.Before.Kind == editplan.IsSymlink {
		c.Before = imageOf(f)
	}
	if n.After.Kind == editplan.Absent {
		return c, nil
	}
	c.From = n.From
	after := &commit.Image{Kind: vfs.KindFile, Digest: n.After.Digest, Size: n.After.Size}
	if n.After.Kind == editplan.IsSymlink {
		after.Kind = vfs.KindSymlink
	}
	origin := t.adm.Fact(n.Path)
	if !n.From.IsZero() {
		origin = t.adm.Fact(n.From)
	}
	switch {
	case n.Made && n.Before.Kind == editplan.IsFile:
		// A created file in the place of another has the permissions that were given
		// to the name, never wider ones, but is executable only if the plan says so.
		after.Perm = withMode(origin.Stat.Perm&0o666, n.Mode)
	case !n.Made:
		after.Perm = withMode(origin.Stat.Perm, n.Mode)
	default:
		after.Perm, after.UmaskApplies = 0o666, true
		if n.Mode == editplan.ModeExec {
			after.Perm = 0o777
		}
	}
	if p, ok := t.r.Perms[n.Path.String()]; ok {
		after.Perm, after.UmaskApplies = p, false
	}
	switch n.Content {
	case editplan.ContentBlob:
		b := t.adm.Plan.Blobs[n.After.Digest]
		after.Open, after.Size = opener(b), int64(len(b))
	case editplan.ContentEdits:
		after.Open, after.Size = opener(n.Bytes), int64(len(n.Bytes))
	case editplan.ContentLive:
		switch {
		case n.Moved:
		case after.Kind == vfs.KindSymlink:
			after.Open = opener([]byte(origin.Target))
		default:
			after.Open = t.liveOpener(n.From)
		}
		after.Size = origin.Stat.Size
	case editplan.ContentSame:
		after.Size = origin.Stat.Size
	default:
		return c, fmt.Errorf("net change of %.200q has no content", n.Path)
	}
	c.After = after
	return c, nil
}

// liveOpener reads the bytes that are at p now; whoever reads them compares
// their digest.
func (t *tx) liveOpener(p snapshot.Path) func() (io.ReadCloser, error) {
	live := snapshot.NewLive(t.e.root)
	return func() (io.ReadCloser, error) { return live.Open(p) }
}

func imageOf(f *preconditions.Fact) *commit.Image {
	return &commit.Image{Kind: f.Stat.Kind, Digest: f.Digest, Size: f.Stat.Size, Perm: f.Stat.Perm, Stat: f.Stat}
}

// withMode sets or clears the execute bits: set where reading is allowed, as
// git and chmod +x do under a common umask.
func withMode(perm uint32, m editplan.ModeChange) uint32 {
	switch m {
	case editplan.ModeExec:
		return perm | perm&0o444>>2
	case editplan.ModePlain:
		return perm &^ 0o111
	}
	return perm
}

func (t *tx) effect(n editplan.Net, c commit.Change) snapshot.Effect {
	e := snapshot.Effect{Path: n.Path}
	if c.After == nil {
		e.Gone = true
		return e
	}
	e.Digest, e.Size, e.Mode = c.After.Digest, c.After.Size, snapshot.ModeRegular
	if c.After.Kind == vfs.KindSymlink {
		e.Mode = snapshot.ModeSymlink
	} else if c.After.Perm&0o100 != 0 {
		e.Mode = snapshot.ModeExecutable
	}
	open := c.After.Open
	if open == nil {
		from := n.Path
		if !n.From.IsZero() {
			from = n.From
		}
		if target := t.adm.Fact(from).Target; e.Mode == snapshot.ModeSymlink {
			open = opener([]byte(target))
		} else {
			open = t.liveOpener(from)
		}
	}
	e.Open = func() (snapshot.ReadCloser, error) { return open() }
	return e
}

// changesetOf lists the net changes as the protocol's ChangeSet does: a move is
// one rename, with its after always present.
func changesetOf(nets []editplan.Net) []wire.Change {
	moved := map[snapshot.Path]bool{}
	was := map[snapshot.Path]snapshot.Digest{}
	for _, n := range nets {
		was[n.Path] = n.Before.Digest
		if isRename(n) {
			moved[n.From] = true
		}
	}
	out := []wire.Change{}
	for _, n := range nets {
		c := wire.Change{Path: n.Path.String()}
		before := n.Before.Kind == editplan.IsFile || n.Before.Kind == editplan.IsSymlink
		if before {
			c.Before = wire.BlobRef(n.Before.Digest.Blob())
		}
		if n.After.Kind != editplan.Absent {
			c.After = wire.BlobRef(n.After.Digest.Blob())
		}
		switch {
		case n.After.Kind == editplan.Absent && moved[n.Path]:
			continue
		case n.After.Kind == editplan.Absent && !before:
			continue
		case n.After.Kind == editplan.Absent:
			c.Kind = wire.KindDelete
		case isRename(n):
			c.Kind, c.From = wire.KindRename, n.From.String()
			c.Before = wire.BlobRef(was[n.From].Blob())
		case before:
			c.Kind = wire.KindModify
		default:
			c.Kind = wire.KindCreate
		}
		out = append(out, c)
	}
	return out
}

// isRename tells whether a net change is shown as a rename: the file came from
// a path that it left, and nothing was at its new one.
func isRename(n editplan.Net) bool { return !n.From.IsZero() && n.Before.Kind == editplan.Absent }
