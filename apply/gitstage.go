package apply

import (
	"context"

	"github.com/aspengine/asp/apply/commit"
	"github.com/aspengine/asp/internal/refusal"
)

func (e *Engine) stageIndex(ctx context.Context, t *tx) ([]commit.ExtraFile, func(), refusal.List, error) {
	return nil, nil, refusal.List{refusal.New(refusal.UnsupportedOperation, "", -1, "the index of this workspace cannot be written")}, nil
}

func (t *tx) commitRef(ctx context.Context) (refusal.List, error) {
	return refusal.List{refusal.New(refusal.UnsupportedOperation, "", -1, "commits cannot be made in this workspace")}, nil
}
