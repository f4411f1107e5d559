package apply

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/aspengine/asp/checks"
	"github.com/aspengine/asp/checks/command"
	"github.com/aspengine/asp/checks/policy"
	"github.com/aspengine/asp/editplan"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/preconditions"
	"github.com/aspengine/asp/receipt"
	"github.com/aspengine/asp/sandbox"
	"github.com/aspengine/asp/seam/wire"
	"github.com/aspengine/asp/snapshot"
	"github.com/aspengine/asp/worktree"
)

// runChecks runs what policy and caller ask for over the after-state, and lets
// the policy decide. The published bytes are the plan's own, whatever a check
// wrote.
func (e *Engine) runChecks(ctx context.Context, t *tx) error {
	j := e.applyJudgement(t.r)
	j.own, j.now, j.effects, j.perm, j.started = e.ownPolicy(t), t.candidate, t.effects, t.permOf(), t.started
	j.drift = func(ctx context.Context) ([]string, error) {
		out, err := t.drift(ctx, j.onTree.Swap(false))
		if err == nil && len(out) == 0 {
			var stood bool
			if stood, err = j.stood(ctx); err == nil && !stood {
				out = []string{wasBack}
			}
		}
		j.learn(err == nil && len(out) == 0)
		return out, err
	}
	j.ahead = t.verdictAhead
	err := j.run(ctx)
	t.answer.Notes = append(t.answer.Notes, j.notes...)
	t.report, t.decision, t.network = j.report, j.decision, append(t.network, j.network...)
	if err == nil && ctx.Err() == nil && !t.r.DryRun {
		err = j.recordFaults(ctx, t.requestDigest(), t.csDigest, t.baseline)
	}
	if err != nil || t.decision == nil {
		return err
	}
	if !t.r.DryRun && !j.idle {
		var note string
		if t.judged, note = e.judged(e.pol, j.question, t.candidate().changeset); note != "" {
			t.answer.Notes = append(t.answer.Notes, note)
		}
	}
	return t.judge(*t.decision)
}

// applyJudgement is what the request and the configuration say of a judgement, under
// the lock or before it.
func (e *Engine) applyJudgement(r Request) *judgement {
	return &judgement{
		isolate: r.RequireAssurance == checks.Isolated || e.wantsIsolated(), least: levelFor(r.RequireAssurance),
		e: e, pol: e.pol, callSite: r.CallSite, named: r.Checks, applying: true, basePolicy: r.BasePolicyDigest, blobs: r.Blobs,
	}
}

// candidate is the after-state of the plan against the tree as it was last seen.
func (t *tx) candidate() candidate {
	v, err := canon.From(t.changeset)
	if err != nil {
		v = canon.NullOf() // it was digested before, so it is well formed
	}
	return candidate{stamp: t.stamp, baseline: t.baseline, changeset: v, digest: t.csDigest, changes: t.changeset.Changes}
}

// UnknownCheckError answers a --check that the configuration does not have.
type UnknownCheckError struct {
	Name  string
	Known []string
}

func (u *UnknownCheckError) Error() string {
	if len(u.Known) == 0 {
		return fmt.Sprintf("no check %.100q: config.json in the state directory configures none (see `asp apply --help`)", u.Name)
	}
	return fmt.Sprintf("no check %.100q in config.json; there are: %s", u.Name, strings.Join(u.Known, ", "))
}

func (e *Engine) checkNames() []string {
	var out []string
	for _, c := range e.cfg.Checks {
		out = append(out, c.Name)
	}
	return out
}

// commandSpec is what the trusted configuration says of a command check.
func (e *Engine) commandSpec(c policy.Command, cs wire.CallSite, isolate bool) command.Spec {
	s := command.Spec{Argv: c.Argv, Env: c.Env, Timeout: c.Timeout, Path: os.Getenv("PATH"), Require: e.least(), Isolate: isolate, Pass: map[string]string{}}
	for _, name := range e.cfg.Sandbox.Env {
		if v, ok := os.LookupEnv(name); ok {
			s.Pass[name] = v
		}
	}
	s.Egress = e.cfg.Sandbox.Network
	s.Limits = e.limits()
	// What is configured for all bounds what a check says of itself.
	if n := s.Limits.Wall; n > 0 && (s.Timeout == 0 || n < s.Timeout) {
		s.Timeout = n
	}
	if b := e.pol.Budget(cs); b > 0 && (s.Timeout == 0 || b < s.Timeout) {
		s.Timeout = b
	}
	return s
}

// limits are those of the trusted configuration for command checks.
func (e *Engine) limits() sandbox.Limits {
	of := func(key string, most int64) uint64 { return uint64(min(max(e.cfg.Sandbox.Limits[key], 0), most)) }
	const unbounded = math.MaxInt64
	return sandbox.Limits{
		Wall: time.Duration(of("wallclockMs", unbounded/int64(time.Millisecond))) * time.Millisecond, Output: int(max(e.cfg.Limits.OutputBytes, 0)),
		Files: of("fd", unbounded), Processes: of("processes", unbounded), CPUPct: of("cpuPct", unbounded),
		FileSize: of("fileMb", 1<<40) << 20, Memory: of("memoryMb", 1<<40) << 20,
	}
}

// wantsIsolated tells whether the configuration or a requirement of the policy takes
// nothing less than isolated. Everything else may be proved at less cost.
func (e *Engine) wantsIsolated() bool {
	if e.cfg.Sandbox.Require == wire.Isolated {
		return true
	}
	for _, cs := range []wire.CallSite{wire.Interactive, wire.Gate, wire.Sweep} {
		for _, d := range e.pol.Demands(cs, nil) {
			if q := d.Requirement; q != nil && len(q.Assurance) == 1 && q.Assurance[0] == wire.Isolated {
				return true
			}
		}
	}
	return false
}

// least is what a launch has to establish, or nothing is started. Only a
// configuration that says none in words lets a program run where nothing keeps it
// from the workspace: what it destroys there, no transaction brings back. Where there is no
// configuration, Require is no mode at all, and nothing was said either.
func (e *Engine) least() sandbox.Level {
	l := level(e.cfg.Sandbox.Require)
	if l == sandbox.Advisory && !e.cfg.Sandbox.Free {
		return sandbox.Gated
	}
	return l
}

// levelFor is what a launch has to establish for a caller that demands i.
func levelFor(i checks.Isolation) sandbox.Level {
	switch i {
	case checks.Gated:
		return sandbox.Gated
	case checks.MediatedWrite:
		return sandbox.MediatedWrite
	case checks.Isolated:
		return sandbox.Isolated
	}
	return sandbox.Advisory
}

func level(m wire.Mode) sandbox.Level {
	switch m {
	case wire.MediatedWrite:
		return sandbox.MediatedWrite
	case wire.Isolated:
		return sandbox.Isolated
	}
	return sandbox.Advisory
}

// refused tells whether a launch over a candidate of method m was refused.
func refused(r checks.Report, m worktree.Method) bool {
	return slices.ContainsFunc(r.Results, func(x checks.Result) bool {
		return x.Unsupported && x.Method == m && x.Status == checks.Unavailable
	})
}

// permOf gives the exact bits that the after-state will have.
func (t *tx) permOf() func(snapshot.Path) (uint32, bool) {
	m := map[snapshot.Path]uint32{}
	for _, c := range t.changes {
		if c.After != nil && !c.After.UmaskApplies {
			m[c.Path] = c.After.Perm
		}
	}
	return func(p snapshot.Path) (uint32, bool) {
		v, ok := m[p]
		return v, ok
	}
}

// drift lists what moved in the live tree since the last look. Where a command ran over
// it since (onTree), that is also what moved there and back: see changedBack.
func (t *tx) drift(ctx context.Context, onTree bool) ([]string, error) {
	items, err := t.adm.Recheck(ctx)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, it := range items {
		out = append(out, it.Path)
	}
	s, err := t.e.ws.Stamp(ctx, snapshot.StampOptions{Content: t.r.VerifyContent})
	if err != nil {
		return nil, err
	}
	before := t.stamp.Baseline
	for _, p := range moved(t.stamp, s) {
		if !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	if onTree && len(out) == 0 && changedBack(t.stamp, s) {
		out = append(out, wasBack)
	}
	if t.stamp = s; s.Baseline != before {
		// The same changes on another baseline are another changeset.
		t.baseline = t.e.issue(s.Baseline, t.started)
		t.changeset.Baseline = t.baseline
		v, err := canon.From(t.changeset)
		if err != nil {
			return nil, fmt.Errorf("digest changeset: %w", err)
		}
		t.csDigest = canon.DigestText(v)
	}
	return out, nil
}

// wasBack stands for the path of what moved there and back.
const wasBack = "(a file that holds again what it held)"

// changedBack tells whether some file was written or replaced between two looks that
// found the same state. A command may have seen the state between; who is served content
// by its digest cannot. A file that came and went leaves nothing by which to tell it.
func changedBack(a, b *snapshot.Stamp) bool {
	return a.Baseline == b.Baseline && a.Traces != b.Traces && !a.Watched && !b.Watched
}

// moved lists the paths in which two stamps differ.
func moved(a, b *snapshot.Stamp) []string {
	if a.Baseline == b.Baseline {
		return nil
	}
	var out []string
	if a.Baseline.Rev != b.Baseline.Rev && strings.HasPrefix(a.Baseline.Rev, "git:") {
		out = append(out, "(HEAD)")
	}
	i, j := 0, 0
	for i < len(a.Overlay) || j < len(b.Overlay) {
		switch {
		case j == len(b.Overlay) || i < len(a.Overlay) && a.Overlay[i].Path < b.Overlay[j].Path:
			out = append(out, a.Overlay[i].Path)
			i++
		case i == len(a.Overlay) || b.Overlay[j].Path < a.Overlay[i].Path:
			out = append(out, b.Overlay[j].Path)
			j++
		default:
			if a.Overlay[i] != b.Overlay[j] {
				out = append(out, a.Overlay[i].Path)
			}
			i, j = i+1, j+1
		}
	}
	return out
}

// ownPolicy finds a plan that changes the policy that judges it. The committed
// policy stays the one that counts; a change that would authorize or weaken
// anything takes a gate its answer, and is seen at the other call-sites.
func (e *Engine) ownPolicy(t *tx) *wire.Degradation {
	for _, n := range t.adm.Nets {
		if n.Path.String() != policy.SourceRepository {
			continue
		}
		var after []byte
		switch n.Content {
		case editplan.ContentBlob:
			after = t.adm.Plan.Blobs[n.After.Digest]
		case editplan.ContentEdits:
			after = n.Bytes
		case editplan.ContentSame:
			return nil
		case editplan.ContentLive:
			after, _ = t.view.Bytes(n.From) // unreadable counts as a policy that would be rejected
		}
		if g, bad := e.pol.Candidate(after); bad {
			return &g
		}
	}
	return nil
}

// judge puts the decision into its envelope, with a receipt of its own kind.
func (t *tx) judge(d policy.Decision) error {
	as := wire.ApplyAssurance{Mode: d.Mode, TransactionGuarantee: wire.GuaranteeNone}
	rd := t.requestDigest()
	r := receipt.New(receipt.Draft{
		Kind: wire.ReceiptEvaluate, Family: wire.Check, CallSite: d.CallSite, RequestDigest: rd, ChangesetDigest: t.csDigest,
		ProposalID: t.proposalID(), PolicyDigest: t.e.pol.Digest, Baseline: t.baseline, Coverage: d.Coverage, Authority: d.Evidence,
		Providers: d.Provenance, ValidAsOf: wire.HostValidAsOf{Rev: t.baseline.Rev, Blobs: servedBlobs(t.report.Results)}, Assurance: as, Started: t.started, Ended: t.e.now(), Failures: nil,
	}, t.e.o.Version)
	v := d.Verdict(policy.Envelope{
		RequestDigest: rd, ChangesetDigest: t.csDigest, PolicyDigest: t.e.pol.Digest,
		ValidAsOf: wire.HostValidAsOf{Rev: t.baseline.Rev, Blobs: servedBlobs(t.report.Results)}, Assurance: as, Receipt: r,
	})
	t.verdict = &v
	return nil
}

// summary says in one sentence what kept a decision from allow.
func summary(d *policy.Decision) string {
	var parts []string
	for _, g := range d.Failures {
		if g.Reason != wire.DegradeOptionalDegraded {
			parts = append(parts, g.Source+" ("+string(g.Reason)+"): "+g.Detail)
		}
	}
	if len(parts) == 0 {
		return "the decision is " + string(d.Decision)
	}
	return strings.Join(parts, "; ")
}

// baseContent finds the bytes that a plan was made from, for a merge: what came
// with the plan, what is kept, what HEAD has.
func (e *Engine) baseContent(f editplan.File) func(context.Context, snapshot.Digest, snapshot.Path) ([]byte, bool, error) {
	return func(ctx context.Context, d snapshot.Digest, p snapshot.Path) ([]byte, bool, error) {
		for _, b := range f.Blobs {
			if b.Digest == d {
				return b.Bytes, true, nil
			}
		}
		if b, err := e.packs.Bytes(d); err == nil {
			return b, true, nil
		}
		if e.git != nil {
			b, err := e.git.HeadFile(ctx, p, editplan.MaxTextFile)
			if err == nil && snapshot.DigestOf(b) == d {
				return b, true, nil
			}
		}
		return nil, false, nil
	}
}

// blobLookup finds content that a plan names and did not bring: what the blob
// store still keeps.
func (e *Engine) blobLookup() editplan.Lookup {
	return func(d snapshot.Digest) ([]byte, bool, error) {
		b, err := e.packs.Bytes(d)
		return b, err == nil, nil
	}
}

// activePolicy reads the policy that counts: committed at HEAD, and only of an
// enrolled repository; plus the floor.
func (e *Engine) activePolicy(ctx context.Context, enrolled policy.Enrolment) (policy.Policy, error) {
	_, yes := enrolled[e.ws.Root()]
	e.isEnrolled, e.enrolment = yes, enrolled
	var committed []byte
	if yes && e.git != nil {
		p, err := snapshot.ParsePath(policy.SourceRepository)
		if err != nil {
			return policy.Policy{}, err
		}
		b, err := e.git.HeadFile(ctx, p, policy.MaxFile)
		switch {
		case err == nil:
			committed = b
		case !isNotInHead(err):
			return policy.Policy{}, fmt.Errorf("read the committed policy: %w", err)
		}
	}
	return policy.Active(e.cfg, committed, yes), nil
}

var _ editplan.Reader = (*preconditions.View)(nil)
