package commit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/aspengine/asp/apply/journal"
	"github.com/aspengine/asp/internal/vfs"
)

// keepOpen writes the list of the steps that wait for a person and drops the
// staged names of all others.
func (t *tx) keepOpen(open []journal.Open) error {
	if err := t.writeOpen(open); err != nil {
		return err
	}
	keep := map[int]bool{}
	for _, o := range open {
		keep[o.Step] = true
	}
	if err := t.cleanAreas(keep); err != nil {
		// They go when the last path is resolved.
		t.notes = append(t.notes, fmt.Sprintf("staged files of the transaction stay for now: %v", err))
	}
	return nil
}

// writeOpen makes open the newest attention list, durably.
func (t *tx) writeOpen(open []journal.Open) error {
	own := t.areas[0].dir
	entries, err := own.List()
	if err != nil {
		return err
	}
	last, old := 0, []string(nil)
	for _, e := range entries {
		if num, ok := strings.CutPrefix(e.Name, attentionPrefix); ok {
			n := 0
			_, _ = fmt.Sscanf(num, "%d", &n) // a foreign spelling counts as 0 and is left behind
			last, old = max(last, n), append(old, e.Name)
		}
	}
	if err := journal.WriteAttention(own, fmt.Sprintf("%s%06d", attentionPrefix, last+1), t.id, open); err != nil {
		return err
	}
	if err := own.Sync(); err != nil {
		return err
	}
	for _, n := range old {
		if err := own.Unlink(n); err != nil {
			return err
		}
	}
	return nil
}

// describe tells people about open steps.
func (t *tx) describe(open []journal.Open) ([]AttentionPath, error) {
	var out []AttentionPath
	if damaged, err := t.damaged(); err != nil || damaged {
		return []AttentionPath{{TxID: t.id, Tag: t.log.Tag, Path: t.where(), Why: whyDamaged, Damaged: true, Now: "directory"}}, err
	}
	for _, o := range open {
		if o.Step >= len(t.log.Steps) {
			return nil, fmt.Errorf("attention list of %.200q names a step that is not there", t.id)
		}
		s := &t.log.Steps[o.Step]
		x, err := t.sides(s)
		if err != nil {
			return nil, err
		}
		a := AttentionPath{TxID: t.id, Tag: t.log.Tag, Path: s.Live.String(), Why: o.Why, Now: word(x.live.Kind)}
		if !s.Before.Absent() {
			a.Before = &PreImage{Kind: s.Before.Kind, Digest: s.Before.Digest, Size: s.Before.Size, Perm: s.Before.Perm}
			a.Kept = !x.kept.Absent() || s.Op == journal.Move && x.live.is(s.Before)
		}
		t.release(x)
		out = append(out, a)
	}
	slices.SortFunc(out, func(a, b AttentionPath) int { return strings.Compare(a.Path, b.Path) })
	return out, nil
}

// attended calls f for each transaction that waits for a person, until it
// returns true.
func attended(env Env, f func(t *tx, open []journal.Open) (bool, error)) error {
	holder, txroot, err := openTxRoot(&env)
	defer func() { closeDir(holder); closeDir(txroot) }()
	if err != nil || txroot == nil {
		return err
	}
	ids, err := transactions(txroot)
	if err != nil {
		return err
	}
	for _, id := range ids {
		stop, err := func() (bool, error) {
			t, _, err := load(env, id)
			if gone(txroot, id, err) {
				return false, nil
			}
			if err != nil {
				return false, fmt.Errorf("open transaction %.200q: %w", id, err)
			}
			defer t.close()
			open, _, err := latestAttention(t.areas[0].dir, id)
			if gone(txroot, id, err) {
				return false, nil
			}
			if err != nil || len(open) == 0 {
				return false, err
			}
			return f(t, open)
		}()
		if err != nil || stop {
			return err
		}
	}
	return nil
}

// gone tells whether a transaction could not be read because it has ended: whoever
// only looks holds no lock. One that is still there and lacks a part is another
// matter.
func gone(txroot vfs.Dir, id string, err error) bool {
	if !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	_, err = txroot.Lstat(id)
	return errors.Is(err, fs.ErrNotExist)
}

func attention(ctx context.Context, env Env) ([]AttentionPath, error) {
	var out []AttentionPath
	err := attended(env, func(t *tx, open []journal.Open) (bool, error) {
		ps, err := t.describe(open)
		out = append(out, ps...)
		return false, errors.Join(err, ctx.Err())
	})
	return out, wrap("list paths that need attention", err)
}

// atPath calls f with the open step at path.
func atPath(env Env, path string, f func(t *tx, open []journal.Open, at int) error) error {
	found := false
	err := attended(env, func(t *tx, open []journal.Open) (bool, error) {
		for i, o := range open {
			if o.Step < len(t.log.Steps) && t.log.Steps[o.Step].Live.String() == path {
				found = true
				return true, f(t, open, i)
			}
		}
		return false, nil
	})
	if err == nil && !found {
		err = ErrNoAttention
	}
	return err
}

func showPreImage(ctx context.Context, env Env, path string) (io.ReadCloser, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var r io.ReadCloser
	err := atPath(env, path, func(t *tx, open []journal.Open, at int) error {
		s := &t.log.Steps[open[at].Step]
		x, err := t.sides(s)
		if err != nil {
			return err
		}
		defer t.release(x)
		d, name, img := x.area, s.Name, x.kept
		if s.Op == journal.Move {
			d, name, img = x.d, x.name, x.live
		}
		switch {
		case s.Before.Absent():
			return errors.New("the path was absent before the transaction")
		case img.Absent() || s.Op == journal.Move && !img.is(s.Before):
			return errors.New("the bytes from before the transaction are not kept")
		case img.Kind == vfs.KindSymlink:
			target, err := d.Readlink(name)
			r = io.NopCloser(strings.NewReader(target))
			return err
		}
		f, err := d.Open(name)
		r = f
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("show pre-image of %.200q: %w", path, err)
	}
	return r, nil
}
