package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/aspengine/asp/checks"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/wire"
)

// How much foreign text goes into a verdict, in bytes.
const (
	maxDetail   = 1000
	maxMessage  = 4000
	maxFindings = 200 // of one check
)

// addEvidence notes who gave an answer, by whose word it counts.
func (d *decider) addEvidence(c Command, r checks.Result, required bool) wire.AuthorityEvidence {
	ev := wire.AuthorityEvidence{
		Identity:    "config.json",
		Integrity:   c.Digest,
		Conformance: "command-check",
		Isolation:   modeOf(r.Isolation),
		Authority: wire.Authority{
			Granted: required, Requirement: c.ID(), CallSite: d.q.CallSite, PolicyDigest: d.p.Digest,
		},
	}
	d.evidence = append(d.evidence, ev)
	return ev
}

// addFindings turns the complaints of one check into findings. They gate when
// note is empty; otherwise note says why they only inform.
func (d *decider) addFindings(c Command, r checks.Result, ev wire.AuthorityEvidence, note string) {
	list := r.Findings
	if len(list) == 0 && r.Status == checks.Failed {
		// A gate never says no without a reason to read.
		list = []checks.Finding{{Code: c.ID() + ":failed", Message: fmt.Sprintf("%s failed with exit status %d. %s", c.ID(), r.ExitCode, r.Detail)}}
	}
	seen := map[string]int{}
	for i, f := range list {
		if i == maxFindings {
			break
		}
		w := wire.Finding{Diagnostic: diagnostic(c, f, seen), Authority: ev, Disposition: wire.AdvisoryFinding}
		if f.NextStep != "" {
			w.NextStep, w.NextStepOrigin = clip(f.NextStep, maxDetail), wire.StepFromServer
			w.Diagnostic.Help = w.NextStep
		}
		if note != "" {
			w.SeverityNote = "not blocking: " + note
		} else {
			w.Disposition = wire.Gating
			if w.NextStep == "" {
				w.NextStep = clip(fmt.Sprintf("Run %q over the change, fix what it reports, and try again.", strings.Join(c.Argv, " ")), maxDetail)
				w.NextStepOrigin = wire.StepSynthesized
			}
		}
		d.findings = append(d.findings, w)
	}
}

// diagnostic is one complaint in the shape of the protocol. Its fingerprint
// leaves the line out, so that it survives edits above; repetitions are told
// apart by their number.
func diagnostic(c Command, f checks.Finding, seen map[string]int) wire.Diagnostic {
	code := f.Code
	if !strings.HasPrefix(code, c.ID()) {
		code = c.ID() + ":" + code
	}
	g := wire.Diagnostic{
		Code: clip(code, 200), Severity: wire.SeverityError, Source: c.ID(),
		Message: clip(f.Message, maxMessage), Location: wire.Location{Path: "."},
	}
	if f.Path != "" {
		g.Location.Path = clip(f.Path, 4096)
	}
	if f.Line > 0 && f.Path != "" {
		at := wire.Position{Line: f.Line - 1}
		g.Location.Range = &wire.Range{Start: at, End: at}
	}
	key := canon.ArrayOf(canon.StringOf(g.Code), canon.StringOf(g.Location.Path), canon.StringOf(g.Message)).Bytes()
	n := seen[string(key)]
	seen[string(key)]++
	sum := sha256.Sum256(fmt.Appendf(key, "%d", n))
	g.Fingerprint = "sha256:" + hex.EncodeToString(sum[:])
	return g
}

// providerFindings turns the diagnostics of providers into findings. Answers
// that are about something else, or that no one understood, have none.
func (d *decider) providerFindings() {
	for i, r := range d.q.Results {
		if r.Provider == nil || familyOf(r) != wire.Check {
			continue
		}
		switch r.Status {
		case checks.Malformed, checks.Stale, checks.Skewed, checks.Incompatible, checks.Missing, checks.StatusInvalid:
			continue
		}
		var list []wire.Finding
		shown, more := worstFirst(r)
		for _, g := range shown {
			list = append(list, d.finding(i, r, g))
		}
		if more += r.More; more > 0 && len(list) > 0 {
			w := &list[len(list)-1]
			w.SeverityNote = strings.TrimPrefix(fmt.Sprintf("%s; %d further findings of this source are not shown", w.SeverityNote, more), "; ")
		}
		d.findings = append(d.findings, list...)
	}
}

// worstFirst is what a decision shows of the diagnostics of an answer, and how
// many it leaves out: what would block first, so that it is never cut, then other
// errors.
func worstFirst(r checks.Result) (shown []wire.Diagnostic, more int) {
	var by [3][]wire.Diagnostic
	for _, g := range r.Diagnostics {
		k := 2
		if gating(g, r.Comparison) == "" {
			k = 0
		} else if g.Severity == wire.SeverityError {
			k = 1
		}
		by[k] = append(by[k], g)
	}
	all := slices.Concat(by[0], by[1], by[2])
	n := min(len(all), maxFindings)
	return all[:n], len(all) - n
}

// finding is one diagnostic with what the host makes of it.
func (d *decider) finding(at int, r checks.Result, g wire.Diagnostic) wire.Finding {
	g.Source = clip(r.Provider.ID, maxDetail) // the host's word, not the provider's
	g.Code, g.Message, g.Help = clip(g.Code, 200), clip(g.Message, maxMessage), clip(g.Help, maxDetail)
	w := wire.Finding{Diagnostic: g, Authority: d.by[at], Disposition: wire.AdvisoryFinding}
	why := d.notes[at]
	if d.gates[at] {
		why = gating(g, r.Comparison)
	}
	if g.Help != "" {
		w.NextStep, w.NextStepOrigin = g.Help, wire.StepFromServer
	}
	switch {
	case why == "":
		w.Disposition = wire.Gating
		if w.NextStep == "" {
			w.NextStep, w.NextStepOrigin = nextStep(g), wire.StepSynthesized
		}
	case g.Severity == wire.SeverityError:
		w.SeverityNote = "not blocking: " + why
	}
	return w
}

// nextStep is the host's own advice where the provider gives none.
func nextStep(g wire.Diagnostic) string {
	if g.Fix != nil {
		return fmt.Sprintf("%s offers a fix: `asp fix %s` makes a plan of it to look at and apply.", g.Source, clip(g.Fingerprint, 200))
	}
	where := fmt.Sprintf("%q", clip(g.Location.Path, 300))
	if g.Location.Path == "." || g.Location.Path == "" {
		where = "the change"
	} else if g.Location.Range != nil {
		where += fmt.Sprintf(" line %d", g.Location.Range.Start.Line+1)
	}
	return fmt.Sprintf("Look at %s, mend what %s reports there, and try again.", where, g.Code)
}

// blocking says in one line what a provider's answer complained of.
func (d *decider) blocking(s standing) string {
	r := d.q.Results[s.at]
	for _, g := range r.Diagnostics {
		if gating(g, r.Comparison) != "" {
			continue
		}
		first := clip(g.Code+": "+g.Message, maxDetail/2)
		if n := s.blocks + r.MoreBlocking; n > 1 {
			first += fmt.Sprintf(" (and %d more)", n-1)
		}
		return first
	}
	return "" // not reached: the caller counted one
}

// blockingDetail says in one line what a failed check complained of.
func blockingDetail(r checks.Result) string {
	switch len(r.Findings) {
	case 0:
		return fmt.Sprintf("failed with exit status %d", r.ExitCode)
	case 1:
		return telling(r.Findings[0].Message)
	}
	return fmt.Sprintf("%s (and %d more)", clip(telling(r.Findings[0].Message), maxDetail/2), len(r.Findings)+r.More-1)
}

// telling is the line of an output that says most: the last one, since tools sum up at
// the end, which is neither empty nor a heading ("# example.org/pkg") nor a lone word
// ("FAIL"). The whole output stands in the finding.
func telling(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	for _, l := range slices.Backward(lines) {
		if l = strings.TrimSpace(l); !strings.HasPrefix(l, "# ") && strings.ContainsAny(l, " \t") {
			return l
		}
	}
	return strings.TrimSpace(lines[len(lines)-1])
}

// clip makes foreign text fit for a message: valid UTF-8, at most n bytes.
func clip(s string, n int) string {
	const mark = " …"
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= n {
		return s
	}
	n -= len(mark)
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + mark
}

// Envelope is what a verdict says beside the decision.
type Envelope struct {
	RequestDigest   string
	ChangesetDigest string
	PolicyDigest    string
	ValidAsOf       wire.HostValidAsOf
	Assurance       wire.ApplyAssurance
	Receipt         wire.AuditReceipt
}

// Verdict puts a decision into its envelope.
func (d Decision) Verdict(e Envelope) wire.Verdict {
	return wire.Verdict{
		Pass: d.Decision == wire.Allow, Decision: d.Decision, CallSite: d.CallSite,
		RequestDigest: e.RequestDigest, ChangesetDigest: e.ChangesetDigest, PolicyDigest: e.PolicyDigest,
		Findings: d.Findings, Coverage: d.Coverage, AuthorityEvidence: d.Evidence,
		ValidAsOf: e.ValidAsOf, Assurance: e.Assurance, Receipt: e.Receipt,
	}
}
