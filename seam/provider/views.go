package provider

import (
	"slices"
	"strings"

	"github.com/aspengine/asp/checks"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/wire"
)

// Views are earlier answers of a provider, each complete, accepted, and given under the
// settings, the policy and by the launch identity of the present question. Whoever asks
// vouches for that, and for the states that they are about. Nil is not known.
type Views struct {
	// Last is the newest, about whatever it was.
	Last *checks.Accepted
	// Before has comparison all and is about the very state that the subject starts
	// from, in all of its content; it looked at every path that the subject changes.
	Before *checks.Accepted
	// The answers about this subject and scope, by comparison.
	All, Introduced, Resolved *checks.Accepted
}

// Bounds of what a provider is reminded of, in one request. A part of the findings
// would be worse than none: what is left out counts as introduced.
const (
	maxPrior      = 1000
	maxPriorBytes = 1 << 20
)

// prior is what an incremental provider is told: the findings that it had on the paths
// before the change, whose absence from the list means that there were none, and which
// assessment of its was the last. Without a known state before, it gets no findings
// and looks at both states itself. With comparison all there is no before.
func (c *check) prior(comparison wire.Comparison) (findings []wire.PriorDiagnostic, last []wire.PriorAssessment) {
	room := maxPriorBytes
	if l := c.s.Views.Last; l != nil {
		a := wire.PriorAssessment{AssessmentID: l.Digest, ValidAsOf: l.ValidAsOf, Provider: l.Provider, Digest: l.Digest}
		if n := sizeOf(a); n <= room {
			last, room = []wire.PriorAssessment{a}, room-n
		}
	}
	if c.s.Views.Before == nil || comparison == wire.CompareAll {
		return nil, last
	}
	findings = []wire.PriorDiagnostic{}
	for _, d := range c.before() {
		p := wire.PriorDiagnostic{Diagnostic: d, ValidAsOf: c.s.Views.Before.ValidAsOf}
		if room -= sizeOf(p); room < 0 || len(findings) == maxPrior {
			return nil, last
		}
		findings = append(findings, p)
	}
	return findings, last
}

func sizeOf(x any) int {
	v, err := canon.From(x)
	if err != nil {
		return maxPriorBytes + 1
	}
	return len(v.Bytes())
}

// before are the findings of the state before, on what the subject looks at.
func (c *check) before() []wire.Diagnostic {
	if c.s.Views.Before == nil {
		return nil
	}
	if c.set.Scope == wire.ScopeWorkspace {
		return c.s.Views.Before.Diagnostics
	}
	var out []wire.Diagnostic
	for _, d := range c.s.Views.Before.Diagnostics {
		if slices.ContainsFunc(c.s.Changes, func(x wire.Change) bool {
			return x.Kind != wire.KindCreate && (d.Location.Path == x.From || x.From == "" && d.Location.Path == x.Path)
		}) {
			out = append(out, d)
		}
	}
	return out
}

// tally counts findings by source and fingerprint.
type tally map[[2]string]int

func tallyOf(list []wire.Diagnostic) tally {
	t := tally{}
	for _, d := range list {
		source, _, _ := strings.Cut(d.Code, "/")
		t[[2]string{source, d.Fingerprint}]++
	}
	return t
}

// without is the multiset difference.
func (t tally) without(o tally) tally {
	out := tally{}
	for k, n := range t {
		if n > o[k] {
			out[k] = n - o[k]
		}
	}
	return out
}

// contradicts holds an answer to what the same provider said of the states that the
// change lies between. What it calls introduced has to be there after the change; and
// where it told both states whole, introduced is what the one has more than the other,
// resolved what it has less, as multisets of fingerprints. A provider that takes itself
// back is not believed in either answer. A rename is no contradiction: whether the
// findings of the old path are those of the new one is the provider's to say.
func (c *check) contradicts(now *checks.Accepted) *fault {
	v := c.s.Views
	switch now.Comparison {
	case wire.CompareAll:
		v.All = now
	case wire.CompareIntroduced:
		v.Introduced = now
	case wire.CompareResolved:
		v.Resolved = now
	}
	if v.All == nil {
		return nil
	}
	after := tallyOf(v.All.Diagnostics)
	if v.Introduced != nil {
		if n := len(tallyOf(v.Introduced.Diagnostics).without(after)); n > 0 {
			return malformed("%d of the findings that it says the change introduces are not among all that it finds after the change", n)
		}
	}
	if v.Before == nil || slices.ContainsFunc(c.s.Changes, func(x wire.Change) bool { return x.Kind == wire.KindRename }) {
		return nil
	}
	before := tallyOf(c.before())
	differ := func(said *checks.Accepted, is tally) int {
		if said == nil {
			return 0
		}
		t := tallyOf(said.Diagnostics)
		return len(t.without(is)) + len(is.without(t))
	}
	if n := differ(v.Introduced, after.without(before)); n > 0 {
		return malformed("what it says the change introduces differs in %d findings from what it finds after the change and did not find before", n)
	}
	if n := differ(v.Resolved, before.without(after)); n > 0 {
		return malformed("what it says the change resolves differs in %d findings from what it found before the change and does not find after", n)
	}
	return nil
}
