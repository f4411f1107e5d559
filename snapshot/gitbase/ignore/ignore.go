// Package ignore decides, exactly as git does, which untracked names are
// ignored. It is pure: the caller reads the files and hands their bytes in.
//
// A Dir stands for one directory during a walk. It is immutable, so parallel
// walkers share it freely: a walker that enters a subdirectory asks the
// parent's Dir for a child and keeps that.
//
//	root := ignore.New(ignore.Options{Root: bytesOfTopGitignore, Info: …, Global: …})
//	v := root.Match("build", true)
//	child := root.Enter("build", bytesOfBuildGitignore)
//
// The caller must not follow a .gitignore that is a symbolic link (git reads
// it as absent); info/exclude and the global file may be links. Where a sparse
// checkout left a .gitignore out, git takes the index's version; elsewhere a
// missing file has no rules, whatever the index holds.
package ignore

// Verdict is what the rules say of one name.
type Verdict uint8

// The verdicts. Included means that a negated rule decided; to a caller that
// only wants to know whether a name is ignored it is the same as None.
const (
	None Verdict = iota
	Ignored
	Included
)

// Options holds the rules that come from outside nested directories. A nil or
// empty list means no such file.
type Options struct {
	Global     []byte // core.excludesFile: weakest
	Info       []byte // <common dir>/info/exclude
	Root       []byte // .gitignore of the top directory
	IgnoreCase bool   // core.ignorecase
}

// Source tells which file a rule came from.
type Source uint8

// The sources.
const (
	FromDirectory Source = iota
	FromInfo
	FromGlobal
)

// Rule describes the rule that decided, for explanations.
type Rule struct {
	Source  Source
	Dir     string // for FromDirectory: path of the directory, "" at the top
	Line    int    // from 1
	Pattern string // the line, trimmed as git trims it, with ! and slashes
	Negated bool
}

// Dir is one directory. Immutable, safe for concurrent use.
type Dir struct {
	path  string // from the top, "" for the top itself
	fold  bool
	views []view // strongest first
	by    *Rule  // what ignored the directory or one above it; nil when it is not ignored
}

// New returns the top directory.
func New(o Options) *Dir {
	d := &Dir{fold: o.IgnoreCase}
	for _, l := range []*list{
		parse(o.Root, FromDirectory, ""), parse(o.Info, FromInfo, ""), parse(o.Global, FromGlobal, ""),
	} {
		if l != nil {
			d.views = append(d.views, look(l))
		}
	}
	return d
}

// Enter returns the Dir of the subdirectory name, given the bytes of its
// .gitignore (nil when it has none). When name itself is ignored everything
// below is, whatever gitignore says, and gitignore is not looked at; the
// caller need not read it then. The bytes are not kept.
func (d *Dir) Enter(name string, gitignore []byte) *Dir {
	child := &Dir{path: join(d.path, name), fold: d.fold, by: d.by}
	if d.by != nil {
		return child
	}
	if v, r := d.decide(name, true); r != nil && !r.Negative {
		by := explain(v, r)
		child.by = &by
		return child
	}
	if l := parse(gitignore, FromDirectory, child.path); l != nil {
		child.views = append(make([]view, 0, len(d.views)+1), look(l))
	} else {
		child.views = make([]view, 0, len(d.views))
	}
	for _, v := range d.views {
		child.views = append(child.views, v.enter(child.path, d.fold))
	}
	return child
}

// Ignored tells whether the directory itself, or one above it, is ignored.
func (d *Dir) Ignored() bool { return d.by != nil }

// Match judges one name in the directory. isDir is true for real directories
// (nested repositories too), false for everything else, links to directories
// included. Tracked files are never ignored: that is for the caller to know.
func (d *Dir) Match(name string, isDir bool) Verdict {
	if d.by != nil {
		return Ignored
	}
	switch _, r := d.decide(name, isDir); {
	case r == nil:
		return None
	case r.Negative:
		return Included
	default:
		return Ignored
	}
}

// Explain is Match with the rule that decided; ok is false for None. For a name
// below an ignored directory the rule is the one that ignored the directory.
func (d *Dir) Explain(name string, isDir bool) (r Rule, ok bool) {
	if d.by != nil {
		return *d.by, true
	}
	v, m := d.decide(name, isDir)
	if m == nil {
		return Rule{}, false
	}
	return explain(v, m), true
}

// decide asks the lists, strongest first; the first one that says anything
// decides.
func (d *Dir) decide(name string, isDir bool) (*view, *rule) {
	var path string
	for i := range d.views {
		v := &d.views[i]
		if r := v.lookup(name, isDir, d.fold, &path, d.path); r != nil {
			return v, r
		}
	}
	return nil, nil
}

func explain(v *view, r *rule) Rule {
	text := r.Text
	if r.Negative {
		text = "!" + text
	}
	if r.DirOnly {
		text += "/"
	}
	return Rule{Source: v.list.source, Dir: v.list.dir, Line: r.line, Pattern: text, Negated: r.Negative}
}
