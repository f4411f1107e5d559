package provider

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/wire"
)

// EditRequest is what a plan is asked for.
type EditRequest struct {
	Operation  string // one of Edit.Operations
	ProposalID string
	// Scope lists what the plan may touch: names, directories, globs. See Touches.
	Scope   []string
	Profile string // a hint on the kind of operation; may be empty
	Args    Data   // of the operation
	Prior   Data   // what the host tells of earlier steps
}

// Touches tells whether a plan for this request may touch a path: named, below a
// named directory, or matched by a glob.
func (r *EditRequest) Touches(p string) bool {
	for _, s := range r.Scope {
		s = strings.TrimSuffix(s, "/")
		if s == "." || p == s || strings.HasPrefix(p, s+"/") || MatchGlob(s, p) {
			return true
		}
	}
	return false
}

// Plan is a proposal in the making: a list of operations, each bound to what it
// expects. The zero Plan is ready for use. Operations are in the order of the
// calls, which is the order in which they mean something.
type Plan struct {
	Rationale string
	Warnings  []string
	// Incomplete, where not empty, says what the plan does not cover; the host does
	// not apply it by itself. Reason is unresolved-reference, partial-coverage,
	// ambiguous-target, budget-exhausted or provider-limitation (where empty).
	Incomplete, Reason string

	ops   []wire.DocumentChange
	notes []wire.PlanAnnotation
	texts map[string]*openText
}

// openText is a modify by text edits that may take more of them.
type openText struct {
	op   int
	text *Text
}

// Len is the number of operations.
func (p *Plan) Len() int { return len(p.ops) }

// Edit replaces the bytes from start to end of a file of the baseline. All edits
// of one file refer to its content as it was read, in one operation; they must
// not overlap. Content that is not UTF-8, and places inside a character or a
// CRLF, are errors.
func (p *Plan) Edit(f *File, start, end int, text string) error {
	if p.texts == nil {
		p.texts = map[string]*openText{}
	}
	o := p.texts[f.Path]
	if o == nil {
		o = &openText{len(p.ops), f.Text()}
	}
	r, err := o.text.Range(start, end)
	if err != nil {
		return fmt.Errorf("edit %s: %w", f.Path, err)
	}
	if p.texts[f.Path] == nil {
		p.texts[f.Path] = o
		p.ops = append(p.ops, wire.DocumentChange{Path: f.Path, Kind: Modify, Precondition: wire.Precondition{ExpectedDigest: f.ID}, Edits: []wire.TextEdit{}})
	}
	op := &p.ops[o.op]
	op.Edits = append(op.Edits, wire.TextEdit{Range: r, RangeBasis: f.ID, CoordinateSystem: wire.UTF16, NewText: text})
	return nil
}

// Replace gives a file new content, which was put by PutBlob; basis is what it
// must hold before.
func (p *Plan) Replace(path string, basis, content BlobRef) {
	p.ops = append(p.ops, wire.DocumentChange{Path: path, Kind: Modify, Precondition: wire.Precondition{ExpectedDigest: basis}, After: content})
}

// Create makes a file where nothing may be.
func (p *Plan) Create(path string, content BlobRef) {
	p.ops = append(p.ops, wire.DocumentChange{Path: path, Kind: Create, Precondition: wire.Precondition{ExpectedAbsence: true}, After: content})
}

// Delete removes a file that must hold basis.
func (p *Plan) Delete(path string, basis BlobRef) {
	p.ops = append(p.ops, wire.DocumentChange{Path: path, Kind: Delete, Precondition: wire.Precondition{ExpectedDigest: basis}})
}

// Move gives a file that must hold basis another path, where nothing may be.
func (p *Plan) Move(path, to string, basis BlobRef) {
	p.ops = append(p.ops, wire.DocumentChange{Path: path, Kind: Move, To: to, Precondition: wire.Precondition{ExpectedDigest: basis}})
}

// Note explains something about a path to whoever reviews the plan.
func (p *Plan) Note(path, message string) {
	p.notes = append(p.notes, wire.PlanAnnotation{Path: path, Message: clean(message, 1000)})
}

// check holds a plan to what a host accepts.
func (p *Plan) check(r *EditRequest, kinds []ChangeKind) error {
	seen := map[string]bool{}
	for _, op := range p.ops {
		if !slices.Contains(kinds, op.Kind) {
			return fmt.Errorf("plan with a %s, which is not declared", op.Kind)
		}
		for _, q := range []string{op.Path, op.To} {
			switch {
			case q == "" && op.Kind != Move && op.Path != "":
			case !ValidPath(q):
				return fmt.Errorf("plan touches %.200q, which is no path", q)
			case !r.Touches(q):
				return fmt.Errorf("plan touches %.200q, which is out of the requested scope", q)
			}
		}
		if k := string(op.Kind) + " " + op.Path; seen[k] {
			return fmt.Errorf("plan has two %s of %.200q", op.Kind, op.Path)
		} else {
			seen[k] = true
		}
	}
	return nil
}

// proposing is one edit/propose between request and answer.
type proposing struct {
	p      *Provider
	h      *Host
	params wire.ProposeParams
	config string
}

// propose serves edit/propose.
func (s *session) propose(h *Host, params canon.Value) (func(context.Context) (canon.Value, error), func(wire.Status, string) (canon.Value, bool), error) {
	e := &proposing{p: s.p, h: h}
	if err := wire.Decode(params, &e.params); err != nil {
		return nil, nil, InputError("%v", err)
	}
	p := &e.params
	if p.Baseline != s.baseline {
		return nil, nil, wire.NewError(wire.CodeStaleBaseline, wire.FailHealth, "the request is on another baseline than the session", "")
	}
	for _, d := range []canon.Value{p.Args, p.PriorContext} {
		if bad := wire.ScanForbidden(d); len(bad) > 0 {
			return nil, nil, InputError("%.60q at %.200s does not belong into a request", bad[0].Key, bad[0].Path)
		}
	}
	var err error
	if e.config, err = s.p.configDigest(EditVersion, s.p.Edit.Config); err != nil {
		return nil, nil, err
	}
	end := func(status wire.Status, detail string) (canon.Value, bool) {
		v, err := e.answer(wire.EditPlan{Status: status, Refusal: &wire.PlanRefusal{Reason: "cancelled", Detail: detail}})
		return v, err == nil
	}
	return e.run, end, nil
}

func (e *proposing) run(ctx context.Context) (canon.Value, error) {
	ed, p := e.p.Edit, &e.params
	if !slices.Contains(ed.Operations, p.Operation) {
		return e.unsupported(&Unsupported{"operation", fmt.Sprintf("operation %.100q is not supported", p.Operation)})
	}
	r := &EditRequest{Operation: p.Operation, ProposalID: p.ProposalID, Scope: p.Scope.Paths, Profile: p.Scope.OperationProfile,
		Args: Data{p.Args}, Prior: Data{p.PriorContext}}
	plan, err := ed.Run(ctx, e.h, r)
	u := new(Unsupported)
	switch {
	case asUnsupported(err, &u):
		return e.unsupported(u)
	case err != nil && e.h.ctx.Err() == nil && Denied(err):
		return e.refused("scope-denied", err)
	case err != nil && e.h.ctx.Err() == nil && unavailable(err):
		return e.refused("missing-content", err)
	case err != nil:
		return canon.Value{}, err
	case plan == nil:
		return canon.Value{}, errors.New("no plan and no error")
	}
	if err := plan.check(r, ed.Kinds); err != nil {
		return canon.Value{}, err
	}
	out := wire.EditPlan{Status: wire.StatusComplete, Annotations: plan.notes, Rationale: clean(plan.Rationale, 4000)}
	for _, w := range plan.Warnings {
		out.Warnings = append(out.Warnings, clean(w, 1000))
	}
	out.WorkspaceEdit = &wire.WorkspaceEdit{Baseline: e.params.Baseline, DocumentChanges: plan.ops}
	for _, op := range plan.ops {
		out.TouchedResources = append(out.TouchedResources, wire.TouchedResource{Path: op.Path, Kind: op.Kind, To: op.To, Precondition: op.Precondition})
	}
	if plan.Incomplete != "" {
		out.Status = wire.StatusIncomplete
		out.Incomplete = &wire.PlanIncomplete{Reason: plan.Reason, Detail: clean(plan.Incomplete, 2000)}
		if plan.Reason == "" {
			out.Incomplete.Reason = "provider-limitation"
		}
		if len(plan.ops) == 0 {
			out.WorkspaceEdit = nil
		}
	}
	return e.answer(out)
}

func (e *proposing) unsupported(u *Unsupported) (canon.Value, error) {
	reason := u.Reason
	if reason == "" {
		reason = "operation"
	}
	return e.answer(wire.EditPlan{Status: wire.StatusUnsupported, Unsupported: &wire.PlanUnsupported{
		Operation: e.params.Operation, Reason: reason, Detail: clean(u.Detail, 2000), SupportedOperations: e.p.Edit.Operations}})
}

func (e *proposing) refused(reason string, err error) (canon.Value, error) {
	return e.answer(wire.EditPlan{Status: wire.StatusError, Refusal: &wire.PlanRefusal{Reason: reason, Detail: clean(err.Error(), 2000)}})
}

// answer completes a plan with what all plans say.
func (e *proposing) answer(p wire.EditPlan) (canon.Value, error) {
	p.ProposalID, p.Baseline = e.params.ProposalID, e.params.Baseline
	p.Provider = wire.PlanProvider{ID: e.p.ID, Version: e.p.Version, CapabilityFamily: wire.Edit, CapabilityVersion: EditVersion,
		ConfigDigest: e.config, BuildDigest: e.h.s.build}
	p.ValidAsOf = wire.PlanValidAsOf{Baseline: e.params.Baseline, Blobs: e.h.served()}
	v, err := own(p, wire.ScanForbidden)
	if err != nil {
		return v, err
	}
	return canon.ObjectOf(member("proposal", v)), nil
}
