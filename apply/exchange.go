package apply

import (
	"context"

	"github.com/aspengine/asp/apply/commit"
	"github.com/aspengine/asp/internal/refusal"
)

func (t *tx) exchange(ctx context.Context) (bool, error) {
	return t.refuse(ctx, refusal.List{refusal.New(refusal.UnsupportedOperation, "", -1, "publish exchange is not available for this workspace; use journal")})
}

func (t *tx) exchanged() (commit.Guarantee, string) {
	return commit.GuaranteeNone, "nothing was exchanged"
}

func (e *Engine) exchangeForecast(f commit.Facts) (commit.Guarantee, string) {
	return commit.GuaranteeNone, "publish exchange is not available for this workspace"
}

func (e *Engine) recoverExchange(context.Context) ([]commit.Recovered, error) { return nil, nil }
