package conformance

import (
	"context"
	"fmt"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/wire"
)

// unauthorized judges that a plan of the world's edit provider is not applied
// for want of authority, wherever the host says so.
func (t *trial) unauthorized(ctx context.Context, what string, su setup) error {
	s, before, err := t.begin(ctx, su)
	if err != nil {
		return err
	}
	if _, err := s.baseline(ctx); err != nil {
		return err
	}
	a, err := s.do(ctx, "host/requestEditPlan", s.planParams("powerless", "insert", "", ""))
	if err != nil {
		return err
	}
	if a.err != nil {
		t.show(what, request(a), errorValue(a.err))
		t.judge(failClass(a.err) == wire.FailPolicy, "%s: failClass %q of a plan without authority, want policy", what, failClass(a.err))
	}
	r, err := s.apply(ctx, wire.Gate, "powerless")
	if err != nil {
		return err
	}
	if a.err == nil {
		t.refused(what, r, "missing-authority", "no-authority")
	} else {
		t.judge(!r.Applied, "%s: applied", what)
	}
	t.untouched(s.w, before, what)
	s.finish()
	return nil
}

func editAuthority(ctx context.Context, t *trial) error {
	p, c := editor("ed"), checker("one")
	unpinned := setup{providers: []enrolled{p, c}, policy: everywhere([]demand{t.checkNeed(checked, t.pinOf(c))}, []string{checked}, nil)}
	if err := t.unauthorized(ctx, "an edit provider that no requirement pins", unpinned); err != nil {
		return err
	}
	wrong := t.oneEditor(p)
	wrong.policy.needs[1].pins[0].integrity = "sha256:" + t.hexID()
	if err := t.unauthorized(ctx, "an edit provider whose pin does not match", wrong); err != nil {
		return err
	}
	a := p
	a.mode = "advisory"
	return t.unauthorized(ctx, "an edit provider enrolled as advisory", t.oneEditor(a))
}

func editAssurance(ctx context.Context, t *trial) error {
	for _, mode := range []string{"mediated-write", "isolated"} {
		su := t.oneEditor(editor("ed"))
		su.policy.needs[1].assurance = []string{mode}
		su.noSandbox = true
		s, err := t.open(ctx, su)
		if err != nil {
			return err
		}
		before, err := s.w.mark()
		if err != nil {
			return err
		}
		if _, err := s.baseline(ctx); err != nil {
			return err
		}
		a, err := s.do(ctx, "host/requestEditPlan", s.planParams("weak", "insert", "", ""))
		if err != nil {
			return err
		}
		r, err := s.apply(ctx, wire.Gate, "weak")
		if err != nil {
			return err
		}
		if a.err == nil {
			t.refused(mode+" asked for, and no sandbox to be had", r, "insufficient-assurance", "weak-assurance")
		} else {
			t.show("ask for a plan", request(a), errorValue(a.err))
			t.judge(!r.Applied && failClass(a.err) == wire.FailPolicy, "%s: failClass %q", mode, failClass(a.err))
		}
		t.untouched(s.w, before, "after an apply with too little assurance")
		s.finish()
	}
	return nil
}

func editConcurrent(ctx context.Context, t *trial) error {
	s, err := t.open(ctx, t.oneEditor(editor("ed")))
	if err != nil {
		return err
	}
	second, err := s.w.serve()
	if err != nil {
		return err
	}
	both := []*session{s, second}
	// The same file, by two hosts at once, several times over: one of each round.
	const rounds = 4
	for round := range rounds {
		old := s.w.read("src/a.txt")
		var asked [2]*pending
		for i, x := range both {
			plan, err := x.inline(ctx, fmt.Sprintf("race-%d-%d", round, i), insertion("src/a.txt", blobID(old), fmt.Sprintf("%d of %d\n", i, round)))
			if err != nil {
				return err
			}
			if asked[i], err = x.ask("host/applyProposal", object(member("callSite", "gate"), member("proposalId", at(plan, "proposalId")), member("intent", "harness"), member("proposal", plan))); err != nil {
				return err
			}
		}
		won, prefix := 0, ""
		for i, x := range both {
			a, err := x.wait(ctx, asked[i])
			if err != nil {
				return err
			}
			var r applied
			if a.err != nil {
				return fmt.Errorf("concurrent apply: error %d: %s", a.err.Code, a.err.Message)
			}
			if err := wire.Decode(a.result, &r.ApplyProposalResult); err != nil {
				return err
			}
			if r.Applied {
				won++
				prefix = fmt.Sprintf("%d of %d\n", i, round)
			} else {
				t.judge(r.Refusal.Reason == "conflict" || r.Refusal.Reason == "stale-baseline", "the loser is refused as %s", r.Refusal.Reason)
			}
		}
		t.judge(won == 1, "%d of two applies on the same bytes were done", won)
		t.judge(s.w.read("src/a.txt") == prefix+old, "the file does not hold exactly the winner's edit")
	}
	// Different files: all are done, none is lost.
	var asked [8]*pending
	for i := range asked {
		x := both[i%2]
		content, err := x.upload(ctx, fmt.Sprintf("file %d\n", i))
		if err != nil {
			return err
		}
		plan, err := x.inline(ctx, fmt.Sprintf("many-%d", i), object(member("path", fmt.Sprintf("many/%d.txt", i)), member("kind", "create"), member("precondition", absent()), member("after", content)))
		if err != nil {
			return err
		}
		if asked[i], err = x.ask("host/applyProposal", object(member("callSite", "gate"), member("proposalId", at(plan, "proposalId")), member("intent", "harness"), member("proposal", plan))); err != nil {
			return err
		}
	}
	for i, q := range asked {
		a, err := both[i%2].wait(ctx, q)
		if err != nil {
			return err
		}
		t.judge(a.err == nil && at(a.result, "applied").Truth(), "apply %d beside others: %s", i, clip(string(at(a.result, "refusal").Bytes()), 200))
		t.judge(s.w.read(fmt.Sprintf("many/%d.txt", i)) == fmt.Sprintf("file %d\n", i), "file %d is lost", i)
	}
	// A reply that was lost: the same request through the other host, and the same
	// id with other content.
	plan, err := s.inline(ctx, "lost", insertion("src/b.txt", blobID(baseFiles["src/b.txt"]), "once\n"))
	if err != nil {
		return err
	}
	first, err := s.applyInline(ctx, plan)
	if err != nil {
		return err
	}
	again, err := second.applyInline(ctx, plan)
	if err != nil {
		return err
	}
	t.judge(first.Applied && canon.Equal(first.answer.result, again.answer.result), "a repeated request gave another result")
	t.judge(s.w.read("src/b.txt") == "once\n"+baseFiles["src/b.txt"], "a repeated request was done twice")
	other, err := s.inline(ctx, "lost", insertion("src/b.txt", blobID(s.w.read("src/b.txt")), "twice\n"))
	if err != nil {
		return err
	}
	r, err := s.applyInline(ctx, other)
	if err != nil {
		return err
	}
	t.refused("the same id with other content", r, "conflict", "id-reuse")
	return nil
}

func editNoFastPath(ctx context.Context, t *trial) error {
	p, c := editor("opcore"), checker("one")
	su := setup{providers: []enrolled{p, c}, policy: everywhere([]demand{t.checkNeed(checked, t.pinOf(c))}, []string{checked}, nil)}
	if err := t.unauthorized(ctx, "an edit provider named opcore without a pin", su); err != nil {
		return err
	}
	s, err := t.open(ctx, t.oneEditor(p))
	if err != nil {
		return err
	}
	if _, err := s.baseline(ctx); err != nil {
		return err
	}
	if _, err := s.fails(ctx, "edits of another protocol", "host/requestEditPlan", s.planParams("legacy", "legacy-result", "", ""), wire.FailContract); err != nil {
		return err
	}
	_, err = s.plan(ctx, "plain", "insert", "", "")
	return err
}
