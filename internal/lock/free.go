package lock

import (
	"errors"
	"fmt"
)

// WhileFree calls f and tells true if nobody holds the lock on the directory lockDir;
// nobody can take it before f returns. Somebody who comes meanwhile waits, and takes it
// soon after, so f has to be short. Any number of callers may do this at a time: unlike
// TryAcquire it draws no ticket, and one who only looks is never taken for a holder.
// False and no error when somebody holds the lock; f is not called then.
func WhileFree(lockDir string, f func() error) (free bool, err error) {
	d, err := openDirectory(lockDir)
	if err != nil {
		return false, fmt.Errorf("open %q to look at its lock: %w", lockDir, err)
	}
	defer d.Close()
	if err := shareDir(d); err != nil {
		if errors.Is(err, ErrBusy) {
			return false, nil
		}
		return false, fmt.Errorf("look at the lock of %q: %w", lockDir, err)
	}
	return true, errors.Join(f(), unlockDir(d))
}
