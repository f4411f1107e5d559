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

// TempPrefix starts the names of files that are being written. Their writer holds
// a lock on the open file (vfs.Claim), which dies with it, so that CleanTemp can
// tell what a dead one left. Readers of directories skip them all.
const TempPrefix = ".tmp-"

// TornPrefix starts the names under which torn files are set aside, for a person;
// CleanTemp leaves them.
const TornPrefix = TempPrefix + "torn-"

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
func put(dir vfs.Dir, name string, data []byte, mode vfs.RenameMode) (vfs.File, error) {
	for try := 1; ; try++ {
		f, taken, err := putOnce(dir, name, data, mode)
		switch {
		case err == nil:
			return f, nil
		case !taken || try == tries:
			return nil, fmt.Errorf("write %.200q: %w", name, err)
		}
	}
}

// tries is how often a file is begun anew. A cleaner can take a temporary file
// only in the moment between its making and its lock.
const tries = 20

// errTaken: a cleaner had the file before its writer could lock it.
var errTaken = errors.New("its temporary file was taken for a left-over")

// putOnce is one try; taken tells that a cleaner came between.
func putOnce(dir vfs.Dir, name string, data []byte, mode vfs.RenameMode) (_ vfs.File, taken bool, err error) {
	tmp := TempPrefix + Random(8)
	f, err := dir.Create(tmp, 0o600)
	if err != nil {
		return nil, false, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
			if e := dir.Unlink(tmp); e != nil && !errors.Is(e, fs.ErrNotExist) {
				err = errors.Join(err, e)
			}
		}
	}()
	// Where there are no such locks nothing is cleaned up either.
	if mine, err := vfs.Claim(f); err == nil && !mine {
		return nil, true, errTaken
	}
	if _, err := f.Write(data); err != nil {
		return nil, false, err
	}
	if err := dir.Rename(tmp, dir, name, mode); err != nil {
		_, gone := dir.Lstat(tmp)
		return nil, errors.Is(gone, fs.ErrNotExist), err
	}
	return f, false, nil
}

// ReadFile reads the regular file name, at most limit bytes; ErrTooLarge when
// it is larger. Links and special files are refused by the layer below. The error
// of a file that is there and cannot be opened says what to do.
func ReadFile(dir vfs.Dir, name string, limit int64) ([]byte, error) {
	f, err := dir.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read %.200q: %w%s", name, err, wayOut(dir, name, err))
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

// wayOut is what helps where a name of the state directory cannot be opened as the file
// that it is; "" where nothing is known to.
func wayOut(dir vfs.Dir, name string, err error) string {
	st, serr := dir.Lstat(name)
	switch {
	case serr != nil:
		return ""
	case st.Kind != vfs.KindFile:
		return "; it is no regular file, and nothing of asp's then: move it away"
	case errors.Is(err, fs.ErrPermission):
		return "; asp has to read and write it: give it back its owner and mode (chmod 600)"
	}
	return ""
}

// CleanTemp removes the temporary files that dead writers left in dir. It may be
// called at any time: a file whose writer lives is locked, one that its writer
// could not lock yet is begun anew by it, and age is no proof of anything. What
// cannot be opened or locked stays.
func CleanTemp(dir vfs.Dir) error {
	return CleanDead(dir, func(name string) bool {
		return strings.HasPrefix(name, TempPrefix) && !strings.HasPrefix(name, TornPrefix)
	})
}

// CleanDead does the same with the names that half tells to be of half-made files, whose
// writers have to lock them (vfs.Claim) until they have their own name.
func CleanDead(dir vfs.Dir, half func(name string) bool) error {
	names, err := dir.List()
	if err != nil {
		return fmt.Errorf("clean up temporary files: %w", err)
	}
	var errs []error
	for _, e := range names {
		if half(e.Name) {
			errs = append(errs, cleanOne(dir, e.Name))
		}
	}
	return errors.Join(errs...)
}

// cleanOne removes one temporary file while it holds its lock.
func cleanOne(dir vfs.Dir, name string) error {
	f, err := dir.Open(name)
	if err != nil {
		return nil // gone, or no file of ours
	}
	defer f.Close()
	if dead, err := vfs.Claim(f); err != nil || !dead {
		return nil
	}
	if err := dir.Unlink(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("clean up temporary files: %w", err)
	}
	return nil
}

// Random returns n random bytes in hexadecimal, from the system's source.
func Random(n int) string {
	b := make([]byte, n)
	// crypto/rand.Read never fails; it ends the process if the system has
	// no random source.
	_, _ = rand.Read(b)
	return hex.EncodeToString(b)
}
