// Package attrs looks up, exactly as git does, the attributes that change what
// git stores for a working file. It is pure: the caller reads the files and
// hands their bytes in.
//
// A Dir stands for one directory, is immutable and may be shared by parallel
// walkers, as in package ignore. The caller must not follow a .gitattributes
// that is a symbolic link (git reads it as absent).
package attrs

import (
	"maps"
	"slices"
)

// State is one of the four states of an attribute.
type State uint8

// The states.
const (
	Unspecified State = iota // not mentioned, or "!name"
	Set                      // "name"
	Unset                    // "-name"
	Value                    // "name=text"
)

// Attr is the state of one attribute; Text is only meaningful for Value.
type Attr struct {
	State State
	Text  string
}

// Attrs are the attributes that matter to convert, as the files state them;
// legacy CRLF is not folded into Text (convert does that).
type Attrs struct {
	Text     Attr // text
	CRLF     Attr // crlf, the old name of text
	EOL      Attr // eol
	Filter   Attr // filter
	Ident    Attr // ident
	Encoding Attr // working-tree-encoding
}

// Options holds the files from outside nested directories. A nil or empty one
// means no such file.
type Options struct {
	System     []byte // /etc/gitattributes: weakest
	Global     []byte // core.attributesFile
	Root       []byte // .gitattributes of the top directory; see Enter
	Info       []byte // <common dir>/info/attributes: strongest
	IgnoreCase bool   // core.ignorecase
}

// Dir is one directory. Immutable, safe for concurrent use.
type Dir struct {
	path   string // from the top, "" for the top itself
	fold   bool
	files  []*file              // strongest first
	info   int                  // how many of them stand before those of directories: 1 with info/attributes
	macros map[string][]setting // the strongest definition of each
}

// New returns the top directory.
func New(o Options) *Dir {
	d := &Dir{fold: o.IgnoreCase, macros: map[string][]setting{
		"binary": {{"diff", Attr{State: Unset}}, {"merge", Attr{State: Unset}}, {"text", Attr{State: Unset}}},
	}}
	all := []*file{
		parse(o.Info, "", true), parse(o.Root, "", true), parse(o.Global, "", true), parse(o.System, "", true),
	}
	if all[0] != nil {
		d.info = 1
	}
	for _, f := range slices.Backward(all) {
		if f != nil {
			maps.Copy(d.macros, f.macros)
		}
	}
	d.files = slices.DeleteFunc(all, func(f *file) bool { return f == nil })
	return d
}

// Enter returns the Dir of the subdirectory name, given the bytes of its
// .gitattributes (nil when it has none). The bytes are not kept. Git takes the
// index's version where the work tree has no such file; so must the caller.
func (d *Dir) Enter(name string, gitattributes []byte) *Dir {
	child := *d
	child.path = join(d.path, name)
	f := parse(gitattributes, child.path, false)
	if f == nil {
		return &child
	}
	child.files = make([]*file, 0, len(d.files)+1)
	child.files = append(child.files, d.files[:d.info]...)
	child.files = append(child.files, f)
	child.files = append(child.files, d.files[d.info:]...)
	return &child
}

// Lookup returns the attributes of the file name (never a directory) in d.
func (d *Dir) Lookup(name string) Attrs {
	if len(d.files) == 0 || name == "" {
		return Attrs{}
	}
	f := filler{macros: d.macros}
	path := ""
	for _, file := range d.files {
		for i := len(file.lines) - 1; i >= 0; i-- {
			l := &file.lines[i]
			if !l.pattern.MayMatch(name) {
				continue
			}
			if l.pattern.Base {
				if l.pattern.MatchName(name, d.fold) {
					f.fill(l.settings)
				}
				continue
			}
			if path == "" {
				path = join(d.path, name)
			}
			rel := path
			if file.dir != "" {
				rel = path[len(file.dir)+1:]
			}
			if l.pattern.MatchPath(rel, d.fold) {
				f.fill(l.settings)
			}
		}
	}
	return f.attrs
}

// filler collects attributes, the strongest statement of each first.
type filler struct {
	macros map[string][]setting
	attrs  Attrs
	known  uint8           // bits of the attributes that are decided
	macro  map[string]bool // other names that are decided
}

// fill takes a line's settings, the last first; what is decided stays. A macro
// that is set adds its own settings at that point.
func (f *filler) fill(all []setting) {
	for _, s := range slices.Backward(all) {
		if f.decide(s) && s.attr.State == Set {
			f.fill(f.macros[s.name])
		}
	}
}

// decide records s unless its attribute is decided already; it tells whether
// it did. Names that are neither ours nor macros decide nothing.
func (f *filler) decide(s setting) bool {
	var at *Attr
	var bit uint8
	switch s.name {
	case "text":
		at, bit = &f.attrs.Text, 1
	case "crlf":
		at, bit = &f.attrs.CRLF, 2
	case "eol":
		at, bit = &f.attrs.EOL, 4
	case "filter":
		at, bit = &f.attrs.Filter, 8
	case "ident":
		at, bit = &f.attrs.Ident, 16
	case "working-tree-encoding":
		at, bit = &f.attrs.Encoding, 32
	default:
		if f.macros[s.name] == nil || f.macro[s.name] {
			return false
		}
		if f.macro == nil {
			f.macro = map[string]bool{}
		}
		f.macro[s.name] = true
		return true
	}
	if f.known&bit != 0 {
		return false
	}
	f.known |= bit
	*at = s.attr
	return true
}

func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}
