package provider

import (
	"path"
	"strings"
)

// Grant is what a host lets a provider read, globs over paths, of which those
// that begin with ! take away, and what it lets it reach. Nothing is ever granted for writing.
type Grant struct {
	Read []string
	// Network are destinations, mostly host:port behind the protocol (https://, http:// or
	// tcp://), that may be reached while a request is open. Empty: none, and who needs one
	// says that it could not look, by a gap or an error.
	Network []string
}

// Allows tells whether the grant covers a path. It is the provider's own care,
// so that it does not ask for what it may not have; the host decides. Globs know
// *, ? and [] inside a name and ** for any number of directories; one that is
// written in another way is left to the host, which means true.
func (g Grant) Allows(p string) bool {
	allowed := false
	for _, glob := range g.Read {
		if not, ok := strings.CutPrefix(glob, "!"); ok {
			if m, sure := match(not, p); m && sure {
				return false
			}
		} else if m, sure := match(glob, p); m || !sure {
			allowed = true
		}
	}
	return allowed
}

// MatchGlob tells whether a glob covers a path: *, ? and [] inside a name, ** for
// any number of directories. A malformed glob covers nothing.
func MatchGlob(glob, p string) bool {
	m, sure := match(glob, p)
	return m && sure
}

// match gives sure false for a glob that it does not understand.
func match(glob, p string) (matches, sure bool) {
	if strings.ContainsAny(glob, "{}\\") || strings.HasSuffix(glob, "/") || glob == "" {
		return false, false
	}
	return segments(strings.Split(glob, "/"), strings.Split(p, "/"))
}

// segments matches greedily with one place to come back to: the last ** seen.
// More are never needed, because a later ** can stand for all that an earlier one
// would have taken beyond the first fit.
func segments(glob, names []string) (matches, sure bool) {
	for _, g := range glob {
		if _, err := path.Match(g, ""); err != nil {
			return false, false
		}
	}
	g, n, backG, backN := 0, 0, -1, 0
	for n < len(names) {
		if g < len(glob) && glob[g] == "**" {
			backG, backN = g, n
			g++
			continue
		}
		if g < len(glob) {
			if ok, _ := path.Match(glob[g], names[n]); ok {
				g, n = g+1, n+1
				continue
			}
		}
		if backG < 0 {
			return false, true
		}
		backN++
		g, n = backG+1, backN
	}
	for g < len(glob) && glob[g] == "**" {
		g++
	}
	return g == len(glob), true
}

// ValidPath tells whether p is a path as the protocol has them: relative, with /
// between names, no empty, . or .. name, no NUL. A backslash is a character like
// any other.
func ValidPath(p string) bool {
	if p == "" || len(p) > 4096 || strings.Contains(p, "\x00") {
		return false
	}
	for name := range strings.SplitSeq(p, "/") {
		if name == "" || name == "." || name == ".." {
			return false
		}
	}
	return true
}
