//go:build !linux && !darwin && !windows

package vfs

import (
	"errors"
	"io/fs"
)

// What the real form of this build can do beyond the rest. A file system can lack
// the exchange all the same, and then says so.
const (
	CanExchange = false // Rename with Exchange
	CanSyncFS   = false // Dir.SyncFS; errors.ErrUnsupported without
)

// OS is the file system of the operating system. This build has no form of it:
// the promises of Dir need openat2, renameat2 and syncfs, and an imitation
// through os.Root would follow links and could not exchange names.
type OS struct{}

// OpenRoot always fails with an error for which errors.Is(err,
// errors.ErrUnsupported) holds.
func (OS) OpenRoot(path string) (Dir, error) {
	return nil, &fs.PathError{Op: "open root", Path: path, Err: errors.ErrUnsupported}
}
