package policy_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aspengine/asp/checks"
	"github.com/aspengine/asp/checks/policy"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/internal/home"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/seam/wire"
	"github.com/google/go-cmp/cmp"
)

// replays demands that question and policy, written down and read again, give
// the very same decision.
func replays(t *testing.T, where string, p policy.Policy, q policy.Question) {
	t.Helper()
	rec, err := policy.Record(p, q)
	if err != nil {
		t.Fatalf("%s: %v", where, err)
	}
	// Through bytes, as it is kept.
	rec, err = canon.Parse(rec.Bytes(), canon.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	value, err := canon.Parse(p.Value.Bytes(), canon.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	got, digest, err := policy.Replay(value, rec)
	if err != nil || digest != p.Digest {
		t.Fatalf("%s: digest %s, want %s; %v", where, digest, p.Digest, err)
	}
	want := policy.Decide(p, q)
	if d := cmp.Diff(text(t, want), text(t, got)); d != "" || want.Mode != got.Mode {
		t.Fatalf("%s: %s, %s:\n%s", where, want.Mode, got.Mode, d)
	}
}

// text is all of a decision that anybody sees.
func text(t *testing.T, d policy.Decision) []string {
	t.Helper()
	v, err := canon.Marshal(d.Verdict(policy.Envelope{}))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, pv := range d.Provenance {
		out = append(out, pv.Provider, string(pv.Capability), pv.Identity, pv.Integrity, pv.Conformance)
	}
	return append(out, string(v))
}

func TestReplayGivesTheSameDecision(t *testing.T) {
	n, made := 0, map[string]policy.Policy{}
	for c := range combinations {
		if n++; n%5 != 0 {
			continue
		}
		p, q := c.ask(t, made)
		replays(t, c.b.name+" "+c.role+" "+c.form, p, q)
	}
	ps := policies{}
	for c := range situations {
		if n++; n%173 == 0 {
			p, q := ps.situation(t, c)
			replays(t, "commands", p, q)
		}
	}
	p := policy.Active(config(t, goodConfig), []byte(goodRepository), true)
	replays(t, "everything configured", p, policy.Question{CallSite: wire.Gate, Named: []string{"vet"}})
}

// Long and broken foreign text is cut once for the record and once for the
// decision, and comes to the same.
func TestReplayOfMuchForeignText(t *testing.T) {
	p := policy.Active(config(t, `{"checks":{"vet":{"argv":["vet"],"required":true}}}`), []byte(secretsPolicy("required", "p")), true)
	long := strings.Repeat("a\xffé漢", 1500)
	r := good("p")
	r.Status, r.Evidence, r.Detail = checks.Failed, long, long
	for range 300 {
		g := diagnostic(wire.SeverityError, true)
		g.Message, g.Help = strings.ToValidUTF8(long, "."), strings.ToValidUTF8(long, ".")
		w := diagnostic(wire.SeverityWarning, true)
		r.Diagnostics = append(r.Diagnostics, w, g)
	}
	vet := checks.Result{Name: "command/vet", Status: checks.Failed, Detail: long, ExitCode: 3}
	for range 300 {
		vet.Findings = append(vet.Findings, checks.Finding{Code: "x", Message: long, Path: "a\xff", NextStep: long})
	}
	replays(t, "findings", p, policy.Question{CallSite: wire.Gate, Results: []checks.Result{r, vet}})
	r.Status, r.Provider.Publisher = checks.Crashed, long
	vet.Status = checks.TimedOut
	replays(t, "causes", p, policy.Question{CallSite: wire.Gate, Results: []checks.Result{r, vet}})
}

func TestReplayRefusesWhatIsNoRecord(t *testing.T) {
	p := policy.Active(config(t, `{}`), []byte(secretsPolicy("required", "p")), true)
	rec, err := policy.Record(p, policy.Question{CallSite: wire.Gate, Results: []checks.Result{good("p")}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range [][2]string{{`"gate"`, `"door"`}, {`"isolation":"gated"`, `"isolation":"strong"`}, {`"apply"`, `"applies"`}} {
		bad, err := canon.Parse([]byte(strings.Replace(string(rec.Bytes()), c[0], c[1], 1)), canon.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := policy.Replay(p.Value, bad); err == nil {
			t.Errorf("%s is taken", c[1])
		}
	}
	for _, text := range []string{`{}`, `[]`, strings.Replace(string(p.Value.Bytes()), `"asp/1.0"`, `1`, 1), strings.Replace(string(p.Value.Bytes()), `"floor":null`, `"floor":{}`, 1)} {
		v, err := canon.Parse([]byte(text), canon.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := policy.Parse(v, ""); err == nil {
			t.Errorf("%.80s is taken as a policy", text)
		}
	}
}

func TestKeep(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "asp")
	h, err := home.Open(vfs.OS{}, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	p := policy.Active(config(t, goodConfig), []byte(goodRepository), true)
	if _, err := policy.Kept(h, p.Digest); !errors.Is(err, policy.ErrNotKept) {
		t.Errorf("before it was kept: %v", err)
	}
	for range 2 {
		if err := policy.Keep(h, p); err != nil {
			t.Fatal(err)
		}
	}
	v, err := policy.Kept(h, p.Digest)
	if err != nil || string(v.Bytes()) != string(p.Value.Bytes()) {
		t.Errorf("%v %v", v, err)
	}
	file := filepath.Join(dir, "policies", strings.TrimPrefix(p.Digest, "sha256:")+".json")
	for _, text := range []string{``, `{}`} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := policy.Kept(h, p.Digest); err == nil {
			t.Errorf("%q is taken for it", text)
		}
		if err := policy.Keep(h, p); err != nil {
			t.Fatal(err)
		}
		if _, err := policy.Kept(h, p.Digest); err != nil {
			t.Errorf("it was not mended: %v", err)
		}
	}
	for _, bad := range []string{"", "sha256:", "sha256:../../config", p.Digest + "0"} {
		if _, err := policy.Kept(h, bad); err == nil || errors.Is(err, policy.ErrNotKept) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
