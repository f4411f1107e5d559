package editplan

import (
	"fmt"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/seam/wire"
	"github.com/aspengine/asp/snapshot"
)

// Lookup finds content that did not travel with a plan: what a session put
// earlier, or what the blob store holds. ok is false where there is none.
type Lookup func(d snapshot.Digest) (content []byte, ok bool, err error)

// Compile checks everything about a proposal that can be told without looking
// at the workspace, and gives its plan. Refusals are listed for every operation
// that has one; the plan is nil then. The error is that of lookup, which may be
// nil when there is nothing to look in.
//
// Held here: closed shapes, no host-owned and no executable member at any
// depth, one spelling of every path and no protected name, one freshness (the
// three baselines of a plan equal member by member), touchedResources naming
// exactly the operations, all edits of a modify on the digest that it
// expects, every named content present and equal to its name, the limits.
func Compile(f File, l Limits, lookup Lookup) (*Plan, refusal.List, error) {
	p, refused, err := compile(f, l, lookup)
	if len(refused) > 0 {
		p = nil
	}
	return p, refused, err
}

// compile gives, beside refusals, the plan of the operations whose shape could
// be told, or nil.
func compile(f File, l Limits, lookup Lookup) (*Plan, refusal.List, error) {
	c := compiler{limits: l.filled(), lookup: lookup, proposal: f.Proposal, blobs: map[snapshot.Digest][]byte{}}
	for _, b := range f.Blobs {
		if snapshot.DigestOf(b.Bytes) == b.Digest {
			c.blobs[b.Digest] = b.Bytes
		}
	}
	return c.run()
}

type compiler struct {
	limits   Limits
	lookup   Lookup
	proposal canon.Value
	blobs    map[snapshot.Digest][]byte
	used     map[snapshot.Digest][]byte
	usedSize int
	out      refusal.List
}

func (c *compiler) refuse(code refusal.Code, path string, op int, format string, a ...any) {
	c.out = append(c.out, refusal.New(code, path, op, format, a...))
}

func (c *compiler) run() (*Plan, refusal.List, error) {
	opOf := opOfPath(c.proposal)
	for _, k := range wire.ScanForbidden(c.proposal) {
		op, path := opOf(k.Path)
		what := "belongs to the host"
		if k.Code == refusal.CommandLike {
			what = "carries something to execute"
		}
		c.refuse(k.Code, path, op, "member %s %s; plans hold edits only (%.300s)", k.Key, what, k.Path)
	}
	var w wire.EditPlan
	if err := wire.Decode(c.proposal, &w); err != nil {
		// A smuggled member is unknown too; saying so once is enough.
		if len(c.out) == 0 {
			c.out = malformed(err, opOf)
		}
		return nil, c.out, nil
	}
	if len(c.out) > 0 {
		return nil, c.out, nil
	}
	if w.Status != wire.StatusComplete {
		c.refuse(refusal.UnsupportedOperation, "", -1, "the plan's status is %s; only a complete plan can be applied", w.Status)
		return nil, c.out, nil
	}
	p := &Plan{ID: w.ProposalID, Provider: w.Provider.ID, StampedAt: w.Baseline.StampedAt,
		Baseline: snapshot.Baseline{Rev: w.Baseline.Rev, Dirty: w.Baseline.Dirty}}
	c.freshness(p, w)
	c.mirror(w)
	if n := len(w.WorkspaceEdit.DocumentChanges); n > c.limits.Ops {
		c.refuse(refusal.BadMessage, "", -1, "%d operations are over the limit of %d", n, c.limits.Ops)
		return nil, c.out, nil
	}
	c.used = map[snapshot.Digest][]byte{}
	edits := 0
	for i, d := range w.WorkspaceEdit.DocumentChanges {
		op, err := c.op(i, d)
		if err != nil {
			return nil, nil, err
		}
		edits += len(op.Edits)
		p.Ops = append(p.Ops, op)
	}
	if edits > c.limits.Edits {
		c.refuse(refusal.BadMessage, "", -1, "%d text edits are over the limit of %d", edits, c.limits.Edits)
	}
	p.Blobs = c.used
	p.Canonical = c.proposal.Bytes()
	p.Digest = snapshot.DigestOf(p.Canonical)
	return p, c.out, nil
}

// freshness compares the values as they came, so that an absent member and an
// empty one differ.
func (c *compiler) freshness(p *Plan, w wire.EditPlan) {
	base, _ := c.proposal.Get("baseline")
	edit, _ := c.proposal.Get("workspaceEdit")
	if b, _ := edit.Get("baseline"); !canon.Equal(b, base) {
		c.refuse(refusal.BadMessage, "", -1, "workspaceEdit.baseline differs from baseline")
	}
	valid, _ := c.proposal.Get("validAsOf")
	if b, _ := valid.Get("baseline"); !canon.Equal(b, base) {
		c.refuse(refusal.StaleValidAsOf, "", -1, "validAsOf.baseline differs from baseline")
	}
	for i, b := range w.ValidAsOf.Blobs {
		d, err := snapshot.ParseBlob(string(b))
		if err != nil {
			c.refuse(refusal.StaleValidAsOf, "", -1, "validAsOf.blobs[%d] %.90q names no content that a file can have", i, string(b))
			continue
		}
		p.ValidAsOf = append(p.ValidAsOf, d)
	}
}

// mirror holds that touchedResources name exactly the operations. They are a
// set: their order says nothing, and two equal operations are one resource.
func (c *compiler) mirror(w wire.EditPlan) {
	touched := make(map[wire.TouchedResource]bool, len(w.TouchedResources))
	for _, t := range w.TouchedResources {
		touched[t] = false
	}
	for i, d := range w.WorkspaceEdit.DocumentChanges {
		t := wire.TouchedResource{Path: d.Path, Kind: d.Kind, To: d.To, Precondition: d.Precondition}
		if _, ok := touched[t]; !ok {
			c.refuse(refusal.BadMessage, d.Path, i, "operation %d is not in touchedResources", i)
			continue
		}
		touched[t] = true
	}
	for i, t := range w.TouchedResources {
		if !touched[t] {
			c.refuse(refusal.BadMessage, t.Path, -1, "touchedResources[%d] is no operation of the plan", i)
		}
	}
}

func (c *compiler) op(i int, d wire.DocumentChange) (Op, error) {
	op := Op{Index: i, Path: c.path(i, d.Path)}
	switch d.Kind {
	case wire.KindCreate:
		op.Kind = Create
	case wire.KindModify:
		op.Kind = Modify
	case wire.KindDelete:
		op.Kind = Delete
	case wire.KindRename, wire.KindMove:
		op.Kind = Rename
		op.To = c.path(i, d.To)
		if d.To == d.Path && !op.To.IsZero() {
			c.refuse(refusal.Exists, d.To, i, "%s to the same path", d.Kind)
		} else if !op.To.IsZero() && !op.Path.IsZero() && op.To.Within(op.Path) {
			c.refuse(refusal.PathInvalid, d.To, i, "%.200q lies inside the file %.200q that would move there", d.To, d.Path)
		}
	}
	if e := d.Precondition.ExpectedDigest; e != "" {
		got, err := snapshot.ParseBlob(string(e))
		if err != nil {
			c.refuse(refusal.StaleBasis, d.Path, i, "expectedDigest %.90q names no content that a file can have; it takes blob:sha256: and 64 hexadecimal digits", string(e))
		}
		op.Expected = got
	}
	mode, bad := modeOf(d, i)
	op.Mode, c.out = mode, append(c.out, bad...)
	if op.Kind == Modify && d.Edits != nil {
		c.edits(&op, d)
		return op, nil
	}
	if d.After != "" && op.Kind != Rename {
		return op, c.after(&op, d)
	}
	return op, nil
}

func (c *compiler) path(op int, spelling string) snapshot.Path {
	p, err := snapshot.ParsePath(spelling)
	if err != nil {
		c.refuse(refusal.PathInvalid, spelling, op, "%s", err)
		return snapshot.Path{}
	}
	if name, bad := ProtectedPath(p); bad {
		c.refuse(refusal.PathProtected, spelling, op, "%.200q is a protected name (%.200q)", name, spelling)
	}
	return p
}

// edits reads the text edits of a modify. Their positions are looked at by
// Resolve, which has the basis.
func (c *compiler) edits(op *Op, d wire.DocumentChange) {
	if n := len(d.Edits); n > c.limits.EditsPerFile {
		c.refuse(refusal.BadMessage, d.Path, op.Index, "%d text edits of one file are over the limit of %d", n, c.limits.EditsPerFile)
		return
	}
	op.Edits = make([]TextEdit, 0, len(d.Edits))
	for j, e := range d.Edits {
		if j > 0 && e.RangeBasis != d.Edits[0].RangeBasis {
			c.refuse(refusal.BadMessage, d.Path, op.Index, "edit %d has another rangeBasis than edit 0; all edits of one modify refer to the same basis", j)
			return
		}
		op.Edits = append(op.Edits, TextEdit{
			Start:   Pos{e.Range.Start.Line, e.Range.Start.Char},
			End:     Pos{e.Range.End.Line, e.Range.End.Char},
			NewText: e.NewText,
		})
	}
	if len(d.Edits) > 0 && d.Edits[0].RangeBasis != d.Precondition.ExpectedDigest {
		c.refuse(refusal.StaleBasis, d.Path, op.Index, "rangeBasis %.90q is not the expectedDigest %.90q: the ranges belong to other bytes", string(d.Edits[0].RangeBasis), string(d.Precondition.ExpectedDigest))
	}
}

// after finds the content that a whole-blob operation names. One that names
// what it expects keeps the bytes, and needs no content.
func (c *compiler) after(op *Op, d wire.DocumentChange) error {
	missing := func() {
		c.refuse(refusal.MissingBlob, d.Path, op.Index, "content %.90q did not arrive; put it into the bundle or send it first", string(d.After))
	}
	digest, err := snapshot.ParseBlob(string(d.After))
	if err != nil {
		missing()
		return nil
	}
	op.After, op.HasAfter = digest, true
	if op.Kind == Modify && d.After == d.Precondition.ExpectedDigest {
		return nil
	}
	if _, ok := c.used[digest]; ok {
		return nil
	}
	content, ok := c.blobs[digest]
	if !ok && c.lookup != nil {
		if content, ok, err = c.lookup(digest); err != nil {
			return fmt.Errorf("look up %s: %w", digest, err)
		}
		if ok && snapshot.DigestOf(content) != digest {
			c.refuse(refusal.MissingBlob, d.Path, op.Index, "content found under %s does not hash to it", digest)
			return nil
		}
	}
	if !ok {
		missing()
		return nil
	}
	if c.usedSize += len(content); c.usedSize > c.limits.BlobBytes {
		c.refuse(refusal.BadMessage, d.Path, op.Index, "the content of the plan is over the limit of %d bytes", c.limits.BlobBytes)
		return nil
	}
	c.used[digest] = content
	return nil
}
