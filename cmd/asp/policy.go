package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/aspengine/asp/apply"
	"github.com/aspengine/asp/checks/policy"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/spf13/pflag"
)

func policyCommand() *command {
	return &command{
		name: "policy", looks: true, short: "show what the active policy asks, and what a change to it would do", hasJSON: true,
		args: "show [--repo D] [--explain] [--candidate F] [--json]",
		long: `
The active policy is .asp/asp.json as committed at HEAD, of a repository that was
enrolled with "asp repo add", and the floor of config.json, which can only add.
What lies in the working tree has no authority before it is committed: it is shown
as a candidate, with what it would authorize or weaken.

examples:
  asp policy show
  asp policy show --explain --json         with the value that the digest is over
  asp policy show --candidate new.json     what new.json would change as .asp/asp.json`,
		flags: func(fs *pflag.FlagSet) {
			fs.Bool("explain", false, "say more: pins, where each demand comes from, the value of the digest")
			fs.String("candidate", "", "compare `FILE` instead of the working tree's .asp/asp.json; - for stdin")
		},
		run: runPolicy,
	}
}

// policyShown is the answer of `asp policy show --json`.
type policyShown struct {
	Repo     string             `json:"repo"`
	Enrolled bool               `json:"enrolled"`
	Policy   policy.Explanation `json:"policy"`
	// CandidateFile is the file that was compared, "" when there was none.
	CandidateFile string     `json:"candidateFile,omitempty"`
	Local         localShown `json:"localOverride"`
}

type localShown struct {
	Present         bool     `json:"present"`
	Path            string   `json:"path"`
	AuthorityEffect string   `json:"authorityEffect"` // none
	Forbidden       []string `json:"forbidden"`       // members that it must not hold
	Problem         string   `json:"problem,omitempty"`
}

func runPolicy(ctx context.Context, e *env, fs *pflag.FlagSet) error {
	if fs.NArg() != 1 || fs.Arg(0) != "show" {
		return usagef("say show; see `asp policy --help`")
	}
	eng, done, err := e.open(ctx, fs, nil)
	if err != nil {
		return err
	}
	defer done()
	explain, _ := fs.GetBool("explain")
	asJSON, _ := fs.GetBool("json")
	file, _ := fs.GetString("candidate")
	s, err := e.policyShown(ctx, eng, fs, file)
	if err != nil {
		return err
	}
	if asJSON {
		if !explain {
			s.Policy.Value = canon.Value{}
		}
		b, err := canon.Marshal(s)
		if err != nil {
			return err
		}
		fmt.Fprintf(e.stdout, "%s\n", b)
		return nil
	}
	e.policyText(s, explain)
	return nil
}

func (e *env) policyShown(ctx context.Context, eng *apply.Engine, fs *pflag.FlagSet, file string) (policyShown, error) {
	s := policyShown{Repo: strings.ToValidUTF8(eng.Root(), "\uFFFD"), Local: localShown{Path: policy.LocalFile, AuthorityEffect: "none", Forbidden: []string{}}}
	_, h, err := e.places(fs)
	if err != nil {
		return s, err
	}
	defer h.Close()
	_, enrolled, err := policy.Load(h)
	if err != nil {
		return s, classify(err)
	}
	_, s.Enrolled = enrolled[eng.Root()]
	var candidate []byte
	has := true
	if file != "" {
		if candidate, err = e.read(ctx, file, policy.MaxFile); err != nil {
			return s, err
		}
		s.CandidateFile = file
	} else if candidate, has, err = fromTree(eng.Root(), policy.SourceRepository); err != nil {
		return s, err
	} else if has {
		s.CandidateFile = filepath.Join(eng.Root(), policy.SourceRepository)
	} else {
		p := eng.Policy() // a committed one may be removed in the working tree
		has = p.Repository != nil || p.Activation == policy.Rejected
	}
	s.Policy = eng.Policy().Explain(candidate, has)
	b, there, err := fromTree(eng.Root(), policy.LocalFile)
	if err != nil {
		s.Local.Present, s.Local.Problem = true, err.Error()
	} else if there {
		s.Local.Present = true
		var bad []string
		bad, s.Local.Problem = policy.ReadLocal(b)
		s.Local.Forbidden = append(s.Local.Forbidden, bad...)
	}
	return s, nil
}

// fromTree reads a file below .asp of the working tree; links are not followed.
func fromTree(root, name string) ([]byte, bool, error) {
	d, err := vfs.OS{}.OpenRoot(root)
	if err != nil {
		return nil, false, err
	}
	defer d.Close()
	sub, err := d.OpenDir(filepath.Dir(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("read %s: %w", name, err)
	}
	defer sub.Close()
	b, err := home.ReadFile(sub, filepath.Base(name), policy.MaxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("read %s: %w", name, err)
	}
	return b, true, nil
}

func (e *env) policyText(s policyShown, explain bool) {
	p := s.Policy
	say := func(format string, a ...any) { fmt.Fprintf(e.stdout, format+"\n", a...) }
	say("policy    %s, %s", p.Source, p.Activation)
	if p.Problem != "" {
		say("          %s", clean(p.Problem))
	}
	same := "recomputed, the same"
	if !p.Recomputed {
		same = "NOT what its value gives"
	}
	say("digest    %s (%s)", p.Digest, same)
	if !s.Enrolled {
		say("enrolled  no: .asp/asp.json of this repository counts once you run `asp repo add`")
	} else {
		say("enrolled  yes")
	}
	for _, c := range p.CallSites {
		e.siteText(c, explain)
	}
	if explain {
		for _, a := range p.Edit {
			say("edit      %s", askText(a, true))
		}
	}
	if c := p.Candidate; c != nil {
		switch {
		case c.State == "same":
			say("candidate %s is the active policy", clean(s.CandidateFile))
		case c.State == "rejected" && p.Activation == policy.Rejected:
			say("candidate would be rejected as well: %s", clean(c.Problem))
		case c.State == "rejected":
			say("candidate would be rejected: %s", clean(c.Problem))
		default:
			say("candidate pending; once committed: policy %s", c.Digest)
		}
		for _, w := range c.Weakens {
			say("          %s", clean(w))
		}
		if c.Gate && p.Activation != policy.Rejected { // there a gate is indeterminate on every change
			say("          a gate answers indeterminate on the change that brings it (policy-self-authorization)")
		}
		for _, x := range c.CallSites {
			e.siteText(x, explain)
		}
	}
	if s.Local.Present {
		say("local     %s is there and has no effect on authority", s.Local.Path)
		for _, f := range s.Local.Forbidden {
			say("          it must not hold %s: take it out", clean(f))
		}
		if s.Local.Problem != "" {
			say("          %s", clean(s.Local.Problem))
		}
	}
}

func (e *env) siteText(c policy.SiteView, explain bool) {
	budget := ""
	if c.BudgetMs > 0 {
		budget = fmt.Sprintf(", budget %d ms", c.BudgetMs)
	}
	if len(c.Required)+len(c.Optional) == 0 && c.NoApply == "" {
		fmt.Fprintf(e.stdout, "%-11s asks for nothing%s\n", c.CallSite, budget)
		return
	}
	fmt.Fprintf(e.stdout, "%-11s %d required, %d optional%s\n", c.CallSite, len(c.Required), len(c.Optional), budget)
	switch {
	case c.Undecidable != "":
		fmt.Fprintf(e.stdout, "  indeterminate whatever runs: %s\n", clean(c.Undecidable))
	case c.NoApply != "":
		fmt.Fprintf(e.stdout, "  evaluated by what is left; every apply is refused: %s\n", clean(c.NoApply))
	}
	for _, a := range c.Required {
		fmt.Fprintf(e.stdout, "  required  %s\n", askText(a, explain))
	}
	for _, a := range c.Optional {
		fmt.Fprintf(e.stdout, "  optional  %s\n", askText(a, explain))
	}
}

func askText(a policy.AskView, explain bool) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s", clean(a.ID))
	switch a.Kind {
	case "undefined":
		out.WriteString(": nothing defines it")
	case "command":
		fmt.Fprintf(&out, ": runs %s", clean(strings.Join(a.Argv, " ")))
	default:
		fmt.Fprintf(&out, ": %s by %s", joined(a.Capabilities), clean(pinned(a.Providers)))
		if explain {
			fmt.Fprintf(&out, "; assurance %s", joined(a.Assurance))
		}
	}
	if explain {
		fmt.Fprintf(&out, " (from %s)", a.From)
		for _, pin := range a.Providers {
			fmt.Fprintf(&out, "\n            %s %s: identity %s, integrity %s, conformance %s", clean(pin.ID), clean(pin.Version), clean(pin.Identity), clean(pin.Integrity), clean(pin.Conformance))
		}
	}
	return out.String()
}

func pinned(pins []policy.PinView) string {
	var out []string
	for _, p := range pins {
		out = append(out, p.ID+" "+p.Version)
	}
	return strings.Join(out, " or ")
}

func joined[T ~string](list []T) string {
	var out []string
	for _, w := range list {
		out = append(out, string(w))
	}
	return strings.Join(out, ", ")
}
