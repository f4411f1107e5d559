package provider

import (
	"slices"
	"strings"
	"time"

	"github.com/aspengine/asp/seam/wire"
)

// The defaults of Limits, and the most that is granted.
const (
	defaultWall     = 30 * time.Second
	maxWall         = 5 * time.Minute
	defaultFiles    = 256
	defaultCPUPct   = 100
	defaultMemoryMb = 1024
)

func (l Limits) filled() Limits {
	if l.Wall <= 0 {
		l.Wall = defaultWall
	}
	l.Wall = min(l.Wall, maxWall)
	if l.Files == 0 {
		l.Files = defaultFiles
	}
	if l.CPUPct <= 0 {
		l.CPUPct = defaultCPUPct
	}
	if l.MemoryMb <= 0 {
		l.MemoryMb = defaultMemoryMb
	}
	return l
}

// grant is what a provider may read: what it asks for, as far as its manifest
// declared it. Every set has to let a path through.
type grant struct {
	told []string // as sent in initialized
	sets []globs
}

// allows tells whether content at p is given out.
func (g grant) allows(p string) bool {
	for _, s := range g.sets {
		if !s.match(p) {
			return false
		}
	}
	return len(g.sets) > 0
}

// narrow makes the grant. What a manifest declares under filesystem.read narrows it
// where it is a list of globs of the workspace. Most manifests have words there
// (workspace:snapshot, provider-artifacts) or nothing, and mean what their process
// opens by itself; reading such a list as globs would grant them nothing.
func narrow(requested *wire.Permissions, declared []string) (grant, error) {
	globsDeclared := declared
	if len(declared) == 0 || slices.ContainsFunc(declared, isWord) {
		globsDeclared = nil
	}
	ask := []string{"**/*"}
	if requested != nil && requested.Read != nil {
		ask = requested.Read
	} else if globsDeclared != nil {
		ask = globsDeclared
	}
	asked, err := parseGlobs(ask)
	if err != nil {
		return grant{}, err
	}
	g := grant{told: ask, sets: []globs{asked}}
	if globsDeclared == nil {
		return g, nil
	}
	may, err := parseGlobs(globsDeclared)
	if err != nil || may.everything() {
		return g, err
	}
	g.sets = append(g.sets, may)
	// Two lists have no intersection that one list could say in general. What is
	// told is the narrower of the two where that can be seen, and the declared one
	// otherwise; what is given out obeys both.
	if !subset(ask, globsDeclared) {
		g.told = slices.Clone(globsDeclared)
		for _, a := range ask {
			if strings.HasPrefix(a, "!") {
				g.told = append(g.told, a)
			}
		}
	}
	return g, nil
}

// isWord tells that an entry of filesystem.read is no glob of the workspace: a
// word of the manifest's own, or a path of the machine.
func isWord(s string) bool {
	return strings.HasPrefix(s, "/") || strings.Contains(s, ":") || !strings.ContainsAny(s, "*?[{/.!")
}

// subset tells whether every glob of a that adds is one of b, whose exclusions
// are all in a.
func subset(a, b []string) bool {
	for _, s := range a {
		if !strings.HasPrefix(s, "!") && !slices.Contains(b, s) {
			return false
		}
	}
	for _, s := range b {
		if strings.HasPrefix(s, "!") && !slices.Contains(a, s) {
			return false
		}
	}
	return true
}

// permissions is the grant as it is sent: reading, and what of the network is let
// through. Writing is never granted.
func (g grant) permissions(l Limits, reach []string) wire.Permissions {
	no, wall, files := false, l.Wall.Milliseconds(), int64(l.Files)
	network, list := networkGrant(reach)
	return wire.Permissions{Read: g.told, Write: &no, Network: &network, NetworkAllowlist: list,
		ResourceLimits: &wire.ResourceLimits{CPUPct: &l.CPUPct, MemoryMb: &l.MemoryMb, WallclockMs: &wall, FD: &files}}
}
