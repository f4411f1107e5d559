package memfs

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/aspengine/asp/internal/vfs"
)

// Mode says what a power cut takes away of what was not synced.
type Mode uint8

// The modes.
const (
	ModeInvalid Mode = iota
	// Nothing of it survives.
	Nothing
	// Everything survives.
	Everything
	// NamesOnly: every change of names and attributes survives, no unsynced
	// data does. It is what delayed allocation does to an exchange of names
	// without a sync of the data before it.
	NamesOnly
	// Random: any set of operations closed under dependency, any content of
	// each unsynced file.
	Random
	// Ordered: the operations up to some moment and none after it, as a
	// journalling file system keeps them; any content of each unsynced file.
	Ordered
)

// Modes returns all modes, for loops over them.
func Modes() []Mode { return []Mode{Nothing, Everything, NamesOnly, Random, Ordered} }

func (m Mode) String() string {
	switch m {
	case Nothing:
		return "nothing survives"
	case Everything:
		return "everything survives"
	case NamesOnly:
		return "names only"
	case Random:
		return "random"
	case Ordered:
		return "ordered"
	}
	return fmt.Sprintf("mode %d", uint8(m))
}

// Seeded returns a choose for Crash that gives the same numbers for the same
// seed.
func Seeded(seed uint64) func(n int) int {
	return rand.New(rand.NewPCG(seed, 0)).IntN
}

// Crash returns the file system that is found after a power cut at this
// moment. The receiver is not changed and may be crashed again, so one run can
// be cut at every point and in every mode. choose(n) returns a number in
// [0, n); it is called in Random and Ordered only, and the result depends on
// nothing else. Inode numbers stay.
func (f *FS) Crash(mode Mode, choose func(n int) int) *FS {
	f.mu.Lock()
	defer f.mu.Unlock()
	im := make(image)
	for _, dev := range slices.Sorted(maps.Keys(f.logs)) { // sorted: choose must be called in one order
		log := f.logs[dev]
		var keep func(i int) bool
		switch mode {
		case Nothing:
			keep = func(int) bool { return false }
		case Everything, NamesOnly:
			keep = func(int) bool { return true }
		case Random:
			keep = func(int) bool { return choose(2) == 1 }
		case Ordered:
			n := choose(len(log.pending) + 1)
			keep = func(i int) bool { return i < n }
		default:
			panic("memfs: crash in " + mode.String())
		}
		maps.Copy(im, log.survivors(keep)) // no inode is on two devices
	}
	out := New(f.opt)
	out.clock, out.next, out.opt = f.clock, f.next, f.opt
	out.nodes = make(map[uint64]*inode)
	out.root = out.revive(im, f, f.root.ino, mode, choose)
	out.root.parent = out.root
	out.rebase()
	return out
}

// revive builds the inode ino of the image and, for a directory, all below it.
func (f *FS) revive(im image, old *FS, ino uint64, mode Mode, choose func(n int) int) *inode {
	if n := f.nodes[ino]; n != nil {
		n.nlink++ // a further hard link
		return n
	}
	n := &inode{attrs: im.node(ino).attrs.clone(), nlink: 1}
	f.nodes[ino] = n
	switch n.kind {
	case vfs.KindFile:
		was := old.nodes[ino]
		whole := true
		switch mode {
		case Nothing, NamesOnly:
			n.data, whole = bytes.Clone(was.durable), len(was.since) == 0
		case Everything:
			n.data = bytes.Clone(was.data)
		default:
			n.data, whole = was.afterCut(choose)
		}
		if whole {
			n.mtime, n.ctime = max(n.mtime, was.mtime), max(n.ctime, was.ctime)
		}
		n.sync()
		f.used += int64(len(n.data))
	case vfs.KindDir:
		n.nlink = 2
		n.entries = make(map[string]*inode)
		for _, name := range sortedKeys(im.node(ino).entries) { // sorted: choose must be called in one order
			c := f.revive(im, old, im.node(ino).entries[name], mode, choose)
			n.entries[name] = c
			if c.kind == vfs.KindDir {
				c.parent = n
				n.nlink++
			}
		}
	}
	return n
}

// rebase makes all current names, attributes and data durable.
func (f *FS) rebase() {
	f.logs = make(map[uint64]*journal)
	for ino, n := range f.nodes {
		if n.nlink == 0 {
			continue
		}
		log := f.logs[n.dev]
		if log == nil {
			log = newJournal()
			f.logs[n.dev] = log
		}
		d := log.durable.node(ino)
		d.attrs = n.attrs.clone()
		for name, c := range n.entries {
			d.entries[name] = c.ino
		}
		n.sync()
	}
}
