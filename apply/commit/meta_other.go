//go:build !linux && !darwin && !windows

package commit

import "github.com/aspengine/asp/internal/vfs"

func hasDefaultACL(vfs.Dir) bool { return false }

func inodeFlags(vfs.Dir) int { return 0 }

func keepFlags(vfs.File, vfs.File, int) (string, error) { return "", nil }
