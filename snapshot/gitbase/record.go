package gitbase

import (
	"slices"

	"github.com/aspengine/asp/snapshot"
	"github.com/aspengine/asp/snapshot/scan"
	"github.com/aspengine/asp/snapshot/watch"
)

// recorder notes what a walk finds, by directory. Workers have a part each.
type recorder struct {
	tree  *watch.Tree
	known map[string]*seen // what an earlier walk found; read only
	parts []recorderPart
}

type recorderPart struct {
	dirs   []*seen
	recent []recent
	failed bool
}

func (rec *recorder) failed() bool {
	return slices.ContainsFunc(rec.parts, func(p recorderPart) bool { return p.failed })
}

// lookAt looks at single directories, and at new ones below them. Not ok: what
// it saw asks for a walk.
func (w *walk) lookAt(looks []*seen) (ok bool, err error) {
	w.begin()
	first := true
	err = scan.Walk(w.ctx, w.root, min(w.r.workers, len(looks)), looks[0].task,
		func(sw *scan.Worker[todo], d scan.DirHandle, t scan.Task[todo], err error) error {
			if first {
				// Nobody else runs before the first task is through.
				first = false
				for _, l := range looks[1:] {
					sw.Push(l.task)
				}
			}
			return w.ws[sw.ID].record(w, sw, d, t, err)
		})
	if err != nil || w.rec.failed() {
		return false, err
	}
	return !slices.ContainsFunc(w.ws, func(k walker) bool { return k.attrs || k.shared }), nil
}

// record is dir with a note of what it found.
func (k *walker) record(w *walk, sw *scan.Worker[todo], d scan.DirHandle, t scan.Task[todo], err error) error {
	part := &w.rec.parts[sw.ID]
	s := &seen{task: t, restless: err != nil}
	if err == nil && w.rec.tree.Add(d.Fd(), t.Path) != nil {
		part.failed = true
	}
	overlay, notes, files, filtered := len(k.overlay), len(k.notes), k.files, k.filtered
	k.cur = s
	err = k.dir(w, sw, d, t, err)
	k.cur = nil
	s.overlay, s.notes = slices.Clone(k.overlay[overlay:]), slices.Clone(k.notes[notes:])
	s.files, s.filtered = k.files-files, k.filtered-filtered
	s.restless = s.restless || len(s.notes) > 0
	part.dirs = append(part.dirs, s)
	if w.rec.known != nil { // a walk leaves it to the stat cache
		part.recent = append(part.recent, k.learned...)
	}
	k.learned = k.learned[:0]
	return err
}

// enter tells whether a walk goes on in the directory name below t: not when it
// is known and nothing happened there, or when its own turn comes.
func (k *walker) enter(w *walk, path, name string) bool {
	if k.cur == nil {
		return true
	}
	k.cur.kids = append(k.cur.kids, name)
	return w.rec.known[path] == nil
}

// unsure says that events do not tell all about the directory at hand.
func (k *walker) unsure() {
	if k.cur != nil {
		k.cur.restless = true
	}
}

// saw adds the state of a file to what was seen, and notes one that has several names.
func (k *walker) saw(w *walk, path string, st *scan.Stat) {
	if !w.opts.Except[path] {
		k.traces += st.Trace()
	}
	if st.Nlink > 1 && k.cur != nil {
		k.cur.restless = true
		k.cur.linked = append(k.cur.linked, st.Ino)
	}
}

// remembered is what is known of the file beside the stat cache.
func (w *walk) remembered(path string, st *scan.Stat) (snapshot.Known, bool) {
	f, ok := w.recent[path]
	return f.Known, ok && f.st == *st
}
