package editplan

import (
	"errors"
	"fmt"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/seam/wire"
	"github.com/aspengine/asp/snapshot"
)

// Limits bound what a plan may hold. A zero member stands for its default.
type Limits struct {
	Bytes        int // length of a plan file
	Depth        int // nesting of its JSON
	Values       int // JSON values in it
	Ops          int // operations
	EditsPerFile int // text edits of one operation
	Edits        int // text edits of the plan
	BlobBytes    int // decoded content of the plan, all blobs together
}

// The defaults of Limits.
const (
	DefaultPlanBytes    = 64 << 20
	DefaultOps          = 100_000
	DefaultEditsPerFile = 100_000
	DefaultEdits        = 1_000_000
	DefaultBlobBytes    = 1 << 30
)

func (l Limits) filled() Limits {
	set := func(n *int, d int) {
		if *n <= 0 {
			*n = d
		}
	}
	set(&l.Bytes, DefaultPlanBytes)
	set(&l.Depth, canon.DefaultDepth)
	set(&l.Values, 2*canon.DefaultValues)
	set(&l.Ops, DefaultOps)
	set(&l.EditsPerFile, DefaultEditsPerFile)
	set(&l.Edits, DefaultEdits)
	set(&l.BlobBytes, DefaultBlobBytes)
	return l
}

// File is a plan file: an EditPlan as it came, and the content that came with
// it. Blobs have the digest of their bytes.
type File struct {
	Proposal canon.Value
	Blobs    []Blob
}

// Decode reads a plan file: an EditPlan, or a bundle {proposal, blobs}. What
// is wrong with it is a list of refusals, all of code bad-message; the
// proposal itself is looked at by Compile.
func Decode(data []byte, l Limits) (File, refusal.List) {
	l = l.filled()
	v, err := canon.Parse(data, canon.Limits{Bytes: l.Bytes, Depth: l.Depth, Values: l.Values})
	if err != nil {
		return File{}, refusal.List{refusal.New(refusal.BadMessage, "", -1, "%s", err)}
	}
	if _, isBundle := v.Get("proposal"); !isBundle {
		return File{Proposal: v}, nil
	}
	var w wire.Bundle
	if err := wire.Decode(v, &w); err != nil {
		return File{}, malformed(err, nil)
	}
	f := File{Proposal: w.Proposal}
	total := 0
	for i, b := range w.Blobs {
		content, err := b.Decode()
		if err != nil {
			return File{}, refusal.List{refusal.New(refusal.BadMessage, "", -1, "blob %d is not %s ($.blobs[%d])", i, b.Encoding, i)}
		}
		if total += len(content); total > l.BlobBytes {
			return File{}, refusal.List{refusal.New(refusal.BadMessage, "", -1, "the blobs hold more than %d bytes", l.BlobBytes)}
		}
		f.Blobs = append(f.Blobs, Blob{Digest: snapshot.DigestOf(content), Bytes: content})
	}
	return f, nil
}

// malformed turns what the decoder found into refusals; opOf, if given, finds
// the operation and the path that a JSON path belongs to.
func malformed(err error, opOf func(jsonPath string) (op int, path string)) refusal.List {
	var d *wire.DecodeError
	if !errors.As(err, &d) {
		return refusal.List{refusal.New(refusal.BadMessage, "", -1, "%s", err)}
	}
	var out refusal.List
	for _, p := range d.Problems {
		op, path := -1, ""
		if opOf != nil {
			op, path = opOf(p.Path)
		}
		out = append(out, refusal.New(refusal.BadMessage, path, op, "%s", p))
	}
	return out
}

// opOfPath reads the operation out of a JSON path below documentChanges.
func opOfPath(proposal canon.Value) func(string) (int, string) {
	return func(jsonPath string) (int, string) {
		var i int
		if n, _ := fmt.Sscanf(jsonPath, "$.workspaceEdit.documentChanges[%d]", &i); n != 1 {
			return -1, ""
		}
		edit, _ := proposal.Get("workspaceEdit")
		changes, _ := edit.Get("documentChanges")
		if i < 0 || i >= changes.Len() {
			return -1, ""
		}
		path, _ := changes.At(i).Get("path")
		return i, path.Str()
	}
}
