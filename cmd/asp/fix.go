package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/aspengine/asp/apply"
	"github.com/aspengine/asp/editplan"
	"github.com/aspengine/asp/editplan/patch"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/seam/wire"
	"github.com/aspengine/asp/snapshot"
	"github.com/spf13/pflag"
)

func fixCommand() *command {
	return &command{
		name: "fix", short: "make a proposal of the fix that a finding brings", hasJSON: true,
		args: "FINDING [--repo D] [--dry-run] [--json]",
		long: `
Takes a finding of the last evaluation (asp check, host/evaluateChangeset), by its
fingerprint, the start of it, or its code where that is the only one. What it brings
as a fix becomes an ordinary proposal, which is kept and shown as a dry run. Nothing
is applied: that is asp apply PROPOSAL-ID, with all its flags. With --dry-run an
edit that came with the finding is shown and not kept.

examples:
  asp check --changed
  asp fix 3f9c2a1b
  asp apply fix-…`,
		flags: func(fs *pflag.FlagSet) {
			fs.Bool("dry-run", false, "show it, keep nothing")
		},
		run: runFix,
	}
}

func runFix(ctx context.Context, e *env, fs *pflag.FlagSet) (err error) {
	name, err := oneArg(fs, "finding")
	if err != nil {
		return err
	}
	w, err := e.openWorkspace(ctx, fs)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	st := e.steps()
	defer st.end()
	eng, err := w.engine(ctx, st.step)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, eng.Close()) }()
	d, err := lastFinding(ctx, eng, name)
	if err != nil {
		return err
	}
	dry, _ := fs.GetBool("dry-run")
	file, items, err := e.proposalOf(ctx, eng, d, dry)
	if err != nil {
		return err
	}
	load := func(context.Context, *apply.View, snapshot.Baseline) (editplan.File, refusal.List, error) {
		return file, items, nil
	}
	asJSON, _ := fs.GetBool("json")
	r := apply.Request{Load: load, DryRun: true, CallSite: wire.Interactive, Intent: wire.IntentUser}
	if !asJSON {
		r.Show = func(cs []patch.Change) {
			st.end()
			e.stdout.Write(patch.Render(cs, patch.RenderOptions{Terminal: e.ui.outTTY, Color: e.ui.outColor}))
		}
	}
	a, err := eng.Apply(ctx, r)
	st.end()
	if err := e.answer(ctx, eng, a, err, asJSON); err != nil {
		return err
	}
	if id, _ := file.Proposal.Get("proposalId"); !asJSON && !dry {
		fmt.Fprintf(e.stdout, "next       asp apply %s\n", clean(id.Str()))
	}
	return nil
}

// lastFinding finds a finding with a fix in the newest evaluation that is kept.
func lastFinding(ctx context.Context, eng *apply.Engine, name string) (none wire.Diagnostic, err error) {
	all, err := lastFindings(ctx, eng)
	if err != nil {
		return none, err
	}
	var by [3][]wire.Diagnostic // by fingerprint, by its start, by code
	bare := strings.TrimPrefix(name, "sha256:")
	for _, d := range all {
		switch print := strings.TrimPrefix(d.Fingerprint, "sha256:"); {
		case print == bare:
			by[0] = append(by[0], d)
		case len(bare) >= 4 && strings.HasPrefix(print, bare):
			by[1] = append(by[1], d)
		case d.Code == name:
			by[2] = append(by[2], d)
		}
	}
	for i, found := range by {
		switch {
		case len(found) == 0:
			continue
		case len(found) > 1 && i > 0:
			return none, usagef("%.100q means %d findings of the last evaluation; give more of a fingerprint, as asp check shows it", name, len(found))
		case found[0].Fix == nil:
			return none, &absentError{fmt.Errorf("the finding %.100q brings no fix", name)}
		}
		return found[0], nil
	}
	return none, &absentError{fmt.Errorf("the last evaluation has no finding %.100q; asp check shows what there is", name)}
}

// lastFindings reads what providers found from the evidence of the newest evaluation.
func lastFindings(ctx context.Context, eng *apply.Engine) ([]wire.Diagnostic, error) {
	all, err := eng.Receipts().List(ctx)
	if err != nil {
		return nil, err
	}
	newest, at := "", ""
	for _, s := range all {
		if s.Kind == string(wire.ReceiptEvaluate) && s.IssuedAt >= at {
			newest, at = s.ReceiptID, s.IssuedAt
		}
	}
	if newest == "" {
		return nil, &absentError{errors.New("nothing was evaluated here; run `asp check --changed` first")}
	}
	st, err := eng.Receipts().Get(newest)
	if err != nil {
		return nil, err
	}
	v := st.Evidence
	for _, k := range []string{"judged", "question", "results"} {
		v, _ = v.Get(k)
	}
	var out []wire.Diagnostic
	for _, r := range v.Elements() {
		ds, _ := r.Get("diagnostics")
		for _, x := range ds.Elements() {
			var d wire.Diagnostic
			if err := wire.Decode(x, &d); err != nil {
				return nil, fmt.Errorf("read the findings of %s: %w", newest, err)
			}
			out = append(out, d)
		}
	}
	return out, nil
}

// proposalOf makes a proposal on the present state out of a fix.
func (e *env) proposalOf(ctx context.Context, eng *apply.Engine, d wire.Diagnostic, dry bool) (editplan.File, refusal.List, error) {
	id := "fix-" + short(d.Fingerprint) + "-" + home.Random(4)
	if d.Fix.WorkspaceEdit == nil {
		return requestFix(ctx, eng, d.Fix, id)
	}
	file, items, err := eng.Plan(ctx, func(_ context.Context, _ *apply.View, base snapshot.Baseline) (editplan.File, refusal.List, error) {
		v, err := inlinePlan(d, id, wire.Baseline{Rev: base.Rev, Dirty: base.Dirty})
		return editplan.File{Proposal: v}, nil, err
	})
	if err != nil || len(items) > 0 || dry {
		return file, items, err
	}
	b, err := file.Encode()
	if err == nil {
		err = eng.KeepProposal(id, b)
	}
	return file, nil, err
}

// inlinePlan is an edit that came with a finding, as a plan of the present state. The
// edit names the content that it expects, so where that has moved it is refused.
func inlinePlan(d wire.Diagnostic, id string, base wire.Baseline) (canon.Value, error) {
	edit := *d.Fix.WorkspaceEdit
	edit.Baseline = base
	we, err := canon.From(edit)
	if err != nil {
		return canon.Value{}, err
	}
	touched := []canon.Value{}
	changes, _ := we.Get("documentChanges")
	for _, c := range changes.Elements() {
		var m []canon.Member
		for _, k := range []string{"path", "kind", "to", "precondition"} {
			if v, ok := c.Get(k); ok {
				m = append(m, canon.Member{Key: k, Value: v})
			}
		}
		touched = append(touched, canon.ObjectOf(m...))
	}
	b, err := canon.From(base)
	if err != nil {
		return canon.Value{}, err
	}
	str := canon.StringOf
	return canon.ObjectOf(
		canon.Member{Key: "proposalId", Value: str(id)},
		canon.Member{Key: "provider", Value: canon.ObjectOf(
			canon.Member{Key: "id", Value: str("asp-fix")}, canon.Member{Key: "version", Value: str(Version)},
			canon.Member{Key: "capabilityFamily", Value: str("edit")}, canon.Member{Key: "capabilityVersion", Value: str("edit/1.0")},
			canon.Member{Key: "configDigest", Value: str("none")})},
		canon.Member{Key: "status", Value: str("complete")},
		canon.Member{Key: "baseline", Value: b},
		canon.Member{Key: "validAsOf", Value: canon.ObjectOf(canon.Member{Key: "baseline", Value: b}, canon.Member{Key: "blobs", Value: canon.ArrayOf()})},
		canon.Member{Key: "touchedResources", Value: canon.ArrayOf(touched...)},
		canon.Member{Key: "workspaceEdit", Value: we},
		canon.Member{Key: "rationale", Value: str("the fix that came with " + d.Code)},
	), nil
}

// requestFix asks the edit provider that policy chooses; the engine keeps the plan.
func requestFix(ctx context.Context, eng *apply.Engine, f *wire.Fix, id string) (editplan.File, refusal.List, error) {
	s, err := eng.Status(ctx, apply.SurfaceRequest{})
	if err != nil {
		return editplan.File{}, nil, err
	}
	operation := f.EditRef
	if operation == "" {
		operation = f.ActRef
	}
	r, err := eng.RequestEdit(ctx, apply.EditRequest{CallSite: wire.Interactive, Operation: operation, Args: f.Args, Baseline: s.Result.Workspace.Baseline, ProposalID: id})
	if err != nil {
		return editplan.File{}, nil, err
	}
	if status, _ := r.Proposal.Get("status"); status.Str() != string(wire.StatusComplete) {
		return editplan.File{}, refusal.List{refusal.New(refusal.UnsupportedOperation, "", -1, "no plan came of %q, which the fix names: the answer is %.40q; `asp server list` tells who may edit here", operation, status.Str())}, nil
	}
	return eng.LoadProposal(id)
}
