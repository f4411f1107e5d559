package conformance

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/wire"
)

// The matrix: what a provider does, where a decision is asked for, whether the
// policy requires the provider, and what the policy says of it. The decision of
// the host is held against a rule that is written down here a second time, from
// section 6 of the contract, and knows nothing of the host's.

// outcome is what became of a provider's part, as the rule sees it.
type outcome int

const (
	clean outcome = iota + 1
	blocking
	lessThanAsked // incomplete, unsupported, cancelled, an error inside an assessment
	health        // crash, time-out, an error of class health
	closed        // malformed, stale, errors of the other classes and of none
	broken        // health or contract, as one takes it: a stream cut in the middle
)

// behaviours of the matrix, with what the rule takes them for.
var behaviours = []struct {
	how  string
	is   outcome
	slow bool
}{
	{"ok", clean, false}, {"warn", clean, false}, {"flood", clean, false}, {"push", clean, false}, {"log-secrets", clean, false},
	{"find", blocking, false},
	{"incomplete", lessThanAsked, false}, {"unsupported", lessThanAsked, false}, {"status-error", lessThanAsked, false}, {"cancelled", lessThanAsked, false},
	{"crash", health, false}, {"crash-at-once", health, false}, {"error!health", health, false}, {"slow", health, true},
	{"error!contract", closed, false}, {"error!policy", closed, false}, {"error!input", closed, false}, {"error!untyped", closed, false}, {"error!unknown", closed, false},
	{"stale-baseline", closed, false}, {"stale-digest", closed, false}, {"blobs-missing", closed, false}, {"blobs-foreign", closed, false},
	{"covered-less", closed, false}, {"truncated", closed, false}, {"degraded-complete", closed, false}, {"not-exhaustive", closed, false},
	{"missing-member", closed, false}, {"unknown-member", closed, false}, {"bad-status", closed, false}, {"null-result", closed, false},
	{"forge-top!decision", closed, false}, {"forge-evidence!pass", closed, false}, {"forge-fix!authority", closed, false},
	{"foreign-code", closed, false}, {"foreign-path", closed, false}, {"other-provider", closed, false}, {"other-version", closed, false},
	{"noise", closed, false}, {"array-line", closed, false}, {"unknown-id", closed, false}, {"duplicate-key", closed, false}, {"deep", closed, false},
	{"half-and-exit", broken, false}, {"no-newline", broken, false}, {"twice-late", closed, false},
}

// stance is what the policy and the enrolment say of the provider.
type stance struct {
	name      string
	authority bool // its pin matches and it is enrolled as gated
	assured   bool // there is a sandbox
	set       func(t *trial, p *enrolled, n *demand, su *setup)
}

var stances = []stance{
	{"pinned", true, true, func(*trial, *enrolled, *demand, *setup) {}},
	{"one of two pins", true, true, func(t *trial, _ *enrolled, n *demand, _ *setup) {
		n.pins = append([]pin{t.pinOf(checker("ghost"))}, n.pins...)
	}},
	{"wrong identity", false, true, func(_ *trial, _ *enrolled, n *demand, _ *setup) { n.pins[0].identity = "somebody else" }},
	{"wrong integrity", false, true, func(_ *trial, _ *enrolled, n *demand, _ *setup) {
		n.pins[0].integrity = "sha256:" + strings.Repeat("3", 64)
	}},
	{"enrolled as advisory", false, true, func(_ *trial, p *enrolled, _ *demand, _ *setup) { p.mode = "advisory" }},
	{"more assurance than there is", true, false, func(_ *trial, _ *enrolled, n *demand, su *setup) {
		n.assurance, su.noSandbox = []string{"isolated"}, true
	}},
}

// verdictRule says which decisions the contract permits, and whether the
// requirement has to stand in degraded.
func verdictRule(is outcome, st stance, required bool, site wire.CallSite) (permitted []wire.Decision, shown bool) {
	if !st.assured {
		// Where there is no sandbox nobody's answer is enough for a gate that asks
		// for more than advisory, the other provider's neither.
		return []wire.Decision{wire.Deny, wire.Indeterminate}, true
	}
	counts := st.authority
	fine := is == clean || is == blocking
	if !required {
		// It takes nothing away. A finding of an authorized provider may still block:
		// the contract leaves that to arbitration.
		if is == blocking && counts {
			return []wire.Decision{wire.Allow, wire.Deny}, false
		}
		return []wire.Decision{wire.Allow}, !fine || !counts
	}
	withheld := []wire.Decision{wire.Deny, wire.Indeterminate}
	switch {
	case !counts:
		return withheld, true
	case is == clean:
		return []wire.Decision{wire.Allow}, false
	case is == blocking:
		return []wire.Decision{wire.Deny}, false
	case is == health && site == wire.Interactive:
		return []wire.Decision{wire.Allow}, true // opened, and shown
	case (is == broken || is == lessThanAsked) && site == wire.Interactive:
		return append(withheld, wire.Allow), true
	}
	return withheld, true
}

func TestMatrix(t *testing.T) {
	var sites = []wire.CallSite{wire.Interactive, wire.Gate, wire.Sweep}
	total := len(behaviours) * len(sites) * 2 * len(stances)
	if total < 500 {
		t.Fatalf("%d combinations, want at least 500", total)
	}
	// The whole, some 1,600, takes minutes on a small machine, nearly all of it starting
	// providers again that failed. The short form takes a share of each stance, by a
	// seed; every behaviour, site and stance is in it.
	share := 6
	if long() {
		share = 1
	}
	for _, st := range stances {
		for _, required := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/required=%v", st.name, required), func(t *testing.T) {
				t.Parallel()
				runMatrix(t, st, required, sites, share)
			})
		}
	}
}

func runMatrix(t *testing.T, st stance, required bool, sites []wire.CallSite, share int) {
	ctx := t.Context()
	tr := newTrial(t, "matrix")
	rng := rand.New(rand.NewPCG(1, uint64(len(st.name))))
	one, base := checker("one"), checker("base")
	n := tr.checkNeed(checked, tr.pinOf(one))
	var su setup
	st.set(tr, &one, &n, &su)
	su.providers = []enrolled{one, base}
	g := gateList{required: []string{"always"}, optional: []string{checked}}
	if required {
		g = gateList{required: []string{"always", checked}}
	}
	su.policy = &policy{needs: []demand{tr.checkNeed("always", tr.pinOf(base)), n}, interactive: g, gate: g, sweep: g}
	s, err := tr.open(ctx, su)
	ok(t, err)
	failures := 0
	for i, b := range behaviours {
		for j, site := range sites {
			if (i*len(sites)+j+rng.IntN(share))%share != 0 && b.how != "ok" {
				continue
			}
			if failures >= 2 { // three in a row would quarantine it
				_, err := s.evaluate(ctx, wire.Gate, "one=ok")
				ok(t, err)
				failures = 0
			}
			var more []canon.Member
			if b.slow {
				_, err := s.evaluate(ctx, wire.Gate, "one=ok") // warm
				ok(t, err)
				failures = 0
				more = []canon.Member{member("timeoutMs", shortBudget)}
			}
			if failures++; b.is == clean || b.is == blocking {
				failures = 0
			}
			e, err := s.evaluateWith(ctx, site, more, "one="+b.how, "base=ok")
			ok(t, err)
			permitted, shown := verdictRule(b.is, st, required, site)
			tr.judge(slices.Contains(permitted, e.Decision), "%s, %s, required %v: %s, permitted %q: %s", e.step, st.name, required, e.Decision, permitted, causes(e.Verdict))
			visible := slices.ContainsFunc(e.Coverage.Degraded, func(d wire.Degradation) bool {
				return d.Reason != wire.DegradeBlockingDiagnostic && (d.Requirement == checked || d.Source == "one")
			})
			tr.judge(visible || !shown, "%s, %s, required %v: not shown in degraded: %s", e.step, st.name, required, causes(e.Verdict))
			tr.judge(!b.slow || slices.Contains(e.Coverage.Ran, "always") || e.Decision != wire.Allow || site != wire.Gate, "%s: a slow provider took the good one's part: %s", e.step, causes(e.Verdict))
		}
	}
}
