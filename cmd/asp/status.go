package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"

	"github.com/aspengine/asp/apply"
	"github.com/aspengine/asp/apply/commit"
	"github.com/aspengine/asp/checks/policy"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/sandbox"
	"github.com/aspengine/asp/snapshot"
	"github.com/spf13/pflag"
)

func statusCommand() *command {
	return &command{
		name: "status", looks: true, short: "show the workspace's baseline, policy and open transactions", hasJSON: true,
		args: "[--repo D] [--json]",
		long: `
Stamps the workspace and shows what a plan made now would be bound to. With --json
it prints the result of host/status. A transaction that runs now, or that was
interrupted and is ended by whoever writes next, is told of with exit status 0; paths
that a person has to decide give 4.

example:
  asp status --json | python3 -c 'import json,sys; print(json.load(sys.stdin)["workspace"]["baseline"])'`,
		run: runStatus,
	}
}

func runStatus(ctx context.Context, e *env, fs *pflag.FlagSet) error {
	if err := noArgs(fs); err != nil {
		return err
	}
	asJSON, _ := fs.GetBool("json")
	st := e.steps()
	eng, done, err := e.open(ctx, fs, st.step)
	if err != nil {
		return err
	}
	defer done()
	st.step("reading the workspace")
	s, err := eng.Status(ctx, apply.SurfaceRequest{})
	st.end()
	if err != nil {
		return err
	}
	var end error
	if len(s.Attention) > 0 {
		end = exitStatus(exitAttention)
	}
	e.noteLeft(s.Left)
	if asJSON {
		b, err := canon.Marshal(s.Result)
		if err != nil {
			return err
		}
		fmt.Fprintf(e.stdout, "%s\n", b)
		return end
	}
	w := s.Result.Workspace
	kind := "plain directory"
	if eng.Git() {
		kind = "git work tree"
	}
	fmt.Fprintf(e.stdout, "workspace  %s (%s, %d names)\n", clean(w.Root), kind, s.Stamp.Files)
	fmt.Fprintf(e.stdout, "baseline   %s\n", clean(w.Baseline.Rev))
	if w.Baseline.Dirty != "" {
		fmt.Fprintf(e.stdout, "           dirty %s\n", w.Baseline.Dirty)
		if eng.Git() {
			for _, l := range firstN(overlayLines(s.Stamp), 20) {
				fmt.Fprintf(e.stdout, "             %s\n", l)
			}
		}
	}
	fmt.Fprintf(e.stdout, "policy     %s (%s)\n", s.Result.Policy.Source, s.Result.Policy.Activation)
	gate := "available"
	if !s.Result.Gates.Gate.Available {
		gate = "not available"
		for _, d := range s.Result.Gates.Gate.Degraded {
			gate += ": " + clean(d.Detail)
			break
		}
	}
	fmt.Fprintf(e.stdout, "gate       %s\n", gate)
	if s.Result.Policy.Activation == policy.Rejected {
		fmt.Fprintf(e.stdout, "apply      refused at every call-site, until the policy at HEAD is taken back or put right\n")
	}
	for i, l := range serverLines(s.Result.Servers) {
		head := "providers "
		if i > 0 {
			head = "          "
		}
		fmt.Fprintf(e.stdout, "%s %s\n", head, l)
	}
	if open := s.OpenWords(); open != "" {
		fmt.Fprintf(e.stdout, "open       %s\n", wrap(open, "           ", e.ui.width))
	} else if w.StaleReason != "" {
		fmt.Fprintf(e.stdout, "%s  %s\n", e.ui.paint(e.ui.outColor, "33", "attention"), clean(w.StaleReason))
	}
	for _, p := range s.Attention {
		fmt.Fprintf(e.stdout, "             %s: %s\n", clean(p.Path), clean(p.Why))
	}
	var staged []string
	for _, p := range s.Staged {
		staged = append(staged, clean(p.ProposalID)+" (receipt "+clean(p.Receipt)+"), for asp publish")
	}
	for i, l := range firstN(staged, 20) {
		head := "staged    "
		if i > 0 {
			head = "          "
		}
		fmt.Fprintf(e.stdout, "%s %s\n", head, l)
	}
	for _, n := range s.Stamp.Notes {
		e.ui.notef("note: %s", n)
	}
	return end
}

func overlayLines(s *snapshot.Stamp) []string {
	var out []string
	for _, o := range s.Overlay {
		word := "differs "
		switch {
		case o.Gone:
			word = "deleted "
		case o.Note != "":
			word = o.Note + " "
		}
		out = append(out, word+clean(o.Path))
	}
	return out
}

func doctorCommand() *command {
	return &command{
		name: "doctor", looks: true, short: "say what this machine can prove, and what to repair", hasJSON: true,
		args: "[--repo D] [--json]",
		long: `
Looks at the file systems of the workspace and of the state directory, at what the
sandbox can do, at open transactions and at the receipts, and says what keeps a
stronger guarantee or mode from being earned. Exit status 4 where a person has to
decide, as of asp status; 1 with other problems; an open transaction is none.

example:
  asp doctor --repo .`,
		run: runDoctor,
	}
}

// doctorJSON is what asp doctor --json prints.
type doctorJSON struct {
	Version   string       `json:"version"`
	Platform  string       `json:"platform"`
	Workspace string       `json:"workspace"`
	Git       bool         `json:"git"`
	Guarantee doctorAnswer `json:"guarantee"`
	Staging   doctorAnswer `json:"staging"` // what --stage would earn
	Mode      doctorAnswer `json:"mode"`
	State     doctorAnswer `json:"state"`
	Sandbox   []doctorRow  `json:"sandbox"`
	Network   []reachJSON  `json:"network,omitempty"` // of providers that may reach some of it
	Open      string       `json:"open,omitempty"`    // what runs now or was interrupted
	Problems  []string     `json:"problems"`
	Attention []string     `json:"attention"`
	Staged    []string     `json:"staged"` // ids of proposals that wait for asp publish
}

type doctorAnswer struct {
	Can string `json:"can"`
	Why string `json:"why"`
}

type doctorRow struct {
	Name   string `json:"name"`
	Answer string `json:"answer"`
	Detail string `json:"detail"`
	Remedy string `json:"remedy,omitempty"` // how to get it on this machine
}

func runDoctor(ctx context.Context, e *env, fs *pflag.FlagSet) error {
	if err := noArgs(fs); err != nil {
		return err
	}
	asJSON, _ := fs.GetBool("json")
	eng, done, err := e.open(ctx, fs, nil)
	if err != nil {
		return err
	}
	defer done()
	d, caps, err := examine(ctx, eng)
	if err != nil {
		return err
	}
	reaches, problems, err := e.reaches(ctx, eng.Config())
	if err != nil {
		return err
	}
	d.Network, d.Problems = reaches, append(d.Problems, problems...)
	if err := e.tryHome(); err != nil {
		d.Problems = append(d.Problems, e.advise(err).Error())
	}
	var end error
	switch {
	case len(d.Attention) > 0:
		end = exitStatus(exitAttention)
	case len(d.Problems) > 0:
		end = exitStatus(exitRefused)
	}
	if asJSON {
		b, err := canon.Marshal(d)
		if err != nil {
			return err
		}
		fmt.Fprintf(e.stdout, "%s\n", b)
		return end
	}
	fmt.Fprintf(e.stdout, "asp %s on %s\nworkspace  %s\n", d.Version, d.Platform, clean(d.Workspace))
	fmt.Fprintf(e.stdout, "guarantee  up to %s\n           %s\n", d.Guarantee.Can, wrap(clean(d.Guarantee.Why), "           ", e.ui.width))
	fmt.Fprintf(e.stdout, "--stage    up to %s\n           %s\n", d.Staging.Can, wrap(clean(d.Staging.Why), "           ", e.ui.width))
	fmt.Fprintf(e.stdout, "checks     up to %s\n           %s\n", d.Mode.Can, wrap(clean(d.Mode.Why), "           ", e.ui.width))
	here := thisMachine()
	for _, r := range caps.Rows() {
		mark := e.ui.paint(e.ui.outColor, "32", "yes")
		if r.Cap.Answer != sandbox.Yes {
			mark = e.ui.paint(e.ui.outColor, "33", r.Cap.Answer.String())
		}
		fmt.Fprintf(e.stdout, "           %-28s %s %s\n", r.Name, mark, clean(r.Cap.Detail))
		if how := here.remedy(r.Name, r.Cap); how != "" {
			fmt.Fprintf(e.stdout, "             %s\n", wrap(clean(how), "             ", e.ui.width))
		}
	}
	for _, r := range d.Network {
		fmt.Fprintf(e.stdout, "network    provider %s: %s\n", clean(r.Provider), networkSaid(r.Granted))
	}
	fmt.Fprintf(e.stdout, "state      %s: %s\n", d.State.Can, clean(d.State.Why))
	if d.Open != "" {
		fmt.Fprintf(e.stdout, "open       %s\n", wrap(d.Open, "           ", e.ui.width))
	}
	if n := len(d.Staged); n > 0 {
		fmt.Fprintf(e.stdout, "staged     %d: `asp status` names them\n", n)
	}
	for _, p := range d.Problems {
		fmt.Fprintf(e.stdout, "%s    %s\n", e.ui.paint(e.ui.outColor, "31", "problem"), clean(p))
	}
	for _, p := range d.Attention {
		fmt.Fprintf(e.stdout, "%s  %s\n", e.ui.paint(e.ui.outColor, "31", "attention"), clean(p))
	}
	if end == nil {
		fmt.Fprintln(e.stdout, "nothing to repair")
	}
	return end
}

// tryHome tells why the state directory cannot be used, beside what a look at it tells.
func (e *env) tryHome() error {
	h, err := e.openHome()
	if err != nil {
		return err
	}
	return errors.Join(h.Probe(), h.Close())
}

func examine(ctx context.Context, eng *apply.Engine) (doctorJSON, sandbox.Caps, error) {
	d := doctorJSON{Version: Version, Platform: runtime.GOOS + "/" + runtime.GOARCH, Workspace: eng.Root(), Git: eng.Git(), Problems: []string{}, Attention: []string{}, Staged: []string{}}
	s, err := eng.Status(ctx, apply.SurfaceRequest{})
	if err != nil {
		return d, sandbox.Caps{}, err
	}
	ws, state, err := eng.Mounts()
	if err != nil {
		return d, sandbox.Caps{}, err
	}
	d.Guarantee = doctorAnswer{commit.WorkspaceTransactional.String(), ws.Words()}
	if !ws.Ordered || !ws.Barriers {
		d.Guarantee = doctorAnswer{commit.RollbackAttempted.String(), ws.Words()}
		if thisMachine().linux() {
			d.Guarantee.Why += "; put the workspace on ext4 with a journal, xfs or btrfs to earn more"
		}
	}
	staged, why := eng.StagedForecast()
	d.Staging = doctorAnswer{staged.String(), why}
	for _, p := range s.Staged {
		d.Staged = append(d.Staged, p.ProposalID)
	}
	d.State = doctorAnswer{"durable", state.Words()}
	if !state.Barriers {
		d.State.Can = "not durable"
	}
	caps, err := eng.Caps(ctx)
	if err != nil {
		return d, caps, err
	}
	d.Mode = checkMode(ctx, eng, caps)
	here := thisMachine()
	for _, r := range caps.Rows() {
		d.Sandbox = append(d.Sandbox, doctorRow{r.Name, r.Cap.Answer.String(), r.Cap.Detail, here.remedy(r.Name, r.Cap)})
	}
	rep, err := eng.Receipts().Verify(ctx)
	if err != nil {
		return d, caps, err
	}
	d.Problems = append(d.Problems, rep.Problems...)
	if err := eng.ConfigProblem(); err != nil {
		d.Problems = append(d.Problems, err.Error())
	}
	if p := eng.Policy().Problem; p != "" {
		d.Problems = append(d.Problems, p)
	}
	d.Problems = append(d.Problems, serverProblems(s.Result.Servers)...)
	d.Open = s.OpenWords()
	for _, a := range s.Attention {
		d.Attention = append(d.Attention, a.Path+": "+a.Why)
	}
	return d, caps, nil
}

// checkMode tells the mode that checks can earn here, by a launch with what is configured,
// and what is missing or to be done for more.
func checkMode(ctx context.Context, eng *apply.Engine, caps sandbox.Caps) doctorAnswer {
	if m := thisMachine(); !m.linux() {
		return doctorAnswer{"advisory", m.enforcesNothing()}
	}
	if !caps.Namespaces() && !caps.CanConfine() {
		return doctorAnswer{"advisory", "checks would run with your own rights: " + caps.Missing()}
	}
	how := "checks run over an overlay in namespaces of their own"
	switch {
	case !caps.Namespaces():
		how = "checks run over a copy, held by Landlock and a system call filter alone: they get no sockets, cannot change modes and times of files, and may read what an isolated check sees and this machine's /proc, with the command lines of processes and the names of sockets"
	case !caps.CanOverlay():
		how = "checks run over a copy in namespaces of their own: " + caps.Missing()
	}
	b, err := eng.Isolation(ctx)
	switch {
	case err != nil:
		return doctorAnswer{"advisory", how + "; what that keeps from them could not be tried: " + err.Error()}
	case b.Level == sandbox.Isolated:
		return doctorAnswer{"isolated", how + "; each run proves by a probe that writes do not reach the workspace; with sandbox.require isolated in config.json, or --require-assurance isolated, they see nothing else of this machine either: a launch just now proved it by " + strconv.Itoa(len(b.Attempts)) + " attempts"}
	case !caps.CanIsolate():
		how += "; isolated needs more: " + caps.MissingIsolation()
	}
	return doctorAnswer{b.Level.String(), how + "; a launch just now: " + b.Evidence}
}
