package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/aspengine/asp/checks/policy"
	"github.com/aspengine/asp/editplan"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/preconditions"
	"github.com/aspengine/asp/receipt"
	"github.com/aspengine/asp/seam/wire"
	"github.com/aspengine/asp/snapshot"
)

// JudgedRecord is what a decision rested on, beside the policy, which is kept by
// its digest.
type JudgedRecord struct {
	Question canon.Value `json:"question"`
	// Changeset as it was digested; left out where the record of the paths says
	// the same, and where it is over maxJudged.
	Changeset canon.Value `json:"changeset,omitempty"`
}

// maxJudged bounds the changeset in the evidence of a receipt, in bytes.
const maxJudged = 4 << 20

// judged records a decision. What cannot be recorded is a note: a decision stands
// without its record, and a replay says that there is none.
func (e *Engine) judged(p policy.Policy, q policy.Question, changeset canon.Value) (*JudgedRecord, string) {
	rec, err := policy.Record(p, q)
	if err == nil {
		err = policy.Keep(e.o.Home, p)
	}
	if err != nil {
		return nil, "the decision cannot be replayed later: " + err.Error()
	}
	j := &JudgedRecord{Question: rec}
	if changeset.Kind() == canon.Object && len(changeset.Bytes()) <= maxJudged {
		j.Changeset = changeset
	}
	return j, ""
}

// Replay is what could be derived again from a kept receipt.
type Replay struct {
	ReceiptID string   `json:"receiptId"`
	OK        bool     `json:"ok"`        // nothing differs
	Confirmed []string `json:"confirmed"` // derived again, and the same
	Differs   []string `json:"differs"`
	// Gone is what cannot be derived, any more or ever, and why. It is no fault.
	Gone []string `json:"gone"`
}

func (r *Replay) same(ok bool, what string, a ...any) {
	if ok {
		r.Confirmed = append(r.Confirmed, fmt.Sprintf(what, a...))
	} else {
		r.Differs = append(r.Differs, fmt.Sprintf(what, a...))
	}
}

func (r *Replay) gone(what string, a ...any) { r.Gone = append(r.Gone, fmt.Sprintf(what, a...)) }

// Replay derives the claims of a receipt again, from what is kept and without
// running anything: the after-state of each path from kept content, the digests
// of the changeset, of the policy and of an evaluation's request, and the decision
// from what it rested on. A
// receipt that is not kept is receipt.ErrNoReceipt; other errors mean that we
// could not tell.
func (e *Engine) Replay(ctx context.Context, id string) (Replay, error) {
	r := Replay{ReceiptID: id, Confirmed: []string{}, Differs: []string{}, Gone: []string{}}
	st, err := e.receipts.Get(id)
	if err != nil {
		return r, err
	}
	chain, err := e.receipts.Verify(ctx)
	if err != nil {
		return r, err
	}
	r.same(chain.OK, "the chain of receipts (%d problems)", len(chain.Problems))
	rec, err := readJudged(st)
	if err != nil {
		return r, err
	}
	paths, err := readPaths(st)
	if err != nil {
		return r, err
	}
	if err := e.replayChangeset(ctx, &r, st, rec, paths); err != nil {
		return r, err
	}
	if err := e.replayDecision(&r, st, rec); err != nil {
		return r, err
	}
	if err := r.request(st, rec); err != nil {
		return r, err
	}
	r.OK = len(r.Differs) == 0
	return r, nil
}

// request holds the request of an evaluation against its digest.
func (r *Replay) request(st *receipt.Stored, rec *JudgedRecord) error {
	if st.Receipt.Kind != wire.ReceiptEvaluate {
		return nil
	}
	v, ok := st.Evidence.Get("request")
	if !ok || rec == nil || rec.Changeset.Kind() != canon.Object {
		r.gone("request digest %s: the request is not kept", st.Receipt.RequestDigest)
		return nil
	}
	var a asked
	if err := wire.Decode(v, &a); err != nil {
		return fmt.Errorf("read evidence of receipt %s: %w", st.Receipt.ReceiptID, err)
	}
	params := evaluateParams(EvaluateRequest{CallSite: st.Receipt.CallSite, Changeset: rec.Changeset, Comparison: a.Comparison,
		TimeoutMs: a.TimeoutMs, BasePolicyDigest: a.BasePolicyDigest})
	r.same(RequestDigest("host/evaluateChangeset", params) == st.Receipt.RequestDigest, "request digest %s", st.Receipt.RequestDigest)
	return nil
}

func readJudged(st *receipt.Stored) (*JudgedRecord, error) {
	v, ok := st.Evidence.Get("judged")
	if !ok {
		return nil, nil
	}
	j := &JudgedRecord{}
	if err := wire.Decode(v, j); err != nil {
		return nil, fmt.Errorf("read evidence of receipt %s: %w", st.Receipt.ReceiptID, err)
	}
	return j, nil
}

func readPaths(st *receipt.Stored) ([]PathRecord, error) {
	v, ok := st.Evidence.Get("paths")
	if !ok {
		return nil, nil
	}
	var w struct {
		Paths []PathRecord `json:"paths"`
	}
	if err := wire.Decode(canon.ObjectOf(canon.Member{Key: "paths", Value: v}), &w); err != nil {
		return nil, fmt.Errorf("read evidence of receipt %s: %w", st.Receipt.ReceiptID, err)
	}
	return w.Paths, nil
}

// replayChangeset holds the changeset against its digest, and rebuilds the
// after-state of each of its paths.
func (e *Engine) replayChangeset(ctx context.Context, r *Replay, st *receipt.Stored, rec *JudgedRecord, paths []PathRecord) error {
	want := st.Receipt.ChangesetDigest
	if want == "" {
		r.gone("no changeset: the request ended before one was made, or is of another kind")
		return nil
	}
	var cs wire.ChangeSet
	var value canon.Value
	switch {
	case rec != nil && rec.Changeset.Kind() == canon.Object:
		value = rec.Changeset
		if err := wire.Decode(value, &cs); err != nil {
			return fmt.Errorf("read the changeset of receipt %s: %w", st.Receipt.ReceiptID, err)
		}
	case len(paths) > 0:
		cs = wire.ChangeSet{Baseline: st.Receipt.Baseline, Changes: changesOf(paths)}
		var err error
		if value, err = canon.From(cs); err != nil {
			return err
		}
	default:
		r.gone("changeset digest: the receipt holds no changeset")
		return nil
	}
	r.same(canon.DigestText(value) == want, "changeset digest %s", want)
	byPath := map[string]PathRecord{}
	for _, p := range paths {
		byPath[p.Path] = p
	}
	rebuilt, lost := 0, 0
	for _, c := range cs.Changes {
		if err := ctx.Err(); err != nil {
			return err
		}
		if c.After == "" {
			rebuilt++
			continue
		}
		ok, err := e.rebuild(ctx, c, byPath[c.Path])
		if err != nil {
			return err
		}
		if ok {
			rebuilt++
		} else if lost++; lost <= 20 {
			r.gone("after-state of %q (%s): its content is neither kept nor in the workspace", cut(c.Path), c.After)
		}
	}
	if lost > 20 {
		r.gone("and the after-state of %d further paths", lost-20)
	}
	if rebuilt > 0 {
		r.same(true, "after-state of %d of %d paths, from content that hashes to its name", rebuilt, len(cs.Changes))
	}
	return nil
}

// changesOf is the changeset that the record of an applied plan amounts to.
func changesOf(paths []PathRecord) []wire.Change {
	before := map[string]wire.BlobRef{}
	renamed := map[string]bool{}
	for _, p := range paths {
		if p.Before != nil {
			before[p.Path] = wire.BlobRef(p.Before.Digest)
		}
		if p.From != "" && p.Before == nil && p.After != nil {
			renamed[p.From] = true
		}
	}
	out := []wire.Change{}
	for _, p := range paths {
		c := wire.Change{Path: p.Path, Before: before[p.Path]}
		if p.After != nil {
			c.After = wire.BlobRef(p.After.Digest)
		}
		switch {
		case p.After == nil && (renamed[p.Path] || p.Before == nil):
			continue
		case p.After == nil:
			c.Kind = wire.KindDelete
		case p.From != "" && p.Before == nil:
			c.Kind, c.From, c.Before = wire.KindRename, p.From, before[p.From]
		case p.Before != nil:
			c.Kind = wire.KindModify
		default:
			c.Kind = wire.KindCreate
		}
		out = append(out, c)
	}
	return out
}

// rebuild tells whether the content of a path after the change can be had: kept
// itself, with a transaction or a judgement, by the kept difference, or still on disk or in HEAD. Whatever it finds
// is held against the digest.
func (e *Engine) rebuild(ctx context.Context, c wire.Change, p PathRecord) (bool, error) {
	want, err := snapshot.ParseBlob(string(c.After))
	if err != nil {
		return false, nil // another algorithm: nothing here can hold it
	}
	for _, kept := range []func(snapshot.Digest) ([]byte, error){e.packs.Bytes, e.judgedBytes} {
		if b, err := kept(want); err == nil && snapshot.DigestOf(b) == want {
			return true, nil
		}
	}
	if p.Delta != "" && p.Before != nil {
		pre, errA := snapshot.ParseBlob(p.Before.Digest)
		delta, errB := snapshot.ParseBlob(p.Delta)
		if errA == nil && errB == nil {
			before, errA := e.packs.Bytes(pre)
			d, errB := e.packs.Bytes(delta)
			if errA == nil && errB == nil {
				if after, err := unsplice(before, d); err == nil && snapshot.DigestOf(after) == want {
					return true, nil
				}
			}
		}
	}
	view, err := preconditions.NewView(e.root, e.protected())
	if err != nil {
		return false, err
	}
	defer view.Close()
	for _, name := range []string{c.Path, c.From} { // a rename may leave the content as it was
		path, err := snapshot.ParsePath(name)
		if err != nil {
			continue
		}
		if f, err := view.Fact(path); err == nil && f.Digest == want {
			return true, nil
		}
		if e.git == nil {
			continue
		}
		if b, err := e.git.HeadFile(ctx, path, editplan.MaxTextFile); err == nil && snapshot.DigestOf(b) == want {
			return true, nil
		}
	}
	return false, nil
}

// replayDecision holds the policy against its digest, and decides once more.
func (e *Engine) replayDecision(r *Replay, st *receipt.Stored, rec *JudgedRecord) error {
	value, err := policy.Kept(e.o.Home, st.Receipt.PolicyDigest)
	switch {
	case errors.Is(err, policy.ErrNotKept) && rec == nil && nothingAsked(st):
		r.gone("policy %s: it asked for nothing, and what asked for nothing is not kept; so its digest cannot be made again, and there are no results to decide on", st.Receipt.PolicyDigest)
		return nil
	case errors.Is(err, policy.ErrNotKept):
		r.gone("policy %s: it is not kept, so its digest and the decision cannot be made again", st.Receipt.PolicyDigest)
		return nil
	case err != nil:
		r.same(false, "policy digest %s: %v", st.Receipt.PolicyDigest, err)
		return nil
	}
	r.same(true, "policy digest %s", st.Receipt.PolicyDigest)
	if rec == nil {
		r.gone("decision: there is none to make again: nothing was asked to decide, or its record is not kept")
		return nil
	}
	d, digest, err := policy.Replay(value, rec.Question)
	if err != nil {
		r.same(false, "the record of the decision cannot be read: %v", err)
		return nil
	}
	cov, a := d.Coverage, st.Receipt.Coverage
	r.same(digest == st.Receipt.PolicyDigest, "the policy that the decision was made by")
	r.same(cov.Exhaustive == a.Exhaustive && slices.Equal(cov.Required, a.Required) && slices.Equal(cov.Ran, a.Ran) && slices.Equal(cov.Degraded, a.Degraded),
		"coverage: %d required, %d ran, %d degraded", len(cov.Required), len(cov.Ran), len(cov.Degraded))
	had := st.Receipt.AuthorityEvidence
	r.same(!slices.ContainsFunc(d.Evidence, func(ev wire.AuthorityEvidence) bool { return !slices.Contains(had, ev) }), "authority evidence: %d entries", len(d.Evidence))
	decision, known := st.Decision()
	if !known {
		r.same(true, "decision %s, from %d results", d.Decision, rec.results())
		return nil
	}
	r.same(d.Decision == decision, "decision %s, from %d results (the receipt says %s)", d.Decision, rec.results(), decision)
	return nil
}

func (j *JudgedRecord) results() int {
	v, _ := j.Question.Get("results")
	if v.Kind() != canon.Array {
		return 0
	}
	return v.Len()
}

// nothingAsked tells that nobody was required to take part, and nobody did: then neither
// the policy nor what it decided on is recorded.
func nothingAsked(st *receipt.Stored) bool {
	c := st.Receipt.Coverage
	return len(c.Required) == 0 && len(c.Enrolled) == 0 && len(c.Ran) == 0 && len(c.Degraded) == 0
}
