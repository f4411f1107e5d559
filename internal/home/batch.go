package home

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"github.com/aspengine/asp/internal/vfs"
)

// SyncMode chooses how a barrier is made.
type SyncMode uint8

// The modes. EachFile syncs every written file and every directory touched: it
// costs one device write each and is not slowed by a neighbour's dirty data.
// WholeFS is one syncfs, whatever the number of files.
const (
	SyncInvalid SyncMode = iota
	EachFile
	WholeFS
)

// Batch remembers what was written since the last barrier, so that several
// rooms can share one: pass the same batch to each, then Sync once. All that goes
// into one batch lies in one state directory, on one file system. Safe for
// concurrent use. The zero value is ready.
type Batch struct {
	mu    sync.Mutex
	files []vfs.File
	dirs  []vfs.Dir
	owned []vfs.Dir // those of dirs that are ours to close
	whole bool      // what another left unsynced has to be covered too
	after []func() error
}

// WriteFile is the package's WriteFile, remembered for the barrier.
func (b *Batch) WriteFile(dir vfs.Dir, name string, data []byte) error {
	return b.put(dir, name, data, vfs.Replace)
}

// CreateFile is the package's CreateFile, remembered for the barrier.
func (b *Batch) CreateFile(dir vfs.Dir, name string, data []byte) error {
	return b.put(dir, name, data, vfs.NoReplace)
}

func (b *Batch) put(dir vfs.Dir, name string, data []byte, mode vfs.RenameMode) error {
	f, err := put(dir, name, data, mode)
	if err != nil {
		return err
	}
	b.mu.Lock()
	b.files = append(b.files, f)
	b.mu.Unlock()
	b.Touch(dir)
	return nil
}

// Touch remembers that names in dir changed. The handle must stay open until
// Sync or Drop.
func (b *Batch) Touch(dir vfs.Dir) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, d := range b.dirs {
		if d == dir {
			return
		}
	}
	b.dirs = append(b.dirs, dir)
}

// own is Touch for a handle that the batch closes.
func (b *Batch) own(dir vfs.Dir) {
	b.Touch(dir)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.owned = append(b.owned, dir)
}

// Whole makes the next Sync one of the whole file system, whatever its mode: what
// was written rests on files that somebody else wrote and did not sync, and that
// this batch has no handle of.
func (b *Batch) Whole() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.whole = true
}

// After runs f once the next Sync succeeded: clean-up that is only right when
// the data is safe. What f writes is not covered by that barrier.
func (b *Batch) After(f func() error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.after = append(b.after, f)
}

// Covered tells the batch that a barrier of somebody else's (a syncfs of this
// file system, begun after the last write of the batch) succeeded: it runs
// the clean-up and forgets everything.
func (b *Batch) Covered() error {
	after := b.take()
	return run(after)
}

// Sync makes everything remembered durable. After an error nothing is known
// and nothing is retried: the batch is forgotten and the caller must treat the
// writes as uncertain.
func (b *Batch) Sync(mode SyncMode) error {
	b.mu.Lock()
	files, dirs, owned, after := b.files, b.dirs, b.owned, b.after
	if mode == EachFile && b.whole {
		mode = WholeFS
	}
	b.files, b.dirs, b.owned, b.after, b.whole = nil, nil, nil, nil, false
	b.mu.Unlock()
	var errs []error
	switch {
	case mode != EachFile && mode != WholeFS:
		errs = append(errs, errors.New("no sync mode given"))
	case mode == WholeFS && len(dirs) > 0:
		err := dirs[0].SyncFS()
		if errors.Is(err, errors.ErrUnsupported) {
			err = eachIn(dirs)
		}
		errs = append(errs, err)
	default:
		// Starting all writes before waiting for the first lets the
		// device take them together.
		for _, f := range files {
			_ = f.StartWriteback()
		}
		for _, f := range files {
			errs = append(errs, f.Sync())
		}
		for _, d := range dirs {
			errs = append(errs, d.Sync())
		}
	}
	for _, f := range files {
		errs = append(errs, f.Close())
	}
	for _, d := range owned {
		errs = append(errs, d.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("sync the state directory: %w", err)
	}
	return run(after)
}

// eachIn syncs every file in dirs, and dirs, where the system has no call for all of
// a file system: what others left there is covered too. What they left in directories
// that the batch never touched is not, which is why nothing is claimed on such a
// system that a power cut could disprove.
func eachIn(dirs []vfs.Dir) error {
	var errs []error
	for _, d := range dirs {
		names, err := d.List()
		errs = append(errs, err)
		for _, e := range names {
			if e.Kind != vfs.KindFile {
				continue
			}
			f, err := d.Open(e.Name)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err == nil {
				err = errors.Join(f.Sync(), f.Close())
			}
			errs = append(errs, err)
		}
		errs = append(errs, d.Sync())
	}
	return errors.Join(errs...)
}

// Drop forgets everything without a barrier, for callers that do not care
// about a power cut.
func (b *Batch) Drop() { b.take() }

func (b *Batch) take() []func() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	after := b.after
	for _, f := range b.files {
		_ = f.Close() // written and not synced: closing can lose nothing more
	}
	for _, d := range b.owned {
		_ = d.Close()
	}
	b.files, b.dirs, b.owned, b.after, b.whole = nil, nil, nil, nil, false
	return after
}

func run(fs []func() error) error {
	var errs []error
	for _, f := range fs {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}
