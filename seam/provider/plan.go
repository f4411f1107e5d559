package provider

import (
	"context"
	"fmt"

	"github.com/aspengine/asp/editplan"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/wire"
	"github.com/aspengine/asp/snapshot"
)

// proposal holds an answer to edit/propose against what was asked and served. A
// complete plan gets the very checks that apply will make without looking at
// the workspace, so that what is kept can be applied later or is stale, and never
// turns out to be malformed.
type proposal struct {
	id, version       string // of the manifest
	capabilityVersion string
	proposalID        string
	baseline          wire.Baseline
	scope             globs
}

func (p *proposal) judge(ctx context.Context, v canon.Value, q *request) (plan canon.Value, w wire.EditPlan, f *fault) {
	var r wire.ProposeResult
	if err := wire.Decode(v, &r); err != nil {
		return plan, w, malformed("its answer is no proposal: %s", err)
	}
	plan = r.Proposal
	if found := wire.ScanForbidden(plan); len(found) > 0 {
		return plan, w, malformed("its plan has member %s, which no plan may hold (%s: %.300s)", found[0].Key, found[0].Code, found[0].Path)
	}
	if err := wire.Decode(plan, &w); err != nil {
		return plan, w, malformed("its plan is not well formed: %s", err)
	}
	switch {
	case w.ProposalID != p.proposalID:
		return plan, w, malformed("its plan has proposalId %q, and %q was asked for", cut(w.ProposalID, 100), p.proposalID)
	case w.Provider.ID != p.id:
		return plan, w, malformed("its plan is signed %q, and it is enrolled as %q", cut(w.Provider.ID, 100), p.id)
	case w.Provider.Version != p.version:
		return plan, w, malformed("its plan is of version %q, and its manifest says %q", cut(w.Provider.Version, 100), p.version)
	case p.capabilityVersion != "" && w.Provider.CapabilityVersion != p.capabilityVersion:
		return plan, w, malformed("its plan is of capability %q, and it declared %q", cut(w.Provider.CapabilityVersion, 100), p.capabilityVersion)
	case w.Baseline != p.baseline || w.ValidAsOf.Baseline != p.baseline:
		return plan, w, stale("its plan is for another baseline than the one that was issued (rev %q)", cut(w.Baseline.Rev, 100))
	}
	if f := p.blobs(ctx, w, q); f != nil {
		return plan, w, f
	}
	for i, t := range w.TouchedResources {
		if f := p.inScope(t.Path, t.To); f != nil {
			return plan, w, f
		}
		if _, err := snapshot.ParsePath(t.Path); err != nil {
			return plan, w, malformed("touchedResources[%d]: %s", i, err)
		}
	}
	if w.WorkspaceEdit != nil {
		for _, c := range w.WorkspaceEdit.DocumentChanges {
			if f := p.inScope(c.Path, c.To); f != nil {
				return plan, w, f
			}
		}
	}
	if w.Status != wire.StatusComplete {
		return plan, w, nil
	}
	return plan, w, p.compile(ctx, plan, q)
}

func (p *proposal) inScope(paths ...string) *fault {
	for _, s := range paths {
		if s != "" && !p.scope.covers(s) {
			return malformed("its plan touches %q, outside of the requested scope", cut(s, 200))
		}
	}
	return nil
}

// blobs holds the freshness of a plan: what was served to make it stands in
// validAsOf, and nothing does that the provider could not know.
func (p *proposal) blobs(ctx context.Context, w wire.EditPlan, q *request) *fault {
	if missing, ok := lacks(w.ValidAsOf.Blobs, q.blobs()); ok {
		return stale("validAsOf leaves out %q, which was served in this request", string(missing))
	}
	for _, b := range w.ValidAsOf.Blobs {
		ok, err := q.known(ctx, b)
		if err != nil {
			return lookupFault(err)
		}
		if !ok {
			return stale("validAsOf names %q, which is no content of the baseline that it may read", cut(string(b), 100))
		}
	}
	return nil
}

func lookupFault(err error) *fault {
	return &fault{reason: wire.DegradeUnavailable, state: wire.Active, class: wire.FailHealth, blameless: true,
		detail: cut("the content of its plan cannot be looked up: "+err.Error(), maxDetail)}
}

// known tells whether b was put in this request or may be read in it.
func (q *request) known(ctx context.Context, b wire.BlobRef) (bool, error) {
	q.mu.Lock()
	_, put := q.put[b]
	q.mu.Unlock()
	if put {
		return true, nil
	}
	return q.visible(ctx, b)
}

func (p *proposal) compile(ctx context.Context, plan canon.Value, q *request) *fault {
	_, refused, err := editplan.Compile(editplan.File{Proposal: plan}, editplan.Limits{}, func(d snapshot.Digest) ([]byte, bool, error) {
		b := wire.BlobRef(d.Blob())
		q.mu.Lock()
		content, put := q.put[b]
		q.mu.Unlock()
		if put {
			return content, true, nil
		}
		ok, err := q.visible(ctx, b)
		if !ok || err != nil {
			return nil, false, err
		}
		content, err = q.content.Bytes(ctx, b)
		return content, err == nil, err
	})
	if err != nil {
		return lookupFault(err)
	}
	if len(refused) > 0 {
		more := ""
		if n := len(refused) - 1; n > 0 {
			more = fmt.Sprintf(" and %d more", n)
		}
		return malformed("its plan is not acceptable: %s%s", refused[0], more)
	}
	return nil
}

// named are the blobs that were put and that the plan names.
func named(w wire.EditPlan, put map[wire.BlobRef][]byte) map[wire.BlobRef][]byte {
	out := map[wire.BlobRef][]byte{}
	if w.WorkspaceEdit == nil {
		return out
	}
	for _, c := range w.WorkspaceEdit.DocumentChanges {
		if b, ok := put[c.After]; ok {
			out[c.After] = b
		}
	}
	return out
}
