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
	byEnd  *index // of names; nil when they are few
	paths  []rule // matched against a path below dir
}

type rule struct {
	pattern.Pattern
	line int
}

// index sorts rules by the byte that their names end in: most rules are then
// never looked at.
type index struct {
	from [257]int32 // where in "in" the rules with each end begin
	in   []int32    // positions in names, ascending for each end
}

// few is the number of rules up to which looking at each is as fast.
const few = 8

func newIndex(names []rule) *index {
	x := &index{in: make([]int32, len(names))}
	for i := range names {
		x.from[int(names[i].End())+1]++
	}
	for i := range 256 {
		x.from[i+1] += x.from[i]
	}
	next := x.from
	for i := range names {
		end := names[i].End()
		x.in[next[end]] = int32(i) //nolint:gosec // files are far smaller
		next[end]++
	}
	return x
}

// with returns the rules whose names end in c.
func (x *index) with(c byte) []int32 { return x.in[x.from[c]:x.from[int(c)+1]] }

// lastName returns the last of the rules for names that matches, or nil.
func (l *list) lastName(name string, isDir, fold bool) *rule {
	if l.byEnd == nil {
		for i := len(l.names) - 1; i >= 0; i-- {
			if r := &l.names[i]; r.matches(name, isDir, fold) {
				return r
			}
		}
		return nil
	}
	any, same := l.byEnd.with(0), l.byEnd.with(pattern.EndOf(name))
	for len(any)+len(same) > 0 {
		var i int32
		if len(same) == 0 || len(any) > 0 && any[len(any)-1] > same[len(same)-1] {
			i, any = any[len(any)-1], any[:len(any)-1]
		} else {
			i, same = same[len(same)-1], same[:len(same)-1]
		}
		if r := &l.names[i]; r.matches(name, isDir, fold) {
			return r
		}
	}
	return nil
}

func (r *rule) matches(name string, isDir, fold bool) bool {
	return r.MayMatch(name) && (isDir || !r.DirOnly) && r.MatchName(name, fold)
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
	if len(l.names) > few {
		l.byEnd = newIndex(l.names)
	}
	return l
}

// lookup returns the last rule that matches, or nil. path is the full path of
// the name, made on demand: few lists need it.
func (v *view) lookup(name string, isDir, fold bool, path *string, dir string) *rule {
	if name == "" {
		return nil
	}
	best := v.list.lastName(name, isDir, fold)
	for i := len(v.paths) - 1; i >= 0; i-- {
		r := v.paths[i]
		if best != nil && r.line < best.line {
			break
		}
		if r.DirOnly && !isDir || !r.MayMatch(name) {
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
