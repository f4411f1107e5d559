package apply

import (
	"context"

	"github.com/aspengine/asp/receipt"
	"github.com/aspengine/asp/seam/wire"
	"github.com/aspengine/asp/snapshot"
)

// Misread stores the receipt of a request of the outer seam whose params could not be
// read, and returns the error w with the receipt named in its detail. A method of no
// receipt is w itself.
func (e *Engine) Misread(ctx context.Context, method, requestDigest string, w *wire.Error) error {
	kinds := map[string]struct {
		kind   wire.ReceiptKind
		family wire.Family
	}{
		"host/status":            {wire.ReceiptStatus, wire.Check},
		"host/capabilities":      {wire.ReceiptCapabilities, wire.Check},
		"host/authority/status":  {wire.ReceiptAuthorityStatus, wire.Check},
		"host/evaluateChangeset": {wire.ReceiptEvaluate, wire.Check},
		"host/queryInspect":      {wire.ReceiptInspect, wire.Inspect},
		"host/requestEditPlan":   {wire.ReceiptEditRequest, wire.Edit},
		"host/applyProposal":     {wire.ReceiptApplyAttempt, wire.Edit},
	}
	k, ok := kinds[method]
	if !ok {
		return w
	}
	now := e.now()
	s, err := e.ws.Stamp(ctx, snapshot.StampOptions{Watched: true})
	if err != nil {
		return w
	}
	return e.failRequest(context.WithoutCancel(ctx), receipt.Draft{
		Kind: k.kind, Family: k.family, RequestDigest: requestDigest, PolicyDigest: e.pol.Digest, Baseline: e.issue(s.Baseline, now), Coverage: emptyCoverage(), Started: now,
	}, nil, &inputError{code: w.Code, class: wire.FailInput, reason: wire.DegradeMalformed, msg: w.Message})
}
