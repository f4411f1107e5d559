package gitbase

// DecodeIndex and ListIndex open the index decoder to tests.
func DecodeIndex(raw []byte) (n int, paths []string, err error) {
	x := &index{raw: raw, tree: cacheTree{entryCount: -1}}
	if err := x.decode(); err != nil {
		return 0, nil, err
	}
	t := &table{idx: x, entries: x.entries}
	t.arrange()
	for i := range t.dirs {
		for _, f := range t.files[t.dirs[i].f0:t.dirs[i].f1] {
			e := &t.entries[f]
			if t.find(e.path) != e || t.file(&t.dirs[i], e.path[t.dirs[i].base:]) != f {
				panic("the table does not find " + e.path)
			}
			n++
		}
	}
	for i := range x.entries {
		paths = append(paths, x.entries[i].path)
	}
	return n, paths, nil
}

// WhyWalked is why the last look of a resident work tree was a walk.
func (r *Repo) WhyWalked() string { return r.keep.why }

// Watches are those of what a resident work tree remembers; nil for none.
func Watches(r *Repo) any {
	if r.keep.m == nil || r.keep.m.tree == nil {
		return nil
	}
	return r.keep.m.tree
}
