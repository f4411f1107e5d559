package snapshot

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/aspengine/asp/internal/canon"
)

// SortOverlay puts entries into the order of their paths' bytes.
func SortOverlay(entries []OverlayEntry) {
	slices.SortFunc(entries, func(a, b OverlayEntry) int { return cmp.Compare(a.Path, b.Path) })
}

// DirtyDigest is the dirty member of a baseline whose sorted overlay is given:
// sha256:<hex> over its canonical form, or "" for no entries.
//
// The canonical form is a JSON array of objects in the order of the paths'
// bytes. Members, each left out when it says nothing: blobId, gone (true),
// mode (git's six digits), note, path, ref. A path that is not valid UTF-8 has
// pathHex (its bytes in hexadecimal) in place of path, so that no two names
// share a form.
func DirtyDigest(entries []OverlayEntry) string {
	if len(entries) == 0 {
		return ""
	}
	h := sha256.New()
	b := append(make([]byte, 0, 8<<10), '[')
	for i := range entries {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendEntry(b, &entries[i])
		if len(b) > 4<<10 {
			h.Write(b)
			b = b[:0]
		}
	}
	h.Write(append(b, ']'))
	var d Digest
	h.Sum(d[:0])
	return d.String()
}

func appendEntry(b []byte, e *OverlayEntry) []byte {
	sep := byte('{')
	key := func(name string) {
		b = append(b, sep, '"')
		b = append(append(b, name...), '"', ':')
		sep = ','
	}
	if !e.Digest.IsZero() {
		key("blobId")
		b = append(append(append(b, '"'), BlobPrefix...), e.Digest.Hex()...)
		b = append(b, '"')
	}
	if e.Gone {
		key("gone")
		b = append(b, "true"...)
	}
	if e.Mode != 0 {
		key("mode")
		b = append(b, '"')
		for sh := 15; sh >= 0; sh -= 3 {
			b = append(b, '0'+byte(e.Mode>>sh&7))
		}
		b = append(b, '"')
	}
	if e.Note != "" {
		key("note")
		b = canon.AppendString(b, e.Note)
	}
	if utf8.ValidString(e.Path) {
		key("path")
		b = canon.AppendString(b, e.Path)
	} else {
		key("pathHex")
		b = append(hex.AppendEncode(append(b, '"'), []byte(e.Path)), '"')
	}
	if e.Ref != "" {
		key("ref")
		b = canon.AppendString(b, e.Ref)
	}
	return append(b, '}')
}

// treeHash computes tree:sha256 over [{blobId,path,size}] from entries that
// come in the order of their paths.
type treeHash struct {
	b []byte
	h interface {
		Write(p []byte) (int, error)
		Sum(b []byte) []byte
	}
}

func newTreeHash() *treeHash {
	return &treeHash{h: sha256.New(), b: append(make([]byte, 0, 8<<10), '[')}
}

func (t *treeHash) add(path string, d *Digest, size int64) {
	if last := len(t.b) - 1; last < 0 || t.b[last] != '[' {
		t.b = append(t.b, ',')
	}
	t.b = append(t.b, `{"blobId":"`+BlobPrefix...)
	t.b = hex.AppendEncode(t.b, d[:])
	t.b = append(t.b, `","path":`...)
	t.b = canon.AppendString(t.b, path)
	t.b = append(t.b, `,"size":`...)
	t.b = append(strconv.AppendInt(t.b, size, 10), '}')
	if len(t.b) > 4<<10 {
		t.h.Write(t.b)
		t.b = t.b[:0]
	}
}

func (t *treeHash) rev() string {
	t.h.Write(append(t.b, ']'))
	return "tree:sha256:" + hex.EncodeToString(t.h.Sum(nil))
}
