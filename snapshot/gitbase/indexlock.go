package gitbase

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/aspengine/asp/internal/vfs"
)

const (
	indexLock = IndexName + ".lock"
	// lockMark starts the target of a lock of ours.
	lockMark = "asp-transaction:"
)

// ErrIndexLocked says that somebody holds git's lock on the index.
var ErrIndexLocked = errors.New("the index is locked")

// LockIndex takes git's own lock on the index whose directory is dir: the name
// index.lock, made only if it is not there. It is held until unlock.
//
// The lock is a symbolic link to nowhere whose target names the transaction. To
// git it is as good as a file, for it creates its own exclusively, too. But the
// name and what tells whose it is come into being in one step, so that no crash
// leaves a lock of which one could not tell whether it is ours, and BreakLock
// never takes a stranger's away. (A file would be empty for a moment, like git's
// own.) It needs no sync: a lock that a power cut forgets is one less to remove.
func LockIndex(dir vfs.Dir, txid string) (unlock func() error, err error) {
	target := lockMark + txid
	switch err := dir.Symlink(target, indexLock); {
	case errors.Is(err, fs.ErrExist):
		return nil, ErrIndexLocked
	case err != nil:
		return nil, fmt.Errorf("lock index: %w", err)
	}
	return func() error {
		if got, err := dir.Readlink(indexLock); err != nil || got != target {
			return nil // somebody removed it by hand, and what is there now is theirs
		}
		if err := dir.Unlink(indexLock); err != nil {
			return fmt.Errorf("unlock index: %w", err)
		}
		return nil
	}, nil
}

// BreakIndexLock removes an index.lock that a transaction of ours left when it
// died, and tells whether there was one. The workspace lock must be held: then
// no other transaction is at work, and nobody but the owner removes a lock.
func BreakIndexLock(dir vfs.Dir) (bool, error) {
	target, err := dir.Readlink(indexLock)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.EINVAL) {
		return false, nil // none, or a file: not ours
	}
	if err == nil && !strings.HasPrefix(target, lockMark) {
		return false, nil
	}
	if err == nil {
		err = dir.Unlink(indexLock)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("remove a left-over lock on the index: %w", err)
	}
	return err == nil, nil
}
