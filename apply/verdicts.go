package apply

import (
	"context"
	"sync"

	"github.com/aspengine/asp/checks"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/provider"
)

// Verdicts remembers complete answers of providers, so that the same question is
// asked once: the same after-state, check, settings, policy and provider. It
// lives as long as its pool, because what it holds was established by launches of
// that pool, and is bounded by count. Safe for concurrent use. A nil *Verdicts
// remembers nothing.
type Verdicts struct {
	mu    sync.Mutex
	max   int
	known map[string]checks.Result
	order []string // oldest first
}

// NewVerdicts makes a memory for at most n answers.
func NewVerdicts(n int) *Verdicts { return &Verdicts{max: n, known: map[string]checks.Result{}} }

func (v *Verdicts) get(key string) (checks.Result, bool) {
	if v == nil || key == "" {
		return checks.Result{}, false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	r, ok := v.known[key]
	return r, ok
}

func (v *Verdicts) put(key string, r checks.Result) {
	if v == nil || key == "" || v.max <= 0 {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, ok := v.known[key]; !ok {
		v.order = append(v.order, key)
	}
	v.known[key] = r
	for len(v.order) > v.max {
		delete(v.known, v.order[0])
		v.order = v.order[1:]
	}
}

// verdictKey names everything that an answer depends on; "" where there is
// nothing to look up: nothing is remembered, or the provider was not launched yet,
// failed, or is in quarantine.
func (j *judgement) verdictKey(ctx context.Context, id string, s provider.Subject, set provider.Settings) string {
	if j.e.o.Verdicts == nil {
		return ""
	}
	st := j.e.o.Providers.Standing(ctx, id)
	if !st.Used || st.Quarantine != nil || st.Problem != "" || st.Failure != "" || statusOf(st.State) != checks.Passed {
		return ""
	}
	text := canon.StringOf
	list := func(in []string) canon.Value {
		out := make([]canon.Value, len(in))
		for i, x := range in {
			out[i] = text(x)
		}
		return canon.ArrayOf(out...)
	}
	changes, err := canon.From(s.Changes)
	if err != nil {
		return ""
	}
	cfg := set.Configuration
	if cfg.Kind() == canon.Invalid {
		cfg = canon.NullOf()
	}
	who := st.Participant
	families := make([]string, len(who.Families))
	for i, f := range who.Families {
		families[i] = string(f)
	}
	return canon.DigestText(canon.ArrayOf(
		text(s.Baseline.Rev), text(s.Baseline.Dirty), changes, text(string(s.CallSite)), text(s.Comparison), list(s.Scope),
		list(set.Checks), list(set.Rules), list(set.Sources), cfg, text(set.ConfigDigest), text(set.Comparison), text(set.Scope),
		text(j.pol.Digest),
		text(who.ID), text(who.Version), text(who.Publisher), text(who.Package), text(who.Fingerprint), list(who.Profiles), list(families),
		text(who.ServerVersion), text(string(who.Mode)), canon.BoolOf(who.Verified), canon.BoolOf(who.NoChecksums), text(who.ConfigDigest), text(who.CapabilityVersion),
		text(who.PinnedConfig), canon.BoolOf(who.DirectWrite), text(who.FastPath), text(st.Protocol), text(string(st.Isolation)), text(st.Evidence),
		canon.BoolOf(s.Scope != nil),
	))
}
