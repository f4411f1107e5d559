package main

import (
	"context"

	"github.com/aspengine/asp/apply"
	"github.com/aspengine/asp/editplan/patch"
	"github.com/spf13/pflag"
)

func publishCommand() *command {
	return &command{
		name: "publish", short: "bring a staged snapshot into the workspace", hasJSON: true,
		args: "[--repo D] PROPOSAL-ID [flags]",
		long: `
Applies what ` + "`asp apply --stage`" + ` kept, after checking all of it again against the
workspace as it is now.

example:
  asp apply --plan plan.json --stage && asp publish PROPOSAL-ID`,
		flags: publishFlags,
		run: func(ctx context.Context, e *env, fs *pflag.FlagSet) error {
			return e.transact(ctx, fs, "proposal id", func(ctx context.Context, eng *apply.Engine, id string, r apply.Request) (*apply.Answer, error) {
				return eng.PublishStaged(ctx, id, r)
			})
		},
	}
}

func undoCommand() *command {
	return &command{
		name: "undo", short: "take an applied change back", hasJSON: true,
		args: "[--repo D] RECEIPT-ID [flags]",
		long: `
Applies the inverse of an applied receipt, as a transaction of its own. Later edits
of the same files stay where they do not overlap the change; where they do, it is
refused. So do permission bits that were set since. A renamed file goes back to its
name with what was done to it.

A receipt is taken back once. Asked again, undo answers with the first outcome and
writes nothing, with exit status 0. Where the change is on disk again by then, because
that undo was undone or the change was applied under another id, the answer says
"overtaken" and names the receipt to undo instead; with --json it says so on stderr.

examples:
  asp receipts list
  asp undo rcpt-20261129T120000000000Z-0123456789abcdef`,
		flags: publishFlags,
		run: func(ctx context.Context, e *env, fs *pflag.FlagSet) error {
			return e.transact(ctx, fs, "receipt id", func(ctx context.Context, eng *apply.Engine, id string, r apply.Request) (*apply.Answer, error) {
				return eng.Undo(ctx, id, r)
			})
		},
	}
}

// transact runs a transaction that is named by an id.
func (e *env) transact(ctx context.Context, fs *pflag.FlagSet, what string, do func(context.Context, *apply.Engine, string, apply.Request) (*apply.Answer, error)) error {
	id, err := oneArg(fs, what)
	if err != nil {
		return err
	}
	asJSON, _ := fs.GetBool("json")
	st := e.steps()
	eng, done, err := e.open(ctx, fs, st.step)
	if err != nil {
		return err
	}
	defer done()
	defer st.end()
	r, err := request(fs, eng)
	if err != nil {
		return err
	}
	if r.Publish == apply.Stage {
		r.Publish = apply.Journal // the configured default keeps snapshots; this brings one in
	}
	if !asJSON {
		r.Show = func(cs []patch.Change) {
			st.end()
			e.stdout.Write(patch.Stat(cs, patch.RenderOptions{Color: e.ui.outColor, Width: e.ui.width}))
		}
	}
	a, err := do(ctx, eng, id, r)
	st.end()
	return e.answer(ctx, eng, a, err, asJSON)
}
