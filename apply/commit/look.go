package commit

import (
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"io/fs"
	"sync"
	"syscall"

	"github.com/aspengine/asp/apply/journal"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/snapshot"
)

// seen is what one look found at a name. The zero value is an absent name.
type seen struct {
	journal.Image
	st vfs.Stat
}

// scratch is what hashing needs; kept between files so that a thousand small
// files do not cost a thousand buffers.
type scratch struct {
	h   hash.Hash
	buf []byte
}

var scratches = sync.Pool{New: func() any { return &scratch{h: sha256.New(), buf: make([]byte, 128<<10)} }}

// sum hashes r with memory that does not grow with it.
func sum(r io.Reader) (snapshot.Digest, int64, error) { return sumFile(r, -1) }

// sumFile hashes a regular file of the given size, -1 if it is not known.
func sumFile(r io.Reader, size int64) (snapshot.Digest, int64, error) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	return s.copy(nil, r, size)
}

// copy hashes r and writes it to w, if that is not nil. With a size it takes a
// short read that reaches it for the end of the file, which saves a call for
// each small file; a regular file reads short nowhere else.
func (s *scratch) copy(w io.Writer, r io.Reader, size int64) (d snapshot.Digest, n int64, err error) {
	s.h.Reset()
	for {
		m, rerr := r.Read(s.buf)
		if m > 0 {
			s.h.Write(s.buf[:m])
			n += int64(m)
			if w != nil {
				if _, err := w.Write(s.buf[:m]); err != nil {
					return d, n, err
				}
			}
		}
		if rerr == io.EOF || rerr == nil && n == size && m < len(s.buf) {
			s.h.Sum(d[:0])
			return d, n, nil
		}
		if rerr != nil {
			return d, n, rerr
		}
	}
}

// look describes name in dir with its content. A file is hashed only if its
// size is one of those of the images wanted, as no other can be any of them;
// its digest is zero otherwise. FIFOs, sockets and devices come back as
// KindOther, unopened.
func look(dir vfs.Dir, name string, want ...journal.Image) (seen, error) {
	f, err := dir.Open(name)
	if err != nil {
		return lookOther(dir, name, err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return seen{}, err
	}
	s := seen{st: st, Image: journal.Image{Kind: vfs.KindFile, Size: st.Size, Perm: st.Perm, Ino: st.Ino}}
	for _, w := range want {
		if w.Kind == vfs.KindFile && w.Size == st.Size {
			s.Digest, s.Size, err = sumFile(f, st.Size)
			return s, err
		}
	}
	return s, nil
}

// lookThrough is look at a name that most likely is the file that f has open,
// unread: then nothing has to be opened.
func lookThrough(dir vfs.Dir, name string, f vfs.File, ino uint64, want journal.Image) (seen, error) {
	st, err := dir.Lstat(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return seen{}, err
	}
	if err != nil || st.Kind != vfs.KindFile || st.Ino != ino {
		return look(dir, name, want)
	}
	s := seen{st: st, Image: journal.Image{Kind: vfs.KindFile, Size: st.Size, Perm: st.Perm, Ino: st.Ino}}
	if st.Size == want.Size {
		s.Digest, s.Size, err = sumFile(f, st.Size)
	}
	return s, err
}

// lookOther describes a name that could not be opened as a file.
func lookOther(dir vfs.Dir, name string, cause error) (seen, error) {
	if !errors.Is(cause, syscall.ELOOP) && !errors.Is(cause, syscall.EINVAL) && !errors.Is(cause, fs.ErrNotExist) && !errors.Is(cause, fs.ErrPermission) {
		return seen{}, cause
	}
	st, err := dir.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return seen{}, nil
	}
	if err != nil {
		return seen{}, err
	}
	s := seen{st: st, Image: journal.Image{Kind: st.Kind, Size: st.Size, Perm: st.Perm, Ino: st.Ino}}
	switch st.Kind {
	case vfs.KindFile:
		// Unreadable: it is there, and nobody can say what it holds.
		if errors.Is(cause, fs.ErrPermission) {
			return s, nil
		}
		return seen{}, cause
	case vfs.KindSymlink:
		target, err := dir.Readlink(name)
		if err != nil {
			return seen{}, err
		}
		s.Digest, s.Size = snapshot.DigestOf([]byte(target)), int64(len(target))
	}
	return s, nil
}

// is tells whether what was seen is the image: kind, content and mode. A
// directory is judged by its inode, having no content of its own. The mode of a
// link means nothing.
func (s seen) is(i journal.Image) bool {
	switch {
	case s.Kind != i.Kind:
		return false
	case s.Kind == vfs.KindDir:
		return s.Ino == i.Ino
	case s.Kind == vfs.KindSymlink:
		return s.Digest == i.Digest
	case s.Kind == vfs.KindFile:
		return s.Digest == i.Digest && s.Perm == i.Perm && !s.Digest.IsZero()
	}
	return s.Absent()
}

// word names a kind for people.
func word(k vfs.Kind) string {
	switch k {
	case vfs.KindInvalid:
		return "absent"
	case vfs.KindFile:
		return "file"
	case vfs.KindDir:
		return "directory"
	case vfs.KindSymlink:
		return "symlink"
	}
	return "other"
}
