package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/snapshot/scan"
)

// treeCacheName holds digests of files that a stamp has no need to read. It is
// apart from the stat cache, which forgets what the last stamp did not ask.
const treeCacheName = "treecache"

// HashFiles fills in the digests that are missing in files, by reading what is
// on disk below root, in parallel; state, the trusted directory of the
// workspace or nil, remembers them by stat data. Files that are not there, or
// cannot be read, or are no files any more, are left out of the result: they
// are no content that anybody could be given. The result has the order of
// files and shares nothing with it. What is read is held against Stored; Faithful
// tells what came of that.
func HashFiles(ctx context.Context, root string, files []File, state vfs.Dir) ([]File, error) {
	out := slices.Clone(files)
	// Files of one directory are one task: it is opened once.
	dirs := map[string][]int{}
	for i := range out {
		if out[i].Digest.IsZero() {
			d, _ := splitPath(out[i].Path)
			dirs[d] = append(dirs[d], i)
		}
	}
	if len(dirs) == 0 {
		return out, ctx.Err()
	}
	top, err := scan.OpenRoot(root)
	if err != nil {
		return nil, fmt.Errorf("read workspace: %w", err)
	}
	defer top.Close()
	old, err := loadCache(state, treeCacheName, root)
	if err != nil {
		old = &StatCache{key: root} // what cannot be read is empty
	}
	now := time.Now().UnixNano()
	parts := make([]*CacheBuilder, scan.Workers())
	for i := range parts {
		parts[i] = old.Builder(now)
	}
	err = scan.Walk(ctx, top, len(parts), scan.Task[[]int]{}, func(w *scan.Worker[[]int], d scan.DirHandle, t scan.Task[[]int], err error) error {
		if t.Path == "" {
			for name, list := range dirs {
				if name != "" {
					w.Push(scan.Task[[]int]{Path: name, Data: list})
				}
			}
			t.Data = dirs[""]
		}
		if err != nil {
			if t.Path != "" && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || notDir(err)) {
				return nil
			}
			return err
		}
		for _, i := range t.Data {
			if err := hashFile(&w.Reader, d, &out[i], parts[w.ID]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read workspace: %w", err)
	}
	if next, changed := MergeCaches(old, "", parts); changed {
		_ = next.storeAs(state, treeCacheName) // what is not remembered is read again
	}
	return slices.DeleteFunc(out, func(f File) bool { return f.Digest.IsZero() }), nil
}

// Faithful tells whether got, which HashFiles made of files, is the state that files are
// of, whatever is on disk by now: nothing is left out, and each file is by content what
// the state names. False where that cannot be told.
func Faithful(files, got []File) bool {
	return len(got) == len(files) && !slices.ContainsFunc(got, func(f File) bool { return f.Apart })
}

// hashFile fills in one digest, or leaves it zero.
func hashFile(r *scan.Reader, d scan.DirHandle, f *File, cache *CacheBuilder) error {
	_, name := splitPath(f.Path)
	st, err := d.Lstat(name)
	if err != nil {
		return ignoreGone(err)
	}
	switch st.Kind {
	case scan.Symlink:
		target, err := r.Link(d, name)
		if err != nil {
			return ignoreGone(err)
		}
		f.Apart = f.Mode != ModeSymlink || f.Stored != [20]byte{} && scan.Of(target, scan.WantGit).Git != f.Stored
		f.Digest, f.Mode = DigestOf(target), ModeSymlink
		return nil
	case scan.File:
	default:
		return nil
	}
	if f.Mode == ModeSymlink {
		f.Mode, f.Apart = modeOf(&st), true
	}
	want := scan.WantSHA256
	if f.Stored != [20]byte{} {
		want |= scan.WantGit
	}
	if k, ok := cache.Lookup(f.Path, &st); ok {
		if want&scan.WantGit == 0 || k.HasGit {
			f.take(k)
			return nil
		}
		cache.Forget() // both are taken from one look
	}
	c, err := r.Read(d, name, want)
	switch {
	case errors.Is(err, scan.ErrUnreadable), errors.Is(err, scan.ErrNotRegular), errors.Is(err, scan.ErrChanging):
		return nil
	case err != nil:
		return ignoreGone(err)
	}
	dg := c.Digests(want)
	k := Known{SHA256: dg.SHA256, Git: dg.Git, HasGit: want&scan.WantGit != 0}
	f.take(k)
	cache.Add(f.Path, &c.Stat, &k)
	return nil
}

// take fills in what one look at a file found.
func (f *File) take(k Known) {
	f.Digest = k.SHA256
	f.Apart = f.Apart || f.Stored != [20]byte{} && k.Git != f.Stored
}

// splitPath splits a raw path into directory, "" for the top, and name.
func splitPath(p string) (dir, name string) {
	for i := len(p) - 1; i >= 0; i-- {
		if p[i] == '/' {
			return p[:i], p[i+1:]
		}
	}
	return "", p
}

// overlayFiles are the files among overlay entries.
func overlayFiles(all []OverlayEntry) []File {
	var out []File
	for _, o := range all {
		if !o.Gone && o.Note == "" {
			out = append(out, File{Path: o.Path, Mode: o.Mode, Digest: o.Digest})
		}
	}
	return out
}

// Files implements Workspace: outside git the overlay is everything.
func (p *plain) Files(ctx context.Context, s *Stamp) ([]File, error) {
	if st, ok := s.State.(*plainState); !ok || st.of != p {
		return nil, fmt.Errorf("list files: %w", ErrStamp)
	}
	return overlayFiles(s.Overlay), ctx.Err()
}
