package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/conformance"
	"github.com/spf13/pflag"
)

func conformanceCommand() *command {
	return &command{
		name: "conformance", noPlace: true, args: "[--host CMD] [--provider CMD] [--profile P,…] [--report F] [flags]", hasJSON: true,
		short: "hold a host or a provider against the requirements of the protocol",
		long: `
Tries every requirement id from outside, in throw-away repositories: this binary
by default, or the host or provider whose command line is given (words are
separated by spaces; no shell is involved). A host has to know the subcommands
"host serve", "server", "repo" and "receipts". Needs git. What was not run counts
as not passed; exit status 0 only if everything passed.

examples:
  asp conformance                             this host, its bundled providers
  asp conformance --profile server --provider "/opt/p/check --stdio"
  asp conformance --only HOSTILE-PROVIDER-CRASH --json`,
		flags: func(fs *pflag.FlagSet) {
			fs.String("host", "", "the `CMD` of the host to try, in place of this binary")
			fs.String("provider", "", "the `CMD` of the provider that the profile server is about")
			fs.StringSlice("profile", nil, "profiles to run: "+strings.Join(conformance.Profiles(), ", ")+" (all)")
			fs.StringSlice("only", nil, "requirement `ID`s to run (all of the profiles)")
			fs.String("report", "", "write the report to this `F`ile")
			fs.Int64("seed", 1, "chooses among what could be tried")
			fs.Int("parallel", 2, "requirements tried at once")
		},
		run: runConformance,
	}
}

func runConformance(ctx context.Context, e *env, fs *pflag.FlagSet) error {
	if fs.NArg() > 0 {
		return usagef("conformance takes no arguments, got %q", fs.Arg(0))
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	o := conformance.Options{Host: []string{self}, Self: []string{self}}
	if h, _ := fs.GetString("host"); h != "" {
		o.Host = strings.Fields(h)
	}
	p, _ := fs.GetString("provider")
	o.Provider = strings.Fields(p)
	o.Profiles, _ = fs.GetStringSlice("profile")
	o.Only, _ = fs.GetStringSlice("only")
	o.Seed, _ = fs.GetInt64("seed")
	o.Parallel, _ = fs.GetInt("parallel")
	for _, p := range o.Profiles {
		if !slices.Contains(conformance.Profiles(), p) {
			return usagef("no profile %q; there are %s", p, strings.Join(conformance.Profiles(), ", "))
		}
	}
	for _, id := range o.Only {
		if !slices.Contains(conformance.IDs(o.Profiles...), id) {
			return usagef("no requirement %q in these profiles", id)
		}
	}
	asJSON, _ := fs.GetBool("json")
	o.Progress = func(r conformance.Result) {
		if asJSON {
			return
		}
		fmt.Fprintf(e.stdout, "%-7s %s\n", r.Result, r.ID)
		for _, p := range r.Problems {
			fmt.Fprintf(e.stdout, "        %s\n", clean(p))
		}
	}
	report, err := conformance.Run(ctx, o)
	if err != nil {
		return err
	}
	return e.conformanceAnswer(report, fs, asJSON)
}

func (e *env) conformanceAnswer(report *conformance.Report, fs *pflag.FlagSet, asJSON bool) error {
	v, err := canon.From(*report)
	if err != nil {
		return err
	}
	if name, _ := fs.GetString("report"); name != "" {
		if !filepath.IsAbs(name) {
			name = filepath.Join(e.dir, name)
		}
		if err := os.WriteFile(name, append(v.AppendIndented(nil), '\n'), 0o644); err != nil {
			return err
		}
	}
	s := report.Summary
	if asJSON {
		fmt.Fprintf(e.stdout, "%s\n", v.Bytes())
	} else {
		var tried []string
		if slices.ContainsFunc(report.Requirements, func(r conformance.Result) bool { return r.Profile != "server" }) {
			tried = append(tried, "host "+report.Host)
		}
		if slices.ContainsFunc(report.Requirements, func(r conformance.Result) bool { return r.Profile == "server" }) {
			who := report.Provider + " providers"
			if cmd, _ := fs.GetString("provider"); cmd != "" {
				who = "provider " + cmd
			}
			tried = append(tried, who)
		}
		fmt.Fprintf(e.stdout, "%d of %d passed, %d failed, %d skipped (%s, seed %d)\n", s.Passed, s.Total, s.Failed, s.Skipped, clean(strings.Join(tried, ", ")), report.Seed)
	}
	if s.Result != conformance.Pass {
		return exitStatus(exitRefused)
	}
	return nil
}

// seeded runs the hidden subcommands of the suite; ok is false for any other
// word.
func seeded(args []string) (status int, ok bool) {
	if len(args) == 0 {
		return 0, false
	}
	switch args[0] {
	case conformance.ProviderWord:
		return conformance.Provide(args[1:], os.Stdin, os.Stdout), true
	case conformance.DenyWord:
		fmt.Fprintln(os.Stderr, conformance.Deny(args[1:], os.Environ()))
		return exitError, true
	}
	return 0, false
}
