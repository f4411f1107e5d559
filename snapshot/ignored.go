package snapshot

import (
	"slices"
	"strings"
)

// MaxIgnored bounds the names in Ignored.
const MaxIgnored = 100

// Ignored are the untracked names that the repository's rules leave out of every
// state: dependencies, caches, outputs. A directory that is ignored counts as one
// name, ends with a slash, and is not looked into.
type Ignored struct {
	// Names is sorted. Where there are more than MaxIgnored, directories stand before
	// files, and the first of each in the order of bytes stand for the rest.
	Names []string
	// Count is how many there are.
	Count int
}

// IgnoredNames collects Ignored, in bounded memory and in any order of names. The
// zero value is empty. Not for concurrent use.
type IgnoredNames struct {
	dirs, files []string
	count       int
}

// Add notes one name; that of a directory ends with a slash.
func (g *IgnoredNames) Add(name string) {
	g.count++
	g.put(name)
}

// Merge notes all that o has, the names below prefix.
func (g *IgnoredNames) Merge(prefix string, o *IgnoredNames) {
	g.add(prefix, o.count, o.dirs, o.files)
}

// MergeIgnored is Merge of what was collected.
func (g *IgnoredNames) MergeIgnored(prefix string, o Ignored) { g.add(prefix, o.Count, o.Names) }

func (g *IgnoredNames) add(prefix string, count int, lists ...[]string) {
	g.count += count
	for _, l := range lists {
		for _, name := range l {
			g.put(prefix + name)
		}
	}
}

func (g *IgnoredNames) put(name string) {
	list := &g.files
	if strings.HasSuffix(name, "/") {
		list = &g.dirs
	}
	if *list = append(*list, name); len(*list) >= 2*MaxIgnored {
		*list = least(*list)
	}
}

// least keeps the names that may be shown.
func least(l []string) []string {
	slices.Sort(l)
	return l[:min(len(l), MaxIgnored)]
}

// Empty tells whether nothing was noted.
func (g *IgnoredNames) Empty() bool { return g.count == 0 }

// Ignored is what was collected so far.
func (g *IgnoredNames) Ignored() Ignored {
	dirs, files := least(slices.Clone(g.dirs)), least(slices.Clone(g.files))
	names := append(dirs, files[:min(len(files), MaxIgnored-len(dirs))]...)
	slices.Sort(names)
	return Ignored{names, g.count}
}
