package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/aspengine/asp/apply"
	"github.com/aspengine/asp/seam/wire"
	"github.com/spf13/pflag"
)

func planCommand() *command {
	return &command{
		name: "plan", short: "compile a foreign edit into a plan bundle", hasJSON: true,
		args: "[--repo D] (--patch F | --workspace-edit F) [-o F] [flags]",
		long: `
Turns a diff or an LSP WorkspaceEdit into an EditPlan bound to the workspace as it
is now: every touched file is named with the digest of its present bytes. The plan
is printed or written to a file, and kept so that ` + "`asp apply PROPOSAL-ID`" + ` finds it.
An interrupted transaction is ended first, all old or all new, and told of.

examples:
  asp plan --patch fix.diff -o plan.json && asp apply --plan plan.json
  asp plan --workspace-edit rename.json | asp apply --plan -`,
		flags: func(fs *pflag.FlagSet) {
			sourceFlags(fs, false)
			fs.StringP("output", "o", "", "write the bundle to this `F`ile instead of stdout")
		},
		run: runPlan,
	}
}

func runPlan(ctx context.Context, e *env, fs *pflag.FlagSet) error {
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
	file, items, err := eng.Plan(ctx, load)
	st.end()
	if err != nil {
		return err
	}
	if len(items) > 0 {
		asJSON, _ := fs.GetBool("json")
		if asJSON {
			e.printError(wire.NewError(wire.CodeInvalidInput, wire.FailInput, items.First().String(), ""))
		}
		e.ui.errorf("refused: no plan was made")
		e.refusals(e.stderr, items)
		return exitStatus(exitRefused)
	}
	b, err := file.Encode()
	if err != nil {
		return err
	}
	id, _ := file.Proposal.Get("proposalId")
	var large *apply.TooLargeError
	if err := eng.KeepProposal(id.Str(), b); errors.As(err, &large) {
		e.ui.notef("note: not kept under its id: %v", err)
	} else if err != nil {
		return err
	}
	out, _ := fs.GetString("output")
	if out == "" || out == "-" {
		_, err = fmt.Fprintf(e.stdout, "%s\n", b)
		return err
	}
	if !filepath.IsAbs(out) {
		out = filepath.Join(e.dir, out)
	}
	if err := os.WriteFile(out, append(b, '\n'), 0o644); err != nil {
		return fmt.Errorf("write plan: %w", err)
	}
	e.ui.notef("plan %s written to %s", id.Str(), out)
	return nil
}
