package apply

import (
	"context"
	"sync"

	"github.com/aspengine/asp/checks"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/provider"
	"github.com/aspengine/asp/seam/wire"
)

// Verdicts remembers complete answers of providers, so that the same question is
// asked once: the same after-state, check, settings, policy and provider; and what
// they said of whole states, see views. It lives as long as its pool, because what it
// holds was established by launches of that pool, and is bounded by count. Safe for
// concurrent use. A nil *Verdicts remembers nothing.
type Verdicts struct {
	mu    sync.Mutex
	max   int
	known map[string]verdict
	order []string // oldest first
	views views
	// seen are digests of changesets that were answered, with the receipt whose pack
	// holds all that they put, if one does. A hint: whoever trusts it and is wrong has
	// looked for a pack in vain.
	seen map[string]string
}

type verdict struct {
	asker string
	res   checks.Result
}

// NewVerdicts makes a memory for at most n answers.
func NewVerdicts(n int) *Verdicts { return &Verdicts{max: n, known: map[string]verdict{}} }

func (v *Verdicts) get(key string) (checks.Result, bool) {
	if v == nil || key == "" {
		return checks.Result{}, false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	r, ok := v.known[key]
	return r.res, ok
}

func (v *Verdicts) put(key, asker string, r checks.Result) {
	if v == nil || key == "" || v.max <= 0 {
		return
	}
	r.Accepted = nil // the views hold it, within their bound
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, ok := v.known[key]; !ok {
		v.order = append(v.order, key)
	}
	v.known[key] = verdict{asker, r}
	for len(v.order) > v.max {
		delete(v.known, v.order[0])
		v.order = v.order[1:]
	}
}

// expect notes that the changeset was answered.
func (v *Verdicts) expect(changeset string) {
	if v == nil || v.max <= 0 {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, ok := v.seen[changeset]; ok {
		return
	}
	if v.seen == nil || len(v.seen) >= v.max {
		v.seen = map[string]string{}
	}
	v.seen[changeset] = ""
}

// packed notes the receipt whose pack holds all that the changeset puts, for one that was
// answered.
func (v *Verdicts) packed(changeset, receiptID string) {
	if v == nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, ok := v.seen[changeset]; ok {
		v.seen[changeset] = receiptID
	}
}

// packOf is what packed noted; "" for nothing.
func (v *Verdicts) packOf(changeset string) string {
	if v == nil {
		return ""
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.seen[changeset]
}

// forget drops everything that one asker said: it took itself back.
func (v *Verdicts) forget(asker string) {
	if v == nil || asker == "" {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	kept := v.order[:0]
	for _, k := range v.order {
		if v.known[k].asker == asker {
			delete(v.known, k)
		} else {
			kept = append(kept, k)
		}
	}
	v.order = kept
	v.views.forget(asker)
}

// asker names a provider as it was launched, with what it is asked under: its
// settings, apart from comparison and scope, and the policy. "" where there is nothing
// to look up: nothing is remembered, or the provider was not launched yet, failed, is in
// quarantine, or may reach something: what it says may then be another thing tomorrow, and
// is no contradiction of what it said today.
func (j *judgement) asker(ctx context.Context, id string, set provider.Settings) string {
	if j.e.o.Verdicts == nil {
		return ""
	}
	var st provider.Standing
	if s := standingOf(j.roster, id); s != nil && !j.asked.Load() {
		st = *s // it was read for this judgement, and nobody was started since
	} else {
		st = j.e.o.Providers.Standing(ctx, id)
	}
	if !st.Used || len(st.Participant.Network) > 0 || st.Quarantine != nil || st.Problem != "" || st.Failure != "" || statusOf(st.State) != checks.Passed {
		return ""
	}
	cfg := set.Configuration
	if cfg.Kind() == canon.Invalid {
		cfg = canon.NullOf()
	}
	who, text := st.Participant, canon.StringOf
	return canon.DigestText(canon.ArrayOf(
		texts(set.Checks), texts(set.Rules), texts(set.Sources), cfg, text(set.ConfigDigest), text(j.pol.Digest),
		text(who.ID), text(who.Version), text(who.Publisher), text(who.Package), text(who.Fingerprint), texts(who.Profiles), texts(who.Families),
		text(who.ServerVersion), text(string(who.Mode)), canon.BoolOf(who.Verified), canon.BoolOf(who.NoChecksums), text(who.ConfigDigest), text(who.CapabilityVersion),
		text(who.PinnedConfig), canon.BoolOf(who.DirectWrite), text(who.FastPath), text(st.Protocol), text(string(st.Isolation)), text(st.Evidence),
	))
}

func texts[T ~string](in []T) canon.Value {
	out := make([]canon.Value, len(in))
	for i, x := range in {
		out[i] = canon.StringOf(string(x))
	}
	return canon.ArrayOf(out...)
}

// subjectKey names what is looked at: the change, the state that it starts from, and
// how far the look goes. "" where that cannot be said.
func subjectKey(s provider.Subject, set provider.Settings) string {
	changes, err := canon.From(s.Changes)
	if err != nil {
		return ""
	}
	return canon.DigestText(canon.ArrayOf(canon.StringOf(s.Baseline.Rev), canon.StringOf(s.Baseline.Dirty), changes,
		canon.StringOf(set.Scope), canon.BoolOf(s.Scope != nil), texts(s.Scope)))
}

// verdictKey names everything that an answer depends on; "" where there is nothing
// to look up.
func verdictKey(asker, subject string, cs wire.CallSite, comparison, configured string) string {
	if asker == "" || subject == "" {
		return ""
	}
	return canon.DigestText(texts([]string{asker, subject, string(cs), comparison, configured}))
}
