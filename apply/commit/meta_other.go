//go:build (!linux && !darwin) || portablefs

package commit

import "github.com/aspengine/asp/internal/vfs"

func hasDefaultACL(vfs.Dir) bool { return false }

func inodeFlags(vfs.Dir) int { return 0 }

func keepFlags(vfs.File, vfs.File, int) (string, error) { return "", nil }

// ProbeMount knows no file system here, so that no guarantee rests on one. The
// system has no exchange of two names.
func ProbeMount(vfs.Dir) (MountFacts, error) {
	return MountFacts{Type: "unknown", Aside: !vfs.CanExchange, Why: "file systems are not told apart on this platform"}, nil
}
