//go:build !unix

package gitbase

import "errors"

// There are no such flags here. Nothing opens a repository on this system, since
// nothing opens a workspace (package vfs).
const (
	noWait   = 0
	noFollow = 0
)

func lstat(string) (fileID, error) { return fileID{}, errors.ErrUnsupported }
