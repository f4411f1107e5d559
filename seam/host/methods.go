package host

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/aspengine/asp/apply"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/rpc"
	"github.com/aspengine/asp/seam/wire"
)

// The names that are not in the table of methods.
const (
	methodShutdown = "shutdown"
	methodExit     = "exit"
)

// call is one request on its way.
type call struct {
	s *session
	r rpc.Request
}

// method is the outer seam: what a request of that name does; nil where there is
// none. There is no initialize: the first line may be any of these.
func method(name string) func(*call, context.Context) (canon.Value, error) {
	switch name {
	case "host/status":
		return (*call).status
	case "host/capabilities":
		return (*call).capabilities
	case "host/authority/status":
		return (*call).authority
	case "host/evaluateChangeset":
		return (*call).evaluate
	case "host/queryInspect":
		return (*call).inspect
	case "host/requestEditPlan":
		return (*call).requestEdit
	case "host/applyProposal":
		return (*call).applyProposal
	case "workspace/putBlob":
		return (*call).putBlob
	}
	return nil
}

// decode reads the params strictly. Absent params are the empty object, which is
// what half of the methods take.
func (c *call) decode(into any) error {
	p := c.r.Params
	if p.Kind() == canon.Invalid {
		p = canon.ObjectOf()
	}
	if err := wire.Decode(p, into); err != nil {
		return &paramsError{wire.NewError(wire.CodeInvalidParams, wire.FailInput, fmt.Sprintf("params of %s: %v", c.r.Method, err), problems(err))}
	}
	return nil
}

// paramsError is what is wrong with params, before any engine was asked.
type paramsError struct{ w *wire.Error }

func (p *paramsError) Error() string { return p.w.Error() }
func (p *paramsError) Unwrap() error { return p.w }

// misread has the receipt stored that every one of the methods carries. Where none can
// be, the error is what it was.
func (c *call) misread(ctx context.Context, p *paramsError) error {
	var named error
	_, err := c.with(ctx, func(e Engine, _ apply.Request) (any, error) {
		named = e.Misread(ctx, c.r.Method, c.digest(), p.w)
		return canon.NullOf(), nil
	})
	var w *wire.Error
	if err != nil || !errors.As(named, &w) {
		return p.w
	}
	if had := p.w.Data.Detail; had != "" && w.Data != nil {
		return wire.NewError(w.Code, wire.FailInput, w.Message, strings.TrimSuffix(had+"; "+w.Data.Detail, "; "))
	}
	return w
}

// problems lists what is wrong with a message, for data.detail.
func problems(err error) string {
	var d *wire.DecodeError
	if !errors.As(err, &d) {
		return ""
	}
	const shown = 20
	var out []string
	for i, p := range d.Problems {
		if i == shown {
			out = append(out, fmt.Sprintf("and %d more", len(d.Problems)-i))
			break
		}
		out = append(out, p.String())
	}
	return strings.Join(out, "; ")
}

// digest is over the request as it came: the values, not what we made of them.
func (c *call) digest() string {
	if c.r.Params.Kind() == canon.Invalid {
		return canon.DigestText(canon.ObjectOf(member("method", canon.StringOf(c.r.Method))))
	}
	return apply.RequestDigest(c.r.Method, c.r.Params)
}

// with runs f with an engine of its own, opened now, so that configuration and
// policy are those of this moment.
func (c *call) with(ctx context.Context, f func(Engine, apply.Request) (any, error)) (canon.Value, error) {
	p := watch(ctx, c.s.h.o.ProgressAfter, c.r.Progress)
	defer p.end()
	// Who cancels meanwhile gets an answer with a receipt too, and only an engine stores one.
	eng, how, err := c.s.h.o.Open(context.WithoutCancel(ctx), p.tell)
	if err != nil {
		return canon.Value{}, err
	}
	out, err := f(eng, how)
	if cerr := eng.Close(); cerr != nil {
		// What the engine said holds; that a file could not be closed changes nothing
		// of it.
		c.s.h.log.Warn("close the engine", "session", c.s.name, "error", cerr)
	}
	if err != nil {
		return canon.Value{}, err
	}
	if v, ok := out.(canon.Value); ok {
		return v, nil
	}
	return canon.From(out)
}

func (c *call) surface() (apply.SurfaceRequest, error) {
	var p wire.StatusParams
	if err := c.decode(&p); err != nil {
		return apply.SurfaceRequest{}, err
	}
	return apply.SurfaceRequest{CallSite: p.CallSite, RequestDigest: c.digest()}, nil
}

func (c *call) status(ctx context.Context) (canon.Value, error) {
	q, err := c.surface()
	if err != nil {
		return canon.Value{}, err
	}
	return c.with(ctx, func(e Engine, _ apply.Request) (any, error) {
		s, err := e.Status(ctx, q)
		return s.Result, err
	})
}

func (c *call) capabilities(ctx context.Context) (canon.Value, error) {
	q, err := c.surface()
	if err != nil {
		return canon.Value{}, err
	}
	return c.with(ctx, func(e Engine, _ apply.Request) (any, error) { return e.Capabilities(ctx, q) })
}

func (c *call) authority(ctx context.Context) (canon.Value, error) {
	q, err := c.surface()
	if err != nil {
		return canon.Value{}, err
	}
	return c.with(ctx, func(e Engine, _ apply.Request) (any, error) { return e.AuthorityStatus(ctx, q) })
}

func (c *call) evaluate(ctx context.Context) (canon.Value, error) {
	var p wire.EvaluateChangesetParams
	if err := c.decode(&p); err != nil {
		return canon.Value{}, err
	}
	return c.with(ctx, func(e Engine, _ apply.Request) (any, error) {
		ev, err := e.Evaluate(ctx, apply.EvaluateRequest{
			CallSite: p.CallSite, Changeset: p.Changeset, Comparison: p.Comparison, TimeoutMs: p.TimeoutMs,
			BasePolicyDigest: p.BasePolicyDigest, RequestDigest: c.digest(), Blobs: c.s.blobs.get,
		})
		if err != nil {
			return nil, err
		}
		if ev.Stored.Kind() == canon.Object {
			return ev.Stored, nil
		}
		return ev.Verdict, nil
	})
}

func (c *call) inspect(ctx context.Context) (canon.Value, error) {
	var p wire.QueryInspectParams
	if err := c.decode(&p); err != nil {
		return canon.Value{}, err
	}
	return c.with(ctx, func(e Engine, _ apply.Request) (any, error) {
		return e.Inspect(ctx, apply.InspectRequest{
			CallSite: p.CallSite, Request: p.Request, Baseline: p.Baseline, TimeoutMs: p.TimeoutMs, RequestDigest: c.digest(),
		})
	})
}

func (c *call) requestEdit(ctx context.Context) (canon.Value, error) {
	var p wire.RequestEditPlanParams
	if err := c.decode(&p); err != nil {
		return canon.Value{}, err
	}
	return c.with(ctx, func(e Engine, _ apply.Request) (any, error) {
		r, err := e.RequestEdit(ctx, apply.EditRequest{
			CallSite: p.CallSite, Operation: p.Operation, Args: p.Args, Baseline: p.Baseline, Scope: p.Scope,
			ProposalID: p.ProposalID, RequestDigest: c.digest(),
		})
		if err == nil {
			c.keptPlan(e, r)
		}
		return r, err
	})
}

// keptPlan counts the plans of the session, so that one that asks without end leaves the
// others theirs.
func (c *call) keptPlan(e Engine, r *wire.RequestEditPlanResult) {
	id, _ := r.Proposal.Get("proposalId")
	if status, _ := r.Proposal.Get("status"); status.Str() != string(wire.StatusComplete) {
		return
	}
	for _, old := range c.s.keeps(id.Str()) {
		if err := e.DropProposal(old); err != nil {
			c.s.h.log.Warn("drop a plan", "session", c.s.name, "error", err)
		}
	}
}

func (c *call) applyProposal(ctx context.Context) (canon.Value, error) {
	var p wire.ApplyProposalParams
	if err := c.decode(&p); err != nil {
		return canon.Value{}, err
	}
	return c.with(ctx, func(e Engine, how apply.Request) (any, error) {
		a, err := e.ApplyProposal(ctx, apply.ProposalRequest{Params: p, RequestDigest: c.digest(), Blobs: c.s.blobs.get, Request: how})
		if err != nil {
			return nil, err
		}
		if a.Stored.Kind() == canon.Object {
			return a.Stored, nil
		}
		return a.Result, nil
	})
}

func (c *call) putBlob(context.Context) (canon.Value, error) {
	var p wire.PutBlobParams
	if err := c.decode(&p); err != nil {
		return canon.Value{}, err
	}
	ids, werr := c.s.blobs.put(p.Blobs)
	if werr != nil {
		return canon.Value{}, werr
	}
	return canon.From(wire.PutBlobResult{IDs: ids})
}

// wrong is the error object for what ended a request. A request that was cancelled
// says so, whatever the work said when it was interrupted, unless it had an answer of
// its own.
func (c *call) wrong(ctx context.Context, err error) *wire.Error {
	w := c.s.h.o.Wrong(err)
	if cause := context.Cause(ctx); cause != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, cause)) {
		detail := ""
		if w.Data != nil {
			detail = w.Data.Detail
		}
		return wire.NewError(wire.CodeCancelled, wire.FailHealth, "cancelled: "+cause.Error(), detail)
	}
	if w.Data == nil || w.Data.FailClass == "" {
		// Who reads it must not have to guess.
		w = wire.NewError(w.Code, wire.FailContract, w.Message, "")
	}
	return w
}
