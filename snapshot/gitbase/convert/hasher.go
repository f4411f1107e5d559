package convert

import (
	"bytes"
	"context"
	"crypto/sha1" //nolint:gosec // git's object ids
	"errors"
	"fmt"
	"hash"
	"io"
	"strconv"
)

// inMemory is the size up to which a file is read once and kept; larger ones
// are read twice, because a blob's id begins with the length of its content.
const inMemory = 1 << 20

// Hasher computes blob ids. It keeps a buffer, so use one per goroutine.
type Hasher struct{ buf []byte }

// NewHasher returns a Hasher.
func NewHasher() *Hasher { return &Hasher{buf: make([]byte, 64<<10)} }

// Blob returns the id of the blob that git would store for the size bytes in
// src. Memory does not grow with size beyond a megabyte. Errors: ErrFiltered
// for a filtered rule, ErrChanged, the context's error, and those of src and
// idx. A nil idx stands for "no CRLF in the index".
//
// ErrChanged is not a promise: a change that keeps the length can go unseen.
// The caller compares stat data from before and after.
func (h *Hasher) Blob(ctx context.Context, src io.ReaderAt, size int64, r Rule, idx IndexHasCRLF) (ID, error) {
	if r.Filtered {
		return ID{}, ErrFiltered
	}
	if r.Raw() {
		s := newHash(size)
		if err := h.scan(ctx, src, size, s.write); err != nil {
			return ID{}, err
		}
		return s.id()
	}
	if size <= inMemory {
		// One look at the file, so that counting and hashing see the same bytes.
		b := bytes.NewBuffer(make([]byte, 0, size))
		if err := h.scan(ctx, src, size, func(p []byte) { b.Write(p) }); err != nil {
			return ID{}, err
		}
		c, err := Clean(b.Bytes(), r, idx)
		if err != nil {
			return ID{}, err
		}
		return BlobOf(c), nil
	}
	return h.large(ctx, src, size, r, idx)
}

// BlobOf returns the id of the blob with exactly this content.
func BlobOf(content []byte) ID {
	h := sha1.New() //nolint:gosec // git's object ids
	h.Write(header(int64(len(content))))
	h.Write(content)
	return ID(h.Sum(nil))
}

// large counts in a first pass and hashes in a second.
func (h *Hasher) large(ctx context.Context, src io.ReaderAt, size int64, r Rule, idx IndexHasCRLF) (ID, error) {
	var s stats
	var plain counter // length with $Id$ collapsed, line ends as they are
	p := newPipe(&plain, false, r.Ident)
	if err := h.scan(ctx, src, size, func(b []byte) { s.add(b); p.write(b) }); err != nil {
		return ID{}, err
	}
	s.end()
	convert := r.EOL == Text
	if r.EOL == Auto {
		var err error
		if convert, err = s.convert(idx); err != nil {
			return ID{}, err
		}
	}
	want := plain.n
	if convert { // no CRLF lies inside an $Id$, so the two savings add up
		want -= s.crlf
	}
	out := newHash(want)
	p = newPipe(out, convert, r.Ident)
	if err := h.scan(ctx, src, size, p.write); err != nil {
		return ID{}, err
	}
	p.end()
	if out.n != want {
		return ID{}, ErrChanged
	}
	return out.id()
}

// scan hands all of src to f and sees to it that there are size bytes, no more
// and no less.
func (h *Hasher) scan(ctx context.Context, src io.ReaderAt, size int64, f func([]byte)) error {
	for at := int64(0); ; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := src.ReadAt(h.buf, at)
		if at += int64(n); at > size {
			return ErrChanged
		}
		f(h.buf[:n])
		switch {
		case errors.Is(err, io.EOF):
			if at != size {
				return ErrChanged
			}
			return nil
		case err != nil:
			return fmt.Errorf("read working file: %w", err)
		case n == 0:
			return fmt.Errorf("read working file: %w", io.ErrNoProgress)
		}
	}
}

func newHash(size int64) *hasher {
	h, ok := sha1.New().(hash.Cloner) //nolint:gosec // git's object ids
	if !ok {
		// The documentation of crypto/sha1 says that it is one.
		return &hasher{err: errors.New("hash blob: SHA-1 state cannot be copied")}
	}
	h.Write(header(size)) //nolint:errcheck // a hash never fails
	return &hasher{h: h}
}

func (s *hasher) id() (ID, error) {
	if s.err != nil {
		return ID{}, s.err
	}
	return ID(s.h.Sum(nil)), nil
}

func header(size int64) []byte {
	return append(strconv.AppendInt([]byte("blob "), size, 10), 0)
}

// String returns the 40 lower-case hexadecimal digits.
func (id ID) String() string { return fmt.Sprintf("%x", id[:]) }
