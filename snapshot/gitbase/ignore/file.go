package ignore

import (
	"strings"

	"github.com/aspengine/asp/snapshot/gitbase/ignore/pattern"
)

// list is one parsed file. Its rules are split by how they are matched; both
// halves keep the file's order, and the last matching rule of the file decides.
type list struct {
	source Source
	dir    string // directory of the file, "" at the top
	names  []rule // matched against a name
	paths  []rule // matched against a path below dir
}

type rule struct {
	pattern.Pattern
	line int
}

// bom is the byte order mark that git skips at the start of a file.
const bom = "\xef\xbb\xbf"

// parse reads a file; nil when it holds no rule.
func parse(b []byte, source Source, dir string) *list {
	if len(b) == 0 {
		return nil
	}
	l := &list{source: source, dir: dir}
	line := 0
	for s := range strings.SplitSeq(strings.TrimPrefix(string(b), bom), "\n") {
		line++
		if s == "" || s[0] == '#' {
			continue
		}
		s = pattern.TrimSpaces(strings.TrimSuffix(s, "\r"))
		r := rule{pattern.Parse(s), line}
		switch {
		case r.Text == "":
			// Neither an empty line nor "!" or "/" matches anything.
		case r.Base:
			l.names = append(l.names, r)
		default:
			l.paths = append(l.paths, r)
		}
	}
	if l.names == nil && l.paths == nil {
		return nil
	}
	return l
}

// lookup returns the last rule that matches, or nil. path is the full path of
// the name, made on demand: few lists need it.
func (v *view) lookup(name string, isDir, fold bool, path *string, dir string) *rule {
	var best *rule
	for i := len(v.list.names) - 1; i >= 0; i-- {
		r := &v.list.names[i]
		if (isDir || !r.DirOnly) && r.MatchName(name, fold) {
			best = r
			break
		}
	}
	for i := len(v.paths) - 1; i >= 0; i-- {
		r := v.paths[i]
		if best != nil && r.line < best.line {
			break
		}
		if r.DirOnly && !isDir {
			continue
		}
		if *path == "" {
			*path = join(dir, name)
		}
		if r.MatchPath((*path)[v.skip:], fold) {
			return r
		}
	}
	return best
}

// view is a list as seen from one directory.
type view struct {
	list  *list
	paths []*rule // those of list.paths that can still match here or below
	skip  int     // bytes of a full path before the part relative to list.dir
}

// look returns the first view of a list, from its own directory.
func look(l *list) view {
	v := view{list: l}
	if l.dir != "" {
		v.skip = len(l.dir) + 1
	}
	for i := range l.paths {
		v.paths = append(v.paths, &l.paths[i])
	}
	return v
}

// enter returns the view from the directory below at path.
func (v view) enter(path string, fold bool) view {
	kept := 0
	for _, r := range v.paths {
		if r.Reaches(path[v.skip:], fold) {
			kept++
		}
	}
	switch kept {
	case len(v.paths):
		return v
	case 0:
		v.paths = nil
		return v
	}
	out := make([]*rule, 0, kept)
	for _, r := range v.paths {
		if r.Reaches(path[v.skip:], fold) {
			out = append(out, r)
		}
	}
	v.paths = out
	return v
}

func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}
