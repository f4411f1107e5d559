package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/wire"
)

// session is one `host serve` on a world.
type session struct {
	*peer
	t    *trial
	w    *world
	base canon.Value // the baseline that the host issued last
}

// closeTime is how long a host has to end after the end of its input, with all
// its providers.
const closeTime = 20 * time.Second

// serve starts the host.
func (w *world) serve() (*session, error) {
	p, err := start(append(slices.Clone(w.argv), "host", "serve", "--repo", w.root), w.env, w.dir, nil)
	if err != nil {
		return nil, fmt.Errorf("start the host: %w", err)
	}
	s := &session{peer: p, t: w.t, w: w}
	w.t.sessions = append(w.t.sessions, s)
	return s, nil
}

// open builds a world and starts a host on it.
func (t *trial) open(ctx context.Context, s setup) (*session, error) {
	w, err := t.world(ctx, s)
	if err != nil {
		return nil, err
	}
	return w.serve()
}

// begin is open, and the workspace as it is then, for untouched to compare with.
func (t *trial) begin(ctx context.Context, s setup) (*session, map[string]string, error) {
	o, err := t.open(ctx, s)
	if err != nil {
		return nil, nil, err
	}
	before, err := o.w.mark()
	return o, before, err
}

// finish ends the session, once, and judges how it behaved.
func (s *session) finish() {
	if s.peer == nil {
		return
	}
	err := s.peer.close(closeTime)
	s.t.judge(err == nil, "the host did not end with status 0 at the end of its input: %v: %s", err, clip(s.peer.stderr.String(), 300))
	for _, v := range s.peer.violations() {
		s.t.problem("the host broke the protocol: %s", v)
	}
	s.peer = nil
}

// do asks and waits; nothing is judged.
func (s *session) do(ctx context.Context, method string, params canon.Value) (answer, error) {
	return s.peer.call(ctx, method, params)
}

// result asks for something that has to be answered by a result, and decodes it.
func (s *session) result(ctx context.Context, step, method string, params canon.Value, into any, show ...[]string) (canon.Value, error) {
	a, err := s.do(ctx, method, params)
	if err != nil {
		return canon.Value{}, err
	}
	if a.err != nil {
		s.t.show(step, request(a), errorValue(a.err))
		return canon.Value{}, fmt.Errorf("%s: a result was due, not error %d (%s): %s", step, a.err.Code, failClass(a.err), a.err.Message)
	}
	s.t.show(step, request(a), part(a.result, show...))
	if into != nil {
		if err := wire.Decode(a.result, into); err != nil {
			s.t.problem("%s: the result is outside its shape: %v", step, err)
			return a.result, fmt.Errorf("%s: %w", step, err)
		}
	}
	return a.result, nil
}

// fails asks for something that has to be answered by an error of one of the
// classes; none given: any.
func (s *session) fails(ctx context.Context, step, method string, params canon.Value, classes ...wire.FailClass) (*wire.Error, error) {
	a, err := s.do(ctx, method, params)
	if err != nil {
		return nil, err
	}
	if a.err == nil {
		s.t.show(step, request(a), part(a.result, []string{"applied"}, []string{"decision"}, []string{"refusal"}, []string{"proposal"}))
		s.t.problem("%s: an error was due, not a result", step)
		return nil, nil
	}
	s.t.show(step, request(a), errorValue(a.err))
	s.t.judge(a.err.Data != nil || a.err.Code <= -32600, "%s: error %d without data.failClass", step, a.err.Code)
	if len(classes) > 0 {
		s.t.judge(slices.Contains(classes, failClass(a.err)), "%s: failClass %q, want one of %q", step, failClass(a.err), classes)
	}
	return a.err, nil
}

func request(a answer) canon.Value {
	return object(member("method", a.method), member("params", a.params))
}

func errorValue(e *wire.Error) canon.Value {
	v, err := canon.From(*e)
	if err != nil {
		return canon.NullOf()
	}
	return object(member("error", v))
}

func failClass(e *wire.Error) wire.FailClass {
	if e == nil || e.Data == nil {
		return ""
	}
	return e.Data.FailClass
}

// part picks members of a result by their way; none given: all of it.
func part(v canon.Value, ways ...[]string) canon.Value {
	if len(ways) == 0 {
		return v
	}
	out := object()
	for _, way := range ways {
		if m := at(v, way...); m.Kind() != canon.Invalid {
			out = put(out, m, way...)
		}
	}
	return out
}

// baseline is the current one, as the host issues it.
func (s *session) baseline(ctx context.Context) (canon.Value, error) {
	a, err := s.do(ctx, "host/status", object())
	if err != nil {
		return canon.Value{}, err
	}
	if a.err != nil {
		return canon.Value{}, fmt.Errorf("host/status: error %d: %s", a.err.Code, a.err.Message)
	}
	s.base = at(a.result, "workspace", "baseline")
	s.w.t.run.named(a.result)
	return s.base, nil
}

func (r *runner) named(status canon.Value) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.host == "" {
		r.host = clip(text(status, "host", "name")+" "+text(status, "host", "version"), 100)
	}
}

// upload gives content to the host, and judges the name that it answers.
func (s *session) upload(ctx context.Context, content string) (string, error) {
	v, err := s.result(ctx, "upload content", "workspace/putBlob",
		object(member("blobs", []canon.Value{object(member("encoding", "utf-8"), member("bytes", content))})), nil)
	if err != nil {
		return "", err
	}
	ids := stringsOf(at(v, "ids"))
	s.t.judge(len(ids) == 1 && ids[0] == blobID(content), "workspace/putBlob names %q, want %s", ids, blobID(content))
	return blobID(content), nil
}

// candidate is a changeset on the current baseline that creates one file, whose
// name tells the providers what to do and whose content nobody saw before.
func (s *session) candidate(ctx context.Context, orders ...string) (canon.Value, error) {
	name := "do/" + s.w.once() + "/" + strings.Join(orders, ",") + ".txt"
	return s.creating(ctx, name, "content of "+name+"\n")
}

// creating is a changeset that creates one file.
func (s *session) creating(ctx context.Context, name, content string) (canon.Value, error) {
	id, err := s.upload(ctx, content)
	if err != nil {
		return canon.Value{}, err
	}
	return s.changeset(ctx, object(member("path", name), member("kind", "create"), member("after", id)))
}

func (s *session) changeset(ctx context.Context, changes ...canon.Value) (canon.Value, error) {
	if s.base.Kind() == canon.Invalid {
		if _, err := s.baseline(ctx); err != nil {
			return canon.Value{}, err
		}
	}
	return object(member("baseline", s.base), member("changes", changes)), nil
}

// evaluation is a verdict with what it answers.
type evaluation struct {
	wire.Verdict
	answer answer
	step   string
}

// evaluate has a candidate judged whose providers follow the orders, "who=how"
// each; the verdict is held against everything that holds for all.
func (s *session) evaluate(ctx context.Context, site wire.CallSite, orders ...string) (evaluation, error) {
	return s.evaluateWith(ctx, site, nil, orders...)
}

// evaluateWith is evaluate with further members of the request.
func (s *session) evaluateWith(ctx context.Context, site wire.CallSite, more []canon.Member, orders ...string) (evaluation, error) {
	cs, err := s.candidate(ctx, orders...)
	if err != nil {
		return evaluation{}, err
	}
	return s.evaluateSet(ctx, site, cs, more, strings.Join(orders, ","))
}

// evaluateSet has one changeset judged.
func (s *session) evaluateSet(ctx context.Context, site wire.CallSite, cs canon.Value, more []canon.Member, what string) (evaluation, error) {
	params := object(append([]canon.Member{member("callSite", string(site)), member("changeset", cs)}, more...)...)
	e := evaluation{step: fmt.Sprintf("evaluate %s at %s", what, site)}
	a, err := s.do(ctx, "host/evaluateChangeset", params)
	if err != nil {
		return e, fmt.Errorf("%s: %w", e.step, err)
	}
	e.answer = a
	if a.err != nil {
		s.t.show(e.step, request(a), errorValue(a.err))
		return e, fmt.Errorf("%s: a decision was due, not error %d (%s): %s", e.step, a.err.Code, failClass(a.err), a.err.Message)
	}
	s.t.show(e.step, request(a), part(a.result, []string{"decision"}, []string{"findings"}, []string{"coverage"}, []string{"assurance"},
		[]string{"requestDigest"}, []string{"changesetDigest"}, []string{"policyDigest"}, []string{"receipt", "failures"}))
	if err := wire.Decode(a.result, &e.Verdict); err != nil {
		return e, fmt.Errorf("%s: %w", e.step, err)
	}
	s.t.always(e, site, cs)
	return e, nil
}

// always judges what holds for every verdict, contract sections 6 and 8.
func (t *trial) always(e evaluation, site wire.CallSite, cs canon.Value) {
	v, say := e.Verdict, func(ok bool, format string, a ...any) { t.judge(ok, e.step+": "+format, a...) }
	c := v.Coverage
	say(v.CallSite == site, "callSite %s", v.CallSite)
	say(slices.Equal(c.Enrolled, c.Required), "enrolled %q is not required %q", c.Enrolled, c.Required)
	say(len(c.Degraded) == 0 || !c.Exhaustive, "exhaustive although something is degraded")
	for _, id := range c.Required {
		say(slices.Contains(c.Ran, id) || t.degraded(v, id) != nil, "required %q stands neither in ran nor in degraded", id)
	}
	for _, d := range c.Degraded {
		if d.Requirement != "" && d.Reason != wire.DegradeBlockingDiagnostic {
			say(!slices.Contains(c.Ran, d.Requirement), "%q stands in ran though degraded as %s", d.Requirement, d.Reason)
		}
		say(d.Detail != "", "degraded %s without detail", d.Reason)
	}
	if v.Decision == wire.Allow && site == wire.Gate {
		for _, id := range c.Required {
			say(slices.Contains(c.Ran, id) && t.degraded(v, id) == nil, "allow on a gate without %q", id)
		}
		say(!slices.ContainsFunc(v.Findings, func(f wire.Finding) bool { return f.Disposition == wire.Gating }), "allow on a gate over a gating finding")
	}
	for _, f := range v.Findings {
		say(f.Disposition != wire.Gating || f.NextStep != "", "gating finding without nextStep")
	}
	say(v.RequestDigest == requestDigest("host/evaluateChangeset", e.answer.params), "requestDigest is not the one of the request")
	say(v.ChangesetDigest == canon.DigestText(cs), "changesetDigest is not the one of the changeset")
	say(v.Assurance.TransactionGuarantee == wire.GuaranteeNone, "an evaluation claims guarantee %s", v.Assurance.TransactionGuarantee)
	r := v.Receipt
	say(r.Kind == wire.ReceiptEvaluate && r.CallSite == site, "receipt of kind %s for %s", r.Kind, r.CallSite)
	say(r.RequestDigest == v.RequestDigest && r.ChangesetDigest == v.ChangesetDigest && r.PolicyDigest == v.PolicyDigest, "receipt and verdict differ in a digest")
	say(same(r.Coverage, c), "receipt and verdict differ in coverage")
	say(same(r.Failures, c.Degraded), "receipt.failures does not mirror coverage.degraded")
	say(same(r.Assurance.Mode, v.Assurance.Mode) && r.Assurance.TransactionGuarantee == v.Assurance.TransactionGuarantee, "receipt and verdict differ in assurance")
	say(same(at(e.answer.result, "receipt", "baseline", "rev").Str(), at(cs, "baseline", "rev").Str()) || v.Decision != wire.Allow, "allowed on another baseline than the changeset's")
}

func same(a, b any) bool {
	av, errA := canon.From(a)
	bv, errB := canon.From(b)
	return errA == nil && errB == nil && canon.Equal(av, bv)
}

// degraded finds the entry of a requirement that is no blocking diagnostic.
func (t *trial) degraded(v wire.Verdict, requirement string) *wire.Degradation {
	for i, d := range v.Coverage.Degraded {
		if d.Requirement == requirement && d.Reason != wire.DegradeBlockingDiagnostic {
			return &v.Coverage.Degraded[i]
		}
	}
	return nil
}

// allowed judges that the decision is allow.
func (t *trial) allowed(e evaluation) bool {
	return t.judge(e.Decision == wire.Allow, "%s: %s, want allow: %s", e.step, e.Decision, causes(e.Verdict))
}

// withheld judges that the decision is not allow, and that the requirement is
// degraded for one of the reasons; none given: any reason.
func (t *trial) withheld(e evaluation, requirement string, reasons ...wire.DegradeReason) {
	t.judge(e.Decision != wire.Allow, "%s: allow although %s cannot count", e.step, requirement)
	if t.judge(t.degraded(e.Verdict, requirement) != nil, "%s: %s is not degraded: %s", e.step, requirement, causes(e.Verdict)) && len(reasons) > 0 {
		// Each cause has an entry of its own; the one that is being tried must be there.
		t.judge(slices.ContainsFunc(e.Coverage.Degraded, func(d wire.Degradation) bool {
			return d.Requirement == requirement && slices.Contains(reasons, d.Reason)
		}), "%s: none of the reasons %q: %s", e.step, reasons, causes(e.Verdict))
	}
}

// denied judges that the decision is deny, over a finding that is shown.
func (t *trial) denied(e evaluation, requirement string) {
	t.judge(e.Decision == wire.Deny, "%s: %s, want deny: %s", e.step, e.Decision, causes(e.Verdict))
	t.judge(slices.ContainsFunc(e.Findings, func(f wire.Finding) bool { return f.Disposition == wire.Gating }), "%s: no gating finding", e.step)
	t.judge(slices.Contains(e.Coverage.Ran, requirement), "%s: %s is not in ran", e.step, requirement)
	t.judge(slices.ContainsFunc(e.Coverage.Degraded, func(d wire.Degradation) bool {
		return d.Reason == wire.DegradeBlockingDiagnostic && d.Requirement == requirement
	}), "%s: no blocking-diagnostic for %s", e.step, requirement)
}

func causes(v wire.Verdict) string {
	var out []string
	for _, d := range v.Coverage.Degraded {
		out = append(out, fmt.Sprintf("%s %s %s (%s)", d.Source, d.Requirement, d.Reason, d.Detail))
	}
	return clip(strings.Join(out, "; "), 400)
}

// untouched judges that nothing in the workspace changed.
func (t *trial) untouched(w *world, before map[string]string, when string) {
	changed, err := w.changedSince(before)
	if err != nil {
		t.problem("%s: look at the workspace: %v", when, err)
		return
	}
	t.judge(len(changed) == 0, "%s: the workspace changed: %s", when, clip(strings.Join(changed, ", "), 300))
}
