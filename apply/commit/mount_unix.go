//go:build linux || darwin

package commit

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/aspengine/asp/internal/vfs"
)

// statfs asks what d lies on; nil for a handle without a descriptor.
func statfs(d vfs.Dir) (*unix.Statfs_t, error) {
	fd, ok := d.(vfs.Descriptor)
	if !ok {
		return nil, nil
	}
	for {
		var s unix.Statfs_t
		err := unix.Fstatfs(int(fd.Fd()), &s)
		if err == nil {
			return &s, nil
		}
		if !errors.Is(err, unix.EINTR) {
			return nil, fmt.Errorf("statfs: %w", err)
		}
	}
}
