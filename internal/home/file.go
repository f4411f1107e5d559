package home

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/aspengine/asp/internal/vfs"
)

// TempPrefix starts the names of files that are being written. A process that
// dies may leave one; readers of directories skip them, and CleanTemp removes
// them.
const TempPrefix = ".tmp-"

// ErrTooLarge is the cause when a file exceeds the limit of its reader.
var ErrTooLarge = errors.New("larger than the limit")

// WriteFile makes name hold data, replacing what was there in one step: other
// processes see the old file or the whole new one. The mode is 0600. Not
// durable: after a power cut before a barrier the file may be the old one, the
// new one, empty or missing.
func WriteFile(dir vfs.Dir, name string, data []byte) error {
	f, err := put(dir, name, data, vfs.Replace)
	if err != nil {
		return err
	}
	return closed(f, name)
}

// CreateFile is WriteFile for a name that must not exist; fs.ErrExist if it
// does, and then nothing changed.
func CreateFile(dir vfs.Dir, name string, data []byte) error {
	f, err := put(dir, name, data, vfs.NoReplace)
	if err != nil {
		return err
	}
	return closed(f, name)
}

func closed(f vfs.File, name string) error {
	if err := f.Close(); err != nil {
		return fmt.Errorf("write %.200q: %w", name, err)
	}
	return nil
}

// put writes a temporary file and renames it; the handle stays open for a
// later sync.
func put(dir vfs.Dir, name string, data []byte, mode vfs.RenameMode) (_ vfs.File, err error) {
	tmp := TempPrefix + Random(8)
	f, err := dir.Create(tmp, 0o600)
	if err != nil {
		return nil, fmt.Errorf("write %.200q: %w", name, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("write %.200q: %w", name, err), f.Close())
			if e := dir.Unlink(tmp); e != nil && !errors.Is(e, fs.ErrNotExist) {
				err = errors.Join(err, e)
			}
		}
	}()
	if _, err := f.Write(data); err != nil {
		return nil, err
	}
	if err := dir.Rename(tmp, dir, name, mode); err != nil {
		return nil, err
	}
	return f, nil
}

// ReadFile reads the regular file name, at most limit bytes; ErrTooLarge when
// it is larger. Links and special files are refused by the layer below.
func ReadFile(dir vfs.Dir, name string, limit int64) ([]byte, error) {
	f, err := dir.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read %.200q: %w", name, err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("read %.200q: %w", name, err)
	}
	if st.Size > limit {
		return nil, fmt.Errorf("read %.200q: %w of %d bytes", name, ErrTooLarge, limit)
	}
	b := make([]byte, 0, st.Size+1)
	for {
		n, err := f.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case int64(len(b)) > limit:
			return nil, fmt.Errorf("read %.200q: %w of %d bytes", name, ErrTooLarge, limit)
		case errors.Is(err, io.EOF):
			return b, nil
		case err != nil:
			return nil, fmt.Errorf("read %.200q: %w", name, err)
		case len(b) == cap(b):
			b = append(b, 0)[:len(b)] // it grew while being read
		}
	}
}

// CleanTemp removes temporary files that a dead writer left in dir. Only call
// it while holding the lock that every writer of dir takes.
func CleanTemp(dir vfs.Dir) error {
	names, err := dir.List()
	if err != nil {
		return fmt.Errorf("clean up temporary files: %w", err)
	}
	var errs []error
	for _, e := range names {
		if strings.HasPrefix(e.Name, TempPrefix) {
			if err := dir.Unlink(e.Name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// Random returns n random bytes in hexadecimal, from the system's source.
func Random(n int) string {
	b := make([]byte, n)
	// crypto/rand.Read never fails; it ends the process if the system has
	// no random source.
	_, _ = rand.Read(b)
	return hex.EncodeToString(b)
}
