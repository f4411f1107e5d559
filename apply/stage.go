package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/aspengine/asp/apply/commit"
	"github.com/aspengine/asp/editplan"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/preconditions"
	"github.com/aspengine/asp/receipt"
	"github.com/aspengine/asp/seam/wire"
	"github.com/aspengine/asp/snapshot"
)

// foresee computes the baseline that the after-state has.
func (t *tx) foresee(ctx context.Context) error {
	if t.after != nil {
		return nil
	}
	b, err := t.e.ws.After(ctx, t.stamp, t.effects)
	if err != nil {
		return fmt.Errorf("baseline of the after-state: %w", err)
	}
	t.after = wireBaseline(b, t.e.now())
	return nil
}

func wireBaseline(b snapshot.Baseline, at time.Time) *wire.Baseline {
	return &wire.Baseline{Rev: b.Rev, Dirty: b.Dirty, StampedAt: receipt.Time(at)}
}

// stagedName is the file that holds a staged proposal.
func stagedName(id string) string { return snapshot.DigestOf([]byte(id)).Hex() + ".json" }

// stageSnapshot keeps the after-state as a content-addressed snapshot: the bytes
// of every changed path in one pack, the plan that leads there, and a receipt
// that names all of it by digest. The workspace is not touched.
func (t *tx) stageSnapshot(ctx context.Context) (bool, error) {
	if err := t.foresee(ctx); err != nil {
		return t.unlessMoved(ctx, err)
	}
	w, err := t.e.packs.Begin(t.txid)
	if err != nil {
		return false, fmt.Errorf("keep after-state: %w", err)
	}
	defer w.Close()
	for _, ef := range t.effects {
		if ef.Gone {
			continue
		}
		r, err := ef.Open()
		if err != nil {
			return t.unlessMoved(ctx, fmt.Errorf("keep after-state of %.200q: %w", ef.Path, err))
		}
		err = errors.Join(w.Add(ef.Digest, ef.Size, r), r.Close())
		if err != nil {
			return t.unlessMoved(ctx, fmt.Errorf("keep after-state of %.200q: %w", ef.Path, err))
		}
	}
	if err := w.Finish(); err != nil {
		return false, fmt.Errorf("keep after-state: %w", err)
	}
	t.packed = true
	undo := func(err error) error {
		t.dropPack()
		return err
	}
	if err := w.Sync(); err != nil {
		return false, undo(fmt.Errorf("sync after-state: %w", err))
	}
	if err := t.verify(ctx); err != nil {
		return false, undo(fmt.Errorf("read after-state back: %w", err))
	}
	bundle, err := t.file.Encode()
	if err != nil {
		return false, undo(err)
	}
	v, err := canon.Parse(bundle, canon.Limits{Bytes: len(bundle), Depth: 80})
	if err != nil {
		return false, undo(err)
	}
	kept := canon.ObjectOf(canon.Member{Key: "format", Value: canon.IntOf(1)}, canon.Member{Key: "transaction", Value: canon.StringOf(t.txid)}, canon.Member{Key: "file", Value: v})
	dir, err := t.e.state.Sub(home.Staged)
	if err != nil {
		return false, undo(err)
	}
	if t.r.Ref != "" {
		items, err := t.commitRef(ctx)
		if err != nil || len(items) > 0 {
			t.dropPack()
			if err != nil {
				return t.unlessMoved(ctx, err)
			}
			return t.refuse(ctx, items)
		}
	}
	defer t.abandonRef() // nothing to do once the receipt is stored
	_ = home.CleanTemp(dir)
	b := t.e.receipts.Batch()
	if err := b.WriteFile(dir, stagedName(t.plan.ID), kept.Bytes()); err != nil {
		return false, undo(err)
	}
	t.stagedOK = true
	e, err := t.entry(receipt.Staged)
	if err != nil {
		return false, err
	}
	if err := t.store(ctx, e); err != nil {
		return false, err
	}
	t.refs.decided = true
	if err := t.e.receipts.Sync(home.WholeFS); err != nil {
		return false, fmt.Errorf("sync staged snapshot: %w", err)
	}
	if err := t.publishRef(context.WithoutCancel(ctx)); err != nil {
		return false, err
	}
	t.e.issue(snapshot.Baseline{Rev: t.after.Rev, Dirty: t.after.Dirty}, t.started)
	t.e.expireStaged()
	t.collect()
	return true, nil
}

// staged is what a staged answer may claim: set only when blobs were synced.
func (t *tx) staged() (commit.Guarantee, string) {
	if !t.stagedOK {
		return commit.GuaranteeNone, "nothing was staged"
	}
	g, where := t.e.stateFacts()
	why := "the after-state is kept as content-addressed blobs, synced and read back, and every byte is compared with its digest again when it is published; the workspace was not touched; " + where
	if t.refMade != "" {
		why = "commit " + t.refMade + " was put on " + t.r.Ref + " by compare-and-swap; " + why
	}
	return g, why
}

// stageForecast is what staging would earn.
func (e *Engine) stageForecast() (commit.Guarantee, string) {
	g, where := e.stateFacts()
	return g, "expected, not earned yet: content-addressed snapshot under the state directory; " + where
}

// stateFacts judges the file system that a snapshot is kept on. What makes a
// snapshot is its content address, not the medium: a blob that a power cut tore
// is found by its digest and never published, so a file system of this machine
// is enough, and the sentence says what the medium does. Of a file system that
// others can write to, or that is not known, not even that is claimed.
func (e *Engine) stateFacts() (commit.Guarantee, string) {
	m, err := commit.ProbeMount(e.state.Dir())
	switch {
	case err != nil:
		return commit.RollbackAttempted, "the file system of the state directory could not be looked at"
	case m.Ordered && m.Barriers:
		return commit.StagedSnapshot, "the state directory is on " + m.Type
	case m.Type == "ext4", m.Type == "tmpfs", m.Type == "xfs", m.Type == "btrfs":
		return commit.StagedSnapshot, "the state directory is on " + m.Type + ", where a power cut can lose the snapshot (" + m.Why + "), which is then found and refused"
	}
	return commit.RollbackAttempted, "the state directory is on " + m.Type + ": " + m.Why
}

// verify reads a pack back: what is claimed to be kept is compared with its
// digests once, where it lies.
func (t *tx) verify(ctx context.Context) error {
	for _, ef := range t.effects {
		if ef.Gone {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		r, _, err := t.e.packs.Get(ef.Digest)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, r)
		if err = errors.Join(err, r.Close()); err != nil {
			return err
		}
	}
	return nil
}

// publishedSuffix marks a staged proposal that was published: kept for a while,
// so that a repeated publish gets the first answer.
const publishedSuffix = ".published"

// stagedByAnother refuses to stage a plan under an id under which another provider's
// waits: it would take its place, and publish would be of the wrong one.
func (t *tx) stagedByAnother() refusal.List {
	if t.r.Publish != Stage {
		return nil
	}
	f, items, err := t.e.loadStaged(t.plan.ID)
	if dir, derr := t.e.state.Sub(home.Staged); err == nil && derr == nil {
		_, err = dir.Lstat(stagedName(t.plan.ID)) // not one that was published
	}
	if err != nil || len(items) > 0 {
		return nil // what cannot be read is replaced
	}
	p, _ := f.Proposal.Get("provider")
	if id, _ := p.Get("id"); id.Str() != t.plan.Provider {
		return refusal.List{refusal.New(refusal.IDReuse, "", -1, "a plan of %q is staged under %q already; publish that first, or give this one an id of its own", cut(id.Str()), cut(t.plan.ID))}
	}
	return nil
}

// Waiting is a staged proposal that nobody has published yet.
type Waiting struct{ ProposalID, Receipt string }

// stagedNow lists them by what their receipts say, which are read only where something is
// kept.
func (e *Engine) stagedNow(ctx context.Context) ([]Waiting, error) {
	dir, err := e.state.Sub(home.Staged)
	if err != nil {
		return nil, err
	}
	es, err := dir.List()
	if err != nil {
		return nil, fmt.Errorf("list what is staged: %w", err)
	}
	kept := map[string]bool{}
	for _, x := range es {
		if strings.HasSuffix(x.Name, ".json") && !strings.HasPrefix(x.Name, home.TempPrefix) {
			kept[x.Name] = true
		}
	}
	if len(kept) == 0 {
		return nil, nil
	}
	all, err := e.receipts.List(ctx)
	if err != nil {
		return nil, err
	}
	var out []Waiting
	for _, r := range slices.Backward(all) {
		if n := stagedName(r.ProposalID); r.Outcome == receipt.Staged && kept[n] {
			delete(kept, n) // the newest of an id is what is kept
			out = append(out, Waiting{r.ProposalID, r.ReceiptID})
		}
	}
	slices.SortFunc(out, func(a, b Waiting) int { return cmp.Compare(a.ProposalID, b.ProposalID) })
	return out, nil
}

// StagedForecast says what staging would earn here, and why.
func (e *Engine) StagedForecast() (commit.Guarantee, string) { return e.stateFacts() }

// loadStaged gives the plan of a staged proposal, published or not. One that is
// not kept is a refusal.
func (e *Engine) loadStaged(id string) (editplan.File, refusal.List, error) {
	dir, err := e.state.Sub(home.Staged)
	if err != nil {
		return editplan.File{}, nil, err
	}
	name := stagedName(id)
	b, err := home.ReadFile(dir, name, maxStaged)
	if errors.Is(err, fs.ErrNotExist) {
		b, err = home.ReadFile(dir, name+publishedSuffix, maxStaged)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return editplan.File{}, refusal.List{refusal.New(refusal.UnknownProposal, "", -1, "no proposal %q is staged for this workspace; stage one with `asp apply --stage`", cut(id))}, nil
	}
	if err != nil {
		return editplan.File{}, nil, fmt.Errorf("read staged proposal %.200q: %w", id, err)
	}
	v, err := canon.Parse(b, canon.Limits{Bytes: 2 * maxStaged, Depth: 90})
	if err != nil {
		return editplan.File{}, nil, e.damagedPlan(home.Staged, name, err)
	}
	if err := formatOne(v); err != nil {
		return editplan.File{}, nil, fmt.Errorf("read staged proposal %.200q: %w", id, err)
	}
	f, ok := v.Get("file")
	if !ok {
		return editplan.File{}, nil, e.damagedPlan(home.Staged, name, errors.New("no plan in it"))
	}
	file, items := editplan.Decode(f.Bytes(), planLimits(e.cfg))
	if p, _ := file.Proposal.Get("proposalId"); len(items) == 0 && p.Str() != id {
		return editplan.File{}, nil, e.damagedPlan(home.Staged, name, fmt.Errorf("it holds %.100q", p.Str()))
	}
	return file, items, nil
}

var errDamagedPlan = errors.New("is damaged")

// damagedPlan is the error of a plan whose file under the state directory is not what
// was written there. A plan is made again, not mended.
func (e *Engine) damagedPlan(kind, name string, err error) error {
	again := "stage the change again (asp apply --stage), which makes a file of its own"
	if kind == home.Proposals {
		again = "make the plan again (asp plan, asp fix or the provider)"
	}
	return fmt.Errorf("the file %q %w: %w; nothing in the workspace is changed: %s, and remove this one", e.state.Path(kind+"/"+name), errDamagedPlan, err, again)
}

// formatOne refuses what a later program wrote (docs/formats.md, Version rule).
func formatOne(v canon.Value) error {
	f, _ := v.Get("format")
	if n, ok := f.Int(); ok && n > 1 {
		return fmt.Errorf("format %d is newer than this program", n)
	}
	return nil
}

// maxStaged bounds a staged plan with its content, in bytes.
const maxStaged = 1 << 30

// PublishStaged brings a staged snapshot into the workspace, re-validated from
// the start like any plan.
func (e *Engine) PublishStaged(ctx context.Context, id string, r Request) (*Answer, error) {
	r.Load = func(context.Context, *View, snapshot.Baseline) (editplan.File, refusal.List, error) {
		return e.loadStaged(id)
	}
	r.AsProposal, r.Origin, r.staged = id, Kept, true
	a, err := e.Apply(ctx, r)
	if err == nil && a.Result != nil && a.Result.Applied && !a.Repeated {
		if dir, derr := e.state.Sub(home.Staged); derr == nil {
			_ = dir.Rename(stagedName(id), dir, stagedName(id)+publishedSuffix, vfs.Replace) // a left-over pins its blobs, no more
			_ = keepNewest(dir, publishedSuffix, maxProposals, maxProposalsBytes)
		}
	}
	return a, err
}

// mayMerge says where the plan may be merged with files that moved: everywhere if the
// request allows it, and in what was staged as a merge with the very bytes that are
// there, for that is the after-state that was kept and checked.
func (t *tx) mayMerge(ctx context.Context, in *preconditions.Input) error {
	if t.r.Merge {
		in.Base = t.e.baseContent(t.file)
		return nil
	}
	if !t.r.staged {
		return nil
	}
	prev, err := t.e.receipts.Lookup(ctx, t.plan.Provider, t.plan.ID)
	if err != nil || prev.Staged == nil {
		return err
	}
	v, ok := prev.Staged.Evidence.Get("merged")
	if !ok {
		return nil
	}
	var rec struct {
		Merged []MergeRecord `json:"merged"`
	}
	if err := wire.Decode(canon.ObjectOf(canon.Member{Key: "merged", Value: v}), &rec); err != nil {
		return fmt.Errorf("read evidence of receipt %s: %w", prev.Staged.Receipt.ReceiptID, err)
	}
	in.Base, in.MergeOnly = t.e.baseContent(t.file), map[snapshot.Path]snapshot.Digest{}
	for _, m := range rec.Merged {
		p, perr := snapshot.ParsePath(m.Path)
		found, derr := snapshot.ParseBlob(m.Found)
		if _, later := in.MergeOnly[p]; perr != nil || derr != nil || later {
			continue // of one path the first merge is with what was on disk
		}
		in.MergeOnly[p] = found
	}
	return nil
}

// Bounds on staged proposals that nobody published. The newest always stays.
const (
	stagedDays = 30 // default of retention.stagedDays
	maxStagedN = 64
)

// expireStaged forgets the staged proposals that are too old, too many, or too
// large together, oldest first, and returns the transactions whose packs hold
// the others. Without the caller's lock only our own proposals could go.
func (e *Engine) expireStaged() map[string]bool {
	pins := map[string]bool{}
	dir, err := e.state.Sub(home.Staged)
	if err != nil {
		return pins
	}
	es, err := dir.List()
	if err != nil {
		return pins
	}
	type aged struct {
		name  string
		mtime int64
	}
	var all []aged
	for _, x := range es {
		if st, err := dir.Lstat(x.Name); err == nil && strings.HasSuffix(x.Name, ".json") {
			all = append(all, aged{x.Name, st.Mtime})
		}
	}
	slices.SortFunc(all, func(a, b aged) int { return cmp.Compare(b.mtime, a.mtime) })
	sizes := map[string]int64{}
	if packs, err := e.packs.Packs(); err == nil {
		for _, p := range packs {
			sizes[p.TxID] = p.Size
		}
	}
	days := e.cfg.Retention.StagedDays
	if days <= 0 {
		days = stagedDays
	}
	oldest := e.now().Add(-time.Duration(days) * 24 * time.Hour).UnixNano()
	room := e.cfg.Retention.BlobBytes
	if room <= 0 {
		room = 1 << 30 // as the store's own
	}
	for i, x := range all {
		id := e.stagedTransaction(dir, x.name)
		room -= sizes[id]
		if i > 0 && (i >= maxStagedN || x.mtime < oldest || room < 0) {
			_ = dir.Unlink(x.name) // one too many costs space, no more
			continue
		}
		pins[id] = true
	}
	return pins
}

// stagedTransaction reads which pack a staged proposal rests on.
func (e *Engine) stagedTransaction(dir vfs.Dir, name string) string {
	b, err := home.ReadFile(dir, name, maxStaged)
	if err != nil {
		return ""
	}
	v, err := canon.Parse(b, canon.Limits{Bytes: 2 * maxStaged, Depth: 90})
	if err != nil {
		return ""
	}
	id, _ := v.Get("transaction")
	return id.Str()
}
