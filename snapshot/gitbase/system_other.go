//go:build !unix && !windows

package gitbase

import (
	"errors"
	"os"
)

// There are no such flags here. Nothing opens a repository on this system, since
// nothing opens a workspace (package vfs).
const (
	noWait   = 0
	noFollow = 0
)

func lstat(string) (fileID, error) { return fileID{}, errors.ErrUnsupported }

func giveTo(os.FileInfo) (uid, gid int, give bool) { return 0, 0, false }
