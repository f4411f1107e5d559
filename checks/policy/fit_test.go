package policy_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/aspengine/asp/checks"
	"github.com/aspengine/asp/checks/policy"
	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/seam/wire"
)

// fixOf is an edit of about n bytes.
func fixOf(n int) *wire.Fix {
	return &wire.Fix{EditRef: "edit/replace", Args: canon.ObjectOf(canon.Member{Key: "text", Value: canon.StringOf(strings.Repeat("x", n))})}
}

// many is one source that blocks by the first finding and informs by the others.
func many(id string, n int, message string, fix int) checks.Result {
	r := good(id)
	r.Status = checks.Failed
	for i := range n {
		g := diagnostic([]wire.Severity{wire.SeverityError, wire.SeverityWarning, wire.SeverityInfo}[min(i, 2)], i == 0)
		g.Message, g.Fingerprint = message, fmt.Sprintf("sha256:%s-%d", id, i)
		if fix > 0 {
			g.Fix = fixOf(fix * (i + 1))
		}
		r.Diagnostics = append(r.Diagnostics, g)
	}
	return r
}

func TestFit(t *testing.T) {
	p := policy.Active(config(t, `{}`), []byte(secretsPolicy("required", "p")), true)
	decide := func(rs ...checks.Result) policy.Decision {
		return policy.Decide(p, policy.Question{CallSite: wire.Gate, Results: rs})
	}
	bytes := func(d policy.Decision) int {
		b, err := canon.Marshal(d.Findings)
		if err != nil {
			t.Fatal(err)
		}
		return len(b)
	}
	long := strings.Repeat("m", 3000)
	for _, x := range []struct {
		name         string
		in           checks.Result
		limit        int
		kept, fixes  int
		notes, texts string // in any note; the length of the first message
	}{
		{"enough room", many("p", 4, "m", 100), 1 << 20, 4, 4, "", "1"},
		{"the largest fix", many("p", 4, "m", 10_000), 80_000, 4, 3, "its fix of 40", "1"},
		{"every fix", many("p", 4, "m", 10_000), 8_000, 4, 0, "its fix of 10", "1"},
		{"what informs", many("p", 40, long, 0), 60_000, 16, 0, "further findings of this source", "3000"},
		{"all that informs, and length", many("p", 40, long, 20_000), 3_000, 1, 0, "its texts are cut", "400"},
	} {
		t.Run(x.name, func(t *testing.T) {
			d := decide(x.in)
			if d.Decision != wire.Deny {
				t.Fatalf("%s", d.Decision)
			}
			before := bytes(d)
			if x.notes != "" && before <= x.limit {
				t.Fatalf("%d bytes fit into %d: nothing to test", before, x.limit)
			}
			d.Fit(int64(x.limit))
			if n := bytes(d); n > x.limit {
				t.Errorf("%d bytes, limit %d", n, x.limit)
			}
			fixes, gating, notes := 0, 0, ""
			for _, w := range d.Findings {
				notes += w.SeverityNote + "\n"
				if w.Diagnostic.Fix != nil {
					fixes++
				}
				if w.Disposition == wire.Gating {
					gating++
				}
				if err := w.Check(); err != nil {
					t.Error(err)
				}
			}
			if len(d.Findings) < x.kept-3 || len(d.Findings) > x.kept+3 || x.kept <= 4 && len(d.Findings) != x.kept {
				t.Errorf("%d findings are kept, want about %d", len(d.Findings), x.kept)
			}
			if fixes != x.fixes || gating != 1 {
				t.Errorf("%d fixes, %d blocking", fixes, gating)
			}
			if strings.Contains(notes, "truncated") != (x.notes != "") || !strings.Contains(notes, x.notes) {
				t.Errorf("notes %s", notes)
			}
			if got := fmt.Sprint(len(d.Findings[0].Diagnostic.Message)); got != x.texts {
				t.Errorf("message of %s bytes, want %s", got, x.texts)
			}
		})
	}
	// The decision of the caller's results is not touched by fitting.
	r := many("p", 2, "m", 100_000)
	d := decide(r)
	d.Fit(1000)
	if r.Diagnostics[0].Fix == nil || d.Findings[0].Diagnostic.Fix != nil {
		t.Error("the fix of the result went, or that of the finding stayed")
	}
}

// Many sources with as much as each may say: what blocks stays, of all of them.
func TestFitOfManySources(t *testing.T) {
	var pins []string
	var rs []checks.Result
	for i := range 6 {
		id := fmt.Sprintf("p%d", i)
		pins = append(pins, id)
		r := good(id)
		r.Status = checks.Failed
		for k := range 200 {
			g := diagnostic(wire.SeverityError, true)
			g.Message, g.Help, g.Fingerprint = strings.Repeat("\x01", 3900), strings.Repeat("\x02", 900), fmt.Sprintf("sha256:%d-%d", i, k)
			r.Diagnostics = append(r.Diagnostics, g)
		}
		rs = append(rs, r)
	}
	p := policy.Active(config(t, `{"limits":{"messageBytes":8388608}}`), []byte(secretsPolicy("required", pins...)), true)
	d := policy.Decide(p, policy.Question{CallSite: wire.Gate, Results: rs})
	n := len(d.Findings)
	if n != 1200 {
		t.Fatalf("%d findings", n)
	}
	d.Fit(p.Config.Limits.Findings())
	b, err := canon.Marshal(d.Verdict(policy.Envelope{}))
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Findings) != n || int64(len(b)) > p.Config.Limits.MessageBytes {
		t.Errorf("%d of %d findings, the verdict has %d bytes", len(d.Findings), n, len(b))
	}
}

func TestARecordBoundsItsFixes(t *testing.T) {
	p := policy.Active(config(t, `{}`), []byte(secretsPolicy("required", "p")), true)
	q := policy.Question{CallSite: wire.Gate, Results: []checks.Result{many("p", 5, "m", 1<<20)}}
	rec, err := policy.Record(p, q)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(rec.Bytes()); n > 9<<20 || n < 1<<20 {
		t.Errorf("a record of %d bytes", n)
	}
	d, _, err := policy.Replay(p.Value, rec)
	if err != nil || d.Decision != wire.Deny {
		t.Errorf("%s, %v", d.Decision, err)
	}
	if d.Findings[0].Diagnostic.Fix == nil || q.Results[0].Diagnostics[4].Fix == nil {
		t.Error("the smallest fix is gone, or the caller's own")
	}
}
