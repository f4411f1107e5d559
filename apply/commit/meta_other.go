//go:build !linux

package commit

import "github.com/aspengine/asp/internal/vfs"

func hasDefaultACL(vfs.Dir) bool { return false }

func inodeFlags(vfs.Dir) int { return 0 }

func keepFlags(vfs.File, vfs.File, int) (string, error) { return "", nil }

// ProbeMount knows no file system here, so that no guarantee rests on one.
func ProbeMount(vfs.Dir) (MountFacts, error) {
	return MountFacts{Type: "unknown", Why: "file systems are not told apart on this platform"}, nil
}

func hostDirty() (int64, error) { return 0, nil }
