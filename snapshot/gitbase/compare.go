package gitbase

import (
	"bytes"
	"cmp"
	"crypto/sha1"
	"slices"
	"strconv"
)

// newTable brings index and HEAD's tree together. Sub-trees that are equal are
// recognized by their ids and never read: the index's cache-tree gives those
// ids when trust is set, and they are computed from the entries otherwise. So
// an index that equals HEAD costs no object at all.
func newTable(x *index, head oid, o *objects, trust bool) (*table, error) {
	t := &table{idx: x, entries: x.entries}
	t.arrange()
	c := comparer{t: t, o: o, known: make([]known, len(t.dirs))}
	root := &x.tree
	if !trust {
		root = nil
	}
	if err := c.dir(0, root, head); err != nil {
		return nil, err
	}
	if len(c.extra) > 0 {
		all := make([]entry, 0, len(t.entries)+len(c.extra))
		all = append(append(all, t.entries...), c.extra...)
		slices.SortFunc(all, func(a, b entry) int { return cmp.Compare(a.path, b.path) })
		t.entries = all
		t.arrange()
	}
	return t, nil
}

type comparer struct {
	t     *table
	o     *objects
	extra []entry // what only HEAD's tree has
	known []known // ids by directory, each computed once
}

type known struct {
	id        oid
	done, has bool
}

// dir compares the directory node d of the index with the tree id.
func (c *comparer) dir(d int32, ct *cacheTree, head oid) error {
	t := c.t
	n := &t.dirs[d]
	if id, ok := c.id(d, ct); ok && id == head {
		return nil
	}
	for _, f := range t.files[n.f0:n.f1] {
		t.entries[f].flags |= notInHead
	}
	seen := make([]bool, n.k1-n.k0)
	err := c.o.tree(head, func(name string, te treeEntry) error {
		if te.mode == modeTree {
			at := t.kidAt(n, name)
			if at < 0 {
				return c.only(n.path, name, te.id)
			}
			seen[at-n.k0] = true
			return c.dir(t.kids[at], ct.sub(name), te.id)
		}
		f := t.file(n, name)
		if f < 0 {
			c.add(n.path, name, te)
			return nil
		}
		e := &t.entries[f]
		e.flags &^= notInHead
		if e.flags&inIndex == 0 || e.flags&intentOnly != 0 || canonicalMode(t.idx.mode(e)) != te.mode || t.idx.id(e) != te.id {
			e.head = int32(len(t.heads))
			t.heads = append(t.heads, te)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i, s := range seen {
		if !s {
			k := &t.dirs[t.kids[n.k0+int32(i)]]
			for j := k.lo; j < k.hi; j++ {
				t.entries[j].flags |= notInHead
			}
		}
	}
	return nil
}

func (c *comparer) add(dir, name string, te treeEntry) {
	if dir != "" {
		name = dir + "/" + name
	}
	c.extra = append(c.extra, entry{path: name, head: int32(len(c.t.heads))})
	c.t.heads = append(c.t.heads, te)
}

// only adds everything below a tree that the index has nothing of.
func (c *comparer) only(dir, name string, id oid) error {
	if dir != "" {
		name = dir + "/" + name
	}
	return c.o.tree(id, func(n string, te treeEntry) error {
		if te.mode == modeTree {
			return c.only(name, n, te.id)
		}
		c.add(name, n, te)
		return nil
	})
}

// id is the tree id that the index's entries below d would give. ok is false
// when they give none (unmerged paths, intent to add).
func (c *comparer) id(d int32, ct *cacheTree) (oid, bool) {
	k := &c.known[d]
	if !k.done {
		k.id, k.has = c.compute(d, ct)
		k.done = true
	}
	return k.id, k.has
}

func (c *comparer) compute(d int32, ct *cacheTree) (id oid, ok bool) {
	n := &c.t.dirs[d]
	if ct != nil && ct.entryCount >= 0 {
		if ct.entryCount == int(n.hi-n.lo) {
			return ct.id, true
		}
	}
	type item struct {
		key  string // name, with a slash for directories: git's order
		mode uint32
		id   oid
	}
	items := make([]item, 0, n.f1-n.f0+n.k1-n.k0)
	size := 0
	for _, f := range c.t.files[n.f0:n.f1] {
		e := &c.t.entries[f]
		if e.flags&(unmerged|intentOnly) != 0 || e.flags&inIndex == 0 {
			return id, false
		}
		items = append(items, item{e.path[n.base:], canonicalMode(c.t.idx.mode(e)), c.t.idx.id(e)})
		size += len(e.path) - n.base + 28
	}
	for _, k := range c.t.kids[n.k0:n.k1] {
		name := c.t.dirs[k].path[n.base:]
		kid, ok := c.id(k, ct.sub(name))
		if !ok {
			return id, false
		}
		// The path in the entries goes on with a slash: take the key from there.
		items = append(items, item{c.t.entries[c.t.dirs[k].lo].path[n.base : n.base+len(name)+1], modeTree, kid})
		size += len(name) + 28
	}
	slices.SortFunc(items, func(a, b item) int { return cmp.Compare(a.key, b.key) })
	body := bytes.NewBuffer(make([]byte, 0, size))
	for i := range items {
		it := &items[i]
		name := it.key
		if it.mode == modeTree {
			name = name[:len(name)-1]
		}
		body.WriteString(strconv.FormatUint(uint64(it.mode), 8))
		body.WriteByte(' ')
		body.WriteString(name)
		body.WriteByte(0)
		body.Write(it.id[:])
	}
	h := sha1.New()
	h.Write(strconv.AppendInt([]byte("tree "), int64(body.Len()), 10))
	h.Write([]byte{0})
	h.Write(body.Bytes())
	h.Sum(id[:0])
	return id, true
}
