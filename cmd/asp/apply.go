package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/aspengine/asp/apply"
	"github.com/aspengine/asp/apply/commit"
	"github.com/aspengine/asp/checks"
	"github.com/aspengine/asp/editplan/patch"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/receipt"
	"github.com/aspengine/asp/seam/wire"
	"github.com/spf13/pflag"
)

func applyCommand() *command {
	return &command{
		name: "apply", short: "apply an edit plan, all or nothing", hasJSON: true,
		args: "[--repo D] (--plan F | --patch F | --workspace-edit F | PROPOSAL-ID) [flags]",
		long: `
Checks the plan against the workspace, runs the required command checks over the
after-state in a scratch tree, and publishes all of it or nothing. The receipt
says which guarantee was earned on this file system in this run.

A patch lands as with git apply, on matching context (see --fuzz). Symbolic links can be
deleted and renamed by one; making or editing them, and submodules, is refused,
because an edit plan cannot say it.

Command checks are configured in config.json of the state directory ($ASP_HOME,
default ~/.local/state/asp):
  {"checks": {"vet": {"argv": ["go", "vet", "./..."], "callSites": ["gate"]}}}
In every workspace of that directory a check runs by itself at the call-sites it lists
(all, if it lists none), and where --check names it. One that is neither
"required" nor named informs and blocks nothing.

A plan is applied once: its id asked again gets the first outcome, with exit status 0,
and nothing is written. Where that outcome no longer stands on disk, the answer says
"overtaken" and names what came after; with --json it says so on stderr.

examples:
  asp apply --patch fix.diff --dry-run
  git diff main..topic | asp apply --patch - --check vet
  asp apply --workspace-edit rename.json --require-guarantee workspace_transactional
  asp apply --plan plan.json --stage          keep it for ` + "`asp publish`" + `
  asp apply --patch fix.diff --index          and stage the touched paths in git's index`,
		flags: func(fs *pflag.FlagSet) {
			sourceFlags(fs, true)
			fs.Bool("dry-run", false, "do everything but the write (an interrupted transaction is recovered first); show the diff, the checks and the guarantee it would earn")
			fs.Bool("diff", false, "show the diff before applying")
			publishFlags(fs)
			fs.Bool("stage", false, "do not touch the workspace; keep the after-state for asp publish")
			fs.String("ref", "", "with --stage: put the after-state as a commit on this `REF`, by compare-and-swap")
			fs.String("message", "", "with --ref: the commit `message`")
			fs.Bool("include-dirty", false, "with --ref: the commit also holds what is uncommitted outside the plan")
		},
		run: runApply,
	}
}

// publishFlags are common to apply, publish and undo.
func publishFlags(fs *pflag.FlagSet) {
	fs.String("publish", "", "`MODE` journal (default) or exchange")
	fs.Bool("index", false, "also write git's index entries of the touched paths")
	fs.StringArray("check", nil, "a command check `NAME` that must pass (repeatable)")
	fs.String("require-guarantee", "", "refuse unless at least this `GUARANTEE` can be earned")
	fs.String("require-assurance", "", "refuse unless at least this `MODE` was established: advisory, gated, mediated-write, isolated")
	fs.String("call-site", "interactive", "interactive, gate or sweep")
	fs.String("intent", "user", "user, agent or harness")
	fs.Bool("merge", false, "allow a clean three-way merge where a touched file moved since the plan was made (default: merge of config.json)")
	fs.String("verify", "", "`content` reads every file of the workspace instead of trusting stat data")
}

// request reads the flags that publishFlags defined.
func request(fs *pflag.FlagSet, eng *apply.Engine) (apply.Request, error) {
	var r apply.Request
	str := func(n string) string { s, _ := fs.GetString(n); return s }
	boolean := func(n string) bool { b, _ := fs.GetBool(n); return b }
	mode := str("publish")
	if mode == "" {
		mode = eng.Config().Publish
	}
	switch mode {
	case "", "journal":
	case "exchange":
		r.Publish = apply.Exchange
	case "staged":
		if fs.Changed("publish") {
			return r, usagef("--publish staged: say --stage")
		}
		r.Publish = apply.Stage
	default:
		return r, usagef("--publish %.60q: there are journal and exchange (and --stage)", mode)
	}
	r.CallSite, r.Intent = wire.CallSite(str("call-site")), wire.Intent(str("intent"))
	if err := r.CallSite.Check(); err != nil {
		return r, usagef("--call-site: %v", err)
	}
	if err := r.Intent.Check(); err != nil {
		return r, usagef("--intent: %v", err)
	}
	if g := str("require-guarantee"); g != "" {
		var ok bool
		if r.RequireGuarantee, ok = commit.ParseGuarantee(g); !ok {
			return r, usagef("--require-guarantee %.60q: there are none, rollback_attempted, text_only_transactional, workspace_transactional, staged_snapshot", g)
		}
	}
	if m := str("require-assurance"); m != "" {
		var ok bool
		if r.RequireAssurance, ok = checks.ParseIsolation(m); !ok {
			return r, usagef("--require-assurance %.60q: there are advisory, gated, mediated-write, isolated", m)
		}
	}
	switch v := str("verify"); v {
	case "":
	case "content":
		r.VerifyContent = true
	default:
		return r, usagef("--verify %.60q: only content is known", v)
	}
	r.Checks, _ = fs.GetStringArray("check")
	r.Merge, r.Index = boolean("merge"), boolean("index")
	if !fs.Changed("merge") {
		r.Merge = eng.Config().Merge
	}
	return r, nil
}

func runApply(ctx context.Context, e *env, fs *pflag.FlagSet) error {
	asJSON, _ := fs.GetBool("json")
	st := e.steps()
	eng, done, err := e.open(ctx, fs, st.step)
	if err != nil {
		return err
	}
	defer done()
	defer st.end()
	load, err := e.source(ctx, fs, eng)
	if err != nil {
		return err
	}
	r, err := request(fs, eng)
	if err != nil {
		return err
	}
	r.Load = load
	if fs.NArg() > 0 {
		r.Origin = apply.Kept
	}
	r.DryRun, _ = fs.GetBool("dry-run")
	if stage, _ := fs.GetBool("stage"); stage {
		if fs.Changed("publish") {
			return usagef("--stage and --publish exclude each other")
		}
		r.Publish = apply.Stage
	}
	r.Ref, _ = fs.GetString("ref")
	r.Message, _ = fs.GetString("message")
	r.IncludeDirty, _ = fs.GetBool("include-dirty")
	if r.Ref == "" && fs.Changed("ref") {
		return usagef("--ref is empty; name one, like refs/heads/topic")
	}
	if r.Ref != "" && r.Publish != apply.Stage {
		return usagef("--ref needs --stage: the commit is made instead of touching the workspace")
	}
	for _, of := range []string{"message", "include-dirty"} {
		if r.Ref == "" && fs.Changed(of) {
			return usagef("--%s tells of a commit, and without --ref none is made", of)
		}
	}
	if r.Index && r.Publish == apply.Stage {
		return usagef("--index changes the workspace and its index together; it does not go with --stage")
	}
	diff, _ := fs.GetBool("diff")
	var stat chan []byte
	if !asJSON {
		r.Show = func(cs []patch.Change) {
			st.end()
			if diff || r.DryRun {
				e.stdout.Write(patch.Render(cs, patch.RenderOptions{Terminal: e.ui.outTTY, Color: e.ui.outColor}))
			}
			stat = make(chan []byte, 1)
			count := func() { stat <- patch.Stat(cs, patch.RenderOptions{Color: e.ui.outColor, Width: e.ui.width}) }
			if len(cs) < 64 {
				count()
			} else { // the lines of many files need not hold up the write
				go count()
			}
		}
	}
	a, err := eng.Apply(ctx, r)
	st.end()
	if stat != nil {
		e.stdout.Write(<-stat)
	}
	if err == nil && r.Publish == apply.Exchange && a.Outcome == receipt.Applied && !a.Repeated {
		e.ui.notef("note: the directory itself was exchanged; shells and editors that have it open are in the old one, enter it again (cd)")
	}
	return e.answer(ctx, eng, a, err, asJSON)
}

// steps shows what the engine is doing when it takes long.
type steps struct {
	ui   *ui
	stop func()
}

func (e *env) steps() *steps { return &steps{ui: e.ui} }

func (s *steps) step(what string) {
	s.end()
	s.stop = s.ui.progress(what)
}

func (s *steps) end() {
	if s.stop != nil {
		s.stop()
		s.stop = nil
	}
}

// tellRecovered says what an earlier crash had left and how it was ended.
func (e *env) tellRecovered(rec []commit.Recovered) {
	for _, r := range rec {
		what := map[commit.Outcome]string{commit.Committed: "completed", commit.NeedsAttention: "found, and needs attention (asp recover)"}[r.Outcome]
		if what == "" {
			what = "rolled back"
		}
		e.ui.notef("recovered: an interrupted transaction was %s: %s", what, strings.Join(firstN(r.Paths, 5), ", "))
	}
}

// answer prints what came of a transaction and picks the exit status.
func (e *env) answer(ctx context.Context, eng *apply.Engine, a *apply.Answer, err error, asJSON bool) error {
	if a != nil {
		e.tellRecovered(a.Recovered)
	}
	if err != nil {
		if errors.Is(err, apply.ErrAttention) {
			e.ui.errorf("%v", err)
			if a != nil {
				for _, p := range a.Attention {
					e.ui.notef("  %s: %s", p.Path, p.Why)
				}
			}
			if asJSON {
				e.printError(err)
			}
			return exitStatus(exitAttention)
		}
		return err
	}
	var late []string
	if a.Repeated {
		gone, err := eng.Since(ctx, a.Receipt)
		if err != nil { // the answer is the first one all the same
			e.ui.notef("note: whether that still stands could not be told: %v", err)
		}
		late = overtaken(gone)
	}
	if asJSON {
		for _, l := range late {
			e.ui.notef("note: overtaken since: %s", l)
		}
		e.notes(a) // on stderr; what is left for a person to see has no member of its own
		return e.answerJSON(a)
	}
	if a.DryRun != nil {
		return e.dryRunText(a)
	}
	return e.resultText(a, late)
}

// overtakenNext is what to do about it.
const overtakenNext = "to have the change again, make the plan again from the present files, under a new id"

// overtaken says by which receipts, and which of them to take back.
func overtaken(paths []apply.Overtaken) []string {
	by, order := map[string][]string{}, []string{}
	for _, p := range paths {
		if by[p.By] == nil {
			order = append(order, p.By)
		}
		by[p.By] = append(by[p.By], p.Path)
	}
	var out []string
	for _, id := range order {
		where := strings.Join(firstN(by[id], 3), ", ")
		if id == "" {
			out = append(out, where+": no kept receipt left what is there now; it was edited, or the receipt is gone")
		} else {
			out = append(out, where+": what is there now is of "+id+"; `asp undo "+id+"` takes that back")
		}
	}
	return out
}

func (e *env) answerJSON(a *apply.Answer) error {
	var v any
	refused := false
	switch {
	case a.DryRun != nil:
		v, refused = a.DryRun, !a.DryRun.WouldApply
	case a.Stored.Kind() == canon.Object:
		v, refused = a.Stored, a.Outcome != receipt.Applied && a.Outcome != receipt.Staged
	default:
		v, refused = a.Result, !a.Result.Applied
	}
	b, err := canon.Marshal(v)
	if err != nil {
		return err
	}
	fmt.Fprintf(e.stdout, "%s\n", b)
	if refused {
		return exitStatus(exitRefused)
	}
	return nil
}

func (e *env) checksText(rs []checks.Result, v *wire.Verdict) {
	for _, r := range rs {
		how := r.Method.String() + ", " + r.Isolation.String()
		if r.Status == checks.Cancelled || r.Runs == 0 {
			how = "not run"
		}
		switch {
		case r.Provider != nil && how != "not run":
			how = "by callbacks, " + r.Isolation.String()
			if r.Cache == "verdict" {
				how = "remembered, " + r.Isolation.String()
			}
		case r.Provider == nil && v != nil && !slices.Contains(v.Coverage.Required, r.Name):
			how += ", optional"
		}
		word := e.ui.paint(e.ui.outColor, "32", r.Status.String())
		if r.Status != checks.Passed {
			word = e.ui.paint(e.ui.outColor, "31", r.Status.String())
		}
		fmt.Fprintf(e.stdout, "check      %s: %s in %.1fs over the after-state (%s)\n", clean(r.Name), word, r.Elapsed.Seconds(), how)
		if r.Status != checks.Passed {
			if r.Detail != "" {
				fmt.Fprintf(e.stdout, "           %s\n", cleanLines(r.Detail, "           | "))
			}
			if out := strings.TrimSpace(string(r.Output)); out != "" {
				fmt.Fprintf(e.stdout, "           | %s\n", cleanLines(out, "           | "))
			}
			const show = 20
			for i, g := range r.Diagnostics {
				if i == show {
					fmt.Fprintf(e.stdout, "           | and %d more\n", len(r.Diagnostics)-show)
					break
				}
				at := clean(g.Location.Path)
				if g.Location.Range != nil {
					at += fmt.Sprintf(":%d", g.Location.Range.Start.Line+1)
				}
				fmt.Fprintf(e.stdout, "           | %s: %s: %s\n", at, clean(g.Code), clean(g.Message))
			}
		}
	}
}

func (e *env) dryRunText(a *apply.Answer) error {
	d := a.DryRun
	e.checksText(a.Checks, d.Decision)
	if !d.WouldApply {
		e.refusalText(a)
		return exitStatus(exitRefused)
	}
	fmt.Fprintf(e.stdout, "dry run    nothing was written; an apply now would earn %s\n           %s\n", d.Assurance.TransactionGuarantee, wrap(clean(d.Assurance.Detail), "           ", e.ui.width))
	e.notes(a)
	return nil
}

func (e *env) resultText(a *apply.Answer, late []string) error {
	r := a.Result
	e.checksText(a.Checks, r.Decision)
	if !r.Applied {
		e.refusalText(a)
		return exitStatus(exitRefused)
	}
	word := "applied"
	if a.Outcome == receipt.Staged {
		word = "staged"
	}
	switch {
	case len(late) > 0:
		fmt.Fprintf(e.stdout, "%-10s %s was %s before and no longer stands; nothing was written now\n", "overtaken", clean(r.ProposalID), word)
		for _, l := range late {
			fmt.Fprintf(e.stdout, "           %s\n", wrap(clean(l), "           ", e.ui.width))
		}
		fmt.Fprintf(e.stdout, "           %s\n", wrap(overtakenNext, "           ", e.ui.width))
	case a.Repeated:
		fmt.Fprintf(e.stdout, "%-10s %s was %s before; nothing was written now\n", "unchanged", clean(r.ProposalID), word)
	default:
		fmt.Fprintf(e.stdout, "%s %s\n", e.ui.paint(e.ui.outColor, "32;1", fmt.Sprintf("%-10s", word)), clean(r.ProposalID))
	}
	fmt.Fprintf(e.stdout, "guarantee  %s\n           %s\n", r.Assurance.TransactionGuarantee, wrap(clean(r.Assurance.Detail), "           ", e.ui.width))
	fmt.Fprintf(e.stdout, "receipt    %s\n", a.Receipt)
	if a.Outcome == receipt.Staged {
		fmt.Fprintf(e.stdout, "next       asp publish %s\n", clean(r.ProposalID))
	}
	e.notes(a)
	return nil
}

func (e *env) refusalText(a *apply.Answer) {
	word := "refused"
	if a.Outcome == receipt.RolledBack {
		word = "rolled back"
	}
	fmt.Fprintf(e.stdout, "%s nothing is changed\n", e.ui.paint(e.ui.outColor, "31;1", fmt.Sprintf("%-10s", word)))
	e.refusals(e.stdout, a.Refusals)
	if a.Receipt != "" {
		fmt.Fprintf(e.stdout, "receipt    %s\n", a.Receipt)
	}
	e.notes(a)
}

// maxRefusals is how many reasons people are shown; --json has them all.
const maxRefusals = 50

// refusals prints reasons for people.
func (e *env) refusals(w io.Writer, items refusal.List) {
	for i, it := range items {
		if i == maxRefusals {
			fmt.Fprintf(w, "  … and %d more\n", len(items)-i)
			return
		}
		where := ""
		if it.Path != "" {
			where = fmt.Sprintf("%q ", it.Path)
		}
		fmt.Fprintf(w, "  %s\n", wrap(fmt.Sprintf("%s: %s%s", it.Code, where, clean(reasonText(string(it.Code), it.Detail))), "    ", e.ui.width))
	}
}

// reasonText is a reason without the output of a check, which has a place of its own.
func reasonText(code, detail string) string {
	if code == string(refusal.CheckDenied) || code == string(refusal.CheckIndeterminate) {
		detail, _, _ = strings.Cut(detail, "\n")
	}
	return detail
}

func (e *env) notes(a *apply.Answer) {
	for _, n := range a.Notes {
		e.ui.notef("note: %s", n)
	}
}

func (e *env) printError(err error) {
	if b, merr := canon.Marshal(wire.ErrorResult{Error: wireError(err)}); merr == nil {
		fmt.Fprintf(e.stdout, "%s\n", b)
	}
}

func firstN(s []string, n int) []string {
	if len(s) <= n {
		return s
	}
	return append(append([]string(nil), s[:n]...), fmt.Sprintf("and %d more", len(s)-n))
}
