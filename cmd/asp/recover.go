package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/aspengine/asp/apply"
	"github.com/aspengine/asp/apply/commit"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/snapshot"
	"github.com/spf13/pflag"
)

func recoverCommand() *command {
	return &command{
		name: "recover", short: "end what a crash left, and decide what it could not", hasJSON: true,
		args: "[--repo D] [--show PATH | --keep-mine [PATH…] | --keep-theirs [PATH…]]",
		long: `
Every command that writes recovers first; this does only that. An interrupted
transaction ends all-old or all-new, by its commit record. A path that holds bytes
which are neither its old nor its new ones is never touched: it needs attention.

  --keep-mine    what is on disk now stays
  --keep-theirs  the bytes from before the transaction come back; what is on disk
                 is kept as a blob first

examples:
  asp recover
  asp recover --show src/a.go > before.go
  asp recover --keep-mine src/a.go`,
		flags: func(fs *pflag.FlagSet) {
			fs.String("show", "", "print the kept bytes of this `PATH` from before the transaction, or a kept blob:sha256:…")
			fs.Bool("keep-mine", false, "keep what is on disk at the paths named, or at all that need attention")
			fs.Bool("keep-theirs", false, "put back the bytes from before the transaction")
		},
		run: runRecover,
	}
}

type recoveredJSON struct {
	ProposalID string   `json:"proposalId"`
	Outcome    string   `json:"outcome"`
	Paths      []string `json:"paths"`
}

func runRecover(ctx context.Context, e *env, fs *pflag.FlagSet) error {
	asJSON, _ := fs.GetBool("json")
	show, _ := fs.GetString("show")
	mine, _ := fs.GetBool("keep-mine")
	theirs, _ := fs.GetBool("keep-theirs")
	switch {
	case mine && theirs, show != "" && (mine || theirs):
		return usagef("--show, --keep-mine and --keep-theirs exclude each other")
	case fs.NArg() > 0 && !mine && !theirs:
		return usagef("paths go with --keep-mine or --keep-theirs")
	}
	st := e.steps()
	eng, done, err := e.open(ctx, fs, st.step)
	if err != nil {
		return err
	}
	defer done()
	defer st.end()
	if show != "" {
		open := func() (io.ReadCloser, error) { return eng.PreImage(ctx, show) }
		if strings.HasPrefix(show, snapshot.BlobPrefix) {
			open = func() (io.ReadCloser, error) { return eng.Blob(show) }
		}
		r, err := open()
		if err != nil {
			return err
		}
		defer r.Close()
		_, err = io.Copy(e.stdout, r)
		return err
	}
	rec, err := eng.Recover(ctx)
	if err != nil {
		return err
	}
	if mine || theirs {
		k := commit.KeepMine
		if theirs {
			k = commit.KeepTheirs
		}
		paths, kept, err := eng.Resolve(ctx, k, fs.Args())
		for _, d := range kept {
			e.ui.notef("kept what was on disk: asp recover --show %s", d.Blob())
		}
		if err != nil {
			return err
		}
		for _, p := range paths {
			e.ui.notef("decided: %s", p)
		}
		if rec, err = eng.Recover(ctx); err != nil {
			return err
		}
	}
	return e.printRecovery(rec, asJSON)
}

func (e *env) printRecovery(r apply.Recovery, asJSON bool) error {
	out := []recoveredJSON{}
	for _, x := range r.Recovered {
		if x.Outcome == commit.NeedsAttention {
			continue
		}
		word := "rolled-back"
		if x.Outcome == commit.Committed {
			word = "completed"
		}
		out = append(out, recoveredJSON{x.Tag, word, x.Paths})
	}
	at := map[string]int{}
	for _, p := range r.Attention {
		i, ok := at[p.TxID]
		if !ok {
			i = len(out)
			at[p.TxID] = i
			out = append(out, recoveredJSON{p.Tag, "needs-attention", nil})
		}
		out[i].Paths = append(out[i].Paths, p.Path)
	}
	var end error
	if len(r.Attention) > 0 {
		end = exitStatus(exitAttention)
	}
	if asJSON {
		b, err := canon.Marshal(struct {
			Recovered []recoveredJSON `json:"recovered"`
		}{out})
		if err != nil {
			return err
		}
		fmt.Fprintf(e.stdout, "%s\n", b)
		return end
	}
	if len(out) == 0 {
		fmt.Fprintln(e.stdout, "nothing to recover")
		return nil
	}
	for _, x := range out {
		fmt.Fprintf(e.stdout, "%s: %s\n", x.Outcome, clean(x.ProposalID))
		if x.Outcome == "needs-attention" {
			continue
		}
		for _, p := range firstN(x.Paths, 20) {
			fmt.Fprintf(e.stdout, "  %s\n", clean(p))
		}
	}
	for _, p := range r.Attention {
		fmt.Fprintf(e.stdout, "  %s: %s (now: %s)\n", clean(p.Path), clean(p.Why), clean(p.Now))
	}
	if len(r.Attention) > 0 {
		e.ui.notef("see what was there with `asp recover --show PATH`; decide with --keep-mine or --keep-theirs")
	}
	return end
}

func receiptsCommand() *command {
	return &command{
		name: "receipts", short: "list, show and verify receipts", hasJSON: true,
		args: "[--repo D] (list | show ID | verify [--replay ID])",
		long: `
Every attempt leaves a receipt, refusals and rollbacks too. Each names the digest of
its predecessor, and the head of the chain is kept apart, so that a change or a
removal is found. --replay derives one receipt again without running anything: the
after-state from kept content, the digests of changeset and policy, and the decision
from what it rested on; and says what no longer can be derived.

examples:
  asp receipts list
  asp receipts show rcpt-20261129T120000000000Z-0123456789abcdef
  asp receipts verify
  asp receipts verify --replay rcpt-20261129T120000000000Z-0123456789abcdef`,
		flags: func(fs *pflag.FlagSet) {
			fs.String("replay", "", "with verify: derive the claims of receipt `ID` again from what is kept")
		},
		run: runReceipts,
	}
}

func runReceipts(ctx context.Context, e *env, fs *pflag.FlagSet) error {
	asJSON, _ := fs.GetBool("json")
	verb := fs.Arg(0)
	switch {
	case verb == "show" && fs.NArg() == 2, (verb == "list" || verb == "verify") && fs.NArg() == 1:
	default:
		return usagef("say list, show ID or verify; see `asp receipts --help`")
	}
	eng, done, err := e.open(ctx, fs, nil)
	if err != nil {
		return err
	}
	defer done()
	switch verb {
	case "show":
		st, err := eng.Receipts().Get(fs.Arg(1))
		if err != nil {
			return err
		}
		fmt.Fprintf(e.stdout, "%s\n", st.Value().Bytes())
		return nil
	case "verify":
		if id, _ := fs.GetString("replay"); id != "" {
			return e.replayReceipt(ctx, eng, id, asJSON)
		}
		return e.verifyReceipts(ctx, eng, asJSON)
	}
	list, err := eng.Receipts().List(ctx)
	if err != nil {
		return err
	}
	if asJSON {
		b, err := canon.Marshal(list)
		if err != nil {
			return err
		}
		fmt.Fprintf(e.stdout, "%s\n", b)
		return nil
	}
	for _, s := range list {
		fmt.Fprintf(e.stdout, "%s  %s  %-11s %s\n", s.ReceiptID, s.IssuedAt, s.Outcome, clean(s.ProposalID))
	}
	return nil
}

func (e *env) replayReceipt(ctx context.Context, eng *apply.Engine, id string, asJSON bool) error {
	r, err := eng.Replay(ctx, id)
	if err != nil {
		return err
	}
	if asJSON {
		b, err := canon.Marshal(r)
		if err != nil {
			return err
		}
		fmt.Fprintf(e.stdout, "%s\n", b)
	} else {
		for _, x := range []struct {
			word string
			list []string
		}{{"same", r.Confirmed}, {"differs", r.Differs}, {"gone", r.Gone}} {
			for _, s := range x.list {
				fmt.Fprintf(e.stdout, "%-8s %s\n", x.word, clean(s))
			}
		}
	}
	if !r.OK {
		return exitStatus(exitRefused)
	}
	return nil
}

func (e *env) verifyReceipts(ctx context.Context, eng *apply.Engine, asJSON bool) error {
	rep, err := eng.Receipts().Verify(ctx)
	if err != nil {
		return err
	}
	if rep.Problems == nil {
		rep.Problems = []string{}
	}
	if asJSON {
		b, err := canon.Marshal(rep)
		if err != nil {
			return err
		}
		fmt.Fprintf(e.stdout, "%s\n", b)
	} else {
		for _, p := range rep.Problems {
			fmt.Fprintf(e.stdout, "problem: %s\n", clean(p))
		}
		fmt.Fprintf(e.stdout, "%d receipts checked\n", rep.Checked)
	}
	if !rep.OK {
		return exitStatus(exitRefused)
	}
	return nil
}
