package conformance

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
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
	{"half-and-exit", broken, false}, {"no-newline", broken, false}, {"twice-late", closed, false}, {"cache-stale", closed, false},
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

// combination is one behaviour at one call-site, in the world of one stance.
type combination struct {
	how  string
	is   outcome
	slow bool
	site wire.CallSite
}

// ends tells whether a provider that does so has to be started again afterwards,
// or costs as much in another way.
func ends(how string, is outcome) bool {
	switch {
	case is == clean || is == blocking || is == lessThanAsked:
		return how == "flood"
	case strings.HasPrefix(how, "error!"), strings.HasPrefix(how, "stale-"), strings.HasPrefix(how, "blobs-"), how == "cache-stale":
		return false
	}
	return true
}

// chosen picks what is tried in one world. The whole, some 1,600 in all worlds, takes
// minutes on a small machine, nearly all of it starting providers again that
// failed. The short form has every second combination, and of those after which
// the provider has to be started again every sixth; which ones moves with the
// stance and the behaviour, so that every behaviour is tried under every stance.
//
// They are put in an order in which two failures are followed by a success, as
// far as there are enough: three in a row would quarantine the provider.
func chosen(stance int, required bool) []combination {
	var good, bad, out []combination
	for i, b := range behaviours {
		share := 2
		if ends(b.how, b.is) {
			share = 6
		}
		if long() {
			share = 1
		}
		for j, r := range []bool{true, false} {
			for k, site := range []wire.CallSite{wire.Interactive, wire.Gate, wire.Sweep} {
				if r != required || (stance+i+3*j+k)%share != 0 {
					continue
				}
				if c := (combination{b.how, b.is, b.slow, site}); c.fine() {
					good = append(good, c)
				} else {
					bad = append(bad, c)
				}
			}
		}
	}
	for len(good)+len(bad) > 0 {
		k := min(2, len(bad))
		out, bad = append(out, bad[:k]...), bad[k:]
		k = min(1, len(good))
		out, good = append(out, good[:k]...), good[k:]
	}
	return out
}

func (c combination) fine() bool { return c.is == clean || c.is == blocking }

func TestMatrix(t *testing.T) {
	var tried atomic.Int64
	t.Run("worlds", func(t *testing.T) {
		for i, st := range stances {
			for _, required := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s/required=%v", st.name, required), func(t *testing.T) {
					t.Parallel()
					m := newMatrix(t, st, required)
					for _, c := range chosen(i, required) {
						m.try(t, c)
						tried.Add(1)
					}
				})
			}
		}
	})
	if n := tried.Load(); n < 500 && !t.Failed() {
		t.Errorf("%d combinations were tried, want at least 500", n)
	} else {
		t.Logf("%d combinations", n)
	}
}

// matrix is the world of one stance.
type matrix struct {
	*session
	st       stance
	required bool
	failures int // in a row
}

func newMatrix(t *testing.T, st stance, required bool) *matrix {
	tr := newTrial(t, "matrix")
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
	s, err := tr.open(t.Context(), su)
	ok(t, err)
	return &matrix{session: s, st: st, required: required}
}

func (m *matrix) try(t *testing.T, c combination) {
	t.Helper()
	ctx, tr := t.Context(), m.t
	var more []canon.Member
	if m.failures >= 2 || c.slow { // what is slow has to be warm
		_, err := m.evaluate(ctx, wire.Gate, "one=ok")
		ok(t, err)
		m.failures = 0
	}
	if c.slow {
		more = []canon.Member{member("timeoutMs", shortBudget)}
	}
	if m.failures++; c.fine() {
		m.failures = 0
	}
	e, err := m.evaluateWith(ctx, c.site, more, "one="+c.how, "base=ok")
	ok(t, err)
	permitted, shown := verdictRule(c.is, m.st, m.required, c.site)
	tr.judge(slices.Contains(permitted, e.Decision), "%s, %s, required %v: %s, permitted %q: %s", e.step, m.st.name, m.required, e.Decision, permitted, causes(e.Verdict))
	visible := slices.ContainsFunc(e.Coverage.Degraded, func(d wire.Degradation) bool {
		return d.Reason != wire.DegradeBlockingDiagnostic && (d.Requirement == checked || d.Source == "one")
	})
	tr.judge(visible || !shown, "%s, %s, required %v: not shown in degraded: %s", e.step, m.st.name, m.required, causes(e.Verdict))
	tr.judge(!c.slow || slices.Contains(e.Coverage.Ran, "always") || e.Decision != wire.Allow || c.site != wire.Gate, "%s: a slow provider took the good one's part: %s", e.step, causes(e.Verdict))
}
