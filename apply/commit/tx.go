package commit

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/aspengine/asp/apply/journal"
	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/internal/vfs"
)

const (
	journalName     = "journal"
	attentionPrefix = "attention-"
	// swappingName is made when the intent is durable and before the first swap.
	// A journal without a readable intent means that nothing was swapped only
	// where this name is missing; with it, the journal is damaged, and what lies
	// in the areas may be the only copy of a user's file.
	swappingName = "swapping"
	besidePrefix = ".asp-tx-"
)

// stagedName is the only spelling of our names in an area. Recovery without an
// intent removes such names and no others, and a journal with another spelling
// is not believed.
//
// Both spellings are checked by hand: patterns would be compiled at every start
// of the program.
func stagedName(s string) bool {
	nonce, n, ok := strings.Cut(s, "-")
	return ok && len(nonce) == 16 && hexDigits(nonce) && len(n) >= 1 && len(n) <= 8 && hexDigits(n)
}

func besideName(s string) bool {
	n, ok := strings.CutPrefix(s, besidePrefix)
	return ok && len(n) == 32 && hexDigits(n)
}

func hexDigits(s string) bool { return strings.Trim(s, "0123456789abcdef") == "" }

// area is an open staging directory. dir is nil when the directory is gone
// (recovery) or not made yet.
type area struct {
	dir   vfs.Dir
	mount int // index into tx.mounts
	// parent holds the area's own name (areas beside targets).
	parent dirKey
	// inherits: new names in it get a group or an ACL from it.
	inherits bool
	st       vfs.Stat // of the directory
	flags    int      // its inode flags
}

// mount is one mount that the transaction writes to. dir is a handle on it that
// was open before the first write, so that syncfs reports every failed write
// since.
type mount struct {
	dir      vfs.Dir
	dev, mnt uint64
}

// tx is a transaction while it runs, and what recovery makes of a journal.
type tx struct {
	env     Env
	o       Options
	id      string
	nonce   string
	holder  vfs.Dir // parent of TxDir; while waits is set, of the .asp to be made
	waits   bool
	above   vfs.Dir // parent of an .asp that this transaction made
	txroot  vfs.Dir // TxDir
	dirs    *dirs
	mounts  []mount
	areas   []*area
	log     journal.Log
	w       *journal.Writer
	jobs    []job // what to stage, parallel to log.Steps
	facts   Facts
	notes   []string
	keep    int  // for how many steps files are kept open
	begun   int  // steps whose rename was attempted
	loaded  bool // found on disk, not run by this process
	lost    bool // found without a journal
	touched map[dirKey]bool
}

// job is what a step needs beyond its journal form.
type job struct {
	before, after *Image
	metaFrom      string // path whose file gives metadata and bytes (copying move)
	aside         bool   // metaFrom is the file that the step before takes away, below base
	base          string
	open          vfs.File // the live file, unread, for the comparison; may be nil
	made          vfs.File // the staged file until it is synced; may be nil
	st            vfs.Stat // of the live file when it was staged
	late          vfs.Stat // of the displaced file when it was compared
	staged        bool     // the area holds a name of ours
}

// letGo closes the handles that are kept.
func (j *job) letGo() {
	if j.open != nil {
		_ = j.open.Close() // read only
		j.open = nil
	}
	if j.made != nil {
		_ = j.made.Close() // synced, or staged for nothing
		j.made = nil
	}
}

// syncMade syncs the staged file through the handle that wrote it.
func (j *job) syncMade() error {
	f := j.made
	j.made = nil
	return errors.Join(f.Sync(), f.Close())
}

// begin checks the surroundings and opens what is there already. It writes
// nothing.
func begin(env Env, txid string, o Options) (*tx, error) {
	if env.FS == nil || env.Root == nil || !filepath.IsAbs(env.TxDir) {
		return nil, errors.New("environment is incomplete")
	}
	if vfs.CheckName(txid) != nil || len(txid) > journal.MaxTxID || len(o.Tag) > journal.MaxTag {
		return nil, fmt.Errorf("transaction id %.200q or its tag cannot be used", txid)
	}
	if env.Probe == nil {
		env.Probe = ProbeMount
	}
	var n [8]byte
	_, _ = rand.Read(n[:]) // never fails
	t := &tx{env: env, o: o, id: txid, nonce: hex.EncodeToString(n[:]), touched: map[dirKey]bool{}, keep: vfs.MayKeep(maxKept, keptShare)}
	t.dirs = newDirs(&t.env)
	t.facts.Dirty = -1
	if env.Handles > 0 {
		t.keep = env.Handles
	}
	return t, nil
}

func (t *tx) step(name string) {
	if t.o.Step != nil {
		t.o.Step(name)
	}
}

// close releases every handle.
func (t *tx) close() {
	t.letGo()
	t.dirs.close()
	for _, a := range t.areas {
		closeDir(a.dir)
	}
	for _, m := range t.mounts {
		closeDir(m.dir)
	}
	closeDir(t.txroot)
	closeDir(t.holder)
	closeDir(t.above)
}

// letGo closes the files of the transaction, its journal among them.
func (t *tx) letGo() {
	for i := range t.jobs {
		t.jobs[i].letGo()
	}
	if t.w != nil {
		_ = t.w.Close() // synced where it matters
		t.w = nil
	}
}

func closeDir(d vfs.Dir) {
	if d != nil {
		_ = d.Close() // a directory handle loses nothing by closing
	}
}

// mountOf returns the index of the mount that d is on, registering it.
func (t *tx) mountOf(d vfs.Dir, st vfs.Stat) (int, error) {
	for i, m := range t.mounts {
		if m.dev == st.Dev && m.mnt == st.MntID {
			return i, nil
		}
	}
	own, err := d.OpenDir(".")
	if err != nil {
		return 0, err
	}
	f, err := t.env.Probe(own)
	if err != nil {
		f = MountFacts{Type: "unknown", Why: "the kernel did not tell the file system: " + err.Error()}
	}
	f.MntID, f.Dev = st.MntID, st.Dev
	t.mounts = append(t.mounts, mount{own, st.Dev, st.MntID})
	t.facts.Mounts = append(t.facts.Mounts, f)
	return len(t.mounts) - 1, nil
}

// run is the protocol; the numbers are those of docs/formats.md.
func (t *tx) run(ctx context.Context, changes []Change) (r Result, err error) {
	defer t.close()
	defer func() { r.Facts, r.Notes = t.facts, t.notes }()

	// 1. Plan, read-only: the steps, their order, the mounts involved.
	t.step("plan")
	items, err := t.plan(changes)
	if err != nil || len(items) > 0 {
		return Result{Outcome: Refused, Items: items}, wrap("plan", err)
	}
	if len(t.log.Steps) == 0 {
		return t.runEmpty(ctx)
	}
	// 2. to 6. Areas, staging, intent, data barrier, the caller's check. Nothing of this is seen in the workspace, so that a failure only
	// removes what is ours.
	items, err = t.makeReady(ctx)
	if err != nil || len(items) > 0 {
		err = wrap("stage", err)
		if cerr := t.clean(); cerr != nil {
			err = errors.Join(err, fmt.Errorf("clean up: %w", cerr))
		}
		return Result{Outcome: Refused, Items: items}, err
	}
	// 7. Swap. From here a cancel, an error and a refusal all mean undo.
	if err := t.markSwapping(); err != nil {
		err = wrap("begin the swap", err)
		if cerr := t.clean(); cerr != nil {
			err = errors.Join(err, fmt.Errorf("clean up: %w", cerr))
		}
		return Result{Outcome: Refused}, err
	}
	items, err = t.swapAll(ctx)
	if err == nil && len(items) == 0 {
		// 8. The names.
		t.step("sync names")
		err = t.syncNames(ctx, barrierNames)
	}
	// 9. The decision.
	var evidence []byte
	if err == nil && len(items) == 0 {
		evidence, err = t.decide(ctx)
	}
	if errors.Is(err, ErrIndeterminate) {
		return Result{Outcome: NeedsAttention}, err
	}
	if err != nil || len(items) > 0 {
		return t.rollBack(items, err)
	}
	// 10. What follows from it.
	return t.finish(context.WithoutCancel(ctx), evidence)
}

// markSwapping leaves the mark that tells a damaged journal from one that was
// never finished. It is ordered behind the barrier of the intent by being made
// after it, and needs no barrier of its own: without it, and with a whole
// journal, recovery does what the journal says. It holds the boot: clean-up removes
// the mark before the journal, so in the same boot a mark alone says that somebody
// took the journal away. A power cut may have kept the one removal and not the other.
func (t *tx) markSwapping() error {
	f, err := t.areas[0].dir.Create(swappingName, 0o600)
	if err != nil {
		return err
	}
	if t.env.Boot != "" {
		_, err = io.WriteString(f, t.env.Boot)
	}
	return errors.Join(err, f.Close())
}

// runEmpty commits a plan without any effect; there is nothing to journal.
func (t *tx) runEmpty(ctx context.Context) (Result, error) {
	if t.o.Recheck != nil {
		items, err := t.o.Recheck(ctx)
		if err != nil || len(items) > 0 {
			return Result{Outcome: Refused, Items: items}, wrap("check again", err)
		}
	}
	var evidence []byte
	if t.o.Seal != nil {
		var err error
		if evidence, err = t.o.Seal(ctx, t.facts); err != nil {
			return Result{Outcome: Refused}, wrap("seal", err)
		}
	}
	if t.o.AfterCommit != nil {
		if err := t.o.AfterCommit(context.WithoutCancel(ctx), evidence, t.facts); err != nil {
			return Result{Outcome: Committed}, wrap("store the outcome", err)
		}
	}
	return Result{Outcome: Committed}, nil
}

// makeReady stages everything, writes the intent and makes both durable.
func (t *tx) makeReady(ctx context.Context) (refusal.List, error) {
	t.step("stage")
	if err := t.makeAreas(ctx); err != nil {
		return nil, err
	}
	if err := t.probePrimitives(); err != nil {
		return nil, err
	}
	if items, err := t.stage(ctx); err != nil || len(items) > 0 {
		return items, err
	}
	t.step("write intent")
	if err := t.w.Intent(t.log.Steps, t.log.Emptied); err != nil {
		return nil, err
	}
	if n := roomFor(len(t.log.Steps), t.o.Several); n <= maxRoom && t.o.Seal != nil && t.facts.Style != SyncNone {
		t.w.Room(n)
	}
	if err := t.w.Flush(); err != nil {
		return nil, err
	}
	t.step("sync data")
	if err := t.syncData(ctx); err != nil {
		return nil, err
	}
	t.step("check again")
	if t.o.Recheck != nil {
		if items, err := t.o.Recheck(ctx); err != nil || len(items) > 0 {
			return items, err
		}
	}
	return nil, ctx.Err()
}

// roomFor is how much the commit record of n steps may take, by what the receipts of
// usual plans do. A longer one is right, too, and its sync takes longer.
func roomFor(n, receipts int) int { return max(8<<10, receipts*5<<10) + n*768 }

// maxRoom is where writing the room begins to cost what it saves.
const maxRoom = 128 << 10

// decide writes the commit record. An error other than ErrIndeterminate means
// that there is durably none.
func (t *tx) decide(ctx context.Context) ([]byte, error) {
	t.step("seal")
	var evidence []byte
	if t.o.Seal != nil {
		var err error
		if evidence, err = t.o.Seal(ctx, t.facts); err != nil {
			return nil, wrap("seal", err)
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	t.step("commit")
	size := t.w.Size()
	err := t.w.Commit(evidence)
	if err != nil {
		return nil, err
	}
	if err = t.w.Flush(); err == nil {
		err = t.syncJournal(barrierCommit)
	}
	if err == nil {
		return evidence, nil
	}
	// The record may or may not be on disk. Undo may begin only when it
	// certainly is not: cut it off and make that durable. This is another
	// operation with its own sync, not a retry of the failed one. A crash
	// in between finds all swaps durable and either decision right.
	if cerr := t.w.Cut(size); cerr != nil {
		return nil, fmt.Errorf("%w: %w", ErrIndeterminate, errors.Join(err, cerr))
	}
	if t.o.Sync != SyncNone {
		if cerr := t.w.Sync(); cerr != nil {
			return nil, fmt.Errorf("%w: %w", ErrIndeterminate, errors.Join(err, cerr))
		}
	}
	return nil, err
}

// rollBack undoes what was begun and says so.
func (t *tx) rollBack(items refusal.List, cause error) (Result, error) {
	t.step("undo")
	if t.begun == 0 { // no rename was tried
		if cerr := t.clean(); cerr != nil {
			cause = errors.Join(cause, fmt.Errorf("clean up: %w", cerr))
		}
		return Result{Outcome: Refused, Items: items}, cause
	}
	open, err := t.undo(t.begun)
	if err != nil {
		return Result{Outcome: NeedsAttention, Items: items}, errors.Join(cause, fmt.Errorf("undo: %w", err))
	}
	if len(open) > 0 {
		paths, err := t.describe(open)
		return Result{Outcome: NeedsAttention, Items: items, Paths: paths}, errors.Join(cause, err)
	}
	if err := t.clean(); err != nil {
		cause = errors.Join(cause, fmt.Errorf("clean up: %w", err))
	}
	return Result{Outcome: RolledBack, Items: items}, cause
}

// finish does what follows a durable commit record. Nothing here can take the
// commit back.
func (t *tx) finish(ctx context.Context, evidence []byte) (Result, error) {
	t.step("tidy")
	if err := t.tidy(ctx); err != nil {
		return Result{Outcome: Committed}, wrap("remove emptied directories", err)
	}
	t.step("store outcome")
	if t.o.AfterCommit != nil {
		if err := t.o.AfterCommit(ctx, evidence, t.facts); err != nil {
			return Result{Outcome: Committed}, wrap("store the outcome", err)
		}
	}
	t.step("clean up")
	late, err := t.lateWrites()
	if err == nil && len(late) > 0 {
		r := Result{Outcome: Committed}
		if r.Paths, err = t.describe(late); err == nil {
			err = t.keepOpen(late)
		}
		return r, wrap("keep what was written late", err)
	}
	if err == nil {
		err = t.clean()
	}
	return Result{Outcome: Committed}, wrap("clean up", err)
}

// lateWrites finds displaced files that were written to after they were
// compared, by a program that still had them open. Their bytes are nobody's to
// throw away: the transaction stands, and the paths wait for a person.
func (t *tx) lateWrites() ([]journal.Open, error) {
	var late []journal.Open
	for i := range t.log.Steps {
		s := &t.log.Steps[i]
		if s.Op != journal.Exchange && s.Op != journal.Take || s.Before.Kind != vfs.KindFile {
			continue
		}
		st, err := t.areas[s.Area].dir.Lstat(s.Name)
		if err != nil {
			return nil, err
		}
		if was := t.jobs[i].late; st.Mtime != was.Mtime || st.Size != was.Size || st.Ino != was.Ino {
			late = append(late, journal.Open{Step: i, Why: "a program that had the old file open wrote to it after it was replaced; what it wrote is kept"})
		}
	}
	return late, nil
}

func wrap(act string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", act, err)
}
