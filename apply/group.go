package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aspengine/asp/apply/commit"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/internal/lock"
	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/preconditions"
	"github.com/aspengine/asp/receipt"
	"github.com/aspengine/asp/snapshot"
)

// Several applies of one host that wait for one workspace, and whose plans do not come
// near each other, are carried out together: whoever has the workspace takes those
// directly behind it along, in their order, and publishes all of them under one journal, by
// the barriers of one. Each is loaded, held against the disk, decided and answered by
// itself, and has its own receipt in the chain, with the baselines that it would have
// had in its turn. Nobody is told anything before the one commit record is durable, so
// that a crash may take all of them back or complete all of them.
//
// A group is no promise. Whatever does not go as in the plain case, from a plan that is
// refused to a swap that finds other bytes, is undone, forgotten and done again one by one.
const (
	maxGroup        = 16      // members
	maxGroupChanges = 256     // paths
	maxGroupBytes   = 8 << 20 // of what is replaced and of what comes
	maxGroupTag     = 3 << 10
)

// errAlone ends an attempt to take somebody along: it has to wait for its own turn.
var errAlone = errors.New("not in a group")

// member is an apply that waits for the workspace and may be taken along by the one who
// has it. Safe for concurrent use.
type member struct {
	e       *Engine // not used by its own goroutine while it waits
	r       Request
	ctx     context.Context
	started time.Time
	waits   context.Context // ends when somebody else answered
	stop    context.CancelFunc

	mu     sync.Mutex
	state  memberState
	free   chan struct{} // closed when who took it lets go of it
	answer *Answer
	err    error
}

type memberState uint8

const (
	inLine   memberState = iota
	onItsOwn             // nobody may take it any more
	taken
	settledByOther
)

// offer makes a member of a request that may be carried out in a group; nil for others.
func (e *Engine) offer(ctx context.Context, r Request, started time.Time) *member {
	if e.git == nil || e.o.Shares == nil || !joinable(r) {
		return nil
	}
	m := &member{e: e, r: r, ctx: ctx, started: started}
	m.waits, m.stop = context.WithCancel(ctx)
	return m
}

// joinable tells what of a request is known before its plan is read. What a group earns is
// the least of what its members would, so who asks for a guarantee goes alone.
func joinable(r Request) bool {
	return r.RequireGuarantee == commit.GuaranteeNone && r.Publish == Journal && !r.DryRun && !r.Index && !r.staged && r.undo == nil && r.Undoes == "" && len(r.Perms) == 0 && r.Show == nil && len(r.Checks) == 0 && !r.VerifyContent
}

// take claims the member for who has the workspace, who calls let or settle then.
func (m *member) take() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.state != inLine || m.ctx.Err() != nil {
		return false
	}
	m.state, m.free = taken, make(chan struct{})
	return true
}

// let gives the member back: it waits for its turn as if nothing had been.
func (m *member) let() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state = inLine
	close(m.free)
}

// settle answers for the member.
func (m *member) settle(a *Answer, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state, m.answer, m.err = settledByOther, a, err
	close(m.free)
	m.stop()
}

// end is called by the member itself, when it has waited enough. Answered or not, nobody
// takes it from then on.
func (m *member) end() (answered bool) {
	if m == nil {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.state == taken {
		free := m.free
		m.mu.Unlock()
		<-free
		m.mu.Lock()
	}
	if m.state == inLine {
		m.state = onItsOwn
		m.stop()
	}
	return m.state == settledByOther
}

// queue waits for the workspace. The member is there, and the lock is not, if somebody who
// had it answered in the meantime.
func (e *Engine) queue(ctx context.Context, r Request, started time.Time) (*lock.Lock, *member, error) {
	m := e.offer(ctx, r, started)
	if m == nil {
		lk, err := e.line.Acquire(ctx, e.ws.LockDir())
		return lk, nil, err
	}
	lk, err := e.line.AcquireFor(m.waits, e.ws.LockDir(), m)
	if !m.end() {
		return lk, nil, err
	}
	if lk != nil {
		_ = lk.Unlock() // the descriptors of a lock that was not used
	}
	return nil, m, nil
}

// joins tells whether the compiled plan may be part of a group: it does plain things, and
// nobody else has a say in it.
func (t *tx) joins() bool {
	if !joinable(t.r) || len(t.changes) == 0 || len(t.adm.Merges) > 0 || len(t.e.pol.Demands(t.r.CallSite, t.r.Checks)) > 0 {
		return false
	}
	for i, n := range t.adm.Nets {
		p := n.Path.String()
		if !n.From.IsZero() || !n.MovedTo.IsZero() || rules(p) || strings.HasPrefix(p, ".asp/") || t.changes[i].From != (snapshot.Path{}) {
			return false
		}
	}
	return true
}

// weight is what the changes amount to, in bytes.
func (t *tx) weight() (n int64) {
	for _, c := range t.changes {
		for _, i := range []*commit.Image{c.Before, c.After} {
			if i != nil {
				n += i.Size
			}
		}
	}
	return n
}

// replaced is how much of that goes, and is kept for an undo.
func (t *tx) replaced() (n int64) {
	for _, c := range t.changes {
		if c.Before != nil {
			n += c.Before.Size
		}
	}
	return n
}

// group is a leader, who has the workspace, and those it took along, in order.
type group struct {
	all     []*tx
	of      []*member // of all[1:]
	changes []commit.Change
	effects []snapshot.Effect
	taken   *ground
	ids     map[[2]string]bool
	tag     int   // bytes
	bytes   int64 // of all images
	// replaced are those of them that are kept for an undo.
	replaced int64
}

// add takes a compiled plan in, unless it comes too near to the others.
func (g *group) add(t *tx) bool {
	id := [2]string{t.plan.Provider, t.plan.ID}
	tag := canon.StringOf(valid(t.tag())).Bytes() // in which a control character is six bytes
	replaced := t.replaced()
	if len(g.all) >= maxGroup || len(g.changes)+len(t.changes) > maxGroupChanges || g.bytes+t.weight() > maxGroupBytes ||
		g.tag+len(tag) > maxGroupTag || g.ids[id] {
		return false
	}
	if keep := storeLimits(t.e.cfg).MaxBytes; keep > 0 && g.replaced+replaced > keep {
		return false // one pack of them would not be kept, and one for each is
	}
	var paths []snapshot.Path
	for _, c := range t.changes {
		paths = append(paths, c.Path)
	}
	if g.taken.meets(paths) {
		return false
	}
	g.taken.add(paths)
	g.ids[id] = true
	g.tag += len(tag) + 1
	g.bytes += t.weight()
	g.replaced += replaced
	g.all = append(g.all, t)
	g.changes = append(g.changes, t.changes...)
	g.effects = append(g.effects, t.effects...)
	slices.SortFunc(g.effects, func(a, b snapshot.Effect) int { return strings.Compare(a.Path.String(), b.Path.String()) })
	return true
}

// gather takes along who stands directly behind, as far as they can come; nil where
// nobody does. The group is a beginning of the line, so the order of arrival holds.
func (t *tx) gather(ctx context.Context) (*group, error) {
	if t.e.git == nil || t.e.o.Shares == nil || t.lock == nil || !t.joins() {
		return nil, nil
	}
	behind := t.lock.Behind()
	if len(behind) == 0 {
		return nil, nil
	}
	g := &group{taken: newGround(), ids: map[[2]string]bool{}}
	if !g.add(t) {
		return nil, nil
	}
	if err := t.foresee(ctx); err != nil {
		return nil, err
	}
	for _, who := range behind {
		m, ok := who.(*member)
		if !ok || m.e.git != t.e.git || m.e.pol.Digest != t.e.pol.Digest || !m.take() {
			break
		}
		if !g.join(m) {
			m.let()
			break
		}
	}
	if len(g.of) == 0 {
		return nil, nil
	}
	return g, nil
}

// join runs the stages of a member up to its decision, against the disk as it is, which
// the changes of those before do not touch where this one looks. Nothing is kept of an
// attempt that comes to nothing.
func (g *group) join(m *member) bool {
	lead, prev := g.all[0], g.all[len(g.all)-1]
	t := &tx{e: m.e, r: m.r, started: m.started, txid: lead.txid, trial: true, stamp: lead.stamp}
	ok := false
	defer func() {
		if !ok {
			t.closeView()
		}
	}()
	// A tree that was exchanged since it opened the workspace is another one; in its turn
	// it opens it again.
	mine, err := m.e.root.Stat()
	theirs, lerr := lead.e.root.Stat()
	if err != nil || lerr != nil || !mine.SameFile(theirs) {
		return false
	}
	t.answer.Attention = lead.answer.Attention
	t.answer.Notes = append(t.answer.Notes, lead.attentionNotes()...)
	// Given out when it has come to be, which it may not.
	t.baseline = *wireBaseline(snapshot.Baseline{Rev: prev.after.Rev, Dirty: prev.after.Dirty}, m.started)
	if t.view, err = preconditions.NewView(m.e.root, m.e.protected()); err != nil {
		return false
	}
	for _, stage := range []func(context.Context) (bool, error){t.load, t.fresh, t.authorize, t.admit, t.compile, t.check} {
		if done, err := stage(m.ctx); done || err != nil {
			return false
		}
	}
	// What a plan rests on beside its paths may be what one before it changes.
	if !t.joins() || t.restsOnMore() || !g.add(t) {
		return false
	}
	after, err := m.e.ws.After(m.ctx, lead.stamp, g.effects)
	if err != nil {
		g.drop()
		return false
	}
	t.after = wireBaseline(after, m.e.now())
	t.trial, ok = false, true
	g.of = append(g.of, m)
	return true
}

// drop forgets the last one that was added. The ground that it took stays taken, which
// keeps others out for no reason and does no harm: nobody is added behind it.
func (g *group) drop() {
	t := g.all[len(g.all)-1]
	g.all = g.all[:len(g.all)-1]
	g.changes = g.changes[:len(g.changes)-len(t.changes)]
	g.effects = slices.DeleteFunc(g.effects, func(e snapshot.Effect) bool {
		return slices.ContainsFunc(t.changes, func(c commit.Change) bool { return c.Path == e.Path })
	})
}

// restsOnMore tells whether the plan says that something is current besides the content
// that its operations find at their paths.
func (t *tx) restsOnMore() bool {
	own := map[snapshot.Digest]bool{}
	for _, op := range t.plan.Ops {
		own[op.Expected] = true
	}
	return slices.ContainsFunc(t.plan.ValidAsOf, func(d snapshot.Digest) bool { return !own[d] })
}

// publish carries all of them out by one transaction. alone: it came to nothing, the
// disk is as it was, and the leader goes on by itself.
func (g *group) publish(ctx context.Context) (alone bool, err error) {
	t := g.all[0]
	settled := false
	defer func() {
		for i, x := range g.all[1:] {
			x.closeView()
			if !settled {
				g.of[i].let()
			}
		}
	}()
	var tags []string
	for _, x := range g.all {
		x.together = len(g.all)
		tags = append(tags, x.tag())
	}
	forget := func() {
		for _, x := range g.all {
			x.sealed, x.facts, x.together = nil, nil, 0
		}
		t.after, t.kept = nil, nil
		t.dropPack()
	}
	if err := g.pack(ctx); err != nil {
		forget()
		return true, nil // alone it says what is wrong
	}
	o := commit.Options{
		Tag: groupTag(tags), Several: len(g.all),
		Recheck: func(ctx context.Context) (refusal.List, error) {
			t.e.o.Before("swap")
			if err := g.deserted(); err != nil {
				return nil, err
			}
			var all refusal.List
			for _, x := range g.all {
				items, err := x.adm.Recheck(ctx)
				if err != nil {
					return nil, err
				}
				all = append(all, items...)
			}
			return all, nil
		},
		Seal: g.seal,
		AfterCommit: func(ctx context.Context, _ []byte, f commit.Facts) error {
			var all []*receipt.Stored
			for _, x := range g.all {
				st, err := t.e.appendEntry(ctx, *x.sealed)
				if err != nil {
					return err
				}
				all = append(all, st)
			}
			if err := t.e.syncEntries(t.txid, f.Style); err != nil {
				return err
			}
			for i, x := range g.all {
				x.stored = all[i]
			}
			return nil
		},
		Step: func(name string) { t.e.o.Before(name) },
	}
	res, err := commit.Run(ctx, t.e.env(t.e.extraDirs()), t.txid, g.changes, o)
	switch res.Outcome {
	case commit.Committed:
	case commit.NeedsAttention:
		// Those who were taken along recover in their turn, as who comes after any crash,
		// and are told what is so then.
		forget()
		t.answer.Attention = res.Paths
		return false, t.undecided("", err)
	default:
		forget()
		if err == nil || g.leftNothing(ctx, res) {
			return true, nil
		}
		if res.Outcome == commit.RolledBack {
			err = &rolledBack{err}
		}
		return false, err
	}
	for _, x := range g.all {
		x.facts = &res.Facts
		x.answer.Notes = append(x.answer.Notes, res.Notes...)
		if err != nil {
			x.left = err
			x.answer.Notes = append(x.answer.Notes, "applied, and left for recovery to tidy: "+err.Error())
		}
	}
	settled = true
	for i, x := range g.all[1:] {
		x.e.issue(snapshot.Baseline{Rev: x.baseline.Rev, Dirty: x.baseline.Dirty}, x.started)
		x.adoptSealed()
		x.closeView()
		g.of[i].settle(&x.answer, nil)
	}
	t.last = g.all[len(g.all)-1].after
	return false, nil
}

// deserted is an error where somebody who was taken along has cancelled: until the
// commit record is written that changes nothing of its own.
func (g *group) deserted() error {
	for _, m := range g.of {
		if err := m.ctx.Err(); err != nil {
			return fmt.Errorf("one of those who were taken along: %w", err)
		}
	}
	return nil
}

// leftNothing tells whether an attempt that ended with an error may be forgotten: it was
// the doing of the leader alone that it ended, or a sync failed, or something of it is
// left. A failed sync is told and not tried again; all others may be of one member.
func (g *group) leftNothing(ctx context.Context, res commit.Result) bool {
	if ctx.Err() != nil || len(res.Facts.Failed) > 0 {
		return false
	}
	open, err := g.all[0].e.openTransactions()
	return err == nil && !slices.Contains(open, g.all[0].txid)
}

// pack keeps the pre-images of all in the one pack of the transaction.
func (g *group) pack(ctx context.Context) error {
	lead := g.all[0]
	w, err := lead.e.packs.Begin(lead.txid)
	if err != nil {
		return err
	}
	defer w.Close()
	n := 0
	for _, x := range g.all {
		k, err := x.packInto(ctx, w)
		if err != nil {
			return err
		}
		if n += k; k > 0 {
			defer func() { x.packed = true }()
		}
	}
	if n == 0 {
		return nil
	}
	lead.packed = true // so that it is dropped, should this come to nothing
	return w.Finish()
}

// seal makes the receipts, in their order, and the evidence of the commit record.
func (g *group) seal(_ context.Context, f commit.Facts) ([]byte, error) {
	if err := g.deserted(); err != nil {
		return nil, err
	}
	var all []canon.Value
	for _, x := range g.all {
		x.facts = &f
		e, err := x.entry(receipt.Applied)
		if err != nil {
			return nil, err
		}
		x.sealed = &e
		v, err := evidenceValue(x.sealed, x.txid)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return canon.ObjectOf(canon.Member{Key: "group", Value: canon.ArrayOf(all...)}).Bytes(), nil
}

// A journal of several proposals names them in its tag as an array behind a byte with
// which no tag of a single one begins.
const groupMark = "\n"

func groupTag(ids []string) string {
	var vs []canon.Value
	for _, id := range ids {
		vs = append(vs, canon.StringOf(valid(id)))
	}
	return groupMark + string(canon.ArrayOf(vs...).Bytes())
}

// Proposals are those that the tag of a transaction names, one at least: what
// commit.AttentionPath says of it is so of each.
func Proposals(tag string) []string {
	rest, ok := strings.CutPrefix(tag, groupMark)
	if !ok {
		return []string{tag}
	}
	v, err := canon.Parse([]byte(rest), canon.Limits{Bytes: 1 << 16, Depth: 2})
	if err != nil || v.Kind() != canon.Array {
		return []string{rest}
	}
	ids := []string{}
	for _, x := range v.Elements() {
		ids = append(ids, x.Str())
	}
	if len(ids) == 0 {
		return []string{rest}
	}
	return ids
}

// apart tells of a recovered transaction of several proposals as of one for each: who
// asks for one of them looks for its name. Where the commit record is there each has its
// own paths; a journal without does not say whose path is whose, and what is so of one is
// so of all.
func apart(rec []commit.Recovered) []commit.Recovered {
	var out []commit.Recovered
	for _, r := range rec {
		ids := Proposals(r.Tag)
		entries, _, err := decodeEvidence(r.Evidence)
		for i, id := range ids {
			one := r
			one.Tag = id
			if err == nil && len(entries) == len(ids) && len(ids) > 1 {
				one.Paths = recordedPaths(entries[i])
			}
			out = append(out, one)
		}
	}
	return out
}

// recordedPaths are the paths that the evidence of an entry records.
func recordedPaths(e receipt.Entry) []string {
	ps, _ := e.Evidence.Get("paths")
	out := []string{}
	for _, p := range ps.Elements() {
		if s, ok := p.Get("path"); ok {
			out = append(out, s.Str())
		}
	}
	return out
}

// others says in a receipt that it was not alone.
func (t *tx) others() string {
	if t.together < 2 {
		return ""
	}
	return fmt.Sprintf("; carried out by one transaction with %d other proposals, none of which touches a path of this one", t.together-1)
}
