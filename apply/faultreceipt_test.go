package apply_test

import (
	"slices"

	"github.com/aspengine/asp/receipt"
	"github.com/aspengine/asp/seam/wire"
)

// soundFaults holds that every kept receipt of a provider's failure has what the
// outer seam demands of one: the coverage of the request, the failure in it,
// failures that mirror what is degraded, and evidence on the one that failed.
func (h *hosted) soundFaults(required []string) {
	h.t.Helper()
	for _, s := range h.stored() {
		r := s.Receipt
		if r.Kind != wire.ReceiptProviderFailure {
			continue
		}
		if s.Outcome != receipt.Failed || len(r.ProviderProvenance) != 1 || !slices.Equal(r.ProviderIDs, []string{r.ProviderProvenance[0].Provider}) {
			h.t.Errorf("outcome %s, providers %v, provenance %+v", s.Outcome, r.ProviderIDs, r.ProviderProvenance)
			continue
		}
		who := r.ProviderProvenance[0]
		if !slices.Equal(r.Failures, r.Coverage.Degraded) || r.Coverage.Exhaustive || !slices.Equal(r.Coverage.Required, required) ||
			!slices.Equal(r.Coverage.Enrolled, r.Coverage.Required) {
			h.t.Errorf("coverage %+v, failures %+v", r.Coverage, r.Failures)
		}
		if !slices.ContainsFunc(r.Failures, func(g wire.Degradation) bool {
			return g.Source == who.Provider && g.Capability == who.Capability && g.Reason != wire.DegradeOptionalDegraded && g.Reason != wire.DegradeFailOpen
		}) {
			h.t.Errorf("no failure of %s itself in %+v", who.Provider, r.Failures)
		}
		if len(r.AuthorityEvidence) == 0 {
			h.t.Error("no authority evidence")
		}
		for _, ev := range r.AuthorityEvidence {
			if ev.Identity != "acme" || ev.Integrity == "" || ev.Conformance == "" || ev.Isolation == "" || ev.Authority.CallSite != r.CallSite || ev.Authority.PolicyDigest != r.PolicyDigest {
				h.t.Errorf("evidence %+v", ev)
			}
		}
		if r.PolicyDigest == "" || r.ValidAsOf.Rev != r.Baseline.Rev {
			h.t.Errorf("policy %q, valid as of %+v", r.PolicyDigest, r.ValidAsOf)
		}
	}
}
