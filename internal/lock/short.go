package lock

import (
	"context"
	"errors"
	"fmt"

	"github.com/aspengine/asp/internal/vfs"
)

// Short takes a lock for the length of a few file operations on the directory
// dir: an flock on a second handle, without a queue. The returned function
// gives it back and must be called once. Handles without a descriptor (the
// memory model, which no second process can see) are not locked; callers keep
// their own mutex for goroutines that share a handle.
func Short(ctx context.Context, dir vfs.Dir) (unlock func() error, err error) {
	d, err := dir.OpenDir(".")
	if err != nil {
		return nil, fmt.Errorf("open directory for a short lock: %w", err)
	}
	fd, ok := d.(vfs.Descriptor)
	if !ok {
		return d.Close, nil
	}
	for wait := shortWait; ; wait = min(2*wait, longWait/5) {
		give, err := lockShort(fd.Fd())
		if err == nil {
			return func() error { return errors.Join(give(), d.Close()) }, nil
		}
		if errors.Is(err, ErrBusy) {
			err = sleep(ctx, wait)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("take a short lock: %w", err), d.Close())
		}
	}
}
