package apply

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/aspengine/asp/apply/commit"
	"github.com/aspengine/asp/editplan"
	"github.com/aspengine/asp/editplan/patch/linediff"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/snapshot"
)

// maxDelta is the largest file for which the way from before to after is kept
// beside the pre-image; without it an undo works only while nobody edited the
// file since.
const maxDelta = 16 << 20

// kept names what the pack of a transaction holds for one path.
type kept struct {
	// delta is of a splice that makes the after-image of the before-image; where
	// nothing was before, of that at the path where the file was.
	delta snapshot.Digest
}

// packAndForesee does both, side by side where there is much of it: they read the
// same plan and write nothing in common.
func (t *tx) packAndForesee(ctx context.Context) error {
	const many = 8 // as in commit: with fewer, one order, the same every time
	if len(t.changes) < many {
		if err := t.pack(ctx); err != nil {
			return err
		}
		return t.foresee(ctx)
	}
	packed := make(chan error, 1)
	go func() { packed <- t.pack(ctx) }()
	err := t.foresee(ctx)
	return errors.Join(<-packed, err)
}

// unlessMoved ends an attempt that could not read what it publishes, before its first
// write: where a path of the plan is no longer what it was admitted as, that is the
// answer, whatever else failed, for it refuses a retry, too. Else cause is.
func (t *tx) unlessMoved(ctx context.Context, cause error) (bool, error) {
	if t.adm == nil || ctx.Err() != nil {
		return false, cause
	}
	items, err := t.adm.Recheck(ctx)
	if err != nil || len(items) == 0 {
		return false, cause
	}
	return t.refuse(ctx, items)
}

// pack keeps the pre-images of the files that are about to change, so that the
// change can be taken back after its journal is gone. What is over the
// retention is not kept; the receipt then says that undo is not possible.
func (t *tx) pack(ctx context.Context) error {
	var total int64
	for i, c := range t.changes {
		if c.Before != nil && t.adm.Nets[i].MovedTo.IsZero() {
			total += c.Before.Size
		}
	}
	if limit := storeLimits(t.e.cfg).MaxBytes; limit > 0 && total > limit {
		t.answer.Notes = append(t.answer.Notes, fmt.Sprintf("undo will not be possible: the pre-images are %d bytes and %d may be kept", total, limit))
		return nil
	}
	w, err := t.e.packs.Begin(t.txid)
	if err != nil {
		return fmt.Errorf("keep pre-images: %w", err)
	}
	defer w.Close()
	n, err := t.packInto(ctx, w)
	if err != nil || n == 0 {
		return err
	}
	if err := w.Finish(); err != nil {
		return fmt.Errorf("keep pre-images: %w", err)
	}
	t.packed = true
	return nil
}

// packInto adds the pre-images to a pack and tells how many.
func (t *tx) packInto(ctx context.Context, w *snapshot.PackWriter) (int, error) {
	t.kept = map[snapshot.Path]kept{}
	n := 0
	for i, c := range t.changes {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		if err := t.packRenamed(w, t.adm.Nets[i], c); err != nil {
			return 0, fmt.Errorf("keep what was edited in %.200q: %w", c.Path, err)
		}
		if c.Before == nil || !t.adm.Nets[i].MovedTo.IsZero() {
			continue
		}
		if c.Before.Kind == vfs.KindSymlink {
			target := t.adm.Fact(c.Path).Target
			if err := w.Add(c.Before.Digest, int64(len(target)), bytes.NewReader([]byte(target))); err != nil {
				return 0, fmt.Errorf("keep pre-image of %.200q: %w", c.Path, err)
			}
			n++
			continue
		}
		if err := t.packFile(w, t.adm.Nets[i], c); err != nil {
			return 0, fmt.Errorf("keep pre-image of %.200q: %w", c.Path, err)
		}
		n++
	}
	return n, nil
}

func (t *tx) packFile(w *snapshot.PackWriter, n editplan.Net, c commit.Change) error {
	small := c.After != nil && c.After.Open != nil && c.Before.Size <= maxDelta && c.After.Size <= maxDelta
	if !small {
		f, err := t.view.Open(c.Path)
		if err != nil {
			return err
		}
		defer f.Close()
		return w.Add(c.Before.Digest, c.Before.Size, f)
	}
	before, err := t.view.Bytes(c.Path)
	if err != nil {
		return err
	}
	if err := w.Add(c.Before.Digest, c.Before.Size, bytes.NewReader(before)); err != nil {
		return err
	}
	return t.packDelta(w, n, before)
}

// packRenamed keeps what was edited in a file that got a new name at which nothing
// was. Its pre-image is kept at its old name.
func (t *tx) packRenamed(w *snapshot.PackWriter, n editplan.Net, c commit.Change) error {
	edited := n.Content == editplan.ContentBlob || n.Content == editplan.ContentEdits
	if !edited || n.From.IsZero() || c.Before != nil || c.After.Size > maxDelta || t.adm.Fact(n.From).Stat.Size > maxDelta {
		return nil
	}
	before, err := t.view.Bytes(n.From)
	if err != nil {
		return err
	}
	return t.packDelta(w, n, before)
}

func (t *tx) packDelta(w *snapshot.PackWriter, n editplan.Net, before []byte) error {
	after := n.Bytes
	if n.Content == editplan.ContentBlob {
		after = t.adm.Plan.Blobs[n.After.Digest]
	}
	if n.Content != editplan.ContentBlob && n.Content != editplan.ContentEdits {
		return nil
	}
	d := splice(before, after)
	id := snapshot.DigestOf(d)
	t.kept[n.Path] = kept{delta: id}
	return w.Add(id, int64(len(d)), bytes.NewReader(d))
}

// dropPack forgets the pre-images of a transaction that did not happen.
func (t *tx) dropPack() {
	if t.packed {
		_ = t.e.packs.Drop(t.txid) // a pack too many is bounded by the retention
		t.packed = false
	}
}

// splice describes after as before with one stretch replaced: two varints
// (length of the common head, length of the stretch that goes) and the bytes
// that come.
func splice(before, after []byte) []byte {
	head, tail := linediff.Common(before, after)
	out := make([]byte, 0, 2*binary.MaxVarintLen64+len(after)-head-tail)
	out = binary.AppendUvarint(out, uint64(head))
	out = binary.AppendUvarint(out, uint64(len(before)-head-tail))
	return append(out, after[head:len(after)-tail]...)
}

var errSplice = errors.New("kept difference does not fit the kept pre-image")

// unsplice makes the after-image; the result is to be compared with its digest.
func unsplice(before, d []byte) ([]byte, error) {
	head, n := binary.Uvarint(d)
	if n <= 0 {
		return nil, errSplice
	}
	d = d[n:]
	gone, n := binary.Uvarint(d)
	if n <= 0 || head > uint64(len(before)) || gone > uint64(len(before))-head {
		return nil, errSplice
	}
	out := make([]byte, 0, len(before)+len(d))
	out = append(out, before[:head]...)
	out = append(out, d[n:]...)
	return append(out, before[head+gone:]...), nil
}
