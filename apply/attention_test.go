package apply_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aspengine/asp/apply"
	"github.com/aspengine/asp/receipt"
	"github.com/aspengine/asp/seam/wire"
)

// TestUndecidedNamesItsPaths: an attempt that could not be taken back whole says over the
// seam which paths a person has to decide, and by which commands; its receipt is that of a
// failure even where a cancel began it.
func TestUndecidedNamesItsPaths(t *testing.T) {
	h := newHosted(t, "", "", &crew{}, map[string]string{"a": "1\n", "b": "1\n"})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	h.hook = func(step string) {
		if step == "seal" { // everything is swapped, nothing decided
			if err := os.WriteFile(filepath.Join(h.root, "a"), []byte("mine\n"), 0o644); err != nil {
				t.Error(err)
			}
			cancel()
		}
	}
	p := proposal(t, h.crew, "me", "p1", h.baseline(), "a", "1\n", "2\n")
	_, err := h.engine().ApplyProposal(ctx, apply.ProposalRequest{Blobs: put("2\n"), Params: wire.ApplyProposalParams{
		CallSite: wire.Interactive, Intent: wire.IntentAgent, ProposalID: "p1", Proposal: p.Plan}})
	if !errors.Is(err, apply.ErrAttention) {
		t.Fatal(err)
	}
	w := apply.WireError(err)
	for _, s := range []string{`"a"`, "asp recover --show PATH", "--keep-mine", "--keep-theirs"} {
		if !strings.Contains(w.Message, s) {
			t.Errorf("%q does not name %s", w.Message, s)
		}
	}
	all := h.stored()
	if last := all[len(all)-1]; w.Code != wire.CodeNotReady || w.Data.Retryable == nil || *w.Data.Retryable || last.Outcome != receipt.Failed {
		t.Errorf("%+v, receipt %s", w, last.Outcome)
	}
}
