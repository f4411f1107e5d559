package main

import (
	"context"
	"fmt"
	"io"
	"slices"
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
  --keep-theirs  the bytes from before the transaction come back

What gives way is kept as a blob first, either way, and named. Without a path all that
can be decided is, and the rest is named. A file that was only moved and then edited
has no other copy: with --keep-theirs it gets its old name back, with the edit.

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
			return absent(err, commit.ErrNoAttention, snapshot.ErrNoBlob)
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
		res, err := eng.Resolve(ctx, k, fs.Args())
		paths := res.Decided
		for _, b := range res.Kept {
			e.ui.notef("%s: what gave way is kept: asp recover --show %s", b.Path, b.Blob.Blob())
		}
		if err != nil {
			for _, p := range paths {
				e.ui.notef("decided all the same: %s", p)
			}
			return absent(err, commit.ErrNoAttention)
		}
		if asJSON { // its object has no member for them
			for _, p := range paths {
				e.ui.notef("decided: %s", p)
			}
		}
		if rec, err = eng.Recover(ctx); err != nil {
			return err
		}
		return e.printRecovery(rec, paths, k, asJSON)
	}
	return e.printRecovery(rec, nil, 0, asJSON)
}

// printRecovery says what was recovered, what was decided now, and what is left.
func (e *env) printRecovery(r apply.Recovery, decided []string, k commit.Keep, asJSON bool) error {
	e.noteLeft(r.Left)
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
	at := map[string][]int{} // of a transaction, which may carry out several proposals
	for _, p := range r.Attention {
		if at[p.TxID] == nil {
			for _, id := range apply.Proposals(p.Tag) {
				at[p.TxID] = append(at[p.TxID], len(out))
				out = append(out, recoveredJSON{id, "needs-attention", nil})
			}
		}
		for _, i := range at[p.TxID] {
			out[i].Paths = append(out[i].Paths, p.Path)
		}
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
	how := "what is on disk stays"
	if k == commit.KeepTheirs {
		how = "what was there before the transaction is back"
	}
	for _, p := range decided {
		fmt.Fprintf(e.stdout, "decided: %s: %s\n", clean(p), how)
	}
	if len(out) == 0 {
		if len(decided) == 0 {
			fmt.Fprintln(e.stdout, "nothing to recover")
		}
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
	if slices.ContainsFunc(r.Attention, func(p commit.AttentionPath) bool { return !p.Damaged }) {
		e.ui.notef("see what was there with `asp recover --show PATH`; decide with --keep-mine or --keep-theirs")
	}
	return end
}

// noteLeft tells of what an exchange left beside the workspace.
func (e *env) noteLeft(areas []string) {
	for _, a := range areas {
		e.ui.notef("note: %s: an exchange left files there that have no other name; compare what lies in tree/ and out/ with the workspace, take what is missing, and empty both: the next `asp recover` removes the rest", clean(a))
	}
}
