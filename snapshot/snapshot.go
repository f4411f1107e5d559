// Package snapshot holds the nouns that every later room speaks in (Digest,
// Path, Entry, Baseline), reads a workspace's present state, and keeps the
// blobs of changed bytes. It writes only under the trusted state directory,
// never into a workspace.
package snapshot

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Digest is the SHA-256 of raw working bytes (contract section 5: what is on
// disk, not what git would store).
type Digest [sha256.Size]byte

// DigestOf hashes b.
func DigestOf(b []byte) Digest { return sha256.Sum256(b) }

// BlobPrefix starts every blob id.
const BlobPrefix = "blob:sha256:"

// Blob returns the wire form, blob:sha256:<hex>.
func (d Digest) Blob() string { return d.prefixed(BlobPrefix) }

// Hex returns the 64 lower-case hexadecimal digits.
func (d Digest) Hex() string { return hex.EncodeToString(d[:]) }

// String returns sha256:<hex>.
func (d Digest) String() string { return d.prefixed("sha256:") }

func (d Digest) prefixed(p string) string {
	b := make([]byte, 0, len(BlobPrefix)+2*len(d)) // on the stack
	return string(hex.AppendEncode(append(b, p...), d[:]))
}

// IsZero tells whether d was never set.
func (d Digest) IsZero() bool { return d == Digest{} }

// ErrDigest is what ParseBlob answers for anything but a blob id.
var ErrDigest = errors.New("not a blob:sha256 id")

// ParseBlob reads blob:sha256:<64 lower-case hex digits>, nothing else.
func ParseBlob(s string) (Digest, error) {
	var d Digest
	h, ok := strings.CutPrefix(s, BlobPrefix)
	if !ok || len(h) != 2*len(d) || strings.ToLower(h) != h {
		return d, ErrDigest
	}
	if _, err := hex.Decode(d[:], []byte(h)); err != nil {
		return Digest{}, ErrDigest
	}
	return d, nil
}

// Path names a file or directory below a workspace root: relative, slash
// separated, clean. Only ParsePath makes one, so a Path needs no second look
// at its spelling. The zero Path is invalid.
type Path struct{ s string }

// Limits on names: those of Linux.
const (
	MaxPath = 4095 // bytes in a whole path
	MaxName = 255  // bytes in one component
)

// PathError says why a spelling is no Path.
type PathError struct {
	Path   string // the spelling, as given
	Reason string
}

func (e *PathError) Error() string { return fmt.Sprintf("path %.200q: %s", e.Path, e.Reason) }

// ParsePath accepts exactly one spelling of every path: no empty, "." or ".."
// component, no leading or trailing slash, no NUL, valid UTF-8 (the wire can
// carry no other), within the limits. It says nothing about what is on disk.
func ParsePath(s string) (Path, error) {
	bad := func(r string) (Path, error) { return Path{}, &PathError{s, r} }
	switch {
	case s == "":
		return bad("empty")
	case len(s) > MaxPath:
		return bad("longer than 4095 bytes")
	case s[0] == '/':
		return bad("absolute")
	case strings.IndexByte(s, 0) >= 0:
		return bad("holds a NUL byte")
	case !utf8.ValidString(s):
		return bad("not valid UTF-8")
	}
	for c := range strings.SplitSeq(s, "/") {
		switch {
		case c == "":
			return bad("empty component")
		case c == "." || c == "..":
			return bad("component " + c)
		case len(c) > MaxName:
			return bad("component longer than 255 bytes")
		}
	}
	return Path{s}, nil
}

// String returns the spelling.
func (p Path) String() string { return p.s }

// IsZero tells whether p was never set.
func (p Path) IsZero() bool { return p.s == "" }

// Base returns the last component.
func (p Path) Base() string { return p.s[strings.LastIndexByte(p.s, '/')+1:] }

// Dir returns the parent's spelling, "." for a top-level name.
func (p Path) Dir() string {
	if i := strings.LastIndexByte(p.s, '/'); i >= 0 {
		return p.s[:i]
	}
	return "."
}

// Within tells whether p lies below dir (strictly).
func (p Path) Within(dir Path) bool {
	return len(p.s) > len(dir.s) && p.s[len(dir.s)] == '/' && p.s[:len(dir.s)] == dir.s
}

// Parents returns the directories above p, outermost first.
func (p Path) Parents() []Path {
	var out []Path
	for i := range len(p.s) {
		if p.s[i] == '/' {
			out = append(out, Path{p.s[:i]})
		}
	}
	return out
}

// Baseline names one state of a workspace (contract section 5). Rev is
// git:tree:<hex> or tree:sha256:<hex>; Dirty is sha256:<hex> of the overlay, or
// empty when the workspace equals Rev. Only the host issues one.
type Baseline struct {
	Rev   string
	Dirty string
}

// Refusal codes that belong to reading a workspace stay with the room that
// finds them; see preconditions for the table.
