package exchange

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"syscall"

	"github.com/aspengine/asp/apply/commit"
	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/snapshot"
)

// place makes one changed path in the new tree.
func (w *work) place(path string, c commit.Change) (*refusal.Item, error) {
	dir, name, err := w.parentOf(path)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	w.facts.Written++
	source := path
	if !c.From.IsZero() {
		source = c.From.String()
	}
	if c.Before == nil && c.From.IsZero() {
		if c.After.Kind == vfs.KindSymlink {
			return nil, placeLink(dir, name, c.After, "")
		}
		return w.placeNew(dir, name, c.After)
	}
	sd, sn, err := split(w.root, source)
	if err != nil {
		return nil, err
	}
	defer sd.Close()
	switch {
	case w.pure(c):
		// The file itself gets its new name.
		if err := sd.Link(sn, dir, name); err != nil {
			return linkRefusal(path, err)
		}
		return nil, nil
	case c.After.Kind == vfs.KindSymlink:
		target := ""
		if c.After.Open == nil {
			if target, err = sd.Readlink(sn); err != nil {
				return nil, err
			}
		}
		return nil, placeLink(dir, name, c.After, target)
	}
	old, err := sd.Open(sn)
	if errors.Is(err, syscall.ELOOP) && c.After.Open != nil {
		return w.placeNew(dir, name, c.After) // a link becomes a file
	}
	if err != nil {
		return nil, err
	}
	defer old.Close()
	return w.placeAfter(dir, name, path, c.After, old)
}

func placeLink(dir vfs.Dir, name string, after *commit.Image, target string) error {
	if after.Open != nil {
		r, err := after.Open()
		if err != nil {
			return err
		}
		b, err := io.ReadAll(io.LimitReader(r, vfs.MaxTarget))
		if err = errors.Join(err, r.Close()); err != nil {
			return err
		}
		target = string(b)
	}
	if snapshot.DigestOf([]byte(target)) != after.Digest {
		return commit.ErrContent
	}
	return dir.Symlink(target, name)
}

// placeNew makes a file that has no predecessor, in its directory, from which it
// inherits what a new file inherits there.
func (w *work) placeNew(dir vfs.Dir, name string, after *commit.Image) (*refusal.Item, error) {
	if after.Open == nil {
		return nil, errors.New("after-image without bytes")
	}
	f, err := dir.Create(name, after.Perm&0o777)
	if err != nil {
		return nil, err
	}
	err = fill(f, after, nil)
	if err == nil && !after.UmaskApplies {
		err = f.Chmod(after.Perm & 0o7777)
	}
	return nil, errors.Join(err, f.Close())
}

// placeAfter makes a file that stands for an old one: it has owner, attributes
// and flags of that one and nothing of its directory's, so it is made elsewhere.
// Nobody else can read it until it is what it shall be.
func (w *work) placeAfter(dir vfs.Dir, name, path string, after *commit.Image, old vfs.File) (*refusal.Item, error) {
	if w.fresh == nil {
		if err := w.area.Mkdir(newName, 0o700); err != nil {
			return nil, err
		}
		var err error
		if w.fresh, err = w.area.OpenDir(newName); err != nil {
			return nil, err
		}
	}
	w.staged++
	tmp := fmt.Sprint(w.staged)
	f, err := w.fresh.Create(tmp, 0o600)
	if err != nil {
		return nil, err
	}
	why := ""
	if err = fill(f, after, old); err == nil {
		why, err = keep(f, old, after)
	}
	if err = errors.Join(err, f.Close()); err != nil || why != "" {
		if errors.Is(err, commit.ErrContent) && after.Open == nil {
			return &underneath(path)[0], nil
		}
		return metadata(path, why), err
	}
	return nil, w.fresh.Rename(tmp, dir, name, vfs.NoReplace)
}

// fill writes the bytes of after, or those of old if it has none of its own.
func fill(f vfs.File, after *commit.Image, old vfs.File) error {
	var src io.ReadCloser
	if after.Open != nil {
		var err error
		if src, err = after.Open(); err != nil {
			return err
		}
	} else {
		src = io.NopCloser(old)
	}
	h := sha256.New()
	_, err := io.Copy(f, io.TeeReader(src, h))
	if err = errors.Join(err, src.Close()); err != nil {
		return err
	}
	if snapshot.Digest(h.Sum(nil)) != after.Digest {
		return commit.ErrContent
	}
	return nil
}

// keep gives f owner, attributes, flags and mode of the file that it stands for.
// why says what cannot be kept.
func keep(f, old vfs.File, after *commit.Image) (why string, err error) {
	st, err := old.Stat()
	if err != nil {
		return "", err
	}
	now, err := f.Stat()
	if err != nil {
		return "", err
	}
	// The owner first: changing it clears setuid bits and capabilities.
	if st.UID != now.UID || st.GID != now.GID {
		if err := f.Chown(st.UID, st.GID); refuses(err) {
			return fmt.Sprintf("owner %d:%d cannot be kept", st.UID, st.GID), nil
		} else if err != nil {
			return "", err
		}
	}
	want, err := old.Xattrs()
	if err != nil {
		return "", err
	}
	have, err := f.Xattrs()
	if err != nil {
		return "", err
	}
	for k := range have {
		if _, ok := want[k]; !ok {
			return fmt.Sprintf("a new file gets the attribute %.200q, which the old one has not", k), nil
		}
	}
	for k, v := range want {
		if b, ok := have[k]; ok && string(b) == string(v) {
			continue
		}
		if err := f.SetXattr(k, v); refuses(err) {
			return fmt.Sprintf("the attribute %.200q cannot be kept", k), nil
		} else if err != nil {
			return "", err
		}
	}
	if why, err := keepFlags(f, old); err != nil || why != "" {
		return why, err
	}
	perm := after.Perm & 0o7777
	if after.UmaskApplies {
		perm = st.Perm
	}
	if err := f.Chmod(perm); err != nil && !refuses(err) {
		return "", err
	}
	if now, err = f.Stat(); err != nil {
		return "", err
	}
	if now.Perm != perm || now.UID != st.UID || now.GID != st.GID {
		return fmt.Sprintf("owner %d:%d and mode %04o cannot be kept", st.UID, st.GID, perm), nil
	}
	return "", nil
}

// refuses tells an answer of the file system ("not this") from a failure.
func refuses(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENOTSUP) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOSYS)
}
