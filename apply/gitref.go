package apply

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/aspengine/asp/apply/commit"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/snapshot/gitbase"
)

// A commit on a reference is made in this order:
//
//	1. intent    pendingRef says that objects are being written
//	2. objects   blobs, trees and the commit, synced
//	3. intent    pendingRef says which reference shall get which commit, synced
//	4. lock      git's lock on the reference, its old value compared
//	5. decide    the staged snapshot and its receipt, synced: the commit record
//	6. publish   the lock becomes the reference, its directory is synced
//	7. over      pendingRef is removed
//
// So the receipt decides alone. After a crash before 5 recovery gives the lock
// back, after 5 it publishes: the lock was held all the time, so nobody can have
// moved the reference in between.

// refWork is what --ref needs from one stage to the next.
type refWork struct {
	plan              *gitbase.RefPlan
	tree              *gitbase.TreePlan
	author, committer gitbase.Identity
	message           string
	when              time.Time
	locked            *gitbase.LockedRef
	decided           bool // the receipt is stored
}

// pendingRef is the file of the intent, in the state directory.
const pendingRef = "pending-ref.json"

// planRef looks at the reference, the workspace and the configuration.
func (t *tx) planRef(ctx context.Context) (items refusal.List, err error) {
	w := &t.refs
	var more refusal.List
	if w.plan, more, err = t.e.git.PlanRef(t.r.Ref); err != nil {
		return nil, err
	}
	items = append(items, more...)
	if w.author, w.committer, more, err = t.e.git.Identities(ctx); err != nil {
		return nil, err
	}
	items = append(items, more...)
	if w.tree, more, err = t.e.git.PlanTree(ctx, t.stamp, t.effects, t.r.IncludeDirty); err != nil {
		return nil, err
	}
	items = append(items, more...)
	signs, err := t.e.git.SignsCommits(ctx)
	if err != nil {
		return nil, err
	}
	if signs {
		t.answer.Notes = append(t.answer.Notes, "commit.gpgSign is set; asp makes commits without a signature")
	}
	w.message = t.commitMessage()
	return items, nil
}

// commitMessage is the caller's, else the proposal's rationale, else its id.
func (t *tx) commitMessage() string {
	rationale, _ := t.file.Proposal.Get("rationale")
	said := ""
	if rationale.Kind() == canon.String {
		said = rationale.Str()
	}
	for _, m := range []string{t.r.Message, said, t.proposalID()} {
		if m = gitbase.CleanMessage(m); m != "" {
			return m
		}
	}
	return "asp\n"
}

// commitRef makes the commit and takes the lock on the reference (1 to 4).
func (t *tx) commitRef(ctx context.Context) (items refusal.List, err error) {
	w := &t.refs
	if err := t.intend(""); err != nil {
		return nil, err
	}
	defer func() {
		switch {
		case err == nil && len(items) == 0:
		case w.locked != nil: // what failed came after it
			t.abandonRef()
		default:
			err = errors.Join(err, t.e.dropIntent())
		}
	}()
	objects, err := t.e.git.WriteObjects(ctx, t.e.fs)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, objects.Close()) }()
	c := gitbase.Commit{Author: w.author, Committer: w.committer, When: t.e.now(), Message: w.message}
	w.when = c.When
	for _, p := range []string{w.plan.Old, w.tree.HeadCommit()} {
		if p != "" && len(c.Parents) == 0 {
			c.Parents = []string{p}
		}
	}
	if c.Tree, items, err = w.tree.Write(ctx, objects); err != nil || len(items) > 0 {
		return items, err
	}
	id, err := objects.Commit(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := objects.Sync(); err != nil {
		return nil, err
	}
	if err := t.intend(id); err != nil {
		return nil, err
	}
	if err := t.e.state.Cover(t.e.receipts.Batch()); err != nil {
		return nil, err
	}
	if err := t.e.receipts.Sync(home.EachFile); err != nil {
		return nil, fmt.Errorf("sync the intent: %w", err)
	}
	t.e.o.Before("lock ref")
	if w.locked, items, err = w.plan.Lock(objects, t.e.fs, id); err != nil || len(items) > 0 {
		return items, err
	}
	t.e.o.Before("ref locked")
	t.refMade = id
	return nil, nil
}

// publishRef ends what commitRef began, after the receipt is durable (6 and 7).
func (t *tx) publishRef(ctx context.Context) error {
	w := &t.refs
	if w.locked == nil {
		return nil
	}
	t.e.o.Before("publish ref")
	note := t.e.moveRef(ctx, w.locked, w.plan.Old, w.committer, w.when, w.message)
	if note.err != nil {
		return fmt.Errorf("the commit is recorded and the next start puts it on the reference: %w", note.err)
	}
	if note.log != nil {
		t.answer.Notes = append(t.answer.Notes, "the reflog was not written: "+note.log.Error())
	}
	w.locked = nil
	return t.e.dropIntent()
}

// refMoved tells what went wrong: err counts, log is for people.
type refMoved struct{ err, log error }

func (e *Engine) moveRef(ctx context.Context, l *gitbase.LockedRef, old string, who gitbase.Identity, when time.Time, message string) (m refMoved) {
	m.log = l.AppendReflog(ctx, old, who, when, "asp: "+message)
	if m.err = l.Publish(); m.err == nil {
		m.err = l.Close()
	}
	return m
}

// abandonRef gives the lock back when the attempt ended before its receipt.
func (t *tx) abandonRef() {
	w := &t.refs
	if w.locked == nil || w.decided {
		return
	}
	// Storing the receipt may fail after it was stored. Then it has decided, and
	// so it has for all we know when nobody can tell: the next start looks again.
	// The caller may have cancelled; that must not change what is found.
	if out, err := t.e.receipts.Lookup(context.Background(), t.plan.Provider, t.plan.ID); err != nil || out.Staged != nil {
		_ = w.locked.Close() // only a handle: the lock itself stays
		w.locked = nil
		t.answer.Notes = append(t.answer.Notes, "the next start ends what was begun on "+w.plan.Name)
		return
	}
	err := errors.Join(w.locked.Abandon(), w.locked.Close())
	w.locked, t.refMade = nil, ""
	if err == nil {
		err = t.e.dropIntent()
	}
	if err != nil {
		t.answer.Notes = append(t.answer.Notes, "left for the next start to tidy: "+err.Error())
	}
}

// intend writes the intent; without a commit it only says that objects are being
// written.
func (t *tx) intend(id string) error {
	w := &t.refs
	str := func(k, v string) canon.Member { return canon.Member{Key: k, Value: canon.StringOf(v)} }
	v := canon.ObjectOf(
		canon.Member{Key: "format", Value: canon.IntOf(1)}, str("transaction", t.txid), str("provider", t.plan.Provider), str("proposal", t.plan.ID),
		str("ref", w.plan.Name), str("old", w.plan.Old), str("commit", id),
		str("name", valid(w.committer.Name)), str("email", valid(w.committer.Email)), str("when", w.when.Format(time.RFC3339)), str("message", w.message),
	)
	if err := t.e.receipts.Batch().WriteFile(t.e.state.Dir(), pendingRef, v.Bytes()); err != nil {
		return fmt.Errorf("write the intent: %w", err)
	}
	return nil
}

func (e *Engine) dropIntent() error {
	err := e.state.Dir().Unlink(pendingRef)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the intent: %w", err)
	}
	return nil
}

// maxIntent bounds the intent: the message is the only long part.
const maxIntent = 8 << 20

// recoverGit ends what a crash left in the git directory: a lock on the index, a
// reference under way, half-written objects. It runs after the journal has been
// dealt with, so that the index is whole before git may touch it again.
func (e *Engine) recoverGit(ctx context.Context) ([]commit.Recovered, error) {
	if e.git == nil {
		return nil, nil
	}
	broke, err := gitbase.BreakIndexLock(e.gitDirs[e.git.GitDir])
	if err != nil {
		return nil, err
	}
	b, err := home.ReadFile(e.state.Dir(), pendingRef, maxIntent)
	none := errors.Is(err, fs.ErrNotExist)
	if err != nil && !none {
		return nil, err
	}
	if broke || !none {
		if err := e.git.SweepObjects(e.fs); err != nil {
			return nil, err
		}
	}
	if none {
		return nil, nil
	}
	r, err := e.recoverRef(ctx, b)
	if err != nil {
		return nil, fmt.Errorf("recover a commit on a reference: %w", err)
	}
	return r, e.dropIntent()
}

func (e *Engine) recoverRef(ctx context.Context, intent []byte) ([]commit.Recovered, error) {
	v, err := canon.Parse(intent, canon.Limits{Bytes: maxIntent, Depth: 4})
	if err != nil {
		return nil, nil // torn by a power cut, which can only be before it was synced: no lock was taken
	}
	if err := formatOne(v); err != nil {
		return nil, fmt.Errorf("read the intent: %w", err)
	}
	get := func(k string) string { m, _ := v.Get(k); return m.Str() }
	r := commit.Recovered{TxID: get("transaction"), Tag: get("proposal"), Outcome: commit.RolledBack, Paths: []string{get("ref")}}
	if get("commit") == "" {
		return e.dropStaged(r)
	}
	if err := e.receipts.Recover(ctx); err != nil {
		return nil, err
	}
	out, err := e.receipts.Lookup(ctx, get("provider"), get("proposal"))
	if err != nil {
		return nil, err
	}
	// A proposal that was staged before is answered from its receipt and never
	// gets as far as an intent: so one that is there belongs to this intent.
	decided := out.Staged != nil
	l, held, err := e.git.ReopenRef(e.fs, get("ref"), get("commit"))
	if err != nil {
		return nil, err
	}
	if held && !decided {
		if err := errors.Join(l.Abandon(), l.Close()); err != nil {
			return nil, err
		}
	}
	if held && decided {
		when, _ := time.Parse(time.RFC3339, get("when"))
		if m := e.moveRef(ctx, l, get("old"), gitbase.Identity{Name: get("name"), Email: get("email")}, when, get("message")); m.err != nil {
			return nil, m.err
		}
	}
	if !decided {
		return e.dropStaged(r)
	}
	r.Outcome = commit.Committed
	return []commit.Recovered{r}, nil
}

// dropStaged forgets the snapshot of an attempt that has no receipt.
func (e *Engine) dropStaged(r commit.Recovered) ([]commit.Recovered, error) {
	_ = e.packs.Drop(r.TxID) // bounded by the retention anyway
	dir, err := e.state.Sub(home.Staged)
	if err != nil {
		return nil, err
	}
	name := stagedName(r.Tag)
	b, err := home.ReadFile(dir, name, maxStaged)
	if err == nil && strings.Contains(string(b), `"transaction":"`+r.TxID+`"`) {
		err = dir.Unlink(name)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return []commit.Recovered{r}, nil
}
