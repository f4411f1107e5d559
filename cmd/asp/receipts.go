package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/aspengine/asp/apply"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/receipt"
	"github.com/spf13/pflag"
)

func receiptsCommand() *command {
	return &command{
		name: "receipts", looks: true, short: "list, show and verify receipts", hasJSON: true,
		args: "[--repo D] (list | show ID | verify [--replay ID])",
		long: `
Every attempt leaves a receipt, refusals and rollbacks too. Each names the digest of
its predecessor, and the head of the chain is kept apart, so that a change or a
removal is found. --replay derives one receipt again without running anything: the
after-state from kept content, the digests of changeset and policy, and the decision
from what it rested on; and says what cannot be derived, any more or at all.

list says of each what became of the request and what was decided ("-" where nothing
was asked to decide), and names the proposal, or else the kind.

examples:
  asp receipts list
  asp receipts show rcpt-20261129T120000000000Z-0123456789abcdef
  asp receipts show rcpt-20261129T120000000000Z-0123456789abcdef --json     all of it, as stored
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
		if errors.Is(err, receipt.ErrNoReceipt) {
			return &absentError{fmt.Errorf("%w: it was never stored, as that of a dry run is not, or gave way to newer ones", err)}
		}
		if err != nil {
			return err
		}
		if asJSON {
			fmt.Fprintf(e.stdout, "%s\n", st.Value().Bytes())
			return nil
		}
		return e.receiptText(st)
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
		// What an evaluation or the checks of an apply came to; nothing where nobody was
		// asked. An apply is known by its proposal, anything else by its kind.
		decision, what := "-", s.Kind
		if s.Decision != "" {
			decision = string(s.Decision)
		}
		if s.ProposalID != "" {
			what = s.ProposalID
		}
		fmt.Fprintf(e.stdout, "%s  %s  %-11s %-13s %s\n", s.ReceiptID, s.IssuedAt, s.Outcome, clean(decision), clean(what))
	}
	return nil
}

func (e *env) replayReceipt(ctx context.Context, eng *apply.Engine, id string, asJSON bool) error {
	r, err := eng.Replay(ctx, id)
	if err != nil {
		return absent(err, receipt.ErrNoReceipt)
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
		}{{"same", r.Confirmed}, {"differs", r.Differs}, {"unproven", r.Gone}} {
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

// receiptText shows the parts of a receipt that people ask for. What stands beside it
// has another form for each kind, so members are read where they are there.
func (e *env) receiptText(st *receipt.Stored) error {
	r := st.Receipt
	say := func(head, format string, a ...any) {
		fmt.Fprintf(e.stdout, "%-10s %s\n", head, wrap(clean(fmt.Sprintf(format, a...)), "           ", e.ui.width))
	}
	text := func(v canon.Value, key string) string { m, _ := v.Get(key); return m.Str() }
	say("receipt", "%s (%s)", r.ReceiptID, r.Kind)
	say("outcome", "%s", st.Outcome)
	say("issued", "%s, after %d ms", r.IssuedAt, r.Timing.ElapsedMs)
	if r.CallSite != "" {
		say("call-site", "%s", r.CallSite)
	}
	if r.ProposalID != "" {
		say("proposal", "%s, plan of %s", r.ProposalID, st.Provider())
	}
	if id := text(st.Evidence, "undoes"); id != "" {
		say("undoes", "%s", id)
	}
	say("baseline", "%s", strings.TrimSuffix(r.Baseline.Rev+" dirty "+r.Baseline.Dirty, " dirty "))
	say("policy", "%s", r.PolicyDigest)
	say("guarantee", "%s", r.Assurance.TransactionGuarantee)
	say("assurance", "%s", r.Assurance.Mode)
	if r.Assurance.Detail != "" {
		say("", "%s", r.Assurance.Detail)
	}
	e.receiptLists(st, say, text)
	before := st.Previous
	if before == "" {
		before = "none, it is the first of its chain"
	}
	say("previous", "%s", before)
	return nil
}

func (e *env) receiptLists(st *receipt.Stored, say func(head, format string, a ...any), text func(canon.Value, string) string) {
	list := func(head, key string, f func(canon.Value) string) {
		all, _ := st.Evidence.Get(key)
		var lines []string
		for _, x := range all.Elements() {
			if s := f(x); s != "" {
				lines = append(lines, s)
			}
		}
		for i, s := range firstN(lines, 20) {
			if i > 0 {
				head = ""
			}
			say(head, "%s", s)
		}
	}
	list("paths", "paths", func(x canon.Value) string {
		_, before := x.Get("before")
		_, after := x.Get("after")
		path := text(x, "path")
		switch moved, _ := x.Get("moved"); {
		case text(x, "gone") != "":
			return "" // told by the path that it moved to
		case moved.Truth():
			return text(x, "from") + " -> " + path
		case !before:
			return path + " (new)"
		case !after:
			return path + " (deleted)"
		}
		return path
	})
	list("checks", "checks", func(x canon.Value) string { return text(x, "name") + ": " + text(x, "status") })
	list("refusals", "refusals", func(x canon.Value) string {
		s := text(x, "code") + ": "
		if p := text(x, "path"); p != "" {
			s += fmt.Sprintf("%q ", p)
		}
		return s + reasonText(text(x, "code"), text(x, "detail"))
	})
	for _, g := range st.Receipt.Failures {
		say("degraded", "%s (%s): %s", g.Source, g.Reason, g.Detail)
	}
	list("notes", "notes", canon.Value.Str)
}
