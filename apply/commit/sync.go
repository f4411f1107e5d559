package commit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aspengine/asp/internal/vfs"
)

// now and since are the only uses of the clock here: durations for the facts.
func now() time.Time { return time.Now() }

func since(t time.Time) time.Duration { return time.Since(t) }

const (
	// quietHost is how much unwritten data may be about for syncfs to be the
	// cheaper way: it waits for everybody's.
	quietHost = 32 << 20
	// syncsAtOnce is where parallel fsyncs stop gaining: they share commits of
	// the file system's journal.
	syncsAtOnce = 8
)

// chooseStyle decides once per transaction how barriers are made.
func (t *tx) chooseStyle() {
	t.facts.Style = t.o.Sync
	if t.o.Sync != SyncAuto {
		return
	}
	dirty := t.env.Dirty
	if dirty == nil {
		dirty = hostDirty
	}
	n, err := dirty()
	if err != nil {
		// Unknown: fsync costs more on a quiet host, but never waits for others.
		t.facts.Style = SyncEach
		return
	}
	t.facts.Dirty = n
	t.facts.Style = SyncEach
	if n < quietHost {
		t.facts.Style = SyncFS
	}
}

// syncer is one thing to sync.
type syncer func() error

// barrier does one group of syncs and keeps the record of it. A failed sync is
// never tried again: the kernel may have dropped the data and reports a failure
// once only.
func (t *tx) barrier(ctx context.Context, what string, all []syncer) error {
	if t.facts.Style == SyncNone {
		t.facts.Skipped = append(t.facts.Skipped, what)
		return nil
	}
	began := now()
	workers := syncsAtOnce
	if t.facts.Style == SyncFS {
		workers = 1
	}
	err := each(ctx, len(all), workers, func(i int) error { return all[i]() })
	if err != nil {
		t.facts.Failed = append(t.facts.Failed, what)
		return fmt.Errorf("sync %s: %w", what, err)
	}
	t.facts.Barriers = append(t.facts.Barriers, Barrier{What: what, Style: t.facts.Style, Calls: len(all), Took: since(began)})
	return nil
}

// wholeMounts syncs each file system written to, once.
func (t *tx) wholeMounts() []syncer {
	var all []syncer
	devs := map[uint64]bool{}
	for _, m := range t.mounts {
		if !devs[m.dev] {
			devs[m.dev] = true
			all = append(all, m.dir.SyncFS)
		}
	}
	return all
}

// syncAreas makes the Begin record and the way to it durable.
func (t *tx) syncAreas(ctx context.Context) error {
	if t.facts.Style == SyncFS {
		return t.barrier(ctx, barrierAreas, []syncer{t.mounts[t.areas[0].mount].dir.SyncFS})
	}
	return t.barrier(ctx, barrierAreas, t.journalSyncs())
}

// journalSyncs are the syncs that make the journal and all names above it durable.
func (t *tx) journalSyncs() []syncer {
	all := []syncer{t.w.Sync, t.areas[0].dir.Sync, t.txroot.Sync, t.holder.Sync}
	if t.above != nil {
		all = append(all, t.above.Sync)
	}
	return all
}

// syncData is the barrier before the first swap: staged bytes and attributes,
// their names, the journal and its name. Without it an exchange that reached
// the disk can name a file whose bytes never did.
func (t *tx) syncData(ctx context.Context) error {
	if t.facts.Style == SyncFS {
		return t.barrier(ctx, barrierData, t.wholeMounts())
	}
	all := t.journalSyncs()
	for i := range t.jobs {
		s := &t.log.Steps[i]
		if !t.jobs[i].staged {
			continue
		}
		a := t.areas[s.Area].dir
		switch s.After.Kind {
		case vfs.KindFile:
			if j := &t.jobs[i]; j.made != nil {
				all = append(all, j.syncMade)
				continue
			}
			all = append(all, func() error { return syncFile(a, s.Name) })
		case vfs.KindDir:
			all = append(all, func() error { return syncDir(a, s.Name) })
		}
	}
	for i, a := range t.areas[1:] {
		all = append(all, a.dir.Sync, func() error { return t.syncKey(t.areas[i+1].parent) })
	}
	return t.barrier(ctx, barrierData, all)
}

func syncFile(d vfs.Dir, name string) error {
	f, err := d.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

func syncDir(d vfs.Dir, name string) error {
	sub, err := d.OpenDir(name)
	if err != nil {
		return err
	}
	defer closeDir(sub)
	return sub.Sync()
}

// syncTree syncs a directory and those below it; anything else, and a name that
// is gone, needs nothing.
func syncTree(d vfs.Dir, name string) error {
	st, err := d.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && st.Kind != vfs.KindDir {
		return nil
	}
	if err != nil {
		return err
	}
	sub, err := d.OpenDir(name)
	if err != nil {
		return err
	}
	defer closeDir(sub)
	names, err := sub.List()
	if err != nil {
		return err
	}
	for _, e := range names {
		if err := syncTree(sub, e.Name); err != nil {
			return err
		}
	}
	return sub.Sync()
}

// syncKey syncs a live directory; one that is gone needs no sync of its own.
func (t *tx) syncKey(k dirKey) error {
	d, err := t.dirs.get(k.base, k.dir)
	if err != nil {
		if unreachable(err) {
			return nil
		}
		return err
	}
	defer t.dirs.put(d)
	return d.Sync()
}

// touch notes that names in the parent of a live path change.
func (t *tx) touch(base, path string) {
	dir, _ := split(path)
	t.touched[dirKey{base, dir}] = true
}

// syncNames is the barrier after the swaps: every live directory with a
// changed name, on both sides of each move, and the areas.
func (t *tx) syncNames(ctx context.Context, what string) error {
	if t.facts.Style == SyncFS {
		return t.barrier(ctx, what, t.wholeMounts())
	}
	var all []syncer
	// In a fixed order, so that two runs make the same calls.
	keys := slices.SortedFunc(maps.Keys(t.touched), func(a, b dirKey) int {
		return cmp.Or(strings.Compare(a.base, b.base), strings.Compare(a.dir, b.dir))
	})
	for _, k := range keys {
		all = append(all, func() error { return t.syncKey(k) })
	}
	for _, a := range t.areas {
		if a.dir != nil {
			all = append(all, a.dir.Sync)
		}
	}
	// A directory that left its place took along its side of the renames out of
	// it; it is synced where it is now.
	for i := range t.log.Steps {
		s := &t.log.Steps[i]
		if a := t.areas[s.Area].dir; a != nil && s.Name != "" && (s.Before.Kind == vfs.KindDir || s.After.Kind == vfs.KindDir) {
			all = append(all, func() error { return syncTree(a, s.Name) })
		}
	}
	return t.barrier(ctx, what, all)
}

// syncJournal makes the last record durable.
func (t *tx) syncJournal(what string) error {
	if t.facts.Style == SyncNone {
		t.facts.Skipped = append(t.facts.Skipped, what)
		return nil
	}
	began := now()
	if err := t.w.Sync(); err != nil {
		t.facts.Failed = append(t.facts.Failed, what)
		return err
	}
	t.facts.Barriers = append(t.facts.Barriers, Barrier{What: what, Style: SyncEach, Calls: 1, Took: since(began)})
	return nil
}
