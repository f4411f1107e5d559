package commit

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
)

// findHolder opens the directory that TxDir is, or will be, in. Where that must
// be made first (the .asp of a plain directory) the handle is on what holds it.
func (t *tx) findHolder() (err error) {
	parent := filepath.Dir(t.env.TxDir)
	t.holder, err = t.env.FS.OpenRoot(parent)
	if errors.Is(err, fs.ErrNotExist) && filepath.Base(parent) == ".asp" {
		t.waits = true
		t.holder, err = t.env.FS.OpenRoot(filepath.Dir(parent))
	}
	return err
}

// makeTxDir makes TxDir and the transaction's own directory in it.
func (t *tx) makeTxDir() error {
	if t.waits {
		if err := t.holder.Mkdir(".asp", 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		h, err := t.holder.OpenDir(".asp")
		if err != nil {
			return err
		}
		// .asp's own name has to become durable too; the data barrier syncs it.
		t.above = t.holder
		t.holder, t.waits = h, false
	}
	base := filepath.Base(t.env.TxDir)
	err := t.holder.Mkdir(base, 0o700)
	old := errors.Is(err, fs.ErrExist)
	if err != nil && !old {
		return err
	}
	if t.txroot, err = t.holder.OpenDir(base); err != nil {
		return err
	}
	if old {
		if err := t.allAttended(); err != nil {
			return err
		}
	}
	if err := t.txroot.Mkdir(t.id, 0o700); err != nil {
		return err
	}
	t.areas[0].dir, err = t.txroot.OpenDir(t.id)
	return err
}

// allAttended makes sure that every transaction kept under TxDir has been
// recovered and only waits for a person.
func (t *tx) allAttended() error {
	names, err := t.txroot.List()
	if err != nil {
		return err
	}
	for _, e := range names {
		d, err := t.txroot.OpenDir(e.Name)
		if err != nil {
			continue // no directory: not a transaction of ours
		}
		open, _, err := latestAttention(d, e.Name)
		closeDir(d)
		if err != nil {
			return err
		}
		if len(open) == 0 {
			return fmt.Errorf("%w: %.200q", ErrUnrecovered, e.Name)
		}
	}
	return nil
}
