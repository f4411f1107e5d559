package editplan

import (
	"strings"

	"github.com/aspengine/asp/snapshot"
)

// ProtectedName tells whether one path component is a spelling of .git, or
// of a name that belongs to this engine, on any file system: in any case, with
// characters that HFS+ ignores, with trailing dots and spaces or the stream
// suffix that NTFS drops, as an NTFS short name, or with backslashes that
// another system takes for separators. Names that only resemble it (.gitignore,
// .github, git, a.git) are free.
func ProtectedName(component string) bool {
	for part := range strings.SplitSeq(component, `\`) {
		n := plainName(part)
		if n == ".git" || shortName(n) || strings.HasPrefix(n, ".asp-exchange-") || strings.HasPrefix(n, ".asp-tx-") {
			return true
		}
	}
	return false
}

// ProtectedPath tells whether p touches a protected name: a component of it
// is one, or p is or lies in .asp/tx, where an open transaction lives outside
// git. The answer names the component; it says nothing about what is on disk,
// where the same directories are found by identity.
func ProtectedPath(p snapshot.Path) (component string, protected bool) {
	for c := range strings.SplitSeq(p.String(), "/") {
		if ProtectedName(c) {
			return c, true
		}
	}
	// The separators of another system count here as well.
	first, rest, more := strings.Cut(strings.ReplaceAll(p.String(), `\`, "/"), "/")
	second, _, _ := strings.Cut(rest, "/")
	if more && plainName(first) == ".asp" && plainName(second) == "tx" {
		parts := strings.Split(p.String(), "/")
		return parts[min(1, len(parts)-1)], true
	}
	return "", false
}

// plainName undoes what file systems do not tell apart.
func plainName(c string) string {
	c = strings.Map(func(r rune) rune {
		if ignoredByHFS(r) {
			return -1
		}
		return r
	}, c)
	c, _, _ = strings.Cut(c, ":") // an alternate stream of the same file
	return strings.ToLower(strings.TrimRight(c, ". "))
}

// shortName tells whether a plain name is one that NTFS makes up for .git: git~1,
// or another number where that was taken.
func shortName(n string) bool {
	digits, ok := strings.CutPrefix(n, "git~")
	return ok && digits != "" && strings.Trim(digits, "0123456789") == ""
}

// ignoredByHFS lists the code points that HFS+ leaves out when it compares
// names.
func ignoredByHFS(r rune) bool {
	switch {
	case r >= 0x200C && r <= 0x200F, // zero width (non-)joiner, direction marks
		r >= 0x202A && r <= 0x202E, // embeddings and overrides
		r >= 0x206A && r <= 0x206F, // deprecated format characters
		r == 0xFEFF:                // byte order mark
		return true
	}
	return false
}
