package apply

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/aspengine/asp/apply/commit"
	"github.com/aspengine/asp/editplan"
	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/snapshot"
	"github.com/aspengine/asp/snapshot/gitbase"
)

// planGit looks, before any check runs, whether the index entries or the commit
// that were asked for can be made. It writes nothing, so a dry run says the
// same.
func (t *tx) planGit(ctx context.Context) (refusal.List, error) {
	if !t.r.Index && t.r.Ref == "" {
		return nil, nil
	}
	if t.e.git == nil {
		return refusal.List{refusal.New(refusal.UnsupportedOperation, "", -1, "the workspace is not a git work tree, so that there is neither index nor reference")}, nil
	}
	if t.r.Index && t.r.Publish != Journal {
		return refusal.List{refusal.New(refusal.UnsupportedOperation, "", -1, "the index is written in one transaction with the files, which only the journal publish mode does")}, nil
	}
	if t.r.Index {
		if held, err := t.e.indexHeld(); err != nil || len(held) > 0 {
			return held, err
		}
		_, items, err := t.e.git.PlanIndex(ctx, t.indexChanges())
		if err != nil || len(items) > 0 {
			return items, err
		}
	}
	if t.r.Ref != "" {
		return t.planRef(ctx)
	}
	return nil, nil
}

// indexChanges are the net changes as the index sees them.
func (t *tx) indexChanges() []gitbase.IndexChange {
	out := make([]gitbase.IndexChange, len(t.changes))
	for i, c := range t.changes {
		n := t.adm.Nets[i]
		out[i] = gitbase.IndexChange{After: t.effects[i], SetsMode: n.Mode == editplan.ModeExec || n.Mode == editplan.ModePlain}
		if c.Before == nil {
			continue
		}
		f := t.adm.Fact(c.Path)
		b := &snapshot.Effect{Path: c.Path, Digest: c.Before.Digest, Size: c.Before.Size, Mode: modeOf(f.Stat)}
		open := t.liveOpener(c.Path)
		if b.Mode == snapshot.ModeSymlink {
			open = opener([]byte(f.Target))
			b.Size = int64(len(f.Target))
		}
		b.Open = func() (snapshot.ReadCloser, error) { return open() }
		out[i].Before = b
	}
	return out
}

// indexHeld refuses while somebody holds git's lock on the index.
func (e *Engine) indexHeld() (refusal.List, error) {
	_, err := e.gitDirs[e.git.GitDir].Lstat(gitbase.IndexName + ".lock")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look at the index: %w", err)
	}
	return e.indexBusy(), nil
}

func (e *Engine) indexBusy() refusal.List {
	return refusal.List{refusal.New(refusal.Busy, "", -1, "%q is there: another git process is at work on the index; if none is, remove that file", filepath.Join(e.git.GitDir, gitbase.IndexName+".lock"))}
}

// stageIndex prepares the index that goes with the changes: it takes git's lock,
// stores the blobs, durably, and returns the index file as one more file of the
// transaction. release gives the lock back, when the transaction is over one way
// or the other. A transaction that dies leaves the lock, so that git keeps its
// hands off an index that recovery may have to put back; recoverGit removes it.
func (e *Engine) stageIndex(ctx context.Context, t *tx) (_ []commit.ExtraFile, _ func(), items refusal.List, err error) {
	dir := e.gitDirs[e.git.GitDir]
	unlock, err := gitbase.LockIndex(dir, t.txid)
	if errors.Is(err, gitbase.ErrIndexLocked) {
		return nil, nil, e.indexBusy(), nil
	}
	if err != nil {
		return nil, nil, nil, err
	}
	release := func() {
		if err := unlock(); err != nil {
			t.answer.Notes = append(t.answer.Notes, "left for the next start to tidy: "+err.Error())
		}
	}
	defer func() {
		if err != nil || len(items) > 0 {
			release()
		}
	}()
	e.o.Before("index")
	plan, items, err := e.git.PlanIndex(ctx, t.indexChanges())
	if err != nil || len(items) > 0 {
		return nil, nil, items, err
	}
	if plan.Empty() {
		return nil, release, nil, nil
	}
	w, err := e.git.WriteObjects(ctx, e.fs)
	if err != nil {
		return nil, nil, nil, err
	}
	after, items, err := plan.Write(ctx, w)
	if err == nil && len(items) == 0 {
		err = w.Sync()
	}
	if err = errors.Join(err, w.Close()); err != nil || len(items) > 0 {
		return nil, nil, items, err
	}
	x := commit.ExtraFile{DirPath: e.git.GitDir, Name: gitbase.IndexName}
	x.After = &commit.Image{Kind: vfs.KindFile, Digest: snapshot.DigestOf(after), Size: int64(len(after)), Perm: 0o666, UmaskApplies: true, Open: opener(after)}
	if before, there := plan.Before(); there {
		st, err := dir.Lstat(gitbase.IndexName)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("look at the index: %w", err)
		}
		x.Before = &commit.Image{Kind: vfs.KindFile, Digest: snapshot.DigestOf(before), Size: int64(len(before)), Perm: st.Perm, Stat: st}
		x.After.Perm, x.After.UmaskApplies = st.Perm, false
	}
	return []commit.ExtraFile{x}, release, nil, nil
}
