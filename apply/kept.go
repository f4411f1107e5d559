package apply

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/aspengine/asp/checks"
	"github.com/aspengine/asp/editplan"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/receipt"
	"github.com/aspengine/asp/seam/wire"
	"github.com/aspengine/asp/snapshot"
)

// origin says how a kept plan came about: which provider was asked what, and
// what its launch established. It lies beside the plan in the trusted state, so
// nobody else can claim it.
type origin struct {
	Provider   originProvider `json:"provider"`
	Isolation  wire.Mode      `json:"isolation"`
	Evidence   string         `json:"evidence,omitempty"`
	Probed     []string       `json:"probed,omitempty"`
	Network    []string       `json:"network,omitempty"` // see checks.Result
	Operation  string         `json:"operation"`
	Args       wire.Data      `json:"args,omitempty"`
	Scope      []string       `json:"scope,omitempty"`
	Profile    string         `json:"profile,omitempty"`
	CallSite   wire.CallSite  `json:"callSite"`
	PlanDigest string         `json:"planDigest"`
	// Replaces are the digests of earlier plans of the same id that this one was
	// asked for instead of, because touched paths moved.
	Replaces []string `json:"replaces,omitempty"`
}

// originProvider is a checks.Participant as kept. What it is enabled for is not:
// that is asked when the plan is applied.
type originProvider struct {
	ID                string        `json:"id"`
	Version           string        `json:"version"`
	Publisher         string        `json:"publisher"`
	Package           string        `json:"package,omitempty"`
	Fingerprint       string        `json:"fingerprint"`
	Profiles          []string      `json:"profiles"`
	Families          []wire.Family `json:"families"`
	ServerVersion     string        `json:"serverVersion,omitempty"`
	Verified          bool          `json:"verified"`
	NoChecksums       bool          `json:"noChecksums,omitempty"`
	ConfigDigest      string        `json:"configDigest,omitempty"`
	CapabilityVersion string        `json:"capabilityVersion,omitempty"`
	DirectWrite       bool          `json:"directWrite"`
	FastPath          string        `json:"fastPath,omitempty"`
}

func originProviderOf(p checks.Participant) originProvider {
	return originProvider{
		ID: p.ID, Version: p.Version, Publisher: p.Publisher, Package: p.Package, Fingerprint: p.Fingerprint, Profiles: p.Profiles,
		Families: p.Families, ServerVersion: p.ServerVersion, Verified: p.Verified, NoChecksums: p.NoChecksums, ConfigDigest: p.ConfigDigest,
		CapabilityVersion: p.CapabilityVersion, DirectWrite: p.DirectWrite, FastPath: p.FastPath,
	}
}

// participant is who made the plan, enabled as mode now.
func (o *origin) participant(mode wire.Mode) checks.Participant {
	p := o.Provider
	return checks.Participant{
		ID: p.ID, Version: p.Version, Publisher: p.Publisher, Package: p.Package, Fingerprint: p.Fingerprint, Profiles: p.Profiles,
		Families: p.Families, ServerVersion: p.ServerVersion, Verified: p.Verified, NoChecksums: p.NoChecksums, ConfigDigest: p.ConfigDigest,
		CapabilityVersion: p.CapabilityVersion, DirectWrite: p.DirectWrite, FastPath: p.FastPath, Mode: mode,
	}
}

// keepPlan keeps a provider's plan with its content and origin. The oldest plans
// give way to the bound.
func (e *Engine) keepPlan(id string, f editplan.File, o origin) error {
	blobs := make([]wire.Blob, 0, len(f.Blobs))
	for _, b := range f.Blobs {
		blobs = append(blobs, wire.Blob{Encoding: wire.Base64, Bytes: base64.StdEncoding.EncodeToString(b.Bytes)})
	}
	bundle, err := canon.From(wire.Bundle{Proposal: f.Proposal, Blobs: blobs})
	if err != nil {
		return fmt.Errorf("keep proposal: %w", err)
	}
	ov, err := canon.From(o)
	if err != nil {
		return fmt.Errorf("keep proposal: %w", err)
	}
	b := canon.ObjectOf(
		canon.Member{Key: "format", Value: canon.IntOf(keptFormat)}, canon.Member{Key: "origin", Value: ov}, canon.Member{Key: "bundle", Value: bundle},
	).Bytes()
	if len(b) > maxProposalBytes {
		return &TooLargeError{len(b), maxProposalBytes}
	}
	return e.keepBundle(id, b)
}

// keptFormat is the format of a kept plan: {format, bundle, origin?}. Before it had a
// number a plan without origin was the bundle itself, one with it {origin, bundle}.
const keptFormat = 1

// splitKept takes a kept plan apart. ok is false for a bundle that stands for itself.
func splitKept(v canon.Value) (bundle, origin canon.Value, ok bool, err error) {
	if f, has := v.Get("format"); has {
		if n, isInt := f.Int(); !isInt || n != keptFormat {
			return bundle, origin, false, fmt.Errorf("format %.20s is not known; a newer program wrote it", f.Bytes())
		}
		bundle, ok = v.Get("bundle")
		if !ok {
			return bundle, origin, false, errors.New("it holds no plan")
		}
		origin, _ = v.Get("origin")
		return bundle, origin, true, nil
	}
	bundle, ok = v.Get("bundle")
	origin, both := v.Get("origin")
	return bundle, origin, ok && both, nil
}

// loadKept gives a plan that was kept under its id, and its origin if a provider
// made it. One that is not kept is a refusal.
func (e *Engine) loadKept(id string) (editplan.File, *origin, refusal.List, error) {
	dir, err := e.state.Sub(home.Proposals)
	if err != nil {
		return editplan.File{}, nil, nil, err
	}
	b, err := home.ReadFile(dir, stagedName(id), maxProposalBytes+keptFrame)
	if errors.Is(err, fs.ErrNotExist) {
		return editplan.File{}, nil, refusal.List{refusal.New(refusal.UnknownProposal, "", -1, "no proposal %q is kept for this workspace; ask for one by host/requestEditPlan or make one with `asp plan`", cut(id))}, nil
	}
	if err != nil {
		return editplan.File{}, nil, nil, fmt.Errorf("read kept proposal: %w", err)
	}
	v, err := canon.Parse(b, canon.Limits{Bytes: maxProposalBytes + keptFrame, Depth: canon.DefaultDepth + 2, Values: 2 * canon.DefaultValues})
	if err != nil {
		return editplan.File{}, nil, nil, e.damagedPlan(home.Proposals, stagedName(id), err)
	}
	bundle, ov, ok, err := splitKept(v)
	if err != nil {
		return editplan.File{}, nil, nil, fmt.Errorf("read kept proposal %s: %w", e.state.Path(home.Proposals+"/"+stagedName(id)), err)
	}
	if ok {
		var o *origin
		if ov.Kind() != canon.Invalid {
			o = new(origin)
			if err := wire.Decode(ov, o); err != nil {
				return editplan.File{}, nil, nil, e.damagedPlan(home.Proposals, stagedName(id), err)
			}
		}
		f, items := editplan.Decode(bundle.Bytes(), planLimits(e.cfg))
		return f, o, items, nil
	}
	f, items := editplan.Decode(b, planLimits(e.cfg))
	return f, nil, items, nil
}

// originOf is the origin of a plan, if it is exactly one that a provider gave
// and that is kept.
func (e *Engine) originOf(f editplan.File) (*origin, error) {
	id, ok := f.Proposal.Get("proposalId")
	if !ok || id.Kind() != canon.String {
		return nil, nil
	}
	_, o, items, err := e.loadKept(id.Str())
	if errors.Is(err, errDamagedPlan) {
		return nil, nil // it is not exactly that one, whatever it was
	}
	if err != nil || o == nil || len(items) > 0 || o.PlanDigest != canon.DigestText(f.Proposal) {
		return nil, err
	}
	return o, nil
}

// samePlan tells whether what was carried out under the id of the plan is the
// plan: by its digest, or because it was asked for again in its place.
func (t *tx) samePlan(first *receipt.Stored) (bool, error) {
	mine := t.plan.Digest.String()
	if first.PlanDigest() == mine {
		return true, nil
	}
	_, o, items, err := t.e.loadKept(t.plan.ID)
	if err != nil || o == nil || len(items) > 0 {
		return false, err
	}
	return o.PlanDigest == first.PlanDigest() && slices.Contains(o.Replaces, mine), nil
}

// lookup finds content that a plan names and did not bring: what its session put,
// and what the blob store still keeps.
func (t *tx) lookup() editplan.Lookup {
	kept := t.e.blobLookup()
	return func(d snapshot.Digest) ([]byte, bool, error) {
		if t.r.Blobs != nil {
			if b, ok := t.r.Blobs(d); ok && snapshot.DigestOf(b) == d {
				return b, true, nil
			}
		}
		return kept(d)
	}
}

// modeNow is what a provider is enabled for in this repository; "" for nothing.
func (e *Engine) modeNow(ctx context.Context, id string) wire.Mode {
	if e.o.Providers != nil {
		return e.o.Providers.Standing(ctx, id).Participant.Mode
	}
	mode, _ := e.enrolment.Enabled(e.ws.Root(), id)
	return mode
}
