package memfs

import (
	"slices"

	"github.com/aspengine/asp/internal/vfs"
)

// journal is the log of one device: the metadata operations that are not durable yet, over the
// image of those that are.
type journal struct {
	durable image
	pending []*metaOp
	byName  map[slot]*metaOp   // last pending operation on a name
	byInode map[uint64]*metaOp // last pending operation on an inode
	inDir   map[uint64][]*metaOp
	born    map[uint64]*metaOp // pending creation of a directory
	moved   *metaOp            // last pending move of a directory
}

// slot is a name in a directory.
type slot struct {
	dir  uint64
	name string
}

// metaOp is one atomic change of names and attributes.
type metaOp struct {
	entries []entryChange
	nodes   []attrs // the inodes that it touches, as they are after it
	deps    []*metaOp
	unsync  []uint64 // directories to be synced before it is durable
	dirs    []uint64 // directories whose names it changed
	done    bool     // durable
}

type entryChange struct {
	slot
	ino uint64 // 0 removes the name
}

// image is names and attributes by inode number. Inodes that no name reaches
// may be in it.
type image map[uint64]*imageNode

type imageNode struct {
	attrs
	entries map[string]uint64
}

func (im image) node(ino uint64) *imageNode {
	n := im[ino]
	if n == nil {
		n = &imageNode{entries: make(map[string]uint64)}
		n.ino = ino
		im[ino] = n
	}
	return n
}

func (im image) apply(op *metaOp) {
	for _, a := range op.nodes {
		im.node(a.ino).attrs = a.clone()
	}
	for _, e := range op.entries {
		if e.ino == 0 {
			delete(im.node(e.dir).entries, e.name)
		} else {
			im.node(e.dir).entries[e.name] = e.ino
		}
	}
}

func (im image) clone() image {
	out := make(image, len(im))
	for ino, n := range im {
		c := out.node(ino)
		c.attrs = n.attrs.clone()
		for name, child := range n.entries {
			c.entries[name] = child
		}
	}
	return out
}

func newJournal() *journal {
	j := &journal{durable: make(image)}
	j.clear()
	return j
}

func (j *journal) clear() {
	j.pending = nil
	j.byName = make(map[slot]*metaOp)
	j.byInode = make(map[uint64]*metaOp)
	j.inDir = make(map[uint64][]*metaOp)
	j.born = make(map[uint64]*metaOp)
	j.moved = nil
}

// kinds of operation that need more order than names and inodes give.
type special uint8

const (
	plain special = iota
	makesDir
	movesDir
)

// add logs an operation that has just been done. nodes are the inodes whose
// link count, name or attributes it changed, not the directories that hold the
// names.
func (j *journal) add(kind special, entries []entryChange, nodes ...*inode) {
	op := &metaOp{entries: entries}
	depend := func(on *metaOp) {
		if on != nil && !on.done && on != op && !slices.Contains(op.deps, on) {
			op.deps = append(op.deps, on)
		}
	}
	for _, e := range entries {
		depend(j.byName[e.slot])
		j.byName[e.slot] = op
		depend(j.born[e.dir])
		if !slices.Contains(op.dirs, e.dir) {
			op.dirs = append(op.dirs, e.dir)
		}
	}
	for _, n := range nodes {
		op.nodes = append(op.nodes, n.attrs.clone())
		depend(j.byInode[n.ino])
		j.byInode[n.ino] = op
		if len(entries) == 0 && n.kind == vfs.KindDir {
			op.dirs = append(op.dirs, n.ino) // attributes of a directory go with it
		}
	}
	for _, n := range nodes {
		if n.kind == vfs.KindDir && n.parent == nil {
			// Removed: what emptied it must not come back as names without a directory.
			for _, in := range j.inDir[n.ino] {
				depend(in)
			}
		}
	}
	switch kind {
	case makesDir:
		j.born[nodes[0].ino] = op
	case movesDir:
		depend(j.moved)
		j.moved = op
	}
	for _, d := range op.dirs {
		j.inDir[d] = append(j.inDir[d], op)
	}
	op.unsync = slices.Clone(op.dirs)
	if len(op.unsync) == 0 {
		// Attributes of a file: no directory vouches for them, only SyncFS or a
		// later operation on the same inode.
		op.unsync = []uint64{0}
	}
	j.pending = append(j.pending, op)
}

// syncDir marks the operations in directory ino as synced and makes durable
// what then is.
func (j *journal) syncDir(ino uint64) {
	for _, op := range j.inDir[ino] {
		op.unsync = slices.DeleteFunc(op.unsync, func(d uint64) bool { return d == ino })
	}
	chosen := make(map[*metaOp]bool)
	for again := true; again; {
		again = false
		for _, op := range j.pending {
			if !chosen[op] && len(op.unsync) == 0 && j.dirsDurable(op, chosen) {
				j.choose(op, chosen)
				again = true
			}
		}
	}
	j.settle(chosen)
}

func (j *journal) dirsDurable(op *metaOp, chosen map[*metaOp]bool) bool {
	for _, d := range op.dirs {
		if b := j.born[d]; b != nil && !b.done && !chosen[b] {
			return false
		}
	}
	return true
}

// choose takes op and all that it depends on.
func (j *journal) choose(op *metaOp, chosen map[*metaOp]bool) {
	if op.done || chosen[op] {
		return
	}
	chosen[op] = true
	for _, d := range op.deps {
		j.choose(d, chosen)
	}
}

func (j *journal) syncAll() {
	for _, op := range j.pending {
		j.durable.apply(op)
		op.done, op.deps = true, nil
	}
	j.clear()
}

// settle makes the chosen operations durable, in order.
func (j *journal) settle(chosen map[*metaOp]bool) {
	if len(chosen) == 0 {
		return
	}
	for _, op := range j.pending {
		if chosen[op] {
			j.durable.apply(op)
			op.done, op.deps = true, nil
		}
	}
	j.pending = slices.DeleteFunc(j.pending, func(op *metaOp) bool { return op.done })
	for ino, ops := range j.inDir {
		j.inDir[ino] = slices.DeleteFunc(ops, func(op *metaOp) bool { return op.done })
	}
}

// survivors returns the image of what is durable plus the pending operations
// that keep says yes to, never one without what it depends on.
func (j *journal) survivors(keep func(i int) bool) image {
	im := j.durable.clone()
	kept := make(map[*metaOp]bool)
	for i, op := range j.pending {
		ok := keep(i)
		for _, d := range op.deps {
			ok = ok && (d.done || kept[d])
		}
		if ok {
			kept[op] = true
			im.apply(op)
		}
	}
	return im
}
