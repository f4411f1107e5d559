package snapshot

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"github.com/aspengine/asp/internal/vfs"
)

// Live reads the present state of single paths below an open root, component by
// component through descriptors: a link in a path is an error, never followed.
// Safe for concurrent use. It holds no descriptor of its own.
type Live struct{ root vfs.Dir }

// NewLive returns a Live below root, which stays the caller's.
func NewLive(root vfs.Dir) *Live { return &Live{root} }

// Entry is what is at a path now.
type Entry struct {
	Stat vfs.Stat
	// Target is where a symbolic link points; it was not followed.
	Target string
}

// Entry describes what is at p. A path where nothing is answers an error for
// which errors.Is(err, fs.ErrNotExist) holds.
func (l *Live) Entry(p Path) (Entry, error) {
	var e Entry
	err := l.in(p, func(d vfs.Dir, name string) (err error) {
		if e.Stat, err = d.Lstat(name); err == nil && e.Stat.Kind == vfs.KindSymlink {
			e.Target, err = d.Readlink(name)
		}
		return err
	})
	return e, err
}

// Open opens the regular file at p for reading. The caller closes it.
func (l *Live) Open(p Path) (f vfs.File, err error) {
	err = l.in(p, func(d vfs.Dir, name string) (err error) { f, err = d.Open(name); return err })
	return f, err
}

// Look is Entry, and opens what is there if it is a regular file, without looking at the
// way twice. The caller closes it.
func (l *Live) Look(p Path) (e Entry, f vfs.File, err error) {
	err = l.in(p, func(d vfs.Dir, name string) (err error) {
		if e.Stat, err = d.Lstat(name); err != nil {
			return err
		}
		switch e.Stat.Kind {
		case vfs.KindSymlink:
			e.Target, err = d.Readlink(name)
		case vfs.KindFile: // opening anything else could wait for ever
			f, err = d.Open(name)
		}
		return err
	})
	if err != nil && f != nil { // the directory did not close
		err, f = errors.Join(err, f.Close()), nil
	}
	return e, f, err
}

// ErrMoved says that a file did not hold still while it was hashed.
var ErrMoved = errors.New("file changed while it was read")

// Hash reads the regular file at p and returns the digest of its bytes with
// the state of the very file that was read, which was the same before and
// after (else ErrMoved). Memory does not grow with the file.
func (l *Live) Hash(ctx context.Context, p Path) (Digest, vfs.Stat, error) {
	f, err := l.Open(p)
	if err != nil {
		return Digest{}, vfs.Stat{}, err
	}
	defer f.Close()
	return HashFile(ctx, f)
}

// HashFile is Hash for an open file, from where it stands.
func HashFile(ctx context.Context, f vfs.File) (d Digest, before vfs.Stat, err error) {
	if before, err = f.Stat(); err != nil {
		return d, before, err
	}
	h := sha256.New()
	n, err := io.CopyBuffer(struct{ io.Writer }{h}, &cancelReader{ctx, f}, make([]byte, int(min(max(before.Size+1, 512), 128<<10))))
	if err != nil {
		return d, before, err
	}
	after, err := f.Stat()
	if err != nil {
		return d, before, err
	}
	if n != before.Size || after.Size != before.Size || after.Mtime != before.Mtime || after.Ctime != before.Ctime {
		return d, after, ErrMoved
	}
	h.Sum(d[:0])
	return d, after, nil
}

// cancelReader ends a long read when its context ends.
type cancelReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *cancelReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

func (l *Live) in(p Path, f func(d vfs.Dir, name string) error) error {
	if p.IsZero() {
		return fmt.Errorf("look at a path: %w", &PathError{"", "empty"})
	}
	if p.Dir() == "." {
		return f(l.root, p.Base())
	}
	d, err := l.root.OpenDir(p.Dir())
	if err != nil {
		return err
	}
	return errors.Join(f(d, p.Base()), d.Close())
}
