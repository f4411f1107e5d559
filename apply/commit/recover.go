package commit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/aspengine/asp/apply/journal"
	"github.com/aspengine/asp/internal/vfs"
)

// openTxRoot opens TxDir and its parent; nil, nil where there is none.
func openTxRoot(env *Env) (holder, txroot vfs.Dir, err error) {
	holder, err = env.FS.OpenRoot(filepath.Dir(env.TxDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	txroot, err = holder.OpenDir(filepath.Base(env.TxDir))
	if errors.Is(err, fs.ErrNotExist) {
		return holder, nil, nil
	}
	return holder, txroot, err
}

// transactions lists the directories of transactions under TxDir.
func transactions(txroot vfs.Dir) ([]string, error) {
	entries, err := txroot.List()
	if errors.Is(err, fs.ErrNotExist) {
		// Whoever only looks holds no lock: the last transaction may end, and take
		// the directory away, between its opening and here.
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, e := range entries {
		st, err := txroot.Lstat(e.Name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if st.Kind == vfs.KindDir && len(e.Name) <= journal.MaxTxID {
			ids = append(ids, e.Name)
		}
	}
	slices.Sort(ids)
	return ids, nil
}

func recoverAll(ctx context.Context, env Env, o RecoverOptions) (out []Recovered, err error) {
	holder, txroot, err := openTxRoot(&env)
	defer func() { closeDir(holder); closeDir(txroot) }()
	if err != nil {
		return nil, wrap("recover", err)
	}
	if txroot != nil {
		ids, err := transactions(txroot)
		if err != nil {
			return nil, wrap("recover", err)
		}
		for _, id := range ids {
			if err := ctx.Err(); err != nil {
				return out, err
			}
			r, done, err := recoverOne(ctx, env, id, o)
			if done {
				out = append(out, r)
			}
			if err != nil {
				return out, fmt.Errorf("recover transaction %.200q: %w", id, err)
			}
		}
		closeDir(txroot) // before its name goes, as in clean
		txroot = nil
		if err := removeTxDir(holder, env.TxDir); err != nil {
			return out, wrap("recover", err)
		}
	}
	return out, wrap("recover", removeHolder(env.FS, env.TxDir))
}

// load opens the transaction id under TxDir with its journal and areas. has is
// false when there is no journal.
func load(env Env, id string) (t *tx, has bool, err error) {
	if t, err = begin(env, id, Options{}); err != nil {
		return nil, false, err
	}
	t.loaded = true
	defer func() {
		if err != nil {
			t.close()
		}
	}()
	if t.holder, err = env.FS.OpenRoot(filepath.Dir(env.TxDir)); err != nil {
		return t, false, err
	}
	if t.txroot, err = t.holder.OpenDir(filepath.Base(env.TxDir)); err != nil {
		return t, false, err
	}
	own, err := t.txroot.OpenDir(id)
	if err != nil {
		return t, false, err
	}
	t.areas = []*area{{dir: own}}
	f, err := own.Open(journalName)
	if errors.Is(err, fs.ErrNotExist) {
		t.lost = true
		return t, false, nil
	}
	if err != nil {
		return t, false, err
	}
	log, err := journal.Read(f)
	_ = f.Close() // read only
	if err != nil {
		return t, false, err
	}
	t.log = *log
	if !log.Begun {
		return t, true, nil
	}
	if log.TxID != id {
		return t, true, fmt.Errorf("its journal is that of %.200q", log.TxID)
	}
	if err := t.openAreas(); err != nil || t.log.Committed || !t.log.Ready {
		return t, true, err
	}
	return t, true, t.findUnplaced(len(t.log.Steps))
}

// openAreas opens the areas beside targets and checks what the reader of the
// journal cannot know: our own spelling of names.
func (t *tx) openAreas() error {
	for i := range t.log.Steps {
		s := &t.log.Steps[i]
		if s.Name != "" && !stagedName(s.Name) {
			return fmt.Errorf("its journal names %.200q, which is no name of ours", s.Name)
		}
	}
	for _, ja := range t.log.Areas[1:] {
		if !besideName(ja.Beside) {
			return fmt.Errorf("its journal names the area %.200q, which is no name of ours", ja.Beside)
		}
		a := &area{parent: dirKey{"", ja.Dir}}
		t.areas = append(t.areas, a)
		parent, err := t.dirs.get("", ja.Dir)
		if err == nil {
			a.dir, err = parent.OpenDir(ja.Beside)
			t.dirs.put(parent)
		}
		if err != nil && !unreachable(err) {
			return err
		}
	}
	for i, a := range t.areas {
		if a.dir == nil {
			continue
		}
		st, err := a.dir.Stat()
		if err != nil {
			return err
		}
		if t.dirs.protected(st) {
			return fmt.Errorf("area %d: %w", i, errProtected)
		}
		if a.mount, err = t.mountOf(a.dir, st); err != nil {
			return err
		}
	}
	return nil
}

// recoverOne deals with one transaction. done tells that r is to be reported.
func recoverOne(ctx context.Context, env Env, id string, o RecoverOptions) (r Recovered, done bool, err error) {
	t, has, err := load(env, id)
	if err != nil {
		return r, false, err
	}
	defer t.close()
	defer func() { r.Notes = t.notes }()
	r = Recovered{TxID: id, Tag: t.log.Tag}
	open, attended, err := latestAttention(t.areas[0].dir, id)
	switch {
	case err != nil:
		return r, false, err
	case attended && len(open) > 0:
		return r, false, nil // reported when it was written; waits for a person
	case attended:
		return r, false, t.decided() // it was told to whoever decided
	case t.log.Committed:
		return t.complete(ctx, r, o)
	case t.log.Ready:
		if o.Acknowledged != nil {
			was, err := o.Acknowledged(ctx, id)
			if err != nil {
				return r, false, err
			}
			if was {
				return t.stand(ctx, r)
			}
		}
		return t.takeBack(r)
	}
	damaged, err := t.damaged()
	if err != nil {
		return r, false, err
	}
	if damaged {
		return t.giveUp(r)
	}
	// No intent: nothing was swapped. Without a journal either, it began before
	// it had written anything down, or it was over and nearly removed; there is
	// nothing to tell of it.
	r.Outcome = RolledBack
	if err := t.cleanUnknown(); err != nil {
		return r, false, err
	}
	return r, has, t.cleanRest()
}

// damaged tells that swaps began although the journal that was durable by then
// cannot be read, or was taken away.
func (t *tx) damaged() (bool, error) {
	if !t.loaded || t.log.Ready || t.log.Committed {
		return false, nil
	}
	if t.lost {
		if open, _, err := latestAttention(t.areas[0].dir, t.id); err != nil || len(open) > 0 {
			return err == nil, err
		}
		return t.markedNow()
	}
	_, err := t.areas[0].dir.Lstat(swappingName)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// markedNow tells that swaps began in this boot.
func (t *tx) markedNow() (bool, error) {
	if t.env.Boot == "" {
		return false, nil
	}
	f, err := t.areas[0].dir.Open(swappingName)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, int64(len(t.env.Boot))+1))
	return err == nil && string(b) == t.env.Boot, err
}

// giveUp leaves a transaction whose journal is damaged to a person, with
// everything that lies in its areas. Which file is whose cannot be told any
// more, so nothing is touched, now or later.
func (t *tx) giveUp(r Recovered) (Recovered, bool, error) {
	r.Outcome, r.Paths = NeedsAttention, []string{t.where()}
	t.notes = append(t.notes, whyDamaged)
	return r, true, t.writeOpen([]journal.Open{{Why: whyDamaged}})
}

const whyDamaged = "the journal of an interrupted transaction is damaged or gone; files from before it may lie in this directory. Compare them with the workspace, take back what is missing, then remove the directory by hand"

// where is the absolute path of the transaction's own area.
func (t *tx) where() string { return filepath.Join(t.env.TxDir, t.id) }

func (t *tx) cleanRest() error {
	t.log.Steps = nil
	return t.clean()
}

func (t *tx) complete(ctx context.Context, r Recovered, o RecoverOptions) (Recovered, bool, error) {
	r.Outcome, r.Evidence, r.Paths = Committed, t.log.Evidence, t.paths()
	t.facts.Style = SyncEach
	// A killed process may have written the record without having synced it. It
	// must be durable before anything that undo would need is removed.
	if err := errors.Join(syncFile(t.areas[0].dir, journalName), t.areas[0].dir.Sync()); err != nil {
		return r, false, err
	}
	if err := t.tidy(ctx); err != nil {
		return r, false, err
	}
	if o.Completed != nil {
		if err := o.Completed(ctx, r); err != nil {
			return r, false, err
		}
	}
	return r, true, t.clean()
}

const (
	noteAcknowledged = "its commit record was damaged; the stored receipt says that it was applied, and everything is as it says"
	whyAcknowledged  = "the stored receipt says that the change was applied, its commit record is damaged, and this is not what the change left here"
)

// stand ends a transaction whose commit record is damaged and whose receipt is stored.
// Where everything is as the plan left it, it is done. Anything else is a person's to
// decide: nothing is taken back that was acknowledged, and nothing is written over.
func (t *tx) stand(ctx context.Context, r Recovered) (Recovered, bool, error) {
	var open []journal.Open
	for i := range t.log.Steps {
		s := &t.log.Steps[i]
		x, err := t.sides(s)
		if err != nil {
			return r, false, err
		}
		// Of a directory nothing else was said but that it is there.
		if s.After.Kind == vfs.KindDir && x.live.Kind != vfs.KindDir || s.After.Kind != vfs.KindDir && !x.live.is(s.After) {
			open = append(open, journal.Open{Step: i, Why: whyAcknowledged})
			r.Paths = append(r.Paths, s.Live.String())
		}
		t.release(x)
	}
	if len(open) > 0 {
		r.Outcome = NeedsAttention
		slices.Sort(r.Paths)
		return r, true, t.keepOpen(open)
	}
	t.log.Committed = true
	t.notes = append(t.notes, noteAcknowledged)
	return t.complete(ctx, r, RecoverOptions{}) // its receipt is stored
}

func (t *tx) takeBack(r Recovered) (Recovered, bool, error) {
	r.Outcome, r.Paths = RolledBack, t.paths()
	t.facts.Style = SyncEach
	open, err := t.undo(len(t.log.Steps))
	if err != nil {
		return r, false, err
	}
	if len(open) == 0 {
		return r, true, t.clean()
	}
	r.Outcome, r.Paths = NeedsAttention, nil
	for _, o := range open {
		r.Paths = append(r.Paths, t.log.Steps[o.Step].Live.String())
	}
	slices.Sort(r.Paths)
	return r, true, nil
}

// paths are the live paths of the plan, without directories, sorted.
func (t *tx) paths() []string {
	var out []string
	for i := range t.log.Steps {
		s := &t.log.Steps[i]
		if s.After.Kind != vfs.KindDir || !s.Before.Absent() {
			out = append(out, s.Live.String())
		}
		if s.Op == journal.Move {
			out = append(out, s.From)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// latestAttention reads the newest attention list that is whole. One that is empty
// says that a person has decided everything: what is left is to be removed. Lists are
// never changed: a shorter one is written under the next number and the older
// ones are removed, so that a crash leaves one or the other.
func latestAttention(d vfs.Dir, id string) (open []journal.Open, ok bool, err error) {
	entries, err := d.List()
	if err != nil {
		return nil, false, err
	}
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name, attentionPrefix) {
			names = append(names, e.Name)
		}
	}
	slices.Sort(names)
	for _, n := range slices.Backward(names) {
		f, err := d.Open(n)
		if err != nil {
			return nil, false, err
		}
		open, ok, err := journal.ReadAttention(f, id, journal.MaxSteps)
		_ = f.Close() // read only
		if err != nil || ok {
			return open, ok, err
		}
	}
	return nil, false, nil
}
