package gitbase

import (
	"bytes"
	"errors"
	"io"

	"github.com/aspengine/asp/snapshot"
	"github.com/aspengine/asp/snapshot/gitbase/convert"
	"github.com/aspengine/asp/snapshot/scan"
)

// looked is what one look, or the cache, says of a regular file.
type looked struct {
	snapshot.Known
	st    scan.Stat
	c     scan.Content
	read  bool // c holds a fresh look
	fresh bool // something was learned that the cache lacks
	kept  bool // the cache's record of it is kept for the next cache
}

// replace takes back the cache's record: a fuller one will be added.
func (k *walker) replace(l *looked) {
	if l.kept {
		k.cache.Forget()
		l.kept = false
	}
}

// look returns at least the wanted digests of the file name in d.
func (k *walker) look(w *walk, r *scan.Reader, d scan.DirHandle, path, name string, st *scan.Stat, want scan.Want) (l looked, err error) {
	l.st = *st
	if !w.opts.Content {
		if kn, ok := k.cache.Lookup(path, st); ok {
			l.Known, l.kept = kn, true
			if (want&scan.WantSHA256 == 0 || !kn.SHA256.IsZero()) && (want&scan.WantGit == 0 || kn.HasGit) {
				return l, nil
			}
			// Take all from the new look: it may be of another state.
			k.replace(&l)
			l = looked{st: *st}
			want |= scan.WantSHA256 | scan.WantGit
		} else if kn, ok := w.remembered(path, st); ok && (want&scan.WantSHA256 == 0 || !kn.SHA256.IsZero()) && (want&scan.WantGit == 0 || kn.HasGit) {
			l.Known, l.fresh = kn, true
			return l, nil
		}
	}
	return l, k.readInto(r, d, name, want, &l)
}

func (k *walker) readInto(r *scan.Reader, d scan.DirHandle, name string, want scan.Want, l *looked) (err error) {
	if l.c, err = r.Read(d, name, want); err != nil {
		return err
	}
	k.hashed++
	l.st, l.read = l.c.Stat, true
	l.take(want)
	return nil
}

// take fills in wanted digests from a fresh look.
func (l *looked) take(want scan.Want) {
	dg := l.c.Digests(want)
	if want&scan.WantSHA256 != 0 {
		l.SHA256 = dg.SHA256
	}
	if want&scan.WantGit != 0 {
		l.Git, l.HasGit = dg.Git, true
	}
	l.fresh = true
}

// tracked compares a name on disk with its entry.
func (k *walker) tracked(w *walk, r *scan.Reader, d scan.DirHandle, rl *rules, e *entry, st *scan.Stat) error {
	te, in := w.t.inHead(e)
	name := e.path
	for i := len(name) - 1; i >= 0; i-- {
		if name[i] == '/' {
			name = name[i+1:]
			break
		}
	}
	switch st.Kind {
	case scan.File:
	case scan.Symlink:
		target, err := r.Link(d, name)
		if err != nil {
			return k.vanished(w, e, err)
		}
		if !in || te.mode != 0o120000 || oid(scan.Of(target, scan.WantGit).Git) != te.id {
			k.changed(snapshot.OverlayEntry{Path: e.path, Mode: snapshot.ModeSymlink, Digest: snapshot.DigestOf(target)})
		}
		return nil
	default:
		k.changed(snapshot.OverlayEntry{Path: e.path, Note: st.Kind.Note()})
		k.note(e.path, st.Kind.Note()+", not opened")
		return nil
	}
	mode := w.fileMode(e, te, in, st)
	var rule convert.Rule
	if rl.special {
		if rule = w.e.conv.Decide(rl.attrs().Lookup(name)); rule.Filtered {
			k.filtered++
			in = false // never equal: the blob would have to be computed by a foreign program
		}
	}
	want := scan.WantGit
	if !in || e.flags&inIndex == 0 || e.head >= 0 {
		want |= scan.WantSHA256 // will most likely be in the overlay
	}
	l, err := k.look(w, r, d, e.path, name, st, want)
	if err != nil {
		return k.unread(w, e, mode, err)
	}
	mode = w.fileMode(e, te, in, &l.st)
	same := in && (l.Git == te.id)
	if in && !same && mode != 0o120000 {
		if same, err = k.cleanSame(w, r, d, rl, e, name, te.id, &l); err != nil {
			return k.unread(w, e, mode, err)
		}
	}
	if same && mode == te.mode {
		// A look by content learns nothing that the index does not answer the
		// next look by stat data: the cache stays small.
		if !w.opts.Content || e.flags&inIndex == 0 || !w.t.idx.unchanged(e, &l.st) {
			k.remember(e.path, &l)
		}
		return nil
	}
	if l.SHA256.IsZero() {
		if l.read && l.c.Has(scan.WantSHA256) {
			l.take(scan.WantSHA256)
		} else {
			// The file is large, or only its git id was known: read it again, and
			// take all from that look, for it may be another state.
			k.replace(&l)
			l = looked{}
			if err := k.readInto(r, d, name, scan.WantSHA256|scan.WantGit, &l); err != nil {
				return k.unread(w, e, mode, err)
			}
		}
	}
	k.remember(e.path, &l)
	k.changed(snapshot.OverlayEntry{Path: e.path, Mode: snapshot.FileMode(mode), Digest: l.SHA256})
	return nil
}

func (k *walker) remember(path string, l *looked) {
	if l.fresh && k.cache.Add(path, &l.st, &l.Known) && k.cur != nil {
		k.learned = append(k.learned, recent{path, l.st, l.Known})
	}
}

// cleanSame tells whether the bytes, converted as git would on the way in, are
// the blob want.
func (k *walker) cleanSame(w *walk, r *scan.Reader, d scan.DirHandle, rl *rules, e *entry, name string, want oid, l *looked) (bool, error) {
	rule := w.e.conv.Decide(rl.attrs().Lookup(name))
	if rule.Raw() || rule.Filtered {
		return false, nil
	}
	key := w.ruleKey(rule, e)
	if l.CleanKey == key {
		return l.Clean == want, nil
	}
	if k.hasher == nil {
		k.hasher = convert.NewHasher()
	}
	var (
		id  convert.ID
		err error
	)
	if l.read && l.c.Small {
		id, err = k.hasher.Blob(w.ctx, bytes.NewReader(l.c.Bytes), int64(len(l.c.Bytes)), rule, w.indexCRLF(e))
	} else {
		f, oerr := d.Open(name)
		if oerr != nil {
			return false, oerr
		}
		defer f.Close()
		id, err = k.hasher.Blob(w.ctx, f, f.Stat.Size, rule, w.indexCRLF(e))
	}
	if err != nil {
		return false, err
	}
	k.replace(l)
	l.Clean, l.CleanKey, l.fresh = id, key, true
	return oid(id) == want, nil
}

// ruleKey names what a conversion depends on besides the bytes.
func (w *walk) ruleKey(rule convert.Rule, e *entry) (key [21]byte) {
	key[0] = 1 + byte(rule.EOL)
	if rule.Ident {
		key[0] |= 0x80
	}
	if rule.EOL == convert.Auto && e != nil && e.flags&inIndex != 0 {
		id := w.t.idx.id(e)
		copy(key[1:], id[:])
	}
	return key
}

// indexCRLF answers convert's question about the blob in the index.
func (w *walk) indexCRLF(e *entry) convert.IndexHasCRLF {
	if e == nil || e.flags&inIndex == 0 || e.flags&intentOnly != 0 {
		return nil
	}
	id := w.t.idx.id(e)
	return func() (has bool, err error) {
		err = w.r.objs.blob(id, func(_ int64, r io.Reader) error {
			has, err = convert.HasCRLF(r)
			return err
		})
		return has, err
	}
}

// fileMode is the mode that git would record for a regular file.
func (w *walk) fileMode(e *entry, te treeEntry, in bool, st *scan.Stat) uint32 {
	if in && te.mode == 0o120000 && !w.e.symlinks {
		return 0o120000 // a link written out as a file
	}
	if !w.e.fileMode {
		switch {
		case in && te.mode&0o170000 == 0o100000:
			return te.mode
		case e != nil && e.flags&inIndex != 0 && w.t.idx.mode(e)&0o170000 == 0o100000:
			return canonicalMode(w.t.idx.mode(e))
		}
		return 0o100644
	}
	if st.Exec {
		return 0o100755
	}
	return 0o100644
}

// restless tells whether a file was written, or replaced by something else,
// during every look: a log that grows, say. It has no digest, and the rest of
// the tree can still be told.
func restless(err error) bool {
	return errors.Is(err, scan.ErrChanging) || errors.Is(err, scan.ErrNotRegular) || errors.Is(err, convert.ErrChanged)
}

// unread sorts out why a tracked file could not be read.
func (k *walker) unread(w *walk, e *entry, mode uint32, err error) error {
	if errors.Is(err, scan.ErrUnreadable) {
		te, in := w.t.inHead(e)
		if st, err := w.root.Lstat(e.path); err == nil {
			mode = w.fileMode(e, te, in, &st) // the latest look at it
		}
		k.changed(snapshot.OverlayEntry{Path: e.path, Mode: snapshot.FileMode(mode), Note: "unreadable"})
		k.note(e.path, "not readable")
		return nil
	}
	if restless(err) {
		k.changed(snapshot.OverlayEntry{Path: e.path, Mode: snapshot.FileMode(mode), Note: "changing"})
		k.note(e.path, "changes while it is read")
		return nil
	}
	return k.vanished(w, e, err)
}

// vanished records a file that went away between listing and reading.
func (k *walker) vanished(w *walk, e *entry, err error) error {
	if err = ignoreGone(err); err == nil {
		k.gone(w, e)
	}
	return err
}

// untracked records a name that neither HEAD nor the index nor the ignore rules
// know.
func (k *walker) untracked(w *walk, r *scan.Reader, d scan.DirHandle, path, name string) error {
	st, err := d.Lstat(name)
	if err != nil {
		return ignoreGone(err)
	}
	k.files++
	k.saw(w, path, &st)
	switch st.Kind {
	case scan.Dir:
		return nil // made since the listing; the next look finds it
	case scan.File:
	case scan.Symlink:
		target, err := r.Link(d, name)
		if err != nil {
			return ignoreGone(err)
		}
		k.add(snapshot.OverlayEntry{Path: path, Mode: snapshot.ModeSymlink, Digest: snapshot.DigestOf(target)})
		return nil
	default:
		k.add(snapshot.OverlayEntry{Path: path, Note: st.Kind.Note()})
		k.note(path, st.Kind.Note()+", not opened")
		return nil
	}
	l, err := k.look(w, r, d, path, name, &st, scan.WantSHA256)
	mode := snapshot.FileMode(w.fileMode(nil, treeEntry{}, false, &l.st))
	if errors.Is(err, scan.ErrUnreadable) {
		k.add(snapshot.OverlayEntry{Path: path, Mode: mode, Note: "unreadable"})
		k.note(path, "not readable")
		return nil
	}
	if restless(err) {
		k.add(snapshot.OverlayEntry{Path: path, Mode: mode, Note: "changing"})
		k.note(path, "changes while it is read")
		return nil
	}
	if err != nil {
		return ignoreGone(err)
	}
	k.remember(path, &l)
	k.add(snapshot.OverlayEntry{Path: path, Mode: mode, Digest: l.SHA256})
	return nil
}
