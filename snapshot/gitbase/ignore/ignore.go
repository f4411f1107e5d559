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
// it as absent); info/exclude and the global file may be links.
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
type Dir struct{}

// New returns the top directory.
func New(o Options) *Dir { return &Dir{} }

// Enter returns the Dir of the subdirectory name, given the bytes of its
// .gitignore (nil when it has none). When name itself is ignored everything
// below is, whatever gitignore says, and gitignore is not looked at; the
// caller need not read it then. The bytes are not kept.
func (d *Dir) Enter(name string, gitignore []byte) *Dir { return d }

// Ignored tells whether the directory itself, or one above it, is ignored.
func (d *Dir) Ignored() bool { return false }

// Match judges one name in the directory. isDir is true for real directories
// (nested repositories too), false for everything else, links to directories
// included. Tracked files are never ignored: that is for the caller to know.
func (d *Dir) Match(name string, isDir bool) Verdict { return None }

// Explain is Match with the rule that decided; ok is false for None. For a name
// below an ignored directory the rule is the one that ignored the directory.
func (d *Dir) Explain(name string, isDir bool) (r Rule, ok bool) { return Rule{}, false }
