package apply_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/aspengine/asp/apply"
	"github.com/aspengine/asp/checks"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/provider"
	"github.com/aspengine/asp/seam/wire"
)

// TestAVerdictFitsIntoAMessage: fixes that come to more than a message are left out
// visibly, the largest first, and what blocks stays.
func TestAVerdictFitsIntoAMessage(t *testing.T) {
	const limit = 8 << 20
	c := &crew{roster: []provider.Standing{standing("p", wire.Gated, wire.Check)}}
	c.check = func(_ context.Context, id string, _ provider.Subject, _ provider.Settings) checks.Result {
		r := c.failed(id, "a")
		for _, n := range []int{5 << 20, 1 << 20, 2 << 20} {
			g := r.Diagnostics[0]
			g.Fingerprint += "1"
			g.Fix = &wire.Fix{EditRef: "replace", Args: canon.ObjectOf(canon.Member{Key: "text", Value: canon.StringOf(strings.Repeat("x", n))})}
			r.Diagnostics = append(r.Diagnostics, g)
		}
		return r
	}
	h := newHosted(t, `{"limits":{"messageBytes":8388608}}`, pins("p", checkOnly, "gated", wire.Gate), c, map[string]string{"a": "1\n"})
	ev, err := h.evaluate(apply.EvaluateRequest{Blobs: put("3\n")}, wire.Change{Path: "a", Kind: wire.KindModify, Before: blobID("1\n"), After: blobID("3\n")})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(ev.Stored.Bytes()); n > limit {
		t.Errorf("a verdict of %d bytes", n)
	}
	v := ev.Verdict
	if v.Decision != wire.Deny || len(v.Findings) != 4 {
		t.Fatalf("%s, %d findings", v.Decision, len(v.Findings))
	}
	for i, want := range []bool{false, false, true, true} { // 3 MiB fit into half of a message, 8 MiB do not
		w := v.Findings[i]
		gone := strings.Contains(w.SeverityNote, "truncated: its fix of ")
		if (w.Diagnostic.Fix != nil) != want || gone != (i == 1) || w.Disposition != wire.Gating {
			t.Errorf("finding %d: fix %v, note %q", i, w.Diagnostic.Fix != nil, w.SeverityNote)
		}
	}
	if rep, err := h.engine().Replay(context.Background(), v.Receipt.ReceiptID); err != nil || !rep.OK || !slices.Contains(rep.Confirmed, "request digest "+v.RequestDigest) {
		t.Errorf("replay: %+v, %v", rep, err)
	}
}
