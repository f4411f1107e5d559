// Package attrs looks up, exactly as git does, the attributes that change what
// git stores for a working file. It is pure: the caller reads the files and
// hands their bytes in.
//
// A Dir stands for one directory, is immutable and may be shared by parallel
// walkers, as in package ignore. The caller must not follow a .gitattributes
// that is a symbolic link (git reads it as absent).
package attrs

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
	Root       []byte // .gitattributes of the top directory
	Info       []byte // <common dir>/info/attributes: strongest
	IgnoreCase bool   // core.ignorecase
}

// Dir is one directory. Immutable, safe for concurrent use.
type Dir struct{}

// New returns the top directory.
func New(o Options) *Dir { return &Dir{} }

// Enter returns the Dir of the subdirectory name, given the bytes of its
// .gitattributes (nil when it has none). The bytes are not kept.
func (d *Dir) Enter(name string, gitattributes []byte) *Dir { return d }

// Lookup returns the attributes of the file name (never a directory) in d.
func (d *Dir) Lookup(name string) Attrs { return Attrs{} }
