package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/aspengine/asp/apply"
	"github.com/aspengine/asp/receipt"
	"github.com/aspengine/asp/seam/wire"
	"github.com/spf13/pflag"
)

func checkCommand() *command {
	return &command{
		name: "check", short: "judge what is changed in the workspace, or staged in git", hasJSON: true,
		args: "[--repo D] (--changed | --staged) [--call-site C] [--check NAME]… [flags]",
		long: `
Runs what the policy and config.json require at the call-site over a change that is
there already, and decides. Nothing is written but the receipt; an interrupted
transaction is ended first, all old or all new, and told of. --changed is
everything that differs from HEAD on disk, untracked files too; --staged is what git
would commit, and the checks see nothing else. Exit status 0 only on allow.

examples:
  asp check --changed
  asp check --staged --call-site gate         in a pre-commit hook
  asp check --changed --json | python3 -c 'import json,sys; print(json.load(sys.stdin)["hostDecision"]["decision"])'`,
		flags: func(fs *pflag.FlagSet) {
			fs.Bool("changed", false, "what differs from HEAD in the workspace")
			fs.Bool("staged", false, "what differs from HEAD in git's index")
			fs.String("call-site", "interactive", "interactive, gate or sweep")
			fs.StringArray("check", nil, "a command check `NAME` that must pass (repeatable)")
			fs.String("comparison", "", "introduced: findings that the change brings; all: whatever is found after it (default: what config.json says of a provider, or introduced)")
		},
		run: runCheck,
	}
}

func runCheck(ctx context.Context, e *env, fs *pflag.FlagSet) error {
	if err := noArgs(fs); err != nil {
		return err
	}
	changed, _ := fs.GetBool("changed")
	staged, _ := fs.GetBool("staged")
	if changed == staged {
		return usagef("say --changed or --staged; see `asp check --help`")
	}
	q, err := evaluation(fs)
	if err != nil {
		return err
	}
	head := func(*apply.Engine) (string, error) { return "HEAD", nil }
	j, err := e.judge(ctx, fs, head, staged, q, nil)
	if err != nil {
		return err
	}
	if asJSON, _ := fs.GetBool("json"); asJSON {
		if err := e.printJSON(wire.CheckResult{Command: "check", Repo: j.repo, CallSite: q.CallSite, Changeset: j.changeset, HostDecision: j.Verdict, Receipt: j.Verdict.Receipt}); err != nil {
			return err
		}
	} else {
		e.verdictText(j)
	}
	return allowed(j.Verdict.Pass)
}

func ciCommand() *command {
	return &command{
		name: "ci", short: "judge a branch in a protected pipeline, and the receipts with it", hasJSON: true,
		args: "verify [--repo D] --changed-from REF [--json]",
		long: `
Judges at the gate what the workspace changes since it left REF: everything that
differs from the commit that REF and HEAD have in common, as git diff REF... has it,
and what is not committed. What was done on REF since then is not part of it. The
policy is the one that is committed at REF itself: a branch cannot weaken what it is
judged by. Then the receipts of this workspace are verified. Exit status 1 unless the
gate allows and every receipt is sound. An interrupted transaction is ended first and
told of. A clone has to hold the common commit.

example:
  asp ci verify --changed-from origin/main --json`,
		flags: func(fs *pflag.FlagSet) {
			fs.String("changed-from", "", "the `REF` that the change is meant for: a branch, a tag or a commit")
		},
		run: runCI,
	}
}

func runCI(ctx context.Context, e *env, fs *pflag.FlagSet) error {
	verb, err := oneArg(fs, "verb: verify")
	if err != nil {
		return err
	}
	if verb != "verify" {
		return usagef("asp ci %.60q: there is only verify", verb)
	}
	from, _ := fs.GetString("changed-from")
	if from == "" {
		return usagef("--changed-from is missing; name the branch or commit that the change starts from")
	}
	var rep receipt.Report
	base := func(eng *apply.Engine) (string, error) { return eng.MergeBase(ctx, from) }
	j, err := e.judge(ctx, fs, base, false, apply.EvaluateRequest{CallSite: wire.Gate, PolicyAt: from}, func(eng *apply.Engine) (err error) {
		rep, err = eng.Receipts().Verify(ctx)
		return err
	})
	if err != nil {
		return err
	}
	r := wire.CIVerifyResult{Command: "ci verify", Repo: j.repo, CallSite: wire.Gate, GatePassed: j.Verdict.Pass, ReceiptValid: rep.OK, Failures: []wire.CIFailure{},
		Changeset: j.changeset, HostDecision: j.Verdict, Receipt: j.Verdict.Receipt}
	r.Verified = r.GatePassed && r.ReceiptValid
	if !r.GatePassed {
		for _, d := range j.Verdict.Receipt.Failures {
			r.Failures = append(r.Failures, wire.CIFailure{Code: string(d.Reason), Detail: d.Source + ": " + d.Detail})
		}
	}
	for _, p := range rep.Problems {
		r.Failures = append(r.Failures, wire.CIFailure{Code: "receipt-invalid", Detail: p})
	}
	if asJSON, _ := fs.GetBool("json"); asJSON {
		if err := e.printJSON(r); err != nil {
			return err
		}
		return allowed(r.Verified)
	}
	e.verdictText(j)
	if rep.OK {
		fmt.Fprintf(e.stdout, "receipts   %d verified\n", rep.Checked)
	}
	for _, p := range rep.Problems {
		fmt.Fprintf(e.stdout, "receipts   %s\n", clean(p))
	}
	return allowed(r.Verified)
}

// evaluation reads the flags of asp check.
func evaluation(fs *pflag.FlagSet) (q apply.EvaluateRequest, err error) {
	site, _ := fs.GetString("call-site")
	q.CallSite = wire.CallSite(site)
	if err := q.CallSite.Check(); err != nil {
		return q, usagef("--call-site: %v", err)
	}
	q.Checks, _ = fs.GetStringArray("check")
	q.Comparison, _ = fs.GetString("comparison")
	if q.Comparison != "" && q.Comparison != "all" && q.Comparison != "introduced" {
		return q, usagef("--comparison %.60q: there are all and introduced", q.Comparison)
	}
	return q, nil
}

// judged is a change with what came of it.
type judged struct {
	*apply.Evaluation
	repo      string
	changeset wire.ChangeSet
}

// judge evaluates what is there against the revision that from names; then runs with
// the same engine.
func (e *env) judge(ctx context.Context, fs *pflag.FlagSet, from func(*apply.Engine) (string, error), staged bool, q apply.EvaluateRequest, then func(*apply.Engine) error) (j *judged, err error) {
	w, err := e.openWorkspace(ctx, fs)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	st := e.steps()
	defer st.end()
	eng, err := w.engine(ctx, st.step)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, eng.Close()) }()
	st.step("reading the workspace")
	rev, err := from(eng)
	if err != nil {
		return nil, err
	}
	if q.Changed, err = eng.Changed(ctx, rev, staged); err != nil {
		return nil, err
	}
	j = &judged{repo: eng.Root()}
	if err := wire.Decode(q.Changed.Changeset, &j.changeset); err != nil {
		return nil, err
	}
	if j.Evaluation, err = eng.Evaluate(ctx, q); err != nil {
		return nil, err
	}
	st.end()
	for _, n := range append(q.Changed.Notes, j.Notes...) {
		e.ui.notef("note: %s", n)
	}
	if then != nil {
		err = then(eng)
	}
	return j, err
}

func allowed(yes bool) error {
	if yes {
		return nil
	}
	return exitStatus(exitRefused)
}

// verdictText shows a decision to people.
func (e *env) verdictText(j *judged) {
	v := j.Verdict
	fmt.Fprintf(e.stdout, "change     %s against %s\n", counted(len(j.changeset.Changes), "path"), clean(j.changeset.Baseline.Rev))
	e.checksText(j.Checks, &v)
	color := map[wire.Decision]string{wire.Allow: "32;1", wire.Deny: "31;1", wire.Indeterminate: "33;1"}[v.Decision]
	fmt.Fprintf(e.stdout, "decision   %s at %s\n", e.ui.paint(e.ui.outColor, color, string(v.Decision)), v.CallSite)
	const shown = 50
	for i, f := range v.Findings {
		if i == shown {
			fmt.Fprintf(e.stdout, "  … and %d findings more\n", len(v.Findings)-i)
			break
		}
		e.findingText(f)
	}
	for _, d := range v.Coverage.Degraded {
		fmt.Fprintf(e.stdout, "  %s\n", wrap(fmt.Sprintf("%s (%s): %s", clean(d.Source), d.Reason, clean(d.Detail)), "    ", e.ui.width))
	}
	fmt.Fprintf(e.stdout, "receipt    %s\n", v.Receipt.ReceiptID)
}

// findingText shows one finding, with what to type where it brings a fix.
func (e *env) findingText(f wire.Finding) {
	g := f.Diagnostic
	at := clean(g.Location.Path)
	if g.Location.Range != nil {
		at += fmt.Sprintf(":%d:%d", g.Location.Range.Start.Line+1, g.Location.Range.Start.Char+1)
	}
	fmt.Fprintf(e.stdout, "  %s\n", wrap(fmt.Sprintf("%s: %s %s (%s): %s", at, f.Disposition, clean(g.Code), g.Severity, clean(g.Message)), "    ", e.ui.width))
	if f.NextStep != "" {
		fmt.Fprintf(e.stdout, "    next     %s\n", wrap(clean(f.NextStep), "             ", e.ui.width))
	}
	if g.Fix != nil {
		fmt.Fprintf(e.stdout, "    fix      asp fix %s\n", short(g.Fingerprint))
	}
}

// counted is a number with its noun.
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// short is enough of a fingerprint to be typed.
func short(fingerprint string) string {
	h := strings.TrimPrefix(fingerprint, "sha256:")
	return clean(h[:min(len(h), 12)])
}
