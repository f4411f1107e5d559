package apply

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/aspengine/asp/editplan"
	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/receipt"
	"github.com/aspengine/asp/seam/wire"
	"github.com/aspengine/asp/snapshot"
)

// What was judged and not applied is nowhere else when the session that put it has
// ended, or when somebody wrote over it; a file that an applied plan made is in the
// workspace alone. So that the decision can be derived again, that content is kept for
// a while, in a pack under the id of the receipt. It lies apart from the packs of transactions: those are what undo needs,
// nothing judged may push one of them out, and whoever evaluates holds no lock.
const (
	maxJudgedContent = 16 << 20 // of one decision
	maxJudgedBytes   = 64 << 20 // together, unless retention.judgedBytes says otherwise
	maxJudgedPacks   = 512
	judgedLookEvery  = 16 // packs between two looks at the bounds

	packSuffix, partSuffix = ".pack", ".part" // finished, and being written
)

func (e *Engine) judgedDir() (vfs.Dir, int64, error) {
	dir, err := e.state.Sub(home.Judged)
	if err != nil {
		return nil, 0, err
	}
	room := int64(maxJudgedBytes)
	if n := e.cfg.Retention.JudgedBytes; n > 0 {
		room = n
	}
	return dir, room, nil
}

// keepJudged keeps the content that changes put, as the decision of the receipt saw it:
// effects have it, or it lies on disk. Not durable across a power cut, and no part of the
// decision: what cannot be kept is said by the replay. left is how many paths were left
// out by the bounds, or because their content is not there any more.
func (e *Engine) keepJudged(receiptID string, changes []wire.Change, effects []snapshot.Effect) (left int, err error) {
	dir, room, err := e.judgedDir()
	if err != nil {
		return 0, err
	}
	room = min(room, maxJudgedContent)
	by := make(map[snapshot.Digest]snapshot.Effect, len(effects))
	for _, x := range effects {
		if !x.Gone && x.Open != nil {
			by[x.Digest] = x
		}
	}
	live := snapshot.NewLive(e.root)
	var w *snapshot.PackWriter
	for _, c := range changes {
		d, foreign := snapshot.ParseBlob(string(afterOf(c)))
		if foreign != nil {
			continue // none, or of another algorithm
		}
		var b []byte
		x, ok := by[d]
		switch {
		case ok && x.Size > room:
			ok = false
		case ok:
			b, ok = readBlob(x.Open, x.Size, d)
		default:
			b, ok = onDisk(live, c.Path, d)
		}
		if !ok || int64(len(b)) > room {
			left++
			continue
		}
		room -= int64(len(b))
		if w == nil {
			if w, err = snapshot.OpenStore(dir, snapshot.StoreLimits{}).Begin(receiptID); err != nil {
				return left, err
			}
			defer func() { err = errors.Join(err, w.Close()) }()
		}
		if err := w.Add(d, int64(len(b)), bytes.NewReader(b)); err != nil {
			return left, err
		}
	}
	if w == nil {
		return left, nil
	}
	if err := w.Finish(); err != nil {
		return left, err
	}
	return left, e.trimJudged()
}

// keep is keepJudged for the changeset that was judged. Where the same one was judged
// before and its pack is whole and still there, that becomes the pack of this receipt and
// the newest of all: a name is written and no content.
func (v *evaluation) keep(receiptID string, put []snapshot.Effect) (left int, err error) {
	known := v.e.o.Verdicts
	was := known.packOf(v.csDigest)
	if was == "" || !v.e.renameJudged(was, receiptID) {
		left, err = v.e.keepJudged(receiptID, v.cs.Changes, put)
	}
	if left == 0 && err == nil {
		known.packed(v.csDigest, receiptID)
	}
	return left, err
}

// renameJudged gives the pack of one receipt to another; false where it is not there any
// more or over what may be kept now.
func (e *Engine) renameJudged(from, to string) bool {
	dir, room, err := e.judgedDir()
	if err != nil {
		return false
	}
	st, err := dir.Lstat(from + packSuffix)
	return err == nil && st.Size <= room && dir.Rename(from+packSuffix, dir, to+packSuffix, vfs.NoReplace) == nil
}

// putBy are the changes of effects, as far as they put content.
func putBy(effects []snapshot.Effect) (out []wire.Change) {
	for _, x := range effects {
		if !x.Gone {
			out = append(out, wire.Change{Path: x.Path.String(), After: wire.BlobRef(x.Digest.Blob())})
		}
	}
	return out
}

// onlyHere are the changes whose content a replay would find nowhere else. A refused
// plan left nothing. An applied one keeps what undo needs, and that makes every edited
// file again; a new file is in the workspace alone, where anybody may write over it.
// What was staged is kept whole.
func (t *tx) onlyHere(out receipt.Outcome) []wire.Change {
	switch out {
	case receipt.Refused:
		return putBy(t.effects)
	case receipt.Applied:
		var effects []snapshot.Effect
		for i, n := range t.adm.Nets {
			put := n.Content == editplan.ContentBlob || n.Content == editplan.ContentEdits
			if _, ok := t.kept[t.changes[i].Path]; put && !ok {
				effects = append(effects, t.effects[i])
			}
		}
		return putBy(effects)
	}
	return nil
}

// trimJudged keeps the bounds, give or take some packs: looking at all of them costs more
// than keeping one. Two may do it at once.
func (e *Engine) trimJudged() error {
	dir, room, err := e.judgedDir()
	if err != nil {
		return err
	}
	if s := e.o.Shares; s != nil && s.state.ID == e.state.ID {
		// The engines of a host count, the first one looks; see turnToLook.
		if s.judgedPacks.Add(1)%judgedLookEvery != 1 {
			return nil
		}
		tidyJudged(dir)
		return keepNewest(dir, packSuffix, maxJudgedPacks, room)
	}
	tidyJudged(dir)
	es, err := dir.List()
	if err != nil || len(es)%judgedLookEvery != 0 && len(es) < maxJudgedPacks {
		return err
	}
	return keepNewest(dir, packSuffix, maxJudgedPacks, room)
}

// tidyJudged removes the half-written packs of processes that were killed.
func tidyJudged(dir vfs.Dir) {
	_ = home.CleanDead(dir, func(name string) bool { return strings.HasSuffix(name, partSuffix) })
}

// judgedBytes is content that was judged, if it is still kept.
func (e *Engine) judgedBytes(d snapshot.Digest) ([]byte, error) {
	dir, _, err := e.judgedDir()
	if err != nil {
		return nil, err
	}
	return snapshot.OpenStore(dir, snapshot.StoreLimits{}).Bytes(d)
}

// keptNote is what the record of a decision says of the content that is not kept.
func keptNote(left int, err error) []string {
	switch {
	case err != nil:
		return []string{"its content is not kept for a replay: " + valid(cutTo(err.Error(), 500))}
	case left > 0:
		return []string{fmt.Sprintf("the content of %d paths is not kept for a replay: it is over the bounds, or was gone", left)}
	}
	return nil
}
