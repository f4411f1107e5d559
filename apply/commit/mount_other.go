//go:build (!linux && !darwin && !windows) || portablefs

package commit

import "github.com/aspengine/asp/internal/vfs"

// ProbeMount knows no file system here, so that no guarantee rests on one. The
// system has no exchange of two names.
func ProbeMount(vfs.Dir) (MountFacts, error) {
	return MountFacts{Type: "unknown", Aside: !vfs.CanExchange, Why: "file systems are not told apart on this platform"}, nil
}
